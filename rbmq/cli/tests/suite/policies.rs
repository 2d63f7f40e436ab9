//! The commands of publishers and subscribers under the rules of their broker.

use testkit::until;

use crate::common::{BrokerProcess, lines, piped, rbmq};

/// A broker process with these rules in its configuration.
fn process(rules: &str) -> (tempfile::TempDir, BrokerProcess) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    std::fs::write(&path, rules).unwrap();
    let broker = BrokerProcess::start_with(&["--config", path.to_str().unwrap()]);
    (dir, broker)
}

#[test]
fn an_offline_publisher_is_gone_after_the_time_of_its_rule() {
    let (_dir, broker) =
        process("[session]\nlinger_ms = 3600000\n[[broker.topics]]\npattern = 'brief/#'\nlinger_ms = 50\n");
    let mut writer = testkit::Process::start(piped(rbmq(["pub", "brief/a", "--broker", &broker.addr])));
    let mut stdin = writer.stdin();
    let sub = broker.sub("brief/# --from oldest --until-closed");
    std::io::Write::write_all(&mut stdin, lines("x", 3).as_bytes()).unwrap();
    let mut sub = sub;
    let mut received = String::new();
    let mut stdout = sub.stdout();
    until("the messages are there", || {
        std::io::BufRead::read_line(&mut stdout, &mut received).unwrap();
        received.lines().count() == 3
    });
    writer.signal("KILL");
    let outcome = sub.finish();
    assert_eq!(outcome.status.code(), Some(3), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("its publisher is gone"), "{}", outcome.stderr);
}

#[test]
fn sub_reports_refused_and_lowered_options() {
    let (_dir, broker) =
        process("[[broker.topics]]\npattern = 'fast'\npolicies = ['drop']\nmax_hold_ms = 2000\n");
    broker.publish_all("fast", b"1\n");
    broker.publish_all("slow", b"2\n");
    let refused = broker.sub("fast --policy block --from oldest --until-closed").finish();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("allowed: drop"), "{}", refused.stderr);
    for (args, told) in [
        ("fast --policy drop --name n --hold 60", Some("for 2s, not for 60s")),
        ("slow --name n --hold 3600", Some("for 600s, not for 3600s")),
        ("slow --name m --hold 60", None),
    ] {
        let outcome = broker.sub(&format!("{args} --from oldest --until-closed")).finish().good();
        assert_eq!(outcome.text().len(), 2, "{args}");
        match told {
            Some(told) => assert!(outcome.stderr.contains(told), "{args}: {}", outcome.stderr),
            None => assert!(!outcome.stderr.contains("less than was asked for"), "{}", outcome.stderr),
        }
    }
}

/// The subscriber needs longer for a ring than `block_timeout`, and makes progress in both topics all the time.
#[test]
fn a_slow_reader_of_two_publishers_is_waited_for() {
    let (_dir, broker) = process("[session]\nblock_timeout_ms = 4800\n");
    let texts = ["one", "two"].map(|name| lines(name, 40_000));
    // The test reads the output all the time, because a subscriber with a blocked output makes no progress.
    let sub = broker.sub("t --rate 50k --ring-bytes 256k -n 80000");
    let sub = std::thread::spawn(|| sub.finish());
    let publish = |text: &String| broker.publish("t --wait-subscribers 1 --ring-bytes 256k", text.as_bytes());
    let publishers = texts.each_ref().map(publish);
    publishers.into_iter().for_each(|publisher| drop(publisher.finish().good()));
    let received = sub.join().unwrap().good().text();
    for (name, text) in ["one", "two"].into_iter().zip(texts) {
        let own = received.lines().filter(|line| line.starts_with(name));
        assert_eq!(own.flat_map(|line| [line, "\n"]).collect::<String>(), text);
    }
}
