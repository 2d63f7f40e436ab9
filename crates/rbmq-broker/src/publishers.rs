//! What publishers ask for, and what becomes of their buffers (paper 1, Listing 3: `on_ctrl_msg`).

use std::time::{Duration, Instant};

use rbmq_wire::{Control, Framing, RefuseCode, TopicName};
use rocketbufs::{
    Bid, BlockTimeout, BufferError, Conn, Epoch, InEvent, Policy, RefusedError, Start, SubscribeError,
    SubscribeOptions,
};
use tracing::{debug, info, warn};

use super::control::{Broker, send};
use super::ledger::Refusal;
use super::rules::{Rule, rounded};
use super::session::{Session, SessionKey};
use super::topics::{Buffer, Stage, TooManyTopics};

/// Under this name the broker holds its place in a publisher's buffer while a connection is lost, or while the broker
/// restarts.
pub(super) const PLACE_NAME: &[u8] = b"rbmq-broker";

/// The longest that a publisher is asked to keep the broker's place. A publisher that has no broker waits; what it
/// has published is lost only with its process.
pub(super) const PLACE_HOLD: Duration = Duration::from_millis(u32::MAX as u64);

/// Why a buffer was refused: the code, and the same in words.
pub(super) type Refused = (RefuseCode, String);

/// Why the framework does not subscribe to a publisher's buffer.
pub(super) fn not_subscribed(error: SubscribeError) -> Refused {
    let code = match error {
        SubscribeError::TooLarge { .. } | SubscribeError::TooMany(_) => RefuseCode::Limit,
        _ => RefuseCode::Internal,
    };
    (code, error.to_string())
}

/// Why the framework makes no buffer for subscribers.
pub(super) fn no_buffer(error: BufferError) -> Refused {
    match error {
        BufferError::NotSubscribed(error) => not_subscribed(error),
        BufferError::TooMany(_) => (RefuseCode::Limit, error.to_string()),
        // As it is told where the ring is made later.
        BufferError::Memory(error) => not_had(&error.into()),
        _ => (RefuseCode::Internal, error.to_string()),
    }
}

/// Why a publisher's buffer could not be had after all.
pub(super) fn not_had(error: &RefusedError) -> Refused {
    match error {
        RefusedError::TooManyBytes { .. } => (
            RefuseCode::Limit,
            format!("{error}; ask for a smaller ring, or have that limit of the broker raised"),
        ),
        _ => (RefuseCode::Internal, error.to_string()),
    }
}

/// What CREATE asks for.
pub(super) struct Create {
    pub(super) bid: Bid,
    pub(super) framing: Framing,
    pub(super) ring_bytes: u64,
    pub(super) max_delivery_bytes: u64,
    pub(super) min_subscribers: u32,
    pub(super) topic: TopicName,
}

impl Broker {
    pub(super) fn on_publisher_control(&mut self, key: SessionKey, message: &[u8]) {
        if self.sessions.get(&key).is_some_and(|session| session.upstream.is_some()) {
            return self.on_upstream_control(key, message);
        }
        match Control::decode(message) {
            Ok(Control::Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic }) => {
                let create = Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic };
                self.on_create(key, create);
            }
            Ok(_) => self.expel(key, "a publisher sent a message that only subscribers or brokers send"),
            Err(error) => self.expel(key, &error.to_string()),
        }
    }

    fn on_create(&mut self, key: SessionKey, create: Create) {
        let Some(session) = self.sessions.get(&key) else { return };
        let (conn, in_bid) = (session.conn.clone(), create.bid);
        if self.is_for_merge(key, &create) {
            let taken = self.on_create_merged(key, &create);
            return self.tell_refusal(&conn, in_bid, taken);
        }
        if let Some(out_bid) = session.mapping.get(in_bid)
            && !self.is_leftover(out_bid)
        {
            return self.on_create_again(&conn, out_bid, &create);
        }
        self.remove_leftover(key, in_bid);
        let taken = self.open_buffer(key, create);
        self.tell_refusal(&conn, in_bid, taken);
    }

    fn tell_refusal(&mut self, conn: &Conn, bid: Bid, taken: Result<(), Refused>) {
        if let Err((code, reason)) = taken {
            info!("buffer {bid} of {} is refused: {reason}", conn.peer_addr());
            self.ledger.refused(Refusal::Buffer(code));
            send(conn, &Control::Refused { bid, code, reason });
        }
    }

    /// Whether a publisher may have one more buffer.
    pub(super) fn check_buffers(&self, key: SessionKey) -> Result<(), Refused> {
        let open = self.sessions.get(&key).map_or(0, |session| session.mapping.len() + session.merged.len());
        let max = self.settings.max_buffers_per_publisher;
        if open < max {
            return Ok(());
        }
        let reason = format!(
            "this publisher has {open} buffers; the limit (broker.max_buffers_per_publisher) is {max}"
        );
        Err((RefuseCode::Limit, reason))
    }

    /// A publisher that reconnected names its buffers again.
    fn on_create_again(&mut self, conn: &Conn, out_bid: Bid, create: &Create) {
        let Some(buffer) = self.topics.get_mut(out_bid) else { return };
        let bid = create.bid;
        if buffer.topic != create.topic {
            let reason =
                format!("buffer {bid} of this publisher already belongs to topic '{}'", buffer.topic);
            self.ledger.refused(Refusal::Buffer(RefuseCode::BidInUse));
            return send(conn, &Control::Refused { bid, code: RefuseCode::BidInUse, reason });
        }
        match buffer.stage {
            // Answered when the publisher's framework has answered.
            Stage::Opening => {}
            Stage::Live => {
                send(conn, &Control::Created { bid });
                let count = buffer.told_subscribers;
                send(conn, &Control::Subscribers { bid, count });
            }
            Stage::Ended { end, .. } => {
                send(conn, &Control::Created { bid });
                send(conn, &Control::Ended { bid, end });
            }
        }
    }

    /// Whether a buffer is what the framework gave up when its publisher was away for too long. The publisher is here
    /// again, so its log goes on in a new buffer, from the position where subscribers stopped.
    fn is_leftover(&self, out_bid: Bid) -> bool {
        self.topics.get(out_bid).is_none_or(|buffer| buffer.gone)
    }

    fn remove_leftover(&mut self, key: SessionKey, in_bid: Bid) {
        if let Some(out_bid) = self.sessions.get(&key).and_then(|s| s.mapping.get(in_bid)) {
            self.remove_buffer(out_bid);
        }
    }

    fn open_buffer(&mut self, key: SessionKey, create: Create) -> Result<(), Refused> {
        let Create { bid: in_bid, framing, max_delivery_bytes, min_subscribers, topic, .. } = create;
        if framing == Framing::Merged {
            return Err((RefuseCode::Invalid, "only brokers write merged topics; publish records".into()));
        }
        self.check_buffers(key)?;
        let rule = self.settings.topics.of(&topic);
        let asked = rule.ring_bytes.unwrap_or(create.ring_bytes);
        let size_bytes = self.ring_size(asked, max_delivery_bytes)?;
        let retain_bytes = self.retained(rule, size_bytes);
        let linger = rule.linger();
        let Some(session) = self.sessions.get(&key) else { return Ok(()) };
        let buffer = Buffer::opening(topic, (key, in_bid), (framing, max_delivery_bytes));
        let max = self.settings.max_topics;
        let out_bid = self.topics.add(buffer, max).map_err(|TooManyTopics { open }| {
            let reason = format!("the broker has {open} topics; its limit (broker.max_topics) is {max}");
            (RefuseCode::Limit, reason)
        })?;
        session.mapping.insert(in_bid, out_bid);
        let options = SubscribeOptions::new()
            .size_bytes(size_bytes)
            .retain_bytes(Some(retain_bytes))
            // Everything that the publisher still has: it may have written before the broker came. A position of no
            // log at all begins at the oldest byte even where a place was kept for a broker that was restarted, whose
            // subscribers may have less than it had.
            .start(Start::Position(Epoch(0), 0))
            .policy(Policy::Block)
            // Who is slow is a subscriber behind this broker, and is dealt with here, not by the publisher.
            .block_timeout(BlockTimeout::Never)
            .durable(PLACE_NAME.to_vec(), PLACE_HOLD)
            .linger(linger)
            .min_receivers(min_subscribers);
        self.splice_in(key, in_bid, out_bid, options).inspect_err(|_| self.remove_buffer(out_bid))
    }

    /// Subscribes to a buffer and makes its ring one of the broker's.
    pub(super) fn splice_in(
        &self,
        key: SessionKey,
        in_bid: Bid,
        out_bid: Bid,
        options: SubscribeOptions,
    ) -> Result<(), Refused> {
        let Some(session) = self.sessions.get(&key) else { return Ok(()) };
        self.out.splice_with(&session.rin, in_bid, out_bid, options).map_err(no_buffer)?;
        let terms = self.topics.get(out_bid).map(|buffer| self.settings.topics.of(&buffer.topic).terms());
        // Nobody knows of the buffer yet.
        terms.map_or(Ok(()), |terms| self.out.set_limits(out_bid, terms).map_err(no_buffer))
    }

    /// The history that is kept in a ring for those who join: as configured, at most half, by default half.
    pub(super) fn retained(&self, rule: &Rule, size_bytes: u64) -> u64 {
        let half = size_bytes.checked_next_power_of_two().unwrap_or(size_bytes) / 2;
        let configured = rule.retain_bytes.or(self.out.context().config().buffers.retain_bytes);
        configured.map_or(half, |configured| configured.min(half))
    }

    /// The broker's ring for a buffer. What is compared with the limit is what the ring takes: a power of two.
    pub(super) fn ring_size(&self, asked: u64, max_delivery: u64) -> Result<u64, Refused> {
        let (min, max) = (self.settings.min_ring_bytes, self.settings.max_ring_bytes);
        let needed = max_delivery.saturating_mul(2);
        let size = asked.max(needed).max(min);
        let takes = rounded(size);
        if takes <= max {
            return Ok(size);
        }
        let wish = match asked >= needed {
            true => format!("a ring of {asked} bytes was asked for"),
            false => format!("deliveries of {max_delivery} bytes need a ring of {needed}"),
        };
        // A publisher's own ring is a power of two already, and it asks for as much.
        let takes = if takes == size { String::new() } else { format!(", which takes {takes}") };
        let reason = format!("{wish}{takes}; this broker's are at most {max} (broker.max_ring_bytes)");
        Err((RefuseCode::Size, reason))
    }

    pub(super) fn on_publisher_event(&mut self, key: SessionKey, event: InEvent) {
        if self.on_merged_event(key, &event) {
            return;
        }
        match event {
            InEvent::Subscribed { bid, epoch, .. } => self.on_live(key, bid, epoch),
            InEvent::Closed { bid, end } => self.on_ended(key, bid, end, false),
            InEvent::Gone { bid, end } => self.on_ended(key, bid, end, true),
            InEvent::Restarted { bid, .. } => self.on_restarted(key, bid),
            InEvent::Refused { bid, error } => self.on_refused(key, bid, not_had(&error)),
            InEvent::Lost { bid, from, to } => {
                self.ledger.lost_by_publisher(to.saturating_sub(from));
                warn!(
                    "publisher's buffer {bid}: {} bytes are lost ({from} to {to})",
                    to.saturating_sub(from)
                );
            }
            InEvent::NoPlace { bid } => {
                if let Some(more) = self.ledger.placeless.allow(Instant::now()) {
                    warn!(
                        more,
                        "publisher's buffer {bid}: its end keeps no place for this broker while that is away (its \
                         limits.max_held_subscriptions)"
                    );
                }
            }
            InEvent::ConnDown { why } => self.on_publisher_down(key, &why),
            _ => {}
        }
    }

    /// The publisher's framework answered: the buffer can be told to subscribers.
    fn on_live(&mut self, key: SessionKey, in_bid: Bid, epoch: Epoch) {
        let Some(session) = self.sessions.get(&key) else { return };
        let Some(out_bid) = session.mapping.get(in_bid) else { return };
        let Some(buffer) = self.topics.get_mut(out_bid) else { return };
        let before = buffer.epoch.replace(epoch);
        if buffer.stage != Stage::Opening {
            return;
        }
        buffer.stage = Stage::Live;
        let topic = buffer.topic.clone();
        info!("topic '{topic}': buffer {out_bid} of {session} is up");
        session.answer(&Control::Created { bid: in_bid });
        if before != Some(epoch) {
            self.chain.has(epoch, out_bid, before);
        }
        self.announce_new(out_bid);
        self.prefer_shorter_way(out_bid);
    }

    fn on_ended(&mut self, key: SessionKey, in_bid: Bid, end: u64, gone: bool) {
        let Some(session) = self.sessions.get(&key) else { return };
        let Some(out_bid) = session.mapping.get(in_bid) else { return };
        let Some(buffer) = self.topics.get_mut(out_bid) else { return };
        if matches!(buffer.stage, Stage::Ended { .. }) {
            return;
        }
        buffer.gone = gone;
        let (epoch, opened) = (buffer.epoch, buffer.stage != Stage::Opening);
        let how = if gone { "its publisher is gone" } else { "closed" };
        info!("topic '{}': buffer {out_bid} ended at {end}: {how}", buffer.topic);
        if !gone {
            session.answer(&Control::Ended { bid: in_bid, end });
        } else if session.upstream.is_none() && session.conn.is_up() {
            // It came back in the same moment, and may have been told that its buffer goes on.
            session.conn.close("its buffer was given up; to go on it must name it again");
        }
        if !opened {
            // Nothing of it ever came, so there is nothing that could be read for a while.
            return self.give_up(out_bid);
        }
        self.topics.end(out_bid, end, Instant::now() + self.settings.closed_linger());
        match epoch {
            Some(epoch) if gone => self.go_on(out_bid, epoch, end),
            Some(epoch) => self.chain.closed(epoch),
            None => {}
        }
        self.forget_if_idle(key);
    }

    /// A buffer cannot be had this way. If there is another way to its log, that is taken.
    fn give_up(&mut self, out_bid: Bid) {
        let known = self.topics.get(out_bid).map(|buffer| (buffer.topic.clone(), buffer.epoch));
        self.remove_buffer(out_bid);
        if let Some((topic, Some(epoch))) = known {
            self.take_spare(&topic, epoch);
        }
    }

    /// A log that begins is always another one than that of no epoch; but one that went on must not be.
    fn on_restarted(&mut self, key: SessionKey, in_bid: Bid) {
        let out_bid = self.sessions.get(&key).and_then(|session| session.mapping.get(in_bid));
        let stage = out_bid.and_then(|bid| self.topics.get(bid)).map(|buffer| buffer.stage);
        if stage.is_some_and(|stage| stage != Stage::Opening) {
            self.on_refused(key, in_bid, (RefuseCode::Internal, "its log is another one now".into()));
        }
    }

    fn on_refused(&mut self, key: SessionKey, in_bid: Bid, (code, reason): Refused) {
        let Some(session) = self.sessions.get(&key) else { return };
        let Some(out_bid) = session.mapping.get(in_bid) else { return };
        warn!("buffer {out_bid} could not be had from {session}: {reason}");
        let reason = format!("the broker could not take the buffer: {reason}");
        self.ledger.refused(Refusal::Buffer(code));
        session.answer(&Control::Refused { bid: in_bid, code, reason });
        self.give_up(out_bid);
    }

    fn on_publisher_down(&mut self, key: SessionKey, why: &str) {
        let Some(session) = self.sessions.get(&key) else { return };
        if session.conn.down_reason().is_none() {
            // The report is of the connection before the one that it is on now.
            return;
        }
        info!("{session} is down: {why}");
        self.merged_away(key);
        self.on_way_lost(key);
        self.forget_if_idle(key);
    }

    /// Removes a buffer from everywhere; its subscribers are told.
    pub(super) fn remove_buffer(&mut self, out_bid: Bid) {
        let Some(buffer) = self.topics.remove(out_bid) else { return };
        let traffic = self.out.buffer_info(out_bid).map(|info| info.traffic).unwrap_or_default();
        let last = self.topics.of(&buffer.topic).is_empty();
        self.ledger.closed(&buffer.topic, traffic, last);
        debug!("topic '{}': buffer {out_bid} is removed", buffer.topic);
        self.close_merge(out_bid);
        self.moves.removed(out_bid);
        if let Some(epoch) = buffer.epoch {
            self.chain.removed(epoch, out_bid);
            self.still_here(&buffer.topic, epoch, out_bid);
        }
        // It may not have come as far as being spliced.
        let _ = self.out.destroy_buffer(out_bid);
        if let Some(session) = self.sessions.get_mut(&buffer.session) {
            session.rin.unsubscribe(buffer.in_bid);
            session.mapping.remove(buffer.in_bid);
            session.theirs.remove(out_bid);
        }
        self.announce_gone(out_bid, &buffer.topic);
        self.forget_if_idle(buffer.session);
    }

    /// A publisher that is away and has no buffer here any more is forgotten; one whose buffers have all ended is done.
    pub(super) fn forget_if_idle(&mut self, key: SessionKey) {
        let idle = |s: &super::session::Session| {
            s.conn.down_reason().is_some() && s.mapping.len() == 0 && s.merged.len() == 0
        };
        self.note_done(key);
        if self.sessions.get(&key).is_some_and(idle)
            && let Some(session) = self.sessions.remove(&key)
        {
            self.done -= usize::from(session.done);
        }
    }

    /// Looks whether a publisher is done: away, and everything that it had here has ended. It is still known as long as
    /// that is readable, but takes no other publisher's place: a script that runs `rbmq pub` again and again is not
    /// many publishers.
    fn is_done(&self, key: SessionKey, session: &Session) -> bool {
        let ended = |bid: &Bid| self.topics.get(*bid).is_none_or(|b| matches!(b.stage, Stage::Ended { .. }));
        session.upstream.is_none()
            && session.conn.down_reason().is_some()
            && session.mapping.out_bids().iter().all(ended)
            && !self.publishes_merged(key)
    }

    pub(super) fn note_done(&mut self, key: SessionKey) {
        let Some(done) = self.sessions.get(&key).map(|session| self.is_done(key, session)) else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        self.done = self.done + usize::from(done) - usize::from(session.done);
        session.done = done;
    }
}
