//! Readers in other processes that the writing end wakes when it publishes.

use crate::barrier;
use crate::doorbell::PeerDoorbell;
use crate::small_payload::Pace;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};

/// The most readers of one ring that are woken directly. Others are notified over their connections.
pub const MAX_WATCHERS: usize = 64;

/// The name of a watching reader, chosen by the registering caller: a connection, and two numbers.
pub type WatchKey = (u64, u32, u32);

type Bells = Arc<[(WatchKey, Arc<PeerDoorbell>)]>;

/// The doorbells of a ring. They change seldom; the writing end keeps a copy.
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
    /// Whether there was ever a watcher.
    #[inline]
    pub(crate) fn were_any(&self) -> bool {
        self.version.load(Ordering::Relaxed) != 0
    }

    /// Registers a doorbell. False if there are [`MAX_WATCHERS`] already.
    pub(crate) fn add(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        // Here and not at the first delivery: the registration may take some milliseconds.
        barrier::receives_global();
        let added = self.change(|all| {
            all.retain(|(known, _)| *known != key);
            let room = all.len() < MAX_WATCHERS;
            if room {
                all.push((key, doorbell.clone()));
            }
            room
        });
        if added {
            // Pairs with the writing end's barrier in `notify_all`, which may be light: either the writing end sees this
            // doorbell, or the reader sees the published bytes (and is woken to see them).
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

/// The writing end's copy of the doorbells.
#[derive(Debug)]
pub(crate) struct Notifier {
    version: u64,
    doorbells: Bells,
    /// All readers make the barrier for this process too.
    light: bool,
    /// The pace of small deliveries.
    pace: Pace,
}

impl Default for Notifier {
    fn default() -> Self {
        Self { version: 0, doorbells: Arc::new([]), light: false, pace: Pace::new() }
    }
}

impl Notifier {
    /// Whether to copy a small delivery beside the head before it is published: there is a watcher, and deliveries are made one
    /// by one.
    #[inline]
    pub(crate) fn wants_small_payload(&mut self, watchers: &Watchers) -> bool {
        watchers.were_any() && self.pace.is_single()
    }

    /// Wakes the watchers that sleep, after publishing. Costs a load in a ring that never had a watcher.
    #[inline]
    pub(crate) fn notify(&mut self, watchers: &Watchers) {
        if watchers.were_any() {
            self.notify_all(watchers);
        }
    }

    fn notify_all(&mut self, watchers: &Watchers) {
        // Pairs with the reader's barrier in `sleep_word::set_asleep`, or with the heavy barrier that follows it.
        let mut published = barrier::light_if(self.light);
        let version = watchers.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.doorbells = lock(&watchers.doorbells).clone();
            self.light =
                self.doorbells.iter().all(|(_, doorbell)| doorbell.is_heavy()) && barrier::receives_global();
            published = published.full().into();
        }
        for (_, doorbell) in self.doorbells.iter() {
            doorbell.ring(published);
        }
    }
}
