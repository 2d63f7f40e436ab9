//! What a subscription or a buffer remembers of whether its ring moves (`crate::core`, `idle`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocketring::barrier::{Full, Light};
use rocketring::{Armed, NotifyFlag, Ring};

use super::{Buffer, Command};
use crate::types::Position;

/// Places of [`Rest::place`] besides those of rings at rest, which are greater.
pub(crate) const NOWHERE: u64 = 0;
pub(crate) const MOVING: u64 = 1;

/// What a subscription or a buffer remembers for its worker.
pub(crate) struct Rest {
    pub(crate) place: AtomicU64,
    /// There is more to give back when what is held has moved.
    pub(crate) owed: NotifyFlag,
    /// Of a buffer: its worker is to be told when it moves.
    still: NotifyFlag<Light>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { place: AtomicU64::new(NOWHERE), owed: NotifyFlag::new(false), still: NotifyFlag::new(true) }
    }
}

impl Rest {
    /// Whether its worker looks at it now and then.
    pub(crate) fn is_moving(&self) -> bool {
        self.place.load(Ordering::Relaxed) == MOVING
    }

    /// Whether the worker wants to hear that a hold moved, if it does not for other reasons. The barrier is the hold's, which makes
    /// one whenever it moves.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.peek()
    }

    /// Of a ring whose memory does not go back: nobody is told that it moves.
    pub(crate) fn never(&self) {
        self.still.disarm();
    }

    /// The ring's head was still at `head`. Whether it rests; if not its worker goes on to look at it.
    pub(crate) fn begin(&self, ring: &Ring, head: Position) -> bool {
        self.still.arm();
        ring.head() == head || self.still.disarm() != Armed::Yes
    }
}

/// Why a buffer does not rest any more.
pub(crate) enum Roused {
    /// The application writes it.
    Written(Arc<Buffer>),
    /// A hold moved, and there is more memory to give back then.
    LetGo(Arc<Buffer>),
    /// It is gone that rested at this place.
    Gone(u64),
}

impl Buffer {
    /// The application has delivered.
    #[inline]
    pub(crate) fn stir(self: &Arc<Self>, delivered: Light) {
        if self.rest.still.take(delivered) {
            self.tell_roused(Roused::Written(self.clone()));
        }
    }

    /// A hold moved.
    pub(crate) fn let_go(self: &Arc<Self>, moved: Full) {
        if self.rest.owed.take(moved) {
            self.tell_roused(Roused::LetGo(self.clone()));
        }
    }

    /// It is gone, and with it what it kept.
    pub(crate) fn end_rest(&self) {
        let place = self.rest.place.load(Ordering::Acquire);
        if place > MOVING {
            self.tell_roused(Roused::Gone(place));
        }
    }

    fn tell_roused(&self, roused: Roused) {
        let workers = &self.inner.workers;
        workers[self.slot as usize % workers.len()].send(Command::Roused(roused));
    }
}
