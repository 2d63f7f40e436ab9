//! One topic: its rings, and the cursors in them.
//!
//! A look at a topic is the same for all who look at it in the same second.

use std::collections::HashMap;
use std::sync::Arc;

use locks::Mutex;
use rbmq_wire::{BufferStats, Observe, SubscriptionStats, TopicName};
use serde::Serialize;

use super::due::{ANSWER_WITHIN, Due, NoAnswer};
use crate::Watch;

/// The most buffers of a topic that are shown, and the most subscriptions of each.
const MAX_BUFFERS: usize = 20;
const MAX_SUBSCRIPTIONS: usize = 100;

/// The most topics whose looks are shared.
const MAX_SHARED: usize = 64;

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
    /// The broker does not answer.
    pub(super) fn at(&self, watch: &Watch, topic: &TopicName) -> Result<Arc<TopicLook>, NoAnswer> {
        let mut looks = self.0.lock();
        if !looks.contains_key(topic) && looks.len() >= MAX_SHARED {
            looks.retain(|_, look| !look.is_over());
        }
        if !looks.contains_key(topic) && looks.len() >= MAX_SHARED {
            return look(watch, topic).map(Arc::new);
        }
        looks.entry(topic.clone()).or_insert_with(Due::new).get(|_| look(watch, topic))
    }
}

fn look(watch: &Watch, topic: &TopicName) -> Result<TopicLook, NoAnswer> {
    let ask = |message| watch.observe(message, ANSWER_WITHIN).ok_or(NoAnswer);
    let buffers = ask(Observe::GetBuffers { request: 0, topic: topic.clone(), after: None })?;
    let Observe::BuffersPage { rows, next, .. } = buffers else { return Err(NoAnswer) };
    let is_cut = next.is_some() || rows.len() > MAX_BUFFERS;
    let buffer = |stats: BufferStats| {
        let page = ask(Observe::GetSubscriptions { request: 0, bid: stats.bid, after: None })?;
        let Observe::SubscriptionsPage { rows: mut subscriptions, next, .. } = page else {
            return Err(NoAnswer);
        };
        let subscriptions_are_cut = next.is_some() || subscriptions.len() > MAX_SUBSCRIPTIONS;
        subscriptions.truncate(MAX_SUBSCRIPTIONS);
        Ok(BufferLook { stats, subscriptions, subscriptions_are_cut })
    };
    let buffers = rows.into_iter().take(MAX_BUFFERS).map(buffer).collect::<Result<_, _>>()?;
    Ok(TopicLook { buffers, is_cut })
}
