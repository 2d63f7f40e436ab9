//! Attacks on TLS, and hostile exchanges inside it: each has a required outcome, and others lose nothing meanwhile.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use rbmq::wire::{Control, Hello as ClientHello, Role};
use rbmq::{Publisher, Subscriber};
use rocketbufs::Config;
use rocketbufs::proto::Message;
use testkit::{LONG, Raw};

use super::exchange::Outcome;
use super::table::{self, Row};
use super::{
    Bystanders, MAX_GROWTH_KIB, TOPIC, bid_of, corpus, resident_kib, tls_certificates, tls_hello, tls_records,
};
use crate::common::BrokerProcess;
use crate::common::secure::{Secure, config, connect};
use crate::common::setup::Setup;

/// A fifth of the exchanges is repeated inside TLS.
const SHARE: usize = 5;

/// A part of an attack before the handshake is complete.
pub enum Step {
    Send(Vec<u8>),
    /// Waits for the first record of the broker.
    Hear,
    /// Sends nothing more.
    End,
}

/// An attack, and what must come of it.
pub struct Attack {
    family: &'static str,
    name: String,
    outcome: Outcome,
    run: Box<dyn Fn(&Target) -> Outcome>,
}

impl Attack {
    pub fn new(
        family: &'static str,
        name: &str,
        outcome: Outcome,
        run: impl Fn(&Target) -> Outcome + 'static,
    ) -> Self {
        Self { family, name: name.to_owned(), outcome, run: Box::new(run) }
    }

    /// Of bytes without keys.
    pub fn raw(family: &'static str, name: &str, steps: Vec<Step>, outcome: Outcome) -> Self {
        Self::new(family, name, outcome, move |target| raw(&target.open, &steps))
    }
}

impl<'a> From<&'a Attack> for Row<'a> {
    fn from(attack: &'a Attack) -> Self {
        Self { family: attack.family, name: &attack.name, outcome: attack.outcome.to_string() }
    }
}

/// The target of the attacks.
pub struct Target {
    /// A broker that asks no client for a certificate.
    pub open: String,
    /// A broker that requires certificates of clients.
    pub strict: String,
    pub setup: Setup,
}

impl Target {
    /// A connection to the open broker after a good handshake.
    pub fn connect(&self) -> Secure {
        secure(&self.setup, &self.open)
    }
}

fn secure(setup: &Setup, addr: &str) -> Secure {
    let client = config(&setup.file("tls/ca.pem"), None, &[b"rocketbufs/1"]);
    connect(client, addr).expect("a handshake")
}

/// Sends bytes of a client that has no keys. Harmless: the broker went on with the handshake.
fn raw(addr: &str, steps: &[Step]) -> Outcome {
    let mut stream = TcpStream::connect(addr).expect("a broker listens");
    stream.set_read_timeout(Some(LONG)).expect("a time");
    let mut ended = false;
    for step in steps {
        match step {
            // The broker may close the connection in the middle.
            Step::Send(bytes) => drop(stream.write_all(bytes)),
            Step::Hear => drop(record(&mut stream)),
            Step::End => {
                let _ = stream.shutdown(Shutdown::Write);
                ended = true;
            }
        }
    }
    loop {
        match record(&mut stream) {
            None => return Outcome::Closed,
            Some((21, content)) => return Outcome::Alert(content[1]),
            Some((22, _)) if !ended => return Outcome::Harmless,
            Some(_) => {}
        }
    }
}

/// The next record: its type and its content. None at the end.
pub fn record(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    read(stream, &mut head)?;
    let mut content = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    read(stream, &mut content)?;
    Some((head[0], content))
}

fn read(stream: &mut impl Read, bytes: &mut [u8]) -> Option<()> {
    match stream.read_exact(bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the broker hangs"),
        result => result.ok(),
    }
}

/// The outcome that an error of rustls tells.
pub fn outcome_of(error: &io::Error) -> Outcome {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => Outcome::Alert(u8::from(*alert)),
        _ => Outcome::Closed,
    }
}

/// A publisher and a subscriber over TLS; with their certificate, if it is named.
fn bystanders(setup: &Setup, addr: &str, own: Option<&str>) -> Bystanders {
    let mut config = Config::default();
    config.tls.mode = "require".into();
    config.tls.ca = Some(setup.text("tls/ca.pem"));
    config.tls.cert = own.map(|own| setup.text(&format!("tls/{own}.pem")));
    config.tls.key = own.map(|own| setup.text(&format!("tls/{own}-key.pem")));
    let publisher = Publisher::builder().config(config.clone()).connect(addr).expect("a broker");
    let subscriber = Subscriber::builder().config(config).connect(addr).expect("a broker");
    Bystanders::with(&publisher, subscriber, TOPIC)
}

fn broker(config: &Path) -> BrokerProcess {
    BrokerProcess::start_with(&["--config", config.to_str().expect("text")])
}

fn attacks(bid: u32) -> Vec<Attack> {
    let families = [
        tls_hello::offers(),
        tls_hello::messages(),
        tls_records::records(),
        tls_records::messages(),
        tls_records::ends(),
        tls_certificates::certificates(),
    ];
    families.into_iter().flatten().chain(inside(bid)).collect()
}

/// A share of the exchanges of clients without TLS, each after a good handshake. `bid` is of the buffer of the bystanders.
fn inside(bid: u32) -> Vec<Attack> {
    let shared = corpus(bid).into_iter().step_by(SHARE);
    shared
        .map(|exchange| {
            let name = format!("{}: {}", exchange.family, exchange.name);
            Attack::new("inside TLS", &name, exchange.outcome, move |target| {
                exchange.run_over(target.connect()).0
            })
        })
        .collect()
}

#[test]
fn every_attack_on_tls_ends_as_required_and_others_lose_nothing() {
    let setup = Setup::new();
    let mut open = broker(&setup.config(""));
    let mut strict = broker(&tls_certificates::strict(&setup));
    let target = Target { open: open.addr.clone(), strict: strict.addr.clone(), setup };
    let mut others = [
        bystanders(&target.setup, &open.addr, None),
        bystanders(&target.setup, &strict.addr, Some("client")),
    ];
    others.iter_mut().for_each(|others| others.go_on("the start"));
    let sizes = |brokers: [&BrokerProcess; 2]| brokers.map(|broker| resident_kib(broker.process.id()));
    let before = sizes([&open, &strict]);
    let attacks = attacks(bid_of(target.connect(), TOPIC));
    let mut wrong = Vec::new();
    for attack in &attacks {
        let outcome = (attack.run)(&target);
        if outcome != attack.outcome {
            wrong
                .push(format!("{}: {}: {outcome} instead of {}", attack.family, attack.name, attack.outcome));
        }
        others.iter_mut().for_each(|others| others.go_on(&attack.name));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), attacks.len(), wrong.join("\n"));
    assert!(open.process.is_running() && strict.process.is_running());
    for (after, before) in sizes([&open, &strict]).into_iter().zip(before) {
        let growth = after.saturating_sub(before);
        assert!(growth < MAX_GROWTH_KIB, "a broker has {growth} KiB more than before the attacks");
    }
    table::check("TLS_ATTACKS.md", table::TLS, &attacks);
}

/// The connections of [`a_flood`].
const CROWD: usize = 300;

/// Runs a flood while others publish and receive. The broker's memory stays bounded, and newcomers get in.
fn a_flood(what: &str, run: impl Fn(usize, &Target) -> TcpStream) {
    let setup = Setup::new();
    let mut broker = broker(&setup.config(""));
    let target = Target { open: broker.addr.clone(), strict: String::new(), setup };
    let mut others = bystanders(&target.setup, &broker.addr, None);
    others.go_on("the start");
    let before = resident_kib(broker.process.id());
    let crowd: Vec<TcpStream> = (0..CROWD).map(|n| run(n, &target)).collect();
    others.go_on(what);
    let hello = ClientHello { role: Role::Subscriber, client: 1, name: "newcomer".into() };
    let mut newcomer = Raw::over(target.connect()).welcome(1, hello.encode());
    newcomer.say(&Message::App(Control::Topics { filters: vec!["#".parse().expect("a filter")] }.encode()));
    let listed = |message| {
        matches!(message, Message::App(bytes) if matches!(Control::decode(&bytes), Ok(Control::Topic(_))))
            .then_some(())
    };
    newcomer.until("a topic", listed);
    let growth = resident_kib(broker.process.id()).saturating_sub(before);
    assert!(growth < MAX_GROWTH_KIB, "{what}: the broker has {growth} KiB more");
    drop(crowd);
    others.go_on(what);
    assert!(broker.process.is_running());
}

fn opened(addr: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).expect("a broker listens");
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn handshakes_that_stop_anywhere_cost_little() {
    let hello = tls_hello::good();
    a_flood("handshakes that stop", |n, target| opened(&target.open, &hello[..n % (hello.len() + 1)]));
}

#[test]
fn handshakes_of_large_messages_that_never_end_cost_little() {
    // The beginning of a message of 60 KiB.
    let part = [&b"\x16\x03\x01\x40\x00\x01\x00\xea\x60"[..], &[0; 16_380]].concat();
    a_flood("large messages", |n, target| opened(&target.open, &part[..part.len() - n]));
}

#[test]
fn connections_that_only_make_their_handshake_cost_little() {
    a_flood("idle connections", |_, target| target.connect().sock);
}
