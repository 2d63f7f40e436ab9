//! The receiving machine: datagrams and the time in, messages and events out.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::Slots;
use super::fragments::{Added, Fragments};
use super::gaps::{Gaps, window};
use super::lent::Lent;
use super::shares::Shares;
pub use super::sink::{Sink, Taken, Totals};
use super::stream::{Body as Held, Stream, Verdict, Waiting};
use super::timeline::Timeline;
use crate::config::{Config, Order};
use crate::event::{Counts, Event, Sender};
use crate::key::{Key, host};
use crate::wire::{Body, Datagram, Header, Malformed, Messages, Piece};

/// Messages, and what they lie in.
type Lying<'a> = (Messages<'a>, Option<&'a Lent>);

/// Messages given up together of which pieces are looked for.
const DROPPED_AT_ONCE: usize = 64;

/// A stream's name.
type StreamKey = (SocketAddr, u64, u32);

struct Entry {
    key: StreamKey,
    /// Where its address is among `addresses`, and it among the streams of that, and of its host.
    address: u32,
    at: usize,
    at_host: usize,
    stream: Stream,
}

impl Entry {
    fn sender(&self) -> Sender {
        let (from, epoch, stream) = self.key;
        let Stream { closed, bytes, counts, .. } = self.stream;
        Sender { from, epoch, stream, closed, bytes, counts }
    }
}

/// What is known of an address, as long as one of its streams is remembered.
struct Known {
    /// Of the stream that joined last, to notice restarts.
    epoch: Option<u64>,
    /// Its streams: one, but for restarts, groups and strangers.
    streams: Vec<u32>,
    account: Account,
}

/// What came from an address and what was sent there without having been asked for. The address may be forged, so the
/// second is never more than the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Bytes of datagrams that came from there, without the headers of IP and UDP.
    pub came: u64,
    /// Bytes sent there, with all headers.
    pub spent: u64,
}

/// The machine.
pub struct Receiver {
    wait: Duration,
    window: usize,
    kept: bool,
    held_limit: usize,
    max_streams: usize,
    streams: Slots<Entry>,
    by_key: HashMap<StreamKey, u32>,
    last: Option<(StreamKey, u32)>,
    addresses: Slots<Known>,
    by_addr: HashMap<SocketAddr, u32>,
    /// Whose streams they are.
    hosts: Shares<IpAddr>,
    /// Who was silent longest.
    heard: Timeline,
    /// Who misses something.
    gaps: Gaps,
    fragments: Fragments,
    held: usize,
    forgotten: Counts,
    datagrams: u64,
    malformed: u64,
}

impl Receiver {
    /// A machine that has heard nothing yet.
    pub fn new(config: &Config) -> Receiver {
        let (kept, wait, window) = match config.order {
            Order::Kept { wait, window } => (true, wait, window),
            Order::AsArrived { wait, window } => (false, wait, window),
        };
        Receiver {
            wait,
            window,
            kept,
            held_limit: config.held_bytes,
            max_streams: config.max_senders,
            streams: Slots::new(),
            by_key: HashMap::new(),
            last: None,
            addresses: Slots::new(),
            by_addr: HashMap::new(),
            hosts: Shares::new(),
            heard: Timeline::new(),
            gaps: Gaps::new(wait),
            fragments: Fragments::new(config),
            held: 0,
            forgotten: Counts::default(),
            datagrams: 0,
            malformed: 0,
        }
    }

    /// A datagram arrived.
    pub fn datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], sink: &mut impl Sink) {
        self.datagram_in(now, from, bytes, None, sink);
    }

    /// A datagram arrived, and lies in memory that may be kept.
    pub fn datagram_in(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        lent: Option<&Lent>,
        sink: &mut impl Sink,
    ) {
        self.datagrams += 1;
        match Datagram::parse(bytes) {
            Ok(datagram) => {
                let slot = self.stream((from, datagram.header.epoch, datagram.header.stream), now, sink);
                self.heard.touch(slot, now);
                let entry = self.streams.get_mut(slot).expect("it was found");
                entry.stream.bytes += bytes.len() as u64;
                let known = self.addresses.get_mut(entry.address).expect("it is known while it has streams");
                known.account.came += bytes.len() as u64;
                self.take(now, slot, datagram, lent, sink);
            }
            Err(why) => self.refuse(from, why, sink),
        }
    }

    fn refuse(&mut self, from: SocketAddr, why: Malformed, sink: &mut impl Sink) {
        self.malformed += 1;
        sink.event(Event::Malformed { from, why });
    }

    fn take(
        &mut self,
        now: Instant,
        slot: u32,
        datagram: Datagram<'_>,
        lent: Option<&Lent>,
        sink: &mut impl Sink,
    ) {
        let Datagram { header, body } = datagram;
        match body {
            Body::Batch(messages) => self.messages(now, slot, header, (messages, lent), sink),
            Body::Fragment(piece) => self.piece(now, slot, header, piece, sink),
            Body::Close => {
                let entry = self.streams.get_mut(slot).expect("the caller found it");
                if entry.stream.close(header.first) {
                    self.release(now, slot, false, sink);
                }
            }
        }
    }

    /// The stream of this name; it begins if it is new.
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
                    && let Some(gone) = self.in_the_way(key.0)
                {
                    self.forget(now, gone, sink);
                }
                let address = self.address(key.0);
                let siblings = &mut self.addresses.get_mut(address).expect("it was just found").streams;
                let (at, at_host, stream) = (siblings.len(), 0, Stream::default());
                let slot = self.streams.insert(Entry { key, address, at, at_host, stream });
                siblings.push(slot);
                let at_host = self.hosts.add(host(key.0), slot);
                self.streams.get_mut(slot).expect("it was just put there").at_host = at_host;
                self.by_key.insert(key, slot);
                slot
            }
        };
        self.last = Some((key, slot));
        slot
    }

    /// Which stream is forgotten for another one of this address.
    fn in_the_way(&mut self, of: SocketAddr) -> Option<u32> {
        let Receiver { hosts, heard, streams, max_streams, .. } = self;
        let silent = heard.first().map(|(slot, _)| slot);
        hosts.in_the_way(host(of), *max_streams, silent, |slot| {
            let entry = streams.get_mut(slot).expect("it has a place");
            (heard.since(slot), host(entry.key.0))
        })
    }

    /// Where an address is that will have one more stream.
    fn address(&mut self, addr: SocketAddr) -> u32 {
        let Receiver { addresses, by_addr, .. } = self;
        let fresh =
            || addresses.insert(Known { epoch: None, streams: Vec::new(), account: Account::default() });
        *by_addr.entry(addr).or_insert_with(fresh)
    }

    /// The account of an address that is known.
    pub(crate) fn account(&mut self, of: SocketAddr) -> Option<&mut Account> {
        let slot = *self.by_addr.get(&of)?;
        self.addresses.get_mut(slot).map(|known| &mut known.account)
    }

    /// Makes room: what the sender lost is told, and what waits is delivered.
    fn forget(&mut self, now: Instant, slot: u32, sink: &mut impl Sink) {
        while self.streams.get_mut(slot).is_some_and(|entry| entry.stream.waiting() > 0) {
            self.give_up(now, slot, sink);
        }
        let Some(Entry { key, address, at, at_host, stream }) = self.streams.remove(slot) else { return };
        self.heard.remove(slot);
        self.gaps.remove(slot);
        self.by_key.remove(&key);
        self.last = None;
        self.forgotten.add(&stream.counts);
        let moved = self.hosts.remove(&host(key.0), at_host);
        if let Some(moved) = moved.and_then(|moved| self.streams.get_mut(moved)) {
            moved.at_host = at_host;
        }
        let known = self.addresses.get_mut(address).expect("it is known while it has streams");
        known.streams.swap_remove(at);
        if let Some(moved) = known.streams.get(at).and_then(|&moved| self.streams.get_mut(moved)) {
            moved.at = at;
        }
        if known.streams.is_empty() {
            self.addresses.remove(address);
            self.by_addr.remove(&key.0);
        }
        if !stream.closed {
            sink.event(Event::Forgotten { from: key.0 });
        }
    }

    /// Messages with their numbers.
    fn messages(
        &mut self,
        now: Instant,
        slot: u32,
        header: Header,
        (messages, lent): Lying<'_>,
        sink: &mut impl Sink,
    ) {
        let (first, count) = (header.first, messages.len() as u64);
        let entry = self.streams.get_mut(slot).expect("the caller found it");
        let (from, stream) = (entry.key.0, &mut entry.stream);
        let verdict = stream.judge(first, count);
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
            Verdict::Nonsense => return self.refuse(from, Malformed::Broken, sink),
        }
        if verdict == Verdict::Next {
            if !stream.joined {
                self.join(slot, 0, sink);
            }
            self.deliver(slot, header.mailbox, (messages, lent), sink);
            let stream = &mut self.streams.get_mut(slot).expect("the caller found it").stream;
            stream.done(count);
            if stream.waiting() == 0 {
                return;
            }
        } else {
            self.early(slot, header, (messages, lent), sink);
        }
        self.release(now, slot, verdict == Verdict::Next, sink);
    }

    /// Something before these is missing: they wait, or are only noted.
    fn early(&mut self, slot: u32, header: Header, (messages, lent): Lying<'_>, sink: &mut impl Sink) {
        let mut waiting = Waiting { first: header.first, count: messages.len() as u64, body: None };
        if self.kept {
            let (bytes, whole) = (messages.as_bytes().into(), messages.is_whole());
            waiting.body = Some(Held { bytes, whole, mailbox: header.mailbox });
        } else {
            self.deliver(slot, header.mailbox, (messages, lent), sink);
        }
        self.held += waiting.cost();
        self.streams.get_mut(slot).expect("the caller found it").stream.wait(waiting);
    }

    /// Delivers what waits for nothing any more; gives up what is missing if too much waits for it.
    fn release(&mut self, now: Instant, slot: u32, mut progress: bool, sink: &mut impl Sink) {
        loop {
            let entry = self.streams.get_mut(slot).expect("the caller found it");
            let (from, stream) = (entry.key.0, &mut entry.stream);
            if let Some(waiting) = stream.release() {
                progress = true;
                // An end waits as well, at no cost.
                if waiting.count > 0 {
                    self.held -= waiting.cost();
                }
                if let Some(body) = waiting.body {
                    let messages = Messages::checked(waiting.count as usize, &body.bytes, body.whole);
                    self.deliver(slot, body.mailbox, (messages, None), sink);
                }
                continue;
            }
            let missing = stream.waiting();
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
            let level = stream.level;
            if missing > window(self.window, level) || self.held > self.held_limit || self.wait.is_zero() {
                self.give_up_once(slot, sink);
                continue;
            }
            // What is missing now has its own time to come.
            if progress || !self.gaps.contains(slot) {
                self.gaps.remove(slot);
                self.gaps.push_back(slot, level, now);
            }
            return;
        }
    }

    /// The first that is missing is lost, and what waited for it goes on.
    fn give_up(&mut self, now: Instant, slot: u32, sink: &mut impl Sink) {
        self.give_up_once(slot, sink);
        self.release(now, slot, true, sink);
    }

    fn give_up_once(&mut self, slot: u32, sink: &mut impl Sink) {
        let entry = self.streams.get_mut(slot).expect("the caller found it");
        let ((from, epoch, number), stream) = (entry.key, &mut entry.stream);
        let Some(gap) = stream.give_up() else { return };
        // Of more than these the pieces go when their time is over.
        for first in (gap.first..gap.first + gap.count).take(DROPPED_AT_ONCE) {
            self.fragments.forget((from, epoch, number, first));
        }
        if stream.joined {
            stream.lost(gap.count);
            sink.event(Event::Lost { from, first: gap.first, count: gap.count });
        } else {
            self.join(slot, gap.count, sink);
        }
    }

    /// It is known now where the stream begins for this receiver.
    fn join(&mut self, slot: u32, missed: u64, sink: &mut impl Sink) {
        let entry = self.streams.get_mut(slot).expect("the caller found it");
        let (from, epoch, _) = entry.key;
        entry.stream.joined = true;
        entry.stream.counts.missed += missed;
        let known = self.addresses.get_mut(entry.address).expect("it is known while it has streams");
        let restarted = known.epoch.replace(epoch).is_some_and(|before| before != epoch);
        sink.event(Event::Joined { from, missed, restarted });
    }

    fn deliver(&mut self, slot: u32, id: u32, (messages, lent): Lying<'_>, sink: &mut impl Sink) {
        let entry = self.streams.get_mut(slot).expect("the caller found it");
        let from = entry.key.0;
        let taken = sink.deliver(Key { addr: from, id }, messages, lent);
        let counts = &mut entry.stream.counts;
        counts.received += messages.len() as u64;
        if taken != Taken::default() {
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

    /// A piece of a message.
    fn piece(&mut self, now: Instant, slot: u32, header: Header, piece: Piece<'_>, sink: &mut impl Sink) {
        let entry = self.streams.get_mut(slot).expect("the caller found it");
        let (from, epoch, stream) = entry.key;
        let verdict = entry.stream.judge(header.first, 1);
        if !matches!(verdict, Verdict::Next | Verdict::Early) {
            // The message came before, or was given up: counted once, not for every piece.
            if piece.index == 0 {
                self.messages(now, slot, header, (Messages::whole(piece.bytes), None), sink);
            }
            return;
        }
        match self.fragments.add(now, (from, epoch, stream, header.first), header.count, piece) {
            Added::Whole(message) => {
                let whole = Messages::whole(message.as_bytes());
                self.messages(now, slot, header, (whole, Some(&message)), sink);
                self.fragments.keep(message);
            }
            Added::Incomplete => {}
            Added::Refused => self.refuse(from, Malformed::Broken, sink),
        }
    }

    /// When [`Receiver::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.gaps.next_deadline(), self.fragments.next_deadline()].into_iter().flatten().min()
    }

    /// Gives up what was missing for too long.
    pub fn expire(&mut self, now: Instant, sink: &mut impl Sink) {
        self.fragments.expire(now);
        while let Some(slot) = self.gaps.due(now) {
            self.give_up(now, slot, sink);
        }
    }

    /// Bytes that wait for missing ones, with what remembering them costs.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// Bytes of incomplete messages, with what remembering them costs.
    pub fn fragment_bytes(&self) -> usize {
        self.fragments.bytes()
    }

    /// Every stream that is remembered.
    pub fn senders(&self) -> Vec<Sender> {
        self.streams.iter().map(Entry::sender).collect()
    }

    /// The streams of one address.
    pub fn sender(&mut self, from: SocketAddr) -> Vec<Sender> {
        let Receiver { streams, addresses, by_addr, .. } = self;
        let known = by_addr.get(&from).and_then(|&slot| addresses.get_mut(slot));
        let slots = known.into_iter().flat_map(|known| &known.streams);
        slots.filter_map(|&slot| streams.get_mut(slot).map(|entry| entry.sender())).collect()
    }

    /// What was counted: for all senders; datagrams; those that were malformed; incomplete messages given up.
    pub fn totals(&self) -> Totals {
        let mut counts = self.forgotten;
        self.streams.iter().for_each(|entry| counts.add(&entry.stream.counts));
        Totals {
            counts,
            datagrams: self.datagrams,
            malformed: self.malformed,
            incomplete: self.fragments.incomplete,
            senders: self.streams.len() as u64,
        }
    }
}
