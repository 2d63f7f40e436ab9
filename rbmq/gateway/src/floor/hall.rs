//! The door as the floor sees it: who arrives and leaves, and what changes for a client.

use std::sync::Arc;
use std::time::Instant;

use rbmq_broker::{Count, Entrance, EntranceEvent, GroupCharge};
use rbmq_wire::{TopicFilter, TopicName};
use rocketbufs::Meter;

use super::bus::BusCounts;
use super::connections::ConnectionCounts;
use crate::protocol::{ConnId, Door, Entry, FilterCount};

/// Something that has changed for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// A login that had to wait is decided.
    Login(ConnId, bool),
    /// The client has no rights any more, or others, and is disconnected.
    CutOff(ConnId, String),
}

/// The floor's part of a door.
pub(crate) trait Hall: Door {
    /// A client has connected, with the certificate that its connection has checked. True: it need not log in.
    ///
    /// # Errors
    /// It is disconnected, and this is why.
    fn arrive(&mut self, conn: ConnId, address: &str, certificate: Option<&[u8]>) -> Result<bool, String>;
    /// A client has left.
    fn leave(&mut self, conn: ConnId);
    /// The next change.
    fn next_change(&mut self, now: Instant) -> Option<Change>;
    /// When there is one, if the bell is not rung before.
    fn next_due(&self) -> Option<Instant>;
    /// What limits the bytes per second of clients that have logged in since the last call; none: nothing.
    fn take_meters(&mut self) -> Vec<(ConnId, Option<Meter>)>;
    /// What has happened since the last call, for metrics.
    fn count(&mut self, connections: &ConnectionCounts, bus: &BusCounts);
}

/// The door of a broker.
#[derive(Debug)]
pub(crate) struct BrokerDoor(pub(crate) Entrance);

impl Door for BrokerDoor {
    fn lets_in_anonymous(&self) -> bool {
        self.0.lets_in_anonymous()
    }

    fn log_in(&mut self, conn: ConnId, user: Option<&str>, secret: &str) -> Entry {
        match self.0.log_in(conn.0, user, secret) {
            rbmq_broker::Entry::In => Entry::In,
            rbmq_broker::Entry::Refused(_) => Entry::Refused,
            rbmq_broker::Entry::Wait => Entry::Wait,
        }
    }

    fn log_out(&mut self, conn: ConnId) {
        self.0.log_out(conn.0);
    }

    fn user(&self, conn: ConnId) -> Option<&str> {
        self.0.user(conn.0)
    }

    fn may_publish(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.0.may_publish(conn.0, topic)
    }

    fn may_user_publish(&mut self, user: &str, topic: &TopicName) -> bool {
        self.0.may_user_publish(user, topic)
    }

    fn may_subscribe(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.0.may_subscribe(conn.0, topic)
    }

    fn may_receive(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.0.may_receive(conn.0, topic)
    }

    fn may_user_receive(&mut self, user: &str, topic: &TopicName) -> bool {
        self.0.may_user_receive(user, topic)
    }

    fn may_subscribe_to_some(&mut self, conn: ConnId, filter: &TopicFilter) -> bool {
        self.0.may_subscribe_to_some(conn.0, filter)
    }

    fn ask_for_filters(&mut self, conn: ConnId, count: FilterCount) -> Result<(), String> {
        self.0.ask_for_filters(conn.0, count.all as u64, count.patterns as u64)
    }

    fn charge_group(&mut self, conn: ConnId) -> Result<Option<GroupCharge>, String> {
        self.0.charge_group(conn.0)
    }

    fn set_filters(&mut self, conn: ConnId, count: FilterCount) {
        self.0.set_filters(conn.0, count.all as u64, count.patterns as u64);
    }
}

impl Hall for BrokerDoor {
    fn arrive(&mut self, conn: ConnId, address: &str, certificate: Option<&[u8]>) -> Result<bool, String> {
        self.0.arrive(conn.0, address, certificate.map(Arc::from))
    }

    fn leave(&mut self, conn: ConnId) {
        self.0.left(conn.0);
    }

    fn next_change(&mut self, now: Instant) -> Option<Change> {
        loop {
            return Some(match self.0.next_event(now)? {
                EntranceEvent::LoginDecided { client, entry } => {
                    Change::Login(ConnId(client), entry == rbmq_broker::Entry::In)
                }
                EntranceEvent::CutOff { client, reason } => Change::CutOff(ConnId(client), reason),
                // What it has subscribed to was allowed before. As Redis does, it has to come again.
                EntranceEvent::RightsChanged { client } => {
                    Change::CutOff(ConnId(client), "its rights have changed".into())
                }
                _ => continue,
            });
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.0.next_due()
    }

    fn take_meters(&mut self) -> Vec<(ConnId, Option<Meter>)> {
        self.0.take_meters().into_iter().map(|(client, meter)| (ConnId(client), meter)).collect()
    }

    fn count(&mut self, connections: &ConnectionCounts, bus: &BusCounts) {
        let counters = self.0.counters();
        for (what, more) in [
            (Count::MessagesIn, bus.published),
            (Count::BytesIn, bus.published_bytes),
            (Count::MessagesOut, connections.messages),
            (Count::BytesOut, connections.sent_bytes),
            (Count::Dropped, connections.dropped),
            (Count::TooSlow, connections.slow_closed),
            (Count::TurnedAway, connections.turned_away),
            (Count::ProtocolErrors, connections.faults),
        ] {
            if more > 0 {
                counters.add(what, more);
            }
        }
    }
}
