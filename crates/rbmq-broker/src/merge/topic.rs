//! A merged topic as its threads share it: publishers' workers, subscribers' workers, and the broker's thread.
//!
//! Whichever thread learns that data can be merged merges it: the worker on which a publisher's bytes arrive, the worker on
//! which a subscriber made room, or the broker's thread. No thread waits. A thread that finds the state locked leaves a note,
//! and the thread with the lock looks at the notes again before it returns. When the ring has no room, merging stops, and the
//! framework reports new room ([`OutBuffer::notify_progress`]). Data that is not merged is not released, so publishers wait by their
//! credit.
//!
//! Order of locks: `state` before `notes`. The calls into the framework with `state` locked only read positions, append to the
//! ring and release rings; they call nothing of this crate back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};

use rbmq_wire::sync::lock;
use rocketbufs::Coverage;
use rocketbufs::{
    Bid, InEvent, InView, OutBuffer, OutEvent, OutWriter, Position, Progress, ProgressLevel, RIn,
    SegmentError,
};

use super::super::inbox::{Event, Sender};
use super::merger::{AppendError, Blocked, Log, Merger, Note, Piece, Reached, Signals, SourceRing, Turn};
use super::table::TableLoad;

/// A merged topic.
pub(crate) struct MergedTopic {
    buffer: OutBuffer,
    events: Sender,
    /// Events of publishers that were not handled yet: at most a few for each publisher.
    pub(super) notes: Mutex<Vec<Note>>,
    /// The ring may have room now.
    woken: AtomicBool,
    /// A publisher waits for a confirmation.
    asked: AtomicBool,
    /// Subscribers have made progress since the last confirmation.
    progressed: AtomicBool,
    state: Mutex<State>,
}

/// The state of the thread that merges.
struct State {
    /// None after the end of the topic.
    log: Option<MergedLog>,
    merger: Merger<PublisherRing>,
    /// Merging is blocked, and `woken` will be set when it can continue.
    blocked: bool,
}

/// The writer's end of a merged log.
struct MergedLog {
    writer: OutWriter,
}

/// The ring of a publisher at the broker.
pub(super) struct PublisherRing {
    pub(super) rin: RIn,
    pub(super) bid: Bid,
}

impl SourceRing for PublisherRing {
    type Piece = InView;

    fn complete(&self) -> Option<InView> {
        self.rin.get_buf_ref(self.bid).ok().filter(|view| !view.is_empty())
    }

    fn confirm(&self, reached: Reached, count: Coverage) {
        // After the end of the subscription the confirmation is useless.
        let _ = self
            .rin
            .subscription(self.bid)
            .map(|ring| ring.confirm(reached.delivered, reached.consumed, count));
    }
}

impl Piece for InView {
    fn bytes(&self) -> &[u8] {
        // The rings of publishers have flow control and belong to this process, so they are readable as a slice.
        self.as_slice().unwrap_or_default()
    }

    fn end(&self) -> Position {
        Self::end(self)
    }

    fn release(self) {
        self.consume();
    }
}

impl Log for MergedLog {
    fn append(&mut self, parts: &[&[u8]]) -> Result<Position, AppendError> {
        self.writer.append(parts).map_err(|error| match error {
            SegmentError::Full => AppendError::Full,
            // The ring of a publisher fits into a delivery, so there is no other error before the end.
            _ => AppendError::Ended,
        })
    }

    fn confirmed(&self) -> (Position, Position, Coverage) {
        let confirmed = self.writer.buffer().confirmed();
        (confirmed.delivered, confirmed.consumed, confirmed.coverage)
    }

    fn ask(&self, delivered: bool, consumed: bool) {
        let head = self.writer.head();
        if delivered {
            self.writer.buffer().request_confirm(ProgressLevel::Delivered, head);
        }
        if consumed {
            self.writer.buffer().request_confirm(ProgressLevel::Consumed, head);
        }
    }
}

impl MergedTopic {
    /// A topic that writes to a buffer of this rOut.
    pub(super) fn new(writer: OutWriter, table_limit: usize, events: &Sender) -> Arc<Self> {
        let buffer = writer.buffer().clone();
        let log = MergedLog { writer };
        let state = State { log: Some(log), merger: Merger::new(table_limit), blocked: false };
        Arc::new(Self {
            buffer,
            events: events.clone(),
            notes: Mutex::default(),
            woken: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            progressed: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Adds a publisher whose bytes below `from` were merged before. The result is to be notified of arrivals in the ring.
    pub(super) fn join(self: &Arc<Self>, number: u32, ring: PublisherRing, from: Position) -> Arrivals {
        let signals = Arc::<Signals>::default();
        lock(&self.state).merger.join(number, ring, signals.clone(), from);
        // A thread that found the state locked relies on this thread to look again.
        self.pump();
        Arrivals { topic: Arc::downgrade(self), number, signals }
    }

    /// A publisher sends no more data. `Event::Merged` follows when all its data is merged.
    pub(super) fn finish(&self, number: u32) {
        self.leave(Note::Finish(number));
    }

    /// A finishing publisher is connected again.
    pub(super) fn resume(&self, number: u32) {
        self.leave(Note::Resume(number));
    }

    /// A subscriber came, left or made progress. Publishers that wait for a confirmation are notified.
    fn progress(&self) {
        // Cheap while no publisher waits. This fence pairs with the fence in `turn`: a waiting publisher sets `asked` and then
        // reads the subscribers' progress; a subscriber makes progress and then reads `asked`.
        fence(Ordering::SeqCst);
        if self.asked.load(Ordering::SeqCst) && !self.progressed.swap(true, Ordering::SeqCst) {
            self.pump();
        }
    }

    /// The load of the topic's table.
    fn table_load(&self) -> TableLoad {
        let mut state = lock(&self.state);
        let State { log, merger, .. } = &mut *state;
        let load = merger.table_load(log.as_ref());
        drop(state);
        // A thread that found the state locked relies on this thread to look again.
        self.pump();
        load
    }

    /// Removes a publisher. Its data is not merged any more.
    pub(super) fn remove(&self, number: u32) {
        self.leave(Note::Remove(number));
    }

    /// Ends the topic, and releases its ring and its publishers.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.log = None;
        state.merger.clear();
    }

    /// The ring may have room now.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.pump();
    }

    fn leave(&self, note: Note) {
        lock(&self.notes).push(note);
        self.pump();
    }

    /// Merges everything that can be merged, unless another thread does so already.
    fn pump(&self) {
        loop {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread with the lock looks at the notes and flags again, below.
                Err(TryLockError::WouldBlock) => return,
            };
            let turn = self.turn(&mut state);
            drop(state);
            for (number, position) in turn.finished {
                self.events.event(Event::Merged { out_bid: self.buffer.bid(), number, position });
            }
            let flags = [&self.woken, &self.progressed];
            if lock(&self.notes).is_empty() && !flags.iter().any(|flag| flag.load(Ordering::SeqCst)) {
                return;
            }
        }
    }

    fn turn(&self, state: &mut State) -> Turn {
        let notes = std::mem::take(&mut *lock(&self.notes));
        notes.into_iter().for_each(|note| state.merger.note(note));
        let woken = self.woken.swap(false, Ordering::SeqCst);
        self.asked.store(state.merger.is_asked(), Ordering::SeqCst);
        self.progressed.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let Some(log) = state.log.as_mut() else { return Turn::default() };
        let turn = match woken || !state.blocked {
            true => state.merger.advance(log),
            false => Turn::default(),
        };
        log.writer.note_time();
        state.merger.confirm(log);
        if !woken && state.blocked {
            return turn;
        }
        let wanted = turn.blocked.map(|blocked| match blocked {
            Blocked::ByTable(position) => Progress::Consumed(position),
            // After a full turn there is room, so the next turn begins when the worker has served its connections.
            Blocked::ByRing | Blocked::TurnOver => Progress::Room,
        });
        state.blocked = wanted.is_some();
        wanted.into_iter().for_each(|wanted| self.buffer.notify_progress(wanted));
        if turn.ended {
            state.merger.clear();
        }
        turn
    }
}

/// Notifies a merged topic of a publisher's arrivals and questions.
#[derive(Clone)]
pub(super) struct Arrivals {
    topic: Weak<MergedTopic>,
    number: u32,
    signals: Arc<Signals>,
}

impl Arrivals {
    fn notify(&self) {
        // The release pairs with the acquire in `Merger::note`, which then sees the arrived data.
        if !self.signals.arrived.swap(true, Ordering::AcqRel)
            && let Some(topic) = self.topic.upgrade()
        {
            topic.leave(Note::Arrived(self.number));
        }
    }

    /// The publisher waits until its log is delivered and consumed up to these positions; 0: it doesn't wait.
    fn ask(&self, delivered: Position, consumed: Position) {
        self.signals.delivered.fetch_max(delivered, Ordering::AcqRel);
        self.signals.consumed.fetch_max(consumed, Ordering::AcqRel);
        if !self.signals.asked.swap(true, Ordering::AcqRel)
            && let Some(topic) = self.topic.upgrade()
        {
            topic.leave(Note::Asked(self.number));
        }
    }
}

/// The merged buffers of a publisher. It is read for every arriving transfer.
#[derive(Clone, Default)]
pub(crate) struct MergedIn(Arc<RwLock<HashMap<Bid, Arrivals>>>);

impl MergedIn {
    pub(super) fn insert(&self, in_bid: Bid, arrivals: Arrivals) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(in_bid, arrivals);
    }

    pub(super) fn remove(&self, in_bid: Bid) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&in_bid);
    }

    pub(super) fn bids(&self) -> Vec<Bid> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn get(&self, in_bid: Bid) -> Option<Arrivals> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&in_bid).cloned()
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
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(out_bid, Arc::downgrade(topic));
    }

    pub(super) fn remove(&self, out_bid: Bid) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&out_bid);
    }

    fn get(&self, out_bid: Bid) -> Option<Arc<MergedTopic>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&out_bid).and_then(Weak::upgrade)
    }

    /// The load of a merged topic's table. None if the buffer is not merged.
    pub(crate) fn table_load(&self, out_bid: Bid) -> Option<TableLoad> {
        self.get(out_bid).map(|topic| topic.table_load())
    }

    /// Handles an event of the rOut. Returns whether the event is only for merged topics.
    pub(crate) fn take(&self, event: &OutEvent) -> bool {
        match event {
            OutEvent::Progress { bid } => {
                if let Some(topic) = self.get(*bid) {
                    topic.wake();
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
