//! The link from a queue to an address in the reliable mode: the streams of its keys, and the state that they share: the round trip
//! time, the congestion window, and the numbers of segments.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::cubic::Cubic;
use super::out_stream::{OutStream, Spares};
use super::rtt::Rtt;
use super::sent::{Part, Sent};
use crate::config::MIN_DATAGRAM;
use crate::event::{ReliableCounts, Undelivered};
use crate::proto::outgoing::{Frame, segments_per_call};
use crate::proto::recent_map::RecentMap;
use crate::wire::reliable::{Ack, End, MIN_FIRST_SEGMENT, SEGMENT_BYTES, Segment};
use crate::wire::{HEADER_BYTES, LinkName};

/// The segments that a flight has memory for at first.
const FLIGHT_SEGMENTS: usize = 10;

/// Segments that are sent again when nothing is acknowledged.
const PROBES: usize = 2;
/// After this many waits with answers that acknowledge nothing new, everything on its way is sent again.
const STUCK_AFTER: u32 = 2;
/// After this many waits in vain, and this much time, the window returns to its minimum. A receiver that got no processor for some
/// milliseconds is no congestion.
const COLLAPSE_AFTER: u32 = 3;
const COLLAPSE_TIME: Duration = Duration::from_millis(100);
/// The most waits in vain that still make the next wait longer.
const MAX_IN_VAIN: u32 = 10;

/// How often the end of a link is sent.
const END_COPIES: usize = 3;

/// Datagrams of equal length that are sent together.
#[derive(Debug)]
pub struct Flight {
    /// The destination.
    pub to: SocketAddr,
    /// The datagrams.
    pub bytes: Vec<u8>,
    /// The length of each datagram but the last.
    pub segment: usize,
}

/// The outcome of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    Confirmed(u64),
    Failed { mailbox: u32, first: u64, count: u64, why: Undelivered },
    Restarted,
}

pub(crate) struct Link {
    to: SocketAddr,
    name: LinkName,
    frame: Frame,
    /// The epoch of the receiver, or 0 until it has answered.
    receiver: u64,
    pub streams: RecentMap<u32, OutStream>,
    /// Streams that may have something to send.
    queue: VecDeque<u32>,
    sent: Sent,
    rtt: Rtt,
    cubic: Cubic,
    size: usize,
    next_run: u32,
    /// Waits in vain since the last acknowledgement, and when the first of them ended.
    in_vain: u32,
    silent_since: Option<Instant>,
    /// Waits with an answer since the last acknowledgement of a new segment, and whether the current wait has an answer.
    stuck: u32,
    answered: bool,
    /// The number of segments that may be sent regardless of the window.
    probes: usize,
    /// When the pace allows the next segment. `None`: the pace allows it now.
    pub paced: Option<Instant>,
    /// When the link has something to do, as its machine has it.
    pub due: Option<Instant>,
    /// The last progress of each stream with unconfirmed messages is not earlier than this time.
    pub oldest_progress: Option<Instant>,
    /// The last push or acknowledgement.
    pub used: Instant,
    /// Bytes of all streams that are not acknowledged.
    pub buffered: usize,
    segments: u64,
    repeated: u64,
    timeouts: u64,
    /// Segments that the receiver refused for want of room.
    postponed: u64,
    /// The greatest number of the acknowledgements.
    newest_ack: u64,
    /// The sender has finished. The end is announced once all messages are confirmed or given up.
    pub ending: bool,
    /// The segment that was written last, in its frame.
    framed: Vec<u8>,
}

impl Link {
    /// A link with datagrams of at most `limit` bytes.
    pub fn new(now: Instant, to: SocketAddr, name: LinkName, frame: Frame, limit: usize) -> Link {
        Link {
            to,
            name,
            frame,
            receiver: 0,
            streams: RecentMap::new(),
            queue: VecDeque::new(),
            sent: Sent::new(),
            rtt: Rtt::new(),
            cubic: Cubic::new(limit),
            size: limit - frame.bytes() - HEADER_BYTES - SEGMENT_BYTES,
            next_run: 0,
            in_vain: 0,
            silent_since: None,
            stuck: 0,
            answered: false,
            probes: 0,
            paced: None,
            due: None,
            oldest_progress: None,
            used: now,
            buffered: 0,
            segments: 0,
            repeated: 0,
            timeouts: 0,
            postponed: 0,
            newest_ack: 0,
            ending: false,
            framed: Vec::new(),
        }
    }

    /// The bytes of a chunk.
    pub fn size(&self) -> usize {
        self.size
    }

    pub fn name(&self) -> LinkName {
        self.name
    }

    /// Prepares the push of a message. Returns true if no message was unconfirmed.
    pub fn begin_push(&mut self, now: Instant) -> bool {
        (self.used, self.ending) = (now, false);
        if self.is_idle() {
            self.oldest_progress = Some(now);
        }
        self.is_idle()
    }

    /// True if no message is unconfirmed.
    pub fn is_idle(&self) -> bool {
        self.buffered == 0
    }

    /// Gives the link a new identity while no message is unconfirmed, because the receiver may have forgotten the old one.
    pub fn renew(&mut self, now: Instant, number: u32, credit: u64) {
        (self.name.stream, self.receiver, self.used) = (number, 0, now);
        (self.sent, self.rtt, self.paced) = (Sent::new(), Rtt::new(), None);
        (self.in_vain, self.silent_since, self.stuck, self.answered) = (0, None, 0, false);
        (self.newest_ack, self.ending) = (0, false);
        self.cubic = Cubic::new(self.size + self.frame.bytes() + HEADER_BYTES + SEGMENT_BYTES);
        for (_, stream) in self.streams.iter_mut() {
            self.next_run += 1;
            stream.renew(now, self.next_run, credit);
        }
        self.queue.clear();
    }

    /// A number for the next run of a stream.
    pub fn new_run(&mut self) -> u32 {
        self.next_run += 1;
        self.next_run
    }

    /// Continues with the smallest datagrams, because one was too large for the path.
    pub fn path_changed(&mut self) {
        self.size = MIN_DATAGRAM - self.frame.bytes() - HEADER_BYTES - SEGMENT_BYTES;
        self.cubic = Cubic::new(MIN_DATAGRAM);
    }

    /// Puts a stream into the queue if it has something to send.
    pub fn enqueue(&mut self, mailbox: u32) {
        let Some(stream) = self.streams.get_mut(mailbox) else { return };
        if !stream.queued && stream.is_ready() {
            stream.queued = true;
            self.queue.push_back(mailbox);
        }
    }

    /// True if a stream is queued and the pace does not forbid a segment.
    pub fn is_sendable(&self) -> bool {
        !self.queue.is_empty() && self.paced.is_none()
    }

    /// Collects the segments that may be sent now, from the streams in turn.
    pub fn transmit(&mut self, now: Instant, out: &mut Vec<Flight>) {
        self.paced = None;
        let mut flight = Flight { to: self.to, bytes: Vec::new(), segment: 0 };
        while let Some(&mailbox) = self.queue.front() {
            let probing = self.probes > 0;
            let datagram = self.size + self.frame.bytes() + HEADER_BYTES + SEGMENT_BYTES;
            if !probing {
                if self.sent.flying + datagram > self.cubic.window().max(datagram) {
                    break;
                }
                self.paced = self.cubic.pace(now, datagram, self.rtt.smoothed());
                if self.paced.is_some() {
                    break;
                }
            }
            self.queue.pop_front();
            if !self.segment(now, mailbox) {
                continue;
            }
            self.probes = self.probes.saturating_sub(1);
            self.cubic.sent(self.framed.len());
            self.enqueue(mailbox);
            append(&mut flight, &self.framed, out);
        }
        if !flight.bytes.is_empty() {
            out.push(flight);
        }
    }

    /// Writes the next segment of a stream. Returns false if it has none.
    fn segment(&mut self, now: Instant, mailbox: u32) -> bool {
        let Link { streams, sent, frame, framed, .. } = self;
        let Some(stream) = streams.get_mut(mailbox) else { return false };
        stream.queued = false;
        let (number, run) = (sent.next(), stream.run);
        let Some((offset, bytes, again)) = stream.next(number, self.size) else { return false };
        let part = Part { mailbox, run, offset, length: bytes.len() };
        let segment = Segment { receiver: self.receiver, run, offset, bytes };
        frame.wrap_into(framed, |out| {
            segment.write(self.name, number, mailbox, out);
            pad_first(self.receiver, frame.head, out);
        });
        sent.push(now, part, framed.len());
        self.segments += 1;
        self.repeated += u64::from(again);
        true
    }

    /// Handles an acknowledgement of this link. Returns false if it acknowledges segments that were never sent, or cannot be genuine.
    pub fn acknowledge(
        &mut self,
        now: Instant,
        ack: &Ack<'_>,
        reports: &mut Vec<Report>,
        spares: &mut Spares,
    ) -> bool {
        if self.receiver != 0 && (ack.reset || ack.receiver != self.receiver) {
            // The acknowledgement may be forged, so its numbers must be those of segments that were sent.
            let known = ack.ranges().all(|(_, last)| last < self.sent.next());
            if known {
                reports.push(Report::Restarted);
            }
            return known;
        }
        if ack.reset || ack.receiver == 0 {
            return false;
        }
        let before = self.sent.flying;
        let Some(result) = self.sent.acknowledge(ack.ranges(), ack.refused()) else { return false };
        self.receiver = ack.receiver;
        self.take_credits(ack);
        if let Some(sent) = result.newest {
            self.rtt.sample(now.saturating_duration_since(sent));
        }
        let full = 2 * before >= self.cubic.window();
        for (part, bytes, sent) in &result.parts {
            self.cubic.acknowledged(now, *bytes, *sent, self.rtt.smoothed(), full);
            self.arrived(now, part, reports, spares);
        }
        (self.in_vain, self.silent_since, self.answered) = (0, None, result.parts.is_empty());
        if !result.parts.is_empty() {
            (self.stuck, self.used) = (0, now);
        }
        for (number, part) in &result.refused {
            self.postponed += 1;
            if let Some(stream) = self.streams.get_mut(part.mailbox).filter(|stream| stream.run == part.run) {
                stream.lost(*number, part.offset, part.length);
                self.enqueue(part.mailbox);
            }
        }
        self.detect_losses(now);
        true
    }

    /// Applies the credits of an acknowledgement. The newest credit counts, even if it is lower than the one before: the receiver refuses
    /// bytes beyond it for now.
    fn take_credits(&mut self, ack: &Ack<'_>) {
        let newest = ack.greatest >= self.newest_ack;
        self.newest_ack = self.newest_ack.max(ack.greatest);
        for credit in ack.credits() {
            let stream = self.streams.get_mut(credit.mailbox).filter(|stream| stream.run == credit.run);
            if let Some(stream) = stream {
                stream.credit = if newest { credit.limit } else { stream.credit.max(credit.limit) };
                self.enqueue(credit.mailbox);
            }
        }
    }

    /// True if the end of the link can be announced: it had segments, and nothing is unconfirmed.
    pub fn has_ended(&self) -> bool {
        self.ending && self.is_idle() && self.sent.next() > 0
    }

    /// The end of the link, as datagrams of equal length. It is never acknowledged, so it is sent several times.
    pub fn end(&self) -> Flight {
        let once = self.frame.wrap(|out| {
            let end = End { receiver: self.receiver };
            end.write(self.name, self.sent.next(), out);
        });
        Flight { to: self.to, segment: once.len(), bytes: once.repeat(END_COPIES) }
    }

    fn arrived(&mut self, now: Instant, part: &Part, reports: &mut Vec<Report>, spares: &mut Spares) {
        let Some(stream) = self.streams.get_mut(part.mailbox).filter(|stream| stream.run == part.run) else {
            return;
        };
        let before = stream.buffered();
        let confirmed = stream.arrived(now, part.offset, part.length, spares);
        self.buffered -= before - stream.buffered();
        if confirmed > 0 {
            reports.push(Report::Confirmed(confirmed));
        }
    }

    fn detect_losses(&mut self, now: Instant) {
        let Link { sent, rtt, cubic, streams, .. } = self;
        let mut mailboxes = Vec::new();
        sent.detect_losses(now, rtt, |number, part, sent| {
            cubic.lost(now, sent);
            if let Some(stream) = streams.get_mut(part.mailbox).filter(|stream| stream.run == part.run) {
                stream.lost(number, part.offset, part.length);
                mailboxes.push(part.mailbox);
            }
        });
        mailboxes.into_iter().for_each(|mailbox| self.enqueue(mailbox));
    }

    /// When an acknowledgement is overdue.
    fn timeout(&self) -> Option<Instant> {
        let waits = self.sent.flying > 0 || self.buffered > 0 && self.streams_blocked();
        let since = self.sent.last_sent.filter(|_| waits)?;
        Some(since + self.rtt.timeout(self.in_vain))
    }

    fn streams_blocked(&self) -> bool {
        self.queue.is_empty() && self.streams.iter().any(|(_, stream)| stream.is_blocked())
    }

    /// When [`Link::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let paced = self.paced.filter(|_| !self.queue.is_empty());
        [self.sent.loss_time, self.timeout(), paced].into_iter().flatten().min()
    }

    /// Declares segments lost, and sends the oldest ones again if nothing is acknowledged.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<Flight>) {
        if self.paced.is_some_and(|paced| paced <= now) {
            self.paced = None;
        }
        if self.sent.loss_time.is_some_and(|time| time <= now) {
            self.detect_losses(now);
        }
        if self.timeout().is_some_and(|timeout| timeout <= now) {
            self.time_out(now, out);
        }
    }

    fn time_out(&mut self, now: Instant, out: &mut Vec<Flight>) {
        self.timeouts += 1;
        self.in_vain = (self.in_vain + 1).min(MAX_IN_VAIN);
        self.stuck += u32::from(std::mem::take(&mut self.answered));
        if self.stuck >= STUCK_AFTER {
            self.abandon_all();
        }
        let silence = now - *self.silent_since.get_or_insert(now);
        if self.in_vain >= COLLAPSE_AFTER && silence >= COLLAPSE_TIME {
            self.cubic.collapse(now);
        }
        self.probe(now, out);
    }

    fn abandon_all(&mut self) {
        let Link { sent, streams, .. } = self;
        let mut mailboxes = Vec::new();
        sent.abandon_all(|number, part| {
            if let Some(stream) = streams.get_mut(part.mailbox).filter(|stream| stream.run == part.run) {
                stream.lost(number, part.offset, part.length);
                mailboxes.push(part.mailbox);
            }
        });
        mailboxes.into_iter().for_each(|mailbox| self.enqueue(mailbox));
    }

    /// Sends the oldest segments again, or asks a receiver that accepts no more bytes for its credit.
    fn probe(&mut self, now: Instant, out: &mut Vec<Flight>) {
        let Link { sent, streams, queue, .. } = self;
        let again = sent.on_their_way().filter_map(|(number, part)| {
            // A segment of a blocked stream would not be sent.
            let stream = streams
                .get_mut(part.mailbox)
                .filter(|stream| stream.run == part.run && !stream.is_blocked())?;
            // False: an earlier probe has sent the part again.
            let lost = stream.lost(number, part.offset, part.length);
            // A stream that is in the queue already has more to send.
            let queued = !lost || std::mem::replace(&mut stream.queued, true);
            lost.then(|| (!queued).then(|| queue.push_front(part.mailbox)))
        });
        again.take(PROBES).for_each(drop);
        self.probes = PROBES;
        if self.queue.is_empty() {
            self.ask(now, out);
        }
        self.sent.last_sent = Some(now);
    }

    /// Sends a segment without bytes, for a stream that waits for credit, or for any stream if none does.
    fn ask(&mut self, now: Instant, out: &mut Vec<Flight>) {
        let streams = self.streams.iter().filter(|(_, stream)| stream.has_unconfirmed());
        let Some((mailbox, stream)) = streams.max_by_key(|(_, stream)| stream.is_blocked()) else { return };
        let (run, number) = (stream.run, self.sent.next());
        let segment = Segment { receiver: self.receiver, run, offset: 0, bytes: &[] };
        let bytes = self.frame.wrap(|out| {
            segment.write(self.name, number, mailbox, out);
            pad_first(self.receiver, self.frame.head, out);
        });
        self.sent.push(now, Part { mailbox, run, offset: 0, length: 0 }, bytes.len());
        self.segments += 1;
        out.push(Flight { to: self.to, segment: bytes.len(), bytes });
    }

    /// Gives up the messages of all streams without progress since `before`, or of all streams.
    pub fn fail(&mut self, now: Instant, before: Instant, all: bool, credit: u64, reports: &mut Vec<Report>) {
        for (mailbox, stream) in self.streams.iter_mut() {
            if !stream.has_unconfirmed() || !all && stream.progress > before {
                continue;
            }
            let why = match (all, stream.is_blocked()) {
                (true, _) => Undelivered::Restarted,
                (false, true) => Undelivered::Full,
                (false, false) => Undelivered::NoAnswer,
            };
            self.next_run += 1;
            let (first, count, bytes) = stream.fail(now, why, self.next_run, credit);
            self.buffered -= bytes;
            reports.push(Report::Failed { mailbox, first, count, why });
        }
        let unconfirmed = self.streams.iter().filter(|(_, stream)| stream.has_unconfirmed());
        self.oldest_progress = unconfirmed.map(|(_, stream)| stream.progress).min();
    }

    /// Adds the counters of the link.
    pub fn count(&self, counts: &mut ReliableCounts) {
        counts.segments += self.segments;
        counts.repeated += self.repeated;
        counts.timeouts += self.timeouts;
        counts.postponed += self.postponed;
    }

    /// The smoothed round trip time and the congestion window.
    pub fn path(&self) -> (Duration, usize) {
        (self.rtt.smoothed(), self.cubic.window())
    }
}

/// Pads the segments before the receiver's first answer. The receiver does not know yet that this address is genuine, so its answer
/// must not be longer than the segment.
fn pad_first(receiver: u64, head: usize, out: &mut Vec<u8>) {
    if receiver == 0 && out.len() < head + MIN_FIRST_SEGMENT {
        out.resize(head + MIN_FIRST_SEGMENT, 0);
    }
}

/// Appends a datagram to a flight, or begins another flight. A shorter datagram is the last one of its flight.
fn append(flight: &mut Flight, framed: &[u8], out: &mut Vec<Flight>) {
    let (segment, length) = (flight.segment, flight.bytes.len());
    let fits = length == 0 || framed.len() <= segment && length.is_multiple_of(segment);
    if !fits || length > 0 && length / segment >= segments_per_call(segment) {
        let next = Flight { to: flight.to, segment: 0, bytes: Vec::new() };
        out.push(std::mem::replace(flight, next));
    }
    if flight.bytes.is_empty() {
        flight.segment = framed.len();
        flight.bytes.reserve(FLIGHT_SEGMENTS * framed.len());
    }
    flight.bytes.extend_from_slice(framed);
}
