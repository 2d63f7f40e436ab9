//! Topics whose log goes on in the archive, at whichever member of the cluster has them (`cluster.on_loss = "archive"`).
//!
//! ```text
//!   not here ── this broker is the owner ──▶ wanted ── taken ──▶ open, in one term
//!      ▲                                                           │ another owner or term, or another broker has gone on in the archive
//!      └──────── closed ◀──── its publishers were sent away ───────┘
//! ```
//!
//! A log is at one broker only, and the others receive it from there. So what a former owner has on its disk, and not in the archive, is read by
//! nobody who reads on.

use std::collections::{BTreeSet, HashMap};

use rbmq_wire::TopicName;
use rocketbufs::Bid;
use tracing::{info, warn};

use super::super::cluster::Owner;
use super::super::effects::{Effect, Effects};
use super::super::kept::{TakeOvers, Taken, Wanted};
use super::super::limits::{Refused, too_many_topics};
use super::super::tables::Tables;
use super::super::topics::TooManyTopics;
use super::publishers::MergedTopics;
use super::shared::{MAX_KNOWN, Sharing};

impl MergedTopics {
    /// From now on, logs go on in the archive.
    pub(crate) fn share(&mut self, takeovers: TakeOvers) {
        let (terms, failures, known) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        self.sharing = Some(Sharing {
            takeovers,
            terms,
            failures,
            known,
            groups: (0, 0),
            is_closing: false,
            lacks_room: false,
        });
    }

    /// Whether logs go on in the archive.
    pub(crate) fn shares(&self) -> bool {
        self.sharing.is_some()
    }

    /// Takes the topics that are shared out of those on the disk: they are opened when this broker has them.
    pub(super) fn put_off(&mut self, tables: &Tables, topics: Vec<TopicName>) -> Vec<TopicName> {
        let (shared, others) = topics.into_iter().partition(|topic| tables.is_shared(topic));
        let Some(sharing) = &mut self.sharing else { return others };
        sharing.known = Vec::into_iter(shared).collect();
        others
    }

    /// A buffer of a topic was removed here. If this broker is or becomes the owner, it opens the topic again, also without a publisher that asks for it.
    pub(crate) fn remember(&mut self, tables: &Tables, topic: &TopicName) {
        if let Some(sharing) = self.sharing.as_mut().filter(|_| tables.is_shared(topic))
            && sharing.known.len() < MAX_KNOWN
        {
            sharing.known.insert(topic.clone());
        }
    }

    /// Has the store of the map asked which topics have a log, when groups have other owners than before: this broker may have heard of none of them.
    pub(crate) fn list_shared(&mut self, tables: &Tables) {
        let (Some(sharing), Some(cluster)) = (&mut self.sharing, &tables.cluster) else { return };
        let status = cluster.status();
        let groups = (status.owned_groups, status.term_changes);
        if std::mem::replace(&mut sharing.groups, groups) != groups {
            sharing.takeovers.list();
        }
    }

    /// These topics have a log. Those that this broker has are opened, also without a publisher that asks for them.
    pub(crate) fn on_listed(&mut self, tables: &Tables, topics: Vec<TopicName>) {
        let Some(sharing) = &mut self.sharing else { return };
        let own = topics.into_iter().filter(|topic| tables.is_shared(topic) && tables.has(topic));
        let room = MAX_KNOWN.saturating_sub(sharing.known.len());
        sharing.known.extend(own.take(room));
    }

    /// Whether a topic that is open here stays.
    pub(super) fn stays(&self, tables: &Tables, out_bid: Bid, topic: &TopicName) -> bool {
        let Some(sharing) = self.sharing.as_ref().filter(|_| tables.is_shared(topic)) else {
            return tables.has(topic);
        };
        let is_over =
            self.archived(out_bid).is_some_and(|(archived, _)| archived.is_refused() || archived.is_spent());
        let term = sharing.terms.get(topic).copied();
        !is_over && matches!(tables.owner(topic), Owner::Here { term: now } if term == Some(now))
    }

    /// This broker has a topic in a term. Whether the topic is open; one that is shared is opened soon otherwise, or when it was closed.
    /// This broker does not ask for a topic that has no place here: the claim would only take positions that no message gets.
    pub(super) fn is_open_in(&mut self, tables: &mut Tables, topic: &TopicName, term: u64) -> bool {
        let Some(sharing) = self.sharing.as_mut().filter(|_| tables.is_shared(topic)) else { return true };
        let Some(out_bid) = self.members.find(topic) else {
            match tables.topics.reserve(topic, tables.settings.max_topics) {
                Ok(()) => sharing.takeovers.want(topic, term),
                Err(TooManyTopics { open }) if !std::mem::replace(&mut sharing.lacks_room, true) => {
                    let Refused { reason, .. } = too_many_topics(open, &tables.settings);
                    warn!("topic '{topic}', and perhaps others, waits for a place here: {reason}");
                }
                Err(_) => {}
            }
            return false;
        };
        self.stays(tables, out_bid, topic)
    }

    /// Nobody waits for a topic any more, which is opened for nobody then, unless its log is on the disk or was here before.
    pub(super) fn give_up(&mut self, tables: &mut Tables, topic: &TopicName) {
        let is_new =
            |sharing: &&Sharing| !sharing.known.contains(topic) && tables.topics.of(topic).is_empty();
        if let Some(sharing) = self.sharing.as_ref().filter(is_new) {
            sharing.takeovers.give_up(topic);
            tables.topics.release(topic);
        }
    }

    /// Whether a place has become free for the topics that wait for one. The caller then asks for them again.
    pub(crate) fn takes_room(&mut self, tables: &Tables) -> bool {
        let Some(sharing) = self.sharing.as_mut().filter(|sharing| sharing.lacks_room) else { return false };
        sharing.lacks_room = tables.topics.is_full(tables.settings.max_topics);
        !sharing.lacks_room
    }

    /// Whether shared topics wait until their publishers were sent away.
    pub(crate) fn is_closing(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.is_closing)
    }

    /// Closes the shared topics that are not here any more, and asks for the logs of those that are.
    pub(crate) fn settle_shared(&mut self, tables: &mut Tables, fx: &mut Effects) {
        if self.sharing.is_none() {
            return;
        }
        let mut is_closing = false;
        for out_bid in self.members.all() {
            let Some(topic) = self.members.name(out_bid).cloned() else { continue };
            if !tables.is_shared(&topic) || self.stays(tables, out_bid, &topic) {
                continue;
            }
            if self.has_leaving(out_bid) || self.fills_archive(tables, out_bid, &topic) {
                is_closing = true;
                continue;
            }
            info!("topic '{topic}' is closed here: its log goes on where its owner is");
            let is_refused = self.archived(out_bid).is_some_and(|(archived, _)| archived.is_refused());
            if let Some(sharing) = &mut self.sharing
                && let Some(term) = sharing.terms.remove(&topic)
                && is_refused
                && matches!(tables.owner(&topic), Owner::Here { term: now } if now == term)
            {
                // Not at once, and for ever: the archive may never take it.
                sharing.takeovers.want_later(&topic, term, true);
            }
            fx.push(Effect::Leave(out_bid));
        }
        tables.keep_reserved();
        let Some(sharing) = &mut self.sharing else { return };
        sharing.is_closing = is_closing;
        let known = tables
            .topics
            .after(None)
            .map(|(topic, _)| topic)
            .chain(&sharing.known)
            .cloned()
            .collect::<BTreeSet<_>>();
        for topic in &known {
            if tables.is_shared(topic)
                && let Owner::Here { term } = tables.owner(topic)
            {
                self.is_open_in(tables, topic, term);
            }
        }
    }

    /// Whether the archive of a topic that nobody else has yet gets what it lacks, before somebody goes on there.
    fn fills_archive(&self, tables: &Tables, out_bid: Bid, topic: &TopicName) -> bool {
        let has_time = matches!(tables.owner(topic), Owner::Unsettled { .. });
        let archived = self.archived(out_bid).filter(|(archived, _)| has_time && archived.is_behind());
        archived.inspect(|(archived, _)| archived.hurry()).is_some()
    }

    /// Whether publishers of a topic are to be told, or are being told, where it is.
    fn has_leaving(&self, out_bid: Bid) -> bool {
        let is_of = |(key, bid)| self.members.get(key, bid).is_some_and(|member| member.out_bid == out_bid);
        self.moving.stopping.iter().any(|(of, _)| *of == out_bid)
            || self.moving.leaving.iter().copied().any(is_of)
    }

    /// The log of a topic is here.
    pub(crate) fn on_taken(&mut self, tables: &mut Tables, wanted: &Wanted, taken: Taken, fx: &mut Effects) {
        let Wanted { topic, term, .. } = wanted;
        if let Some(sharing) = &mut self.sharing {
            sharing.takeovers.forget(wanted);
            // The folder of the topic is on the disk from now on.
            sharing.known.insert(topic.clone());
        }
        let is_owner = matches!(tables.owner(topic), Owner::Here { term: now } if now == *term);
        if self.members.find(topic).is_some() {
            return tables.topics.release(topic);
        }
        let Some(sharing) = self.sharing.as_mut().filter(|_| is_owner) else { return };
        sharing.terms.insert(topic.clone(), *term);
        let opened = self.open_taken(tables, wanted, taken, fx);
        let Some(sharing) = &mut self.sharing else { return };
        let Err(Refused { reason, .. }) = opened else {
            tables.topics.release(topic);
            return drop(sharing.failures.remove(topic));
        };
        // Its folder may be in use still.
        sharing.terms.remove(topic);
        sharing.takeovers.want_later(topic, *term, false);
        if sharing.failures.get(topic) != Some(&reason) {
            warn!("topic '{topic}' is not available: {reason}");
            sharing.failures.insert(topic.clone(), reason);
        }
        self.keeper.failed(topic);
    }
}
