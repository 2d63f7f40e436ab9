//! A log, as far as it is in memory.

use rocketring::Ring;

use crate::ground::types::Epoch;

/// A ring and the epoch of the log whose end it holds.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) ring: Ring,
    pub(crate) epoch: Epoch,
}
