//! Kept topics that go to another member of the cluster, and publishers that wait for one.
//!
//! ```text
//!   the topic goes:  each publisher is stopped ─▶ STORED up to where it is in the log here, REFUSED with the addresses
//!                    once these have left: UNSUBSCRIBE. The publisher holds the bytes from there on for the next broker
//!   nobody has it:   CREATE waits ─▶ the map has changed ─▶ CREATE is handled as if it came now
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use rbmq_wire::{Control, RefuseCode, TopicName, planted};
use rocketbufs::Bid;
use tracing::info;

use super::super::cluster::Owner;
use super::super::effects::{Effect, Effects};
use super::super::inbox::Stopped;
use super::super::limits::{Refused, elsewhere};
use super::super::outgoing::RETRY_AFTER;
use super::super::session_key::SessionKey;
use super::super::tables::{Create, Tables};
use super::log::lost_message;
use super::members::Stage;
use super::publishers::{MergedTopics, release};

impl MergedTopics {
    /// Stops the publishers whose topics the cluster has given to others, or takes from here. The logs stay, to be read.
    pub(crate) fn move_away(&mut self, tables: &Tables) {
        for out_bid in self.members.all() {
            let (Some(topic), Some(name)) =
                (self.members.topic(out_bid).cloned(), self.members.name(out_bid))
            else {
                continue;
            };
            if self.stays(tables, out_bid, name) || planted::is(planted::NO_FENCE) {
                continue;
            }
            // Those of a broker that stops end with it.
            for number in self.members.local(out_bid).into_iter().filter(|_| tables.stopping.is_none()) {
                // Behind its last batch, which nobody can send to the next owner.
                topic.finish(number);
            }
            for (key, bid) in self.members.members(out_bid) {
                let Some(member) = self.members.get(key, bid) else { continue };
                let number = member.number;
                // What a closed log has left is here, and nowhere else: it is still merged here.
                if matches!(member.stage, Stage::Opening | Stage::Live | Stage::Away | Stage::Leaving) {
                    self.members.set_stage(key, bid, Stage::Moving, None);
                    self.moving.stopping.insert((out_bid, number));
                    topic.stop(number);
                }
            }
        }
    }

    /// Nothing more of a publisher is merged here: it is told how far it is, and who has the topic.
    pub(crate) fn on_stopped(
        &mut self,
        tables: &Tables,
        out_bid: Bid,
        number: u32,
        stopped: Stopped,
        fx: &mut Effects,
    ) {
        self.moving.stopping.remove(&(out_bid, number));
        let Some((key, bid)) = self.members.member(out_bid, number) else { return };
        let Some(topic) = self.members.name(out_bid).cloned() else { return };
        let member = self.members.get(key, bid);
        let is_known = member.is_some_and(|member| member.epoch.is_some());
        let has_all = member.is_some_and(|member| member.lacks_below == 0);
        let Stopped { position, is_synced, is_lost } = stopped;
        let Refused { code, reason } = match tables.owner(&topic) {
            Owner::Elsewhere { addresses } => elsewhere(&addresses, &topic),
            // Whoever has it next: the publisher asks here, and waits.
            Owner::Here { .. } => elsewhere(&[], &topic),
            Owner::Unsettled { reason } => {
                Refused::new(RefuseCode::Elsewhere, RefuseCode::elsewhere(&[], &reason))
            }
        };
        info!("topic '{topic}': publisher {number} goes elsewhere at {position:?}: {reason}");
        if is_lost {
            // Before STORED, which is then about what is lost, too.
            fx.push(Effect::Answer { key, message: lost_message(bid) });
        }
        // What the disk has and the archive has not, the next owner asks for again.
        if let Some(position) = position.filter(|_| !tables.is_shared(&topic)) {
            let synced = if is_synced && has_all && !is_lost { position } else { 0 };
            fx.push(Effect::Answer { key, message: Control::Stored { bid, position, synced, archived: 0 } });
        }
        fx.push(Effect::Answer { key, message: Control::Refused { bid, code, reason } });
        match position.filter(|_| is_known) {
            // It may not hear that, and its log goes on here if the topic comes back.
            Some(position) => self.members.set_stage(key, bid, Stage::Gone(position), None),
            None => self.members.remove(key, bid),
        };
        // The place at the publisher stays until it has heard: then it keeps its bytes for the next broker.
        self.moving.leaving.insert((key, bid));
    }

    /// Leaves the publishers that have been told, and those that are gone.
    pub(super) fn leave_told(&mut self, tables: &Tables, fx: &mut Effects) {
        self.moving.leaving.retain(|(key, bid)| {
            let Some(session) = tables.sessions.get(*key) else { return false };
            let is_told = session.is_down() || session.conn.control_waiting() == 0;
            if is_told {
                release(tables, *key, *bid);
                fx.push(Effect::ReleaseSession(*key));
            }
            !is_told
        });
    }

    /// Leaves a publisher at once, which comes over another connection, or with a buffer of the same id.
    pub(crate) fn leave(&mut self, tables: &Tables, key: SessionKey, bid: Option<Bid>) {
        self.moving.leaving.retain(|(other, in_bid)| {
            let is_meant = *other == key && bid.is_none_or(|bid| bid == *in_bid);
            if is_meant {
                release(tables, key, *in_bid);
            }
            !is_meant
        });
    }

    /// Whether publishers of topics that went have yet to learn how far they are.
    pub(crate) fn is_moving(&self) -> bool {
        !self.moving.stopping.is_empty() || !self.moving.leaving.is_empty()
    }

    /// When publishers are looked at that are being told.
    pub(super) fn next_look(&self) -> Option<Instant> {
        (!self.moving.leaving.is_empty()).then(|| Instant::now() + RETRY_AFTER)
    }

    /// Keeps a CREATE until the topic has an owner.
    pub(super) fn wait_for_owner(&mut self, key: SessionKey, create: &Create, what_for: &str) {
        info!("topic '{}' waits {what_for}", create.topic);
        self.moving.waiting.insert((key, create.bid), create.clone());
    }

    /// How many other buffers of a publisher wait.
    pub(super) fn others_waiting(&self, key: SessionKey, bid: Bid) -> usize {
        let of_publisher = self.moving.waiting.range((key, Bid::MIN)..=(key, Bid::MAX));
        of_publisher.filter(|((_, other), _)| *other != bid).count()
    }

    /// A publisher is gone, or names its buffers anew. Topics that nobody waits for then are given up.
    pub(super) fn forget_waiting(&mut self, tables: &mut Tables, key: SessionKey) {
        let waiting = &mut self.moving.waiting;
        let gone = waiting.extract_if((key, Bid::MIN)..=(key, Bid::MAX), |_, _| true);
        let mut topics: BTreeSet<TopicName> = gone.map(|(_, create)| create.topic).collect();
        if self.shares() && !topics.is_empty() {
            for create in self.moving.waiting.values() {
                topics.remove(&create.topic);
            }
            topics.iter().for_each(|topic| self.give_up(tables, topic));
        }
    }

    /// The CREATEs that wait.
    pub(crate) fn take_waiting(&mut self) -> Vec<(SessionKey, Create)> {
        let waiting = std::mem::take(&mut self.moving.waiting);
        waiting.into_iter().map(|((key, _), create)| (key, create)).collect()
    }
}
