//! A handle for whoever watches a broker without owning it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rbmq_wire::TopicStats;
use rocketbufs::{Bid, Context, ROut};

use super::control::Event;
use super::inbox::Sender;
use super::ledger::Census;
use super::merge::{TableLoad, Wakers};
use super::strangers::Strangers;

/// Looks at a broker from other threads, also while it ends. Costs the broker's thread a look at its tables for each
/// question; positions are read where they are kept, and the threads that move data are not asked.
#[derive(Clone)]
pub struct Watch {
    pub(super) ctx: Context,
    pub(super) out: ROut,
    pub(super) events: Sender,
    pub(super) draining: Arc<AtomicBool>,
    pub(super) max_topic_series: Arc<AtomicUsize>,
    pub(super) strangers: Arc<Strangers>,
    pub(super) wakers: Wakers,
}

impl Watch {
    /// The topics as they are now, by name; none if the broker did not answer in time, or has ended.
    pub fn topics(&self, timeout: Duration) -> Option<Vec<TopicStats>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Stats(reply));
        answer.recv_timeout(timeout).ok()
    }

    /// Whether the thread that owns the broker's tables answers in time. Costs nothing but the question.
    pub fn is_alive(&self, timeout: Duration) -> bool {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Alive(reply));
        answer.recv_timeout(timeout).is_ok()
    }

    /// Whether it was told to end, and only lets subscribers receive what is there.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Bytes of rings that exist now, and the most that may.
    pub fn ring_bytes(&self) -> (u64, u64) {
        (self.ctx.memory_in_use(), self.ctx.config().buffers.max_ring_bytes)
    }

    pub(crate) fn out(&self) -> &ROut {
        &self.out
    }

    pub(crate) fn strangers(&self) -> &Strangers {
        &self.strangers
    }

    /// How full the table of a merged topic is; none if the buffer is not one.
    pub(crate) fn table_load(&self, bid: Bid) -> Option<TableLoad> {
        self.wakers.table_load(bid)
    }

    /// What only the broker's thread knows.
    pub(crate) fn census(&self, timeout: Duration) -> Option<Census> {
        let (reply, answer) = mpsc::sync_channel(1);
        let max_own = self.max_topic_series.load(Ordering::Relaxed);
        self.events.event(Event::Census { max_own, reply });
        answer.recv_timeout(timeout).ok()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("draining", &self.is_draining()).finish_non_exhaustive()
    }
}
