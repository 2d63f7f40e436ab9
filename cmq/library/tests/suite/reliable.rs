//! The reliable mode on real sockets.

use std::time::Duration;

use crate::common::{Fate as Network, Proxy, again, event};
use bytes::Bytes;
use cmq::wire::Malformed;
use cmq::{Cmq, Config, Event, Fate, Key, PushError, Reliable, SecretKey, Security, Undelivered, new_raw_rq};
use testkit::{LONG, own_addr};

fn reliable() -> Config {
    Config::default().reliable(Some(Reliable::default()))
}

fn open(config: Config) -> Cmq<Bytes> {
    new_raw_rq("127.0.0.1:0", config).expect("a queue on loopback")
}

/// A network that loses, repeats and reorders: every message arrives once and in the order of its key, and is confirmed. Plain
/// messages to the same mailboxes go on as before.
fn survives(config: &Config, from: Option<Security>, to: Option<Security>) {
    let (receiver, sender) = (open(config.clone().security(to)), open(config.clone().security(from)));
    let proxy = Proxy::start_blind(receiver.local_addr(), |number, _| match number % 20 {
        3 | 11 => Network::Lost,
        7 => Network::Twice,
        15 => Network::After(2),
        _ => Network::Passes,
    });
    let (count, keys) = (600_u32, 3);
    for number in 0..count {
        let mut message = number.to_le_bytes().to_vec();
        message.resize(4 + number as usize * 7 % 3000, 7);
        let key = Key::new(proxy.addr(), number % keys);
        let of_key = sender.push_reliable_bytes(key, &message).expect("room");
        assert_eq!(of_key, u64::from(number / keys));
    }
    assert!(sender.wait_all_confirmed(Some(LONG)), "{:?}", sender.stats().reliable);
    let mut next: Vec<u32> = (0..keys).collect();
    for _ in 0..count {
        let (message, from) = receiver.cw_pop().expect("a confirmed message is here");
        let number = u32::from_le_bytes(message[..4].try_into().expect("four bytes"));
        assert_eq!((number, message.len()), (next[from.id as usize], 4 + number as usize * 7 % 3000));
        next[from.id as usize] += keys;
    }
    assert!(receiver.cw_pop().is_none());
    let counts = sender.stats().reliable;
    assert_eq!((counts.confirmed, counts.failed, counts.unconfirmed_bytes), (count.into(), 0, 0));
    assert!(counts.repeated > 0 && receiver.stats().reliable.received == u64::from(count), "{counts:?}");
    assert_eq!(sender.fate(Key::new(proxy.addr(), 0), 0), Some(Fate::Confirmed));
    assert_eq!(sender.fate(Key::new(proxy.addr(), 9), 0), None);
}

#[test]
fn messages_survive_a_bad_network() {
    survives(&reliable().max_datagram(Some(1472)), None, None);
    survives(&reliable().timeout(Duration::ZERO), None, None);
}

#[test]
fn encrypted_messages_survive_a_bad_network() {
    let [one, other] = [(); 2].map(|()| SecretKey::generate().expect("random bytes"));
    let from = Security::new(one).default_peer(other.public());
    survives(&reliable().max_datagram(Some(1472)), Some(from), Some(Security::new(other)));
}

/// A receiver that is slow loses nothing, and its sender waits.
#[test]
fn a_slow_receiver_loses_nothing() {
    let receiver = open(reliable().mailbox_messages(10));
    let sender = open(reliable());
    let key = Key::new(receiver.local_addr(), 0);
    for number in 0..500_u32 {
        sender.push_reliable_bytes(key, &number.to_le_bytes()).expect("room");
    }
    for number in 0..500_u32 {
        let (message, _) = receiver.pop_timeout(LONG).expect("a message");
        assert_eq!(message, number.to_le_bytes()[..]);
    }
    assert_eq!(sender.wait_confirmed(key, 499, Some(LONG)), Some(Fate::Confirmed));
    assert_eq!(receiver.stats().counts.overflowed, 0);
}

/// A restart of the receiver is told, and later messages reach the new one.
#[test]
fn a_restarted_receiver_is_told() {
    let at = own_addr();
    let open_there = || again(|| new_raw_rq(&*at, reliable()));
    let (receiver, sender) = (open_there(), open(reliable()));
    let key = Key::new(receiver.local_addr(), 3);
    let first = sender.push_reliable_bytes(key, b"one").expect("room");
    assert_eq!(sender.wait_confirmed(key, first, Some(LONG)), Some(Fate::Confirmed));
    drop(receiver);
    let receiver = open_there();
    let lost = sender.push_reliable_bytes(key, b"two").expect("room");
    let fate = sender.wait_confirmed(key, lost, Some(LONG));
    assert_eq!(fate, Some(Fate::Failed(Undelivered::Restarted)));
    event(&sender, |event| *event == Event::PeerRestarted { to: key.addr });
    let third = sender.push_reliable_bytes(key, b"three").expect("room");
    assert_eq!(sender.wait_confirmed(key, third, Some(LONG)), Some(Fate::Confirmed));
    assert_eq!(receiver.cw_pop().expect("a confirmed message is here").0, b"three"[..]);
}

/// Both ends learn that one of them has the mode off.
#[test]
fn a_queue_without_the_mode_refuses() {
    let off = open(Config::default());
    assert_eq!(off.push_reliable_bytes((off.local_addr(), 0), b"one"), Err(PushError::ReliableOff));
    let settings = Reliable::default().give_up(Duration::from_millis(300));
    let sender = open(Config::default().reliable(Some(settings)));
    assert_eq!(
        sender.push_reliable_bytes((([239, 1, 1, 1], 9).into(), 0), b"to all"),
        Err(PushError::Multicast)
    );
    let key = Key::new(off.local_addr(), 0);
    let number = sender.push_reliable_bytes(key, b"one").expect("room");
    let fate = sender.wait_confirmed(key, number, Some(LONG));
    assert_eq!(fate, Some(Fate::Failed(Undelivered::NoAnswer)));
    event(&off, |event| matches!(event, Event::Malformed { why: Malformed::Reliable, .. }));
    let undelivered = Event::Undelivered { to: key, first: 0, count: 1, why: Undelivered::NoAnswer };
    assert_eq!(event(&sender, |event| matches!(event, Event::Undelivered { .. })), undelivered);
}

/// A dropped queue waits for the confirmations of its pushes.
#[test]
fn a_dropped_queue_delivers_first() {
    let receiver = open(reliable());
    let sender = open(reliable());
    for number in 0..100_u8 {
        sender.push_reliable_bytes((receiver.local_addr(), 0), &[number; 500]).expect("room");
    }
    drop(sender);
    for number in 0..100_u8 {
        assert_eq!(receiver.cw_pop().expect("it was confirmed").0[0], number);
    }
}
