//! The places of a buffer's subscriptions: of those that are there, and of those that are away under a name.

use std::collections::HashMap;
use std::sync::Arc;

use rocketring::Hold;

use super::SubShared;
use crate::proto::{Coverage, PeerCoverage};
use crate::types::{Nanos, Policy, Position};

/// Everybody who counts for what is confirmed. Under one lock: who changes from one to the other is never missing and
/// never there twice.
#[derive(Default)]
pub(super) struct Places {
    pub(super) subs: Vec<Arc<SubShared>>,
    /// Kept for named subscriptions whose connection is gone. Those that block count as subscribers: nobody is told that
    /// everybody has what they do not have.
    pub(super) held: HashMap<Vec<u8>, Held>,
    /// Those who count no more.
    pub(super) past: Coverage,
    /// The buffer was removed: nobody can come back to it.
    pub(super) over: bool,
}

impl Places {
    /// Those away who count.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = &Held> {
        self.held.values().filter(|held| held.counts())
    }
}

/// A place in a ring, kept until somebody of that name comes back.
pub(crate) struct Held {
    pub(crate) hold: Option<Hold>,
    pub(crate) policy: Policy,
    /// What it had confirmed, by level, and for whom that spoke.
    pub(crate) levels: [Position; 3],
    pub(crate) tally: PeerCoverage,
    /// Where a delivery begins with which it can go on.
    pub(crate) whole: Position,
    pub(crate) until: Nanos,
}

impl Held {
    /// Whether it holds the ring, and counts for what is confirmed. Who does not block has said that nobody waits for it:
    /// what is written over while it is away is lost to it, and it is told when it is back.
    pub(super) fn counts(&self) -> bool {
        self.policy == Policy::Block
    }
}

/// What is to become of the place of a subscription that goes.
pub(crate) enum Leaving {
    /// It counts no more.
    Gone,
    /// It is kept under its name.
    Kept(Held),
}

/// What is known of a subscription that comes back under its name.
pub(crate) struct Known {
    pub(crate) levels: [Position; 3],
    pub(crate) tally: PeerCoverage,
    /// Where it holds the ring.
    pub(crate) holds: Option<Position>,
    /// Where a delivery begins with which it can go on, if that is still there.
    pub(crate) whole: Position,
    /// The connection and worker that still have it; none: its place was kept.
    pub(crate) live: Option<(u64, usize)>,
}
