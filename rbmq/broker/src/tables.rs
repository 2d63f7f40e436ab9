//! The tables that all parts of the broker share. The broker's thread owns them.

use std::sync::Arc;
use std::time::Duration;

use access::{Audit, AuditEvent, Identity};
use rbmq_wire::{Framing, TopicName};
use rocketbufs::config::TransportKind;
use rocketbufs::inspect::BufferInfo;
use rocketbufs::{Bid, ROut, SubscribeOptions};
use tracing::warn;

use super::admission::Admission;
use super::cluster::{Cluster, Owner};
use super::config::BrokerSettings;
use super::counters::{Counters, Refusal};
use super::inbox::Sender;
use super::limits::{
    Refused, check_buffers, first_ring_bytes, largest_ring_bytes, no_buffer, retained_bytes, too_many_topics,
};
use super::rules::{Rule, rounded};
use super::session_key::{FormerPlace, SessionKey};
use super::sessions::{Session, Sessions};
use super::topics::{Buffer, TooManyTopics, Topics};
use super::traces::{Seen, Traces};

/// The name under which a publisher keeps the position of the broker in a buffer, while the connection is lost or the broker
/// restarts.
pub(super) const BROKER_SLOT_NAME: &[u8] = b"rbmq-broker";

/// The longest hold that the framework allows. A publisher without a broker waits, and its data is lost only with its process.
pub(super) const BROKER_SLOT_HOLD: Duration = Duration::from_millis(u32::MAX as u64);

/// How long the buffer of a log stays that goes on at another broker, for those who are there. Who comes now is to begin at that one.
pub(super) const LEFT_LINGER: Duration = Duration::from_secs(1);

/// The shared tables.
pub(super) struct Tables {
    pub(super) out: ROut,
    pub(super) settings: BrokerSettings,
    pub(super) topics: Topics,
    pub(super) sessions: Sessions,
    pub(super) counters: Counters,
    pub(super) admission: Admission,
    pub(super) audit: Audit,
    /// None: this broker has all of its topics.
    pub(super) cluster: Option<Arc<dyn Cluster>>,
    /// Logs with an archive go on there at the next member that has them.
    pub(super) shares: bool,
    pub(super) events: Sender,
    /// Why the broker stops.
    pub(super) stopping: Option<&'static str>,
    pub(super) traces: Traces,
}

impl Tables {
    /// Empty tables.
    pub(super) fn new(
        out: &ROut,
        settings: &BrokerSettings,
        admission: Admission,
        audit: Audit,
        cluster: Option<Arc<dyn Cluster>>,
        events: &Sender,
    ) -> Self {
        Self {
            out: out.clone(),
            settings: settings.clone(),
            topics: Topics::with_spaces(settings.topics.in_spaces()),
            sessions: Sessions::default(),
            counters: Counters::default(),
            admission,
            audit,
            cluster,
            shares: false,
            events: events.clone(),
            stopping: None,
            traces: Traces::default(),
        }
    }

    /// Adds a buffer to its topic, within the limit on topics.
    pub(super) fn add_buffer(&mut self, buffer: Buffer) -> Result<Bid, Refused> {
        let topic = buffer.topic.clone();
        let added = self.topics.add(buffer, self.settings.max_topics);
        let bid = added.map_err(|TooManyTopics { open }| too_many_topics(open, &self.settings))?;
        self.admission.added(bid, &topic);
        Ok(bid)
    }

    /// Whether rings of this broker grow: nobody maps them.
    pub(super) fn logs_grow(&self) -> bool {
        self.out.context().config().transport == TransportKind::Tcp
    }

    /// The size of a buffer's ring at first and at most, of which so much was requested, and which needs so much. What it needs beyond that, it gets
    /// as if it had grown.
    pub(super) fn first_and_most(&self, requested: u64, size_bytes: u64) -> (u64, u64) {
        if !self.logs_grow() {
            return (size_bytes, size_bytes);
        }
        let most = largest_ring_bytes(&self.settings).max(rounded(size_bytes));
        (first_ring_bytes(requested, &self.settings), most)
    }

    /// Which member of the cluster has a topic. What is not kept is here.
    pub(super) fn owner(&self, topic: &TopicName) -> Owner {
        let cluster = self.cluster.as_ref().filter(|_| self.settings.topics.of(topic).keep);
        match (cluster, self.stopping) {
            (None, _) => Owner::Here { term: 1 },
            (Some(cluster), None) => cluster.owner(topic),
            (Some(_), Some(reason)) => Owner::Unsettled { reason: reason.into() },
        }
    }

    /// Gives up the places that are kept for topics which this broker does not have any more.
    pub(super) fn keep_reserved(&mut self) {
        let mut reserved = self.topics.take_reserved();
        reserved.retain(|topic| self.has(topic));
        self.topics.set_reserved(reserved);
    }

    /// Whether this broker has a topic.
    pub(super) fn has(&self, topic: &TopicName) -> bool {
        matches!(self.owner(topic), Owner::Here { .. })
    }

    /// Whether the log of a topic goes on in the archive at the next member that has it.
    pub(super) fn is_shared(&self, topic: &TopicName) -> bool {
        self.shares && self.settings.topics.of(topic).archive().is_some()
    }

    /// Refuses a publisher one more buffer than the limit, of those that are open and so many that wait. A part of this process has as many open as it wants.
    pub(super) fn check_buffers(&self, session: &Session, waiting: usize) -> Result<(), Refused> {
        match session.identity.is_own() {
            true => check_buffers(waiting, &self.settings),
            false => check_buffers(session.buffers() + waiting, &self.settings),
        }
    }

    /// The state of a buffer of the rOut, once its log is known.
    pub(super) fn info(&self, bid: Bid) -> Option<BufferInfo> {
        self.out.buffer(bid)?.info()
    }

    /// Subscribes to a buffer of a publisher, and splices its ring into the rOut.
    pub(super) fn splice(
        &self,
        key: SessionKey,
        in_bid: Bid,
        out_bid: Bid,
        options: SubscribeOptions,
    ) -> Result<(), Refused> {
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        let spliced = self.out.splice_with(&session.rin, in_bid, out_bid, options).map_err(no_buffer)?;
        let limits = self.topics.get(out_bid).map(|buffer| self.settings.topics.of(&buffer.topic).limits());
        // No subscriber knows the buffer yet, so the limits apply to all subscriptions.
        limits.into_iter().for_each(|limits| spliced.set_limits(limits));
        Ok(())
    }

    /// The history for new subscribers in a ring.
    pub(super) fn retained_bytes(&self, rule: &Rule, size_bytes: u64) -> u64 {
        retained_bytes(rule, self.out.context().config().buffers.retain_bytes, size_bytes)
    }

    /// Disconnects a publisher with a reason.
    pub(super) fn expel(&mut self, key: SessionKey, why: &str) {
        self.counters.refused(Refusal::Expelled);
        if let Some(session) = self.sessions.get(key) {
            warn!("{session} is disconnected: {why}");
            session.conn.close(why);
        }
    }

    /// Records in the audit log that a client was refused something.
    pub(super) fn audit_refusal(&self, denial: &Denial<'_>) {
        self.record(AuditEvent::new("refused"), denial);
    }

    /// Records in the audit log that a client was cut off.
    pub(super) fn audit_cut(&self, denial: &Denial<'_>) {
        self.record(AuditEvent::new("cut"), denial);
    }

    fn record(&self, event: AuditEvent<'_>, denial: &Denial<'_>) {
        if self.traces.is_on() {
            self.trace_denial(event.event, denial);
        }
        self.audit.record(&AuditEvent {
            user: Some(&denial.identity.user),
            address: Some(denial.address),
            operation: Some(denial.operation),
            topic: denial.topic,
            reason: Some(denial.reason),
            ..event
        });
    }

    /// Records in traces what a client is refused, or why it was cut off.
    fn trace_denial(&self, what: &'static str, denial: &Denial<'_>) {
        let Denial { conn, address, operation, topic, reason, .. } = denial;
        let topic = topic.and_then(|topic| topic.parse::<TopicName>().ok());
        self.traces.record(Some(*conn), topic.as_ref(), || {
            Seen::new(what).topic(topic.as_ref()).client(address).text(&format!("{operation}: {reason}"))
        });
    }

    /// The largest hold of a subscriber.
    pub(super) fn max_hold_ms(&self) -> u32 {
        self.out.context().config().limits.max_hold_ms
    }
}

/// What a client may not do, or not any more.
pub(super) struct Denial<'a> {
    pub(super) conn: u64,
    pub(super) address: &'a str,
    pub(super) identity: &'a Identity,
    pub(super) operation: &'a str,
    pub(super) topic: Option<&'a str>,
    pub(super) reason: &'a str,
}

/// The options of a buffer that a publisher creates (CREATE).
#[derive(Clone)]
pub(super) struct Create {
    /// The id at the publisher.
    pub(super) bid: Bid,
    pub(super) framing: Framing,
    pub(super) ring_bytes: u64,
    pub(super) max_delivery_bytes: u64,
    pub(super) min_subscribers: u32,
    pub(super) topic: TopicName,
    pub(super) place: Option<FormerPlace>,
}
