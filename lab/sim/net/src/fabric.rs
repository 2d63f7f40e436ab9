//! RDMA's twin: one direction of one-sided writes and messages.
//!
//! ```text
//!            post            land                    notify                 poll
//!  outbox ─────────▶ flying ──────▶ in memory, past ────────▶ completion ────────▶ RingReceiver::land, Arrived
//!          send_depth   │ ▲          the peer's head           queue                (posts a receive again)
//!                       ▼ │ no receive left: waits                 │
//!                      (RNR)                                       └─ complete ─▶ Landed at the sender
//! ```
//!
//! * The bytes of a range are read from its ring when it lands, and are put into the peer's memory at that moment,
//!   without the peer's code, as long as that is safe: the wire is bound, its ring has flow control, the range was
//!   granted, and everything of the wire before it was put there too. Otherwise, and in unordered mode whenever
//!   another write of the wire is in flight, the network keeps them and lands them when the receiver polls.
//! * Ordered: everything lands in order; notifications of different wires may pass each other, but none
//!   passes a control message. Unordered: only control messages keep their order among themselves.
//! * A write completes at the sender only after the receiver's completion queue has it, so a
//!   message after [`Event::Landed`] arrives after the data, and bytes reported as landed are below the receiver's head when
//!   the connection is down, however it ended.

use std::collections::VecDeque;

use crate::clock::{Clock, Kind};
use crate::end::{Bound, Direction, End, Reading, check_room, copy_in, end_id};
use crate::outbox::{Item, Outbox};
use rocketnet::contract::{Down, Event, WireId};
use rocketnet::wire::CONTROL_WIRE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In flight.
    Flying,
    /// At the receiver's adapter, which has no receive for it or waits for earlier writes.
    Due,
    /// Landed. The receiver is notified at this time.
    Landed(u64),
    /// The receiver's completion queue has it.
    Notified,
}

/// A write or message that the network has taken and that has not completed.
struct Posted {
    seq: u64,
    item: Item,
    state: State,
    /// The notice of the landed bytes, until it is delivered.
    notice: Option<Notice>,
}

impl Posted {
    fn is_unlanded(&self) -> bool {
        matches!(self.state, State::Flying | State::Due)
    }
}

/// An entry of the receiver's completion queue.
struct Notice {
    wire: WireId,
    more: bool,
    bytes: Vec<u8>,
    /// The era of the binding whose memory already has the bytes.
    placed: Option<u64>,
}

impl Notice {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// The lane's state.
pub(crate) struct Fabric {
    posted: VecDeque<Posted>,
    next_seq: u64,
    last_land: u64,
    last_complete: u64,
    /// Posted receives that are not used.
    receives: usize,
    completions: VecDeque<Notice>,
}

impl Fabric {
    pub(crate) fn new(receive_depth: usize) -> Self {
        Self {
            posted: VecDeque::new(),
            next_seq: 0,
            last_land: 0,
            last_complete: 0,
            receives: receive_depth,
            completions: VecDeque::new(),
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        self.completions.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }

    pub(crate) fn clear_posted(&mut self) {
        self.posted.clear();
    }

    /// Copies the bytes that have not landed out of the ring.
    pub(crate) fn detach(&mut self, wire: WireId) -> u64 {
        let unlanded = self.posted.iter_mut().filter(|p| p.is_unlanded() && p.item.wire == wire);
        unlanded.map(|p| p.item.detach()).sum()
    }

    /// The receiving end goes down: entries of its completion queue may have been reported to the sender as landed, so heads
    /// move over them before the ring receivers are returned; up to a control message, which is not handled any more.
    pub(crate) fn settle(&mut self, end: &mut End) {
        for notice in self.completions.drain(..) {
            if notice.wire == CONTROL_WIRE || take_in(end, &notice).is_err() {
                return;
            }
        }
    }

    fn find(&mut self, seq: u64) -> Option<&mut Posted> {
        self.posted.iter_mut().find(|p| p.seq == seq)
    }

    /// The next write that may land: it is due, and no earlier write must land first.
    fn next_due(&self, reorder: bool) -> Option<usize> {
        let mut control_before = false;
        for (at, posted) in self.posted.iter().enumerate() {
            let control = posted.item.is_control();
            match posted.state {
                State::Due if !(control && control_before) => return Some(at),
                State::Due | State::Flying if !reorder => return None,
                State::Due | State::Flying => control_before |= control,
                State::Landed(_) | State::Notified => {}
            }
        }
        None
    }

    /// The earliest time at which the receiver may be notified of this item.
    fn not_before(&self, item: &Item, reorder: bool) -> u64 {
        let after = |p: &&Posted| {
            let (control, earlier) = (item.is_control(), p.item.is_control());
            if reorder { control && earlier } else { control || earlier || p.item.wire == item.wire }
        };
        let times = self.posted.iter().filter(after).filter_map(|p| match p.state {
            State::Landed(time) => Some(time),
            _ => None,
        });
        times.max().unwrap_or(0)
    }

    /// How far past the receiver's head the next bytes of the wire belong: behind the bytes put there in this era and not
    /// announced yet. None if some bytes of the wire were not put there, or may be announced in another order.
    fn ahead(&self, wire: WireId, era: u64, reorder: bool) -> Option<u64> {
        let landed = self.posted.iter().filter_map(|p| p.notice.as_ref());
        let mut unannounced = landed.chain(&self.completions).filter(|notice| notice.wire == wire);
        if reorder {
            return unannounced.next().is_none().then_some(0);
        }
        unannounced.try_fold(0, |sum, notice| (notice.placed == Some(era)).then_some(sum + notice.len()))
    }
}

impl Fabric {
    /// Takes flushed items into the send queue.
    pub(crate) fn post(&mut self, clock: &mut Clock, out: &mut Outbox, direction: Direction) {
        let Direction { no, side, cut } = direction;
        while self.posted.len() < clock.config.send_depth {
            let Some(item) = out.pop() else { break };
            self.next_seq += 1;
            let seq = self.next_seq;
            clock.note("post", direction.id().0, item.wire, item.from, item.len);
            let mut time = clock.now.saturating_add(clock.delay());
            if !clock.config.reorder {
                time = time.max(self.last_land);
                self.last_land = time;
            }
            self.posted.push_back(Posted { seq, item, state: State::Flying, notice: None });
            // On a cut connection the send queue fills up and nothing completes.
            if !cut {
                clock.at(time, Kind::Land { conn: no, side, seq });
            }
        }
    }

    /// A write reaches the receiver's adapter.
    pub(crate) fn arrive(&mut self, clock: &mut Clock, end: &mut End, direction: Direction, seq: u64) {
        if let Some(posted) = self.find(seq) {
            posted.state = State::Due;
            self.land_due(clock, end, direction);
        }
    }

    /// Lands due writes while there are receives.
    pub(crate) fn land_due(&mut self, clock: &mut Clock, end: &mut End, direction: Direction) {
        let (id, reorder) = (direction.id(), clock.config.reorder);
        while let Some(at) = self.next_due(reorder) {
            let wire = self.posted[at].item.wire;
            if self.receives == 0 {
                clock.note("rnr", id.0, wire, 0, 0);
                return; // the receiver gives receives back and retries
            }
            self.receives -= 1;
            let mut time = clock.now.saturating_add(clock.delay());
            time = time.max(self.not_before(&self.posted[at].item, reorder));
            let bytes = self.posted[at].item.body();
            let placed = place(self, end, wire, &bytes, reorder);
            let posted = &mut self.posted[at];
            clock.note("land", id.0, wire, posted.item.from, u64::from(placed.is_some()));
            posted.state = State::Landed(time);
            posted.notice = Some(Notice { wire, more: posted.item.more, bytes, placed });
            clock.at(time, Kind::Notify { conn: direction.no, side: direction.side, seq: posted.seq });
        }
    }

    /// Whether a due write may land once there is a receive.
    pub(crate) fn is_due(&self, reorder: bool) -> bool {
        self.next_due(reorder).is_some()
    }

    /// The receiver's completion queue gets an entry.
    pub(crate) fn notify(&mut self, clock: &mut Clock, direction: Direction, seq: u64) {
        let Some(posted) = self.find(seq) else { return };
        posted.state = State::Notified;
        let wire = posted.item.wire;
        let notice = posted.notice.take();
        self.completions.extend(notice);
        clock.note("notify", direction.id().0, wire, seq, 0);
        let mut time = clock.now.saturating_add(clock.delay());
        if !clock.config.reorder {
            time = time.max(self.last_complete);
            self.last_complete = time;
        }
        clock.at(time, Kind::Complete { conn: direction.no, side: direction.side, seq });
    }

    /// The sender's completion queue gets an entry. False if the write is no longer in flight.
    pub(crate) fn complete(
        &mut self,
        clock: &mut Clock,
        sender: &mut End,
        direction: Direction,
        seq: u64,
    ) -> bool {
        let id = direction.id();
        let Some(at) = self.posted.iter().position(|p| p.seq == seq) else { return false };
        let Some(Posted { item, .. }) = self.posted.remove(at) else { return false };
        clock.note("complete", id.0, item.wire, item.from, item.len);
        if !item.is_control() {
            sender.report_landed(id, item.wire, item.to());
        }
        true
    }

    /// Polls the completion queue at the receiving end: some notices, at least one if there is any. True if receives were
    /// posted again.
    pub(crate) fn read(
        &mut self,
        clock: &mut Clock,
        end: &mut End,
        direction: Direction,
        events: &mut Vec<Event>,
    ) -> Result<bool, Down> {
        let id = end_id(direction.no, 1 - direction.side);
        let max_control = clock.config.max_control_bytes;
        let mut reading = Reading { id, max_control, arrived: Vec::new(), events };
        let most = self.completions.len();
        if most == 0 {
            return Ok(false);
        }
        for _ in 0..clock.rng.cut(most) {
            let Some(notice) = self.completions.pop_front() else { break };
            self.receives += 1;
            clock.note("read", id.0, notice.wire, notice.bytes.len() as u64, 0);
            if notice.wire == CONTROL_WIRE {
                let size = notice.bytes.len();
                if size > max_control {
                    return Err(Down::ControlTooLarge { size: size as u64, max: max_control as u64 });
                }
                reading.events.push(Event::Control(id, notice.bytes));
                break;
            }
            take_in(end, &notice)?;
            reading.arrived(notice.wire);
        }
        Ok(true)
    }
}

/// Puts landed bytes into the receiver's memory, past its head. Returns the era of the binding.
fn place(fabric: &Fabric, end: &mut End, wire: WireId, bytes: &[u8], reorder: bool) -> Option<u64> {
    let Bound { receiver, era } = end.receivers.get_mut(&wire)?;
    if !receiver.ring().flow_control() {
        return None;
    }
    let ahead = fabric.ahead(wire, *era, reorder)?;
    crate::memory::put(receiver, ahead, bytes).then_some(*era)
}

/// Moves the head over the announced bytes.
fn take_in(end: &mut End, notice: &Notice) -> Result<(), Down> {
    let next_era = end.next_era();
    let Bound { receiver, era } =
        end.receivers.get_mut(&notice.wire).ok_or(Down::UnknownWire(notice.wire))?;
    if notice.placed == Some(*era) {
        receiver.land(notice.bytes.len());
    } else {
        check_room(receiver, notice.wire, notice.len())?;
        copy_in(receiver, notice.wire, &notice.bytes)?;
        // Bytes that were put ahead of the old head are no longer in the right place.
        *era = next_era;
    }
    if !notice.more {
        receiver.end();
    }
    Ok(())
}
