//! Publishers of topics that are not here, or not any more. This module does no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rbmq_wire::TopicName;
use rocketbufs::{Bid, Position};

use super::super::session_key::SessionKey;
use super::super::tables::Create;

/// The most publishers that are remembered because they were away when their topic went. Without its place, a publisher sends what it did
/// not know to be stored again, to the next broker.
const MAX_AWAY: usize = 65_536;

/// Publishers of topics that are not here.
#[derive(Default)]
pub(super) struct Moving {
    /// Buffers of topics that nobody has.
    pub(super) waiting: BTreeMap<(SessionKey, Bid), Create>,
    /// Buffers of topics that went, whose publishers are being told.
    pub(super) leaving: BTreeSet<(SessionKey, Bid)>,
    /// How far the logs of publishers are here that were not connected when their topic went.
    pub(super) away: HashMap<(SessionKey, Bid), (TopicName, Position)>,
}

impl Moving {
    /// A publisher was not connected when its topic went.
    pub(super) fn remember(&mut self, key: SessionKey, bid: Bid, topic: &TopicName, position: Position) {
        if self.away.len() >= MAX_AWAY {
            self.away.clear();
        }
        self.away.insert((key, bid), (topic.clone(), position));
    }
}
