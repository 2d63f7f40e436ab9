//! All replays of a broker, and the threads that read the disk for them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex};
use rocketbufs::{Bid, ROut};

use super::archived::RETRY;
use super::replay::{Begun, Replay, ReplayRequest, Step};

/// The threads for the disk, and those for the archive. While one of them waits for the disk, the other one serves what is in the memory of the system.
const THREADS: usize = 2;

/// A place of a replay, or of a request that was not answered yet. The flags are read and written with the lock of [`State`] alone,
/// which orders them.
struct Place {
    conn: u64,
    live: Bid,
    /// The place is in a queue.
    queued: AtomicBool,
    /// The next step is for the threads of the archive.
    older: AtomicBool,
    /// Locked before the [`State`].
    work: Mutex<Work>,
}

enum Work {
    Asked(Box<ReplayRequest>),
    Running(Box<Replay>),
    Over,
}

/// Places with the times before which nothing is done for them.
type Queue = VecDeque<(Instant, Bid, Arc<Place>)>;

#[derive(Default)]
struct State {
    active: HashMap<Bid, Arc<Place>>,
    /// Requests beyond the limit.
    waiting: VecDeque<ReplayRequest>,
    /// The queue of the threads that read the disk.
    queue: Queue,
    /// The queue of the threads that read the archive.
    older: Queue,
    max: usize,
    stopped: bool,
}

struct Shared {
    out: ROut,
    state: Mutex<State>,
    changed: Condvar,
    older_changed: Condvar,
}

/// The way to the replays. Clones lead to the same ones.
#[derive(Clone)]
pub(crate) struct Replays(Arc<Shared>);

/// The way to the replays for callbacks of their own [`ROut`], which would otherwise keep itself alive.
pub(crate) struct WeakReplays(Weak<Shared>);

impl WeakReplays {
    /// As [`Replays::wake`].
    pub(crate) fn wake(&self, bid: Bid) -> bool {
        self.0.upgrade().is_some_and(|shared| Replays(shared).wake(bid))
    }
}

/// The threads end when this is dropped.
pub(crate) struct ReplayThreads {
    replays: Replays,
    threads: Vec<JoinHandle<()>>,
}

impl Replays {
    pub(crate) fn new(out: &ROut) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Shared {
            out: out.clone(),
            state,
            changed: Condvar::new(),
            older_changed: Condvar::new(),
        }))
    }

    pub(crate) fn downgrade(&self) -> WeakReplays {
        WeakReplays(Arc::downgrade(&self.0))
    }

    /// Starts the threads; also those for the archive, if there is one.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(&self, with_archive: bool) -> std::io::Result<ReplayThreads> {
        let mut threads = ReplayThreads { replays: self.clone(), threads: Vec::new() };
        for number in 0..THREADS * (1 + usize::from(with_archive)) {
            let (replays, is_older) = (self.clone(), number >= THREADS);
            let name = if is_older { "rbmq-older" } else { "rbmq-replay" };
            let run = move || if is_older { replays.run_older() } else { replays.run() };
            threads.threads.push(threads::spawn(name, run)?);
        }
        Ok(threads)
    }

    /// A subscriber asks for a kept log. At most `max` replays are under way at a time. An earlier replay of the same topic for the
    /// same subscriber ends.
    pub(crate) fn ask(&self, request: ReplayRequest, max: usize) {
        let (conn, live) = (request.conn.id(), request.live.bid());
        self.remove(|place| (place.conn, place.live) == (conn, live));
        let mut state = self.0.state.lock();
        state.max = max;
        state.waiting.retain(|other| (other.conn.id(), other.live.bid()) != (conn, live));
        state.waiting.push_back(request);
        self.admit(&mut state);
    }

    /// A connection is down.
    pub(crate) fn disconnected(&self, conn: u64) {
        self.0.state.lock().waiting.retain(|request| request.conn.id() != conn);
        self.remove(|place| place.conn == conn);
    }

    /// The subscriber of a replay has left it.
    pub(crate) fn left(&self, bid: Bid) {
        let mut state = self.0.state.lock();
        if let Some(place) = state.active.remove(&bid) {
            self.end(&mut state, bid, place);
        }
    }

    /// The ring of a replay has a subscriber, or may have room. Returns whether the buffer is one of a replay.
    pub(crate) fn wake(&self, bid: Bid) -> bool {
        let mut state = self.0.state.lock();
        let Some(place) = state.active.get(&bid).cloned() else { return false };
        self.enqueue(&mut state, bid, place);
        true
    }

    /// How many replays are under way, and how many wait for their turn.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.active.len(), state.waiting.len())
    }

    fn enqueue(&self, state: &mut State, bid: Bid, place: Arc<Place>) {
        self.enqueue_at(state, Instant::now(), bid, place);
    }

    fn enqueue_at(&self, state: &mut State, at: Instant, bid: Bid, place: Arc<Place>) {
        if place.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        if place.older.load(Ordering::Relaxed) {
            state.older.push_back((at, bid, place));
            self.0.older_changed.notify_one();
        } else {
            state.queue.push_back((at, bid, place));
            self.0.changed.notify_one();
        }
    }

    /// Begins waiting requests while there is room.
    fn admit(&self, state: &mut State) {
        while state.active.len() < state.max
            && let Some(request) = state.waiting.pop_front()
        {
            let (conn, live, bid) = (request.conn.id(), request.live.bid(), request.bid);
            let work = Mutex::new(Work::Asked(Box::new(request)));
            let (queued, older) = (AtomicBool::new(false), AtomicBool::new(false));
            let place = Arc::new(Place { conn, live, queued, older, work });
            state.active.insert(bid, place.clone());
            self.enqueue(state, bid, place);
        }
    }

    fn remove(&self, goes: impl Fn(&Place) -> bool) {
        let mut state = self.0.state.lock();
        let removed: Vec<_> = state.active.extract_if(|_, place| goes(place)).collect();
        for (bid, place) in removed {
            self.end(&mut state, bid, place);
        }
    }

    /// Ends a replay that is not in the table any more: a thread removes its buffer.
    fn end(&self, state: &mut State, bid: Bid, place: Arc<Place>) {
        self.enqueue(state, bid, place);
        self.admit(state);
    }

    fn run(&self) {
        while let Some((bid, place)) = self.next(|state| &mut state.queue, &self.0.changed) {
            self.work(bid, &place, Replay::step);
        }
    }

    fn run_older(&self) {
        while let Some((bid, place)) = self.next(|state| &mut state.older, &self.0.older_changed) {
            self.work(bid, &place, Replay::step_older);
        }
    }

    /// Waits for the next one whose time has come. None: the threads end.
    fn next(&self, of: fn(&mut State) -> &mut Queue, changed: &Condvar) -> Option<(Bid, Arc<Place>)> {
        let mut state = self.0.state.lock();
        while !state.stopped {
            let (now, queue) = (Instant::now(), of(&mut state));
            let next = queue.iter().enumerate().min_by_key(|(_, (at, ..))| *at);
            let next = next.map(|(index, (at, ..))| (index, at.saturating_duration_since(now)));
            if let Some((index, Duration::ZERO)) = next {
                return queue.remove(index).map(|(_, bid, place)| (bid, place));
            }
            let wait = next.map_or(Duration::from_secs(3600), |(_, wait)| wait);
            changed.wait_for(&mut state, wait);
        }
        None
    }

    /// Makes a step of a replay, or begins it. None: it is over already.
    fn advance(&self, work: &mut Work, step: fn(&mut Replay) -> Step) -> Option<Step> {
        Some(match std::mem::replace(work, Work::Over) {
            Work::Over => return None,
            Work::Asked(request) if request.must_wait() => {
                *work = Work::Asked(request);
                Step::Later
            }
            Work::Asked(request) => match Replay::begin(request, &self.0.out) {
                Begun::Running(replay) => {
                    *work = Work::Running(replay);
                    // The subscriber wakes it when it has subscribed. Without a subscriber nothing holds the bytes of a ring.
                    Step::Full
                }
                Begun::NoMemory(request) => {
                    *work = Work::Asked(request);
                    Step::NoMemory
                }
                Begun::Over => Step::Over,
            },
            Work::Running(mut replay) => {
                let step = step(&mut replay);
                if step != Step::Over {
                    *work = Work::Running(replay);
                }
                step
            }
        })
    }

    fn work(&self, bid: Bid, place: &Arc<Place>, step: fn(&mut Replay) -> Step) {
        let mut work = place.work.lock();
        let state = self.0.state.lock();
        // Reset before the step: room that is made from here on puts it into the queue again.
        place.queued.store(false, Ordering::Relaxed);
        let is_active = state.active.contains_key(&bid);
        drop(state);
        if !is_active {
            *work = Work::Over;
            // A replay whose ring was not made has no buffer.
            let _ = self.0.out.destroy_buffer(bid);
            return;
        }
        let Some(step) = self.advance(&mut work, step) else { return };
        let mut state = self.0.state.lock();
        match step {
            // A replay that was ended meanwhile is in the queue already.
            Step::Again | Step::Archive | Step::Disk | Step::Later | Step::NoMemory => {
                let waits = matches!(step, Step::Later | Step::NoMemory);
                let at = Instant::now() + if waits { RETRY } else { Duration::ZERO };
                match step {
                    Step::Archive | Step::Later => place.older.store(true, Ordering::Relaxed),
                    Step::Disk => place.older.store(false, Ordering::Relaxed),
                    _ => {}
                }
                self.enqueue_at(&mut state, at, bid, place.clone());
            }
            Step::Full => {}
            Step::Over => {
                state.active.remove(&bid);
                self.admit(&mut state);
            }
        }
    }
}

impl Drop for ReplayThreads {
    fn drop(&mut self) {
        self.replays.0.state.lock().stopped = true;
        self.replays.0.changed.notify_all();
        self.replays.0.older_changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod simulator;
