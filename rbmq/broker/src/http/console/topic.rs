//! One topic: its rings, and the cursors in them.
//!
//! A look at a topic is the same for all who look at it in the same second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use locks::Mutex;
use rbmq_wire::{BufferStats, Observe, SubscriptionStats, TopicName};
use serde::Serialize;

use super::due::{Due, NoAnswer, Taken};
use super::engine::Engine;
use super::problem::Problem;

/// The most buffers of a topic that are shown, and the most subscriptions of each.
const MAX_BUFFERS: usize = 20;
const MAX_SUBSCRIPTIONS: usize = 100;

/// The most topics that are looked at at once.
const MAX_TOPICS: usize = 64;

/// A look that takes longer is cut.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// A topic, as it was looked at.
#[derive(Debug, Serialize)]
pub(super) struct TopicLook {
    /// The oldest first. Empty: there is no such topic.
    pub(super) buffers: Vec<BufferLook>,
    /// There are more buffers than these.
    pub(super) is_cut: bool,
}

/// A ring, and the cursors in it.
#[derive(Debug, Serialize)]
pub(super) struct BufferLook {
    #[serde(flatten)]
    pub(super) stats: BufferStats,
    /// The slowest first.
    pub(super) subscriptions: Vec<SubscriptionStats>,
    /// There are more subscriptions than these.
    pub(super) subscriptions_are_cut: bool,
}

/// The newest looks at topics.
#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<TopicName, Due<TopicLook>>>);

impl Looks {
    /// A look at a topic.
    ///
    /// # Errors
    /// The broker does not answer, or others look at as many topics as are allowed.
    pub(super) fn at(&self, engine: &Engine, topic: &TopicName) -> Result<Arc<TopicLook>, Problem> {
        let mut looks = self.0.lock();
        if !looks.contains_key(topic) && looks.len() >= MAX_TOPICS {
            looks.retain(|_, look| !look.is_over());
        }
        if !looks.contains_key(topic) && looks.len() >= MAX_TOPICS {
            let why = format!("others look at {MAX_TOPICS} topics at the moment; try again");
            return Err(Problem::unavailable(&why, Duration::from_secs(4)));
        }
        Ok(looks.entry(topic.clone()).or_insert_with(Due::new).get(|_| look(engine, topic))?)
    }

    /// Frees the memory of looks that nobody has.
    pub(super) fn forget(&self) {
        self.0.lock().retain(|_, look| !look.is_over());
    }
}

fn look(engine: &Engine, topic: &TopicName) -> Result<Taken<TopicLook>, NoAnswer> {
    let mut asking = engine.ask(LOOK_WITHIN);
    let buffers = asking.observe(Observe::GetBuffers { request: 0, topic: topic.clone(), after: None })?;
    let Observe::BuffersPage { rows, next, .. } = buffers else { return Err(NoAnswer) };
    let (mut buffers, all) = (Vec::new(), rows.len());
    for stats in rows.into_iter().take(MAX_BUFFERS) {
        // The first one is shown in any case: without one there seems to be no topic.
        if !buffers.is_empty() && asking.is_late() {
            break;
        }
        let page = asking.observe(Observe::GetSubscriptions { request: 0, bid: stats.bid, after: None })?;
        let Observe::SubscriptionsPage { rows: mut subscriptions, next, .. } = page else {
            return Err(NoAnswer);
        };
        let subscriptions_are_cut = next.is_some() || subscriptions.len() > MAX_SUBSCRIPTIONS;
        subscriptions.truncate(MAX_SUBSCRIPTIONS);
        buffers.push(BufferLook { stats, subscriptions, subscriptions_are_cut });
    }
    let is_cut = next.is_some() || buffers.len() < all;
    Ok(Taken { value: TopicLook { buffers, is_cut }, work: asking.work })
}
