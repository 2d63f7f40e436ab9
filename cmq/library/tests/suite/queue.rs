//! Two queues on this machine, used as an application uses them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use cmq::{Cmq, Config, Delivery, Event, Key, Oversize, PushError, new_raw_rq, new_rq, new_rq_with};
use testkit::LONG;

fn queue(config: Config) -> Cmq<u32> {
    new_rq_with("127.0.0.1:0", config).expect("a queue on loopback")
}

#[test]
fn ten_thousand_messages_arrive_in_order_or_are_reported() {
    for config in [Config::default(), Config::paper(), Config::immediate()] {
        ten_thousand(config);
    }
}

fn ten_thousand(config: Config) {
    let (receiver, sender) = (queue(config.clone()), queue(config));
    for number in 0..10_000_u32 {
        sender.cw_push((receiver.local_addr(), 0), &number).expect("room");
    }
    let from = sender.local_addr();
    drop(sender);
    let mut last = None;
    let mut received = 0;
    while !receiver.senders_at(from).first().is_some_and(|s| s.closed) || receiver.waiting() > 0 {
        let Some((number, key)) = receiver.pop_timeout(Duration::from_millis(20)) else { continue };
        assert!(last < Some(number), "order is kept");
        assert_eq!(key, Key::new(from, 0));
        (last, received) = (Some(number), received + 1);
    }
    let counts = receiver.senders_at(from)[0].counts;
    assert_eq!(counts.received, received);
    assert_eq!(counts.received + counts.lost + counts.missed, 10_000);
}

/// The default batches, and those of the paper.
#[test]
fn presets_have_their_batches() {
    let (default, paper) = (Config::default(), Config::paper());
    assert_eq!((default.qthresh, default.timeout), (60_000, Duration::from_millis(5)));
    assert!(default.flush_on_wait, "an answer is not kept waiting");
    assert_eq!((paper.qthresh, paper.timeout), (512, Duration::from_millis(200)));
    assert_eq!((paper.qmessages, paper.flush_on_wait, paper.receive_buffer), (None, false, None));
}

#[test]
fn a_batch_leaves_when_it_is_old_or_large() {
    let receiver = queue(Config::default());
    let sender = queue(Config::default().qthresh(100).timeout(Duration::from_millis(50)));
    let to = (receiver.local_addr(), 0);
    sender.cw_push(to, &1).expect("room");
    assert_eq!(receiver.pop_timeout(LONG).expect("its time-out passed").0, 1);
    let slow = queue(Config::default().qthresh(100).timeout(Duration::from_secs(1_000_000)));
    slow.cw_push(to, &0).expect("room");
    assert_eq!(slow.stats().sent, 0, "the message waits for others");
    for number in 1..100 {
        slow.cw_push(to, &number).expect("room");
    }
    assert!(receiver.pop_timeout(LONG).is_some(), "the batch was large enough");
    let sent = slow.stats();
    assert_eq!((sent.sent, sent.sent_datagrams), (68, 2), "34 messages of 3 bytes are 100 bytes");
    slow.flush();
    assert_eq!(slow.stats().sent, 100);
}

#[test]
fn without_a_timeout_messages_leave_at_once() {
    let (one, other) = (queue(Config::immediate()), queue(Config::immediate()));
    for number in 0..1000 {
        one.cw_push((other.local_addr(), 1), &number).expect("room");
        let (question, from) = other.pop_timeout(LONG).expect("loopback");
        other.cw_push(from, &(question + 1)).expect("room");
        assert_eq!(one.pop_timeout(LONG).expect("loopback"), (number + 1, Key::new(other.local_addr(), 1)));
    }
    assert_eq!(one.stats().sent_datagrams, 1000);
    assert_eq!(one.stats().counts.received, 1000);
}

#[test]
fn mailboxes_and_selective_receive() {
    let receiver = queue(Config::default());
    let seven = receiver.mailbox(7);
    let sender = queue(Config::default());
    for number in 0..10 {
        sender.cw_push((receiver.local_addr(), 6 + number % 2), &number).expect("room");
    }
    sender.flush();
    assert_eq!(receiver.pop_where_timeout(LONG, |&n, _| n == 8).expect("the message was sent").0, 8);
    assert_eq!(receiver.pop_where_timeout(Duration::ZERO, |&n, _| n == 7), None, "that is in the mailbox");
    let common: Vec<u32> =
        std::iter::from_fn(|| receiver.pop_timeout(Duration::from_millis(1))).map(|m| m.0).collect();
    assert_eq!(common, [0, 2, 4, 6]);
    assert_eq!(seven.pop_timeout(LONG).expect("the message was sent").0, 1);
    assert_eq!(seven.pop_where(|&n, _| n > 5).expect("the message is there").0, 7);
    assert_eq!(seven.waiting(), 3);
    let rest: Vec<u32> = seven.close().into_iter().map(|m| m.0).collect();
    assert_eq!(rest, [3, 5, 9]);
    sender.cw_push((receiver.local_addr(), 7), &70).expect("room");
    sender.flush();
    assert_eq!(receiver.pop_timeout(LONG).expect("the mailbox is closed").0, 70);
}

#[test]
fn an_arrival_is_waited_for_and_not_taken() {
    let (receiver, sender) = (queue(Config::default()), queue(Config::immediate()));
    let mailbox = receiver.mailbox(7);
    let (seen, seen_there) = (receiver.arrivals(), mailbox.arrivals());
    assert!(
        !receiver.wait_arrival(seen, Duration::ZERO) && !mailbox.wait_arrival(seen_there, Duration::ZERO)
    );
    sender.cw_push((receiver.local_addr(), 0), &1).expect("room");
    assert!(receiver.wait_arrival(seen, LONG));
    // A message that arrived before the call counts, and is still there.
    assert!(receiver.wait_arrival(seen, Duration::ZERO) && receiver.waiting() == 1);
    assert!(!receiver.wait_arrival(receiver.arrivals(), Duration::from_millis(1)));
    assert_eq!(mailbox.arrivals(), seen_there);
    sender.cw_push((receiver.local_addr(), 7), &2).expect("room");
    assert!(mailbox.wait_arrival(seen_there, LONG));
    assert_eq!((receiver.cw_pop().expect("it waits").0, mailbox.cw_pop().expect("it waits").0), (1, 2));
}

#[test]
fn raw_bytes_and_large_messages() {
    let config = Config::default().receive_buffer(Some(4 << 20)).max_datagram(Some(1400));
    let receiver = new_raw_rq("127.0.0.1:0", config.clone()).expect("a queue");
    let sender = new_raw_rq("127.0.0.1:0", config.clone()).expect("a queue");
    let to = (receiver.local_addr(), 0);
    for size in [0, 1, 500, 1370, 1371, 5000, 100_000] {
        let message = Bytes::from((0..size).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
        sender.cw_push(to, &message).expect("room");
        sender.flush();
        assert_eq!(receiver.pop_timeout(LONG).expect("the message was sent").0, message, "{size}");
    }
    let large = Bytes::from(vec![0; (1 << 20) + 1]);
    assert_eq!(sender.cw_push(to, &large), Err(PushError::TooLarge { size: (1 << 20) + 1, limit: 1 << 20 }));
    let strict = new_raw_rq("127.0.0.1:0", config.oversize(Oversize::Reject)).expect("a queue");
    let error =
        strict.cw_push(to, &Bytes::from(vec![0; 1371])).expect_err("the message fits into no datagram");
    assert_eq!(error, PushError::TooLarge { size: 1371, limit: 1370 });
}

#[test]
fn a_push_fails_at_the_pending_limit() {
    let sender = queue(Config::default().qthresh(60_000).timeout(LONG).pending_bytes(100));
    let to = (sender.local_addr(), 0);
    let taken = (0..1000).take_while(|number| sender.cw_push(to, number).is_ok()).count();
    assert!((20..60).contains(&taken), "{taken} of three and four bytes");
    assert_eq!(sender.cw_push(to, &1), Err(PushError::Full));
    sender.flush();
    sender.cw_push(to, &1).expect("there is room again");
}

/// A number whose `Deserialize` panics for 13.
#[derive(Debug, PartialEq, serde::Serialize)]
struct Touchy(u32);

impl<'de> serde::Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Touchy, D::Error> {
        let number = u32::deserialize(from)?;
        assert_ne!(number, 13, "this panic is part of the test");
        Ok(Touchy(number))
    }
}

/// A number whose `Serialize` panics for 13, after a part was written.
#[derive(serde::Deserialize)]
struct Grumpy(u32);

#[test]
fn a_type_that_panics_does_not_end_the_queue() {
    let receiver = new_rq_with::<Touchy>("127.0.0.1:0", Config::immediate()).expect("a queue");
    let sender = queue(Config::immediate());
    for number in [12, 13, 14] {
        sender.cw_push((receiver.local_addr(), 0), &number).expect("room");
    }
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, Touchy(12));
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, Touchy(14));
    assert_eq!(receiver.stats().counts.undecodable, 1);
}

/// Times that overflow are valid: they never end.
#[test]
fn a_wait_may_have_no_limit() {
    let ever = Duration::MAX;
    let delivery = Delivery::Ordered { wait: ever, window: 16 };
    let config = Config::default().qthresh(100).timeout(ever).delivery(delivery).fragment_timeout(ever);
    let (receiver, sender) = (new_raw_rq("127.0.0.1:0", config.clone()), new_raw_rq("127.0.0.1:0", config));
    let (receiver, sender) = (receiver.expect("a queue"), sender.expect("a queue"));
    for size in [1, 100, 100_000] {
        sender.push_bytes((receiver.local_addr(), 0), &vec![7; size]).expect("room");
        sender.flush();
        assert_eq!(receiver.pop_timeout(ever).expect("loopback").0.len(), size);
    }
}

impl serde::Serialize for Grumpy {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut two = to.serialize_tuple(2)?;
        two.serialize_element(&self.0)?;
        assert_ne!(self.0, 13, "this panic is part of the test");
        two.serialize_element(&self.0)?;
        two.end()
    }
}

#[test]
fn a_push_that_panics_leaves_nothing_behind() {
    let receiver = new_rq_with::<(u32, u32)>("127.0.0.1:0", Config::default()).expect("a queue");
    let sender = new_rq_with::<Grumpy>("127.0.0.1:0", Config::default()).expect("a queue");
    for number in [12, 13, 14] {
        let push = || sender.cw_push((receiver.local_addr(), 0), &Grumpy(number));
        let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(push));
        assert_eq!(pushed.is_err(), number == 13);
    }
    sender.flush();
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, (12, 12));
    assert_eq!(receiver.pop_timeout(LONG).expect("loopback").0, (14, 14));
    assert_eq!((receiver.stats().counts.undecodable, receiver.stats().malformed), (0, 0));
}

/// The kernel cuts a batch, or sendmmsg sends it: the datagrams are the same.
#[test]
fn a_batch_of_many_datagrams_arrives_whole() {
    for offload in [true, false] {
        let config = Config::default().segmentation_offload(offload).max_datagram(Some(1200));
        let receiver = queue(Config::default());
        let sender = queue(config.qthresh(60_000).timeout(LONG));
        for number in 0..20_000 {
            sender.cw_push((receiver.local_addr(), 0), &number).expect("room");
        }
        sender.flush();
        let popped: Vec<u32> =
            (0..20_000).map_while(|_| receiver.pop_timeout(LONG)).map(|message| message.0).collect();
        assert_eq!(popped, (0..20_000).collect::<Vec<u32>>());
        assert!(sender.stats().sent_datagrams > 50, "each is 1,200 bytes at most");
        assert_eq!(receiver.stats().datagrams, sender.stats().sent_datagrams);
    }
}

#[test]
fn a_hundred_thousand_keys() {
    let receiver = queue(Config::default());
    let sender = queue(Config::default().qthresh(60_000).timeout(LONG));
    for id in 0..100_000 {
        sender.cw_push((receiver.local_addr(), id), &id).expect("room");
    }
    assert!(sender.stats().pending_bytes >= 300_000, "all of them wait");
    sender.flush();
    // Batches leave in the order in which they were begun, each to its mailbox. The machine may lose some
    // messages and the end too, so the end is sent until it arrives.
    let (mut received, mut last, mut ends) = (0, None, 0);
    loop {
        let Some((number, key)) = receiver.pop_timeout(Duration::from_millis(20)) else {
            sender.cw_push((receiver.local_addr(), END), &END).expect("room");
            sender.flush();
            ends += 1;
            continue;
        };
        assert_eq!(number, key.id);
        if number == END {
            break;
        }
        assert!(last < Some(number));
        (last, received) = (Some(number), received + 1);
    }
    let counts = receiver.senders_at(sender.local_addr())[0].counts;
    let accounted = counts.received + counts.lost + counts.missed;
    assert!(
        (100_001..=100_000 + ends).contains(&accounted) && counts.received > received,
        "{counts:?}, {received}"
    );
}

/// Ends one popping thread.
const END: u32 = u32::MAX;

#[test]
fn several_threads_push_and_pop() {
    let spins = Config::default().spin(Duration::from_micros(50));
    let receiver = queue(spins);
    let sender = queue(Config::default());
    let to: SocketAddr = receiver.local_addr();
    let popped = std::thread::scope(|scope| {
        // Each thread pops until it gets one end; there is an end for each.
        let until_end = || match receiver.pop_timeout(LONG).expect("nothing is lost on loopback").0 {
            END => None,
            number => Some(number),
        };
        let poppers: Vec<_> =
            (0..3).map(|_| scope.spawn(move || std::iter::from_fn(until_end).count())).collect();
        let pushers: Vec<_> = (0..3)
            .map(|id| {
                let sender = &sender;
                scope.spawn(move || (0..5_000).for_each(|n| sender.cw_push((to, id), &n).expect("room")))
            })
            .collect();
        pushers.into_iter().for_each(|thread| thread.join().expect("no panic"));
        sender.flush();
        (0..3).for_each(|_| sender.cw_push((to, 0), &END).expect("room"));
        sender.finish();
        poppers.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
    });
    assert_eq!(popped, 15_000);
    let counts = receiver.stats().counts;
    assert_eq!(
        (counts.received, counts.reordered),
        (15_003, 0),
        "batches leave in the order of their numbers"
    );
}

#[test]
fn the_end_of_a_sender_is_reported() {
    let receiver = queue(Config::default());
    let sender = queue(Config::default());
    sender.cw_push((receiver.local_addr(), 0), &1).expect("room");
    let from = sender.local_addr();
    drop(sender);
    assert!(receiver.pop_timeout(LONG).is_some());
    while !receiver.senders_at(from)[0].closed {
        receiver.pop_timeout(Duration::from_millis(1));
    }
    assert_eq!(receiver.next_event(), Some(Event::Joined { from, missed: 0, restarted: false }));
    assert_eq!(receiver.next_event(), Some(Event::Closed { from, sent: 1 }));
    assert_eq!(receiver.next_event(), None);
}

#[test]
fn invalid_arguments_are_refused() {
    let queue = queue(Config::default());
    let v6: SocketAddr = "[::1]:9".parse().expect("an address");
    assert_eq!(queue.cw_push((v6, 0), &1), Err(PushError::Address));
    let zero: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    assert_eq!(queue.cw_push((zero, 0), &1), Err(PushError::Address));
    let error = new_rq_with::<u32>("127.0.0.1:0", Config::default().qthresh(0).timeout(LONG))
        .expect_err("no batches");
    assert_eq!(error.to_string(), "configuration: qthresh is 0; it must be between 1 and 60000");
    let small = Config::default().fragment_bytes(1 << 20);
    let error = new_rq_with::<u32>("127.0.0.1:0", small).expect_err("no large message would become whole");
    assert!(error.to_string().starts_with("configuration: fragment_bytes is 1048576"), "{error}");
    let busy = Config::default().spin(Duration::from_millis(2));
    let error = new_rq_with::<u32>("127.0.0.1:0", busy).expect_err("a core is not for waiting");
    assert!(error.to_string().starts_with("configuration: spin (in µs) is 2000"), "{error}");
    let taken = new_rq::<u32>(queue.local_addr()).expect_err("the address is taken");
    assert!(taken.to_string().starts_with("cannot bind the address"), "{taken}");
}
