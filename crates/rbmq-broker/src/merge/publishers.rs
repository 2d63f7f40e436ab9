//! What publishers of merged topics ask for, and what becomes of them.

use std::time::{Duration, Instant};

use rbmq_wire::{Control, Framing, RUN_HEADER_BYTES, RefuseCode, TopicName};
use rocketbufs::{
    Bid, BlockTimeout, BufferOptions, ConfirmMode, InEvent, Policy, Position, Start, SubscribeOptions,
};
use tracing::{debug, info, warn};

use super::super::control::{Broker, send};
use super::super::ledger::Refusal as Counted;
use super::super::publishers::{
    Create, PLACE_HOLD, PLACE_NAME, Refused as Refusal, no_buffer, not_had, not_subscribed,
};
use super::super::rules::Ingest;
use super::super::session::SessionKey;
use super::super::topics::{Buffer, Stage as BufferStage, TooManyTopics};
use super::feeds::{Due, Stage, TooManyFeeds};
use super::{RingOf, TopicMerge};

impl Broker {
    /// Whether CREATE names a buffer that is merged, or is to be.
    pub(crate) fn is_for_merge(&self, key: SessionKey, create: &Create) -> bool {
        let spliced = self.sessions.get(&key).is_some_and(|s| s.mapping.get(create.bid).is_some());
        self.merges.feed(key, create.bid).is_some()
            || (!spliced && self.settings.topics.of(&create.topic).ingest == Ingest::Merge)
    }

    /// CREATE of a buffer of a merged topic, for the first time or again.
    pub(crate) fn on_create_merged(&mut self, key: SessionKey, create: &Create) -> Result<(), Refusal> {
        if let Some(feed) = self.merges.feed(key, create.bid) {
            let (out_bid, stage) = (feed.out_bid, feed.stage);
            if self.merges.name(out_bid) != Some(&create.topic) {
                let topic = self.merges.name(out_bid).map_or("", TopicName::as_str);
                let reason =
                    format!("buffer {} of this publisher already belongs to topic '{topic}'", create.bid);
                return Err((RefuseCode::BidInUse, reason));
            }
            match stage {
                // Answered when the publisher's framework has answered.
                Stage::Opening => {}
                Stage::Live | Stage::Away | Stage::Closing(_) | Stage::Leaving => {
                    self.tell_created(key, create.bid);
                }
                Stage::Ended(end) => {
                    self.tell_created(key, create.bid);
                    self.tell_feed(key, &Control::Ended { bid: create.bid, end });
                }
                Stage::Gone(at) => return self.open_feed(key, create, Some(at)),
            }
            return Ok(());
        }
        self.open_feed(key, create, None)
    }

    /// Takes a publisher's buffer. `gone_at`: it was here before, and everything below was moved then.
    fn open_feed(
        &mut self,
        key: SessionKey,
        create: &Create,
        gone_at: Option<Position>,
    ) -> Result<(), Refusal> {
        self.check_feed(key, create)?;
        if let Some(out_bid) = self.merges.find(&create.topic) {
            return self.open_feed_in(out_bid, key, create, gone_at);
        }
        let out_bid = self.open_merge(&create.topic)?;
        // A topic goes when its last publisher has left: one that never had any would stay for ever.
        self.open_feed_in(out_bid, key, create, gone_at).inspect_err(|_| self.remove_buffer(out_bid))
    }

    fn open_feed_in(
        &mut self,
        out_bid: Bid,
        key: SessionKey,
        create: &Create,
        gone_at: Option<Position>,
    ) -> Result<(), Refusal> {
        let in_bid = create.bid;
        let size_bytes = self.feed_ring_bytes(out_bid, create.max_delivery_bytes)?;
        let known = self.merges.feed(key, in_bid).map(|feed| (feed.number, feed.epoch));
        let number = match known {
            Some((number, _)) => {
                self.merges.set_stage(key, in_bid, Stage::Opening, None);
                number
            }
            None => {
                let max = self.settings.merge_max_publishers;
                self.merges.add(out_bid, (key, in_bid), max).map_err(|TooManyFeeds { open }| {
                    let reason = format!(
                        "topic '{}' has {open} publishers; the limit (broker.merge_max_publishers) is {max}",
                        create.topic
                    );
                    (RefuseCode::Limit, reason)
                })?
            }
        };
        let start = match (known.and_then(|(_, epoch)| epoch), gone_at) {
            (Some(epoch), Some(at)) => Start::Position(epoch, at),
            // Everything that it still has; but for a broker that was restarted that begins at the kept place, as nobody can
            // tell from a merged log what went out before: with one that keeps until then, what was not delivered.
            _ => Start::Oldest,
        };
        let (Some(session), Some(merge)) = (self.sessions.get(&key), self.merges.merge(out_bid)) else {
            return Ok(());
        };
        let arrivals =
            merge.join(number, RingOf { rin: session.rin.clone(), bid: in_bid }, gone_at.unwrap_or(0));
        session.merged.insert(in_bid, arrivals);
        let options = feed_options(size_bytes, start);
        session.rin.subscribe_with(in_bid, options).map_err(|error| {
            self.drop_feed(key, in_bid);
            not_subscribed(error)
        })
    }

    fn check_feed(&self, key: SessionKey, create: &Create) -> Result<(), Refusal> {
        if create.framing != Framing::Records {
            let reason = format!(
                "topic '{}' is merged here (broker.topics, ingest = \"merge\"): its publishers must write records, \
                 not {} bytes",
                create.topic, create.framing
            );
            return Err((RefuseCode::Invalid, reason));
        }
        if create.min_subscribers > 0 {
            let reason = format!(
                "topic '{}' is merged here (broker.topics, ingest = \"merge\"): the merged log is the broker's own and ends \
                 with it, so it keeps nothing for subscribers that are not there; publish without min_subscribers",
                create.topic
            );
            return Err((RefuseCode::Invalid, reason));
        }
        self.check_buffers(key)
    }

    /// The ring in which a publisher's bytes arrive: small, but with room for two of its deliveries; and all that is in
    /// it must fit into one delivery of the merged log.
    fn feed_ring_bytes(&self, out_bid: Bid, max_delivery: u64) -> Result<u64, Refusal> {
        let merged = self.out.buffer_info(out_bid).map_or(0, |info| info.max_delivery_bytes);
        // The largest power of two that leaves room for a header in a delivery, which is at most one itself.
        let most = (merged.saturating_sub(RUN_HEADER_BYTES as u64) / 2 + 1).next_power_of_two();
        let needed = max_delivery.saturating_mul(2).max(4096);
        match needed.checked_next_power_of_two() {
            Some(needed) if needed <= most => {
                let wanted = self.settings.merge_publisher_ring_bytes.next_power_of_two();
                Ok(needed.max(wanted.min(most)))
            }
            _ => Err((
                RefuseCode::Size,
                format!(
                    "deliveries of {max_delivery} bytes need a ring of {needed}; a publisher's here is at most {most}, \
                     so that it fits into a delivery of the merged topic's ring; open the topic with a smaller ring \
                     (its deliveries have at most a quarter of it), or have the topic's ring_bytes or \
                     broker.merge_ring_bytes raised"
                ),
            )),
        }
    }

    /// The ring of a merged topic, and its buffer for subscribers.
    fn open_merge(&mut self, topic: &TopicName) -> Result<Bid, Refusal> {
        let rule = self.settings.topics.of(topic);
        let size_bytes = rule.ring_bytes.unwrap_or(self.settings.merge_ring_bytes);
        let retain_bytes = Some(self.retained(rule, size_bytes));
        let terms = rule.terms();
        let buffer = Buffer::opening(topic.clone(), (SessionKey::BROKER, 0), (Framing::Merged, 0));
        let buffer = Buffer { stage: BufferStage::Live, ..buffer };
        let max = self.settings.max_topics;
        let out_bid = self.topics.add(buffer, max).map_err(|TooManyTopics { open }| {
            let reason = format!("the broker has {open} topics; its limit (broker.max_topics) is {max}");
            (RefuseCode::Limit, reason)
        })?;
        let options = BufferOptions::new().size_bytes(size_bytes).retain_bytes(retain_bytes);
        let made = self.out.create_buffer_with(out_bid, options);
        let made =
            made.and_then(|()| self.out.set_limits(out_bid, terms)).and_then(|()| self.out.writer(out_bid));
        let writer = made.map_err(|error| {
            self.remove_buffer(out_bid);
            no_buffer(error)
        })?;
        let merge =
            TopicMerge::new(&self.out, writer, out_bid, self.settings.merge_table_entries, &self.events);
        self.wakers.insert(out_bid, &merge);
        self.merges.insert(out_bid, topic.clone(), merge);
        if let (Some(info), Some(buffer)) = (self.out.buffer_info(out_bid), self.topics.get_mut(out_bid)) {
            buffer.epoch = Some(info.epoch);
            buffer.max_delivery_bytes = info.max_delivery_bytes;
        }
        info!("topic '{topic}': its publishers are merged into buffer {out_bid}");
        self.announce_new(out_bid);
        Ok(out_bid)
    }

    /// What a publisher's framework says about a buffer that is merged. False if it is not.
    pub(crate) fn on_merged_event(&mut self, key: SessionKey, event: &InEvent) -> bool {
        let bid = match event {
            InEvent::Subscribed { bid, .. }
            | InEvent::Closed { bid, .. }
            | InEvent::Gone { bid, .. }
            | InEvent::Restarted { bid, .. }
            | InEvent::Refused { bid, .. } => *bid,
            _ => return false,
        };
        let Some(feed) = self.merges.feed_mut(key, bid) else { return false };
        let (stage, out_bid, number) = (feed.stage, feed.out_bid, feed.number);
        match event {
            InEvent::Subscribed { epoch, .. } => {
                feed.epoch = Some(*epoch);
                if stage == Stage::Opening {
                    debug!("buffer {out_bid}: publisher {number} is up");
                    self.merges.set_stage(key, bid, Stage::Live, None);
                    self.tell_created(key, bid);
                }
            }
            InEvent::Closed { end, .. } if stage.is_active() => {
                self.merges.set_stage(key, bid, Stage::Closing(*end), None);
                self.last_of(out_bid, number);
            }
            InEvent::Gone { .. } if stage.is_active() => self.begin_leaving(key, bid),
            // A log that begins is always another one than that of no epoch; but one that went on must not be.
            InEvent::Restarted { .. } if stage != Stage::Opening => {
                self.refuse_feed(key, bid, (RefuseCode::Internal, "its log is another one now".into()));
            }
            InEvent::Refused { error, .. } => self.refuse_feed(key, bid, not_had(error)),
            _ => {}
        }
        true
    }

    fn refuse_feed(&mut self, key: SessionKey, in_bid: Bid, (code, reason): Refusal) {
        warn!("a buffer of a merged topic could not be had from its publisher: {reason}");
        let reason = format!("the broker could not take the buffer: {reason}");
        self.ledger.refused(Counted::Buffer(code));
        self.tell_feed(key, &Control::Refused { bid: in_bid, code, reason });
        self.drop_feed(key, in_bid);
    }

    /// A publisher's connection is lost: its merged buffers wait for it for the linger time.
    pub(crate) fn merged_away(&mut self, key: SessionKey) {
        for in_bid in self.merged_of(key) {
            let Some(feed) = self.merges.feed(key, in_bid).filter(|f| f.stage.is_active()) else { continue };
            if matches!(feed.stage, Stage::Opening | Stage::Live) {
                let until = Instant::now() + self.linger(feed.out_bid);
                self.merges.set_stage(key, in_bid, Stage::Away, Some(until));
            }
        }
    }

    /// A publisher is back on another connection; its subscriptions go on by themselves.
    pub(crate) fn merged_back(&mut self, key: SessionKey) {
        for in_bid in self.merged_of(key) {
            let Some(feed) = self.merges.feed(key, in_bid) else { continue };
            let (stage, out_bid, number, opened) =
                (feed.stage, feed.out_bid, feed.number, feed.epoch.is_some());
            if stage == Stage::Leaving
                && let Some(merge) = self.merges.merge(out_bid)
            {
                merge.stays(number);
            }
            if matches!(stage, Stage::Leaving | Stage::Away) {
                let stage = if opened { Stage::Live } else { Stage::Opening };
                self.merges.set_stage(key, in_bid, stage, None);
            }
        }
    }

    fn merged_of(&self, key: SessionKey) -> Vec<Bid> {
        self.sessions.get(&key).map_or_else(Vec::new, |session| session.merged.bids())
    }

    /// Whether something of a publisher is, or may be, still to be moved.
    pub(crate) fn publishes_merged(&self, key: SessionKey) -> bool {
        let active = |bid| self.merges.feed(key, bid).is_some_and(|feed| feed.stage.is_active());
        self.merged_of(key).into_iter().any(active)
    }

    fn linger(&self, out_bid: Bid) -> Duration {
        let rule = self.merges.name(out_bid).map(|topic| self.settings.topics.of(topic));
        let configured = self.out.context().config().session.linger_ms;
        Duration::from_millis(rule.and_then(|rule| rule.linger_ms).unwrap_or(configured).into())
    }

    /// What is due by now.
    pub(crate) fn merged_due(&mut self, now: Instant) {
        while let Some(due) = self.merges.take_due(now) {
            match due {
                Due::Topic(out_bid) => self.remove_buffer(out_bid),
                Due::Feed(key, in_bid) => match self.merges.feed(key, in_bid).map(|feed| feed.stage) {
                    Some(Stage::Away) => self.begin_leaving(key, in_bid),
                    Some(Stage::Ended(_)) => self.drop_feed(key, in_bid),
                    _ => {}
                },
            }
        }
    }

    /// A publisher was away for too long: what is complete of it still moves.
    fn begin_leaving(&mut self, key: SessionKey, in_bid: Bid) {
        let Some(feed) = self.merges.feed(key, in_bid) else { return };
        let (out_bid, number) = (feed.out_bid, feed.number);
        self.merges.set_stage(key, in_bid, Stage::Leaving, None);
        self.last_of(out_bid, number);
    }

    fn last_of(&self, out_bid: Bid, number: u32) {
        if let Some(merge) = self.merges.merge(out_bid) {
            merge.last(number);
        }
    }

    /// Everything of a publisher was moved, and nothing more comes.
    pub(crate) fn on_moved(&mut self, out_bid: Bid, number: u32, position: Position) {
        let Some((key, in_bid)) = self.merges.member(out_bid, number) else { return };
        let Some(feed) = self.merges.feed(key, in_bid) else { return };
        let linger = self.settings.closed_linger();
        let last = match feed.stage {
            Stage::Closing(end) => {
                debug!("buffer {out_bid}: publisher {number} closed at {end}");
                self.tell_feed(key, &Control::Ended { bid: in_bid, end });
                // Its subscription ends, and its ring there goes, when all of it is consumed.
                if let Some(session) = self.sessions.get(&key) {
                    session.merged.ask(in_bid, end);
                }
                self.merges.set_stage(key, in_bid, Stage::Ended(end), Some(Instant::now() + linger))
            }
            Stage::Leaving => {
                info!("buffer {out_bid}: publisher {number} is gone; its log was moved up to {position}");
                self.release_feed(key, in_bid);
                if let Some(merge) = self.merges.merge(out_bid) {
                    merge.out(number);
                }
                self.merges.set_stage(key, in_bid, Stage::Gone(position), None)
            }
            // It came back in the same moment, and is in line again when something comes.
            _ => return,
        };
        if last {
            self.merges.set_topic_due(out_bid, Some(Instant::now() + linger));
        }
        self.forget_if_idle(key);
    }

    /// Forgets a publisher's buffer; if it was the last active one, the topic ends after a while.
    fn drop_feed(&mut self, key: SessionKey, in_bid: Bid) {
        let Some(feed) = self.merges.feed(key, in_bid) else { return };
        let (out_bid, number) = (feed.out_bid, feed.number);
        if let Some(merge) = self.merges.merge(out_bid) {
            merge.out(number);
        }
        self.release_feed(key, in_bid);
        if self.merges.remove(key, in_bid) {
            self.merges.set_topic_due(out_bid, Some(Instant::now() + self.settings.closed_linger()));
        }
        self.forget_if_idle(key);
    }

    fn release_feed(&self, key: SessionKey, in_bid: Bid) {
        if let Some(session) = self.sessions.get(&key) {
            session.rin.unsubscribe(in_bid);
            session.merged.remove(in_bid);
        }
    }

    /// A merged topic's buffer is removed: lets go of its ring and of everybody who wrote into it.
    pub(crate) fn close_merge(&mut self, out_bid: Bid) {
        let members = self.merges.members(out_bid);
        for (key, in_bid) in &members {
            self.release_feed(*key, *in_bid);
        }
        if let Some(merge) = self.merges.remove_topic(out_bid) {
            self.wakers.remove(out_bid);
            merge.close();
        }
        for (key, _) in members {
            self.forget_if_idle(key);
        }
    }

    /// The broker ends.
    pub(crate) fn close_merges(&mut self) {
        for out_bid in self.merges.all() {
            self.close_merge(out_bid);
        }
    }

    /// Tells all publishers of a merged topic how many subscribers it has.
    pub(crate) fn tell_merged_subscribers(&mut self, out_bid: Bid, count: u32) {
        for (key, bid) in self.merges.members(out_bid) {
            if self.merges.feed(key, bid).is_some_and(|feed| feed.stage == Stage::Live) {
                self.tell_count(key, bid, count);
            }
        }
    }

    /// Tells a publisher that it is taken, and how many subscribers there are.
    fn tell_created(&mut self, key: SessionKey, bid: Bid) {
        let Some(feed) = self.merges.feed(key, bid) else { return };
        let out_bid = feed.out_bid;
        self.tell_feed(key, &Control::Created { bid });
        // What everybody is told last is what this one is: if it heard of a change before the event of it, it would not hear
        // of the way back.
        self.tell_subscribers(out_bid);
        let count = self.topics.get(out_bid).map_or(0, |buffer| buffer.told_subscribers);
        self.tell_count(key, bid, count);
    }

    fn tell_feed(&self, key: SessionKey, message: &Control) {
        if let Some(session) = self.sessions.get(&key) {
            send(&session.conn, message);
        }
    }
}

/// How a publisher's buffer is received.
fn feed_options(size_bytes: u64, start: Start) -> SubscribeOptions {
    SubscribeOptions::new()
        .size_bytes(size_bytes)
        .start(start)
        .policy(Policy::Block)
        // Who is slow is a subscriber behind this broker, and is dealt with here, not by the publisher.
        .block_timeout(BlockTimeout::Never)
        .durable(PLACE_NAME.to_vec(), PLACE_HOLD)
        // What is delivered and consumed is what the subscribers of the merged log say.
        .confirm(ConfirmMode::Relayed)
        // It is read as plain bytes, in rings that are as small as this broker wants them.
        .own_memory(true)
}
