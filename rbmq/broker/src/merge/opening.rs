//! How merged topics are opened, and how their publishers are accepted.

use rbmq_wire::{Control, Framing, RefuseCode, Space, TopicName, planted};
use rocketbufs::{
    Bid, BlockTimeout, BufferOptions, ConfirmMode, Epoch, Policy, Position, Start, SubscribeOptions,
};
use tracing::{info, warn};

use super::super::cluster::Owner;
use super::super::descriptors::have_room_for_kept_topic;
use super::super::effects::{Effect, Effects};
use super::super::kept::{KeepError, Recovered, Store, StoreOptions, Taken, Trail, Wanted};
use super::super::limits::{
    MergeRing, Refused, elsewhere, largest_run_bytes, merge_ring, no_buffer, not_subscribed, over_quota,
};
use super::super::rules::Rule;
use super::super::session_key::{FormerPlace, SessionKey, SourceBuffer};
use super::super::tables::{BROKER_SLOT_HOLD, BROKER_SLOT_NAME, Create, Tables};
use super::super::topics::{Buffer, Stage as BufferStage};
use super::index::Arrivals;
use super::log::{Growth, PublisherRing, Source};
use super::members::{Stage, TooManyMembers};
use super::publishers::{MergedTopics, log_grows};
use super::topic::MergedTopic;

impl MergedTopics {
    /// Opens the topics that an earlier broker has kept. Those that another member of the cluster has now are only read.
    ///
    /// # Errors
    /// Another process has one of them open.
    pub(crate) fn open_kept(&mut self, tables: &mut Tables, fx: &mut Effects) -> Result<(), KeepError> {
        let stored = self.keeper.stored_topics()?;
        let (kept, others): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|topic| tables.settings.topics.of(topic).keep);
        others.iter().for_each(|topic| info!("topic '{topic}' is on the disk, and no rule keeps it now"));
        tables.cluster.iter().for_each(|cluster| kept.iter().for_each(|topic| cluster.has_log(topic)));
        let kept = self.put_off(tables, kept);
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

    /// The topic, if it is open.
    pub(crate) fn find(&self, topic: &TopicName) -> Option<Bid> {
        self.members.find(topic)
    }

    /// Opens the logs of spaces that are not open yet, so that subscribers find them.
    pub(crate) fn open_spaces(&mut self, tables: &mut Tables, fx: &mut Effects) {
        let spaces: Vec<Space> = tables.settings.topics.spaces().collect();
        for space in &spaces {
            if self.members.find(space.log()).is_none()
                && tables.has(space.log())
                && let Err(Refused { reason, .. }) = self.open_topic(tables, space.log(), fx)
            {
                // The next publisher tries again.
                warn!("the log of the space '{}' is not available: {reason}", space.pattern());
            }
        }
    }

    /// Handles the CREATE of a buffer of a merged topic, for the first time or repeated.
    pub(crate) fn create(
        &mut self,
        tables: &mut Tables,
        key: SessionKey,
        create: &Create,
        fx: &mut Effects,
    ) -> Result<(), Refused> {
        self.leave(tables, key, Some(create.bid));
        let Some(member) = self.members.get(key, create.bid) else {
            return self.open(tables, key, create, None, fx);
        };
        let (out_bid, stage, bid, number) = (member.out_bid, member.stage, create.bid, member.number);
        if self.members.name(out_bid) != Some(&create.topic) {
            let topic = self.members.name(out_bid).map_or("", TopicName::as_str);
            let reason = format!("buffer {bid} of this publisher already belongs to topic '{topic}'");
            return Err(Refused::new(RefuseCode::BidInUse, reason));
        }
        match stage {
            // The answer follows when the publisher's framework has answered, and that of a moving one when it is known how far it is.
            Stage::Opening | Stage::Moving => {}
            Stage::Live | Stage::Away | Stage::Closing(_) | Stage::Leaving => {
                self.members.topic(out_bid).into_iter().for_each(|topic| topic.again(number));
                self.answer_created(tables, key, bid, out_bid, fx);
            }
            Stage::Ended(end) => {
                self.answer_created(tables, key, bid, out_bid, fx);
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
        // Before a place is kept for the topic.
        check(tables, key, create, self.others_waiting(key, create.bid))?;
        match tables.owner(&create.topic) {
            Owner::Here { term } if term > 1 && planted::is(planted::REDIRECT_LOOP) => {
                let others = tables.cluster.iter().flat_map(|cluster| cluster.members());
                let addresses = others.map(|other| other.addresses).next().unwrap_or_default();
                return Err(elsewhere(&addresses, &create.topic));
            }
            Owner::Here { term } if !self.is_open_in(tables, &create.topic, term) => {
                self.wait_for_owner(key, create, "until its log is here");
                return Ok(());
            }
            Owner::Here { .. } => {}
            Owner::Elsewhere { addresses } => {
                let refused = elsewhere(&addresses, &create.topic);
                if RefuseCode::addresses(&refused.reason).is_empty() {
                    self.wait_for_owner(key, create, "for the address of its owner");
                    return Ok(());
                }
                // What the disk has and the archive has not, the owner asks for again.
                if let Some(position) = merged_to.filter(|_| !tables.is_shared(&create.topic)) {
                    let stored = Control::Stored { bid: create.bid, position, synced: 0, archived: 0 };
                    fx.push(Effect::Answer { key, message: stored });
                }
                return Err(refused);
            }
            Owner::Unsettled { reason } => {
                self.wait_for_owner(key, create, &format!("for an owner: {reason}"));
                return Ok(());
            }
        }
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
        let grows = log_grows(tables, &create.topic);
        let sizes = merge_ring(create.max_delivery_bytes, merged_delivery, &tables.settings, grows)?;
        let conn = tables.sessions.get(key).map_or(0, |session| session.conn.id());
        let charge = tables.admission.charge_buffer(conn, sizes.size).map_err(over_quota)?;
        let (known, own) = (self.members.get(key, in_bid).and_then(|member| member.epoch), merged_to);
        // Another broker has what it says on its disk, and the next owner has the archive.
        let former = create.place.filter(|_| !tables.is_shared(&create.topic));
        let (epoch, merged_to) = place_of(former, known, own);
        let number = self.number_in(out_bid, key, create, tables.settings.merge_max_publishers)?;
        let start = start_at(epoch, merged_to);
        let Some(member) = self.members.get_mut(key, in_bid) else { return Ok(()) };
        if let (Some(claimed), true) = (merged_to, merged_to > own) {
            member.lacks_below = claimed;
        }
        let lacks_below = member.lacks_below;
        let (Some(session), Some(topic)) = (tables.sessions.get(key), self.members.topic(out_bid)) else {
            return Ok(());
        };
        if let (Some(position), true) = (merged_to, self.keeper.is_kept(&create.topic)) {
            // Before the broker subscribes there: the publisher must not take that for a loss.
            session.answer(&Control::Stored { bid: in_bid, position, synced: 0, archived: 0 });
        }
        let ring = Source::Ring(PublisherRing { rin: session.rin.clone(), bid: in_bid, key });
        let arrivals = Arrivals::join(topic, number, ring, merged_to.unwrap_or(0));
        if lacks_below > 0 {
            topic.lacks(number, lacks_below);
        }
        session.merged.insert(in_bid, arrivals);
        tables.admission.keep_member(key, in_bid, charge);
        let growth = tables.admission.growth_of_member(key, in_bid);
        let subscribed = session.rin.subscribe_with(in_bid, options(sizes, start).growth_check(Some(growth)));
        subscribed.map(drop).map_err(|error| {
            self.forget(tables, key, in_bid, fx);
            not_subscribed(error)
        })
    }

    /// The number of a publisher that opens a buffer: the one that it had, or a new one.
    fn number_in(
        &mut self,
        out_bid: Bid,
        key: SessionKey,
        create: &Create,
        max: usize,
    ) -> Result<u32, Refused> {
        if let Some(number) = self.members.get(key, create.bid).map(|member| member.number) {
            self.members.set_stage(key, create.bid, Stage::Opening, None);
            return Ok(number);
        }
        self.members.add(out_bid, key, create.bid, max).map_err(|TooManyMembers { open }| {
            let reason = format!(
                "topic '{}' has {open} publishers; the limit (broker.merge_max_publishers) is {max}",
                create.topic
            );
            Refused::new(RefuseCode::Limit, reason)
        })
    }

    /// Makes a merged topic: its ring, and its buffer for subscribers.
    fn open_topic(
        &mut self,
        tables: &mut Tables,
        topic: &TopicName,
        fx: &mut Effects,
    ) -> Result<Bid, Refused> {
        self.open_topic_with(tables, topic, None, fx)
    }

    /// Makes a topic whose log goes on in the archive. Until now it may have come from another broker.
    pub(super) fn open_taken(
        &mut self,
        tables: &mut Tables,
        wanted: &Wanted,
        taken: Taken,
        fx: &mut Effects,
    ) -> Result<(), Refused> {
        let epoch = taken.epoch;
        let out_bid = self.open_topic_with(tables, &wanted.topic, Some((wanted.term, taken)), fx)?;
        fx.extend([Effect::HasLog { epoch, bid: out_bid }, Effect::PreferShorter(out_bid)]);
        // What came from the owner before.
        let others = tables.topics.of(&wanted.topic).iter().filter(|bid| **bid != out_bid);
        let same =
            others.filter(|bid| tables.topics.get(**bid).is_some_and(|buffer| buffer.epoch == Some(epoch)));
        fx.extend(same.map(|from| Effect::EndLongPath { from: *from, to: out_bid }));
        Ok(())
    }

    fn open_topic_with(
        &mut self,
        tables: &mut Tables,
        topic: &TopicName,
        taken: Option<(u64, Taken)>,
        fx: &mut Effects,
    ) -> Result<Bid, Refused> {
        let keeps = tables.settings.topics.of(topic).keep;
        let buffer = Buffer::opening(topic.clone(), SourceBuffer::BROKER, Framing::Merged, 0);
        let out_bid = tables.add_buffer(Buffer { stage: BufferStage::Live, kept: keeps, ..buffer })?;
        self.open_log(tables, topic, out_bid, taken).inspect_err(|_| fx.push(Effect::Remove(out_bid)))?;
        if let (Some(info), Some(buffer)) = (tables.info(out_bid), tables.topics.get_mut(out_bid)) {
            buffer.epoch = Some(info.epoch);
            buffer.max_delivery_bytes = info.max_delivery_bytes;
        }
        info!("topic '{topic}': its publishers are merged into buffer {out_bid}");
        fx.push(Effect::AnnounceNew(out_bid));
        Ok(out_bid)
    }

    fn open_store(
        &self,
        topic: &TopicName,
        options: &StoreOptions,
        taken: Option<(u64, Taken)>,
    ) -> Result<Opened, Refused> {
        let opened = match taken {
            Some((term, taken)) => self
                .keeper
                .open_taken(topic, options, term, taken)
                .map(|(store, recovered, trail)| ((store, recovered), trail)),
            None => self.keeper.open(topic, options).map(|kept| (kept, None)),
        };
        opened.map_err(|error| {
            let reason = format!("what is kept of topic '{topic}' cannot be opened: {error}");
            Refused::new(RefuseCode::Internal, reason)
        })
    }

    /// Makes the ring of a merged topic, with what the disk has of it.
    fn open_log(
        &mut self,
        tables: &Tables,
        topic: &TopicName,
        out_bid: Bid,
        taken: Option<(u64, Taken)>,
    ) -> Result<(), Refused> {
        let rule = tables.settings.topics.of(topic);
        let size_bytes = rule.ring_bytes.unwrap_or(tables.settings.merge_ring_bytes);
        let retain_bytes = Some(tables.retained_bytes(rule, size_bytes));
        let largest = if log_grows(tables, topic) { largest_run_bytes(&tables.settings) } else { 0 };
        let keeps = rule.keep.then(|| store_options(tables, rule, size_bytes, largest));
        let mut options = BufferOptions::new().size_bytes(size_bytes).retain_bytes(retain_bytes);
        // The gateways receive the logs of all spaces.
        options = options.mapped_locally(Space::is_reserved(topic));
        let kept = keeps.map(|keeps| self.open_store(topic, &keeps, taken)).transpose()?;
        let (kept, trail) = kept.map_or((None, None), |(kept, trail)| (Some(kept), trail));
        if let Some((_, recovered)) = &kept {
            options = options.start(recovered.last.0).epoch(Some(recovered.epoch));
        }
        let made = tables.out.create_buffer_with(out_bid, options).and_then(|made| {
            made.set_limits(rule.limits());
            made.writer()
        });
        let mut writer = made.map_err(no_buffer)?;
        let (store, recovered) = kept.unzip();
        if let Some(Recovered { last: (_, last), .. }) = &recovered
            && !last.is_empty()
        {
            // The ring is new and larger than this.
            let _ = writer.append(&[last]);
        }
        let reader = store.as_ref().map(Store::reader);
        let store = store.map(|store| (store, self.keeper.scribe().clone()));
        let growth = Growth::new(largest, tables.admission.clone());
        let merged =
            MergedTopic::new(writer, growth, tables.settings.merge_table_entries, &tables.events, store);
        self.index.insert(out_bid, &merged);
        self.members.insert(out_bid, topic.clone(), merged.clone());
        if let (Some(recovered), Some(reader)) = (recovered, reader) {
            self.members.restore(out_bid, recovered.places, recovered.next_number);
            self.keeper.opened(topic, out_bid, reader, rule.archive().is_some(), trail);
            if let Some((archived, _)) = self.keeper.archived(out_bid) {
                merged.set_archive(archived);
            }
        }
        Ok(())
    }
}

/// A log on the disk and what was found there, and what the archive is told of its publishers.
type Opened = ((Store, Recovered), Option<Trail>);

/// The options of a topic's store on the disk.
fn store_options(tables: &Tables, rule: &Rule, size_bytes: u64, largest: u64) -> StoreOptions {
    StoreOptions {
        // Several of the largest deliveries.
        max_bytes: Some(rule.keep_bytes().max(size_bytes)),
        max_age: rule.keep_age(),
        sync: tables.settings.keep_sync(),
        max_delivery: size_bytes.max(largest),
        max_publishers: tables.settings.merge_max_publishers,
        begin: None,
        is_shared: false,
    }
}

/// Refuses buffers that cannot be merged. So many others of the publisher wait.
fn check(tables: &Tables, key: SessionKey, create: &Create, waiting: usize) -> Result<(), Refused> {
    check_form(create)?;
    tables.sessions.get(key).map_or(Ok(()), |session| tables.check_buffers(session, waiting))
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

/// The name of a publisher's log, and up to where brokers have it: this one, or the one that had the topic meanwhile.
fn place_of(
    former: Option<FormerPlace>,
    epoch: Option<Epoch>,
    merged_to: Option<Position>,
) -> (Option<Epoch>, Option<Position>) {
    match former {
        Some(place) if epoch.is_none_or(|epoch| epoch == place.epoch) => {
            (Some(place.epoch), merged_to.max(Some(place.position)))
        }
        _ => (epoch, merged_to),
    }
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
fn options(ring: MergeRing, start: Start) -> SubscribeOptions {
    SubscribeOptions::new()
        .size_bytes(ring.first)
        .max_size_bytes(ring.max_size)
        // A ring that has grown is not merged at once.
        .max_view_bytes(Some(ring.max_run))
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
