//! What a member does next, without I/O and without a clock.
//!
//! ```text
//!        ┌─────────── next ──▶ Step: read, grant, renew, write, rest
//!   Machine                      │  the caller asks etcd
//!        └◀────────── done ───── Outcome
//! ```
//!
//! **A snapshot is the truth, and everything else a hint.** The machine knows the map as it was at one revision. Each change is a transaction
//! that holds only if the map is still as it was read. So a call whose answer was lost may be made again, and two members that want the same
//! group are no conflict but one transaction that fails.
//!
//! **The lease is no fence.** Another member takes a group only with a larger term, and only (`new-log`) in a transaction that finds the owner's
//! member gone. The owner says that it has the group only as long as its own clock says that etcd cannot have ended the lease, counted from
//! the moment at which the renewal was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::keys::{Entry, Keys, Map, Member};
use super::member_settings::{MemberSettings, OnLoss};
use etcd::{Change, Compare, Lease, Snapshot, Txn};

/// The groups of one transaction, each with at most three conditions. etcd takes 128 by default.
const BATCH: usize = 40;
/// The most groups that wait for an owner. More are asked for again.
const MAX_WISHES: usize = 10_000;
/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long an owner may be missing before its groups move. A leader of etcd that was stuck ends all leases at once, and their owners come back.
const GRACE: Duration = Duration::from_millis(500);
/// How long changes of others gather before they are read.
const GATHER: Duration = Duration::from_millis(10);
/// The pause after a transaction that others were faster with.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// How long the archive may take to get what it lacks of a group that is given away.
const GIVE_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether it has all.
const GIVE_LOOK: Duration = Duration::from_millis(20);

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read all keys of the cluster.
    Read,
    /// Make a lease for this time, if the broker is healthy.
    Grant {
        /// In seconds.
        ttl_s: u64,
    },
    /// Renew the lease, if the broker is healthy.
    Renew {
        /// Its number.
        lease: i64,
    },
    /// Make this transaction.
    Write(Txn),
    /// Do nothing until then, or until something is new.
    Rest {
        /// The time.
        until: Instant,
    },
}

/// What a [`Step`] has led to.
#[derive(Debug)]
pub enum Outcome {
    /// The keys.
    Read(Snapshot),
    /// The lease was made or renewed; with 0 seconds it is gone.
    Leased(Lease),
    /// The transaction was made, or its conditions did not hold.
    Written {
        /// Whether they held.
        held: bool,
    },
    /// Nobody knows. What was asked for may have been done.
    Failed {
        /// Why, for people.
        reason: String,
    },
}

/// Who has a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// This member.
    Here {
        /// Grows with each change of the owner.
        term: u64,
    },
    /// Another member.
    Elsewhere {
        /// Where clients reach it.
        addresses: Vec<String>,
    },
    /// Nobody for now.
    Unsettled {
        /// Why, for people.
        reason: String,
    },
}

/// How a member is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The reason, for people, why something does not work. None: all is well.
    pub degraded: Option<String>,
    /// The brokers that live, as far as this one knows.
    pub members: usize,
    /// The groups of this member.
    pub owned_groups: usize,
    /// How often the owner of a group has changed since the start.
    pub term_changes: u64,
    /// How many calls of etcd have failed since the start.
    pub etcd_errors: u64,
    /// The time since the lease was renewed. None: there is no lease.
    pub lease_age: Option<Duration>,
}

#[derive(Debug)]
struct Held {
    id: i64,
    /// When the last renewal was asked for.
    asked: Instant,
    /// Until when etcd has the lease for sure.
    until: Instant,
    renew: Instant,
}

/// A member of a cluster. Others ask it who has what, and its thread asks it what to do.
#[derive(Debug)]
pub struct Machine {
    settings: MemberSettings,
    keys: Keys,
    /// None before the first snapshot.
    map: Option<Map>,
    /// What an earlier process knew. It counts before the first snapshot.
    recalled: Option<Map>,
    /// When to read again in any case.
    refresh: Option<Instant>,
    /// Whether the last snapshot is not enough for the next step.
    is_old: bool,
    /// When to read what others say that they have changed.
    hint: Option<Instant>,
    lease: Option<Held>,
    /// The lease with which the last snapshot had this member.
    announced: Option<i64>,
    /// Whether this member was in a snapshot at all, and no other broker had its name since.
    is_member: bool,
    /// Whether it gives its groups away and takes none, because its broker ends.
    is_leaving: bool,
    /// Groups whose logs go on in the archive and that others are to get, and since when. They are not served, and their archive gets the rest.
    giving: BTreeMap<String, Instant>,
    /// Those of them whose topics are closed here.
    closed: BTreeSet<String>,
    /// Owners of groups that are no members, and since when.
    missing: BTreeMap<String, Instant>,
    /// Groups that somebody has asked for, and whether this member has logs of them.
    wishes: BTreeMap<String, bool>,
    retry: Option<Instant>,
    failures: u32,
    failure: Option<String>,
    random: u64,
    changes: u64,
    term_changes: u64,
    etcd_errors: u64,
}

impl Machine {
    /// A member that has asked nobody yet.
    pub fn new(settings: MemberSettings) -> Self {
        Self {
            keys: Keys::new(&settings.cluster),
            random: settings.seed,
            settings,
            map: None,
            recalled: None,
            refresh: None,
            is_old: true,
            hint: None,
            lease: None,
            announced: None,
            is_member: false,
            is_leaving: false,
            giving: BTreeMap::new(),
            closed: BTreeSet::new(),
            missing: BTreeMap::new(),
            wishes: BTreeMap::new(),
            retry: None,
            failures: 0,
            failure: None,
            changes: 0,
            term_changes: 0,
            etcd_errors: 0,
        }
    }

    /// What an earlier process of this member knew. Until etcd has answered once, it is taken for true where nobody takes the groups of a member
    /// that is away: only an operator can have moved one meanwhile, and the logs of its two owners are two, as after any move. The snapshot has
    /// that process as a member at the same addresses, on this machine: the file of a cloned disk gives the copy nothing.
    pub fn recall(&mut self, snapshot: &Snapshot) {
        let MemberSettings { id, addresses, host, on_loss, .. } = &self.settings;
        let machine = |host: &str| host.rsplit(' ').next().map(str::to_owned);
        let map = Map::read(snapshot, &self.keys);
        let is_own = map
            .members
            .get(id)
            .is_some_and(|own| own.addresses == *addresses && machine(&own.host) == machine(host));
        if *on_loss == OnLoss::Wait && self.map.is_none() && is_own {
            self.recalled = Some(map);
            self.is_member = true;
        }
    }

    /// Whether the next process may go on with the last snapshot: it has this one as a member. None: not yet.
    pub(crate) fn may_recall(&self) -> Option<bool> {
        match self.conflict() {
            Some(_) => Some(false),
            None => self.announced.map(|_| true),
        }
    }

    /// Whose the file is in which a member keeps what it knows. None: it keeps nothing.
    pub(crate) fn memo_owner(&self) -> Option<String> {
        let MemberSettings { cluster, id, on_loss, .. } = &self.settings;
        (*on_loss == OnLoss::Wait).then(|| format!("{cluster}/{id}"))
    }

    /// The names of the keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What the last snapshot said.
    pub fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// The lease, if there is one.
    pub fn lease(&self) -> Option<i64> {
        self.lease.as_ref().map(|held| held.id)
    }

    /// What decides about the answers of [`owner`](Self::owner): they are the same while this is.
    pub fn stamp(&self, now: Instant) -> (u64, bool) {
        (self.changes, self.why_not(now).is_none())
    }

    /// Its broker ends: where others take the groups of a member that is gone, they get them now, while it serves.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether others are to take groups of this member, which leaves.
    pub fn has_groups_to_give(&self) -> bool {
        let (own, map) = (self.settings.id.as_str(), self.map.as_ref());
        let has_place = |group: &str| map.is_some_and(|map| map.place_without(group, Some(own)).is_some());
        let is_given = |(group, entry): (&String, &Entry)| entry.owner == own && has_place(group);
        self.is_leaving
            && self.settings.on_loss != OnLoss::Wait
            && self.announced.is_some()
            && map.is_some_and(|map| map.groups.iter().any(is_given))
    }

    /// The lease was given back.
    pub fn left(&mut self) {
        (self.lease, self.announced) = (None, None);
    }

    /// Somebody says that keys have changed.
    pub fn changed(&mut self, now: Instant) {
        self.hint.get_or_insert(now + GATHER);
    }

    /// Whether the next snapshot is expected to say something new.
    pub fn is_told(&self) -> bool {
        self.is_old || self.hint.is_some()
    }

    /// Who has a group. One that nobody has is taken or given to another member soon. `has_log`: this member has logs of the group, and is the right
    /// owner of one that nobody has.
    pub fn owner(&mut self, group: &str, has_log: bool, now: Instant) -> Owner {
        let unsettled = |reason: String| Owner::Unsettled { reason };
        if has_log && self.map.is_none() {
            // etcd may know nothing of what an earlier process knew.
            self.wish(group, true);
        }
        let known = self.known().and_then(|map| Some((map, map.groups.get(group)?)));
        let Some((map, entry)) = known else {
            let Some(map) = &self.map else {
                let why = self.failure.as_deref().unwrap_or("etcd was not asked yet");
                let reason = format!("nobody knows yet who has '{group}': {why}");
                self.wish(group, has_log);
                return unsettled(reason);
            };
            let key = self.keys.group(group);
            if let Some(problem) = map.unreadable.get(&key) {
                return unsettled(format!("etcd's key {key} makes no sense: {problem}"));
            }
            self.wish(group, has_log);
            return unsettled(format!("'{group}' gets an owner"));
        };
        if entry.owner != self.settings.id {
            return match map.members.get(&entry.owner) {
                Some(member) => Owner::Elsewhere { addresses: member.addresses.clone() },
                None => unsettled(format!("the owner of '{group}', {}, is away", entry.owner)),
            };
        }
        let is_given = self.giving.contains_key(group);
        match self.why_not(now) {
            None if is_given => unsettled(format!("'{group}' goes to another member")),
            None => Owner::Here { term: entry.term },
            Some(reason) => unsettled(format!("this broker may not serve '{group}' now: {reason}")),
        }
    }

    fn known(&self) -> Option<&Map> {
        self.map.as_ref().or(self.recalled.as_ref())
    }

    /// The condition that this member still has a group in a term. None: it has not, as far as it knows.
    pub(crate) fn has_still(&self, group: &str, term: u64, now: Instant) -> Option<Compare> {
        let entry = self.map.as_ref()?.groups.get(group)?;
        let is_own = entry.owner == self.settings.id && entry.term == term && self.why_not(now).is_none();
        is_own.then(|| Compare::Unchanged { key: self.keys.group(group), modified: entry.modified })
    }

    /// As [`owner`](Self::owner), and whether the question is new: then [`next`](Self::next) may have something to do.
    pub fn ask(&mut self, group: &str, has_log: bool, now: Instant) -> (Owner, bool) {
        let before = self.wishes.len();
        let owner = self.owner(group, has_log, now);
        (owner, self.wishes.len() > before)
    }

    fn wish(&mut self, group: &str, has_log: bool) {
        // The disk bounds the groups of which this member has logs, and nobody says it again.
        if has_log || self.wishes.len() < MAX_WISHES || self.wishes.contains_key(group) {
            *self.wishes.entry(group.to_owned()).or_default() |= has_log;
        }
    }

    /// Why this member may not serve what the map gives it. None: it may.
    fn why_not(&self, now: Instant) -> Option<String> {
        if !self.is_member {
            let why = self.conflict().or_else(|| self.misfit());
            return Some(why.unwrap_or_else(|| "it is no member yet".into()));
        }
        let held = self.lease.as_ref().filter(|held| now < held.until);
        let is_fenced = held.is_none_or(|held| self.announced != Some(held.id));
        match self.settings.on_loss {
            // Nobody else takes them.
            OnLoss::Wait => None,
            OnLoss::NewLog | OnLoss::Archive if is_fenced => {
                Some("its lease in etcd has run out, and others may take it".into())
            }
            OnLoss::NewLog | OnLoss::Archive => None,
        }
    }

    /// Why this broker cannot be a member beside those that were here before: it has another archive, in which it would not find their logs, or none.
    fn misfit(&self) -> Option<String> {
        let MemberSettings { id, archive, .. } = &self.settings;
        let map = self.map.as_ref()?;
        let since = map.members.get(id).map_or(i64::MAX, |own| own.created);
        let others = map.members.iter().filter(|(other, member)| *other != id && member.created < since);
        let (other, member) = others.into_iter().find(|(_, member)| member.archive != *archive)?;
        Some(format!(
            "the member {other:?} has the archive {:?}, and this one {archive:?}: with cluster.on_loss = \"archive\" all have the same",
            member.archive
        ))
    }

    /// Whether another broker has this name. One with the same addresses on the same system is this one before it was started again.
    fn conflict(&self) -> Option<String> {
        let MemberSettings { id, addresses, host, .. } = &self.settings;
        let other = self.map.as_ref()?.members.get(id)?;
        let is_before = other.addresses == *addresses && other.host == *host;
        let is_own = self.lease() == Some(other.lease) || is_before;
        let at = other.addresses.join(", ");
        (!is_own).then(|| {
            format!("a broker at {at} has the name {id:?} already; it is another one (set cluster.id), or its lease runs out soon")
        })
    }

    /// What to do at this time.
    pub fn next(&mut self, now: Instant) -> Step {
        if let Some(until) = self.retry.filter(|retry| now < *retry) {
            return self.rest(now, until);
        }
        if let Some(held) = self.lease.as_ref().filter(|held| now >= held.renew) {
            return Step::Renew { lease: held.id };
        }
        // The snapshot that is there is good until then.
        let until = self.refresh.map(|refresh| self.hint.map_or(refresh, |hint| hint.min(refresh)));
        let until = until.filter(|until| now < *until && !self.is_old);
        let (Some(until), Some(map)) = (until, &self.map) else { return Step::Read };
        let Some(held) = &self.lease else {
            return Step::Grant { ttl_s: self.settings.ttl.as_secs().max(1) };
        };
        let plan = self.announcement(map, held.id).or_else(|| self.plan(map, held, now));
        match plan {
            Some(txn) => Step::Write(txn),
            None => self.rest(now, self.next_loss(now).map_or(until, |loss| loss.min(until)).min(held.renew)),
        }
    }

    /// When the groups of a missing owner may move next.
    fn next_loss(&self, now: Instant) -> Option<Instant> {
        let ends = self.missing.values().map(|since| *since + GRACE).filter(|end| now < *end);
        ends.min().filter(|_| self.settings.on_loss != OnLoss::Wait)
    }

    /// Nothing is done until then, or until the lease has run out and the answers are others.
    fn rest(&self, now: Instant, until: Instant) -> Step {
        let until = if self.is_giving() { until.min(now + GIVE_LOOK) } else { until };
        let end = self.lease.as_ref().map(|held| held.until).filter(|end| now < *end);
        Step::Rest { until: end.map_or(until, |end| end.min(until)) }
    }

    /// The transaction that makes this broker a member, if it is none.
    fn announcement(&self, map: &Map, lease: i64) -> Option<Txn> {
        let key = self.keys.member(&self.settings.id);
        let compare = match map.members.get(&self.settings.id) {
            Some(own) if own.lease == lease => return None,
            Some(_) if self.conflict().is_some() => return None,
            Some(old) => Compare::Unchanged { key: key.clone(), modified: old.modified },
            // Also a key that makes no sense is not overwritten.
            None => Compare::Absent { key: key.clone() },
        };
        if map.unreadable.contains_key(&key) || self.misfit().is_some() {
            return None;
        }
        let value = Member::value(&self.settings);
        Some(Txn { compares: vec![compare], changes: vec![Change::Put { key, value, lease }] })
    }

    /// The groups whose topics the broker is to close, so that others may have them. None are left when others have them.
    pub(crate) fn is_giving(&self) -> bool {
        !self.giving.is_empty()
    }

    /// The broker has topics of these groups open still.
    pub(crate) fn note_open(&mut self, open: &BTreeSet<String>) {
        self.closed = self.giving.keys().filter(|group| !open.contains(*group)).cloned().collect();
    }

    /// Whether another member may have a group that a drained one has.
    fn may_give(&self, group: &str, now: Instant) -> bool {
        let since = self.giving.get(group);
        self.settings.on_loss != OnLoss::Archive
            || self.closed.contains(group)
            || since.is_some_and(|since| now >= *since + GIVE_WITHIN)
    }

    /// Begins to give the groups of a drained member whose logs go on in the archive.
    fn begin_to_give(&mut self, now: Instant) {
        let (own, map) = (self.settings.id.as_str(), self.map.as_ref());
        let gives = |map: &&Map| self.settings.on_loss == OnLoss::Archive && map.draining.contains(own);
        let groups = map.filter(gives).into_iter().flat_map(|map| {
            let has_place = |group: &str| map.place_without(group, None).is_some();
            let own_groups = map.groups.iter().filter(|(_, entry)| entry.owner == own);
            own_groups.map(|(group, _)| group.clone()).filter(move |group| has_place(group))
        });
        let giving = groups.map(|group| {
            let since = self.giving.get(&group).copied().unwrap_or(now);
            (group, since)
        });
        self.giving = giving.collect();
        self.closed.retain(|group| self.giving.contains_key(group));
    }

    /// The transaction that gives owners to groups, if some need one.
    fn plan(&self, map: &Map, held: &Held, now: Instant) -> Option<Txn> {
        if now >= held.until || self.announced != Some(held.id) {
            return None;
        }
        let own = self.settings.id.as_str();
        let leaving = self.is_leaving.then_some(own);
        let wanted = self.wishes.iter().filter(|(group, _)| !map.groups.contains_key(*group));
        let wanted = wanted.filter_map(|(group, has_log)| {
            let target = if *has_log { own } else { map.place_without(group, leaving)? };
            Some(Move { group, from: None, target })
        });
        let moves = map.groups.iter().filter(|_| self.settings.on_loss != OnLoss::Wait);
        let moves = moves.filter_map(|(group, entry)| {
            let since = self.missing.get(&entry.owner);
            let is_lost = since.is_some_and(|since| now >= *since + GRACE);
            let is_drained = map.draining.contains(own) && self.may_give(group, now);
            let is_left = entry.owner == own && (self.is_leaving || is_drained);
            let target = if is_lost || is_left { map.place_without(group, leaving)? } else { return None };
            // The new owner takes what is lost; a member that is drained or leaves gives what it has.
            let is_due = if is_lost { target == own } else { target != own };
            is_due.then_some(Move { group, from: Some((entry, is_lost)), target })
        });
        let mut txn = Txn::default();
        wanted.chain(moves).take(BATCH).for_each(|one| one.add(&self.keys, &mut txn));
        (!txn.changes.is_empty()).then_some(txn)
    }

    /// Takes what a step has led to. `asked`: the time before it.
    pub fn done(&mut self, asked: Instant, now: Instant, outcome: Outcome) {
        match outcome {
            Outcome::Failed { reason } => return self.failed(now, reason),
            Outcome::Read(snapshot) => self.read(now, &snapshot),
            Outcome::Leased(lease) => self.leased(asked, lease),
            Outcome::Written { held } => {
                self.is_old = true;
                if !held {
                    self.retry = Some(now + self.vary(SHORT_PAUSE));
                }
            }
        }
        (self.failures, self.failure) = (0, None);
    }

    /// The broker is not healthy, and the lease must not be renewed.
    pub fn unhealthy(&mut self, now: Instant, reason: String) {
        self.retry = Some(now + self.vary(self.settings.ttl / 10));
        self.failure = Some(reason);
    }

    fn failed(&mut self, now: Instant, reason: String) {
        self.etcd_errors += 1;
        let longest = LONGEST_PAUSE.min(self.settings.ttl / 6);
        let pause = (FIRST_PAUSE * 2_u32.pow(self.failures.min(10))).min(longest);
        self.failures += 1;
        self.retry = Some(now + self.vary(pause));
        self.failure = Some(reason);
        self.is_old = true;
        // The lease may be why.
        if let Some(held) = &mut self.lease {
            held.renew = now;
        }
    }

    fn leased(&mut self, asked: Instant, lease: Lease) {
        if lease.ttl_s == 0 {
            self.lease = None;
            self.is_old = true;
            return;
        }
        let ttl = Duration::from_secs(lease.ttl_s);
        // Clocks do not run alike.
        let until = asked + ttl - ttl / 10;
        self.lease = Some(Held { id: lease.id, asked, until, renew: asked + ttl / 3 });
    }

    fn read(&mut self, now: Instant, snapshot: &Snapshot) {
        let map = Map::read(snapshot, &self.keys);
        self.refresh = Some(now + self.vary(self.settings.ttl));
        (self.is_old, self.hint) = (false, None);
        self.wishes.retain(|group, _| !map.groups.contains_key(group));
        let own = map.members.get(&self.settings.id).map(|member| member.lease);
        self.announced = own.filter(|lease| self.lease() == Some(*lease));
        let is_other = self.map.as_ref() != Some(&map);
        let owners = map.groups.values().map(|entry| &entry.owner);
        let gone = owners.filter(|owner| !map.members.contains_key(*owner));
        let before = std::mem::take(&mut self.missing);
        self.missing = gone.map(|id| (id.clone(), before.get(id).copied().unwrap_or(now))).collect();
        if let Some(before) = &self.map {
            let terms = map.groups.iter().map(|(group, entry)| {
                let term = before.groups.get(group).map_or(0, |before| before.term);
                entry.term.saturating_sub(term)
            });
            self.term_changes += terms.sum::<u64>();
        }
        (self.map, self.recalled) = (Some(map), None);
        self.begin_to_give(now);
        let fits = self.conflict().is_none() && self.misfit().is_none();
        self.is_member = (self.is_member || self.announced.is_some()) && fits;
        self.changes += u64::from(is_other);
    }

    /// The other members.
    pub fn others(&self) -> Vec<(String, Vec<String>)> {
        let members = self.known().into_iter().flat_map(|map| &map.members);
        let others = members.filter(|(id, _)| **id != self.settings.id);
        others.map(|(id, member)| (id.clone(), member.addresses.clone())).collect()
    }

    /// Whether it is no member yet, and nothing is in its way.
    pub fn is_starting(&self) -> bool {
        let is_known = self.is_member && self.map.is_some();
        !is_known && self.failure.is_none() && self.conflict().is_none() && self.misfit().is_none()
    }

    /// How the member is.
    pub fn status(&self, now: Instant) -> Status {
        let map = self.known();
        let owned =
            map.map_or(0, |map| map.groups.values().filter(|entry| entry.owner == self.settings.id).count());
        Status {
            degraded: self.failure.clone().or_else(|| self.why_not(now)),
            members: map.map_or(0, |map| map.members.len()),
            owned_groups: owned,
            term_changes: self.term_changes,
            etcd_errors: self.etcd_errors,
            lease_age: self.lease.as_ref().map(|held| now.saturating_duration_since(held.asked)),
        }
    }

    /// A time between half and one and a half of this one, so that members who fail together do not come together.
    fn vary(&mut self, time: Duration) -> Duration {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let part = (mixed ^ (mixed >> 27)) % 1000;
        time / 2 + time.mul_f64(part as f64 / 1000.0)
    }
}

/// A group that gets another owner.
struct Move<'a> {
    group: &'a str,
    /// The owner that it has, and whether that is gone.
    from: Option<(&'a Entry, bool)>,
    target: &'a str,
}

impl Move<'_> {
    fn add(&self, keys: &Keys, txn: &mut Txn) {
        let key = keys.group(self.group);
        let term = match self.from {
            None => {
                txn.compares.push(Compare::Absent { key: key.clone() });
                1
            }
            Some((entry, is_lost)) => {
                txn.compares.push(Compare::Unchanged { key: key.clone(), modified: entry.modified });
                if is_lost {
                    txn.compares.push(Compare::Absent { key: keys.member(&entry.owner) });
                }
                entry.term + 1
            }
        };
        txn.compares.push(Compare::Present { key: keys.member(self.target) });
        txn.changes.push(Change::Put { key, value: Entry::value(self.target, term), lease: 0 });
    }
}
