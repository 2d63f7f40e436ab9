//! Two processes without anybody between them: the loops that every system runs alike.
//!
//! ```text
//!   publish ── numbered messages, as fast as there is room ──▶ subscribe: every byte goes into a sum
//!   ping    ── number n ──▶ pong                               one message under way
//!           ◀── the same ──
//! ```
//!
//! `publish` and `pong` are started first and say where they are met; the other one says `ready` when it is there. A
//! publisher goes on until it is told to stop, and says how many messages it sent and what the sum of their words is;
//! the subscriber says the same of what came. A pinger says `total TRIPS P50 P99 TIME`, in nanoseconds.
//! `bench/peers/java` has the same in Java.

use std::{
    io,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};

use crate::{
    Error,
    control::Control,
    messages::{self, NUMBER_BYTES},
    stats::quantile,
};

/// Messages in a row before commands are looked at.
const IN_A_ROW: u64 = 256;

/// Round trips that are kept. A pinger that has so many has enough.
const MOST_TRIPS: usize = 1 << 22;

/// Which one of the two it is, and of which pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Sends as fast as it goes
    Publish,
    /// Sums what comes
    Subscribe,
    /// Sends one and waits for it to come back
    Ping,
    /// Sends back
    Pong,
}

impl Role {
    /// Whether it is the one that the other one finds.
    pub fn is_first(self) -> bool {
        matches!(self, Role::Publish | Role::Pong)
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Role::Publish => "publish",
            Role::Subscribe => "subscribe",
            Role::Ping => "ping",
            Role::Pong => "pong",
        }
    }
}

/// What a process is told.
#[derive(Debug, Clone, Args)]
pub struct End {
    /// Which one it is
    #[arg(value_enum)]
    pub role: Role,
    /// Where they meet: a folder of their own for who is first; what that one said for the other
    #[arg(long)]
    pub at: String,
    /// Bytes of a message
    #[arg(long, value_parser = messages::size)]
    pub size: usize,
    /// Seconds of round trips that count
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Seconds of round trips before them
    #[arg(long, default_value_t = 0.0)]
    pub warmup: f64,
}

/// A system's way to the other process. Who makes one has reached the other, unless it is the first.
pub trait Port {
    /// Hands a message over; waits as long as there is no room.
    ///
    /// # Errors
    /// The system failed.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Gives what has come, message by message. Returns in some milliseconds if nothing comes.
    ///
    /// # Errors
    /// The system failed.
    fn receive(&mut self, each: &mut impl FnMut(&[u8])) -> io::Result<()>;

    /// Sends back what has come, each message before the memory in which it lies is given back. Otherwise as
    /// [`Port::receive`].
    ///
    /// # Errors
    /// The system failed.
    fn answer(&mut self) -> io::Result<()>;
}

impl End {
    /// Runs this end over a port, after it has said that it is ready with these words.
    ///
    /// # Errors
    /// The system failed, or delivered what was not sent.
    pub fn run(&self, control: &Control, port: &mut impl Port, ready: &str) -> Result<(), Error> {
        control.ready(ready);
        match self.role {
            Role::Publish => self.publish(control, port),
            Role::Subscribe => subscribe(control, port),
            Role::Ping => self.ping(control, port),
            Role::Pong => loop {
                port.answer()?;
            },
        }
    }

    fn publish(&self, control: &Control, port: &mut impl Port) -> Result<(), Error> {
        control.wait_for_go();
        let mut message = message(self.size);
        let rest = sum(&message[NUMBER_BYTES..]);
        let (mut sent, mut total) = (0_u64, 0_u64);
        while !control.stopped() {
            for number in sent..sent + IN_A_ROW {
                message[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
                port.send(&message)?;
                total = total.wrapping_add(number).wrapping_add(rest);
            }
            sent += IN_A_ROW;
        }
        control.finish(&[sent, total])
    }

    fn ping(&self, control: &Control, port: &mut impl Port) -> Result<(), Error> {
        // Written to, so that no page is missing later.
        let mut trips = vec![u64::MAX; MOST_TRIPS];
        control.wait_for_go();
        let mut message = message(self.size);
        let warm = Instant::now() + Duration::from_secs_f64(self.warmup);
        let end = warm + Duration::from_secs_f64(self.seconds);
        let (mut number, mut counted) = (0_u64, 0);
        let counted_for = loop {
            message[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
            let sent = Instant::now();
            port.send(&message)?;
            let back = await_same(control, port, &message, (sent, number))?;
            number += 1;
            if back >= warm {
                trips[counted] = (back - sent).as_nanos() as u64;
                counted += 1;
            }
            if back >= end || counted == trips.len() {
                break back - warm;
            }
        };
        trips.truncate(counted);
        trips.sort_unstable();
        control.finish(&[
            counted as u64,
            quantile(&trips, 50),
            quantile(&trips, 99),
            counted_for.as_nanos() as u64,
        ])
    }
}

/// When the message had come back.
fn await_same(
    control: &Control,
    port: &mut impl Port,
    message: &[u8],
    (sent, after): (Instant, u64),
) -> Result<Instant, Error> {
    loop {
        let mut came = None;
        port.receive(&mut |back| came = Some(back == message))?;
        match came {
            Some(true) => return Ok(Instant::now()),
            Some(false) => return Err(Error::Wrong { after }),
            None => control.end_if_over(sent, || vec![after])?,
        }
    }
}

fn subscribe(control: &Control, port: &mut impl Port) -> Result<(), Error> {
    let (mut messages, mut total) = (0_u64, 0_u64);
    let mut last_arrival = Instant::now();
    loop {
        let before = messages;
        port.receive(&mut |message| {
            messages += 1;
            total = total.wrapping_add(sum(message));
        })?;
        if messages > before {
            control.set_messages(messages);
            continue;
        }
        if control.expected().is_none() {
            last_arrival = Instant::now();
        }
        control.end_if_over(last_arrival, || vec![messages, total])?;
    }
}

/// A message of so many bytes: none of them zero behind the number.
fn message(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8 + 1).collect()
}

/// All bytes of a message, as little-endian words of eight; what is left at the end is a word with zeros above it.
#[inline]
pub fn sum(message: &[u8]) -> u64 {
    let (words, rest) = message.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().fold(u64::from_le_bytes(last), |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_the_sum() {
        for size in [8, 9, 34, 64, 1024] {
            let message = message(size);
            for at in 0..size {
                let mut other = message.clone();
                other[at] ^= 0x10;
                assert_ne!(sum(&message), sum(&other), "byte {at} of {size}");
            }
        }
        assert_eq!(sum(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), 3);
    }
}
