//! Clients of gateways in a cluster: what they publish goes to the owner of the log, whichever member they are connected to.

use std::path::Path;

use rbmq::{Publisher, StartFrom, Subscriber};
use testkit::{Etcd, LONG, own_addr, until};

use crate::common::BrokerProcess;
use crate::common::operator::Operated;
use crate::gateways::Redis;

/// A member that keeps a space, and topics with logs of their own.
fn config(folder: &Path, n: usize, etcd: &Etcd) -> String {
    let path = folder.join(format!("{n}.toml"));
    let text = format!(
        "[broker]\nkeep_dir = '{}'\nkeep_sync_ms = 10\n[[broker.topics]]\npattern = 'd/#'\nspace = true\nkeep = true\n\
         [[broker.topics]]\npattern = 'k/#'\nkeep = true\ningest = 'merge'\n[[broker.topics]]\npattern = '#'\n\
         [cluster]\nname = 'test'\nid = 'm{n}'\nttl_ms = '2s'\netcd = {:?}\n",
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
    let config = |n| config(folder.path(), n, &etcd);
    let mut owner = BrokerProcess::start_with(&["--config", &config(0)]);
    // Who publishes first asks for the log, and the only member gets it.
    owner.publish_all("d/1", b"first\n");
    owner.publish_all("k/1", b"first\n");
    let (addr, other) = (own_addr(), config(1));
    let start = || Operated::start_at(&addr, &["--config", &other, "--gateway", "resp:127.0.0.1:0"], &[]);
    let member = start();
    let address = member.wait_said("rbmq: redis clients at ");
    let mut redis = Redis::connect(&address);
    publish_to_owner(&mut redis, &owner.addr, "d/1");
    publish_to_owner(&mut redis, &owner.addr, "k/1");
    redis.say("XADD k/1 * a b");
    let refused = redis.line();
    assert!(refused.contains("another member of the cluster has the log of 'k/1'"), "{refused}");
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
