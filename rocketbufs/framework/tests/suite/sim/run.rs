//! Runs a seed from beginning to end, or many seeds.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use rocketbufs::ProgressLevel;
use rocketbufs::worker::Reactor;

use super::oracle::{Stats, Violation};
use super::plan::{Flavour, Kind, Plan};
use super::publisher::Publisher;
use super::subscriber::State;
use super::world::{App, PATIENCE, World};

/// Steps in a calm network after which it is called a livelock.
const MOST_STEPS: u64 = 4_000_000;

/// A seed that fails, and why.
#[derive(Debug, Clone)]
pub struct Failure {
    pub seed: u64,
    pub invariant: String,
    pub text: String,
}

/// A seed that passes.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub hash: u64,
    pub stats: Stats,
}

impl World<'_> {
    /// Faults and work, in an order drawn from the seed.
    fn busy(&mut self) {
        for _ in 0..self.plan.steps {
            let node = self.env.rng.index(self.nodes.len());
            match self.env.rng.below(100) {
                0..40 => self.time_passes(),
                40..72 => drop(self.turn(node)),
                72..99 => drop(self.act(node)),
                _ => self.fault(),
            }
        }
    }

    fn time_passes(&mut self) {
        for _ in 0..self.env.rng.between(1, 6) {
            let next = [self.env.net.next_event_at(), self.next_timer()].into_iter().flatten().min();
            let now = self.env.now();
            // Far events happen when all processes are idle for long.
            let far = !self.plan.timeless() && self.env.rng.percent(1);
            match next {
                Some(next) if next <= now + 10_000_000 || far => self.env.net.advance_to(next),
                _ => self.env.net.advance_to(now + 100_000),
            }
        }
    }

    /// All processes work until there is nothing to do. Time passes only for transfers under way.
    fn settle(&mut self) {
        for _ in 0..MOST_STEPS {
            let mut did = false;
            let first = self.env.rng.index(self.nodes.len());
            for at in 0..self.nodes.len() {
                let node = (first + at) % self.nodes.len();
                did |= self.turn(node);
                did |= self.act(node);
            }
            if did {
                continue;
            }
            let timer = if self.env.closing { None } else { self.next_timer() };
            match (self.env.net.next_event_at(), timer) {
                (Some(event), Some(timer)) if timer < event => self.env.net.advance_to(timer),
                (Some(_), _) => drop(self.env.net.step()),
                (None, Some(timer)) => self.env.net.advance_to(timer),
                (None, None) => return,
            }
        }
        let busy: Vec<_> = (0..self.nodes.len()).map(|at| (self.turn(at), self.act(at))).collect();
        let next = (self.env.now(), self.env.net.next_event_at(), self.next_timer());
        self.env.check("the system becomes idle", false, || {
            format!("{MOST_STEPS} steps were not enough; workers and applications: {busy:?}; {next:?}")
        });
    }

    /// Settles until `missing` returns None. With timers, time passes.
    fn settle_until(&mut self, what: &'static str, missing: fn(&Self) -> Option<String>) {
        self.settle();
        let give_up = self.env.now() + PATIENCE.as_nanos() as u64;
        while !self.plan.timeless() && missing(self).is_some() && self.env.now() < give_up {
            let cores =
                self.nodes.iter().filter_map(|node| node.process.as_ref()).flat_map(|process| &process.cores);
            let ticks = cores.map(Reactor::next_tick);
            let next = ticks.min().unwrap_or(0).max(self.env.now() + 1_000_000);
            self.env.net.advance_to(next);
            self.settle();
        }
        let lack = missing(self);
        self.env.check(what, lack.is_none(), || lack.unwrap_or_default());
    }

    /// A delivery that a subscriber has not received.
    fn undelivered(&self) -> Option<String> {
        let publisher = self.nodes[0].process.as_ref().map(|process| &process.app);
        let Some(App::Publisher(publisher)) = publisher else { return self.not_gone() };
        if let Some(source) = publisher.sources.iter().find(|source| !source.done()) {
            return Some(source.stuck(&publisher.out));
        }
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            let name = &self.plan.nodes[at].name;
            let Some(process) = &node.process else { return Some(format!("{name} is not there")) };
            let App::Subscriber(subscriber) = &process.app else { continue };
            for sub in &subscriber.subs {
                let source = &publisher.sources[sub.plan.buffer];
                let end = self.env.logs[&source.epoch].end();
                let has = sub.state == State::Open && sub.cursor == Some((source.epoch, end));
                if !has && sub.state != State::Over {
                    let (state, cursor) = (sub.state, sub.cursor);
                    let bid = sub.plan.up_bid;
                    let above = self.above(self.plan.nodes[at].parent, bid);
                    return Some(format!("{name}: buffer {bid}: {state:?} at {cursor:?} of {end}; {above}"));
                }
            }
        }
        let waiting = publisher.sources.iter().find(|source| !source.contexts.is_empty());
        let waiting = waiting.map(|source| {
            let (bid, first) = (source.plan.bid, source.contexts.front());
            format!("contexts of buffer {bid} did not come back: {first:?}; {}", self.above(0, bid))
        });
        waiting.or_else(|| self.unconfirmed(publisher))
    }

    /// A confirmation that was requested and has not come.
    fn unconfirmed(&self, publisher: &Publisher) -> Option<String> {
        for source in &publisher.sources {
            let (bid, asked) = (source.plan.bid, source.asked);
            let Some(confirmed) = publisher.out.buffer(bid).map(|buffer| buffer.confirmed()) else {
                continue;
            };
            let short = ProgressLevel::ALL
                .into_iter()
                .find(|level| source.reached[*level as usize] < asked[*level as usize]);
            if let Some(level) = short {
                let (at, above) = (asked[level as usize], self.above(0, bid));
                return Some(format!(
                    "buffer {bid}: {level:?} at {at} was asked for: {confirmed:?}; {above}"
                ));
            }
            let ends = self.plan.nodes.iter().filter(|node| node.kind == Kind::Subscriber);
            let ends = ends.flat_map(|node| &node.subs).filter(|sub| sub.buffer + 1 == bid as usize).count();
            let all_came = self.plan.flavour == Flavour::Lossless && !self.env.ended_early[bid as usize - 1];
            if all_came && confirmed.coverage.receivers as usize != ends {
                return Some(format!("buffer {bid} has {ends} receivers: {confirmed:?}"));
            }
        }
        None
    }

    /// A node's state of a buffer, for a failure's text.
    fn above(&self, node: usize, bid: u32) -> String {
        let out = match self.nodes[node].process.as_ref().map(|process| &process.app) {
            Some(App::Publisher(publisher)) => &publisher.out,
            Some(App::Broker(broker)) => &broker.out,
            _ => return "no broker above".into(),
        };
        let name = &self.plan.nodes[node].name;
        format!(
            "{name} has {:?} for {:?}",
            out.buffer(bid).and_then(|buffer| buffer.info()),
            out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers())
        )
    }

    /// Whether a broker above never had any bytes of the buffer, because its connection never was up.
    fn is_unknown_above(&self, mut node: usize, buffer: usize) -> bool {
        while let Some(sub) = self.plan.nodes[node].subs.iter().find(|sub| sub.buffer == buffer) {
            let app = self.nodes[node].process.as_ref().map(|process| &process.app);
            let Some(App::Broker(broker)) = app else { return true };
            if broker.out.buffer(sub.out_bid).and_then(|buffer| buffer.info()).is_none() {
                return true;
            }
            node = self.plan.nodes[node].parent;
        }
        false
    }

    /// A subscriber behind a broker that did not get GONE although its publisher does not return.
    fn not_gone(&self) -> Option<String> {
        for (at, node) in self.nodes.iter().enumerate() {
            if self.plan.nodes[at].kind != Kind::Subscriber || self.is_stranded(at) {
                continue;
            }
            let Some(process) = &node.process else { return Some("a process is not there".into()) };
            let App::Subscriber(subscriber) = &process.app else { continue };
            let parent = self.plan.nodes[at].parent;
            let left = subscriber
                .subs
                .iter()
                .find(|sub| sub.state != State::Over && !self.is_unknown_above(parent, sub.plan.buffer));
            if let Some(sub) = left {
                let (name, bid) = (&self.plan.nodes[at].name, sub.plan.up_bid);
                let above = self.above(parent, bid);
                return Some(format!("{name}: buffer {bid}: {:?}, not gone; {above}", sub.state));
            }
        }
        None
    }

    /// Subscribers that did not get CLOSED.
    fn unclosed(&self) -> Option<String> {
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(App::Subscriber(subscriber)) = node.process.as_ref().map(|p| &p.app) else { continue };
            let open = subscriber.subs.iter().find(|sub| {
                // A subscriber that left a destroyed buffer finds no such buffer when it comes back.
                let missing = self.env.may_be_missing(at, sub.plan.buffer);
                sub.state != State::Over
                    || !(sub.closed || self.env.excuses[at][sub.plan.buffer].gone || missing)
            });
            if let Some(sub) = open {
                let name = &self.plan.nodes[at].name;
                return Some(format!("{name}: buffer {} was not told CLOSED", sub.plan.up_bid));
            }
        }
        None
    }

    /// Rings that still exist although nothing uses them.
    fn unfreed(&self) -> Option<String> {
        let used = |at: usize| self.nodes[at].process.as_ref().map_or(0, |p| p.ctx.memory_in_use());
        let at = (0..self.nodes.len()).find(|at| used(*at) > 0)?;
        Some(format!("{} has {} bytes of rings", self.plan.nodes[at].name, used(at)))
    }

    fn finish(&mut self) {
        self.calm_down();
        self.settle_until("everything pending is delivered", Self::undelivered);
        if let Some(App::Publisher(publisher)) = self.nodes[0].process.as_mut().map(|p| &mut p.app) {
            publisher.destroy(&mut self.env);
            self.settle_until("every subscriber gets CLOSED", Self::unclosed);
        }
        self.env.closing = true;
        for node in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            node.close();
        }
        self.settle();
        for node in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            node.app = App::Waiting;
            (node.up, node.up_door, node.door) = (None, None, None);
            node.down.clear();
        }
        self.settle();
        let lack = self.unfreed();
        self.env.check("memory comes back", lack.is_none(), || lack.unwrap_or_default());
    }

    fn summary(&mut self) {
        let plan = self.plan;
        let count = |kind| plan.nodes.iter().filter(|node| node.kind == kind).count() as u64;
        let (brokers, subscribers) = (count(Kind::Broker), count(Kind::Subscriber));
        let chain = plan.nodes.iter().all(|node| node.children.len() <= 1);
        let shape = if chain { "chain" } else { "tree" };
        let stats = &mut self.env.stats;
        stats.seeds = 1;
        *stats.shapes.entry(format!("{shape} of depth {}", plan.depth())).or_default() += 1;
        *stats.shapes.entry(format!("{:?}", plan.flavour).to_lowercase()).or_default() += 1;
        let mode = format!("{:?}", plan.net.mode).to_lowercase();
        *stats.shapes.entry(format!("network {mode}")).or_default() += 1;
        stats.count("brokers", brokers);
        stats.count("subscribers", subscribers);
        stats.count("buffers", plan.buffers.len() as u64);
        stats.count("virtual milliseconds", self.env.net.now() / 1_000_000);
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PLACE: Cell<String> = const { Cell::new(String::new()) };
}

/// Panics of simulated runs are caught and reported with their seed, not printed.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                PLACE.set(info.location().map_or(String::new(), |place| format!("{place}: ")));
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs a seed.
///
/// # Errors
/// The first violated invariant.
pub fn run(seed: u64) -> Result<Outcome, Failure> {
    hush();
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let plan = Plan::new(seed);
        let mut world = World::new(&plan);
        if world.env.verbose {
            eprintln!("{plan:#?}");
        }
        world.busy();
        world.finish();
        world.summary();
        Outcome { hash: world.env.hash(), stats: world.env.stats.clone() }
    }));
    QUIET.set(false);
    result.map_err(|payload| {
        if let Some(violation) = payload.downcast_ref::<Violation>() {
            let (invariant, text) = (violation.invariant.to_owned(), violation.text.clone());
            return Failure { seed, invariant, text };
        }
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = PLACE.take() + &text.unwrap_or_default();
        Failure { seed, invariant: "nothing panics".to_owned(), text }
    })
}

/// Runs seeds on as many threads as there are cores, until a seed fails or all have passed. Returns the smallest of several
/// failed seeds.
pub fn run_many(seeds: std::ops::Range<u64>) -> Result<Stats, Failure> {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(None::<Failure>);
    let total = Mutex::new(Stats::default());
    let worker = || {
        let mut stats = Stats::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            match run(seed) {
                Ok(outcome) => stats.add(&outcome.stats),
                Err(failure) => {
                    next.store(seeds.end, Ordering::Relaxed);
                    let mut failed = failed.lock().expect("no panics");
                    if failed.as_ref().is_none_or(|known| known.seed > failure.seed) {
                        *failed = Some(failure);
                    }
                }
            }
        }
        total.lock().expect("no panics").add(&stats);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    match failed.into_inner().expect("no panics") {
        Some(failure) => Err(failure),
        None => Ok(total.into_inner().expect("no panics")),
    }
}
