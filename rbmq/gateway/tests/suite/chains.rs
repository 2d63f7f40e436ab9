//! Gateways of brokers that receive from other brokers: topics keep the logs of the brokers that they come from, also those whose names are in a
//! space of the gateway's broker.

use rbmq::{AttributesBuf, Publisher, Subscriber};
use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings, Rule, UpstreamSettings};

use crate::site::{Client, LONG, Site};

/// A broker with the space `devices/#`, out of which `devices/own/#` is taken.
fn with_a_space(set: impl FnOnce(&mut BrokerConfig)) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    let mut space = Rule::new("devices/#".parse().unwrap());
    space.space = true;
    config.broker.topics = vec![Rule::new("devices/own/#".parse().unwrap()), space].into();
    set(&mut config);
    Broker::start(config).expect("a broker starts")
}

/// A broker that receives from others, with gateways of both protocols.
fn behind(upstreams: &[&str]) -> Site {
    Site::with(GatewayProtocol::Resp, |config| {
        config.broker.upstream = upstreams.iter().map(|address| UpstreamSettings::new(address)).collect();
        // Not all topics are in the space of the gateways, so a subscription to all of them is one at the broker.
        config.broker.topics = vec![Rule::new("local/#".parse().unwrap())].into();
        let mut mqtt = GatewaySettings::new(GatewayProtocol::Mqtt);
        mqtt.listen = Some("127.0.0.1:0".into());
        config.outside.gateway.push(mqtt);
    })
}

/// Of MQTT 3.1.1, subscribed to a filter.
fn of_mqtt(site: &Site, id: u8, filter: &str) -> Client {
    let mut client = Client::to(site.address_of(GatewayProtocol::Mqtt));
    client.ask([0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, id], [0x20, 2, 0, 0]);
    let length = u8::try_from(filter.len()).unwrap();
    let mut packet = vec![0x82, length + 5, 0, 1, 0, length];
    packet.extend_from_slice(filter.as_bytes());
    packet.push(0);
    client.ask(packet, [0x90, 3, 0, 1, 0]);
    client
}

fn of_redis(site: &Site, command: &str, name: &str) -> Client {
    let mut client = site.client();
    let answer = format!("*3\r\n${}\r\n{command}\r\n${}\r\n{name}\r\n:1\r\n", command.len(), name.len());
    client.ask(format!("{command} {name}\r\n"), answer);
    client
}

fn expect_mqtt(client: &mut Client, topic: &str, text: &str) {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let mut packet = vec![0x30, 2 + length(topic) + length(text), 0, length(topic)];
    packet.extend_from_slice(topic.as_bytes());
    packet.extend_from_slice(text.as_bytes());
    client.expect(packet);
}

fn expect_redis(client: &mut Client, topic: &str, text: &str) {
    client.expect(format!(
        "*3\r\n$7\r\nmessage\r\n${}\r\n{topic}\r\n${}\r\n{text}\r\n",
        topic.len(),
        text.len()
    ));
}

fn expect_pattern(client: &mut Client, pattern: &str, topic: &str, text: &str) {
    let length = pattern.len();
    client
        .expect(format!("*4\r\n$8\r\npmessage\r\n${length}\r\n{pattern}\r\n${}\r\n{topic}\r\n", topic.len()));
    client.expect(format!("${}\r\n{text}\r\n", text.len()));
}

fn expect_native(subscriber: &mut Subscriber, topic: &str, text: &str) {
    let message = subscriber.recv(Some(LONG)).expect("a message").expect("in time");
    assert_eq!((message.topic.as_str(), &message.bytes[..]), (topic, text.as_bytes()));
}

/// What is published at a broker with a space comes to all clients of a broker behind: of topics of the space, of a topic that is taken out of it,
/// and of one that is in no space there.
#[test]
fn topics_of_another_broker_come_to_clients_of_gateways() {
    let first = with_a_space(|_| {});
    let second = behind(&[&first.addr()]);
    let mut native = Subscriber::connect(&second.broker.addr()).unwrap();
    native.subscribe("devices/+/temp").unwrap();
    let mut redis = of_redis(&second, "subscribe", "devices/7/temp");
    let mut patterns = of_redis(&second, "psubscribe", "*");
    let mut mqtt = of_mqtt(&second, b'm', "devices/+/temp");
    let publisher = Publisher::connect(&first.addr()).unwrap();
    let mut space = publisher.space("devices/#").unwrap();
    // The native one, and a gateway of each protocol.
    space.wait_subscribers(3, Some(LONG)).unwrap();
    let mut attributes = AttributesBuf::new();
    attributes.content_type("text/plain").unwrap();
    space.publish_to(&"devices/7/door".parse().unwrap(), &attributes, b"open").unwrap();
    space.publish_to(&"devices/7/temp".parse().unwrap(), &attributes, b"21.5").unwrap();
    expect_native(&mut native, "devices/7/temp", "21.5");
    expect_redis(&mut redis, "devices/7/temp", "21.5");
    expect_pattern(&mut patterns, "*", "devices/7/door", "open");
    expect_pattern(&mut patterns, "*", "devices/7/temp", "21.5");
    expect_mqtt(&mut mqtt, "devices/7/temp", "21.5");
    for topic in ["devices/own/temp", "news"] {
        let mut writer = publisher.topic(topic).unwrap();
        writer.publish(topic.as_bytes()).unwrap();
        expect_pattern(&mut patterns, "*", topic, topic);
    }
    expect_native(&mut native, "devices/own/temp", "devices/own/temp");
    expect_mqtt(&mut mqtt, "devices/own/temp", "devices/own/temp");
    // What a client says at its own broker comes in between, once.
    let mut other = second.client();
    other.ask("publish devices/7/temp here\r\n", ":2\r\n");
    expect_native(&mut native, "devices/7/temp", "here");
    expect_redis(&mut redis, "devices/7/temp", "here");
    expect_pattern(&mut patterns, "*", "devices/7/temp", "here");
    expect_mqtt(&mut mqtt, "devices/7/temp", "here");
    // The end of a client's subscription ends none of the gateway's.
    patterns.ask("punsubscribe *\r\n", "*3\r\n$12\r\npunsubscribe\r\n$1\r\n*\r\n:0\r\n");
    assert_eq!(space.subscribers(), 3);
    space.publish_to(&"devices/7/temp".parse().unwrap(), &attributes, b"22").unwrap();
    expect_redis(&mut redis, "devices/7/temp", "22");
}

/// Brokers with gateways that are upstreams of each other: what clients say at either comes to those of both, once.
#[test]
fn clients_of_gateways_of_two_brokers_meet() {
    let (first, second) = (testkit::own_addr(), testkit::own_addr());
    let start = |own: &str, other: &str| {
        Site::with(GatewayProtocol::Resp, |config| {
            config.broker.listen = own.to_owned();
            config.broker.upstream = vec![UpstreamSettings::new(other)];
        })
    };
    let sites = [start(&first, &second), start(&second, &first)];
    let mut readers = sites.each_ref().map(|site| of_redis(site, "subscribe", "a/b"));
    // The own log has the own gateway and the other broker, and the log of the other one has the own gateway.
    let subscribers = |site: &Site| {
        let topics = site.broker.topics();
        topics.iter().find(|topic| topic.topic.as_str() == "$space").map_or(0, |topic| topic.subscribers)
    };
    testkit::until("the logs of both", || sites.iter().all(|site| subscribers(site) == 3));
    for (n, site) in sites.iter().enumerate() {
        site.client().ask(format!("publish a/b from-{n}\r\n"), ":1\r\n");
        readers.iter_mut().for_each(|reader| expect_redis(reader, "a/b", &format!("from-{n}")));
    }
}

/// A kept space of a broker that is restarted goes on at the gateways behind.
#[test]
fn a_kept_space_goes_on_behind_after_a_restart() {
    let (dir, address) = (tempfile::tempdir().unwrap(), testkit::own_addr());
    let start = || {
        with_a_space(|config| {
            config.broker.listen.clone_from(&address);
            config.broker.keep_dir = dir.path().to_str().unwrap().into();
            let mut space = Rule::new("devices/#".parse().unwrap());
            (space.space, space.keep) = (true, true);
            config.broker.topics = vec![space].into();
        })
    };
    let first = start();
    let second = behind(&[&address]);
    let mut redis = of_redis(&second, "subscribe", "devices/7/temp");
    let mut mqtt = of_mqtt(&second, b'm', "devices/7/#");
    let publisher = Publisher::connect(&address).unwrap();
    let mut space = publisher.space("devices/#").unwrap();
    space.wait_subscribers(2, Some(LONG)).unwrap();
    let topic = "devices/7/temp".parse().unwrap();
    let mut expect = |text: &str| {
        expect_redis(&mut redis, "devices/7/temp", text);
        expect_mqtt(&mut mqtt, "devices/7/temp", text);
    };
    space.publish_to(&topic, &AttributesBuf::new(), b"before").unwrap();
    expect("before");
    drop(first);
    space.publish_to(&topic, &AttributesBuf::new(), b"meanwhile").unwrap();
    let _first = start();
    expect("meanwhile");
    space.publish_to(&topic, &AttributesBuf::new(), b"after").unwrap();
    expect("after");
}
