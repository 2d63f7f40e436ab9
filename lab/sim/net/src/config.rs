//! The configuration of a simulated network.

/// The planted bugs of the simulated network: number and what goes wrong.
pub const BUGS: &[(u32, &str)] = &[
    (8, "sim stream: the parser loses one byte after a read that ended inside a header"),
    (9, "sim: detach copies nothing, and the rest of the range is read from the ring later"),
    (10, "sim stream: the last byte of a partial range is announced before the copy"),
];

pub(crate) fn planted(bug: u32) -> bool {
    rocketring::planted::is(bug)
}

/// How long a connection waits to be adopted: 10 s.
pub(crate) const ORPHAN_NS: u64 = 10_000_000_000;

/// The kind of network that is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// TCP: ordered bytes in a bounded window, read and written in pieces cut anywhere.
    Stream,
    /// RDMA: writes land in the peer's memory without its code. The peer is notified later.
    OneSided,
}

/// The configuration of a simulated network. Bounds its memory: each direction of a connection has at most `queue_bytes` of
/// ranges queued (in their rings), and in its own memory at most `window_bytes`, or `send_depth + receive_depth`
/// writes of `max_write_bytes`, and the queued control messages.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// The imitated network. Default: [`Mode::Stream`].
    pub mode: Mode,
    /// One-sided only: writes land in any order ([`Promises::ordered`](rocketnet::Promises::ordered) is false).
    /// Default: false.
    pub reorder: bool,
    /// The shortest step of a transfer, in nanoseconds. Default: 1,000.
    pub min_delay_ns: u64,
    /// The longest step of a transfer, in nanoseconds, unless an earlier step takes longer. At least `min_delay_ns`.
    /// Default: 200,000.
    pub max_delay_ns: u64,
    /// Nanoseconds that a connection request waits for a partition to end. Default: 1 s.
    pub connect_timeout_ns: u64,
    /// Stream only: bytes between sender and reader, like both socket buffers. At least 1. Default: 8 KiB.
    pub window_bytes: usize,
    /// One-sided only: posted writes that have not completed. At least 1. Default: 16.
    pub send_depth: usize,
    /// One-sided only: receives that the receiver keeps posted; each write or message uses one until the receiver
    /// polls it, and waits if there is none. At least 1. Default: 8.
    pub receive_depth: usize,
    /// Writes that the queue of a connection takes. At least 1. Default: 16.
    pub queue_writes: usize,
    /// Bytes of ranges that the queue of a connection takes. At least `max_write_bytes`. Default: 64 KiB.
    pub queue_bytes: u64,
    /// Control messages that the queue of a connection takes, apart from the writes. At least 1. Default: 64.
    pub queue_controls: usize,
    /// Bytes of the largest write; at most 2³² − 1. Default: 32 KiB.
    pub max_write_bytes: u64,
    /// Bytes of the largest control message that is accepted. Default: 4 KiB.
    pub max_control_bytes: usize,
    /// Connections of one transport, and connections that wait at a listener to be adopted. Default: 1,024.
    pub max_connections: usize,
    /// How many of the last events [`SimNet::trace`](crate::SimNet::trace) returns; about 56 bytes each. Default: 256.
    pub trace_lines: usize,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Stream,
            reorder: false,
            min_delay_ns: 1_000,
            max_delay_ns: 200_000,
            connect_timeout_ns: 1_000_000_000,
            window_bytes: 8 << 10,
            send_depth: 16,
            receive_depth: 8,
            queue_writes: 16,
            queue_bytes: 64 << 10,
            queue_controls: 64,
            max_write_bytes: 32 << 10,
            max_control_bytes: 4 << 10,
            max_connections: 1_024,
            trace_lines: 256,
        }
    }
}

impl SimConfig {
    /// The defaults of a stream.
    pub fn stream() -> Self {
        Self::default()
    }

    /// The defaults of an ordered one-sided network.
    pub fn one_sided() -> Self {
        Self { mode: Mode::OneSided, ..Self::default() }
    }

    /// The defaults of a one-sided network without order.
    pub fn unordered() -> Self {
        Self { reorder: true, ..Self::one_sided() }
    }

    pub(crate) fn check(&self) {
        assert!(self.min_delay_ns <= self.max_delay_ns, "min_delay_ns is larger than max_delay_ns");
        assert!(self.queue_bytes >= self.max_write_bytes, "queue_bytes is less than max_write_bytes");
        assert!(self.max_write_bytes <= u64::from(u32::MAX), "max_write_bytes does not fit a header");
        let depths = [self.window_bytes, self.send_depth, self.receive_depth];
        let queues = [self.queue_writes, self.queue_controls, self.max_connections];
        let least = depths.into_iter().chain(queues).min();
        assert!(least >= Some(1), "every depth, window and queue takes at least 1");
    }
}
