//! PUBACK and PUBREC: at once, or when the message has come back from the broker.
//!
//! With a journal, a message that sessions of this gateway wait for is acknowledged when it has come back: then it is in the journal for those
//! that are away, and a topic on disk has it, as it reaches nobody before. Without such sessions, a message to a topic on disk is acknowledged
//! when it is in the file; one to a space on disk comes back in any case. Beside a broker in another process, every message waits until that broker
//! has it, with and without a journal, and for sessions only if the gateway receives its topic from the start: the broker may refuse other filters. Acknowledgements keep the order of the messages.

use std::collections::VecDeque;

use rbmq_wire::TopicName;

use crate::protocol::{ConnId, Cx, Kept};

use super::codec::{Ack, AckKind, Packet, Properties, Version, reason};
use super::state::{Awaited, Disk, Fault, Mqtt, Owed, Waits};

impl Mqtt {
    /// What a message has to wait for; none: it is acknowledged at once.
    pub(super) fn waits_for(&self, topic: &TopicName, qos: u8, cx: &mut Cx<'_>) -> Option<Waits> {
        let has_journal = self.journal.is_some();
        if qos == 0 || !(has_journal || cx.bus.is_beside()) {
            return None;
        }
        let comes_back = has_journal && cx.bus.comes_back(topic);
        let sessions = comes_back && self.routes.matching(topic, &mut |route| route.in_force);
        let disk = match cx.bus.kept(topic) {
            Kept::No => Disk::No,
            Kept::InSpace => Disk::Space,
            Kept::Yes { .. } | Kept::Elsewhere => Disk::File,
        };
        (sessions || disk != Disk::No).then_some(Waits { sessions, disk })
    }

    /// The number of the next message that waits.
    pub(super) fn next_number(&self) -> u64 {
        self.numbered + 1
    }

    /// A message was published that waits, with the next number.
    pub(super) fn await_message(&mut self, awaited: Awaited) {
        self.numbered += 1;
        let number = self.numbered;
        if let Some(client) = self.clients.get_mut(&awaited.conn) {
            client.owed.push_back(Owed { number, packet: None });
        }
        if awaited.qos == 2 {
            self.sessions[awaited.slot].receive(awaited.packet_id, Some(number));
        }
        self.awaited.insert(number, awaited);
    }

    /// The client has sent a message again that is on its way: its acknowledgement goes to this connection.
    pub(super) fn await_again(&mut self, number: u64, conn: ConnId) {
        let Some(awaited) = self.awaited.get_mut(&number) else { return };
        awaited.conn = conn;
        if let Some(client) = self.clients.get_mut(&conn)
            && client.owed.iter().all(|owed| owed.number != number)
        {
            client.owed.push_back(Owed { number, packet: None });
        }
    }

    /// Sends an acknowledgement, behind those that are owed.
    pub(super) fn send_ack(&mut self, conn: ConnId, ack: Ack<'_>, cx: &mut Cx<'_>) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        let packet = Packet::Ack(ack).encode(client.version);
        match client.owed.is_empty() {
            true => cx.out.send(conn, &packet),
            false => client.owed.push_back(Owed { number: 0, packet: Some(packet) }),
        }
    }

    /// A message has come back, and all sessions have it.
    pub(super) fn came_back(&mut self, number: u64, topic: &TopicName, cx: &mut Cx<'_>) {
        if self.awaited.get(&number).is_some_and(|awaited| awaited.topic == *topic)
            && let Some(awaited) = self.awaited.remove(&number)
        {
            self.fulfil(number, &awaited, reason::SUCCESS, cx);
        }
    }

    /// A message is in the file of its topic, or nobody knows.
    pub(super) fn stored(&mut self, number: u64, is_stored: bool, cx: &mut Cx<'_>) {
        let Some(awaited) = self.awaited.get_mut(&number) else { return };
        awaited.waits.disk = Disk::No;
        if is_stored && awaited.waits.sessions {
            return;
        }
        let reason = if is_stored { reason::SUCCESS } else { reason::UNSPECIFIED };
        if let Some(awaited) = self.awaited.remove(&number) {
            self.fulfil(number, &awaited, reason, cx);
        }
    }

    /// Answers a message.
    fn fulfil(&mut self, number: u64, awaited: &Awaited, reason: u8, cx: &mut Cx<'_>) {
        let Awaited { conn, slot, serial, packet_id, qos, .. } = *awaited;
        if qos == 2
            && let Some(session) = self.session(slot, serial)
        {
            match reason {
                reason::SUCCESS => _ = session.settle(packet_id, number),
                _ => session.give_up(packet_id, number),
            }
        }
        let Some(client) = self.clients.get_mut(&conn) else { return };
        let Some(owed) = client.owed.iter_mut().find(|owed| owed.number == number) else { return };
        if reason != reason::SUCCESS && client.version == Version::V311 {
            // It has no word for it, and sends the message again when it comes back.
            return self.fail(conn, Fault::new(reason, "a message may be lost on its way to the broker"), cx);
        }
        let kind = if qos == 1 { AckKind::Puback } else { AckKind::Pubrec };
        let ack = Ack { kind, packet_id, reason, properties: Properties::default() };
        owed.packet = Some(Packet::Ack(ack).encode(client.version));
        if client.owed.len() >= self.settings.receive_maximum.into() {
            cx.out.resume(conn);
        }
        while let Some(packet) = client.owed.front_mut().and_then(|owed| owed.packet.take()) {
            client.owed.pop_front();
            cx.out.send(conn, &packet);
        }
    }

    /// Nobody waits for messages of QoS 1 of a connection that is closed.
    pub(super) fn forget_owed(&mut self, owed: &VecDeque<Owed>) {
        for Owed { number, .. } in owed {
            if self.awaited.get(number).is_some_and(|awaited| awaited.qos == 1) {
                self.awaited.remove(number);
            }
        }
    }

    /// Messages of a topic, or of any, do not come back.
    pub(super) fn refuse_awaited(&mut self, topic: Option<&TopicName>, cx: &mut Cx<'_>) {
        let is_lost = |awaited: &Awaited| topic.is_none_or(|topic| awaited.topic == *topic);
        let these = self.take_awaited(is_lost);
        self.fulfil_all(&these, reason::UNSPECIFIED, cx);
    }

    /// Something of a log was lost on its way to this gateway: what would come back in it may not. Where only a file is waited for, the bus tells.
    pub(super) fn refuse_lost(&mut self, log: &TopicName, cx: &mut Cx<'_>) {
        let bus = &*cx.bus;
        let is_lost = |awaited: &Awaited| {
            let comes_back = awaited.waits.sessions || awaited.waits.disk == Disk::Space;
            comes_back && bus.is_log_of(log, &awaited.topic)
        };
        let these = self.take_awaited(is_lost);
        self.fulfil_all(&these, reason::UNSPECIFIED, cx);
    }

    /// Messages that no session waits for any more may not come back.
    pub(super) fn acknowledge_unrouted(&mut self, cx: &mut Cx<'_>) {
        if std::mem::take(&mut self.has_left_route) && !self.awaited.is_empty() {
            let routes = &self.routes;
            for awaited in self.awaited.values_mut() {
                // A filter that is not in force yet gets what is published later.
                awaited.waits.sessions &= routes.matching(&awaited.topic, &mut |route| route.in_force);
            }
            let is_done = |awaited: &Awaited| !awaited.waits.sessions && awaited.waits.disk == Disk::No;
            let these = self.take_awaited(is_done);
            self.fulfil_all(&these, reason::SUCCESS, cx);
        }
    }

    fn take_awaited(&mut self, are: impl Fn(&Awaited) -> bool) -> Vec<(u64, Awaited)> {
        self.awaited.extract_if(.., |_, awaited| are(awaited)).collect()
    }

    fn fulfil_all(&mut self, these: &[(u64, Awaited)], reason: u8, cx: &mut Cx<'_>) {
        these.iter().for_each(|(number, awaited)| self.fulfil(*number, awaited, reason, cx));
    }
}
