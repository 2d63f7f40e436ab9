//! Publishers: their connections, and their spliced buffers (paper 1, Listing 3: `on_ctrl_msg`).

use std::time::Instant;

use rbmq_wire::{Control, Framing, RefuseCode};
use rocketbufs::{Bid, BlockTimeout, Epoch, InEvent, Policy, Start, SubscribeOptions};
use tracing::{info, warn};

use super::counters::Refusal;
use super::effects::{Effect, Effects};
use super::federation::Federation;
use super::limits::{Refused, largest_delivery_bytes, not_accepted, over_quota, ring_bytes};
use super::login::AcceptedClient;
use super::path_migration::PathMigration;
use super::session_key::{SessionKey, SourceBuffer};
use super::sessions::Session;
use super::tables::{BROKER_SLOT_HOLD, BROKER_SLOT_NAME, Create, Tables};
use super::topics::{Buffer, Stage};

/// A publisher is connected, for the first time or again. Returns its key if it is connected again.
pub(super) fn connected(tables: &mut Tables, client: AcceptedClient) -> Option<SessionKey> {
    let AcceptedClient { conn, hello, identity, .. } = client;
    let key = SessionKey { instance: conn.peer_instance(), client: hello.client };
    if key == SessionKey::BROKER {
        tables.admission.disconnected(conn.id());
        conn.reject("the hello of the publisher has no client number");
        return None;
    }
    let (open, max) = (tables.sessions.active(), tables.settings.max_publishers);
    // A publisher that was only disconnected counts already.
    if open >= max && !tables.sessions.is_active(key) && !identity.is_own() {
        let why = format!("the broker has {open} publishers; its limit (broker.max_publishers) is {max}");
        tables.counters.refused(Refusal::Publishers);
        tables.admission.disconnected(conn.id());
        warn!("refused publisher at {}: {why}", conn.peer_addr());
        conn.reject(&why);
        return None;
    }
    if let Some(session) = tables.sessions.get_mut(key) {
        // The number of a publisher is no secret.
        if session.identity.user != identity.user {
            warn!("refused publisher at {}: {session} belongs to another user", conn.peer_addr());
            tables.counters.refused(Refusal::Rights);
            tables.admission.disconnected(conn.id());
            conn.reject("a publisher with this number belongs to another user");
            return None;
        }
        tables.admission.disconnected(session.conn.id());
        session.identity = identity;
        session.resume(conn);
        info!("{session} is connected again");
        return Some(key);
    }
    let session = Session::new(key, conn, identity, hello.name, None, &tables.events);
    info!("{session} is up");
    tables.counters.totals.publishers += 1;
    tables.sessions.insert(key, session);
    None
}

/// Whether a publisher is disconnected, and all its spliced buffers have ended.
pub(super) fn is_finished(tables: &Tables, session: &Session) -> bool {
    let ended =
        |bid: &Bid| tables.topics.get(*bid).is_none_or(|buffer| matches!(buffer.stage, Stage::Ended { .. }));
    session.upstream.is_none() && session.is_down() && session.mapping.out_bids().iter().all(ended)
}

/// Whether a buffer ended because its publisher was disconnected for too long. When the publisher is connected again, its log
/// continues in a new buffer, at the position where subscribers stopped.
pub(super) fn is_leftover(tables: &Tables, out_bid: Bid) -> bool {
    tables.topics.get(out_bid).is_none_or(|buffer| buffer.gone)
}

/// A publisher that reconnected repeats the CREATE of a buffer.
pub(super) fn create_again(
    tables: &mut Tables,
    key: SessionKey,
    out_bid: Bid,
    create: &Create,
    fx: &mut Effects,
) {
    let Some(buffer) = tables.topics.get(out_bid) else { return };
    let bid = create.bid;
    let mut answer = |message| fx.push(Effect::Answer { key, message });
    if buffer.topic != create.topic {
        let reason = format!("buffer {bid} of this publisher already belongs to topic '{}'", buffer.topic);
        tables.counters.refused(Refusal::Buffer(RefuseCode::BidInUse));
        return answer(Control::Refused { bid, code: RefuseCode::BidInUse, reason });
    }
    match buffer.stage {
        // The answer follows when the publisher's framework has answered.
        Stage::Opening => {}
        Stage::Live => {
            largest(tables, key, bid).into_iter().for_each(&mut answer);
            answer(Control::Created { bid });
            answer(Control::Subscribers { bid, count: buffer.reported_subscribers });
        }
        Stage::Ended { end, .. } => {
            answer(Control::Created { bid });
            answer(Control::Ended { bid, end });
        }
    }
}

/// The largest delivery for which the rings of a buffer grow, where they do: the framework of the publisher knows how, and nobody maps the
/// rings.
fn largest(tables: &Tables, key: SessionKey, bid: Bid) -> Option<Control> {
    let session = tables.sessions.get(key)?;
    let grows = tables.logs_grow() && session.conn.peer_grows();
    let quota = tables.admission.most_ring_bytes(session.conn.id());
    let present =
        session.mapping.get(bid).and_then(|bid| tables.info(bid)).map_or(0, |info| info.capacity_bytes);
    let max_delivery_bytes = largest_delivery_bytes(&tables.settings, present, quota);
    grows.then_some(Control::Largest { bid, max_delivery_bytes })
}

/// Subscribes to a new buffer of a publisher.
pub(super) fn create(
    tables: &mut Tables,
    key: SessionKey,
    create: Create,
    fx: &mut Effects,
) -> Result<(), Refused> {
    let Create { bid: in_bid, framing, max_delivery_bytes, min_subscribers, topic, .. } = create;
    if framing == Framing::Merged {
        return Err(Refused::new(RefuseCode::Invalid, "only brokers write merged topics; publish records"));
    }
    let Some(session) = tables.sessions.get(key) else { return Ok(()) };
    tables.check_buffers(session, 0)?;
    let rule = tables.settings.topics.of(&topic);
    let requested = rule.ring_bytes.unwrap_or(create.ring_bytes);
    let size_bytes = ring_bytes(requested, max_delivery_bytes, &tables.settings)?;
    let (first, most) = tables.first_and_most(requested, size_bytes);
    let retain_bytes = tables.retained_bytes(rule, first);
    let linger = rule.linger();
    let charge = tables.admission.charge_buffer(session.conn.id(), size_bytes).map_err(over_quota)?;
    let source = SourceBuffer { session: key, bid: in_bid };
    let buffer = Buffer::opening(topic, source, framing, max_delivery_bytes);
    let out_bid = tables.add_buffer(buffer)?;
    tables.admission.keep_buffer(out_bid, charge);
    if let Some(session) = tables.sessions.get(key) {
        session.mapping.insert(in_bid, out_bid);
    }
    let options = SubscribeOptions::new()
        .size_bytes(first)
        .max_size_bytes(most)
        .growth_check(Some(tables.admission.growth_of_buffer(out_bid)))
        .retain_bytes(Some(retain_bytes))
        // Everything that the publisher still has, because it may have written before the broker subscribed. A position of
        // an unknown log begins at the oldest byte. A restarted broker needs that too: its subscribers may have less than the
        // old broker had received.
        .start(Start::Position(Epoch(0), 0))
        .policy(Policy::Block)
        // A slow subscriber is handled at this broker, not by the publisher.
        .block_timeout(BlockTimeout::Never)
        .durable(BROKER_SLOT_NAME.to_vec(), BROKER_SLOT_HOLD)
        .linger(linger)
        .min_receivers(min_subscribers);
    let spliced = tables.splice(key, in_bid, out_bid, options);
    spliced.inspect_err(|_| fx.push(Effect::Remove(out_bid)))
}

/// The parts that choose between the routes of a log.
pub(super) struct Routing<'a> {
    pub(super) federation: &'a mut Federation,
    pub(super) migration: &'a mut PathMigration,
}

/// An event of the rIn of a publisher or an upstream broker, about a spliced buffer.
pub(super) fn on_event(
    tables: &mut Tables,
    routing: Routing<'_>,
    key: SessionKey,
    event: InEvent,
    fx: &mut Effects,
) {
    let source = |bid| SourceBuffer { session: key, bid };
    let ended = match event {
        InEvent::Subscribed { bid, epoch, .. } => {
            return on_opened(tables, routing.federation, source(bid), epoch, fx);
        }
        InEvent::Closed { bid, end } => End { in_bid: bid, end, gone: false },
        InEvent::Gone { bid, end } => End { in_bid: bid, end, gone: true },
        InEvent::Restarted { bid, .. } => return on_restarted(tables, source(bid), fx),
        InEvent::Refused { bid, error } => {
            return on_outgrown(tables, routing, source(bid), not_accepted(&error), fx);
        }
        InEvent::Lost { bid, from, to } => {
            let lost = to.saturating_sub(from);
            tables.counters.lost_by_publisher(lost);
            return warn!("buffer {bid} of a publisher lost {lost} bytes ({from} to {to})");
        }
        InEvent::NotDurable { bid } => {
            if let Some(more) = tables.counters.no_slot_log.allow(Instant::now()) {
                warn!(
                    more,
                    "the publisher of buffer {bid} keeps no position for this broker while the connection is lost (see \
                     limits.max_held_subscriptions of the publisher)"
                );
            }
            return;
        }
        _ => return,
    };
    on_ended(tables, routing, key, ended, fx);
}

/// The publisher's framework has answered: the buffer can be announced to subscribers.
fn on_opened(
    tables: &mut Tables,
    federation: &mut Federation,
    source: SourceBuffer,
    epoch: Epoch,
    fx: &mut Effects,
) {
    let SourceBuffer { session: key, bid: in_bid } = source;
    let Some(session) = tables.sessions.get(key) else { return };
    let Some(out_bid) = session.mapping.get(in_bid) else { return };
    let Some(buffer) = tables.topics.get_mut(out_bid) else { return };
    let before = buffer.epoch.replace(epoch);
    if buffer.stage != Stage::Opening {
        return;
    }
    buffer.stage = Stage::Live;
    info!("topic '{}': buffer {out_bid} of {session} is up", buffer.topic);
    if before != Some(epoch) {
        federation.opened(epoch, out_bid, before);
    }
    fx.extend(largest(tables, key, in_bid).map(|message| Effect::Answer { key, message }));
    fx.extend([
        Effect::Answer { key, message: Control::Created { bid: in_bid } },
        Effect::AnnounceNew(out_bid),
        Effect::PreferShorter(out_bid),
    ]);
    // The owner may have offered the topic while it was opened from another broker.
    federation.follow_owner(tables, epoch, fx);
}

/// The end of a log.
struct End {
    in_bid: Bid,
    end: u64,
    /// The publisher was disconnected for too long, and did not close the log.
    gone: bool,
}

fn on_ended(
    tables: &mut Tables,
    routing: Routing<'_>,
    key: SessionKey,
    End { in_bid, end, gone }: End,
    fx: &mut Effects,
) {
    let Some(session) = tables.sessions.get(key) else { return };
    let Some(out_bid) = session.mapping.get(in_bid) else { return };
    let Some(buffer) = tables.topics.get_mut(out_bid) else { return };
    if matches!(buffer.stage, Stage::Ended { .. }) {
        return;
    }
    buffer.gone = gone;
    let opened = buffer.stage != Stage::Opening;
    let how = if gone { "its publisher is gone" } else { "closed" };
    info!("topic '{}': buffer {out_bid} ended at {end}: {how}", buffer.topic);
    if !gone {
        fx.push(Effect::Answer { key, message: Control::Ended { bid: in_bid, end } });
    } else if session.upstream.is_none() && session.conn.is_up() {
        // The publisher reconnected at the same moment, and may believe that its buffer continues.
        session.conn.close("the buffer was given up; connect again to continue it");
    }
    if !opened {
        // No data arrived, so the buffer does not linger for readers.
        return give_up(tables, out_bid, fx);
    }
    linger(tables, routing, out_bid, End { in_bid, end, gone }, fx);
    fx.push(Effect::ReleaseSession(key));
}

/// The buffer of a log that has ended stays for a while, for readers. Where only its route has ended, another one goes on.
fn linger(
    tables: &mut Tables,
    routing: Routing<'_>,
    out_bid: Bid,
    End { end, gone, .. }: End,
    fx: &mut Effects,
) {
    let epoch = tables.topics.get(out_bid).and_then(|buffer| buffer.epoch);
    tables.topics.end(out_bid, end, Instant::now() + tables.settings.closed_linger());
    match epoch {
        Some(epoch) if gone => {
            routing.migration.ended(out_bid);
            routing.federation.reroute(tables, out_bid, epoch, end, fx);
        }
        Some(epoch) => routing.federation.closed(epoch),
        None => {}
    }
}

/// After a reconnection the subscription has another log. The change is normal while the buffer opens.
fn on_restarted(tables: &mut Tables, source: SourceBuffer, fx: &mut Effects) {
    let session = tables.sessions.get(source.session);
    let out_bid = session.and_then(|session| session.mapping.get(source.bid));
    let stage = out_bid.and_then(|bid| tables.topics.get(bid)).map(|buffer| buffer.stage);
    if stage.is_some_and(|stage| stage != Stage::Opening) {
        let refused = Refused::new(RefuseCode::Internal, "the publisher has another log now");
        on_refused(tables, source, refused, fx);
    }
}

/// The ring of a buffer cannot take what follows. Subscribers get what came before.
fn on_outgrown(
    tables: &mut Tables,
    routing: Routing<'_>,
    source: SourceBuffer,
    refused: Refused,
    fx: &mut Effects,
) {
    let Some(out_bid) = refuse(tables, source, refused, fx) else { return };
    let info = tables.info(out_bid);
    let buffer = tables.topics.get_mut(out_bid).filter(|buffer| buffer.stage == Stage::Live);
    let (Some(buffer), Some(info)) = (buffer, info) else { return give_up(tables, out_bid, fx) };
    info!("topic '{}': buffer {out_bid} ended at {}: the rest is refused", buffer.topic, info.boundary);
    buffer.gone = true;
    let end = End { in_bid: source.bid, end: info.boundary, gone: true };
    linger(tables, routing, out_bid, end, fx);
}

fn on_refused(tables: &mut Tables, source: SourceBuffer, refused: Refused, fx: &mut Effects) {
    if let Some(out_bid) = refuse(tables, source, refused, fx) {
        give_up(tables, out_bid, fx);
    }
}

/// Tells a publisher that its buffer cannot be received. Returns the broker's buffer.
fn refuse(
    tables: &mut Tables,
    source: SourceBuffer,
    Refused { code, reason }: Refused,
    fx: &mut Effects,
) -> Option<Bid> {
    let SourceBuffer { session: key, bid: in_bid } = source;
    let session = tables.sessions.get(key)?;
    let out_bid = session.mapping.get(in_bid)?;
    warn!("the broker cannot receive buffer {out_bid} from {session}: {reason}");
    let reason = format!("the broker cannot receive the buffer: {reason}");
    tables.counters.refused(Refusal::Buffer(code));
    fx.push(Effect::Answer { key, message: Control::Refused { bid: in_bid, code, reason } });
    Some(out_bid)
}

/// Removes a buffer that cannot be received. If its log has an alternative route, that is opened instead.
fn give_up(tables: &Tables, out_bid: Bid, fx: &mut Effects) {
    let known = tables.topics.get(out_bid).map(|buffer| (buffer.topic.clone(), buffer.epoch));
    fx.push(Effect::Remove(out_bid));
    if let Some((topic, Some(epoch))) = known {
        fx.push(Effect::OpenAlternative { topic, epoch });
    }
}
