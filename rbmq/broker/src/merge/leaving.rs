//! Publishers of topics that are not here, or not any more. This module does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use rocketbufs::Bid;

use super::super::session_key::SessionKey;
use super::super::tables::Create;

/// Publishers of topics that are not here.
#[derive(Default)]
pub(super) struct Moving {
    /// Buffers of topics that nobody has.
    pub(super) waiting: BTreeMap<(SessionKey, Bid), Create>,
    /// Publishers that are stopped, and their topics: it is not known yet how far they are.
    pub(super) stopping: BTreeSet<(Bid, u32)>,
    /// Buffers of topics that went, whose publishers are being told.
    pub(super) leaving: BTreeSet<(SessionKey, Bid)>,
}
