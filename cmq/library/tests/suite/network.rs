//! Queues on a bad network: loss, duplication and reordering; restarts; hostile datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use cmq::{Cmq, Config, Delivery, Event, ReceiveCounts, new_rq_with};
use testkit::{LONG, own_addr};

use crate::common::{Fate, Proxy, again, messages};

fn queue(config: Config) -> Cmq<u64> {
    new_rq_with("127.0.0.1:0", config).expect("a queue on loopback")
}

/// A receive buffer for everything that a test sends at once.
fn roomy() -> Config {
    Config::default().receive_buffer(Some(4 << 20))
}

/// Sends messages through a proxy. Returns the popped messages, the receiver's counts, and the deeds of the
/// proxy.
fn exchange(
    config: Config,
    count: u64,
    fate: impl FnMut(u64, &[u8]) -> Fate + Send + 'static,
) -> (Vec<u64>, ReceiveCounts, crate::common::ProxyCounts) {
    let receiver = queue(config);
    let proxy = Proxy::start(receiver.local_addr(), fate);
    let from = proxy.addr();
    // Small batches make many datagrams.
    let sender = queue(Config::paper());
    let mut popped = Vec::new();
    for number in 0..count {
        sender.cw_push((from, 0), &number).expect("room");
        popped.extend(receiver.try_iter().map(|message| message.0));
    }
    drop(sender);
    let done = proxy.finish();
    let until = Instant::now() + LONG;
    while !receiver.senders_at(from).iter().any(|s| s.closed) || receiver.waiting() > 0 {
        popped.extend(receiver.pop_timeout(Duration::from_millis(5)).map(|message| message.0));
        assert!(Instant::now() < until, "the end was not seen: {:?}", receiver.stats());
    }
    (popped, receiver.senders_at(from)[0].counts, done)
}

#[test]
fn loss_is_reported_exactly() {
    // Lose 1.4 % as in the paper, the first datagram, and the last datagram with messages.
    let fate = |number, bytes: &[u8]| match number {
        0 => Fate::Lost,
        n if n % 71 == 70 || (messages(bytes) > 0 && messages(bytes) < 10) => Fate::Lost,
        _ => Fate::Passes,
    };
    let (popped, counts, done) = exchange(roomy(), 50_000, fate);
    assert!(done.lost > 500, "{done:?}");
    assert_eq!(counts.lost + counts.missed, done.lost);
    assert_eq!(counts.received, 50_000 - done.lost);
    assert_eq!(popped.len() as u64, counts.received);
    assert!(popped.is_sorted());
    assert_eq!((counts.duplicated, counts.late, counts.overflowed), (0, 0, 0));
}

#[test]
fn duplicates_are_popped_once() {
    let (popped, counts, done) =
        exchange(roomy(), 20_000, |number, _| if number % 5 == 0 { Fate::Twice } else { Fate::Passes });
    assert_eq!(popped, (0..20_000).collect::<Vec<u64>>());
    assert_eq!((counts.duplicated, counts.lost), (done.twice, 0));
}

#[test]
fn ordered_delivery_restores_the_order() {
    let turn = |number, bytes: &[u8]| match number % 10 {
        3 if messages(bytes) > 0 => Fate::After(4),
        _ => Fate::Passes,
    };
    // The wait is so long that only the window decides.
    let delivery = Delivery::Ordered { wait: LONG, window: 16 };
    let (popped, counts, done) = exchange(roomy().delivery(delivery), 20_000, turn);
    assert_eq!(popped, (0..20_000).collect::<Vec<u64>>());
    assert_eq!((counts.reordered, counts.lost, counts.late), (done.after, 0, 0));

    // A datagram beyond the window is late: its messages were declared lost before. Three others follow it.
    let delivery = Delivery::Ordered { wait: LONG, window: 2 };
    let mut passed = 0;
    let early = move |number, bytes: &[u8]| {
        passed += messages(bytes);
        if passed < 19_000 { turn(number, bytes) } else { Fate::Passes }
    };
    let (popped, counts, done) = exchange(roomy().delivery(delivery), 20_000, early);
    assert!(popped.is_sorted());
    assert_eq!((counts.late, counts.lost), (done.after, done.after));
    assert_eq!(popped.len() as u64, 20_000 - counts.lost);

    // With unordered delivery messages are popped as they arrive.
    let delivery = Delivery::Unordered { wait: LONG, window: 16 };
    let (mut popped, counts, done) = exchange(roomy().delivery(delivery), 20_000, turn);
    assert!(!popped.is_sorted());
    popped.sort_unstable();
    assert_eq!(popped, (0..20_000).collect::<Vec<u64>>());
    assert_eq!((counts.reordered, counts.lost), (done.after, 0));
}

#[test]
fn a_restarted_receiver_reports_missed_messages() {
    let first: Cmq<u64> = new_rq_with(own_addr(), roomy()).expect("a queue at an address of its own");
    let at = first.local_addr();
    let sender = queue(Config::immediate());
    for number in 0..100 {
        sender.cw_push((at, 0), &number).expect("room");
    }
    assert_eq!(first.pop_timeout(LONG).expect("loopback").0, 0);
    drop(first);
    // The receiver is gone, which the sender does not notice.
    sender.cw_push((at, 0), &100).expect("room");
    let second: Cmq<u64> = again(|| new_rq_with(at, roomy()));
    sender.cw_push((at, 0), &101).expect("room");
    assert_eq!(second.pop_timeout(LONG).expect("loopback").0, 101);
    let from = sender.local_addr();
    assert_eq!(second.next_event(), Some(Event::Joined { from, missed: 101, restarted: false }));
}

#[test]
fn a_restarted_sender_counts_as_a_new_sender() {
    let receiver = queue(roomy());
    let first: Cmq<u64> =
        new_rq_with(own_addr(), Config::immediate()).expect("a queue at an address of its own");
    let at = first.local_addr();
    first.cw_push((receiver.local_addr(), 0), &1).expect("room");
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, 1);
    drop(first);
    let second: Cmq<u64> = again(|| new_rq_with(at, Config::immediate()));
    second.cw_push((receiver.local_addr(), 0), &2).expect("room");
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, 2);
    let events: Vec<Event> = std::iter::from_fn(|| receiver.next_event()).collect();
    assert!(events.contains(&Event::Joined { from: at, missed: 0, restarted: true }), "{events:?}");
}

#[test]
fn a_full_mailbox_drops_and_reports() {
    for overflow in [cmq::OverflowPolicy::DropNewest, cmq::OverflowPolicy::DropOldest] {
        let receiver = queue(roomy().mailbox_messages(10).overflow(overflow));
        let sender = queue(Config::default());
        for number in 0..100 {
            sender.cw_push((receiver.local_addr(), 3), &number).expect("room");
        }
        let from = sender.local_addr();
        drop(sender);
        let until = Instant::now() + LONG;
        while !receiver.senders_at(from).iter().any(|s| s.closed) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let popped: Vec<u64> = receiver.try_iter().map(|message| message.0).collect();
        let expected = if overflow == cmq::OverflowPolicy::DropNewest { 0..10 } else { 90..100 };
        assert_eq!(popped, expected.collect::<Vec<u64>>());
        assert_eq!(receiver.stats().counts.overflowed, 90);
        let events: Vec<Event> = std::iter::from_fn(|| receiver.next_event()).collect();
        let dropped = |event: &Event| match event {
            Event::Overflowed { id: 3, count, .. } => *count,
            _ => 0,
        };
        assert_eq!(events.iter().map(dropped).sum::<u64>(), 90);
    }
}

/// Every truncated and every changed datagram, and noise: none is answered, and a real message still arrives.
#[test]
fn hostile_datagrams_are_not_answered() {
    let receiver = queue(roomy());
    let to = receiver.local_addr();
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let trap = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let sender = queue(Config::immediate());
    sender.cw_push((trap.local_addr().expect("bound"), 0), &7).expect("room");
    let mut bytes = [0; 2000];
    let length = trap.recv(&mut bytes).expect("the message was sent");
    let real = &bytes[..length];
    let mut sent = 0_u64;
    let mut send = |bytes: &[u8]| {
        stranger.send_to(bytes, to).expect("loopback");
        sent += 1;
    };
    for cut in 1..length {
        send(&real[..cut]);
    }
    for at in 0..length {
        let mut changed = real.to_vec();
        changed[at] ^= 0xFF;
        send(&changed);
    }
    for size in [1, 28, 100, 1472, 9000, 65_507] {
        send(&vec![0xC5; size]);
        send(&vec![0; size]);
    }
    let until = Instant::now() + LONG;
    while receiver.stats().datagrams < sent && Instant::now() < until {
        receiver.pop_timeout(Duration::from_millis(1));
    }
    let stats = receiver.stats();
    assert_eq!(stats.datagrams, sent, "all of it was looked at");
    assert!(stats.malformed > 40, "{stats:?}");
    sender.cw_push((to, 0), &8).expect("room");
    let from = sender.local_addr();
    assert_eq!(receiver.pop_where_timeout(LONG, |_, key| key.addr == from).expect("loopback").0, 8);
    for socket in [&stranger, &trap] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        assert!(socket.recv(&mut bytes).is_err(), "nothing is answered");
    }
}

#[test]
fn messages_of_another_type_are_counted() {
    let receiver = queue(roomy());
    let sender: Cmq<String> = new_rq_with("127.0.0.1:0", Config::immediate()).expect("a queue");
    sender.cw_push((receiver.local_addr(), 0), &"not a number at all".to_owned()).expect("room");
    let until = Instant::now() + LONG;
    while receiver.stats().counts.undecodable == 0 && Instant::now() < until {
        assert_eq!(receiver.pop_timeout(Duration::from_millis(1)), None);
    }
    assert_eq!(receiver.stats().counts.undecodable, 1);
}

/// The wall clock may jump, so only the monotonic clock may be read.
#[test]
fn nothing_reads_the_wall_clock() {
    fn look(folder: &std::path::Path, read: &mut usize) {
        for entry in std::fs::read_dir(folder).expect("the sources are here").flatten() {
            let path = entry.path();
            if path.is_dir() {
                look(&path, read);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source is text");
                assert!(!text.contains("SystemTime"), "{}", path.display());
                *read += 1;
            }
        }
    }
    let mut read = 0;
    look(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut read);
    assert!(read > 10, "{read} files");
}

/// A socket for IPv6 and IPv4, whose source addresses can be answered.
#[test]
fn both_versions_of_ip() {
    let Ok(both) = new_rq_with::<u64>("[::]:0", Config::immediate()) else {
        return println!("skipped: there is no IPv6 here");
    };
    let port = both.local_addr().port();
    for ip in ["127.0.0.1", "::1"] {
        let ip: std::net::IpAddr = ip.parse().expect("an address");
        let other: Cmq<u64> = new_rq_with((ip, 0), Config::immediate()).expect("a queue");
        other.cw_push(SocketAddr::new(ip, port).into_key(), &5).expect("room");
        let (message, from) = both.pop_timeout(LONG).expect("loopback");
        assert_eq!((message, from.addr), (5, other.local_addr()));
        both.cw_push(from, &6).expect("room");
        assert_eq!(other.pop_timeout(LONG).expect("loopback").0, 6);
    }
}

/// An abbreviation.
trait IntoKey {
    fn into_key(self) -> cmq::Key;
}

impl IntoKey for SocketAddr {
    fn into_key(self) -> cmq::Key {
        cmq::Key::new(self, 0)
    }
}
