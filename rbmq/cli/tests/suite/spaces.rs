//! Spaces with the commands, and a broker that is killed.

use crate::common::{BrokerProcess, lines};

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
