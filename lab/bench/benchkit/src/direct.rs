//! Two processes without a broker: the loops that every system runs alike.
//!
//! ```text
//!   publish ── numbered messages, as fast as there is room ──▶ subscribe: every byte goes into a sum
//!   ping    ── number n ──▶ pong                               one outstanding message
//!           ◀── number n ──
//! ```
//!
//! `publish` and `pong` start first and print their address. The other process prints `ready`
//! once it is connected. A publisher runs until it is stopped, and prints the number of messages and the sum
//! of their words. The subscriber prints the same of the received messages. A pinger prints `total TRIPS P50
//! P99 TIME`, in nanoseconds. `lab/bench/peers/java` has the same loops in Java.

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

/// Messages between two looks at the control channel.
const IN_A_ROW: u64 = 256;

/// The most round trips that are kept. A pinger with as many ends.
const MOST_TRIPS: usize = 1 << 22;

/// The role of a process, and the pair that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Sends as fast as possible
    Publish,
    /// Sums the received bytes
    Subscribe,
    /// Sends a message and waits for it to come back
    Ping,
    /// Sends messages back
    Pong,
}

impl Role {
    /// True for the process that starts first.
    pub fn is_first(self) -> bool {
        matches!(self, Role::Publish | Role::Pong)
    }
}

/// Options of a process.
#[derive(Debug, Clone, Args)]
pub struct End {
    /// The role of this process
    #[arg(value_enum)]
    pub role: Role,
    /// The meeting place: a folder for the first process; for the second, the line that the first printed
    #[arg(long)]
    pub at: String,
    /// The size of a message in bytes
    #[arg(long, value_parser = messages::size)]
    pub size: usize,
    /// Seconds of timed round trips
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Seconds of warm-up
    #[arg(long, default_value_t = 0.0)]
    pub warmup: f64,
}

/// A system's connection to the other process. A process that is not the first is connected once its port
/// exists.
pub trait Port {
    /// Sends a message, and waits while there is no room.
    ///
    /// # Errors
    /// The system failed.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Receives messages, one by one. Returns after some milliseconds if none arrives.
    ///
    /// # Errors
    /// The system failed.
    fn receive(&mut self, each: &mut impl FnMut(&[u8])) -> io::Result<()>;

    /// Sends received messages back, each before its memory is released. Otherwise as [`Port::receive`].
    ///
    /// # Errors
    /// The system failed.
    fn answer(&mut self) -> io::Result<()>;
}

impl End {
    /// Runs this end over a port, after it has reported `ready` with these words.
    ///
    /// # Errors
    /// The system failed, or delivered a wrong message.
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
        // Written, so that no page fault comes later.
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
            let back = await_same(control, port, &message, sent, number)?;
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

/// Waits for the message, and returns when it arrived.
fn await_same(
    control: &Control,
    port: &mut impl Port,
    message: &[u8],
    sent: Instant,
    after: u64,
) -> Result<Instant, Error> {
    loop {
        let mut matches = None;
        port.receive(&mut |back| matches = Some(back == message))?;
        match matches {
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

/// A message of this size, without zeros after the number.
fn message(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8 + 1).collect()
}

/// The sum of a message's bytes as little-endian words of eight. The last word is padded with zeros.
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
