//! Spaces with the commands, and a broker that is killed.

use rbmq::Publisher;
use rbmq_broker::UpstreamSettings;
use testkit::{LONG, Process, broker_with, rule, until};

use crate::common::{BrokerProcess, client, lines, piped};

#[test]
fn the_commands_know_the_topics_of_a_space_also_after_the_broker_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rbmq.toml");
    let text = format!(
        "[broker]\nkeep_dir = '{}'\n[[broker.topics]]\npattern = 'devices/#'\nspace = true\nkeep = true\n",
        dir.path().join("kept").display()
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    for round in 0..2 {
        let broker = BrokerProcess::start_with(&["--config", config]);
        for topic in ["devices/7/temp", "devices/7/door", "devices/8/temp"] {
            broker.publish_all(
                &format!("{topic} --confirm accepted"),
                lines(&format!("{round}{topic}"), 100).as_bytes(),
            );
        }
        broker.process.signal("KILL");
        broker.process.finish();
    }
    let broker = BrokerProcess::start_with(&["--config", config]);
    let one = broker.sub("devices/7/temp --from oldest --count 200").finish().good().text();
    assert_eq!(one, lines("0devices/7/temp", 100) + &lines("1devices/7/temp", 100));
    let temps = broker.sub("devices/+/temp --from oldest --count 400 --print-topic").finish().good().text();
    assert!(temps.lines().all(|line| {
        let (topic, message) = line.split_once('\t').unwrap();
        topic.ends_with("/temp") && message[1..].starts_with(topic)
    }));
    let json = broker.sub("devices/# --from oldest --count 600 --json").finish().good().text();
    // A position is one of the log, at which all of its topics resume.
    let at: serde_json::Value = serde_json::from_str(json.lines().nth(300).unwrap()).unwrap();
    assert_eq!(at["topic"], "devices/7/temp");
    let from = format!("{}:{}", at["epoch"].as_str().unwrap(), at["position"]);
    let rest = broker.sub(&format!("devices/8/temp --from {from} --count 100")).finish().good().text();
    assert_eq!(rest, lines("1devices/8/temp", 100));
    let file = dir.path().join("out");
    let refused = broker.sub(&format!("devices/7/temp --from oldest --output {}", file.display())).finish();
    assert!(!refused.status.success());
    let text = refused.stderr;
    assert!(
        text.contains("'devices/#' is a space of the broker, whose topics share one log: --output writes no"),
        "{text}"
    );
}

#[test]
fn files_are_written_of_topics_of_a_space_that_have_logs_of_their_own() {
    let first = broker_with(|_| {});
    let second = broker_with(|config| {
        config.broker.upstream = vec![UpstreamSettings::new(&first.addr())];
        config.broker.topics = vec![rule("d/#", |rule| rule.space = true)].into();
    });
    let [there, here] = [&first, &second].map(|broker| Publisher::connect(&broker.addr()).unwrap());
    let (mut own, mut of_space) = (there.topic("d/x").unwrap(), here.topic("d/y").unwrap());
    of_space.publish(b"in the space").unwrap();
    until("the topic", || second.topics().iter().any(|topic| topic.topic.as_str() == "d/x"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    let sub = |topics: &str, output: &std::path::Path| {
        let args = format!("{topics} --from oldest --count 1 --output {}", output.display());
        Process::start(piped(client("sub", &second.addr(), &args)))
    };
    let written = sub("d/x", &file);
    own.wait_subscribers(1, Some(LONG)).unwrap();
    own.publish(b"in a log of its own").unwrap();
    written.finish().good();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "in a log of its own\n");
    assert!(!sub("d/y", &dir.path().join("y")).finish().status.success());
}
