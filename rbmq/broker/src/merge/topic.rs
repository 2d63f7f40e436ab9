//! A merged topic as its threads share it: publishers' workers, subscribers' workers, and the broker's thread.
//!
//! Whichever thread learns that data can be merged leaves an event in the topic's [`Mailbox`], and handles the events itself if no
//! thread does so already: the worker on which a publisher's bytes arrive, the worker on which a subscriber made room, or the
//! broker's thread. No thread waits. When the ring has no room, merging stops, and the framework reports new room
//! ([`OutBuffer::notify_progress`]). Data that is not merged is not released, so publishers wait by their credit.
//!
//! The log of a kept topic is written by a thread of its own (`kept::Scribe`), which does all of the above: no worker waits for a disk.
//!
//! The calls into the framework by the owner of the state only read positions, append to the ring and release rings; they call
//! nothing of this crate back.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use locks::Mutex;
use rocketbufs::{OutBuffer, OutWriter, Position, Progress};
use rocketring::{NotifyFlag, barrier};
use tracing::warn;

use super::super::inbox::{self, Sender};
use super::super::kept::{Archived, Scribe, Store, Written};
use super::log::{Growth, MergedLog, Source};
use super::mailbox::{Event, Events, Mailbox, News, Owner, Owners, Posted, Status};
use super::merger::{Blocked, Merger, Note, Signals, StoppedSource, Turn};
use super::table::TableLoad;

/// How often old data is removed from the disk.
const RETENTION_EVERY: Duration = Duration::from_secs(10);

/// A merged topic.
pub(crate) struct MergedTopic {
    buffer: OutBuffer,
    events: Sender,
    mailbox: Mailbox<State, Joining>,
    /// Armed while a publisher waits for a confirmation. The subscriber's thread that takes it leaves an event.
    asked: NotifyFlag,
    kept: Option<Arc<Kept>>,
}

/// What a publisher brings that joins.
pub(super) struct Joining {
    pub(super) ring: Source,
    pub(super) signals: Arc<Signals>,
    pub(super) from: Position,
}

/// The parts that only a kept topic has. The threads that sync have it too.
struct Kept {
    scribe: Scribe,
    topic: Weak<MergedTopic>,
    /// Armed while a publisher waits for a sync or the archive. The thread that has synced or archived takes it, and has the scribe look at
    /// the topic.
    watching: NotifyFlag,
    /// When the limits of the disk were last applied.
    retained: Mutex<Instant>,
    /// The archive below the disk. It is known when the log was opened.
    archive: OnceLock<Arc<Archived>>,
}

impl Kept {
    /// Has the scribe look at the topic.
    fn schedule(&self) {
        self.scribe.schedule(self.topic.clone());
    }

    /// Has it look if a publisher waits for what has changed.
    fn look(&self) {
        if self.watching.take(barrier::full()) {
            self.schedule();
        }
    }
}

/// The state of the thread that merges.
struct State {
    log: MergedLog,
    merger: Merger<Source>,
    /// Merging is blocked, and [`Event::Room`] comes when it can continue.
    blocked: bool,
    status: Status,
}

impl Written for MergedTopic {
    fn write(&self) {
        if let Some(owner) = self.mailbox.enter() {
            self.run(owner);
        }
    }

    fn tick(&self) {
        let Some(kept) = &self.kept else { return };
        if self.is_failing() {
            self.post(Event::Room);
        }
        let mut retained = kept.retained.lock();
        if retained.elapsed() >= RETENTION_EVERY {
            *retained = Instant::now();
            drop(retained);
            self.post(Event::Retention);
        }
    }
}

impl MergedTopic {
    /// A topic that writes to a buffer of this rOut, whose ring grows as it may, and, if it is kept, to the disk.
    pub(super) fn new(
        writer: OutWriter,
        growth: Growth,
        table_limit: usize,
        events: &Sender,
        store: Option<(Store, Scribe)>,
    ) -> Arc<Self> {
        let buffer = writer.buffer().clone();
        let (store, scribe) = store.unzip();
        let owners = if scribe.is_some() { Owners::Called } else { Owners::Anyone };
        let topic = Arc::new_cyclic(|topic: &Weak<Self>| {
            let kept = scribe.map(|scribe| {
                let (watching, retained) = (NotifyFlag::default(), Mutex::new(Instant::now()));
                Arc::new(Kept { scribe, topic: topic.clone(), watching, retained, archive: OnceLock::new() })
            });
            if let (Some(store), Some(kept)) = (&store, &kept) {
                follow_syncs(store, kept.clone());
            }
            let log = MergedLog { writer, growth, store, archive: None, failure: None, sync_failure: None };
            let mut merger = Merger::new(table_limit);
            let status = Status { load: merger.table_load(Some(&log)), is_failing: false };
            let mailbox = Mailbox::new(owners, State { log, merger, blocked: false, status }, status);
            Self { buffer, events: events.clone(), mailbox, asked: NotifyFlag::default(), kept }
        });
        if let Some(kept) = &topic.kept {
            kept.scribe.add(kept.topic.clone());
        }
        topic
    }

    /// Publishers of the topic can wait for its archive.
    pub(super) fn set_archive(&self, archived: Arc<Archived>) {
        let Some(kept) = &self.kept else { return };
        let (watched, itself, events) =
            (Arc::downgrade(kept), Arc::downgrade(&archived), self.events.clone());
        archived.after_change(move || {
            watched.upgrade().into_iter().for_each(|kept| kept.look());
            // Another broker may have gone on there, or the map is to be asked for more positions.
            if itself.upgrade().is_some_and(|archived| archived.is_refused() || archived.is_spent()) {
                events.event(inbox::Event::ClusterChanged);
            }
        });
        // An archive is set once.
        let _ = kept.archive.set(archived);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// A publisher sends no more data. `Event::Merged` follows when all its data is merged.
    pub(super) fn finish(&self, number: u32) {
        self.post(Event::Note(Note::Finish(number)));
    }

    /// What is taken for merged of a publisher below a position is not here, so the disk has no answers for it.
    pub(super) fn lacks(&self, number: u32, below: Position) {
        self.post(Event::Note(Note::Lacks(number, below)));
    }

    /// A publisher names its buffer again, perhaps over another connection.
    pub(super) fn again(&self, number: u32) {
        self.post(Event::Note(Note::Again(number)));
    }

    /// No byte of a publisher is merged any more. [`inbox::Event::Stopped`] says how far its log was, and the publisher is removed.
    pub(super) fn stop(&self, number: u32) {
        self.post(Event::Note(Note::Stop(number)));
    }

    /// A finishing publisher is connected again.
    pub(super) fn resume(&self, number: u32) {
        self.post(Event::Note(Note::Resume(number)));
    }

    /// Removes a publisher. Its data is not merged any more.
    pub(super) fn remove(&self, number: u32) {
        self.post(Event::Note(Note::Remove(number)));
    }

    /// A subscriber came, left or made progress. Publishers that wait for a confirmation are notified.
    pub(super) fn progress(&self) {
        // Cheap while no publisher waits. The barrier meets the one of `turn`: the owner arms the flag and then reads the
        // subscribers' progress; a subscriber makes progress and then looks at the flag.
        if self.asked.take(barrier::full()) {
            self.post(Event::Progress);
        }
    }

    /// The load of the topic's table; of a kept topic at the end of the last turn: nobody but the scribe waits for the disk.
    pub(super) fn table_load(&self) -> TableLoad {
        if !self.is_kept() {
            self.post(Event::Status);
        }
        self.mailbox.status().load
    }

    /// Whether the disk of a kept topic failed at the last attempt.
    pub(super) fn is_failing(&self) -> bool {
        self.is_kept() && self.mailbox.status().is_failing
    }

    /// Ends the topic, and releases its ring and its publishers.
    pub(super) fn close(&self) {
        drop(self.mailbox.close());
    }

    /// Leaves an event, and handles it unless another thread does.
    pub(super) fn post(&self, event: Event<Joining>) {
        match self.mailbox.post(event) {
            Posted::Owns(owner) => self.run(owner),
            Posted::Calls => self.kept.iter().for_each(|kept| kept.schedule()),
            Posted::Nothing => {}
        }
    }

    /// Leaves an event, as a thread that has other things to do: it handles no more than it finds, and workers the rest.
    pub(super) fn post_briefly(&self, event: Event<Joining>) {
        match self.mailbox.post(event) {
            Posted::Owns(owner) => {
                // While the ring is full there is nothing to copy, and nobody who would come for the rest.
                if owner.run_once(|state, events| (self.handle(state, events), state.blocked)) {
                    self.buffer.notify_progress(Progress::Room);
                }
            }
            Posted::Calls => self.kept.iter().for_each(|kept| kept.schedule()),
            Posted::Nothing => {}
        }
    }

    /// Merges everything that can be merged.
    fn run(&self, owner: Owner<'_, State, Joining>) {
        owner.run(|state, events| self.handle(state, events));
    }

    fn handle(&self, state: &mut State, events: Events<Joining>) -> Status {
        let out_bid = self.buffer.bid();
        let turn = self.turn(state, events);
        for (number, position) in turn.finished {
            self.events.event(inbox::Event::Merged { out_bid, number, position });
        }
        for number in turn.too_large {
            self.events.event(inbox::Event::TooLarge { out_bid, number });
        }
        if state.merger.has_stopped() {
            // Before they are taken: a sync after one that failed finds out what the disk has lost.
            let is_synced = state.log.store.as_mut().is_some_and(|store| store.log_mut().sync().is_ok());
            for StoppedSource { number, merged, owes_loss } in state.merger.take_stopped(&state.log) {
                let stopped = inbox::Stopped { position: merged, is_synced, is_lost: owes_loss };
                self.events.event(inbox::Event::Stopped { out_bid, number, stopped });
            }
        }
        state.status
    }

    fn turn(&self, state: &mut State, events: Events<Joining>) -> Turn {
        let Events { news, room, progress: _, status, retention } = events;
        if let Some(archive) = self.kept.as_ref().and_then(|kept| kept.archive.get()) {
            state.log.archive.get_or_insert_with(|| archive.clone());
        }
        // Before publishers join that have nothing here.
        state.merger.look_at_archive(&state.log);
        for news in news {
            match news {
                News::Join(number, Joining { ring, signals, from }) => {
                    state.merger.join(number, ring, signals, from);
                }
                News::Note(note) => state.merger.note(note),
            }
        }
        if retention {
            self.apply_retention(&mut state.log);
        }
        let is_new = room || !state.blocked;
        let asked = state.merger.is_asked();
        if asked {
            self.asked.arm();
        }
        let turn = if is_new { state.merger.advance(&mut state.log) } else { Turn::default() };
        state.log.writer.note_time();
        state.merger.confirm(&state.log);
        if asked && !state.merger.is_asked() {
            self.asked.disarm();
        }
        if let Some(kept) = &self.kept {
            settle_disk(kept, state, &turn, room);
        }
        if is_new {
            self.settle_turn(state, &turn);
        }
        if status || self.is_kept() {
            state.status.load = state.merger.table_load(Some(&state.log));
        }
        turn
    }

    /// Waits for what a turn was blocked by.
    fn settle_turn(&self, state: &mut State, turn: &Turn) {
        let wanted = turn.blocked.and_then(|blocked| match blocked {
            Blocked::ByTable(position) => Some(Progress::Consumed(position)),
            // After a full turn there is room, so the next turn begins when the worker has served its connections.
            Blocked::ByRing | Blocked::TurnOver => Some(Progress::Room),
            // The next tick tries again.
            Blocked::ByDisk => None,
        });
        state.blocked = turn.blocked.is_some();
        wanted.into_iter().for_each(|wanted| self.buffer.notify_progress(wanted));
        if turn.ended {
            state.merger.clear();
        }
    }

    fn apply_retention(&self, log: &mut MergedLog) {
        if let Some(Err(error)) = log.store.as_mut().map(Store::apply_retention) {
            warn!("buffer {}: old data is not removed: {error}", self.buffer.bid());
        }
    }
}

/// Looks for answers after each sync that a publisher waits for. The thread that syncs must not own the topic, whose log waits
/// for that thread when it is dropped.
fn follow_syncs(store: &Store, kept: Arc<Kept>) {
    store.log().after_sync(move || kept.look());
}

/// Answers the publishers that wait for the disk. `again`: it is tried again if it failed before.
fn settle_disk(kept: &Kept, state: &mut State, turn: &Turn, again: bool) {
    let State { log, merger, blocked, status } = state;
    let is_new = again || !*blocked;
    let failed = turn.blocked == Some(Blocked::ByDisk) || !is_new && status.is_failing;
    // The publishers that waited for the disk may have left. A topic that waits for its ring does not know.
    log.failure.take_if(|_| is_new && turn.blocked.is_none());
    log.repair(again);
    // Before the state of the disk is read, and before a sync begins, which otherwise might end unnoticed.
    let watching = merger.is_watching_disk();
    if watching {
        kept.watching.arm();
    }
    let wants = merger.settle_disk(log);
    if watching && !merger.is_watching_disk() {
        kept.watching.disarm();
    }
    // The next tick tries again.
    status.is_failing = failed || log.sync_failure.is_some();
    if let (true, Some(store)) = (wants.sync, &mut log.store) {
        store.log_mut().sync_soon();
    }
    if let (true, Some(archive)) = (wants.archive, &log.archive) {
        archive.hurry();
    }
}
