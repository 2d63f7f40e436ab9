//! Subscriptions and which messages they get.

use rbmq_wire::AttributesBuf;

use super::super::message::{Origin, Publication, attributes_of};
use super::*;
use crate::double::MemoryUser;
use crate::protocol::PublishError;

/// The bits of subscription options beside the QoS.
const NO_LOCAL: u8 = 4;
const AS_PUBLISHED: u8 = 8;

#[test]
fn suback_goes_out_when_messages_arrive() {
    let mut site = Site::new();
    let conn = site.plain(V5, "a");
    site.0.bus.is_late = true;
    assert!(site.subscribe_with(conn, 0, &[("t", 0), ("u", 1)]).is_empty());
    site.0.feed(conn, Packet::Pingreq.encode(V5));
    assert!(site.0.is_blocked(conn));
    let other = site.plain(V5, "b");
    assert!(site.subscribe_with(other, 0, &[("t", 2)]).is_empty());
    site.0.subscribed();
    assert_eq!(site.got(conn), ["SUBACK #9 00 01", "PINGRESP"]);
    assert_eq!(site.got(other), ["SUBACK #9 02"]);
    let third = site.plain(V5, "c");
    assert_eq!(site.subscribe_with(third, 0, &[("t", 2)]), ["SUBACK #9 02"]);
}

/// A broker in another process refuses a filter: its subscribers are told so, and others keep what they have.
#[test]
fn suback_says_what_the_broker_refuses() {
    for (version, is_limit, reason) in [(V5, false, "87"), (V5, true, "97"), (V311, false, "80")] {
        let mut site = Site::new();
        let (conn, other) = (site.plain(version, "a"), site.plain(version, "b"));
        site.subscribe(conn, "mine", 0);
        site.0.bus.is_late = true;
        assert!(
            site.subscribe_with(conn, 0, &[("mine", 1), ("t", 0), ("$share/g/t", 1), ("t", 2)]).is_empty()
        );
        assert!(site.subscribe_with(other, 0, &[("t", 2)]).is_empty());
        site.0.not_subscribed(is_limit);
        assert_eq!(site.got(conn), [format!("SUBACK #9 01 {reason} {reason} {reason}")]);
        assert_eq!(site.got(other), [format!("SUBACK #9 {reason}")]);
        assert_eq!(site.0.bus.filters.len(), 1, "{:?}", site.0.bus.filters);
        // It is asked for again.
        site.0.bus.is_late = false;
        assert_eq!(site.subscribe_with(other, 0, &[("t", 2)]), ["SUBACK #9 02"]);
    }
}

/// The session of a client that has left before its SUBACK keeps the filter.
#[test]
fn what_was_refused_to_a_session_is_asked_for_again_for_others() {
    let mut site = Site::new();
    let gone = site.client(Hello::lasting(V5, "gone"));
    site.0.bus.is_late = true;
    assert!(site.subscribe_with(gone, 0, &[("t", 1)]).is_empty());
    site.lose(gone);
    site.0.not_subscribed(false);
    let other = site.plain(V5, "a");
    assert!(site.subscribe_with(other, 0, &[("t", 1)]).is_empty());
    site.0.not_subscribed(false);
    assert_eq!(site.got(other), ["SUBACK #9 87"]);
    assert!(site.subscribe_with(other, 0, &[("t", 1)]).is_empty());
    site.0.subscribed();
    assert_eq!(site.got(other), ["SUBACK #9 01"]);
    let last = site.plain(V5, "b");
    assert_eq!(site.subscribe_with(last, 0, &[("t", 1)]), ["SUBACK #9 01"]);
    assert_eq!(site.0.bus.filters[&"t".parse().unwrap()], 1);
}

#[test]
fn a_client_that_leaves_before_its_suback_leaves_nothing_behind() {
    let mut site = Site::new();
    let conn = site.plain(V5, "a");
    site.0.bus.is_late = true;
    site.subscribe_with(conn, 0, &[("t", 0)]);
    site.lose(conn);
    site.0.subscribed();
    assert!(site.0.bus.filters.is_empty() && site.0.protocol.routes.is_empty());
}

#[test]
fn a_filter_is_subscribed_once_however_many_clients_want_it() {
    let mut site = Site::new();
    let (a, b) = (site.plain(V5, "a"), site.plain(V5, "b"));
    for conn in [a, b, a] {
        site.subscribe(conn, "t/+", 0);
    }
    assert_eq!(site.0.bus.filters[&"t/+".parse().unwrap()], 1);
    for (conn, expected) in [(a, "UNSUBACK #9 00 11"), (b, "UNSUBACK #9 00 11")] {
        let bytes = [0, 3, b't', b'/', b'+', 0, 1, b'x'];
        let request = Request {
            packet_id: 9,
            properties: Properties::default(),
            filters: Filters::of_unsubscribe(&bytes),
        };
        site.send(conn, Packet::Unsubscribe(request));
        assert_eq!(site.got(conn), [expected]);
    }
    assert!(site.0.bus.filters.is_empty());
}

#[test]
fn overlapping_filters_give_one_message_with_the_highest_qos_and_all_ids() {
    let mut site = Site::new();
    let (publisher, five, three) = (site.plain(V5, "p"), site.plain(V5, "s"), site.plain(V311, "o"));
    site.subscribe_with(five, 1, &[("t/#", 0)]);
    site.subscribe_with(five, 22, &[("t/+", 2)]);
    site.subscribe_with(five, 300, &[("t/x", 1)]);
    site.subscribe_with(three, 0, &[("t/#", 0), ("t/x", 1)]);
    site.publish(publisher, "t/x", 1, "m");
    let got = site.got(five);
    assert_eq!(got.len(), 1);
    assert!(got[0].starts_with("PUBLISH t/x q1 #1 m"));
    for id in [1, 22, 300] {
        assert!(got[0].contains(&format!("SubscriptionId({id})")), "{got:?}");
    }
    assert_eq!(site.got(three), ["PUBLISH t/x q1 #1 m"]);
}

#[test]
fn an_id_travels_with_small_and_large_messages_of_qos_0() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.subscribe_with(subscriber, 7, &[("t", 0)]);
    for payload in ["x".to_owned(), "y".repeat(5000)] {
        site.publish(publisher, "t", 0, &payload);
        assert_eq!(site.got(subscriber), [format!("PUBLISH t q0 {payload} SubscriptionId(7)")]);
    }
    // However many have an id, the log of frames gets the payload alone, once.
    for id in ["1", "2", "3"] {
        let other = site.plain(V5, id);
        site.subscribe_with(other, 9, &[("t", 0)]);
    }
    let before = (site.0.out.frames, site.0.out.framed_bytes());
    site.publish(publisher, "t", 0, "small");
    assert_eq!((site.0.out.frames, site.0.out.framed_bytes()), (before.0 + 1, before.1 + 5));
    site.got(subscriber);
    site.subscribe_with(subscriber, 8, &[("t", 0)]);
    site.publish(publisher, "t", 0, "x");
    assert_eq!(site.got(subscriber), ["PUBLISH t q0 x SubscriptionId(8)"]);
}

#[test]
fn no_local_leaves_out_own_messages_alone() {
    let mut site = Site::new();
    let (a, b) = (site.plain(V5, "a"), site.plain(V5, "b"));
    site.subscribe(a, "t", NO_LOCAL);
    site.subscribe(b, "t", 0);
    site.publish(a, "t", 0, "from a");
    site.publish(b, "t", 0, "from b");
    assert_eq!(site.got(a), ["PUBLISH t q0 from b"]);
    assert_eq!(site.got(b), ["PUBLISH t q0 from a", "PUBLISH t q0 from b"]);
    site.subscribe(a, "t/#", 0);
    site.publish(a, "t", 0, "again");
    assert_eq!(site.got(a), ["PUBLISH t q0 again"]);
}

#[test]
fn retain_as_published_holds_also_for_messages_that_waited() {
    let mut site = Site::new();
    let publisher = site.plain(V5, "p");
    let as_published = site.client(Hello::lasting(V5, "a"));
    let plain = site.client(Hello::lasting(V5, "b"));
    site.subscribe(as_published, "t", 1 | AS_PUBLISHED);
    site.subscribe(plain, "t", 1);
    let retained = Publish { retain: true, ..message("t", 1, "x") };
    for online in [true, false] {
        if !online {
            site.lose(as_published);
            site.lose(plain);
        }
        site.publish_with(publisher, retained, &[]);
        let (a, b) = match online {
            true => (as_published, plain),
            false => (site.hello(Hello::lasting(V5, "a")), site.hello(Hello::lasting(V5, "b"))),
        };
        assert!(site.got(a).last().unwrap().contains(" retain #"));
        assert!(!site.got(b).last().unwrap().contains(" retain "));
    }
}

#[test]
fn bad_filters_and_long_names_are_refused_one_by_one() {
    let mut site = Site::new();
    let (five, three) = (site.plain(V5, "a"), site.plain(V311, "b"));
    let long = "x".repeat(256);
    let filters = [("a/#/b", 0), ("a+", 0), ("", 0), (&long[..], 0), ("good", 1)];
    assert_eq!(site.subscribe_with(five, 0, &filters), ["SUBACK #9 8f 8f 8f 8f 01"]);
    assert_eq!(site.subscribe_with(three, 0, &filters), ["SUBACK #9 80 80 80 80 01"]);
    site.publish(five, &long, 1, "x");
    assert_eq!(site.got(five), ["PUBACK #5 90"]);
    site.publish(five, "a\u{1}b", 2, "x");
    assert_eq!(site.got(five), ["PUBREC #5 90"]);
    site.publish(five, &long, 0, "x");
    assert_eq!(site.got(five), ["DISCONNECT 90"]);
    site.publish(three, &long, 1, "x");
    assert!(site.is_closed(three) && site.got(three).is_empty());
}

#[test]
fn rights_are_told_to_5_and_counted_for_3_1_1() {
    let mut site = Site::new();
    let all = "#".parse().unwrap();
    site.0.door.users = vec![
        MemoryUser {
            name: "ann",
            secret: "pw",
            is_token: false,
            publish: "a/#".parse().unwrap(),
            subscribe: "a/#".parse().unwrap(),
        },
        MemoryUser {
            name: "root",
            secret: "pw",
            is_token: false,
            publish: all,
            subscribe: "#".parse().unwrap(),
        },
    ];
    let login = Some(("ann", "pw"));
    let five = site.client(Hello { login, ..Hello::new(V5, "a") });
    let three = site.client(Hello { login, ..Hello::new(V311, "b") });
    let root = site.client(Hello { login: Some(("root", "pw")), ..Hello::new(V5, "c") });
    assert_eq!(site.subscribe_with(five, 0, &[("b", 0), ("#", 0)]), ["SUBACK #9 87 00"]);
    assert_eq!(site.subscribe_with(three, 0, &[("b", 0), ("a/b", 0)]), ["SUBACK #9 80 00"]);
    site.publish(five, "b", 1, "x");
    site.publish(five, "b", 2, "x");
    assert_eq!(site.got(five), ["PUBACK #5 87", "PUBREC #5 87"]);
    site.publish(five, "b", 0, "x");
    assert!(site.got(five).is_empty() && !site.is_closed(five));
    site.publish(three, "b", 1, "x");
    assert_eq!(site.got(three), ["PUBACK #5 00"]);
    assert_eq!(site.0.protocol.counts.refused, 4);
    assert!(site.0.bus.published.is_empty());
    // Of a filter with wildcards, messages of other topics are withheld.
    site.publish(root, "a/x", 0, "yes");
    site.publish(root, "b", 0, "no");
    assert_eq!(site.got(five), ["PUBLISH a/x q0 yes"]);
}

#[test]
fn topics_that_begin_with_a_dollar_match_no_wildcard_and_belong_to_the_broker() {
    let mut site = Site::new();
    let conn = site.plain(V5, "a");
    site.subscribe(conn, "#", 0);
    site.subscribe(conn, "+/broker/uptime", 0);
    let three = site.plain(V311, "b");
    site.publish(three, "$SYS/broker/uptime", 1, "x");
    assert_eq!(site.got(three), ["PUBACK #5 00"]);
    site.publish(conn, "$foo/bar", 1, "x");
    assert_eq!(site.got(conn), ["PUBACK #5 87"]);
    let filters = [("$space", 0), ("$foo/#", 1), ("$+", 0), ("$SYS/#", 0)];
    assert_eq!(site.subscribe_with(conn, 0, &filters)[0], "SUBACK #9 87 87 8f 00");
    assert_eq!(site.subscribe_with(three, 0, &filters)[0], "SUBACK #9 80 80 80 00");
    assert_eq!(site.0.bus.filters.len(), 2);
}

#[test]
fn the_gateway_tells_of_itself_in_sys() {
    let mut site = Site::new();
    let conn = site.plain(V5, "a");
    let got = site.subscribe_with(conn, 0, &[("$SYS/broker/clients/+", 0)]);
    assert_eq!(got.len(), 5);
    assert!(got.contains(&"PUBLISH $SYS/broker/clients/connected q0 retain 1".to_owned()), "{got:?}");
    assert!(site.0.bus.filters.is_empty());
    site.plain(V5, "b");
    site.pass(10);
    let got = site.got(conn);
    assert!(got.contains(&"PUBLISH $SYS/broker/clients/connected q0 2".to_owned()), "{got:?}");
    let got = site.subscribe_with(conn, 0, &[("$SYS/#", 0)]);
    assert!(got.len() > 12);
}

#[test]
fn aliases_stand_for_topics_until_the_connection_ends() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.client(Hello::lasting(V5, "p")), site.plain(V5, "s"));
    site.subscribe(subscriber, "#", 0);
    let alias = [Property::TopicAlias(3)];
    site.publish_with(publisher, message("long/name", 0, "1"), &alias);
    site.publish_with(publisher, message("", 0, "2"), &alias);
    site.publish_with(publisher, message("other", 0, "3"), &alias);
    site.publish_with(publisher, message("", 0, "4"), &alias);
    let got = site.got(subscriber);
    assert_eq!(
        got,
        ["PUBLISH long/name q0 1", "PUBLISH long/name q0 2", "PUBLISH other q0 3", "PUBLISH other q0 4"]
    );
    site.lose(publisher);
    let publisher = site.client(Hello::lasting(V5, "p"));
    site.publish_with(publisher, message("", 0, "5"), &alias);
    assert_eq!(site.got(publisher), ["DISCONNECT 82"]);
    for number in [0, 101] {
        let publisher = site.plain(V5, "q");
        site.publish_with(publisher, message("t", 0, "6"), &[Property::TopicAlias(number)]);
        assert_eq!(site.got(publisher), ["DISCONNECT 94"]);
    }
}

#[test]
fn messages_of_natives_are_qos_0_and_carry_what_their_attributes_say() {
    let mut site = Site::new();
    let (five, three) = (site.plain(V5, "a"), site.plain(V311, "b"));
    site.subscribe(five, "t", 2);
    site.subscribe(three, "t", 2);
    site.0.arrive("t", &[], b"plain");
    assert_eq!(
        (site.got(five), site.got(three)),
        (vec!["PUBLISH t q0 plain".to_owned()], vec!["PUBLISH t q0 plain".to_owned()])
    );
    let mut attributes = AttributesBuf::new();
    attributes
        .qos(1)
        .unwrap()
        .content_type("a\0b")
        .unwrap()
        .reply_to("r/#")
        .unwrap()
        .property("k", "v")
        .unwrap();
    attributes.key(b"key").unwrap().time_ms(1).unwrap();
    site.0.arrive("t", attributes.as_bytes(), b"x");
    assert_eq!(site.got(five), ["PUBLISH t q1 #1 x User(\"k\", \"v\")"]);
    // Bytes that are no attributes do no harm.
    site.0.arrive("t", &[1, 2, 3, 4, 5, 6, 7], b"y");
    assert_eq!(site.got(five), ["PUBLISH t q0 y"]);
}

#[test]
fn a_refusal_of_the_broker_is_told() {
    let mut site = Site::new();
    let (five, three) = (site.plain(V5, "a"), site.plain(V311, "b"));
    site.0.bus.refusal = Some(PublishError::Refused("no such thing".into()));
    site.publish(five, "t", 1, "x");
    site.publish(three, "t", 1, "x");
    assert_eq!(site.got(five), ["PUBACK #5 83"]);
    assert!(site.is_closed(three) && site.got(three).is_empty());
    site.0.bus.refusal = Some(PublishError::TooLarge { most: 1 });
    site.publish(five, "t", 2, "x");
    assert_eq!(site.got(five), ["PUBREC #5 97"]);
}

/// An acknowledgement of 3.1.1 has no word for it, and the client would forget the message.
#[test]
fn a_refused_message_of_3_1_1_is_not_acknowledged_and_comes_again() {
    for refusal in [PublishError::Refused("no such thing".into()), PublishError::TooLarge { most: 1 }] {
        for qos in [1, 2] {
            let mut site = Site::new();
            let (subscriber, lasting) = (site.plain(V5, "s"), Hello::lasting(V311, "p"));
            site.subscribe(subscriber, "t", 0);
            let publisher = site.client(lasting);
            site.0.bus.refusal = Some(refusal.clone());
            site.publish(publisher, "t", qos, "x");
            assert!(site.is_closed(publisher) && site.got(publisher).is_empty(), "{refusal:?}");
            assert_eq!((site.0.protocol.counts.refused, site.0.out.counted[2]), (1, 0));
            site.lose(publisher);
            site.0.bus.refusal = None;
            let publisher = site.hello(lasting);
            site.got(publisher);
            site.publish_with(publisher, Publish { dup: true, ..message("t", qos, "x") }, &[]);
            let expected = if qos == 1 { "PUBACK #5 00" } else { "PUBREC #5 00" };
            assert_eq!(site.got(publisher), [expected]);
            assert_eq!(site.got(subscriber), ["PUBLISH t q0 x"], "it was published once");
        }
    }
}

/// Publishers of RBMQ read and write all attributes, also those by which a gateway knows its own messages.
#[test]
fn an_origin_that_others_write_hides_nothing() {
    let mut site = Site::new();
    let client = site.plain(V5, "a");
    site.subscribe(client, "#", NO_LOCAL);
    let machine = &site.0.protocol;
    let (_, session) = machine.sessions.iter().next().expect("a session");
    let origin = machine.origin(session.serial, &"t".parse().expect("a topic"), false, 0);
    let attributes = |origin| {
        let mut bytes = Vec::new();
        let publication =
            Publication { qos: 0, retain: false, origin: Some(origin), ticket: None, unix_ms: 0 };
        attributes_of(Properties::default(), publication, &mut bytes).expect("short ones");
        bytes
    };
    site.0.arrive("t", &attributes(origin), b"own");
    site.0.arrive("u", &attributes(origin), b"copied");
    site.0.arrive("t", &attributes(Origin { number: 1, ..origin }), b"changed");
    site.0.arrive("t", &attributes(Origin { mark: 7, ..origin }), b"guessed");
    let expected = ["PUBLISH u q0 copied", "PUBLISH t q0 changed", "PUBLISH t q0 guessed"];
    assert_eq!(site.got(client), expected);
}
