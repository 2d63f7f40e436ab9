//! The counters of gateways, for the broker's metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use locks::Mutex;
use rbmq_wire::GatewayStats;

use crate::config::GatewayProtocol;

/// Counters of a gateway. The gateway sets the values, and the broker's metrics show them.
#[derive(Debug)]
pub struct GatewayCounters {
    protocol: GatewayProtocol,
    address: String,
    is_serving: AtomicBool,
    connections: AtomicU64,
    values: [AtomicU64; Count::ALL.len()],
}

/// What a gateway counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum Count {
    /// Connections that were accepted.
    Accepted,
    /// Connections beyond `max_connections`, and those that never showed who they are.
    TurnedAway,
    /// Logins that were refused.
    LoginsRefused,
    /// Requests that the rights or the quotas of a client do not allow.
    Denied,
    /// Clients that were cut off, because their user or login has ended.
    CutOff,
    /// Clients that broke the protocol.
    ProtocolErrors,
    /// Messages from clients.
    MessagesIn,
    /// Bytes of these messages.
    BytesIn,
    /// Messages to clients, each client counted.
    MessagesOut,
    /// Bytes of these messages.
    BytesOut,
    /// Messages that slow clients lost.
    Dropped,
    /// Clients that were disconnected because they were slow.
    TooSlow,
}

impl Count {
    /// All counts with their names in the metrics and their descriptions, in their order.
    pub(crate) const ALL: [(Self, &'static str, &'static str); 12] = [
        (Self::Accepted, "rbmq_gateway_accepted", "Connections that were accepted"),
        (
            Self::TurnedAway,
            "rbmq_gateway_turned_away",
            "Connections beyond the limit, and those that never logged in",
        ),
        (Self::LoginsRefused, "rbmq_gateway_logins_refused", "Logins that were refused"),
        (Self::Denied, "rbmq_gateway_denied", "Requests that the rights or quotas of a client do not allow"),
        (Self::CutOff, "rbmq_gateway_cut_off", "Clients whose user or login has ended"),
        (Self::ProtocolErrors, "rbmq_gateway_protocol_errors", "Clients that broke the protocol"),
        (Self::MessagesIn, "rbmq_gateway_messages_in", "Messages from clients"),
        (Self::BytesIn, "rbmq_gateway_bytes_in", "Bytes of messages from clients"),
        (Self::MessagesOut, "rbmq_gateway_messages_out", "Messages to clients, each client counted"),
        (Self::BytesOut, "rbmq_gateway_bytes_out", "Bytes of messages to clients, each client counted"),
        (Self::Dropped, "rbmq_gateway_dropped", "Messages that slow clients and full sessions lost"),
        (Self::TooSlow, "rbmq_gateway_too_slow", "Clients that were disconnected because they were slow"),
    ];
}

impl GatewayCounters {
    fn new(protocol: GatewayProtocol, address: &str) -> Self {
        let values = std::array::from_fn(|_| AtomicU64::new(0));
        let (is_serving, connections) = (AtomicBool::new(true), AtomicU64::new(0));
        Self { protocol, address: address.to_owned(), is_serving, connections, values }
    }

    /// Whether the gateway serves clients: its entrance is open.
    pub fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    pub(super) fn set_serving(&self, is_serving: bool) {
        self.is_serving.store(is_serving, Ordering::Relaxed);
    }

    /// Counts one more.
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts so many more.
    pub fn add(&self, what: Count, more: u64) {
        self.values[what as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the number of open connections.
    pub fn set_connections(&self, connections: u64) {
        self.connections.store(connections, Ordering::Relaxed);
    }

    /// The value of a count.
    pub fn get(&self, what: Count) -> u64 {
        self.values[what as usize].load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The gateway's protocol and address, as `resp:127.0.0.1:6379`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.protocol, self.address)
    }

    /// All of it, for observers.
    pub(crate) fn stats(&self) -> GatewayStats {
        GatewayStats {
            gateway: self.name(),
            is_serving: self.is_serving(),
            connections: self.connections(),
            accepted: self.get(Count::Accepted),
            turned_away: self.get(Count::TurnedAway),
            logins_refused: self.get(Count::LoginsRefused),
            denied: self.get(Count::Denied),
            cut_off: self.get(Count::CutOff),
            protocol_errors: self.get(Count::ProtocolErrors),
            messages_in: self.get(Count::MessagesIn),
            bytes_in: self.get(Count::BytesIn),
            messages_out: self.get(Count::MessagesOut),
            bytes_out: self.get(Count::BytesOut),
            dropped: self.get(Count::Dropped),
            too_slow: self.get(Count::TooSlow),
        }
    }

    /// The protocol of the gateway.
    pub fn protocol(&self) -> GatewayProtocol {
        self.protocol
    }

    /// The address on which the gateway listens.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// The counters of all gateways. Clones share the list.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllGatewayCounters(Arc<Mutex<Vec<Arc<GatewayCounters>>>>);

impl AllGatewayCounters {
    /// The counters of one more gateway. One that had stopped, and serves again at its address, has those of before.
    pub(super) fn open(&self, protocol: GatewayProtocol, address: &str) -> Arc<GatewayCounters> {
        let mut all = self.0.lock();
        let is_same =
            |of: &&Arc<GatewayCounters>| !of.is_serving() && of.protocol == protocol && of.address == address;
        if let Some(counters) = all.iter().find(is_same) {
            counters.set_serving(true);
            return counters.clone();
        }
        let counters = Arc::new(GatewayCounters::new(protocol, address));
        all.push(counters.clone());
        counters
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<GatewayCounters>> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_its_place() {
        let counters = GatewayCounters::new(GatewayProtocol::Resp, "a:1");
        for (at, (what, ..)) in Count::ALL.into_iter().enumerate() {
            assert_eq!(what as usize, at);
            counters.add(what, at as u64);
            assert_eq!(counters.get(what), at as u64);
        }
    }
}
