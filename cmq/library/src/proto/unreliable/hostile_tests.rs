//! The receiving machine with datagrams from hostile senders.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use testkit::Random;

use super::gaps::NO_WAIT;
use super::receiver::Receiver;
use super::tests::Got;
use crate::config::{Config, Delivery};
use crate::event::Event;
use crate::proto::random::addr;
use crate::wire::Kind;

/// A datagram as the sending machine makes it.
fn datagram(epoch: u64, first: u64, messages: &[&[u8]]) -> Vec<u8> {
    let header = crate::wire::Header {
        kind: Kind::Batch,
        count: messages.len() as u16,
        stream: 0,
        epoch,
        first,
        mailbox: 0,
    };
    let mut bytes = header.encode().to_vec();
    for message in messages {
        bytes.extend_from_slice(&(message.len() as u16).to_le_bytes());
        bytes.extend_from_slice(message);
    }
    bytes
}

#[test]
fn joins_report_restarts_and_missed_messages() {
    let (now, from) = (Instant::now(), addr(9));
    let mut receiver = Receiver::new(&Config::default());
    let mut got = Got::default();
    receiver.datagram(now, from, &datagram(1, 0, &[b"a"]), &mut got);
    receiver.datagram(now, from, &datagram(2, 0, &[b"b"]), &mut got);
    receiver.datagram(now, addr(8), &datagram(3, 500, &[b"c"]), &mut got);
    assert_eq!(got.messages[&0].len(), 2, "messages before 500 may still arrive");
    receiver.expire(receiver.next_deadline().expect("a message is missing"), &mut got);
    assert_eq!(got.messages[&0], [b"a", b"b", b"c"]);
    let joined = |from, missed, restarted| Event::Joined { from, missed, restarted };
    assert_eq!(got.events, [joined(from, 0, false), joined(from, 0, true), joined(addr(8), 500, false)]);
}

#[test]
fn memory_is_bounded() {
    let config = Config { max_senders: 8, reorder_bytes: 4000, fragment_bytes: 8000, ..Config::default() };
    let mut receiver = Receiver::new(&config);
    let (mut now, mut got) = (Instant::now(), Got::default());
    let big = [0_u8; 900];
    for n in 0..1000_u16 {
        now += Duration::from_micros(10);
        receiver.datagram(now, addr(n), &datagram(u64::from(n), 0, &[b"x"]), &mut got);
        // Every message but the first: they wait for ever.
        receiver.datagram(now, addr(7000), &datagram(1, 10 + 2 * u64::from(n), &[&big]), &mut got);
        assert!(receiver.senders().len() <= 8);
        assert!(receiver.reorder_bytes() <= 4000 + 1000 && receiver.fragment_bytes() <= 8000);
        let mut fragment = datagram(2, 3 + u64::from(n), &[]);
        fragment[1..4].copy_from_slice(&[0x11, 0, 2]);
        fragment.extend_from_slice(&5000_u32.to_le_bytes());
        fragment.extend_from_slice(&1_u32.to_le_bytes());
        fragment.extend_from_slice(&[1; 512]);
        receiver.datagram(now, addr(7001), &fragment, &mut got);
    }
    let totals = receiver.totals();
    assert_eq!(totals.malformed, 0);
    assert!(totals.incomplete > 900 && totals.counts.received > 1000, "{totals:?}");
}

/// With unordered delivery the numbers of early datagrams cost memory too, until the gap before them is
/// filled or lost.
#[test]
fn held_numbers_count_as_memory() {
    let delivery = Delivery::Unordered { wait: Duration::from_secs(9), window: 1024 };
    let config = Config { reorder_bytes: 4000, ..Config::default().delivery(delivery) };
    let (mut receiver, now, mut got) = (Receiver::new(&config), Instant::now(), Got::default());
    for n in 0..1000 {
        receiver.datagram(now, addr(n % 10), &datagram(1, 10 + 2 * u64::from(n), &[b"x"]), &mut got);
        // After so many losses in a row nothing waits.
        let least = usize::from(n < 10 * u16::from(NO_WAIT));
        assert!((least..4100).contains(&receiver.reorder_bytes()), "{} after {n}", receiver.reorder_bytes());
    }
    while let Some(deadline) = receiver.next_deadline() {
        receiver.expire(deadline, &mut got);
    }
    assert_eq!((receiver.reorder_bytes(), receiver.totals().counts.received), (0, 1000));
}

#[test]
fn arbitrary_datagrams_are_handled() {
    let mut dice = Random::new(5);
    let mut receiver = Receiver::new(&Config::default());
    let (now, mut got) = (Instant::now(), Got::default());
    let mut queue: VecDeque<Vec<u8>> = VecDeque::from([datagram(1, 0, &[b"abc", b"", b"d"])]);
    for _ in 0..20_000 {
        let mut bytes = queue.pop_front().expect("there is always one");
        receiver.datagram(now, addr(1), &bytes, &mut got);
        let at = dice.below(bytes.len() as u64) as usize;
        bytes[at] = dice.below(256) as u8;
        if dice.below(8) == 0 {
            bytes.truncate(1 + at);
        }
        if dice.below(4) == 0 {
            bytes = datagram(dice.below(3), dice.below(100), &[b"abc", b"", b"d"]);
        }
        queue.push_back(bytes);
    }
    assert!(receiver.totals().malformed > 1000);
}
