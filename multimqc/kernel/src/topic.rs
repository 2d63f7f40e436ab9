//! A topic's ring, read in place.
//!
//! ```text
//!   position     first               stable               head
//!     ───────────┼─────────────────────┼────────────────────┼───────▶
//!     overwritten│  can be read        │  writes under way  │
//! ```
//!
//! The programs write, on all CPUs at once, and never wait for a reader. User space writes as they do, with a slot of its own. A reader
//! uses bytes below `stable`, and then checks whether `first` has passed them: if it has, the bytes must not be used. The writers' side
//! is in multimqc/bpf/ring.h.
//!
//! | here | pairs with |
//! |---|---|
//! | acquire load of the head, then of the slots | a writer's fetch_add of the head, after its slot; the fence before it clears the slot |
//! | fetch_add(0) of the head, after the use of bytes | a writer's fetch_add of the head, before its copy |
//! | swap of `wake_at`, then fetch_add(0) of the head | a writer's fetch_add of the head, then its load of `wake_at` |
//!
//! Operations that read and write the same word (the head) have one order, so each side sees the other's earlier steps. Therefore no
//! fence between different words is needed.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use locks::Mutex;
use multimqc::{
    Batch, Epoch, Found, Hole, LevelCounters, Offset, Session, Sessions, Stop, TopicId, Window, Written,
};

use crate::counters::KernelCounters;
use crate::holes::Holes;
use crate::layout::{CpuState, IDLE, MIRROR_BYTES, TopicNotes, TopicState};
use crate::sys::Mapping;
use crate::wakes::Wakes;

/// Values of `open` for an open topic: messages are stored as they came, or behind their lengths.
const OPEN: u16 = 1;
const OPEN_WITH_RECORDS: u16 = 2;

/// Bytes that are copied at once.
const WORD: usize = 8;

/// How long a change of all offsets waits for writers that began before it. A copy takes much less time.
const WRITERS_WAIT: Duration = Duration::from_secs(1);

/// Memory that all topics share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) topics: Mapping,
    pub(crate) notes: Mapping,
    pub(crate) cpus: Mapping,
    /// Slots of a topic: of each CPU, and the last of user space.
    pub(crate) writers: u32,
    pub(crate) ring_bytes: u64,
    pub(crate) wakes: Wakes,
}

impl Shared {
    /// The state of the topic at an index.
    pub(crate) fn state(&self, index: u32) -> &TopicState {
        let at = self.topics.at(index as usize * size_of::<TopicState>(), size_of::<TopicState>());
        // SAFETY: inside of the mapping and aligned (a map's memory begins at a page); all fields that change are atomic.
        unsafe { at.cast().as_ref() }
    }

    fn notes(&self, index: u32) -> &TopicNotes {
        let at = self.notes.at(index as usize * size_of::<TopicNotes>(), size_of::<TopicNotes>());
        // SAFETY: as in `state`.
        unsafe { at.cast().as_ref() }
    }

    /// The sessions that are kept with a ring.
    pub(crate) fn sessions(&self, index: u32) -> Sessions {
        let notes = self.notes(index);
        let list = &notes.sessions[notes.current.load(Acquire) as usize & 1];
        let session =
            |[id, start]: &[AtomicU64; 2]| Session { id: id.load(Acquire), start: start.load(Acquire) };
        Sessions::new(list.iter().map(session).take_while(|session| session.id != 0))
    }

    /// Keeps sessions with a ring. If the process ends during this call, the former list stays valid.
    pub(crate) fn keep_sessions(&self, index: u32, sessions: &Sessions) {
        let notes = self.notes(index);
        let other = !notes.current.load(Acquire) & 1;
        let mut given = sessions.list().iter();
        for [id, start] in &notes.sessions[other as usize] {
            let session = given.next();
            id.store(session.map_or(0, |session| session.id), Release);
            start.store(session.map_or(0, |session| session.start), Release);
        }
        notes.current.store(other, Release);
    }

    fn cpu(&self, index: u32, cpu: u32) -> &CpuState {
        let at = (index * self.writers + cpu) as usize * size_of::<CpuState>();
        // SAFETY: as in `state`.
        unsafe { self.cpus.at(at, size_of::<CpuState>()).cast().as_ref() }
    }
}

/// A topic of the kernel level. Any thread may read a topic, also after the level is detached.
#[derive(Debug, Clone)]
pub struct Topic {
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    index: u32,
}

#[derive(Debug)]
struct Memory {
    /// The ring, twice.
    ring: Mapping,
    /// The mirror that the programs read behind the ring's end: its first bytes again.
    mirror: Mapping,
    /// Held by the thread that uses user space's slot.
    writer: Mutex<()>,
    holes: Holes,
    level_counters: LevelCounters,
}

impl Topic {
    pub(crate) fn new(shared: Arc<Shared>, ring: Mapping, mirror: Mapping, index: u32) -> Topic {
        let (writer, holes, level_counters) = (Mutex::new(()), Holes::default(), LevelCounters::default());
        Topic { shared, memory: Arc::new(Memory { ring, mirror, writer, holes, level_counters }), index }
    }

    fn state(&self) -> &TopicState {
        self.shared.state(self.index)
    }

    /// The topic's number.
    pub fn id(&self) -> TopicId {
        TopicId(self.state().id.load(Relaxed))
    }

    /// The bytes that the ring holds.
    pub fn window(&self) -> Window {
        let head = self.stable_end();
        let first = self.first();
        Window { first: first.min(head), head, epoch: Epoch(self.state().epoch.load(Relaxed)) }
    }

    /// Copies bytes from `from` on, as many as fit into `out` and are complete. Bytes that were overwritten meanwhile are not
    /// returned: then [`Stop::Gone`] says where the ring begins.
    pub fn read(&self, from: Offset, out: &mut [u8]) -> Found {
        match self.range(from, out.len()) {
            Err(stop) => Found { bytes: 0, stop },
            Ok(range) => {
                let bytes = range.len();
                range.copy_to(&mut out[..bytes]);
                match range.check() {
                    Err(first) => Found { bytes: 0, stop: Stop::Gone(first) },
                    Ok(()) if bytes == out.len() => Found { bytes, stop: Stop::Filled },
                    Ok(()) => Found { bytes, stop: self.stop_at(from + bytes as u64) },
                }
            }
        }
    }

    /// The reason why bytes that were read in place end here.
    fn stop_at(&self, at: Offset) -> Stop {
        match self.memory.holes.after(at) {
            Some(hole) if hole.from == at => Stop::Hole(hole),
            _ => Stop::Head,
        }
    }

    /// Bytes from `from` on in place: at most `max` and at most a ring, up to the next hole.
    ///
    /// # Errors
    /// [`Stop::Head`] if the byte at `from` is not complete, [`Stop::Gone`] if it is overwritten, [`Stop::Hole`] if it was never
    /// there, [`Stop::Filled`] if `max` is 0.
    pub fn range(&self, from: Offset, max: usize) -> Result<Range<'_>, Stop> {
        let end = self.stable_end();
        let first = self.first();
        if from < first {
            return Err(Stop::Gone(first));
        }
        if max == 0 {
            return Err(Stop::Filled);
        }
        if from >= end {
            return Err(Stop::Head);
        }
        let mut len = (end - from).min(self.shared.ring_bytes).min(max as u64);
        // The end was loaded before, so every hole below it is seen.
        if let Some(hole) = self.memory.holes.after(from) {
            if hole.from == from {
                return Err(Stop::Hole(hole));
            }
            len = len.min(hole.from - from);
        }
        let len = len as usize;
        let offset = (from & (self.shared.ring_bytes - 1)) as usize;
        Ok(Range { topic: self, from, at: self.memory.ring.at(offset, len), len })
    }

    /// The longest message that [`Topic::append`] accepts: an eighth of the ring.
    pub fn max_append_bytes(&self) -> usize {
        (self.shared.ring_bytes / 8) as usize
    }

    /// Appends a message from user space, between the messages that arrive on the wire: one that the programs have left to the network
    /// stack, such as a long one or one over IPv6. Returns the offset of its first byte. `None`: it is longer than
    /// [`Topic::max_append_bytes`].
    ///
    /// As with each writer, bytes behind the message can be read only once its copy is complete. Threads of this process append one after
    /// the other.
    pub fn append(&self, message: &[u8]) -> Option<Offset> {
        if message.len() > self.max_append_bytes() {
            return None;
        }
        let _turn = self.memory.writer.lock();
        let start = self.reserve(message.len());
        self.copy_in(start, message);
        self.commit(start, message.len());
        self.count(1, message.len());
        Some(start)
    }

    /// Places a batch of a level below behind the head, after a hole if the batch begins behind the head. All of its bytes become readable
    /// at the same time.
    pub(crate) fn write(&self, batch: Batch<'_>) -> Written {
        let _turn = self.memory.writer.lock();
        let state = self.state();
        let written = loop {
            let head = self.head();
            let placed = batch.place(head);
            let written =
                Written { hole: placed.hole, bytes: placed.bytes.len() as u64, repeated: placed.repeated };
            let at = placed.hole.map_or(head, |hole| hole.to);
            let end = at + written.bytes;
            if end == head {
                break written;
            }
            self.own().slot.store(head, Relaxed);
            // Releases the slot to readers that see the new head. A failure means that a program was faster and has reserved this position.
            if state.head.compare_exchange(head, end, AcqRel, Relaxed).is_err() {
                continue;
            }
            if let Some(hole) = placed.hole {
                self.add_hole(hole);
            }
            // Of a batch that is larger than the ring, only the end is stored.
            let skipped = placed.bytes.len().saturating_sub(self.shared.ring_bytes as usize);
            let (mut to, bytes) = (at + skipped as u64, &placed.bytes[skipped..]);
            for part in bytes.chunks(self.max_append_bytes()) {
                self.copy_in(to, part);
                to += part.len() as u64;
            }
            self.commit(at + skipped as u64, bytes.len());
            self.count(0, placed.bytes.len());
            break written;
        };
        self.memory.level_counters.written(&written);
        written
    }

    /// Records a hole whose range is reserved, before readers reach it.
    fn add_hole(&self, hole: Hole) {
        // A late writer may damage bytes before the hole. Readers would not notice this, so the floor is set above these bytes.
        let is_late = self.slots().any(|slot| slot < hole.from);
        let floor = if is_late { hole.to } else { self.floor() };
        self.memory.holes.add(hole, floor, self.first());
        self.state().floor.fetch_max(hole.to, AcqRel);
    }

    /// Gives the bytes from `from` on new offsets, which are not below `to`. All offsets grow by the same distance; older bytes are lost.
    /// The bytes stay at their place in memory, so the distance is a multiple of the ring.
    pub(crate) fn rebase(&self, from: Offset, to: Offset) -> Window {
        let _turn = self.memory.writer.lock();
        let (state, ring_bytes) = (self.state(), self.shared.ring_bytes);
        let distance = to.saturating_sub(from).next_multiple_of(ring_bytes);
        let first = from.max(self.first());
        // The slot keeps readers out until the floor is set.
        self.own().slot.store(self.head(), Relaxed);
        let head = state.head.fetch_add(distance, AcqRel);
        let was_lapped = self.slots().any(|slot| slot.saturating_add(ring_bytes) < head);
        state.floor.fetch_max(first + distance, AcqRel);
        self.memory.holes.clear();
        self.own().slot.store(IDLE, Release);
        // A writer that began before takes the jump of the head for writers that have overtaken it, and raises the floor above itself.
        let (end, deadline) = (head + distance, Instant::now() + WRITERS_WAIT);
        while self.slots().any(|slot| slot < end) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let floor = state.floor.load(Acquire);
        if !was_lapped && floor <= end {
            // A floor that has risen meanwhile stays.
            let _ = state.floor.compare_exchange(floor, first + distance, AcqRel, Relaxed);
        }
        self.window()
    }

    /// The offsets at which programs are writing, or lower ones.
    fn slots(&self) -> impl Iterator<Item = Offset> {
        let programs = 0..self.shared.writers - 1;
        programs.map(|cpu| self.shared.cpu(self.index, cpu).slot.load(Acquire)).filter(|slot| *slot != IDLE)
    }

    /// The batches and the reads of user space.
    pub(crate) fn level_counters(&self) -> &LevelCounters {
        &self.memory.level_counters
    }

    /// Counts the bytes that user space has stored.
    fn count(&self, messages: u64, bytes: usize) {
        let [stored, stored_bytes, ..] = &self.own().counters;
        stored.fetch_add(messages, Relaxed);
        stored_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// User space's slot and counters.
    fn own(&self) -> &CpuState {
        self.shared.cpu(self.index, self.shared.writers - 1)
    }

    /// Reserves the next bytes. Readers cannot read them, or later bytes, until [`Topic::commit`].
    pub(crate) fn reserve(&self, bytes: usize) -> Offset {
        let state = self.state();
        self.own().slot.store(state.head.load(Relaxed), Relaxed);
        // Releases the slot to readers that see the new head.
        state.head.fetch_add(bytes as u64, AcqRel)
    }

    /// Makes the copied bytes readable, unless the other writers have overtaken this copy by a whole ring.
    pub(crate) fn commit(&self, start: Offset, bytes: usize) {
        let (state, own, ring_bytes) = (self.state(), self.own(), self.shared.ring_bytes);
        let end = start + bytes as u64;
        let passed = state.head.fetch_add(0, AcqRel) - start;
        if passed > ring_bytes {
            state.floor.fetch_max(end + (passed & !(ring_bytes - 1)), AcqRel);
        }
        // Pairs with the acquire load of the slots in readers.
        own.slot.store(IDLE, Release);
        if end >= state.wake_at.load(Acquire) && state.wake_at.swap(IDLE, AcqRel) != IDLE {
            self.shared.wakes.wake();
        }
    }

    /// Copies a message to its place, and the bytes that fall on the ring's first bytes also to their mirror.
    pub(crate) fn copy_in(&self, start: Offset, message: &[u8]) {
        let ring_bytes = self.shared.ring_bytes as usize;
        let at = start as usize & (ring_bytes - 1);
        write_volatile(self.memory.ring.at(at, message.len()), message);
        let (first, skipped) = if at < MIRROR_BYTES { (at, 0) } else { (0, ring_bytes - at) };
        if let Some(rest) = message.get(skipped..) {
            let rest = &rest[..rest.len().min(MIRROR_BYTES - first)];
            write_volatile(self.memory.mirror.at(first, rest.len()), rest);
        }
    }

    /// Recovers a ring of another process, which may have ended in the middle of a copy. In this case the bytes up to the head are lost.
    pub(crate) fn recover(&self) {
        if self.own().slot.load(Acquire) != IDLE {
            let state = self.state();
            state.floor.fetch_max(state.head.load(Acquire), AcqRel);
            self.own().slot.store(IDLE, Release);
        }
    }

    /// Notes positions between two messages, for the next process that takes over a kept ring: the beginning of an overwritten ring
    /// lies inside of a message.
    pub fn set_marks(&self, positions: [Offset; 4]) {
        for (mark, position) in self.state().marks.iter().zip(positions) {
            mark.store(position, Release);
        }
    }

    /// The positions that were noted last; 0 where there is none.
    pub fn marks(&self) -> [Offset; 4] {
        self.state().marks.each_ref().map(|mark| mark.load(Acquire))
    }

    /// The counters of the programs for this topic.
    pub fn counters(&self) -> KernelCounters {
        let cpus = (0..self.shared.writers).map(|cpu| self.shared.cpu(self.index, cpu));
        cpus.fold(KernelCounters::default(), |mut sum, cpu| {
            sum.add(&cpu.counters);
            sum
        })
    }

    /// The end of the bytes that writers have reserved.
    pub(crate) fn head(&self) -> Offset {
        self.state().head.load(Acquire)
    }

    /// The end of the bytes that no writer is still copying.
    fn stable_end(&self) -> Offset {
        let head = self.head();
        let slots = (0..self.shared.writers).map(|cpu| self.shared.cpu(self.index, cpu).slot.load(Acquire));
        slots.filter(|slot| *slot != IDLE).fold(head, Offset::min)
    }

    /// The oldest byte that is not overwritten, and that no writer has begun to overwrite.
    fn first(&self) -> Offset {
        let head = self.state().head.fetch_add(0, AcqRel);
        head.saturating_sub(self.shared.ring_bytes).max(self.floor().min(head))
    }

    /// The offset below which bytes may be damaged.
    fn floor(&self) -> Offset {
        self.memory.holes.floor_below(self.state().floor.load(Acquire))
    }

    /// Asks for a wake-up when the head reaches `position`. True: the head has reached it already.
    pub(crate) fn wake_at(&self, position: Offset) -> bool {
        let state = self.state();
        state.wake_at.swap(position, AcqRel);
        state.head.fetch_add(0, AcqRel) >= position
    }

    /// Makes an empty log that begins at `start`.
    pub(crate) fn reset(&self, id: TopicId, start: Offset, epoch: Epoch, records: bool) {
        // The kernel fills new maps with zeros.
        for cpu in 0..self.shared.writers {
            self.shared.cpu(self.index, cpu).slot.store(IDLE, Relaxed);
        }
        let state = self.state();
        state.head.store(start, Relaxed);
        state.floor.store(start, Relaxed);
        state.stable.store(start, Relaxed);
        state.epoch.store(epoch.0, Relaxed);
        state.id.store(id.0, Relaxed);
        state.wake_at.store(IDLE, Relaxed);
        state.marks.iter().for_each(|mark| mark.store(0, Relaxed));
        // The programs find the topic through `ids` and `ports`, which are stored after this.
        state.open.store(if records { OPEN_WITH_RECORDS } else { OPEN }, Release);
    }

    /// Whether the log was made for messages behind their lengths.
    pub(crate) fn has_records(&self) -> bool {
        self.state().open.load(Acquire) == OPEN_WITH_RECORDS
    }
}

/// Bytes in place, in memory that the kernel may overwrite at any time. They are valid if [`Range::check`] succeeds after their use.
#[derive(Debug)]
pub struct Range<'a> {
    topic: &'a Topic,
    from: Offset,
    at: NonNull<u8>,
    len: usize,
}

impl Range<'_> {
    /// The offset of the first byte.
    pub fn from(&self) -> Offset {
        self.from
    }

    /// The number of bytes, at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of the bytes, which are in one piece. For system calls, such as a `write` without a copy in user space.
    pub fn as_ptr(&self) -> *const u8 {
        self.at.as_ptr()
    }

    /// Copies all bytes.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len, "a buffer for the whole range");
        copy_volatile(self.at.as_ptr(), out);
    }

    /// Checks that the bytes are still those of the log, and so were until this call.
    ///
    /// # Errors
    /// The oldest byte that the ring has now. The bytes that were read must not be used.
    pub fn check(&self) -> Result<(), Offset> {
        let first = self.topic.first();
        if self.from < first { Err(first) } else { Ok(()) }
    }
}

/// Copies memory that another writer may change meanwhile, word by word where it is aligned.
fn copy_volatile(from: *const u8, out: &mut [u8]) {
    let mut done = 0;
    while done < out.len() {
        // SAFETY: `from` has as many bytes as `out`, and `done` is less.
        let at = unsafe { from.add(done) };
        if at.addr().is_multiple_of(WORD) && out.len() - done >= WORD {
            // SAFETY: aligned, and a word is left.
            let word = unsafe { at.cast::<u64>().read_volatile() };
            out[done..done + WORD].copy_from_slice(&word.to_ne_bytes());
            done += WORD;
        } else {
            // SAFETY: a byte is left.
            out[done] = unsafe { at.read_volatile() };
            done += 1;
        }
    }
}

/// Writes memory that another reader may read meanwhile, word by word where it is aligned.
fn write_volatile(to: NonNull<u8>, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        // SAFETY: `to` has as many bytes as `bytes`, and `done` is less.
        let at = unsafe { to.as_ptr().add(done) };
        match bytes[done..].first_chunk() {
            Some(word) if at.addr().is_multiple_of(WORD) => {
                // SAFETY: aligned, and a word is left.
                unsafe { at.cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
                done += WORD;
            }
            _ => {
                // SAFETY: a byte is left.
                unsafe { at.write_volatile(bytes[done]) };
                done += 1;
            }
        }
    }
}
