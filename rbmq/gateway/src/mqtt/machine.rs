//! The protocol, as the floor sees it.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use rbmq_wire::{Space, TopicFilter, TopicName};
use rocketbufs::Position;

use crate::protocol::{ConnId, Cx, Message, Protocol, Taken, Ticket};

use super::codec::{AckKind, DecodeError, Frame, Packet, Version, decode, reason, split};
use super::journal::Journal;
use super::settings::{LOOK, MAX_FIRST_PACKET};
use super::state::{Alarm, Client, Fault, Mqtt, Stage, Step};

const NO_CONNECT: &str = "the first packet is not CONNECT";

impl Mqtt {
    /// Sends a packet to a client.
    pub(super) fn reply(&self, conn: ConnId, packet: Packet<'_>, cx: &mut Cx<'_>) {
        if let Some(client) = self.clients.get(&conn) {
            cx.out.send(conn, &packet.encode(client.version));
        }
    }

    /// Whether a reason is told to a client: it wants reasons, and takes packets that are so large.
    pub(super) fn tells(&self, conn: ConnId, text: &str) -> bool {
        // The largest packet with a reason string has so many bytes beside it.
        let client = self.clients.get(&conn);
        client.is_some_and(|client| client.wants_reasons && text.len() + 16 <= client.max_packet)
    }

    /// Executes a packet.
    fn packet(&mut self, conn: ConnId, frame: Frame<'_>, cx: &mut Cx<'_>) -> Result<Step, Fault> {
        let Some(client) = self.clients.get(&conn) else { return Ok(Step::Done) };
        let slot = match client.stage {
            Stage::Live(slot) => slot,
            _ => return self.first_packet(conn, frame, cx),
        };
        if client.subscribing.is_some() {
            return Ok(self.go_on_subscribing(conn, slot, cx));
        }
        match decode(client.version, frame)? {
            Packet::Publish(publish) => return self.publish(conn, slot, publish, cx),
            Packet::Ack(ack) => match ack.kind {
                AckKind::Pubrel => self.pubrel(conn, slot, ack.packet_id, cx),
                _ => self.acknowledged(conn, slot, ack, cx),
            },
            Packet::Subscribe(request) => return self.subscribe(conn, slot, request, cx),
            Packet::Unsubscribe(request) => return self.unsubscribe(conn, slot, request, cx),
            Packet::Pingreq => self.reply(conn, Packet::Pingresp, cx),
            Packet::Disconnect(ending) => return self.disconnect(conn, slot, ending, cx),
            Packet::Connect(_) => return Err(Fault::protocol("a second CONNECT")),
            Packet::Auth(_) => return Err(Fault::protocol("AUTH without a method in CONNECT")),
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => {
                return Err(Fault::protocol("a packet of servers"));
            }
        }
        Ok(Step::Done)
    }

    /// Executes the first packet, which has to be CONNECT.
    fn first_packet(&mut self, conn: ConnId, frame: Frame<'_>, cx: &mut Cx<'_>) -> Result<Step, Fault> {
        match decode(Version::V311, frame) {
            Ok(Packet::Connect(connect)) => self.connect(conn, connect, cx),
            Ok(_) => Err(Fault::protocol(NO_CONNECT)),
            Err(error) => {
                let version = version_of(&frame, error);
                if version == Version::V311 && !matches!(error, DecodeError::Version(_)) {
                    // 3.1.1 has no answer to what is no CONNECT.
                    return Err(error.into());
                }
                if let Some(client) = self.clients.get_mut(&conn) {
                    client.version = version;
                }
                cx.out.fault();
                self.refuse(conn, error.into(), cx);
                Ok(Step::Done)
            }
        }
    }

    /// A client broke the protocol.
    fn broken(&mut self, conn: ConnId, fault: Fault, cx: &mut Cx<'_>) {
        cx.out.fault();
        self.fail(conn, fault, cx);
    }

    /// When something is due.
    fn next(&self, now: Instant) -> Option<Instant> {
        let alarm = self.alarms.first().map(|(at, _)| *at);
        let look = (!self.owed.is_empty() || !self.stalled.is_empty()).then(|| now + LOOK);
        let report = (self.own_routes > 0).then_some(self.next_report);
        let has_wall_clock = self.journal.is_some() && self.settings.wall_clock.is_some();
        let clock = has_wall_clock.then_some(self.next_clock);
        let snapshot = self.snapshot.is_some().then_some(now);
        [alarm, look, report, clock, snapshot].into_iter().flatten().min()
    }
}

/// The first packet, of another kind of which one byte is enough: bytes of other protocols may look like the beginning of a long packet.
fn split_first(bytes: &[u8]) -> Result<Option<Frame<'_>>, Fault> {
    match bytes.first() {
        Some(first) if first >> 4 != 1 => Err(Fault::protocol(NO_CONNECT)),
        _ => split(bytes, MAX_FIRST_PACKET).map_err(|error| match error {
            DecodeError::TooLarge { .. } => {
                Fault::new(error.reason(), "the first packet has more than 64 KiB")
            }
            other => other.into(),
        }),
    }
}

/// The version in which a CONNECT that cannot be parsed is answered.
fn version_of(frame: &Frame<'_>, error: DecodeError) -> Version {
    let level = match error {
        DecodeError::Version(level) => Some(level),
        // Behind the name, which has four letters.
        _ => frame.body.get(6).copied(),
    };
    if level.is_some_and(|level| level >= 5) { Version::V5 } else { Version::V311 }
}

impl Protocol for Mqtt {
    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.join_routes(cx);
    }

    fn before_sending(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        self.acknowledge_unrouted(cx);
        self.commit(cx)
    }

    fn on_stored(&mut self, ticket: Ticket, stored: Result<(Position, u64), String>, cx: &mut Cx<'_>) {
        self.stored(ticket.number, stored.is_ok(), cx);
        self.confirmed_will(ticket.number, stored.is_ok());
    }

    fn on_refused(&mut self, topic: &TopicName, cx: &mut Cx<'_>) {
        // The log of a space has many topics.
        self.refuse_awaited((!Space::is_reserved(topic)).then_some(topic), cx);
    }

    fn on_open(&mut self, conn: ConnId, _address: &str, cx: &mut Cx<'_>) {
        let client = Client {
            stage: Stage::New,
            version: Version::V311,
            patience: None,
            heard: cx.now,
            alarm: None,
            blocked: false,
            wants_reasons: true,
            max_packet: usize::MAX,
            aliases: HashMap::new(),
            last_topic: None,
            subscribing: None,
            owed: VecDeque::new(),
        };
        self.clients.insert(conn, client);
        self.set_silence(conn, Some(cx.now + self.settings.connect_timeout));
    }

    fn on_bytes(&mut self, conn: ConnId, bytes: &[u8], cx: &mut Cx<'_>) -> Taken {
        let mut used = 0;
        loop {
            let Some(client) = self.clients.get_mut(&conn) else { return Taken::Bytes(bytes.len()) };
            match client.stage {
                Stage::Closed => return Taken::Bytes(bytes.len()),
                Stage::LoggingIn(_) => return Taken::Blocked(used),
                Stage::New | Stage::Live(_) => {}
            }
            client.blocked = self.journal.as_ref().is_some_and(Journal::is_failing);
            if client.blocked {
                // What it asks for could not be promised.
                return Taken::Blocked(used);
            }
            let next = match client.stage {
                Stage::New => split_first(&bytes[used..]),
                _ => split(&bytes[used..], self.settings.max_packet()).map_err(Fault::from),
            };
            let frame = match next {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    // Of a large packet, or a client whose bytes are delayed, a part is a sign of life.
                    if used < bytes.len() && client.slot().is_some() {
                        client.heard = cx.now;
                    }
                    return Taken::Bytes(used);
                }
                Err(fault) => {
                    self.broken(conn, fault, cx);
                    return Taken::Bytes(bytes.len());
                }
            };
            client.heard = cx.now;
            match self.packet(conn, frame, cx) {
                Ok(Step::Done) => used += frame.len,
                Ok(Step::Again) => {
                    if let Some(client) = self.clients.get_mut(&conn) {
                        client.blocked = true;
                    }
                    return Taken::Blocked(used);
                }
                Ok(Step::Waits) => return Taken::Blocked(used),
                Ok(Step::Later) => return Taken::Later(used),
                Err(fault) => {
                    self.broken(conn, fault, cx);
                    return Taken::Bytes(bytes.len());
                }
            }
            self.counts.packets_in += 1;
            self.counts.bytes_in += frame.len as u64;
        }
    }

    fn on_closed(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        self.set_silence(conn, None);
        let Some(client) = self.clients.remove(&conn) else { return };
        self.forget_owed(&client.owed);
        if let Some(slot) = client.slot() {
            self.detach(slot, cx);
        }
    }

    fn on_message(&mut self, message: Message<'_>, cx: &mut Cx<'_>) {
        self.deliver(message, cx);
    }

    fn on_subscribed(&mut self, filter: &TopicFilter, cx: &mut Cx<'_>) {
        self.in_force(filter, None, cx);
    }

    fn on_not_subscribed(&mut self, filter: &TopicFilter, is_limit: bool, cx: &mut Cx<'_>) {
        self.in_force(filter, Some(if is_limit { reason::QUOTA } else { reason::NOT_AUTHORIZED }), cx);
    }

    fn on_login(&mut self, conn: ConnId, accepted: bool, cx: &mut Cx<'_>) {
        self.logged_in(conn, accepted, cx);
    }

    fn on_lost(&mut self, log: &TopicName, bytes: u64, cx: &mut Cx<'_>) {
        self.counts.lost_bytes += bytes;
        self.refuse_lost(log, cx);
    }

    fn on_drained(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some(slot) = self.clients.get(&conn).and_then(Client::slot) {
            self.pump(slot, cx);
        }
    }

    fn on_time(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        while let Some((at, alarm)) = self.alarms.first().copied()
            && at <= cx.now
        {
            self.alarms.pop_first();
            match alarm {
                Alarm::Silence(conn) => self.look_at_silence(conn, cx),
                Alarm::Session { slot, serial } => self.look_at_session(slot, serial, cx),
            }
        }
        self.look_at_clock(cx.now);
        self.pay_wills(cx);
        self.report(cx);
        for slot in std::mem::take(&mut self.stalled) {
            self.pump(slot, cx);
        }
        self.next(cx.now)
    }

    fn has_unpublished(&self) -> bool {
        !self.owed.is_empty() || !self.sent_wills.is_empty()
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        let conns: Vec<ConnId> = self.clients.keys().copied().collect();
        for conn in conns {
            self.say_goodbye(conn, cx);
        }
    }
}
