//! A worker's side of the talk with the harness: lines on standard input and output.
//!
//! ```text
//!   harness → worker   go              publishers begin
//!                      mark            say what you have counted so far
//!                      stop            publishers end at a message's end
//!                      expect N0 N1 …  subscribers: this many messages were published per topic
//!   worker → harness   ready [WORDS]   connected (a broker: its address)
//!                      count MESSAGES NANOSECONDS
//!                      total MESSAGES …  what was published, or received per topic, in all
//! ```
//!
//! The lines are read by a thread of their own, so that a count is taken when it is asked for and not when
//! the worker's loop comes round. End of input means that the harness is gone: the worker ends too.

use std::{
    io::{BufRead, Write},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::Error;

/// A subscriber that waits for messages which do not come gives up after this long and reports what it has.
const QUIET: Duration = Duration::from_secs(5);

/// A harness that says nothing for so long while nothing comes has forgotten its workers.
const SILENCE: Duration = Duration::from_secs(600);

/// What the thread that reads commands shares with the worker's own.
pub struct Control {
    messages: AtomicU64,
    stopped: AtomicBool,
    has_expectation: AtomicBool,
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    go: bool,
    expected: Vec<u64>,
}

impl Control {
    /// Starts to listen to the harness.
    pub fn start() -> Arc<Control> {
        let control = Arc::new(Control {
            messages: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            has_expectation: AtomicBool::new(false),
            orders: Mutex::default(),
            changed: Condvar::new(),
        });
        let listener = Arc::clone(&control);
        std::thread::spawn(move || listener.listen());
        control
    }

    fn listen(&self) {
        let started = Instant::now();
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let mut words = line.split_whitespace();
            match words.next() {
                Some("mark") => {
                    let messages = self.messages();
                    say(&format!("count {messages} {}", started.elapsed().as_nanos()));
                }
                Some("go") => {
                    self.orders.lock().expect("no holder panics").go = true;
                    self.changed.notify_all();
                }
                Some("stop") => self.stopped.store(true, Ordering::Relaxed),
                Some("expect") => {
                    let expected = words.filter_map(|word| word.parse().ok()).collect();
                    self.orders.lock().expect("no holder panics").expected = expected;
                    // Pairs with the acquire in `expected`.
                    self.has_expectation.store(true, Ordering::Release);
                }
                _ => break,
            }
        }
        std::process::exit(0);
    }

    /// Tells the harness that everything is set up.
    pub fn ready(&self, words: &str) {
        say(&format!("ready {words}"));
    }

    /// Waits for the command to begin.
    pub fn wait_for_go(&self) {
        let orders = self.orders.lock().expect("no holder panics");
        drop(self.changed.wait_while(orders, |orders| !orders.go).expect("no holder panics"));
    }

    /// Publishes how many messages were counted since the start.
    #[inline]
    pub fn set_messages(&self, messages: u64) {
        self.messages.store(messages, Ordering::Relaxed);
    }

    /// The number that was published last with [`Control::set_messages`].
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// True once publishers shall end.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// How many messages each topic had in all, once the harness knows. Cheap to ask often.
    pub fn expected(&self) -> Option<Vec<u64>> {
        // Pairs with the release in `listen`.
        let known = self.has_expectation.load(Ordering::Acquire);
        known.then(|| self.orders.lock().expect("no holder panics").expected.clone())
    }

    /// Once the harness has said what was published: reports `totals`, what came of each topic, when that is all of it or
    /// nothing more comes.
    ///
    /// # Errors
    /// Nothing came for minutes and nobody said that it was over.
    pub fn end_if_over(&self, last_arrival: Instant, totals: impl FnOnce() -> Vec<u64>) -> Result<(), Error> {
        match self.expected() {
            None if last_arrival.elapsed() > SILENCE => Err(Error::Silence),
            None => Ok(()),
            Some(expected) => {
                let totals = totals();
                if totals == expected || last_arrival.elapsed() > QUIET {
                    self.finish(&totals)
                }
                Ok(())
            }
        }
    }

    /// Reports final counts, then waits to be killed: sockets stay open, so nobody sees an end too early.
    pub fn finish(&self, totals: &[u64]) -> ! {
        let words: Vec<String> = totals.iter().map(u64::to_string).collect();
        say(&format!("total {}", words.join(" ")));
        loop {
            std::thread::park();
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
