//! The world: what a seed draws, the order of turns, and the faults.

use std::path::Path;

use rocketbufs::{Bid, Epoch, Position};
use rocketnet_sim::{SimConfig, SimNet};
use seglog::storage::Storage;
use seglog::{Options, Retention, SyncPolicy};
use seglog_sim::{Fault, SimStorage};

use super::broker::{Broker, DIR};
use super::oracle::{Oracle, Rng};
use super::subscriber::Subscriber;

/// The buffer of the topic.
pub(super) const LIVE: Bid = 1;

/// Rounds with faults.
const STORM: u64 = 600;

/// The most rounds without faults until everybody has everything.
const CALM: u64 = 200_000;

/// The varying parts.
pub(super) struct Plan {
    pub(super) ring_bytes: u64,
    pub(super) max_delivery: u64,
    pub(super) max_replays: usize,
    segment_bytes: u64,
    /// The most segments that are kept.
    pub(super) retention: Option<u64>,
    subscribers: usize,
    /// How often the writer writes, of 100 rounds.
    pace: u64,
    pub(super) kills: bool,
    pub(super) crashes: bool,
    pub(super) cuts: bool,
    pub(super) full_disk: bool,
    pub(super) damage: bool,
    pub(super) read_errors: bool,
    /// No fault loses anything.
    pub(super) lossless: bool,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let ring_bytes = 1 << (14 + rng.below(4));
        Self {
            ring_bytes,
            max_delivery: ring_bytes / 8,
            max_replays: 1 + rng.below(3) as usize,
            segment_bytes: 1 << (12 + rng.below(4)),
            retention: rng.percent(50).then(|| 3 + rng.below(20)),
            subscribers: 1 + rng.below(4) as usize,
            pace: 10 + rng.below(90),
            kills: rng.percent(50),
            crashes: rng.percent(30),
            cuts: rng.percent(50),
            full_disk: rng.percent(40),
            damage: rng.percent(30),
            read_errors: rng.percent(15),
            lossless: false,
        }
    }

    fn log(&self) -> Options {
        let max_segments = self.retention.and_then(|most| u32::try_from(most).ok());
        Options::default()
            .segment_bytes(self.segment_bytes)
            .sync(SyncPolicy::Bytes(32 << 10))
            .retention(Retention { max_segments: max_segments.map(|most| most as _), ..Retention::default() })
    }
}

pub(super) struct World {
    plan: Plan,
    rng: Rng,
    net: SimNet,
    disk: SimStorage,
    oracle: Oracle,
    broker: Option<Broker>,
    subscribers: Vec<Subscriber>,
    /// The end of the log as a subscriber may have seen it.
    end: Position,
    /// Where the log goes on after a crash of the machine.
    hole: Option<Position>,
    reads_fail: bool,
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED);
        let net = SimNet::new(seed, SimConfig::stream());
        let disk = SimStorage::new(seed);
        let oracle = Oracle::new(seed, plan.lossless);
        let broker = Broker::start(&net, &disk, &plan, plan.log(), None, &mut rng);
        let epoch = broker.as_ref().map(|broker| Epoch(u128::from_le_bytes(broker.log.id())));
        let epoch = epoch.expect("an empty disk without faults");
        let subscribers = (0..plan.subscribers).map(|n| Subscriber::new(&net, n, epoch, &mut rng)).collect();
        let (end, hole, reads_fail) = (0, None, false);
        Self { plan, rng, net, disk, oracle, broker, subscribers, end, hole, reads_fail }
    }

    /// Runs to the end. Returns a number that depends on all that happened.
    pub(super) fn run(mut self) -> u64 {
        for _ in 0..STORM {
            self.fault();
            self.round(false);
        }
        self.disk.heal();
        self.disk.set_capacity(u64::MAX);
        self.reads_fail = false;
        for _ in 0..CALM {
            self.round(true);
            if self.is_over() {
                return self.oracle.trace();
            }
        }
        let at: Vec<_> = self.subscribers.iter().map(|subscriber| subscriber.next).collect();
        let left = self.broker.as_ref().map(Broker::left);
        self.oracle.check("everybody gets everything", false, || {
            format!("the log ends at {}, the subscribers are at {at:?}, left: {left:?}", self.end)
        });
        unreachable!("the check has failed")
    }

    fn is_over(&self) -> bool {
        let Some(broker) = &self.broker else { return false };
        let all = |subscriber: &Subscriber| subscriber.is_live() && subscriber.next == Some(broker.log.end());
        broker.is_written() && self.subscribers.iter().all(all) && broker.left() == (0, 0, 0)
    }

    /// A turn of everybody, in an order that the seed draws.
    fn round(&mut self, calm: bool) {
        let mut did = false;
        self.start(calm);
        if let Some(broker) = &mut self.broker {
            if self.rng.percent(self.plan.pace) && !(calm && broker.is_written()) {
                did |= broker.write(1 + self.rng.below(self.plan.max_delivery) as usize);
            }
            self.end = self.end.max(broker.log.end());
            self.oracle.remove(broker.log.first());
            if self.reads_fail {
                self.oracle.remove(self.end);
            }
            did |= broker.act(&self.plan, &mut self.rng, &mut self.oracle);
        }
        for subscriber in &mut self.subscribers {
            did |= subscriber.act(&mut self.rng, &mut self.oracle, calm);
        }
        let now = self.net.now();
        for subscriber in &mut self.subscribers {
            if calm || self.rng.percent(70) {
                did |= subscriber.turn(now);
            }
        }
        if let Some(broker) = self.broker.as_mut().filter(|_| calm || self.rng.percent(70)) {
            did |= broker.turn(now);
        }
        for _ in 0..1 + self.rng.below(4) {
            did |= self.net.step();
        }
        if !did {
            self.pass();
        }
    }

    /// Nothing happens before the next timer.
    fn pass(&mut self) {
        let ticks = self.subscribers.iter().map(Subscriber::next_tick);
        let ticks = ticks.chain(self.broker.as_ref().map(Broker::next_tick));
        let next = ticks.min().unwrap_or(u64::MAX).min(self.net.now() + 100_000_000);
        self.net.advance_to(next.max(self.net.now()));
    }

    /// Starts the broker again if it is gone.
    fn start(&mut self, calm: bool) {
        if self.broker.is_some() || !(calm || self.rng.percent(10)) {
            return;
        }
        let Self { net, disk, plan, hole, .. } = self;
        self.broker = Broker::start(net, disk, plan, plan.log(), *hole, &mut self.rng);
        if let Some(broker) = &self.broker {
            self.hole = None;
            self.oracle.note(6, broker.log.first(), broker.log.end());
        }
    }

    /// Draws a fault, or none.
    fn fault(&mut self) {
        let Some(broker) = &mut self.broker else { return };
        if self.plan.retention.is_some() && self.rng.percent(10) {
            // A disk that fails removes nothing. The log does the same when a segment is complete.
            let _ = broker.log.apply_retention();
        }
        let plan = &self.plan;
        match self.rng.below(100) {
            0 if plan.kills => self.kill(),
            1 if plan.crashes => self.crash(),
            2 | 3 if plan.cuts => {
                let at = self.rng.below(self.subscribers.len() as u64) as usize;
                self.subscribers[at].leave();
            }
            4 if plan.full_disk => self.disk.set_capacity(self.disk.used() + self.rng.below(20_000)),
            5 | 6 => self.disk.set_capacity(u64::MAX),
            7 if plan.damage => self.damage(),
            8 if plan.read_errors => {
                self.reads_fail = true;
                let (after, times) = (self.rng.below(20) as u32, 1 + self.rng.below(3) as u32);
                self.disk.fail(Fault::Read, after, times);
            }
            9 => drop(broker.log.sync()),
            _ => {}
        }
    }

    fn kill(&mut self) {
        if let Some(broker) = self.broker.take() {
            self.oracle.note(7, broker.log.end(), 0);
            broker.kill(&self.net);
        }
    }

    /// The machine stops. Deliveries that were not on the disk are gone, and their positions are not used again.
    fn crash(&mut self) {
        let Some(broker) = self.broker.take() else { return };
        let to = self.end + self.plan.max_delivery;
        self.oracle.excuse(broker.log.durable(), to);
        self.hole = Some(to);
        self.disk.crash();
        broker.kill(&self.net);
    }

    /// A byte of a complete segment changes.
    fn damage(&mut self) {
        let Ok(mut names) = self.disk.list(Path::new(DIR)) else { return };
        names.retain(|name| name.ends_with(".seg"));
        names.sort();
        if names.len() < 2 {
            return;
        }
        let at = self.rng.below(names.len() as u64 - 1) as usize;
        let base = |name: &String| name.trim_end_matches(".seg").parse::<Position>().expect("a position");
        let path = Path::new(DIR).join(&names[at]);
        let Some(mut content) = self.disk.contents(&path).filter(|content| !content.is_empty()) else {
            return;
        };
        let byte = self.rng.below(content.len() as u64) as usize;
        content[byte] ^= 1 << self.rng.below(8);
        self.disk.set_contents(&path, content);
        self.oracle.excuse(base(&names[at]), base(&names[at + 1]));
    }
}
