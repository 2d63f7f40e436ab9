//! The world: what a seed draws, and the order of the steps.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use rocketbufs::error::{DownReason, RefuseCode, RefusedError};
use rocketbufs::{Bid, Epoch, InEvent, Policy, Position, Start};
use testkit::Random;

use super::broker::{Broker, End, Event, Log, ToBroker, ToClient};
use super::rin::RIn;
use super::user::User;
use crate::ground::error::ReceiveError;
use crate::ground::options::{SlowPolicy, StartFrom, SubscriberOptions};
use crate::state::event::Notice;
use crate::subscriptions::{Begin, Effect, Subscriptions};
use crate::wire::{Control, Framing, Rejection, ReplayFrom, TopicFilter};

/// Steps with faults.
const STORM: u64 = 600;

/// The most rounds without faults until everybody has everything.
const CALM: u64 = 20_000;

/// The most logs of publishers.
const MAX_LOGS: usize = 12;

/// Subscribers may not hold back the publishers of "free".
const TOPICS: [&str; 5] = ["a", "a/b", "free", "kept", "merged"];
const FILTERS: [&str; 8] = ["a", "a/b", "a/#", "free", "kept", "merged", "+", "#"];

pub(super) struct World {
    rng: Random,
    slow: SlowPolicy,
    hold: Duration,
    machine: Subscriptions,
    user: User,
    rin: RIn,
    logs: Vec<Log>,
    broker: Broker,
    /// How many broker processes there were before.
    process: u64,
    /// The number of the connection, and whether there is one.
    conn: u64,
    is_up: bool,
    /// Whether the rIn belongs to the connection. If not, the application has to move.
    is_attached: bool,
    /// Requests over a connection to which the application has not moved.
    early: VecDeque<ToBroker>,
    /// Requests that the broker has not answered over this connection, with their filters.
    unanswered: VecDeque<Vec<TopicFilter>>,
    /// Whether it has refused one of them.
    is_rejected: bool,
    /// The logs of the buffers that the rIn knows, after a restart of their broker.
    former: BTreeMap<Bid, usize>,
    /// The first position that each log had when it was subscribed to.
    oldest: BTreeMap<u128, Position>,
    /// Buffers that end while their logs continue in others.
    moving: Vec<Bid>,
    /// A message that a broker process had sent, with the number that the machine gave it.
    late: Option<(u64, Control)>,
    is_calm: bool,
    /// The step at which the application shuts the context down.
    shutdown_at: Option<u64>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Random::new(seed);
        let slow = [
            SlowPolicy::Block,
            SlowPolicy::BlockIfAllowed,
            SlowPolicy::Drop { max_lag_bytes: Some(100) },
            SlowPolicy::Disconnect { max_lag_bytes: None },
        ];
        let slow = rng.pick(&slow).expect("a policy");
        let hold = Duration::from_secs(rng.below(2));
        let machine = Subscriptions::new(&SubscriberOptions { slow, hold, ..SubscriberOptions::default() });
        Self {
            rng,
            slow,
            hold,
            machine,
            user: User::default(),
            rin: RIn::new(VecDeque::new()),
            logs: Vec::new(),
            broker: Broker::default(),
            process: 0,
            conn: 1,
            is_up: true,
            is_attached: true,
            early: VecDeque::new(),
            unanswered: VecDeque::new(),
            is_rejected: false,
            former: BTreeMap::new(),
            oldest: BTreeMap::new(),
            moving: Vec::new(),
            late: None,
            is_calm: false,
            shutdown_at: (seed % 7 == 3).then_some(seed % STORM),
        }
    }

    /// Runs to the end. Returns a number that depends on all that happened.
    pub(super) fn run(mut self) -> u64 {
        for step in 0..STORM {
            if self.shutdown_at == Some(step) {
                return self.shut_down();
            }
            self.step();
        }
        self.is_calm = true;
        self.settle();
        // Over another connection, everything is announced again.
        self.cut();
        self.settle();
        self.check();
        (0..self.logs.len()).for_each(|log| self.close(log));
        self.settle();
        self.check();
        if self.process == 0 && self.user.filters.values().all(|(filter, _)| self.is_matched(filter)) {
            assert_eq!(self.machine.has_ended(), !self.user.filters.is_empty(), "all topics have ended");
        }
        self.user.trace
    }

    /// The context is shut down in the middle of everything: the application gets what had come, and then learns that nothing
    /// follows, without a wait.
    fn shut_down(mut self) -> u64 {
        self.machine.on_over(ReceiveError::ShutDown);
        self.cut();
        while self.execute() | self.receive() {
            let news = self.machine.has_news() && !self.machine.is_waiting();
            assert!(news, "a thread that waits learns of the end");
        }
        // What the broker says of the lost connection comes too late.
        self.machine.on_over(ReceiveError::TakenOver("another".into()));
        assert_eq!(self.machine.over(), Some(&ReceiveError::ShutDown), "the first end stays");
        assert!(self.machine.has_news() && !self.machine.is_waiting() && self.rin.out.is_empty());
        self.user.trace
    }

    fn is_matched(&self, filter: &TopicFilter) -> bool {
        self.broker.buffers.values().any(|buffer| filter.matches(&self.logs[buffer.log].topic))
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..16 => self.publish(),
            16..22 => self.trim(),
            22..36 => _ = self.broker_takes(),
            36..50 => _ = self.broker.pump(&self.logs, &mut self.rng),
            50..64 => _ = self.deliver(),
            64..82 => _ = self.receive(),
            82..88 => _ = self.execute(),
            88..91 => self.user_acts(),
            91..93 => _ = self.reconnect(),
            93..95 => self.new_log(),
            _ => self.fault(),
        }
        self.check_ended();
    }

    /// Steps without faults, until nothing happens any more.
    fn settle(&mut self) {
        for _ in 0..CALM {
            let mut did = self.reconnect();
            did |= self.execute() | self.broker_takes() | self.deliver() | self.receive();
            did |= self.broker.pump(&self.logs, &mut self.rng);
            did |= self.go_on_moving() | self.come_back();
            self.check_ended();
            if !did {
                return self.user.check_over();
            }
        }
        panic!("the world does not come to rest");
    }

    /// The user has everything.
    fn check(&self) {
        for (index, log) in self.logs.iter().enumerate() {
            let buffers = self.broker.of_log(index);
            let seen = self.user.seen.get(&log.epoch);
            let joined = seen.is_some_and(|seen| seen.joined);
            assert!(!(joined && buffers.is_empty()), "log {} has no buffer and no end", log.epoch);
            let refused = log.topic.as_str() == "free" && self.slow == SlowPolicy::Block;
            let has_all = |bid: &Bid| !matches!(self.broker.buffers[bid].end, End::Gone(_));
            if !buffers.iter().any(has_all) || refused || !self.user.wants(&log.topic) {
                continue;
            }
            let seen = seen.expect("a log that the broker has announced");
            assert_eq!(seen.next, Some(log.head), "the user has all of log {}", log.epoch);
            assert_eq!((joined, seen.closed), (!log.closed, log.closed), "the state of log {}", log.epoch);
        }
    }

    /// The machine does not take all topics for ended too early.
    fn check_ended(&self) {
        if !self.machine.has_ended() {
            return;
        }
        assert!(!self.is_up || self.unanswered.is_empty(), "the broker has not answered");
        let joined = |log: &&Log| self.user.seen.get(&log.epoch).is_some_and(|seen| seen.joined);
        let open = self.logs.iter().find(joined).map(|log| log.epoch);
        assert_eq!(open, None, "a log has not ended");
    }

    fn log_of(&self, bid: Bid) -> usize {
        if self.is_attached { self.broker.log_of[&bid] } else { self.former[&bid] }
    }
}

/// Publishers and the broker.
impl World {
    fn publish(&mut self) {
        let written = |log: &Log| !(log.closed || log.away);
        let written: Vec<usize> = (0..self.logs.len()).filter(|log| written(&self.logs[*log])).collect();
        if let Some(log) = self.rng.pick(&written) {
            self.logs[log].head += self.rng.between(1, 4);
        }
    }

    fn trim(&mut self) {
        if let Some(bid) = self.rng.pick(&self.broker.live()) {
            self.broker.trim(bid, &self.logs, &mut self.rng);
        }
    }

    fn new_log(&mut self) {
        let topic = TOPICS[self.rng.below(TOPICS.len() as u64) as usize];
        let one = matches!(topic, "kept" | "merged");
        if self.logs.len() < MAX_LOGS && !(one && self.logs.iter().any(|log| log.topic.as_str() == topic)) {
            self.add_log(topic);
        }
    }

    fn add_log(&mut self, topic: &str) {
        let framing = if matches!(topic, "kept" | "merged") { Framing::Merged } else { Framing::Records };
        let log = Log {
            topic: topic.parse().expect("a name"),
            epoch: self.logs.len() as u128 + 1,
            framing,
            kept: topic == "kept",
            head: 0,
            closed: false,
            away: false,
            may_be_gone: false,
            moved: false,
        };
        self.user.on_new_log(&log);
        self.logs.push(log);
        self.broker.open(self.logs.len() - 1, 0, &self.logs);
    }

    fn close(&mut self, log: usize) {
        self.logs[log].closed = true;
        for bid in self.broker.live() {
            if self.broker.buffers[&bid].log == log {
                self.broker.end(bid, true, &mut self.logs);
            }
        }
    }

    fn broker_takes(&mut self) -> bool {
        let Some(message) = self.rin.out.pop_front() else { return false };
        let is_request = matches!(message, ToBroker::Control(Control::Topics { .. }));
        let rejects = is_request && !self.is_calm && self.rng.percent(5);
        self.broker.on_message(message, &mut self.logs, &mut self.rng, rejects);
        true
    }

    /// A log whose publisher was away, or which the broker lost, gets a buffer.
    fn come_back(&mut self) -> bool {
        let away = (0..self.logs.len()).filter(|log| self.logs[*log].away).collect::<Vec<_>>();
        let Some(log) = self.rng.pick(&away) else { return false };
        self.logs[log].away = false;
        let ends = self.broker.of_log(log).into_iter().map(|bid| match self.broker.buffers[&bid].end {
            // The log goes on there without a hole.
            End::Gone(end) if self.moving.contains(&bid) => end,
            _ => self.logs[log].head,
        });
        let oldest = self.rng.between(0, ends.min().unwrap_or(self.logs[log].head));
        self.logs[log].moved |= self.broker.log_of.values().any(|known| *known == log);
        let bid = self.broker.open(log, oldest, &self.logs);
        if self.logs[log].closed {
            self.broker.end(bid, true, &mut self.logs);
        }
        true
    }

    /// Begins to move a log to another buffer, or lets it end.
    fn leave_buffer(&mut self) {
        let Some(bid) = self.rng.pick(&self.broker.live()) else { return };
        let log = self.broker.buffers[&bid].log;
        if self.logs[log].framing == Framing::Merged || self.broker.of_log(log).len() > 1 {
            return;
        }
        let way = self.rng.below(3);
        self.logs[log].moved |= way > 0;
        match way {
            0 => {
                self.logs[log].away = true;
                self.broker.end(bid, false, &mut self.logs);
            }
            // The log comes by another way, which is known later than the end of this one.
            1 => {
                self.broker.set_continues(bid, true, &mut self.logs);
                self.logs[log].away = true;
                self.broker.end(bid, false, &mut self.logs);
                self.moving.push(bid);
            }
            _ => {
                let oldest = self.rng.between(0, self.logs[log].head);
                self.broker.open(log, oldest, &self.logs);
                self.broker.set_continues(bid, true, &mut self.logs);
                self.moving.push(bid);
            }
        }
    }

    /// The next step of a log that moves.
    fn go_on_moving(&mut self) -> bool {
        let Some(bid) = self.rng.pick(&self.moving) else { return false };
        let Some(buffer) = self.broker.buffers.get(&bid) else { return false };
        let (log, end) = (buffer.log, buffer.end);
        if end == End::Open {
            self.broker.end(bid, false, &mut self.logs);
            return true;
        }
        if self.logs[log].away {
            if !self.is_calm && self.rng.percent(50) {
                self.broker.set_continues(bid, false, &mut self.logs);
                self.moving.retain(|moving| *moving != bid);
            }
            return false;
        }
        let removed = self.broker.remove(bid, &mut self.logs);
        self.moving.retain(|moving| !removed || *moving != bid);
        removed
    }

    /// An ended buffer goes after a while.
    fn remove_ended(&mut self) {
        let ended = |bid: &Bid| self.broker.buffers[bid].end != End::Open && !self.moving.contains(bid);
        let ended: Vec<Bid> = self.broker.buffers.keys().copied().filter(ended).collect();
        if let Some(bid) = self.rng.pick(&ended) {
            self.broker.remove(bid, &mut self.logs);
        }
    }

    fn fault(&mut self) {
        match self.rng.below(26) {
            0..4 => self.cut(),
            4 => self.restart(),
            5..9 => self.leave_buffer(),
            9..13 => _ = self.go_on_moving(),
            13..16 => _ = self.come_back(),
            16..18 => self.remove_ended(),
            18..21 => self.broker.end_slow(&mut self.rng),
            21 if !self.logs.is_empty() => {
                let log = self.rng.below(self.logs.len() as u64) as usize;
                self.close(log);
            }
            22..24 => {
                if let Some((broker, message)) =
                    self.late.take_if(|(broker, _)| *broker < self.machine.broker())
                {
                    self.machine.on_control(broker, self.conn, message);
                }
            }
            24 => {
                // Rights are withdrawn, whatever is asked for meanwhile.
                let (what, reason) = (Rejection::Withdrawn, "not any more".into());
                self.broker.send(Control::Rejected { what, reason });
            }
            _ => {}
        }
    }

    fn cut(&mut self) {
        if !std::mem::take(&mut self.is_up) {
            return;
        }
        if let (true, Some(ToClient::Control(message))) = (self.is_attached, self.broker.out.pop_back()) {
            self.late = Some((self.machine.broker(), message));
        }
        self.broker.disconnect();
        self.early.clear();
        // A resumed subscription may end before the broker has said again that its log goes on.
        let buffers = self.moving.iter().filter_map(|bid| self.broker.buffers.get(bid));
        buffers.for_each(|buffer| self.logs[buffer.log].may_be_gone = true);
        if self.is_attached {
            self.rin.lose();
        }
    }

    /// The broker is replaced by another process. It has the kept log, and publishers come back; its merged log is another one.
    fn restart(&mut self) {
        self.cut();
        let former = std::mem::take(&mut self.broker);
        if self.is_attached {
            self.former = former.log_of;
        }
        (self.is_attached, self.process) = (false, self.process + 1);
        self.moving.clear();
        let had: Vec<usize> =
            former.buffers.values().filter(|one| one.end == End::Open).map(|one| one.log).collect();
        for log in 0..self.logs.len() {
            match (had.contains(&log), self.logs[log].kept, self.logs[log].framing) {
                (true, true, _) => _ = self.broker.open(log, self.logs[log].head, &self.logs),
                (true, false, Framing::Merged) => {
                    // Nobody writes the former log any more.
                    self.logs[log].closed = true;
                    self.add_log("merged");
                }
                (true, ..) => self.logs[log].away = true,
                (false, ..) => {}
            }
        }
    }
}

/// The client.
impl World {
    fn reconnect(&mut self) -> bool {
        if self.is_up {
            return false;
        }
        (self.is_up, self.conn) = (true, self.conn + 1);
        self.unanswered.clear();
        self.is_rejected = false;
        let same_broker = self.process == 0;
        let requests = self.machine.on_reconnected(self.conn, same_broker);
        if same_broker {
            self.rin.resume();
            self.request(requests);
        } else {
            if self.is_attached {
                self.former.clone_from(&self.broker.log_of);
            }
            self.is_attached = false;
        }
        true
    }

    fn request(&mut self, requests: Vec<Control>) {
        if !self.is_up {
            return;
        }
        self.unanswered.extend(requests.iter().filter_map(|request| match request {
            Control::Topics { filters } => Some(filters.clone()),
            _ => None,
        }));
        let out = if self.is_attached { &mut self.rin.out } else { &mut self.early };
        out.extend(requests.into_iter().map(ToBroker::Control));
    }

    /// Something arrives from the broker.
    fn deliver(&mut self) -> bool {
        let message = if self.is_attached { self.broker.out.pop_front() } else { None };
        match message {
            None => return false,
            Some(ToClient::Control(message)) => {
                if let Control::Topic(topic) = &message {
                    self.user.on_announced(topic, self.hold, self.slow);
                }
                self.user.rejected += u64::from(matches!(message, Control::Rejected { .. }));
                let rejected = matches!(message, Control::Rejected { what: Rejection::Limit, .. });
                let answers = rejected || message == Control::TopicsDone;
                let answered = if answers { self.unanswered.pop_front() } else { None };
                self.is_rejected |= rejected;
                if answers && self.unanswered.is_empty() {
                    self.user.on_answered(!self.is_rejected);
                }
                self.machine.on_control(self.machine.broker(), self.conn, message);
                // The application learns which filters they are that it waits for.
                let told = self.machine.take_refused().into_iter().map(|refused| refused.filter);
                let mut one = answered.filter(|filters| rejected && filters.len() == 1).unwrap_or_default();
                one.retain(|filter| self.user.filters.contains_key(filter.as_str()));
                assert_eq!(told.collect::<Vec<_>>(), one);
            }
            Some(ToClient::Event(wire, event)) => {
                if let Some(to) = self.rin.on_event(wire, event) {
                    self.broker.on_landed(wire, to);
                }
            }
        }
        true
    }

    /// The driver carries out an effect.
    fn execute(&mut self) -> bool {
        match self.machine.next_effect() {
            None => return false,
            Some(Effect::Subscribe(subscribe)) if !self.is_calm && self.rng.percent(2) => {
                let log = &self.logs[self.log_of(subscribe.bid)];
                if self.user.wants(&log.topic) {
                    self.user.refusals.push((log.topic.clone(), log.epoch, true));
                }
                self.machine.on_not_subscribed(subscribe.bid, "there is no memory");
            }
            Some(Effect::Subscribe(subscribe)) => self.rin.subscribe(&subscribe),
            Some(Effect::Unsubscribe(bid)) => self.rin.unsubscribe(bid),
            Some(Effect::Ask { bid, begin }) => {
                let from = match begin {
                    Begin::At(Start::Position(_, position)) => ReplayFrom::Position(position),
                    Begin::At(_) => ReplayFrom::Oldest,
                    Begin::Since(_) => ReplayFrom::Age(1),
                };
                self.rin.send(ToBroker::Control(Control::Replay { bid, from }));
            }
            Some(Effect::Close(why)) => panic!("the broker did nothing wrong: {why}"),
        }
        true
    }

    fn user_acts(&mut self) {
        let filter = FILTERS[self.rng.below(FILTERS.len() as u64) as usize];
        let filter: TopicFilter = filter.parse().expect("a filter");
        if self.user.filters.contains_key(filter.as_str()) {
            self.machine.unsubscribe(&filter);
            self.user.on_unsubscribe(&filter, &self.logs);
            // The call returns when the effects are carried out.
            while self.execute() {}
            return;
        }
        let wanted = |log: &&Log| filter.matches(&log.topic) && !self.user.wants(&log.topic);
        let left = self.logs.iter().filter(wanted).map(|log| Epoch(log.epoch));
        let left: Vec<(Epoch, Position)> =
            left.filter_map(|epoch| Some((epoch, *self.user.left.get(&epoch.0)?))).collect();
        let (start, positions) = match self.rng.below(5) {
            0 => (StartFrom::Newest, Vec::new()),
            1 => (StartFrom::Last, Vec::new()),
            2 => (StartFrom::Time(SystemTime::UNIX_EPOCH), Vec::new()),
            3 => (StartFrom::Positions(left.clone()), left),
            _ => (StartFrom::Oldest, Vec::new()),
        };
        self.user.on_subscribe(&filter, &start, &positions);
        let requests = self.machine.subscribe(self.conn, &filter, start);
        self.request(requests);
    }

    /// The application takes what there is. Returns false if there is nothing.
    fn receive(&mut self) -> bool {
        if let Some(notice) = self.machine.next_notice() {
            self.on_notice(notice);
            return true;
        }
        let learns = self.rin.down > 0 && self.rng.percent(30);
        if !learns && let Some((bid, event)) = self.rin.recv(&mut self.rng) {
            self.on_event(bid, event);
            while let Some(notice) = self.machine.next_notice() {
                self.on_notice(notice);
            }
            return true;
        }
        if self.rin.down > 0 {
            self.rin.down -= 1;
            self.machine.on_event(InEvent::ConnDown { reason: DownReason::NotStarted("it is cut".into()) });
            return true;
        }
        if self.machine.is_disconnected() && self.is_up && !self.is_attached {
            self.move_on();
            return true;
        }
        false
    }

    /// The application moves to the connection to another broker process.
    fn move_on(&mut self) {
        self.machine.on_leaving();
        let requests = self.machine.on_moved(self.conn);
        self.user.on_moved(&self.logs);
        let out = std::mem::take(&mut self.early);
        (self.rin, self.is_attached) = (RIn::new(out), true);
        self.request(requests);
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Joined { epoch, start, .. } => {
                let log = self.logs.iter().find(|log| log.epoch == epoch.0).expect("a log that exists");
                self.user.on_joined(log, start, self.oldest[&epoch.0]);
            }
            other => self.user.on_notice(other, &self.logs, self.slow.framework() == Policy::Block),
        }
    }

    fn on_event(&mut self, bid: Bid, event: Event) {
        let event = match event {
            Event::Data(from, to) => return self.on_data(bid, from, to),
            Event::Subscribed { epoch, start, oldest } => {
                self.oldest.insert(epoch, oldest);
                InEvent::Subscribed { bid, epoch: Epoch(epoch), start }
            }
            Event::NotDurable => InEvent::NotDurable { bid },
            Event::Lost(from, to) => InEvent::Lost { bid, from, to },
            Event::Closed(end) => InEvent::Closed { bid, end },
            Event::Gone(end) => InEvent::Gone { bid, end },
            Event::Refused(error) => {
                let log = &self.logs[self.log_of(bid)];
                let RefusedError::Peer { code, .. } = error else { unreachable!("the broker refused it") };
                let is_told = match code {
                    RefuseCode::PolicyNotAllowed => self.slow != SlowPolicy::BlockIfAllowed,
                    other => other != RefuseCode::NoSuchBuffer,
                };
                if is_told {
                    // The machine may have left the buffer, which the rIn does not know yet.
                    let must = !self.machine.has_effects();
                    self.user.refusals.push((log.topic.clone(), log.epoch, must));
                }
                InEvent::Refused { bid, error }
            }
        };
        self.machine.on_event(event);
    }

    fn on_data(&mut self, bid: Bid, from: Position, to: Position) {
        let log = self.log_of(bid);
        if self.machine.hand_out(bid, to).is_none() {
            return;
        }
        self.user.on_bytes(&self.logs[log], from, to);
    }
}
