//! `rbmq gateway`: gateways in a process of their own, at a broker in another one.

use std::path::Path;
use std::time::Duration;

use access::{PasswordHash, UsersFile};
use rbmq::wire::Secret;
use rbmq::{Publisher, StartFrom, Subscriber};
use rbmq_gateway::mqtt::codec::AckKind;
use testkit::{LONG, Process, Proxy, own_addr, until};

use crate::common::operator::Operated;
use crate::common::{BrokerProcess, rbmq};
use crate::gateways::Redis;
use crate::mqtt_kills::{Client, Got, Message};

pub(crate) const PASSWORD: &str = "correct horse";

/// Gateways for clients of Redis and of MQTT.
pub(crate) struct Beside {
    pub(crate) process: Operated,
    redis: String,
    mqtt: String,
}

impl Beside {
    /// At a broker, with more arguments.
    pub(crate) fn start(broker: &str, args: &[&str]) -> Self {
        let own = ["resp:127.0.0.1:0", "mqtt:127.0.0.1:0", "--broker", broker];
        Self::of(Operated::gateway(&own.into_iter().chain(args.iter().copied()).collect::<Vec<_>>()))
    }

    pub(crate) fn of(process: Operated) -> Self {
        let redis = process.wait_said("rbmq: redis clients at ");
        let mqtt = process.wait_said("rbmq: mqtt clients at ");
        Self { process, redis, mqtt }
    }

    pub(crate) fn redis(&self) -> Redis {
        Redis::connect(&self.redis)
    }

    /// A client of Redis that has subscribed.
    fn redis_of(&self, channel: &str) -> Redis {
        let mut redis = self.redis();
        subscribe(&mut redis, channel);
        redis
    }

    pub(crate) fn mqtt(&self, id: &str) -> Client {
        Client::connect(&self.mqtt, id).expect("the gateway listens").0
    }

    pub(crate) fn mqtt_of(&self, id: &str, filter: &str, qos: u8) -> Client {
        let mut client = self.mqtt(id);
        client.subscribe(filter, qos);
        client
    }
}

fn subscribe(redis: &mut Redis, channel: &str) {
    redis.say(&format!("SUBSCRIBE {channel}"));
    assert_eq!(redis.lines(6)[2], "subscribe");
}

/// The payload of the next message.
fn message(redis: &mut Redis) -> String {
    let lines = redis.lines(7);
    assert_eq!(lines[2], "message", "{lines:?}");
    lines[6].clone()
}

pub(crate) fn say(redis: &mut Redis, command: &str) -> String {
    redis.say(command);
    redis.line()
}

pub(crate) fn acked(client: &mut Client, kind: AckKind, id: u16) {
    assert_eq!(client.next().expect("an answer"), Got::Ack(kind, id));
}

/// A native subscriber whose subscription is in force.
fn native(broker: &str, filter: &str) -> Subscriber {
    let mut native = Subscriber::connect(broker).expect("the broker listens");
    native.subscribe(filter).expect("a filter");
    while !native.is_settled() {
        native.next_event(Some(Duration::from_millis(1))).expect("a connection");
    }
    native
}

pub(crate) fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

/// A file of users who all have the same password.
pub(crate) fn users(dir: &Path, name: &str, users: &[&str]) -> String {
    let path = dir.join(name);
    let hash = PasswordHash::of(&Secret::from(PASSWORD.to_owned())).expect("a hash");
    let mut file = UsersFile::edit(&path).expect("a file");
    users.iter().for_each(|user| _ = file.set_password(user, &hash).expect("a name"));
    file.save().expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn everybody_meets_everybody_inside_of_the_broker_and_beside_it() {
    let broker = Operated::start_with(&["--gateway", "resp:127.0.0.1:0", "--gateway", "mqtt:127.0.0.1:0"]);
    let beside = Beside::start(&broker.addr, &[]);
    let inside = [broker.wait_said("rbmq: redis clients at "), broker.wait_said("rbmq: mqtt clients at ")];
    let mut redis_inside = Redis::connect(&inside[0]);
    subscribe(&mut redis_inside, "a/b");
    let mut redis = [redis_inside, beside.redis_of("a/b")];
    let (mut mqtt_inside, _) = Client::connect(&inside[1], "inside").expect("the gateway listens");
    mqtt_inside.subscribe("a/+", 2);
    let mut mqtt = [mqtt_inside, beside.mqtt_of("beside", "a/+", 2)];
    let mut native = native(&broker.addr, "a/b");

    assert_eq!(say(&mut Redis::connect(&inside[0]), "PUBLISH a/b from-redis-inside"), ":1");
    assert_eq!(say(&mut beside.redis(), "PUBLISH a/b from-redis-beside"), ":1");
    let mut publisher = beside.mqtt("publisher");
    for (id, qos) in [(1, 0), (2, 1), (3, 2)] {
        publisher.publish(Message::new("a/b", &format!("of-qos-{qos}"), qos, id)).expect("sent");
    }
    acked(&mut publisher, AckKind::Puback, 2);
    acked(&mut publisher, AckKind::Pubrec, 3);
    let own = Publisher::connect(&broker.addr).expect("the broker listens");
    own.topic("a/b").expect("a topic").publish(b"from-native").expect("room");

    let mut all =
        ["from-redis-inside", "from-redis-beside", "of-qos-0", "of-qos-1", "of-qos-2", "from-native"];
    all.sort_unstable();
    let check = |mut got: Vec<String>| {
        got.sort_unstable();
        assert_eq!(got, all);
    };
    redis.iter_mut().for_each(|redis| check(all.iter().map(|_| message(redis)).collect()));
    mqtt.iter_mut().for_each(|mqtt| check(all.iter().map(|_| mqtt.message().0).collect()));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    check(
        all.iter()
            .map(|_| text(&native.recv(Some(LONG)).expect("a message").expect("in time").bytes))
            .collect(),
    );

    let answer = say(&mut beside.redis(), "XADD a/b * x y");
    assert!(answer.starts_with("-ERR streams are read from the disk of the broker"), "{answer}");
    beside.process.end();
    assert_eq!(redis[1].line(), "", "the gateway has closed the connection");
    broker.end();
}

/// They keep the logs of their own broker, also where this one has a space for their names.
#[test]
fn topics_of_brokers_behind_the_broker_come_too() {
    let far = Operated::start_with(&[]);
    let near = Operated::start_with(&["--gateway", "resp:127.0.0.1:0", "--upstream", &far.addr]);
    let beside = Beside::start(&near.addr, &[]);
    let mut redis = beside.redis_of("far");
    let publisher = Publisher::connect(&far.addr).expect("the broker listens");
    let mut topic = publisher.topic("far").expect("a topic");
    topic.wait_subscribers(1, Some(LONG)).expect("the other broker subscribes");
    topic.publish(b"hello").expect("room");
    assert_eq!(message(&mut redis), "hello");
    beside.process.end();
    near.end();
    far.end();
}

/// Without a space each topic is opened when somebody publishes to it. Spaces that have no topic of clients yet are found then.
#[test]
fn a_broker_without_a_space_for_all_topics_will_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[broker.topics]]\npattern = 'own/#'\ningest = 'merge'\n\
                 [[broker.topics]]\npattern = 'devices/#'\nspace = true\n[[broker.topics]]\npattern = 'found/#'\nspace = true\n";
    let broker = Operated::start(Path::new(&write(dir.path(), "rbmq.toml", rules)), &[]);
    let beside = Beside::start(&broker.addr, &["--space", "devices/#"]);
    beside.process.wait_log("the broker has no space for all topics");
    for topic in ["plain", "own/x", "devices/1/t", "found/a", "found/b"] {
        let mut mqtt = beside.mqtt_of(&format!("of {topic}"), topic, 1);
        let (mut redis, mut native) = (beside.redis_of(topic), native(&broker.addr, topic));
        assert_eq!(say(&mut beside.redis(), &format!("PUBLISH {topic} one")), ":1");
        let mut publisher = beside.mqtt(&format!("to {topic}"));
        publisher.publish(Message::new(topic, "two", 1, 1)).expect("sent");
        acked(&mut publisher, AckKind::Puback, 1);
        for text in ["one", "two"] {
            assert_eq!(message(&mut redis), text, "{topic}");
            assert_eq!(mqtt.message().0, text, "{topic}");
            let got = native.recv(Some(LONG)).expect("a message").expect("in time");
            assert_eq!((got.topic.as_str(), &got.bytes[..]), (topic, text.as_bytes()));
        }
    }
    let refused = rbmq(["gateway", "resp:127.0.0.1:0", "--broker", &broker.addr, "--space", "none/#"]);
    let refused = Process::start(refused).finish();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("this broker has no such space"), "{}", refused.stderr);
    beside.process.end();
    broker.end();
}

#[test]
fn a_command_without_gateways_is_wrong_usage_and_one_with_them_waits_for_its_broker() {
    let none = Process::start(rbmq(["gateway"])).finish();
    assert_eq!(none.status.code(), Some(2), "{}", none.stderr);
    assert!(none.stderr.contains("rbmq gateway resp mqtt"), "{}", none.stderr);
    let exposed = Process::start(rbmq(["gateway", "resp:0.0.0.0:0"])).finish();
    assert_eq!(exposed.status.code(), Some(1), "{}", exposed.stderr);
    assert!(exposed.stderr.contains("neither TLS nor users"), "{}", exposed.stderr);
    let addr = own_addr();
    let mut waiting = Process::start(rbmq(["gateway", "--json", "resp:127.0.0.1:0", "--broker", &addr]));
    let (mut log, mut line) = (waiting.stderr(), String::new());
    std::io::BufRead::read_line(&mut log, &mut line).expect("a line");
    assert!(
        line.contains("not ready: cannot connect to the broker at") && line.contains("trying again"),
        "{line}"
    );
    let broker = BrokerProcess::start_at(&addr, &[]);
    line.clear();
    std::io::BufRead::read_line(&mut waiting.stdout(), &mut line).expect("a line");
    let json: serde_json::Value = serde_json::from_str(&line).expect("an object");
    assert_eq!((json["protocol"].as_str(), json["broker"].as_str()), (Some("resp"), Some(&*addr)));
    assert_eq!(say(&mut Redis::connect(json["address"].as_str().expect("an address")), "PING"), "+PONG");
    waiting.signal("TERM");
    waiting.finish().good();
    drop(broker);
}

/// The broker answers nothing for longer than the test lasts.
#[test]
fn a_gateway_that_waits_for_an_answer_of_its_broker_hears_signals() {
    let dir = tempfile::tempdir().expect("a folder");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = silent.local_addr().expect("an address").to_string();
    let config = write(dir.path(), "gateway.toml", "[session]\nconnect_timeout_ms = 3600000\n");
    let waiting =
        Process::start(rbmq(["gateway", "resp:127.0.0.1:0", "--config", &config, "--broker", &addr]));
    let (_connection, _) = silent.accept().expect("it asks");
    waiting.signal("TERM");
    waiting.finish().good();
}

/// The broker is there, and lost before the gateway has begun.
#[test]
fn a_broker_that_is_lost_while_a_gateway_starts_is_waited_for() {
    let broker = BrokerProcess::start_with(&["--gateway", "resp:127.0.0.1:0"]);
    let proxy = Proxy::to(&broker.addr);
    // The first connection asks whether the broker is there; the hello of the second one does not arrive.
    proxy.stall_beyond(1);
    let mut waiting =
        Process::start(rbmq(["gateway", "--json", "resp:127.0.0.1:0", "--broker", &proxy.addr]));
    until("the gateway is asking", || proxy.is_stalled());
    proxy.cut();
    let mut log = std::io::BufRead::lines(waiting.stderr());
    assert!(log.any(|line| line.expect("text").contains("not ready: ")), "the gateway has ended");
    proxy.go_on();
    proxy.restore();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut waiting.stdout(), &mut line).expect("a line");
    let json: serde_json::Value = serde_json::from_str(&line).expect("an object");
    assert_eq!(say(&mut Redis::connect(json["address"].as_str().expect("an address")), "PING"), "+PONG");
    waiting.signal("TERM");
    waiting.finish().good();
}

/// The users of the gateway are its own. At the broker it is one user, whose rights bound those of all.
#[test]
fn logins_and_rights_are_those_of_the_gateway_and_the_gateway_is_a_user_of_the_broker() {
    let dir = tempfile::tempdir().expect("a folder");
    let (brokers, own) =
        (users(dir.path(), "brokers.toml", &["edge"]), users(dir.path(), "users.toml", &["alice"]));
    let rules = |user: &str, topics: &str| {
        format!("[[access.rules]]\nusers = ['{user}']\npublish = [{topics}]\nsubscribe = [{topics}]\n")
    };
    let of_broker = write(dir.path(), "rbmq.toml", &rules("edge", "'#'"));
    let broker =
        Operated::start(Path::new(&of_broker), &["--users", &brokers, "--gateway", "resp:127.0.0.1:0"]);
    let (good, bad) = (write(dir.path(), "good", PASSWORD), write(dir.path(), "bad", "wrong horse"));
    let refused = rbmq([
        "gateway",
        "mqtt:127.0.0.1:0",
        "--broker",
        &broker.addr,
        "--user",
        "edge",
        "--password-file",
        &bad,
    ]);
    let refused = Process::start(refused).finish();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("not accepted"), "{}", refused.stderr);

    let file = format!(
        "[[gateway]]\nprotocol = 'resp'\nlisten = '127.0.0.1:0'\n[[gateway]]\nprotocol = 'mqtt'\nlisten = '127.0.0.1:0'\n\
         [users]\nfile = '{own}'\n{}[[broker.upstream]]\naddress = '{}'\nuser = 'edge'\npassword_file = '{good}'\n",
        rules("alice", "'news/#'"),
        broker.addr
    );
    let file = write(dir.path(), "gateway.toml", &file);
    let beside = Beside::of(Operated::gateway(&["--config", &file]));
    let mut redis = beside.redis();
    assert!(say(&mut redis, "PUBLISH news/x 1").starts_with("-NOAUTH"));
    assert!(say(&mut redis, "AUTH alice wrong-horse").starts_with("-WRONGPASS"));
    assert!(say(&mut redis, "AUTH edge correct-horse").starts_with("-WRONGPASS"), "a user of the broker");
    redis.say(&format!("*3\r\n$4\r\nAUTH\r\n$5\r\nalice\r\n${}\r\n{PASSWORD}", PASSWORD.len()));
    assert_eq!(redis.line(), "+OK");
    assert_eq!(say(&mut redis, "PUBLISH news/x 1"), ":0");
    assert!(say(&mut redis, "PUBLISH other 1").starts_with("-NOPERM"));
    // What was published before may still come to a subscriber.
    subscribe(&mut redis, "news/y");
    // Whose user was removed is cut off by a reload.
    let mut edited = UsersFile::edit(Path::new(&own)).expect("a file");
    edited.delete_user("alice").expect("she is there");
    edited.save().expect("a file");
    beside.process.signal("HUP");
    assert_eq!(redis.line(), "", "the gateway has closed the connection");
    beside.process.wait_log("the users were read again");
    beside.process.end();
    broker.end();
}

#[test]
fn a_gateway_whose_user_has_no_rights_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let brokers = users(dir.path(), "brokers.toml", &["edge"]);
    let good = write(dir.path(), "good", PASSWORD);
    let rule = |words: &str| format!("[[access.rules]]\nusers = ['edge']\n{words}\n");
    let start = |rules: &str, name: &str| {
        let rules = write(dir.path(), name, rules);
        Operated::start(Path::new(&rules), &["--users", &brokers, "--gateway", "resp:127.0.0.1:0"])
    };
    let broker = start(&rule("publish = ['#']"), "a.toml");
    let login = ["--user", "edge", "--password-file", &good];
    let refused = rbmq(["gateway", "resp:127.0.0.1:0", "--broker", &broker.addr].into_iter().chain(login));
    let refused = Process::start(refused).finish();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("the broker refuses what the gateway is to receive"),
        "{}",
        refused.stderr
    );
    broker.end();
    let broker = start(&rule("subscribe = ['#']"), "b.toml");
    let beside = Beside::start(&broker.addr, &login);
    beside.process.wait_log("everybody who reaches the gateways may do what their user may do");
    beside.process.wait_log("the gateway's user may not publish all topics");
    let mut publisher = beside.mqtt("publisher");
    publisher.publish(Message::new("a", "x", 1, 1)).expect("sent");
    assert_eq!(publisher.reason(), 0x83);
    beside.process.end();
    broker.end();
}

/// Kills a broker, and starts it at the same address.
pub(crate) fn restart(broker: BrokerProcess, args: &[&str]) -> BrokerProcess {
    let addr = kill(broker);
    BrokerProcess::start_at(&addr, args)
}

fn kill(broker: BrokerProcess) -> String {
    broker.process.signal("KILL");
    broker.process.finish();
    broker.addr
}

#[test]
fn clients_stay_while_the_broker_is_away_and_what_was_acknowledged_arrives() {
    const ROUNDS: u16 = 5;
    const COUNT: u16 = 100;
    let dir = tempfile::tempdir().expect("a folder");
    let config = write(dir.path(), "rbmq.toml", "[[broker.topics]]\npattern = '#'\nspace = true\n");
    let args = ["--config", &*config];
    let mut broker = BrokerProcess::start_with(&args);
    let beside = Beside::start(&broker.addr, &[]);
    let mut subscriber = beside.mqtt_of("subscriber", "t/+", 1);
    let (mut publisher, mut redis) = (beside.mqtt("publisher"), beside.redis());
    for round in 0..ROUNDS {
        let id = |n: u16| round * COUNT + n + 1;
        let publish = |publisher: &mut Client, n: u16| {
            let id = id(n);
            publisher.publish(Message::new(&format!("t/{}", n % 7), &id.to_string(), 1, id)).expect("sent");
        };
        (0..COUNT / 2).for_each(|n| publish(&mut publisher, n));
        if round % 2 == 1 {
            // Some of them are with the broker, and perhaps nowhere else.
            (0..COUNT / 4).for_each(|n| acked(&mut publisher, AckKind::Puback, id(n)));
        }
        let addr = kill(broker);
        (COUNT / 2..COUNT).for_each(|n| publish(&mut publisher, n));
        assert_eq!(say(&mut redis, "PING"), "+PONG");
        broker = BrokerProcess::start_at(&addr, &args);
        let first = if round % 2 == 1 { COUNT / 4 } else { 0 };
        (first..COUNT).for_each(|n| acked(&mut publisher, AckKind::Puback, id(n)));
        let mut missing: std::collections::BTreeSet<u16> = (0..COUNT).map(id).collect();
        while !missing.is_empty() {
            missing.remove(&subscriber.message().0.parse().expect("a number"));
        }
    }
    let log = beside.process.end();
    assert!(
        log.contains("not ready: the broker is away") && log.contains("ready: the broker is there again"),
        "{log}"
    );
}

/// More than the rings of the gateway keep: clients wait then, and nothing is lost.
#[test]
fn clients_wait_when_the_rings_are_full() {
    const COUNT: u16 = 200;
    let dir = tempfile::tempdir().expect("a folder");
    let config = write(dir.path(), "rbmq.toml", "[[broker.topics]]\npattern = '#'\nspace = true\n");
    let args = ["--config", &*config];
    let broker = BrokerProcess::start_with(&args);
    let beside = Beside::start(&broker.addr, &[]);
    let mut subscriber = beside.mqtt_of("subscriber", "t", 1);
    let mut publisher = beside.mqtt("publisher");
    let addr = kill(broker);
    let publishing = std::thread::spawn(move || {
        for id in 1..=COUNT {
            publisher.publish(Message::new("t", &format!("{id:060000}"), 1, id)).expect("sent");
        }
        (1..=COUNT).for_each(|id| acked(&mut publisher, AckKind::Puback, id));
    });
    let broker = BrokerProcess::start_at(&addr, &args);
    let mut missing: std::collections::BTreeSet<u16> = (1..=COUNT).collect();
    while !missing.is_empty() {
        missing.remove(&subscriber.message().0.parse().expect("a number"));
    }
    publishing.join().expect("all are acknowledged");
    beside.process.end();
    drop(broker);
}

/// What was in the space is refused, and each topic is its own from then on.
#[test]
fn a_broker_that_comes_back_without_its_space_is_used_without_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = write(dir.path(), "rbmq.toml", "[[broker.topics]]\npattern = '#'\nspace = true\n");
    let broker = BrokerProcess::start_with(&["--config", &config]);
    let beside = Beside::start(&broker.addr, &[]);
    let mut subscriber = beside.mqtt_of("subscriber", "t/+", 1);
    let mut publisher = beside.mqtt("publisher");
    publisher.publish(Message::new("t/1", "in the space", 1, 1)).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    assert_eq!(subscriber.message().0, "in the space");
    let broker = restart(broker, &[]);
    until("a message is acknowledged", || {
        publisher.publish(Message::new("t/1", "outside", 1, 1)).expect("sent");
        publisher.reason() == 0
    });
    assert_eq!(subscriber.message().0, "outside");
    beside.process.end();
    drop(broker);
}

/// A topic that the broker keeps has in its file what was acknowledged, also without a space.
#[test]
fn a_message_to_a_kept_topic_is_acknowledged_when_it_is_in_its_file() {
    const COUNT: u16 = 200;
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[broker.topics]]\npattern = 'kept/#'\nkeep = true\n[[broker.topics]]\npattern = 'both/#'\nkeep = true\nspace = true\n";
    let text = format!("[broker]\nkeep_dir = '{}'\n{rules}", dir.path().join("kept").display());
    let config = write(dir.path(), "rbmq.toml", &text);
    let args = ["--config", &*config];
    let broker = BrokerProcess::start_with(&args);
    let beside = Beside::start(&broker.addr, &["--space", "both/#"]);
    let mut publisher = beside.mqtt("publisher");
    for id in 1..=COUNT {
        let topic = ["kept/a", "both/a"][usize::from(id % 2)];
        publisher.publish(Message::new(topic, &id.to_string(), 1, id)).expect("sent");
    }
    (1..=COUNT).for_each(|id| acked(&mut publisher, AckKind::Puback, id));
    // Nothing of it comes from the gateway a second time.
    beside.process.kill();
    let broker = restart(broker, &args);
    let mut subscriber = Subscriber::connect(&broker.addr).expect("the broker listens");
    for topic in ["kept/a", "both/a"] {
        subscriber.subscribe_from(topic, StartFrom::Oldest).expect("a topic");
    }
    let mut missing: std::collections::BTreeSet<u16> = (1..=COUNT).collect();
    while !missing.is_empty() {
        let message = subscriber.recv(Some(LONG)).expect("a message").expect("in time");
        missing.remove(&String::from_utf8(message.bytes).expect("text").parse().expect("a number"));
    }
}

/// The journal of sessions is beside the gateway, and outlives it.
#[test]
fn sessions_outlive_the_gateway_in_its_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let keep = dir.path().join("sessions").to_str().expect("UTF-8").to_owned();
    let broker = BrokerProcess::start_with(&["--gateway", "resp:127.0.0.1:0"]);
    let args = ["--keep-dir", &*keep];
    let beside = Beside::start(&broker.addr, &args);
    drop(beside.mqtt_of("subscriber", "t", 1));
    let mut publisher = beside.mqtt("publisher");
    publisher.publish(Message::new("t", "waits", 1, 1)).expect("sent");
    publisher.publish(Message { retain: true, ..Message::new("r", "stays", 1, 2) }).expect("sent");
    acked(&mut publisher, AckKind::Puback, 1);
    acked(&mut publisher, AckKind::Puback, 2);
    beside.process.kill();
    let beside = Beside::start(&broker.addr, &args);
    let (mut subscriber, present) = Client::connect(&beside.mqtt, "subscriber").expect("the gateway listens");
    assert!(present);
    assert_eq!(subscriber.message(), ("waits".to_owned(), 1));
    let mut other = beside.mqtt_of("other", "r", 1);
    assert_eq!(other.message(), ("stays".to_owned(), 1));
    beside.process.end();
}

#[cfg(feature = "tls")]
#[test]
fn the_way_to_the_broker_and_that_of_clients_are_encrypted() {
    use std::io::{Read as _, Write as _};

    use crate::common::secure;
    use crate::common::setup::Setup;

    let setup = Setup::new();
    let broker = Operated::start(&setup.config(""), &["--gateway", "resp:127.0.0.1:0"]);
    let (tls, ca) = (setup.text("tls"), setup.text("tls/ca.pem"));
    let gateway = format!(
        "[[gateway]]\nprotocol = 'resp'\nlisten = '127.0.0.1:0'\ntls = 'require'\ncert = '{tls}/server.pem'\nkey = '{tls}/server-key.pem'\n"
    );
    let file = write(Path::new(&tls), "gateway.toml", &gateway);
    let beside = Operated::gateway(&["--config", &file, "--broker", &broker.addr, "--ca", &ca]);
    let address = beside.wait_said("rbmq: redis clients at ");
    let mut client =
        secure::connect(secure::config(Path::new(&ca), None, &[]), &address).expect("a handshake");
    client.write_all(b"PUBLISH a x\r\n").expect("sent");
    let mut answer = [0; 4];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b":0\r\n");
    beside.end();
    broker.end();
}

/// Publishers would wait for the place of a gateway that does not come back.
#[test]
fn a_gateway_that_stops_in_order_leaves_no_place_at_the_broker() {
    let dir = tempfile::tempdir().expect("a folder");
    let rule = "[[broker.topics]]\npattern = '#'\nspace = true\n";
    let broker = Operated::start(Path::new(&write(dir.path(), "rbmq.toml", rule)), &[]);
    let publisher = Publisher::connect(&broker.addr).expect("the broker listens");
    let space = publisher.space("#").expect("a space");
    let file = format!(
        "[[gateway]]\nprotocol = 'resp'\nlisten = '127.0.0.1:0'\n[[broker.upstream]]\naddress = '{}'\nhold_ms = '5m'\n",
        broker.addr
    );
    let beside = Operated::gateway(&["--config", &write(dir.path(), "gateway.toml", &file)]);
    beside.wait_said("rbmq: redis clients at ");
    until("the gateway has its place", || space.subscribers() == 1);
    beside.end();
    until("its place is gone", || space.subscribers() == 0);
    broker.end();
}
