//! The client with the etcd of the system.

use std::process::Command;
use std::time::Duration;

use etcd::{Change, Client, Compare, EtcdError, News, Txn};
use peers::Secret;
use testkit::{Etcd, until};

use super::{client, long, settings};

const PATIENT: Duration = Duration::from_secs(20);

fn put(key: &str, value: &str, lease: i64, compares: Vec<Compare>) -> Txn {
    let change = Change::Put { key: key.into(), value: value.into(), lease };
    Txn { compares, changes: vec![change] }
}

#[test]
fn keys_conditions_and_leases() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let mut client = client(&etcd.endpoints(), PATIENT);
    assert!(client.range("/c/").unwrap().keys.is_empty());
    let absent = || vec![Compare::Absent { key: "/c/é".into() }];
    assert!(client.txn(&put("/c/é", "one", 0, absent())).unwrap());
    assert!(!client.txn(&put("/c/é", "two", 0, absent())).unwrap(), "it is there");
    let found = client.range("/c/").unwrap().keys;
    assert_eq!((found[0].key.as_str(), &found[0].value[..], found[0].lease), ("/c/é", &b"one"[..], 0));
    let unchanged = |modified| vec![Compare::Unchanged { key: "/c/é".into(), modified }];
    assert!(!client.txn(&put("/c/é", "two", 0, unchanged(found[0].modified - 1))).unwrap());
    assert!(client.txn(&put("/c/é", "two", 0, unchanged(found[0].modified))).unwrap());

    let lease = client.grant(60).unwrap();
    assert!(lease.ttl_s >= 60);
    let present = vec![Compare::Present { key: "/c/é".into() }];
    assert!(client.txn(&put("/c/leased", "x", lease.id, present)).unwrap());
    assert_eq!(client.keep_alive(lease.id).unwrap(), lease);
    assert_eq!(client.range("/c/").unwrap().keys.len(), 2);
    client.revoke(lease.id).unwrap();
    assert_eq!(client.range("/c/").unwrap().keys.len(), 1, "the key has gone with its lease");
    assert_eq!(client.keep_alive(lease.id).unwrap().ttl_s, 0);
    let error = client.revoke(lease.id).unwrap_err();
    assert!(matches!(error, EtcdError::Refused { code: 5, .. }), "{error}");
    let error = client.txn(&put("/c/x", "x", lease.id, vec![])).unwrap_err();
    assert!(error.to_string().contains("lease not found"), "{error}");
    assert!(
        client.txn(&Txn { compares: vec![], changes: vec![Change::Delete { key: "/c/é".into() }] }).unwrap()
    );
    assert!(client.range("/c/").unwrap().keys.is_empty());
}

#[test]
fn more_keys_than_a_page_are_of_one_revision() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let mut client = client(&etcd.endpoints(), PATIENT);
    for part in 0..25 {
        let changes = (0..100).map(|n| Change::Put {
            key: format!("/c/{:04}", part * 100 + n),
            value: b"v".to_vec(),
            lease: 0,
        });
        assert!(client.txn(&Txn { compares: vec![], changes: changes.collect() }).unwrap());
    }
    let all = client.range("/c/").unwrap();
    let expected: Vec<String> = (0..2500).map(|n| format!("/c/{n:04}")).collect();
    assert_eq!(all.keys.iter().map(|kv| &kv.key).collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    assert!(client.range("/d/").unwrap().keys.is_empty(), "other prefixes are left out");
}

#[test]
fn a_watch_tells_of_changes_and_deletions() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let mut client = client(&etcd.endpoints(), PATIENT);
    let from = client.range("/c/").unwrap().revision + 1;
    let mut watch = client.watch("/c/", from).unwrap();
    assert_eq!(watch.wait(std::time::Instant::now()).unwrap(), News::None);
    let lease = client.grant(60).unwrap();
    client.txn(&put("/c/a", "x", lease.id, vec![])).unwrap();
    assert_eq!(watch.wait(long()).unwrap(), News::Changed { revision: from });
    client.txn(&put("/elsewhere", "x", 0, vec![])).unwrap();
    client.revoke(lease.id).unwrap();
    assert_eq!(watch.wait(long()).unwrap(), News::Changed { revision: from + 2 });
}

/// A client of the first member alone.
fn of_first(etcd: &Etcd) -> Client {
    client(&etcd.endpoints()[..1], PATIENT)
}

#[test]
fn another_member_answers_when_one_is_killed_and_a_minority_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut etcd) = Etcd::start(folder.path(), 3) else { return };
    let mut client = client(&etcd.endpoints(), Duration::from_secs(2));
    until("a leader is there", || client.txn(&put("/c/a", "1", 0, vec![])).is_ok());
    let mut watch = of_first(&etcd).watch("/c/", 1).unwrap();
    etcd.kill(0);
    until("the others answer", || client.txn(&put("/c/a", "2", 0, vec![])).is_ok());
    assert_eq!(client.range("/c/").unwrap().keys[0].value, b"2");
    until("the watch of the dead member ends", || watch.wait(long()).is_err());
    let mut watch = client.watch("/c/", 1).unwrap();
    etcd.kill(1);
    assert!(client.txn(&put("/c/a", "3", 0, vec![])).is_err(), "there is no majority");
    until("a watch at a minority ends", || watch.wait(long()).is_err());
    etcd.run_all();
    until("the majority answers", || client.txn(&put("/c/a", "4", 0, vec![])).is_ok());
}

/// A client that logs in.
fn with_login(etcd: &Etcd, user: &str, password: &str) -> Client {
    let mut settings = settings(&etcd.endpoints(), PATIENT);
    settings.login = Some((user.into(), Secret::from(password.to_owned())));
    Client::new(settings)
}

#[test]
fn a_user_logs_in_and_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut etcd) = Etcd::start(folder.path(), 1) else { return };
    let control = |args: &[&str]| {
        let url = etcd.endpoints()[0].clone();
        let patient = ["--command-timeout=60s", "--dial-timeout=60s", "--endpoints", &url];
        Command::new("etcdctl").env("ETCDCTL_API", "3").args(patient).args(args).output()
    };
    if !testkit::has("etcdctl", "users of etcd") {
        return;
    }
    for args in
        [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        let done = control(args).unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let error = client(&etcd.endpoints(), PATIENT).range("/c/").unwrap_err();
    assert!(matches!(error, EtcdError::Refused { .. }), "{error}");
    let error = with_login(&etcd, "root", "wrong").range("/c/").unwrap_err();
    assert!(error.to_string().contains("authentication failed"), "{error}");
    let mut client = with_login(&etcd, "root", "secret");
    client.txn(&put("/c/a", "1", 0, vec![])).unwrap();
    etcd.kill(0);
    etcd.run(0);
    until("it answers again", || client.txn(&put("/c/a", "2", 0, vec![])).is_ok());
    assert!(client.watch("/c/", 1).unwrap().wait(long()).is_ok());
}

#[test]
fn an_encrypted_etcd_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let options = ["--cert-file", cert.to_str().unwrap(), "--key-file", key.to_str().unwrap()];
    let Some(etcd) = Etcd::start_with(folder.path(), 1, &options) else { return };
    let tls = |ca| tls13::Credentials { ca: Some(ca), ..Default::default() }.client().unwrap();
    let mut trusting = settings(&etcd.endpoints(), PATIENT);
    trusting.tls = Some(tls(cert));
    let mut client = Client::new(trusting);
    client.txn(&put("/c/a", "1", 0, vec![])).unwrap();
    let mut watch = client.watch("/c/", 1).unwrap();
    assert!(matches!(watch.wait(long()).unwrap(), News::Changed { .. }));
    assert_eq!(watch.wait(std::time::Instant::now() + Duration::from_millis(50)).unwrap(), News::None);
    client.txn(&put("/c/a", "2", 0, vec![])).unwrap();
    assert!(matches!(watch.wait(long()).unwrap(), News::Changed { .. }));

    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let path = folder.path().join("other.pem");
    std::fs::write(&path, other.cert.pem()).unwrap();
    let mut wrong = settings(&etcd.endpoints(), PATIENT);
    wrong.tls = Some(tls(path));
    let error = Client::new(wrong).range("/c/").unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}
