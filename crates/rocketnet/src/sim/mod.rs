//! A simulated network: TCP's twin and RDMA's, on a virtual clock, all from a seed.
//!
//! ```text
//!   host "a"                     SimNet: virtual clock, seed                  host "b"
//!  ┌──────────────┐   ┌──────────────────────────────────────────────┐   ┌──────────────┐
//!  │ SimTransport │──▶│ outbox ─▶ Stream: window, cut anywhere ─────▶ │──▶│ SimTransport │
//!  │  (a worker)  │   │        ─▶ OneSided: land, notify, complete ─▶ │   │              │
//!  └──────────────┘   └──────────────────────────────────────────────┘   └──────────────┘
//!      poll()                 step(), cut(), partition(), kill()              poll()
//! ```
//!
//! Nothing here knows real time or has a thread. The caller polls its transports, which returns what is ready *now*,
//! and calls [`SimNet::step`] for time to pass. Everything that varies (delays, where reads and writes are cut, how
//! far a poll reads, what a broken connection loses) is drawn from the seed in the order of the calls: the same
//! calls on the same seed give the same history, told by [`SimNet::trace`] and summed up by [`SimNet::fingerprint`].
//! When and where connections fail is the caller's choice.
//!
//! The bytes of a range are read from its ring at the time when the network takes them (a stream into its
//! window, a one-sided write as it lands), so space that was given back too early shows as wrong bytes. Only
//! what was flushed leaves.
//!
//! A transport whose [`Transport::poll`](crate::Transport::poll) appends nothing has nothing to say before the next
//! step. After a control message a poll hands out nothing more that arrived on that connection: the session may
//! have to bind or unbind first.
//!
//! ```
//! use rocketnet::sim::{SimConfig, SimNet};
//! use rocketnet::{Event, Transport};
//!
//! let net = SimNet::new(42, SimConfig::default());
//! let (mut a, mut b) = (net.host("a"), net.host("b"));
//! let addr = b.listen("b:0").unwrap();
//! let conn = a.connect(&addr).unwrap();
//! let mut events = Vec::new();
//! while events.is_empty() && net.step() {
//!     b.poll(None, &mut events);
//! }
//! let Some(Event::Incoming(accepted)) = events.pop() else { panic!("nobody came") };
//! b.adopt(accepted).unwrap();
//! while net.step() {}
//! a.poll(None, &mut events);
//! assert!(matches!(events[..], [Event::Connected(id)] if id == conn));
//! ```

mod clock;
mod conn;
mod fabric;
mod memory;
mod outbox;
mod rng;
mod stream;
mod trace;
mod transport;
mod world;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::transport::SimTransport;
use crate::contract::ConnId;

/// The planted bugs of the simulated network: number and what goes wrong.
pub const BUGS: &[(u32, &str)] = &[
    (8, "sim stream: after a read that was cut inside a header the parser loses one byte"),
    (9, "sim: detach does not copy, so the rest of the range is read from the ring later"),
    (10, "sim stream: the last byte of part of a range is announced before it is copied"),
];

fn planted(bug: u32) -> bool {
    rocketring::planted::is(bug)
}

/// How long a connection that nobody adopts stays open, as a listener's refusal by doing nothing: 10 s.
const ORPHAN_NS: u64 = 10_000_000_000;

/// What the network imitates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// TCP: ordered bytes in a bounded window, read and written in pieces cut anywhere.
    Stream,
    /// RDMA: writes land in the peer's memory without its code; it is told later.
    OneSided,
}

/// What a simulated network is like. Bounds its memory: each direction of a connection has at most `queue_bytes` of
/// ranges queued (in their rings), and in its own memory at most `window_bytes`, or `send_depth + receive_depth`
/// writes of `max_write_bytes`, and the queued control messages.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// What it imitates. Default: [`Mode::Stream`].
    pub mode: Mode,
    /// One-sided only: writes land in any order ([`Promises::ordered`](crate::Promises::ordered) is false).
    /// Default: false.
    pub reorder: bool,
    /// Nanoseconds; no step of a transfer takes less. Default: 1,000.
    pub min_delay_ns: u64,
    /// Nanoseconds; no step of a transfer takes more, unless something before it does. At least `min_delay_ns`.
    /// Default: 200,000.
    pub max_delay_ns: u64,
    /// Nanoseconds that a connection request waits for a partition to end. Default: 1 s.
    pub connect_timeout_ns: u64,
    /// Stream only: bytes between sender and reader, like both socket buffers. At least 1. Default: 8 KiB.
    pub window_bytes: usize,
    /// One-sided only: writes that were taken and have not completed. At least 1. Default: 16.
    pub send_depth: usize,
    /// One-sided only: receives that the receiver keeps posted; each write or message uses one until the receiver
    /// polls it, and waits where there is none. At least 1. Default: 8.
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
    /// How many of the last events [`SimNet::trace`] tells; about 56 bytes each. Default: 256.
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

    fn check(&self) {
        assert!(self.min_delay_ns <= self.max_delay_ns, "min_delay_ns is larger than max_delay_ns");
        assert!(self.queue_bytes >= self.max_write_bytes, "queue_bytes is less than max_write_bytes");
        assert!(self.max_write_bytes <= u64::from(u32::MAX), "max_write_bytes does not fit a header");
        let depths = [self.window_bytes, self.send_depth, self.receive_depth];
        let queues = [self.queue_writes, self.queue_controls, self.max_connections];
        let least = depths.into_iter().chain(queues).min();
        assert!(least >= Some(1), "every depth, window and queue takes at least 1");
    }
}

/// A simulated network; clones are handles of the same one.
#[derive(Clone)]
pub struct SimNet(Arc<Mutex<world::World>>);

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNet").field("now_ns", &self.now()).finish_non_exhaustive()
    }
}

impl SimNet {
    /// A network without hosts at time 0.
    ///
    /// # Panics
    ///
    /// If the configuration contradicts itself.
    pub fn new(seed: u64, config: SimConfig) -> Self {
        config.check();
        Self(Arc::new(Mutex::new(world::World::new(seed, config))))
    }

    fn lock(&self) -> MutexGuard<'_, world::World> {
        // A test that panicked still wants its trace, and its transports to drop.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The transport of a new worker at this host. Workers of the same name share a host: they can adopt each
    /// other's connections and die together. After [`SimNet::kill`] the name may be used again.
    pub fn host(&self, name: &str) -> SimTransport {
        let endpoint = self.lock().endpoint(name);
        SimTransport { net: self.clone(), endpoint }
    }

    /// The virtual time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.lock().clock.now
    }

    /// Moves the clock to the next event and lets it happen. False, with nothing done, if there is none.
    ///
    /// The end of a close's linger and of the 10 s for which an incoming connection waits to be adopted are events too:
    /// who steps on without polling a listener refuses its peers.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// When the next event is; None if nothing is left to happen.
    pub fn next_event_at(&self) -> Option<u64> {
        self.lock().next_event_at()
    }

    /// Lets everything happen up to and at `time`, and moves the clock there if it is not later already.
    pub fn advance_to(&self, time: u64) {
        let mut world = self.lock();
        while world.next_event_at().is_some_and(|at| at <= time) {
            world.step();
        }
        world.clock.now = world.clock.now.max(time);
    }

    /// Breaks a connection: what is on its way is lost, and each end gets to know after a delay of its own.
    pub fn cut(&self, conn: ConnId) {
        self.lock().cut(conn);
    }

    /// Nothing crosses between these two hosts until the virtual time `until` (`u64::MAX`: until [`SimNet::heal`]);
    /// nothing is lost, it waits. Another call for the same two replaces the first.
    pub fn partition(&self, a: &str, b: &str, until: u64) {
        let mut world = self.lock();
        let pair = clock::pair(world.host_no(a), world.host_no(b));
        world.clock.part(pair, until);
    }

    /// Ends a partition now.
    pub fn heal(&self, a: &str, b: &str) {
        let mut world = self.lock();
        let pair = clock::pair(world.host_no(a), world.host_no(b));
        world.clock.heal(pair);
    }

    /// The host is gone at once, with its memory: its transports do and say nothing any more, what they had queued or
    /// on its way is lost, their ring receivers are dropped. Their peers learn of it after a delay.
    pub fn kill(&self, host: &str) {
        self.lock().kill_host(host);
    }

    /// The last events as text, one a line: time, connection, what, wire id, and two numbers that depend on what.
    pub fn trace(&self) -> String {
        self.lock().clock.trace.text()
    }

    /// A hash of everything that has happened: equal for two runs of the same seed and calls.
    pub fn fingerprint(&self) -> u64 {
        self.lock().clock.trace.hash()
    }
}
