//! The publishers of merged topics: their states.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rbmq_wire::connect::random;
use rbmq_wire::{Control, RUN_HEADER_BYTES, RefuseCode, Space, TopicName};
use rocketbufs::{Bid, Epoch, InEvent, Position};
use tracing::{debug, info, warn};

use super::super::counters::Refusal;
use super::super::effects::{Effect, Effects};
use super::super::kept::{Archived, Keeper};
use super::super::limits::{Refused, largest_merged_delivery_bytes, largest_run_bytes, not_accepted};
use super::super::session_key::SessionKey;
use super::super::tables::{Create, Tables};
use super::index::{Arrivals, MergeIndex};
use super::leaving::Moving;
use super::local::{LocalAsk, LocalPublisher, Wake};
use super::log::Source;
use super::members::{Due, Members, Stage};
use super::shared::Sharing;

/// The merged topics of the broker.
pub(crate) struct MergedTopics {
    pub(super) members: Members,
    pub(super) index: MergeIndex,
    pub(super) keeper: Keeper,
    pub(super) moving: Moving,
    /// None: no log goes on in the archive.
    pub(super) sharing: Option<Sharing>,
}

impl MergedTopics {
    /// Without topics. The workers find the topics by `index`.
    pub(crate) fn new(index: MergeIndex, keeper: Keeper) -> Self {
        Self { members: Members::default(), index, keeper, moving: Moving::default(), sharing: None }
    }

    /// Whether a topic is kept, by this or an earlier configuration.
    pub(crate) fn is_kept(&self, topic: &TopicName) -> bool {
        self.keeper.is_kept(topic)
    }

    /// The log on disk of a buffer.
    pub(crate) fn kept_log(&self, out_bid: Bid) -> Option<seglog::Reader> {
        self.keeper.reader(out_bid)
    }

    /// The archive of a buffer, and how long a subscriber waits for it.
    pub(crate) fn archived(&self, out_bid: Bid) -> Option<(Arc<Archived>, Duration)> {
        self.keeper.archived(out_bid)
    }

    /// The index of the workers.
    pub(crate) fn index(&self) -> &MergeIndex {
        &self.index
    }

    /// The number of active publishers of a topic. None if the buffer is not merged.
    pub(crate) fn active(&self, out_bid: Bid) -> Option<usize> {
        self.members.active(out_bid)
    }

    /// The first active publishers of a topic, at most `most`.
    pub(crate) fn first(&self, out_bid: Bid, most: usize) -> Vec<SessionKey> {
        self.members.first(out_bid, most)
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        [self.members.next_due(), self.next_look()].into_iter().flatten().min()
    }

    /// Whether a CREATE is for a merged topic.
    pub(crate) fn is_responsible(&self, tables: &Tables, key: SessionKey, create: &Create) -> bool {
        let spliced = tables.sessions.get(key).is_some_and(|s| s.mapping.get(create.bid).is_some());
        let rule = tables.settings.topics.of(&create.topic);
        self.members.get(key, create.bid).is_some()
            || (!spliced && (rule.merges() || self.is_kept(&create.topic)))
    }

    /// Answers a part of this process that asks for a publisher.
    pub(crate) fn answer(&mut self, tables: &Tables, ask: LocalAsk) {
        ask.answer(|log, grows, wake| self.local_publisher(tables, log, grows, wake));
    }

    /// A publisher of this process into a merged topic, or the log of a space. None: the topic is not open. This publisher is none of those that are
    /// counted and remembered. `grows`: the log may grow for its messages, if it grows for those of others.
    fn local_publisher(
        &mut self,
        tables: &Tables,
        topic: &TopicName,
        grows: bool,
        wake: Wake,
    ) -> Option<LocalPublisher> {
        let out_bid = self.members.find(topic)?;
        if !tables.has(topic) {
            return None;
        }
        let present = tables.info(out_bid)?.max_delivery_bytes;
        let largest = match grows && log_grows(tables, topic) {
            true => present.max(largest_run_bytes(&tables.settings)),
            false => present,
        };
        let max_bytes = largest.saturating_sub(RUN_HEADER_BYTES as u64);
        let epoch = Epoch(random().ok()?);
        let number = self.members.join_local(out_bid)?;
        let topic = self.members.topic(out_bid)?;
        let join = |ring| Arrivals::join(topic, number, Source::Local(ring), 0);
        Some(LocalPublisher::new(usize::try_from(max_bytes).unwrap_or(usize::MAX), epoch, wake, join))
    }

    /// Handles an event of a publisher's rIn. Returns false if the buffer is not a merged one.
    pub(crate) fn on_event(
        &mut self,
        tables: &mut Tables,
        key: SessionKey,
        event: &InEvent,
        fx: &mut Effects,
    ) -> bool {
        let bid = match event {
            InEvent::Subscribed { bid, .. }
            | InEvent::Closed { bid, .. }
            | InEvent::Gone { bid, .. }
            | InEvent::Restarted { bid, .. }
            | InEvent::Refused { bid, .. } => *bid,
            _ => return false,
        };
        let Some(member) = self.members.get_mut(key, bid) else { return false };
        let (stage, out_bid, number) = (member.stage, member.out_bid, member.number);
        match event {
            InEvent::Subscribed { epoch, .. } => {
                member.epoch = Some(*epoch);
                if stage == Stage::Opening {
                    debug!("buffer {out_bid}: publisher {number} is up");
                    self.members.set_stage(key, bid, Stage::Live, None);
                    self.answer_created(tables, key, bid, out_bid, fx);
                }
            }
            // What is not merged goes to another broker.
            _ if matches!(stage, Stage::Moving | Stage::Gone(_)) => {}
            InEvent::Closed { end, .. } if stage.is_active() => {
                self.members.set_stage(key, bid, Stage::Closing(*end), None);
                self.finish(out_bid, number);
            }
            InEvent::Gone { .. } if stage.is_active() => self.begin_leaving(key, bid),
            // A log that begins differs from no log. A log that was resumed must be the same.
            InEvent::Restarted { .. } if stage != Stage::Opening => {
                let refused = Refused::new(RefuseCode::Internal, "the publisher has another log now");
                self.refuse(tables, key, bid, refused, fx);
            }
            InEvent::Refused { error, .. } => self.refuse(tables, key, bid, not_accepted(error), fx),
            _ => {}
        }
        true
    }

    /// The topics of a publisher's active buffers, by their ids at the publisher.
    pub(crate) fn topics_of(&self, tables: &Tables, key: SessionKey) -> Vec<(Bid, TopicName)> {
        let active = |bid: Bid| {
            let member = self.members.get(key, bid).filter(|member| member.stage.is_active())?;
            Some((bid, self.members.name(member.out_bid)?.clone()))
        };
        merged_bids(tables, key).into_iter().filter_map(active).collect()
    }

    /// The user of a publisher may not publish the topic of a buffer any more.
    pub(crate) fn revoke(
        &mut self,
        tables: &mut Tables,
        key: SessionKey,
        bid: Bid,
        refused: Refused,
        fx: &mut Effects,
    ) {
        let Refused { code, reason } = refused;
        info!("a publisher of a merged topic is removed: {reason}");
        tables.counters.refused(Refusal::Buffer(code));
        fx.push(Effect::Answer { key, message: Control::Refused { bid, code, reason } });
        self.forget(tables, key, bid, fx);
    }

    /// Reports to a publisher that its buffer is accepted, how large its deliveries may be, and the number of subscribers.
    pub(super) fn answer_created(
        &self,
        tables: &Tables,
        key: SessionKey,
        bid: Bid,
        out_bid: Bid,
        fx: &mut Effects,
    ) {
        let session = tables.sessions.get(key).filter(|session| session.conn.peer_grows());
        if let Some(session) = session
            && self.members.name(out_bid).is_some_and(|topic| log_grows(tables, topic))
        {
            let quota = tables.admission.most_ring_bytes(session.conn.id());
            let present = tables.settings.merge_publisher_ring_bytes;
            let max_delivery_bytes = largest_merged_delivery_bytes(&tables.settings, present, quota);
            fx.push(Effect::Answer { key, message: Control::Largest { bid, max_delivery_bytes } });
        }
        fx.push(Effect::Answer { key, message: Control::Created { bid } });
        // The publisher gets the number that all publishers got last. A newer number would hide a change back to the last one.
        fx.push(Effect::CountSubscribers(out_bid));
        fx.push(Effect::ReportMergedCount { key, bid, out_bid });
    }

    fn refuse(&mut self, tables: &mut Tables, key: SessionKey, bid: Bid, refused: Refused, fx: &mut Effects) {
        let Refused { code, reason } = refused;
        warn!("the broker cannot receive a buffer of a merged topic from its publisher: {reason}");
        let reason = format!("the broker cannot receive the buffer: {reason}");
        tables.counters.refused(Refusal::Buffer(code));
        fx.push(Effect::Answer { key, message: Control::Refused { bid, code, reason } });
        self.forget(tables, key, bid, fx);
    }

    /// A publisher is disconnected. Its buffers wait for the linger time.
    pub(crate) fn disconnected(&mut self, tables: &mut Tables, key: SessionKey) {
        self.leave(tables, key, None);
        self.forget_waiting(tables, key);
        for in_bid in merged_bids(tables, key) {
            let Some(member) = self.members.get(key, in_bid) else { continue };
            if matches!(member.stage, Stage::Opening | Stage::Live) {
                let until = Instant::now() + self.linger(tables, member.out_bid);
                self.members.set_stage(key, in_bid, Stage::Away, Some(until));
            }
        }
    }

    /// A publisher is connected again. The framework resumes its subscriptions.
    pub(crate) fn reconnected(&mut self, tables: &Tables, key: SessionKey) {
        for in_bid in merged_bids(tables, key) {
            let Some(member) = self.members.get(key, in_bid) else { continue };
            let (stage, out_bid, number) = (member.stage, member.out_bid, member.number);
            let opened = member.epoch.is_some();
            if stage == Stage::Leaving
                && let Some(topic) = self.members.topic(out_bid)
            {
                topic.resume(number);
            }
            if matches!(stage, Stage::Leaving | Stage::Away) {
                let stage = if opened { Stage::Live } else { Stage::Opening };
                self.members.set_stage(key, in_bid, stage, None);
            }
        }
    }

    /// Whether a buffer of a publisher is merged.
    pub(crate) fn is_publisher(&self, key: SessionKey, bid: Bid) -> bool {
        self.members.get(key, bid).is_some_and(|member| !matches!(member.stage, Stage::Gone(_)))
    }

    /// Whether a publisher has data that is, or may be, still to be merged.
    pub(crate) fn is_publishing(&self, tables: &Tables, key: SessionKey) -> bool {
        let active = |bid| self.members.get(key, bid).is_some_and(|member| member.stage.is_active());
        merged_bids(tables, key).into_iter().any(active)
    }

    fn linger(&self, tables: &Tables, out_bid: Bid) -> Duration {
        let rule = self.members.name(out_bid).map(|topic| tables.settings.topics.of(topic));
        let configured = tables.out.context().config().session.linger_ms;
        Duration::from_millis(rule.and_then(|rule| rule.linger_ms).unwrap_or(configured).into())
    }

    /// Handles everything that is due by now.
    pub(crate) fn expire(&mut self, tables: &Tables, now: Instant, fx: &mut Effects) {
        self.leave_told(tables, fx);
        while let Some(due) = self.members.take_due(now) {
            match due {
                Due::Topic(out_bid) => fx.push(Effect::Remove(out_bid)),
                Due::Member(key, in_bid) => match self.members.get(key, in_bid).map(|member| member.stage) {
                    Some(Stage::Away) => self.begin_leaving(key, in_bid),
                    Some(Stage::Ended(_)) => self.forget(tables, key, in_bid, fx),
                    _ => {}
                },
            }
        }
    }

    /// A publisher was disconnected for too long. Its complete deliveries are still merged.
    fn begin_leaving(&mut self, key: SessionKey, in_bid: Bid) {
        let Some(member) = self.members.get(key, in_bid) else { return };
        let (out_bid, number) = (member.out_bid, member.number);
        self.members.set_stage(key, in_bid, Stage::Leaving, None);
        self.finish(out_bid, number);
    }

    fn finish(&self, out_bid: Bid, number: u32) {
        if let Some(topic) = self.members.topic(out_bid) {
            topic.finish(number);
        }
    }

    /// The next bytes of a publisher do not go into the topic's log.
    pub(crate) fn on_too_large(&mut self, tables: &mut Tables, out_bid: Bid, number: u32, fx: &mut Effects) {
        let Some((key, bid)) = self.members.member(out_bid, number) else { return };
        let max = tables.settings.max_message_bytes;
        let reason = format!(
            "a message is too large for the topic's ring, or there is no memory for it: see broker.max_message_bytes ({max}), \
             broker.max_ring_bytes and buffers.max_ring_bytes of the broker, and its log"
        );
        self.refuse(tables, key, bid, Refused::new(RefuseCode::Size, reason), fx);
    }

    /// All data of a publisher was merged, and no more follows.
    pub(crate) fn on_merged(
        &mut self,
        tables: &Tables,
        out_bid: Bid,
        number: u32,
        position: Position,
        fx: &mut Effects,
    ) {
        let until = Instant::now() + tables.settings.closed_linger();
        let Some((key, bid)) = self.members.member(out_bid, number) else {
            // A publisher of this process has left, and all it left behind is merged.
            self.members.topic(out_bid).into_iter().for_each(|topic| topic.remove(number));
            if self.members.local_left(out_bid, number) {
                self.members.set_topic_due(out_bid, Some(until));
            }
            return;
        };
        let Some(member) = self.members.get(key, bid) else { return };
        let last = match member.stage {
            Stage::Closing(end) => {
                debug!("buffer {out_bid}: publisher {number} closed its log at {end}");
                fx.push(Effect::Answer { key, message: Control::Ended { bid, end } });
                // When everything is consumed, the subscription ends and the publisher can free its ring.
                if let Some(session) = tables.sessions.get(key) {
                    session.merged.ask(bid, end);
                }
                self.members.set_stage(key, bid, Stage::Ended(end), Some(until))
            }
            Stage::Leaving => {
                info!("buffer {out_bid}: publisher {number} is gone; its log was merged up to {position}");
                release(tables, key, bid);
                if let Some(topic) = self.members.topic(out_bid) {
                    topic.remove(number);
                }
                self.members.set_stage(key, bid, Stage::Gone(position), None)
            }
            // The publisher is connected again. The next arrival continues the merging.
            _ => return,
        };
        if last {
            self.members.set_topic_due(out_bid, Some(until));
        }
        fx.push(Effect::ReleaseSession(key));
    }

    /// Forgets the buffer of a publisher. If it was the last active publisher, the topic ends after `closed_linger_ms`.
    pub(super) fn forget(&mut self, tables: &Tables, key: SessionKey, in_bid: Bid, fx: &mut Effects) {
        let Some(member) = self.members.get(key, in_bid) else { return };
        let (out_bid, number) = (member.out_bid, member.number);
        if let Some(topic) = self.members.topic(out_bid) {
            topic.remove(number);
        }
        // The removal may overtake the stop of one that moves, which is not answered then.
        self.moving.stopping.remove(&(out_bid, number));
        release(tables, key, in_bid);
        if self.members.remove(key, in_bid) {
            let until = Instant::now() + tables.settings.closed_linger();
            self.members.set_topic_due(out_bid, Some(until));
        }
        fx.push(Effect::ReleaseSession(key));
    }

    /// The buffer of a merged topic is removed, with its ring and its publishers.
    pub(crate) fn removed(&mut self, tables: &Tables, out_bid: Bid, fx: &mut Effects) {
        let members = self.members.members(out_bid);
        for (key, in_bid) in &members {
            release(tables, *key, *in_bid);
        }
        self.moving.stopping.retain(|(of, _)| *of != out_bid);
        if let Some(topic) = self.members.remove_topic(out_bid) {
            self.index.remove(out_bid);
            self.keeper.closed(out_bid);
            topic.close();
        }
        fx.extend(members.into_iter().map(|(key, _)| Effect::ReleaseSession(key)));
    }

    /// The broker stops. All merged topics are closed. The publishers keep the broker's places for the next one.
    pub(crate) fn close(&mut self) {
        for out_bid in self.members.all() {
            if let Some(topic) = self.members.remove_topic(out_bid) {
                self.index.remove(out_bid);
                topic.close();
            }
        }
    }

    /// Reports the number of a topic's subscribers to its publishers.
    pub(crate) fn report_count(&self, tables: &mut Tables, out_bid: Bid, count: u32) {
        for (key, bid) in self.members.members(out_bid) {
            if self.members.get(key, bid).is_some_and(|member| member.stage == Stage::Live) {
                tables.sessions.notify_count(key, bid, count);
            }
        }
    }
}

/// Whether the ring of a merged topic grows, and those of its publishers. That of a space is mapped by the gateways, and an archive has its own limits.
pub(super) fn log_grows(tables: &Tables, topic: &TopicName) -> bool {
    let has_archive = tables.settings.topics.of(topic).archive().is_some();
    tables.logs_grow() && !Space::is_reserved(topic) && !has_archive
}

fn merged_bids(tables: &Tables, key: SessionKey) -> Vec<Bid> {
    tables.sessions.get(key).map_or_else(Vec::new, |session| session.merged.bids())
}

pub(super) fn release(tables: &Tables, key: SessionKey, in_bid: Bid) {
    tables.admission.member_left(key, in_bid);
    if let Some(session) = tables.sessions.get(key) {
        session.rin.unsubscribe(in_bid);
        session.merged.remove(in_bid);
    }
}
