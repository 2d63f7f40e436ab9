//! Wills that are due, on their way to the bus.
//!
//! ```text
//!   session ── its will is due ──▶ bus ──▶ a broker in another process
//!                      └─ no room ─▶ owed ─┘└──── not confirmed ──▶ again
//! ```
//!
//! A will is in the journal until the bus has it, beside a broker in another process until that one has it: with its session, or under a number of
//! its own when the session goes on without it or has ended.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::warn;

use crate::protocol::{ConnId, Cx, PublishError, Ticket};

use super::codec::Properties;
use super::due_will::{DueWill, user_of};
use super::kept::Kept;
use super::message::{Publication, attributes_of};
use super::session::Held;
use super::state::Mqtt;
use super::will::OwnedWill;

impl Mqtt {
    /// Publishes the will of a session that has no connection.
    pub(super) fn publish_will(&mut self, slot: usize, cx: &mut Cx<'_>) {
        let Some(will) = self.sessions[slot].take_will() else { return };
        let key = format!("{}\0", user_of(&self.sessions[slot].key)).into_boxed_str();
        // Behind those that wait.
        let is_direct = self.owed.is_empty() && !self.confirms_wills(cx);
        if !is_direct || self.try_will(&will, &key, None, cx).is_err() {
            self.owe(will, key, cx.now);
            self.pay_wills(cx);
        }
        self.sessions[slot].note_will_is_gone();
    }

    /// Whether the broker has to confirm wills: it goes on when this process dies, and the next one publishes those that it does not have.
    fn confirms_wills(&self, cx: &Cx<'_>) -> bool {
        self.journal.is_some() && cx.bus.is_beside()
    }

    /// Keeps a will that is due, within the limits of sessions.
    fn owe(&mut self, will: OwnedWill, key: Box<str>, now: Instant) {
        let bytes = size_of::<DueWill>() + key.len() + will.bytes();
        let has_place = self.owed.len() + self.sent_wills.len() < self.settings.max_sessions;
        if !has_place || self.held.load(Ordering::Relaxed) + bytes > self.settings.max_session_bytes {
            self.counts.refused += 1;
            if let Some(more) = self.will_lines.allow(now) {
                warn!(more, "MQTT: a will is lost: too many wait until they can be published");
            }
            return;
        }
        let mut held = Held::of(&self.held);
        held.add(bytes);
        self.serials += 1;
        let kept = self.journal.as_ref().map_or(Kept::Nothing, |journal| Kept::Will(journal.notes().clone()));
        let due = DueWill { serial: self.serials, key, will, _held: held, kept };
        due.note(self.clock.unix_ms(now));
        self.owed.push_back(due);
    }

    /// Publishes wills that are due, until the bus has no room.
    pub(super) fn pay_wills(&mut self, cx: &mut Cx<'_>) {
        let confirms = self.confirms_wills(cx);
        while let Some(due) = self.owed.pop_front() {
            let number = confirms.then(|| {
                self.numbered += 1;
                self.numbered
            });
            match (self.try_will(&due.will, &due.key, number, cx), number) {
                (Err(()), _) => return self.owed.push_front(due),
                (Ok(true), Some(number)) => _ = self.sent_wills.insert(number, due),
                (Ok(_), _) => due.note_end(),
            }
        }
    }

    /// The broker has a will, or nobody knows.
    pub(super) fn confirmed_will(&mut self, number: u64, is_there: bool) {
        match self.sent_wills.remove(&number) {
            Some(due) if is_there => due.note_end(),
            Some(due) => self.owed.push_back(due),
            None => {}
        }
    }

    /// Publishes a will. Returns whether the bus has it: false if it is refused. With a number, the bus tells when the broker has it.
    ///
    /// # Errors
    /// The bus has no room.
    fn try_will(
        &mut self,
        will: &OwnedWill,
        key: &str,
        number: Option<u64>,
        cx: &mut Cx<'_>,
    ) -> Result<bool, ()> {
        // The client had the right before this process began; since then, it may have been taken.
        if will.is_restored && !cx.door.may_user_publish(user_of(key), &will.topic) {
            self.counts.refused += 1;
            return Ok(false);
        }
        let unix_ms = self.clock.unix_ms(cx.now);
        let origin = Some(self.origin(0, &will.topic, will.retain, 0));
        let ticket = number.map(|number| Ticket { conn: ConnId(u64::MAX), number });
        let publication = Publication { qos: will.qos, retain: will.retain, origin, ticket, unix_ms };
        let mut attributes = std::mem::take(&mut self.scratch.attributes);
        let written = attributes_of(Properties::new(&will.properties), publication, &mut attributes);
        let put = match written {
            Ok(()) => self.put(&will.topic, &attributes, &will.payload, publication, cx),
            Err(error) => Err(PublishError::Refused(error.to_string())),
        };
        self.scratch.attributes = attributes;
        match put {
            Ok(()) => Ok(true),
            Err(PublishError::Full | PublishError::NoDisk(_)) => Err(()),
            Err(_) => {
                self.counts.refused += 1;
                Ok(false)
            }
        }
    }

    /// Notes all of them, for a snapshot. `go_on` is called now and then, and may write it.
    pub(super) fn note_wills(&self, unix_ms: u64, go_on: &mut dyn FnMut()) {
        for due in self.owed.iter().chain(self.sent_wills.values()) {
            due.note(unix_ms);
            go_on();
        }
    }
}
