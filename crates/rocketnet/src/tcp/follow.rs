//! Following rings that other processes write: what this end reads of their head pages, and how it is woken.
//!
//! ```text
//!   poll        awake ─▶ look at each followed ring ─▶ whatever the kernel tells
//!   sleep       asleep (a word that writers see) ─▶ look once more ─▶ wait for the kernel, the doorbell among it
//! ```
//!
//! A look costs a load for each ring, whether it has news or not, so only so many are followed: ranges of others are told
//! over the socket, as all are where nobody follows.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketring::{Doorbell, PeerDoorbell};
use rustix::event::epoll;

use super::Tcp;
use super::conn::Conn;
use super::mapped::MAX_BELLS;
use super::ready::DOORBELL;
use crate::contract::{ConnId, Event, Transport, WireId};
use crate::wire::{Header, LOCAL_DOORBELL, LOCAL_DOORBELL_PAGE, LOCAL_WATCH};

/// The number of the doorbell of who says it.
const OWN_DOORBELL: u32 = 0;

impl Tcp {
    /// Begins to follow a ring, and says so to whom it comes from.
    pub(super) fn begin_to_follow(&mut self, id: ConnId, wire: WireId, lazily: bool) -> bool {
        let about = Header { wire, more: lazily, size: OWN_DOORBELL };
        if self.follows.rings().contains(&(id, wire)) {
            self.must_say(id, LOCAL_WATCH, about);
            return true;
        }
        self.make_place(id);
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.is_open() && conn.is_local()) else {
            return false;
        };
        if !(self.follows.has_place() && conn.intake.can_follow(wire)) {
            return false;
        }
        let watch = |fd: BorrowedFd<'_>| {
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(DOORBELL), epoll::EventFlags::IN)?;
            Ok(())
        };
        let said = self
            .follows
            .doorbell(self.config.busy_polls, watch)
            .and_then(|doorbell| conn.own_doorbell(doorbell));
        let said = said.unwrap_or_else(|error| {
            tracing::debug!(%error, "a ring is not followed: there is no doorbell");
            false
        });
        let follows = said && conn.out.local(LOCAL_WATCH, about, None);
        if follows {
            self.follows.add(id, wire);
        }
        follows
    }

    /// Has place in the queue for all that is said of one reader, unless the peer does not read.
    pub(super) fn make_place(&mut self, id: ConnId) {
        if self.conns.get(id).is_some_and(|conn| !conn.out.takes_reader()) {
            self.flush(id);
        }
    }

    /// Says what the peer would go wrong without; if it does not read, its connection ends.
    pub(super) fn must_say(&mut self, id: ConnId, kind: u32, about: Header) {
        self.make_place(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.out.local(kind, about, None) && !conn.out.is_dead() {
            self.close(id, "it reads no messages", Duration::ZERO);
        }
    }

    /// Looks at what is followed; what is new has landed, and is told. True if there was anything.
    pub(super) fn look(&mut self, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        for &(id, wire) in self.follows.rings() {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            if !conn.paused && conn.is_open() && conn.intake.follow(wire) {
                events.push(Event::Followed(id, wire));
            }
        }
        events.len() > before
    }

    pub(super) fn look_for_news(&self) -> bool {
        self.follows.rings().iter().any(|&(id, wire)| {
            let conn = self.conns.get(id).filter(|conn| !conn.paused && conn.is_open());
            conn.is_some_and(|conn| conn.intake.has_new_data(wire))
        })
    }

    /// How long it may be slept now: writers ring from here on, until the next poll.
    pub(super) fn may_sleep(&self) -> Option<Duration> {
        let within = self.within();
        if within == Some(Duration::ZERO) || self.follows.rings().is_empty() {
            return within;
        }
        self.follows.fall_asleep();
        if self.look_for_news() { Some(Duration::ZERO) } else { within }
    }
}

impl Conn {
    /// Says once which doorbell wakes this end. False if the queue is full.
    fn own_doorbell(&mut self, doorbell: &Doorbell) -> io::Result<bool> {
        if !self.doorbell_told {
            self.doorbell_told = self.tell_doorbell(OWN_DOORBELL, doorbell.files())?;
        }
        Ok(self.doorbell_told)
    }

    fn tell_doorbell(&mut self, number: u32, [page, pipe]: [BorrowedFd<'_>; 2]) -> io::Result<bool> {
        let (page, pipe) = (page.try_clone_to_owned()?, pipe.try_clone_to_owned()?);
        let about = Header { wire: 0, more: false, size: number };
        Ok(self.out.local(LOCAL_DOORBELL_PAGE, about, Some(page))
            && self.out.local(LOCAL_DOORBELL, about, Some(pipe)))
    }

    /// Has a reader woken for what the peer writes for this id. Each doorbell is told once.
    pub(super) fn pass_doorbell(&mut self, wire: WireId, doorbell: &Arc<PeerDoorbell>) -> Option<u32> {
        let known = self.passed.iter().position(|passed| passed.as_ptr() == Arc::as_ptr(doorbell));
        let at = match known {
            Some(at) => at,
            None => {
                let free = self.passed.iter().position(|passed| passed.strong_count() == 0);
                let at = free.unwrap_or(self.passed.len());
                let number = u32::try_from(at + 1).ok().filter(|number| (*number as usize) < MAX_BELLS)?;
                self.tell_doorbell(number, doorbell.files()).ok().filter(|told| *told)?;
                self.passed.resize(self.passed.len().max(at + 1), Weak::new());
                self.passed[at] = Arc::downgrade(doorbell);
                at
            }
        };
        let number = u32::try_from(at + 1).ok()?;
        self.out.local(LOCAL_WATCH, Header { wire, more: false, size: number }, None).then_some(number)
    }
}
