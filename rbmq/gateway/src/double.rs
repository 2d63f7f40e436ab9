//! Outlets, a bus and a door in memory, and the floor's part between them: protocols run in tests without a socket, a broker or a clock.
//!
//! ```text
//!   test ── feed ──▶ World: unused bytes, blocked connections ──▶ protocol
//!        ◀─ got ──   Outlets: bytes of each connection        ◀──
//!                    Bus: published messages, filters             deliver() brings them back
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rbmq_broker::{KeptBatch, KeptRead};
use rbmq_wire::{Attributes, RUN_HEADER_BYTES, Space, TopicFilter, TopicName, push_record_with, run_header};
use rocketbufs::Position;

use crate::protocol::{
    Bus, ConnId, Cx, Door, Entry, Fetch, FilterCount, Kept, Logs, Message, Outlets, Protocol, PublishError,
    Range, Taken, Ticket,
};

/// Outlets that keep what they are given.
#[derive(Debug, Default)]
pub(crate) struct MemoryOutlets {
    /// What each connection was sent and nobody has taken yet.
    sent: BTreeMap<ConnId, Vec<u8>>,
    /// The log of frames.
    log: Vec<u8>,
    /// The number of frames in the log.
    pub(crate) frames: usize,
    /// Connections that were closed, with the reason.
    pub(crate) closed: BTreeMap<ConnId, String>,
    /// Connections that are to be read again.
    resumed: BTreeSet<ConnId>,
    /// Connections that are no strangers any more.
    pub(crate) known: BTreeSet<ConnId>,
    /// Connections that take no more ranges.
    pub(crate) slow: BTreeSet<ConnId>,
    /// What `room` says; none: enough.
    pub(crate) room: Option<usize>,
    /// What `queued_bytes` says.
    pub(crate) queued: u64,
    /// Messages that were delivered and dropped, and faults.
    pub(crate) counted: [u64; 3],
}

impl MemoryOutlets {
    /// The number of bytes in the log of frames.
    pub(crate) fn framed_bytes(&self) -> usize {
        self.log.len()
    }
}

impl Outlets for MemoryOutlets {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.sent.entry(conn).or_default().extend_from_slice(bytes);
    }

    fn frame(&mut self, pieces: &[&[u8]]) -> Range {
        let position = self.log.len() as u64;
        pieces.iter().for_each(|piece| self.log.extend_from_slice(piece));
        self.frames += 1;
        Range { position, len: (self.log.len() as u64 - position).try_into().expect("frames are small") }
    }

    fn push(&mut self, conn: ConnId, range: Range) -> bool {
        self.push_with(conn, &[], range)
    }

    fn push_with(&mut self, conn: ConnId, head: &[u8], range: Range) -> bool {
        if self.slow.contains(&conn) {
            return false;
        }
        let begin = usize::try_from(range.position).expect("the log is in memory");
        let sent = self.sent.entry(conn).or_default();
        sent.extend_from_slice(head);
        sent.extend_from_slice(&self.log[begin..begin + range.len as usize]);
        true
    }

    fn close(&mut self, conn: ConnId, reason: &str) {
        self.closed.entry(conn).or_insert_with(|| reason.to_owned());
    }

    fn resume(&mut self, conn: ConnId) {
        self.resumed.insert(conn);
    }

    fn known(&mut self, conn: ConnId) {
        self.known.insert(conn);
    }

    fn queued_bytes(&self, _conn: ConnId) -> u64 {
        self.queued
    }

    fn room(&self) -> usize {
        self.room.unwrap_or(usize::MAX)
    }

    fn is_there(&self, _range: Range) -> bool {
        true
    }

    fn delivered(&mut self, messages: u64) {
        self.counted[0] += messages;
    }

    fn dropped(&mut self, messages: u64) {
        self.counted[1] += messages;
    }

    fn fault(&mut self) {
        self.counted[2] += 1;
    }
}

/// A message that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    /// The topic.
    pub(crate) topic: TopicName,
    /// The encoded attributes.
    pub(crate) attributes: Vec<u8>,
    /// The content.
    pub(crate) payload: Vec<u8>,
}

/// A bus whose messages come back when the test says so.
#[derive(Debug, Default)]
pub(crate) struct MemoryBus {
    /// Messages that have not come back yet.
    pub(crate) published: VecDeque<Published>,
    /// The number of subscriptions of each filter.
    pub(crate) filters: BTreeMap<TopicFilter, usize>,
    /// Filters whose subscription is not in force yet.
    pub(crate) late: Vec<TopicFilter>,
    /// Whether subscriptions are in force only later.
    pub(crate) is_late: bool,
    /// How many messages have room; none: any number.
    pub(crate) room: Option<usize>,
    /// What is answered to every message.
    pub(crate) refusal: Option<PublishError>,
    /// Kept topics.
    pub(crate) logs: BTreeMap<TopicName, MemoryLog>,
    /// Whether the broker is another process.
    pub(crate) is_beside: bool,
    /// A kept space.
    pub(crate) kept_space: Option<TopicFilter>,
    /// Messages that are not stored yet.
    unstored: VecDeque<(TopicName, Vec<u8>, Ticket)>,
    /// The time that messages are stored with.
    pub(crate) time_ms: u64,
    /// Topics that are followed.
    pub(crate) followed: BTreeSet<TopicName>,
    /// The bytes of logs that were read.
    pub(crate) read_bytes: u64,
    /// A topic that is not kept any more as soon as somebody follows it.
    pub(crate) vanishing: Option<TopicName>,
    /// Whether the disk has to be waited for. What was read once is in memory.
    pub(crate) is_cold: bool,
    /// Whether this takes until [`World::fetch_one`].
    pub(crate) is_slow: bool,
    /// Positions that are in memory, and times that were looked for.
    warm: BTreeMap<TopicName, (Vec<std::ops::Range<Position>>, Vec<u64>)>,
    put_off: Option<(TopicName, Cold)>,
    /// Whether only what was read last is in memory.
    pub(crate) is_forgetful: bool,
    is_in_place: bool,
    /// Reads that are under way: for whom, what, and how many bytes.
    fetching: VecDeque<(ConnId, TopicName, Cold, u64)>,
}

/// What is read from the disk.
#[derive(Debug, Clone, Copy)]
enum Cold {
    From(Position),
    Before(Position),
    Time(u64),
}

/// The log of a kept topic.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    batches: Vec<KeptBatch>,
    /// What is not kept any more.
    pub(crate) first: Position,
    end: Position,
}

impl MemoryLog {
    /// Appends records as one run.
    pub(crate) fn append(&mut self, time_ms: u64, records: &[u8]) -> Position {
        let mut bytes = run_header(7, records.len()).expect("tests have small runs").to_vec();
        bytes.extend_from_slice(records);
        let batch = KeptBatch::new(self.end, time_ms, bytes);
        self.end = batch.end();
        let first = batch.position() + RUN_HEADER_BYTES as u64;
        self.batches.push(batch);
        first
    }

    /// Leaves positions out.
    pub(crate) fn skip(&mut self, positions: u64) {
        self.end += positions;
    }

    /// The batches that are kept.
    fn kept(&self) -> impl DoubleEndedIterator<Item = &KeptBatch> {
        self.batches.iter().filter(|batch| batch.position() >= self.first)
    }
}

impl MemoryBus {
    /// Takes a message that was appended, which is never stored.
    pub(crate) fn take_unstored(&mut self) -> Option<(TopicName, Ticket)> {
        self.unstored.pop_front().map(|(topic, _, ticket)| (topic, ticket))
    }

    /// Nothing of the logs is in memory any more.
    pub(crate) fn forget_logs(&mut self) {
        self.warm.clear();
    }
}

impl MemoryBus {
    /// An error if the disk has to be waited for.
    fn warm(&mut self, topic: &TopicName, part: Cold) -> Result<(), String> {
        let (ranges, times) = self.warm.entry(topic.clone()).or_default();
        let has = |position: Position| ranges.iter().any(|range| range.contains(&position));
        let is_warm = match part {
            Cold::From(position) => has(position),
            Cold::Before(position) => has(position.saturating_sub(1)),
            Cold::Time(time) => times.contains(&time),
        };
        if is_warm || !self.is_cold || self.is_in_place {
            return Ok(());
        }
        self.put_off = Some((topic.clone(), part));
        Err("cold".to_owned())
    }
}

impl Logs for MemoryBus {
    fn kept(&mut self, topic: &TopicName) -> Kept {
        match self.logs.get(topic) {
            Some(log) => Kept::Yes { first: log.first, end: log.end },
            None if self.kept_space.as_ref().is_some_and(|space| space.matches(topic)) => Kept::InSpace,
            None => Kept::No,
        }
    }

    fn is_beside(&self) -> bool {
        self.is_beside
    }

    fn append(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        ticket: Ticket,
    ) -> Result<(), PublishError> {
        self.publish(topic, attributes, payload)?;
        let published = self.published.pop_back().expect("it was published");
        if self.filters.keys().any(|filter| filter.matches(topic)) {
            self.published.push_back(published.clone());
        }
        let mut record = Vec::new();
        push_record_with(&mut record, Attributes::checked_before(&published.attributes), payload);
        self.unstored.push_back((topic.clone(), record, ticket));
        Ok(())
    }

    fn follow_log(&mut self, topic: &TopicName, follow: bool) {
        if follow {
            if self.vanishing.as_ref() == Some(topic) {
                self.logs.remove(topic);
            }
            self.followed.insert(topic.clone());
        } else {
            self.followed.remove(topic);
        }
    }

    fn read_log(&mut self, topic: &TopicName, position: Position) -> Result<KeptRead, String> {
        self.warm(topic, Cold::From(position))?;
        let Some(log) = self.logs.get(topic).filter(|log| position < log.end) else {
            return Ok(KeptRead::End);
        };
        let next = log.kept().find(|batch| batch.end() > position);
        Ok(match next {
            Some(batch) if batch.position() <= position => {
                self.read_bytes += batch.bytes().len() as u64;
                KeptRead::Batch(batch.clone())
            }
            Some(batch) => KeptRead::Gap(batch.position()),
            None => KeptRead::Gap(log.end),
        })
    }

    fn read_log_before(
        &mut self,
        topic: &TopicName,
        position: Position,
    ) -> Result<Option<KeptBatch>, String> {
        self.warm(topic, Cold::Before(position))?;
        let Some(log) = self.logs.get(topic) else { return Ok(None) };
        let found = log.kept().rev().find(|batch| batch.position() < position).cloned();
        self.read_bytes += found.as_ref().map_or(0, |batch| batch.bytes().len() as u64);
        Ok(found)
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    fn find_time(&mut self, topic: &TopicName, time_ms: u64) -> Result<Position, String> {
        self.warm(topic, Cold::Time(time_ms))?;
        let Some(log) = self.logs.get(topic) else { return Ok(0) };
        let looked_at = log.kept().take_while(|batch| batch.time_ms() < time_ms);
        self.read_bytes += looked_at.map(|batch| batch.bytes().len() as u64).sum::<u64>();
        Ok(log.kept().find(|batch| batch.time_ms() >= time_ms).map_or(log.end, KeptBatch::position))
    }

    fn fetch(&mut self, conn: ConnId, bytes: u64) -> Fetch {
        self.is_in_place = false;
        let Some((topic, part)) = self.put_off.take() else { return Fetch::Nothing };
        self.fetching.push_back((conn, topic, part, bytes));
        Fetch::Waits
    }

    fn read_in_place(&mut self) {
        self.is_in_place = true;
    }

    fn forget_fetch(&mut self, conn: ConnId) {
        self.fetching.retain(|(of, ..)| *of != conn);
    }
}

impl Bus for MemoryBus {
    fn publish(&mut self, topic: &TopicName, attributes: &[u8], payload: &[u8]) -> Result<(), PublishError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(1).ok_or(PublishError::Full)?;
        }
        let (topic, attributes) = (topic.clone(), attributes.to_vec());
        self.published.push_back(Published { topic, attributes, payload: payload.to_vec() });
        Ok(())
    }

    fn subscribe(&mut self, filter: &TopicFilter) -> bool {
        let count = self.filters.entry(filter.clone()).or_default();
        *count += 1;
        if self.is_late && *count == 1 {
            self.late.push(filter.clone());
        }
        !self.late.contains(filter)
    }

    fn unsubscribe(&mut self, filter: &TopicFilter) {
        let count = self.filters.get_mut(filter).expect("the filter was subscribed to");
        *count -= 1;
        if *count == 0 {
            self.filters.remove(filter);
            self.late.retain(|late| late != filter);
        }
    }

    fn is_log_of(&self, log: &TopicName, topic: &TopicName) -> bool {
        let space = self.kept_space.as_ref().filter(|space| space.matches(topic));
        match space.and_then(|space| Space::new(space).ok()) {
            Some(space) => space.log() == log,
            None => topic == log,
        }
    }
}

/// What a user of the door may do.
#[derive(Debug, Clone)]
pub(crate) struct MemoryUser {
    /// The name; tokens have it too.
    pub(crate) name: &'static str,
    /// The password, or the token.
    pub(crate) secret: &'static str,
    /// Whether the secret is a token, which needs no name.
    pub(crate) is_token: bool,
    /// What the user may publish to.
    pub(crate) publish: TopicFilter,
    /// What the user may receive.
    pub(crate) subscribe: TopicFilter,
}

/// A door with a list of users.
#[derive(Debug, Default)]
pub(crate) struct MemoryDoor {
    /// Users; without any, everybody is let in and may do everything.
    pub(crate) users: Vec<MemoryUser>,
    /// Whether clients without credentials are let in nevertheless, with every right.
    pub(crate) lets_in_anonymous: bool,
    /// Whether passwords are checked later.
    pub(crate) is_slow: bool,
    /// Checks that are not answered yet, with their outcome.
    checks: VecDeque<(ConnId, Option<&'static str>)>,
    /// Who has logged in.
    entered: BTreeMap<ConnId, &'static str>,
    /// The number of refusals.
    pub(crate) refusals: usize,
    /// The filters of each client.
    pub(crate) filters: BTreeMap<ConnId, FilterCount>,
    /// The most filters of a client.
    pub(crate) most_filters: Option<FilterCount>,
}

impl MemoryDoor {
    fn has_right(&self, conn: ConnId, allowed: impl Fn(&MemoryUser) -> bool) -> bool {
        match self.entered.get(&conn) {
            Some(name) => self.users.iter().any(|user| user.name == *name && allowed(user)),
            None => self.lets_in_anonymous(),
        }
    }

    fn may(&mut self, conn: ConnId, allowed: impl Fn(&MemoryUser) -> bool) -> bool {
        let may = self.has_right(conn, allowed);
        self.refusals += usize::from(!may);
        may
    }
}

impl Door for MemoryDoor {
    fn lets_in_anonymous(&self) -> bool {
        self.users.is_empty() || self.lets_in_anonymous
    }

    fn log_in(&mut self, conn: ConnId, user: Option<&str>, secret: &str) -> Entry {
        let matches = |known: &&MemoryUser| {
            known.secret == secret && user.map_or(known.is_token, |name| name == known.name)
        };
        let found = self.users.iter().find(matches).map(|user| user.name);
        if self.is_slow {
            self.checks.push_back((conn, found));
            return Entry::Wait;
        }
        match found {
            Some(name) => {
                self.entered.insert(conn, name);
                Entry::In
            }
            None => {
                self.refusals += 1;
                Entry::Refused
            }
        }
    }

    fn log_out(&mut self, conn: ConnId) {
        self.entered.remove(&conn);
    }

    fn user(&self, conn: ConnId) -> Option<&str> {
        self.entered.get(&conn).copied()
    }

    fn may_publish(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.may(conn, |user| user.publish.matches(topic))
    }

    fn may_user_publish(&mut self, user: &str, topic: &TopicName) -> bool {
        let may = match user {
            _ if self.users.is_empty() => true,
            "" => self.lets_in_anonymous,
            _ => self.users.iter().any(|known| known.name == user && known.publish.matches(topic)),
        };
        self.refusals += usize::from(!may);
        may
    }

    fn may_subscribe(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.may(conn, |user| user.subscribe.matches(topic))
    }

    fn may_receive(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.has_right(conn, |user| user.subscribe.matches(topic))
    }

    fn may_subscribe_to_some(&mut self, conn: ConnId, filter: &TopicFilter) -> bool {
        // Enough for tests: one of the two has the other's beginning.
        let beginning = |filter: &TopicFilter| filter.as_str().trim_end_matches(['#', '+']).to_owned();
        let asked = beginning(filter);
        self.may(conn, |user| {
            let has = beginning(&user.subscribe);
            asked.starts_with(&has) || has.starts_with(&asked)
        })
    }

    fn ask_for_filters(&mut self, conn: ConnId, count: FilterCount) -> Result<(), String> {
        if self.most_filters.is_some_and(|most| count.all > most.all || count.patterns > most.patterns) {
            self.refusals += 1;
            return Err("the quota is used up".to_owned());
        }
        self.set_filters(conn, count);
        Ok(())
    }

    fn set_filters(&mut self, conn: ConnId, count: FilterCount) {
        self.filters.insert(conn, count);
    }
}

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
