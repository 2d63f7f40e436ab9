//! The publishers of merged topics: their requests, and their states.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rbmq_wire::{Control, Framing, RUN_HEADER_BYTES, RefuseCode, Space, TopicName};
use rocketbufs::{
    Bid, BlockTimeout, BufferOptions, ConfirmMode, Epoch, InEvent, Policy, Position, Start, SubscribeOptions,
};
use tracing::{debug, info, warn};

use super::super::counters::Refusal;
use super::super::descriptors::have_room_for_kept_topic;
use super::super::effects::{Effect, Effects};
use super::super::kept::{Archived, KeepError, Keeper, Recovered, Store, StoreOptions};
use super::super::limits::{Refused, merge_ring_bytes, no_buffer, not_accepted, not_subscribed, over_quota};
use super::super::rules::Rule;
use super::super::session_key::{SessionKey, SourceBuffer};
use super::super::tables::{BROKER_SLOT_HOLD, BROKER_SLOT_NAME, Create, Tables};
use super::super::topics::{Buffer, Stage as BufferStage};
use super::index::{Arrivals, MergeIndex};
use super::local::{LocalPublisher, Wake};
use super::log::{PublisherRing, Source};
use super::members::{Due, Members, Stage, TooManyMembers};
use super::topic::MergedTopic;

/// The merged topics of the broker.
pub(crate) struct MergedTopics {
    members: Members,
    index: MergeIndex,
    keeper: Keeper,
}

impl MergedTopics {
    /// Without topics. The workers find the topics by `index`.
    pub(crate) fn new(index: MergeIndex, keeper: Keeper) -> Self {
        Self { members: Members::default(), index, keeper }
    }

    /// Opens the topics that an earlier broker has kept.
    ///
    /// # Errors
    /// Another process has one of them open.
    pub(crate) fn open_kept(&mut self, tables: &mut Tables, fx: &mut Effects) -> Result<(), KeepError> {
        let stored = self.keeper.stored_topics()?;
        let (kept, others): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|topic| tables.settings.topics.of(topic).keep);
        others.iter().for_each(|topic| info!("topic '{topic}' is on the disk, and no rule keeps it now"));
        for (n, topic) in kept.iter().enumerate() {
            if let Err(too_few) = have_room_for_kept_topic() {
                let (left, all) = (&kept[n..], kept.len());
                warn!("{} of {all} kept topics are not available, from '{topic}' on: {too_few}", left.len());
                left.iter().for_each(|topic| self.keeper.failed(topic));
                break;
            }
            if let Err(Refused { reason, .. }) = self.open_topic(tables, topic, fx) {
                warn!("topic '{topic}' is not available: {reason}");
                self.keeper.failed(topic);
            }
        }
        Ok(())
    }

    /// Opens the logs of spaces that are not open yet, so that subscribers find them.
    pub(crate) fn open_spaces(&mut self, tables: &mut Tables, fx: &mut Effects) {
        let spaces: Vec<Space> = tables.settings.topics.spaces().collect();
        for space in &spaces {
            if self.members.find(space.log()).is_none()
                && let Err(Refused { reason, .. }) = self.open_topic(tables, space.log(), fx)
            {
                // The next publisher tries again.
                warn!("the log of the space '{}' is not available: {reason}", space.pattern());
            }
        }
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
        self.members.next_due()
    }

    /// Whether a CREATE is for a merged topic.
    pub(crate) fn is_responsible(&self, tables: &Tables, key: SessionKey, create: &Create) -> bool {
        let spliced = tables.sessions.get(key).is_some_and(|s| s.mapping.get(create.bid).is_some());
        let rule = tables.settings.topics.of(&create.topic);
        self.members.get(key, create.bid).is_some()
            || (!spliced && (rule.merges() || self.is_kept(&create.topic)))
    }

    /// Handles the CREATE of a buffer of a merged topic, for the first time or repeated.
    pub(crate) fn create(
        &mut self,
        tables: &mut Tables,
        key: SessionKey,
        create: &Create,
        fx: &mut Effects,
    ) -> Result<(), Refused> {
        let Some(member) = self.members.get(key, create.bid) else {
            return self.open(tables, key, create, None, fx);
        };
        let (out_bid, stage, bid) = (member.out_bid, member.stage, create.bid);
        if self.members.name(out_bid) != Some(&create.topic) {
            let topic = self.members.name(out_bid).map_or("", TopicName::as_str);
            let reason = format!("buffer {bid} of this publisher already belongs to topic '{topic}'");
            return Err(Refused::new(RefuseCode::BidInUse, reason));
        }
        match stage {
            // The answer follows when the publisher's framework has answered.
            Stage::Opening => {}
            Stage::Live | Stage::Away | Stage::Closing(_) | Stage::Leaving => {
                answer_created(key, bid, out_bid, fx);
            }
            Stage::Ended(end) => {
                answer_created(key, bid, out_bid, fx);
                fx.push(Effect::Answer { key, message: Control::Ended { bid, end } });
            }
            Stage::Gone(at) => return self.open(tables, key, create, Some(at), fx),
        }
        Ok(())
    }

    /// Accepts the buffer of a publisher. `merged_to`: the publisher was here before, and its log was merged to this position.
    fn open(
        &mut self,
        tables: &mut Tables,
        key: SessionKey,
        create: &Create,
        merged_to: Option<Position>,
        fx: &mut Effects,
    ) -> Result<(), Refused> {
        check(tables, key, create)?;
        if let Some(out_bid) = self.members.find(&create.topic) {
            return self.open_in(tables, out_bid, key, create, merged_to, fx);
        }
        let out_bid = self.open_topic(tables, &create.topic, fx)?;
        // A topic is removed after its last publisher. A topic that never had a publisher would stay for ever.
        let opened = self.open_in(tables, out_bid, key, create, merged_to, fx);
        opened.inspect_err(|_| {
            if !self.keeper.is_kept(&create.topic) && !Space::is_reserved(&create.topic) {
                fx.push(Effect::Remove(out_bid));
            }
        })
    }

    fn open_in(
        &mut self,
        tables: &mut Tables,
        out_bid: Bid,
        key: SessionKey,
        create: &Create,
        merged_to: Option<Position>,
        fx: &mut Effects,
    ) -> Result<(), Refused> {
        let in_bid = create.bid;
        let merged_delivery = tables.info(out_bid).map_or(0, |info| info.max_delivery_bytes);
        let size_bytes = merge_ring_bytes(create.max_delivery_bytes, merged_delivery, &tables.settings)?;
        let conn = tables.sessions.get(key).map_or(0, |session| session.conn.id());
        let charge = tables.admission.charge_buffer(conn, size_bytes).map_err(over_quota)?;
        let known = self.members.get(key, in_bid).map(|member| (member.number, member.epoch));
        let number = match known {
            Some((number, _)) => {
                self.members.set_stage(key, in_bid, Stage::Opening, None);
                number
            }
            None => {
                let max = tables.settings.merge_max_publishers;
                self.members.add(out_bid, key, in_bid, max).map_err(|TooManyMembers { open }| {
                    let reason = format!(
                        "topic '{}' has {open} publishers; the limit (broker.merge_max_publishers) is {max}",
                        create.topic
                    );
                    Refused::new(RefuseCode::Limit, reason)
                })?
            }
        };
        let start = start_at(known.and_then(|(_, epoch)| epoch), merged_to);
        let (Some(session), Some(topic)) = (tables.sessions.get(key), self.members.topic(out_bid)) else {
            return Ok(());
        };
        if let (Some(position), true) = (merged_to, self.keeper.is_kept(&create.topic)) {
            // Before the broker subscribes there: the publisher must not take that for a loss.
            session.answer(&Control::Stored { bid: in_bid, position, synced: 0 });
        }
        let ring = Source::Ring(PublisherRing { rin: session.rin.clone(), bid: in_bid, key });
        let arrivals = Arrivals::join(topic, number, ring, merged_to.unwrap_or(0));
        session.merged.insert(in_bid, arrivals);
        tables.admission.keep_member(key, in_bid, charge);
        let subscribed = session.rin.subscribe_with(in_bid, options(size_bytes, start));
        subscribed.map(drop).map_err(|error| {
            self.forget(tables, key, in_bid, fx);
            not_subscribed(error)
        })
    }

    /// A publisher of this process into the log of a space. None: the log is not open, or is kept on disk, where only the log's own thread writes.
    pub(crate) fn local_publisher(
        &mut self,
        tables: &Tables,
        log: &TopicName,
        wake: Wake,
    ) -> Option<LocalPublisher> {
        let out_bid = self.members.find(log).filter(|_| !self.keeper.is_kept(log))?;
        let max_bytes = tables.info(out_bid)?.max_delivery_bytes.saturating_sub(RUN_HEADER_BYTES as u64);
        let number = self.members.take_number(out_bid)?;
        let topic = self.members.topic(out_bid)?;
        let join = |ring| Arrivals::join(topic, number, Source::Local(ring), 0);
        Some(LocalPublisher::new(usize::try_from(max_bytes).unwrap_or(usize::MAX), wake, join))
    }

    /// Makes a merged topic: its ring, and its buffer for subscribers.
    fn open_topic(
        &mut self,
        tables: &mut Tables,
        topic: &TopicName,
        fx: &mut Effects,
    ) -> Result<Bid, Refused> {
        let rule = tables.settings.topics.of(topic);
        let size_bytes = rule.ring_bytes.unwrap_or(tables.settings.merge_ring_bytes);
        let retain_bytes = Some(tables.retained_bytes(rule, size_bytes));
        let (limits, archived) = (rule.limits(), rule.kafka);
        let keeps = rule.keep.then(|| store_options(tables, rule, size_bytes));
        let buffer = Buffer::opening(topic.clone(), SourceBuffer::BROKER, Framing::Merged, 0);
        let out_bid =
            tables.add_buffer(Buffer { stage: BufferStage::Live, kept: keeps.is_some(), ..buffer })?;
        let mut options = BufferOptions::new().size_bytes(size_bytes).retain_bytes(retain_bytes);
        // The gateways receive the logs of all spaces.
        options = options.mapped_locally(Space::is_reserved(topic));
        let kept = keeps.map(|keeps| self.keeper.open(topic, &keeps)).transpose();
        let kept = kept.map_err(|error| {
            fx.push(Effect::Remove(out_bid));
            Refused::new(
                RefuseCode::Internal,
                format!("what is kept of topic '{topic}' cannot be opened: {error}"),
            )
        })?;
        if let Some((_, recovered)) = &kept {
            options = options.start(recovered.last.0).epoch(Some(recovered.epoch));
        }
        let made = tables.out.create_buffer_with(out_bid, options).and_then(|made| {
            made.set_limits(limits);
            made.writer()
        });
        let mut writer = made.map_err(|error| {
            fx.push(Effect::Remove(out_bid));
            no_buffer(error)
        })?;
        let limit = tables.settings.merge_table_entries;
        let (store, recovered) = kept.unzip();
        if let Some(Recovered { last: (_, last), .. }) = &recovered
            && !last.is_empty()
        {
            // The ring is new and larger than this.
            let _ = writer.append(&[last]);
        }
        let reader = store.as_ref().map(Store::reader);
        let store = store.map(|store| (store, self.keeper.scribe().clone()));
        let merged = MergedTopic::new(writer, limit, &tables.events, store);
        self.index.insert(out_bid, &merged);
        self.members.insert(out_bid, topic.clone(), merged);
        if let (Some(recovered), Some(reader)) = (recovered, reader) {
            self.members.restore(out_bid, recovered.places, recovered.next_number);
            self.keeper.opened(topic, out_bid, reader, archived);
        }
        if let (Some(info), Some(buffer)) = (tables.info(out_bid), tables.topics.get_mut(out_bid)) {
            buffer.epoch = Some(info.epoch);
            buffer.max_delivery_bytes = info.max_delivery_bytes;
        }
        info!("topic '{topic}': its publishers are merged into buffer {out_bid}");
        fx.push(Effect::AnnounceNew(out_bid));
        Ok(out_bid)
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
                    answer_created(key, bid, out_bid, fx);
                }
            }
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

    fn refuse(&mut self, tables: &mut Tables, key: SessionKey, bid: Bid, refused: Refused, fx: &mut Effects) {
        let Refused { code, reason } = refused;
        warn!("the broker cannot receive a buffer of a merged topic from its publisher: {reason}");
        let reason = format!("the broker cannot receive the buffer: {reason}");
        tables.counters.refused(Refusal::Buffer(code));
        fx.push(Effect::Answer { key, message: Control::Refused { bid, code, reason } });
        self.forget(tables, key, bid, fx);
    }

    /// A publisher is disconnected. Its buffers wait for the linger time.
    pub(crate) fn disconnected(&mut self, tables: &Tables, key: SessionKey) {
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

    /// All data of a publisher was merged, and no more follows.
    pub(crate) fn on_merged(
        &mut self,
        tables: &Tables,
        out_bid: Bid,
        number: u32,
        position: Position,
        fx: &mut Effects,
    ) {
        let Some((key, bid)) = self.members.member(out_bid, number) else {
            // A publisher of this process has left, and all it left behind is merged.
            return self.members.topic(out_bid).into_iter().for_each(|topic| topic.remove(number));
        };
        let Some(member) = self.members.get(key, bid) else { return };
        let until = Instant::now() + tables.settings.closed_linger();
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
    fn forget(&mut self, tables: &Tables, key: SessionKey, in_bid: Bid, fx: &mut Effects) {
        let Some(member) = self.members.get(key, in_bid) else { return };
        let (out_bid, number) = (member.out_bid, member.number);
        if let Some(topic) = self.members.topic(out_bid) {
            topic.remove(number);
        }
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

/// The options of a topic's store on the disk.
fn store_options(tables: &Tables, rule: &Rule, size_bytes: u64) -> StoreOptions {
    StoreOptions {
        // Several of the largest deliveries.
        max_bytes: Some(rule.keep_bytes().max(size_bytes)),
        max_age: rule.keep_age(),
        sync: tables.settings.keep_sync(),
        max_delivery: size_bytes,
        max_publishers: tables.settings.merge_max_publishers,
    }
}

/// Reports to a publisher that its buffer is accepted, and the number of subscribers.
fn answer_created(key: SessionKey, bid: Bid, out_bid: Bid, fx: &mut Effects) {
    fx.push(Effect::Answer { key, message: Control::Created { bid } });
    // The publisher gets the number that all publishers got last. A newer number would hide a change back to the last one.
    fx.push(Effect::CountSubscribers(out_bid));
    fx.push(Effect::ReportMergedCount { key, bid, out_bid });
}

fn merged_bids(tables: &Tables, key: SessionKey) -> Vec<Bid> {
    tables.sessions.get(key).map_or_else(Vec::new, |session| session.merged.bids())
}

fn release(tables: &Tables, key: SessionKey, in_bid: Bid) {
    tables.admission.member_left(key, in_bid);
    if let Some(session) = tables.sessions.get(key) {
        session.rin.unsubscribe(in_bid);
        session.merged.remove(in_bid);
    }
}

/// Refuses buffers that cannot be merged.
fn check(tables: &Tables, key: SessionKey, create: &Create) -> Result<(), Refused> {
    check_form(create)?;
    tables.sessions.get(key).map_or(Ok(()), |session| tables.check_buffers(session))
}

/// Refuses buffers whose bytes cannot be merged.
pub(crate) fn check_form(create: &Create) -> Result<(), Refused> {
    if create.framing != Framing::Records {
        let reason = format!(
            "topic '{}' is merged (broker.topics, ingest = \"merge\", keep or space = true): its publishers must write records, not \
             {} bytes",
            create.topic, create.framing
        );
        return Err(Refused::new(RefuseCode::Invalid, reason));
    }
    if create.min_subscribers > 0 {
        let reason = format!(
            "topic '{}' is merged (broker.topics, ingest = \"merge\", keep or space = true): the broker writes the merged log, which ends with the \
             broker and keeps nothing for absent subscribers; publish without min_subscribers",
            create.topic
        );
        return Err(Refused::new(RefuseCode::Invalid, reason));
    }
    Ok(())
}

/// Where the log of a publisher begins for the broker, which knows its epoch, and merged it to a position, if it was here before.
fn start_at(epoch: Option<Epoch>, merged_to: Option<Position>) -> Start {
    match (epoch, merged_to) {
        (Some(epoch), Some(at)) => Start::Position(epoch, at),
        // All records that the publisher still has. For a restarted broker this begins at the position that the
        // publisher kept, because a merged log doesn't tell what the old broker had delivered. A publisher that keeps
        // records until they are delivered sends all undelivered ones.
        _ => Start::Oldest,
    }
}

/// The options of a subscription to a publisher's buffer.
fn options(size_bytes: u64, start: Start) -> SubscribeOptions {
    SubscribeOptions::new()
        .size_bytes(size_bytes)
        .start(start)
        .policy(Policy::Block)
        // A slow subscriber is handled at this broker, not by the publisher.
        .block_timeout(BlockTimeout::Never)
        .durable(BROKER_SLOT_NAME.to_vec(), BROKER_SLOT_HOLD)
        // The subscribers of the merged log decide what is delivered and consumed.
        .confirm(ConfirmMode::Relayed)
        // The merger reads the ring as plain bytes, and chooses its size.
        .own_memory(true)
}
