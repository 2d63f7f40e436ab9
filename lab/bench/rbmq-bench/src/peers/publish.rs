//! A publisher of any peer.
//!
//! Without confirmations it only writes, and the subscribers' tokens hold it back (`credit`). With confirmations it also reads
//! the server's answers: at most `UNCONFIRMED_BYTES` are unconfirmed, and only confirmed messages count.

use std::{
    collections::BTreeSet,
    io::{IoSlice, Write},
    net::{Shutdown, TcpStream},
};

use benchkit::{
    control::Control,
    credit::Credit,
    pace::{BATCH_BYTES, Pace, call_bytes},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{
    Peer,
    message::{Accepted, Next, topic_name},
    socket::{connect, server_of},
};

use crate::{
    error::BenchError,
    load::Load,
    pattern::{Cursor, Pattern},
    systems::{Api, Confirm},
};

/// Written and not yet confirmed.
const UNCONFIRMED_BYTES: usize = 1 << 20;

/// The server's confirmations so far.
struct Confirmations {
    reader: Vec<u8>,
    filled: usize,
    /// Messages that it has, with none missing before them.
    confirmed: u64,
    /// Numbers of others that it has.
    ahead: BTreeSet<u64>,
    window: u64,
}

/// A publisher on its connection.
struct Publishing<'a> {
    peer: Peer,
    socket: TcpStream,
    credit: Credit,
    pace: Pace,
    /// Messages written, the last one perhaps not to its end.
    sent: u64,
    confirmations: Option<Confirmations>,
    control: &'a Control,
}

/// Publishes a topic's stream until the harness says stop.
///
/// # Errors
/// The connection failed, or the server refused something.
pub fn publish(control: &Control, load: &Load, peer: Peer, topic: u8) -> Result<(), BenchError> {
    let peer = peer.with(load.confirm);
    let (prefix, suffix) = peer.around(topic, load.size);
    let pattern = Pattern::framed(u32::from(topic), load.size, prefix, suffix);
    let record = pattern.record_bytes();
    let mut socket = connect(server_of(&load.addr, topic), load.congestion.as_deref())?;
    peer.open_publisher(&mut socket, load.confirm != Confirm::None)?;
    socket.set_read_timeout(None)?;
    let mut publishing = Publishing {
        peer,
        socket,
        credit: Credit::open(load.folder()?, topic, load.subscribers, peer.weight(record))?,
        pace: Pace::new(load.rate),
        sent: 0,
        confirmations: (load.confirm != Confirm::None).then(|| Confirmations::new(record)),
        control,
    };
    control.ready("");
    control.wait_for_go();
    let mut cursor = Cursor::new(&pattern);
    match load.api {
        Api::Batch | Api::Wire => publishing.batches(&mut cursor, record, load.rate)?,
        Api::Message => publishing.messages(&mut cursor, &topic_name(topic))?,
    }
    publishing.finish()
}

impl Publishing<'_> {
    /// How many messages may be handed over now; waits until that is some.
    fn wait(&mut self) -> Result<u64, BenchError> {
        let credit = self.credit.wait(self.sent)?;
        Ok(self.pace.wait(self.sent).min(credit))
    }

    fn batches(
        &mut self,
        cursor: &mut Cursor<'_>,
        record: usize,
        rate: Option<f64>,
    ) -> Result<(), BenchError> {
        let (call, at_a_rate) = (call_bytes(rate), rate.is_some());
        let mut slices = Vec::with_capacity(128);
        while !self.control.stopped() {
            let allowed = usize::try_from(self.wait()?).unwrap_or(usize::MAX).saturating_mul(record);
            // At a fixed rate whole messages are written, as an application would.
            let whole = call.max(record) / record * record;
            let want = if at_a_rate { whole.min(allowed) } else { call.min(allowed) };
            cursor.gather(want, &mut slices);
            if at_a_rate {
                self.sent += write_all(&mut self.socket, cursor, &mut slices)?;
            } else {
                let written = self.socket.write_vectored(&slices)?;
                self.sent += cursor.skip(written);
            }
            self.count()?;
        }
        let mut rest = vec![0; cursor.rest_of_record()];
        self.sent += cursor.fill(&mut rest);
        self.socket.write_all(&rest)?;
        Ok(())
    }

    fn messages(&mut self, cursor: &mut Cursor<'_>, topic: &str) -> Result<(), BenchError> {
        let mut buffer = Vec::with_capacity(BATCH_BYTES + cursor.payload().len() + 256);
        while !self.control.stopped() {
            let mut left = self.wait()?;
            while left > 0 && buffer.len() < BATCH_BYTES {
                let from = buffer.len();
                self.peer.encode(&mut buffer, topic, cursor.payload());
                self.peer.number(&mut buffer[from..], cursor.payload().len(), self.sent);
                cursor.next_record();
                self.sent += 1;
                left -= 1;
            }
            self.socket.write_all(&buffer)?;
            buffer.clear();
            self.count()?;
        }
        Ok(())
    }

    /// Tells the harness how far it is, after waiting for confirmations where there are any.
    fn count(&mut self) -> Result<(), BenchError> {
        let messages = match &mut self.confirmations {
            None => self.sent,
            Some(confirmations) => {
                confirmations.take(self.peer, &self.socket)?;
                while self.sent - confirmations.confirmed > confirmations.window {
                    confirmations.wait(self.peer, &self.socket)?;
                }
                confirmations.confirmed
            }
        };
        self.control.set_messages(messages);
        Ok(())
    }

    fn finish(mut self) -> Result<(), BenchError> {
        if let Some(confirmations) = &mut self.confirmations {
            while confirmations.confirmed < self.sent {
                confirmations.wait(self.peer, &self.socket)?;
            }
        }
        // RabbitMQ discards bytes that it has read from a connection that ends. The others allow this too.
        if self.peer != Peer::Rabbitmq {
            self.socket.shutdown(Shutdown::Write)?;
        }
        self.control.set_messages(self.sent);
        self.control.finish(&[self.sent])
    }
}

/// Writes all of it. Returns how many records that completes.
fn write_all(
    socket: &mut TcpStream,
    cursor: &mut Cursor<'_>,
    slices: &mut [IoSlice<'_>],
) -> Result<u64, BenchError> {
    let mut rest = slices;
    let mut records = 0;
    while !rest.is_empty() {
        let written = socket.write_vectored(rest)?;
        IoSlice::advance_slices(&mut rest, written);
        records += cursor.skip(written);
    }
    Ok(records)
}

impl Confirmations {
    fn new(record: usize) -> Confirmations {
        let window = (UNCONFIRMED_BYTES / record).max(2) as u64;
        Confirmations { reader: vec![0; 64 << 10], filled: 0, confirmed: 0, ahead: BTreeSet::new(), window }
    }

    /// Reads all available confirmations.
    fn take(&mut self, peer: Peer, socket: &TcpStream) -> Result<(), BenchError> {
        while self.receive(peer, socket, RecvFlags::DONTWAIT)? {}
        Ok(())
    }

    /// Waits until something comes.
    fn wait(&mut self, peer: Peer, socket: &TcpStream) -> Result<(), BenchError> {
        self.receive(peer, socket, RecvFlags::empty()).map(drop)
    }

    /// Returns whether there may be more.
    fn receive(&mut self, peer: Peer, socket: &TcpStream, flags: RecvFlags) -> Result<bool, BenchError> {
        let room = &mut self.reader[self.filled..];
        let offered = room.len();
        let len = match recv(socket, room, flags) {
            Ok((0, _)) => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
            Ok((len, _)) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.filled += len;
        let mut at = 0;
        loop {
            match peer.next(&self.reader[at..self.filled])? {
                Next::More => break,
                Next::Message { .. } => return Err(peer.protocol().malformed(&self.reader[at..self.filled])),
                Next::Other { len, accepted, .. } => {
                    at += len;
                    match accepted {
                        Accepted::No => {}
                        Accepted::One => self.confirmed += 1,
                        Accepted::Number { number, and_before } => self.number(number, and_before),
                    }
                }
            }
        }
        self.reader.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(len == offered)
    }

    /// Message number `number` (from 1) is there.
    fn number(&mut self, number: u64, and_before: bool) {
        if and_before {
            self.confirmed = number.max(self.confirmed);
        } else {
            self.ahead.insert(number);
        }
        while let Some(next) = self.ahead.first().copied().filter(|next| *next <= self.confirmed + 1) {
            self.ahead.pop_first();
            self.confirmed = next.max(self.confirmed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_confirmed_up_to_the_first_that_is_missing() {
        let mut confirmations = Confirmations::new(100);
        let mut confirmed = |number, and_before| {
            confirmations.number(number, and_before);
            confirmations.confirmed
        };
        assert_eq!([confirmed(1, false), confirmed(3, false), confirmed(2, false)], [1, 1, 3]);
        assert_eq!([confirmed(9, false), confirmed(8, true), confirmed(5, true)], [3, 9, 9]);
    }
}
