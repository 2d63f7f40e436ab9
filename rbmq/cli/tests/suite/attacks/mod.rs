//! A corpus of hostile exchanges: each has a required outcome, and others lose nothing meanwhile.
//!
//! docs/security/ATTACKS.md has the corpus as a table. `ATTACKS_WRITE=1 cargo test -p rbmq-cli --test suite attacks::` writes it anew.

mod broker;
mod credentials;
mod exchange;
mod floods;
mod framework;
mod gateways;
mod hellos;
#[cfg(feature = "tls")]
mod places;
mod strangers;
mod table;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_certificates;
#[cfg(feature = "tls")]
mod tls_hello;
#[cfg(feature = "tls")]
mod tls_records;

use std::io::{Read, Write};
use std::net::TcpStream;

use exchange::{Exchange, Outcome};
use rbmq::wire::{Control, Hello, Role};
use rbmq::{Publisher, Subscriber, TopicWriter};
use rocketbufs::proto::Message;
use testkit::{LONG, Raw, patient, resident_kib};

use crate::common::BrokerProcess;

/// The most memory that the attacks may add to the broker.
const MAX_GROWTH_KIB: u64 = 64 << 10;

/// The topic that no attack may disturb.
const TOPIC: &str = "bystanders";

/// A publisher and a subscriber that no attack may disturb.
struct Bystanders {
    writer: TopicWriter,
    subscriber: Subscriber,
    rounds: u64,
}

impl Bystanders {
    fn new(addr: &str) -> Self {
        Self::of(addr, TOPIC)
    }

    fn of(addr: &str, topic: &str) -> Self {
        let publisher = Publisher::builder().config(patient()).connect(addr).expect("a broker");
        let subscriber = Subscriber::builder().config(patient()).connect(addr).expect("a broker");
        Self::with(&publisher, subscriber, topic)
    }

    fn with(publisher: &Publisher, mut subscriber: Subscriber, topic: &str) -> Self {
        let writer = publisher.topic(topic).expect("a topic");
        subscriber.subscribe(topic).expect("a name");
        writer.wait_subscribers(1, Some(LONG)).expect("the subscriber");
        Self { writer, subscriber, rounds: 0 }
    }

    /// A message arrives, and none was lost or repeated since the round before.
    fn go_on(&mut self, after: &str) {
        self.rounds += 1;
        self.writer.publish(&self.rounds.to_le_bytes()).expect("a broker");
        let message = self.subscriber.recv(Some(LONG)).expect("a broker");
        let bytes = message.map(|message| message.bytes);
        assert_eq!(bytes, Some(self.rounds.to_le_bytes().to_vec()), "after {after}");
    }
}

/// The broker's number of the topic's buffer, which any client can ask for.
fn bid_of(stream: impl Read + Write, topic: &str) -> u32 {
    let hello = Hello { role: Role::Subscriber, client: 1, name: "curious".into() };
    let mut peer = Raw::over(stream).welcome(1, hello.encode());
    let ask = Control::Topics { filters: vec![topic.parse().expect("a filter")] };
    peer.say(&Message::App(ask.encode()));
    peer.until("TOPIC", |message| match message {
        Message::App(bytes) => match Control::decode(&bytes) {
            Ok(Control::Topic(topic)) => Some(topic.bid),
            _ => None,
        },
        _ => None,
    })
}

fn corpus(bid: u32) -> Vec<Exchange> {
    let families = [
        strangers::strangers(),
        hellos::hellos(),
        hellos::introductions(),
        framework::transfers(),
        framework::shapes(),
        framework::subscriptions(bid),
        broker::shapes(),
        broker::creations(),
        broker::patterns(),
        broker::requests(bid),
    ];
    families.into_iter().flatten().collect()
}

/// A reason is a line of printable text for people.
fn is_readable(reason: &str) -> bool {
    reason.len() > 10 && !reason.chars().any(char::is_control)
}

#[test]
fn every_exchange_ends_as_required_and_others_lose_nothing() {
    let mut broker = BrokerProcess::start();
    let mut bystanders = Bystanders::new(&broker.addr);
    let corpus = corpus(bid_of(TcpStream::connect(&broker.addr).expect("a broker listens"), TOPIC));
    bystanders.go_on("the start");
    let before = resident_kib(broker.process.id());
    let mut wrong = Vec::new();
    for exchange in &corpus {
        let (outcome, reason) = exchange.run(&broker.addr);
        let told = !matches!(outcome, Outcome::Bye(_) | Outcome::Rejected) || is_readable(&reason);
        if outcome != exchange.outcome || !told {
            wrong.push(format!(
                "{}: {}: {outcome} ({reason}) instead of {}",
                exchange.family, exchange.name, exchange.outcome
            ));
        }
        bystanders.go_on(&exchange.name);
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), corpus.len(), wrong.join("\n"));
    assert!(broker.process.is_running());
    let growth = resident_kib(broker.process.id()).saturating_sub(before);
    assert!(growth < MAX_GROWTH_KIB, "the broker has {growth} KiB more than before the attacks");
    table::check("ATTACKS.md", table::ATTACKS, &corpus);
}
