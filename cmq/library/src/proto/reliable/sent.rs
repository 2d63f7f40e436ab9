//! Segments that are on their way, by their numbers, and which of them are lost.
//!
//! ```text
//!   base ─ acknowledged ─ lost ─ on its way ─ … ─ on its way ─ next number
//!                          │ a segment sent later was acknowledged: by 3 numbers, or by a part of a round trip (RACK)
//! ```
//!
//! If a lost segment is acknowledged after all, it was only overtaken. Both limits then grow, so that a path that reorders causes no
//! repetitions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::rtt::Rtt;

/// A segment counts as lost once one with a number higher by this was acknowledged: the limit at first, and at most.
const THRESHOLD: u64 = 3;
const MAX_THRESHOLD: u64 = 300;
/// The reordering window in eighths of a round trip, at first and at most.
const EIGHTHS: u32 = 1;
const MAX_EIGHTHS: u32 = 8;
/// After this many round trips with losses, of which none was declared by mistake, both limits return to their first values (RFC 8985).
const CALM_ROUNDS: u32 = 16;

/// The part of a stream that a segment carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub mailbox: u32,
    pub run: u32,
    pub offset: u64,
    pub length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flying,
    Lost,
    /// Sent again because nothing was acknowledged, or because the receiver refused it. Neither is a sign of reordering on the path.
    Abandoned,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    sent: Instant,
    part: Part,
    bytes: usize,
    state: State,
}

/// The result of an acknowledgement.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// The parts that were taken, with the bytes of their datagrams and the time when each was sent.
    pub parts: Vec<(Part, usize, Instant)>,
    /// The parts that arrived and were refused, with their numbers. They must be sent again, but do not count as lost.
    pub refused: Vec<(u64, Part)>,
    /// When the greatest number was sent, if it is new.
    pub newest: Option<Instant>,
}

pub(crate) struct Sent {
    base: u64,
    packets: VecDeque<Packet>,
    /// Bytes on their way.
    pub flying: usize,
    greatest: Option<u64>,
    threshold: u64,
    eighths: u32,
    /// Round trips with losses since the last mistake, and when the last one began.
    calm: u32,
    round: Option<Instant>,
    /// When the next segment counts as lost, unless it is acknowledged before.
    pub loss_time: Option<Instant>,
    pub last_sent: Option<Instant>,
}

impl Sent {
    pub fn new() -> Sent {
        Sent {
            base: 0,
            packets: VecDeque::new(),
            flying: 0,
            greatest: None,
            threshold: THRESHOLD,
            eighths: EIGHTHS,
            calm: 0,
            round: None,
            loss_time: None,
            last_sent: None,
        }
    }

    /// The number of the next segment.
    pub fn next(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    pub fn push(&mut self, now: Instant, part: Part, bytes: usize) {
        self.packets.push_back(Packet { sent: now, part, bytes, state: State::Flying });
        self.flying += bytes;
        self.last_sent = Some(now);
    }

    /// Handles ranges of numbers that were taken and that were refused, first and last, downwards. `None` if they were never sent.
    pub fn acknowledge(
        &mut self,
        taken: impl Iterator<Item = (u64, u64)> + Clone,
        refused: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> Option<Acknowledged> {
        let mut result = Acknowledged::default();
        let ends = taken.clone().chain(refused.clone()).map(|(_, last)| last);
        let newest = ends.max();
        if newest.is_some_and(|last| last >= self.next()) {
            return None;
        }
        if let Some(last) = newest.filter(|&last| self.greatest.is_none_or(|greatest| last > greatest)) {
            self.greatest = Some(last);
            let packet = last.checked_sub(self.base).map(|at| &self.packets[at as usize]);
            result.newest = packet.filter(|packet| packet.state == State::Flying).map(|packet| packet.sent);
        }
        for (first, last) in taken {
            for number in first.max(self.base)..last.saturating_add(1) {
                self.arrived(number, &mut result);
            }
        }
        for (first, last) in refused {
            for number in first.max(self.base)..last.saturating_add(1) {
                self.refuse(number, &mut result);
            }
        }
        while self.packets.front().is_some_and(|packet| packet.state == State::Done) {
            self.packets.pop_front();
            self.base += 1;
        }
        Some(result)
    }

    fn arrived(&mut self, number: u64, result: &mut Acknowledged) {
        let packet = &mut self.packets[(number - self.base) as usize];
        match packet.state {
            State::Done => return,
            State::Flying => self.flying -= packet.bytes,
            State::Abandoned => {}
            State::Lost => {
                self.calm = 0;
                let distance = self.greatest.unwrap_or(number) - number;
                self.threshold = self.threshold.max(distance + 1).min(MAX_THRESHOLD);
                self.eighths = (self.eighths + 1).min(MAX_EIGHTHS);
            }
        }
        packet.state = State::Done;
        result.parts.push((packet.part, packet.bytes, packet.sent));
    }

    fn refuse(&mut self, number: u64, result: &mut Acknowledged) {
        let packet = &mut self.packets[(number - self.base) as usize];
        if packet.state == State::Flying {
            packet.state = State::Abandoned;
            self.flying -= packet.bytes;
            result.refused.push((number, packet.part));
        }
    }

    /// Declares segments lost. Calls `lost` with the number, the part and the time of each.
    pub fn detect_losses(&mut self, now: Instant, rtt: &Rtt, mut lost: impl FnMut(u64, Part, Instant)) {
        self.loss_time = None;
        let Some(greatest) = self.greatest else { return };
        let (delay, mut newest) = (rtt.loss_delay(self.eighths), None);
        for (at, packet) in self.packets.iter_mut().enumerate() {
            let number = self.base + at as u64;
            if number >= greatest {
                break;
            }
            if packet.state != State::Flying {
                continue;
            }
            if greatest - number >= self.threshold || packet.sent + delay <= now {
                packet.state = State::Lost;
                self.flying -= packet.bytes;
                newest = Some(packet.sent);
                lost(number, packet.part, packet.sent);
            } else {
                let due = packet.sent + delay;
                self.loss_time = Some(self.loss_time.map_or(due, |time| time.min(due)));
            }
        }
        if newest.is_some_and(|sent| self.round.is_none_or(|round| sent > round)) {
            (self.round, self.calm) = (Some(now), self.calm + 1);
            if self.calm >= CALM_ROUNDS {
                (self.threshold, self.eighths) = (THRESHOLD, EIGHTHS);
            }
        }
        self.forget(now, 3 * rtt.timeout(0));
    }

    /// Removes the oldest lost segments, whose late acknowledgement would have no meaning any more.
    fn forget(&mut self, now: Instant, age: Duration) {
        while self.packets.front().is_some_and(|packet| {
            let over = matches!(packet.state, State::Lost | State::Abandoned) && packet.sent + age <= now;
            over || packet.state == State::Done
        }) {
            self.packets.pop_front();
            self.base += 1;
        }
    }

    /// Gives up all segments on their way, because the receiver answers and acknowledges none of them.
    pub fn abandon_all(&mut self, mut lost: impl FnMut(u64, Part)) {
        for (at, packet) in self.packets.iter_mut().enumerate() {
            if packet.state == State::Flying {
                packet.state = State::Abandoned;
                self.flying -= packet.bytes;
                lost(self.base + at as u64, packet.part);
            }
        }
    }

    /// The segments on their way, oldest first.
    pub fn on_their_way(&self) -> impl Iterator<Item = (u64, Part)> {
        let flying = self.packets.iter().enumerate().filter(|(_, packet)| packet.state == State::Flying);
        flying.map(|(at, packet)| (self.base + at as u64, packet.part))
    }
}
