//! Beginnings and ends of connections.

use super::*;
use crate::double::MemoryUser;

#[test]
fn connack_says_what_there_is() {
    let mut site = Site::new();
    let conn = site.hello(Hello::new(V5, "a"));
    let expected = "CONNACK 00 ReceiveMaximum(1000) RetainAvailable(true) MaximumPacketSize(1114112) \
                    TopicAliasMaximum(100) WildcardAvailable(true) SubscriptionIdAvailable(true) SharedAvailable(true)";
    assert_eq!(site.got(conn), [expected]);
    let conn = site.hello(Hello::new(V311, "b"));
    assert_eq!(site.got(conn), ["CONNACK 00"]);
    assert!(site.0.out.known.contains(&conn));
}

#[test]
fn a_client_without_id_gets_one() {
    let mut site = Site::new();
    let conn = site.hello(Hello::new(V5, ""));
    let got = site.got(conn);
    assert!(got[0].contains("AssignedClientId(\"rbmq-") && got[0].contains("-1\")"), "{got:?}");
    // It does not say by which number the gateway knows its own messages.
    assert!(!got[0].contains("0000000000000007"), "{got:?}");
    site.plain(V311, "");
    let conn = site.hello(Hello { clean: false, ..Hello::new(V311, "") });
    assert_eq!(site.got(conn), ["CONNACK 02"]);
    assert!(site.is_closed(conn));
}

#[test]
fn the_first_packet_is_connect_and_there_is_no_second() {
    let mut site = Site::new();
    let conn = site.0.open();
    site.0.feed(conn, Packet::Pingreq.encode(V5));
    assert!(site.is_closed(conn) && site.0.got(conn).is_empty());
    let conn = site.plain(V5, "a");
    let other = site.plain(V5, "b");
    site.0.feed(conn, [0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 0]);
    assert_eq!(site.got(conn), ["DISCONNECT 82"]);
    site.send(other, Packet::Pingreq);
    assert_eq!(site.got(other), ["PINGRESP"]);
}

#[test]
fn other_versions_are_refused_in_their_own_words() {
    let mut site = Site::new();
    for (level, answer) in [(3, &[0x20, 2, 0, 1][..]), (6, &[0x20, 3, 0, 0x84, 0][..])] {
        let conn = site.0.open();
        site.0.feed(conn, [0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 0, 0, 0]);
        let got = site.0.got(conn);
        assert_eq!((got[0], got[3]), (answer[0], answer[3]), "{got:x?}");
        assert!(site.is_closed(conn));
    }
    let conn = site.0.open();
    site.0.feed(conn, [0x10, 15, 0, 6, b'M', b'Q', b'I', b's', b'd', b'p', 3, 2, 0, 0, 0, 1, b'a']);
    assert_eq!(site.0.got(conn), [0x20, 2, 0, 1]);
}

#[test]
fn passwords_and_rights() {
    let mut site = Site::new();
    let user = MemoryUser {
        name: "ann",
        secret: "pw",
        is_token: false,
        publish: "a/#".parse().unwrap(),
        subscribe: "a/#".parse().unwrap(),
    };
    let token = MemoryUser { name: "device", secret: "token", is_token: true, ..user.clone() };
    site.0.door.users = vec![user, token];
    let mut answer = |version, login| {
        let conn = site.hello(Hello { login, ..Hello::new(version, "x") });
        site.got(conn)[0].split(' ').nth(1).map(str::to_owned)
    };
    for (version, none, wrong) in [(V5, "87", "86"), (V311, "05", "04")] {
        assert_eq!(answer(version, None).as_deref(), Some(none));
        assert_eq!(answer(version, Some(("ann", "no"))).as_deref(), Some(wrong));
        assert_eq!(answer(version, Some(("ann", "pw"))).as_deref(), Some("00"));
        assert_eq!(answer(version, Some(("", "token"))).as_deref(), Some("00"));
    }
}

#[test]
fn packets_behind_connect_wait_for_the_password_check() {
    let mut site = Site::new();
    site.0.door.is_slow = true;
    site.0.door.users = vec![MemoryUser {
        name: "ann",
        secret: "pw",
        is_token: false,
        publish: "#".parse().unwrap(),
        subscribe: "#".parse().unwrap(),
    }];
    for (password, expected) in [("pw", vec!["CONNACK 00", "PINGRESP"]), ("no", vec!["CONNACK 04"])] {
        let conn = site.hello(Hello { login: Some(("ann", password)), ..Hello::new(V311, "x") });
        site.0.feed(conn, Packet::Pingreq.encode(V311));
        assert!(site.0.is_blocked(conn) && site.0.got(conn).is_empty());
        site.0.checked();
        assert_eq!(site.got(conn), expected);
    }
    // Two clients without id wait at the same time: each has its own.
    let conns = [(); 2].map(|()| site.hello(Hello { login: Some(("ann", "pw")), ..Hello::new(V5, "") }));
    site.0.checked();
    assert!(conns.iter().all(|conn| !site.is_closed(*conn)));
    let ids = conns.map(|conn| site.got(conn));
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn an_authentication_in_steps_is_refused() {
    let mut site = Site::new();
    let conn = site.hello(Hello { properties: &[Property::AuthMethod("GS2")], ..Hello::new(V5, "a") });
    assert_eq!(site.got(conn), ["CONNACK 8c"]);
    let conn = site.plain(V5, "a");
    site.send(conn, Packet::Auth(Ending { reason: 0x18, properties: Properties::default() }));
    assert_eq!(site.got(conn), ["DISCONNECT 82"]);
}

#[test]
fn a_second_connection_takes_the_session_over() {
    let mut site = Site::new();
    let first = site.client(Hello::lasting(V5, "a"));
    site.subscribe(first, "t", 1);
    let second = site.hello(Hello::lasting(V5, "a"));
    assert_eq!(site.got(first), ["DISCONNECT 8e"]);
    assert!(site.got(second)[0].starts_with("CONNACK present 00"));
    site.lose(first);
    site.publish(second, "t", 1, "x");
    assert_eq!(
        site.got(second),
        ["PUBLISH t q1 #1 x", "PUBACK #5 00"].map(String::from).into_iter().rev().collect::<Vec<_>>()
    );
}

#[test]
fn a_session_belongs_to_its_user() {
    let mut site = Site::new();
    let user = |name| MemoryUser {
        name,
        secret: "pw",
        is_token: false,
        publish: "#".parse().unwrap(),
        subscribe: "#".parse().unwrap(),
    };
    site.0.door.users = vec![user("ann"), user("bob")];
    let ann = site.client(Hello { login: Some(("ann", "pw")), ..Hello::lasting(V5, "a") });
    let bob = site.hello(Hello { login: Some(("bob", "pw")), ..Hello::lasting(V5, "a") });
    assert!(site.got(bob)[0].starts_with("CONNACK 00"));
    assert!(!site.is_closed(ann));
}

#[test]
fn sessions_survive_reconnects_as_long_as_they_asked() {
    let mut site = Site::new();
    for (hello, present) in [
        (Hello::lasting(V5, "five"), true),
        (Hello { properties: &[], ..Hello::lasting(V5, "zero") }, false),
        (Hello::lasting(V311, "three"), true),
        (Hello::new(V311, "clean"), false),
    ] {
        let hello = Hello { properties: if hello.version == V5 { hello.properties } else { &[] }, ..hello };
        let conn = site.client(hello);
        site.lose(conn);
        site.pass(999);
        let conn = site.hello(Hello { clean: false, ..hello });
        assert_eq!(site.got(conn)[0].contains("present"), present, "{}", hello.id);
        site.lose(conn);
    }
    site.pass(1001);
    let conn = site.hello(Hello::lasting(V5, "five"));
    assert!(site.got(conn)[0].starts_with("CONNACK 00"));
}

#[test]
fn clean_start_forgets_the_session() {
    let mut site = Site::new();
    let conn = site.client(Hello::lasting(V5, "a"));
    site.subscribe(conn, "t", 1);
    site.lose(conn);
    let conn = site.hello(Hello { clean: true, ..Hello::lasting(V5, "a") });
    assert!(site.got(conn)[0].starts_with("CONNACK 00"));
    assert!(site.0.bus.filters.is_empty());
}

#[test]
fn the_expiry_of_a_session_has_a_limit_and_disconnect_changes_it() {
    let mut site =
        Site::with(Settings { max_session_expiry: Duration::from_secs(60), ..Settings::default() });
    let conn = site.hello(Hello { properties: &[Property::SessionExpiry(u32::MAX)], ..Hello::new(V5, "a") });
    assert!(site.got(conn)[0].contains("SessionExpiry(60)"));
    site.disconnect(conn, 0, &[Property::SessionExpiry(0)]);
    assert!(site.0.protocol.sessions.is_empty());
    let conn = site.plain(V5, "a");
    site.disconnect(conn, 0, &[Property::SessionExpiry(5)]);
    assert_eq!(site.got(conn), ["DISCONNECT 82"]);
}

#[test]
fn a_silent_client_is_disconnected_after_one_and_a_half_times_its_keep_alive() {
    let mut site = Site::new();
    let conn = site.client(Hello { keep_alive: 10, ..Hello::new(V5, "a") });
    let patient = site.plain(V5, "b");
    site.pass(14);
    site.send(conn, Packet::Pingreq);
    assert_eq!(site.got(conn), ["PINGRESP"]);
    site.pass(14);
    assert!(!site.is_closed(conn));
    site.pass(2);
    assert_eq!(site.got(conn), ["DISCONNECT 8d"]);
    assert!(!site.is_closed(patient));
}

#[test]
fn a_stranger_that_says_nothing_is_closed() {
    let mut site = Site::new();
    let conn = site.0.open();
    site.pass(11);
    assert!(site.is_closed(conn));
}

#[test]
fn a_client_that_waits_for_the_bus_is_not_silent() {
    let mut site = Site::new();
    let conn = site.client(Hello { keep_alive: 10, ..Hello::new(V5, "a") });
    site.0.bus.room = Some(0);
    site.publish(conn, "t", 1, "x");
    assert!(site.0.is_blocked(conn));
    site.pass(100);
    assert!(!site.is_closed(conn));
    site.0.make_room(1);
    assert_eq!(site.got(conn), ["PUBACK #5 00"]);
    site.pass(20);
    assert!(site.is_closed(conn));
}

#[test]
fn a_gateway_that_stops_says_so() {
    let mut site = Site::new();
    let (five, three) = (site.plain(V5, "a"), site.plain(V311, "b"));
    site.0.with(|protocol, cx| protocol.on_stop(cx));
    assert_eq!((site.got(five), site.got(three)), (vec!["DISCONNECT 8b".to_owned()], vec![]));
}

#[test]
fn reasons_are_told_to_those_who_want_them() {
    let mut site = Site::new();
    for (wants, expected) in [(true, true), (false, false)] {
        let conn =
            site.client(Hello { properties: &[Property::RequestProblem(wants)], ..Hello::new(V5, "a") });
        site.publish(conn, "a/#", 0, "");
        let bytes = site.0.got(conn);
        assert_eq!(bytes.windows(9).any(|window| window == b"wildcards"), expected);
    }
}

#[test]
fn a_reason_is_left_out_where_the_packet_would_be_larger_than_the_client_takes() {
    let mut site = Site::new();
    let properties = [Property::MaximumPacketSize(30), Property::AuthMethod("GS2")];
    let conn = site.hello(Hello { properties: &properties, ..Hello::new(V5, "a") });
    assert_eq!(site.0.got(conn), [0x20, 3, 0, 0x8C, 0]);
    let conn = site.client(Hello { properties: &properties[..1], ..Hello::new(V5, "a") });
    site.publish(conn, "$x", 1, "");
    assert_eq!(site.0.got(conn), [0x40, 3, 0, 5, 0x87]);
    site.publish(conn, "a/#", 0, "");
    assert_eq!(site.0.got(conn), [0xE0, 1, 0x90]);
}
