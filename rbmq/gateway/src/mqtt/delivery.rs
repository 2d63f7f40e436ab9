//! Messages on their way to clients.
//!
//! ```text
//!   message ── routes ──▶ sessions ──▶ QoS 0: a range of the log of frames, one frame for all that want the same bytes
//!                                  ──▶ QoS 1, 2: in flight up to the window, the others in the queue of the session
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rbmq_wire::{Attributes, TopicFilter};

use crate::protocol::{ConnId, Cx, Door, Message, Range};

use super::codec::{Ack, AckKind, Packet, Properties, Property, Publish, Version, reason};
use super::due_will::user_of;
use super::message::{Origin, Stored, is_expired, put_properties};
use super::session::{Pending, Session};
use super::settings::{MAX_UNSENT, RELIEF_EVERY, SHARED_PAYLOAD};
use super::state::{Match, Mqtt, RetainedWish, Subscriber};
use super::subscriptions::is_own;

/// A message on its way, and what was made of it for one session that serves the next.
struct Outgoing<'a> {
    message: Message<'a>,
    qos: u8,
    retain: bool,
    unix_ms: u64,
    /// Properties for version 5, without subscription ids.
    properties: Option<Vec<u8>>,
    /// Frames for QoS 0 without subscription ids, by version and flag retain.
    whole: [Option<Range>; 4],
    payload: Option<Range>,
    stored: Option<Arc<Stored>>,
}

impl<'a> Outgoing<'a> {
    fn new(message: Message<'a>, unix_ms: u64) -> Self {
        let attributes = Attributes::checked_before(message.attributes);
        Self {
            message,
            qos: attributes.qos().unwrap_or(0).min(2),
            retain: attributes.retain(),
            unix_ms,
            properties: None,
            whole: [None; 4],
            payload: None,
            stored: None,
        }
    }

    fn stored(&mut self) -> Arc<Stored> {
        let Message { topic, attributes, payload } = self.message;
        let stored =
            self.stored.get_or_insert_with(|| Arc::new(Stored::new(topic.clone(), attributes, payload)));
        Arc::clone(stored)
    }

    /// The head of the PUBLISH.
    fn head(&mut self, version: Version, how: How<'_>) -> Vec<u8> {
        let (attributes, unix_ms) = (self.message.attributes, self.unix_ms);
        let properties = self.properties.get_or_insert_with(|| {
            let mut bytes = Vec::new();
            put_properties(attributes, unix_ms, &mut bytes);
            bytes
        });
        head(version, self.message, properties, how)
    }

    /// The frame for all that get it without a packet id and without subscription ids.
    fn whole(&mut self, version: Version, retain: bool, cx: &mut Cx<'_>) -> Range {
        let at = usize::from(version == Version::V5) * 2 + usize::from(retain);
        if let Some(range) = self.whole[at].filter(|range| cx.out.is_there(*range)) {
            return range;
        }
        let head = self.head(version, How { retain, ..How::default() });
        let range = cx.out.frame(&[&head, self.message.payload]);
        self.whole[at] = Some(range);
        range
    }

    fn payload(&mut self, cx: &mut Cx<'_>) -> Range {
        let range = self.payload.filter(|range| cx.out.is_there(*range));
        *self.payload.insert(range.unwrap_or_else(|| cx.out.frame(&[self.message.payload])))
    }
}

/// How a message is sent to one client.
#[derive(Debug, Clone, Copy, Default)]
struct How<'a> {
    dup: bool,
    qos: u8,
    retain: bool,
    packet_id: u16,
    ids: &'a [u32],
}

fn head(version: Version, message: Message<'_>, properties: &[u8], how: How<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    let properties = match how.ids {
        [] => properties,
        ids => {
            all.extend_from_slice(properties);
            ids.iter().for_each(|id| Property::SubscriptionId(*id).put(&mut all));
            &all
        }
    };
    let publish = Publish {
        dup: how.dup,
        qos: how.qos,
        retain: how.retain,
        topic: message.topic.as_str(),
        packet_id: how.packet_id,
        properties: Properties::new(properties),
        payload: message.payload,
    };
    let mut bytes = Vec::with_capacity(message.topic.as_str().len() + properties.len() + 16);
    publish.put_head(version, &mut bytes);
    bytes
}

impl Match {
    fn of(subscriber: &Subscriber, shared: bool) -> Self {
        let Subscriber { slot, options, id, .. } = *subscriber;
        let (qos, retain_as_published) = (options.qos, options.retain_as_published);
        Self { slot, qos, retain_as_published, id, shared }
    }
}

/// What a session is to get of a message.
struct Share {
    slot: usize,
    qos: u8,
    retain: bool,
    ids: Box<[u32]>,
}

impl Share {
    /// Of the subscriptions of a session that match: the highest QoS, and all ids.
    fn of(matches: &[Match], outgoing: &Outgoing<'_>) -> Self {
        let most = matches.iter().map(|found| found.qos).max().unwrap_or(0);
        let retain = outgoing.retain && matches.iter().any(|found| found.retain_as_published);
        let ids = matches.iter().filter_map(|found| found.id).collect();
        Self { slot: matches[0].slot, qos: most.min(outgoing.qos), retain, ids }
    }
}

/// Messages of topics.
impl Mqtt {
    /// Gives a message to all sessions that subscribed to it.
    pub(super) fn deliver(&mut self, message: Message<'_>, cx: &mut Cx<'_>) {
        let attributes = Attributes::checked_before(message.attributes);
        let origin = Origin::find(attributes).filter(|origin| self.is_own(origin, message.topic));
        self.spread(message, origin, cx);
        if let Some(origin) = origin.filter(|origin| origin.number > 0) {
            self.came_back(origin.number, message.topic, cx);
        }
        self.write_many(cx.now);
    }

    fn spread(&mut self, message: Message<'_>, origin: Option<Origin>, cx: &mut Cx<'_>) {
        let unix_ms = self.clock.unix_ms(cx.now);
        if is_expired(message.attributes, unix_ms) {
            self.counts.expired += 1;
            return;
        }
        if message.payload.len() + message.attributes.len() > self.settings.max_packet() {
            // Of another publisher: no packet has room for it.
            return self.count_dropped(cx);
        }
        let mut matched = std::mem::take(&mut self.scratch.matched);
        let mut outgoing = Outgoing::new(message, unix_ms);
        self.find_matches(message, origin, &mut matched, cx.door);
        for matches in matched.chunk_by(|a, b| a.slot == b.slot && !a.shared && !b.shared) {
            self.give(Share::of(matches, &outgoing), &mut outgoing, cx);
        }
        matched.clear();
        self.scratch.matched = matched;
        self.fail_doomed(cx);
        self.relieve(cx);
    }

    /// Ends the session without a connection that holds the most, if that is much and a message had no room among what all sessions hold.
    fn relieve(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::take(&mut self.is_crowded) || cx.now < self.next_relief {
            return;
        }
        // The search looks at all of them.
        self.next_relief = cx.now + RELIEF_EVERY;
        let away = self.away.values().map(|slot| (self.sessions[*slot].held.own(), *slot));
        // Small ones would make no room: clients that are connected hold the most.
        if let Some((_, slot)) = away.max().filter(|(own, _)| *own > self.settings.max_session_bytes / 64) {
            self.counts.sessions_expired += 1;
            self.end_session(slot, cx);
        }
    }

    /// The subscriptions that match a message, sorted by session.
    fn find_matches(
        &self,
        message: Message<'_>,
        origin: Option<Origin>,
        matched: &mut Vec<Match>,
        door: &mut dyn Door,
    ) {
        let (mut lists, sessions) = (0, &self.sessions);
        let bytes = message.topic.as_str().len() + message.attributes.len() + message.payload.len();
        let takes = |session: &Session| session.has_room(bytes, &self.settings);
        self.routes.matching(message.topic, &mut |route| {
            lists += 1 + route.groups.len();
            for subscriber in &route.subscribers {
                if let Some(origin) = origin {
                    let session = &sessions[subscriber.slot];
                    let is_own = subscriber.options.no_local && origin.session == session.serial;
                    // Published before it subscribed: it got what was retained then.
                    let is_early = origin.retained > 0 && origin.retained <= subscriber.since;
                    if is_own || is_early {
                        continue;
                    }
                }
                matched.push(Match::of(subscriber, false));
            }
            for group in &route.groups {
                // Those who are away are asked for what their users may now.
                let member = group.choose(sessions, takes, |session| match &session.link {
                    Some(link) => door.may_receive(link.conn, message.topic),
                    None => door.may_user_receive(user_of(&session.key), message.topic),
                });
                matched.extend(member.map(|member| Match::of(&member, true)));
            }
            false
        });
        if lists > 1 {
            matched.sort_by_key(|found| (found.slot, found.shared));
        }
    }

    /// Gives a message to one session.
    fn give(&mut self, share: Share, outgoing: &mut Outgoing<'_>, cx: &mut Cx<'_>) {
        let Some(session) = self.sessions.get_mut(share.slot) else { return };
        let Some(link) = &session.link else {
            if share.qos > 0 {
                self.enqueue(share, outgoing, cx);
            }
            return;
        };
        let (conn, version, max_packet) = (link.conn, link.version, link.max_packet);
        if !cx.door.may_receive(conn, outgoing.message.topic) {
            return;
        }
        if share.qos > 0 {
            // What was sent on a former connection comes first.
            let has_room = session.queued() == 0
                && session.inflight.len() == link.outstanding
                && session.has_window(self.settings.max_queued_bytes)
                && (session.inflight_bytes() == 0 || !self.is_crowded_by(outgoing))
                && cx.out.queued_bytes(conn) < MAX_UNSENT;
            match has_room {
                true => self.send_now(share, outgoing, cx),
                false => self.enqueue(share, outgoing, cx),
            }
        } else if session.for_new > 0 {
            self.enqueue(share, outgoing, cx);
        } else if share.ids.is_empty() {
            let range = outgoing.whole(version, share.retain, cx);
            let fits = range.len as usize <= max_packet;
            self.count_pushed(fits, fits && cx.out.push(conn, range), cx);
        } else {
            let head =
                outgoing.head(version, How { retain: share.retain, ids: &share.ids, ..How::default() });
            let fits = head.len() + outgoing.message.payload.len() <= max_packet;
            self.count_pushed(fits, fits && push_split(conn, &head, outgoing, cx), cx);
        }
    }

    /// Counts a message of QoS 0. What the connection did not take is counted there as dropped.
    fn count_pushed(&mut self, fits: bool, pushed: bool, cx: &mut Cx<'_>) {
        match (fits, pushed) {
            (_, true) => self.count_sent(cx),
            (true, false) => self.counts.dropped += 1,
            (false, false) => self.count_dropped(cx),
        }
    }

    /// A client gets a message, for the first time.
    fn count_sent(&mut self, cx: &mut Cx<'_>) {
        self.counts.published_out += 1;
        cx.out.delivered(1);
    }

    /// A client does not get a message.
    pub(super) fn count_dropped(&mut self, cx: &mut Cx<'_>) {
        self.counts.dropped += 1;
        cx.out.dropped(1);
    }

    /// Sends a message of QoS 1 or 2 that nothing is before.
    fn send_now(&mut self, share: Share, outgoing: &mut Outgoing<'_>, cx: &mut Cx<'_>) {
        let message = outgoing.stored();
        let Share { slot, qos, retain, ids } = share;
        let session = &mut self.sessions[slot];
        let packet_id = session.begin(Pending { message, qos, retain, for_new: false, ids: ids.clone() });
        let Some(link) = &session.link else { return };
        let (conn, version, max_packet) = (link.conn, link.version, link.max_packet);
        let head = outgoing.head(version, How { dup: false, qos, retain, packet_id, ids: &ids });
        let len = head.len() + outgoing.message.payload.len();
        if len > max_packet {
            // The client takes no packet of this size: for it, the message is done.
            session.finish(packet_id);
            return self.count_dropped(cx);
        }
        self.count_sent(cx);
        if outgoing.message.payload.len() < SHARED_PAYLOAD {
            let mut bytes = head;
            bytes.extend_from_slice(outgoing.message.payload);
            cx.out.send(conn, &bytes);
        } else {
            let range = outgoing.payload(cx);
            if !cx.out.push_with(conn, &head, range) {
                // It is sent as soon as the connection has room.
                self.sessions[slot].unsend(packet_id);
                self.stalled.insert(slot);
            }
        }
    }

    /// Whether all sessions together have no room for a message.
    fn is_crowded_by(&self, outgoing: &Outgoing<'_>) -> bool {
        let Message { topic, attributes, payload } = outgoing.message;
        let bytes = topic.as_str().len() + attributes.len() + payload.len();
        self.held.load(Ordering::Relaxed) + bytes > self.settings.max_session_bytes
    }

    /// Keeps a message until the session can get it.
    fn enqueue(&mut self, share: Share, outgoing: &mut Outgoing<'_>, cx: &mut Cx<'_>) {
        let message = outgoing.stored();
        let Share { slot, qos, retain, ids } = share;
        let (bytes, settings) = (message.bytes(), &self.settings);
        let session = &mut self.sessions[slot];
        let is_crowded = self.held.load(Ordering::Relaxed) + bytes > settings.max_session_bytes;
        self.is_crowded |= is_crowded;
        let is_full = !session.has_room(bytes, settings);
        if is_full || is_crowded {
            return self.on_no_room(slot, is_full, cx);
        }
        session.push(Pending { message, qos, retain, for_new: false, ids });
        if session.link.is_some() {
            self.stalled.insert(slot);
        }
    }

    /// Sends the retained messages of a new subscription.
    pub(super) fn send_retained(
        &mut self,
        conn: ConnId,
        slot: usize,
        filter: &TopicFilter,
        wish: RetainedWish,
        cx: &mut Cx<'_>,
    ) {
        if self.sessions[slot].for_new > self.settings.max_retained {
            return;
        }
        let unix_ms = self.clock.unix_ms(cx.now);
        let found = match is_own(filter) {
            true => self.own_values(filter, cx.now),
            false => self.retained.matching(filter),
        };
        let session = &mut self.sessions[slot];
        for retained in found {
            let message = retained.message;
            let most = self.settings.max_retained;
            if session.for_new > most
                || self.held.load(Ordering::Relaxed) > self.settings.max_session_bytes
                || message.is_expired(unix_ms)
                || !cx.door.may_receive(conn, &message.topic)
            {
                continue;
            }
            let (qos, ids) = (wish.qos.min(retained.qos), wish.id.into_iter().collect());
            match is_own(filter) {
                true => session.push(Pending { message, qos, retain: true, for_new: true, ids }),
                false => session.push_retained(&message, qos, ids),
            }
        }
        self.pump(slot, cx);
    }
}

/// Queues and acknowledgements.
impl Mqtt {
    /// A session has a connection: what was in flight comes again, then what waits.
    pub(super) fn resume_session(&mut self, slot: usize, cx: &mut Cx<'_>) {
        self.pump(slot, cx);
    }

    /// Sends what a session has, as far as its window and its connection allow.
    pub(super) fn pump(&mut self, slot: usize, cx: &mut Cx<'_>) {
        let Some(link) = self.sessions.get(slot).and_then(|session| session.link.as_ref()) else { return };
        let conn = link.conn;
        let unix_ms = self.clock.unix_ms(cx.now);
        let mut is_full = false;
        loop {
            is_full = is_full || cx.out.queued_bytes(conn) >= MAX_UNSENT;
            if is_full || !(self.send_again(slot, unix_ms, cx) || self.send_next(slot, unix_ms, cx)) {
                break;
            }
        }
        let session = &self.sessions[slot];
        let outstanding = session.link.as_ref().map_or(0, |link| link.outstanding);
        let waits = session.queued() > 0 || session.inflight.len() > outstanding;
        match waits && is_full {
            true => _ = self.stalled.insert(slot),
            false => _ = self.stalled.remove(&slot),
        }
    }

    /// Sends the oldest message again that was not sent on this connection. Returns whether there was one, and room for it.
    fn send_again(&mut self, slot: usize, unix_ms: u64, cx: &mut Cx<'_>) -> bool {
        let session = &mut self.sessions[slot];
        let Some(link) = &mut session.link else { return false };
        if link.outstanding >= link.window || session.inflight.len() == link.outstanding {
            return false;
        }
        let Some(inflight) = session.inflight.iter_mut().find(|inflight| !inflight.sent) else {
            return false;
        };
        inflight.sent = true;
        link.outstanding += 1;
        let (conn, version, packet_id) = (link.conn, link.version, inflight.id);
        match &inflight.message {
            None => {
                let (reason, properties) = (reason::SUCCESS, Properties::default());
                let pubrel = Packet::Ack(Ack { kind: AckKind::Pubrel, packet_id, reason, properties });
                cx.out.send(conn, &pubrel.encode(version));
            }
            // The right was taken since.
            Some(pending) if !cx.door.may_receive(conn, &pending.message.topic) => session.finish(packet_id),
            Some(pending) => {
                let bytes = encode(version, pending, packet_id, true, unix_ms);
                if bytes.len() > link.max_packet {
                    session.finish(packet_id);
                    self.count_dropped(cx);
                } else {
                    self.counts.published_out += 1;
                    cx.out.send(conn, &bytes);
                }
            }
        }
        true
    }

    /// Sends the next message of the queue. Returns whether there was one, and room for it.
    fn send_next(&mut self, slot: usize, unix_ms: u64, cx: &mut Cx<'_>) -> bool {
        let session = &mut self.sessions[slot];
        let Some(link) = &session.link else { return false };
        let (conn, version, max_packet) = (link.conn, link.version, link.max_packet);
        let is_full = !session.has_window(self.settings.max_queued_bytes);
        if session.next_qos().is_none_or(|qos| qos > 0 && is_full) {
            return false;
        }
        let Some(pending) = session.pop() else { return false };
        if pending.message.is_expired(unix_ms) {
            self.counts.expired += 1;
            return true;
        }
        if !cx.door.may_receive(conn, &pending.message.topic) {
            return true;
        }
        let packet_id = if pending.qos > 0 { session.begin(pending.clone()) } else { 0 };
        let bytes = encode(version, &pending, packet_id, false, unix_ms);
        if bytes.len() > max_packet {
            session.finish(packet_id);
            self.count_dropped(cx);
        } else {
            self.count_sent(cx);
            cx.out.send(conn, &bytes);
        }
        true
    }

    /// Executes PUBACK, PUBREC and PUBCOMP.
    pub(super) fn acknowledged(&mut self, conn: ConnId, slot: usize, ack: Ack<'_>, cx: &mut Cx<'_>) {
        let (session, packet_id) = (&mut self.sessions[slot], ack.packet_id);
        let state = session.find(packet_id).map(|inflight| (inflight.qos, inflight.message.is_none()));
        match (ack.kind, state) {
            (AckKind::Puback, Some((1, _))) | (AckKind::Pubcomp, Some((2, true))) => {
                session.finish(packet_id)
            }
            (AckKind::Pubrec, Some((2, false))) if ack.reason >= reason::UNSPECIFIED => {
                session.finish(packet_id);
            }
            (AckKind::Pubrec, _) => {
                let known = matches!(state, Some((2, _)));
                if known {
                    session.record(packet_id);
                }
                if ack.reason < reason::UNSPECIFIED {
                    let reason = if known { reason::SUCCESS } else { reason::ID_UNKNOWN };
                    let properties = Properties::default();
                    let pubrel = Ack { kind: AckKind::Pubrel, packet_id, reason, properties };
                    self.reply(conn, Packet::Ack(pubrel), cx);
                }
            }
            _ => {}
        }
        self.pump(slot, cx);
    }
}

/// Queues a head and the payload behind it. The head is the connection's own: one frame for each client would overwrite the payload's.
fn push_split(conn: ConnId, head: &[u8], outgoing: &mut Outgoing<'_>, cx: &mut Cx<'_>) -> bool {
    let range = outgoing.payload(cx);
    cx.out.push_with(conn, head, range)
}

fn encode(version: Version, pending: &Pending, packet_id: u16, dup: bool, unix_ms: u64) -> Vec<u8> {
    let Stored { topic, attributes, payload, .. } = &*pending.message;
    let mut properties = Vec::new();
    if version == Version::V5 {
        put_properties(attributes, unix_ms, &mut properties);
    }
    let message = Message { topic, attributes, payload };
    let ids: &[u32] = if version == Version::V5 { &pending.ids } else { &[] };
    let how = How { dup, qos: pending.qos, retain: pending.retain, packet_id, ids };
    let mut bytes = head(version, message, &properties, how);
    bytes.extend_from_slice(payload);
    bytes
}
