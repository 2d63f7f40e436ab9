//! Members with the etcd of the system, without brokers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use locks::Mutex;
use rbmq_cluster::etcd::{Change, Txn};
use rbmq_cluster::{Entry, Hooks, Keys, LogClaim, MemberSettings, Membership, OnLoss, Owner};
use testkit::{Etcd, until};

use super::{client, settings};

/// A call of a member.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A call of the test itself, beside others that write to the same disk.
const PATIENT: Duration = Duration::from_secs(20);

struct Member {
    membership: Membership,
    address: String,
    is_healthy: Arc<AtomicBool>,
    changes: Arc<AtomicUsize>,
    /// The topics that its broker has open.
    open: Arc<Mutex<Vec<String>>>,
}

impl Member {
    fn new(n: usize, on_loss: OnLoss) -> Self {
        Self::named(&format!("m{n}"), n, on_loss)
    }

    fn named(id: &str, n: usize, on_loss: OnLoss) -> Self {
        let address = format!("host-{n}:7411");
        let settings = MemberSettings {
            cluster: "test".into(),
            id: id.into(),
            addresses: vec![address.clone()],
            host: format!("host-{n}"),
            version: "1".into(),
            ttl: Duration::from_secs(4),
            on_loss,
            archive: String::new(),
            seed: n as u64,
        };
        let membership = Membership::new(settings, 1).unwrap();
        let is_healthy = Arc::new(AtomicBool::new(true));
        Self { membership, address, is_healthy, changes: Arc::default(), open: Arc::default() }
    }

    fn start(n: usize, etcd: &Etcd, on_loss: OnLoss) -> Self {
        let member = Self::new(n, on_loss);
        member.begin(etcd);
        member
    }

    fn begin(&self, etcd: &Etcd) {
        let (is_healthy, changes) = (self.is_healthy.clone(), self.changes.clone());
        let health = move || match is_healthy.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err("the disk stands still".into()),
        };
        let changed = move || {
            changes.fetch_add(1, Ordering::SeqCst);
        };
        let open = self.open.clone();
        let open = move || open.lock().clone();
        let hooks = Hooks { health: Box::new(health), open: Box::new(open), changed: Box::new(changed) };
        self.membership.start(settings(&etcd.endpoints(), TIMEOUT), hooks).unwrap();
    }

    fn is_here(&self, group: &str) -> bool {
        matches!(self.membership.owner(group), Owner::Here { .. })
    }
}

fn groups() -> impl Iterator<Item = String> {
    (0..100).map(|n| format!("g{n}/topic"))
}

/// Waits until each group is at one of the members, and the others name its address.
fn settle(members: &[&Member]) -> Vec<usize> {
    let mut counts = vec![0; members.len()];
    for group in groups() {
        until("a group has an owner", || {
            let owners: Vec<usize> = (0..members.len()).filter(|n| members[*n].is_here(&group)).collect();
            let [owner] = owners[..] else { return false };
            let addresses = vec![members[owner].address.clone()];
            counts[owner] += 1;
            let is_known = |member: &&Member| {
                std::ptr::eq(*member, members[owner])
                    || member.membership.owner(&group) == Owner::Elsewhere { addresses: addresses.clone() }
            };
            let all = members.iter().all(is_known);
            counts[owner] -= usize::from(!all);
            all
        });
    }
    counts
}

fn three(folder: &Path, on_loss: OnLoss) -> Option<(Etcd, [Member; 3])> {
    let etcd = Etcd::start(folder, 1)?;
    let members = [0, 1, 2].map(|n| Member::start(n, &etcd, on_loss));
    until("all are members", || members.iter().all(|member| member.membership.status().members == 3));
    Some((etcd, members))
}

#[test]
fn groups_spread_and_those_of_a_lost_member_move() {
    let folder = tempfile::tempdir().unwrap();
    let Some((etcd, [a, b, c])) = three(folder.path(), OnLoss::NewLog) else { return };
    let counts = settle(&[&a, &b, &c]);
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert_eq!(a.membership.others().len(), 2);
    assert_eq!(a.membership.status().owned_groups, counts[0]);

    // Its lease ends with it.
    drop(c);
    let after = settle(&[&a, &b]);
    assert!(after[0] >= counts[0] && after[1] >= counts[1], "{counts:?} {after:?}");

    // A broker that is not healthy loses its lease, and what it has.
    b.is_healthy.store(false, Ordering::SeqCst);
    until("the other one has all groups", || groups().all(|group| a.is_here(&group) && !b.is_here(&group)));
    assert_eq!(b.membership.status().degraded.as_deref(), Some("the disk stands still"));
    assert!(b.changes.load(Ordering::SeqCst) > 0);
    b.is_healthy.store(true, Ordering::SeqCst);
    until("it is a member again", || b.membership.status().degraded.is_none());

    // A wish to drain gives everything to the others.
    let key = Keys::new("test").drain("m0");
    let drain = Txn { compares: vec![], changes: vec![Change::Put { key, value: b"{}".to_vec(), lease: 0 }] };
    client(&etcd.endpoints(), PATIENT).txn(&drain).unwrap();
    until("the groups have left", || groups().all(|group| b.is_here(&group) && !a.is_here(&group)));
}

/// The archive gets what it lacks first: the broker serves the topics no more, and closes them when that is done.
#[test]
fn a_drained_member_gives_a_group_when_its_topics_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let Some((etcd, [a, b, c])) = three(folder.path(), OnLoss::Archive) else { return };
    settle(&[&a, &b, &c]);
    let had: Vec<String> = groups().filter(|group| a.is_here(group)).collect();
    *a.open.lock() = vec![had[0].clone(), had[1].clone()];
    let key = Keys::new("test").drain("m0");
    let drain = Txn { compares: vec![], changes: vec![Change::Put { key, value: b"{}".to_vec(), lease: 0 }] };
    client(&etcd.endpoints(), PATIENT).txn(&drain).unwrap();
    let is_away = |group: &String| b.is_here(group) || c.is_here(group);
    until("those that are closed have left", || had[2..].iter().all(is_away));
    for group in &had[..2] {
        let owner = a.membership.owner(group);
        assert!(
            matches!(&owner, Owner::Unsettled { reason } if reason.contains("another member")),
            "{owner:?}"
        );
        assert!(!is_away(group));
    }
    a.open.lock().clear();
    until("all have left", || had.iter().all(is_away));
}

/// Positions of a log go to the member that etcd says has the group, also if another one has not heard that it is none.
#[test]
fn positions_go_to_the_owner_in_its_term() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let [a, b] = [0, 1].map(|n| Member::new(n, OnLoss::Archive));
    let claim = LogClaim { log: 7, begin: 0, limit: 1 << 44, term: 1, mark: 9, revision: 0 };
    assert!(a.membership.claim_log("g/t", &claim) == Ok(false) && a.membership.log_claim("g/t").is_err());
    assert!(a.membership.logs().is_err(), "it is no member yet");
    a.begin(&etcd);
    until("it has the group", || a.is_here("g/t"));
    b.begin(&etcd);
    assert_eq!(a.membership.log_claim("g/t"), Ok(None));
    assert_eq!(a.membership.claim_log("g/t", &LogClaim { term: 2, ..claim }), Ok(false));
    assert_eq!(b.membership.claim_log("g/t", &claim), Ok(false));
    assert_eq!(a.membership.claim_log("g/t", &claim), Ok(true));
    assert_eq!(a.membership.claim_log("g/t", &claim), Ok(false), "it has changed since");
    let known = b.membership.log_claim("g/t").unwrap().unwrap();
    assert_eq!(LogClaim { revision: 0, ..known }, claim);
    // Another topic of the group, whose name begins alike.
    assert_eq!(a.membership.log_claim("g/t/u"), Ok(None));
    let keys = Keys::new("test");
    let value = Entry::value("m1", 2);
    let moved = Change::Put { key: keys.group("g"), value, lease: 0 };
    let mut client = client(&etcd.endpoints(), PATIENT);
    client.txn(&Txn { compares: vec![], changes: vec![moved] }).unwrap();
    // Whether or not it has heard.
    assert_eq!(a.membership.claim_log("g/t", &known), Ok(false));
    until("the other one has it", || b.is_here("g/t"));
    let next = LogClaim { begin: 1 << 44, limit: 1 << 45, term: 2, ..known };
    assert_eq!(b.membership.claim_log("g/t", &next), Ok(true));
    assert_eq!(b.membership.logs(), Ok(vec!["g/t".into()]));
    let all = client.range(keys.prefix()).unwrap().keys;
    assert!(all.iter().all(|kv| !kv.key.contains("g/t")), "nobody reads them all");
    let senseless = Change::Put { key: keys.log("g/t"), value: b"{}".to_vec(), lease: 0 };
    client.txn(&Txn { compares: vec![], changes: vec![senseless] }).unwrap();
    assert!(b.membership.log_claim("g/t").unwrap_err().contains("makes no sense"));
}

#[test]
fn a_member_that_leaves_gives_its_groups_away_while_it_serves() {
    for on_loss in [OnLoss::NewLog, OnLoss::Archive] {
        gives_its_groups_away(on_loss);
    }
}

fn gives_its_groups_away(on_loss: OnLoss) {
    let folder = tempfile::tempdir().unwrap();
    let Some((etcd, [a, b, c])) = three(folder.path(), on_loss) else { return };
    settle(&[&a, &b, &c]);
    let had: Vec<String> = groups().filter(|group| c.is_here(group)).collect();
    c.membership.leave(testkit::LONG);
    // It knows where its clients go.
    for group in had {
        let owner = c.membership.owner(&group);
        assert!(matches!(owner, Owner::Elsewhere { .. }), "{group}: {owner:?}");
    }
    let member = Keys::new("test").member("m2");
    assert!(client(&etcd.endpoints(), PATIENT).range(&member).unwrap().keys.is_empty(), "its lease is over");
    settle(&[&a, &b]);

    // The last one keeps what nobody can take, until its lease is over.
    b.membership.leave(testkit::LONG);
    until("one has all", || groups().all(|group| a.is_here(&group)));
    a.membership.leave(testkit::LONG);
    assert!(groups().all(|group| matches!(a.membership.owner(&group), Owner::Unsettled { .. })));
}

#[test]
fn a_member_that_leaves_keeps_its_groups_where_nobody_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_etcd, [a, b, c])) = three(folder.path(), OnLoss::Wait) else { return };
    let before = settle(&[&a, &b, &c]);
    let had: Vec<String> = groups().filter(|group| c.is_here(group)).collect();
    c.membership.leave(testkit::LONG);
    let waits = |at: &Member, group: &String| matches!(at.membership.owner(group), Owner::Unsettled { .. });
    until("the others wait for it", || had.iter().all(|group| waits(&a, group) && waits(&b, group)));
    assert!(
        had.len() == before[2] && had.iter().all(|group| c.is_here(group)),
        "it serves until its broker ends"
    );
}

#[test]
fn owners_serve_on_while_etcd_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut etcd, [a, b, c])) = three(folder.path(), OnLoss::Wait) else { return };
    let before = settle(&[&a, &b, &c]);
    etcd.kill(0);
    until("the members say so", || [&a, &b, &c].iter().all(|one| one.membership.status().degraded.is_some()));
    assert_eq!(settle(&[&a, &b, &c]), before);
    etcd.run(0);
    until("all is well", || {
        let is_well = |one: &&Member| one.membership.status().degraded.is_none();
        [&a, &b, &c].iter().all(is_well) && a.membership.status().members == 3
    });
    assert_eq!(settle(&[&a, &b, &c]), before);
    assert_eq!(a.membership.status().term_changes, 100);

    // The groups of one that is gone wait, and a new one goes where it belongs.
    drop(c);
    until("one is gone", || a.membership.status().members == 2);
    let waiting = groups().filter(|group| matches!(a.membership.owner(group), Owner::Unsettled { .. }));
    assert_eq!(waiting.count(), before[2]);
    let c = Member::new(2, OnLoss::Wait);
    c.membership.has_log("new");
    c.begin(&etcd);
    assert_eq!(settle(&[&a, &b, &c]), before);
    until("the log of a broker's disk stays there", || c.is_here("new"));
}

#[test]
fn a_member_that_starts_without_etcd_becomes_one_later() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut etcd) = Etcd::start(folder.path(), 1) else { return };
    // An etcd that is killed before its first entry is on the disk never has a leader.
    until("it answers", || client(&etcd.endpoints(), PATIENT).range("/").is_ok());
    etcd.kill(0);
    let member = Member::start(0, &etcd, OnLoss::Wait);
    until("it says what is wrong", || member.membership.status().etcd_errors > 2);
    let Owner::Unsettled { reason } = member.membership.owner("g") else { panic!("nobody knows") };
    assert!(reason.contains("etcd at http://"), "{reason}");
    etcd.run(0);
    until("it has the group", || member.is_here("g"));
}

#[test]
fn only_a_member_remembers_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut etcd) = Etcd::start(folder.path(), 1) else { return };
    let files = [0, 1, 2].map(|n| folder.path().join(format!("map-{n}")));
    let start = |etcd: &Etcd, n: usize, on_loss| {
        let member = Member::named("m0", n, on_loss);
        member.membership.remember_in(&files[n]);
        member.begin(etcd);
        member
    };
    let first = start(&etcd, 0, OnLoss::Wait);
    until("it has the group", || first.is_here("g"));
    until("it remembers that", || {
        std::fs::read_to_string(&files[0]).is_ok_and(|text| text.contains("map/g"))
    });
    // A disk that was cloned, and a copied configuration.
    std::fs::copy(&files[0], &files[1]).unwrap();
    let clones = [1, 2].map(|n| start(&etcd, n, OnLoss::Wait));
    let is_refused = |member: &Member| match member.membership.owner("g") {
        Owner::Unsettled { reason } => reason.contains("set cluster.id"),
        _ => false,
    };
    until("they know of the first one", || clones.iter().all(is_refused));
    until("the file is removed", || !files[1].exists());
    drop(clones);
    etcd.kill(0);
    for n in [1, 2] {
        let clone = start(&etcd, n, OnLoss::Wait);
        until("etcd is asked", || clone.membership.status().etcd_errors > 0);
        assert!(!clone.is_here("g") && !files[n].exists());
    }
    drop(first);
    let first = start(&etcd, 0, OnLoss::Wait);
    assert!(first.is_here("g"));
    drop(first);
    // Others may take its groups under this rule, so what it knew says nothing later.
    drop(start(&etcd, 0, OnLoss::NewLog));
    assert!(!files[0].exists());
}
