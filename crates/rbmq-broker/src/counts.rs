//! Telling publishers how many subscribers they have.
//!
//! Subscribers come and go as fast as they like, and a publisher reads as slowly as it likes. So not every number is told:
//! while something waits in the queue of a publisher's connection the newest number of each buffer waits here, and the queue
//! is looked at again a little later. Nobody's subscribers can fill it, and a publisher that reads slowly is not disconnected
//! for what others do.

use std::collections::BTreeMap;
use std::time::Instant;

use rbmq_wire::Control;
use rocketbufs::Bid;

use super::control::Broker;
use super::session::SessionKey;
use super::watchers::TRY_AGAIN;

/// With so much in a queue numbers wait. The smallest queue has room for eight times as much.
const LITTLE_BYTES: usize = 4096;

/// Numbers that are not told yet, by publisher and its buffer.
#[derive(Default)]
pub(super) struct Counts {
    waiting: BTreeMap<(SessionKey, Bid), u32>,
    again: Option<Instant>,
}

impl Counts {
    /// When to look again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.again
    }
}

impl Broker {
    /// Tells a publisher the number of subscribers of its buffer, now or when it has read what it was told before.
    pub(super) fn tell_count(&mut self, key: SessionKey, bid: Bid, count: u32) {
        let Some(session) = self.sessions.get(&key) else { return };
        if session.conn.control_waiting() <= LITTLE_BYTES {
            self.counts.waiting.remove(&(key, bid));
            return session.answer(&Control::Subscribers { bid, count });
        }
        self.counts.waiting.insert((key, bid), count);
        self.counts.again.get_or_insert_with(|| Instant::now() + TRY_AGAIN);
    }

    /// Tells what waited, as far as there is room.
    pub(super) fn tell_counts(&mut self, now: Instant) {
        if self.counts.again.take_if(|at| *at <= now).is_none() {
            return;
        }
        for ((key, bid), count) in std::mem::take(&mut self.counts.waiting) {
            // One that is away names its buffers again, and is told then.
            if self.sessions.get(&key).is_some_and(|session| session.conn.down_reason().is_none()) {
                self.tell_count(key, bid, count);
            }
        }
    }
}
