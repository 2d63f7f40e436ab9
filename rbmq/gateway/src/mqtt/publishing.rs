//! PUBLISH of clients, on its way to the bus.

use std::hash::BuildHasher;
use std::sync::Arc;

use rbmq_wire::TopicName;

use crate::protocol::{ConnId, Cx, PublishError, Ticket};

use super::codec::{Ack, AckKind, Packet, Properties, Property, Publish, Version, reason};
use super::message::{Origin, Publication, Stored, attributes_of};
use super::retained::Retained;
use super::state::{Awaited, Client, Disk, Fault, Mqtt, Step, Waits};

/// Why a message was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    reason: u8,
    text: String,
}

impl Refusal {
    fn new(reason: u8, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }
}

impl Mqtt {
    /// Executes PUBLISH.
    pub(super) fn publish(
        &mut self,
        conn: ConnId,
        slot: usize,
        publish: Publish<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Step, Fault> {
        let Some(client) = self.clients.get_mut(&conn) else { return Ok(Step::Done) };
        let version = client.version;
        if publish.qos > 0 && client.owed.len() >= self.settings.receive_maximum.into() {
            // Until some are acknowledged; then the connection is read again.
            client.blocked = true;
            return Ok(Step::Waits);
        }
        let topic = topic_of(client, &publish, self.settings.topic_alias_maximum)?;
        if publish.qos == 2 && self.is_repeated(conn, slot, publish, cx)? {
            return Ok(Step::Done);
        }
        let refusal = match topic {
            Err(refusal) if publish.qos == 0 || version == Version::V311 => {
                return Err(Fault::new(refusal.reason, "the name of the topic is not acceptable"));
            }
            Err(refusal) => Some(refusal),
            Ok(topic) => match self.hand_over(conn, slot, &topic, &publish, cx) {
                Err(None) => return Ok(Step::Again),
                Err(Some(refusal)) => Some(refusal),
                Ok(Some(waits)) => {
                    self.counts.published_in += 1;
                    let (serial, Publish { packet_id, qos, .. }) = (self.sessions[slot].serial, publish);
                    self.await_message(Awaited { topic, conn, slot, serial, packet_id, qos, waits });
                    return Ok(Step::Done);
                }
                Ok(None) => None,
            },
        };
        match refusal {
            None => {
                self.counts.published_in += 1;
                if publish.qos == 2 {
                    self.sessions[slot].receive(publish.packet_id, None);
                }
                self.acknowledge(conn, publish, None, cx);
            }
            Some(refusal) => self.refuse_publish(conn, slot, publish, refusal, cx),
        }
        Ok(Step::Done)
    }

    /// Answers a message that is not published. The acknowledgements of 3.1.1 say that it is: without the right, the client would try again
    /// in vain; otherwise it is to send the message again when it comes back.
    fn refuse_publish(
        &mut self,
        conn: ConnId,
        slot: usize,
        publish: Publish<'_>,
        refusal: Refusal,
        cx: &mut Cx<'_>,
    ) {
        self.counts.refused += 1;
        let cannot_tell = self.clients.get(&conn).is_some_and(|client| client.version == Version::V311);
        if cannot_tell && publish.qos > 0 && refusal.reason != reason::NOT_AUTHORIZED {
            // The log has the whole reason, as the client has none.
            cx.out.close(conn, &format!("a message cannot be published: {}", refusal.text));
            return self.fail(conn, Fault::new(refusal.reason, "a message cannot be published"), cx);
        }
        if cannot_tell && publish.qos == 2 {
            self.sessions[slot].receive(publish.packet_id, None);
        }
        self.acknowledge(conn, publish, Some(refusal), cx);
    }

    /// Whether a message of QoS 2 came before, and is not released. Then it is answered as before.
    fn is_repeated(
        &mut self,
        conn: ConnId,
        slot: usize,
        publish: Publish<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<bool, Fault> {
        let session = &self.sessions[slot];
        if session.has_received(publish.packet_id) {
            match session.on_its_way(publish.packet_id) {
                Some(number) => self.await_again(number, conn),
                // It was delivered: only the PUBREC did not arrive.
                None => self.acknowledge(conn, publish, None, cx),
            }
            return Ok(true);
        }
        if session.unreleased() >= self.settings.receive_maximum.into() {
            let text = "too many messages of QoS 2 are not released";
            return Err(Fault::new(reason::RECEIVE_MAXIMUM, text));
        }
        Ok(false)
    }

    /// Publishes a message of a client on the bus. Returns what it has to wait for, if it is not acknowledged at once. No refusal: the bus
    /// has no room, or the disk.
    fn hand_over(
        &mut self,
        conn: ConnId,
        slot: usize,
        topic: &TopicName,
        publish: &Publish<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Option<Waits>, Option<Refusal>> {
        if topic.as_str().starts_with('$') {
            let text = "topics that begin with '$' are the broker's";
            return Err(Some(Refusal::new(reason::NOT_AUTHORIZED, text)));
        }
        if !cx.door.may_publish(conn, topic) {
            return Err(Some(Refusal::new(reason::NOT_AUTHORIZED, "no right to publish to this topic")));
        }
        let (session, waits) = (&self.sessions[slot], self.waits_for(topic, publish.qos, cx));
        let number = waits.map_or(0, |_| self.next_number());
        let (qos, retain) = (publish.qos, publish.retain);
        let needs_origin = retain || number > 0 || session.has_no_local();
        let origin = needs_origin.then(|| self.origin(session.serial, topic, retain, number));
        let is_filed = waits.is_some_and(|waits| waits.disk == Disk::File);
        let ticket = is_filed.then_some(Ticket { conn, number });
        let unix_ms = self.clock.unix_ms(cx.now);
        let publication = Publication { qos, retain, origin, ticket, unix_ms };
        let mut attributes = std::mem::take(&mut self.scratch.attributes);
        let put = match attributes_of(publish.properties, publication, &mut attributes) {
            Err(error) => Err(Some(Refusal::new(reason::IMPLEMENTATION, error.to_string()))),
            Ok(()) => self.check_retained(conn, topic, &attributes, publish, unix_ms).and_then(|keep| {
                let publication = Publication { retain: keep, ..publication };
                self.put(topic, &attributes, publish.payload, publication, cx).map_err(refusal_of)?;
                self.counts.not_retained += u64::from(retain && !keep);
                Ok(())
            }),
        };
        self.scratch.attributes = attributes;
        put.map(|()| waits)
    }

    /// Where a message comes from.
    pub(super) fn origin(&self, session: u64, topic: &TopicName, retain: bool, number: u64) -> Origin {
        let retained = if retain { self.retained_so_far + 1 } else { 0 };
        let origin = Origin { mark: 0, session, retained, number };
        Origin { mark: self.mark_of(&origin, topic), ..origin }
    }

    /// Whether this gateway has published a message to this topic with this origin.
    pub(super) fn is_own(&self, origin: &Origin, topic: &TopicName) -> bool {
        origin.mark == self.mark_of(origin, topic)
    }

    fn mark_of(&self, origin: &Origin, topic: &TopicName) -> u64 {
        let Origin { session, retained, number, .. } = *origin;
        self.marks.hash_one((self.gateway, session, retained, number, topic.as_str()))
    }

    /// Whether a message is to be kept as a retained one. Without room for it, a client that can be told is refused.
    fn check_retained(
        &mut self,
        conn: ConnId,
        topic: &TopicName,
        attributes: &[u8],
        publish: &Publish<'_>,
        unix_ms: u64,
    ) -> Result<bool, Option<Refusal>> {
        if !publish.retain || publish.payload.is_empty() {
            return Ok(publish.retain);
        }
        let bytes = topic.as_str().len() + attributes.len() + publish.payload.len();
        if !self.retained.has_room(topic, bytes, &self.settings) {
            self.retained.expire(unix_ms);
        }
        if self.retained.has_room(topic, bytes, &self.settings) {
            return Ok(true);
        }
        if publish.qos > 0 && self.clients.get(&conn).is_some_and(|client| client.version == Version::V5) {
            return Err(Some(Refusal::new(reason::QUOTA, "there is no room for more retained messages")));
        }
        Ok(false)
    }

    /// Publishes a message, and keeps or forgets the retained one.
    ///
    /// # Errors
    /// The bus did not take it, and nothing has changed.
    pub(super) fn put(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        publication: Publication,
        cx: &mut Cx<'_>,
    ) -> Result<(), PublishError> {
        match publication.ticket {
            Some(ticket) => cx.bus.append(topic, attributes, payload, ticket)?,
            None => cx.bus.publish(topic, attributes, payload)?,
        }
        if !publication.retain {
            return Ok(());
        }
        self.retained_so_far += 1;
        let stored = Stored::new(topic.clone(), attributes, payload);
        if payload.is_empty() {
            self.retained.remove(topic);
        } else if self.retained.has_room(topic, stored.bytes(), &self.settings) {
            self.retained.put(Retained { message: Arc::new(stored), qos: publication.qos });
        } else {
            self.counts.not_retained += 1;
        }
        Ok(())
    }

    /// Answers a PUBLISH: with PUBACK, PUBREC or nothing.
    fn acknowledge(&mut self, conn: ConnId, publish: Publish<'_>, refusal: Option<Refusal>, cx: &mut Cx<'_>) {
        let kind = match publish.qos {
            0 => return,
            1 => AckKind::Puback,
            _ => AckKind::Pubrec,
        };
        let mut bytes = Vec::new();
        if let Some(refusal) = &refusal {
            let text = refusal.text.replace('\0', " ");
            let text = &text[..text.floor_char_boundary(1000)];
            if self.tells(conn, text) {
                Property::ReasonString(text).put(&mut bytes);
            }
        }
        let reason = refusal.map_or(reason::SUCCESS, |refusal| refusal.reason);
        let properties = Properties::new(&bytes);
        self.send_ack(conn, Ack { kind, packet_id: publish.packet_id, reason, properties }, cx);
    }

    /// Executes PUBREL.
    pub(super) fn pubrel(&mut self, conn: ConnId, slot: usize, packet_id: u16, cx: &mut Cx<'_>) {
        let known = self.sessions[slot].release(packet_id);
        let reason = if known { reason::SUCCESS } else { reason::ID_UNKNOWN };
        let properties = Properties::default();
        self.reply(conn, Packet::Ack(Ack { kind: AckKind::Pubcomp, packet_id, reason, properties }), cx);
    }
}

/// The topic of a PUBLISH, by its name or alias.
fn topic_of(
    client: &mut Client,
    publish: &Publish<'_>,
    most: u16,
) -> Result<Result<TopicName, Refusal>, Fault> {
    let mut alias = None;
    for property in publish.properties.iter() {
        match property {
            Property::TopicAlias(number) => alias = Some(number),
            Property::SubscriptionId(_) => return Err(Fault::protocol("a client sends a subscription id")),
            Property::ResponseTopic(topic) if topic.contains(['+', '#']) => {
                return Err(Fault::protocol("a response topic with wildcards"));
            }
            _ => {}
        }
    }
    if alias.is_some_and(|alias| alias == 0 || alias > most) {
        return Err(Fault::new(reason::ALIAS_INVALID, "a topic alias that is 0 or above the maximum"));
    }
    if publish.topic.contains(['+', '#']) {
        return Err(Fault::new(reason::TOPIC_INVALID, "a topic with wildcards"));
    }
    match (publish.topic, alias) {
        ("", None) => Err(Fault::protocol("neither topic nor alias")),
        ("", Some(alias)) => match client.aliases.get(&alias) {
            Some(topic) => Ok(Ok(topic.clone())),
            None => Err(Fault::protocol("a topic alias without topic")),
        },
        (name, alias) => {
            let topic = match client.last_topic.take().filter(|last| last.as_str() == name) {
                Some(last) => last,
                None => match name.parse::<TopicName>() {
                    Ok(topic) => topic,
                    Err(error) => return Ok(Err(Refusal::new(reason::TOPIC_INVALID, error.to_string()))),
                },
            };
            client.last_topic = Some(topic.clone());
            if let Some(alias) = alias {
                client.aliases.insert(alias, topic.clone());
            }
            Ok(Ok(topic))
        }
    }
}

fn refusal_of(error: PublishError) -> Option<Refusal> {
    match error {
        PublishError::Full | PublishError::NoDisk(_) => None,
        PublishError::TooLarge { most } => {
            let text = format!(
                "the message has more than {most} bytes, the most that gateway.max_message_bytes and the ring of its topic (ring_bytes) allow"
            );
            Some(Refusal::new(reason::QUOTA, text))
        }
        PublishError::Refused(text) => Some(Refusal::new(reason::IMPLEMENTATION, text)),
    }
}
