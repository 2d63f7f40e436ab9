//! A protocol, and everything that it acts through.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rbmq_wire::TopicName;

use super::bus::{MemoryBus, Published};
use super::door::MemoryDoor;
use super::logs::Cold;
use super::outlets::MemoryOutlets;
use crate::protocol::{ConnId, Cx, Door, Message, Outlets, Protocol, Taken};

/// A protocol, and everything that it acts through.
pub(crate) struct World<P> {
    /// The protocol under test.
    pub(crate) protocol: P,
    /// What it sends.
    pub(crate) out: MemoryOutlets,
    /// What it publishes and subscribes to.
    pub(crate) bus: MemoryBus,
    /// Who may do what.
    pub(crate) door: MemoryDoor,
    /// The time that the protocol is told.
    pub(crate) now: Instant,
    /// What clients have sent and the protocol has not used, and whether it waits.
    inputs: BTreeMap<ConnId, (Vec<u8>, bool)>,
    opened: u64,
    /// The most bytes of logs that were read in one call.
    pub(crate) most_read: u64,
    /// How often the protocol was given bytes.
    pub(crate) calls: usize,
}

impl<P: Protocol> World<P> {
    /// A world without connections.
    pub(crate) fn new(protocol: P, now: Instant) -> Self {
        Self {
            protocol,
            out: MemoryOutlets::default(),
            bus: MemoryBus::default(),
            door: MemoryDoor::default(),
            now,
            inputs: BTreeMap::new(),
            opened: 0,
            most_read: 0,
            calls: 0,
        }
    }

    /// Calls the protocol.
    pub(crate) fn with<T>(&mut self, call: impl FnOnce(&mut P, &mut Cx<'_>) -> T) -> T {
        let Self { protocol, out, bus, door, now, .. } = self;
        call(protocol, &mut Cx { out, bus, door, now: *now })
    }

    /// A client connects.
    pub(crate) fn open(&mut self) -> ConnId {
        self.opened += 1;
        let conn = ConnId(self.opened);
        self.inputs.insert(conn, (Vec::new(), false));
        let address = format!("127.0.0.1:{}", 40_000 + self.opened);
        self.with(|protocol, cx| protocol.on_open(conn, &address, cx));
        conn
    }

    /// A client sends bytes.
    pub(crate) fn feed(&mut self, conn: ConnId, bytes: impl AsRef<[u8]>) {
        let (input, waits) = self.inputs.get_mut(&conn).expect("the connection is open");
        input.extend_from_slice(bytes.as_ref());
        if !*waits {
            self.read(conn);
        }
        self.settle();
    }

    /// What a client has got since the last call.
    pub(crate) fn got(&mut self, conn: ConnId) -> Vec<u8> {
        if self.with(|protocol, cx| protocol.before_sending(cx)).is_some() {
            return Vec::new();
        }
        self.settle();
        self.out.sent.remove(&conn).unwrap_or_default()
    }

    /// A client has not read these bytes yet.
    pub(crate) fn put_back(&mut self, conn: ConnId, bytes: &[u8]) {
        self.out.sent.entry(conn).or_default().splice(..0, bytes.iter().copied());
    }

    /// What a client has got since the last call, as text.
    pub(crate) fn text(&mut self, conn: ConnId) -> String {
        String::from_utf8_lossy(&self.got(conn)).into_owned()
    }

    /// What a client gets for a command.
    pub(crate) fn ask(&mut self, conn: ConnId, bytes: impl AsRef<[u8]>) -> String {
        self.feed(conn, bytes);
        self.text(conn)
    }

    /// Whether a connection waits for the bus or for an answer.
    pub(crate) fn is_blocked(&self, conn: ConnId) -> bool {
        self.inputs[&conn].1
    }

    /// A client goes.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.inputs.remove(&conn);
        self.with(|protocol, cx| protocol.on_closed(conn, cx));
        self.door.log_out(conn);
        self.settle();
    }

    /// A message arrives from elsewhere.
    pub(crate) fn arrive(&mut self, topic: &str, attributes: &[u8], payload: &[u8]) {
        let topic: TopicName = topic.parse().expect("tests name topics");
        self.bus.published.push_back(Published {
            topic,
            attributes: attributes.to_vec(),
            payload: payload.to_vec(),
        });
        self.deliver();
    }

    /// Messages that were published come back, if a filter matches that is in force.
    pub(crate) fn deliver(&mut self) {
        while let Some(Published { topic, attributes, payload }) = self.bus.published.pop_front() {
            let bus = &self.bus;
            // The log of a space arrives as a whole.
            let is_in_space = bus.kept_space.as_ref().is_some_and(|space| space.matches(&topic));
            if is_in_space
                || bus.filters.keys().any(|filter| filter.matches(&topic) && !bus.late.contains(filter))
            {
                let message = Message { topic: &topic, attributes: &attributes, payload: &payload };
                self.with(|protocol, cx| protocol.on_message(message, cx));
            }
        }
        self.settle();
    }

    /// Everything that was appended so far is stored, each message at the present time of the bus.
    pub(crate) fn store(&mut self) {
        for _ in 0..self.bus.unstored.len() {
            let Some((topic, record, ticket)) = self.bus.unstored.pop_front() else { break };
            let time_ms = self.bus.time_ms;
            let at = self.bus.logs.entry(topic.clone()).or_default().append(time_ms, &record);
            self.with(|protocol, cx| protocol.on_stored(ticket, Ok((at, time_ms)), cx));
            self.grow(&topic);
        }
        self.settle();
    }

    /// A kept topic has more, perhaps.
    pub(crate) fn grow(&mut self, topic: &TopicName) {
        if self.bus.followed.contains(topic) {
            self.with(|protocol, cx| protocol.on_grown(topic, cx));
        }
        self.settle();
    }

    /// Subscriptions that were late are in force.
    pub(crate) fn subscribed(&mut self) {
        for filter in std::mem::take(&mut self.bus.late) {
            self.with(|protocol, cx| protocol.on_subscribed(&filter, cx));
        }
        self.settle();
    }

    /// Subscriptions that were late are refused.
    pub(crate) fn not_subscribed(&mut self, is_limit: bool) {
        for filter in std::mem::take(&mut self.bus.late) {
            self.bus.refused.insert(filter.clone());
            self.with(|protocol, cx| protocol.on_not_subscribed(&filter, is_limit, cx));
        }
        self.settle();
    }

    /// Passwords were checked.
    pub(crate) fn checked(&mut self) {
        while let Some((conn, found)) = self.door.checks.pop_front() {
            match found {
                Some(name) => _ = self.door.entered.insert(conn, name),
                None => self.door.refusals += 1,
            }
            self.with(|protocol, cx| protocol.on_login(conn, found.is_some(), cx));
        }
        self.settle();
    }

    /// The bus has room for so many messages.
    pub(crate) fn make_room(&mut self, messages: usize) {
        self.bus.room = Some(messages);
        self.inputs.values_mut().for_each(|(_, waits)| *waits = false);
        let conns: Vec<ConnId> = self.inputs.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.read(conn));
        self.settle();
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.with(|protocol, cx| protocol.on_time(cx));
        self.settle();
    }

    /// Reads connections again that the protocol resumed.
    fn settle(&mut self) {
        loop {
            while let Some(conn) = self.out.resumed.pop_first() {
                if let Some((_, waits)) = self.inputs.get_mut(&conn) {
                    *waits = false;
                    self.read(conn);
                }
            }
            if let Some(topic) = self.bus.told.pop_first() {
                if self.bus.followed.contains(&topic) {
                    self.with(|protocol, cx| protocol.on_grown(&topic, cx));
                }
                continue;
            }
            if self.bus.is_slow || !self.fetch_one() {
                return;
            }
        }
    }

    /// The disk has given what one client waits for. False: nobody waits.
    pub(crate) fn fetch_one(&mut self) -> bool {
        let Some((conn, topic, part, bytes)) = self.bus.fetching.pop_front() else { return false };
        if self.bus.is_forgetful {
            self.bus.forget_logs();
        }
        let (ranges, times) = self.bus.warm.entry(topic).or_default();
        match part {
            Cold::From(position) => ranges.push(position..position + bytes),
            Cold::Before(position) => ranges.push(position.saturating_sub(bytes)..position.max(1)),
            Cold::Time(time) => times.push(time),
        }
        self.with(|protocol, cx| protocol.on_fetched(conn, cx));
        true
    }

    fn read(&mut self, conn: ConnId) {
        if self.out.closed.contains_key(&conn) {
            return;
        }
        let (input, _) = self.inputs.get_mut(&conn).expect("the connection is open");
        let (input, before) = (std::mem::take(input), self.bus.read_bytes);
        self.calls += 1;
        let taken = self.with(|protocol, cx| protocol.on_bytes(conn, &input, cx));
        self.most_read = self.most_read.max(self.bus.read_bytes - before);
        let (used, waits) = match taken {
            Taken::Bytes(used) => (used, false),
            Taken::Blocked(used) | Taken::Waits(used) => (used, true),
            Taken::Later(used) => {
                self.out.resume(conn);
                (used, true)
            }
        };
        self.inputs.insert(conn, (input[used..].to_vec(), waits));
    }
}
