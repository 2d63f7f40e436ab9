//! How long messages take, in the time of the simulated network: the time of the path, and none for timers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::out_stream::Fate;
use super::tests::{Net, pop, settings};
use crate::config::{Config, Reliable};

const MS: Duration = Duration::from_millis(1);

/// A path without jitter, of this many milliseconds each way, and a window for each key that is never full.
fn path(delay: u64, config: Config) -> Net {
    let mut net = Net::new(1, Reliable::default().window(1 << 24), config);
    (net.loss, net.repeat, net.delay, net.jitter) = (0, 0, delay, 0);
    net
}

/// Pushes messages of 1,000 bytes, lets them leave, and waits until they are confirmed.
fn exchange(net: &mut Net, messages: u32) -> Duration {
    let start = net.now;
    for _ in 0..messages {
        net.push(1, &[7; 1000]);
    }
    net.flush();
    while net.sender.buffered() > 0 {
        net.step();
    }
    net.now - start
}

/// A message is confirmed after a round trip, and not later than its batch allows.
#[test]
fn a_message_takes_a_round_trip() {
    for delay in [1, 20, 140] {
        let mut net = path(delay, Config::default());
        assert_eq!(exchange(&mut net, 1), 2 * delay as u32 * MS);
        net.push(1, b"unflushed");
        let start = net.now;
        while net.sender.buffered() > 0 {
            net.step();
        }
        assert_eq!(net.now - start, (5 + 2 * delay as u32) * MS);
        let counts = net.sender.counts();
        assert_eq!((counts.segments, counts.repeated, counts.timeouts), (2, 0, 0), "{delay} ms: {counts:?}");
    }
}

/// Many messages of a window take a round trip, and little for its pace. They leave in few calls of the system, in full datagrams.
#[test]
fn a_window_takes_a_round_trip() {
    for delay in [1, 20, 140] {
        let mut net = path(delay, Config::default());
        let first = exchange(&mut net, 12);
        assert_eq!(first, 2 * delay as u32 * MS, "the first window has ten datagrams");
        while net.sender.path(Net::address()).expect("a link").1 < 1_500_000 {
            exchange(&mut net, 1000);
        }
        let (flights, segments) = (net.flights, net.sender.counts().segments);
        let later = exchange(&mut net, 1000);
        let (flights, segments) = (net.flights - flights, net.sender.counts().segments - segments);
        println!("{delay} ms each way: 1,000 messages in {later:?}, {flights} calls, {segments} segments");
        assert!(later <= 4 * delay as u32 * MS, "{delay} ms each way: {later:?}");
        assert!(segments <= 1_002_000 / 1300 + 40, "{segments} segments");
        // Where the round trip is longer than a pause, a call for each pause.
        let pauses = (later - 2 * delay as u32 * MS).as_millis() as usize;
        assert!(flights <= 20 + pauses, "{flights} calls");
        let counts = net.sender.counts();
        assert_eq!((counts.repeated, counts.timeouts), (0, 0), "{delay} ms: {counts:?}");
    }
}

/// Small messages share datagrams, also while earlier ones are on their way.
#[test]
fn small_messages_share_datagrams() {
    let mut net = path(20, Config::default());
    exchange(&mut net, 12);
    while net.sender.path(Net::address()).expect("a link").1 < 1_500_000 {
        exchange(&mut net, 1000);
    }
    let (flights, segments) = (net.flights, net.sender.counts().segments);
    for _ in 0..100_000 {
        net.push(1, &[7; 4]);
    }
    net.flush();
    net.settle();
    let (flights, segments) = (net.flights - flights, net.sender.counts().segments - segments);
    println!("100,000 messages of 4 bytes: {segments} segments, {flights} calls");
    assert!(segments < 700 && flights < 300, "{segments} segments, {flights} calls");
}

/// While later messages follow, a lost segment is sent again when later ones are acknowledged: a round trip and a part of it. No timer
/// of the sender runs out.
#[test]
fn a_loss_costs_a_round_trip_and_a_quarter() {
    for (delay, pause) in [(1, 200), (10, 2000), (50, 10_000)] {
        let mut net = path(delay, Config::immediate());
        exchange(&mut net, 10);
        net.drop_every = 97;
        let (mut slowest, mut late) = (Duration::ZERO, 0_u32);
        let (mut pushed, mut got) = (Vec::new(), 10);
        while pushed.len() < 5000 || got < 5010 {
            if pushed.len() < 5000 {
                pushed.push(net.now);
                net.push(1, &[7; 1000]);
            }
            let until = net.now + Duration::from_micros(pause);
            while net.now < until {
                net.step_until(until);
                while got < net.mailboxes.got[&1].len() {
                    let took = net.now - pushed[got - 10];
                    (slowest, late) = (slowest.max(took), late + u32::from(took > delay as u32 * MS));
                    got += 1;
                }
            }
            assert!(net.now - net.start < Duration::from_secs(60), "{got} messages");
        }
        let counts = net.sender.counts();
        println!(
            "{delay} ms each way, 1 % lost: slowest {slowest:?}, {late} late, {} time-outs",
            counts.timeouts
        );
        assert!(counts.repeated >= 50 && counts.timeouts == 0, "{counts:?}");
        // Three later segments, or an eighth of a round trip, tell of the loss.
        let round_trip = 2 * delay as u32 * MS;
        let repair = round_trip * 5 / 4 + 4 * Duration::from_micros(pause) + MS;
        assert!(slowest <= delay as u32 * MS + repair, "{delay} ms each way: {slowest:?}");
    }
}

/// On a local network too: a lost segment is sent again a quarter of a millisecond later, if fewer than three later ones tell.
#[test]
fn a_loss_on_a_local_network_costs_little() {
    let mut net = path(0, Config::immediate());
    net.extra_us = 40;
    for _ in 0..20 {
        exchange(&mut net, 10);
    }
    let start = net.now;
    net.loss = 100;
    let lost = net.push(1, b"lost");
    net.loss = 0;
    net.push(1, b"later");
    while net.sender.fate(Net::key(1), lost) == Some(Fate::Pending) {
        net.step();
    }
    println!("40 us each way, the last segment but one is lost: {:?}", net.now - start);
    assert!(net.now - start <= Duration::from_micros(400), "{:?}", net.now - start);
    assert_eq!(net.sender.counts().timeouts, 0);
}

/// The last segment of all is lost: no later one tells, and a time-out of little more than a round trip does.
#[test]
fn a_lost_end_costs_a_time_out() {
    let mut net = path(20, Config::default());
    for _ in 0..20 {
        exchange(&mut net, 10);
    }
    net.loss = 100;
    let start = net.now;
    net.push(1, b"lost");
    net.flush();
    net.loss = 0;
    while net.sender.buffered() > 0 {
        net.step();
    }
    let (took, counts) = (net.now - start, net.sender.counts());
    println!("the last segment is lost: {took:?}");
    assert_eq!(counts.timeouts, 1);
    assert!(took <= 90 * MS, "{took:?}");
}

/// A receiver that gets no processor for a while answers late: nothing but probes is sent twice, and the window stays.
#[test]
fn a_late_answer_is_no_loss() {
    let mut net = path(1, Config::default());
    for _ in 0..40 {
        exchange(&mut net, 1000);
    }
    let before = (net.sender.path(Net::address()).expect("a link").1, net.sender.counts());
    net.held_until = net.now + 50 * MS;
    let took = exchange(&mut net, 1000);
    let after = (net.sender.path(Net::address()).expect("a link").1, net.sender.counts());
    let repeated = after.1.repeated - before.1.repeated;
    println!(
        "a receiver sleeps for 50 ms: {took:?}, {repeated} repeated, window {} to {}",
        before.0, after.0
    );
    assert!(repeated <= 20 && after.0 >= before.0, "{repeated} repeated, {} to {}", before.0, after.0);
    assert!(took <= 60 * MS, "{took:?}");
}

/// Reordering raises the limits at which a segment is lost, and they return once losses are real again.
#[test]
fn limits_of_reordering_return() {
    let mut net = Net::new(5, settings(), Config::immediate());
    (net.loss, net.repeat, net.delay, net.jitter) = (0, 0, 10, 30);
    for _ in 0..300 {
        net.push(1, &[7; 1000]);
        net.run_for(MS);
    }
    net.settle();
    (net.jitter, net.drop_every) = (0, 50);
    for _ in 0..2000 {
        net.push(1, &[7; 1000]);
        net.run_for(MS);
    }
    net.settle();
    let start = net.now;
    (net.drop_every, net.loss) = (0, 100);
    let lost = net.push(1, b"lost");
    net.loss = 0;
    while net.sender.fate(Net::key(1), lost) == Some(Fate::Pending) {
        net.run_for(MS);
        net.push(1, b"later");
    }
    println!("a loss after reordering: {:?}", net.now - start);
    assert!(net.now - start <= 46 * MS, "{:?}", net.now - start);
}

/// A receiver forgets a link that was silent for `idle`, and no other: not the only one, which is heard all the time.
#[test]
fn a_link_in_use_is_not_forgotten() {
    let mut net = path(1, Config::immediate());
    let short = Reliable::default().give_up(MS * 1000).idle(MS * 3000);
    net.receiver = super::inbound::Inbound::new(&Config::immediate(), short, 1000);
    for _ in 0..100 {
        net.push(1, b"again");
        net.run_for(100 * MS);
    }
    net.settle();
    assert_eq!(net.receiver.senders().len(), 1);
    assert_eq!(net.sender.counts().confirmed, 100, "{:?}", net.sender.counts());
    net.run_for(2850 * MS);
    assert_eq!(net.receiver.senders().len(), 1, "the last message came less than three seconds ago");
    net.run_for(100 * MS);
    assert!(net.receiver.senders().is_empty());
}

/// Messages that wait for their mailbox are confirmed, so their link stays, also if it is the only one.
#[test]
fn a_link_with_waiting_messages_is_not_forgotten() {
    let mut net = path(1, Config::immediate());
    let short = Reliable::default().give_up(MS * 1000).idle(MS * 3000);
    net.receiver = super::inbound::Inbound::new(&Config::immediate(), short, 1000);
    net.mailboxes.limit = 1;
    net.push(1, b"delivered");
    net.push(1, b"waits");
    net.run_for(10_000 * MS);
    assert_eq!((net.receiver.senders().len(), net.mailboxes.got[&1].len()), (1, 1));
    let mut before = BTreeMap::new();
    pop(&mut net, &mut before);
    assert_eq!((&before[&1][0][..], &net.mailboxes.got[&1][0][..]), (&b"delivered"[..], &b"waits"[..]));
}
