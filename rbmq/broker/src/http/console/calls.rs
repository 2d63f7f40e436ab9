//! Calls that wait: for memory, for the disk, for a publisher. Each has a thread, and there are few at once.
//!
//! ```text
//!   request ─▶ not too often? ─▶ at most MAX_WAITING wait ─▶ a place ─▶ a thread ─▶ answer, or "too late"
//!                                                                      └ the place is free when the thread has ended, not before
//! ```
//!
//! A disk that stands still holds as many threads as there are places in its lane, and nobody else waits for them: who asks is told so.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use locks::Mutex;
use tokio::sync::Semaphore;

use super::problem::Problem;

/// The most calls that wait for a place in a lane.
const MAX_WAITING: usize = 16;

/// How long a call waits for a place.
const WAIT: Duration = Duration::from_secs(1);

/// Places for calls.
pub(super) struct Lane {
    places: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    /// How long somebody waits for the answer of a call.
    within: Duration,
    /// What does not answer, if it does not.
    what: &'static str,
}

impl Lane {
    pub(super) fn new(places: usize, within: Duration, what: &'static str) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), waiting: Arc::default(), within, what }
    }

    /// Does something that may wait.
    ///
    /// # Errors
    /// Those of the call; or too many others are before it, it takes too long, or it has panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let busy =
            || Problem::unavailable("others are before you; try again in a moment", Duration::from_secs(1));
        let place = {
            let _waiting = Waiting::enter(&self.waiting).ok_or_else(busy)?;
            match tokio::time::timeout(WAIT, self.places.clone().acquire_owned()).await {
                Ok(Ok(place)) => place,
                _ => return Err(busy()),
            }
        };
        let run = move || {
            // The place is free when the call is over, also where the client has left before.
            let _place = place;
            call()
        };
        match tokio::time::timeout(self.within, tokio::task::spawn_blocking(run)).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Problem::unavailable("the console could not do it", Duration::from_secs(1))),
            Err(_) => Err(Problem::unavailable(
                &format!("{} does not answer in time", self.what),
                Duration::from_secs(4),
            )),
        }
    }
}

/// Somebody who waits for a place.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn enter(waiting: &Arc<AtomicUsize>) -> Option<Self> {
        let add = |waiting: usize| (waiting < MAX_WAITING).then_some(waiting + 1);
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self(waiting.clone()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The most clients whose calls are counted. Those that have not called for some time are forgotten.
const MAX_CLIENTS: usize = 1_024;

/// How often each client may do something.
pub(super) struct Pace {
    /// The time for one call, and how many may come at once.
    every: Duration,
    burst: u32,
    /// When the calls of a client that were allowed so far are over, at one in `every`.
    until: Mutex<HashMap<String, Instant>>,
}

impl Pace {
    pub(super) fn new(every: Duration, burst: u32) -> Self {
        Self { every, burst, until: Mutex::default() }
    }

    /// Allows a client one more call.
    ///
    /// # Errors
    /// It calls too often, or too many clients call.
    pub(super) fn allow(&self, client: &str, now: Instant) -> Result<(), Problem> {
        let mut all = self.until.lock();
        if !all.contains_key(client) && all.len() >= MAX_CLIENTS {
            all.retain(|_, until| *until > now);
            if all.len() >= MAX_CLIENTS {
                return Err(Problem::unavailable("too many clients ask; try again in a moment", self.every));
            }
        }
        let until = all.get(client).copied().unwrap_or(now).max(now) + self.every;
        let wait = until.duration_since(now).saturating_sub(self.every * self.burst);
        if !wait.is_zero() {
            return Err(Problem::too_many("you ask too often; try again in a moment", wait));
        }
        match all.get_mut(client) {
            Some(known) => *known = until,
            None => _ = all.insert(client.to_owned(), until),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// A disk that stands still holds the places of its lane and no more, and a thousand calls are answered.
    #[test]
    fn a_thousand_calls_are_answered_while_nothing_moves() {
        let runtime = runtime();
        let lane = Arc::new(Lane::new(2, Duration::from_millis(50), "the disk"));
        let (go_on, stands) = sync_channel::<()>(0);
        let stands = Arc::new(Mutex::new(stands));
        let started = Arc::<AtomicUsize>::default();
        let statuses = runtime.block_on(async {
            let all: Vec<_> = (0..1_000)
                .map(|_| {
                    let (lane, stands, started) = (lane.clone(), stands.clone(), started.clone());
                    tokio::spawn(async move {
                        let call = move || {
                            started.fetch_add(1, Ordering::Relaxed);
                            // Ends with the sender.
                            let _ = stands.lock().recv();
                            Ok(())
                        };
                        lane.run(call).await.map_err(|problem| problem.why)
                    })
                })
                .collect();
            let mut answers = Vec::new();
            for one in all {
                answers.push(one.await.unwrap());
            }
            answers
        });
        assert_eq!(started.load(Ordering::Relaxed), 2, "a thread for each place, and no more");
        let late =
            statuses.iter().filter(|answer| **answer == Err("the disk does not answer in time".to_owned()));
        assert_eq!((late.count(), statuses.iter().filter(|answer| answer.is_ok()).count()), (2, 0));
        drop(go_on);
        // The disk goes on, and so does the lane.
        let lane_again = runtime.block_on(async {
            loop {
                match lane.run(|| Ok(7)).await {
                    Ok(value) => break value,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        assert_eq!(lane_again, 7);
    }

    #[test]
    fn a_client_calls_as_often_as_it_may() {
        let (pace, now) = (Pace::new(Duration::from_millis(200), 3), Instant::now());
        let allowed = |client: &str, now| pace.allow(client, now).is_ok();
        assert_eq!([0; 4].map(|_| allowed("anna", now)), [true, true, true, false]);
        assert!(allowed("bert", now), "each has its own");
        assert!(!allowed("anna", now + Duration::from_millis(199)));
        assert!(allowed("anna", now + Duration::from_millis(200)));
        for n in 0..2 * MAX_CLIENTS {
            let _ = pace.allow(&n.to_string(), now);
        }
        assert_eq!(pace.until.lock().len(), MAX_CLIENTS);
        assert!(allowed("late", now + Duration::from_secs(9)), "those who have ended make room");
    }
}
