//! An rIn, as far as the machine sees it: subscriptions by buffer, events in order within a buffer, resuming over another connection.

use std::collections::{BTreeMap, VecDeque};

use rocketbufs::{Bid, Epoch, Policy, Position, Start};
use testkit::Random;

use super::broker::{Event, ToBroker};
use crate::subscriptions::{Begin, Subscribe};

struct Subscription {
    wire: u64,
    start: Start,
    policy: Policy,
    /// The log and the end of what has arrived.
    received: Option<(u128, Position)>,
    events: VecDeque<Event>,
    over: bool,
}

#[derive(Default)]
pub(super) struct RIn {
    all: BTreeMap<Bid, Subscription>,
    last_wire: u64,
    /// Messages to the broker, if there is a connection.
    pub(super) out: VecDeque<ToBroker>,
    pub(super) is_up: bool,
    /// Losses of the connection that the application has not learnt of.
    pub(super) down: u64,
}

impl RIn {
    /// The rIn of a connection, with messages that were sent over it before.
    pub(super) fn new(out: VecDeque<ToBroker>) -> Self {
        Self { out, is_up: true, ..Self::default() }
    }

    pub(super) fn send(&mut self, message: ToBroker) {
        if self.is_up {
            self.out.push_back(message);
        }
    }

    pub(super) fn subscribe(&mut self, subscribe: &Subscribe) {
        if self.all.get(&subscribe.bid).is_some_and(|known| !known.over) {
            return;
        }
        let start = match subscribe.begin {
            Begin::At(start) => start,
            Begin::Since(_) => Start::Ago(1),
        };
        let (policy, events) = (subscribe.policy, VecDeque::new());
        let new = Subscription { wire: 0, start, policy, received: None, events, over: false };
        self.all.insert(subscribe.bid, new);
        self.request(subscribe.bid);
    }

    fn request(&mut self, bid: Bid) {
        self.last_wire += 1;
        let wire = self.last_wire;
        let Some(one) = self.all.get_mut(&bid) else { return };
        one.wire = wire;
        let start = one.received.map_or(one.start, |(epoch, at)| Start::Position(Epoch(epoch), at));
        let policy = one.policy;
        self.send(ToBroker::Subscribe { wire, bid, start, policy });
    }

    pub(super) fn unsubscribe(&mut self, bid: Bid) {
        if let Some(one) = self.all.remove(&bid) {
            self.send(ToBroker::Unsubscribe(one.wire));
        }
    }

    /// The connection is gone.
    pub(super) fn lose(&mut self) {
        self.is_up = false;
        self.down += 1;
        self.out.clear();
        // Nothing that comes later is for these subscriptions.
        self.all.values_mut().for_each(|one| one.wire = 0);
    }

    /// Resumes over another connection.
    pub(super) fn resume(&mut self) {
        self.is_up = true;
        let bids: Vec<Bid> = self.all.iter().filter(|(_, one)| !one.over).map(|(bid, _)| *bid).collect();
        bids.into_iter().for_each(|bid| self.request(bid));
    }

    /// Something arrives. Returns the end of the log's bytes that have, if the subscription is known.
    pub(super) fn on_event(&mut self, wire: u64, event: Event) -> Option<Position> {
        let one = self.all.values_mut().find(|one| one.wire == wire)?;
        let epoch = one.received.map_or(0, |(epoch, _)| epoch);
        match event {
            Event::Subscribed { epoch, start, .. } => {
                let resumed = one.received.replace((epoch, start));
                if let Some(before) = resumed {
                    assert_eq!(before, (epoch, start), "a subscription resumes where it was");
                    return Some(start);
                }
            }
            Event::Data(from, to) | Event::Lost(from, to) => {
                assert_eq!(one.received, Some((epoch, from)), "the model of the broker sends in order");
                one.received = Some((epoch, to));
            }
            Event::NotDurable => {}
            Event::Closed(_) | Event::Gone(_) | Event::Refused(_) => one.over = true,
        }
        one.events.push_back(event);
        one.received.map(|(_, to)| to)
    }

    /// The next event of any subscription, and the log where it is known.
    pub(super) fn recv(&mut self, rng: &mut Random) -> Option<(Bid, Event)> {
        let ready: Vec<Bid> =
            self.all.iter().filter(|(_, one)| !one.events.is_empty()).map(|(bid, _)| *bid).collect();
        let bid = rng.pick(&ready)?;
        let one = self.all.get_mut(&bid)?;
        let event = one.events.pop_front()?;
        // A subscription that is over is removed before the application learns of the end.
        if one.over && one.events.is_empty() {
            self.all.remove(&bid);
        }
        Some((bid, event))
    }
}
