//! The thread of a member: it asks etcd what the machine wants to know, and tells the broker what has changed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tracing::{info, warn};

use super::claims::{Claims, LogClaim};
use super::keys::group_of;
use super::machine::{Machine, Outcome, Owner, Status, Step};
use super::member_settings::MemberSettings;
use super::memo::{Keeper, Memo};
use etcd::{Client, ClientSettings, EtcdError, News, Snapshot, Watch};

/// How long a member that leaves gives its groups to others.
const HAND_OVER: Duration = Duration::from_secs(1);

/// What a member asks and tells its broker.
pub struct Hooks {
    /// Whether the broker is healthy; if not, why. While it is not, the lease is not renewed. The call may wait for about a second.
    pub health: Box<dyn Fn() -> Result<(), String> + Send>,
    /// The topics whose log another member goes on with in the archive, and that are open here. A drained member gives a group away when none of its
    /// topics is.
    pub open: Box<dyn Fn() -> Vec<String> + Send>,
    /// Answers of [`Membership::owner`] or [`Membership::others`] have changed.
    pub changed: Box<dyn Fn() + Send>,
}

/// A broker as a member of a cluster. It stops when it is dropped.
pub struct Membership {
    shared: Arc<Shared>,
    group_levels: usize,
    claims: Claims,
    /// Until it is started.
    memo: Mutex<Option<Memo>>,
    thread: Mutex<Option<Running>>,
}

struct Running {
    thread: JoinHandle<()>,
    /// Disconnected by the end of the thread.
    end: Receiver<()>,
}

struct Shared {
    machine: Mutex<Machine>,
    /// Wakes the thread.
    bell: OwnedFd,
    is_stopping: AtomicBool,
}

impl Membership {
    /// A member that asks nobody before it is started. `group_levels`: the levels of a topic's name that make its group.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(settings: MemberSettings, group_levels: usize) -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (machine, is_stopping) = (Mutex::new(Machine::new(settings)), AtomicBool::new(false));
        let shared = Shared { machine, bell, is_stopping };
        let (shared, claims) = (Arc::new(shared), Claims::default());
        Ok(Self { shared, group_levels, claims, memo: Mutex::default(), thread: Mutex::default() })
    }

    /// Keeps what it knows of the map in a file, for the next process: that one goes on with it while etcd is away. It is called before anything
    /// is asked. Nothing is kept where others take the groups of a member that is away.
    pub fn remember_in(&self, path: &Path) {
        let mut machine = self.shared.machine.lock();
        let Some(owner) = machine.memo_owner() else { return Memo::new(path, String::new()).forget() };
        let memo = Memo::new(path, owner);
        match memo.read() {
            Ok(snapshot) => snapshot.iter().for_each(|snapshot| machine.recall(snapshot)),
            Err(problem) => warn!("{} is not used, and etcd is waited for: {problem}", path.display()),
        }
        drop(machine);
        *self.memo.lock() = Some(memo);
    }

    /// Starts to be a member. It is called once.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(&self, client: ClientSettings, hooks: Hooks) -> std::io::Result<()> {
        let machine = self.shared.machine.lock();
        let (prefix, stamp) = (machine.keys().prefix().to_owned(), machine.stamp(Instant::now()));
        drop(machine);
        self.claims.set(&client);
        let (alive, end) = sync_channel(1);
        let mut worker = Worker {
            _alive: alive,
            shared: self.shared.clone(),
            client: Client::new(client),
            group_levels: self.group_levels,
            hooks,
            keeper: self.memo.lock().take().map(Keeper::start).transpose()?,
            unkept: None,
            prefix,
            stamp,
            revision: 0,
            watch: None,
            watch_again: Instant::now(),
            is_well: None,
        };
        let thread = threads::spawn("rbmq-cluster", move || worker.run())?;
        *self.thread.lock() = Some(Running { thread, end });
        Ok(())
    }

    /// Who has a topic. The answer comes from memory.
    pub fn owner(&self, topic: &str) -> Owner {
        self.ask(topic, false)
    }

    /// This broker has the log of a topic on its disk: if nobody has its group, it belongs here.
    pub fn has_log(&self, topic: &str) {
        self.ask(topic, true);
    }

    fn ask(&self, topic: &str, has_log: bool) -> Owner {
        let mut machine = self.shared.machine.lock();
        let (owner, is_new) = machine.ask(group_of(topic, self.group_levels), has_log, Instant::now());
        drop(machine);
        if is_new {
            self.shared.ring();
        }
        owner
    }

    /// What the members may write of the log of a topic. None: nobody has a log of it yet. etcd is asked, so it may wait.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn log_claim(&self, topic: &str) -> Result<Option<LogClaim>, String> {
        let key = self.shared.machine.lock().keys().log(topic);
        self.claims.get(&key)
    }

    /// The names of the topics with a claim. etcd is asked, so it may wait.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn logs(&self) -> Result<Vec<String>, String> {
        let prefix = self.shared.machine.lock().keys().log("");
        self.claims.names(&prefix)
    }

    /// Claims positions of a log in a term of this member. False: it has not the topic in this term, or the claim was changed since it was
    /// read ([`LogClaim::revision`]). It may wait as [`log_claim`](Self::log_claim).
    ///
    /// # Errors
    /// The reason, for people. The claim may have been made.
    pub fn claim_log(&self, topic: &str, claim: &LogClaim) -> Result<bool, String> {
        let (machine, group) = (self.shared.machine.lock(), group_of(topic, self.group_levels));
        let (key, still) = (machine.keys().log(topic), machine.has_still(group, claim.term, Instant::now()));
        drop(machine);
        still.map_or(Ok(false), |still| self.claims.put(&key, claim, still))
    }

    /// The names and addresses of the other members.
    pub fn others(&self) -> Vec<(String, Vec<String>)> {
        self.shared.machine.lock().others()
    }

    /// How the member is.
    pub fn status(&self) -> Status {
        self.shared.machine.lock().status(Instant::now())
    }

    /// Leaves the cluster while the broker still serves: where others take the groups of a member that is gone (`new-log`, `archive`), they get them
    /// now, and then the lease ends, so that others learn at once that this member goes. Waits at most `patience`; what is left to do is
    /// done meanwhile.
    pub fn leave(&self, patience: Duration) {
        self.begin_to_leave();
        if let Some(running) = &*self.thread.lock() {
            // Nobody sends: it is the end, or too long.
            let _ = running.end.recv_timeout(patience);
        }
    }

    /// As [`leave`](Self::leave), and waits until that is done.
    pub fn stop(&self) {
        self.begin_to_leave();
        if let Some(running) = self.thread.lock().take() {
            // The panic of a thread was printed already.
            let _ = running.thread.join();
        }
    }

    fn begin_to_leave(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.ring();
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn ring(&self) {
        // A bell that has rung too often rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

struct Worker {
    _alive: SyncSender<()>,
    shared: Arc<Shared>,
    client: Client,
    group_levels: usize,
    hooks: Hooks,
    keeper: Option<Keeper>,
    /// The last snapshot, until it is given to the keeper.
    unkept: Option<Snapshot>,
    prefix: String,
    /// What the broker knows.
    stamp: (u64, bool),
    /// That of the last snapshot.
    revision: i64,
    watch: Option<Watch>,
    /// When a watch is tried again.
    watch_again: Instant,
    /// What the log has said: whether all is well.
    is_well: Option<bool>,
}

impl Worker {
    fn run(&mut self) {
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            self.look_at_open();
            let step = self.shared.machine.lock().next(Instant::now());
            match step {
                Step::Rest { until } => self.rest(until),
                step => self.take(&step),
            }
            self.tell();
        }
        self.hand_over();
        // The broker stops to serve what others may take before they can know that they may: the answer of etcd may be late.
        let lease = {
            let mut machine = self.shared.machine.lock();
            let lease = machine.lease();
            machine.left();
            lease
        };
        self.tell();
        if let Some(lease) = lease
            && let Err(error) = self.client.revoke(lease)
        {
            info!("other members learn of the end of this one when its lease runs out: {error}");
        }
    }

    /// Looks what of the groups that others are to get is open still, after the broker was told that they are.
    fn look_at_open(&mut self) {
        if self.shared.machine.lock().is_giving() {
            let open = (self.hooks.open)();
            let groups = open.iter().map(|topic| group_of(topic, self.group_levels).to_owned()).collect();
            self.shared.machine.lock().note_open(&groups);
        }
    }

    /// Gives the groups to others, if these take them.
    fn hand_over(&mut self) {
        let end = Instant::now() + HAND_OVER;
        self.shared.machine.lock().leave();
        while self.shared.machine.lock().has_groups_to_give() {
            if Instant::now() >= end {
                return warn!(
                    "other members take the groups of this one when it is gone: etcd did not give them in time"
                );
            }
            let step = self.shared.machine.lock().next(Instant::now());
            match step {
                Step::Rest { until } => self.rest(until.min(end)),
                step => self.take(&step),
            }
            self.tell();
        }
    }

    /// Asks etcd.
    fn take(&mut self, step: &Step) {
        if matches!(step, Step::Grant { .. } | Step::Renew { .. })
            && let Err(reason) = (self.hooks.health)()
        {
            return self.shared.machine.lock().unhealthy(Instant::now(), reason);
        }
        let (asked, was_told) = (Instant::now(), self.shared.machine.lock().is_told());
        let outcome = self.ask(step).unwrap_or_else(|error| Outcome::Failed { reason: error.to_string() });
        let mut read = None;
        if let Outcome::Read(snapshot) = &outcome {
            self.revision = snapshot.revision;
            read = self.keeper.as_ref().map(|_| snapshot.clone());
        }
        let mut machine = self.shared.machine.lock();
        machine.done(asked, Instant::now(), outcome);
        let is_other = machine.stamp(asked).0 != self.stamp.0;
        let may_recall = machine.may_recall();
        drop(machine);
        if is_other && read.is_some() {
            self.unkept = read;
        }
        if let (Some(keeper), Some(may_recall)) = (&self.keeper, may_recall)
            && let Some(snapshot) = self.unkept.take()
        {
            keeper.keep(may_recall.then_some(snapshot));
        }
        if is_other && !was_told {
            // The watch should have said so.
            self.watch = None;
        }
    }

    fn ask(&mut self, step: &Step) -> Result<Outcome, EtcdError> {
        Ok(match step {
            Step::Read => Outcome::Read(self.client.range(&self.prefix)?),
            Step::Grant { ttl_s } => Outcome::Leased(self.client.grant(*ttl_s)?),
            Step::Renew { lease } => Outcome::Leased(self.client.keep_alive(*lease)?),
            Step::Write(txn) => Outcome::Written { held: self.client.txn(txn)? },
            Step::Rest { .. } => unreachable!("nobody is asked"),
        })
    }

    /// Waits for news, or the time.
    fn rest(&mut self, until: Instant) {
        self.look();
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = vec![PollFd::new(&self.shared.bell, PollFlags::IN)];
        fds.extend(self.watch.as_ref().map(|watch| PollFd::new(watch, PollFlags::IN)));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&left));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        }
        if ready.get(1) == Some(&true) {
            self.hear();
        }
    }

    /// Starts a watch, if there is none.
    fn look(&mut self) {
        if self.watch.is_some() || self.revision == 0 || Instant::now() < self.watch_again {
            return;
        }
        self.watch_again = Instant::now() + Duration::from_secs(1);
        match self.client.watch(&self.prefix, self.revision + 1) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => warn!("changes of the cluster are seen late: {error}"),
        }
    }

    fn hear(&mut self) {
        while let Some(watch) = &mut self.watch {
            match watch.wait(Instant::now()) {
                Ok(News::None) => return,
                Ok(News::Changed { .. }) => self.shared.machine.lock().changed(Instant::now()),
                Err(error) => {
                    info!("the watch of the cluster begins again: {error}");
                    self.watch = None;
                    // The watch has missed changes.
                    self.shared.machine.lock().changed(Instant::now());
                }
            }
        }
    }

    /// Tells the broker and the log what has changed.
    fn tell(&mut self) {
        let machine = self.shared.machine.lock();
        let (stamp, status) = (machine.stamp(Instant::now()), machine.status(Instant::now()));
        let is_starting = machine.is_starting();
        drop(machine);
        if stamp != self.stamp {
            self.stamp = stamp;
            (self.hooks.changed)();
        }
        let is_well = status.degraded.is_none();
        if !is_starting && self.is_well != Some(is_well) {
            self.is_well = Some(is_well);
            let Status { members, owned_groups, .. } = status;
            match &status.degraded {
                Some(reason) => warn!("the cluster is degraded: {reason}"),
                None => info!("the cluster has {members} members; this one has {owned_groups} groups"),
            }
        }
    }
}
