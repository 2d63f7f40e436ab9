//! A subscription's or buffer's record of whether its ring moves (`crate::worker`, `idle`).

use std::sync::atomic::{AtomicU64, Ordering};

use rocketring::barrier::Light;
use rocketring::{Armed, NotifyFlag, Ring};

use crate::ground::types::Position;

/// Values of [`IdleState::place`] for rings that do not rest. Values for rings at rest are greater.
pub(crate) const NOWHERE: u64 = 0;
pub(crate) const MOVING: u64 = 1;

/// The most workers. Each has places of its own, since a subscription may resume over a connection of another
/// worker.
pub(crate) const PLACES_APART: u64 = 64;

/// The record of a subscription or buffer for its worker.
pub(crate) struct IdleState {
    pub(crate) place: AtomicU64,
    /// Whether there is more memory to release once a hold moves.
    pub(crate) hold_moved: NotifyFlag,
    /// For a buffer: whether its worker must learn when the application writes it.
    pub(crate) written: NotifyFlag<Light>,
}

impl Default for IdleState {
    fn default() -> Self {
        Self {
            place: AtomicU64::new(NOWHERE),
            hold_moved: NotifyFlag::new(false),
            written: NotifyFlag::new(true),
        }
    }
}

impl IdleState {
    /// Returns the worker at which the ring rests, and the place there.
    pub(crate) fn resting_at(&self) -> Option<(usize, u64)> {
        // Pairs with the Release when the ring came to rest.
        let place = self.place.load(Ordering::Acquire);
        (place > MOVING).then(|| (((place - MOVING - 1) % PLACES_APART) as usize, place))
    }

    /// Returns whether the worker checks the ring now and then.
    pub(crate) fn is_moving(&self) -> bool {
        self.place.load(Ordering::Relaxed) == MOVING
    }

    /// Returns whether the worker must learn of a moved hold, if it does not for other reasons. The hold's
    /// own barrier, one for each move, orders this load.
    pub(crate) fn waits_for_hold(&self) -> bool {
        self.hold_moved.peek()
    }

    /// Stops notifications for a ring whose memory does not go back.
    pub(crate) fn disable(&self) {
        self.written.disarm();
    }

    /// Puts the ring to rest if its head is still at `head`. Returns false if it moved; the worker then
    /// continues to check it.
    pub(crate) fn on_idle(&self, ring: &Ring, head: Position) -> bool {
        self.written.arm();
        ring.head() == head || self.written.disarm() != Armed::Yes
    }
}
