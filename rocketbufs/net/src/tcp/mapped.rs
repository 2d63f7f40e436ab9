//! Local messages between transports on one machine: rings to map, ranges in them, and readers to wake.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rocketring::{MapError, PeerMapper};

use super::receive::{Intake, Turn};
use crate::contract::{Down, Event, Offered, WireId};
use crate::wire::{
    Header, LOCAL_DOORBELL, LOCAL_DOORBELL_PAGE, LOCAL_OFFER, LOCAL_RANGE, LOCAL_UNWATCH, LOCAL_WATCH,
};

/// The most doorbells of one peer.
pub(super) const MAX_BELLS: usize = 256;

impl Intake {
    /// Handles a local message: an offer, or a range of an offered ring, which lands without a copy.
    pub(super) fn on_local(&mut self, kind: u32, range: Header, turn: &mut Turn<'_>) -> Result<(), Down> {
        let Header { wire, more, size } = range;
        match kind {
            LOCAL_OFFER => {
                let file = self.file()?;
                let none_left = || MapError::Os(rustix::io::Errno::MFILE.into());
                let ring = file.ok_or_else(none_left).and_then(|file| turn.maps.map(file)).map(Box::new);
                turn.events.push(Event::Offered(turn.conn, wire, Offered { ring, behind: size.into() }));
                self.control_turn = turn.number;
                Ok(())
            }
            LOCAL_RANGE if self.discarded.contains(&wire) => Ok(()),
            LOCAL_RANGE => self.land_mapped(range, turn),
            LOCAL_DOORBELL_PAGE => {
                self.doorbell_page = self.file()?;
                Ok(())
            }
            LOCAL_DOORBELL => self.on_doorbell(size, turn.maps),
            LOCAL_WATCH => {
                // Without room for the doorbell its reader is treated as if it did not follow.
                if let Some(Some(doorbell)) = self.doorbells.get(size as usize) {
                    let doorbell = (!more).then(|| doorbell.clone());
                    turn.events.push(Event::Watched(turn.conn, wire, size, doorbell));
                }
                Ok(())
            }
            LOCAL_UNWATCH => {
                turn.events.push(Event::Unwatched(turn.conn, wire, size));
                Ok(())
            }
            other => Err(Down::Broken(format!("the peer sent a message of the unknown kind {other:#x}"))),
        }
    }

    /// The descriptor of the current message; none if this process had no room for it.
    fn file(&mut self) -> Result<Option<OwnedFd>, Down> {
        self.files
            .pop_front()
            .ok_or_else(|| Down::Descriptors("a message came without its descriptor".into()))
    }

    /// A range of a mapped ring. Lands the bytes that this end has not followed already.
    fn land_mapped(&mut self, range: Header, turn: &mut Turn<'_>) -> Result<(), Down> {
        let Header { wire, more, size: to } = range;
        let bound = self.bound.get_mut(&wire).ok_or(Down::UnknownWire(wire))?;
        let ring = bound.receiver.ring();
        if !ring.is_peer_written() {
            return Err(Down::Broken(format!("wire id {wire:#x} is not one of a ring that is mapped")));
        }
        // The low bits identify a position that is not far from the head.
        let head = ring.head();
        let ahead = i64::from(to.wrapping_sub(head as u32) as i32);
        // Reported in any case, as a sign of life of the peer.
        bound.arrived(wire, turn);
        let Some(to) = head.checked_add_signed(ahead) else { return Ok(()) };
        let landed = bound.receiver.land_announced(to, !more);
        landed.map_err(|over| Down::Overrun { wire, at: head, size: ahead.unsigned_abs(), over })
    }

    fn on_doorbell(&mut self, number: u32, maps: &PeerMapper) -> Result<(), Down> {
        let (page, pipe) = (self.doorbell_page.take(), self.file()?);
        let number = number as usize;
        if number >= MAX_BELLS {
            return Err(Down::Broken(format!(
                "the peer has a doorbell number {number}; there are {MAX_BELLS}"
            )));
        }
        let doorbell = page.zip(pipe).and_then(|(page, pipe)| {
            let doorbell = maps.doorbell(page, pipe);
            doorbell.inspect_err(|error| tracing::warn!(%error, "a reader will be notified late")).ok()
        });
        if self.doorbells.len() <= number {
            self.doorbells.resize(number + 1, None);
        }
        self.doorbells[number] = doorbell.map(Arc::new);
        Ok(())
    }

    /// Lands published bytes of this id's ring without a message. True if there were any.
    pub fn follow(&mut self, wire: WireId) -> bool {
        self.bound.get_mut(&wire).is_some_and(|bound| bound.receiver.follow())
    }

    /// Whether [`Intake::follow`] would land bytes.
    pub fn has_new_data(&self, wire: WireId) -> bool {
        self.bound.get(&wire).is_some_and(|bound| bound.receiver.has_new_data())
    }

    /// Whether this id's ring can be followed: a peer writes it, and never takes back published bytes.
    pub fn can_follow(&self, wire: WireId) -> bool {
        let ring = self.bound.get(&wire).map(|bound| bound.receiver.ring());
        ring.is_some_and(|ring| ring.is_peer_written() && ring.flow_control())
    }
}
