//! The handle of a simulated network.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::HostPair;
use crate::config::SimConfig;
use crate::world::World;
use rocketnet::contract::ConnId;

/// A simulated network. A handle: clones are the same network.
#[derive(Clone)]
pub struct SimNet(Arc<Mutex<World>>);

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
        Self(Arc::new(Mutex::new(World::new(seed, config))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        // After a panic a test still needs the trace, and drops its transports.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.lock().clock.now
    }

    /// Moves the clock to the next event and runs it. False, with nothing done, if there is none.
    ///
    /// The ends of a close's linger and of the 10 s for which an incoming connection waits to be adopted are events too:
    /// steps without polling a listener refuse its peers.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// The time of the next event; None if there is none.
    pub fn next_event_at(&self) -> Option<u64> {
        self.lock().next_event_at()
    }

    /// Runs all events up to and at `time`, and moves the clock there if it is not later already.
    pub fn advance_to(&self, time: u64) {
        let mut world = self.lock();
        while world.next_event_at().is_some_and(|at| at <= time) {
            world.step();
        }
        world.clock.now = world.clock.now.max(time);
    }

    /// Breaks a connection: bytes in flight are lost, and each end learns of it after a delay of its own.
    pub fn cut(&self, conn: ConnId) {
        self.lock().cut(conn);
    }

    /// Nothing crosses between these two hosts until the virtual time `until` (`u64::MAX`: until [`SimNet::heal`]);
    /// nothing is lost, everything waits. Another call for the same two replaces the first.
    pub fn partition(&self, a: &str, b: &str, until: u64) {
        let mut world = self.lock();
        let pair = HostPair::new(world.host_no(a), world.host_no(b));
        world.clock.part(pair, until);
    }

    /// Ends a partition now.
    pub fn heal(&self, a: &str, b: &str) {
        let mut world = self.lock();
        let pair = HostPair::new(world.host_no(a), world.host_no(b));
        world.clock.heal(pair);
    }

    /// Ends the host at once, with its memory: its transports have no more events, their queued bytes and bytes in flight are
    /// lost, and their ring receivers are dropped. Their peers learn of it after a delay.
    pub fn kill(&self, host: &str) {
        self.lock().kill_host(host);
    }

    /// The last events as text, one a line: time, connection, what, wire id, and two numbers that depend on what.
    pub fn trace(&self) -> String {
        self.lock().clock.trace.text()
    }

    /// A hash of all events: equal for two runs of the same seed and calls.
    pub fn fingerprint(&self) -> u64 {
        self.lock().clock.trace.hash()
    }
}
