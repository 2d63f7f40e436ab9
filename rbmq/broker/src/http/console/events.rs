//! Streams of changes: the answer to a request, again and again (server-sent events).
//!
//! ```text
//!   GET /api/v1/stream/topics?sort=lag ──▶ data: {…}      at once
//!                                     ──▶ data: {…}      a second later, if it is another answer
//!                                     ──▶ :              otherwise, and while the answer waits for its turn, so that a client that has left is noticed
//!                                     ──▶ the end        after LIFE; browsers ask again by themselves, and rights are checked anew
//! ```
//!
//! A stream has no queue: the next event is made when there is room for it, and is the state of then. So a slow browser gets fewer events.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use tokio::time::{Interval, MissedTickBehavior};

use super::problem::Problem;
use crate::http::answer::Stream;
use crate::http::door::MAX_CONNECTION_TIME;

/// The time between two events.
const INTERVAL: Duration = Duration::from_secs(1);

/// A stream ends by itself before its connection would.
const LIFE: Duration = Duration::from_secs(50);

const _: () = assert!(LIFE.as_secs() < MAX_CONNECTION_TIME.as_secs());

/// The places for streams.
#[derive(Clone)]
pub(super) struct Places {
    open: Arc<AtomicUsize>,
    max: usize,
}

/// A place for a stream.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self { open: Arc::default(), max }
    }

    fn take(&self) -> Result<Place, Problem> {
        let add = |open: usize| (open < self.max).then_some(open + 1);
        let taken = self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        taken.map(|_| Place(self.open.clone())).map_err(|open| {
            let why = format!(
                "{open} streams are open, and no more are allowed (http.max_streams, and half of http.max_connections): ask without /stream"
            );
            Problem::unavailable(&why, Duration::from_secs(4))
        })
    }
}

/// The present answer of a stream; a problem ends it.
pub(super) type Made = Pin<Box<dyn Future<Output = Result<String, Problem>> + Send>>;

/// Begins to make the present answer.
type Make = Box<dyn FnMut() -> Made + Send>;

/// A stream of events.
pub(super) struct Events {
    make: Make,
    /// The answer that is being made.
    made: Option<Made>,
    /// The mark of the last answer, which is too large to keep for each stream.
    last: Option<u64>,
    marks: RandomState,
    ticks: Interval,
    end: Instant,
    over: bool,
    _place: Place,
}

impl Events {
    /// A stream of what `make` returns.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn open(places: &Places, make: Make) -> Result<Self, Problem> {
        let place = places.take()?;
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = Instant::now() + LIFE;
        let marks = RandomState::new();
        Ok(Self { make, made: None, last: None, marks, ticks, end, over: false, _place: place })
    }
}

impl Stream for Events {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.over || Instant::now() >= self.end {
            return Poll::Ready(None);
        }
        if self.made.is_none() && self.ticks.poll_tick(cx).is_pending() {
            return Poll::Pending;
        }
        let made = self.made.get_or_insert_with(&mut self.make);
        let Poll::Ready(made) = made.as_mut().poll(cx) else {
            return self.ticks.poll_tick(cx).map(|_| Some(":\n\n".into()));
        };
        self.made = None;
        let event = match made {
            Ok(json) => {
                let mark = self.marks.hash_one(&json);
                let first = if self.last.is_none() { "retry: 1000\n" } else { "" };
                match self.last.replace(mark) == Some(mark) {
                    true => ":\n\n".to_owned(),
                    false => format!("{first}data: {}\n\n", json.trim_end()),
                }
            }
            Err(problem) => {
                self.over = true;
                let told = serde_json::json!({ "status": problem.status.as_u16(), "error": problem.why });
                format!("event: problem\ndata: {}\n\n", text::json(&told.to_string()))
            }
        };
        Poll::Ready(Some(event.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let places = Places::new(2);
        let first = places.take().ok();
        let second = places.take().ok();
        assert!(first.is_some() && second.is_some());
        let problem = places.take().err().unwrap();
        assert!(problem.why.contains("http.max_streams"), "{}", problem.why);
        drop(first);
        assert!(places.take().is_ok());
        assert!(Places::new(0).take().is_err());
    }

    #[test]
    fn a_stream_that_waits_for_its_answer_shows_that_it_lives_and_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let mut events =
            Events::open(&Places::new(1), Box::new(|| Box::pin(std::future::pending()))).ok().unwrap();
        let once = |events: &mut Events| {
            runtime.block_on(std::future::poll_fn(|cx| Poll::Ready(events.poll_bytes(cx))))
        };
        assert_eq!(once(&mut events), Poll::Pending);
        events.ticks.reset_immediately();
        let next = runtime.block_on(std::future::poll_fn(|cx| events.poll_bytes(cx)));
        assert_eq!(next, Some(":\n\n".into()));
        events.end = Instant::now();
        assert_eq!(once(&mut events), Poll::Ready(None));
    }
}
