//! QoS 1 and 2, in and out.

use std::sync::Arc;

use super::*;
use crate::double::MemoryUser;
use crate::mqtt::message::Stored;
use crate::mqtt::session::{Held, Pending, Session};

#[test]
fn messages_go_out_with_the_lower_qos() {
    let mut site = Site::new();
    let publisher = site.plain(V5, "p");
    for (at, subscribed) in [0, 1, 2].into_iter().enumerate() {
        let subscriber = site.plain(V311, &format!("s{at}"));
        site.subscribe(subscriber, "t", subscribed);
        for published in [0, 1, 2] {
            site.publish_with(
                publisher,
                Publish {
                    packet_id: if published > 0 { 20 + published as u16 } else { 0 },
                    ..message("t", published, "x")
                },
                &[],
            );
            let qos = subscribed.min(published);
            assert!(site.got(subscriber)[0].starts_with(&format!("PUBLISH t q{qos}")));
            if qos == 1 {
                let id = if subscribed == 1 { published.into() } else { 1 };
                site.ack(subscriber, AckKind::Puback, id, 0);
            }
            site.ack(publisher, AckKind::Pubrel, 22, 0);
            site.got(publisher);
        }
        site.disconnect(subscriber, 0, &[]);
    }
}

#[test]
fn a_message_of_qos_2_is_delivered_once_however_often_it_comes() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.client(Hello::lasting(V5, "p")), site.plain(V5, "s"));
    site.subscribe(subscriber, "t", 0);
    let twice = Publish { dup: true, ..message("t", 2, "x") };
    site.publish(publisher, "t", 2, "x");
    site.publish_with(publisher, twice, &[]);
    assert_eq!(site.got(publisher), ["PUBREC #5 00", "PUBREC #5 00"]);
    site.lose(publisher);
    let publisher = site.client(Hello::lasting(V5, "p"));
    site.publish_with(publisher, twice, &[]);
    assert_eq!(site.got(publisher), ["PUBREC #5 00"]);
    site.ack(publisher, AckKind::Pubrel, 5, 0);
    assert_eq!(site.got(publisher), ["PUBCOMP #5 00"]);
    assert_eq!(site.got(subscriber), ["PUBLISH t q0 x"]);
    site.publish(publisher, "t", 2, "y");
    assert_eq!(site.got(subscriber), ["PUBLISH t q0 y"]);
}

#[test]
fn a_pubrel_that_comes_again_gets_00_and_an_unknown_one_92() {
    let mut site = Site::new();
    let publisher = site.client(Hello::lasting(V5, "p"));
    site.publish(publisher, "t", 2, "x");
    site.ack(publisher, AckKind::Pubrel, 5, 0);
    site.got(publisher);
    site.lose(publisher);
    let publisher = site.client(Hello::lasting(V5, "p"));
    site.ack(publisher, AckKind::Pubrel, 5, 0);
    site.ack(publisher, AckKind::Pubrel, 6, 0);
    assert_eq!(site.got(publisher), ["PUBCOMP #5 00", "PUBCOMP #6 92"]);
}

#[test]
fn after_a_reconnect_messages_come_again_with_dup_and_an_owed_pubrel_too() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(Hello::lasting(V5, "s")));
    site.subscribe(subscriber, "t", 2);
    for (qos, id, payload) in [(1, 11, "one"), (2, 12, "two"), (2, 13, "three")] {
        site.publish_with(publisher, Publish { packet_id: id, ..message("t", qos, payload) }, &[]);
    }
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #1 one", "PUBLISH t q2 #2 two", "PUBLISH t q2 #3 three"]);
    site.ack(subscriber, AckKind::Pubrec, 2, 0);
    assert_eq!(site.got(subscriber), ["PUBREL #2 00"]);
    site.lose(subscriber);
    // Past PUBREC nothing expires.
    site.pass(500);
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    let got = site.got(subscriber);
    assert!(got[0].starts_with("CONNACK present 00"));
    assert_eq!(got[1..], ["PUBLISH t q1 dup #1 one", "PUBREL #2 00", "PUBLISH t q2 dup #3 three"]);
    site.ack(subscriber, AckKind::Pubcomp, 2, 0);
    site.ack(subscriber, AckKind::Puback, 1, 0);
    site.ack(subscriber, AckKind::Pubrec, 3, 0);
    site.ack(subscriber, AckKind::Pubcomp, 3, 0);
    assert!(site.0.protocol.sessions.iter().all(|(_, session)| session.inflight.is_empty()));
}

#[test]
fn what_is_to_come_again_comes_before_new_messages() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(Hello::lasting(V5, "s")));
    site.subscribe(subscriber, "t", 1);
    site.publish(publisher, "t", 1, "old");
    site.lose(subscriber);
    // What the connection has queued leaves no room.
    site.0.out.queued = 1 << 30;
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.0.out.queued = 0;
    site.publish(publisher, "t", 1, "new");
    site.pass(1);
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 dup #1 old", "PUBLISH t q1 #2 new"]);
}

#[test]
fn what_is_to_come_again_is_withheld_without_the_right() {
    let mut site = Site::new();
    let everything = || "#".parse().unwrap();
    site.0.door.users = vec![MemoryUser {
        name: "ann",
        secret: "pw",
        is_token: false,
        publish: everything(),
        subscribe: everything(),
    }];
    let hello = Hello { login: Some(("ann", "pw")), ..Hello::lasting(V5, "s") };
    let conn = site.client(hello);
    site.subscribe(conn, "t", 1);
    site.publish(conn, "t", 1, "secret");
    site.lose(conn);
    site.0.door.users[0].subscribe = "u".parse().unwrap();
    let conn = site.hello(hello);
    assert_eq!(site.got(conn).len(), 1);
    assert!(site.0.protocol.sessions.iter().all(|(_, session)| session.inflight.is_empty()));
}

#[test]
fn a_pubrec_for_nothing_gets_a_pubrel_with_92() {
    let mut site = Site::new();
    let conn = site.plain(V5, "a");
    site.ack(conn, AckKind::Pubrec, 77, 0);
    assert_eq!(site.got(conn), ["PUBREL #77 92"]);
    site.ack(conn, AckKind::Puback, 77, 0);
    site.ack(conn, AckKind::Pubcomp, 77, 0);
    assert!(site.got(conn).is_empty() && !site.is_closed(conn));
}

#[test]
fn a_pubrec_with_an_error_ends_the_message() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.subscribe(subscriber, "t", 2);
    site.publish(publisher, "t", 2, "x");
    site.ack(subscriber, AckKind::Pubrec, 1, 0x97);
    assert_eq!(site.got(subscriber), ["PUBLISH t q2 #1 x"]);
    assert!(site.0.protocol.sessions.iter().all(|(_, session)| session.inflight.is_empty()));
}

#[test]
fn the_receive_maximum_of_a_client_is_kept_also_after_a_reconnect() {
    let mut site = Site::new();
    let hello = Hello {
        properties: &[Property::SessionExpiry(1000), Property::ReceiveMaximum(2)],
        ..Hello::lasting(V5, "s")
    };
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(hello));
    site.subscribe(subscriber, "t", 1);
    for payload in ["1", "2", "3", "4"] {
        site.publish(publisher, "t", 1, payload);
    }
    site.publish(publisher, "t", 0, "free");
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #1 1", "PUBLISH t q1 #2 2", "PUBLISH t q0 free"]);
    site.ack(subscriber, AckKind::Puback, 2, 0);
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #3 3"]);
    site.lose(subscriber);
    let subscriber = site
        .hello(Hello { properties: &[Property::SessionExpiry(1000), Property::ReceiveMaximum(1)], ..hello });
    assert_eq!(site.got(subscriber)[1..], ["PUBLISH t q1 dup #1 1"]);
    site.ack(subscriber, AckKind::Puback, 1, 0);
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 dup #3 3"]);
    site.ack(subscriber, AckKind::Puback, 3, 0);
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #4 4"]);
}

#[test]
fn messages_wait_for_a_session_without_client_and_qos_0_does_not() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(Hello::lasting(V311, "s")));
    site.subscribe(subscriber, "t/#", 2);
    site.lose(subscriber);
    site.publish(publisher, "t/0", 0, "0");
    site.publish(publisher, "t/1", 1, "1");
    site.publish(publisher, "t/2", 2, "2");
    let subscriber = site.hello(Hello::lasting(V311, "s"));
    assert_eq!(site.got(subscriber), ["CONNACK present 00", "PUBLISH t/1 q1 #1 1", "PUBLISH t/2 q2 #2 2"]);
}

#[test]
fn a_message_expires_in_the_queue_and_its_rest_is_told() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(Hello::lasting(V5, "s")));
    site.subscribe(subscriber, "t", 1);
    site.lose(subscriber);
    site.publish_with(publisher, message("t", 1, "short"), &[Property::MessageExpiry(10)]);
    site.publish_with(publisher, message("t", 1, "long"), &[Property::MessageExpiry(100)]);
    site.pass(30);
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    assert_eq!(site.got(subscriber)[1..], ["PUBLISH t q1 #1 long MessageExpiry(70)"]);
}

#[test]
fn an_expired_message_is_not_delivered() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.subscribe(subscriber, "t", 1);
    site.publish_with(publisher, message("t", 1, "x"), &[Property::MessageExpiry(0)]);
    assert!(site.got(subscriber).is_empty());
}

#[test]
fn a_full_bus_holds_the_client_and_nothing_is_published_twice() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.subscribe(subscriber, "t", 0);
    site.0.bus.room = Some(1);
    let mut bytes = Vec::new();
    for id in 1..=3 {
        let publish = Publish { packet_id: id, ..message("t", 2, "x") };
        Packet::Publish(publish).put(V5, &mut bytes);
    }
    site.0.feed(publisher, bytes);
    assert_eq!(site.got(publisher), ["PUBREC #1 00"]);
    site.0.make_room(10);
    assert_eq!(site.got(publisher), ["PUBREC #2 00", "PUBREC #3 00"]);
    site.0.deliver();
    assert_eq!(site.got(subscriber).len(), 3);
}

#[test]
fn properties_arrive_unchanged() {
    let mut site = Site::new();
    let (publisher, five, three) = (site.plain(V5, "p"), site.plain(V5, "s"), site.plain(V311, "o"));
    site.subscribe(five, "t", 1);
    site.subscribe(three, "t", 1);
    let properties = [
        Property::User("b", "1"),
        Property::PayloadIsText(true),
        Property::ContentType("text/plain"),
        Property::User("a", "2"),
        Property::ResponseTopic("answers"),
        Property::CorrelationData(&[0, 1, 255]),
        Property::User("b", "1"),
    ];
    for qos in [0, 1] {
        site.publish_with(publisher, message("t", qos, "x"), &properties);
        let got = site.got(five).concat();
        for property in &properties {
            assert!(got.contains(&format!("{property:?}")), "{got}");
        }
        assert!(got.contains("User(\"b\", \"1\") ") && got.ends_with("User(\"b\", \"1\")"), "{got}");
        assert!(got.find("User(\"b\"") < got.find("User(\"a\""));
        assert!(site.got(three)[0].ends_with(" x"));
    }
}

#[test]
fn a_message_is_framed_once_for_all_that_get_the_same() {
    let mut site = Site::new();
    let publisher = site.plain(V5, "p");
    let subscribers: Vec<ConnId> =
        (0..6).map(|n| site.plain(if n < 3 { V5 } else { V311 }, &format!("s{n}"))).collect();
    subscribers.iter().for_each(|conn| site.subscribe(*conn, "t", 0));
    site.publish(publisher, "t", 0, "x");
    assert_eq!(site.0.out.frames, 2);
    subscribers.iter().for_each(|conn| assert_eq!(site.got(*conn), ["PUBLISH t q0 x"]));
    // Payloads are shared where heads differ.
    let other: Vec<ConnId> = (0..3).map(|n| site.plain(V5, &format!("o{n}"))).collect();
    other.iter().for_each(|conn| site.subscribe(*conn, "u", 1));
    let before = site.0.out.framed_bytes();
    site.publish(publisher, "u", 1, &"y".repeat(600));
    assert_eq!(site.0.out.framed_bytes() - before, 600);
    other
        .iter()
        .for_each(|conn| assert_eq!(site.got(*conn), [format!("PUBLISH u q1 #1 {}", "y".repeat(600))]));
}

#[test]
fn a_connection_that_is_slow_gets_messages_of_qos_1_later() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.subscribe(subscriber, "t", 1);
    site.0.out.slow.insert(subscriber);
    site.publish(publisher, "t", 1, &"y".repeat(600));
    site.publish(publisher, "t", 0, "lost");
    assert!(site.got(subscriber).is_empty());
    site.0.out.slow.clear();
    site.0.out.queued = 1 << 20;
    site.publish(publisher, "t", 1, "z");
    assert!(site.got(subscriber).is_empty());
    site.0.out.queued = 0;
    site.0.with(|protocol, cx| protocol.on_drained(subscriber, cx));
    let got = site.got(subscriber);
    assert_eq!((got.len(), got[1].as_str()), (2, "PUBLISH t q1 #2 z"));
    assert!(got[0].starts_with("PUBLISH t q1 dup #1 y"));
}

#[test]
fn packet_ids_in_use_are_not_given_again() {
    let mut session = Session::new(1, "".into(), Held::default());
    let stored = Stored::new("t".parse().unwrap(), &[], &[]);
    let message = Arc::new(stored);
    let pending = Pending { message, qos: 1, retain: false, for_new: false, ids: Box::default() };
    let (kept, also) = (session.begin(pending.clone()), session.begin(pending.clone()));
    assert_eq!((kept, also), (1, 2));
    let mut last = also;
    for _ in 0..3 * u32::from(u16::MAX) {
        let id = session.begin(pending.clone());
        assert_eq!(id, last.checked_add(1).unwrap_or(3));
        session.finish(id);
        last = id;
    }
}
