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

use super::SubscriptionShared;
use crate::ground::lock::lock;
use crate::ground::types::{Epoch, Position};

/// The ring and the positions that a reader needs to read on by itself.
pub(crate) struct Readable {
    pub(crate) ring: Ring,
    pub(crate) epoch: Epoch,
    /// Everything below was read and released.
    pub(crate) at: Position,
    /// The bytes after which the reader reports its position without being asked.
    pub(crate) step: u64,
}

impl SubscriptionShared {
    /// Gives all further data to this reader. Returns `None` if the ring is not followed, or if received data
    /// was not released yet.
    pub(crate) fn begin_reading(&self, reader: &Arc<LazyCursor>) -> Option<Readable> {
        let mut state = lock(&self.state);
        if !state.sub.may_follow() || self.is_spliced() {
            return None;
        }
        // A ring at rest would not be seen to move.
        if !self.idle_state.is_moving() && self.inner.config.buffers.idle_trim_ms > 0 {
            return None;
        }
        let (log, memory) = state.parts().filter(|(_, memory)| memory.has_hold())?;
        let at = log.begin_reading(memory.ring())?;
        reader.advance_to(at);
        reader.clear_request();
        memory.reader = Some(reader.clone());
        let (ring, epoch) = (memory.ring().clone(), memory.log.epoch);
        let step = (log.credit().quarter() / 4).max(1);
        if log.credit().is_asked() {
            state.ask_reader();
        }
        Some(Readable { ring, epoch, at, step })
    }

    /// Takes over the reader's position.
    pub(crate) fn report_read(&self, reader: &LazyCursor) {
        self.update(|log, _| {
            if !log.credit().is_asked() {
                reader.clear_request();
            }
        });
    }

    /// Ends reading. The reader was shown everything up to `read`. Does nothing if the subscription has
    /// another log by now.
    pub(crate) fn end_reading(&self, reader: &Arc<LazyCursor>, read: Position) {
        self.update(|log, memory| {
            if memory.reader.take_if(|known| Arc::ptr_eq(known, reader)).is_some() {
                log.cursor_mut().end_reading(read);
            }
        });
    }
}
