//! Cases about ranges.

use super::flow::{Flow, ring};
use super::kit::Kit;
use super::lab::Lab;
use crate::contract::{Down, NotWritten, SourceRange, Transport};

/// Capacity of rings in cases where it does not matter.
const CAPACITY: u64 = 64 << 10;

/// A range lands byte for byte near 0, 2^32 and 2^63, and across the ring's wrap.
pub fn lands_at_every_kind_of_position<L: Lab>(lab: &mut L) {
    let total = (3 * CAPACITY).min(lab.bytes() / 5);
    let mut kit = Kit::connected(lab);
    let starts = [0, 1, (1 << 32) - 3_000, (1 << 63) - 3_000, CAPACITY * 7 - 5];
    for (wire, start) in starts.into_iter().enumerate() {
        let mut flow = Flow::new(&mut kit, 0, 1, wire as u32, CAPACITY, start);
        let mut sizes = [1, 8, 4_096, 5_000, 17, 30_000].into_iter().cycle();
        flow.run(&mut kit, total, || sizes.next().unwrap_or(1));
    }
}

/// Thousands of deliveries of a few bytes, each its own range.
pub fn many_small_ranges<L: Lab>(lab: &mut L) {
    let total = 60_000.min(lab.bytes());
    let mut kit = Kit::connected(lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 7, CAPACITY, 0);
    let mut size = 0;
    flow.run(&mut kit, total, || {
        size = size % 64 + 1;
        size
    });
}

/// Ranges as large as ring and transport allow, in both directions.
pub fn large_ranges<L: Lab>(lab: &mut L) {
    let total = lab.bytes();
    let mut kit = Kit::connected(lab);
    for from in [1, 0] {
        let mut flow = Flow::new(&mut kit, 0, from, 3, 1 << 20, 123);
        let whole = flow.source.max_delivery();
        flow.run(&mut kit, total / 2, || whole);
    }
}

/// Several ids take turns on one connection.
pub fn interleaved_wires<L: Lab>(lab: &mut L) {
    let each = 2 * CAPACITY.min(lab.bytes() / 10);
    let mut kit = Kit::connected(lab);
    let wires = [0, 1, 0x7FFF_FFFE, 77, 1 << 30];
    let mut flows: Vec<_> =
        wires.iter().map(|&wire| Flow::new(&mut kit, 0, 1, wire, CAPACITY, wire.into())).collect();
    let ends: Vec<_> = flows.iter().map(|flow| flow.queued() + each).collect();
    kit.until("all flows", |kit| {
        let mut done = true;
        for (i, (flow, &end)) in flows.iter_mut().zip(&ends).enumerate() {
            flow.advance(kit, end, &mut || [1, 100, 20_000, 3_000, 65][i]);
            done &= flow.checked() == end;
        }
        done
    });
}

/// A ring returns its memory between transfers, and continues unchanged.
pub fn trimmed_rings_go_on<L: Lab>(lab: &mut L) {
    let total = CAPACITY.min(lab.bytes() / 10);
    let mut kit = Kit::connected(lab);
    let to = kit.id(0, 1);
    let one_sided = kit.promises().one_sided;
    let mut flow = Flow::new(&mut kit, 0, 0, 5, CAPACITY, 3_000);
    for keep in [0, 100, CAPACITY, 0] {
        flow.run(&mut kit, total, || 700);
        let trimmed = kit.ends[1].link().trim(to, 5, keep);
        assert_eq!(trimmed.is_none(), one_sided, "memory that peers write to is not given back");
        assert!(trimmed.is_none_or(|trimmed| !trimmed.held), "everything was let go of");
    }
    assert!(kit.ends[1].link().trim(to, 6, 0).is_none(), "an id that is not bound has no ring");
}

/// MORE moves the head alone; the range without it moves the boundary, even if it is empty.
pub fn more_and_boundary<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 9, CAPACITY, 1_000);
    assert!(flow.produce(10_000));
    flow.send(&mut kit, 4_000, true);
    flow.drain(&mut kit);
    assert_eq!((flow.sink.head(), flow.sink.boundary()), (5_000, 1_000));
    flow.send(&mut kit, 6_000, false);
    flow.drain(&mut kit);
    assert_eq!((flow.sink.head(), flow.sink.boundary()), (11_000, 11_000));

    assert!(flow.produce(500));
    flow.send(&mut kit, 500, true);
    flow.drain(&mut kit);
    assert_eq!(flow.sink.boundary(), 11_000);
    flow.send(&mut kit, 0, false);
    kit.until("the end of an empty range", |_| flow.sink.boundary() == 11_500);
}

/// A full queue refuses writes, has no room, and reports when there is room again.
pub fn queue_full_and_writable<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let id = kit.id(0, 1);
    let room = kit.ends[1].link().room(id);
    let max = kit.promises().max_write_bytes;
    if !kit.promises().ordered || room.min(max) > 16 << 20 {
        return; // one range in flight, or a queue without a bound worth filling
    }
    let mut flow = Flow::new(&mut kit, 0, 1, 5, 2 * room, 0);
    assert!(flow.produce(2 * room));
    loop {
        let n = kit.ends[1].link().room(id).min(max).min(10_000);
        if n == 0 {
            break;
        }
        flow.send(&mut kit, n, true);
    }
    let next =
        SourceRange { ring: flow.source.clone(), from: flow.queued(), to: flow.queued() + 1, mapped: false };
    assert_eq!(kit.ends[1].link().write(id, 5, next, true), Err(NotWritten::QueueFull));
    kit.until("Writable", |kit| {
        flow.settle(kit);
        kit.ends[1].writable(id) > 0
    });
    assert!(kit.ends[1].link().room(id) > 0);
    let rest = flow.source.head();
    kit.until("the rest", |kit| {
        flow.advance(kit, rest, &mut || 1);
        flow.checked() == rest
    });
}

/// After `detach` the ring may be overwritten. The peer still gets the queued bytes.
pub fn detach_copies_and_frees<L: Lab>(lab: &mut L) {
    if lab.maps() {
        return; // nothing is copied: what the peer needs of its mapping it says
    }
    let mut kit = Kit::connected(lab);
    let id = kit.id(0, 1);
    let mut other = Flow::new(&mut kit, 0, 1, 2, CAPACITY, 0);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    // The receiver is paused, so that with small system buffers only a part is sent.
    let to = kit.id(0, 0);
    kit.ends[0].pause(to, true);
    assert!(flow.produce(CAPACITY) && other.produce(3_000));
    if kit.promises().ordered {
        let room = kit.ends[1].link().room(id);
        let size = (room / 8).min(CAPACITY / 8);
        flow.send(&mut kit, size, true);
        other.send(&mut kit, 3_000, false);
        while flow.queued() < CAPACITY / 2 && flow.sendable(&mut kit) >= size {
            flow.send(&mut kit, size, true);
        }
        kit.ends[1].link().flush(id);
    }
    let unsent = flow.sendable(&mut kit).min(5_000);
    if unsent > 0 {
        flow.send(&mut kit, unsent, true);
    }
    let copied = kit.ends[1].link().detach(id, 1);
    assert!(copied <= flow.queued());
    if !kit.promises().one_sided {
        assert!(copied >= unsent, "bytes that were not flushed were not sent, so they must be copied");
    }
    assert_eq!(kit.ends[1].link().detach(id, 1), 0, "nothing is left to detach");
    let queued = flow.queued();
    flow.detached();
    assert!(flow.produce(queued), "detach freed the source");
    kit.ends[0].pause(to, false);
    flow.drain(&mut kit);
    other.drain(&mut kit);
}

/// LOST: the receiver skips in response to a control message, before the range that follows it is handled.
pub fn skip_in_answer_to_control<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let ordered = kit.promises().ordered;
    let mut flow = Flow::new(&mut kit, 0, 1, 4, CAPACITY, 0);
    let (sender, receiver) = (flow.sender(&kit), flow.receiver(&kit));
    assert!(flow.produce(100));
    flow.send(&mut kit, 100, false);
    if !ordered || kit.lab().maps() {
        flow.drain(&mut kit);
    }
    kit.ends[1].link().control(sender, b"lost").expect("place for a control message");
    flow.jump(5_000);
    assert!(flow.produce(1_000));
    if ordered {
        flow.send(&mut kit, 1_000, false);
    }
    kit.until("the message", |kit| !kit.ends[0].controls(receiver).is_empty());
    assert_eq!(flow.sink.head(), 100, "the range behind the message waits for the answer to it");
    flow.check();
    assert!(!kit.ends[0].link().skip(receiver, 4, 99), "never back");
    assert!(!kit.ends[0].link().skip(receiver, 40, 5_000), "no such id");
    assert!(kit.ends[0].link().skip(receiver, 4, 5_000));
    flow.skipped(5_000);
    assert_eq!((flow.sink.head(), flow.sink.boundary()), (5_000, 5_000));
    if !ordered {
        flow.send(&mut kit, 1_000, false);
    }
    flow.drain(&mut kit);
    assert_eq!(flow.sink.boundary(), 6_000);
}

/// A peer that writes past its credit loses the connection, and not a byte of it lands.
pub fn overrun_ends_the_connection<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    if kit.promises().one_sided {
        return; // the sender's transport writes; only its own session can keep to the credit
    }
    let mut small = Flow::new(&mut kit, 0, 1, 6, 4_096, 0);
    let big = ring(CAPACITY, 0);
    let capacity = small.sink.capacity();
    let mut writer = big.writer().expect("the first writer");
    writer.append(&[&vec![1; capacity as usize + 1]]).expect("a ring of that size");
    let id = small.sender(&kit);
    kit.ends[1].write(id, 6, SourceRange { ring: big, from: 0, to: capacity + 1, mapped: false }, false);
    kit.until("Down", |kit| kit.down(0, 0).is_some());
    let down = kit.down(0, 0);
    assert_eq!(down, Some(Down::Overrun { wire: 6, at: 0, size: capacity + 1, over: 1 }));
    assert_eq!(small.sink.head(), 0);
    small.check();
    kit.until("Down at the sender", |kit| kit.down(0, 1).is_some());
}

/// Data for an id that was never bound ends the connection with that id in the reason.
pub fn unknown_wire_ends_the_connection<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let source = ring(CAPACITY, 0);
    source.writer().expect("the first writer").append(&[b"astray"]).expect("room");
    let id = kit.id(0, 1);
    kit.ends[1].write(id, 0x1234, SourceRange { ring: source, from: 0, to: 6, mapped: false }, false);
    kit.until("Down", |kit| kit.down(0, 0).is_some());
    assert_eq!(kit.down(0, 0), Some(Down::UnknownWire(0x1234)));
    kit.until("Down at the sender", |kit| kit.down(0, 1).is_some());
}
