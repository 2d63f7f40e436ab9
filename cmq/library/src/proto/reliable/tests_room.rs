//! Receivers without room, and the ends of links, in the time of the simulated network.

use std::collections::BTreeMap;
use std::time::Duration;

use super::inbound::Arrival;
use super::out_stream::Fate;
use super::tests::{Net, pop, settings};
use crate::config::{Config, Reliable};
use crate::event::{Event, ReliableCounts, SenderInfo, Undelivered};
use crate::wire::reliable::Segment;
use crate::wire::{Header, Kind};

/// Messages of 100,000 bytes for this many keys at once, on a path without losses, to a receiver with memory for one of them.
fn crowd(keys: u32) -> Net {
    let config = Config::default().max_message(150_000);
    let mut net = Net::new(1, settings().receive_bytes(1 << 17), config);
    (net.loss, net.repeat, net.delay, net.jitter) = (0, 0, 10, 0);
    for number in 0..keys * 6 {
        net.push(number % keys, &vec![number as u8; 100_000]);
    }
    net.flush();
    net
}

/// A receiver whose memory is used up is no congestion: its sender waits, and keeps its window.
#[test]
fn a_full_memory_is_no_congestion() {
    let mut net = crowd(5);
    let mut window = 0;
    while net.sender.buffered() > 0 {
        net.step();
        let now = net.sender.path(Net::address()).expect("a link").1;
        let counts = net.sender.counts();
        assert!(now >= window, "{now} after {window} bytes: {counts:?}");
        window = now;
    }
    let counts = net.sender.counts();
    println!("{:?}, a window of {window} bytes: {counts:?}", net.now - net.start);
    assert_eq!((counts.confirmed, counts.failed), (30, 0), "{counts:?}");
    assert!(counts.postponed > 0 && net.mailboxes.got.values().all(|got| got.len() == 6), "{counts:?}");
}

/// Refused segments are sent again when the receiver has room, and not over and over.
#[test]
fn refused_segments_wait() {
    let mut net = crowd(5);
    net.settle();
    let counts = net.sender.counts();
    let needed = 30 * 100_002 / 1_300;
    println!("{:?}: {needed} segments needed, {counts:?}", net.now - net.start);
    assert!(counts.segments < 3 * needed, "{needed} segments are needed: {counts:?}");
    assert!(net.now - net.start < Duration::from_secs(20), "{:?}", net.now - net.start);
}

/// A sender with a larger window than its receiver learns of it from the first refusal.
#[test]
fn a_smaller_window_is_no_congestion() {
    let config = Config::default().timeout(Duration::ZERO);
    let mut net = Net::new(1, Reliable::default().window(1 << 22), config.clone());
    net.receiver = super::inbound::Inbound::new(&config, Reliable::default().window(1 << 16), 1000);
    (net.loss, net.repeat, net.delay, net.jitter) = (0, 0, 10, 0);
    net.mailboxes.limit = 10;
    let (mut ever, mut window) = (BTreeMap::new(), 0);
    for number in 0..300_u32 {
        net.push(1, &[number as u8; 2000]);
    }
    while net.sender.buffered() > 0 {
        net.run_for(Duration::from_millis(5));
        pop(&mut net, &mut ever);
        let now = net.sender.path(Net::address()).expect("a link").1;
        assert!(now >= window, "{now} after {window} bytes: {:?}", net.sender.counts());
        window = now;
    }
    while ever[&1].len() < 300 {
        pop(&mut net, &mut ever);
    }
    assert!(ever[&1].iter().enumerate().all(|(n, message)| message[0] == n as u8));
}

/// Keys beyond the receiver's limit wait, and are given up with the reason.
#[test]
fn keys_beyond_the_limit_wait() {
    let give_up = settings().give_up(Duration::from_secs(3));
    let config = Config::default().timeout(Duration::ZERO);
    let mut net = Net::new(1, give_up.clone(), config.clone());
    net.receiver = super::inbound::Inbound::new(&config, give_up.max_keys(2), 1000);
    (net.loss, net.repeat, net.delay, net.jitter) = (0, 0, 10, 0);
    for key in 0..3 {
        net.push(key, b"one");
    }
    net.run_for(Duration::from_secs(4));
    let fates = [0, 1, 2].map(|key| net.sender.fate(Net::key(key), 0));
    let full = Some(Fate::Failed(Undelivered::Full));
    assert_eq!(fates, [Some(Fate::Confirmed), Some(Fate::Confirmed), full]);
}

/// A segment of this host's stream for a key, with bytes that begin at an offset.
fn segment(net: &mut Net, host: u8, mailbox: u32, offset: u64, bytes: &[u8]) -> bool {
    let header = Header {
        kind: Kind::Segment,
        count: bytes.len() as u16,
        stream: 1,
        epoch: 5,
        first: offset,
        mailbox,
    };
    let segment = Segment { receiver: 0, run: 0, offset, bytes };
    let from = ([10, 0, 0, host], 9).into();
    let refused = counts(net).refused;
    let arrival = Arrival { header, segment, datagram_bytes: bytes.len() + 60 };
    net.receiver.segment(net.now, from, arrival, &mut net.mailboxes);
    counts(net).refused == refused
}

fn counts(net: &Net) -> ReliableCounts {
    let mut counts = ReliableCounts::default();
    net.receiver.count(&mut counts);
    counts
}

/// A host that fills the memory with bytes behind missing ones, and takes keys, keeps no other host from its messages.
#[test]
fn a_host_cannot_take_all() {
    let config = Config::default();
    let mut net = Net::new(1, settings().receive_bytes(1 << 21).max_keys(100), config);
    let mut taken = 0;
    for number in 0..4000_u32 {
        let offset = 1000 + u64::from(number / 50) * 1400;
        taken += usize::from(segment(&mut net, 1, number % 50, offset, &[0; 1400]));
    }
    (50..200).for_each(|mailbox| _ = segment(&mut net, 1, mailbox, 0, &[]));
    assert!((1100..1300).contains(&taken), "{taken}: eight ninths of the memory");
    // The first 60,000 bytes of a message of 70,000, all at once and out of order, and its end.
    let message: Vec<u8> = [&[0xFF, 0xFF][..], &70_000_u32.to_le_bytes(), &[7; 70_000]].concat();
    let pieces: Vec<(usize, &[u8])> = message.chunks(1400).enumerate().collect();
    for (number, piece) in pieces.iter().rev() {
        assert!(segment(&mut net, 2, 7, *number as u64 * 1400, piece), "piece {number} is refused");
    }
    assert_eq!(net.mailboxes.got.get(&7).map(|got| got[0] == message[6..]), Some(true));
}

fn closed(net: &Net) -> Vec<(u64, bool)> {
    let links = net.receiver.senders();
    links.iter().map(|info: &SenderInfo| (info.counts.received, info.closed)).collect()
}

/// The receiver learns that nothing more follows, once everything is confirmed; also from a network that loses.
#[test]
fn the_end_of_a_link_is_told() {
    let mut net = Net::new(4, settings(), Config::default());
    (net.loss, net.repeat) = (10, 10);
    for number in 0..50_u8 {
        net.push(number.into(), &[number; 3000]);
    }
    net.sender.finish();
    net.run_for(Duration::from_millis(1));
    assert!(closed(&net).iter().all(|(_, closed)| !closed), "nothing is confirmed yet");
    net.settle();
    net.run_for(Duration::from_secs(1));
    assert_eq!(closed(&net), [(50, true)]);
    let told = |net: &Net| {
        net.mailboxes.events.iter().filter(|event| matches!(event, Event::Closed { sent: 50, .. })).count()
    };
    assert_eq!(told(&net), 1, "three datagrams tell of one end");
    // Another link, without an end. A second end of nothing tells nothing.
    net.push(1, b"later");
    net.settle();
    let mut links = closed(&net);
    links.sort_unstable();
    assert_eq!(links, [(1, false), (50, true)]);
    net.sender.finish();
    net.sender.finish();
    net.flush();
    net.run_for(Duration::from_secs(1));
    assert!(closed(&net).iter().all(|(_, closed)| *closed));
    let flights = net.flights;
    net.sender.finish();
    net.flush();
    assert_eq!((net.flights, net.mailboxes.got[&1].len()), (flights, 2));
}

/// The end waits for a mailbox without room: its messages were confirmed, and are not popped yet.
#[test]
fn the_end_waits_for_the_last_message() {
    let mut net = Net::new(1, settings(), Config::default().timeout(Duration::ZERO));
    (net.loss, net.repeat) = (0, 0);
    net.mailboxes.limit = 3;
    for number in 0..5 {
        net.push(1, &[number]);
    }
    net.settle();
    net.sender.finish();
    net.flush();
    net.run_for(Duration::from_secs(1));
    assert_eq!((closed(&net), net.mailboxes.events.len()), (vec![(3, false)], 0));
    let mut ever = BTreeMap::new();
    pop(&mut net, &mut ever);
    assert_eq!((closed(&net), net.mailboxes.events.len()), (vec![(5, true)], 1));
}
