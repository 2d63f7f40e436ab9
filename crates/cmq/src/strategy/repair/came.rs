//! What came from each sender, and what of it is missing: the receiver's part of a repair, without I/O.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::HOLES;
use crate::Key;
use crate::proto::shares::Shares;
use crate::proto::timeline::Timeline;
use crate::proto::{Slots, after};

/// The least time before a question is asked again: its answer is on its way at least so long.
pub(super) const MIN_PATIENCE: Duration = Duration::from_millis(1);

/// A sender: its key, and the random number that it has for this receiver.
pub(super) type Peer = (Key, u32);

/// What came from one sender.
struct Came {
    peer: Peer,
    /// Where it is among those of its address.
    at: usize,
    /// When it was heard last, counted in notes.
    heard: u64,
    next: u64,
    holes: VecDeque<Range<u64>>,
    /// Messages that are missing.
    missing: u64,
    /// Messages of holes that were too many to remember.
    dropped: u64,
    asked: Option<Instant>,
}

/// All senders that are remembered.
pub(super) struct Senders {
    came: Slots<Came>,
    by_peer: HashMap<Peer, u32>,
    by_addr: Shares<SocketAddr>,
    /// Who was silent longest.
    heard: Timeline,
    notes: u64,
    /// Who misses something and was asked for it, longest ago first.
    open: Timeline,
    /// Who misses something and was not asked for it yet.
    unasked: Option<u32>,
    /// Over all.
    missing: u128,
    gone: u64,
    limit: usize,
    patience: Duration,
    /// Somebody was forgotten, so whoever seems new may have been here before.
    crowded: bool,
}

impl Senders {
    pub fn new(limit: usize, patience: Duration) -> Senders {
        Senders {
            came: Slots::new(),
            by_peer: HashMap::new(),
            by_addr: Shares::new(),
            notes: 0,
            heard: Timeline::new(),
            open: Timeline::new(),
            unasked: None,
            missing: 0,
            gone: 0,
            limit: limit.max(1),
            patience: patience.max(MIN_PATIENCE),
            crowded: false,
        }
    }

    /// Messages that are missing now.
    pub fn missing(&self) -> u64 {
        u64::try_from(self.missing).unwrap_or(u64::MAX)
    }

    /// Messages that were missing and are not awaited any more.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// A message came, perhaps `again`; whether it is new.
    pub fn arrived(&mut self, peer: Peer, number: u64, again: bool, now: Instant) -> bool {
        if again {
            self.repeated(peer, number, now)
        } else {
            self.note(peer, number, now, |c| c.arrived(number))
        }
    }

    /// What is sent again was asked for: it fills a hole, and says nothing of others. If nothing of it is missing, it came
    /// already or was given up.
    fn repeated(&mut self, peer: Peer, number: u64, now: Instant) -> bool {
        let Some(&slot) = self.by_peer.get(&peer) else { return false };
        if self.note(peer, number, now, |came| came.fill(&(number..number.saturating_add(1)))) == 0 {
            return false;
        }
        // More of the answer may be on its way.
        if self.open.contains(slot) {
            self.awaited(slot, now);
        }
        true
    }

    /// Somebody was asked, or answers: it is not asked again for a while.
    fn awaited(&mut self, slot: u32, now: Instant) {
        let Some(came) = self.came.get_mut(slot) else { return };
        came.asked = Some(now);
        self.open.remove(slot);
        self.open.push_back(slot, now);
    }

    /// Everything before this number was sent.
    pub fn expect(&mut self, peer: Peer, next: u64, now: Instant) {
        self.note(peer, next, now, |came| came.expect(next));
    }

    /// These will not come.
    pub fn forget(&mut self, peer: Peer, range: &Range<u64>, now: Instant) {
        let forgotten = self.note(peer, range.end, now, |came| came.forget(range));
        self.gone = self.gone.saturating_add(forgotten);
    }

    /// Notes what came, of which `first` is the number.
    fn note<M>(&mut self, peer: Peer, first: u64, now: Instant, note: impl FnOnce(&mut Came) -> M) -> M {
        let slot = match self.by_peer.get(&peer) {
            Some(&slot) => slot,
            None => self.begin(peer, first),
        };
        self.heard.touch(slot, now);
        self.notes += 1;
        let came = self.came.get_mut(slot).expect("it was just found");
        came.heard = self.notes;
        let (missing, dropped) = (came.missing, came.dropped);
        let noted = note(came);
        self.missing = self.missing + u128::from(came.missing) - u128::from(missing);
        self.gone = self.gone.saturating_add(came.dropped - dropped);
        if came.holes.is_empty() {
            self.open.remove(slot);
        } else if !self.open.contains(slot) {
            match came.asked {
                Some(asked) if now < after(asked, self.patience) => self.open.push_back(slot, asked),
                _ => self.unasked = Some(slot),
            }
        }
        noted
    }

    fn begin(&mut self, peer: Peer, first: u64) -> u32 {
        let addr = peer.0.addr;
        if self.came.len() >= self.limit {
            let Senders { came, by_addr, heard, .. } = self;
            let silent = heard.first().map(|(slot, _)| slot);
            let gone = by_addr.in_the_way(addr, self.limit, silent, |slot| {
                let came = came.get_mut(slot).expect("it has a place");
                (came.heard, came.peer.0.addr)
            });
            gone.into_iter().for_each(|slot| self.give_up(slot));
        }
        let next = if self.crowded { first } else { 0 };
        let slot = self.came.insert(Came::new(peer, next));
        let at = self.by_addr.add(addr, slot);
        self.came.get_mut(slot).expect("it was just put there").at = at;
        self.by_peer.insert(peer, slot);
        slot
    }

    fn give_up(&mut self, slot: u32) {
        let Some(came) = self.came.remove(slot) else { return };
        self.by_peer.remove(&came.peer);
        let moved = self.by_addr.remove(&came.peer.0.addr, came.at);
        if let Some(moved) = moved.and_then(|moved| self.came.get_mut(moved)) {
            moved.at = came.at;
        }
        self.heard.remove(slot);
        self.open.remove(slot);
        self.unasked = self.unasked.filter(|&unasked| unasked != slot);
        self.missing -= u128::from(came.missing);
        self.gone = self.gone.saturating_add(came.missing);
        self.crowded = true;
    }

    /// When [`Senders::ask`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.open.first().map(|(_, asked)| after(asked, self.patience))
    }

    /// A sender that is to be asked now, and the holes in its numbers. To be called until there is none.
    pub fn ask(&mut self, now: Instant) -> Option<(Peer, &VecDeque<Range<u64>>)> {
        let slot = self.unasked.take().or_else(|| {
            let (slot, asked) = self.open.first()?;
            (after(asked, self.patience) <= now).then_some(slot)
        })?;
        self.awaited(slot, now);
        let came = self.came.get_mut(slot)?;
        Some((came.peer, &came.holes))
    }
}

impl Came {
    fn new(peer: Peer, next: u64) -> Came {
        Came { peer, at: 0, heard: 0, next, holes: VecDeque::new(), missing: 0, dropped: 0, asked: None }
    }

    /// Whether this number is new; what lies between it and the last is missing.
    fn arrived(&mut self, number: u64) -> bool {
        if number > u64::MAX >> 1 {
            return false;
        }
        if number < self.next {
            return self.fill(&(number..number + 1)) > 0;
        }
        self.expect(number);
        self.next = number + 1;
        true
    }

    /// Everything before this number was sent.
    fn expect(&mut self, next: u64) {
        if next <= self.next || next > u64::MAX >> 1 {
            return;
        }
        if self.holes.len() == HOLES
            && let Some(hole) = self.holes.pop_front()
        {
            self.missing -= hole.end - hole.start;
            self.dropped += hole.end - hole.start;
        }
        self.holes.push_back(self.next..next);
        self.missing += next - self.next;
        self.next = next;
    }

    /// These will not come, also if nobody awaited them yet; how many there are.
    fn forget(&mut self, range: &Range<u64>) -> u64 {
        let mut ahead = 0;
        if range.end <= u64::MAX >> 1 && range.start.max(self.next) < range.end {
            self.expect(range.start);
            ahead = range.end - self.next;
            self.next = range.end;
        }
        ahead + self.fill(range)
    }

    /// These are missing no more; how many of them were.
    fn fill(&mut self, range: &Range<u64>) -> u64 {
        let mut forgotten = 0;
        let mut left = VecDeque::with_capacity(self.holes.len());
        for hole in self.holes.drain(..) {
            let (start, end) = (hole.start.max(range.start), hole.end.min(range.end));
            if start >= end {
                left.push_back(hole);
                continue;
            }
            forgotten += end - start;
            left.extend([hole.start..start, end..hole.end].into_iter().filter(|part| !part.is_empty()));
        }
        self.missing -= forgotten;
        while left.len() > HOLES
            && let Some(hole) = left.pop_back()
        {
            self.missing -= hole.end - hole.start;
            self.dropped += hole.end - hole.start;
        }
        self.holes = left;
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn peer(port: u16) -> Peer {
        (Key::new(SocketAddr::from(([127, 0, 0, 1], port)), 0), 7)
    }

    #[test]
    fn holes_are_noted_and_filled() {
        let mut came = Came::new(peer(1), 0);
        assert!(came.arrived(0) && came.arrived(4) && !came.arrived(4) && !came.arrived(0));
        assert_eq!(came.holes.front(), Some(&(1..4)));
        assert!(came.arrived(2) && !came.arrived(2));
        assert_eq!(came.holes, [1..2, 3..4]);
        came.expect(7);
        assert_eq!((came.missing, came.fill(&(0..6)), came.missing), (4, 3, 1));
        assert_eq!((came.holes.front(), came.holes.len(), came.next), (Some(&(6..7)), 1, 7));
        assert!(!came.arrived(u64::MAX));
        for number in 0..1000 {
            assert!(came.arrived(10 + 2 * number));
        }
        assert_eq!((came.holes.len(), came.missing), (HOLES, HOLES as u64), "only the newest are remembered");
        assert_eq!(came.dropped, 1 + 3 + 999 - HOLES as u64);
    }

    #[test]
    fn what_is_missing_is_asked_for_at_once_and_then_with_patience() {
        let patience = Duration::from_millis(100);
        let (now, mut senders) = (Instant::now(), Senders::new(10, patience));
        assert!(senders.arrived(peer(1), 0, false, now));
        assert!(senders.ask(now).is_none() && senders.next_deadline().is_none());
        assert!(senders.arrived(peer(1), 2, false, now));
        assert!(senders.ask(now).is_some_and(|(to, holes)| to == peer(1) && holes.iter().eq([&(1..2)])));
        assert!(senders.ask(now).is_none());
        assert_eq!(senders.next_deadline(), Some(now + patience));
        assert!(senders.ask(now + patience).is_some());
        // Something else, while the first is awaited.
        assert!(senders.arrived(peer(1), 5, false, now + patience) && senders.ask(now + patience).is_none());
        assert_eq!(senders.missing(), 3);
        senders.forget(peer(1), &(0..6), now);
        assert_eq!((senders.missing(), senders.gone(), senders.next_deadline()), (0, 3, None));
    }

    #[test]
    fn the_least_patience_is_some() {
        let (now, mut senders) = (Instant::now(), Senders::new(10, Duration::ZERO));
        assert!(senders.arrived(peer(1), 1, false, now));
        assert!(senders.ask(now).is_some() && senders.ask(now).is_none(), "one question is open");
        assert_eq!(senders.next_deadline(), Some(now + MIN_PATIENCE));
    }

    /// What is asked for comes one by one: as long as it comes, the question is open and is not repeated.
    #[test]
    fn a_question_is_not_repeated_while_it_is_answered() {
        let patience = Duration::from_millis(100);
        let (began, mut senders) = (Instant::now(), Senders::new(10, patience));
        assert!(senders.arrived(peer(1), 3, false, began) && senders.ask(began).is_some());
        let later = began + patience / 2;
        assert!(senders.arrived(peer(1), 0, true, later));
        assert!(senders.ask(began + patience).is_none());
        assert_eq!(senders.next_deadline(), Some(later + patience));
        assert!(senders.ask(later + patience).is_some_and(|(_, holes)| holes.iter().eq([&(1..3)])));
    }

    /// It fills a hole or says nothing: what is before it came, or was given up, and its sender may be far beyond it.
    #[test]
    fn what_was_sent_again_and_is_not_missing_is_nothing() {
        let (now, mut senders) = (Instant::now(), Senders::new(1, Duration::ZERO));
        assert!(!senders.arrived(peer(1), 5, true, now), "nobody asked for it");
        assert!(senders.arrived(peer(1), 1, false, now) && senders.arrived(peer(1), 0, true, now));
        assert!(!senders.arrived(peer(1), 0, true, now) && !senders.arrived(peer(1), 9, true, now));
        assert_eq!(senders.missing(), 0);
        // The first is forgotten with what it missed, and that comes after all.
        assert!(senders.arrived(peer(1), 9, false, now) && senders.arrived(peer(2), 0, false, now));
        assert!(!senders.arrived(peer(1), 5, true, now), "it was given up");
        assert_eq!((senders.missing(), senders.gone()), (0, 7));
        assert!(senders.ask(now).is_none_or(|(asked, _)| asked != peer(1)));
    }

    /// The word that messages will not come may overtake the ones after them.
    #[test]
    fn what_will_not_come_is_not_asked_for() {
        let (now, mut senders) = (Instant::now(), Senders::new(10, Duration::ZERO));
        assert!(senders.arrived(peer(1), 0, false, now));
        senders.forget(peer(1), &(3..6), now);
        assert_eq!((senders.missing(), senders.gone()), (2, 3));
        assert!(senders.ask(now).is_some_and(|(_, holes)| holes.iter().eq([&(1..3)])));
        assert!(senders.arrived(peer(1), 6, false, now) && !senders.arrived(peer(1), 4, false, now));
        assert_eq!((senders.missing(), senders.gone()), (2, 3));
        // No sender numbers like this.
        senders.forget(peer(1), &(7..u64::MAX), now);
        assert_eq!((senders.missing(), senders.gone()), (2, 3));
        assert!(senders.arrived(peer(1), 7, false, now));
    }

    /// Whoever was to be asked is gone, and its place is taken.
    #[test]
    fn nobody_else_is_asked_for_one_who_was_forgotten() {
        let (now, mut senders) = (Instant::now(), Senders::new(1, Duration::ZERO));
        assert!(senders.arrived(peer(1), 1, false, now));
        assert!(senders.arrived(peer(2), 0, false, now));
        assert!(senders.ask(now).is_none() && senders.next_deadline().is_none());
    }

    /// An address that claims to be many takes from itself, and not from others.
    #[test]
    fn one_address_forgets_its_own() {
        let (now, mut senders) = (Instant::now(), Senders::new(64, Duration::ZERO));
        for port in 1..=8 {
            assert!(senders.arrived(peer(port), 1, false, now));
        }
        let (stranger, _) = peer(9);
        for token in 0..1000 {
            assert!(senders.arrived((stranger, token), 0, false, now));
        }
        assert_eq!((senders.missing(), senders.gone()), (8, 0), "the others' holes are remembered");
        // There is room for as many others as come.
        for port in 10..=40 {
            assert!(senders.arrived(peer(port), 0, false, now));
            assert!(senders.arrived((stranger, 1000 + u32::from(port)), 0, false, now));
        }
        assert_eq!((senders.missing(), senders.gone()), (8, 0));
        assert!((10..=40).all(|port| !senders.arrived(peer(port), 0, false, now)), "each is remembered");
    }

    #[test]
    fn too_many_senders_take_turns() {
        let (now, mut senders) = (Instant::now(), Senders::new(2, Duration::ZERO));
        for port in 1..=3 {
            assert!(senders.arrived(peer(port), 5, false, now));
        }
        // The first was forgotten, with what it missed; the third began when there was no room.
        assert_eq!((senders.missing(), senders.gone()), (5, 5));
        assert!(senders.arrived(peer(1), 9, false, now), "it is new again, and awaits nothing before");
        assert_eq!((senders.missing(), senders.gone()), (0, 10));
        assert!(!senders.arrived(peer(1), 8, false, now), "it may have come before");
        assert!(senders.arrived(peer(1), 11, false, now));
        assert_eq!(senders.missing(), 1);
    }
}
