//! QUIC streams with quinn: encrypted, congestion-controlled, retransmitted, in order. One stream each way, with the length before
//! each message. Messages are written together, as CMQ's batches are.

use std::{io, time::Duration};

use benchkit::{
    ends::End,
    exchange::{self, Link},
};
use quinn::{Connection, RecvStream, SendStream};

use crate::quic::Datagrams;

/// Bytes that are written at once, as many as in a batch of CMQ.
const BATCH: usize = 60_000;
/// Bytes of a length.
const LENGTH: usize = 4;
/// Bytes that are read at once.
const READ: usize = 1 << 16;

/// An end of a connection with a stream each way.
pub struct Streams {
    connection: Datagrams,
    send: Option<SendStream>,
    receive: Option<RecvStream>,
    out: Vec<u8>,
    /// Received bytes, and where the next message begins.
    received: Vec<u8>,
    at: usize,
}

impl Streams {
    /// The answerer accepts, the driver connects.
    pub fn open(end: &End) -> io::Result<Streams> {
        let connection = Datagrams::open(end)?;
        let (out, received) = (Vec::new(), Vec::new());
        Ok(Streams { connection, send: None, receive: None, out, received, at: 0 })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let (runtime, connection) = self.connection.connection(Duration::ZERO)?;
        let Some(connection) = connection else { return Ok(()) };
        if self.send.is_none() {
            self.send = Some(runtime.block_on(connection.open_uni()).map_err(io::Error::other)?);
        }
        if let Some(send) = &mut self.send {
            runtime.block_on(send.write_all(&self.out)).map_err(io::Error::other)?;
        }
        self.out.clear();
        Ok(())
    }

    /// The next message, in `received`.
    fn next(&mut self, wait: Duration) -> io::Result<Option<std::ops::Range<usize>>> {
        loop {
            let rest = &self.received[self.at..];
            if let Some(length) =
                rest.first_chunk::<LENGTH>().map(|length| u32::from_le_bytes(*length) as usize)
                && rest.len() >= LENGTH + length
            {
                let begin = self.at + LENGTH;
                self.at = begin + length;
                return Ok(Some(begin..self.at));
            }
            self.flush()?;
            if !self.read(wait)? {
                return Ok(None);
            }
        }
    }

    /// Reads more. False if nothing came in time.
    fn read(&mut self, wait: Duration) -> io::Result<bool> {
        self.received.drain(..self.at);
        self.at = 0;
        let (runtime, connection) = self.connection.connection(wait)?;
        let Some(connection) = connection else { return Ok(false) };
        if self.receive.is_none() {
            let accept = async { tokio::time::timeout(wait, accept(connection)).await };
            self.receive = runtime.block_on(accept).ok().transpose()?;
        }
        let Some(receive) = &mut self.receive else { return Ok(false) };
        let begin = self.received.len();
        self.received.resize(begin + READ, 0);
        let buffer = &mut self.received[begin..];
        let read = runtime.block_on(async { tokio::time::timeout(wait, receive.read(buffer)).await });
        let read = read.ok().transpose().map_err(io::Error::other)?.flatten();
        self.received.truncate(begin + read.unwrap_or(0));
        Ok(read.is_some())
    }
}

async fn accept(connection: &Connection) -> io::Result<RecvStream> {
    connection.accept_uni().await.map_err(io::Error::other)
}

impl Link for Streams {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.out.extend_from_slice(message);
        if self.out.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        let Some(message) = self.next(wait)? else { return Ok(None) };
        let length = message.len();
        into[..length].copy_from_slice(&self.received[message]);
        Ok(Some(length))
    }

    fn receive_number(&mut self, _: &mut [u8], wait: Duration) -> io::Result<Option<Option<u32>>> {
        Ok(self.next(wait)?.map(|message| exchange::number(&self.received[message])))
    }
}
