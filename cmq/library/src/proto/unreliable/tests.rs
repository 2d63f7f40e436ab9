//! Both machines on a simulated network that loses, duplicates, reorders and delays datagrams, from a seed.
//!
//! `CMQ_SEED=7` replays a run; `CMQ_SEEDS=10000` sets the number of runs.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use testkit::Random;

use super::batcher::{Batcher, Environment};
use super::receiver::Receiver;
use crate::config::{Config, Delivery};
use crate::event::{Event, ReceiveCounts};
use crate::key::Key;
use crate::proto::outgoing::MAX_SEGMENTS;
use crate::proto::random::addr;
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::sink::{Dropped, Sink};
use crate::wire::{Body, Datagram, MAX_DATAGRAM, Messages};

/// A clock that the test sets, and a path of a given size.
pub(super) struct World {
    pub now: Instant,
    pub path: usize,
}

impl Environment for World {
    fn now(&self) -> Instant {
        self.now
    }

    fn path(&self, _: SocketAddr) -> usize {
        self.path
    }
}

/// The messages of each mailbox, and the events.
#[derive(Default)]
pub(super) struct Got {
    pub messages: BTreeMap<u32, Vec<Vec<u8>>>,
    pub events: Vec<Event>,
}

impl Sink for Got {
    fn deliver(&mut self, from: Key, messages: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
        self.messages.entry(from.id).or_default().extend(messages.iter().map(<[u8]>::to_vec));
        Dropped::default()
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// All ready datagrams, with their addresses.
fn leave(batcher: &mut Batcher) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut left, mut outgoing) = (Vec::new(), batcher.queue.take_ready());
    while let Some(batch) = outgoing.first() {
        assert!(batch.bytes.len() <= MAX_DATAGRAM && batch.unsent_datagrams() <= MAX_SEGMENTS);
        left.extend(batch.unsent().chunks(batch.segment).map(|bytes| (batch.to, bytes.to_vec())));
        outgoing.mark_sent(batch.unsent_datagrams());
    }
    batcher.queue.give_back(outgoing);
    left
}

/// The network takes a batch two datagrams at a time: no datagram is lost or sent twice, and the batch counts
/// as sent after its last datagram.
#[test]
fn partial_sends_of_a_batch_continue() {
    let mut batcher = Batcher::new(&Config::default().qthresh(60_000).timeout(Duration::MAX), 1);
    let world = World { now: Instant::now(), path: 1200 };
    for number in 0..10_u8 {
        let message = [number; 700];
        batcher
            .push(Key::new(addr(1), 0), &world, |out| {
                out.extend_from_slice(&message);
                true
            })
            .expect("room");
    }
    batcher
        .push(Key::new(addr(1), 1), &world, |out| {
            out.push(7);
            true
        })
        .expect("room");
    batcher.flush(world.now);
    assert!(batcher.queue.ready()[0].unsent_datagrams() > 5);
    let (mut receiver, mut got) = (Receiver::new(&Config::default()), Got::default());
    let mut outgoing = batcher.queue.take_ready();
    while let Some(batch) = outgoing.first() {
        let (now, some) = (batch.unsent().chunks(batch.segment).take(2), batch.unsent_datagrams().min(2));
        now.for_each(|bytes| receiver.datagram(world.now, addr(2), bytes, &mut got));
        outgoing.mark_sent(some);
        assert!(
            outgoing.sent_messages == 0 || outgoing.sent_messages >= 10,
            "a batch counts when all of it has left"
        );
    }
    assert_eq!(outgoing.sent_messages, 11);
    batcher.queue.give_back(outgoing);
    assert_eq!(batcher.queue.pending, 0);
    assert_eq!(got.messages[&0], (0..10_u8).map(|number| vec![number; 700]).collect::<Vec<_>>());
    assert_eq!((got.messages[&1].len(), receiver.totals().counts.duplicated), (1, 0));
}

/// A step of the model test.
#[derive(Debug, Clone)]
enum Step {
    Push { key: u16, size: usize },
    Wait { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![0_usize..40, 900..1500_usize, 1500..9000_usize];
    let step = prop_oneof![
        5 => (0_u16..4, size).prop_map(|(key, size)| Step::Push { key, size }),
        1 => (0_u64..30).prop_map(|ms| Step::Wait { ms }),
    ];
    prop::collection::vec(step, 1..120)
}

/// Pushes a message as bytes or through an encoder.
fn push_either(batcher: &mut Batcher, to: Key, world: &World, message: &[u8], bytes: bool) -> bool {
    let encode = |out: &mut Vec<u8>| {
        out.extend_from_slice(message);
        true
    };
    let pushed = if bytes { batcher.push_bytes(to, world, message) } else { batcher.push(to, world, encode) };
    pushed.expect("room")
}

proptest! {
    /// A plain map of lists is the oracle: no message is lost or duplicated, each mailbox keeps its order, no
    /// datagram exceeds the path, and batches leave at their age and size and not before.
    #[test]
    fn batches_behave_as_a_list_for_each_key(steps in steps(), qthresh in 1_usize..4000, path in 1200_usize..3000) {
        let timeout = Duration::from_millis(20);
        let qmessages = 1 + qthresh % 9;
        let config = Config { qmessages: Some(qmessages), ..Config::default().qthresh(qthresh).timeout(timeout) };
        let mut batcher = Batcher::new(&config, 1);
        let mut world = World { now: Instant::now(), path };
        let mut model: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        let mut receiver = Receiver::new(&Config::default());
        let mut got = Got::default();
        // When each message of a mailbox was pushed, and its bytes.
        let mut pushed: BTreeMap<u32, Vec<(Instant, usize)>> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push { key, size } => {
                    let message: Vec<u8> = (0..size).map(|n| (n + number) as u8).collect();
                    let to = Key::new(addr(1), u32::from(key));
                    let due = batcher.next_deadline();
                    let news = push_either(&mut batcher, to, &world, &message, number % 2 == 0);
                    prop_assert!(news || (batcher.queue.ready().is_empty() && batcher.next_deadline() == due));
                    model.entry(to.id).or_default().push(message);
                    pushed.entry(to.id).or_default().push((world.now, size + 2));
                }
                Step::Wait { ms } => {
                    world.now += Duration::from_millis(ms);
                    batcher.expire(world.now);
                    prop_assert!(batcher.next_deadline().is_none_or(|deadline| deadline > world.now));
                }
            }
            for (to, bytes) in leave(&mut batcher) {
                prop_assert_eq!(to, addr(1));
                prop_assert!(bytes.len() <= path, "{} bytes on a path of {path}", bytes.len());
                receiver.datagram(world.now, addr(2), &bytes, &mut got);
            }
            // A batch may leave early, when the next message fits into none of its datagrams, and never late.
            for (id, all) in &pushed {
                let waits = &all[got.messages.get(id).map_or(0, Vec::len)..];
                prop_assert!(waits.len() < qmessages && waits.iter().map(|(_, size)| size).sum::<usize>() < qthresh);
                prop_assert!(waits.iter().all(|(since, _)| *since + timeout > world.now || batcher.next_deadline() <= Some(world.now)));
            }
        }
        batcher.close_all(world.now);
        for (_, bytes) in leave(&mut batcher) {
            receiver.datagram(world.now, addr(2), &bytes, &mut got);
        }
        prop_assert_eq!(batcher.queue.pending, 0);
        let total = model.values().map(Vec::len).sum::<usize>() as u64;
        prop_assert_eq!(&got.messages, &model);
        if total > 0 {
            prop_assert_eq!(got.events.last(), Some(&Event::Closed { from: addr(2), sent: total }));
        }
    }
}

/// The arrival time, the sequence number, the sender and the bytes of a datagram.
type Carried = (u64, u64, usize, Vec<u8>);

/// The simulated network.
struct Network {
    dice: Random,
    loss: u64,
    twice: u64,
    late: u64,
    /// The largest extra delay of a late datagram, in microseconds.
    jitter: u64,
    queue: BinaryHeap<std::cmp::Reverse<Carried>>,
    sent: u64,
    /// The messages that the network lost, for each sender.
    lost: Vec<Vec<u64>>,
    /// The lost fragments of each fragmented message.
    lost_fragments: HashMap<(usize, u64), usize>,
    spare: bool,
}

impl Network {
    fn carry(&mut self, now: u64, sender: usize, bytes: Vec<u8>) {
        let copies = if self.dice.below(1000) < self.loss {
            0
        } else {
            1 + u64::from(self.dice.below(1000) < self.twice)
        };
        if copies == 0 {
            self.note_loss(sender, &bytes);
        }
        for _ in 0..copies {
            let late = if self.dice.below(1000) < self.late { self.dice.below(self.jitter) } else { 0 };
            self.sent += 1;
            self.queue.push(std::cmp::Reverse((now + 50 + late, self.sent, sender, bytes.clone())));
        }
    }

    fn note_loss(&mut self, sender: usize, bytes: &[u8]) {
        let datagram = Datagram::parse(bytes).expect("the sending machine made the datagram");
        match datagram.body {
            Body::Batch(messages) => {
                self.lost[sender].extend((0..messages.len() as u64).map(|n| datagram.header.first + n));
            }
            // With a parity fragment one fragment may be lost. These messages are too short for two parity
            // groups.
            Body::Fragment(_) => {
                let lost_fragments = self.lost_fragments.entry((sender, datagram.header.first)).or_default();
                *lost_fragments += 1;
                if *lost_fragments > usize::from(self.spare) {
                    self.lost[sender].push(datagram.header.first);
                }
            }
            Body::Close | Body::Segment(_) | Body::Ack(_) | Body::End(_) => {}
        }
    }
}

/// A run: three senders push numbered messages of all sizes to one receiver.
struct Run {
    seed: u64,
    now: u64,
    began: Instant,
    network: Network,
    senders: Vec<Batcher>,
    pushed: Vec<u64>,
    receiver: Receiver,
    got: PerSender,
    ordered: bool,
}

/// The numbers received from each sender, in order, and the events.
#[derive(Default)]
struct PerSender {
    numbers: HashMap<SocketAddr, Vec<u64>>,
    events: Vec<Event>,
}

impl Sink for PerSender {
    fn deliver(&mut self, from: Key, messages: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
        let numbers = messages.iter().map(|m| u64::from_le_bytes(m[..8].try_into().expect("a number")));
        self.numbers.entry(from.addr).or_default().extend(numbers);
        Dropped::default()
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

const SENDERS: usize = 3;

impl Run {
    fn new(seed: u64) -> Run {
        let mut dice = Random::new(seed);
        let ordered = dice.below(2) == 0;
        let (wait, window) = (Duration::from_micros(dice.below(4) * 1000), 1 + dice.below(20) as usize);
        let delivery =
            if ordered { Delivery::Ordered { wait, window } } else { Delivery::Unordered { wait, window } };
        let parity_fragments = dice.below(2) == 0;
        let config = Config { parity_fragments, ..Config::default() };
        let config = config.qthresh(200).timeout(Duration::from_millis(3)).delivery(delivery);
        let network = Network {
            loss: dice.below(100),
            twice: dice.below(50),
            late: dice.below(200),
            jitter: 1 + dice.below(6000),
            dice,
            queue: BinaryHeap::new(),
            sent: 0,
            lost: vec![Vec::new(); SENDERS],
            lost_fragments: HashMap::new(),
            spare: parity_fragments,
        };
        Run {
            seed,
            now: 0,
            began: Instant::now(),
            network,
            senders: (0..SENDERS).map(|n| Batcher::new(&config, n as u64)).collect(),
            pushed: vec![0; SENDERS],
            receiver: Receiver::new(&config),
            got: PerSender::default(),
            ordered,
        }
    }

    fn time(&self) -> Instant {
        self.began + Duration::from_micros(self.now)
    }

    fn push(&mut self) {
        let sender = self.network.dice.below(SENDERS as u64) as usize;
        let size = match self.network.dice.below(20) {
            0 => 1000 + self.network.dice.below(5000),
            _ => 8 + self.network.dice.below(60),
        };
        let number = self.pushed[sender];
        self.pushed[sender] += 1;
        let world = World { now: self.time(), path: 1400 };
        let fill = |out: &mut Vec<u8>| {
            out.extend_from_slice(&number.to_le_bytes());
            out.resize(out.len() + size as usize - 8, 7);
            true
        };
        self.senders[sender].push(Key::new(addr(1), 0), &world, fill).expect("room");
    }

    fn step(&mut self, us: u64) {
        self.now += us;
        let now = self.time();
        for sender in 0..SENDERS {
            self.senders[sender].expire(now);
            for (_, bytes) in leave(&mut self.senders[sender]) {
                self.network.carry(self.now, sender, bytes);
            }
        }
        while self.network.queue.peek().is_some_and(|next| next.0.0 <= self.now) {
            let std::cmp::Reverse((_, _, sender, bytes)) =
                self.network.queue.pop().expect("the heap is not empty");
            self.receiver.datagram(now, addr(100 + sender as u16), &bytes, &mut self.got);
        }
        self.receiver.expire(now, &mut self.got);
    }

    /// Each pushed message was received once or reported, and no late message was delivered.
    fn check(&mut self) {
        for sender in self.receiver.senders() {
            let index = usize::from(sender.from.port() - 100);
            let arrived = self.got.numbers.get(&sender.from).cloned().unwrap_or_default();
            let ReceiveCounts { received, lost, missed, .. } = sender.counts;
            let seed = self.seed;
            assert_eq!(received, arrived.len() as u64, "seed {seed}");
            if sender.closed {
                assert_eq!(received + lost + missed, self.pushed[index], "seed {seed}: {:?}", sender.counts);
            }
            let mut sorted = arrived.clone();
            sorted.sort_unstable();
            if self.ordered {
                assert_eq!(sorted, arrived, "seed {seed}: the order is kept");
            }
            sorted.dedup();
            assert_eq!(sorted.len(), arrived.len(), "seed {seed}: no message arrives twice");
            // A message that the network lost was not received. The loss of several fragments is one lost
            // message.
            self.network.lost[index].sort_unstable();
            self.network.lost[index].dedup();
            let cannot = self.network.lost[index].len() as u64;
            assert!(
                sender.closed <= (lost + missed >= cannot),
                "seed {seed}: {lost} + {missed} of {cannot} are reported"
            );
            if self.network.late == 0 && sender.closed {
                assert_eq!(lost + missed, cannot, "seed {seed}: reported losses differ from the network's");
            }
        }
    }
}

fn run(seed: u64) -> Run {
    let mut run = Run::new(seed);
    for _ in 0..400 {
        run.push();
        let us = run.network.dice.below(400);
        run.step(us);
    }
    for sender in 0..SENDERS {
        let now = run.time();
        run.senders[sender].close_all(now);
    }
    for _ in 0..40 {
        run.step(1000);
    }
    run.check();
    run
}

#[test]
fn every_message_is_received_once_or_reported() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("CMQ_SEED") {
        run(seed);
        return;
    }
    let mut closed = 0;
    let seeds = number("CMQ_SEEDS").unwrap_or(400);
    for seed in 0..seeds {
        closed += run(seed).receiver.senders().iter().filter(|s| s.closed).count();
    }
    // Each close is sent three times, so a receiver seldom misses it.
    assert!(closed as u64 > seeds * SENDERS as u64 * 9 / 10, "{closed} of {} ends were seen", seeds * 3);
}
