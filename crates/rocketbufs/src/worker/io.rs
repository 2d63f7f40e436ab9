//! What executing an effect takes besides the connection: the transport, the time, and the schedule of a worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rocketnet::{ConnId, Transport};

use super::pauses::Pauses;
use crate::proto::{Message, Session};
use crate::state::{ConnShared, ContextInner, WorkerShared};
use crate::types::{Nanos, WireId};

/// How often connections are looked at while a subscription may hold others.
pub(super) const TICK: Nanos = 250_000_000;
/// Deadline for reports to peers that follow: they see by themselves what there is, and whatever became of their doorbells,
/// they are told no later than this.
const UNREPORTED: Nanos = 10_000_000;

/// See [the module](self).
pub(super) struct Io<T: Transport> {
    pub(super) inner: Arc<ContextInner>,
    pub(super) shared: Arc<WorkerShared>,
    pub(super) transport: T,
    pub(super) now: Nanos,
    /// When there was last something to do.
    pub(super) busy_at: Nanos,
    /// Connections that have something to send this turn, in the order in which they came.
    pub(super) dirty: VecDeque<ConnId>,
    /// Deadline for deferred reports, and their subscriptions.
    pub(super) report_at: Nanos,
    pub(super) unreported: Vec<(ConnId, WireId)>,
    pub(super) next_tick: Nanos,
    /// A subscription had news since the last tick, or holds others.
    pub(super) stirring: bool,
}

/// The part of a connection that sending takes, whatever is sent.
pub(super) struct Line {
    pub(super) id: ConnId,
    pub(super) shared: Arc<ConnShared>,
    pub(super) session: Session,
    pub(super) phase: LinkPhase,
    /// Subscriptions with something to send, taking turns.
    pub(super) ready: VecDeque<WireId>,
    pub(super) dirty: bool,
    /// Between the times when what was to be sent was given to the transport.
    pub(super) pauses: Pauses,
    /// Control messages of the application that wait until the peer reads, with what each counts in the limit.
    pub(super) app: VecDeque<(Vec<u8>, usize)>,
    /// Bytes of such messages that were queued since the last flush.
    pub(super) app_unflushed: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkPhase {
    Connecting,
    /// Accepted; its HELLO has not come.
    Fresh,
    /// The application has not given it a role yet; nothing is read.
    Offered,
    /// HELLO was sent; WELCOME has not come.
    Greeting,
    Up,
    Closing,
}

impl<T: Transport> Io<T> {
    pub(super) fn new(inner: Arc<ContextInner>, shared: Arc<WorkerShared>, transport: T) -> Self {
        Self {
            inner,
            shared,
            transport,
            now: 0,
            busy_at: 0,
            dirty: VecDeque::new(),
            report_at: Nanos::MAX,
            unreported: Vec::new(),
            next_tick: 0,
            stirring: false,
        }
    }

    /// Queues a control message and has the connection flushed at the end of the turn.
    pub(super) fn send(&mut self, line: &mut Line, message: &Message) {
        self.send_bytes(line, &message.encode());
    }

    pub(super) fn send_bytes(&mut self, line: &mut Line, bytes: &[u8]) {
        line.session.spoke(self.now);
        // Thousands of subscriptions are answered in one turn: only a queue that the peer does not read is full.
        let full = self.transport.control(line.id, bytes).is_err() && {
            self.transport.flush(line.id);
            self.transport.control(line.id, bytes).is_err()
        };
        if full {
            self.transport.close(line.id, "it reads no control messages", Duration::ZERO);
            return;
        }
        self.mark_dirty(line);
    }

    /// The connection has something to send this turn.
    pub(super) fn mark_dirty(&mut self, line: &mut Line) {
        if !std::mem::replace(&mut line.dirty, true) {
            self.dirty.push_back(line.id);
        }
    }

    /// The peer is told of a subscription's news by a deadline.
    pub(super) fn report_later(&mut self, conn: ConnId, wire: WireId) {
        self.unreported.push((conn, wire));
        self.report_at = self.report_at.min(self.now.saturating_add(UNREPORTED));
    }

    /// A subscription has news. Only news can make others wait for it: until then none is looked at.
    pub(super) fn stirred(&mut self) {
        if !std::mem::replace(&mut self.stirring, true) {
            self.next_tick = self.next_tick.min(self.now + self.interval(true));
        }
    }

    /// The time between two looks at the connections; `hurry`: a subscription may hold others.
    pub(super) fn interval(&self, hurry: bool) -> Nanos {
        let session = &self.inner.config.session;
        // A peer that says nothing is asked after a third of what it may be silent.
        let looks = [(session.heartbeat_ms, 4), (session.max_silence_ms, 12)];
        let looks = looks.into_iter().filter(|(ms, _)| *ms > 0);
        let calm = looks.map(|(ms, parts)| (Nanos::from(ms) * 1_000_000 / parts).max(1_000_000)).min();
        calm.unwrap_or(4 * TICK).min(if hurry { TICK } else { 4 * TICK })
    }
}
