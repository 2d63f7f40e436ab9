//! A simulated connection: two ends, and a lane in each direction.

use crate::clock::{Clock, Kind};
use crate::config::Mode;
use crate::end::{Direction, End, Phase, end_id};
use crate::fabric::Fabric;
use crate::outbox::Outbox;
use crate::stream::Stream;
use rocketnet::contract::{ConnId, Down, Event};

/// How a lane carries bytes.
pub(crate) enum Pipe {
    Stream(Stream),
    Fabric(Fabric),
}

/// The directions: `lanes[s]` carries the bytes of end `s`.
pub(crate) struct Lane {
    pub(crate) out: Outbox,
    pub(crate) pipe: Pipe,
    /// A Pump is scheduled.
    pub(crate) pump_due: bool,
    /// The sender closed the connection, and the receiver has everything that was sent before.
    pub(crate) fin: bool,
}

impl Lane {
    fn new(clock: &Clock) -> Self {
        let pipe = match clock.config.mode {
            Mode::Stream => Pipe::Stream(Stream::default()),
            Mode::OneSided => Pipe::Fabric(Fabric::new(clock.config.receive_depth)),
        };
        Self { out: Outbox::default(), pipe, pump_due: false, fin: false }
    }

    /// Nothing is left for the receiver to read.
    fn is_read(&self) -> bool {
        match &self.pipe {
            Pipe::Stream(stream) => stream.is_read(),
            Pipe::Fabric(fabric) => fabric.is_read(),
        }
    }

    /// The queue was sent.
    pub(crate) fn has_left(&self) -> bool {
        self.out.is_empty()
            && match &self.pipe {
                Pipe::Stream(_) => true,
                Pipe::Fabric(fabric) => fabric.is_idle(),
            }
    }
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) no: u64,
    pub(crate) addr: String,
    pub(crate) ends: [End; 2],
    pub(crate) lanes: [Lane; 2],
    /// Nothing crosses any more.
    pub(crate) cut: bool,
}

impl Conn {
    pub(crate) fn new(
        clock: &Clock,
        no: u64,
        addr: &str,
        from_host: u32,
        endpoint: u64,
        to_host: u32,
    ) -> Self {
        Self {
            no,
            addr: addr.to_owned(),
            ends: [
                End::new(from_host, Some(endpoint), Phase::Connecting),
                End::new(to_host, None, Phase::Pending),
            ],
            lanes: [Lane::new(clock), Lane::new(clock)],
            cut: false,
        }
    }

    pub(crate) fn id(&self, side: usize) -> ConnId {
        end_id(self.no, side)
    }

    fn direction(&self, side: usize) -> Direction {
        Direction { no: self.no, side, cut: self.cut }
    }

    /// The network takes flushed bytes of `side`, as many as it can.
    pub(crate) fn pump(&mut self, clock: &mut Clock, side: usize) {
        if self.ends[side].may_send() {
            let direction = self.direction(side);
            let lane = &mut self.lanes[side];
            let more = match &mut lane.pipe {
                Pipe::Stream(stream) => stream.take(clock, &mut lane.out, direction),
                Pipe::Fabric(fabric) => {
                    fabric.post(clock, &mut lane.out, direction);
                    false
                }
            };
            if more {
                self.pump_soon(clock, side);
            }
            let lane = &mut self.lanes[side];
            if self.ends[side].phase == Phase::Up && lane.out.becomes_writable(&clock.config) {
                let id = self.id(side);
                self.ends[side].events.push_back(Event::Writable(id));
            }
        }
        self.finish_close(clock, side);
    }

    /// Schedules a pump, if none is scheduled and there is something to take.
    pub(crate) fn pump_soon(&mut self, clock: &mut Clock, side: usize) {
        let lane = &mut self.lanes[side];
        if !lane.pump_due && lane.out.is_ready() {
            lane.pump_due = true;
            clock.soon(Kind::Pump { conn: self.no, side });
        }
    }

    /// A closing end disconnects after its queue was sent.
    fn finish_close(&mut self, clock: &mut Clock, side: usize) {
        let Phase::Closing(why) = &self.ends[side].phase else { return };
        if !self.lanes[side].has_left() {
            return;
        }
        let why = why.clone();
        if !self.cut {
            match &mut self.lanes[side].pipe {
                Pipe::Stream(stream) => stream.send_fin(clock, self.no, side),
                Pipe::Fabric(_) => {
                    clock.soon(Kind::Fin { conn: self.no, side });
                }
            }
        }
        self.down(clock, side, Down::Local(why));
    }

    /// Ends this end and reports why. Frees its source rings.
    pub(crate) fn down(&mut self, clock: &mut Clock, side: usize, reason: Down) {
        if self.ends[side].over() {
            return;
        }
        let id = self.id(side);
        clock.note("down", id.0, 0, 0, 0);
        let end = &mut self.ends[side];
        if let Pipe::Fabric(fabric) = &mut self.lanes[1 - side].pipe {
            fabric.settle(end);
        }
        end.phase = Phase::Down;
        end.events.push_back(Event::Down(id, reason));
        let lane = &mut self.lanes[side];
        lane.out.clear();
        if let Pipe::Fabric(fabric) = &mut lane.pipe {
            fabric.clear_posted();
        }
    }

    /// Ends this end for a fault of the peer (or at the caller's request), and breaks the peer's end.
    pub(crate) fn fail(&mut self, clock: &mut Clock, side: usize, reason: Down) {
        self.down(clock, side, reason);
        self.cut_lanes();
        self.break_soon(clock, 1 - side);
    }

    /// The end learns after a delay that the connection is broken.
    pub(crate) fn break_soon(&mut self, clock: &mut Clock, side: usize) {
        if !self.ends[side].over() {
            clock.soon(Kind::Break { conn: self.no, side });
        }
    }

    /// Nothing in flight arrives any more.
    pub(crate) fn cut_lanes(&mut self) {
        self.cut = true;
        for lane in &mut self.lanes {
            match &mut lane.pipe {
                Pipe::Stream(stream) => stream.clear_flight(),
                Pipe::Fabric(fabric) => fabric.clear_posted(),
            }
        }
    }

    /// The end learns that the connection is broken: arrived bytes are lost with it, or are read first.
    pub(crate) fn broken(&mut self, clock: &mut Clock, side: usize) {
        let reason = match &self.ends[side].phase {
            Phase::Closing(why) => Down::Local(why.clone()),
            Phase::Connecting => {
                Down::Refused { addr: self.addr.clone(), reason: "the connection was reset".to_owned() }
            }
            Phase::Down | Phase::Gone => return,
            Phase::Pending => {
                self.ends[side].breaking = true;
                return;
            }
            // A stream may lose bytes that its reader has not read. Bytes that were reported as landed are never lost.
            Phase::Up if matches!(self.lanes[1 - side].pipe, Pipe::Stream(_)) && clock.rng.one_in(2) => {
                reset()
            }
            Phase::Up => {
                self.ends[side].breaking = true;
                return;
            }
        };
        self.down(clock, side, reason);
    }

    /// Returns the events of this end.
    pub(crate) fn poll(&mut self, clock: &mut Clock, side: usize, events: &mut Vec<Event>) {
        let end = &mut self.ends[side];
        events.extend(end.events.drain(..));
        if end.phase == Phase::Up {
            if !end.paused {
                self.read(clock, side, events);
            } else if end.breaking && matches!(self.lanes[1 - side].pipe, Pipe::Stream(_)) {
                self.down(clock, side, reset());
            } else {
                self.end_of_reading(clock, side);
            }
        }
        events.extend(self.ends[side].events.drain(..));
    }

    fn read(&mut self, clock: &mut Clock, side: usize, events: &mut Vec<Event>) {
        let direction = self.direction(1 - side);
        let end = &mut self.ends[side];
        let read = match &mut self.lanes[1 - side].pipe {
            Pipe::Stream(stream) => stream.read(clock, end, direction, events),
            Pipe::Fabric(fabric) => fabric.read(clock, end, direction, events),
        };
        match read {
            Ok(read) => self.after_read(clock, 1 - side, read),
            Err(reason) => return self.fail(clock, side, reason),
        }
        self.end_of_reading(clock, side);
    }

    /// The other end has made room for the bytes of `side`, if it read any.
    fn after_read(&mut self, clock: &mut Clock, side: usize, read: bool) {
        if !read || self.ends[side].phase == Phase::Gone {
            return;
        }
        match &self.lanes[side].pipe {
            Pipe::Stream(_) => self.pump_soon(clock, side),
            Pipe::Fabric(fabric) if fabric.is_due(clock.config.reorder) => {
                clock.soon(Kind::Retry { conn: self.no, side });
            }
            Pipe::Fabric(_) => {}
        }
    }

    /// A piece of a stream reaches the receiver's machine.
    pub(crate) fn arrive(&mut self, clock: &mut Clock, side: usize) {
        let (direction, over) = (self.direction(side), self.ends[1 - side].over());
        let lane = &mut self.lanes[side];
        if let Pipe::Stream(stream) = &mut lane.pipe {
            lane.fin |= stream.arrive(clock, direction, over);
        }
    }

    /// A one-sided write or message reaches the receiver's adapter.
    pub(crate) fn land(&mut self, clock: &mut Clock, side: usize, seq: u64) {
        let direction = self.direction(side);
        if let Pipe::Fabric(fabric) = &mut self.lanes[side].pipe {
            fabric.arrive(clock, &mut self.ends[1 - side], direction, seq);
        }
    }

    /// The receiver's adapter has receives again.
    pub(crate) fn retry(&mut self, clock: &mut Clock, side: usize) {
        let direction = self.direction(side);
        if let Pipe::Fabric(fabric) = &mut self.lanes[side].pipe {
            fabric.land_due(clock, &mut self.ends[1 - side], direction);
        }
    }

    /// The receiver's completion queue gets an entry. At an end that is down the write fails with the connection.
    pub(crate) fn notify(&mut self, clock: &mut Clock, side: usize, seq: u64) {
        let direction = self.direction(side);
        if let Pipe::Fabric(fabric) = &mut self.lanes[side].pipe
            && !self.ends[1 - side].over()
        {
            fabric.notify(clock, direction, seq);
        }
    }

    /// The sender's completion queue gets an entry.
    pub(crate) fn complete(&mut self, clock: &mut Clock, side: usize, seq: u64) {
        let direction = self.direction(side);
        let completed = match &mut self.lanes[side].pipe {
            Pipe::Stream(_) => false,
            Pipe::Fabric(fabric) => fabric.complete(clock, &mut self.ends[side], direction, seq),
        };
        if completed {
            self.pump(clock, side);
        }
    }

    /// Down follows the last readable byte.
    fn end_of_reading(&mut self, clock: &mut Clock, side: usize) {
        let lane = &self.lanes[1 - side];
        if !lane.is_read() {
            return;
        }
        if lane.fin {
            let inside = matches!(&lane.pipe, Pipe::Stream(stream) if stream.is_inside());
            let reason = if inside {
                Down::Broken("the stream ended inside a transfer".to_owned())
            } else {
                Down::PeerClosed
            };
            self.down(clock, side, reason);
        } else if self.ends[side].breaking {
            self.down(clock, side, reset());
        }
    }

    /// Neither end needs the connection any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.ends.iter().all(|end| end.phase == Phase::Gone)
    }

    /// The end releases everything without an event.
    pub(crate) fn leave(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.phase = Phase::Gone;
        end.receivers.clear();
        end.events.clear();
        let lane = &mut self.lanes[side];
        lane.out.clear();
        if let Pipe::Fabric(fabric) = &mut lane.pipe {
            fabric.clear_posted();
        }
    }
}

fn reset() -> Down {
    Down::Broken("the connection was reset".to_owned())
}
