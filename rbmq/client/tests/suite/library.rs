//! The client library against a broker in the same process.

use std::time::Duration;

use rbmq::wire::RefuseCode;
use rbmq::{
    AttributesBuf, ConfirmLevel, Event, Framing, Notice, Observer, PublishError, Publisher,
    PublisherWaitError, ReceiveError, StartFrom, Subscriber, TopicOpenError, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, Ingest};
use rocketbufs::config::TransportKind;
use testkit::{LONG, broker_with, rule, until};

/// A broker, a publisher of a topic, and a subscriber that has its place.
fn joined(options: TopicOptions) -> (Broker, TopicWriter, Subscriber) {
    let broker = broker_with(|_| {});
    let topic = Publisher::connect(&broker.addr()).unwrap().topic_with("t", options).unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    (broker, topic, subscriber)
}

#[test]
fn batches_are_published_and_received() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let mut batch = topic.batch(64 << 10).unwrap();
    let mut pushed = 0_u64;
    while batch.push(&pushed.to_le_bytes()) {
        pushed += 1;
    }
    assert_eq!(pushed, (64 << 10) / 12);
    batch.deliver().unwrap();
    // An undelivered batch leaves no trace.
    let mut dropped = topic.batch(100).unwrap();
    assert!(dropped.push(b"never"));
    drop(dropped);
    topic.publish(&pushed.to_le_bytes()).unwrap();
    topic.close().unwrap();
    let mut next = 0_u64;
    while let Some(batch) = subscriber.next_batch(Some(LONG)).unwrap() {
        for record in batch.records() {
            assert_eq!(record, next.to_le_bytes());
            next += 1;
        }
    }
    assert_eq!(next, pushed + 1);
    assert!(subscriber.ended());
}

/// Messages keep their order, whichever calls take them.
#[test]
fn batches_and_events_continue_behind_the_messages_that_were_taken() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    for round in 0..4 {
        let mut batch = topic.batch(100).unwrap();
        for n in 0..5 {
            assert!(batch.push(&[round, n]));
        }
        batch.deliver().unwrap();
        topic.publish(b"later").unwrap();
        for n in 0..2 {
            assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, [round, n]);
        }
        let mut rest = Vec::new();
        while rest.len() < 4 {
            let batch = match round % 2 {
                0 => subscriber.next_batch(Some(LONG)).unwrap(),
                _ => match subscriber.next_event(Some(LONG)).unwrap() {
                    Some(Event::Batch(batch)) => Some(batch),
                    _ => None,
                },
            };
            rest.extend(batch.iter().flat_map(|batch| batch.records()).map(<[u8]>::to_vec));
        }
        assert_eq!(rest, [&[round, 2][..], &[round, 3], &[round, 4], b"later"]);
    }
}

/// Batches that borrow nothing are read after later ones and after their subscriber, and hold their space until then.
#[test]
fn owned_batches_keep_their_bytes() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let mut owned = Vec::new();
    for n in 0..3_u8 {
        topic.publish(&[n; 100]).unwrap();
        let batch = subscriber.next_batch(Some(LONG)).unwrap().unwrap().into_owned();
        assert!(!batch.is_copy());
        owned.push(batch);
    }
    let end = topic.position();
    let consumed = |wait| topic.confirm(end, ConfirmLevel::Consumed, Some(wait));
    drop(owned.remove(1));
    assert!(consumed(Duration::from_millis(50)).is_err(), "the last batch is held");
    for (batch, n) in owned.iter().zip([0, 2]) {
        assert_eq!(batch.as_slice()[4..], [n; 100]);
        assert_eq!((batch.topic().as_str(), batch.end() - batch.position()), ("t", 104));
    }
    owned.pop();
    owned.pop();
    consumed(LONG).unwrap();
    topic.publish(b"last").unwrap();
    let last = subscriber.next_batch(Some(LONG)).unwrap().unwrap().into_owned();
    drop(subscriber);
    assert_eq!(last.as_slice()[4..], *b"last");
}

#[test]
fn segments_are_filled_in_place() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let mut first = topic.claim(100, None).unwrap();
    first.bytes_mut().fill(1);
    // A later message waits for the open segment, which then cannot be published short.
    topic.publish(b"later").unwrap();
    assert!(subscriber.recv(Some(Duration::from_millis(50))).unwrap().is_none());
    let refused = topic.publish_segment(first, Some(50)).unwrap_err();
    assert!(refused.to_string().contains("only the newest"), "{refused}");
    let refused = topic.publish_segment(refused.segment.unwrap(), Some(101)).unwrap_err();
    assert!(refused.to_string().contains("101 bytes"), "{refused}");
    topic.publish_segment(refused.segment.unwrap(), Some(100)).unwrap();
    let mut short = topic.claim(100, None).unwrap();
    short.bytes_mut()[..3].copy_from_slice(b"abc");
    topic.publish_segment(short, Some(3)).unwrap();
    let unused = topic.claim(7, None).unwrap();
    topic.publish_segment(unused, None).unwrap();
    topic.close().unwrap();
    let received: Vec<_> = subscriber.into_iter().map(|message| message.unwrap().bytes).collect();
    assert_eq!(received, [vec![1; 100], b"later".to_vec(), b"abc".to_vec()]);
}

/// Each call that publishes takes attributes, each that receives has them, and malformed ones cost only their message.
#[test]
fn attributes_come_with_their_messages() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let mut attributes = AttributesBuf::new();
    attributes.reply_to("answers").unwrap().property("k", "v").unwrap().key(b"\xff").unwrap();
    topic.publish(b"plain").unwrap();
    topic.publish_with(&attributes, b"with").unwrap();
    topic.publish_with_timeout(&AttributesBuf::new(), b"none", Some(LONG)).unwrap();
    let mut segment = topic.claim_with(&attributes, 10, None).unwrap();
    assert_eq!(segment.len(), 10);
    segment.bytes_mut()[..5].copy_from_slice(b"claim");
    topic.publish_segment(segment, Some(5)).unwrap();
    let mut batch = topic.batch(1000).unwrap();
    assert!(batch.push_with(&attributes, b"batch") && batch.push(b"pushed"));
    assert!(!batch.push_with(&attributes, &[0; 1000]));
    let bad = [6, 0, 0, 0x80, 0, 0, 0, 9, b'h', b'i'];
    assert!(batch.push_encoded(&bad) && batch.push_with(attributes.attributes(), b""));
    batch.deliver().unwrap();
    topic.close().unwrap();
    let with = |bytes: &'static [u8]| (bytes, attributes.clone());
    let plain = |bytes: &'static [u8]| (bytes, AttributesBuf::new());
    let expected = [plain(b"plain"), with(b"with"), plain(b"none"), with(b"claim")];
    for (bytes, attributes) in &expected[..2] {
        let message = subscriber.recv_ref(Some(LONG)).unwrap().unwrap();
        assert_eq!((message.bytes, message.attributes), (*bytes, attributes.attributes()));
    }
    for (bytes, attributes) in &expected[2..] {
        let message = subscriber.recv(Some(LONG)).unwrap().unwrap();
        assert_eq!((message.bytes.as_slice(), &message.attributes), (*bytes, attributes));
    }
    let message = subscriber.recv(Some(LONG)).unwrap().unwrap();
    assert_eq!((message.bytes.as_slice(), &message.attributes), (&b"batch"[..], &attributes));
    let batch = subscriber.next_batch(Some(LONG)).unwrap().unwrap();
    assert!(batch.records().eq([&b"pushed"[..], b""]));
    let pieces: Vec<_> = batch.pieces().collect();
    assert_eq!(pieces[0].as_ref().unwrap().record, b"pushed");
    let error = pieces[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
    assert_eq!(pieces[2].as_ref().unwrap().attributes, attributes.attributes());
    drop(pieces);
    drop(batch);
    assert!(subscriber.recv(Some(LONG)).unwrap().is_none() && subscriber.ended());
}

#[test]
fn a_message_behind_malformed_attributes_is_received() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let mut batch = topic.batch(1000).unwrap();
    assert!(batch.push_encoded(&[3, 0, 0, 0x80, 1, 2, 3]) && batch.push(b"good"));
    batch.deliver().unwrap();
    let error = subscriber.recv(Some(LONG)).unwrap_err();
    assert!(matches!(error, ReceiveError::Malformed { .. }), "{error}");
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"good");
}

/// With a slow application, neither of two topics waits for all messages of the other.
#[test]
fn topics_take_turns_in_batches_of_a_bounded_size() {
    const MOST: u64 = 64 << 10;
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut topics = ["a", "b"].map(|name| publisher.topic(name).unwrap());
    let mut subscriber =
        Subscriber::builder().until_ended(true).batch_bytes(MOST).connect(&broker.addr()).unwrap();
    for name in ["a", "b"] {
        subscriber.subscribe(name).unwrap();
    }
    for topic in &mut topics {
        topic.wait_subscribers(1, Some(LONG)).unwrap();
        for n in 0..300 {
            // Consecutive messages may be one delivery.
            let end = topic.publish(&[7; 1020]).unwrap();
            if n % 20 == 19 {
                topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
            }
        }
        assert!(topic.publish(&[8; 2 * MOST as usize]).is_ok());
    }
    topics.into_iter().for_each(|topic| topic.close().unwrap());
    let mut turns = Vec::new();
    while let Some(batch) = subscriber.next_batch(Some(LONG)).unwrap() {
        let bytes = batch.end() - batch.position();
        assert!(bytes <= MOST || batch.records().count() == 1, "{bytes} bytes at once");
        turns.push(batch.topic().to_string());
    }
    // Each topic has 300 KiB, in batches of at most 64 KiB or one larger delivery.
    let first: Vec<_> = turns.iter().take(8).collect();
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
    assert!(turns.len() >= 12, "{turns:?}");
}

#[test]
fn messages_are_copied_or_borrowed_in_one_order() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let writer = std::thread::spawn(move || {
        let ends: Vec<u64> = (0..20_000_u32).map(|i| topic.publish(&i.to_le_bytes()).unwrap()).collect();
        topic.close().unwrap();
        ends
    });
    let mut seen = Vec::new();
    loop {
        // Now one, now the other, across the ends of batches.
        let next = match seen.len() % 3 {
            0 => subscriber.recv(Some(LONG)).unwrap().map(|m| (m.bytes, m.end)),
            _ => subscriber.recv_ref(Some(LONG)).unwrap().map(|m| (m.bytes.to_vec(), m.end)),
        };
        let Some((bytes, end)) = next else { break };
        assert_eq!(bytes, (seen.len() as u32).to_le_bytes());
        seen.push(end);
    }
    assert_eq!(seen, writer.join().unwrap());
}

#[test]
fn messages_may_be_as_large_as_half_a_ring() {
    let options = TopicOptions::default().ring_bytes(4096).max_delivery_bytes(32 << 10);
    let (_broker, mut topic, mut subscriber) = joined(options);
    let largest = vec![7; (32 << 10) - 4];
    let too_large = PublishError::TooLarge { size: (32 << 10) - 3, max: 32 << 10 };
    assert_eq!(topic.publish(&vec![7; (32 << 10) - 3]), Err(too_large));
    let writer = std::thread::spawn(move || {
        for n in 0..100 {
            // Small ones between them, so that they begin anywhere in the ring.
            topic.publish(&vec![8; n]).unwrap();
            topic.publish(&largest).unwrap();
        }
        topic.close().unwrap();
    });
    let mut sizes = Vec::new();
    while let Some(message) = subscriber.recv(Some(LONG)).unwrap() {
        sizes.push(message.bytes.len());
    }
    writer.join().unwrap();
    assert_eq!(sizes, (0..100).flat_map(|n| [n, (32 << 10) - 4]).collect::<Vec<_>>());
}

#[test]
fn a_deferred_batch_is_not_overwritten() {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    let broker = broker_with(|_| {});
    let mut topic = Publisher::connect(&broker.addr()).unwrap().topic_with("t", options).unwrap();
    let mut subscriber =
        Subscriber::builder().until_ended(true).ring_bytes(64 << 10).connect(&broker.addr()).unwrap();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    topic.publish(b"first").unwrap();
    let kept = subscriber.next_batch(Some(LONG)).unwrap().unwrap().defer();
    // All rings become full behind the kept batch.
    let full = loop {
        match topic.publish_timeout(&[7; 1000], Some(Duration::from_millis(100))) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full, PublishError::TimedOut { last_error: None });
    kept.consume();
    let writer = std::thread::spawn(move || {
        for _ in 0..1000 {
            topic.publish(&[8; 1000]).unwrap();
        }
        topic.close().unwrap();
    });
    let mut eights = 0;
    while let Some(message) = subscriber.recv(Some(LONG)).unwrap() {
        eights += usize::from(message.bytes == [8; 1000]);
    }
    assert_eq!(eights, 1000);
    writer.join().unwrap();
}

#[test]
fn raw_bytes_are_a_stream() {
    let raw = TopicOptions::default().framing(Framing::Raw);
    let (_broker, mut topic, mut subscriber) = joined(raw);
    assert!(matches!(topic.publish(b"x"), Err(PublishError::WrongFraming { .. })));
    assert!(matches!(topic.batch(10), Err(PublishError::WrongFraming { .. })));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 / 3) as u8).collect();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        topic.publish_raw(&sent).unwrap();
        topic.close().unwrap();
    });
    let mut got = Vec::new();
    while let Some(batch) = subscriber.next_batch(Some(LONG)).unwrap() {
        assert_eq!(batch.framing(), Framing::Raw);
        assert_eq!(batch.records().count(), 0);
        got.extend_from_slice(batch.as_slice());
    }
    assert!(got == bytes);
    writer.join().unwrap();
}

#[test]
fn invalid_records_are_an_error_of_the_publisher() {
    // A publisher that says records and writes something else: made with the framework, as the library has no way.
    let broker = broker_with(|_| {});
    let ctx = rocketbufs::Context::new(rocketbufs::Config::default()).unwrap();
    let hello = rbmq::wire::Hello { role: rbmq::wire::Role::Publisher, client: 9, name: String::new() };
    let out = rocketbufs::ROut::new(&ctx);
    out.create_buffer(1, 64 << 10).unwrap();
    let conn = rocketbufs::Conn::connect(&ctx, &broker.addr(), &hello.encode()).unwrap();
    out.add_conn(&conn);
    let mut writer = out.buffer(1).unwrap().writer().unwrap();
    writer.append(&[b"\x03\0\0\0abc", b"\xff\xff\xff\xff\x00"]).unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    // Whichever of the two the broker hears first.
    subscriber.subscribe_from("t", StartFrom::Oldest).unwrap();
    let create = rbmq::wire::Control::Create {
        bid: 1,
        framing: Framing::Records,
        ring_bytes: 64 << 10,
        max_delivery_bytes: 16 << 10,
        min_subscribers: 0,
        topic: "t".parse().unwrap(),
    };
    conn.send_control(&create.encode()).unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"abc");
    assert!(matches!(subscriber.recv(Some(LONG)), Err(ReceiveError::Malformed { .. })));
    writer.append(&[b"\x02\0\0\0ok"]).unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"ok");
}

#[test]
fn notices_are_in_order_with_messages() {
    let (_broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    topic.publish(b"x").unwrap();
    topic.close().unwrap();
    let mut seen = Vec::new();
    while !subscriber.ended() {
        match subscriber.next_event(Some(LONG)).unwrap().unwrap() {
            Event::Batch(batch) => seen.push(format!("batch to {}", batch.end())),
            Event::Notice(Notice::Joined { start, .. }) => seen.push(format!("joined at {start}")),
            Event::Notice(Notice::Closed { end, .. }) => seen.push(format!("closed at {end}")),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["joined at 0", "batch to 5", "closed at 5"]);
}

#[test]
fn limits_are_refused_with_their_numbers() {
    let broker = broker_with(|config| {
        config.broker.max_topics = 2;
        config.broker.max_publishers = 1;
        config.broker.max_buffers_per_publisher = 3;
        config.broker.max_topics_per_subscriber = 2;
        config.broker.max_ring_bytes = 1 << 20;
    });
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let refusal = |result: Result<TopicWriter, TopicOpenError>| match result {
        Err(TopicOpenError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let _open = [publisher.topic("a").unwrap(), publisher.topic("b").unwrap()];
    assert!(
        refusal(publisher.topic("c")).contains("the broker has 2 topics; its limit (broker.max_topics) is 2")
    );
    let _more = publisher.topic("a").unwrap();
    assert!(refusal(publisher.topic("a")).contains("this publisher has 3 buffers"));
    let second = Publisher::connect(&broker.addr()).unwrap_err().to_string();
    assert!(
        second.contains("the broker has 1 publishers; its limit (broker.max_publishers) is 1"),
        "{second}"
    );
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    for topic in ["a", "b", "c"] {
        subscriber.subscribe(topic).unwrap();
    }
    let refused = loop {
        match subscriber.recv(Some(LONG)) {
            Ok(_) => {}
            Err(ReceiveError::Refused { reason, .. }) => break reason,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(refused.contains("broker.max_topics_per_subscriber"), "{refused}");
}

#[test]
fn connections_beyond_the_limit_are_refused_with_its_name_and_numbers() {
    let broker = broker_with(|config| {
        config.framework.tcp.tcp_num_threads = 1;
        config.framework.limits.max_connections = 2;
    });
    let first = Publisher::connect(&broker.addr()).unwrap();
    let second = Publisher::connect(&broker.addr()).unwrap();
    let said = "2 connections are open; the limit (limits.max_connections) is 2";
    for _ in 0..40 {
        // More refused clients than connections, so that connections of refused clients must end.
        let refused = Publisher::connect(&broker.addr()).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let refused = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap_err().to_string();
    assert!(refused.contains(said), "{refused}");
    // Refused clients do not count.
    drop(first);
    until("there is a place", || Publisher::connect(&broker.addr()).is_ok());
    second.topic("t").unwrap();
}

#[test]
fn the_limit_on_all_rings_is_named_in_the_refusal() {
    let broker = broker_with(|config| {
        config.framework.transport = TransportKind::Tcp;
        config.framework.buffers.max_ring_bytes = 4 << 20;
    });
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let asked = |ring_bytes| TopicOptions::default().ring_bytes(ring_bytes);
    let _first = publisher.topic_with("a", asked(4 << 20)).unwrap();
    // With the second ring only the sum is too large; the third ring alone is too large.
    for ring_bytes in [1 << 20, 8 << 20] {
        match publisher.topic_with("b", asked(ring_bytes)) {
            Err(TopicOpenError::Refused { code, reason, .. }) => {
                assert_eq!(code, RefuseCode::Limit, "{reason}");
                assert!(reason.contains("buffers.max_ring_bytes") && reason.contains("4194304"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_publishers_own_limit_is_reported_as_its_own() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let options = TopicOptions::default().ring_bytes(100 << 30);
    let error = publisher.topic_with("a", options).unwrap_err().to_string();
    assert!(error.contains("here at the publisher") && error.contains("none of the broker's"), "{error}");
    // The rounded size is requested from the broker, whose error names it once.
    let options = TopicOptions::default().ring_bytes(300 << 20);
    let error = publisher.topic_with("a", options).unwrap_err().to_string();
    assert!(error.contains("a ring of 536870912 bytes was requested; the limit of this broker"), "{error}");
}

#[test]
fn the_size_of_a_ring_is_compared_with_the_limit() {
    // No power of two.
    let broker = broker_with(|config| config.broker.max_ring_bytes = 100_000);
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let asked = |ring_bytes| TopicOptions::default().ring_bytes(ring_bytes);
    publisher.topic_with("a", asked(65_536)).unwrap();
    match publisher.topic_with("b", asked(70_000)) {
        Err(TopicOpenError::Refused { reason, .. }) => {
            assert!(
                reason.contains("a ring of 131072 bytes was requested;") && reason.contains("is 100000"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// Publishers one after the other: finished publishers do not count for the limit, though their messages are still readable.
fn one_after_the_other(merged: bool) {
    let broker = broker_with(|config| {
        config.broker.max_publishers = 2;
        config.broker.closed_linger_ms = 3_600_000;
        let ingest = if merged { Ingest::Merge } else { Ingest::Splice };
        config.broker.topics = vec![rule("#", |rule| rule.ingest = ingest)].into();
    });
    for n in 0..5_u8 {
        // The broker learns of the end of the previous publisher with its connection.
        let mut publisher = None;
        until("earlier publishers are finished", || {
            publisher = Publisher::connect(&broker.addr()).ok();
            publisher.is_some()
        });
        let publisher = publisher.expect("the publisher connected");
        let mut topic = publisher.topic("t").unwrap();
        topic.publish(&[n]).unwrap();
        topic.close().unwrap();
        publisher.close();
    }
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe_from("t", StartFrom::Oldest).unwrap();
    let mut said: Vec<u8> =
        (0..5).map(|_| subscriber.recv(Some(LONG)).unwrap().expect("the message is kept").bytes[0]).collect();
    said.sort_unstable();
    assert_eq!(said, [0, 1, 2, 3, 4]);
}

#[test]
fn closed_publishers_use_no_limit() {
    one_after_the_other(false);
}

#[test]
fn closed_publishers_of_merged_topics_use_no_limit() {
    one_after_the_other(true);
}

#[test]
fn waits_report_the_missing_part() {
    let broker = broker_with(|_| {});
    let mut topic = Publisher::connect(&broker.addr()).unwrap().topic("t").unwrap();
    let error = topic.wait_subscribers(2, Some(Duration::from_millis(20))).unwrap_err();
    assert!(matches!(error, PublisherWaitError::TooFewSubscribers { present: 0, wanted: 2, .. }));
    let too_large = topic.publish(&vec![0; (64 << 20) + 1]).unwrap_err();
    assert_eq!(too_large, PublishError::TooLarge { size: (64 << 20) + 1, max: (64 << 20) + 4 });
    assert!(topic.publish(&vec![0; (256 << 10) - 4]).is_ok());
}

#[test]
fn waits_can_be_unlimited() {
    let (broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let end = topic.publish_timeout(b"x", Some(Duration::MAX)).unwrap();
    assert_eq!(subscriber.recv(Some(Duration::MAX)).unwrap().unwrap().bytes, b"x");
    topic.confirm(end, ConfirmLevel::Accepted, Some(Duration::MAX)).unwrap();
    topic.flush(Some(Duration::MAX)).unwrap();
    topic.close_timeout(Some(Duration::MAX)).unwrap();
    assert_eq!(subscriber.recv(Some(Duration::MAX)).unwrap(), None);
    let mut observer = Observer::builder().timeout(Some(Duration::MAX)).connect(&broker.addr()).unwrap();
    assert_eq!(observer.summary().unwrap().topics, 1);
}

#[test]
fn an_ended_topic_is_removed_with_its_memory() {
    let broker = broker_with(|config| config.broker.closed_linger_ms = 1);
    for _ in 0..20 {
        let mut topic = Publisher::connect(&broker.addr()).unwrap().topic("t").unwrap();
        topic.publish(b"x").unwrap();
        topic.close().unwrap();
    }
    until("nothing is left of it", || broker.memory_in_use() == 0 && broker.topics().is_empty());
}

#[test]
fn positions_of_other_logs_do_no_harm() {
    let broker = broker_with(|_| {});
    let mut topic = Publisher::connect(&broker.addr()).unwrap().topic("t").unwrap();
    topic.publish(b"x").unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    let other = vec![(rocketbufs::Epoch(77), 1_000_000)];
    subscriber.subscribe_from("t", StartFrom::Positions(other)).unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"x");
}

/// A thread waits without a limit: for messages, and for a broker that is away.
#[test]
fn an_interrupter_ends_a_wait_once_and_nothing_is_lost() {
    let (broker, mut topic, mut subscriber) = joined(TopicOptions::default());
    let interrupter = subscriber.interrupter();
    let wait = |mut subscriber: Subscriber| {
        let thread = std::thread::spawn(move || (subscriber.recv(None), subscriber));
        interrupter.interrupt();
        let (ended, subscriber) = thread.join().unwrap();
        let error = ended.unwrap_err();
        assert!(error == ReceiveError::Interrupted && !error.is_final(), "{error}");
        subscriber
    };
    subscriber = wait(subscriber);
    // A binding that ends its own thread does so beside an interrupt of the program, which stays.
    interrupter.dismiss();
    assert!(subscriber.recv(None).unwrap().is_none());
    interrupter.interrupt();
    interrupter.readmit();
    assert_eq!(subscriber.recv(None).unwrap_err(), ReceiveError::Interrupted);
    topic.publish(b"one").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"one"[..]);
    drop(broker);
    until("the connection is down", || !subscriber.is_connected());
    // The notice of the loss is one event, and the wait begins after it.
    assert!(subscriber.recv(Some(Duration::from_millis(1))).unwrap().is_none());
    wait(subscriber);
    interrupter.interrupt();
}
