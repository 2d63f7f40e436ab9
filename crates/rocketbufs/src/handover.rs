//! A log that goes on in another buffer of the same rOut, by another way: what ends the one, and what keeps the other until
//! receivers have come over.
//!
//! ```text
//!   the one    ───────────────┤ end: GONE, once a receiver has everything up to here
//!   the other      ───────────┼───────────▶ head
//!                             └ kept from here on, for those who subscribe here with the position that they have
//! ```

use std::sync::Arc;

use rocketring::Hold;

use crate::error::BufferError;
use crate::out_buffer::OutBuffer;
use crate::proto::End;
use crate::state::Buffer;
use crate::types::Position;

/// Keeps what a buffer has from a position on, as a subscriber would that reads nothing: its writer waits for room. Until
/// it is dropped.
pub struct RetentionHold {
    hold: Option<Hold>,
    buffer: Arc<Buffer>,
}

impl RetentionHold {
    /// From where on it keeps.
    pub fn position(&self) -> Position {
        self.hold.as_ref().map_or(0, Hold::position)
    }

    /// Lets go of what lies below `to`. It never goes back.
    pub fn advance(&self, to: Position) {
        if let Some(hold) = &self.hold {
            hold.advance(to);
        }
        self.buffer.on_progress();
    }
}

impl Drop for RetentionHold {
    fn drop(&mut self) {
        drop(self.hold.take());
        self.buffer.on_progress();
        // A writer may be among those who work.
        self.buffer.notify();
    }
}

impl std::fmt::Debug for RetentionHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetentionHold").field("position", &self.position()).finish()
    }
}

impl OutBuffer {
    /// Keeps what the buffer has from `from` on, or from the first byte that is still there.
    ///
    /// # Errors
    /// The buffer is spliced, and its upstream subscription was not answered yet.
    pub fn hold_from(&self, from: Position) -> Result<RetentionHold, BufferError> {
        let buffer = self.buffer.clone();
        let ring = &buffer.log().ok_or(BufferError::NotAnswered(buffer.bid))?.ring;
        let mut at = from;
        loop {
            match ring.hold(at) {
                Ok(hold) => return Ok(RetentionHold { hold: Some(hold), buffer }),
                // The tail moves on only when the writer does.
                Err(overwritten) => at = overwritten.tail,
            }
        }
    }

    /// Ends a spliced buffer although more may come into it, as if its writer was gone: its subscribers get what is complete
    /// and then GONE, and may continue with the same log in another buffer. What it is spliced from goes on, and is held
    /// for them, until [`OutBuffer::destroy`] or the end of that subscription. Returns the end of the log.
    ///
    /// # Errors
    /// The buffer is not spliced.
    pub fn end_as_gone(&self) -> Result<Position, BufferError> {
        let buffer = &self.buffer;
        if buffer.source.is_none() {
            return Err(BufferError::NotSpliced(buffer.bid));
        }
        let end = self.boundary();
        buffer.set_end(End::Gone(end));
        Ok(buffer.end().map_or(end, |end| end.position()))
    }
}
