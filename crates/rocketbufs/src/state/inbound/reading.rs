//! A subscription that one [`InReader`](crate::InReader) reads for a while: it takes what its ring brings, and gives that back,
//! without this lock.
//!
//! ```text
//!   begin_reading   all that came was read and given back, the ring is followed ─▶ only the reader goes on
//!   reader          look, hand out, move its position …                            no lock, nothing told
//!   catch_up        `consumed` and `read` are where the reader is                  whenever somebody looks
//!   end_reading     as it was before
//! ```

use std::sync::Arc;

use rocketring::{LazyCursor, Ring};

use super::{InLog, InboundShared};
use crate::lock::lock;
use crate::types::{Epoch, Position};

/// What a reader goes on with by itself.
pub(crate) struct Readable {
    pub(crate) ring: Ring,
    pub(crate) epoch: Epoch,
    /// Everything below was read and given back.
    pub(crate) at: Position,
    /// After so many bytes it tells how far it is, asked or not.
    pub(crate) step: u64,
}

impl InboundShared {
    /// From here on what comes is this reader's alone. None where it is not followed, or where something came already, or was
    /// not given back.
    pub(crate) fn begin_reading(&self, reader: &Arc<LazyCursor>) -> Option<Readable> {
        let mut state = lock(&self.state);
        if !state.looked_at || state.done || state.ending.is_some() || self.is_spliced() {
            return None;
        }
        // A ring at rest would not be seen to move.
        let rests = !self.rest.is_moving() && self.inner.config.buffers.idle_trim_ms > 0;
        let in_log = state.log.as_mut().filter(|_| !rests)?;
        let (ring, epoch, at) = (in_log.log.ring.clone(), in_log.log.epoch, in_log.read);
        let plain = in_log.reader.is_none() && in_log.relayed.is_none() && in_log.loan.is_none();
        let given_back = in_log.pins.is_empty() && in_log.consumed == at && in_log.hold.is_some();
        if !(plain && given_back && ring.head() == at) {
            return None;
        }
        reader.advance_to(at);
        reader.clear_request();
        in_log.reader = Some(reader.clone());
        if in_log.credit.is_asked() {
            in_log.ask_reader();
        }
        let step = (in_log.credit.quarter() / 4).max(1);
        Some(Readable { ring, epoch, at, step })
    }

    /// The reader tells how far it is.
    pub(crate) fn tell_read(&self, reader: &LazyCursor) {
        self.update(|in_log| {
            if !in_log.credit.is_asked() {
                reader.clear_request();
            }
        });
    }

    /// It reads no more, and was shown everything up to `read`. Nothing if the log is another one by now.
    pub(crate) fn end_reading(&self, reader: &Arc<LazyCursor>, read: Position) {
        self.update(|in_log| {
            if in_log.reader.take_if(|known| Arc::ptr_eq(known, reader)).is_some() {
                in_log.read = in_log.read.max(read);
            }
        });
    }
}

impl InLog {
    /// Whether a reader takes what comes.
    pub(crate) fn is_read_alone(&self) -> bool {
        self.reader.is_some()
    }

    /// Takes over how far the reader is, if there is one. True if others may read on.
    pub(crate) fn catch_up(&mut self) -> bool {
        let Some(reader) = &self.reader else { return true };
        let at = reader.position();
        if at > self.consumed {
            self.give_back(at);
            self.move_hold();
        }
        false
    }

    /// The reader tells when it moves, as somebody waits for that. Where it is now counts already.
    pub(crate) fn ask_reader(&mut self) {
        if let Some(reader) = &self.reader {
            reader.request();
        }
        self.catch_up();
    }

    /// How far anything may be given back.
    pub(super) fn reached(&self) -> Position {
        self.reader.as_ref().map_or(self.log.ring.boundary(), |reader| reader.position())
    }
}
