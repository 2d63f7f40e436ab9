//! A broker with the logs of its publishers. A message is a position: what a log has between two positions is given by its epoch.

use std::collections::{BTreeMap, VecDeque};

use rocketbufs::error::{RefuseCode, RefusedError};
use rocketbufs::{Bid, Policy, Position, Start};
use testkit::Random;

use crate::wire::{Control, Framing, Rejection, ReplayFrom, SubscribeLimits, Topic, TopicFilter, TopicName};

/// What a publisher, or the broker for a merged topic, writes.
pub(super) struct Log {
    pub(super) topic: TopicName,
    pub(super) epoch: u128,
    pub(super) framing: Framing,
    pub(super) kept: bool,
    pub(super) head: Position,
    pub(super) closed: bool,
    /// The publisher is not there.
    pub(super) away: bool,
    /// The broker has let a subscriber know that the log does not go on.
    pub(super) may_be_gone: bool,
    /// The log went on in another buffer.
    pub(super) moved: bool,
}

/// How a buffer ended, if it did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Closed(Position),
    Gone(Position),
}

pub(super) struct Buffer {
    pub(super) log: usize,
    /// The first position that the buffer ever had, and the first one that it still has.
    start: Position,
    pub(super) oldest: Position,
    pub(super) end: End,
    pub(super) continues: bool,
    /// The announced buffer, of a replay.
    pub(super) replay_of: Option<Bid>,
}

/// A subscription.
struct Reader {
    bid: Bid,
    policy: Policy,
    /// The next position to send, and the one behind all that has arrived.
    at: Position,
    landed: Position,
}

/// What the rIn gets for a subscription.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// `oldest`: the first position that the buffer had then.
    Subscribed {
        epoch: u128,
        start: Position,
        oldest: Position,
    },
    /// The broker keeps no place.
    NotDurable,
    Data(Position, Position),
    Lost(Position, Position),
    Closed(Position),
    Gone(Position),
    Refused(RefusedError),
}

pub(super) enum ToClient {
    Control(Control),
    Event(u64, Event),
}

pub(super) enum ToBroker {
    Control(Control),
    Subscribe { wire: u64, bid: Bid, start: Start, policy: Policy },
    Unsubscribe(u64),
}

/// A process of the broker, with one subscriber.
#[derive(Default)]
pub(super) struct Broker {
    pub(super) buffers: BTreeMap<Bid, Buffer>,
    last_bid: Bid,
    /// The logs of all buffers, also of those that were removed.
    pub(super) log_of: BTreeMap<Bid, usize>,
    filters: Vec<TopicFilter>,
    /// The limits that were last sent.
    limits: SubscribeLimits,
    readers: BTreeMap<u64, Reader>,
    /// The subscriber asks for places, and gets none.
    keeps_no_places: bool,
    pub(super) out: VecDeque<ToClient>,
}

impl Broker {
    pub(super) fn send(&mut self, message: Control) {
        self.out.push_back(ToClient::Control(message));
    }

    fn wants(&self, topic: &TopicName) -> bool {
        self.filters.iter().any(|filter| filter.matches(topic))
    }

    fn announce(&mut self, bid: Bid, fresh: bool, logs: &[Log]) {
        let buffer = &self.buffers[&bid];
        let (log, continues) = (&logs[buffer.log], buffer.continues);
        let limits = match log.topic.as_str() {
            "a" => SubscribeLimits { max_hold_ms: 500, ..SubscribeLimits::default() },
            "a/b" => SubscribeLimits { max_lag_bytes: 50, ..SubscribeLimits::default() },
            _ => SubscribeLimits::default(),
        };
        if std::mem::replace(&mut self.limits, limits) != limits {
            self.send(Control::Limits(limits));
        }
        self.send(Control::Topic(Topic {
            bid,
            epoch: log.epoch,
            framing: log.framing,
            fresh,
            kept: log.kept,
            max_delivery_bytes: 1,
            topic: log.topic.clone(),
            space: None,
        }));
        if continues {
            self.send(Control::Continues { bid, yes: true });
        }
    }

    fn add(&mut self, log: usize, oldest: Position, replay_of: Option<Bid>) -> Bid {
        self.last_bid += 1;
        let buffer = Buffer { log, start: oldest, oldest, end: End::Open, continues: false, replay_of };
        self.buffers.insert(self.last_bid, buffer);
        self.log_of.insert(self.last_bid, log);
        self.last_bid
    }

    /// A log gets a buffer that begins at a position.
    pub(super) fn open(&mut self, log: usize, oldest: Position, logs: &[Log]) -> Bid {
        let bid = self.add(log, oldest, None);
        if self.wants(&logs[log].topic) {
            self.announce(bid, true, logs);
        }
        bid
    }

    /// The announced buffers of a log.
    pub(super) fn of_log(&self, log: usize) -> Vec<Bid> {
        let of_log =
            self.buffers.iter().filter(|(_, buffer)| buffer.log == log && buffer.replay_of.is_none());
        of_log.map(|(bid, _)| *bid).collect()
    }

    /// The announced buffers that have not ended.
    pub(super) fn live(&self) -> Vec<Bid> {
        let live = |buffer: &Buffer| buffer.end == End::Open && buffer.replay_of.is_none();
        self.buffers.iter().filter(|(_, buffer)| live(buffer)).map(|(bid, _)| *bid).collect()
    }

    fn head(&self, bid: Bid, logs: &[Log]) -> Position {
        match self.buffers[&bid].end {
            End::Open => logs[self.buffers[&bid].log].head,
            End::Closed(end) | End::Gone(end) => end,
        }
    }

    /// The subscriber's connection is gone, with its replays.
    pub(super) fn disconnect(&mut self) {
        self.filters.clear();
        (self.limits, self.keeps_no_places) = (SubscribeLimits::default(), false);
        self.readers.clear();
        self.out.clear();
        let replays = self.buffers.iter().filter(|(_, buffer)| buffer.replay_of.is_some());
        let replays: Vec<Bid> = replays.map(|(bid, _)| *bid).collect();
        replays.into_iter().for_each(|bid| _ = self.buffers.remove(&bid));
    }

    /// Takes a message of the subscriber. `rejects`: a request for topics is refused.
    pub(super) fn on_message(
        &mut self,
        message: ToBroker,
        logs: &mut [Log],
        rng: &mut Random,
        rejects: bool,
    ) {
        match message {
            ToBroker::Control(Control::Topics { .. }) if rejects => {
                self.send(Control::Rejected { what: Rejection::Limit, reason: "too many".into() });
            }
            ToBroker::Control(Control::Hold { .. }) => self.keeps_no_places = rng.percent(50),
            ToBroker::Control(Control::Topics { filters }) => {
                let known = std::mem::take(&mut self.filters);
                let matched = |buffer: &Buffer| {
                    let topic = &logs[buffer.log].topic;
                    let new = filters.iter().any(|filter| filter.matches(topic));
                    new && buffer.replay_of.is_none() && !known.iter().any(|filter| filter.matches(topic))
                };
                let matched: Vec<Bid> =
                    self.buffers.iter().filter(|(_, one)| matched(one)).map(|(bid, _)| *bid).collect();
                matched.into_iter().for_each(|bid| self.announce(bid, false, logs));
                self.filters = known.into_iter().chain(filters).collect();
                self.send(Control::TopicsDone);
            }
            ToBroker::Control(Control::Replay { bid, from }) => self.on_replay(bid, from, logs, rng),
            ToBroker::Control(other) => panic!("a subscriber sends no {other:?}"),
            ToBroker::Subscribe { wire, bid, start, policy } => {
                self.on_subscribe(wire, Reader { bid, policy, at: 0, landed: 0 }, start, logs);
            }
            ToBroker::Unsubscribe(wire) => drop(self.readers.remove(&wire)),
        }
    }

    fn on_replay(&mut self, bid: Bid, from: ReplayFrom, logs: &[Log], rng: &mut Random) {
        let earlier: Vec<Bid> =
            self.buffers.iter().filter(|(_, one)| one.replay_of == Some(bid)).map(|(bid, _)| *bid).collect();
        earlier.into_iter().for_each(|replay| self.destroy(replay));
        let Some(live) = self.buffers.get(&bid) else { return };
        let (log, oldest, head) = (live.log, live.oldest, self.head(bid, logs));
        let start = match from {
            ReplayFrom::Oldest => 0,
            ReplayFrom::Position(position) => position.min(head),
            ReplayFrom::Age(_) => rng.between(0, head),
        };
        let replay = (start < oldest).then(|| self.add(log, start, Some(bid)));
        self.send(Control::Replayed { bid, replay, start });
    }

    fn on_subscribe(&mut self, wire: u64, reader: Reader, start: Start, logs: &mut [Log]) {
        let bid = reader.bid;
        let refuse = |code, a| Event::Refused(RefusedError::Peer { code, a, b: 0 });
        let Some(buffer) = self.buffers.get(&bid) else {
            self.log_of.get(&bid).into_iter().for_each(|log| logs[*log].may_be_gone = true);
            return self.out.push_back(ToClient::Event(wire, refuse(RefuseCode::NoSuchBuffer, 0)));
        };
        let log = &logs[buffer.log];
        let allowed = 1 << Policy::Drop as u8 | 1 << Policy::Disconnect as u8;
        if log.topic.as_str() == "free" && reader.policy == Policy::Block {
            return self.out.push_back(ToClient::Event(wire, refuse(RefuseCode::PolicyNotAllowed, allowed)));
        }
        let (oldest, head) = (buffer.oldest, self.head(bid, logs));
        let start = match start {
            Start::Newest => head,
            Start::Oldest => oldest,
            Start::First => buffer.start,
            Start::Last | Start::Ago(_) => head.saturating_sub(1).max(oldest),
            Start::Position(epoch, position) => {
                assert_eq!(epoch.0, log.epoch, "a position of another log");
                position
            }
            other => panic!("{other:?}"),
        };
        self.out.push_back(ToClient::Event(wire, Event::Subscribed { epoch: log.epoch, start, oldest }));
        if self.keeps_no_places {
            self.out.push_back(ToClient::Event(wire, Event::NotDurable));
        }
        self.readers.insert(wire, Reader { at: start, landed: start, ..reader });
    }

    /// What was sent to a subscription has arrived.
    pub(super) fn on_landed(&mut self, wire: u64, to: Position) {
        if let Some(reader) = self.readers.get_mut(&wire) {
            reader.landed = to;
        }
    }

    /// Sends what a subscription may have, if there is something.
    pub(super) fn pump(&mut self, logs: &[Log], rng: &mut Random) -> bool {
        let wires: Vec<u64> = self.readers.keys().copied().collect();
        let first = if wires.is_empty() { 0 } else { rng.below(wires.len() as u64) as usize };
        wires.iter().cycle().skip(first).take(wires.len()).any(|wire| self.pump_one(*wire, logs, rng))
    }

    fn pump_one(&mut self, wire: u64, logs: &[Log], rng: &mut Random) -> bool {
        let Some(reader) = self.readers.get(&wire) else { return false };
        let (bid, at) = (reader.bid, reader.at);
        let (buffer, head) = (&self.buffers[&bid], self.head(bid, logs));
        // A replay ends where the ring has the rest.
        let live = buffer.replay_of.map(|live| self.buffers.get(&live).map_or(0, |live| live.oldest));
        let event = if live.is_some_and(|oldest| at >= oldest && (at == head || rng.percent(30))) {
            Event::Closed(at)
        } else if at < buffer.oldest {
            Event::Lost(at, buffer.oldest)
        } else if at < head {
            Event::Data(at, rng.between(at + 1, head.min(at + 3)))
        } else {
            match buffer.end {
                End::Open => return false,
                End::Closed(end) => Event::Closed(end),
                End::Gone(end) => Event::Gone(end),
            }
        };
        match event {
            Event::Data(_, to) | Event::Lost(_, to) => {
                self.readers.entry(wire).and_modify(|reader| reader.at = to);
            }
            _ => {
                self.readers.remove(&wire);
                if live.is_some() {
                    self.buffers.remove(&bid);
                }
            }
        }
        self.out.push_back(ToClient::Event(wire, event));
        true
    }

    /// The ring gives up old bytes: not those that a blocking subscriber has not got, or that the successor of an ended buffer needs.
    pub(super) fn trim(&mut self, bid: Bid, logs: &[Log], rng: &mut Random) {
        let head = self.head(bid, logs);
        let blocking = |reader: &&Reader| reader.bid == bid && reader.policy == Policy::Block;
        let needed = self.readers.values().filter(blocking).map(|reader| reader.landed);
        let log = self.buffers[&bid].log;
        let others = self.of_log(log).into_iter().filter(|other| *other != bid);
        let left = others.filter(|other| self.buffers[other].end != End::Open).map(|other| {
            let of_other = self.readers.values().filter(|reader| reader.bid == other);
            of_other.map(|reader| reader.landed).min().unwrap_or(self.head(other, logs))
        });
        let most = needed.chain(left).min().unwrap_or(head).min(head);
        let buffer = self.buffers.get_mut(&bid).expect("a live buffer");
        buffer.oldest = rng.between(buffer.oldest, most.max(buffer.oldest));
    }

    /// A subscription of a slow subscriber ends.
    pub(super) fn end_slow(&mut self, rng: &mut Random) {
        let slow = self.readers.iter().filter(|(_, reader)| reader.policy == Policy::Disconnect);
        let slow: Vec<u64> = slow.map(|(wire, _)| *wire).collect();
        if let Some(wire) = rng.pick(&slow) {
            self.readers.remove(&wire);
            let error = RefusedError::Peer { code: RefuseCode::TooSlow, a: 1, b: 0 };
            self.out.push_back(ToClient::Event(wire, Event::Refused(error)));
        }
    }

    /// Says whether the log of a buffer continues in another one.
    pub(super) fn set_continues(&mut self, bid: Bid, yes: bool, logs: &mut [Log]) {
        let Some(buffer) = self.buffers.get_mut(&bid) else { return };
        buffer.continues = yes;
        let log = &mut logs[buffer.log];
        log.may_be_gone |= !yes;
        if self.wants(&log.topic) {
            self.send(Control::Continues { bid, yes });
        }
    }

    /// Ends a buffer.
    pub(super) fn end(&mut self, bid: Bid, closed: bool, logs: &mut [Log]) {
        let head = self.head(bid, logs);
        let wanted = self.wants(&logs[self.log_of[&bid]].topic);
        let Some(buffer) = self.buffers.get_mut(&bid) else { return };
        buffer.end = if closed { End::Closed(head) } else { End::Gone(head) };
        // A subscriber that is not connected may learn of the end before it learns that the log continues.
        logs[buffer.log].may_be_gone |= !(closed || buffer.continues && wanted);
    }

    fn destroy(&mut self, bid: Bid) {
        self.buffers.remove(&bid);
        let wires: Vec<u64> =
            self.readers.iter().filter(|(_, reader)| reader.bid == bid).map(|(wire, _)| *wire).collect();
        for wire in wires {
            self.readers.remove(&wire);
            let error = RefusedError::Peer { code: RefuseCode::NoSuchBuffer, a: 0, b: 0 };
            self.out.push_back(ToClient::Event(wire, Event::Refused(error)));
        }
    }

    /// Removes an ended buffer that nobody reads.
    pub(super) fn remove(&mut self, bid: Bid, logs: &mut [Log]) -> bool {
        if self.readers.values().any(|reader| reader.bid == bid) {
            return false;
        }
        let Some(buffer) = self.buffers.remove(&bid) else { return false };
        let (topic, alone) = (logs[buffer.log].topic.clone(), self.of_log(buffer.log).is_empty());
        // A subscriber that is not connected finds no buffer.
        logs[buffer.log].may_be_gone |= alone || self.filters.is_empty();
        if self.wants(&topic) {
            self.send(Control::TopicGone { bid, topic });
        }
        true
    }
}
