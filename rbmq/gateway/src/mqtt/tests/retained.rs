//! Retained messages.

use super::*;

fn retained<'a>(topic: &'a str, qos: u8, payload: &'a str) -> Publish<'a> {
    Publish { retain: true, ..message(topic, qos, payload) }
}

#[test]
fn a_new_subscription_gets_the_last_retained_message_of_each_topic() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    for (topic, payload) in [("t/a", "1"), ("t/a", "2"), ("t/b", "3"), ("u", "4")] {
        site.publish_with(publisher, retained(topic, 1, payload), &[Property::User("k", "v")]);
    }
    let got = site.subscribe_with(subscriber, 6, &[("t/+", 2)]);
    let expected = [
        "SUBACK #9 02",
        "PUBLISH t/a q1 retain #1 2 User(\"k\", \"v\") SubscriptionId(6)",
        "PUBLISH t/b q1 retain #2 3 User(\"k\", \"v\") SubscriptionId(6)",
    ];
    assert_eq!(got, expected);
    let three = site.plain(V311, "o");
    assert_eq!(site.subscribe_with(three, 0, &[("t/a", 0)]), ["SUBACK #9 00", "PUBLISH t/a q0 retain 2"]);
}

#[test]
fn an_empty_payload_deletes() {
    let mut site = Site::new();
    let (publisher, live, later) = (site.plain(V5, "p"), site.plain(V5, "s"), site.plain(V5, "l"));
    site.subscribe(live, "t", 0);
    site.publish_with(publisher, retained("t", 0, "x"), &[]);
    site.publish_with(publisher, retained("t", 0, ""), &[]);
    assert_eq!(site.got(live), ["PUBLISH t q0 x", "PUBLISH t q0 "]);
    assert_eq!(site.subscribe_with(later, 0, &[("t", 0)]), ["SUBACK #9 00"]);
}

#[test]
fn retain_handling() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.publish_with(publisher, retained("t", 0, "x"), &[]);
    for (options, expected) in [(0x20, 0), (0x10, 0), (0x00, 1), (0x10, 0), (0x20, 0)] {
        let got = site.subscribe_with(subscriber, 0, &[("t", options)]);
        assert_eq!(got.len() - 1, expected, "{options:x}");
    }
    let other = site.plain(V5, "o");
    assert_eq!(site.subscribe_with(other, 0, &[("t", 0x10)]).len(), 2);
}

#[test]
fn who_subscribes_while_a_retained_message_is_on_its_way_gets_it_once() {
    let mut site = Site::new();
    let (publisher, live, late) = (site.plain(V5, "p"), site.plain(V5, "s"), site.plain(V5, "l"));
    site.subscribe(live, "t", 0);
    for payload in ["1", "2"] {
        site.0.feed(publisher, Packet::Publish(retained("t", 0, payload)).encode(V5));
    }
    site.0.feed(late, [0x82, 7, 0, 9, 0, 0, 1, b't', 0]);
    assert_eq!(site.got(late), ["SUBACK #9 00", "PUBLISH t q0 retain 2"]);
    site.0.deliver();
    assert_eq!(site.got(live), ["PUBLISH t q0 1", "PUBLISH t q0 2"]);
    assert!(site.got(late).is_empty());
    site.publish_with(publisher, retained("t", 0, "3"), &[]);
    assert_eq!(site.got(late), ["PUBLISH t q0 3"]);
}

#[test]
fn what_was_retained_before_a_subscription_and_is_on_its_way_is_not_sent() {
    let mut site = Site::new();
    let (publisher, live) = (site.plain(V5, "p"), site.plain(V5, "l"));
    site.subscribe(live, "#", 0);
    for payload in ["1", ""] {
        site.publish_with(publisher, retained("gone", 0, payload), &[]);
        site.0.feed(publisher, Packet::Publish(retained("t", 0, payload)).encode(V5));
        // None, only for new subscriptions, and always.
        for (options, id) in [(0x20, "none"), (0x10, "new"), (0, "all")] {
            let late = site.plain(V5, id);
            site.0.feed(late, [0x82, 7, 0, 9, 0, 0, 1, b't', options]);
            let expected = usize::from(options < 0x20 && !payload.is_empty());
            assert_eq!(site.got(late).len(), 1 + expected, "{id}");
            // A subscription that is there already does not miss it by subscribing again.
            site.0.feed(live, [0x82, 7, 0, 9, 0, 0, 1, b'#', 0x20]);
            site.0.deliver();
            assert!(site.got(late).is_empty(), "{id}");
            site.0.feed(publisher, Packet::Publish(retained("t", 0, payload)).encode(V5));
        }
        site.0.deliver();
    }
    let got = site.got(live);
    assert_eq!(got.iter().filter(|packet| packet.starts_with("PUBLISH t ")).count(), 8);
}

#[test]
fn retained_messages_expire() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    site.publish_with(publisher, retained("t/a", 0, "x"), &[Property::MessageExpiry(10)]);
    site.publish_with(publisher, retained("t/b", 0, "y"), &[Property::MessageExpiry(60)]);
    site.pass(20);
    let got = site.subscribe_with(subscriber, 0, &[("t/#", 0)]);
    assert_eq!(got[1..], ["PUBLISH t/b q0 retain y MessageExpiry(40)"]);
}

#[test]
fn retained_messages_have_limits() {
    let mut site = Site::with(Settings { max_retained: 1, ..Settings::default() });
    let (publisher, three) = (site.plain(V5, "p"), site.plain(V311, "o"));
    site.publish_with(publisher, retained("a", 1, "x"), &[]);
    site.publish_with(publisher, retained("a", 1, "y"), &[]);
    site.publish_with(publisher, retained("b", 1, "x"), &[]);
    site.publish_with(publisher, retained("b", 1, ""), &[]);
    assert_eq!(site.got(publisher), ["PUBACK #5 00", "PUBACK #5 00", "PUBACK #5 97", "PUBACK #5 00"]);
    site.publish_with(publisher, retained("b", 0, "x"), &[]);
    assert_eq!(site.0.protocol.counts.not_retained, 1);
    site.publish_with(three, retained("b", 1, "x"), &[]);
    assert_eq!(site.got(three), ["PUBACK #5 00"]);
    // It cannot be told, so the message goes to those who are there.
    let live = site.plain(V5, "live");
    site.subscribe(live, "c", 0);
    for (qos, answer) in [(1, "PUBACK #5 00"), (2, "PUBREC #5 00")] {
        site.publish_with(three, retained("c", qos, "x"), &[]);
        assert_eq!((site.got(three), site.got(live)), (vec![answer.into()], vec!["PUBLISH c q0 x".into()]));
    }
    assert_eq!(site.0.protocol.counts.not_retained, 4);
    let late = site.plain(V5, "late");
    assert_eq!(site.subscribe_with(late, 0, &[("c", 0)]), ["SUBACK #9 00"]);
    let mut site = Site::with(Settings { max_retained_bytes: 100, ..Settings::default() });
    let publisher = site.plain(V5, "p");
    site.publish_with(publisher, retained("a", 1, &"x".repeat(200)), &[]);
    site.publish_with(publisher, retained("a", 1, "x"), &[Property::MessageExpiry(1)]);
    site.pass(2);
    // What is worthless makes room.
    site.publish_with(publisher, retained("b", 1, &"x".repeat(30)), &[]);
    assert_eq!(site.got(publisher), ["PUBACK #5 97", "PUBACK #5 00", "PUBACK #5 00"]);
    // But not more often than once in a second: each search looks at all messages.
    site.publish_with(publisher, retained("b", 1, "x"), &[Property::MessageExpiry(0)]);
    let large = "x".repeat(50);
    for expected in ["PUBACK #5 97", "PUBACK #5 00"] {
        site.got(publisher);
        site.publish_with(publisher, retained("c", 1, &large), &[]);
        assert_eq!(site.got(publisher), [expected]);
        site.pass(1);
    }
}

#[test]
fn live_messages_come_behind_the_retained_ones() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    for n in 0..300 {
        site.publish_with(publisher, retained(&format!("t/{n:03}"), 1, "old"), &[]);
    }
    let got = site.subscribe_with(subscriber, 0, &[("t/#", 1)]);
    assert_eq!(got.len(), 1 + 100);
    site.publish(publisher, "t/299", 0, "new");
    assert!(site.got(subscriber).is_empty());
    let mut all = Vec::new();
    for id in 1..=300 {
        site.ack(subscriber, AckKind::Puback, id, 0);
        all.extend(site.got(subscriber));
    }
    assert_eq!(all.len(), 201);
    assert_eq!(all[199..], ["PUBLISH t/299 q1 retain #300 old", "PUBLISH t/299 q0 new"]);
}

#[test]
fn who_reads_slowly_keeps_no_former_retained_messages_in_memory() {
    let mut site = Site::new();
    let (publisher, subscriber) = (site.plain(V5, "p"), site.plain(V5, "s"));
    for topic in ["t/a", "t/b", "t/c"] {
        site.publish_with(publisher, retained(topic, 1, "old"), &[]);
    }
    site.got(publisher);
    site.0.out.queued = 1 << 20;
    assert_eq!(site.subscribe_with(subscriber, 0, &[("t/+", 1)]), ["SUBACK #9 01"]);
    site.publish_with(publisher, retained("t/a", 1, "new"), &[]);
    site.publish_with(publisher, retained("t/c", 1, ""), &[]);
    site.0.out.queued = 0;
    site.pass(1);
    let expected = ["PUBLISH t/b q1 retain #1 old", "PUBLISH t/a q1 #2 new", "PUBLISH t/c q1 #3 "];
    assert_eq!(site.got(subscriber), expected);
}
