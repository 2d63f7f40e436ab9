//! How far buffers are confirmed, for the application that writes them.

use std::time::Duration;

use crate::error::{BufferError, WaitError};
use crate::rout::ROut;
use crate::state::{Confirmed, Progress, SubscriberProgress, is_worker};
use crate::types::{Bid, ConfirmLevel, Position};

impl ROut {
    /// Waits until every subscriber present has everything below `position` in its memory.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far it is confirmed.
    pub fn wait_landed(&self, bid: Bid, position: Position, timeout: Duration) -> Result<(), WaitError> {
        self.wait(bid, ConfirmLevel::Landed, position, timeout)
    }

    /// Waits until everybody at the end of every chain has everything below `position` in its memory.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far it is confirmed.
    pub fn wait_delivered(&self, bid: Bid, position: Position, timeout: Duration) -> Result<(), WaitError> {
        self.wait(bid, ConfirmLevel::Delivered, position, timeout)
    }

    /// Waits until every subscriber present has given back everything below `position`; through chains, the last.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far it is confirmed.
    pub fn wait_consumed(&self, bid: Bid, position: Position, timeout: Duration) -> Result<(), WaitError> {
        self.wait(bid, ConfirmLevel::Consumed, position, timeout)
    }

    fn wait(
        &self,
        bid: Bid,
        level: ConfirmLevel,
        position: Position,
        timeout: Duration,
    ) -> Result<(), WaitError> {
        if is_worker() {
            return Err(WaitError::CalledFromWorker);
        }
        let buffer = self.shared.buffer(bid).ok_or(WaitError::NoSuchBuffer(bid))?;
        if buffer.wait_until((level, position), timeout, |buffer| buffer.confirmed().at(level) >= position) {
            return Ok(());
        }
        Err(WaitError::TimedOut { confirmed: buffer.confirmed().at(level) })
    }

    /// How far a buffer is confirmed, and for how many receivers that speaks. With no subscription everything written
    /// counts as confirmed: look at `subscriptions` where somebody should be there.
    pub fn confirmed(&self, bid: Bid) -> Option<Confirmed> {
        self.shared.buffer(bid).map(|buffer| buffer.confirmed())
    }

    /// Has subscribers tell as soon as `position` is confirmed at `level`, without waiting for it: hear it with
    /// [`ROut::set_subscriber_progress_cb`]. Of several such positions the smallest and the largest are remembered; when the
    /// smallest was told, ask for the next.
    pub fn ask(&self, bid: Bid, level: ConfirmLevel, position: Position) {
        if let Some(buffer) = self.shared.buffer(bid) {
            let mut wanted = [0; 3];
            wanted[level as usize] = position;
            buffer.want(wanted);
        }
    }

    /// Calls `callback` on a worker thread whenever a subscriber has told how far it is.
    pub fn set_subscriber_progress_cb(&self, callback: impl FnMut(SubscriberProgress) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.progress_cb, Box::new(callback));
    }

    /// Removes the callback of [`ROut::set_subscriber_progress_cb`], as [`ROut::unset_data_out_cb`] does.
    pub fn unset_subscriber_progress_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.progress_cb);
    }

    /// Tells [`OutEvent::Progress`](crate::OutEvent::Progress) once, on a worker thread, when `what` is so, also if it is
    /// already, or when the buffer has ended. For writers that must not wait, such as callbacks. One at a time for each
    /// buffer: the last call counts. An event that was under way before is told besides.
    ///
    /// # Errors
    /// No such buffer.
    pub fn tell_progress(&self, bid: Bid, what: Progress) -> Result<(), BufferError> {
        let buffer = self.shared.buffer(bid).ok_or(BufferError::NoSuchBuffer(bid))?;
        buffer.watch_progress(what);
        Ok(())
    }
}
