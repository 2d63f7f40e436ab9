//! The receiving machine: takes datagrams and the time, gives messages and events.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::gaps::{Gaps, window};
use super::reassembly::{Added, Reassembly};
use super::stream::{Held, HeldMessages, Stream, Verdict};
use crate::config::{Config, Delivery};
use crate::event::{Event, ReceiveCounts, SenderInfo};
use crate::key::Key;
use crate::proto::peers::{PeerName, Peers};
use crate::proto::recent_map::RecentMap;
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::sink::{Dropped, Sink};
use crate::wire::secured;
use crate::wire::{Body, Datagram, Fragment, Header, Malformed, Messages};

/// Messages, and the buffer they lie in if it may be shared.
#[derive(Clone, Copy)]
struct Located<'a> {
    messages: Messages<'a>,
    buffer: Option<&'a SharedBuffer>,
}

/// The fragments of at most this many messages of one gap are freed at once.
const MAX_DISCARDED: usize = 64;

/// The name of a stream: sender, epoch and number.
type StreamKey = (SocketAddr, u64, u32);

impl PeerName for StreamKey {
    fn addr(&self) -> SocketAddr {
        self.0
    }
}

struct Entry {
    /// The slot of its address.
    address: u32,
    stream: Stream,
}

impl Entry {
    fn sender(&self, key: StreamKey) -> SenderInfo {
        let (from, epoch, stream) = key;
        let Stream { closed, bytes, counts, .. } = self.stream;
        SenderInfo { from, epoch, stream, closed, reliable: false, bytes, counts }
    }
}

/// An address with at least one stream.
#[derive(Default)]
struct Address {
    /// The epoch of the stream that joined last, to notice restarts.
    epoch: Option<u64>,
    /// The number of streams: one, unless the sender restarted, sends to groups, or its address is forged.
    streams: usize,
    budget: AmplificationBudget,
}

/// The anti-amplification limit of an address, which may be forged: this queue never sends more bytes there
/// unasked than it received from there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AmplificationBudget {
    /// Bytes received in datagrams, without the headers of IP and UDP.
    pub received: u64,
    /// Bytes sent unasked, with all headers.
    pub sent: u64,
}

/// The counters of a [`Receiver`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// The messages of all senders, including evicted ones.
    pub counts: ReceiveCounts,
    /// Datagrams received.
    pub datagrams: u64,
    /// Datagrams that do not follow the protocol.
    pub malformed: u64,
    /// Incomplete messages that were dropped.
    pub incomplete: u64,
    /// Remembered streams.
    pub senders: u64,
}

/// The receiving machine.
pub struct Receiver {
    wait: Duration,
    window: usize,
    ordered: bool,
    max_held_bytes: usize,
    streams: Peers<StreamKey, Entry>,
    addresses: RecentMap<SocketAddr, Address>,
    /// Streams with missing messages.
    gaps: Gaps,
    reassembly: Reassembly,
    held_bytes: usize,
    evicted: ReceiveCounts,
    datagrams: u64,
    malformed: u64,
}

/// True for the answer of a queue with a key to a plain datagram.
fn is_required(bytes: &[u8]) -> bool {
    secured::Header::parse(bytes).is_ok_and(|header| header.kind == secured::Kind::Required)
}

impl Receiver {
    /// A machine that has received nothing.
    pub fn new(config: &Config) -> Receiver {
        let (ordered, wait, window) = match config.delivery {
            Delivery::Ordered { wait, window } => (true, wait, window),
            Delivery::Unordered { wait, window } => (false, wait, window),
        };
        Receiver {
            wait,
            window,
            ordered,
            max_held_bytes: config.reorder_bytes,
            streams: Peers::new(config.max_senders),
            addresses: RecentMap::new(),
            gaps: Gaps::new(wait),
            reassembly: Reassembly::new(config),
            held_bytes: 0,
            evicted: ReceiveCounts::default(),
            datagrams: 0,
            malformed: 0,
        }
    }

    /// Handles a datagram.
    pub fn datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], sink: &mut impl Sink) {
        self.datagram_in_buffer(now, from, bytes, None, sink);
    }

    /// Handles a datagram. Delivered messages may keep parts of `buffer`, if there is one.
    pub fn datagram_in_buffer(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        buffer: Option<&SharedBuffer>,
        sink: &mut impl Sink,
    ) {
        self.datagrams += 1;
        match Datagram::parse(bytes) {
            Ok(Datagram { body: Body::Segment(_) | Body::Ack(_) | Body::End(_), .. }) => {
                self.reject(from, Malformed::Reliable, sink);
            }
            Ok(datagram) => {
                let slot = self.stream((from, datagram.header.epoch, datagram.header.stream), now, sink);
                self.streams.touch(slot, now);
                let (_, entry) = self.streams.at(slot);
                entry.stream.bytes += bytes.len() as u64;
                let (_, known) = self.addresses.at(entry.address).expect("an address with streams is known");
                known.budget.received += bytes.len() as u64;
                self.dispatch(now, slot, datagram, buffer, sink);
            }
            Err(Malformed::Encrypted) if is_required(bytes) => {
                self.malformed += 1;
                sink.event(Event::EncryptionRequired { by: from });
            }
            Err(why) => self.reject(from, why, sink),
        }
    }

    fn reject(&mut self, from: SocketAddr, why: Malformed, sink: &mut impl Sink) {
        self.malformed += 1;
        sink.event(Event::Malformed { from, why });
    }

    fn dispatch(
        &mut self,
        now: Instant,
        slot: u32,
        datagram: Datagram<'_>,
        buffer: Option<&SharedBuffer>,
        sink: &mut impl Sink,
    ) {
        let Datagram { header, body } = datagram;
        match body {
            Body::Batch(messages) => self.on_messages(now, slot, header, Located { messages, buffer }, sink),
            Body::Fragment(fragment) => self.on_fragment(now, slot, header, fragment, sink),
            // Handled before, or refused.
            Body::Segment(_) | Body::Ack(_) | Body::End(_) => {}
            Body::Close => {
                if self.streams.at(slot).1.stream.close(header.first) {
                    self.release(now, slot, false, sink);
                }
            }
        }
    }

    /// The stream of this name, begun if it is new.
    fn stream(&mut self, key: StreamKey, now: Instant, sink: &mut impl Sink) -> u32 {
        if let Some(slot) = self.streams.find(key) {
            return slot;
        }
        if let Some(victim) = self.streams.victim(key) {
            self.evict(now, victim, sink);
        }
        let known = self.addresses.find(key.0);
        let address = known.unwrap_or_else(|| self.addresses.insert(key.0, Address::default()));
        self.addresses.at(address).expect("the slot was just found").1.streams += 1;
        self.streams.insert(key, Entry { address, stream: Stream::default() }, now)
    }

    /// The anti-amplification limit of a known address.
    pub(crate) fn amplification_budget(&mut self, of: SocketAddr) -> Option<&mut AmplificationBudget> {
        self.addresses.get_mut(of).map(|known| &mut known.budget)
    }

    /// Evicts a stream: reports its losses and delivers its held messages.
    fn evict(&mut self, now: Instant, slot: u32, sink: &mut impl Sink) {
        while self.streams.get(slot).is_some_and(|(_, entry)| entry.stream.held() > 0) {
            self.declare_lost(now, slot, sink);
        }
        let Some(((from, ..), Entry { address, stream })) = self.streams.remove(slot) else { return };
        self.gaps.remove(slot);
        self.evicted.add(&stream.counts);
        let (_, known) = self.addresses.at(address).expect("an address with streams is known");
        known.streams -= 1;
        if known.streams == 0 {
            self.addresses.remove_at(address);
        }
        if !stream.closed {
            sink.event(Event::Evicted { from });
        }
    }

    /// Handles messages, which the header numbers.
    fn on_messages(
        &mut self,
        now: Instant,
        slot: u32,
        header: Header,
        located: Located<'_>,
        sink: &mut impl Sink,
    ) {
        let (first, count) = (header.first, located.messages.len() as u64);
        let ((from, ..), Entry { stream, .. }) = self.streams.at(slot);
        let verdict = stream.classify(first, count);
        match verdict {
            Verdict::Next | Verdict::Early => {
                if stream.arrived(first, count) {
                    sink.event(Event::Reordered { from, count });
                }
            }
            Verdict::Duplicate => {
                stream.counts.duplicated += count;
                return sink.event(Event::Duplicated { from, count });
            }
            Verdict::Late => {
                stream.late(count);
                return sink.event(Event::Late { from, count });
            }
            Verdict::Invalid => return self.reject(from, Malformed::Broken, sink),
        }
        if verdict == Verdict::Next {
            if !stream.joined {
                self.join(slot, 0, sink);
            }
            self.deliver(slot, header.mailbox, located, sink);
            let stream = &mut self.streams.at(slot).1.stream;
            stream.advance(count);
            if stream.held() == 0 {
                return;
            }
        } else {
            self.hold(slot, header, located, sink);
        }
        self.release(now, slot, verdict == Verdict::Next, sink);
    }

    /// Messages before these are missing. Holds these, or for unordered delivery delivers them and holds only
    /// their numbers.
    fn hold(&mut self, slot: u32, header: Header, located: Located<'_>, sink: &mut impl Sink) {
        let messages = located.messages;
        let mut held = Held { first: header.first, count: messages.len() as u64, body: None };
        if self.ordered {
            let (bytes, reassembled) = (messages.as_bytes().into(), messages.is_reassembled());
            held.body = Some(HeldMessages { bytes, reassembled, mailbox: header.mailbox });
        } else {
            self.deliver(slot, header.mailbox, located, sink);
        }
        self.held_bytes += held.cost();
        self.streams.at(slot).1.stream.hold(held);
    }

    /// Delivers held messages that are next, and declares missing ones lost if too many wait for them.
    fn release(&mut self, now: Instant, slot: u32, mut progress: bool, sink: &mut impl Sink) {
        loop {
            let ((from, ..), Entry { stream, .. }) = self.streams.at(slot);
            if let Some(held) = stream.release() {
                progress = true;
                // The end of the stream is held too, at no cost.
                if held.count > 0 {
                    self.held_bytes -= held.cost();
                }
                if let Some(body) = held.body {
                    let messages = Messages::from_parts(held.count as usize, &body.bytes, body.reassembled);
                    self.deliver(slot, body.mailbox, Located { messages, buffer: None }, sink);
                }
                continue;
            }
            let missing = stream.held();
            if missing == 0 {
                let end = stream.reached_end();
                let joined = stream.joined;
                if end.is_some() && !joined {
                    self.join(slot, 0, sink);
                }
                if let Some(sent) = end {
                    sink.event(Event::Closed { from, sent });
                }
                return self.gaps.remove(slot);
            }
            let loss_streak = stream.loss_streak;
            if missing > window(self.window, loss_streak)
                || self.held_bytes > self.max_held_bytes
                || self.wait.is_zero()
            {
                self.skip_gap(slot, sink);
                continue;
            }
            // The next gap gets its own deadline.
            if progress || !self.gaps.contains(slot) {
                self.gaps.remove(slot);
                self.gaps.push_back(slot, loss_streak, now);
            }
            return;
        }
    }

    /// Declares the first gap lost, and delivers the messages that waited for it.
    fn declare_lost(&mut self, now: Instant, slot: u32, sink: &mut impl Sink) {
        self.skip_gap(slot, sink);
        self.release(now, slot, true, sink);
    }

    fn skip_gap(&mut self, slot: u32, sink: &mut impl Sink) {
        let ((from, epoch, number), Entry { stream, .. }) = self.streams.at(slot);
        let Some(gap) = stream.skip_gap() else { return };
        // The fragments of further messages are freed by their time-out.
        for first in (gap.first..gap.first + gap.count).take(MAX_DISCARDED) {
            self.reassembly.discard((from, epoch, number, first));
        }
        if stream.joined {
            stream.lost(gap.count);
            sink.event(Event::Lost { from, first: gap.first, count: gap.count });
        } else {
            self.join(slot, gap.count, sink);
        }
    }

    /// Reports the begin of the stream, once it is known how many messages precede it.
    fn join(&mut self, slot: u32, missed: u64, sink: &mut impl Sink) {
        let ((from, epoch, _), entry) = self.streams.at(slot);
        entry.stream.joined = true;
        entry.stream.counts.missed += missed;
        let (_, known) = self.addresses.at(entry.address).expect("an address with streams is known");
        let restarted = known.epoch.replace(epoch).is_some_and(|before| before != epoch);
        sink.event(Event::Joined { from, missed, restarted });
    }

    fn deliver(&mut self, slot: u32, id: u32, located: Located<'_>, sink: &mut impl Sink) {
        let Located { messages, buffer } = located;
        let ((from, ..), entry) = self.streams.at(slot);
        let taken = sink.deliver(Key { addr: from, id }, messages, buffer);
        let counts = &mut entry.stream.counts;
        counts.received += messages.len() as u64;
        if taken != Dropped::default() {
            counts.overflowed += taken.overflowed;
            counts.undecodable += taken.undecodable;
            if taken.overflowed > 0 {
                sink.event(Event::Overflowed { from, id, count: taken.overflowed });
            }
            if taken.undecodable > 0 {
                sink.event(Event::Undecodable { from, count: taken.undecodable });
            }
        }
    }

    /// Handles a fragment.
    fn on_fragment(
        &mut self,
        now: Instant,
        slot: u32,
        header: Header,
        fragment: Fragment<'_>,
        sink: &mut impl Sink,
    ) {
        let ((from, epoch, stream), entry) = self.streams.at(slot);
        let verdict = entry.stream.classify(header.first, 1);
        if !matches!(verdict, Verdict::Next | Verdict::Early) {
            // The message was already received or lost. Count it once, not for each fragment.
            if fragment.index == 0 {
                let messages = Messages::reassembled(fragment.bytes);
                self.on_messages(now, slot, header, Located { messages, buffer: None }, sink);
            }
            return;
        }
        match self.reassembly.add(now, (from, epoch, stream, header.first), header.count, fragment) {
            Added::Complete(message) => {
                let messages = Messages::reassembled(message.as_bytes());
                self.on_messages(now, slot, header, Located { messages, buffer: Some(&message) }, sink);
                self.reassembly.recycle(message);
            }
            Added::Incomplete => {}
            Added::Rejected => self.reject(from, Malformed::Broken, sink),
        }
    }

    /// When [`Receiver::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.gaps.next_deadline(), self.reassembly.next_deadline()].into_iter().flatten().min()
    }

    /// Declares messages lost that are missing for too long.
    pub fn expire(&mut self, now: Instant, sink: &mut impl Sink) {
        self.reassembly.expire(now);
        while let Some(slot) = self.gaps.due(now) {
            self.declare_lost(now, slot, sink);
        }
    }

    /// Memory of messages that wait for missing ones.
    pub fn reorder_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Memory of incomplete messages.
    pub fn fragment_bytes(&self) -> usize {
        self.reassembly.bytes()
    }

    /// Every remembered stream.
    pub fn senders(&self) -> Vec<SenderInfo> {
        self.streams.iter().map(|(key, entry)| entry.sender(key)).collect()
    }

    /// The streams of one address.
    pub fn sender(&self, from: SocketAddr) -> Vec<SenderInfo> {
        self.streams.of(from).map(|(key, entry)| entry.sender(key)).collect()
    }

    /// The counters of the machine.
    pub fn totals(&self) -> Totals {
        let mut counts = self.evicted;
        self.streams.iter().for_each(|(_, entry)| counts.add(&entry.stream.counts));
        Totals {
            counts,
            datagrams: self.datagrams,
            malformed: self.malformed,
            incomplete: self.reassembly.incomplete,
            senders: self.streams.len() as u64,
        }
    }
}
