//! Ends HTTP/2 connections that do not behave like a viewer: floods of frames, responses that are not read, silence.
//!
//! With HTTP/1.1, the wait of a connection has a time limit that ends silent clients. With HTTP/2 one connection has many responses,
//! and a library reads and writes its frames. So a check each second looks at the bytes that were received and sent, and at the age of
//! the responses.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use locks::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::link::Corked;

/// The bytes of frames that a client may send at once, beyond the bytes that its responses allow. The largest request has 16 KiB.
const BURST: u64 = 128 << 10;

/// The bytes that a client may send each second, also while it gets nothing.
const EACH_SECOND: u64 = 16 << 10;

/// The bytes that a client may send for each answer.
const EACH_ANSWER: u64 = 1 << 10;

/// The received bytes for which a client may send one byte: for each 16 KiB it sends two window updates of 13 bytes.
const GOT_FOR_ONE: u64 = 256;

/// The bytes that may be sent on a silent connection: pings are no activity.
const QUIET: u64 = 4 << 10;

/// The requests and responses of a connection.
#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    answered: u64,
    /// Requests that wait for their answer.
    waiting: usize,
    /// Responses that are being sent, and when the client last took a piece of each.
    sending: Vec<(u64, Instant)>,
    next: u64,
}

/// A request that waits for its answer.
pub(super) struct Waiting(Arc<Activity>);

/// A response that is being sent.
#[derive(Debug)]
pub(super) struct Sending(Arc<Activity>, u64);

impl Activity {
    pub fn request(self: &Arc<Self>) -> Waiting {
        self.0.lock().waiting += 1;
        Waiting(self.clone())
    }

    pub fn response(self: &Arc<Self>) -> Sending {
        let mut state = self.0.lock();
        let id = state.next;
        state.next += 1;
        state.answered += 1;
        state.sending.push((id, Instant::now()));
        Sending(self.clone(), id)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

impl Sending {
    /// Records that the client takes the next piece.
    pub fn goes_on(&self) {
        let now = Instant::now();
        let mut state = self.0.0.lock();
        state.sending.iter_mut().filter(|(id, _)| *id == self.1).for_each(|(_, since)| *since = now);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.0.lock().sending.retain(|(id, _)| *id != self.1);
    }
}

/// Why a connection should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The client reads a response too slowly.
    TooSlow,
    /// The connection was silent for too long.
    Idle,
}

/// Checks a connection each second.
pub(super) struct Guard {
    link: Corked,
    activity: Arc<Activity>,
    ticks: Interval,
    patience: Duration,
    idle: Duration,
    /// At the last tick.
    answered: u64,
    written: u64,
    quiet_since: (Instant, u64),
}

impl Guard {
    /// `patience`: how long a client may take for a piece, on a connection with one response. `idle`: how long nothing may happen.
    pub fn new(link: Corked, activity: Arc<Activity>, patience: Duration, idle: Duration) -> Self {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        link.allow(BURST, BURST);
        Self {
            link,
            activity,
            ticks,
            patience,
            idle,
            answered: 0,
            written: 0,
            quiet_since: (Instant::now(), 0),
        }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        loop {
            ready!(self.ticks.poll_tick(cx));
            if let Some(verdict) = self.look() {
                return Poll::Ready(verdict);
            }
        }
    }

    fn look(&mut self) -> Option<Verdict> {
        let now = Instant::now();
        let (written, state) = (self.link.written(), self.activity.0.lock());
        let answers = state.answered - self.answered;
        let more = EACH_SECOND + answers * EACH_ANSWER + (written - self.written) / GOT_FOR_ONE;
        self.link.allow(more, BURST);
        (self.answered, self.written) = (state.answered, written);
        // Responses of one connection share its rate.
        let patience = self.patience * state.sending.len() as u32;
        if state.sending.iter().any(|(_, since)| now.duration_since(*since) > patience) {
            return Some(Verdict::TooSlow);
        }
        let is_quiet = answers == 0 && state.waiting == 0 && written - self.quiet_since.1 < QUIET;
        if !is_quiet {
            self.quiet_since = (now, written);
        } else if now.duration_since(self.quiet_since.0) > self.idle {
            self.quiet_since = (now, written);
            return Some(Verdict::Idle);
        }
        None
    }
}
