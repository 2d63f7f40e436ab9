//! The state of a session: all that outlives a connection, in one place.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rbmq_wire::{TopicFilter, TopicName};

use crate::protocol::ConnId;

use super::codec::Version;
use super::message::Stored;

/// A will.
#[derive(Debug)]
pub(super) struct OwnedWill {
    pub(super) topic: TopicName,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// Encoded properties without the will delay.
    pub(super) properties: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) delay: Duration,
}

/// The connection of a session.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) conn: ConnId,
    pub(super) version: Version,
    /// Most messages of QoS 1 and 2 without acknowledgement.
    pub(super) window: usize,
    /// How many there are on this connection.
    pub(super) outstanding: usize,
    /// The largest packet that the client takes.
    pub(super) max_packet: usize,
}

/// A message that waits.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) message: Arc<Stored>,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// A retained message for a new subscription, which is bounded by the number of retained messages and not by the limit of the queue.
    pub(super) for_new: bool,
    /// Subscription ids.
    pub(super) ids: Box<[u32]>,
}

/// A message of QoS 1 or 2 that was sent.
#[derive(Debug)]
pub(super) struct Inflight {
    pub(super) id: u16,
    /// The message; none: PUBREC has come, and PUBREL is owed or was sent.
    pub(super) message: Option<Pending>,
    pub(super) qos: u8,
    /// Whether it was sent on this connection.
    pub(super) sent: bool,
    /// The number of messages before it.
    number: u64,
}

/// Retained messages that a new subscription got before they came through the bus: they are not delivered again.
#[derive(Debug)]
pub(super) struct Skip {
    pub(super) filter: TopicFilter,
    pub(super) topic: TopicName,
    pub(super) number: u64,
}

/// Most entries of [`Session::skips`].
const MAX_SKIPS: usize = 1000;
/// Most ids of [`Session::released`].
const MAX_RELEASED: usize = 1000;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number, which no other session has.
    pub(super) serial: u64,
    /// Its key in the table: the user and the client id, so that no user gets the session of another.
    pub(super) key: Box<str>,
    pub(super) link: Option<Link>,
    /// Which departure its last connection was; none: it has a connection.
    pub(super) away: Option<u64>,
    /// How long it lives without a connection; none: as long as the gateway.
    pub(super) expiry: Option<Duration>,
    /// When it ends; none: it has a connection, or does not end.
    pub(super) ends_at: Option<Instant>,
    pub(super) will: Option<OwnedWill>,
    /// When the will is published, after the connection has gone.
    pub(super) will_at: Option<Instant>,
    /// The filters, and whether their subscriptions leave out own messages.
    pub(super) subscriptions: BTreeMap<TopicFilter, bool>,
    /// Ids of QoS 2 that the client has not released.
    pub(super) received: HashSet<u16>,
    /// Ids that the client has released last: it may not have got the PUBCOMP, and may release them again.
    pub(super) released: VecDeque<u16>,
    /// Sent and not acknowledged, in order.
    pub(super) inflight: VecDeque<Inflight>,
    /// Not sent yet, in order.
    pub(super) queue: VecDeque<Pending>,
    pub(super) queued_bytes: usize,
    /// Messages in the queue for new subscriptions.
    pub(super) for_new: usize,
    pub(super) skips: VecDeque<Skip>,
    sent: u64,
    last_id: u16,
}

impl Session {
    pub(super) fn new(serial: u64, key: Box<str>) -> Self {
        Self {
            serial,
            key,
            link: None,
            away: None,
            expiry: Some(Duration::ZERO),
            ends_at: None,
            will: None,
            will_at: None,
            subscriptions: BTreeMap::new(),
            received: HashSet::new(),
            released: VecDeque::new(),
            inflight: VecDeque::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            for_new: 0,
            skips: VecDeque::new(),
            sent: 0,
            last_id: 0,
        }
    }

    /// Whether some subscription leaves out own messages.
    pub(super) fn has_no_local(&self) -> bool {
        self.subscriptions.values().any(|no_local| *no_local)
    }

    /// The number of live messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.for_new
    }

    pub(super) fn push(&mut self, pending: Pending) {
        if pending.for_new {
            self.for_new += 1;
        } else {
            self.queued_bytes += pending.message.bytes();
        }
        self.queue.push_back(pending);
    }

    pub(super) fn pop(&mut self) -> Option<Pending> {
        let pending = self.queue.pop_front()?;
        self.forget(&pending);
        Some(pending)
    }

    fn forget(&mut self, pending: &Pending) {
        if pending.for_new {
            self.for_new -= 1;
        } else {
            self.queued_bytes -= pending.message.bytes();
        }
    }

    /// A new message is sent: its packet id.
    pub(super) fn begin(&mut self, pending: Pending) -> u16 {
        let id = self.next_id();
        let qos = pending.qos;
        self.inflight.push_back(Inflight { id, message: Some(pending), qos, sent: true, number: self.sent });
        self.sent += 1;
        if let Some(link) = &mut self.link {
            link.outstanding += 1;
        }
        id
    }

    /// An id that no message has. Ids are given in turn, so that only the oldest message can have the next one, until it is that old.
    fn next_id(&mut self) -> u16 {
        let is_old =
            self.inflight.front().is_some_and(|oldest| self.sent - oldest.number >= u64::from(u16::MAX) - 1);
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !is_old || self.inflight.iter().all(|inflight| inflight.id != self.last_id) {
                return self.last_id;
            }
        }
    }

    /// A message was not sent on this connection after all.
    pub(super) fn unsend(&mut self, id: u16) {
        if let Some(inflight) = self.inflight.iter_mut().find(|inflight| inflight.id == id)
            && std::mem::take(&mut inflight.sent)
            && let Some(link) = &mut self.link
        {
            link.outstanding -= 1;
        }
    }

    pub(super) fn find(&mut self, id: u16) -> Option<&mut Inflight> {
        self.inflight.iter_mut().find(|inflight| inflight.id == id)
    }

    /// A message is done.
    pub(super) fn finish(&mut self, id: u16) {
        let at = self.inflight.iter().position(|inflight| inflight.id == id);
        if let Some(done) = at.and_then(|at| self.inflight.remove(at))
            && let Some(link) = &mut self.link
        {
            link.outstanding -= usize::from(done.sent);
        }
    }

    /// The client released an id. Whether it is known.
    pub(super) fn release(&mut self, id: u16) -> bool {
        if !self.received.remove(&id) {
            return self.released.contains(&id);
        }
        if self.released.len() == MAX_RELEASED {
            self.released.pop_front();
        }
        self.released.push_back(id);
        true
    }

    /// The client uses an id for a new message.
    pub(super) fn receive(&mut self, id: u16) {
        self.released.retain(|released| *released != id);
        self.received.insert(id);
    }

    pub(super) fn skip(&mut self, skip: Skip) {
        if self.skips.len() == MAX_SKIPS {
            self.skips.pop_front();
        }
        self.skips.push_back(skip);
    }

    /// Whether a retained message was delivered to a subscription before it came through the bus.
    pub(super) fn has_got(&self, filter: &TopicFilter, topic: &TopicName, number: u64) -> bool {
        self.skips.iter().any(|skip| number <= skip.number && skip.topic == *topic && skip.filter == *filter)
    }

    /// A connection begins: nothing was sent on it yet.
    pub(super) fn attach(&mut self, link: Link) {
        self.link = Some(link);
        self.inflight.iter_mut().for_each(|inflight| inflight.sent = false);
    }
}
