//! The sending half of the reliable mode: links to addresses, each with the streams of its keys.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use super::link::{Flight, Link, Report};
use super::out_stream::{Fate, OutStream, Spares};
use super::records::LONG_BYTES;
use crate::config::{Config, MIN_DATAGRAM, Reliable};
use crate::error::PushError;
use crate::event::{Event, ReliableCounts};
use crate::key::Key;
use crate::proto::after;
use crate::proto::outgoing::Frame;
use crate::proto::recent_map::RecentMap;
use crate::wire::reliable::Ack;
use crate::wire::{LinkName, MAX_DATAGRAM};

/// A link that was idle for this fraction (a third) of [`Reliable::idle`] gets a new identity, because the receiver forgets a link
/// that was idle for all of it.
const RENEW_PART: u32 = 3;

/// A stream with messages that wait for their batch: when the stream is flushed, its address and its mailbox.
type Waiting = (Instant, SocketAddr, u32);

/// The state machine of the sending half.
pub struct Outbound {
    settings: Reliable,
    qmessages: usize,
    qthresh: usize,
    timeout: std::time::Duration,
    max_message: usize,
    epoch: u64,
    frame: Frame,
    links: RecentMap<SocketAddr, Link>,
    next_link: u32,
    /// When each link has something to do.
    due: BTreeSet<(Instant, SocketAddr)>,
    waiting: BTreeSet<Waiting>,
    /// Links that may have something to send now.
    sendable: Vec<SocketAddr>,
    spares: Spares,
    buffered: usize,
    keys: usize,
    events: Vec<Event>,
    counts: ReliableCounts,
}

impl Outbound {
    /// A machine that has sent nothing, of a queue with this random name.
    pub fn new(config: &Config, settings: Reliable, epoch: u64) -> Outbound {
        Outbound {
            settings,
            qmessages: config.qmessages.unwrap_or(usize::MAX),
            qthresh: config.qthresh,
            timeout: config.timeout,
            max_message: config.max_message,
            epoch,
            frame: Frame::new(config.security.is_some()),
            links: RecentMap::new(),
            next_link: epoch as u32,
            due: BTreeSet::new(),
            waiting: BTreeSet::new(),
            sendable: Vec::new(),
            spares: Spares::default(),
            buffered: 0,
            keys: 0,
            events: Vec::new(),
            counts: ReliableCounts::default(),
        }
    }

    /// Adds a message. `clock` is called only if the message needs the time, and `limit` for the largest datagram on the path, once for
    /// each link. Returns the number of the message among those of its key, and whether anything may be sent now or is due earlier than
    /// before.
    ///
    /// # Errors
    /// [`PushError`]; nothing is sent.
    #[inline]
    pub fn push(
        &mut self,
        clock: impl FnOnce() -> Instant,
        key: Key,
        message: &[u8],
        limit: impl FnOnce() -> usize,
    ) -> Result<(u64, bool), PushError> {
        if message.len() > self.max_message {
            return Err(PushError::TooLarge { size: message.len(), limit: self.max_message });
        }
        if self.buffered + message.len() > self.settings.send_bytes {
            return Err(PushError::Full);
        }
        if let Some(number) = self.push_to_open_batch(key, message) {
            return Ok((number, false));
        }
        let now = clock();
        self.prepare(now, key, limit)?;
        Ok((self.push_prepared(now, key, message), true))
    }

    /// Adds a message to the stream of its key, on a link that exists. Returns the number of the message among those of its key.
    fn push_prepared(&mut self, now: Instant, key: Key, message: &[u8]) -> u64 {
        let credit = self.settings.window as u64;
        let link = self.links.get_mut(key.addr).expect("the link was prepared");
        if link.streams.get(key.id).is_none() {
            let run = link.new_run();
            link.streams.insert(key.id, OutStream::new(now, run, credit));
            self.keys += 1;
        }
        let (size, was_idle) = (link.size(), link.begin_push(now));
        let stream = link.streams.get_mut(key.id).expect("the stream was just found");
        let (before, waited) = (stream.buffered(), stream.waits_since);
        let number = stream.push(now, message, size, &mut self.spares);
        let added = stream.buffered() - before;
        link.buffered += added;
        self.buffered += added;
        self.counts.pushed += 1;
        let full = stream.waiting >= self.qmessages || stream.unflushed() >= self.qthresh;
        if full || self.timeout.is_zero() {
            stream.flush();
            if let Some(since) = waited {
                self.waiting.remove(&(after(since, self.timeout), key.addr, key.id));
            }
        } else if waited.is_none() {
            self.waiting.insert((after(now, self.timeout), key.addr, key.id));
        }
        link.enqueue(key.id);
        if link.is_sendable() {
            self.sendable.push(key.addr);
        }
        if was_idle {
            self.schedule(key.addr);
        }
        number
    }

    /// Adds a message to an open batch that stays open, which is the usual case. No deadline changes, and nothing may be sent yet. Returns
    /// the number of the message among those of its key, or `None` if there is no such batch.
    fn push_to_open_batch(&mut self, key: Key, message: &[u8]) -> Option<u64> {
        let link = self.links.get_mut(key.addr)?;
        let size = link.size();
        let stream = link.streams.get_mut(key.id)?;
        let since = stream.waits_since?;
        let (messages, bytes) = (stream.waiting + 1, stream.unflushed() + LONG_BYTES + message.len());
        let stays_open = messages < self.qmessages && bytes < self.qthresh;
        if !stays_open {
            return None;
        }
        let before = stream.buffered();
        let number = stream.push(since, message, size, &mut self.spares);
        let added = stream.buffered() - before;
        link.buffered += added;
        self.buffered += added;
        self.counts.pushed += 1;
        Some(number)
    }

    /// Begins or renews the link to an address if necessary, and makes room for a new key.
    fn prepare(&mut self, now: Instant, key: Key, limit: impl FnOnce() -> usize) -> Result<(), PushError> {
        if let Some(link) = self.links.get_mut(key.addr) {
            if link.is_idle() && now.saturating_duration_since(link.used) >= self.settings.idle / RENEW_PART {
                self.next_link = self.next_link.wrapping_add(1);
                link.renew(now, self.next_link, self.settings.window as u64);
            }
            if link.streams.get(key.id).is_some() || self.keys < self.settings.max_keys {
                return Ok(());
            }
        }
        if self.keys >= self.settings.max_keys && !self.forget_idle(key.addr) {
            return Err(PushError::Full);
        }
        if self.links.get(key.addr).is_none() {
            self.next_link = self.next_link.wrapping_add(1);
            let limit = limit().clamp(MIN_DATAGRAM, MAX_DATAGRAM);
            let name = LinkName { stream: self.next_link, epoch: self.epoch };
            self.links.insert(key.addr, Link::new(now, key.addr, name, self.frame, limit));
        }
        Ok(())
    }

    /// Removes the idle link that was used longest ago, with its keys. False: no other link is idle.
    fn forget_idle(&mut self, but: SocketAddr) -> bool {
        let idle = self.links.iter().filter(|(addr, link)| link.is_idle() && *addr != but);
        let Some((addr, _)) = idle.min_by_key(|(_, link)| link.used) else { return false };
        let link = self.links.remove(addr).expect("the link was just found");
        if let Some(due) = link.due {
            self.due.remove(&(due, addr));
        }
        self.keys -= link.streams.len();
        link.count(&mut self.counts);
        true
    }

    /// Flushes all streams, so that their messages are sent.
    pub fn flush(&mut self) {
        while let Some((_, addr, mailbox)) = self.waiting.pop_first() {
            self.flush_stream(addr, mailbox);
        }
    }

    fn flush_stream(&mut self, addr: SocketAddr, mailbox: u32) {
        let Some(link) = self.links.get_mut(addr) else { return };
        if let Some(stream) = link.streams.get_mut(mailbox) {
            stream.flush();
        }
        link.enqueue(mailbox);
        if link.is_sendable() {
            self.sendable.push(addr);
        }
    }

    /// True if [`Outbound::transmit`] has something to do.
    pub fn is_sendable(&self) -> bool {
        !self.sendable.is_empty()
    }

    /// Collects the segments that may be sent now.
    pub fn transmit(&mut self, now: Instant, out: &mut Vec<Flight>) {
        while let Some(addr) = self.sendable.pop() {
            if let Some(link) = self.links.get_mut(addr) {
                link.transmit(now, out);
                if link.has_ended() {
                    out.push(link.end());
                    self.next_link = self.next_link.wrapping_add(1);
                    link.renew(now, self.next_link, self.settings.window as u64);
                }
                self.schedule(addr);
            }
        }
    }

    /// Flushes all streams, and announces the end of each link once all of its messages are confirmed or given up. A message that is pushed
    /// before the announcement continues the link, which then does not end. A later message begins another link.
    pub fn finish(&mut self) {
        self.flush();
        for (addr, link) in self.links.iter_mut() {
            link.ending = true;
            if link.has_ended() {
                self.sendable.push(addr);
            }
        }
    }

    /// The number of links whose end is to be announced now.
    pub fn ending(&self) -> usize {
        self.links.iter().filter(|(_, link)| link.has_ended()).count()
    }

    /// Handles an acknowledgement. `id` and `epoch` are those of its header. Returns false if it does not belong to a link, or acknowledges
    /// segments that were never sent.
    pub fn acknowledge(&mut self, now: Instant, from: SocketAddr, name: LinkName, ack: &Ack<'_>) -> bool {
        let known = self.links.get_mut(from).filter(|link| link.name() == name);
        let Some(link) = known else {
            self.counts.strange += 1;
            return false;
        };
        let (before, mut reports) = (link.buffered, Vec::new());
        let good = link.acknowledge(now, ack, &mut reports, &mut self.spares);
        if reports.contains(&Report::Restarted) {
            let credit = self.settings.window as u64;
            link.fail(now, now, true, credit, &mut reports);
            self.next_link = self.next_link.wrapping_add(1);
            link.renew(now, self.next_link, credit);
            self.events.push(Event::PeerRestarted { to: from });
        }
        self.buffered -= before - link.buffered;
        if link.is_sendable() || link.has_ended() {
            self.sendable.push(from);
        }
        self.counts.strange += u64::from(!good);
        self.report(from, reports);
        self.schedule(from);
        good
    }

    fn report(&mut self, to: SocketAddr, reports: Vec<Report>) {
        for report in reports {
            match report {
                Report::Confirmed(count) => self.counts.confirmed += count,
                Report::Failed { mailbox, first, count, why } => {
                    self.counts.failed += count;
                    let to = Key { addr: to, id: mailbox };
                    self.events.push(Event::Undelivered { to, first, count, why });
                }
                Report::Restarted => {}
            }
        }
    }

    /// When [`Outbound::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (due, waiting) = (self.due.first().map(|due| due.0), self.waiting.first().map(|w| w.0));
        [due, waiting].into_iter().flatten().min()
    }

    fn schedule(&mut self, addr: SocketAddr) {
        let Some(link) = self.links.get_mut(addr) else { return };
        if let Some(before) = link.due.take() {
            self.due.remove(&(before, addr));
        }
        if link.is_idle() {
            return;
        }
        let gives_up = link.oldest_progress.map(|progress| after(progress, self.settings.give_up));
        link.due = [link.next_deadline(), gives_up].into_iter().flatten().min();
        self.due.extend(link.due.map(|due| (due, addr)));
    }

    /// Flushes messages that are old enough, repeats lost segments, and gives up messages that are not confirmed in time.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<Flight>) {
        while let Some(&(due, addr, mailbox)) = self.waiting.first()
            && due <= now
        {
            self.waiting.pop_first();
            self.flush_stream(addr, mailbox);
        }
        while let Some(&(due, addr)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            self.expire_link(now, addr, out);
        }
    }

    fn expire_link(&mut self, now: Instant, addr: SocketAddr, out: &mut Vec<Flight>) {
        let Some(link) = self.links.get_mut(addr) else { return };
        let (before, mut reports) = (link.buffered, Vec::new());
        let since = now.checked_sub(self.settings.give_up);
        if let Some(since) = since.filter(|&since| link.oldest_progress.is_some_and(|oldest| oldest <= since))
        {
            link.fail(now, since, false, self.settings.window as u64, &mut reports);
        }
        self.buffered -= before - link.buffered;
        link.expire(now, out);
        link.transmit(now, out);
        if link.has_ended() {
            self.sendable.push(addr);
        }
        self.report(addr, reports);
        self.schedule(addr);
    }

    /// Handles the news that a datagram to an address was too large for the path.
    pub fn path_changed(&mut self, to: SocketAddr) {
        if let Some(link) = self.links.get_mut(to) {
            link.path_changed();
        }
    }

    /// The fate of a message: `None` if it was never pushed, or is forgotten.
    pub fn fate(&self, key: Key, number: u64) -> Option<Fate> {
        self.links.get(key.addr)?.streams.get(key.id)?.fate(number)
    }

    /// Bytes that are not confirmed.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// The time of a round trip to an address, and the bytes that may be on their way.
    pub fn path(&self, to: SocketAddr) -> Option<(std::time::Duration, usize)> {
        self.links.get(to).map(Link::path)
    }

    /// Takes the events.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The counters of the machine.
    pub fn counts(&self) -> ReliableCounts {
        let mut counts = self.counts;
        self.links.iter().for_each(|(_, link)| link.count(&mut counts));
        counts.unconfirmed_bytes = self.buffered as u64;
        counts
    }
}
