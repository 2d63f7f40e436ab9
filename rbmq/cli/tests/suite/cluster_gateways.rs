//! Clients of gateways in a cluster: what they publish goes to the owner of the log, whichever member they are connected to.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rbmq::{ConfirmLevel, Login, Publisher, StartFrom, Subscriber};
use rbmq_gateway::mqtt::codec::AckKind;
use testkit::{Etcd, LONG, own_addr, until};

use crate::common::BrokerProcess;
use crate::common::operator::Operated;
use crate::gateway_beside::{PASSWORD, acked, users};
use crate::gateways::Redis;
use crate::mqtt_kills::{Client, Message};

/// A member that keeps a space, and topics with logs of their own.
fn config(folder: &Path, n: usize, etcd: &Etcd, more: &str) -> String {
    let path = folder.join(format!("{n}.toml"));
    let text = format!(
        "[broker]\nkeep_dir = '{}'\nkeep_sync_ms = 10\n[[broker.topics]]\npattern = 'd/#'\nspace = true\nkeep = true\n\
         [[broker.topics]]\npattern = 'k/#'\nkeep = true\ningest = 'merge'\n[[broker.topics]]\npattern = '#'\n\
         [cluster]\nname = 'test'\nid = 'm{n}'\nttl_ms = '5s'\netcd = {:?}\n{more}",
        folder.join(format!("kept-{n}")).display(),
        etcd.endpoints(),
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn expect(subscriber: &mut Subscriber, topic: &str, text: &str) {
    let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
    assert_eq!((message.topic.as_str(), &*message.bytes), (topic, text.as_bytes()));
}

/// Publishes by way of a gateway until a subscriber of the owner has it: a message that comes while the topic is on its way may be refused.
fn publish_to_owner(redis: &mut Redis, owner: &str, topic: &str) {
    let mut subscriber = Subscriber::connect(owner).unwrap();
    subscriber.subscribe_from(topic, StartFrom::Oldest).unwrap();
    expect(&mut subscriber, topic, "first");
    redis.say(&format!("PUBLISH {topic} second"));
    assert!(redis.line().starts_with(':'));
    expect(&mut subscriber, topic, "second");
}

#[test]
fn clients_of_gateways_publish_to_the_member_that_has_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let config = |n| config(folder.path(), n, &etcd, "");
    let mut owner = BrokerProcess::start_with(&["--config", &config(0)]);
    // Who publishes first asks for the log, and the only member gets it.
    owner.publish_all("d/1", b"first\n");
    owner.publish_all("k/1", b"first\n");
    let (addr, other) = (own_addr(), config(1));
    let args = ["--config", &other, "--gateway", "resp:127.0.0.1:0", "--gateway", "mqtt:127.0.0.1:0"];
    let start = || Operated::start_at(&addr, &args, &[]);
    let member = start();
    let address = member.wait_said("rbmq: redis clients at ");
    let mut redis = Redis::connect(&address);
    publish_to_owner(&mut redis, &owner.addr, "d/1");
    publish_to_owner(&mut redis, &owner.addr, "k/1");
    redis.say("XADD k/1 * a b");
    let refused = redis.line();
    assert!(refused.contains("another member of the cluster has the log of 'k/1'"), "{refused}");
    // In a space it comes back from the owner, which has stored it then.
    let mut mqtt = Client::connect(&member.wait_said("rbmq: mqtt clients at "), "m").unwrap().0;
    mqtt.publish(Message::new("d/1", "third", 1, 7)).unwrap();
    acked(&mut mqtt, AckKind::Puback, 7);
    // What is published at the owner comes to clients of the gateway.
    redis.say("SUBSCRIBE d/2");
    assert_eq!(redis.lines(6)[5], ":1");
    owner.publish_all("d/2", b"first\n");
    assert_eq!(redis.lines(7)[6], "first");
    drop(member);
    // A broker whose owner of a space is away serves its other clients, and ends when it is asked to.
    owner.process.signal("KILL");
    until("the owner is gone", || !owner.process.is_running());
    let member = start();
    member.wait_log("not ready: a gateway waits for its broker in vain");
    let mut subscriber = Subscriber::connect(&member.addr).unwrap();
    subscriber.subscribe("plain").unwrap();
    let publisher = Publisher::connect(&member.addr).unwrap();
    let mut writer = publisher.topic("plain").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    writer.publish(b"served").unwrap();
    expect(&mut subscriber, "plain", "served");
    let owner = BrokerProcess::start_at(&owner.addr, &["--config", &config(0)]);
    let address = member.wait_said("rbmq: redis clients at ");
    let mut redis = Redis::connect(&address);
    redis.say("PUBLISH d/3 second");
    assert!(redis.line().starts_with(':'));
    let mut subscriber = Subscriber::connect(&owner.addr).unwrap();
    subscriber.subscribe_from("d/3", StartFrom::Oldest).unwrap();
    expect(&mut subscriber, "d/3", "second");
}

/// A member that publishes for its clients at another one logs in there as itself. Its clients have the rights that its own rules give them.
#[test]
fn a_gateway_logs_in_at_other_members_as_its_broker_does() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path(), 1) else { return };
    let users = users(folder.path(), "users.toml", &["member", "alice"]);
    let password = folder.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    std::fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let rule = |user: &str, topics: &str| {
        format!("[[access.rules]]\nusers = ['{user}']\npublish = ['{topics}']\nsubscribe = ['{topics}']\n")
    };
    let addrs = [own_addr(), own_addr()];
    let config = |n: usize| {
        let more = format!(
            "[users]\nfile = '{users}'\n{}{}[[broker.upstream]]\naddress = '{}'\nuser = 'member'\npassword_file = '{}'\n",
            rule("member", "#"),
            rule("alice", "d/#"),
            addrs[1 - n],
            password.display()
        );
        config(folder.path(), n, &etcd, &more)
    };
    let owner = BrokerProcess::start_at(&addrs[0], &["--config", &config(0)]);
    let login = || Login::default().user("member", PASSWORD);
    let publisher = Publisher::builder().login(login()).connect(&owner.addr).unwrap();
    let mut topic = publisher.topic("d/1").unwrap();
    let first = topic.publish(b"first").unwrap();
    topic.confirm(first, ConfirmLevel::Stored, Some(LONG)).unwrap();
    let member = config(1);
    let args = ["--config", &member, "--gateway", "resp:127.0.0.1:0"];
    let member = Operated::start_at(&addrs[1], &args, &[]);
    let mut redis = Redis::connect(&member.wait_said("rbmq: redis clients at "));
    redis.say(&format!("*3\r\n$4\r\nAUTH\r\n$5\r\nalice\r\n${}\r\n{PASSWORD}", PASSWORD.len()));
    assert_eq!(redis.line(), "+OK");
    redis.say("PUBLISH d/1 second");
    assert_eq!(redis.line(), ":0");
    redis.say("PUBLISH plain no");
    assert!(redis.line().starts_with("-NOPERM"));
    let mut subscriber = Subscriber::builder().login(login()).connect(&owner.addr).unwrap();
    subscriber.subscribe_from("d/1", StartFrom::Oldest).unwrap();
    expect(&mut subscriber, "d/1", "first");
    expect(&mut subscriber, "d/1", "second");
}
