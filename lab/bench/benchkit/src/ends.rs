//! The two processes of an exchange: their options and their output.
//!
//! ```text
//!   harness → driver     go
//!   driver → harness     ready
//!                        done SENT ANSWERS LOST GIVEN-UP EXCHANGES MEAN-NS DEVIATION-NS
//!   harness → answerer   stop
//!   answerer → harness   ready
//!                        total RECEIVED LOST
//! ```
//!
//! The end of input means that the harness has ended: the process ends too.

use std::{io, net::SocketAddr, time::Duration};

use clap::{Args, ValueEnum};

use crate::{
    control::Control,
    exchange::{self, Link, Plan},
};

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Sends numbers.
    Drive,
    /// Answers them.
    Answer,
}

/// Options of a process of an exchange.
#[derive(Debug, Clone, Args)]
pub struct End {
    /// The role of this process
    #[arg(value_enum)]
    pub role: Role,
    /// The system
    pub system: String,
    /// The address of this process
    #[arg(long)]
    pub bind: SocketAddr,
    /// The address of the other process
    #[arg(long)]
    pub to: SocketAddr,
    /// The size of a message in bytes
    #[arg(long)]
    pub size: usize,
    /// Answer every this many messages with a number; 1 sends every message back
    #[arg(long, default_value_t = 1)]
    pub answer_every: u32,
    /// Outstanding messages
    #[arg(long, default_value_t = 1)]
    pub outstanding: u32,
    /// Messages in an exchange
    #[arg(long, default_value_t = 1000)]
    pub messages: u32,
    /// Exchanges of warm-up
    #[arg(long, default_value_t = 1)]
    pub warmup: u32,
    /// Timed exchanges at least
    #[arg(long, default_value_t = 3)]
    pub least: u32,
    /// Milliseconds of timed exchanges at least
    #[arg(long, default_value_t = 500)]
    pub time_ms: u64,
    /// Microseconds without an answer after which outstanding messages are given up
    #[arg(long, default_value_t = 10_000_000)]
    pub give_up_us: u64,
    /// Bytes of a batch, for systems with batches
    #[arg(long, default_value_t = 512)]
    pub qthresh: usize,
    /// Microseconds that a message may wait in a batch
    #[arg(long, default_value_t = 200_000)]
    pub timeout_us: u64,
}

impl End {
    /// Runs this end over a link.
    ///
    /// # Errors
    /// The link failed.
    pub fn run(&self, link: &mut impl Link) -> io::Result<()> {
        match self.role {
            Role::Drive => self.drive(link),
            Role::Answer => self.answer(link),
        }
    }

    fn drive(&self, link: &mut impl Link) -> io::Result<()> {
        let control = Control::start();
        control.ready("");
        control.wait_for_go();
        let result = exchange::drive(link, &self.plan())?;
        let (times, nanos) = (&result.times, |time: Duration| time.as_nanos() as u64);
        control.finish_as(
            "done",
            &[
                result.sent,
                result.answers,
                link.lost(),
                result.given_up,
                times.count(),
                nanos(times.mean()),
                nanos(times.deviation()),
            ],
        )
    }

    fn plan(&self) -> Plan {
        Plan {
            size: self.size,
            outstanding: self.outstanding.max(1),
            messages: self.messages.max(1),
            warmup: self.warmup,
            least: self.least,
            time: Duration::from_millis(self.time_ms),
            give_up: Duration::from_micros(self.give_up_us),
        }
    }

    fn answer(&self, link: &mut impl Link) -> io::Result<()> {
        let control = Control::start();
        control.ready("");
        let received = exchange::answer(link, self.size, self.answer_every, || control.stopped())?;
        control.finish(&[received, link.lost()])
    }
}
