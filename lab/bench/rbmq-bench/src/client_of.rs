//! Connects one publisher or subscriber of one topic to any system.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
};

use crate::{
    clients::{LOOK, Receives, Sends, Whom},
    error::BenchError,
    peers::{self, Next, Peer, Reader},
    rbmq_peers,
    relay::{PUBLISHER, SUBSCRIBER},
    relay_peers,
    systems::System,
};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;

/// Connects a publisher. RBMQ's publisher waits for the topic's subscriber; the others need no wait.
///
/// # Errors
/// No server answers, or the server refuses.
pub fn sender(whom: &Whom, topic: u8) -> Result<Box<dyn Sends>, BenchError> {
    Ok(match (whom.system, Peer::of(whom.system)) {
        (_, Some(peer)) => {
            let mut socket = peers::connect(peers::server_of(&whom.addr, topic), whom.congestion.as_deref())?;
            peer.open_publisher(&mut socket, false)?;
            let name = peers::topic_name(topic);
            Box::new(Buffered { socket, buffer: Vec::new(), framing: Framing::Peer(peer, name) })
        }
        (System::Relay, None) => {
            let socket = relay_peers::connect(&whom.addr, [PUBLISHER, topic], whom.congestion.as_deref())?;
            Box::new(Buffered { socket, buffer: Vec::new(), framing: Framing::Length })
        }
        (_, None) => Box::new(rbmq_peers::one_sender(whom, topic)?),
    })
}

/// Connects a subscriber, which gets every message of the topic that is sent after this call.
///
/// # Errors
/// No server answers, or the server refuses.
pub fn receiver(whom: &Whom, topic: u8) -> Result<Box<dyn Receives>, BenchError> {
    Ok(match (whom.system, Peer::of(whom.system)) {
        (_, Some(peer)) => {
            let mut socket = peers::connect(peers::server_of(&whom.addr, topic), whom.congestion.as_deref())?;
            let mut reader = Reader::for_messages(READ_BYTES);
            peer.open_subscriber(&mut socket, &mut reader, &[topic])?;
            socket.set_read_timeout(Some(LOOK))?;
            Box::new(PeerReceiver { peer, socket, reader })
        }
        (System::Relay, None) => {
            let mut socket =
                relay_peers::connect(&whom.addr, [SUBSCRIBER, topic], whom.congestion.as_deref())?;
            socket.read_exact(&mut [0])?;
            socket.set_read_timeout(Some(LOOK))?;
            Box::new(RelayReceiver { socket, buffer: vec![0; READ_BYTES], filled: 0 })
        }
        (_, None) => Box::new(rbmq_peers::one_receiver(whom, topic)?),
    })
}

enum Framing {
    Peer(Peer, String),
    Length,
}

/// A publisher with a buffer before its socket.
struct Buffered {
    socket: TcpStream,
    buffer: Vec<u8>,
    framing: Framing,
}

impl Sends for Buffered {
    fn push(&mut self, message: &[u8]) -> Result<(), BenchError> {
        match &self.framing {
            Framing::Peer(peer, topic) => peer.encode(&mut self.buffer, topic, message),
            Framing::Length => {
                self.buffer.extend_from_slice(&(message.len() as u32).to_le_bytes());
                self.buffer.extend_from_slice(message);
            }
        }
        if self.buffer.len() >= READ_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        if !self.buffer.is_empty() {
            let written = self.socket.write_all(&self.buffer);
            self.buffer.clear();
            written?;
        }
        Ok(())
    }
}

struct PeerReceiver {
    peer: Peer,
    socket: TcpStream,
    reader: Reader,
}

impl Receives for PeerReceiver {
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), BenchError> {
        // Bytes that came with the server's answers are there before the first read.
        let mut at = 0;
        loop {
            match self.peer.next(&self.reader.data()[at..])? {
                Next::More => break,
                Next::Message { payload, len, .. } => {
                    each(payload);
                    at += len;
                }
                Next::Other { len, answer, .. } => {
                    self.socket.write_all(answer.unwrap_or_default())?;
                    at += len;
                }
            }
        }
        self.reader.used(at);
        if at == 0 {
            self.reader.fill(&mut self.socket)?;
        }
        Ok(())
    }
}

struct RelayReceiver {
    socket: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Receives for RelayReceiver {
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), BenchError> {
        match self.socket.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(len) => self.filled += len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        let mut at = 0;
        while let Some((length, rest)) = self.buffer[at..self.filled].split_first_chunk::<4>() {
            let Some(message) = rest.get(..u32::from_le_bytes(*length) as usize) else { break };
            each(message);
            at += 4 + message.len();
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}
