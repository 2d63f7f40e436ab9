//! Cases about connections: pausing, binding, closing, dying.

use std::time::Duration;

use super::flow::{Flow, ring};
use super::kit::{Kit, LINGER};
use super::lab::Lab;
use crate::contract::{ConnId, Down, Event, SourceRange, Transport, TransportError};

const CAPACITY: u64 = 64 << 10;

/// During a pause there are no events; after it nothing is missing.
pub fn pause_loses_nothing<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    let (from, to) = (flow.sender(&kit), flow.receiver(&kit));
    for round in 0..20_u8 {
        kit.ends[0].pause(to, true);
        assert!(flow.produce(700));
        for more in [true, false] {
            let n = flow.sendable(&mut kit).min(350);
            if n == 350 {
                flow.send(&mut kit, n, more);
            }
        }
        if kit.promises().ordered {
            kit.ends[1].link().control(from, &[round]).expect("place for a small message");
        }
        kit.steps(3);
        kit.ends[0].pause(to, false);
        if round % 3 == 0 {
            kit.ends[0].pause(to, true);
            kit.steps(1);
            kit.ends[0].pause(to, false);
        }
        // Without order only half of it was in flight.
        kit.until("the paused data", |kit| {
            let end = flow.source.head();
            flow.advance(kit, end, &mut || 1);
            flow.checked() == end
        });
    }
    if kit.promises().ordered {
        kit.until("all messages", |kit| kit.ends[0].controls(to).len() == 20);
        let got = kit.ends[0].controls(to).concat();
        assert_eq!(got, (0..20).collect::<Vec<u8>>());
    }
}

/// `unbind` returns a ring receiver once. Data that still arrives for its id ends the connection.
pub fn unbind_gives_back<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 11, CAPACITY, 0);
    let to = flow.receiver(&kit);
    flow.run(&mut kit, 5_000, || 1_000);
    let receiver = kit.ends[0].link().unbind(to, 11).expect("the receiver was bound");
    assert!(receiver.ring().ptr_eq(&flow.sink));
    assert!(kit.ends[0].link().unbind(to, 11).is_none());
    assert!(!kit.ends[0].link().skip(to, 11, 9_000));
    assert!(flow.produce(10));
    flow.send(&mut kit, 10, false);
    kit.until("Down", |kit| kit.down(0, 0).is_some());
    // Without code of the receiver the memory refuses a one-sided write, without naming the id.
    let refused = kit.promises().one_sided && matches!(kit.down(0, 0), Some(Down::Broken(_)));
    assert!(refused || kit.down(0, 0) == Some(Down::UnknownWire(11)), "{:?}", kit.down(0, 0));
    assert_eq!(flow.sink.head(), 5_000, "nothing lands in a ring that was taken back");
}

/// An id can be bound to another ring after `unbind`.
pub fn rebind_after_unbind<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let mut old: Option<Flow> = None;
    for start in [0, 70_000, 3] {
        let mut flow = Flow::new(&mut kit, 0, 1, 2, CAPACITY, start);
        kit.ends[1].landed.clear();
        flow.run(&mut kit, 20_000, || 3_000);
        let (id, end) = (flow.sender(&kit), flow.queued());
        if kit.promises().reports_landed {
            // No Landed of this flow may be taken for the next one's.
            kit.until("Landed", |kit| kit.ends[1].landed.get(&(id, 2)) == Some(&end));
        }
        let to = flow.receiver(&kit);
        assert!(kit.ends[0].link().unbind(to, 2).is_some());
        // As the contract requires: the sender learns of it before it writes to the id again.
        kit.ends[0].link().control(to, b"again").expect("place for a small message");
        let heard = kit.ends[1].controls(id).len();
        kit.until("the message", |kit| kit.ends[1].controls(id).len() > heard);
        if let Some(old) = old.replace(flow) {
            assert_eq!(old.sink.head(), old.checked(), "the former ring is left alone");
        }
    }
    assert!(kit.down(0, 0).is_none() && kit.down(0, 1).is_none());
}

/// Ranges for a discarded id are dropped until `unbind`. After that the id is unknown.
pub fn discard_until_unbind<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let (from, to) = (kit.id(0, 1), kit.id(0, 0));
    if !kit.ends[0].link().discard(to, 7) {
        return;
    }
    let mut flow = Flow::new(&mut kit, 0, 1, 2, CAPACITY, 0);
    let source = super::flow::ring(CAPACITY, 0);
    source.writer().expect("the first writer").append(&[&[1; 20_000]]).expect("room");
    let range = |from, to| SourceRange { ring: source.clone(), from, to, mapped: false };
    for at in [0, 5_000] {
        kit.ends[1].write(from, 7, range(at, at + 5_000), false);
    }
    kit.ends[1].link().control(from, b"written").expect("place for a small message");
    kit.until("the message behind the ranges", |kit| !kit.ends[0].controls(to).is_empty());
    flow.run(&mut kit, 10_000, || 1_000);
    assert!(!kit.ends[0].seen.iter().any(|event| matches!(event, Event::Arrived(_, 7))));
    assert!(kit.ends[0].link().unbind(to, 7).is_none(), "nothing was bound");
    kit.ends[0].link().control(to, b"unbound").expect("place for a small message");
    kit.until("the message", |kit| !kit.ends[1].controls(from).is_empty());
    kit.ends[1].write(from, 7, range(10_000, 15_000), false);
    kit.until("Down", |kit| kit.down(0, 0).is_some());
    assert_eq!(kit.down(0, 0), Some(Down::UnknownWire(7)));
}

/// The queue of a connection that is closed in order arrives before its end does.
pub fn close_with_linger_delivers<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, 256 << 10, 0);
    let (from, to) = (flow.sender(&kit), flow.receiver(&kit));
    let mut total = 0;
    let wanted = if kit.promises().ordered { 200_000 } else { 8_000 };
    // Nothing is left that was produced and not sent: where rings are mapped, the bytes of an ended peer count as written.
    while total < wanted && flow.sendable_if_produced(&mut kit) >= 8_000 && flow.produce(8_000) {
        flow.send(&mut kit, 8_000, false);
        total += 8_000;
    }
    if kit.promises().ordered {
        kit.ends[1].link().control(from, b"last words").expect("place for a small message");
    }
    kit.ends[1].link().close(from, "done", LINGER);
    assert_eq!(kit.ends[1].link().room(from), 0, "nothing more can be queued");
    kit.until("both ends down", |kit| {
        flow.check();
        kit.down(0, 0).is_some() && kit.down(0, 1).is_some()
    });
    flow.check();
    assert_eq!(flow.checked(), total);
    assert_eq!(kit.down(0, 0), Some(Down::PeerClosed));
    assert_eq!(kit.down(0, 1), Some(Down::Local("done".into())));
    if kit.promises().ordered {
        assert_eq!(kit.ends[0].controls(to), [b"last words"]);
    }
}

/// A close without linger is reported at once at this end and soon at the other.
pub fn close_at_once<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let id = kit.id(0, 0);
    kit.ends[0].link().close(id, "enough", Duration::ZERO);
    kit.ends[0].link().close(id, "twice is once", LINGER);
    kit.until("both ends down", |kit| kit.down(0, 0).is_some() && kit.down(0, 1).is_some());
    assert_eq!(kit.down(0, 0), Some(Down::Local("enough".into())));
}

/// The death of a peer is reported with a reason, and the ring receivers can be unbound.
pub fn peer_death_is_told<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 10_000, || 999);
    kit.kill(1);
    kit.until("Down", |kit| kit.down(0, 0).is_some());
    let id = kit.id(0, 0);
    let link = kit.ends[0].link();
    assert!(link.unbind(id, 1).is_some());
    link.forget(id);
}

/// A failed connection reports its address and the reason. An invalid address is an error.
pub fn connect_refused<L: Lab>(lab: &mut L) {
    let dead = lab.dead_address();
    let mut kit = Kit::new(lab);
    let id = kit.ends[1].link().connect(&dead).expect("the address is well formed");
    kit.until("Down", |kit| kit.ends[1].down(id).is_some());
    match kit.ends[1].down(id) {
        Some(Down::Refused { addr, reason }) => assert!(*addr == dead && !reason.is_empty()),
        other => panic!("expected Refused, got {other:?}"),
    }
    kit.ends[1].link().forget(id);
    match kit.ends[1].link().connect("no address at all") {
        Err(TransportError::Address { addr, .. }) => assert_eq!(addr, "no address at all"),
        other => panic!("expected an address error, got {other:?}"),
    }
}

/// After `unlisten` no peer can connect; accepted connections continue.
pub fn unlisten_refuses_newcomers<L: Lab>(lab: &mut L) {
    let address = lab.listen_address();
    let mut kit = Kit::connected(lab);
    let listening = kit.ends[0].link().listen(&address).expect("the lab's address can be listened on");
    kit.ends[0].link().unlisten(&listening);
    kit.ends[0].link().unlisten("no process listens here");
    let id = kit.ends[1].link().connect(&listening).expect("the address is well formed");
    kit.until("Down", |kit| kit.ends[1].down(id).is_some());
    assert!(matches!(kit.ends[1].down(id), Some(Down::Refused { .. })));
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 3_000, || 500);
}

/// Calls with an id that is down, forgotten or invented do nothing.
pub fn forgotten_ids_are_harmless<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let id = kit.id(0, 1);
    kit.ends[1].link().close(id, "over", Duration::ZERO);
    kit.until("Down", |kit| kit.down(0, 1).is_some());
    for forgotten in [false, true] {
        let link = kit.ends[1].link();
        if forgotten {
            link.forget(id);
        }
        for id in [id, ConnId(u64::MAX >> 2)] {
            let source = ring(CAPACITY, 0);
            let range = SourceRange { ring: source.clone(), from: 0, to: 0, mapped: false };
            assert!(link.write(id, 1, range, false).is_err());
            assert!(link.control(id, b"?").is_err());
            assert_eq!((link.room(id), link.detach(id, 1)), (0, 0));
            assert!(!link.skip(id, 1, 10) && link.unbind(id, 1).is_none());
            link.flush(id);
            link.pause(id, true);
            link.pause(id, false);
            link.close(id, "again", LINGER);
            link.forget(ConnId(u64::MAX >> 3));
        }
    }
    let told = kit.ends[1].seen.len();
    kit.steps(5);
    let own = |event: &Event| matches!(event, Event::Down(own, _) if *own == id);
    assert!(!kit.ends[1].seen[told..].iter().any(own), "an event of a forgotten connection");
}

/// Events of one connection do not affect another one of the same transports, and ids do not repeat.
pub fn connections_are_independent<L: Lab>(lab: &mut L) {
    let mut kit = Kit::connected(lab);
    let second = kit.connect();
    assert_ne!(kit.id(0, 1), kit.id(second, 1));
    // The same wire id on both.
    let mut one = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    let mut two = Flow::new(&mut kit, second, 1, 1, CAPACITY, 500);
    let paused = one.receiver(&kit);
    kit.ends[0].pause(paused, true);
    assert!(one.produce(1_000));
    one.send(&mut kit, 1_000, false);
    two.run(&mut kit, 2 * CAPACITY.min(20_000), || 1_234);
    kit.ends[0].pause(paused, false);
    one.drain(&mut kit);
    let id = kit.id(0, 1);
    kit.ends[1].link().close(id, "the first", Duration::ZERO);
    kit.until("the first down", |kit| kit.down(0, 0).is_some() && kit.down(0, 1).is_some());
    two.run(&mut kit, 10_000, || 77);
    kit.ends[1].link().forget(id);
    let third = kit.connect();
    assert!(kit.id(third, 1) != id && kit.id(third, 1) != kit.id(second, 1));
    let mut three = Flow::new(&mut kit, third, 0, 1, CAPACITY, 0);
    three.run(&mut kit, 10_000, || 5_000);
    assert!(kit.down(second, 0).is_none() && kit.down(third, 0).is_none());
}
