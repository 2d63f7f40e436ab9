//! Calls that wait, for messages: each on a thread of its own, and few at once.
//!
//! The broker never looks into a message, and this crate has no subscriber: the program that serves the console brings one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rbmq_wire::TopicName;

use super::problem::Problem;

/// The most calls at once.
const MAX_CALLS: usize = 2;

/// How far the logs of a topic are, by their names: what is newer is not waited for.
pub type LogEnds = Vec<(u128, u64)>;

/// Reads and publishes messages for the console. The calls come from threads that may wait.
pub trait Messages: Send + Sync {
    /// The newest messages of a topic, at most `most` of each log, log after log as in `ends`, and the oldest of a log first; what lies behind
    /// `ends` need not come. The call must hold no publisher.
    ///
    /// # Errors
    /// The reason, for people.
    fn newest(
        &self,
        topic: &TopicName,
        most: usize,
        ends: &LogEnds,
        within: Duration,
    ) -> Result<Vec<ShownMessage>, String>;

    /// Publishes a message, and waits until the broker has it.
    ///
    /// # Errors
    /// The reason, for people.
    fn publish(&self, topic: &TopicName, message: &[u8], within: Duration) -> Result<(), String>;
}

/// A message, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMessage {
    /// The position behind it, where a subscriber would go on.
    pub end: u64,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// The length of the whole message.
    pub length: usize,
}

/// The most bytes of a message that need be shown.
pub const MAX_SHOWN: usize = 4 << 10;

/// The calls at work.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<AtomicUsize>);

impl Calls {
    /// Runs something that waits, on a thread of its own.
    ///
    /// # Errors
    /// Too many calls are at work, or the call failed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, Problem> {
        let add = |open: usize| (open < MAX_CALLS).then_some(open + 1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let busy =
            |_| Problem::unavailable("others read messages at the moment; try again", Duration::from_secs(1));
        taken.map_err(busy)?;
        // The place is free when the call is over, also where the client has left before.
        let place = Place(self.0.clone());
        let run = move || {
            let _place = place;
            call()
        };
        let failed = |why: String| Problem::unavailable(&why, Duration::from_secs(1));
        match tokio::task::spawn_blocking(run).await {
            Ok(result) => result.map_err(failed),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
