//! The parts that the systems of `rbmq-bench kept` share.

use std::{
    io::{self, Write as _},
    net::TcpStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use benchkit::{lines::Lines, messages::Messages};

use crate::{
    error::BenchError,
    peers::{self, Guard},
};

/// A server that says nothing for so long has failed.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Bytes that are read or written at once.
pub(super) const BUFFER: usize = 256 << 10;
/// Messages that a publisher may have unconfirmed.
pub(super) const UNCONFIRMED: u64 = 16_384;
/// Confirmed messages for which the publisher gets room at once.
const CREDIT: u64 = 256;

/// The messages of a measurement.
pub(super) struct Load {
    pub(super) count: u64,
    pub(super) size: usize,
    pub(super) messages: Messages,
}

impl Load {
    /// # Errors
    /// The message is not the one with this number.
    pub(super) fn check(&self, number: u64, message: &[u8]) -> Result<(), BenchError> {
        let is_it = self.messages.number_of(message) == Some(number);
        if is_it { Ok(()) } else { Err(BenchError::WrongByte { topic: 0, after_messages: number }) }
    }
}

/// A connection to a server.
pub(super) fn connect(server: &Guard) -> io::Result<TcpStream> {
    let socket = peers::connect(&server.addr(), None)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    socket.set_write_timeout(Some(ANSWER_WITHIN))?;
    Ok(socket)
}

/// Writes each message behind `head` and with the end of a line, and reads an answer to each by `answer`, in a thread of its own. At
/// most [`UNCONFIRMED`] are without an answer.
pub(super) fn pipeline(
    mut socket: TcpStream,
    mut answers: Lines<TcpStream>,
    load: &mut Load,
    head: &str,
    answer: fn(&mut Lines<TcpStream>) -> io::Result<()>,
) -> Result<(), BenchError> {
    let count = load.count;
    let (confirmed, confirms) = mpsc::sync_channel((UNCONFIRMED / CREDIT) as usize);
    let reader = thread::spawn(move || -> io::Result<()> {
        for number in 1..=count {
            answer(&mut answers)?;
            // The writer ends after an error of its own.
            if number % CREDIT == 0 && confirmed.send(()).is_err() {
                break;
            }
        }
        Ok(())
    });
    let (mut text, mut credits) = (Vec::with_capacity(BUFFER), UNCONFIRMED / CREDIT);
    for number in 0..count {
        text.extend_from_slice(head.as_bytes());
        text.extend_from_slice(load.messages.numbered(number));
        text.extend_from_slice(b"\r\n");
        if (number + 1) % CREDIT != 0 {
            continue;
        }
        credits = credits - 1 + confirms.try_iter().count() as u64;
        if text.len() >= BUFFER / 4 || credits == 0 {
            socket.write_all(&text)?;
            text.clear();
        }
        if credits == 0 {
            match confirms.recv() {
                Ok(()) => credits = 1,
                Err(mpsc::RecvError) => break,
            }
        }
    }
    socket.write_all(&text)?;
    reader.join().map_err(|_| io::Error::other("the thread that reads answers has ended"))??;
    Ok(())
}

/// Both halves of a measurement.
pub(super) trait Kept {
    /// Publishes all messages, until the server has confirmed the last.
    fn write(&self, server: &Guard, load: &mut Load) -> Result<(), BenchError>;
    /// Receives all messages from the oldest on.
    fn replay(&self, server: &Guard, load: &Load) -> Result<(), BenchError>;
}
