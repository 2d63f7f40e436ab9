//! A subscription that one [`InReader`](crate::InReader) reads for a while. The reader takes and releases
//! what the ring brings without the subscription's lock.
//!
//! ```text
//!   begin_reading   all data was read and released, the ring is followed ─▶ only the reader continues
//!   reader          look, hand out, move its position …                         no lock, nothing reported
//!   catch_up        `consumed` and `read` become the reader's position          on demand
//!   end_reading     as it was before
//! ```

use std::sync::Arc;

use rocketring::{LazyCursor, Ring};

use super::{InboundShared, ReceiveLog};
use crate::lock::lock;
use crate::types::{Epoch, Position};

/// What a reader needs to read on by itself.
pub(crate) struct Readable {
    pub(crate) ring: Ring,
    pub(crate) epoch: Epoch,
    /// Everything below was read and released.
    pub(crate) at: Position,
    /// The bytes after which the reader reports its position without being asked.
    pub(crate) step: u64,
}

impl InboundShared {
    /// Gives all further data to this reader. Returns `None` if the ring is not followed, or if received data
    /// was not released yet.
    pub(crate) fn begin_reading(&self, reader: &Arc<LazyCursor>) -> Option<Readable> {
        let mut state = lock(&self.state);
        if !state.looked_at || state.done || state.ending.is_some() || self.is_spliced() {
            return None;
        }
        // A ring at rest would not be seen to move.
        let rests = !self.rest.is_moving() && self.inner.config.buffers.idle_trim_ms > 0;
        let in_log = state.log.as_mut().filter(|_| !rests)?;
        let (ring, epoch, at) = (in_log.log.ring.clone(), in_log.log.epoch, in_log.read);
        let plain = in_log.reader.is_none() && in_log.relayed.is_none() && in_log.allocation.is_none();
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

    /// Takes over the reader's position.
    pub(crate) fn tell_read(&self, reader: &LazyCursor) {
        self.update(|in_log| {
            if !in_log.credit.is_asked() {
                reader.clear_request();
            }
        });
    }

    /// Ends reading. The reader was shown everything up to `read`. Does nothing if the subscription has
    /// another log by now.
    pub(crate) fn end_reading(&self, reader: &Arc<LazyCursor>, read: Position) {
        self.update(|in_log| {
            if in_log.reader.take_if(|known| Arc::ptr_eq(known, reader)).is_some() {
                in_log.read = in_log.read.max(read);
            }
        });
    }
}

impl ReceiveLog {
    /// Returns whether a reader takes the data.
    pub(crate) fn is_read_alone(&self) -> bool {
        self.reader.is_some()
    }

    /// Takes over the reader's position, if there is a reader. Returns whether others may read on.
    pub(crate) fn catch_up(&mut self) -> bool {
        let Some(reader) = &self.reader else { return true };
        let at = reader.position();
        if at > self.consumed {
            self.give_back(at);
            self.move_hold();
        }
        false
    }

    /// Asks the reader to report when it moves, since the peer waits for that. The present position counts
    /// already.
    pub(crate) fn ask_reader(&mut self) {
        if let Some(reader) = &self.reader {
            reader.request();
        }
        self.catch_up();
    }

    /// Returns the position up to which data may be released.
    pub(super) fn reached(&self) -> Position {
        self.reader.as_ref().map_or(self.log.ring.boundary(), |reader| reader.position())
    }
}
