//! The reliable mode on a simulated network that loses, repeats, delays and reorders datagrams, and restarts the receiver, from a
//! seed. A plain list of messages for each key is the oracle.
//!
//! `CMQ_SEED=7` replays a run; `CMQ_SEEDS=10000` sets the number of runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::Random;

use super::inbound::{Arrival, Inbound};
use super::link::Flight;
use super::out_stream::Fate;
use super::outbound::Outbound;
use crate::config::{Config, Reliable};
use crate::event::{Event, ReliableCounts, Undelivered};
use crate::key::Key;
use crate::proto::random::{addr, seeds};
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::sink::{Dropped, Room, Sink};
use crate::wire::{Body, Datagram, LinkName, Messages};

/// Mailboxes with limited room, and every message that arrived in them.
#[derive(Default)]
pub(super) struct Mailboxes {
    pub got: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Messages that were not popped yet.
    full: BTreeMap<u32, usize>,
    pub limit: usize,
    pub events: Vec<Event>,
}

impl Sink for Mailboxes {
    fn deliver(&mut self, from: Key, messages: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
        let waiting = self.full.entry(from.id).or_default();
        *waiting += messages.len();
        assert!(*waiting <= self.limit, "a full mailbox got a message");
        self.got.entry(from.id).or_default().extend(messages.iter().map(<[u8]>::to_vec));
        Dropped::default()
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn room(&mut self, id: u32) -> Room {
        let messages = self.limit - self.full.get(&id).copied().unwrap_or(0);
        Room { messages, bytes: usize::MAX }
    }
}

/// A datagram on its way: when it arrives, its number, whether the receiver gets it, its bytes.
type Flying = Reverse<(Instant, u64, bool, Vec<u8>)>;

pub(super) struct Net {
    pub now: Instant,
    pub start: Instant,
    random: Random,
    config: Config,
    settings: Reliable,
    pub sender: Outbound,
    pub receiver: Inbound,
    pub mailboxes: Mailboxes,
    epoch: u64,
    flying: BinaryHeap<Flying>,
    pub loss: u64,
    pub repeat: u64,
    pub delay: u64,
    pub jitter: u64,
    /// Each datagram to the receiver whose number is a multiple of this one is lost; 0 is none.
    pub drop_every: u64,
    /// Microseconds that each datagram needs beside the delay.
    pub extra_us: u64,
    /// No datagram arrives before this time.
    pub held_until: Instant,
    /// Calls of the system with segments.
    pub flights: usize,
    to_receiver: u64,
    count: u64,
    sent_bytes: usize,
    events: Vec<Event>,
}

const SENDER: u16 = 1;
const RECEIVER: u16 = 2;

impl Net {
    pub fn new(seed: u64, settings: Reliable, config: Config) -> Net {
        let mut random = Random::new(seed);
        let now = Instant::now();
        Net {
            now,
            start: now,
            sender: Outbound::new(&config, settings.clone(), 77),
            receiver: Inbound::new(&config, settings.clone(), 1000),
            mailboxes: Mailboxes { limit: usize::MAX, ..Mailboxes::default() },
            epoch: 1000,
            flying: BinaryHeap::new(),
            loss: random.below(31),
            repeat: random.below(10),
            delay: 1 + random.below(50),
            jitter: random.below(30),
            random,
            config,
            settings,
            drop_every: 0,
            extra_us: 0,
            held_until: now,
            flights: 0,
            to_receiver: 0,
            count: 0,
            sent_bytes: 0,
            events: Vec::new(),
        }
    }

    /// The address of the receiver.
    pub fn address() -> SocketAddr {
        addr(RECEIVER)
    }

    pub fn key(mailbox: u32) -> Key {
        Key { addr: addr(RECEIVER), id: mailbox }
    }

    fn fly(&mut self, to_receiver: bool, bytes: &[u8]) {
        self.sent_bytes += bytes.len();
        self.to_receiver += u64::from(to_receiver);
        if to_receiver && self.drop_every > 0 && self.to_receiver.is_multiple_of(self.drop_every) {
            return;
        }
        let copies =
            if self.random.percent(self.loss) { 0 } else { 1 + u64::from(self.random.percent(self.repeat)) };
        for _ in 0..copies {
            let delay = self.delay * 1000 + self.extra_us + self.random.below(self.jitter * 1000 + 1);
            self.count += 1;
            let arrives = (self.now + Duration::from_micros(delay)).max(self.held_until);
            self.flying.push(Reverse((arrives, self.count, to_receiver, bytes.to_vec())));
        }
    }

    fn fly_all(&mut self, flights: Vec<Flight>) {
        for flight in flights {
            assert_eq!(flight.to, addr(RECEIVER));
            self.flights += 1;
            flight.bytes.chunks(flight.segment).for_each(|bytes| self.fly(true, bytes));
        }
    }

    pub fn push(&mut self, mailbox: u32, message: &[u8]) -> u64 {
        let now = self.now;
        let (number, _) = self.sender.push(|| now, Net::key(mailbox), message, || 1400).expect("room");
        self.transmit();
        number
    }

    fn transmit(&mut self) {
        let mut flights = Vec::new();
        self.sender.transmit(self.now, &mut flights);
        self.fly_all(flights);
        self.events.extend(self.sender.take_events());
    }

    fn arrive(&mut self, to_receiver: bool, bytes: &[u8]) {
        let Datagram { header, body } = Datagram::parse(bytes).expect("a good datagram");
        match body {
            Body::Segment(segment) => {
                assert!(to_receiver);
                let arrival = Arrival { header, segment, datagram_bytes: bytes.len() };
                self.receiver.segment(self.now, addr(SENDER), arrival, &mut self.mailboxes);
                let limit = self.settings.receive_bytes + self.config.max_message;
                assert!(self.receiver.waiting_bytes() <= limit + 2000);
            }
            Body::Ack(ack) => {
                assert!(!to_receiver);
                self.sender.acknowledge(self.now, addr(RECEIVER), header.link(), &ack);
                self.transmit();
            }
            Body::End(end) => {
                assert!(to_receiver);
                self.receiver.end(addr(SENDER), header, end, &mut self.mailboxes);
            }
            _ => panic!("not a datagram of the reliable mode"),
        }
        let acks = self.receiver.take_acks();
        for (to, ack) in acks {
            assert_eq!(to, addr(SENDER));
            self.fly(false, &ack);
        }
    }

    /// Lets messages leave.
    pub fn flush(&mut self) {
        self.sender.flush();
        self.transmit();
    }

    /// Goes to the next arrival or deadline, or until then.
    pub fn step_until(&mut self, until: Instant) {
        let arrival = self.flying.peek().map(|Reverse((arrives, ..))| *arrives);
        let deadline = self.sender.next_deadline();
        let next = [arrival, deadline].into_iter().flatten().min().unwrap_or(until).min(until);
        self.now = self.now.max(next);
        if arrival.is_some_and(|arrival| arrival <= self.now) {
            let Reverse((_, _, to_receiver, bytes)) = self.flying.pop().expect("a datagram flies");
            self.arrive(to_receiver, &bytes);
        }
        self.receiver.expire(self.now);
        let mut flights = Vec::new();
        self.sender.expire(self.now, &mut flights);
        self.fly_all(flights);
        self.transmit();
    }

    /// Goes to the next arrival or deadline.
    pub fn step(&mut self) {
        assert!(self.now - self.start < Duration::from_secs(4000), "{:?}", self.sender.counts());
        self.step_until(self.now + Duration::from_secs(10));
    }

    fn run(&mut self, until: Instant) {
        while self.now < until {
            self.step_until(until);
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run(self.now + time);
    }

    /// Runs until everything is confirmed.
    pub fn settle(&mut self) {
        for _ in 0..4000 {
            if self.sender.buffered() == 0 {
                return;
            }
            self.run_for(Duration::from_millis(100));
        }
        panic!("{} bytes are never confirmed: {:?}", self.sender.buffered(), self.sender.counts());
    }

    fn restart_receiver(&mut self) {
        self.epoch += 1;
        self.receiver = Inbound::new(&self.config, self.settings.clone(), self.epoch);
    }
}

fn message(random: &mut Random, mailbox: u32, number: u64) -> Vec<u8> {
    let size = match random.below(20) {
        0 => 60_000 + random.below(80_000),
        1..4 => random.below(6000),
        _ => random.below(80),
    };
    let mut bytes = format!("{mailbox} {number} ").into_bytes();
    bytes.resize(bytes.len() + size as usize, number as u8);
    bytes
}

pub(super) fn settings() -> Reliable {
    Reliable::default().give_up(Duration::from_secs(120)).window(1 << 17)
}

/// Whatever the network does: every message arrives once, and in the order of its key, and is confirmed.
fn everything_arrives(seed: u64) {
    let config = Config::default()
        .timeout(Duration::from_millis(seed % 3 * 5))
        .qmessages(Some(1 + seed as usize % 40));
    let mut net = Net::new(seed, settings().receive_bytes(1 << 20), config.max_message(150_000));
    let mut sent: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
    for number in 0..net.random.below(150) {
        let mailbox = net.random.below(5) as u32;
        let message = message(&mut net.random, mailbox, number);
        let of_key = net.push(mailbox, &message);
        let all = sent.entry(mailbox).or_default();
        assert_eq!(of_key, all.len() as u64, "messages of a key are numbered");
        all.push(message);
        if net.random.percent(30) {
            let pause = net.random.below(200);
            net.run_for(Duration::from_millis(pause));
        }
    }
    net.settle();
    for (mailbox, all) in &sent {
        let got = net.mailboxes.got.get(mailbox).map_or(&[][..], Vec::as_slice);
        let other = got.iter().zip(all).position(|(one, other)| one != other);
        let counts = (net.sender.counts(), net.receiver.waiting_bytes(), net.now - net.start);
        assert_eq!((got.len(), other), (all.len(), None), "seed {seed}, mailbox {mailbox}: {counts:?}");
    }
    let counts = net.sender.counts();
    let count: usize = sent.values().map(Vec::len).sum();
    assert_eq!((counts.confirmed, counts.failed, counts.pushed), (count as u64, 0, count as u64));
    for (mailbox, all) in &sent {
        let last = all.len() as u64 - 1;
        assert_eq!(net.sender.fate(Net::key(*mailbox), last), Some(Fate::Confirmed));
        assert_eq!(net.sender.fate(Net::key(*mailbox), last + 1), None);
    }
    net.run_for(Duration::from_secs(20));
    assert_eq!((net.receiver.waiting_bytes(), net.flying.len()), (0, 0), "nothing waits, nothing is sent");
}

#[test]
fn every_message_arrives_once_and_in_order() {
    seeds(150, everything_arrives);
}

/// Receivers are restarted, and mailboxes are full for a while. Every message is confirmed or reported, and each run of the receiver gets
/// each message at most once, in order. A confirmed message has arrived.
fn confirmed_or_reported(seed: u64) {
    let mut net = Net::new(seed, settings().give_up(Duration::from_secs(5)), Config::default());
    net.mailboxes.limit = 20;
    let (mut pushed, mut ever) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, Vec<Vec<u8>>>::new());
    for number in 0..200_u64 {
        let mailbox = net.random.below(3) as u32;
        let count = pushed.entry(mailbox).or_default();
        let message = format!("{mailbox} {count}");
        *count += 1;
        net.push(mailbox, message.as_bytes());
        let pause = net.random.below(40);
        net.run_for(Duration::from_millis(pause));
        if number == 100 && seed.is_multiple_of(2) {
            net.restart_receiver();
        }
        if net.random.percent(20) {
            pop(&mut net, &mut ever);
        }
    }
    for _ in 0..400 {
        net.run_for(Duration::from_millis(100));
        pop(&mut net, &mut ever);
    }
    assert_eq!(net.sender.buffered(), 0, "seed {seed}: {:?}", net.sender.counts());
    check_fates(&net, &pushed, &ever);
}

/// Makes room in all mailboxes.
pub(super) fn pop(net: &mut Net, ever: &mut BTreeMap<u32, Vec<Vec<u8>>>) {
    net.mailboxes.full.clear();
    for (mailbox, got) in std::mem::take(&mut net.mailboxes.got) {
        ever.entry(mailbox).or_default().extend(got);
    }
    net.receiver.resume(&mut net.mailboxes);
    for (_, ack) in net.receiver.take_acks() {
        net.fly(false, &ack);
    }
}

fn check_fates(net: &Net, pushed: &BTreeMap<u32, u64>, ever: &BTreeMap<u32, Vec<Vec<u8>>>) {
    let mut reported = 0;
    for event in &net.events {
        if let Event::Undelivered { count, .. } = event {
            reported += count;
        }
    }
    let ReliableCounts { confirmed, failed, pushed: all, .. } = net.sender.counts();
    assert_eq!((confirmed + failed, reported), (all, failed));
    for (&mailbox, &count) in pushed {
        let got: Vec<u64> = ever.get(&mailbox).into_iter().flatten().map(|bytes| number(bytes)).collect();
        let backwards = got.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        assert!(backwards <= usize::from(net.epoch > 1000), "{got:?}");
        for message in 0..count {
            match net.sender.fate(Net::key(mailbox), message).expect("the message was pushed") {
                Fate::Confirmed => assert!(got.contains(&message), "{message} was confirmed"),
                Fate::Failed(_) => {}
                Fate::Pending => panic!("{message} is not decided"),
            }
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    let text = std::str::from_utf8(bytes).expect("text");
    text.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn every_message_is_confirmed_or_reported() {
    seeds(100, confirmed_or_reported);
}

/// Begins of large messages of many keys fill the memory of the receiver: it stays within its limit, and messages are confirmed, or
/// reported when that takes too long.
fn memory_is_bounded(seed: u64) {
    let config = Config::default().max_message(150_000);
    let settings = settings().receive_bytes(1 << 17).give_up(Duration::from_secs(20));
    let mut net = Net::new(seed, settings, config);
    let mut pushed = BTreeMap::<u32, u64>::new();
    for number in 0..30_u32 {
        let mailbox = number % 5;
        let count = pushed.entry(mailbox).or_default();
        let mut message = format!("{mailbox} {count} ").into_bytes();
        *count += 1;
        message.resize(100_000, b' ');
        net.push(mailbox, &message);
    }
    net.settle();
    let got = std::mem::take(&mut net.mailboxes.got);
    check_fates(&net, &pushed, &got);
}

#[test]
fn the_memory_of_a_receiver_is_bounded() {
    seeds(30, memory_is_bounded);
}

/// Without loss nothing is sent again, whatever the jitter once it is known, and the window grows until the path is used.
#[test]
fn a_good_path_is_used() {
    let mut net = Net::new(1, Reliable::default().window(1 << 24), Config::default());
    (net.loss, net.repeat, net.delay, net.jitter) = (0, 0, 20, 0);
    for number in 0..2000_u32 {
        net.push(number % 3, &[7; 1000]);
    }
    net.sender.flush();
    net.transmit();
    net.settle();
    let counts = net.sender.counts();
    assert_eq!((counts.repeated, counts.confirmed), (0, 2000), "{counts:?}");
    // 2 MB, from 14 kB on twice as much in each round trip of 40 ms.
    assert!(net.now - net.start < Duration::from_millis(500), "{:?}", net.now - net.start);
}

/// Nobody answers: the messages of each key are given up, the others too, and nothing is sent from then on.
#[test]
fn without_an_answer_messages_are_given_up() {
    let mut net = Net::new(1, Reliable::default().give_up(Duration::from_secs(3)), Config::default());
    net.loss = 100;
    net.push(1, b"one");
    net.push(2, b"two");
    net.run_for(Duration::from_secs(4));
    for mailbox in [1, 2] {
        let fate = net.sender.fate(Net::key(mailbox), 0);
        assert_eq!(fate, Some(Fate::Failed(Undelivered::NoAnswer)));
    }
    let sent = net.sent_bytes;
    net.run_for(Duration::from_secs(100));
    assert_eq!((net.sent_bytes, net.sender.next_deadline()), (sent, None));
    (net.loss, net.repeat) = (0, 0);
    assert_eq!(net.push(1, b"three"), 1, "numbers go on");
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.mailboxes.got[&1], [b"three".to_vec()]);
}

/// A full mailbox holds up its own key only, and is reported as the reason.
#[test]
fn a_full_mailbox_holds_up_its_key_only() {
    let mut net =
        Net::new(1, settings().give_up(Duration::from_secs(3)), Config::default().timeout(Duration::ZERO));
    (net.loss, net.repeat) = (0, 0);
    net.mailboxes.limit = 5;
    for number in 0..200_u32 {
        net.push(1, &[number as u8; 2000]);
    }
    net.run_for(Duration::from_secs(1));
    net.push(2, b"another key");
    net.run_for(Duration::from_secs(1));
    assert_eq!((net.mailboxes.got[&1].len(), net.mailboxes.got[&2].len()), (5, 1));
    assert!(net.receiver.is_stalled() && net.receiver.waiting_bytes() <= 1 << 17);
    net.run_for(Duration::from_secs(5));
    let fates = [0, 199].map(|number| net.sender.fate(Net::key(1), number));
    assert_eq!(fates, [Some(Fate::Confirmed), Some(Fate::Failed(Undelivered::Full))]);
    assert_eq!(net.sender.fate(Net::key(2), 0), Some(Fate::Confirmed));
    // Confirmed messages arrive when there is room, before later ones.
    let confirmed = (0..200).filter(|&n| net.sender.fate(Net::key(1), n) == Some(Fate::Confirmed)).count();
    assert!(confirmed > 5);
    net.push(1, b"later");
    let mut ever = BTreeMap::new();
    for _ in 0..100 {
        pop(&mut net, &mut ever);
        net.run_for(Duration::from_millis(50));
    }
    pop(&mut net, &mut ever);
    let got = &ever[&1];
    assert!(got.len() > confirmed && got.last().expect("a message") == b"later", "{} {confirmed}", got.len());
    assert!(got[..confirmed].iter().enumerate().all(|(n, message)| message[0] == n as u8));
}

/// Two links with the same round trip share a bottleneck: neither starves.
#[test]
fn two_links_share_a_path() {
    let shares = super::tests_share::bottleneck(Duration::from_secs(60));
    let [one, other] = shares;
    assert!(one * 3 > other && other * 3 > one, "{one} and {other} bytes");
}

/// A sender that is idle for longer than its receiver remembers begins anew, and loses nothing.
#[test]
fn an_idle_sender_begins_anew() {
    let mut net = Net::new(
        3,
        settings().give_up(Duration::from_secs(1)).idle(Duration::from_secs(30)),
        Config::default(),
    );
    (net.loss, net.repeat) = (0, 0);
    for number in 0..4_u8 {
        net.push(1, &[number]);
        net.settle();
        net.run_for(Duration::from_secs(11 * u64::from(number)));
        net.receiver.expire(net.now);
    }
    assert_eq!(net.mailboxes.got[&1], [[0], [1], [2], [3]]);
    assert_eq!((net.sender.counts().failed, net.events.len()), (0, 0));
}

/// Forged acknowledgements and segments change nothing.
#[test]
fn forged_datagrams_change_nothing() {
    use crate::wire::reliable::{Ack, Arrived, Credit};
    let mut net = Net::new(1, settings(), Config::default().timeout(Duration::ZERO));
    net.loss = 100;
    net.push(1, b"one");
    let from = addr(RECEIVER);
    let credits = [Credit { mailbox: 1, run: 1, limit: u64::MAX }];
    for (epoch, reset, ranges) in [(1, false, &[(0, 0)][..]), (77, false, &[(0, 5)]), (77, true, &[(0, 0)])] {
        let link = LinkName { stream: 78, epoch };
        let arrived = Arrived { taken: ranges, refused: &[] };
        let ack = Ack::encode(link, 1000, reset, arrived, &credits);
        let Datagram { header, body: Body::Ack(ack) } = Datagram::parse(&ack).expect("good") else {
            panic!()
        };
        assert!(!net.sender.acknowledge(net.now, from, header.link(), &ack));
    }
    assert_eq!(net.sender.fate(Net::key(1), 0), Some(Fate::Pending));
    let strange: SocketAddr = addr(9);
    let mut reset = Vec::new();
    crate::wire::reliable::Segment { receiver: 5, run: 1, offset: 0, bytes: b"" }.write(
        LinkName { stream: 1, epoch: 2 },
        3,
        4,
        &mut reset,
    );
    let Datagram { header, body: Body::Segment(segment) } = Datagram::parse(&reset).expect("good") else {
        panic!()
    };
    let arrival = Arrival { header, segment, datagram_bytes: reset.len() };
    net.receiver.segment(net.now, strange, arrival, &mut net.mailboxes);
    let acks = net.receiver.take_acks();
    assert!(acks.len() == 1 && acks[0].1.len() <= reset.len() + 8 && net.mailboxes.got.is_empty());
}
