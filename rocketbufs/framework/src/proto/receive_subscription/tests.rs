//! The machine compared with a plain model of the same log.

use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use rocketring::{Hold, Pool, PoolConfig, Ring, RingConfig, RingReceiver};

use super::*;
use crate::ground::types::Epoch;
use crate::proto::Coverage;

const START: Position = (1 << 32) - 100;
const CAPACITY: u64 = 4096;

/// The state of a byte that the model remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Byte {
    Unread,
    Read,
    Released,
}

/// Every byte of the log that arrived, and every hole.
struct Model {
    bytes: BTreeMap<Position, Byte>,
    /// `[from, to)` of each hole.
    holes: Vec<(Position, Position)>,
    boundary: Position,
    views: Vec<(Position, Position)>,
}

impl Model {
    /// Returns the next item by looking at each byte.
    fn next(&mut self, read: Position) -> Option<Item> {
        if let Some((_, to)) = self.holes.iter().find(|(from, to)| *from <= read && read < *to) {
            return Some(Item::Lost(read, *to));
        }
        let unread = |at: &Position| *at < self.boundary && self.bytes.get(at) == Some(&Byte::Unread);
        let to = (read..).find(|at| !unread(at)).filter(|to| *to > read)?;
        for at in read..to {
            self.bytes.insert(at, Byte::Read);
        }
        Some(Item::Data(read, to))
    }

    fn release_below(&mut self, to: Position) {
        self.bytes.range_mut(..to).for_each(|(_, byte)| *byte = Byte::Released);
    }

    /// Returns the complete bytes that were not released, oldest first.
    fn unreleased(&self) -> Vec<Position> {
        let complete = self.bytes.range(..self.boundary);
        complete.filter(|(_, byte)| **byte != Byte::Released).map(|(at, _)| *at).collect()
    }

    /// Returns the first byte that has to stay in the ring.
    fn needed(&self) -> Option<Position> {
        let first = self.bytes.iter().find(|(_, byte)| **byte != Byte::Released).map(|(at, _)| *at);
        let views = self.views.iter().filter(|(from, to)| from < to).map(|(from, _)| *from).min();
        [first, views].into_iter().flatten().min()
    }
}

/// A log with a real ring beside its model.
struct Pair {
    log: ReceiveLog,
    ring: Ring,
    receiver: RingReceiver,
    hold: Hold,
    model: Model,
}

impl Pair {
    fn new() -> Self {
        Self::with(PLAIN)
    }

    fn with(config: ReceiveConfig) -> Self {
        let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 24 }).unwrap();
        let shape = RingConfig {
            capacity_bytes: CAPACITY,
            retain_bytes: Some(0),
            max_delivery_bytes: None,
            flow_control: true,
            start: START,
        };
        let ring = pool.ring(shape).unwrap();
        Self {
            log: ReceiveLog::new(config, Epoch(1), START, CAPACITY, None),
            receiver: ring.receiver().unwrap(),
            hold: ring.hold(START).unwrap(),
            ring,
            model: Model { bytes: BTreeMap::new(), holes: Vec::new(), boundary: START, views: Vec::new() },
        }
    }

    fn land(&mut self, size: usize, ends: bool) {
        let head = self.ring.head();
        let landed = self.receiver.copy_in(&vec![1; size]) as u64;
        self.model.bytes.extend((head..head + landed).map(|at| (at, Byte::Unread)));
        if ends {
            self.receiver.end();
            self.model.boundary = self.ring.head();
        }
    }

    fn lose(&mut self, size: u64) {
        // A hole begins at the end of a delivery.
        self.land(0, true);
        let head = self.ring.head();
        self.receiver.skip(head + size);
        assert!(self.log.on_lost(head + size, true, &self.ring));
        match self.model.holes.last_mut() {
            // Holes that touch are one.
            Some((_, to)) if *to == head => *to = head + size,
            _ => self.model.holes.push((head, head + size)),
        }
        self.model.boundary = head + size;
    }

    fn take(&mut self, pin: bool) {
        let expected = self.model.next(self.log.cursor().read());
        let item = self.log.cursor_mut().next_item(&self.ring, pin, false);
        assert_eq!(item, expected);
        if let (Some(Item::Data(from, to)), true) = (item, pin) {
            self.model.views.push((from, to));
        }
    }

    fn drop_view(&mut self, index: usize, consumes: bool) {
        if self.model.views.is_empty() {
            return;
        }
        let (from, to) = self.model.views.swap_remove(index % self.model.views.len());
        self.log.cursor_mut().unpin(from);
        if consumes {
            self.log.cursor_mut().give_back(to, &self.ring);
            self.model.release_below(to);
        }
    }

    fn consume(&mut self, size: u64) {
        let unreleased = self.model.unreleased();
        let result = self.log.cursor_mut().consume(size, &self.ring);
        assert_eq!(result.is_ok(), size as usize <= unreleased.len(), "{size} of {}", unreleased.len());
        if result.is_ok()
            && let Some(last) = unreleased.get((size as usize).wrapping_sub(1))
        {
            self.model.release_below(last + 1);
        }
    }

    /// Moves the hold as the caller of the machine does, and checks that nothing needed is given up.
    fn settle(&mut self) {
        let holds = self.log.cursor().holds_at();
        if let Some(needed) = self.model.needed() {
            assert!(holds <= needed, "{holds} is held, {needed} is needed");
        }
        assert!(self.log.cursor().consumed() <= self.ring.head());
        self.hold.advance(holds);
    }

    /// Checks a CREDIT against its definition.
    fn credit(&mut self) {
        let (now, told) = (self.log.credit_now(&self.ring, None), self.log.credit().told());
        assert_eq!((now.landed, now.delivered), (self.ring.head(), self.ring.head()));
        // A hole takes no room.
        let lost: u64 = self.model.holes.iter().map(|(from, to)| to - from).sum();
        assert!(now.consumed <= now.delivered && now.grant <= now.consumed + CAPACITY + lost);
        let quarter = CAPACITY / 4;
        let far = now.landed - told.landed >= quarter
            || now.consumed - told.consumed >= quarter
            || now.grant - told.grant >= quarter
            || now.coverage != told.coverage;
        if far {
            assert!(self.log.is_credit_due(&self.ring, false));
        }
        let credit = self.log.next_credit(now);
        assert_eq!(credit.is_some(), far, "nothing was asked for");
        assert_eq!(credit.unwrap_or(self.log.credit().told()), self.log.credit().told());
    }
}

#[derive(Debug, Clone)]
enum Op {
    Land(usize, bool),
    Lose(u64),
    Take(bool),
    DropView(usize, bool),
    Consume(u64),
    Credit,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..600_usize, any::<bool>()).prop_map(|(size, ends)| Op::Land(size, ends)),
        1 => (1..300_u64).prop_map(Op::Lose),
        4 => any::<bool>().prop_map(Op::Take),
        3 => (0..8_usize, any::<bool>()).prop_map(|(index, consumes)| Op::DropView(index, consumes)),
        2 => (0..900_u64).prop_map(Op::Consume),
        2 => Just(Op::Credit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Data and holes come in order and once, nothing needed is given up, and CREDIT is due by its definition.
    #[test]
    fn a_log_is_that_of_the_plain_model(ops in vec(op(), 1..120)) {
        let mut pair = Pair::new();
        for op in ops {
            match op {
                Op::Land(size, ends) => pair.land(size, ends),
                Op::Lose(size) => pair.lose(size),
                Op::Take(pin) => pair.take(pin),
                Op::DropView(index, consumes) => pair.drop_view(index, consumes),
                Op::Consume(size) => pair.consume(size),
                Op::Credit => pair.credit(),
            }
            pair.settle();
        }
        // Whatever happened before, everything can be taken and released in the end.
        while pair.log.cursor().has_item(&pair.ring) {
            pair.take(true);
        }
        while !pair.model.views.is_empty() {
            pair.drop_view(0, true);
        }
        let left = pair.model.unreleased().len() as u64;
        pair.consume(left);
        prop_assert_eq!(pair.log.cursor().holds_at(), pair.ring.boundary());
    }
}

/// The options of a subscription that reports to the sender by itself.
const PLAIN: ReceiveConfig = ReceiveConfig {
    confirm_consumed: false,
    relays: false,
    place_kept: false,
    max_view_bytes: 0,
    keeps_for_others: false,
    covered_from: START,
};

/// Returns the confirmed positions, relative to the start, after 100 bytes arrived and 40 were released.
fn levels(config: ReceiveConfig, downstream: Option<(u64, u64)>) -> [u64; 3] {
    let mut pair = Pair::with(config);
    pair.land(100, true);
    pair.take(false);
    pair.log.cursor_mut().give_back(START + 40, &pair.ring);
    pair.log.confirm(START + 30, START + 20, Coverage::ONE);
    let downstream = downstream.map(|(delivered, consumed)| Downstream {
        delivered: START + delivered,
        consumed: START + consumed,
        coverage: Coverage::ONE,
    });
    let credit = pair.log.credit_now(&pair.ring, downstream.as_ref());
    credit.levels().map(|at| at.saturating_sub(START))
}

#[test]
fn each_kind_of_subscription_confirms_what_it_may() {
    assert_eq!(levels(PLAIN, None), [100, 100, 40]);
    assert_eq!(levels(ReceiveConfig { confirm_consumed: true, ..PLAIN }, None), [40, 40, 40]);
    let relays = ReceiveConfig { confirm_consumed: true, relays: true, ..PLAIN };
    assert_eq!(levels(relays, None), [40, 30, 20], "at most what was released, and what it was told");
    let keeps = ReceiveConfig { keeps_for_others: true, ..PLAIN };
    assert_eq!(levels(keeps, None), [100, 0, 0], "there is no receiver yet");
    assert_eq!(levels(keeps, Some((80, 60))), [100, 80, 60]);
    assert_eq!(levels(PLAIN, Some((120, 110))), [100, 100, 100], "receivers may be ahead of this end");
}

/// A connection over which a log stays in its ring, unless it `moves`.
pub(super) fn over(conn: u64, wire: WireId, moves: bool, is_current: bool) -> SubscribeOver {
    SubscribeOver { conn, wire, moves, is_current }
}

/// A subscription with 100 bytes, of which the application was shown all.
fn accepted() -> (ReceiveSubscription, Pair) {
    let mut pair = Pair::with(PLAIN);
    pair.land(100, true);
    let mut sub = ReceiveSubscription::new(7);
    assert!(sub.subscribe(over(1, 5, false, true), None).is_some_and(|first| first.resumed_at().is_none()));
    let log = ReceiveLog::new(PLAIN, Epoch(1), START, CAPACITY, None);
    sub.begin(log);
    assert!(sub.log_mut().unwrap().cursor_mut().next_item(&pair.ring, false, false).is_some());
    (sub, pair)
}

#[test]
fn a_subscription_resumes_once_the_old_connection_is_down() {
    let (mut sub, pair) = accepted();
    let resume = |sub: &mut ReceiveSubscription, conn, is_current| {
        sub.subscribe(over(conn, 9, false, is_current), Some(&pair.ring)).map(|again| again.resumed_at())
    };
    assert_eq!(resume(&mut sub, 1, true), None, "it is subscribed there");
    assert_eq!((resume(&mut sub, 2, false), sub.take_resume()), (None, None), "the application left it");
    assert_eq!((resume(&mut sub, 3, true), sub.take_resume()), (None, Some(3)));
    sub.disconnect();
    assert_eq!(resume(&mut sub, 3, true), Some(Some(START + 100)));
    assert_eq!((sub.wire(), sub.wire_on(1), sub.wire_on(3)), (Some((3, 9)), None, Some(9)));
}

#[test]
fn a_log_that_moves_waits_until_its_data_is_released() {
    let (mut sub, pair) = accepted();
    sub.disconnect();
    let boundary = START + 100;
    assert!(sub.subscribe(over(2, 9, true, true), Some(&pair.ring)).is_none());
    assert!(sub.waits_to_resume() && sub.resumes(boundary).is_none());
    sub.log_mut().unwrap().cursor_mut().give_back(boundary, &pair.ring);
    assert_eq!((sub.resumes(boundary), sub.resumes(boundary)), (Some(2), None));
    let moved = sub.subscribe(over(2, 9, true, true), Some(&pair.ring)).unwrap();
    assert!(moved.moves() && moved.resumed_at() == Some(boundary));
}

#[test]
fn only_a_subscription_without_a_connection_lingers() {
    let (mut sub, pair) = accepted();
    assert!(!sub.begin_linger(50), "it has a connection");
    sub.disconnect();
    assert!(sub.begin_linger(60) && !sub.begin_linger(70));
    assert!(sub.is_gone(60) && !sub.is_gone(50));
    assert!(sub.subscribe(over(2, 9, false, true), Some(&pair.ring)).is_some());
    assert!(!sub.is_gone(60), "the writer came back");
    sub.disconnect();
    assert!(sub.begin_linger(80) && !sub.leave() && !sub.is_gone(80));
}

#[test]
fn the_end_comes_after_all_data_and_once() {
    let (mut sub, _pair) = accepted();
    let end = Ending::End(End::Closed(START + 150));
    assert!(sub.end(end.clone()) && !sub.end(Ending::Restarted(Epoch(2))));
    assert_eq!((sub.next_ending(), sub.is_over()), (None, false), "50 bytes are missing");
    sub.log_mut().unwrap().cursor_mut().end_reading(START + 150);
    assert_eq!((sub.next_ending(), sub.next_ending()), (Some(Item::Ending(end)), None));
    assert!(sub.is_over() && !sub.is_finished(false), "nothing was released");
    assert!(sub.is_finished(true), "those downstream release it");
}

/// A sender with whole deliveries, which asks for credit as the protocol says.
#[derive(Default)]
struct Sender {
    /// The ends of its deliveries.
    ends: Vec<Position>,
    sent: Position,
    grant: Position,
    asked: Position,
    /// The messages that are on their way, in order.
    messages: VecDeque<Sent>,
}

/// A message of the sender.
enum Sent {
    Ask(Position),
    Recalled(Position),
}

impl Sender {
    fn boundary(&self) -> Position {
        self.ends.last().copied().unwrap_or(0)
    }

    fn ask(&mut self) {
        let known = self.sent.max(self.grant);
        if self.sent >= self.grant && self.boundary() > known && self.asked <= known {
            self.asked = self.boundary();
            self.messages.push_back(Sent::Ask(self.asked));
        }
    }

    fn on_recall(&mut self) {
        self.grant = self.grant.min(self.sent.max(self.asked));
        if self.asked > self.grant {
            self.asked = 0;
        }
        self.messages.push_back(Sent::Recalled(self.grant));
    }
}

/// How much of the budget is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supply {
    /// Other subscriptions wait.
    Short,
    /// The budget has room for data that the sender has.
    Scarce,
    /// The budget has room also for data that the sender does not have yet.
    Plenty,
}

/// The receiver: an allocation, and the numbers of its ring.
struct Receiver {
    allocation: CreditAllocation,
    granted: Position,
    head: Position,
    boundary: Position,
    consumed: Position,
    /// The capacity of the ring; 0 without one.
    share: u64,
    base: Position,
}

impl Receiver {
    fn positions(&self) -> RingPositions {
        let room = if self.share == 0 { self.head } else { self.consumed.max(self.base) + self.share };
        let drained = self.consumed >= self.head;
        RingPositions { head: self.head, boundary: self.boundary, room, granted: self.granted, drained }
    }

    fn ring(&mut self, share: Option<Share>) {
        assert_eq!(self.consumed, self.head, "a ring with data never goes");
        (self.share, self.base) = (share.map_or(0, |share| share.bytes), self.head);
        let room = self.positions().room;
        self.allocation.on_ring(share, self.head, room);
    }

    /// Acts as the worker with a subscription of a budget, and sends CREDIT or RECALL.
    fn work(&mut self, sender: &mut Sender, supply: Supply, budget: u64) {
        let (short, ahead) = (supply == Supply::Short, supply == Supply::Plenty);
        for _ in 0..2 {
            match self.allocation.step(&self.positions(), short, || ahead).0 {
                AllocationStep::Nothing => break,
                AllocationStep::Recall => {
                    self.allocation.recall();
                    sender.on_recall();
                    return;
                }
                AllocationStep::Release => self.ring(None),
                AllocationStep::Take(need) => {
                    let most = need.full.max(need.least).min(budget);
                    let bytes = if ahead { most } else { need.bytes.next_power_of_two().min(most) };
                    let share = Share { bytes, ahead };
                    self.allocation.on_share(Some(share));
                    self.ring(Some(share));
                    break;
                }
            }
        }
        if self.allocation.has_offer(self.granted) {
            self.granted = self.allocation.grant();
            sender.grant = sender.grant.max(self.granted);
            assert!(self.granted <= self.positions().room, "there is no room for what was granted");
        }
    }
}

#[derive(Debug, Clone)]
enum Turn {
    Write(u64),
    Ask,
    Hear,
    Send(u64),
    Release,
    Work(Supply),
    Rest,
}

fn supply() -> impl Strategy<Value = Supply> {
    prop_oneof![Just(Supply::Short), Just(Supply::Scarce), Just(Supply::Plenty)]
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        2 => (1..=64_u64).prop_map(Turn::Write),
        1 => Just(Turn::Ask),
        2 => Just(Turn::Hear),
        2 => (1..=100_u64).prop_map(Turn::Send),
        2 => Just(Turn::Release),
        3 => supply().prop_map(Turn::Work),
        1 => Just(Turn::Rest),
    ]
}

fn take_turn(turn: &Turn, sender: &mut Sender, receiver: &mut Receiver) {
    match *turn {
        Turn::Write(size) => sender.ends.push(sender.boundary() + size),
        Turn::Ask => sender.ask(),
        Turn::Hear => match sender.messages.pop_front() {
            Some(Sent::Ask(wanted)) if wanted > receiver.granted => receiver.allocation.on_ask(wanted),
            Some(Sent::Recalled(at)) => {
                assert!(receiver.allocation.on_recalled(at, receiver.granted));
                receiver.granted = at;
            }
            _ => {}
        },
        Turn::Send(size) => {
            let to = (sender.sent + size).min(sender.grant).min(sender.boundary());
            assert!(to <= receiver.positions().room || to <= sender.sent, "data without room");
            sender.sent = sender.sent.max(to);
            receiver.head = sender.sent;
            let ends = sender.ends.iter().filter(|end| **end <= receiver.head);
            receiver.boundary = ends.max().copied().unwrap_or(0);
        }
        Turn::Release => {
            receiver.consumed = receiver.boundary;
            receiver.allocation.on_released(receiver.consumed >= receiver.head, false);
        }
        Turn::Work(supply) => receiver.work(sender, supply, 1024),
        Turn::Rest => match receiver.allocation.at_rest(&receiver.positions()) {
            AllocationStep::Release => receiver.ring(None),
            AllocationStep::Recall => {
                receiver.allocation.recall();
                sender.on_recall();
            }
            _ => {}
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// Nothing is granted without room for it, and every delivery gets through in the end.
    #[test]
    fn credit_on_demand_is_safe_and_lets_all_through(turns in vec(turn(), 1..200), supply in supply()) {
        let mut sender = Sender::default();
        let mut receiver = Receiver {
            allocation: CreditAllocation::new(0, 128, 512),
            granted: 0,
            head: 0,
            boundary: 0,
            consumed: 0,
            share: 0,
            base: 0,
        };
        for turn in &turns {
            take_turn(turn, &mut sender, &mut receiver);
        }
        let last = [Turn::Hear, Turn::Hear, Turn::Work(supply), Turn::Send(64), Turn::Release, Turn::Ask];
        for _ in 0..(4 * turns.len() + 16) {
            last.iter().for_each(|turn| take_turn(turn, &mut sender, &mut receiver));
        }
        prop_assert_eq!(receiver.consumed, sender.boundary());
    }
}
