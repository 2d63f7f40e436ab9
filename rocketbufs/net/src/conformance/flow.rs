//! A flow from a source ring to a sink ring, of bytes that are known by their position.

use rocketring::{Hold, Pool, PoolConfig, Position, Ring, RingConfig, Writer};

use super::kit::Kit;
use super::lab::Lab;
use crate::contract::{ConnId, SourceRange, Transport, WireId};

/// The byte at a position of the flow with this seed.
pub fn byte_at(seed: u64, at: Position) -> u8 {
    ((at ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// A ring that its flow's ends write and read, with a pool of its own.
pub fn ring(capacity: u64, start: Position) -> Ring {
    pool().ring(config(capacity, start)).expect("a ring")
}

fn pool() -> Pool {
    Pool::new(PoolConfig { reservation_bytes: 64 << 20, max_bytes: 64 << 20 }).expect("a pool")
}

fn config(capacity: u64, start: Position) -> RingConfig {
    RingConfig {
        capacity_bytes: capacity,
        retain_bytes: Some(0),
        max_delivery_bytes: Some(capacity),
        flow_control: true,
        start,
    }
}

/// A ring at one end, and the other end's ring over the same memory.
fn mapped<L: Lab>(
    kit: &mut Kit<'_, L>,
    conn: usize,
    from: usize,
    wire: WireId,
    of: RingConfig,
) -> (Ring, Ring) {
    let source = pool().shared_ring(of.clone()).expect("a ring");
    let (sender, receiver) = (kit.id(conn, from), kit.id(conn, 1 - from));
    assert!(kit.ends[from].link().offer(sender, wire, &source, 0), "this lab's transport maps rings");
    kit.until("the offer", |kit| kit.ends[1 - from].offers.contains_key(&(receiver, wire)));
    let offered = kit.ends[1 - from].offers.remove(&(receiver, wire)).expect("just seen");
    (source, offered.ring(of).expect("a ring"))
}

/// A log that goes from one end of a connection to the other under one wire id.
pub struct Flow {
    /// The wire id.
    pub wire: WireId,
    /// Number of the connection in the kit.
    pub conn: usize,
    /// The end that sends.
    pub from: usize,
    /// The ring at the sending end.
    pub source: Ring,
    /// The ring at the receiving end.
    pub sink: Ring,
    seed: u64,
    writer: Writer,
    source_hold: Hold,
    sink_hold: Hold,
    queued: Position,
    /// The ranges below were released by `detach`.
    detached: Position,
    checked: Position,
}

impl Flow {
    /// Makes both rings, or one that both ends map, and binds the sink at the receiving end.
    pub fn new<L: Lab>(
        kit: &mut Kit<'_, L>,
        conn: usize,
        from: usize,
        wire: WireId,
        capacity: u64,
        start: Position,
    ) -> Self {
        let (source, sink) = match kit.lab().maps() {
            true => mapped(kit, conn, from, wire, config(capacity, start)),
            false => (ring(capacity, start), ring(capacity, start)),
        };
        let receiver = sink.receiver().expect("the first receiver");
        let to = kit.id(conn, 1 - from);
        kit.ends[1 - from].link().bind(to, wire, receiver);
        let writer = source.writer().expect("the first writer");
        let source_hold = source.hold(start).expect("the start is there");
        let sink_hold = sink.hold(start).expect("the start is there");
        sink.grant();
        let seed = u64::from(wire) + 1;
        Self {
            wire,
            conn,
            from,
            source,
            sink,
            seed,
            writer,
            source_hold,
            sink_hold,
            queued: start,
            detached: start,
            checked: start,
        }
    }

    /// The sender's id of the connection.
    pub fn sender<L: Lab>(&self, kit: &Kit<'_, L>) -> ConnId {
        kit.id(self.conn, self.from)
    }

    /// The receiver's id of the connection.
    pub fn receiver<L: Lab>(&self, kit: &Kit<'_, L>) -> ConnId {
        kit.id(self.conn, 1 - self.from)
    }

    /// The end of the queued ranges.
    pub fn queued(&self) -> Position {
        self.queued
    }

    /// The end of the checked and consumed bytes of the sink.
    pub fn checked(&self) -> Position {
        self.checked
    }

    /// Writes one delivery of known bytes into the source; false if it has no room.
    pub fn produce(&mut self, size: u64) -> bool {
        let from = self.source.head();
        let bytes: Vec<u8> = (from..from + size).map(|at| byte_at(self.seed, at)).collect();
        self.writer.append(&[&bytes]).is_ok()
    }

    /// How many produced bytes may be queued now: produced, granted by the sink, and in the queue's room. A transport
    /// without order has one range in flight.
    pub fn sendable<L: Lab>(&self, kit: &mut Kit<'_, L>) -> u64 {
        (self.source.head() - self.queued).min(self.sendable_if_produced(kit))
    }

    /// The same for bytes that are yet to be produced.
    pub fn sendable_if_produced<L: Lab>(&self, kit: &mut Kit<'_, L>) -> u64 {
        let id = self.sender(kit);
        let promises = kit.promises();
        if !promises.ordered && self.queued > self.sink.head() {
            return 0;
        }
        let granted = self.sink.grant() - self.queued;
        granted.min(kit.ends[self.from].link().room(id)).min(promises.max_write_bytes)
    }

    /// Queues the next `size` bytes as one range.
    pub fn send<L: Lab>(&mut self, kit: &mut Kit<'_, L>, size: u64, more: bool) {
        let id = self.sender(kit);
        let (ring, from) = (self.source.clone(), self.queued);
        let range = SourceRange { ring, from, to: from + size, mapped: self.sink.is_peer_written() };
        kit.ends[self.from].write(id, self.wire, range, more);
        self.queued += size;
    }

    /// Continues at `to` without sending the bytes before (the case skips in the sink's ring).
    pub fn jump(&mut self, to: Position) {
        while self.source.head() < to {
            let size = (to - self.source.head()).min(self.source.max_delivery());
            assert!(self.produce(size), "the source has room to jump");
            self.source_hold.advance(self.source.head());
            self.source.grant();
        }
        self.queued = to;
        self.detached = to;
    }

    /// Frees the source after `detach`: the transport no longer reads queued ranges from it.
    pub fn detached(&mut self) {
        self.detached = self.queued;
        self.free_source(self.queued);
    }

    fn free_source(&mut self, to: Position) {
        self.source_hold.advance(to);
        self.source.grant();
    }

    /// Checks the bytes that landed since the last call, and frees them in sink and source.
    pub fn settle<L: Lab>(&mut self, kit: &Kit<'_, L>) {
        let key = (self.sender(kit), self.wire);
        self.check();
        self.free_source(self.checked.max(self.detached));
        if let Some(&landed) = kit.ends[self.from].landed.get(&key) {
            // One-sided: the memory has the bytes before the receiver's head moves.
            assert!(landed <= self.queued, "Landed is beyond the queued bytes");
        }
    }

    /// Compares landed bytes with their positions.
    pub fn check(&mut self) {
        let head = self.sink.head();
        assert!(head <= self.queued, "more landed than was queued");
        if head == self.checked {
            return;
        }
        let landed = self.sink.view(self.checked, head).to_vec().expect("the sink is flow controlled");
        for (at, &byte) in (self.checked..).zip(&landed) {
            assert_eq!(byte, byte_at(self.seed, at), "byte at position {at} of wire {}", self.wire);
        }
        self.checked = head;
        self.sink_hold.advance(head);
        self.sink.grant();
    }

    /// The sink was skipped to this position.
    pub fn skipped(&mut self, to: Position) {
        self.checked = to;
        self.sink_hold.advance(to);
        self.sink.grant();
    }

    /// Moves `total` more bytes, in deliveries whose sizes `size` gives, each its own range unless room or credit cut it.
    pub fn run<L: Lab>(&mut self, kit: &mut Kit<'_, L>, total: u64, mut size: impl FnMut() -> u64) {
        let end = self.queued + total;
        kit.until("a flow's bytes", |kit| {
            self.advance(kit, end, &mut size);
            self.checked == end
        });
        assert_eq!(self.sink.boundary(), end, "all deliveries ended");
    }

    /// A turn of [`Flow::run`] towards the position `end`.
    pub fn advance<L: Lab>(&mut self, kit: &mut Kit<'_, L>, end: Position, size: &mut impl FnMut() -> u64) {
        for _ in 0..64 {
            if self.queued == self.source.head() {
                let wanted = size().clamp(1, self.source.max_delivery()).min(end - self.queued);
                if wanted == 0 || !self.produce(wanted) {
                    break;
                }
            }
            let n = self.sendable(kit);
            if n == 0 {
                break;
            }
            let more = self.queued + n < self.source.head();
            self.send(kit, n, more);
        }
        self.settle(kit);
    }

    /// Steps until everything queued has landed and was checked.
    pub fn drain<L: Lab>(&mut self, kit: &mut Kit<'_, L>) {
        let queued = self.queued;
        kit.until("the queued bytes", |kit| {
            self.settle(kit);
            self.checked == queued
        });
    }
}
