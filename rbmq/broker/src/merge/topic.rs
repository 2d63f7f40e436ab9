//! A merged topic as its threads share it: publishers' workers, subscribers' workers, and the broker's thread.
//!
//! Whichever thread learns that data can be merged merges it: the worker on which a publisher's bytes arrive, the worker on
//! which a subscriber made room, or the broker's thread. No thread waits. A thread that finds the state locked leaves a note,
//! and the thread with the lock looks at the notes again before it returns. When the ring has no room, merging stops, and the
//! framework reports new room ([`OutBuffer::notify_progress`]). Data that is not merged is not released, so publishers wait by their
//! credit.
//!
//! The log of a kept topic is written by a thread of its own (`kept::Scribe`), which does all of the above: no worker waits for a disk.
//!
//! Order of locks: `state` before `notes`. The calls into the framework with `state` locked only read positions, append to the
//! ring and release rings; they call nothing of this crate back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use rbmq_wire::Control;
use rbmq_wire::sync::lock;
use rocketbufs::Coverage;
use rocketbufs::{
    Bid, InEvent, InView, OutBuffer, OutEvent, OutWriter, Position, Progress, ProgressLevel, RIn,
    SegmentError,
};
use tracing::{info, warn};

use super::super::inbox::{Event, Sender};
use super::super::kept::{Place, Scribe, Store, Written};
use super::super::outgoing::send;
use super::super::session_key::SessionKey;
use super::disk::{DiskReport, DiskState};
use super::merger::{AppendError, Blocked, Log, Merger, Note, Piece, Reached, Signals, SourceRing, Turn};
use super::table::TableLoad;

/// How often old data is removed from the disk.
const RETENTION_EVERY: Duration = Duration::from_secs(10);

/// A merged topic.
pub(crate) struct MergedTopic {
    buffer: OutBuffer,
    events: Sender,
    /// Events of publishers that were not handled yet: at most a few for each publisher.
    pub(super) notes: Mutex<Vec<News>>,
    /// The ring may have room now.
    woken: AtomicBool,
    /// A publisher waits for a confirmation.
    asked: AtomicBool,
    /// Subscribers have made progress since the last confirmation.
    progressed: AtomicBool,
    state: Mutex<State>,
    /// The load of the table at the end of the last turn.
    load: Mutex<TableLoad>,
    kept: Option<Arc<Kept>>,
}

/// An event of a publisher. The thread that merges handles them in order.
pub(super) enum News {
    Join(Joining),
    Note(Note),
}

/// A publisher that joins.
pub(super) struct Joining {
    number: u32,
    ring: PublisherRing,
    signals: Arc<Signals>,
    from: Position,
}

/// The parts that only a kept topic has. The threads that sync have it too.
struct Kept {
    scribe: Scribe,
    topic: Weak<MergedTopic>,
    /// The topic is in the queue of the scribe.
    scheduled: AtomicBool,
    /// The disk failed, and is tried again at the next tick.
    failed: AtomicBool,
    /// A sync has an answer for a publisher.
    watching: AtomicBool,
    retained: Mutex<Instant>,
}

impl Kept {
    /// Has the scribe look at the topic.
    fn schedule(&self) {
        if !self.scheduled.swap(true, Ordering::SeqCst) {
            self.scribe.schedule(self.topic.clone());
        }
    }
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
    /// The log on disk of a kept topic.
    store: Option<Store>,
    /// Why the disk took no data, until it works again.
    failure: Option<String>,
    /// Why the last sync failed, until the bytes that are not on the disk were written anew.
    sync_failure: Option<String>,
}

/// The ring of a publisher at the broker.
pub(super) struct PublisherRing {
    pub(super) rin: RIn,
    pub(super) bid: Bid,
    pub(super) key: SessionKey,
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

    fn tell(&self, report: DiskReport<'_>) {
        let bid = self.bid;
        let message = match report {
            DiskReport::Stored(position, synced) => Control::Stored { bid, position, synced },
            DiskReport::Failure(failure) => {
                Control::Disk { bid, failure: failure.unwrap_or_default().to_owned() }
            }
            DiskReport::Lost => Control::NotStored {
                bid,
                reason:
                    "the broker's disk lost a part of what it had stored; the log of the broker says more"
                        .into(),
            },
        };
        // The callbacks of a lost connection come later, from a worker.
        send(&self.rin.conn(), &message);
    }

    fn origin(&self, number: u32, piece: &InView) -> Place {
        let Self { bid, key, .. } = *self;
        Place { number, key, bid, epoch: piece.epoch(), position: piece.position() }
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
    fn append(&mut self, place: &Place, run: [&[u8]; 2]) -> Result<Position, AppendError> {
        if self.store.is_some() {
            return self.append_kept(place, run);
        }
        self.writer.append(&run).map_err(append_error)
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

    fn disk(&self) -> Option<DiskState> {
        let log = self.store.as_ref()?.log();
        let unsure = log.sync_failed();
        Some(DiskState { end: log.end(), durable: log.durable(), unsure, lost: log.stats().lost_bytes })
    }

    fn disk_failure(&self) -> Option<&str> {
        self.failure.as_deref().or(self.sync_failure.as_deref())
    }
}

impl MergedLog {
    /// After a failed sync: has the file written anew. `again`: also if that failed before.
    fn repair(&mut self, again: bool) {
        let Self { writer, store: Some(store), sync_failure, .. } = self else { return };
        if !store.log().sync_failed() {
            *sync_failure = None;
        } else if again || sync_failure.is_none() {
            *sync_failure = store.log_mut().sync().err().map(|error| error.to_string());
            match sync_failure {
                Some(error) => warn!("buffer {}: a sync failed: {error}", writer.buffer().bid()),
                None => info!(
                    "buffer {}: a sync failed, and what is stored was written anew",
                    writer.buffer().bid()
                ),
            }
        }
    }

    /// The delivery is on the disk, or at least in the memory of the system, before a subscriber can see it.
    fn append_kept(&mut self, place: &Place, [header, bytes]: [&[u8]; 2]) -> Result<Position, AppendError> {
        let Self { writer, store: Some(store), failure, .. } = self else { return Err(AppendError::Ended) };
        let size = (header.len() + bytes.len()) as u64;
        let mut segment = writer.segment(size, Some(Duration::ZERO)).map_err(append_error)?;
        let delivery = segment.bytes_mut();
        delivery[..header.len()].copy_from_slice(header);
        delivery[header.len()..].copy_from_slice(bytes);
        let stored = store.append(*place, bytes.len() as u64, delivery);
        let size = if stored.is_ok() { size } else { 0 };
        let end = writer.deliver(segment, size, None).map_err(|_| AppendError::Ended)?;
        match stored {
            Ok(()) => {
                if failure.take().is_some() {
                    info!("buffer {}: the disk takes data again", writer.buffer().bid());
                }
                Ok(end)
            }
            Err(error) => {
                let error = error.to_string();
                if failure.as_ref() != Some(&error) {
                    warn!("buffer {}: its publishers wait for the disk: {error}", writer.buffer().bid());
                    *failure = Some(error);
                }
                // Old data makes room, if the limits allow it.
                let _ = store.apply_retention();
                Err(AppendError::Disk)
            }
        }
    }
}

fn append_error(error: SegmentError) -> AppendError {
    match error {
        SegmentError::Full => AppendError::Full,
        // The ring of a publisher fits into a delivery, so there is no other error before the end.
        _ => AppendError::Ended,
    }
}

impl Written for MergedTopic {
    fn write(&self) {
        if let Some(kept) = &self.kept {
            // Reset before the turn: data that comes from here on puts the topic into the queue again.
            kept.scheduled.store(false, Ordering::SeqCst);
        }
        self.pump_here();
    }

    fn tick(&self) {
        let Some(kept) = &self.kept else { return };
        if kept.failed.swap(false, Ordering::SeqCst) {
            self.woken.store(true, Ordering::SeqCst);
            self.pump_here();
        }
        let mut retained = lock(&kept.retained);
        if retained.elapsed() < RETENTION_EVERY {
            return;
        }
        *retained = Instant::now();
        drop(retained);
        let mut state = lock(&self.state);
        let store = state.log.as_mut().and_then(|log| log.store.as_mut());
        if let Some(Err(error)) = store.map(Store::apply_retention) {
            warn!("buffer {}: old data is not removed: {error}", self.buffer.bid());
        }
        drop(state);
        // A thread that found the state locked relies on this thread to look again.
        self.pump_here();
    }
}

impl MergedTopic {
    /// A topic that writes to a buffer of this rOut and, if it is kept, to the disk.
    pub(super) fn new(
        writer: OutWriter,
        table_limit: usize,
        events: &Sender,
        store: Option<(Store, Scribe)>,
    ) -> Arc<Self> {
        let buffer = writer.buffer().clone();
        let (store, scribe) = store.unzip();
        let log = MergedLog { writer, store, failure: None, sync_failure: None };
        let state = State { log: Some(log), merger: Merger::new(table_limit), blocked: false };
        let topic = Arc::new_cyclic(|topic: &Weak<Self>| Self {
            buffer,
            events: events.clone(),
            notes: Mutex::default(),
            woken: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            progressed: AtomicBool::new(false),
            state: Mutex::new(state),
            load: Mutex::default(),
            kept: scribe.map(|scribe| {
                Arc::new(Kept {
                    scribe,
                    topic: topic.clone(),
                    scheduled: AtomicBool::new(false),
                    failed: AtomicBool::new(false),
                    watching: AtomicBool::new(false),
                    retained: Mutex::new(Instant::now()),
                })
            }),
        });
        if let Some(kept) = &topic.kept {
            kept.scribe.add(kept.topic.clone());
            topic.follow_syncs(kept.clone());
        }
        topic
    }

    /// Looks for answers after each sync that a publisher waits for. The thread that syncs must not own the topic, whose log waits
    /// for that thread when it is dropped.
    fn follow_syncs(&self, kept: Arc<Kept>) {
        let state = lock(&self.state);
        if let Some(store) = state.log.as_ref().and_then(|log| log.store.as_ref()) {
            store.log().after_sync(move || {
                if kept.watching.load(Ordering::SeqCst) {
                    kept.schedule();
                }
            });
        }
    }

    /// Adds a publisher whose bytes below `from` were merged before. The result is to be notified of arrivals in the ring.
    pub(super) fn join(self: &Arc<Self>, number: u32, ring: PublisherRing, from: Position) -> Arrivals {
        let signals = Arc::<Signals>::default();
        self.leave(News::Join(Joining { number, ring, signals: signals.clone(), from }));
        Arrivals { topic: Arc::downgrade(self), number, signals }
    }

    /// A publisher sends no more data. `Event::Merged` follows when all its data is merged.
    pub(super) fn finish(&self, number: u32) {
        self.leave(News::Note(Note::Finish(number)));
    }

    /// A finishing publisher is connected again.
    pub(super) fn resume(&self, number: u32) {
        self.leave(News::Note(Note::Resume(number)));
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
        if self.kept.is_some() {
            // Nobody but the scribe waits for the disk.
            return *lock(&self.load);
        }
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
        self.leave(News::Note(Note::Remove(number)));
    }

    /// Ends the topic, and releases its ring and its publishers.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.log = None;
        state.merger.clear();
        lock(&self.notes).clear();
    }

    /// The ring may have room now.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.pump();
    }

    fn leave(&self, news: News) {
        lock(&self.notes).push(news);
        self.pump();
    }

    /// Merges everything that can be merged, unless another thread does so already. A kept topic is left to the scribe.
    fn pump(&self) {
        match &self.kept {
            None => self.pump_here(),
            Some(kept) => kept.schedule(),
        }
    }

    fn pump_here(&self) {
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
        for news in notes {
            match news {
                News::Join(Joining { number, ring, signals, from }) if state.log.is_some() => {
                    state.merger.join(number, ring, signals, from);
                }
                News::Join(_) => {}
                News::Note(note) => state.merger.note(note),
            }
        }
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
        let is_new = woken || !state.blocked;
        if let Some(kept) = &self.kept {
            let failed =
                turn.blocked == Some(Blocked::ByDisk) || !is_new && kept.failed.load(Ordering::SeqCst);
            // The publishers that waited for the disk may have left. A topic that waits for its ring does not know.
            log.failure.take_if(|_| is_new && turn.blocked.is_none());
            settle_disk(kept, log, &mut state.merger, woken, failed);
        }
        if !is_new {
            return turn;
        }
        let wanted = turn.blocked.and_then(|blocked| match blocked {
            Blocked::ByTable(position) => Some(Progress::Consumed(position)),
            // After a full turn there is room, so the next turn begins when the worker has served its connections.
            Blocked::ByRing | Blocked::TurnOver => Some(Progress::Room),
            // The next tick tries again.
            Blocked::ByDisk => None,
        });
        state.blocked = turn.blocked.is_some();
        if self.kept.is_some() {
            *lock(&self.load) = state.merger.table_load(state.log.as_ref());
        }
        wanted.into_iter().for_each(|wanted| self.buffer.notify_progress(wanted));
        if turn.ended {
            state.merger.clear();
        }
        turn
    }
}

/// Answers the publishers that wait for the disk. `failed`: it takes nothing.
fn settle_disk(
    kept: &Kept,
    log: &mut MergedLog,
    merger: &mut Merger<PublisherRing>,
    woken: bool,
    failed: bool,
) {
    log.repair(woken);
    let wants_sync = merger.settle_disk(log);
    // The next tick tries again.
    kept.failed.store(failed || log.sync_failure.is_some(), Ordering::SeqCst);
    // Before the sync begins, which otherwise might end unnoticed.
    kept.watching.store(merger.is_watching_disk(), Ordering::SeqCst);
    if let (true, Some(store)) = (wants_sync, &mut log.store) {
        store.log_mut().sync_soon();
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
            topic.leave(News::Note(Note::Arrived(self.number)));
        }
    }

    /// The publisher waits until its log is stored and synced up to these positions; 0: it doesn't wait. They replace the last ones.
    /// Returns false if the topic is not kept.
    fn ask_disk(&self, [stored, synced]: [Position; 2]) -> bool {
        let Some(topic) = self.topic.upgrade().filter(|topic| topic.kept.is_some()) else { return false };
        self.signals.stored.store(stored, Ordering::Release);
        self.signals.synced.store(synced, Ordering::Release);
        if !self.signals.asked_disk.swap(true, Ordering::AcqRel) {
            topic.leave(News::Note(Note::AskedDisk(self.number)));
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
            topic.leave(News::Note(Note::Asked(self.number)));
        }
    }
}

/// The merged buffers of a publisher. Every arriving transfer reads this table.
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

    /// Handles a publisher's question about the disk, in the same way. Returns false for other messages, and for buffers that are not
    /// kept, or not known yet.
    pub(crate) fn take_control(&self, message: &[u8]) -> bool {
        let Ok(Control::AskStored { bid, position, synced }) = Control::decode(message) else { return false };
        self.ask_disk(bid, [position, synced])
    }

    /// A publisher's question about the disk. Returns false for a buffer that is not kept.
    pub(crate) fn ask_disk(&self, in_bid: Bid, wanted: [Position; 2]) -> bool {
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

    /// Whether the disk of a kept topic failed at the last attempt.
    pub(crate) fn is_failing(&self, out_bid: Bid) -> bool {
        let kept =
            |topic: &MergedTopic| topic.kept.as_ref().is_some_and(|kept| kept.failed.load(Ordering::SeqCst));
        self.get(out_bid).is_some_and(|topic| kept(&topic))
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
