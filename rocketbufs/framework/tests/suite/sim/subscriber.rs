//! A subscriber's application: it checks all data against the writer's log, and releases it late.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketbufs::error::RefusedError;
use rocketbufs::proto::RefuseCode;
use rocketbufs::{
    BlockTimeout, Budget, BufSeg, Conn, Epoch, InEvent, InView, Policy, Position, RIn, Start,
    SubscribeOptions,
};

use super::oracle::Env;
use super::plan::{NodePlan, SubPlan};
use super::publisher::{MARK_HEAD, MARKS};

/// An item that a callback queues for its application.
pub enum Told {
    Data { bid: u32, epoch: Epoch, at: Position, bytes: Option<Vec<u8>> },
    Event(InEvent),
}

impl Told {
    fn bid(&self) -> Option<u32> {
        match self {
            Self::Data { bid, .. }
            | Self::Event(
                InEvent::Subscribed { bid, .. }
                | InEvent::Lost { bid, .. }
                | InEvent::Closed { bid, .. }
                | InEvent::Gone { bid, .. }
                | InEvent::Restarted { bid, .. }
                | InEvent::Refused { bid, .. },
            ) => Some(*bid),
            Self::Event(_) => None,
        }
    }
}

pub type Inbox = Arc<Mutex<VecDeque<Told>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not subscribed; subscribes at this time.
    Idle(u64),
    Asked,
    Open,
    /// Closed or gone: nothing more comes.
    Over,
}

/// Received data that is not released yet.
enum Kept {
    View(InView),
    Bytes(u64),
}

pub struct Sub {
    pub plan: SubPlan,
    pub state: State,
    /// The epoch and position at which the next data must begin.
    pub cursor: Option<(Epoch, Position)>,
    /// The subscriber has everything from this position on.
    pub since: Option<Position>,
    /// The epoch and position of the last subscribe.
    asked: Option<(Epoch, Position)>,
    kept: VecDeque<Kept>,
    /// A view that outlives the release of its bytes.
    held: Option<InView>,
    /// The number of times that the application subscribed.
    pub times: u64,
    pub closed: bool,
}

pub struct Subscriber {
    pub budget: Option<Budget>,
    node: usize,
    name: String,
    plan: NodePlan,
    pub rin: RIn,
    inbox: Inbox,
    pub subs: Vec<Sub>,
}

/// The plan says 0 for no limit.
fn block_timeout(plan: &SubPlan) -> BlockTimeout {
    match plan.block_timeout.is_zero() {
        true => BlockTimeout::Never,
        false => BlockTimeout::After(plan.block_timeout),
    }
}

/// The options of a planned subscription.
pub fn options(plan: &SubPlan, start: Start) -> SubscribeOptions {
    SubscribeOptions::new()
        .size_bytes(plan.size)
        .max_size_bytes(plan.max_size.max(plan.size))
        .retain_bytes(plan.retain)
        .start(start)
        .policy(plan.policy)
        .max_lag_bytes((plan.max_lag > 0).then_some(plan.max_lag))
        .block_timeout(block_timeout(plan))
        .durable(plan.name.clone(), plan.hold)
}

impl Subscriber {
    /// `places`: the positions that the previous process had reached.
    pub fn new(node: usize, plan: &NodePlan, conn: &Conn, places: &[Option<(Epoch, Position)>]) -> Self {
        let rin = RIn::new(conn);
        let inbox = Inbox::default();
        if plan.reader.callback {
            let data = inbox.clone();
            rin.set_data_in_cb(move |bid, segment| {
                let (epoch, at) = (segment.epoch(), segment.position());
                lock(&data).push_back(Told::Data { bid, epoch, at, bytes: copy(segment) });
            });
            let events = inbox.clone();
            rin.set_event_cb(move |event| lock(&events).push_back(Told::Event(event)));
        }
        let sub = |(at, plan): (usize, &SubPlan)| Sub {
            plan: plan.clone(),
            state: State::Idle(0),
            cursor: places.get(at).copied().flatten(),
            since: None,
            asked: None,
            kept: VecDeque::new(),
            held: None,
            times: 0,
            closed: false,
        };
        let subs = plan.subs.iter().enumerate().map(sub).collect();
        let budget = plan.budget.map(Budget::new);
        Self { budget, node, name: plan.name.clone(), plan: plan.clone(), rin, inbox, subs }
    }

    /// The positions at which the next process continues.
    pub fn places(&self) -> Vec<Option<(Epoch, Position)>> {
        self.subs.iter().map(|sub| sub.cursor).collect()
    }

    /// Subscribes, reads, releases. True if anything was done.
    pub fn act(&mut self, env: &mut Env) -> bool {
        let mut did = self.subscribe(env);
        let reader = self.plan.reader;
        let awake = env.calm || env.rng.percent(reader.awake_percent);
        if awake {
            let items = if env.calm { 64 } else { env.rng.between(1, reader.items) };
            for _ in 0..items {
                if !self.read(env) {
                    break;
                }
                did = true;
            }
        }
        if (did || !env.calm) && env.rng.percent(30) && reader.looks {
            self.look(env);
        }
        did | self.give_back(env)
    }

    fn subscribe(&mut self, env: &mut Env) -> bool {
        let mut did = false;
        for sub in &mut self.subs {
            let State::Idle(at) = sub.state else { continue };
            if env.now() < at || env.closing {
                continue;
            }
            let start = match sub.cursor {
                Some((epoch, position)) => Start::Position(epoch, position),
                None => sub.plan.start,
            };
            sub.asked = sub.cursor;
            sub.state = State::Asked;
            sub.times += 1;
            let options = options(&sub.plan, start).budget(self.budget.clone());
            let asked = self.rin.subscribe_with(sub.plan.up_bid, options);
            env.check("a subscription can be asked for", asked.is_ok(), || format!("{asked:?}"));
            env.event("subscriptions asked for");
            did = true;
        }
        did
    }

    /// Unsubscribes from a buffer, and subscribes again later: at the same position, or anew.
    pub fn leave(&mut self, env: &mut Env) {
        let at = env.rng.index(self.subs.len());
        let later = env.later();
        let again = env.rng.percent(60);
        let sub = &mut self.subs[at];
        if !matches!(sub.state, State::Asked | State::Open) {
            return;
        }
        env.fault("subscriptions left and taken up again");
        env.note("leave", [self.node as u64, u64::from(sub.plan.up_bid), 0, 0]);
        let bid = sub.plan.up_bid;
        self.rin.unsubscribe(bid);
        lock(&self.inbox).retain(|told| told.bid() != Some(bid));
        env.excuses[self.node][sub.plan.buffer].lost = true;
        sub.kept.clear();
        sub.state = State::Idle(later);
        if !again {
            sub.cursor = None;
        }
    }

    fn read(&mut self, env: &mut Env) -> bool {
        if self.plan.reader.callback {
            let Some(told) = lock(&self.inbox).pop_front() else { return false };
            match told {
                Told::Data { bid, epoch, at, bytes } => self.on_bytes(env, bid, epoch, at, bytes),
                Told::Event(event) => self.on_event(env, event),
            }
            return true;
        }
        match self.rin.recv(Some(Duration::ZERO)).expect("not on a worker") {
            Some(InEvent::Data(view)) => self.on_view(env, view),
            Some(event) => self.on_event(env, event),
            None => return false,
        }
        true
    }

    fn sub(&mut self, bid: u32) -> &mut Sub {
        let sub = self.subs.iter_mut().find(|sub| sub.plan.up_bid == bid);
        sub.expect("events are of subscribed buffers")
    }

    fn on_bytes(&mut self, env: &mut Env, bid: u32, epoch: Epoch, at: Position, bytes: Option<Vec<u8>>) {
        let Some(bytes) = bytes else {
            env.event("views lapped while they were copied");
            return;
        };
        let len = bytes.len() as u64;
        if !self.arrived(env, bid, epoch, at..at + len) {
            return;
        }
        env.check_bytes(&self.name, epoch, at, &bytes);
        if env.logs[&epoch].flow_control {
            self.sub(bid).kept.push_back(Kept::Bytes(len));
        }
    }

    fn on_view(&mut self, env: &mut Env, view: InView) {
        let bid = view.bid();
        let (epoch, from, to) = (view.epoch(), view.position(), view.position() + view.len() as u64);
        if !self.arrived(env, bid, epoch, from..to) {
            return;
        }
        check_view(env, &self.name, &view);
        let flow_control = env.logs[&epoch].flow_control;
        let keep = env.rng.percent(80);
        let holds = flow_control && self.plan.reader.holds && !env.calm && env.rng.percent(20);
        let sub = self.sub(bid);
        if holds && sub.held.is_none() {
            sub.kept.push_back(Kept::Bytes(view.len() as u64));
            sub.held = Some(view);
            env.event("views held for long");
        } else if flow_control && keep {
            sub.kept.push_back(Kept::View(view));
        } else if flow_control {
            sub.kept.push_back(Kept::Bytes(view.len() as u64));
        } else {
            view.consume();
        }
    }

    /// Checks that data follows the previous data. False if the data belongs to an ended subscription.
    fn arrived(&mut self, env: &mut Env, bid: u32, epoch: Epoch, data: Range<Position>) -> bool {
        let Range { start: from, end: to } = data;
        let name = self.name.clone();
        let sub = self.sub(bid);
        if sub.state != State::Open {
            return false;
        }
        let Some(log) = env.logs.get(&epoch) else { panic!("{name}: data of an unknown log") };
        let (first, next) = if log.flow_control {
            (from, to)
        } else {
            let known = log.payloads.get(&from).copied();
            let whole = known == Some(to - from);
            env.check("a delivery is never split", whole, || {
                format!("{name}: payload {from}..{to}, the writer's has {known:?}")
            });
            (from - MARK_HEAD, to + MARKS - MARK_HEAD)
        };
        let expected = sub.cursor;
        sub.cursor = Some((epoch, next));
        let log = &env.logs[&epoch];
        let whole = log.is_boundary(first) && log.is_boundary(next);
        let deliveries = log.deliveries(first, next);
        env.check("no gap, no duplicate", expected == Some((epoch, first)), || {
            format!("{name}: buffer {bid}: data from {first} to {next} of {epoch}, expected {expected:?}")
        });
        env.check("a delivery is never split", whole, || {
            format!("{name}: buffer {bid}: data from {first} to {next} does not end where deliveries do")
        });
        env.stats.count("bytes received", to - from);
        env.stats.count("deliveries received", deliveries);
        env.stats.count("items received", 1);
        env.note("data", [self.node as u64, u64::from(bid), first, next]);
        true
    }

    fn on_event(&mut self, env: &mut Env, event: InEvent) {
        match event {
            InEvent::Subscribed { bid, epoch, start } => self.on_subscribed(env, bid, epoch, start),
            InEvent::Lost { bid, from, to } => self.on_lost(env, bid, from, to),
            InEvent::Closed { bid, end } => self.on_end(env, bid, end, true),
            InEvent::Gone { bid, end } => self.on_end(env, bid, end, false),
            InEvent::Restarted { bid, .. } => {
                env.event("RESTARTED received");
                let later = env.later();
                let sub = self.sub(bid);
                match sub.state {
                    // The answer to a position of a log that is no more; the new log follows.
                    State::Asked => sub.asked = None,
                    State::Open => {
                        sub.state = State::Idle(later);
                        sub.cursor = None;
                        sub.kept.clear();
                    }
                    State::Idle(_) | State::Over => {}
                }
            }
            InEvent::Refused { bid, error } => self.on_refused(env, bid, &error),
            InEvent::ConnDown { .. } => env.event("CONN DOWN received"),
            other => panic!("{}: {other:?} is no event", self.name),
        }
    }

    fn on_subscribed(&mut self, env: &mut Env, bid: u32, epoch: Epoch, start: Position) {
        env.event("SUBSCRIBED received");
        env.note("subscribed", [self.node as u64, u64::from(bid), start, epoch.0 as u64]);
        let name = self.name.clone();
        let sub = self.sub(bid);
        if sub.state != State::Asked {
            return;
        }
        let asked = sub.asked;
        sub.state = State::Open;
        (sub.cursor, sub.since) = (Some((epoch, start)), Some(start));
        let boundary = env.logs.get(&epoch).is_some_and(|log| log.is_boundary(start));
        env.check("a subscription begins where a delivery does", boundary, || {
            format!("{name}: buffer {bid} from {start} of {epoch}")
        });
        let there = asked.is_none_or(|asked| asked == (epoch, start));
        env.check("a subscription begins where it asked to", there, || {
            format!("{name}: buffer {bid} from {start} of {epoch}, asked for {asked:?}")
        });
    }

    fn on_lost(&mut self, env: &mut Env, bid: u32, from: Position, to: Position) {
        let name = self.name.clone();
        let node = self.node;
        let sub = self.sub(bid);
        if sub.state != State::Open {
            return;
        }
        env.event("LOST received");
        env.note("lost", [node as u64, u64::from(bid), from, to]);
        let expected = sub.cursor.map(|(_, at)| at);
        let (buffer, epoch) = (sub.plan.buffer, sub.cursor.map(|(epoch, _)| epoch));
        (sub.cursor, sub.since) = (epoch.map(|epoch| (epoch, to)), Some(to));
        env.stats.count("bytes reported as lost", to.saturating_sub(from));
        env.check("losses add up", expected == Some(from) && to > from, || {
            format!("{name}: buffer {bid}: lost {from} to {to}, expected {expected:?}")
        });
        let boundary = epoch.is_some_and(|epoch| env.logs[&epoch].is_boundary(to));
        env.check("a hole ends where a delivery begins", boundary, || {
            format!("{name}: buffer {bid}: lost {from} to {to}")
        });
        let excuse = env.excuses[node][buffer];
        env.check("nothing is lost under block and a hold", excuse.lost, || {
            format!("{name}: buffer {bid}: lost {from} to {to}")
        });
    }

    fn on_end(&mut self, env: &mut Env, bid: u32, end: Position, closed: bool) {
        let name = self.name.clone();
        let node = self.node;
        let sub = self.sub(bid);
        if sub.state != State::Open {
            return;
        }
        sub.state = State::Over;
        sub.closed = closed;
        let (cursor, buffer) = (sub.cursor, sub.plan.buffer);
        let what = if closed { "CLOSED" } else { "GONE" };
        env.event(if closed { "CLOSED received" } else { "GONE received" });
        env.note(what, [node as u64, u64::from(bid), end, 0]);
        env.check("an end comes after all data", cursor.is_some_and(|(_, at)| at == end), || {
            format!("{name}: buffer {bid}: {what} at {end}, expected {cursor:?}")
        });
        let Some(log) = cursor.and_then(|(epoch, _)| env.logs.get(&epoch)) else { return };
        if closed {
            let right = log.closed == Some(end);
            let told = format!("{name}: buffer {bid}: CLOSED at {end}, the writer's {:?}", log.closed);
            env.check("CLOSED is where the log was closed", right, || told);
        } else {
            let boundary = log.is_boundary(end);
            env.check("GONE is where a delivery ends", boundary, || {
                format!("{name}: buffer {bid}: GONE at {end}")
            });
            let excuse = env.excuses[node][buffer];
            env.check("GONE has a reason", excuse.gone, || format!("{name}: buffer {bid}: GONE at {end}"));
        }
    }

    fn on_refused(&mut self, env: &mut Env, bid: u32, error: &RefusedError) {
        env.event("REFUSED received");
        env.note(&format!("refused {error}"), [self.node as u64, u64::from(bid), 0, 0]);
        let name = self.name.clone();
        let node = self.node;
        let later = env.later();
        let calm_over = env.calm;
        let sub = self.sub(bid);
        if !matches!(sub.state, State::Asked | State::Open) {
            return;
        }
        let buffer = sub.plan.buffer;
        let slow = matches!(error, RefusedError::Peer { code: RefuseCode::TooSlow, .. });
        let none = matches!(error, RefusedError::Peer { code: RefuseCode::NoSuchBuffer, .. });
        let timed = sub.plan.policy == Policy::Disconnect || !sub.plan.block_timeout.is_zero();
        sub.kept.clear();
        // A buffer that is gone does not come back once everything is calm.
        sub.state = if none && calm_over { State::Over } else { State::Idle(later) };
        let excused = if slow { timed } else { none && env.may_be_missing(node, buffer) };
        if sub.plan.policy == Policy::Disconnect {
            // Where it was it would be too slow at once.
            sub.cursor = None;
            sub.plan.start = Start::Newest;
        }
        env.excuses[node][buffer].lost = true;
        env.check("refused for a reason", excused, || format!("{name}: buffer {bid}: {error}"));
    }

    /// Everything that was received and not given back is still there, unchanged.
    fn look(&mut self, env: &mut Env) {
        let at = env.rng.index(self.subs.len());
        let take = !self.plan.reader.callback && env.rng.percent(20);
        let sub = &mut self.subs[at];
        let Some((epoch, cursor)) = sub.cursor else { return };
        if sub.state != State::Open || !env.logs[&epoch].flow_control {
            return;
        }
        let Ok(view) = self.rin.get_buf_ref(sub.plan.up_bid) else { return };
        if view.is_empty() {
            return;
        }
        check_view(env, &self.name, &view);
        if !take || view.position() > cursor || view.end() <= cursor {
            return;
        }
        // All of it counts as read and is given back.
        sub.kept.clear();
        sub.cursor = Some((epoch, view.end()));
        env.event("received by get_buf_ref");
        env.note("look", [self.node as u64, u64::from(sub.plan.up_bid), cursor, view.end()]);
        view.consume();
    }

    /// Releases kept data beyond the limit, oldest first, and sometimes in pieces.
    fn give_back(&mut self, env: &mut Env) -> bool {
        let keeps = if env.calm { 0 } else { self.plan.reader.keeps };
        let mut did = false;
        for sub in &mut self.subs {
            if let Some(view) = &sub.held {
                check_view(env, &self.name, view);
                if env.calm || env.rng.percent(5) {
                    sub.held = None;
                    did = true;
                }
            }
            while sub.kept.len() > keeps {
                did = true;
                match sub.kept.pop_front() {
                    Some(Kept::View(view)) => {
                        check_view(env, &self.name, &view);
                        view.consume();
                    }
                    Some(Kept::Bytes(size)) => {
                        let part = if env.rng.percent(30) { env.rng.between(0, size) } else { 0 };
                        for size in [part, size - part].into_iter().filter(|size| *size > 0) {
                            let given = self.rin.data_consumed(sub.plan.up_bid, size);
                            let fine = given.is_ok() || is_over(&self.inbox, sub);
                            env.check("received bytes can be given back", fine, || format!("{given:?}"));
                        }
                    }
                    None => break,
                }
            }
        }
        did
    }

    /// Gives up all views.
    pub fn let_go(&mut self) {
        for sub in &mut self.subs {
            sub.kept.clear();
            sub.held = None;
        }
    }

    pub fn timer(&self) -> Option<u64> {
        let timers = self.subs.iter().filter_map(|sub| match sub.state {
            State::Idle(at) => Some(at),
            _ => None,
        });
        timers.min()
    }
}

/// Whether the end of a subscription is in the inbox, or was handled: no bytes need to be released any more.
fn is_over(inbox: &Inbox, sub: &Sub) -> bool {
    let over = |told: &Told| match told {
        Told::Event(InEvent::Refused { bid, .. } | InEvent::Restarted { bid, .. }) => *bid == sub.plan.up_bid,
        _ => false,
    };
    sub.state == State::Over || lock(inbox).iter().any(over)
}

fn check_view(env: &mut Env, name: &str, view: &InView) {
    match view.as_slice() {
        Some(bytes) => env.check_bytes(name, view.epoch(), view.position(), bytes),
        None => match view.to_vec() {
            Ok(bytes) => env.check_bytes(name, view.epoch(), view.position(), &bytes),
            Err(_) => env.event("views lapped while they were copied"),
        },
    }
}

fn copy(segment: &BufSeg<'_>) -> Option<Vec<u8>> {
    match segment.as_slice() {
        Some(bytes) => Some(bytes.to_vec()),
        None => {
            let mut bytes = vec![0; segment.len()];
            segment.copy_to(0, &mut bytes).ok().map(|()| bytes)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
