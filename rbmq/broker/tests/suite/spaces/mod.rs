//! Spaces: all topics of a pattern live in one log. Publishers and subscribers see topics as any others.

mod consumed;
mod everything;
mod hostile;
mod rights;

use std::time::Duration;

use rbmq::wire::{Attributes, AttributesBuf, Framing, RefuseCode};
use rbmq::{
    ConfirmError, ConfirmLevel, Event, Message, Notice, PublishError, Publisher, PublisherEvent, StartFrom,
    Subscriber, TopicName, TopicOpenError, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig, UpstreamSettings};
use testkit::{LONG, Proxy, broker_with, rule, until};

/// A broker with the space `d/#`, from which `d/own/#` is taken out.
fn broker() -> Broker {
    spacious(|_| {})
}

fn spacious(change: impl FnOnce(&mut BrokerConfig)) -> Broker {
    broker_with(|config| {
        let rules = vec![rule("d/own/#", |_| {}), rule("d/#", |rule| rule.space = true)];
        config.broker.topics = rules.into();
        change(config);
    })
}

fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn subscriber(at: &str, filters: &[&str]) -> Subscriber {
    let mut subscriber = Subscriber::connect(at).unwrap();
    filters.iter().for_each(|filter| subscriber.subscribe_from(filter, StartFrom::Oldest).unwrap());
    subscriber
}

/// Waits until the subscriptions are in force.
fn settled(subscriber: &mut Subscriber) {
    until("the subscription", || {
        let is_batch = |event: Option<Event<'_>>| matches!(event, Some(Event::Batch(_)));
        assert!(
            !is_batch(subscriber.next_event(Some(Duration::from_millis(1))).unwrap()),
            "nothing is published yet"
        );
        subscriber.is_settled()
    });
}

fn next(subscriber: &mut Subscriber) -> Message {
    subscriber.recv(Some(LONG)).unwrap().expect("a message")
}

fn text(message: &Message) -> (String, String) {
    (message.topic.to_string(), String::from_utf8(message.bytes.clone()).unwrap())
}

fn received(subscriber: &mut Subscriber, count: usize) -> Vec<(String, String)> {
    (0..count).map(|_| text(&next(subscriber))).collect()
}

fn expected(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(topic, payload)| ((*topic).to_owned(), (*payload).to_owned())).collect()
}

#[test]
fn topics_of_a_space_are_topics_as_any_others_and_share_a_log() {
    let broker = broker();
    let addr = broker.addr();
    // Nobody has published yet.
    let mut one = subscriber(&addr, &["d/7/temp"]);
    let mut some = subscriber(&addr, &["d/+/temp", "x"]);
    let mut all = subscriber(&addr, &["#"]);
    [&mut one, &mut some, &mut all].into_iter().for_each(settled);
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topics: Vec<TopicWriter> = ["d/7/temp", "d/7/door", "d", "d/own/temp", "x"]
        .iter()
        .map(|name| publisher.topic(name).unwrap())
        .collect();
    assert_eq!(topics[1].topic().as_str(), "d/7/door");
    for round in ["1", "2"] {
        for topic in &mut topics[..3] {
            topic.publish(round.as_bytes()).unwrap();
        }
    }
    let mut space = publisher.space("d/#").unwrap();
    let mut attributes = AttributesBuf::new();
    attributes.content_type("text/plain").unwrap();
    space.publish_to(&name("d/8/temp"), &attributes, b"3").unwrap();
    assert_eq!(received(&mut one, 2), expected(&[("d/7/temp", "1"), ("d/7/temp", "2")]));
    let temps = expected(&[("d/7/temp", "1"), ("d/7/temp", "2"), ("d/8/temp", "3")]);
    assert_eq!(received(&mut some, 3), temps);
    let in_order =
        [("d/7/temp", "1"), ("d/7/door", "1"), ("d", "1"), ("d/7/temp", "2"), ("d/7/door", "2"), ("d", "2")];
    assert_eq!(received(&mut all, 6), expected(&in_order));
    let last = next(&mut all);
    assert_eq!(text(&last), ("d/8/temp".into(), "3".into()));
    assert_eq!((last.attributes.attributes().content_type(), last.publisher), (Some("text/plain"), Some(0)));
    // Topics of earlier rules and outside of the pattern have logs of their own.
    topics[3].publish(b"4").unwrap();
    topics[4].publish(b"5").unwrap();
    let mut others = received(&mut all, 2);
    others.sort();
    assert_eq!(others, expected(&[("d/own/temp", "4"), ("x", "5")]));
    let mut others = received(&mut some, 2);
    others.sort();
    assert_eq!(others, expected(&[("d/own/temp", "4"), ("x", "5")]));
    let names: Vec<String> = broker.topics().iter().map(|topic| topic.topic.to_string()).collect();
    assert_eq!(names, ["$space/d", "d/own/temp", "x"]);
    assert_eq!(broker.topics()[0].publishers, 1);
    for none in [&mut one, &mut some, &mut all] {
        assert!(none.recv(Some(Duration::ZERO)).unwrap().is_none());
    }
}

#[test]
fn batches_of_a_space_have_one_topic_and_positions_to_resume_at() {
    let broker = broker();
    let addr = broker.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut space = publisher.space("d/#").unwrap();
    let mut batch = space.batch(4096, None).unwrap();
    for (topic, payload) in
        [("d/a", "1"), ("d/a", "2"), ("d/x", "-"), ("d/b", "3"), ("d/a", "4"), ("d/x", "-")]
    {
        assert!(batch.push(&name(topic), Attributes::EMPTY, payload.as_bytes()).unwrap());
    }
    assert_eq!(batch.len(), 6 * 5);
    let end = batch.deliver().unwrap();
    // What follows is another run.
    space.confirm(end, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    space.publish_to(&name("d/a"), Attributes::EMPTY, b"5").unwrap();
    let end = space.position();
    space.confirm(end, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    let mut subscriber = subscriber(&addr, &["d/a", "d/b"]);
    let mut got = Vec::new();
    while got.len() < 4 {
        let batch = subscriber.next_batch(Some(LONG)).unwrap().expect("more comes");
        let records: Vec<String> =
            batch.records().map(|record| String::from_utf8(record.to_vec()).unwrap()).collect();
        let pieces: Vec<u64> =
            batch.pieces().map(|piece| batch.position() + piece.unwrap().to as u64).collect();
        assert!(pieces[..pieces.len() - 1].iter().all(|at| *at == batch.position()));
        assert_eq!(pieces.last(), Some(&batch.end()));
        got.push((batch.topic().to_string(), records.concat(), batch.epoch(), batch.end()));
    }
    let parts: Vec<_> = got.iter().map(|(topic, records, ..)| (topic.as_str(), records.as_str())).collect();
    assert_eq!(parts, [("d/a", "12"), ("d/b", "3"), ("d/a", "4"), ("d/a", "5")]);
    // The first two have to come again with the whole run, which ends with the third: what is behind is not wanted.
    assert_eq!(got[0].3, got[1].3);
    assert!(got[1].3 < got[2].3 && got[2].3 < got[3].3);
    for (from, count) in [(1, 4), (2, 1)] {
        let (epoch, end) = (got[from].2, got[from].3);
        let mut again = Subscriber::connect(&addr).unwrap();
        for filter in ["d/a", "d/b"] {
            again.subscribe_from(filter, StartFrom::Positions(vec![(epoch, end)])).unwrap();
        }
        let texts: Vec<String> =
            received(&mut again, count + usize::from(from == 1)).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts.concat(), if from == 1 { "12345" } else { "5" });
    }
}

#[test]
fn the_latest_filters_decide_what_of_a_space_comes() {
    let broker = broker();
    let addr = broker.addr();
    let mut subscriber = subscriber(&addr, &["d/a"]);
    settled(&mut subscriber);
    let publisher = Publisher::connect(&addr).unwrap();
    let mut space = publisher.space("d/#").unwrap();
    let mut publish = |topics: &[&str]| {
        let mut batch = space.batch(1000, None).unwrap();
        for topic in topics {
            batch.push(&name(topic), Attributes::EMPTY, topic.as_bytes()).unwrap();
        }
        batch.deliver().unwrap();
    };
    publish(&["d/b", "d/a", "d/b", "d/a", "d/c"]);
    assert_eq!(next(&mut subscriber).topic.as_str(), "d/a");
    subscriber.unsubscribe("d/a").unwrap();
    subscriber.subscribe("d/c").unwrap();
    settled_with(&mut subscriber);
    publish(&["d/a", "d/c"]);
    assert_eq!(next(&mut subscriber).topic.as_str(), "d/c");
    subscriber.subscribe("d/b").unwrap();
    settled_with(&mut subscriber);
    publish(&["d/a", "d/b", "d/c"]);
    assert_eq!(received(&mut subscriber, 2), expected(&[("d/b", "d/b"), ("d/c", "d/c")]));
    subscriber.unsubscribe("d/b").unwrap();
    publish(&["d/b", "d/c"]);
    assert_eq!(next(&mut subscriber).topic.as_str(), "d/c");
}

/// Waits until the subscriptions are in force. Messages that arrive meanwhile are dropped.
fn settled_with(subscriber: &mut Subscriber) {
    until("the subscription", || {
        subscriber.next_event(Some(Duration::from_millis(1))).unwrap();
        subscriber.is_settled()
    });
}

#[test]
fn a_hundred_thousand_topics_cost_one_ring() {
    const TOPICS: usize = 100_000;
    let broker = broker();
    let addr = broker.addr();
    let mut all = subscriber(&addr, &["d/#"]);
    let mut one = subscriber(&addr, &["d/77777/temp"]);
    [&mut all, &mut one].into_iter().for_each(settled);
    let publisher = Publisher::connect(&addr).unwrap();
    let mut space = publisher.space("d/#").unwrap();
    let before = broker.memory_in_use();
    let publishing = std::thread::spawn(move || {
        let mut next = 0;
        while next < TOPICS {
            let mut batch = space.batch(32 << 10, None).unwrap();
            while next < TOPICS
                && batch
                    .push(&name(&format!("d/{next}/temp")), Attributes::EMPTY, &(next as u32).to_le_bytes())
                    .unwrap()
            {
                next += 1;
            }
            batch.deliver().unwrap();
        }
        space
    });
    for n in 0..TOPICS {
        let message = all.recv_ref(Some(LONG)).unwrap().expect("a message");
        assert_eq!(message.bytes, (n as u32).to_le_bytes());
        let number: usize = message.topic.as_str()[2..].trim_end_matches("/temp").parse().unwrap();
        assert_eq!(number, n);
    }
    let message = next(&mut one);
    assert_eq!((message.topic.as_str(), message.bytes), ("d/77777/temp", 77_777_u32.to_le_bytes().to_vec()));
    let space = publishing.join().unwrap();
    assert_eq!(broker.topics().len(), 1);
    assert_eq!(broker.memory_in_use(), before);
    space.close().unwrap();
}

#[test]
fn writers_of_a_space_share_room_and_confirmations_and_leave_alone() {
    let broker = broker();
    let addr = broker.addr();
    let proxy = Proxy::to(&addr);
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let small = || TopicOptions::default().ring_bytes(64 << 10).max_confirmations(2).open_timeout(Some(LONG));
    assert_eq!(publisher.next_event(Some(Duration::ZERO)), None, "from now on events are collected");
    let mut a = publisher.topic_with("d/a", small()).unwrap();
    let mut b = publisher.topic_with("d/b", small()).unwrap();
    let at = a.publish(b"1").unwrap();
    assert_eq!(b.position(), at);
    assert!(b.publish(b"2").unwrap() > at);
    a.confirm(at, ConfirmLevel::Consumed, Some(LONG)).unwrap();
    // Each of the writers may wait for two.
    proxy.cut();
    let end = b.publish(b"3").unwrap();
    let waiting: Vec<_> = (0..4).map(|_| a.confirmation(end, ConfirmLevel::Accepted)).collect();
    match b.confirm(end, ConfirmLevel::Accepted, Some(Duration::ZERO)).unwrap_err() {
        ConfirmError::TooMany { topic, waiting: 4, limit: 4 } => assert_eq!(topic.as_str(), "d/b"),
        other => panic!("{other}"),
    }
    // Both find the ring full, and both are told of room.
    while a.publish_timeout(&[7; 1000], Some(Duration::ZERO)).is_ok() {}
    let full = b.publish_timeout(&[7; 1000], Some(Duration::ZERO)).unwrap_err();
    assert!(matches!(full, PublishError::TimedOut { .. }), "{full}");
    proxy.restore();
    let mut room = std::collections::BTreeSet::new();
    while room.len() < 2 {
        match publisher.next_event(Some(LONG)).expect("an event") {
            PublisherEvent::Room { topic } => _ = room.insert(topic.to_string()),
            PublisherEvent::Subscribers { topic, .. } => assert!(topic.as_str().starts_with("d/")),
            PublisherEvent::Disconnected(_) | PublisherEvent::Reconnected => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(room.into_iter().collect::<Vec<_>>(), ["d/a", "d/b"]);
    for waiting in waiting {
        waiting.wait(Some(LONG)).unwrap();
    }
    a.close().unwrap();
    let end = b.publish(b"4").unwrap();
    b.confirm(end, ConfirmLevel::Consumed, Some(LONG)).unwrap();
    let again = publisher.topic_with("d/a", small()).unwrap();
    assert_eq!(again.position(), end, "the log is the same");
    drop(again);
    b.close().unwrap();
    // The last writer has ended the log of this publisher, and the next one begins another.
    let mut c = publisher.topic_with("d/c", small()).unwrap();
    assert_eq!(c.position(), 0);
    c.publish(b"5").unwrap();
    c.close().unwrap();
    until("the publisher's end", || broker.topics()[0].publishers == 0);
}

#[test]
fn other_options_and_other_names_are_refused_with_a_reason() {
    let broker = broker();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let reason = |opened: Result<TopicWriter, TopicOpenError>| match opened.map(drop) {
        Err(TopicOpenError::Refused { topic, code, reason }) => (topic.to_string(), code, reason),
        other => panic!("{other:?}"),
    };
    let raw = TopicOptions::default().framing(Framing::Raw);
    let (topic, code, why) = reason(publisher.topic_with("d/a", raw.clone()));
    assert_eq!((&*topic, code), ("d/a", RefuseCode::Invalid));
    assert!(why.contains("keep or space = true): its publishers must write records"), "{why}");
    let mut open = publisher.topic("d/a").unwrap();
    for (options, says) in [
        (raw, "is open with records, while this topic is to have plain bytes"),
        (TopicOptions::default().keep_until_delivered(true), "is open with keep_until_delivered = false"),
        (TopicOptions::default().min_subscribers(1), "is open with min_subscribers = 0"),
        (TopicOptions::default().max_delivery_bytes(1 << 20), "is open with max_delivery_bytes = 262144"),
    ] {
        let (topic, _, why) = reason(publisher.topic_with("d/b", options));
        assert!(topic == "d/b" && why.contains("the space 'd/#'") && why.contains(says), "{why}");
    }
    assert!(reason(publisher.topic("$space/d")).2.contains("open the space by its pattern"));
    let most = usize::try_from(open.max_delivery_bytes()).unwrap();
    match open.publish(&vec![0; most]).unwrap_err() {
        PublishError::TooLarge { size, max } => {
            open.publish(&vec![0; max as usize - 4]).unwrap();
            assert_eq!((size, max), (most as u64, most as u64 - 4 - 4 - 3));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_space_takes_its_own_topics_alone() {
    let broker = broker();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    for pattern in ["e/#", "#"] {
        match publisher.space(pattern).unwrap_err() {
            TopicOpenError::Refused { reason, .. } => {
                assert!(reason.contains("has no such space"), "{reason}")
            }
            other => panic!("{other}"),
        }
    }
    assert!(matches!(publisher.space("d/+"), Err(TopicOpenError::Space(_))));
    let mut space = publisher.space("d/#").unwrap();
    assert!(space.contains(&name("d/x")) && !space.contains(&name("d/own/x")) && !space.contains(&name("e")));
    for other in ["d/own/x", "e", "$space/d"] {
        let error = space.publish_to(&name(other), Attributes::EMPTY, b"").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("topic '{other}' is not in the space 'd/#': open it by its name")
        );
    }
    let mut attributes = AttributesBuf::new();
    attributes.topic("d/y").unwrap();
    let error = space.publish_to(&name("d/x"), &attributes, b"").unwrap_err();
    assert!(matches!(error, PublishError::TopicInAttributes { .. }), "{error}");
}

#[test]
fn a_reload_changes_no_space() {
    let mut broker = broker();
    let mut config = broker.config().clone();
    config.broker.topics = vec![rule("d/#", |_| {})].into();
    config.broker.max_topics = 7;
    let reload = broker.reload(&config).unwrap();
    assert_eq!(
        reload.needs_restart.iter().map(|change| &*change.name).collect::<Vec<_>>(),
        ["broker.topics"]
    );
    assert_eq!(reload.applied.iter().map(|change| &*change.name).collect::<Vec<_>>(), ["broker.max_topics"]);
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    publisher.topic("d/a").unwrap().publish(b"1").unwrap();
    assert_eq!(broker.topics()[0].topic.as_str(), "$space/d");
}

#[test]
fn a_chain_forwards_the_log_of_a_space_as_a_whole() {
    let first = broker();
    let chained = |filters: &[&str]| {
        broker_with(|config| {
            let mut upstream = UpstreamSettings::new(&first.addr());
            upstream.topics = filters.iter().map(|filter| filter.parse().unwrap()).collect();
            config.broker.upstream = vec![upstream];
        })
    };
    let (second, partly) = (chained(&["d/#", "x"]), chained(&["d/+/temp", "x"]));
    let mut reader = subscriber(&second.addr(), &["d/7/temp", "x"]);
    let mut other = subscriber(&partly.addr(), &["d/7/temp", "x"]);
    let publisher = Publisher::connect(&first.addr()).unwrap();
    let mut topics = ["d/7/door", "d/7/temp", "x"].map(|topic| publisher.topic(topic).unwrap());
    topics[2].wait_subscribers(2, Some(LONG)).unwrap();
    // The broker that asks for a part of the space has no subscription of its log.
    topics[1].wait_subscribers(1, Some(LONG)).unwrap();
    topics[0].publish(b"0").unwrap();
    topics[1].publish(b"1").unwrap();
    assert_eq!(received(&mut reader, 1), expected(&[("d/7/temp", "1")]));
    topics[2].publish(b"2").unwrap();
    assert_eq!(received(&mut reader, 1), expected(&[("x", "2")]));
    assert_eq!(received(&mut other, 1), expected(&[("x", "2")]));
    assert_eq!(topics[1].subscribers(), 1);
    let names: Vec<String> = partly.topics().iter().map(|topic| topic.topic.to_string()).collect();
    assert_eq!(names, ["x"]);
}

#[test]
fn a_kept_space_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let start = |addr: &str| {
        broker_with(|config| {
            config.broker.listen = addr.to_owned();
            config.broker.keep_dir = dir.path().to_str().unwrap().into();
            let space = |rule: &mut rbmq_broker::Rule| (rule.space, rule.keep) = (true, true);
            config.broker.topics = vec![rule("d/#", space)].into();
        })
    };
    let addr = testkit::own_addr();
    let before = start(&addr);
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topics: Vec<TopicWriter> = (0..3).map(|n| publisher.topic(&format!("d/{n}")).unwrap()).collect();
    let mut all = subscriber(&addr, &["d/#"]);
    for n in 0..30 {
        topics[n % 3].publish(n.to_string().as_bytes()).unwrap();
    }
    let end = topics[0].position();
    topics[0].confirm(end, ConfirmLevel::Synced, Some(LONG)).unwrap();
    let first = received(&mut all, 30);
    before.stop();
    let after = start(&addr);
    for n in 30..60 {
        topics[n % 3].publish(n.to_string().as_bytes()).unwrap();
    }
    let second = received(&mut all, 30);
    let expected: Vec<_> = (0..60).map(|n| (format!("d/{}", n % 3), n.to_string())).collect();
    assert_eq!([first, second].concat(), expected);
    // The disk has one log for all topics, from the first record on.
    let mut one = subscriber(&addr, &["d/1"]);
    let of_one: Vec<_> = expected.iter().filter(|(topic, _)| topic == "d/1").cloned().collect();
    assert_eq!(received(&mut one, 20), of_one);
    let mut joined = Subscriber::connect(&addr).unwrap();
    joined.subscribe_from("d/2", StartFrom::Oldest).unwrap();
    let notice = loop {
        match joined.next_event(Some(LONG)).unwrap() {
            Some(Event::Notice(notice @ Notice::Joined { .. })) => break notice,
            Some(Event::Notice(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(notice, Notice::Joined { topic, start: 0, .. } if topic.as_str() == "$space/d"));
    assert_eq!(after.topics().len(), 1);
}
