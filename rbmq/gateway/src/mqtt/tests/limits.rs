//! Bad input and floods: the right reason, and the others go on.

use std::sync::atomic::Ordering;

use super::*;
use crate::mqtt::Overflow;
use crate::mqtt::message::Stored;
use crate::mqtt::retained::Retained;
use crate::protocol::{FilterCount, Taken};

#[test]
fn bad_bytes_end_their_connection_alone() {
    let mut site = Site::new();
    let other = site.plain(V5, "other");
    let cases: [(&[u8], &str); 12] = [
        (&[0x00, 0], "81"),
        (&[0xF1, 0], "81"),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1], "81"),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], "95"),
        (&[0x32, 6, 0, 1, b't', 0, 0, 0], "82"),
        (&[0x30, 4, 0, 1, 0, 0], "81"),
        (&[0x30, 3, 0, 0, 0], "82"),
        (&[0x20, 3, 0, 0, 0], "82"),
        (&[0xD0, 0], "82"),
        (&[0x82, 3, 0, 1, 0], "82"),
        (&[0x30, 6, 0, 1, b't', 2, 0x0B, 1], "82"),
        (&[0x30, 8, 0, 1, b't', 4, 0x08, 0, 1, b'#'], "82"),
    ];
    for (bytes, reason) in cases {
        let conn = site.plain(V5, "bad");
        site.0.feed(conn, bytes);
        assert_eq!(site.got(conn), [format!("DISCONNECT {reason}")], "{bytes:x?}");
        assert!(site.is_closed(conn));
        site.send(other, Packet::Pingreq);
        assert_eq!(site.got(other), ["PINGRESP"]);
    }
    let conn = site.plain(V311, "bad");
    site.0.feed(conn, [0x00, 0]);
    assert!(site.is_closed(conn) && site.got(conn).is_empty());
}

#[test]
fn the_first_packet_is_small() {
    let mut site = Site::new();
    let conn = site.0.open();
    site.0.feed(conn, [0x10, 0x80, 0x80, 0x08]);
    assert!(site.is_closed(conn));
}

#[test]
fn packets_cross_reads() {
    let mut site = Site::new();
    let conn = site.plain(V5, "a");
    let mut bytes = Vec::new();
    for _ in 0..3 {
        Packet::Publish(message("t", 1, "x")).put(V5, &mut bytes);
    }
    bytes.iter().for_each(|byte| site.0.feed(conn, [*byte]));
    assert_eq!(site.got(conn), ["PUBACK #5 00"; 3]);
}

#[test]
fn ids_of_qos_2_are_bounded() {
    let mut site = Site::with(Settings { receive_maximum: 3, ..Settings::default() });
    for version in [V5, V311] {
        let conn = site.plain(version, "a");
        for packet_id in 1..=4 {
            site.publish_with(conn, Publish { packet_id, ..message("t", 2, "x") }, &[]);
        }
        let got = site.got(conn);
        assert_eq!(got[..3], ["PUBREC #1 00", "PUBREC #2 00", "PUBREC #3 00"]);
        assert_eq!(got[3..], if version == V5 { vec!["DISCONNECT 93"] } else { vec![] });
        assert!(site.is_closed(conn));
    }
}

#[test]
fn sessions_and_subscriptions_are_bounded() {
    let mut site = Site::with(Settings { max_sessions: 2, max_subscriptions: 2, ..Settings::default() });
    let conn = site.plain(V5, "a");
    assert_eq!(site.subscribe_with(conn, 0, &[("1", 0), ("2", 0)]), ["SUBACK #9 00 00"]);
    assert_eq!(site.subscribe_with(conn, 0, &[("3", 0), ("2", 1)]), ["SUBACK #9 97 01"]);
    site.plain(V5, "b");
    for (version, expected) in [(V5, "CONNACK 97"), (V311, "CONNACK 03")] {
        let conn = site.hello(Hello::lasting(version, "c"));
        assert_eq!(site.got(conn), [expected]);
    }
    site.plain(V5, "a");
    assert_eq!(site.0.protocol.sessions.len(), 2);
    // A session that ends with its connection is bounded like connections.
    let conn = site.plain(V5, "d");
    assert_eq!(site.0.protocol.sessions.len(), 3);
    site.lose(conn);
    assert_eq!(site.0.protocol.sessions.len(), 2);
}

#[test]
fn filters_count_for_the_quotas_of_their_client() {
    let mut site = Site::new();
    site.0.door.most_filters = Some(FilterCount { all: 3, patterns: 1 });
    let conn = site.client(Hello::lasting(V5, "a"));
    assert_eq!(site.subscribe_with(conn, 0, &[("a", 0), ("b/+", 0), ("c/#", 0)]), ["SUBACK #9 00 00 97"]);
    // The same filters are no new ones.
    assert_eq!(
        site.subscribe_with(conn, 0, &[("a", 1), ("b/+", 1), ("$share/g/c", 0)]),
        ["SUBACK #9 01 01 00"]
    );
    assert_eq!(site.subscribe_with(conn, 0, &[("d", 1)]), ["SUBACK #9 97"]);
    let filters = |site: &Site, conn| site.0.door.filters.get(&conn).copied().unwrap_or_default();
    assert_eq!(filters(&site, conn), FilterCount { all: 3, patterns: 1 });
    site.send(conn, unsubscribe(&filters_of(&["b/+"])));
    site.got(conn);
    assert_eq!(filters(&site, conn), FilterCount { all: 2, patterns: 0 });
    assert_eq!(site.subscribe_with(conn, 0, &[("d/#", 1)]), ["SUBACK #9 01"]);
    // Those of a session count for its next connection, from the moment at which the former one has lost it.
    let next = site.client(Hello::lasting(V5, "a"));
    assert_eq!(filters(&site, conn), FilterCount::default());
    assert_eq!(filters(&site, next), FilterCount { all: 3, patterns: 1 });
    site.lose(next);
    // Where that may have fewer, the session does not come back.
    site.0.door.most_filters = Some(FilterCount { all: 1, patterns: 1 });
    for (version, expected) in [(V5, "CONNACK 97"), (V311, "CONNACK 03")] {
        let conn = site.hello(Hello { version, ..Hello::lasting(V5, "a") });
        assert_eq!(site.got(conn), [expected]);
        assert!(site.is_closed(conn));
        assert_eq!(filters(&site, conn), FilterCount::default());
    }
    let conn = site.client(Hello { clean: true, ..Hello::lasting(V5, "a") });
    assert_eq!(filters(&site, conn), FilterCount::default());
    let old = site.client(Hello::new(V311, "b"));
    assert_eq!(site.subscribe_with(old, 0, &[("a", 0), ("b", 0)]), ["SUBACK #9 00 80"]);
}

fn filters_of(filters: &[&str]) -> Vec<u8> {
    let one = |filter: &&str| [&(filter.len() as u16).to_be_bytes(), filter.as_bytes()].concat();
    filters.iter().flat_map(one).collect()
}

fn unsubscribe(filters: &[u8]) -> Packet<'_> {
    let filters = Filters::of_unsubscribe(filters);
    Packet::Unsubscribe(Request { packet_id: 9, properties: Properties::default(), filters })
}

#[test]
fn a_flood_of_sessions_ends_those_that_are_away_for_the_longest_time() {
    let mut site = Site::with(Settings { max_sessions: 3, ..Settings::default() });
    let mut come = |id: &str| {
        let conn = site.hello(Hello::lasting(V5, id));
        let got = site.got(conn);
        site.lose(conn);
        got[0].contains(" present")
    };
    let ids = ["1", "2", "3", "1", "4", "1", "3", "2", "1"];
    let present = [false, false, false, true, false, true, true, false, true];
    assert_eq!(ids.map(&mut come), present);
    assert_eq!((site.0.protocol.sessions.len(), site.0.protocol.away.len()), (3, 3));
    let connected = site.plain(V5, "5");
    let others = ["6", "7"].map(|id| site.client(Hello::lasting(V5, id)));
    assert!(site.0.protocol.away.is_empty());
    let refused = site.hello(Hello::lasting(V5, "8"));
    assert_eq!(site.got(refused), ["CONNACK 97"]);
    assert!(![connected, others[0], others[1]].iter().any(|conn| site.is_closed(*conn)));
}

#[test]
fn a_subscribe_has_few_filters_and_serves_each_once() {
    let mut site = Site::with(Settings { max_subscriptions: 4, ..Settings::default() });
    let conn = site.plain(V5, "a");
    site.publish_with(conn, Publish { retain: true, ..message("t", 1, "x") }, &[]);
    site.got(conn);
    let filters = [("#", 0), ("t", 0), ("#", 0), ("#", 1), ("u", 0), ("t", 0)];
    let expected = ["SUBACK #9 00 00 00 01 97 97", "PUBLISH t q1 retain #1 x", "PUBLISH t q0 retain x"];
    assert_eq!(site.subscribe_with(conn, 0, &filters), expected);
    let deep = "+/".repeat(31);
    let filters =
        [(&*format!("{deep}#"), 0), (&*format!("{deep}+/#"), 0), (&*deep.replace('+', "a").repeat(2), 0)];
    assert_eq!(site.subscribe_with(conn, 0, &filters)[0], "SUBACK #9 00 8f 00");
}

#[test]
fn a_subscribe_that_costs_much_is_executed_in_pieces() {
    let mut site = Site::new();
    let (conn, late) = (site.plain(V5, "a"), site.plain(V5, "b"));
    for number in 0..6000 {
        let topic = format!("t/{number}").parse().unwrap();
        let message = Stored::new(topic, &[], &[]);
        site.0.protocol.retained.put(Retained { message: message.into(), qos: 0 });
    }
    let filters: Vec<u8> = (b'a'..=b'e').flat_map(|level| [0, 3, b'+', b'/', level, 0]).collect();
    let request =
        Request { packet_id: 9, properties: Properties::default(), filters: Filters::of_subscribe(&filters) };
    let bytes = Packet::Subscribe(request).encode(V5);
    let mut feed = |conn| site.0.with(|machine, cx| machine.on_bytes(conn, &bytes, cx));
    let taken = [Taken::Later(0), Taken::Later(0), Taken::Bytes(bytes.len())];
    assert_eq!([(); 3].map(|()| feed(conn)), taken);
    assert_eq!(site.got(conn), ["SUBACK #9 00 00 00 00 00"]);
    // The same when the filters are in force only later.
    site.disconnect(conn, 0, &[]);
    site.0.bus.is_late = true;
    let mut feed = |conn| site.0.with(|machine, cx| machine.on_bytes(conn, &bytes, cx));
    assert_eq!(feed(late), Taken::Blocked(0));
    site.0.subscribed();
    let mut feed = |conn| site.0.with(|machine, cx| machine.on_bytes(conn, &bytes, cx));
    assert_eq!([(); 2].map(|()| feed(late)), [Taken::Later(0), Taken::Bytes(bytes.len())]);
    assert_eq!(site.got(late), ["SUBACK #9 00 00 00 00 00"]);
}

#[test]
fn the_queue_of_a_session_is_bounded() {
    let mut site = Site::with(Settings { max_queued_messages: 2, ..Settings::default() });
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(Hello::lasting(V311, "s")));
    site.subscribe(subscriber, "t", 1);
    site.lose(subscriber);
    for payload in ["1", "2", "3", "4"] {
        site.publish(publisher, "t", 1, payload);
    }
    assert_eq!(site.0.protocol.counts.dropped, 2);
    let subscriber = site.hello(Hello::lasting(V311, "s"));
    assert_eq!(site.got(subscriber)[1..], ["PUBLISH t q1 #1 1", "PUBLISH t q1 #2 2"]);
    let mut site = Site::with(Settings { max_queued_bytes: 100, ..Settings::default() });
    let (publisher, subscriber) = (site.plain(V5, "p"), site.client(Hello::lasting(V5, "s")));
    site.subscribe(subscriber, "t", 1);
    site.lose(subscriber);
    for len in [60, 60, 200, 10] {
        site.publish(publisher, "t", 1, &"x".repeat(len));
    }
    let session =
        site.0.protocol.sessions.iter().map(|(_, s)| (s.waiting(), s.queued_bytes)).find(|s| s.0 > 0);
    assert!(session.is_some_and(|(waiting, bytes)| waiting == 2 && bytes <= 100), "{session:?}");
}

#[test]
fn what_all_sessions_hold_is_bounded() {
    let mut site = Site::with(Settings { max_session_bytes: 100_000, ..Settings::default() });
    let publisher = site.plain(V5, "p");
    let leave = |site: &mut Site, id: &str, topic: &str| {
        let conn = site.client(Hello::lasting(V5, id));
        site.subscribe(conn, topic, 1);
        site.lose(conn);
    };
    leave(&mut site, "small", "s");
    leave(&mut site, "large", "l");
    site.publish(publisher, "s", 1, "small");
    let large = "x".repeat(30_000);
    let held = |site: &Site| site.0.protocol.held.load(Ordering::Relaxed);
    for _ in 0..5 {
        site.publish(publisher, "l", 1, &large);
        assert!(held(&site) <= 100_000);
    }
    // The largest session has ended for the fourth message, and nobody misses the fifth.
    assert_eq!((site.0.protocol.counts.dropped, site.0.protocol.sessions.len()), (1, 2));
    let conn = site.hello(Hello::lasting(V5, "small"));
    assert_eq!(site.got(conn)[1..], ["PUBLISH s q1 #1 small"]);
    // A will counts too: sessions that are away make room for new ones.
    site.lose(conn);
    for n in 0..20 {
        let payload = &*large;
        let properties = encode_all(&[Property::WillDelay(3000)]);
        let (topic, properties) = ("w", Properties::new(&properties));
        let will = Will { qos: 1, retain: false, properties, topic, payload: payload.as_bytes() };
        let conn = site.client(Hello { will: Some(will), ..Hello::lasting(V5, &format!("w{n}")) });
        site.lose(conn);
        assert!(held(&site) <= 100_000 + 2 * large.len());
    }
}

#[test]
fn what_clients_get_and_lose_and_break_is_counted_once() {
    let mut site = Site::with(Settings { max_queued_messages: 1, max_inflight: 1, ..Settings::default() });
    let (publisher, plain) = (site.plain(V5, "p"), site.plain(V5, "o"));
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.subscribe(plain, "t", 0);
    site.subscribe(subscriber, "t", 1);
    for payload in ["1", "2", "3"] {
        site.publish(publisher, "t", 1, payload);
    }
    // Three of QoS 0 and the first of QoS 1; the second waits, and the third has no room.
    assert_eq!(site.0.out.counted, [4, 1, 0]);
    site.lose(subscriber);
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    // The first came again, which is the same message.
    assert_eq!(site.0.out.counted, [4, 1, 0]);
    site.ack(subscriber, AckKind::Puback, 1, 0);
    assert_eq!(site.0.out.counted, [5, 1, 0]);
    site.0.feed(publisher, [0xF1, 0]);
    site.hello(Hello::new(V5, "s"));
    assert_eq!(site.0.out.counted, [5, 1, 1]);
}

#[test]
fn a_client_whose_queue_is_full_can_be_disconnected() {
    let overflow = Overflow::Disconnect;
    let mut site =
        Site::with(Settings { max_queued_messages: 2, max_inflight: 1, overflow, ..Settings::default() });
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    let other = site.plain(V5, "o");
    site.subscribe(subscriber, "t", 1);
    site.subscribe(other, "t", 0);
    for payload in ["1", "2", "3", "4", "5"] {
        site.publish(publisher, "t", 1, payload);
    }
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #1 1", "DISCONNECT 97"]);
    assert_eq!(site.got(other).len(), 5);
}

#[test]
fn a_packet_larger_than_the_client_takes_is_not_sent_and_nothing_waits_for_it() {
    let mut site = Site::new();
    let publisher = site.plain(V5, "p");
    let small = [Property::MaximumPacketSize(50), Property::SessionExpiry(1000)];
    let hello = Hello { properties: &small, clean: false, ..Hello::new(V5, "s") };
    let subscriber = site.client(hello);
    site.subscribe(subscriber, "t", 1);
    let large = "x".repeat(100);
    for qos in [0, 1] {
        site.publish(publisher, "t", qos, &large);
    }
    site.publish(publisher, "t", 1, "small");
    assert_eq!(site.got(subscriber), ["PUBLISH t q1 #2 small"]);
    site.ack(subscriber, AckKind::Puback, 2, 0);
    site.lose(subscriber);
    site.publish(publisher, "t", 1, &large);
    site.publish(publisher, "t", 1, "more");
    let subscriber = site.hello(hello);
    assert_eq!(site.got(subscriber)[1..], ["PUBLISH t q1 #4 more"]);
}

#[test]
fn everything_is_gone_when_all_have_left() {
    let mut site = Site::new();
    let hello = Hello { keep_alive: 10, ..Hello::lasting(V5, "a") };
    for _ in 0..3 {
        let conn = site.client(hello);
        site.subscribe_with(conn, 1, &[("t", 1), ("$SYS/#", 0), ("u/#", 2)]);
        site.publish(conn, "t", 1, "x");
        site.lose(conn);
        site.pass(2000);
    }
    let machine = &site.0.protocol;
    assert!(machine.clients.is_empty() && machine.sessions.is_empty() && machine.names.is_empty());
    assert!(
        machine.routes.is_empty()
            && machine.away.is_empty()
            && machine.alarms.is_empty()
            && machine.stalled.is_empty()
    );
    assert_eq!(machine.own_routes, 0);
    assert!(site.0.bus.filters.is_empty());
}
