//! Brokers that stop in order, and are started again.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rbmq::{ConfirmLevel, Publisher, Subscriber};
use rbmq_broker::{Broker, BrokerConfig, Cluster, ClusterMember, Owner, Parts, TopicName, UpstreamSettings};
use testkit::{own_addr, until};

use super::cluster::LONG;

/// A wait for this long is a failed test.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn config() -> BrokerConfig {
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.broker.drain_timeout_ms = FOR_EVER.as_millis() as u64;
    config.framework.limits.max_hold_ms = FOR_EVER.as_millis() as u32;
    config
}

/// The bytes that subscribers lack after the end.
fn stop(broker: Broker) -> u64 {
    let (done, ended) = sync_channel(1);
    std::thread::spawn(move || done.send(broker.stop()));
    ended.recv_timeout(LONG).expect("the broker ends, and waits for nobody who is not here")
}

#[test]
fn a_broker_that_stops_waits_for_no_subscriber_that_is_away() {
    let broker = Broker::start(config()).unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut writer = publisher.topic("t").unwrap();
    let durable = || {
        let builder = Subscriber::builder().durable("d", FOR_EVER);
        let mut subscriber = builder.connect(&broker.addr()).unwrap();
        subscriber.subscribe("t").unwrap();
        subscriber
    };
    let (mut away, mut here) = (durable(), Subscriber::connect(&broker.addr()).unwrap());
    here.subscribe("t").unwrap();
    until("both are there", || writer.subscribers() == 2);
    writer.publish(b"one").unwrap();
    assert_eq!(away.recv(Some(LONG)).unwrap().unwrap().bytes, b"one");
    drop(away);
    until("one is away", || writer.subscribers() == 1);
    writer.publish(b"two").unwrap();
    writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
    assert_eq!(stop(broker), 0);
    for text in [b"one", b"two"] {
        assert_eq!(here.recv(Some(LONG)).unwrap().unwrap().bytes, text);
    }
}

/// A member of a cluster that is alone in it.
struct Named(&'static str);

impl Cluster for Named {
    fn id(&self) -> Option<String> {
        Some(self.0.into())
    }

    fn owner(&self, _: &TopicName) -> Owner {
        Owner::Here { term: 1 }
    }

    fn members(&self) -> Vec<ClusterMember> {
        Vec::new()
    }
}

/// A member that receives from a broker, which keeps its places for ever.
fn member(name: &'static str, upstream: &str) -> Broker {
    let mut config = config();
    config.broker.upstream =
        vec![UpstreamSettings { hold_ms: FOR_EVER.as_millis() as u32, ..UpstreamSettings::new(upstream) }];
    Broker::start_with(config, Parts { cluster: Some(Arc::new(Named(name))), ..Parts::default() }).unwrap()
}

#[test]
fn a_member_that_is_started_again_takes_the_place_that_it_had() {
    let broker = Broker::start(config()).unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut writer = publisher.topic("t").unwrap();
    let mut has = |member: &Broker, text: &[u8]| {
        let mut subscriber = Subscriber::connect(&member.addr()).unwrap();
        subscriber.subscribe("t").unwrap();
        until("the member has the topic", || writer.subscribers() == 1);
        writer.publish(text).unwrap();
        // Behind what the broker still had.
        while subscriber.recv(Some(LONG)).unwrap().expect("the message").bytes != text {}
        let confirmed = writer.confirm(writer.position(), ConfirmLevel::Delivered, Some(LONG));
        confirmed.expect("nobody else is waited for");
    };
    let first = member("m", &broker.addr());
    has(&first, b"one");
    drop(first);
    // The place of its former process is kept, and nobody goes on with it.
    let second = member("m", &broker.addr());
    has(&second, b"two");
    assert_eq!(stop(second), 0);
    // So it is after an orderly end.
    let third = member("m", &broker.addr());
    has(&third, b"three");
}
