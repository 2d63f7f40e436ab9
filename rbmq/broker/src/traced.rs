//! The events of the broker's thread that traces have, and their looks at rings.

use std::collections::HashSet;
use std::time::Instant;

use rbmq_wire::{Control, ReplayFrom, TopicName};
use rocketbufs::inspect::{BufferInfo, SubscriberInfo};
use rocketbufs::{Bid, InEvent, OutBuffer, OutEvent};

use super::engine::Engine;
use super::inbox::Event;
use super::login::AcceptedClient;
use super::session_key::SessionKey;
use super::traces::{
    Cursor, Holds, MAX_CURSORS, MAX_RINGS, Ring, Seen, Target, Trace, TraceAnswer, TraceAsk, Wish,
};

/// The filters of a request that are told.
const SHOWN_FILTERS: usize = 8;

impl Engine {
    /// Answers somebody who traces.
    pub(super) fn on_trace(&self, ask: TraceAsk) {
        let TraceAsk { owner, wish, reply } = ask;
        let traces = &self.tables.traces;
        let answer = match wish {
            Wish::Read { after } => traces.read(&owner, after),
            Wish::Stop { after } => traces.stop(&owner, after),
            Wish::Start { target: Target::Client(conn), time } => match self.report().client_name(conn) {
                Some(client) => traces.start(owner, Target::Client(conn), time, Some(client)),
                None => TraceAnswer::NoClient,
            },
            Wish::Start { target, time } => traces.start(owner, target, time, None),
        };
        let _ = reply.try_send(answer);
    }

    /// Records an event of the inbox, before it is handled.
    pub(super) fn trace(&self, event: &Event) {
        match event {
            Event::SubscriberControl { conn, message } if self.tables.traces.may_want(conn.id()) => {
                if let Ok(message) = Control::decode(message) {
                    self.trace_subscriber(conn.id(), &message);
                }
            }
            Event::PublisherControl { key, message } if self.is_traced(*key) => {
                if let Ok(message) = Control::decode(message) {
                    self.trace_publisher(*key, &message);
                }
            }
            Event::Publisher { key, event } => self.trace_in(*key, event),
            Event::Out(event) => self.trace_out(event),
            _ => {}
        }
    }

    fn is_traced(&self, key: SessionKey) -> bool {
        self.tables.sessions.get(key).is_some_and(|session| self.tables.traces.may_want(session.conn.id()))
    }

    /// Records that a client was let in. It may be one that a trace knows by its name.
    pub(super) fn trace_arrival(&self, client: &AcceptedClient) {
        let (conn, name, user) = (client.conn.id(), &client.hello.name, &client.identity.user);
        self.tables.traces.each(Instant::now(), false, |trace| trace.arrives(conn, name, user));
        self.tables.traces.record(Some(conn), None, || {
            let text = format!("{:?} of user '{user}' at {}", client.hello.role, client.address);
            Seen::new("connected").client(name).text(&text).number("conn", conn)
        });
    }

    fn topic_of(&self, bid: Bid) -> Option<&TopicName> {
        self.tables.topics.get(bid).map(|buffer| &buffer.topic)
    }

    /// A client by its name, or its address.
    fn who(&self, conn: u64) -> String {
        let subscriber = self.subscribers.get(conn);
        match subscriber.filter(|subscriber| !subscriber.name.is_empty()) {
            Some(subscriber) => subscriber.name.clone(),
            None => self.tables.admission.identity(conn).map_or_else(String::new, |(_, at)| at.to_string()),
        }
    }

    fn trace_subscriber(&self, conn: u64, message: &Control) {
        match message {
            Control::Topics { filters } => {
                let shown = || filters.iter().take(SHOWN_FILTERS).map(ToString::to_string);
                let text = || shown().collect::<Vec<_>>().join(", ");
                self.record(Some(conn), None, "asks for topics", text, &[("filters", filters.len() as u64)]);
            }
            Control::Hold { hold_ms } => {
                let numbers = [("hold_ms", (*hold_ms).into())];
                self.record(Some(conn), None, "may come back", String::new, &numbers);
            }
            Control::Replay { bid, from } => {
                let topic = self.topic_of(*bid);
                let number = match from {
                    ReplayFrom::Oldest => ("position", 0),
                    ReplayFrom::Position(position) => ("position", *position),
                    ReplayFrom::Age(ms) => ("age_ms", *ms),
                };
                self.record(Some(conn), topic, "asks for a replay", String::new, &[number]);
            }
            _ => {}
        }
    }

    fn trace_publisher(&self, key: SessionKey, message: &Control) {
        let Some(session) = self.tables.sessions.get(key).filter(|session| session.upstream.is_none()) else {
            return;
        };
        let conn = Some(session.conn.id());
        match message {
            Control::Create { ring_bytes, min_subscribers, topic, .. } => {
                let numbers = [("ring_bytes", *ring_bytes), ("min_subscribers", (*min_subscribers).into())];
                self.record(conn, Some(topic), "opens the topic", String::new, &numbers);
            }
            Control::AskStored { bid, position, synced, archived } => {
                let topic = session.mapping.get(*bid).and_then(|bid| self.topic_of(bid));
                let numbers = [("stored", *position), ("synced", *synced), ("archived", *archived)];
                self.record(conn, topic, "asks for a confirmation", String::new, &numbers);
            }
            _ => {}
        }
    }

    fn trace_in(&self, key: SessionKey, event: &InEvent) {
        let Some(session) = self.tables.sessions.get(key) else { return };
        let conn = Some(session.conn.id());
        let of = |bid: &Bid| session.mapping.get(*bid).and_then(|bid| self.topic_of(bid));
        match event {
            InEvent::Subscribed { bid, start, .. } => {
                self.record(conn, of(bid), "the topic is open", String::new, &[("start", *start)]);
            }
            InEvent::Lost { bid, from, to } => {
                self.record(
                    conn,
                    of(bid),
                    "lost before the broker",
                    String::new,
                    &[("from", *from), ("to", *to)],
                );
            }
            InEvent::Closed { bid, end } => {
                self.record(conn, of(bid), "closes the topic", String::new, &[("end", *end)])
            }
            InEvent::Gone { bid, end } => {
                self.record(conn, of(bid), "the publisher is gone", String::new, &[("end", *end)])
            }
            InEvent::ConfirmRequested { bid, delivered, consumed } => {
                let numbers = [("delivered", *delivered), ("consumed", *consumed)];
                self.record(conn, of(bid), "asks for a confirmation", String::new, &numbers);
            }
            InEvent::ConnDown { reason } => {
                self.record(conn, None, "disconnected", || reason.to_string(), &[])
            }
            _ => {}
        }
    }

    fn trace_out(&self, event: &OutEvent) {
        match event {
            OutEvent::Subscribed { conn, bid, start, resumed, .. } => {
                let text = if *resumed { "goes on with its log" } else { "" };
                self.record(
                    Some(*conn),
                    self.topic_of(*bid),
                    "subscribed",
                    || text.into(),
                    &[("start", *start)],
                );
            }
            OutEvent::Unsubscribed { conn, bid, why, .. } => {
                self.record(Some(*conn), self.topic_of(*bid), "unsubscribed", || why.to_string(), &[]);
            }
            OutEvent::Dropped { conn, bid, from, to, policy } => {
                let numbers = [("from", *from), ("to", *to), ("bytes", to.saturating_sub(*from))];
                self.record(Some(*conn), self.topic_of(*bid), "lost", || format!("{policy:?}"), &numbers);
            }
            OutEvent::TooSlow { conn, bid, policy, lag_bytes } => {
                let text = || format!("{policy:?}");
                let numbers = [("lag_bytes", *lag_bytes)];
                self.record(Some(*conn), self.topic_of(*bid), "too slow", text, &numbers);
            }
            OutEvent::ConnDown { conn, reason } => {
                self.record(Some(*conn), None, "disconnected", || reason.to_string(), &[]);
            }
            _ => {}
        }
    }

    fn record(
        &self,
        conn: Option<u64>,
        topic: Option<&TopicName>,
        what: &'static str,
        text: impl Fn() -> String,
        numbers: &[(&'static str, u64)],
    ) {
        self.tables.traces.record(conn, topic, || {
            let mut seen = Seen::new(what).topic(topic);
            if let Some(conn) = conn {
                seen = seen.client(&self.who(conn)).number("conn", conn);
            }
            let text = text();
            if !text.is_empty() {
                seen = seen.text(&text);
            }
            numbers.iter().fold(seen, |seen, (name, value)| seen.number(name, *value))
        });
    }

    /// Looks at the rings of the traces that are due, and forgets old traces.
    pub(super) fn sample_traces(&self) {
        let now = Instant::now();
        self.tables.traces.each(now, true, |trace| self.sample(trace));
        self.tables.traces.forget(now);
    }

    fn sample(&self, trace: &mut Trace) {
        let (bids, is_cut) = self.rings_of(trace);
        trace.is_cut |= is_cut;
        trace.rings.retain(|bid, _| bids.contains(bid));
        for bid in bids {
            let Some(buffer) = self.tables.out.buffer(bid) else { continue };
            let Some(info) = buffer.info() else { continue };
            let before = trace.rings.remove(&bid);
            let ring = self.sample_ring(trace, bid, &buffer, &info, before);
            trace.rings.insert(bid, ring);
            // Their answers are in the next look.
            buffer.refresh_subscribers();
        }
    }

    /// The rings that a trace looks at, and whether there are more.
    fn rings_of(&self, trace: &Trace) -> (Vec<Bid>, bool) {
        let mut bids: Vec<Bid> = match &trace.target {
            Target::Topic(topic) => self.tables.topics.of(topic).to_vec(),
            Target::Client(_) => {
                let conns = || trace.conns.iter().copied();
                let read = conns().flat_map(|conn| self.tables.topics.matched(conn));
                let read = read.map(|(bid, _)| bid).take(MAX_RINGS + 1);
                let sessions = self.tables.sessions.after(None);
                let own = sessions.filter(|(_, session)| trace.conns.contains(&session.conn.id()));
                let written = own.flat_map(|(_, session)| session.mapping.out_bids()).take(MAX_RINGS + 1);
                read.chain(written).collect()
            }
        };
        let is_cut = bids.len() > MAX_RINGS;
        bids.truncate(MAX_RINGS);
        (bids, is_cut)
    }

    /// Records what has changed in a ring, and returns how it is now.
    fn sample_ring(
        &self,
        trace: &mut Trace,
        bid: Bid,
        buffer: &OutBuffer,
        info: &BufferInfo,
        before: Option<Ring>,
    ) -> Ring {
        let topic = self.topic_of(bid);
        let mut ring = before.unwrap_or_else(|| Ring {
            head: info.head,
            capacity: info.capacity_bytes,
            ..Ring::default()
        });
        if info.head > ring.head {
            let publisher = self.tables.topics.get(bid).and_then(|own| self.tables.sessions.get(own.session));
            let name = publisher.map_or(String::new(), |own| own.name.clone());
            let seen = Seen::new("received").topic(topic).client(&name).number("from", ring.head);
            trace.push(seen.number("to", info.head).number("bytes", info.head - ring.head));
        }
        if info.capacity_bytes > ring.capacity {
            let seen = Seen::new("the ring grows").topic(topic).number("from_bytes", ring.capacity);
            trace.push(seen.number("to_bytes", info.capacity_bytes));
        }
        (ring.head, ring.capacity) = (info.head, info.capacity_bytes);
        let mut all = buffer.subscribers();
        all.sort_by_key(|sub| sub.landed);
        let holds = self.holds(bid, info, &all, buffer);
        if holds != ring.holds {
            trace.push(told(holds.as_ref(), info, all.first()).topic(topic));
            ring.holds = holds;
        }
        all.retain(|sub| matches!(trace.target, Target::Topic(_)) || trace.conns.contains(&sub.conn));
        self.tell_cursors(trace, topic, &all, &mut ring);
        ring
    }

    /// Records how far subscribers are, the slowest first, where that has changed since it was recorded.
    fn tell_cursors(
        &self,
        trace: &mut Trace,
        topic: Option<&TopicName>,
        all: &[SubscriberInfo],
        ring: &mut Ring,
    ) {
        let present: HashSet<u64> = all.iter().map(|sub| sub.conn).collect();
        ring.cursors.retain(|conn, _| present.contains(conn));
        let now = |sub: &SubscriberInfo| Cursor { landed: sub.landed, consumed: sub.consumed };
        let changed = all.iter().filter(|sub| ring.cursors.get(&sub.conn) != Some(&now(sub)));
        let mut told: Vec<_> = changed.take(MAX_CURSORS + 1).collect();
        trace.is_cut |= told.len() > MAX_CURSORS;
        told.truncate(MAX_CURSORS);
        for sub in told {
            let seen = Seen::new("has").topic(topic).client(&self.who(sub.conn)).number("conn", sub.conn);
            let seen = seen.number("landed", sub.landed).number("consumed", sub.consumed);
            trace.push(seen.number("lag_bytes", ring.head.saturating_sub(sub.landed)));
            ring.cursors.insert(sub.conn, now(sub));
        }
    }

    /// Who holds the publisher of a ring, or what.
    fn holds(
        &self,
        bid: Bid,
        info: &BufferInfo,
        all: &[SubscriberInfo],
        buffer: &OutBuffer,
    ) -> Option<Holds> {
        if let Some(reason) = self.report().blocked_by(bid, info) {
            return Some(Holds { who: format!("{reason:?}"), waits: true });
        }
        let history = info.head.saturating_sub(info.retain_bytes);
        let waits = info.horizon.saturating_sub(info.head) < info.max_delivery_bytes;
        let of = |at: Option<u64>| at.filter(|at| *at < history);
        let present = all.iter().filter_map(|sub| Some((of(sub.retains_from)?, sub.conn))).min();
        let offline = buffer.durable_cursors();
        let offline = offline.iter().filter_map(|sub| Some((of(sub.retains_from)?, &sub.name))).min();
        let who = match (present, offline) {
            (Some((at, conn)), offline) if offline.is_none_or(|(of_offline, _)| at <= of_offline) => {
                self.who(conn)
            }
            (_, Some((_, name))) => format!("{} (offline)", String::from_utf8_lossy(name)),
            _ => return None,
        };
        Some(Holds { who, waits })
    }
}

/// The event about who holds a publisher now.
fn told(holds: Option<&Holds>, info: &BufferInfo, slowest: Option<&SubscriberInfo>) -> Seen {
    let seen = match holds {
        None => Seen::new("nobody holds the publisher"),
        Some(holds) if holds.waits => Seen::new("the publisher waits").client(&holds.who),
        Some(holds) => Seen::new("holds").client(&holds.who),
    };
    let lag = slowest.map_or(0, |sub| info.head.saturating_sub(sub.landed));
    let room = info.horizon.saturating_sub(info.head);
    seen.number("lag_bytes", lag).number("room_bytes", room).number("ring_bytes", info.capacity_bytes)
}
