//! `rbmq sub` with patterns.

use testkit::until;

use crate::common::{BrokerProcess, lines};

#[test]
fn sub_takes_patterns_and_writes_a_file_for_each_topic() {
    let broker = BrokerProcess::start();
    for topic in ["x/a", "x/b", "y/a"] {
        broker.publish_all(topic, lines(topic, 3).as_bytes());
    }
    let outcome = broker.sub("x/# --from oldest --until-closed --print-topic").finish().good();
    let mut found: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    found.sort_unstable();
    let expected = ["x/a\tx/a 0", "x/a\tx/a 1", "x/a\tx/a 2", "x/b\tx/b 0", "x/b\tx/b 1", "x/b\tx/b 2"];
    assert_eq!(found, expected);

    let dir = tempfile::tempdir().unwrap();
    let args = format!("+/a --from oldest --until-closed --output {}", dir.path().display());
    broker.sub(&args).finish().good();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    assert_eq!(read("x%2Fa"), lines("x/a", 3));
    assert_eq!(read("y%2Fa"), lines("y/a", 3));
    assert!(!dir.path().join("x%2Fb").exists());
    // A new process continues at the old position, and gets the messages and topics of the meantime.
    broker.publish_all("x/a", b"more\n");
    broker.publish_all("z/a", b"new\n");
    broker.sub(&args).finish().good();
    assert_eq!(read("x%2Fa"), lines("x/a", 3) + "more\n");
    assert_eq!(read("y%2Fa"), lines("y/a", 3));
    assert_eq!(read("z%2Fa"), "new\n");

    let refused = broker.sub("a/# --output /dev/null").finish();
    assert!(refused.stderr.contains("the topics of 'a/#' need a directory"), "{}", refused.stderr);
    let wrong = broker.sub("a/b#").finish();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("'#' must be a whole level"), "{}", wrong.stderr);
}

#[test]
fn sub_reports_patterns_without_a_publisher() {
    let broker = BrokerProcess::start();
    broker.publish_all("x/a", b"1\n");
    let mut sub = broker.sub("x/+ q/# --from oldest --count 2 --until-closed");
    let mut told = String::new();
    let mut stderr = sub.stderr();
    until("the command prints the broker that it waits for", || {
        std::io::BufRead::read_line(&mut stderr, &mut told).unwrap();
        told.contains("waiting for")
    });
    assert!(told.contains("waiting for a publisher of 'q/#'"), "{told}");
    broker.publish_all("q", b"2\n");
    assert_eq!(sub.finish().good().text(), "1\n2\n");
}
