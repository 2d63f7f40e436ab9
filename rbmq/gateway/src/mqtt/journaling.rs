//! The journal of the machine: what is written, and when.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::info;

use crate::protocol::Cx;

use super::journal::entry::Life;
use super::journal::{Journal, Pieces};
use super::session::Session;
use super::settings::{CLOCK_EVERY, CLOCK_STEP_MS, Clock};
use super::state::{Mqtt, Snapshot};

/// The thread stood so long that clients may seem silent which are not.
const LONG_STAND: Duration = Duration::from_millis(500);

impl Mqtt {
    /// A session has got or lost its connection, or lives for another time.
    pub(super) fn keep_session(&mut self, slot: usize) {
        if let Some(journal) = &self.journal {
            let session = &mut self.sessions[slot];
            let life = life(session, &self.clock);
            session.keep(journal.notes(), life);
        }
    }

    /// Writes notes before the end of the round, if there are many.
    pub(super) fn write_many(&mut self, now: Instant) {
        if let Some(journal) = self.journal.as_mut().filter(|journal| journal.has_many_notes()) {
            // What fails shows at the end of the round.
            journal.write(now);
        }
    }

    /// Writes what was noted, or everything. Returns a time if it cannot be written before.
    pub(super) fn commit(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        let (mut journal, now) = (self.journal.take()?, cx.now);
        let (was_failing, begun) = (journal.is_failing(), Instant::now());
        if journal.waits_until(now).is_none() {
            let is_written = journal.write(now);
            if journal.waits_until(now).is_none() {
                self.write_of_snapshot(&mut journal, is_written, now);
            }
        }
        let until = journal.waits_until(now);
        if until.is_some() {
            // What the log has of it does not count.
            self.snapshot = None;
        }
        if was_failing && until.is_none() {
            self.clients.keys().for_each(|conn| cx.out.resume(*conn));
        }
        journal.release();
        self.journal = Some(journal);
        self.excuse(begun.elapsed());
        until
    }

    /// Follows the clock of the machine if that was set. When sessions end is noted again: the next process goes by the new time.
    pub(super) fn look_at_clock(&mut self, now: Instant) {
        let Some(wall_clock) = self.settings.wall_clock.filter(|_| now >= self.next_clock) else { return };
        self.next_clock = now + CLOCK_EVERY;
        let (told, is) = (self.clock.unix_ms(now), wall_clock());
        if told.abs_diff(is) < CLOCK_STEP_MS {
            return;
        }
        info!("MQTT: the clock of the machine was set, by about {} s", told.abs_diff(is) / 1000);
        self.clock.unix_ms = self.clock.unix_ms.saturating_add(is).saturating_sub(told);
        self.retained.on_clock_set();
        let away: Vec<usize> = self.away.values().copied().collect();
        away.into_iter().for_each(|slot| self.keep_session(slot));
    }

    /// Nothing was read for so long, because the journal took its time: that is no silence of the clients.
    pub(super) fn excuse(&mut self, stood: Duration) {
        if stood >= LONG_STAND {
            self.clients.values_mut().for_each(|client| client.heard += stood);
        }
    }

    /// Goes on with a snapshot, or begins one that is needed. One that the journal can be without for now is written in steps, if the disk has room for
    /// it in any case.
    fn write_of_snapshot(&mut self, journal: &mut Journal, is_written: bool, now: Instant) {
        if let Some(snapshot) = self.snapshot.take().filter(|_| is_written) {
            return self.write_step(journal, snapshot, now);
        }
        if is_written && !journal.wants_snapshot() {
            return;
        }
        if !is_written || !self.has_room(journal) {
            return self.write_snapshot(journal, now);
        }
        let mut pieces = journal.join_snapshot();
        self.note_wills(self.clock.unix_ms(now), &mut || journal.go_on(&mut pieces));
        let retained = self.retained.all().map(|retained| Arc::downgrade(&retained.message)).collect();
        let sessions = self.sessions.iter().map(|(slot, session)| (slot, session.serial)).collect();
        self.write_step(journal, Snapshot { pieces, retained, sessions }, now);
    }

    /// Notes sessions and messages that are still there. What has come since, or takes the place of another, is in the notes of its round.
    fn write_step(&mut self, journal: &mut Journal, snapshot: Snapshot, now: Instant) {
        let Snapshot { mut pieces, mut retained, mut sessions } = snapshot;
        let before = pieces.bytes();
        while !journal.is_step(&pieces, before) {
            if let Some(message) = retained.pop() {
                self.retained.note_if_there(message.upgrade().as_ref());
            } else if let Some((slot, serial)) = sessions.pop() {
                if let Some(session) = self.sessions.get(slot).filter(|session| session.serial == serial) {
                    session.note_all(life(session, &self.clock), &mut || journal.go_on(&mut pieces));
                }
            } else {
                break;
            }
            journal.go_on(&mut pieces);
        }
        let is_all = retained.is_empty() && sessions.is_empty();
        let left = journal.end_step(pieces, is_all, now);
        self.snapshot = left.map(|pieces| Snapshot { pieces, retained, sessions });
    }

    /// Whether the disk has room for a snapshot in any case: a message of several sessions counts for each.
    fn has_room(&self, journal: &Journal) -> bool {
        let most = self.held.load(Ordering::Relaxed) + self.retained.bytes_with_entries();
        journal.has_room_for(most as u64)
    }

    fn write_snapshot(&self, journal: &mut Journal, now: Instant) {
        if !self.has_room(journal) {
            let mut pieces = journal.begin_snapshot(true);
            self.note_all(journal, &mut pieces, now);
            if !journal.end_measuring(pieces, now) {
                return;
            }
        }
        let mut pieces = journal.begin_snapshot(false);
        self.note_all(journal, &mut pieces, now);
        journal.end_snapshot(pieces, now);
    }

    fn note_all(&self, journal: &mut Journal, pieces: &mut Pieces, now: Instant) {
        for retained in self.retained.all() {
            self.retained.note(retained);
            journal.go_on(pieces);
        }
        self.note_wills(self.clock.unix_ms(now), &mut || journal.go_on(pieces));
        for (_, session) in &self.sessions {
            session.note_all(life(session, &self.clock), &mut || journal.go_on(pieces));
        }
    }
}

/// How long a session lives, as the journal has it.
fn life(session: &Session, clock: &Clock) -> Life {
    let ms = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX - 1);
    Life {
        expiry_ms: session.expiry.map(ms),
        connected: session.link.is_some(),
        ends_at: session.ends_at.map(|at| clock.unix_ms(at)),
        will_at: session.will_at.map(|at| clock.unix_ms(at)),
    }
}
