//! How each command ends when something is in its way.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::{Kind, Row, check_ends, row};

use crate::common::{BrokerProcess, rbmq};

/// A cluster that cannot be asked.
const NOWHERE: &str = "--etcd http://127.0.0.1:1 --name plant";

fn made(args: &[&str]) {
    assert!(rbmq(args.iter().copied()).output().unwrap().status.success(), "{args:?}");
}

/// The commands of files, some of which are in the folder.
fn of_files(folder: &Path) -> Vec<Row> {
    let (users, config) = (folder.join("users.toml"), folder.join("rbmq.toml"));
    std::fs::write(&users, "[[user]]\nname = \"anna\"\n").unwrap();
    std::fs::set_permissions(&users, PermissionsExt::from_mode(0o600)).unwrap();
    let rules = "[[access.rules]]\nusers = [\"*\"]\npublish = [\"#\"]\n";
    std::fs::write(&config, format!("{rules}[users]\nfile = \"{}\"\n", users.display())).unwrap();
    let (users, config) = (users.display(), config.display());
    made(&["token", "new", "anna", "--name", "first", "--users", &users.to_string()]);
    vec![
        row(Kind::Prints, "config"),
        row(Kind::Prints, format!("config --config {config}")),
        row(Kind::Asks, "passwd bert --stdin --users NEW"),
        row(Kind::Prints, format!("token new anna --name FRESH --users {users}")),
        row(Kind::Makes, format!("token new anna --name FRESH --users {users} --output NEW")),
        row(Kind::Prints, format!("token list --users {users}")),
        row(Kind::Fails, format!("token revoke nobody --users {users}")),
        row(Kind::Prints, format!("acl check anna publish news --config {config}")),
        row(Kind::Prints, "check"),
        row(Kind::Fails, format!("cluster status {NOWHERE}")),
        row(Kind::Fails, format!("cluster members {NOWHERE} --json")),
        row(Kind::Fails, format!("cluster topics {NOWHERE}")),
        row(Kind::Fails, format!("cluster move group member {NOWHERE}")),
        row(Kind::Fails, format!("cluster drain member {NOWHERE}")),
        row(Kind::Prints, "completions bash"),
        row(Kind::Prints, "man"),
        row(Kind::Makes, "man NEW"),
    ]
}

/// The commands that make certificates.
#[cfg(feature = "tls")]
fn of_certificates(folder: &Path) -> Vec<Row> {
    let tls = folder.join("tls");
    let tls = tls.to_str().unwrap();
    made(&["keygen", "ca", tls]);
    vec![
        row(Kind::Makes, "keygen ca NEW"),
        row(Kind::Makes, "keygen all NEW --name localhost"),
        row(Kind::Does, format!("keygen server {tls} --name localhost --file FRESH")),
        row(Kind::Does, format!("keygen client {tls} FRESH")),
        row(Kind::Fails, format!("keygen revoke {tls} nobody")),
    ]
}

#[cfg(not(feature = "tls"))]
fn of_certificates(_: &Path) -> Vec<Row> {
    Vec::new()
}

/// The commands of clients, and brokers.
fn of_brokers(addr: &str) -> Vec<Row> {
    vec![
        row(Kind::Serves, "serve --listen 127.0.0.1:0 --keep NEW"),
        row(Kind::Serves, "serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --stats 100ms"),
        row(Kind::Serves, format!("gateway resp:127.0.0.1:0 mqtt:127.0.0.1:0 -b {addr}")),
        // It waits for its broker.
        row(Kind::Serves, "gateway resp:127.0.0.1:0 -b 127.0.0.1:1"),
        row(Kind::Reads, format!("pub -b {addr} other --timeout 60s")),
        row(Kind::Reads, format!("pub -b {addr} other --timeout 60s --confirm synced")),
        row(Kind::Asks, format!("pub -b {addr} other --timeout 60s --confirm synced --confirm-each --json")),
        row(Kind::Follows, format!("sub -b {addr} news --from oldest")),
        row(Kind::Follows, format!("sub -b {addr} news --from oldest --json")),
        row(Kind::Waits, format!("sub -b {addr} nothing/here")),
        row(Kind::Follows, format!("top -b {addr} --interval 100ms")),
        row(Kind::Follows, format!("top -b {addr} --interval 100ms --json")),
        row(Kind::Prints, format!("top -b {addr} --interval 100ms --once")),
        row(Kind::Follows, format!("sub -b {addr} news --from oldest --group FRESH")),
        row(Kind::Prints, format!("groups list -b {addr}")),
        row(Kind::Prints, format!("groups list -b {addr} --json")),
        row(Kind::Fails, format!("groups show news nobody -b {addr}")),
        row(Kind::Fails, format!("groups reset news nobody --to oldest -b {addr}")),
        row(Kind::Fails, format!("groups delete news nobody -b {addr}")),
        row(Kind::Prints, format!("topics -b {addr}")),
        row(Kind::Prints, format!("topics -b {addr} --json")),
    ]
}

#[test]
fn each_command_ends_whatever_is_in_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept").display().to_string();
    let broker = BrokerProcess::start_with(&["--keep", &kept]);
    broker.publish_all("news", b"one\ntwo\n");
    let rows = [of_brokers(&broker.addr), of_files(folder.path()), of_certificates(folder.path())].concat();
    check_ends(env!("CARGO_BIN_EXE_rbmq"), &rows, folder.path());
}
