//! The machine behind a socket and in front of a broker.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings};

use super::*;
use crate::Gateways;

/// Sends a packet, and reads packets until one begins as expected.
fn ask(stream: &mut TcpStream, packet: Packet<'_>, expected: &str) -> String {
    stream.write_all(&packet.encode(V5)).expect("the gateway reads");
    wait_for(stream, expected)
}

fn wait_for(stream: &mut TcpStream, expected: &str) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the gateway answers");
        bytes.extend_from_slice(&byte);
        if let Some(frame) = split(&bytes, usize::MAX).expect("a packet") {
            let words = in_words(&decode(V5, frame).expect("a packet"));
            if words.starts_with(expected) {
                return words;
            }
            bytes.clear();
        }
    }
}

fn connect(gateways: &Gateways, client_id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateways.list()[0].address()).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let connect = Connect {
        version: V5,
        clean_start: true,
        keep_alive: 0,
        properties: Properties::default(),
        client_id,
        will: None,
        user: None,
        password: None,
    };
    ask(&mut stream, Packet::Connect(connect), "CONNACK 00");
    stream
}

#[test]
fn messages_go_through_the_broker_with_their_properties() {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    let mut settings = GatewaySettings::new(GatewayProtocol::Mqtt);
    settings.listen = Some("127.0.0.1:0".into());
    config.outside.gateway.push(settings);
    let broker = Broker::start(config).expect("a broker starts");
    let gateways = Gateways::start(&broker).expect("its gateway starts");
    let (mut publisher, mut subscriber) = (connect(&gateways, "p"), connect(&gateways, "s"));
    let filters = Filters::of_subscribe(&[0, 3, b't', b'/', b'+', 2]);
    let request = Request { packet_id: 9, properties: Properties::default(), filters };
    ask(&mut subscriber, Packet::Subscribe(request), "SUBACK #9 02");
    let properties = encode_all(&[Property::User("k", "v"), Property::CorrelationData(b"c")]);
    for qos in [0, 1, 2] {
        let publish = Publish { properties: Properties::new(&properties), ..message("t/x", qos, "hello") };
        let answer = ["", "PUBACK #5 00", "PUBREC #5 00"][usize::from(qos)];
        match qos {
            0 => publisher.write_all(&Packet::Publish(publish).encode(V5)).expect("the gateway reads"),
            _ => drop(ask(&mut publisher, Packet::Publish(publish), answer)),
        }
        let got = wait_for(&mut subscriber, &format!("PUBLISH t/x q{qos}"));
        assert!(got.ends_with("hello User(\"k\", \"v\") CorrelationData([99])"), "{got}");
    }
    drop(gateways);
    wait_for(&mut subscriber, "DISCONNECT 8b");
}
