//! A program that others find in etcd: keys of its own under a lease, and what all of them have written.
//!
//! ```text
//!   Presented::value ──▶ a thread ──▶ etcd     written when they change, and again when the lease was lost
//!   Presented::seen ◀──             ◀── watch   at most once in a pace; a snapshot is the truth
//! ```
//!
//! The first key names the program, and nobody else may have it. The other keys are written only while the first is its own. While etcd is away, the
//! program goes on with what it has seen. The lease is renewed by the thread that asks the program for its keys: a program that stands still
//! loses it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tracing::{info, warn};

use super::client::{Client, ClientSettings};
use super::error::EtcdError;
use super::json::{Change, Compare, KeyValue, Snapshot, Txn};
use super::watch::{News, Watch};

/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A program that others find.
pub trait Presented: Send {
    /// The value of the key that names the program.
    fn value(&mut self) -> Vec<u8>;

    /// Whether this value of that key is of this program, before it was started again.
    fn was_mine(&self, value: &[u8]) -> bool;

    /// The other keys that the program wants to have, with their values. It is asked about once in a pace.
    fn others(&mut self) -> Vec<(String, Vec<u8>)>;

    /// All keys of all programs, when some have changed.
    fn seen(&mut self, snapshot: &Snapshot);

    /// The reason, for people, why something does not work now; none: all is well.
    fn told(&mut self, degraded: Option<&str>);
}

/// Where a program is found.
#[derive(Debug, Clone)]
pub struct PresenceSettings {
    /// How the keys of all programs begin.
    pub prefix: String,
    /// The key that names this one.
    pub key: String,
    /// How long the others take the program for alive that says nothing.
    pub ttl: Duration,
    /// How often at most keys are written and read.
    pub pace: Duration,
}

/// How a program is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PresenceStatus {
    /// The reason, for people, why something does not work. None: all is well.
    pub degraded: Option<String>,
    /// Whether the keys are there, as far as is known.
    pub is_known: bool,
    /// The calls of etcd that have failed.
    pub errors: u64,
}

/// A program in etcd. It ends its lease when it is dropped, so that others learn at once that it is gone.
pub struct Presence {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    status: Mutex<PresenceStatus>,
    /// Wakes the thread.
    bell: OwnedFd,
    is_stopping: AtomicBool,
}

impl Presence {
    /// Begins to be found.
    ///
    /// # Errors
    /// The system refuses a descriptor or a thread.
    pub fn start(
        client: ClientSettings,
        settings: PresenceSettings,
        presented: Box<dyn Presented>,
    ) -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { status: Mutex::default(), bell, is_stopping: AtomicBool::new(false) });
        let mut worker = Worker::new(shared.clone(), Client::new(client), settings, presented);
        let thread = threads::spawn("etcd", move || worker.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// How the program is known.
    pub fn status(&self) -> PresenceStatus {
        self.shared.status.lock().clone()
    }

    /// Ends the lease. The program keeps what it has seen.
    pub fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        // A bell that has rung too often rings.
        let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.lock().take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Worker {
    shared: Arc<Shared>,
    client: Client,
    settings: PresenceSettings,
    presented: Box<dyn Presented>,
    /// The lease, and when it is renewed.
    lease: Option<(i64, Instant)>,
    /// The key that names the program as the last snapshot had it.
    named: Option<KeyValue>,
    /// The values that were written with the lease.
    written: BTreeMap<String, Vec<u8>>,
    /// The last snapshot, and when another one is due.
    revision: i64,
    keys_seen: u64,
    read_at: Option<Instant>,
    is_changed: bool,
    watch: Option<Watch>,
    watch_again: Instant,
    failures: u32,
}

impl Worker {
    fn new(
        shared: Arc<Shared>,
        client: Client,
        settings: PresenceSettings,
        presented: Box<dyn Presented>,
    ) -> Self {
        Self {
            shared,
            client,
            settings,
            presented,
            lease: None,
            named: None,
            written: BTreeMap::new(),
            revision: 0,
            keys_seen: 0,
            read_at: None,
            is_changed: true,
            watch: None,
            watch_again: Instant::now(),
            failures: 0,
        }
    }

    fn run(&mut self) {
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            let outcome = self.turn();
            self.note(&outcome);
            let pause = match outcome {
                Ok(_) => self.settings.pace,
                Err(_) => {
                    let longest = LONGEST_PAUSE.min(self.settings.ttl / 6);
                    (FIRST_PAUSE * 2_u32.pow(self.failures.min(10))).min(longest)
                }
            };
            self.rest(Instant::now() + pause);
        }
        if let Some((lease, _)) = self.lease
            && let Err(error) = self.client.revoke(lease)
        {
            info!("others learn of the end of this one when its lease runs out: {error}");
        }
    }

    /// Does what is due. Returns what is in the way of being known.
    fn turn(&mut self) -> Result<Option<String>, EtcdError> {
        self.hold()?;
        let now = Instant::now();
        if self.is_changed || self.read_at.is_none_or(|at| now >= at + self.settings.ttl) {
            self.read(now)?;
        }
        if let Some(reason) = self.claim()? {
            return Ok(Some(reason));
        }
        self.write()?;
        Ok(None)
    }

    /// Has a lease.
    fn hold(&mut self) -> Result<(), EtcdError> {
        let now = Instant::now();
        if let Some((lease, renew)) = self.lease {
            if now < renew {
                return Ok(());
            }
            let renewed = self.client.keep_alive(lease)?;
            if renewed.ttl_s > 0 {
                self.lease = Some((lease, now + self.settings.ttl / 3));
                return Ok(());
            }
            info!("the lease was lost, and another one begins");
        }
        (self.lease, self.is_changed) = (None, true);
        self.written.clear();
        let lease = self.client.grant(self.settings.ttl.as_secs().max(1))?;
        self.lease = Some((lease.id, now + self.settings.ttl / 3));
        Ok(())
    }

    fn read(&mut self, now: Instant) -> Result<(), EtcdError> {
        self.is_changed = false;
        let snapshot = self.client.range(&self.settings.prefix).inspect_err(|_| self.is_changed = true)?;
        (self.revision, self.read_at) = (snapshot.revision, Some(now));
        self.named = snapshot.keys.iter().find(|kv| kv.key == self.settings.key).cloned();
        if self.named.as_ref().is_none_or(|kv| Some(kv.lease) != self.lease.map(|(lease, _)| lease)) {
            self.written.clear();
        }
        let sum = digest(&snapshot);
        if std::mem::replace(&mut self.keys_seen, sum) != sum {
            self.presented.seen(&snapshot);
        }
        Ok(())
    }

    /// Has the key that names the program. Returns why another one has it.
    fn claim(&mut self) -> Result<Option<String>, EtcdError> {
        let (name, value) = (self.settings.key.clone(), self.presented.value());
        if self.written.get(&name) == Some(&value) {
            return Ok(None);
        }
        let Some((lease, _)) = self.lease else { return Ok(None) };
        let compare = match &self.named {
            None => Compare::Absent { key: name.clone() },
            Some(kv) if kv.lease == lease || self.presented.was_mine(&kv.value) => {
                Compare::Unchanged { key: name.clone(), modified: kv.modified }
            }
            Some(_) => {
                self.is_changed = true;
                return Ok(Some(format!(
                    "another program has the key {name}: give this one another name, or wait until the lease of that one has run out"
                )));
            }
        };
        let put = Change::Put { key: name.clone(), value: value.clone(), lease };
        self.is_changed = true;
        if self.client.txn(&Txn { compares: vec![compare], changes: vec![put] })? {
            self.written.insert(name, value);
            return Ok(None);
        }
        Ok(Some(format!("the key {name} changes just now")))
    }

    /// Writes the other keys that have changed.
    fn write(&mut self) -> Result<(), EtcdError> {
        let Some((lease, _)) = self.lease else { return Ok(()) };
        let mut new = self.presented.others();
        new.retain(|(key, value)| self.written.get(key) != Some(value));
        if new.is_empty() {
            return Ok(());
        }
        let put =
            |(key, value): &(String, Vec<u8>)| Change::Put { key: key.clone(), value: value.clone(), lease };
        // A lease that is gone refuses them, and then the key that names the program has gone too.
        self.client.txn(&Txn { compares: Vec::new(), changes: new.iter().map(put).collect() })?;
        self.written.extend(new);
        Ok(())
    }

    fn note(&mut self, outcome: &Result<Option<String>, EtcdError>) {
        let degraded = match outcome {
            Ok(reason) => {
                self.failures = 0;
                reason.clone()
            }
            Err(error) => {
                self.failures += 1;
                // The lease may be why.
                if let Some((_, renew)) = &mut self.lease {
                    *renew = Instant::now();
                }
                Some(error.to_string())
            }
        };
        let mut status = self.shared.status.lock();
        let was_well = status.degraded.is_none() && status.is_known;
        status.errors += u64::from(outcome.is_err());
        status.is_known = degraded.is_none();
        let is_other = was_well != degraded.is_none();
        status.degraded.clone_from(&degraded);
        drop(status);
        self.presented.told(degraded.as_deref());
        match degraded {
            Some(reason) if is_other || self.failures == 1 => warn!("the cluster is degraded: {reason}"),
            None if is_other => info!("this one is known in the cluster"),
            _ => {}
        }
    }

    /// Waits for the time, for news, or for the end.
    fn rest(&mut self, until: Instant) {
        while Instant::now() < until && !self.shared.is_stopping.load(Ordering::Acquire) {
            self.look();
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = vec![PollFd::new(&self.shared.bell, PollFlags::IN)];
            fds.extend(self.watch.as_ref().map(|watch| PollFd::new(watch, PollFlags::IN)));
            // An interrupted wait is a short one.
            let _ = poll(&mut fds, Some(&left));
            let is_told = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            drop(fds);
            if is_told && self.hear() {
                // The first news after a quiet pace is read at once, and what follows it within a pace together.
                let quiet = self.read_at.is_none_or(|at| at.elapsed() >= self.settings.pace);
                if quiet {
                    return;
                }
            }
        }
    }

    /// Starts a watch, if there is none.
    fn look(&mut self) {
        if self.watch.is_some() || self.revision == 0 || Instant::now() < self.watch_again {
            return;
        }
        self.watch_again = Instant::now() + self.settings.pace;
        match self.client.watch(&self.settings.prefix, self.revision + 1) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => info!("changes of the cluster are seen late: {error}"),
        }
    }

    /// Takes what the watch says. Whether keys have changed.
    fn hear(&mut self) -> bool {
        let before = self.is_changed;
        while let Some(watch) = &mut self.watch {
            match watch.wait(Instant::now()) {
                Ok(News::None) => break,
                Ok(News::Changed { .. }) => self.is_changed = true,
                Err(error) => {
                    info!("the watch of the cluster begins again: {error}");
                    // The watch has missed changes.
                    (self.watch, self.is_changed) = (None, true);
                }
            }
        }
        self.is_changed && !before
    }
}

/// A number that other keys and values hardly have (FNV-1a).
fn digest(snapshot: &Snapshot) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for kv in &snapshot.keys {
        hash = kv.key.bytes().chain(kv.modified.to_le_bytes()).fold(hash, add);
    }
    hash
}
