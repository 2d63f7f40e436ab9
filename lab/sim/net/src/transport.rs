//! The transport of one worker of a simulated host.

use std::fmt;
use std::time::Duration;

use rocketring::{GrowError, Pool, Position, RingReceiver, Trimmed};

use crate::clock::{Clock, Kind};
use crate::config::Mode;
use crate::conn::{Conn, Pipe};
use crate::end::{Bound, Phase};
use crate::net::SimNet;
use rocketnet::contract::{
    Accepted, ConnId, Down, Event, NotWritten, Promises, QueueFull, SourceRange, Transport, TransportError,
    WireId,
};

/// A [`Transport`] on a [`SimNet`], made by [`SimNet::host`].
///
/// Dropping it is the end of a process: its listeners go and its connections break.
pub struct SimTransport {
    net: SimNet,
    endpoint: u64,
}

impl fmt::Debug for SimTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimTransport").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for SimTransport {
    fn drop(&mut self) {
        let mut world = self.net.lock();
        world.kill(self.endpoint);
        world.endpoints.remove(&self.endpoint);
    }
}

impl SimTransport {
    /// Runs `act` on an end that this transport owns; None if it owns no such end.
    fn with<R>(&self, conn: ConnId, act: impl FnOnce(&mut Clock, &mut Conn, usize) -> R) -> Option<R> {
        let mut world = self.net.lock();
        let (clock, conn, side) = world.end(self.endpoint, conn)?;
        Some(act(clock, conn, side))
    }
}

impl SimNet {
    /// The transport of a new worker at this host. Workers of the same name share a host: they can adopt each
    /// other's connections and die together. After [`SimNet::kill`] the name may be used again.
    pub fn host(&self, name: &str) -> SimTransport {
        let endpoint = self.lock().endpoint(name);
        SimTransport { net: self.clone(), endpoint }
    }
}

/// Whether an end accepts writes and messages.
fn is_open(conn: &Conn, side: usize) -> bool {
    matches!(conn.ends[side].phase, Phase::Connecting | Phase::Up)
}

impl Transport for SimTransport {
    fn promises(&self) -> Promises {
        let world = self.net.lock();
        let config = &world.clock.config;
        let one_sided = config.mode == Mode::OneSided;
        Promises {
            ordered: !(one_sided && config.reorder),
            one_sided,
            reports_landed: one_sided,
            max_write_bytes: config.max_write_bytes,
            max_control_bytes: config.max_control_bytes,
        }
    }

    fn listen(&mut self, addr: &str) -> Result<String, TransportError> {
        self.net.lock().listen(self.endpoint, addr)
    }

    fn unlisten(&mut self, addr: &str) {
        self.net.lock().unlisten(self.endpoint, addr);
    }

    fn connect(&mut self, addr: &str) -> Result<ConnId, TransportError> {
        self.net.lock().connect(self.endpoint, addr)
    }

    fn adopt(&mut self, accepted: Accepted) -> Result<ConnId, TransportError> {
        self.net.lock().adopt(self.endpoint, &accepted)
    }

    fn pause(&mut self, conn: ConnId, paused: bool) {
        self.with(conn, |_, conn, side| conn.ends[side].paused = paused);
    }

    fn bind(&mut self, conn: ConnId, wire: WireId, receiver: RingReceiver) {
        self.with(conn, |_, conn, side| {
            let end = &mut conn.ends[side];
            let era = end.next_era();
            end.receivers.insert(wire, Bound { receiver, era });
        });
    }

    fn unbind(&mut self, conn: ConnId, wire: WireId) -> Option<RingReceiver> {
        self.with(conn, |_, conn, side| conn.ends[side].receivers.remove(&wire))?.map(|bound| bound.receiver)
    }

    fn skip(&mut self, conn: ConnId, wire: WireId, to: Position) -> bool {
        let skipped = self.with(conn, |_, conn, side| {
            let end = &mut conn.ends[side];
            let next_era = end.next_era();
            let Some(Bound { receiver, era }) = end.receivers.get_mut(&wire) else { return false };
            if to < receiver.ring().head() {
                return false;
            }
            *era = next_era;
            receiver.skip(to);
            true
        });
        skipped.unwrap_or(false)
    }

    fn trim(&mut self, conn: ConnId, wire: WireId, keep: u64) -> Option<Trimmed> {
        if self.promises().one_sided {
            return None;
        }
        self.with(conn, |_, conn, side| Some(conn.ends[side].receivers.get_mut(&wire)?.receiver.trim(keep)))?
    }

    fn grow(
        &mut self,
        conn: ConnId,
        wire: WireId,
        pool: &Pool,
        max_delivery: u64,
    ) -> Option<Result<(), GrowError>> {
        if self.promises().one_sided {
            return None;
        }
        self.with(conn, |_, conn, side| {
            Some(conn.ends[side].receivers.get_mut(&wire)?.receiver.grow(pool, max_delivery))
        })?
    }

    fn room(&self, conn: ConnId) -> u64 {
        let room =
            self.with(
                conn,
                |clock, conn, side| {
                    if is_open(conn, side) { conn.lanes[side].out.room(&clock.config) } else { 0 }
                },
            );
        room.unwrap_or(0)
    }

    /// # Panics
    ///
    /// If the range ends before it begins, or is larger than [`Promises::max_write_bytes`]: the caller broke the contract.
    fn write(
        &mut self,
        conn: ConnId,
        wire: WireId,
        source: SourceRange,
        more: bool,
    ) -> Result<(), NotWritten> {
        let queued = self.with(conn, |clock, conn, side| {
            let size = source.to.checked_sub(source.from);
            assert!(
                size.is_some_and(|size| size <= clock.config.max_write_bytes),
                "a write of {}..{} where max_write_bytes is {}",
                source.from,
                source.to,
                clock.config.max_write_bytes
            );
            is_open(conn, side) && conn.lanes[side].out.write(&clock.config, wire, source, more)
        });
        if queued == Some(true) { Ok(()) } else { Err(NotWritten::QueueFull) }
    }

    fn control(&mut self, conn: ConnId, message: &[u8]) -> Result<(), QueueFull> {
        let queued = self.with(conn, |clock, conn, side| {
            is_open(conn, side) && conn.lanes[side].out.control(&clock.config, message)
        });
        if queued == Some(true) { Ok(()) } else { Err(QueueFull) }
    }

    fn detach(&mut self, conn: ConnId, wire: WireId) -> u64 {
        let copied = self.with(conn, |_, conn, side| {
            let lane = &mut conn.lanes[side];
            let posted = match &mut lane.pipe {
                Pipe::Stream(_) => 0,
                Pipe::Fabric(fabric) => fabric.detach(wire),
            };
            posted + lane.out.detach(wire)
        });
        copied.unwrap_or(0)
    }

    fn flush(&mut self, conn: ConnId) -> bool {
        let left = self.with(conn, |clock, conn, side| {
            conn.lanes[side].out.flush();
            conn.pump(clock, side);
            conn.lanes[side].out.is_empty()
        });
        left.unwrap_or(true)
    }

    fn close(&mut self, conn: ConnId, why: &str, linger: Duration) {
        self.with(conn, |clock, conn, side| {
            if conn.ends[side].phase == Phase::Connecting {
                return conn.fail(clock, side, Down::Local(why.to_owned()));
            }
            if conn.ends[side].phase != Phase::Up {
                return;
            }
            conn.ends[side].phase = Phase::Closing(why.to_owned());
            conn.lanes[side].out.flush();
            conn.pump(clock, side);
            let linger = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
            let until = clock.now.saturating_add(linger);
            if conn.ends[side].phase == Phase::Down {
                return;
            }
            if linger == 0 {
                conn.fail(clock, side, Down::Local(why.to_owned()));
            } else if until < u64::MAX {
                clock.at(until, Kind::Linger { conn: conn.no, side });
            }
        });
    }

    fn forget(&mut self, conn: ConnId) {
        self.net.lock().forget(self.endpoint, conn);
    }

    /// Never blocks: returns the events that are ready at the virtual time. Time passes in [`SimNet::step`].
    fn poll(&mut self, _timeout: Option<Duration>, events: &mut Vec<Event>) {
        self.net.lock().poll(self.endpoint, events);
    }
}
