//! The broker as an operator runs it: its log, its configuration while it runs, its end.

mod common;

use std::path::{Path, PathBuf};

use common::operator::Operated;
use common::{client, lines, piped, rbmq};

fn config(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("rbmq.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Asks the broker for a topic; what the publisher was told if it was refused.
fn publish(broker: &Operated, topic: &str) -> Result<(), String> {
    let mut process = common::Process::start(piped(client("pub", &broker.addr, topic)));
    process.feed(b"hello\n");
    let outcome = process.finish();
    if outcome.status.success() { Ok(()) } else { Err(outcome.stderr) }
}

#[test]
fn the_log_is_lines_for_people_or_objects_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[log]\nformat = 'json'\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "news").unwrap();
    broker.wait_log("is down");
    let log = broker.end();
    for line in log.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let time = object["timestamp"].as_str().unwrap();
        // RFC 3339 in UTC.
        assert!(time.len() >= 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z'), "{time}");
        assert!(object["message"].is_string() && object["level"].is_string() && object["target"].is_string());
    }
    assert!(log.contains("topic 'news'"), "{log}");
    let path = config(dir.path(), "[log]\nlevel = 'warn'\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "news").unwrap();
    assert_eq!(broker.end(), "", "a broker that is asked for warnings is quiet when there are none");
}

#[test]
fn a_reload_applies_what_it_can_and_names_what_it_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[log]\nlevel = 'info'\n[broker]\nmax_topics = 1\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "one").unwrap();
    let refused = publish(&broker, "two").unwrap_err();
    assert!(refused.contains("its limit (broker.max_topics) is 1"), "{refused}");
    config(
        dir.path(),
        "[log]\nlevel = 'debug'\n[broker]\nmax_topics = 2\nmax_ring_bytes = 65536\nlisten = '127.0.0.1:1'\n[tcp]\nnodelay = false\n",
    );
    broker.signal("HUP");
    broker.wait_log("reloaded");
    let log = broker.log();
    assert!(log.contains("in force now: broker.max_topics: 1 -> 2"), "{log}");
    assert!(log.contains("in force now: log.level: \"info\" -> \"debug\""), "{log}");
    assert!(log.contains("needs a restart: tcp.nodelay: true -> false"), "{log}");
    assert!(log.contains("3 changes in force, 1 need a restart"), "{log}");
    assert!(!log.contains("broker.listen"), "the command line decides that: {log}");
    publish(&broker, "two --ring-bytes 65536").unwrap();
    assert!(publish(&broker, "three").unwrap_err().contains("broker.max_ring_bytes"));
    assert!(publish(&broker, "three --ring-bytes 65536").unwrap_err().contains("(broker.max_topics) is 2"));
    broker.wait_log("DEBUG");
    broker.end();
}

#[test]
fn a_broken_file_changes_nothing_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[broker]\nmax_topics = 1\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "one").unwrap();
    for (text, why) in [
        ("[broker]\nmax_topics = 2\nmax_publishers = 0\n", "rbmq.toml, line 3)"),
        ("[broker\n", "rbmq.toml, line 1"),
        ("[broker]\nmax_topic = 2\n", "unknown field `max_topic`"),
    ] {
        config(dir.path(), text);
        broker.signal("HUP");
        broker.wait_log(why);
        assert!(publish(&broker, "two").unwrap_err().contains("(broker.max_topics) is 1"));
    }
    std::fs::remove_file(&path).unwrap();
    broker.signal("HUP");
    broker.wait_log("cannot read the configuration file");
    assert_eq!(broker.log().matches("not reloaded, everything stays as it was").count(), 4);
    // It goes on as before.
    assert!(publish(&broker, "one").is_ok());
    broker.end();
}

#[test]
fn without_a_file_there_is_nothing_to_reload() {
    let broker = Operated::start_with(&[]);
    broker.signal("HUP");
    broker.wait_log("nothing to reload");
    publish(&broker, "news").unwrap();
    broker.end();
}

#[test]
fn times_change_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[broker]\nclosed_linger_ms = 600000\n");
    let broker = Operated::start(&path, &["-v"]);
    config(dir.path(), "[broker]\nclosed_linger_ms = 1\n");
    broker.signal("HUP");
    broker.wait_log("in force now: broker.closed_linger_ms: 600000 -> 1");
    publish(&broker, "short").unwrap();
    broker.wait_log("topic 'short': buffer 1 is removed");
    broker.end();
}

#[test]
fn a_subscriber_has_everything_when_a_broker_has_ended_in_order() {
    let broker = Operated::start_with(&[]);
    let text = lines("news", 5_000);
    let sub = common::Process::start(client("sub", &broker.addr, "news --count 5000"));
    let mut publisher =
        common::Process::start(piped(client("pub", &broker.addr, "news --wait-subscribers 1")));
    publisher.feed(text.as_bytes());
    publisher.finish().good();
    broker.end();
    assert_eq!(sub.finish().good().text(), text);
}

#[test]
fn a_configuration_that_is_wrong_is_status_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[log]\nlevel = 'loud'\n");
    let outcome = common::Process::start(rbmq(["serve", "--config", path.to_str().unwrap()])).finish();
    assert_eq!(outcome.status.code(), Some(1));
    assert!(outcome.stderr.contains("log.level = \"loud\""), "{}", outcome.stderr);
}
