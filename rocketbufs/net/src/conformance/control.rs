//! Cases about control messages.

use super::flow::Flow;
use super::kit::Kit;
use super::lab::Lab;
use crate::contract::{Down, Event, QueueFull, Transport};

/// Messages of all sizes arrive whole and in order in both directions, the empty one too.
pub fn both_ways<L: Lab>(lab: &mut L) {
    let share = (lab.bytes() / 200) as usize;
    let mut kit = Kit::connected(lab);
    let max = kit.promises().max_control_bytes.min(2 * share);
    let message = |side: usize, i: usize| vec![(side * 100 + i) as u8; (i * i * 7) % max];
    let count = 100;
    let mut queued = [0; 2];
    kit.until("all messages", |kit| {
        for (side, queued) in queued.iter_mut().enumerate() {
            let id = kit.id(0, side);
            while *queued < count && kit.ends[side].link().control(id, &message(side, *queued)).is_ok() {
                *queued += 1;
            }
        }
        (0..2).all(|side| kit.ends[side].controls(kit.id(0, side)).len() == count)
    });
    for side in 0..2 {
        for (i, got) in kit.ends[side].controls(kit.id(0, side)).into_iter().enumerate() {
            assert_eq!(got, message(1 - side, i), "message {i} to end {side}");
        }
    }
}

/// A message of the largest promised size arrives.
pub fn largest<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let max = kit.promises().max_control_bytes;
    let message: Vec<u8> = (0..max).map(|i| (i % 251) as u8).collect();
    let (to, from) = (kit.id(0, 0), kit.id(0, 1));
    kit.ends[1].link().control(from, &message).expect("the largest message has place");
    kit.until("the message", |kit| !kit.ends[0].controls(to).is_empty());
    assert_eq!(kit.ends[0].controls(to), [message.as_slice()]);
}

/// A message larger by one byte is refused at one end or the other.
pub fn too_large<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let max = kit.promises().max_control_bytes;
    let from = kit.id(0, 1);
    if kit.ends[1].link().control(from, &vec![1; max + 1]) == Err(QueueFull) {
        return;
    }
    kit.until("Down", |kit| kit.down(0, 0).is_some());
    let down = kit.down(0, 0);
    assert_eq!(down, Some(Down::ControlTooLarge { size: max as u64 + 1, max: max as u64 }));
}

/// Where order is promised, a message behind a range arrives after the range has landed.
pub fn in_order_with_data<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    if !kit.promises().ordered {
        return;
    }
    let mut flow = Flow::new(&mut kit, 0, 1, 8, 64 << 10, 0);
    let (from, to) = (flow.sender(&kit), flow.receiver(&kit));
    let (mut announced, mut told) = (0, 0);
    kit.until("all messages", |kit| {
        for _ in 0..5 {
            let size = 1 + announced * 37 % 2_000;
            if announced < 100 && flow.sendable_if_produced(kit) >= size && flow.produce(size) {
                flow.send(kit, size, false);
                let message = flow.queued().to_le_bytes();
                kit.ends[1].link().control(from, &message).expect("place for a small message");
                announced += 1;
            }
        }
        let head = flow.sink.head();
        let controls = kit.ends[0].controls(to);
        for message in &controls[told..] {
            let end = u64::from_le_bytes((*message).try_into().expect("eight bytes"));
            assert!(head >= end, "the message says {end}, the head is {head}");
        }
        told = controls.len();
        flow.settle(kit);
        told == 100
    });
}

/// Control messages find room when ranges find none.
pub fn reserve_beside_full_queue<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let (to, from) = (kit.id(0, 0), kit.id(0, 1));
    let room = kit.ends[1].link().room(from);
    let max = kit.promises().max_write_bytes;
    if !kit.promises().ordered || room.min(max) > 16 << 20 {
        return;
    }
    let mut flow = Flow::new(&mut kit, 0, 1, 5, 2 * room, 0);
    assert!(flow.produce(room));
    while kit.ends[1].link().room(from) > 0 && flow.queued() < room {
        let n = kit.ends[1].link().room(from).min(max).min(room - flow.queued());
        flow.send(&mut kit, n, true);
    }
    kit.ends[1].link().control(from, b"reserve").expect("control messages have a reserve");
    kit.until("the message", |kit| {
        flow.settle(kit);
        kit.ends[0].controls(to) == [b"reserve"]
    });
    assert_eq!(flow.sink.head(), flow.queued(), "the message overtook data that was queued before it");
    let arrived = |event: &&Event| matches!(event, Event::Arrived(..));
    assert!(kit.ends[0].seen.iter().filter(arrived).count() > 0);
}
