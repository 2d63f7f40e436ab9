//! `ingest = "merge"`: many tiny publishers share a topic's one ring.
//!
//! ```text
//!  publisher A ─▶ small ring ┐  whole deliveries,       ┌──────────────────────┐
//!  publisher B ─▶ small ring ┼─ copied once, as runs ─▶ │ the topic's one ring │ ──▶ subscribers: one ring each
//!  publisher C ─▶ small ring ┘  of "number, bytes"      └──────────────────────┘
//! ```
//!
//! A topic of 1,000 publishers that are spliced needs 1,000 rings at each subscriber; merged it needs one. The price is
//! a copy at the broker, and that the merged log has positions and an epoch of the broker's own.
//!
//! Whoever learns that something can be moved moves it: the worker on which a publisher's bytes arrive, or on which a
//! subscriber made room, or the broker's thread. Nobody waits: who finds another one moving leaves a note and goes, and
//! that one looks again before it ends. Without room the moving stops and the framework tells when there is some
//! ([`ROut::tell_progress`]). What was not moved is not given back, so publishers wait by their credit.
//!
//! * `mover`: who is in line, what is moved next; without any I/O;
//! * `table`: which bytes of the merged log are whose, for confirmations;
//! * `feeds`: which publishers a topic has, and their numbers;
//! * `publishers`: what publishers of merged topics ask for.

mod feeds;
mod mover;
mod publishers;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};

use rocketbufs::{
    Bid, ConfirmLevel, Coverage, InEvent, InView, OutEvent, OutWriter, Position, Progress, RIn, ROut,
    SegmentError,
};

use super::control::Event;
use super::inbox::Sender;
pub(super) use feeds::Merges;
use mover::{Log, Mover, Note, Piece, Reached, Refusal, Signals, Source, Turn, Waits};
pub(crate) use table::TableLoad;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A merged topic: its ring, and who moves into it.
pub(super) struct TopicMerge {
    out: ROut,
    out_bid: Bid,
    events: Sender,
    /// What happened to publishers and was not looked at yet: at most a few for each of them.
    notes: Mutex<Vec<Note>>,
    /// There may be room now.
    woken: AtomicBool,
    /// A publisher waits until something is confirmed; and subscribers have moved on since that was looked at.
    asked: AtomicBool,
    confirms: AtomicBool,
    state: Mutex<State>,
}

/// What belongs to whoever moves.
struct State {
    /// None when the topic has ended.
    log: Option<Merged>,
    mover: Mover<RingOf>,
    /// Something is in the way, and `woken` will be set when it is not.
    waits: bool,
}

/// The end of a merged log that is written.
struct Merged {
    writer: OutWriter,
    out: ROut,
    out_bid: Bid,
}

/// A publisher's ring at the broker.
pub(super) struct RingOf {
    pub(super) rin: RIn,
    pub(super) bid: Bid,
}

impl Source for RingOf {
    type Piece = InView;

    fn complete(&self) -> Option<InView> {
        self.rin.get_buf_ref(self.bid).ok().filter(|view| !view.is_empty())
    }

    fn confirm(&self, reached: Reached, coverage: Coverage) {
        // One whose subscription has ended has nobody to be told.
        let _ = self.rin.confirm(self.bid, reached.delivered, reached.consumed, coverage);
    }
}

impl Piece for InView {
    fn bytes(&self) -> &[u8] {
        // The rings of publishers are flow controlled and this process's own, and those can be seen.
        self.as_slice().unwrap_or_default()
    }

    fn end(&self) -> Position {
        Self::end(self)
    }

    fn give_back(self) {
        self.consume();
    }
}

impl Log for Merged {
    fn append(&mut self, parts: &[&[u8]]) -> Result<Position, Refusal> {
        self.writer.append(parts).map_err(|error| match error {
            SegmentError::Full => Refusal::Full,
            // No publisher has a ring that is larger than a delivery here: nothing else is refused before the end.
            _ => Refusal::Over,
        })
    }

    fn confirmed(&self) -> (Position, Position, Coverage) {
        let confirmed = self.out.confirmed(self.out_bid).unwrap_or_default();
        (confirmed.delivered, confirmed.consumed, confirmed.coverage)
    }

    fn ask(&self, delivered: bool, consumed: bool) {
        let head = self.writer.head();
        if delivered {
            self.out.ask(self.out_bid, ConfirmLevel::Delivered, head);
        }
        if consumed {
            self.out.ask(self.out_bid, ConfirmLevel::Consumed, head);
        }
    }
}

impl TopicMerge {
    /// The merged log of a buffer of this rOut, whose writer was not taken yet.
    pub(super) fn new(
        out: &ROut,
        writer: OutWriter,
        out_bid: Bid,
        table_limit: usize,
        events: &Sender,
    ) -> Arc<Self> {
        let log = Merged { writer, out: out.clone(), out_bid };
        let state = State { log: Some(log), mover: Mover::new(table_limit), waits: false };
        Arc::new(Self {
            out: out.clone(),
            out_bid,
            events: events.clone(),
            notes: Mutex::default(),
            woken: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            confirms: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// A publisher whose bytes below `from` were moved before. The arrivals of its ring are told to the result.
    pub(super) fn join(self: &Arc<Self>, number: u32, ring: RingOf, from: Position) -> Arrivals {
        let signals = Arc::<Signals>::default();
        lock(&self.state).mover.join(number, ring, signals.clone(), from);
        // Who found the state taken meanwhile has left it to this one to look again.
        self.pump();
        Arrivals { merge: Arc::downgrade(self), number, signals }
    }

    /// Nothing more comes of a publisher: once everything of it was moved, `Event::Moved` tells.
    pub(super) fn last(&self, number: u32) {
        self.leave(Note::Last(number));
    }

    /// A publisher of which nothing more was expected is back.
    pub(super) fn stays(&self, number: u32) {
        self.leave(Note::Stays(number));
    }

    /// A subscriber came, went or moved on: those who wait for that are told.
    pub(super) fn progress(&self) {
        // Cheap while nobody waits. Meets the fence in `turn`: who begins to wait says so and then looks, who moved on
        // did that before it looks here.
        fence(Ordering::SeqCst);
        if self.asked.load(Ordering::SeqCst) && !self.confirms.swap(true, Ordering::SeqCst) {
            self.pump();
        }
    }

    /// How full its table is.
    fn table_load(&self) -> TableLoad {
        let mut state = lock(&self.state);
        let State { log, mover, .. } = &mut *state;
        let load = mover.table_load(log.as_ref());
        drop(state);
        // Who found the state taken meanwhile has left it to this one to look again.
        self.pump();
        load
    }

    /// A publisher is out: nothing more of it is moved.
    pub(super) fn out(&self, number: u32) {
        self.leave(Note::Out(number));
    }

    /// The topic has ended: lets go of its ring and of its publishers.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.log = None;
        state.mover.clear();
    }

    /// There may be room.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.pump();
    }

    fn leave(&self, note: Note) {
        lock(&self.notes).push(note);
        self.pump();
    }

    /// Moves what can be moved, unless somebody does so already.
    fn pump(&self) {
        loop {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever has it looks again below, after what was left for it.
                Err(TryLockError::WouldBlock) => return,
            };
            let turn = self.turn(&mut state);
            drop(state);
            for (number, position) in turn.done {
                self.events.event(Event::Moved { out_bid: self.out_bid, number, position });
            }
            let flags = [&self.woken, &self.confirms];
            if lock(&self.notes).is_empty() && !flags.iter().any(|flag| flag.load(Ordering::SeqCst)) {
                return;
            }
        }
    }

    fn turn(&self, state: &mut State) -> Turn {
        let notes = std::mem::take(&mut *lock(&self.notes));
        notes.into_iter().for_each(|note| state.mover.note(note));
        let woken = self.woken.swap(false, Ordering::SeqCst);
        self.asked.store(state.mover.is_asked(), Ordering::SeqCst);
        self.confirms.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let Some(log) = state.log.as_mut() else { return Turn::default() };
        let turn = match woken || !state.waits {
            true => state.mover.advance(log),
            false => Turn::default(),
        };
        log.writer.note_time();
        state.mover.confirm(log);
        if !woken && state.waits {
            return turn;
        }
        let wanted = turn.waits.map(|waits| match waits {
            Waits::Consumed(position) => Progress::Consumed(position),
            // Enough for one turn: there is room, so the next begins when the worker has looked at its connections.
            Waits::Room | Waits::Turn => Progress::Room,
        });
        state.waits = wanted.is_some_and(|wanted| self.out.tell_progress(self.out_bid, wanted).is_ok());
        if turn.over {
            state.mover.clear();
        }
        turn
    }
}

/// Who is told that complete deliveries of a publisher arrived, or that it waits.
#[derive(Clone)]
pub(super) struct Arrivals {
    merge: Weak<TopicMerge>,
    number: u32,
    signals: Arc<Signals>,
}

impl Arrivals {
    fn tell(&self) {
        // Release pairs with the acquire of who takes the note: it then sees what arrived.
        if !self.signals.arrived.swap(true, Ordering::AcqRel)
            && let Some(merge) = self.merge.upgrade()
        {
            merge.leave(Note::Arrived(self.number));
        }
    }

    /// The publisher waits until its log is delivered and consumed up to here; 0: it does not.
    fn ask(&self, delivered: Position, consumed: Position) {
        self.signals.delivered.fetch_max(delivered, Ordering::AcqRel);
        self.signals.consumed.fetch_max(consumed, Ordering::AcqRel);
        if !self.signals.asked.swap(true, Ordering::AcqRel)
            && let Some(merge) = self.merge.upgrade()
        {
            merge.leave(Note::Asked(self.number));
        }
    }
}

/// The buffers of a publisher that are merged. Looked at for every transfer that arrives for one.
#[derive(Clone, Default)]
pub(super) struct MergedIn(Arc<RwLock<HashMap<Bid, Arrivals>>>);

impl MergedIn {
    fn insert(&self, in_bid: Bid, arrivals: Arrivals) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(in_bid, arrivals);
    }

    fn remove(&self, in_bid: Bid) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&in_bid);
    }

    fn bids(&self) -> Vec<Bid> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn get(&self, in_bid: Bid) -> Option<Arrivals> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&in_bid).cloned()
    }

    /// Looks at an event of a publisher's framework; whether it was only for a merged buffer. Questions come as often as
    /// the publisher likes, so they do not go through the broker's queue.
    pub(super) fn take(&self, event: &InEvent) -> bool {
        let InEvent::Asked { bid, delivered, consumed } = event else { return false };
        if let Some(arrivals) = self.get(*bid) {
            arrivals.ask(*delivered, *consumed);
        }
        true
    }

    /// As if the publisher waited until all of its log is consumed.
    fn ask(&self, in_bid: Bid, end: Position) {
        if let Some(arrivals) = self.get(in_bid) {
            arrivals.ask(end, end);
        }
    }

    /// Complete deliveries of a buffer arrived. False if it is none that is merged.
    pub(super) fn arrived(&self, in_bid: Bid) -> bool {
        let arrivals = self.get(in_bid);
        if let Some(arrivals) = &arrivals {
            arrivals.tell();
        }
        arrivals.is_some()
    }
}

/// The merged topics by their buffers, for the workers that learn of room.
#[derive(Clone, Default)]
pub(super) struct Wakers(Arc<RwLock<HashMap<Bid, Weak<TopicMerge>>>>);

impl Wakers {
    fn insert(&self, out_bid: Bid, merge: &Arc<TopicMerge>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(out_bid, Arc::downgrade(merge));
    }

    fn remove(&self, out_bid: Bid) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&out_bid);
    }

    fn get(&self, out_bid: Bid) -> Option<Arc<TopicMerge>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&out_bid).and_then(Weak::upgrade)
    }

    /// How full the table of a merged topic is; none if the buffer is not one.
    pub(crate) fn table_load(&self, out_bid: Bid) -> Option<TableLoad> {
        self.get(out_bid).map(|merge| merge.table_load())
    }

    /// Looks at an event; whether it was only for a merged topic.
    pub(super) fn take(&self, event: &OutEvent) -> bool {
        match event {
            OutEvent::Progress { bid } => {
                if let Some(merge) = self.get(*bid) {
                    merge.wake();
                }
                true
            }
            OutEvent::PlaceOver { bid } => {
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

    /// A subscriber of a buffer has told how far it is.
    pub(super) fn progress(&self, out_bid: Bid) {
        if let Some(merge) = self.get(out_bid) {
            merge.progress();
        }
    }
}
