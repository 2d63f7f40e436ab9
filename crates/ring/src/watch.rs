//! Readers in other processes that are to be woken when a ring has news.

use crate::barrier;
use crate::doorbell::PeerDoorbell;
use crate::small_payload::Single;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};

/// Readers of one ring that are woken directly; more are told of news by whoever sends to them.
pub const MAX_WATCHERS: usize = 64;

/// Which reader it is, as whoever registers it names it: a connection, and two numbers of it.
pub type WatchKey = (u64, u32, u32);

type Bells = Arc<[(WatchKey, Arc<PeerDoorbell>)]>;

/// Who is to be woken. Changes seldom; the writing end keeps a copy.
#[derive(Debug)]
pub(crate) struct Watchers {
    version: AtomicU64,
    doorbells: Mutex<Bells>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { version: AtomicU64::new(0), doorbells: Mutex::new(Arc::new([])) }
    }
}

impl Watchers {
    /// Whether anybody ever watched.
    #[inline]
    pub(crate) fn were_there(&self) -> bool {
        self.version.load(Ordering::Relaxed) != 0
    }

    /// Registers a doorbell. False if there are [`MAX_WATCHERS`] already.
    pub(crate) fn add(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        // Not when the first delivery looks: it may take some milliseconds.
        barrier::hears_others();
        let added = self.change(|all| {
            all.retain(|(known, _)| *known != key);
            let room = all.len() < MAX_WATCHERS;
            if room {
                all.push((key, doorbell.clone()));
            }
            room
        });
        if added {
            // Meets the writing end's in `call_all`, which may be light: either it sees this doorbell, or the reader, if it
            // must be woken for that, sees what was published.
            doorbell.ring(barrier::heavy_for_all().into());
        }
        added
    }

    pub(crate) fn remove(&self, key: WatchKey) {
        self.change(|all| {
            let before = all.len();
            all.retain(|(known, _)| *known != key);
            all.len() < before
        });
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(WatchKey, Arc<PeerDoorbell>)>) -> bool) -> bool {
        let mut doorbells = lock(&self.doorbells);
        let mut all = doorbells.to_vec();
        let changed = change(&mut all);
        if changed {
            *doorbells = all.into();
            self.version.fetch_add(1, Ordering::Release);
        }
        changed
    }
}

/// The writing end's copy of who is to be woken.
#[derive(Debug)]
pub(crate) struct Caller {
    version: u64,
    doorbells: Bells,
    /// All of their readers make the barrier for this process too.
    light: bool,
    /// How small deliveries come.
    single: Single,
}

impl Default for Caller {
    fn default() -> Self {
        Self { version: 0, doorbells: Arc::new([]), light: false, single: Single::new() }
    }
}

impl Caller {
    /// Whether a small delivery is to be told beside the head, before it is published: somebody watches, and takes it alone.
    #[inline]
    pub(crate) fn wants_small_payload(&mut self, watchers: &Watchers) -> bool {
        watchers.were_there() && self.single.are()
    }

    /// Something was published: wakes whoever watches and sleeps. Costs a load where nobody ever did.
    #[inline]
    pub(crate) fn call(&mut self, watchers: &Watchers) {
        if watchers.were_there() {
            self.call_all(watchers);
        }
    }

    fn call_all(&mut self, watchers: &Watchers) {
        // Meets the reader's in `sleep_word::fall_asleep`, or the heavy one that follows it.
        let mut published = barrier::light_if(self.light);
        let version = watchers.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.doorbells = lock(&watchers.doorbells).clone();
            self.light =
                self.doorbells.iter().all(|(_, doorbell)| doorbell.is_heavy()) && barrier::hears_others();
            published = published.full().into();
        }
        for (_, doorbell) in self.doorbells.iter() {
            doorbell.ring(published);
        }
    }
}
