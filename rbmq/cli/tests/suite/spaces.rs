//! Spaces with the commands, and a broker that is killed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use rbmq::{Attributes, OutputState, Publisher};
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
    let arguments = format!("devices/7/temp --from oldest --count 200 --output {}", file.display());
    broker.sub(&arguments).finish().good();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), one);
}

/// The lines of all files of a directory, by file, without those that do not count yet.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let files = files.filter(|path| !OutputState::is_state_name(&name(path)));
    files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap_or_default())).collect()
}

/// The topics of [`topic`], of which some get nothing.
const TOPICS: usize = 13;

/// The topic of a message.
fn topic(message: usize) -> String {
    format!("devices/{}", message * message % TOPICS)
}

/// The files of the first messages.
fn expected(messages: usize) -> BTreeMap<String, String> {
    let mut all = BTreeMap::<String, String>::new();
    for message in 0..messages {
        *all.entry(topic(message).replace('/', "%2F")).or_default() += &format!("{message}\n");
    }
    all
}

/// However often the subscriber is killed, each topic of a space has a file with each of its messages once.
#[test]
fn the_files_of_a_space_have_each_message_once_also_after_kills() {
    const MESSAGES: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    let (config, out) = (dir.path().join("rbmq.toml"), dir.path().join("out"));
    let kept = dir.path().join("kept");
    let rule = "[[broker.topics]]\npattern = 'devices/#'\nspace = true\nkeep = true\n";
    std::fs::write(&config, format!("[broker]\nkeep_dir = '{}'\n{rule}", kept.display())).unwrap();
    std::fs::create_dir(&out).unwrap();
    let broker = BrokerProcess::start_with(&["--config", config.to_str().unwrap()]);
    let sub = |topics: &str| broker.sub(&format!("{topics} --from oldest --output {}", out.display()));
    let publisher = Publisher::connect(&broker.addr).unwrap();
    let mut space = publisher.space("devices/#").unwrap();
    // Deliveries of many messages, so that a run has several topics.
    let mut publish = |range: Range<usize>| {
        for messages in range.collect::<Vec<_>>().chunks(7) {
            let mut batch = space.batch(1 << 10, Some(LONG)).unwrap();
            for message in messages {
                let topic = topic(*message).parse().unwrap();
                batch.push(&topic, Attributes::EMPTY, message.to_string().as_bytes()).unwrap();
            }
            batch.deliver().unwrap();
        }
    };
    let size = || files(&out).values().map(String::len).sum::<usize>();
    for round in 0..10 {
        let before = size();
        let killed = sub("devices/#");
        publish(round * MESSAGES / 10..(round + 1) * MESSAGES / 10);
        until("it has written", || size() > before);
        killed.signal("KILL");
        killed.finish();
    }
    let last = sub("devices/#");
    until("all files are complete", || files(&out) == expected(MESSAGES));
    last.signal("TERM");
    last.finish();
    // Other filters want topics that were not wanted before, and what is there does not come twice.
    let other = sub("devices/+ devices/2 others/#");
    publish(MESSAGES..MESSAGES + 10);
    until("the new messages are there", || {
        files(&out).values().map(|text| text.lines().count()).sum::<usize>() >= MESSAGES + 10
    });
    other.signal("TERM");
    other.finish();
    let mut all = files(&out);
    // A topic that is named has a file in any case.
    assert_eq!(all.remove("devices%2F2").as_deref(), Some(""), "no square has this remainder");
    assert_eq!(all, expected(MESSAGES + 10));
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
    let file = dir.path().join("y");
    sub("d/y", &file).finish().good();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "in the space\n");
    // All topics of a space need a directory.
    let refused = sub("$space/d", &dir.path().join("all")).finish();
    assert!(!refused.status.success() && refused.stderr.contains("need a directory"), "{}", refused.stderr);
}
