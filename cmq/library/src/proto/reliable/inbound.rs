//! The receiving half of the reliable mode: acknowledges segments, and delivers the messages of each key in order.
//!
//! ```text
//!   segment ──▶ next in its stream? ── yes ──▶ messages ──▶ mailbox, while it has room
//!                  │ no                           └▶ begin of a message: kept until its end arrives
//!                  └▶ held until the missing bytes arrive
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::postponed::{Postponed, StreamId};
use super::ranges::Ranges;
use super::records::{Feed, Records};
use super::shares::Shares;
use crate::config::{Config, Reliable};
use crate::event::{Event, ReceiveCounts, ReliableCounts, SenderInfo};
use crate::key::{Key, host};
use crate::proto::after;
use crate::proto::peers::{PeerName, Peers};
use crate::proto::sink::Sink;
use crate::wire::reliable::{
    ACK_BYTES, Ack, Arrived, CREDIT_BYTES, Credit, End, MAX_CREDITS, MAX_RANGES, RANGE_BYTES, Segment,
};
use crate::wire::{Header, LinkName};

/// The bytes that a held segment costs beside its own.
const HELD_BYTES: usize = 64;

/// Acknowledgements that repeat a refusal or a credit, since any may be lost.
const TOLD_TIMES: u8 = 3;
/// The most postponed streams that are examined for one that gets room.
const MAX_LOOKS: usize = 16;
/// How long the key that may exceed the memory limit keeps this right without receiving a byte.
const EXCESS_PAUSE: Duration = Duration::from_secs(1);

/// A link of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LinkKey {
    from: SocketAddr,
    name: LinkName,
}

impl PeerName for LinkKey {
    fn addr(&self) -> SocketAddr {
        self.from
    }
}

/// A segment that arrived.
pub struct Arrival<'a> {
    /// The header of its datagram.
    pub header: Header,
    /// The segment.
    pub segment: Segment<'a>,
    /// The bytes of its datagram.
    pub datagram_bytes: usize,
}

struct InStream {
    run: u32,
    /// The offset of the next byte.
    next: u64,
    held: BTreeMap<u64, Vec<u8>>,
    records: Records,
    /// The credit in the last acknowledgement.
    sent_credit: u64,
}

/// A stream that the next acknowledgements mention.
struct PendingCredit {
    mailbox: u32,
    run: u32,
    /// The stream was refused, and must wait for room.
    waits: bool,
    times: u8,
}

#[derive(Default)]
struct InLink {
    /// True once the sender has shown that it receives datagrams at its address.
    proven: bool,
    ranges: Ranges,
    /// Segments that were refused recently, and the number of acknowledgements that have reported them.
    refused: Ranges,
    refused_told: u8,
    streams: HashMap<u32, InStream>,
    /// The bytes that the next acknowledgement may have while the address is not proven, and the streams that it mentions.
    budget: usize,
    pending_credits: Vec<PendingCredit>,
    due: bool,
    /// Whether the sender has ended the link, and whether the end was reported.
    ended: bool,
    reported: bool,
    bytes: u64,
    received: u64,
}

/// The state machine of the receiving half.
pub struct Inbound {
    settings: Reliable,
    max_message: usize,
    epoch: u64,
    links: Peers<LinkKey, InLink>,
    /// The streams and the waiting bytes of each host: held segments, and begins of messages.
    shares: Shares,
    /// Links that must acknowledge something.
    due: Vec<u32>,
    /// Streams whose mailbox is full.
    stalled: Vec<StreamId>,
    /// Streams that wait for memory, or for the place of a key.
    postponed: Postponed,
    resets: Vec<(SocketAddr, Vec<u8>)>,
    /// The one key that may exceed `receive_bytes`, and when it last did. Without it, incomplete messages could block each other.
    excess: Option<(StreamId, Instant)>,
    counts: ReliableCounts,
}

impl Inbound {
    /// A machine that has received nothing, of a queue with this random name.
    pub fn new(config: &Config, settings: Reliable, epoch: u64) -> Inbound {
        Inbound {
            max_message: config.max_message,
            epoch,
            links: Peers::new(settings.max_links),
            shares: Shares::new(settings.receive_bytes, settings.max_keys, settings.window),
            due: Vec::new(),
            stalled: Vec::new(),
            postponed: Postponed::new(settings.max_keys),
            resets: Vec::new(),
            excess: None,
            counts: ReliableCounts::default(),
            settings,
        }
    }

    /// Handles a segment.
    pub fn segment(&mut self, now: Instant, from: SocketAddr, arrival: Arrival<'_>, sink: &mut impl Sink) {
        let Arrival { header, segment, datagram_bytes } = arrival;
        let key = LinkKey { from, name: header.link() };
        let Some(slot) = self.link(now, key, header.first, segment.receiver) else { return };
        self.links.touch(slot, now);
        let (_, link) = self.links.at(slot);
        link.proven |= segment.receiver == self.epoch;
        link.budget += datagram_bytes;
        link.bytes += datagram_bytes as u64;
        let (before, id) = (self.counts.received, StreamId { slot, mailbox: header.mailbox });
        let verdict = self.accept(now, id, segment, sink);
        let (_, link) = self.links.at(slot);
        link.received += self.counts.received - before;
        if verdict == Verdict::Taken {
            link.ranges.insert(header.first);
        } else {
            // The acknowledgement reports the refusal, so the sender does not take it for a loss.
            link.refused.insert(header.first);
            link.refused_told = 0;
        }
        let newer = |stream: &&InStream| stream.run.wrapping_sub(segment.run) as i32 > 0;
        let run = link.streams.get(&header.mailbox).filter(newer).map_or(segment.run, |stream| stream.run);
        let (waits, times) = match verdict {
            Verdict::Taken => (false, 1),
            Verdict::BeyondCredit => (false, TOLD_TIMES),
            Verdict::NoRoom => (true, TOLD_TIMES),
        };
        self.announce_credit(id, PendingCredit { mailbox: header.mailbox, run, waits, times });
        if !self.postponed.is_empty() {
            // A segment without bytes asks for credit. The sender gets it even while other senders wait.
            let asks = segment.bytes.is_empty() && self.has_window(id);
            if asks && self.may_open(id, run) {
                self.postponed.remove(id);
            }
            self.grant(Some(now));
        }
    }

    /// Puts a stream's credit into the next acknowledgements, and makes the first of them due.
    fn announce_credit(&mut self, id: StreamId, new: PendingCredit) {
        let StreamId { slot, mailbox } = id;
        let Some((_, link)) = self.links.get(slot) else { return };
        let pending = &mut link.pending_credits;
        if let Some(credit) = pending.iter_mut().find(|credit| credit.mailbox == mailbox) {
            *credit = PendingCredit { times: new.times.max(credit.times), ..new };
        } else if pending.len() < MAX_CREDITS {
            pending.push(new);
        } else if let Some(credit) = pending.iter_mut().find(|credit| credit.times < new.times) {
            *credit = new;
        }
        if !std::mem::replace(&mut link.due, true) {
            self.due.push(slot);
        }
    }

    /// True if the memory has a window for the host of this stream.
    fn has_window(&mut self, id: StreamId) -> bool {
        let Some((key, _)) = self.links.get(id.slot) else { return false };
        self.shares.has_room(host(key.from), self.settings.window)
    }

    /// Announces to a stream that there is room for it.
    fn announce_room(&mut self, id: StreamId, run: u32) {
        self.announce_credit(id, PendingCredit { mailbox: id.mailbox, run, waits: false, times: TOLD_TIMES });
    }

    /// Grants room to the first postponed stream whose window fits into the memory, or that may exceed the limit to complete a message.
    /// One stream at a time may exceed it.
    fn grant(&mut self, now: Option<Instant>) {
        let may_exceed = match (self.excess, now) {
            (None, _) => true,
            (Some((_, last)), Some(now)) => now.saturating_duration_since(last) >= EXCESS_PAUSE,
            (Some(_), None) => false,
        };
        if !may_exceed && self.shares.bytes() + self.settings.window > self.settings.receive_bytes {
            return;
        }
        for _ in 0..self.postponed.len().min(MAX_LOOKS) {
            let Some((id, run)) = self.postponed.pop() else { return };
            let fits = self.has_window(id);
            if (fits || may_exceed) && self.may_open(id, run) {
                if let Some(now) = now.filter(|_| !fits) {
                    self.excess = Some((id, now));
                }
                return self.announce_room(id, run);
            }
            if self.links.get(id.slot).is_some() {
                self.postponed.insert(id, run);
            }
        }
    }

    /// True if the stream would accept a segment of this run.
    fn may_open(&mut self, id: StreamId, run: u32) -> bool {
        let Some((LinkKey { from, .. }, link)) = self.links.get(id.slot) else { return false };
        let stream =
            link.streams.get(&id.mailbox).map(|stream| stream.run == run || !stream.records.is_stalled());
        let has_place = stream.unwrap_or_else(|| self.shares.has_place(host(from)));
        has_place && !self.waits_elsewhere(id, from)
    }

    /// True if messages of another link of the same sender wait for this mailbox.
    fn waits_elsewhere(&mut self, id: StreamId, sender: SocketAddr) -> bool {
        let Inbound { stalled, links, .. } = self;
        stalled.iter().any(|other| {
            let same = other.mailbox == id.mailbox && other.slot != id.slot;
            same && links.get(other.slot).is_some_and(|(key, _)| key.from == sender)
        })
    }

    /// Handles the end of a link.
    pub fn end(&mut self, from: SocketAddr, header: Header, end: End, sink: &mut impl Sink) {
        let slot = self.links.find(LinkKey { from, name: header.link() });
        let Some(slot) = slot.filter(|_| end.receiver == self.epoch) else {
            self.counts.strange += 1;
            return;
        };
        self.links.at(slot).1.ended = true;
        self.report_end(slot, sink);
    }

    /// Reports the end of a link, once all of its messages are in their mailboxes.
    fn report_end(&mut self, slot: u32, sink: &mut impl Sink) {
        let Some((key, link)) = self.links.get(slot) else { return };
        if link.is_closed() && !std::mem::replace(&mut link.reported, true) {
            sink.event(Event::Closed { from: key.from, sent: link.received });
        }
    }

    /// The links that are remembered.
    pub fn senders(&self) -> Vec<SenderInfo> {
        self.links.iter().map(|(key, link)| link.info(key)).collect()
    }

    /// The links of one address.
    pub fn sender(&self, from: SocketAddr) -> Vec<SenderInfo> {
        self.links.of(from).map(|(key, link)| link.info(key)).collect()
    }

    /// The link of this name, created if necessary. A segment for a link that only an earlier instance of this queue knew is answered
    /// with a reset.
    fn link(&mut self, now: Instant, key: LinkKey, number: u64, receiver: u64) -> Option<u32> {
        if let Some(slot) = self.links.find(key) {
            return Some(slot);
        }
        if receiver != 0 {
            self.counts.strange += 1;
            let reset = Ack::encode(
                key.name,
                self.epoch,
                true,
                Arrived { taken: &[(number, number)], refused: &[] },
                &[],
            );
            if self.resets.len() < MAX_RANGES {
                self.resets.push((key.from, reset));
            }
            return None;
        }
        if let Some(victim) = self.links.victim(key) {
            self.remove(victim);
        }
        Some(self.links.insert(key, InLink::default(), now))
    }

    fn remove(&mut self, slot: u32) {
        let Some((key, link)) = self.links.remove(slot) else { return };
        let bytes = link.streams.values().map(InStream::bytes).sum();
        self.shares.remove(host(key.from), link.streams.len(), bytes);
        self.due.retain(|&due| due != slot);
        if !self.postponed.is_empty() {
            self.postponed.forget(slot);
        }
        self.stalled.retain(|id| id.slot != slot);
    }

    /// Accepts a segment, or refuses it. The sender sends a refused segment again.
    fn accept(&mut self, now: Instant, id: StreamId, segment: Segment<'_>, sink: &mut impl Sink) -> Verdict {
        match self.open_stream(id, segment.run) {
            Run::Current => {}
            Run::Over => return Verdict::Taken,
            Run::Refused => {
                self.counts.refused += 1;
                self.postponed.insert(id, segment.run);
                return Verdict::NoRoom;
            }
        }
        self.take(now, id, segment, sink)
    }

    /// Accepts a segment of an open stream, or refuses it.
    fn take(&mut self, now: Instant, id: StreamId, segment: Segment<'_>, sink: &mut impl Sink) -> Verdict {
        let Inbound { links, settings, shares, counts, max_message, stalled, excess, postponed, .. } = self;
        let (LinkKey { from, .. }, link) = links.at(id.slot);
        let (from, host) = (Key { addr: from, id: id.mailbox }, host(from));
        let stream = link.streams.get_mut(&id.mailbox).expect("the stream was just opened");
        let end = segment.offset + segment.bytes.len() as u64;
        if end <= stream.next {
            counts.duplicated += u64::from(!segment.bytes.is_empty());
            return Verdict::Taken;
        }
        let (before, limit) = (stream.bytes(), stream.limit(settings.window));
        let in_order = segment.offset <= stream.next;
        let needed = segment.bytes.len() + HELD_BYTES;
        let fits = shares.has_room(host, needed)
            || shares.bytes() + needed <= settings.receive_bytes + *max_message
                && in_order
                && stream.records.is_clear()
                && may_exceed(excess, id, now);
        if end > limit || !fits {
            counts.refused += 1;
            if fits {
                return Verdict::BeyondCredit;
            }
            postponed.insert(id, segment.run);
            return Verdict::NoRoom;
        }
        postponed.remove(id);
        if in_order {
            let bytes = &segment.bytes[(stream.next - segment.offset) as usize..];
            stream.take(bytes, from, *max_message, counts, sink);
        } else {
            stream.hold(segment.offset, segment.bytes);
        }
        shares.change(host, before, stream.bytes());
        if stream.records.bytes() == 0 && excess.is_some_and(|(owner, _)| owner == id) {
            *excess = None;
        }
        if stream.records.is_stalled() && !stalled.contains(&id) {
            stalled.push(id);
        }
        Verdict::Taken
    }

    /// Opens the stream of a mailbox, or its next run. Messages that wait for a mailbox are confirmed already. So a later run, or a later
    /// link of the same sender, must wait until they are delivered.
    fn open_stream(&mut self, id: StreamId, run: u32) -> Run {
        let StreamId { slot, mailbox } = id;
        let (LinkKey { from, .. }, _) = self.links.at(slot);
        let (host, waits_elsewhere) = (host(from), self.waits_elsewhere(id, from));
        let Inbound { links, shares, .. } = self;
        let (_, link) = links.at(slot);
        let Some(stream) = link.streams.get_mut(&mailbox) else {
            if !shares.has_place(host) || waits_elsewhere {
                return Run::Refused;
            }
            shares.add_key(host);
            link.streams.insert(mailbox, InStream::new(run));
            return Run::Current;
        };
        if stream.run.wrapping_sub(run) as i32 > 0 {
            return Run::Over;
        }
        if stream.records.is_stalled() && stream.run != run || waits_elsewhere {
            return Run::Refused;
        }
        if stream.run != run {
            shares.change(host, stream.bytes(), 0);
            *stream = InStream::new(run);
        }
        Run::Current
    }

    /// True if a mailbox is full, and messages wait for it.
    pub fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Delivers messages that wait for a mailbox, as far as it has room now.
    pub fn resume(&mut self, sink: &mut impl Sink) {
        for id in std::mem::take(&mut self.stalled) {
            let StreamId { slot, mailbox } = id;
            let Inbound { links, shares, counts, max_message, .. } = self;
            let Some((LinkKey { from, .. }, link)) = links.get(slot) else { continue };
            let (from, host) = (Key { addr: from, id: mailbox }, host(from));
            let Some(stream) = link.streams.get_mut(&mailbox) else { continue };
            let (before, received) = (stream.bytes(), counts.received);
            stream.take(&[], from, *max_message, counts, sink);
            shares.change(host, before, stream.bytes());
            link.received += counts.received - received;
            let (stalled, limit, run) =
                (stream.records.is_stalled(), stream.limit(self.settings.window), stream.run);
            // The sender may wait for this credit.
            if limit > stream.sent_credit {
                self.announce_room(id, run);
            }
            if stalled {
                self.stalled.push(id);
            } else {
                self.report_end(slot, sink);
            }
        }
        if !self.postponed.is_empty() {
            self.grant(None);
        }
    }

    /// Returns the acknowledgements that are due, as plain datagrams. An acknowledgement to an address that is not proven is not longer
    /// than the datagrams that arrived from it.
    pub fn take_acks(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut acks = std::mem::take(&mut self.resets);
        for slot in std::mem::take(&mut self.due) {
            let Some((LinkKey { from, name }, link)) = self.links.get(slot) else { continue };
            link.due = false;
            let room = if link.proven { usize::MAX } else { link.budget };
            link.budget = 0;
            let room = room.saturating_sub(crate::wire::HEADER_BYTES + ACK_BYTES);
            if link.refused_told >= TOLD_TIMES {
                link.refused.clear();
            }
            link.refused_told = link.refused_told.saturating_add(1);
            let (taken, most) = fitting(link.ranges.as_slice(), room);
            let (refused, most) = fitting(link.refused.as_slice(), most);
            let most = most / CREDIT_BYTES;
            let mut credits = Vec::new();
            for credit in link.pending_credits.iter_mut().take(most) {
                let (mailbox, run) = (credit.mailbox, credit.run);
                let waits = credit.waits || self.postponed.run(StreamId { slot, mailbox }) == Some(run);
                let limit = match link.streams.get_mut(&mailbox).filter(|stream| stream.run == run) {
                    // No more bytes for now.
                    Some(stream) if waits => stream.next,
                    Some(stream) => stream.limit(self.settings.window),
                    None if waits => 0,
                    None => self.settings.window as u64,
                };
                if let Some(stream) = link.streams.get_mut(&mailbox) {
                    stream.sent_credit = limit;
                }
                credits.push(Credit { mailbox, run, limit });
                credit.times -= 1;
            }
            let arrived = Arrived { taken, refused };
            acks.push((from, Ack::encode(name, self.epoch, false, arrived, &credits)));
            link.pending_credits.retain(|credit| credit.times > 0);
        }
        self.counts.acks += acks.len() as u64;
        acks
    }

    /// When [`Inbound::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.links.silent().map(|(_, heard)| after(heard, self.settings.idle))
    }

    /// Removes links that were silent for too long.
    pub fn expire(&mut self, now: Instant) {
        while let Some((slot, heard)) = self.links.silent()
            && after(heard, self.settings.idle) <= now
        {
            // Messages that wait for a mailbox are confirmed already, so their link stays.
            if self.stalled.iter().any(|id| id.slot == slot) {
                self.links.touch(slot, now);
            } else {
                self.remove(slot);
            }
        }
    }

    /// Bytes that wait for missing bytes or for a mailbox.
    pub fn waiting_bytes(&self) -> usize {
        self.shares.bytes()
    }

    /// Adds the counters of the machine to those of the sending half.
    pub fn count(&self, counts: &mut ReliableCounts) {
        counts.received += self.counts.received;
        counts.duplicated += self.counts.duplicated;
        counts.refused += self.counts.refused;
        counts.acks += self.counts.acks;
        counts.strange += self.counts.strange;
        counts.waiting_bytes = self.shares.bytes() as u64;
        counts.links = self.links.len() as u64;
    }
}

/// The first ranges that fit into so many bytes, and the bytes that are left.
fn fitting(ranges: &[(u64, u64)], room: usize) -> (&[(u64, u64)], usize) {
    let ranges = &ranges[..ranges.len().min(room / RANGE_BYTES)];
    (ranges, room - ranges.len() * RANGE_BYTES)
}

impl InLink {
    /// True if the sender has ended the link, and all messages are in their mailboxes.
    fn is_closed(&self) -> bool {
        self.ended && !self.streams.values().any(|stream| stream.records.is_stalled())
    }

    fn info(&self, key: LinkKey) -> SenderInfo {
        let LinkKey { from, name: LinkName { stream, epoch } } = key;
        let counts = ReceiveCounts { received: self.received, ..ReceiveCounts::default() };
        let (closed, bytes) = (self.is_closed(), self.bytes);
        SenderInfo { from, epoch, stream, closed, reliable: true, bytes, counts }
    }
}

/// The outcome of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Taken,
    /// Refused: the sender does not know the credit yet.
    BeyondCredit,
    /// Refused: the stream waits for memory, or for the place of a key.
    NoRoom,
}

/// The run of a segment, compared with the run of its stream.
#[derive(Clone, Copy)]
enum Run {
    Current,
    /// A later run has begun.
    Over,
    Refused,
}

/// True if a stream may exceed the memory limit: one at a time.
fn may_exceed(excess: &mut Option<(StreamId, Instant)>, id: StreamId, now: Instant) -> bool {
    let free =
        excess.is_none_or(|(owner, last)| owner == id || now.saturating_duration_since(last) >= EXCESS_PAUSE);
    if free {
        *excess = Some((id, now));
    }
    free
}

impl InStream {
    fn new(run: u32) -> InStream {
        InStream { run, next: 0, held: BTreeMap::new(), records: Records::default(), sent_credit: 0 }
    }

    fn bytes(&self) -> usize {
        let held: usize = self.held.values().map(|bytes| bytes.len() + HELD_BYTES).sum();
        held + self.records.bytes()
    }

    /// Keeps bytes until the missing bytes before them arrive.
    fn hold(&mut self, offset: u64, bytes: &[u8]) {
        let held = self.held.entry(offset).or_default();
        if held.len() < bytes.len() {
            *held = bytes.to_vec();
        }
    }

    /// The offset up to which bytes are accepted: one window beyond the received bytes that do not wait for the mailbox.
    fn limit(&self, window: usize) -> u64 {
        self.next - self.records.undelivered() as u64 + window as u64
    }

    /// Adds the next bytes of the stream, and the held bytes that follow them.
    fn take(
        &mut self,
        bytes: &[u8],
        from: Key,
        max_message: usize,
        counts: &mut ReliableCounts,
        sink: &mut impl Sink,
    ) {
        let mut feed = Feed { from, max_message, counts, sink };
        self.next += bytes.len() as u64;
        self.records.feed(bytes, &mut feed);
        while let Some(entry) = self.held.first_entry()
            && *entry.key() <= self.next
        {
            let (offset, held) = entry.remove_entry();
            let known = (self.next - offset) as usize;
            if known < held.len() {
                self.next += (held.len() - known) as u64;
                self.records.feed(&held[known..], &mut feed);
            }
        }
    }
}
