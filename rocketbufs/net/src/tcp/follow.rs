//! Following rings that other processes write: reading their head pages, and being woken by their writers.
//!
//! ```text
//!   poll        awake ─▶ check each followed ring ─▶ the kernel's events
//!   sleep       asleep (a word that writers load) ─▶ check once more ─▶ wait for the kernel, and with it the doorbell
//! ```
//!
//! A check costs a load for each ring, whether it has new data or not, so the number of followed rings is limited. Ranges of
//! other rings arrive as messages over the socket.

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

/// The number of the sender's own doorbell.
const OWN_DOORBELL: u32 = 0;

impl Tcp {
    /// Begins to follow a ring, and notifies the peer that it comes from.
    pub(super) fn begin_to_follow(&mut self, id: ConnId, wire: WireId, lazily: bool) -> bool {
        let about = Header { wire, more: lazily, size: OWN_DOORBELL };
        if self.follows.rings().contains(&(id, wire)) {
            self.send_or_close(id, LOCAL_WATCH, about);
            return true;
        }
        self.make_room(id);
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.is_open() && conn.is_local()) else {
            return false;
        };
        if !(self.follows.has_room() && conn.intake.can_follow(wire)) {
            return false;
        }
        let watch = |fd: BorrowedFd<'_>| {
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(DOORBELL), epoll::EventFlags::IN)?;
            Ok(())
        };
        let said = self
            .follows
            .doorbell(self.config.busy_polls, watch)
            .and_then(|doorbell| conn.send_own_doorbell(doorbell));
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

    /// Makes room in the queue for all messages about one reader, unless the peer does not read.
    pub(super) fn make_room(&mut self, id: ConnId) {
        if self.conns.get(id).is_some_and(|conn| !conn.out.takes_reader()) {
            self.flush(id);
        }
    }

    /// Queues a message that the peer must get. Closes the connection of a peer that does not read.
    pub(super) fn send_or_close(&mut self, id: ConnId, kind: u32, about: Header) {
        self.make_room(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.out.local(kind, about, None) && !conn.out.is_dead() {
            self.close(id, "the peer reads no messages", Duration::ZERO);
        }
    }

    /// Checks the followed rings; lands new data and reports it. True if there was any.
    pub(super) fn check_followed(&mut self, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        for &(id, wire) in self.follows.rings() {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            if !conn.paused && conn.is_open() && conn.intake.follow(wire) {
                events.push(Event::Followed(id, wire));
            }
        }
        events.len() > before
    }

    pub(super) fn followed_has_data(&self) -> bool {
        self.follows.rings().iter().any(|&(id, wire)| {
            let conn = self.conns.get(id).filter(|conn| !conn.paused && conn.is_open());
            conn.is_some_and(|conn| conn.intake.has_new_data(wire))
        })
    }

    /// How long the thread may sleep: writers ring from now on, until the next poll.
    pub(super) fn may_sleep(&self) -> Option<Duration> {
        let within = self.within();
        if within == Some(Duration::ZERO) || self.follows.rings().is_empty() || self.follows.are_attended() {
            return within;
        }
        self.follows.set_asleep();
        if self.followed_has_data() { Some(Duration::ZERO) } else { within }
    }
}

impl Conn {
    /// Sends the doorbell of this end once. False if the queue is full.
    fn send_own_doorbell(&mut self, doorbell: &Doorbell) -> io::Result<bool> {
        if !self.doorbell_sent {
            self.doorbell_sent = self.send_doorbell(OWN_DOORBELL, doorbell.files())?;
        }
        Ok(self.doorbell_sent)
    }

    fn send_doorbell(&mut self, number: u32, [page, pipe]: [BorrowedFd<'_>; 2]) -> io::Result<bool> {
        let (page, pipe) = (page.try_clone_to_owned()?, pipe.try_clone_to_owned()?);
        let about = Header { wire: 0, more: false, size: number };
        Ok(self.out.local(LOCAL_DOORBELL_PAGE, about, Some(page))
            && self.out.local(LOCAL_DOORBELL, about, Some(pipe)))
    }

    /// Asks the peer to wake a reader for what it writes for this id. Each doorbell is sent once.
    pub(super) fn pass_doorbell(&mut self, wire: WireId, doorbell: &Arc<PeerDoorbell>) -> Option<u32> {
        let known = self.passed.iter().position(|passed| passed.as_ptr() == Arc::as_ptr(doorbell));
        let at = match known {
            Some(at) => at,
            None => {
                let free = self.passed.iter().position(|passed| passed.strong_count() == 0);
                let at = free.unwrap_or(self.passed.len());
                let number = u32::try_from(at + 1).ok().filter(|number| (*number as usize) < MAX_BELLS)?;
                self.send_doorbell(number, doorbell.files()).ok().filter(|sent| *sent)?;
                self.passed.resize(self.passed.len().max(at + 1), Weak::new());
                self.passed[at] = Arc::downgrade(doorbell);
                at
            }
        };
        let number = u32::try_from(at + 1).ok()?;
        self.out.local(LOCAL_WATCH, Header { wire, more: false, size: number }, None).then_some(number)
    }
}
