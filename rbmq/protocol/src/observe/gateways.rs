//! Rows for observers: the gateways of the broker.

use rocketbufs::fields::Reader;
use serde::Serialize;

use super::fields::{Row, get_bits, get_name, put_bits, put_name, put_u64s};
use crate::DecodeError;

/// A gateway: clients of another system, in their own protocol. All but `connections` are sums since the start of the broker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GatewayStats {
    /// Its protocol and address, as `resp:127.0.0.1:6379`.
    pub gateway: String,
    /// It serves clients. If not, it has failed or stopped.
    pub is_serving: bool,
    /// Clients that are connected.
    pub connections: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections beyond the limit, and those that never logged in.
    pub turned_away: u64,
    /// Logins that were refused.
    pub logins_refused: u64,
    /// Requests that the rights of a client do not allow.
    pub denied: u64,
    /// Clients whose user or login has ended.
    pub cut_off: u64,
    /// Clients that broke the protocol.
    pub protocol_errors: u64,
    /// Messages from clients.
    pub messages_in: u64,
    /// Bytes of these messages.
    pub bytes_in: u64,
    /// Messages to clients, each client counted.
    pub messages_out: u64,
    /// Bytes of these messages.
    pub bytes_out: u64,
    /// Messages that slow clients lost.
    pub dropped: u64,
    /// Clients that were disconnected because they were slow.
    pub too_slow: u64,
}

impl Row for GatewayStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_name(b, &self.gateway);
        put_bits(b, [self.is_serving]);
        put_u64s(b, [self.connections, self.accepted, self.turned_away, self.logins_refused]);
        put_u64s(b, [self.denied, self.cut_off, self.protocol_errors]);
        put_u64s(b, [self.messages_in, self.bytes_in, self.messages_out, self.bytes_out]);
        put_u64s(b, [self.dropped, self.too_slow]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let gateway = get_name(r)?;
        let [is_serving] = get_bits(r)?;
        Ok(Self {
            gateway,
            is_serving,
            connections: r.u64()?,
            accepted: r.u64()?,
            turned_away: r.u64()?,
            logins_refused: r.u64()?,
            denied: r.u64()?,
            cut_off: r.u64()?,
            protocol_errors: r.u64()?,
            messages_in: r.u64()?,
            bytes_in: r.u64()?,
            messages_out: r.u64()?,
            bytes_out: r.u64()?,
            dropped: r.u64()?,
            too_slow: r.u64()?,
        })
    }
}
