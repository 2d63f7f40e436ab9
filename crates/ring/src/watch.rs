//! Readers in other processes that are to be woken when a ring has news.

use crate::barrier;
use crate::doorbell::PeerDoorbell;
use crate::ring::{Ring, Shared};
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

impl Ring {
    /// From here on `doorbell` rings for what the writing end publishes, while its reader sleeps. A delivery that is made at the
    /// same moment may be missed: whoever registers the reader tells it of what it was not told. False if there are
    /// [`MAX_WATCHERS`] already.
    pub fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        // Not when the first delivery looks: it may take some milliseconds.
        barrier::hears_others();
        let watches = self.shared().watchers.change(|all| {
            all.retain(|(known, _)| *known != key);
            let place = all.len() < MAX_WATCHERS;
            if place {
                all.push((key, doorbell.clone()));
            }
            place
        });
        if watches {
            // Meets the writing end's in `call_all`, which may be light: either it sees this doorbell, or the reader, if it must
            // be woken for that, what was published.
            doorbell.ring(barrier::heavy_for_all().into());
        }
        watches
    }

    /// The doorbell of this key rings no more. The writing end lets go of it when it publishes the next time.
    pub fn unwatch(&self, key: WatchKey) {
        self.shared().watchers.change(|all| {
            let before = all.len();
            all.retain(|(known, _)| *known != key);
            all.len() < before
        });
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
    pub(crate) fn is_to_tell(&mut self, shared: &Shared) -> bool {
        shared.watchers.were_there() && self.single.are()
    }

    /// Something was published: wakes whoever watches and sleeps. Costs a load where nobody ever did.
    #[inline]
    pub(crate) fn call(&mut self, shared: &Shared) {
        if shared.watchers.were_there() {
            self.call_all(shared);
        }
    }

    fn call_all(&mut self, shared: &Shared) {
        // Meets the reader's in `sleep_word::fall_asleep`, or the heavy one that follows it.
        let mut published = barrier::light_if(self.light);
        let version = shared.watchers.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.doorbells = lock(&shared.watchers.doorbells).clone();
            self.light =
                self.doorbells.iter().all(|(_, doorbell)| doorbell.is_heavy()) && barrier::hears_others();
            published = published.full().into();
        }
        for (_, doorbell) in self.doorbells.iter() {
            doorbell.ring(published);
        }
    }
}
