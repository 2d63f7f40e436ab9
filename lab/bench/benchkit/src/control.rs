//! The worker's end of the control channel: lines on standard input and output.
//!
//! ```text
//!   harness → worker   go              publishers begin
//!                      mark            report the messages counted so far
//!                      stop            publishers end after the current message
//!                      expect N0 N1 …  subscribers: this many messages were published per topic
//!   worker → harness   ready [WORDS]   connected (a broker: its address)
//!                      count MESSAGES NANOSECONDS
//!                      total MESSAGES …  all published messages, or all received messages per topic
//! ```
//!
//! A thread of its own reads the lines, so that a count is taken when it is requested and not when the
//! worker's loop comes round. The end of input means that the harness has ended: the worker ends too.

use std::{
    io::{BufRead, Write},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::Error;

/// A subscriber whose expected messages do not arrive reports its counts after this time.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// A worker that gets no command and no message for this long fails.
const MAX_SILENCE: Duration = Duration::from_secs(600);

/// The state that the control thread shares with the worker's thread.
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
    /// Starts the control thread.
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
                    print_line(&format!("count {messages} {}", started.elapsed().as_nanos()));
                }
                Some("go") => {
                    self.orders.lock().expect("no thread panics with the lock").go = true;
                    self.changed.notify_all();
                }
                Some("stop") => self.stopped.store(true, Ordering::Relaxed),
                Some("expect") => {
                    let expected = words.filter_map(|word| word.parse().ok()).collect();
                    self.orders.lock().expect("no thread panics with the lock").expected = expected;
                    // Pairs with the acquire in `expected`.
                    self.has_expectation.store(true, Ordering::Release);
                }
                _ => break,
            }
        }
        std::process::exit(0);
    }

    /// Reports to the harness that everything is set up.
    pub fn ready(&self, words: &str) {
        print_line(&format!("ready {words}"));
    }

    /// Waits for the command `go`.
    pub fn wait_for_go(&self) {
        let orders = self.orders.lock().expect("no thread panics with the lock");
        drop(self.changed.wait_while(orders, |orders| !orders.go).expect("no thread panics with the lock"));
    }

    /// Sets the number of counted messages.
    #[inline]
    pub fn set_messages(&self, messages: u64) {
        self.messages.store(messages, Ordering::Relaxed);
    }

    /// The number that was published last with [`Control::set_messages`].
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// True once publishers must end.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The number of messages of each topic, once the harness knows it. Cheap to call often.
    pub fn expected(&self) -> Option<Vec<u64>> {
        // Pairs with the release in `listen`.
        let known = self.has_expectation.load(Ordering::Acquire);
        known.then(|| self.orders.lock().expect("no thread panics with the lock").expected.clone())
    }

    /// Ends the worker once the harness has sent the expected counts: reports `totals`, the received messages
    /// of each topic, when they match or no more messages arrive.
    ///
    /// # Errors
    /// Nothing arrived for minutes, and the harness did not end the run.
    pub fn end_if_over(&self, last_arrival: Instant, totals: impl FnOnce() -> Vec<u64>) -> Result<(), Error> {
        match self.expected() {
            None if last_arrival.elapsed() > MAX_SILENCE => Err(Error::Silence),
            None => Ok(()),
            Some(expected) => {
                let totals = totals();
                if totals == expected || last_arrival.elapsed() > GIVE_UP_AFTER {
                    self.finish(&totals)
                }
                Ok(())
            }
        }
    }

    /// Reports the final counts, then waits to be killed. Sockets stay open, so that no peer sees an end too
    /// early.
    pub fn finish(&self, totals: &[u64]) -> ! {
        self.finish_as("total", totals)
    }

    /// As `finish`, with another word before the numbers.
    pub fn finish_as(&self, word: &str, numbers: &[u64]) -> ! {
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        print_line(&format!("{word} {}", words.join(" ")));
        loop {
            std::thread::park();
        }
    }
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
