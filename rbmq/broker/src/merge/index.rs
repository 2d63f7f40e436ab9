//! The ways to merged topics, for the workers that learn of their publishers and subscribers.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use locks::RwLock;
use rbmq_wire::Control;
use rocketbufs::{Bid, InEvent, OutEvent, Position};

use super::local::Merging;
use super::log::Source;
use super::mailbox::Event;
use super::merger::{Note, Signals};
use super::table::TableLoad;
use super::topic::{Joining, MergedTopic};

/// Notifies a merged topic of a publisher's arrivals and questions.
#[derive(Clone)]
pub(super) struct Arrivals {
    topic: Weak<MergedTopic>,
    number: u32,
    signals: Arc<Signals>,
}

impl Arrivals {
    /// Adds a publisher whose bytes below `from` were merged before. The result is to be notified of arrivals in the ring.
    pub(super) fn join(topic: &Arc<MergedTopic>, number: u32, ring: Source, from: Position) -> Self {
        let signals = Arc::<Signals>::default();
        topic.post(Event::Join(number, Joining { ring, signals: signals.clone(), from }));
        Self { topic: Arc::downgrade(topic), number, signals }
    }

    fn notify(&self) {
        // The release pairs with the acquire in `Merger::note`, which then sees the arrived data.
        if !self.signals.arrived.swap(true, Ordering::AcqRel)
            && let Some(topic) = self.topic.upgrade()
        {
            topic.post(Event::Note(Note::Arrived(self.number)));
        }
    }

    /// The publisher waits until its log is stored, synced and archived up to these positions; 0: it doesn't wait. They replace
    /// the last ones. Returns false if the topic is not kept.
    fn ask_disk(&self, wanted: [Position; 3]) -> bool {
        let Some(topic) = self.topic.upgrade().filter(|topic| topic.is_kept()) else { return false };
        for (signal, wanted) in self.signals.disk.iter().zip(wanted) {
            signal.store(wanted, Ordering::Release);
        }
        if !self.signals.asked_disk.swap(true, Ordering::AcqRel) {
            topic.post(Event::Note(Note::AskedDisk(self.number)));
        }
        true
    }

    /// The publisher waits until its log is delivered and consumed up to these positions; 0: it doesn't wait.
    fn ask(&self, delivered: Position, consumed: Position) {
        self.signals.delivered.fetch_max(delivered, Ordering::AcqRel);
        self.signals.consumed.fetch_max(consumed, Ordering::AcqRel);
        if !self.signals.asked.swap(true, Ordering::AcqRel)
            && let Some(topic) = self.topic.upgrade()
        {
            topic.post(Event::Note(Note::Asked(self.number)));
        }
    }
}

impl Merging for Arrivals {
    fn arrived(&self) {
        if !self.signals.arrived.swap(true, Ordering::AcqRel)
            && let Some(topic) = self.topic.upgrade()
        {
            topic.post_briefly(Event::Note(Note::Arrived(self.number)));
        }
    }

    fn left(&self) {
        if let Some(topic) = self.topic.upgrade() {
            topic.finish(self.number);
        }
    }
}

/// The merged buffers of a publisher. Every arriving transfer reads this table.
#[derive(Clone, Default)]
pub(crate) struct MergedIn(Arc<RwLock<HashMap<Bid, Arrivals>>>);

impl MergedIn {
    pub(super) fn insert(&self, in_bid: Bid, arrivals: Arrivals) {
        self.0.write().insert(in_bid, arrivals);
    }

    pub(super) fn remove(&self, in_bid: Bid) {
        self.0.write().remove(&in_bid);
    }

    pub(super) fn bids(&self) -> Vec<Bid> {
        self.0.read().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().len()
    }

    fn get(&self, in_bid: Bid) -> Option<Arrivals> {
        self.0.read().get(&in_bid).cloned()
    }

    /// Handles a publisher's question for a confirmation. Returns false for other events. A publisher may ask at any rate, so
    /// questions don't go through the broker's queue.
    pub(crate) fn take(&self, event: &InEvent) -> bool {
        let InEvent::ConfirmRequested { bid, delivered, consumed } = event else { return false };
        if let Some(arrivals) = self.get(*bid) {
            arrivals.ask(*delivered, *consumed);
        }
        true
    }

    /// Handles a publisher's question about the disk, in the same way. Returns false for other messages, and for buffers that are not
    /// kept, or not known yet.
    pub(crate) fn take_control(&self, message: &[u8]) -> bool {
        let Ok(Control::AskStored { bid, position, synced, archived }) = Control::decode(message) else {
            return false;
        };
        self.ask_disk(bid, [position, synced, archived])
    }

    /// A publisher's question about the disk. Returns false for a buffer that is not kept.
    pub(crate) fn ask_disk(&self, in_bid: Bid, wanted: [Position; 3]) -> bool {
        self.get(in_bid).is_some_and(|arrivals| arrivals.ask_disk(wanted))
    }

    /// Asks as if the publisher waited until its log is consumed up to `end`.
    pub(super) fn ask(&self, in_bid: Bid, end: Position) {
        if let Some(arrivals) = self.get(in_bid) {
            arrivals.ask(end, end);
        }
    }

    /// Complete deliveries of a buffer arrived. Returns false if the buffer is not a merged one.
    pub(crate) fn arrived(&self, in_bid: Bid) -> bool {
        let arrivals = self.get(in_bid);
        if let Some(arrivals) = &arrivals {
            arrivals.notify();
        }
        arrivals.is_some()
    }
}

/// The merged topics by their buffers, for the workers that learn of room in the rings.
#[derive(Clone, Default)]
pub(crate) struct MergeIndex(Arc<RwLock<HashMap<Bid, Weak<MergedTopic>>>>);

impl MergeIndex {
    pub(super) fn insert(&self, out_bid: Bid, topic: &Arc<MergedTopic>) {
        self.0.write().insert(out_bid, Arc::downgrade(topic));
    }

    pub(super) fn remove(&self, out_bid: Bid) {
        self.0.write().remove(&out_bid);
    }

    fn get(&self, out_bid: Bid) -> Option<Arc<MergedTopic>> {
        self.0.read().get(&out_bid).and_then(Weak::upgrade)
    }

    /// The load of a merged topic's table. None if the buffer is not merged.
    pub(crate) fn table_load(&self, out_bid: Bid) -> Option<TableLoad> {
        self.get(out_bid).map(|topic| topic.table_load())
    }

    /// Whether the disk of a kept topic failed at the last attempt.
    pub(crate) fn is_failing(&self, out_bid: Bid) -> bool {
        self.get(out_bid).is_some_and(|topic| topic.is_failing())
    }

    /// Handles an event of the rOut. Returns whether the event is only for merged topics.
    pub(crate) fn take(&self, event: &OutEvent) -> bool {
        match event {
            OutEvent::Progress { bid } => {
                if let Some(topic) = self.get(*bid) {
                    topic.post(Event::Room);
                }
                true
            }
            OutEvent::DurableExpired { bid } => {
                self.progress(*bid);
                true
            }
            OutEvent::Subscribed { bid, .. }
            | OutEvent::Unsubscribed { bid, .. }
            | OutEvent::Dropped { bid, .. } => {
                self.progress(*bid);
                false
            }
            _ => false,
        }
    }

    /// A subscriber of a buffer has reported its progress.
    pub(crate) fn progress(&self, out_bid: Bid) {
        if let Some(topic) = self.get(out_bid) {
            topic.progress();
        }
    }
}
