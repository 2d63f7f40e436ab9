//! The two processes of an exchange: what they are told, and what they say.
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
//! End of input means that the harness is gone: whoever sees it ends too.

use std::{
    io::{self, BufRead, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::{Args, ValueEnum};

use crate::exchange::{self, Link, Plan};

/// Who begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Sends numbers.
    Drive,
    /// Answers them.
    Answer,
}

/// What a process of an exchange is told.
#[derive(Debug, Clone, Args)]
pub struct End {
    /// Which one of the two it is
    #[arg(value_enum)]
    pub role: Role,
    /// The system
    pub system: String,
    /// Its own address
    #[arg(long)]
    pub bind: SocketAddr,
    /// The address of the other one
    #[arg(long)]
    pub to: SocketAddr,
    /// Bytes of a message
    #[arg(long)]
    pub size: usize,
    /// Answer with the number of every so many messages; 1: with every message
    #[arg(long, default_value_t = 1)]
    pub answer_every: u32,
    /// Numbers beyond the last answered one
    #[arg(long, default_value_t = 1)]
    pub outstanding: u32,
    /// Messages of an exchange
    #[arg(long, default_value_t = 1000)]
    pub messages: u32,
    /// Exchanges before those that count
    #[arg(long, default_value_t = 1)]
    pub warmup: u32,
    /// Exchanges that count, at least
    #[arg(long, default_value_t = 3)]
    pub least: u32,
    /// Milliseconds for which exchanges go on
    #[arg(long, default_value_t = 500)]
    pub time_ms: u64,
    /// Microseconds without an answer after which what is outstanding is given up
    #[arg(long, default_value_t = 10_000_000)]
    pub give_up_us: u64,
    /// Bytes of a batch, where the system has such
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
        say("ready");
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        end_with_harness(Arc::default());
        let tally = exchange::drive(link, &self.plan())?;
        say(&format!(
            "done {} {} {} {} {} {} {}",
            tally.sent,
            tally.answers,
            link.lost(),
            tally.given_up,
            tally.times.count(),
            tally.times.mean().as_nanos(),
            tally.times.deviation().as_nanos()
        ));
        // Sockets stay open until the harness has what it needs.
        loop {
            std::thread::park();
        }
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
        let stopped = Arc::new(AtomicBool::new(false));
        end_with_harness(Arc::clone(&stopped));
        say("ready");
        let over = || stopped.load(Ordering::Relaxed);
        let received = exchange::answer(link, self.size, self.answer_every, over)?;
        say(&format!("total {received} {}", link.lost()));
        loop {
            std::thread::park();
        }
    }
}

/// Listens to the harness: `stop` is passed on, its end is this process's.
fn end_with_harness(stopped: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) if line.trim() == "stop" => stopped.store(true, Ordering::Relaxed),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        std::process::exit(0);
    });
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
