//! Gateways that are killed again and again, against clients that keep what MQTT wants them to keep.
//!
//! A publisher sends messages of QoS 1 and 2, and sends them again until they are acknowledged; a subscriber of each QoS writes down what it
//! gets. The seed draws who does what, who loses its connection, and when the gateway dies: with it goes what it had not written, what the
//! broker had not given back, and what nobody had read. `MQTT_KILLS=1000` plays so many seeds, `MQTT_KILL_SEED=7` one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::journal::Kept;
use super::*;

/// Seeds of a usual run.
const SEEDS: u64 = 12;

/// Steps of a seed.
const STEPS: u64 = 400;

/// Most messages of the publisher that are not acknowledged.
const UNACKNOWLEDGED: usize = 8;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

/// A message that is not done.
#[derive(Debug, Clone, Copy)]
struct Open {
    packet_id: u16,
    number: u32,
    qos: u8,
    /// PUBREC has come.
    recorded: bool,
}

/// Every third message is a retained one.
fn is_retained(number: u32) -> bool {
    number.is_multiple_of(3)
}

fn topic(number: u32) -> &'static str {
    if is_retained(number) { "t/retained" } else { "t/a" }
}

#[derive(Default)]
struct Publisher {
    conn: Option<ConnId>,
    /// CONNACK has come.
    is_in: bool,
    open: VecDeque<Open>,
    published: u32,
    last_id: u16,
    qos_retained: u8,
    qos: BTreeMap<u32, u8>,
}

impl Publisher {
    fn publish(&mut self, dice: &mut Dice, site: &mut Site) {
        if !self.is_in || self.open.len() >= UNACKNOWLEDGED {
            return;
        }
        self.published += 1;
        self.last_id = self.last_id % 20 + 1;
        let number = self.published;
        // Of one QoS: a message of QoS 1 that comes again would take the place of a later one of QoS 2, which does not.
        let qos = if is_retained(number) { self.qos_retained } else { 1 + dice.below(2) as u8 };
        while self.open.iter().any(|open| open.packet_id == self.last_id) {
            self.last_id = self.last_id % 20 + 1;
        }
        let open = Open { packet_id: self.last_id, number, qos, recorded: false };
        self.qos.insert(number, qos);
        self.open.push_back(open);
        self.send(open, false, site);
    }

    fn send(&self, open: Open, dup: bool, site: &mut Site) {
        let Some(conn) = self.conn else { return };
        let Open { packet_id, number, qos, recorded } = open;
        let properties = Properties::default();
        if recorded {
            let release = Ack { kind: AckKind::Pubrel, packet_id, reason: 0, properties };
            return site.0.feed(conn, Packet::Ack(release).encode(V5));
        }
        let payload = number.to_string();
        let publish =
            Publish { dup, packet_id, retain: is_retained(number), ..message(topic(number), qos, &payload) };
        site.0.feed(conn, Packet::Publish(publish).encode(V5));
    }

    fn take(&mut self, packet: &Packet<'_>, site: &mut Site) {
        let ack = match packet {
            Packet::Connack(connack) => {
                assert!(connack.session_present || self.published == 0, "the publisher's session");
                self.is_in = true;
                return self.open.clone().into_iter().for_each(|open| self.send(open, true, site));
            }
            Packet::Ack(ack) => ack,
            other => panic!("{other:?}"),
        };
        assert_eq!(ack.reason, 0, "{ack:?}");
        let at = self.open.iter().position(|open| open.packet_id == ack.packet_id).expect("a message");
        match (ack.kind, self.open[at].qos) {
            (AckKind::Puback, 1) | (AckKind::Pubcomp, 2) => _ = self.open.remove(at),
            (AckKind::Pubrec, 2) => {
                self.open[at].recorded = true;
                self.send(self.open[at], false, site);
            }
            _ => panic!("{ack:?}"),
        }
    }
}

struct Subscriber {
    id: &'static str,
    qos: u8,
    conn: Option<ConnId>,
    is_subscribed: bool,
    /// Messages of QoS 2 that are not released.
    unreleased: BTreeSet<u16>,
    got: Vec<u32>,
}

impl Subscriber {
    fn take(&mut self, packet: &Packet<'_>, site: &mut Site) {
        let Some(conn) = self.conn else { return };
        let mut ack = |kind, packet_id| {
            let ack = Ack { kind, packet_id, reason: 0, properties: Properties::default() };
            site.0.feed(conn, Packet::Ack(ack).encode(V5));
        };
        match packet {
            Packet::Connack(connack) if !connack.session_present => {
                assert!(!self.is_subscribed, "a subscriber's session");
                let bytes = [&[0, 3][..], b"t/+", &[self.qos]].concat();
                let (properties, filters) = (Properties::default(), Filters::of_subscribe(&bytes));
                let request = Request { packet_id: 9, properties, filters };
                site.0.feed(conn, Packet::Subscribe(request).encode(V5));
            }
            Packet::Connack(_) => {}
            Packet::Suback(_) => self.is_subscribed = true,
            Packet::Publish(publish) => {
                assert!(!publish.retain || !self.is_subscribed);
                let number = String::from_utf8_lossy(publish.payload).parse().expect("a number");
                if publish.qos == 1 {
                    self.got.push(number);
                    ack(AckKind::Puback, publish.packet_id);
                } else {
                    if self.unreleased.insert(publish.packet_id) {
                        self.got.push(number);
                    }
                    ack(AckKind::Pubrec, publish.packet_id);
                }
            }
            Packet::Ack(release) if release.kind == AckKind::Pubrel => {
                self.unreleased.remove(&release.packet_id);
                ack(AckKind::Pubcomp, release.packet_id);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A gateway and its clients.
struct Round {
    kept: Kept,
    site: Site,
    dice: Dice,
    publisher: Publisher,
    subscribers: [Subscriber; 2],
    kills: u64,
    /// Of these, between the pieces of a snapshot.
    within: u64,
}

impl Round {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Often enough that some die behind a snapshot, and in the middle of the log.
        let mut kept = Kept::with(Settings { max_inflight: 4, ..Settings::default() }, 1 << dice.below(16));
        // And some between its pieces.
        kept.piece_bytes = 1 << dice.below(12);
        let subscriber = |id, qos| {
            let (unreleased, got) = (BTreeSet::new(), Vec::new());
            Subscriber { id, qos, conn: None, is_subscribed: false, unreleased, got }
        };
        let site = kept.start();
        let publisher = Publisher { qos_retained: 1 + dice.below(2) as u8, ..Publisher::default() };
        let subscribers = [subscriber("s1", 1), subscriber("s2", 2)];
        Self { kept, site, dice, publisher, subscribers, kills: 0, within: 0 }
    }

    fn connect(&mut self, who: usize) {
        let (id, conn) = match who {
            0 => ("p", self.publisher.conn),
            who => (self.subscribers[who - 1].id, self.subscribers[who - 1].conn),
        };
        if conn.is_none() {
            let conn = Some(self.site.hello(Hello::lasting(V5, id)));
            match who {
                0 => self.publisher.conn = conn,
                who => self.subscribers[who - 1].conn = conn,
            }
        }
    }

    fn lose(&mut self, who: usize) {
        let conn = match who {
            0 => {
                self.publisher.is_in = false;
                self.publisher.conn.take()
            }
            who => self.subscribers[who - 1].conn.take(),
        };
        conn.into_iter().for_each(|conn| self.site.0.close(conn));
    }

    /// A client reads what there is for it. Returns whether there was something.
    fn read(&mut self, who: usize) -> bool {
        let conn = match who {
            0 => self.publisher.conn,
            who => self.subscribers[who - 1].conn,
        };
        let Some(conn) = conn else { return false };
        let bytes = self.site.0.got(conn);
        let mut rest = &bytes[..];
        while let Some(frame) = split(rest, usize::MAX).expect("packets") {
            let packet = decode(V5, frame).expect("a packet");
            match who {
                0 => self.publisher.take(&packet, &mut self.site),
                who => self.subscribers[who - 1].take(&packet, &mut self.site),
            }
            rest = &rest[frame.len..];
        }
        !bytes.is_empty()
    }

    fn kill(&mut self) {
        self.kills += 1;
        self.within += u64::from(self.site.0.protocol.snapshot.is_some());
        // What is before the last complete snapshot may have been removed.
        let needed = self.site.0.protocol.journal.as_ref().expect("a journal").needed_from();
        self.kept.first = needed * self.dice.below(2);
        (self.publisher.conn, self.publisher.is_in) = (None, false);
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.conn = None);
        // The former one has to let go of its files first.
        let unused = Mqtt::new(Settings::default(), Clock { at: Instant::now(), unix_ms: 0 }, 0);
        self.site.0.protocol = unused;
        self.site = self.kept.start_at(self.kills % 900);
    }

    fn step(&mut self) {
        let who = self.dice.below(3) as usize;
        match self.dice.below(20) {
            0 => self.kill(),
            1 => self.lose(who),
            2..=4 => self.connect(who),
            5..=9 => self.publisher.publish(&mut self.dice, &mut self.site),
            10..=12 => self.site.0.deliver(),
            13 => self.site.0.pass(Duration::from_secs(1)),
            _ => _ = self.read(who),
        }
    }

    /// Everything that is owed arrives.
    fn settle(&mut self) {
        loop {
            (0..3).for_each(|who| self.connect(who));
            self.site.0.deliver();
            let read = (0..3).filter(|who| self.read(*who)).count();
            if read == 0 && self.site.0.bus.published.is_empty() {
                return;
            }
        }
    }

    fn check(&mut self) {
        assert!(self.publisher.open.is_empty(), "{:?}", self.publisher.open);
        for subscriber in &self.subscribers {
            for (number, published) in &self.publisher.qos {
                let count = subscriber.got.iter().filter(|got| *got == number).count();
                let is_right = if subscriber.qos.min(*published) == 2 { count == 1 } else { count >= 1 };
                assert!(is_right, "{} got message {number} of QoS {published} {count} times", subscriber.id);
            }
        }
        let last = (1..=self.publisher.published).rev().find(|number| is_retained(*number));
        let late = self.site.plain(V311, "late");
        let got = self.site.subscribe_with(late, 0, &[("t/#", 0)]);
        let retained = got.iter().find_map(|word| word.strip_prefix("PUBLISH t/retained q0 retain "));
        assert_eq!(retained.map(str::to_owned), last.map(|last| last.to_string()));
    }
}

fn play(seed: u64) -> (u64, u64) {
    let mut round = Round::new(seed);
    // Both subscribe before the first message.
    (1..3).for_each(|who| round.connect(who));
    round.settle();
    (0..STEPS).for_each(|_| round.step());
    round.settle();
    round.check();
    // And it is still so for the next one.
    round.kill();
    round.settle();
    round.check();
    (round.kills, round.within)
}

#[test]
fn nothing_that_was_acknowledged_is_lost_and_qos_2_comes_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MQTT_KILL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MQTT_KILLS").unwrap_or(SEEDS),
    };
    let (mut kills, mut within) = (0, 0);
    for seed in seeds {
        // Shown if anything fails.
        println!("MQTT_KILL_SEED={seed} replays this round");
        let (killed, of_them) = play(seed);
        (kills, within) = (kills + killed, within + of_them);
    }
    println!("{kills} gateways were killed, {within} of them within a snapshot");
}
