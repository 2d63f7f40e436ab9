//! Wills.

use rbmq_wire::TopicFilter;

use super::*;
use crate::double::MemoryUser;

fn will<'a>(properties: &'a [u8]) -> Will<'a> {
    Will { qos: 1, retain: false, properties: Properties::new(properties), topic: "w", payload: b"gone" }
}

/// A site with a subscriber to the topic of the will.
fn site() -> (Site, ConnId) {
    let mut site = Site::new();
    let watcher = site.plain(V5, "watcher");
    site.subscribe(watcher, "w", 0);
    (site, watcher)
}

#[test]
fn a_will_is_published_when_the_connection_breaks_and_not_after_disconnect() {
    let (mut site, watcher) = site();
    for version in [V311, V5] {
        let hello = Hello { will: Some(will(&[])), ..Hello::new(version, "a") };
        let conn = site.client(hello);
        site.lose(conn);
        assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
        let conn = site.client(hello);
        site.disconnect(conn, 0, &[]);
        site.lose(conn);
        assert!(site.got(watcher).is_empty());
        let conn = site.client(hello);
        site.0.feed(conn, [0xFF, 0]);
        assert_eq!(site.got(watcher).len(), 0);
        site.0.deliver();
        assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
    }
    let conn = site.client(Hello { will: Some(will(&[])), ..Hello::new(V5, "a") });
    site.disconnect(conn, 4, &[]);
    assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
}

#[test]
fn a_will_has_its_properties_without_the_delay() {
    let (mut site, watcher) = site();
    let properties = encode_all(&[
        Property::WillDelay(0),
        Property::User("k", "v"),
        Property::ContentType("c"),
        Property::MessageExpiry(60),
    ]);
    let conn = site.client(Hello { will: Some(will(&properties)), ..Hello::new(V5, "a") });
    site.pass(1000);
    site.lose(conn);
    let got = site.got(watcher);
    assert!(
        got[0].starts_with("PUBLISH w q0 gone User(\"k\", \"v\") ContentType(\"c\") MessageExpiry(60)"),
        "{got:?}"
    );
}

#[test]
fn a_delayed_will_is_cancelled_by_a_reconnect() {
    let (mut site, watcher) = site();
    let properties = encode_all(&[Property::WillDelay(30)]);
    let hello = Hello { will: Some(will(&properties)), ..Hello::lasting(V5, "a") };
    let conn = site.client(hello);
    site.lose(conn);
    site.pass(29);
    let conn = site.client(hello);
    site.pass(100);
    assert!(site.got(watcher).is_empty());
    site.lose(conn);
    site.pass(29);
    assert!(site.got(watcher).is_empty());
    site.pass(2);
    assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
    site.pass(2000);
    assert!(site.got(watcher).is_empty());
}

#[test]
fn a_delayed_will_comes_with_the_end_of_its_session() {
    let (mut site, watcher) = site();
    let properties = encode_all(&[Property::WillDelay(3000)]);
    let hello = Hello { will: Some(will(&properties)), ..Hello::lasting(V5, "a") };
    let conn = site.client(hello);
    site.lose(conn);
    site.pass(999);
    assert!(site.got(watcher).is_empty());
    site.pass(2);
    assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
    let conn = site.client(hello);
    site.lose(conn);
    site.client(Hello { clean: true, ..hello });
    site.0.deliver();
    assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
}

#[test]
fn a_will_of_a_client_that_was_replaced_is_published() {
    let (mut site, watcher) = site();
    let hello = Hello { will: Some(will(&[])), ..Hello::lasting(V5, "a") };
    site.client(hello);
    site.client(hello);
    site.0.deliver();
    assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
}

#[test]
fn a_retained_will_is_kept() {
    let (mut site, _) = site();
    let conn = site.client(Hello { will: Some(Will { retain: true, ..will(&[]) }), ..Hello::new(V5, "a") });
    site.lose(conn);
    let later = site.plain(V5, "later");
    assert_eq!(site.subscribe_with(later, 0, &[("w", 1)]), ["SUBACK #9 01", "PUBLISH w q1 retain #1 gone"]);
}

#[test]
fn a_will_waits_until_the_bus_has_room() {
    let (mut site, watcher) = site();
    let conn = site.client(Hello { will: Some(will(&[])), ..Hello::new(V5, "a") });
    site.0.bus.room = Some(0);
    site.lose(conn);
    assert!(site.got(watcher).is_empty());
    site.0.bus.room = None;
    site.pass(1);
    assert_eq!(site.got(watcher), ["PUBLISH w q0 gone"]);
}

#[test]
fn a_will_that_cannot_be_published_is_refused_at_once() {
    let (mut site, _) = site();
    for (topic, expected) in [("w/#", "CONNACK 90"), ("$SYS/w", "CONNACK 87")] {
        let conn = site.hello(Hello { will: Some(Will { topic, ..will(&[]) }), ..Hello::new(V5, "a") });
        assert_eq!(site.got(conn), [expected]);
    }
}

#[test]
fn a_will_is_not_published_without_the_right() {
    let (mut site, watcher) = site();
    site.0.door.lets_in_anonymous = true;
    let user = MemoryUser {
        name: "ann",
        secret: "pw",
        is_token: false,
        publish: filter("w"),
        subscribe: filter("x"),
    };
    site.0.door.users = vec![user];
    let hello = Hello { will: Some(will(&[])), login: Some(("ann", "pw")), ..Hello::new(V5, "a") };
    for (right, expected) in [("w", 1), ("x", 0)] {
        site.0.door.users[0].publish = filter("w");
        let conn = site.client(hello);
        site.0.door.users[0].publish = filter(right);
        site.lose(conn);
        assert_eq!(site.got(watcher).len(), expected, "{right}");
    }
}

fn filter(text: &str) -> TopicFilter {
    text.parse().expect("a filter")
}
