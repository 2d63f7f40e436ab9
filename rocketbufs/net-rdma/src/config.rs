//! The settings of the RDMA transport, and what each costs.

use std::time::Duration;

use rocketnet::TransportError;

use crate::sys::Shape;

/// Bytes of a message between two transports, for which each receive has room. Part of the wire format.
pub(crate) const FRAME_BYTES: u32 = 1024;
/// Ranges and messages that one connection queues at most, whatever their size.
pub(crate) const MAX_QUEUED_ITEMS: usize = 4096;

/// The settings of one [`Rdma`](crate::Rdma). All of its connections and listeners share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaConfig {
    /// Requests of one connection in flight. Default 256, from 32 to 16,384. Small: transfers wait for others'
    /// acknowledgements. Large: memory of the adapter.
    pub send_depth: u32,
    /// Receives that are posted ahead; the peer learns how many. Each transfer and message uses one until it was
    /// handled. Default 256, from 32 to 16,384. Small: many small transfers wait for the receiver's processor.
    /// Each costs 1 KiB of locked memory.
    pub receive_depth: u32,
    /// Bytes that go into a request itself, so that the adapter does not have to fetch them. Default 512, or less if the
    /// device allows less.
    pub inline_bytes: u32,
    /// Bytes of the memory from which messages, and copies of ranges that cannot be registered, are sent. Default 256 KiB, from
    /// 64 KiB to 64 MiB; locked, once for each connection.
    pub outbox_bytes: u32,
    /// Bytes of ranges that one connection queues or has in flight before [`room`](rocketnet::Transport::room) is 0. Default 1 MiB, from
    /// 4 KiB to 1 GiB. Also the largest single write.
    pub tx_queue_bytes: u32,
    /// Bytes of control messages that one connection queues: the reserve that data cannot use up. Default 1 MiB.
    pub tx_control_bytes: usize,
    /// Bytes of the largest control message that is accepted from a peer. Default 64 KiB.
    pub max_control_bytes: usize,
    /// Keys that a peer may have sent at once. Default 65,536: as many as one connection may have subscriptions. A peer that
    /// sends more is disconnected.
    pub max_keys: usize,
    /// Connections open at once. Default 10,000. Each costs a queue pair, a completion queue, and the locked memory above.
    pub max_connections: usize,
    /// Connections that the kernel keeps before they are accepted. Default 1024.
    pub backlog: u32,
    /// Time-out of an outgoing connection. Default 10 s.
    pub connect_timeout: Duration,
    /// The adapter waits for an acknowledgement 4.096 us times two to this power. Default 14 (67 ms), from 8 to 22. With
    /// `retries` this is the time to detect a dead peer while data is sent to it. Small: on a busy network the adapter
    /// repeats transfers that were not lost.
    pub ack_timeout: u8,
    /// How often an unacknowledged transfer is repeated. Default 6, from 1 to 6 (7 means for ever in the hardware).
    pub retries: u8,
    /// Polls for completions instead of sleeping until the adapter signals. Default false. On: a few microseconds less, and
    /// a core of its own for each worker.
    pub polling: bool,
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            send_depth: 256,
            receive_depth: 256,
            inline_bytes: 512,
            outbox_bytes: 256 << 10,
            tx_queue_bytes: 1 << 20,
            tx_control_bytes: 1 << 20,
            max_control_bytes: 64 << 10,
            max_keys: 65_536,
            max_connections: 10_000,
            backlog: 1024,
            connect_timeout: Duration::from_secs(10),
            ack_timeout: 14,
            retries: 6,
            polling: false,
        }
    }
}

impl RdmaConfig {
    /// Whether every setting is in its range.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        let range = |field, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            let reason = format!("it must be {min} to {max}");
            Err(TransportError::Config { field, value: value.to_string(), reason })
        };
        range("send_depth", self.send_depth.into(), 32, 16_384)?;
        range("receive_depth", self.receive_depth.into(), 32, 16_384)?;
        range("inline_bytes", self.inline_bytes.into(), 0, 4_096)?;
        range("outbox_bytes", self.outbox_bytes.into(), 64 << 10, 64 << 20)?;
        range("tx_queue_bytes", self.tx_queue_bytes.into(), 4_096, 1 << 30)?;
        range("max_control_bytes", self.max_control_bytes as u64, 256, 16 << 20)?;
        range("tx_control_bytes", self.tx_control_bytes as u64, 2 * self.max_control_bytes as u64, u64::MAX)?;
        range("max_keys", self.max_keys as u64, 1, u64::MAX)?;
        range("max_connections", self.max_connections as u64, 1, rocketnet::slots::MAX_SLOTS as u64)?;
        range("backlog", self.backlog.into(), 1, 65_535)?;
        range("ack_timeout", self.ack_timeout.into(), 8, 22)?;
        range("retries", self.retries.into(), 1, 6)
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            sends: self.send_depth,
            receives: self.receive_depth,
            receive_bytes: FRAME_BYTES,
            outbox_bytes: self.outbox_bytes,
            inline_bytes: self.inline_bytes,
            ack_timeout: self.ack_timeout,
            retries: self.retries,
        }
    }
}
