//! `rbmq gateway` at a broker whose rules change, or do not let it do everything.

use std::net::TcpListener;
use std::path::Path;

use access::{PasswordHash, UsersFile};
use rbmq::wire::Secret;
use rbmq::{StartFrom, Subscriber};
use rbmq_gateway::mqtt::codec::AckKind;
use testkit::{LONG, Process, own_addr, until};

use crate::common::operator::Operated;
use crate::common::{BrokerProcess, rbmq};
use crate::gateway_beside::{Beside, PASSWORD, acked, restart, say, users, write};
use crate::mqtt_kills::{Client, Message};

const SPACE: &str = "[[broker.topics]]\npattern = '#'\nspace = true\n";

/// A configuration whose space for all topics is kept in a folder, or in none.
fn config(dir: &Path, name: &str, keep: Option<&str>) -> String {
    let text = match keep {
        Some(keep) => format!("[broker]\nkeep_dir = '{}'\n{SPACE}keep = true\n", dir.join(keep).display()),
        None => SPACE.to_owned(),
    };
    write(dir, name, &text)
}

/// Publishes until the message is acknowledged as taken.
fn publish_until_taken(publisher: &mut Client, text: &str) {
    until("a message is taken", || {
        publisher.publish(Message::new("t", text, 1, 1)).expect("sent");
        publisher.reason() == 0
    });
}

/// Restarts the broker, and waits until the gateway has found it.
fn restart_for(beside: &Beside, broker: BrokerProcess, config: &str) -> BrokerProcess {
    const BACK: &str = "ready: the broker is there again";
    let count = || beside.process.log().matches(BACK).count();
    let before = count();
    let broker = restart(broker, &["--config", config]);
    until(BACK, || count() > before);
    broker
}

/// It is stored while the broker says that it keeps the topic, whatever it said before.
#[test]
fn a_broker_may_stop_to_keep_topics_and_begin_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = config(dir.path(), "kept.toml", Some("kept"));
    let unkept = config(dir.path(), "unkept.toml", None);
    let broker = BrokerProcess::start_with(&["--config", &kept]);
    let beside = Beside::start(&broker.addr, &[]);
    let mut publisher = beside.mqtt("publisher");
    publisher.publish(Message::new("t", "first", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    let broker = restart_for(&beside, broker, &unkept);
    publish_until_taken(&mut publisher, "in memory");
    let broker = restart_for(&beside, broker, &kept);
    publish_until_taken(&mut publisher, "last");
    // Nothing of it comes from the gateway a second time.
    beside.process.signal("KILL");
    let broker = restart(broker, &["--config", &kept]);
    let mut subscriber = Subscriber::connect(&broker.addr).expect("the broker listens");
    subscriber.subscribe_from("t", StartFrom::Oldest).expect("a topic");
    while subscriber.recv(Some(LONG)).expect("a message").expect("in time").bytes != b"last" {}
}

/// What it has lost was acknowledged or is refused. Others are stored in the new one.
#[test]
fn a_broker_may_lose_its_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second] =
        ["first", "second"].map(|name| config(dir.path(), name, Some(&format!("{name}.d"))));
    let broker = BrokerProcess::start_with(&["--config", &first]);
    let beside = Beside::start(&broker.addr, &[]);
    let (mut subscriber, mut publisher) = (beside.mqtt_of("subscriber", "t", 0), beside.mqtt("publisher"));
    publish_until_taken(&mut publisher, "stored");
    // Nobody asks whether these are, and they are more than the gateway keeps.
    for n in 0..200 {
        publisher.publish(Message::new("t", &format!("{n:060000}"), 0, 0)).expect("sent");
        subscriber.message();
    }
    let _broker = restart_for(&beside, broker, &second);
    publish_until_taken(&mut publisher, "stored again");
    publisher.publish(Message::new("t", "and again", 1, 2)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 2);
    beside.process.end();
}

/// Nothing comes back of a topic that the gateway may not subscribe to: nobody waits for it.
#[test]
fn a_session_without_the_right_to_its_topic_holds_up_no_publisher() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let (password, keep) = (write(dir.path(), "password", PASSWORD), dir.path().join("sessions"));
    let rules = "[[access.rules]]\nusers = ['edge']\npublish = ['a']\nsubscribe = ['other']\n";
    let rules = write(dir.path(), "rbmq.toml", rules);
    let broker = Operated::start(Path::new(&rules), &["--users", &brokers]);
    let keep = keep.to_str().expect("UTF-8");
    let args = ["--user", "edge", "--password-file", &password, "--keep-dir", keep];
    let beside = Beside::start(&broker.addr, &args);
    // The broker takes a filter with wildcards, and announces nothing of it.
    let (_subscriber, mut publisher) = (beside.mqtt_of("subscriber", "+", 1), beside.mqtt("publisher"));
    publisher.publish(Message::new("a", "x", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    publisher.publish(Message::new("a", "x", 2, 2)).expect("sent");
    acked(&mut publisher, AckKind::Pubrec, 2);
    beside.process.end();
    broker.end();
}

/// The gateway knows the rules of its last connection.
#[test]
fn topics_come_into_a_space_by_a_reload() {
    let dir = tempfile::tempdir().expect("a folder");
    let before = format!("[[broker.topics]]\npattern = 'own/#'\ningest = 'merge'\n{SPACE}");
    let file = write(dir.path(), "rbmq.toml", &before);
    let broker = Operated::start(Path::new(&file), &[]);
    let beside = Beside::start(&broker.addr, &[]);
    let (mut subscriber, mut publisher) = (beside.mqtt_of("subscriber", "#", 1), beside.mqtt("publisher"));
    publisher.publish(Message::new("own/a", "before", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    assert_eq!(subscriber.message().0, "before");
    write(dir.path(), "rbmq.toml", SPACE);
    broker.signal("HUP");
    broker.wait_log("reloaded");
    for topic in ["own/b", "own/b", "own/c"] {
        publisher.publish(Message::new(topic, topic, 1, 2)).expect("sent");
        acked(&mut publisher, AckKind::Puback, 2);
        assert_eq!(subscriber.message().0, topic);
    }
    beside.process.end();
    broker.end();
}

/// Stops a process until it is told to go on.
fn stop(process: &Operated) {
    process.signal("STOP");
    let threads = format!("/proc/{}/task", process.pid());
    until("all of its threads stand still", || {
        std::fs::read_dir(&threads).expect("a process").all(|thread| {
            let stat = std::fs::read_to_string(thread.expect("a thread").path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        })
    });
}

/// What the broker has is acknowledged before the connections are closed.
#[test]
fn a_gateway_that_stops_acknowledges_what_the_broker_has() {
    const COUNT: u16 = 100;
    let dir = tempfile::tempdir().expect("a folder");
    let broker = Operated::start(Path::new(&config(dir.path(), "rbmq.toml", None)), &[]);
    let beside = Beside::start(&broker.addr, &[]);
    let mut publisher = beside.mqtt("publisher");
    stop(&broker);
    (1..=COUNT).for_each(|id| publisher.publish(Message::new("t", "x", 1, id)).expect("sent"));
    // The gateway has taken all of it before it takes what comes behind.
    publisher.subscribe("u", 0);
    beside.process.signal("TERM");
    beside.process.wait_said("rbmq: shutting down");
    broker.signal("CONT");
    (1..=COUNT).for_each(|id| acked(&mut publisher, AckKind::Puback, id));
    beside.process.end();
    broker.end();
}

/// A supervisor would end it otherwise, and start it in vain.
#[test]
fn a_gateway_that_waits_for_its_broker_asks_its_supervisor_for_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("an address");
    for (broker, status) in [
        (own_addr(), "STATUS=not ready: cannot connect to the broker"),
        // A single attempt may take long.
        (silent.local_addr().expect("an address").to_string(), ""),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let notify = dir.path().join("notify");
        let socket = std::os::unix::net::UnixDatagram::bind(&notify).expect("a socket");
        socket.set_read_timeout(Some(LONG)).expect("a time-out");
        let mut command = rbmq(["gateway", "resp:127.0.0.1:0", "--broker", &broker]);
        command.env("NOTIFY_SOCKET", &notify);
        let waiting = Process::start(command);
        let tells = || {
            let mut bytes = [0; 512];
            let length = socket.recv(&mut bytes).expect("it tells something");
            let told = String::from_utf8_lossy(&bytes[..length]).into_owned();
            assert!(told.contains("EXTEND_TIMEOUT_USEC="), "{told}");
            told
        };
        let first = tells();
        assert!(!status.is_empty() || !first.contains("STATUS"), "before the attempt has failed: {first}");
        (0..2).for_each(|_| while !tells().contains(status) {});
        waiting.signal("TERM");
        waiting.finish().good();
    }
}

/// Of the topics without a space, each is asked for at the broker.
#[test]
fn clients_are_told_which_subscriptions_the_broker_refuses() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let good = write(dir.path(), "good", PASSWORD);
    let rules = "[quotas]\nuser_subscriptions = 2\n[[access.rules]]\nusers = ['edge']\npublish = ['a/#', 'b/#']\nsubscribe = ['a/#', 'b/#']\n";
    let rules = write(dir.path(), "rbmq.toml", rules);
    let broker = Operated::start(Path::new(&rules), &["--users", &brokers]);
    let beside = Beside::start(&broker.addr, &["--user", "edge", "--password-file", &good]);
    let (mut mqtt, mut redis) = (beside.mqtt("a"), beside.redis());
    for _ in 0..2 {
        assert_eq!(mqtt.ask_for("secret/x", 1), 0x87);
        assert_eq!(say(&mut redis, "SUBSCRIBE secret/x"), "-NOPERM No permissions to access a channel");
    }
    mqtt.subscribe("a/+", 1);
    assert_eq!(mqtt.ask_for("b/+", 1), 1);
    assert_eq!(mqtt.ask_for("a/1", 1), 0x97);
    assert!(say(&mut redis, "SUBSCRIBE a/1").starts_with("-ERR the broker takes no more subscriptions"));
    let mut publisher = beside.mqtt("publisher");
    publisher.publish(Message::new("a/1", "x", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    assert_eq!(mqtt.message().0, "x");
    beside.process.end();
    broker.end();
}

/// Another password is in force at the next connection.
#[test]
fn the_login_at_the_broker_is_read_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let password = write(dir.path(), "password", PASSWORD);
    let rules = "[[access.rules]]\nusers = ['edge']\npublish = ['#']\nsubscribe = ['#']\n";
    let config = write(dir.path(), "rbmq.toml", &format!("{SPACE}{rules}"));
    let args = ["--config", &*config, "--users", &*brokers];
    let broker = BrokerProcess::start_with(&args);
    let beside = Beside::start(&broker.addr, &["--user", "edge", "--password-file", &password]);
    let mut publisher = beside.mqtt("publisher");
    publisher.publish(Message::new("t", "before", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    let hash = PasswordHash::of(&Secret::from("another password".to_owned())).expect("a hash");
    let mut file = UsersFile::edit(Path::new(&brokers)).expect("a file");
    file.set_password("edge", &hash).expect("a name");
    file.save().expect("a file");
    write(dir.path(), "password", "another password");
    beside.process.signal("HUP");
    beside.process.wait_log("reloaded: ");
    let broker = restart(broker, &args);
    publisher.publish(Message::new("t", "after", 1, 2)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 2);
    beside.process.end();
    drop(broker);
}

/// The login of another broker waits for a restart, as its address does.
#[test]
fn a_login_is_for_one_broker_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let rules = "[[access.rules]]\nusers = ['edge']\npublish = ['#']\nsubscribe = ['#']\n";
    let config = write(dir.path(), "rbmq.toml", &format!("{SPACE}{rules}"));
    let args = ["--config", &*config, "--users", &*brokers];
    let broker = BrokerProcess::start_with(&args);
    let (password, other) =
        (write(dir.path(), "password", PASSWORD), write(dir.path(), "other", "of another"));
    let at = |address: &str, user: &str, password: &str| {
        let gateways = ["resp", "mqtt"]
            .map(|protocol| format!("[[gateway]]\nprotocol = '{protocol}'\nlisten = '127.0.0.1:0'\n"));
        let upstream = format!("address = '{address}'\nuser = '{user}'\npassword_file = '{password}'\n");
        write(dir.path(), "gateway.toml", &format!("{}[[broker.upstream]]\n{upstream}", gateways.concat()))
    };
    let beside = Beside::of(Operated::gateway(&["--config", &at(&broker.addr, "edge", &password)]));
    let mut publisher = beside.mqtt("publisher");
    at(&own_addr(), "another", &other);
    beside.process.signal("HUP");
    beside.process.wait_log("reloaded: ");
    let broker = restart(broker, &args);
    publisher.publish(Message::new("t", "after", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    beside.process.wait_log("another broker needs a restart");
    beside.process.end();
    drop(broker);
}

/// A session keeps its filter, of which nothing comes any more.
#[test]
fn what_the_broker_refuses_to_a_session_is_refused_to_others_until_it_is_allowed() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let (password, keep) = (write(dir.path(), "password", PASSWORD), dir.path().join("sessions"));
    let rules_of = |subscribe: &str| {
        let rule = "[[access.rules]]\nusers = ['edge']\npublish = ['x']\n";
        write(dir.path(), "rbmq.toml", &format!("{rule}subscribe = ['{subscribe}']\n"))
    };
    let broker = Operated::start(Path::new(&rules_of("x")), &["--users", &brokers]);
    let keep = keep.to_str().expect("UTF-8");
    let args = ["--user", "edge", "--password-file", &password, "--keep-dir", keep];
    let beside = Beside::start(&broker.addr, &args);
    drop(beside.mqtt_of("session", "x", 1));
    beside.process.end();
    let reload = |subscribe, count| {
        rules_of(subscribe);
        broker.signal("HUP");
        until("the rules are read", || broker.log().matches("reloaded").count() == count);
    };
    reload("other", 1);
    let beside = Beside::start(&broker.addr, &args);
    let (mut mqtt, mut publisher) = (beside.mqtt("client"), beside.mqtt("publisher"));
    assert_eq!(mqtt.ask_for("x", 1), 0x87);
    assert_eq!(mqtt.ask_for("x", 1), 0x87);
    publisher.publish(Message::new("x", "nobody waits for it", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    reload("x", 2);
    assert_eq!(mqtt.ask_for("x", 1), 1);
    publisher.publish(Message::new("x", "heard", 1, 2)).expect("sent");
    assert_eq!(mqtt.message().0, "heard");
    beside.process.end();
    broker.end();
}

/// The log of a space is read as a whole, or not at all.
#[test]
fn a_filter_within_a_space_that_the_gateway_may_not_read_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let good = write(dir.path(), "good", PASSWORD);
    let rules = format!("{SPACE}[[access.rules]]\nusers = ['edge']\nsubscribe = ['a/#']\n");
    let rules = write(dir.path(), "rbmq.toml", &rules);
    let broker = Operated::start(Path::new(&rules), &["--users", &brokers]);
    let beside = Beside::start(&broker.addr, &["--user", "edge", "--password-file", &good]);
    let mut mqtt = beside.mqtt("a");
    assert_eq!(mqtt.ask_for("a/+", 1), 0x87);
    assert_eq!(mqtt.ask_for("a/1", 1), 0x87);
    assert_eq!(say(&mut beside.redis(), "PSUBSCRIBE a/*"), "-NOPERM No permissions to access a channel");
    beside.process.end();
    broker.end();
}
