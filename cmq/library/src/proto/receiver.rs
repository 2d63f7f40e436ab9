//! The receiving machine: takes datagrams and the time, gives messages and events.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peers::HostAddress;

use super::SlotTable;
use super::fair_share::FairShare;
use super::gaps::{Gaps, window};
use super::reassembly::{Added, Reassembly};
use super::shared_buffer::SharedBuffer;
pub use super::sink::{Dropped, Room, Sink, Totals};
use super::stream::{Held, HeldMessages, Stream, Verdict};
use super::timeline::Timeline;
use crate::config::{Config, Delivery};
use crate::event::{Event, ReceiveCounts, SenderInfo};
use crate::key::{Key, host};
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

struct Entry {
    key: StreamKey,
    /// The entry of its address, and the stream's index among the streams of that address and of its host.
    address: u32,
    at: usize,
    at_host: usize,
    stream: Stream,
}

impl Entry {
    fn sender(&self) -> SenderInfo {
        let (from, epoch, stream) = self.key;
        let Stream { closed, bytes, counts, .. } = self.stream;
        SenderInfo { from, epoch, stream, closed, reliable: false, bytes, counts }
    }
}

/// An address with at least one stream.
struct AddressEntry {
    /// The epoch of the stream that joined last, to notice restarts.
    epoch: Option<u64>,
    /// The streams: one, unless the sender restarted, sends to groups, or its address is forged.
    streams: Vec<u32>,
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

/// The receiving machine.
pub struct Receiver {
    wait: Duration,
    window: usize,
    ordered: bool,
    max_held_bytes: usize,
    max_streams: usize,
    streams: SlotTable<Entry>,
    by_key: HashMap<StreamKey, u32>,
    last: Option<(StreamKey, u32)>,
    addresses: SlotTable<AddressEntry>,
    by_addr: HashMap<SocketAddr, u32>,
    /// The streams of each host.
    hosts: FairShare<HostAddress>,
    /// Streams in the order in which they were last heard.
    last_heard: Timeline,
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
            max_streams: config.max_senders,
            streams: SlotTable::new(),
            by_key: HashMap::new(),
            last: None,
            addresses: SlotTable::new(),
            by_addr: HashMap::new(),
            hosts: FairShare::new(),
            last_heard: Timeline::new(),
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
                self.last_heard.touch(slot, now);
                let entry = self.streams.get_mut(slot).expect("the slot was just found");
                entry.stream.bytes += bytes.len() as u64;
                let known =
                    self.addresses.get_mut(entry.address).expect("an address with streams has an entry");
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
                let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
                if entry.stream.close(header.first) {
                    self.release(now, slot, false, sink);
                }
            }
        }
    }

    /// The stream of this name, begun if it is new.
    fn stream(&mut self, key: StreamKey, now: Instant, sink: &mut impl Sink) -> u32 {
        if let Some((last, slot)) = self.last
            && last == key
        {
            return slot;
        }
        let slot = match self.by_key.get(&key) {
            Some(&slot) => slot,
            None => {
                if self.streams.len() >= self.max_streams
                    && let Some(victim) = self.victim_for(key.0)
                {
                    self.evict(now, victim, sink);
                }
                let address = self.address(key.0);
                let siblings = &mut self.addresses.get_mut(address).expect("the slot was just found").streams;
                let (at, at_host, stream) = (siblings.len(), 0, Stream::default());
                let slot = self.streams.insert(Entry { key, address, at, at_host, stream });
                siblings.push(slot);
                let at_host = self.hosts.add(host(key.0), slot);
                self.streams.get_mut(slot).expect("the entry was just inserted").at_host = at_host;
                self.by_key.insert(key, slot);
                slot
            }
        };
        self.last = Some((key, slot));
        slot
    }

    /// The stream to evict for a new one of this address.
    fn victim_for(&mut self, of: SocketAddr) -> Option<u32> {
        let Receiver { hosts, last_heard, streams, max_streams, .. } = self;
        let silent = last_heard.first().map(|(slot, _)| slot);
        hosts.victim(host(of), *max_streams, silent, |slot| {
            let entry = streams.get_mut(slot).expect("a counted slot has an entry");
            (last_heard.since(slot), host(entry.key.0))
        })
    }

    /// The entry of an address that gets another stream.
    fn address(&mut self, addr: SocketAddr) -> u32 {
        let Receiver { addresses, by_addr, .. } = self;
        let fresh = || {
            addresses.insert(AddressEntry {
                epoch: None,
                streams: Vec::new(),
                budget: AmplificationBudget::default(),
            })
        };
        *by_addr.entry(addr).or_insert_with(fresh)
    }

    /// The anti-amplification limit of a known address.
    pub(crate) fn amplification_budget(&mut self, of: SocketAddr) -> Option<&mut AmplificationBudget> {
        let slot = *self.by_addr.get(&of)?;
        self.addresses.get_mut(slot).map(|known| &mut known.budget)
    }

    /// Evicts a stream: reports its losses and delivers its held messages.
    fn evict(&mut self, now: Instant, slot: u32, sink: &mut impl Sink) {
        while self.streams.get_mut(slot).is_some_and(|entry| entry.stream.held() > 0) {
            self.declare_lost(now, slot, sink);
        }
        let Some(Entry { key, address, at, at_host, stream }) = self.streams.remove(slot) else { return };
        self.last_heard.remove(slot);
        self.gaps.remove(slot);
        self.by_key.remove(&key);
        self.last = None;
        self.evicted.add(&stream.counts);
        let moved = self.hosts.remove(&host(key.0), at_host);
        if let Some(moved) = moved.and_then(|moved| self.streams.get_mut(moved)) {
            moved.at_host = at_host;
        }
        let known = self.addresses.get_mut(address).expect("an address with streams has an entry");
        known.streams.swap_remove(at);
        if let Some(moved) = known.streams.get(at).and_then(|&moved| self.streams.get_mut(moved)) {
            moved.at = at;
        }
        if known.streams.is_empty() {
            self.addresses.remove(address);
            self.by_addr.remove(&key.0);
        }
        if !stream.closed {
            sink.event(Event::Evicted { from: key.0 });
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
        let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
        let (from, stream) = (entry.key.0, &mut entry.stream);
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
            let stream = &mut self.streams.get_mut(slot).expect("the caller has found the slot").stream;
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
        self.streams.get_mut(slot).expect("the caller has found the slot").stream.hold(held);
    }

    /// Delivers held messages that are next, and declares missing ones lost if too many wait for them.
    fn release(&mut self, now: Instant, slot: u32, mut progress: bool, sink: &mut impl Sink) {
        loop {
            let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
            let (from, stream) = (entry.key.0, &mut entry.stream);
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
        let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
        let ((from, epoch, number), stream) = (entry.key, &mut entry.stream);
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
        let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
        let (from, epoch, _) = entry.key;
        entry.stream.joined = true;
        entry.stream.counts.missed += missed;
        let known = self.addresses.get_mut(entry.address).expect("an address with streams has an entry");
        let restarted = known.epoch.replace(epoch).is_some_and(|before| before != epoch);
        sink.event(Event::Joined { from, missed, restarted });
    }

    fn deliver(&mut self, slot: u32, id: u32, located: Located<'_>, sink: &mut impl Sink) {
        let Located { messages, buffer } = located;
        let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
        let from = entry.key.0;
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
        let entry = self.streams.get_mut(slot).expect("the caller has found the slot");
        let (from, epoch, stream) = entry.key;
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
        self.streams.iter().map(Entry::sender).collect()
    }

    /// The streams of one address.
    pub fn sender(&mut self, from: SocketAddr) -> Vec<SenderInfo> {
        let Receiver { streams, addresses, by_addr, .. } = self;
        let known = by_addr.get(&from).and_then(|&slot| addresses.get_mut(slot));
        let slots = known.into_iter().flat_map(|known| &known.streams);
        slots.filter_map(|&slot| streams.get_mut(slot).map(|entry| entry.sender())).collect()
    }

    /// The counters of the machine.
    pub fn totals(&self) -> Totals {
        let mut counts = self.evicted;
        self.streams.iter().for_each(|entry| counts.add(&entry.stream.counts));
        Totals {
            counts,
            datagrams: self.datagrams,
            malformed: self.malformed,
            incomplete: self.reassembly.incomplete,
            senders: self.streams.len() as u64,
        }
    }
}
