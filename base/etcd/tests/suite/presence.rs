//! Programs that find each other in the etcd of the system.

use std::sync::Arc;
use std::time::Duration;

use etcd::{Change, Presence, PresenceSettings, Presented, Snapshot, Txn};
use locks::Mutex;
use testkit::{Etcd, until};

use super::{client, settings};

/// A call of a program.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A call of the test itself, beside others that write to the same disk.
const PATIENT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Seen {
    keys: Vec<(String, String)>,
    degraded: Option<String>,
}

struct Program {
    value: String,
    load: Arc<Mutex<String>>,
    seen: Arc<Mutex<Seen>>,
    key: String,
}

impl Presented for Program {
    fn value(&mut self) -> Vec<u8> {
        self.value.clone().into()
    }

    fn was_mine(&self, value: &[u8]) -> bool {
        value == self.value.as_bytes()
    }

    fn others(&mut self) -> Vec<(String, Vec<u8>)> {
        vec![(self.key.replace("nodes", "load"), self.load.lock().clone().into())]
    }

    fn seen(&mut self, snapshot: &Snapshot) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.seen.lock().keys = snapshot.keys.iter().map(|kv| (kv.key.clone(), text(&kv.value))).collect();
    }

    fn told(&mut self, degraded: Option<&str>) {
        self.seen.lock().degraded = degraded.map(str::to_owned);
    }
}

struct Running {
    presence: Presence,
    load: Arc<Mutex<String>>,
    seen: Arc<Mutex<Seen>>,
}

fn start(name: &str, value: &str, etcd: &Etcd) -> Running {
    let (load, seen) = (Arc::new(Mutex::new("0".to_owned())), Arc::<Mutex<Seen>>::default());
    let key = format!("/p/c/nodes/{name}");
    let program = Program { value: value.into(), load: load.clone(), seen: seen.clone(), key: key.clone() };
    let pace = Duration::from_millis(50);
    let own = PresenceSettings { prefix: "/p/c/".into(), key, ttl: Duration::from_secs(4), pace };
    let presence = Presence::start(settings(&etcd.endpoints(), TIMEOUT), own, Box::new(program)).unwrap();
    Running { presence, load, seen }
}

impl Running {
    fn sees(&self, key: &str, value: &str) -> bool {
        self.seen.lock().keys.iter().any(|own| own.0 == key && own.1 == value)
    }

    fn is_well(&self) -> bool {
        let status = self.presence.status();
        status.is_known && status.degraded.is_none() && self.seen.lock().degraded.is_none()
    }
}

#[test]
fn programs_find_each_other_and_learn_what_changes_and_who_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let (a, b) = (start("a", "one", &etcd), start("b", "two", &etcd));
    until("a sees b", || a.sees("/p/c/nodes/b", "two") && a.sees("/p/c/load/b", "0"));
    until("b sees a", || b.sees("/p/c/nodes/a", "one") && b.is_well());
    *b.load.lock() = "7".into();
    until("a learns it", || a.sees("/p/c/load/b", "7"));
    // Somebody removes the keys of a.
    let remove = |key: &str| Change::Delete { key: key.into() };
    let changes = vec![remove("/p/c/nodes/a"), remove("/p/c/load/a")];
    client(&etcd.endpoints(), PATIENT).txn(&Txn { compares: vec![], changes }).unwrap();
    until("they are written again", || b.sees("/p/c/nodes/a", "one") && b.sees("/p/c/load/a", "0"));
    drop(b);
    until("b is gone at once", || !a.sees("/p/c/nodes/b", "two") && !a.sees("/p/c/load/b", "7"));
}

#[test]
fn a_name_belongs_to_one_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let first = start("a", "one", &etcd);
    until("the first is there", || first.is_well());
    let other = start("a", "other", &etcd);
    until("it is refused", || {
        other
            .presence
            .status()
            .degraded
            .is_some_and(|why| why.contains("another program has the key /p/c/nodes/a"))
    });
    assert!(first.sees("/p/c/nodes/a", "one") || first.is_well());
    drop(first);
    until("it has the name", || other.is_well() && other.sees("/p/c/nodes/a", "other"));
    // The same program, which was killed and has left its lease.
    let again = start("a", "other", &etcd);
    until("it goes on at once", || again.is_well());
}

#[test]
fn a_program_goes_on_while_etcd_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut etcd) = Etcd::start(folder.path(), 1) else { return };
    let (a, b) = (start("a", "one", &etcd), start("b", "two", &etcd));
    until("both are there", || a.sees("/p/c/nodes/b", "two") && b.is_well() && a.is_well());
    etcd.kill(0);
    until("it says so", || a.presence.status().degraded.is_some() && a.seen.lock().degraded.is_some());
    assert!(a.sees("/p/c/nodes/b", "two"), "what it knows stays");
    *b.load.lock() = "3".into();
    etcd.run(0);
    until("it is well again", || a.is_well() && a.sees("/p/c/load/b", "3"));
    assert!(a.presence.status().errors > 0);
}

#[test]
fn large_values_of_others_are_read_in_small_pages() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let mut client = client(&etcd.endpoints(), Duration::from_secs(20));
    for n in 0..12 {
        let (key, value) = (format!("/p/c/nodes/{n}"), vec![b'x'; 1_000_000]);
        let changes = vec![Change::Put { key, value, lease: 0 }];
        client.txn(&Txn { compares: vec![], changes }).unwrap();
    }
    assert_eq!(client.range("/p/c/").unwrap().keys.len(), 12);
}
