//! Shared subscriptions.

use super::journal::Kept;
use super::*;
use crate::double::MemoryUser;
use crate::mqtt::settings::MAX_MEMBERS;

/// The payloads of what a client has got, which are words.
fn payloads(site: &mut Site, conn: ConnId) -> Vec<String> {
    let got = site.got(conn);
    let payload = |word: &String| word.split(' ').next_back().unwrap_or_default().to_owned();
    got.iter().filter(|word| word.starts_with("PUBLISH")).map(payload).collect()
}

#[test]
fn each_message_goes_to_one_member_of_a_group() {
    let mut site = Site::new();
    let members = ["1", "2", "3"].map(|id| site.plain(V5, id));
    for (at, member) in members.into_iter().enumerate() {
        // The version does not matter, nor does the QoS.
        site.subscribe(member, "$share/g/t/#", at as u8);
    }
    let (other, all) = (site.plain(V311, "other"), site.plain(V5, "all"));
    site.subscribe(other, "$share/h/t/+", 0);
    site.subscribe(all, "t/#", 0);
    let publisher = site.plain(V5, "p");
    let numbers: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    for number in &numbers {
        site.publish(publisher, "t/a", 0, number);
    }
    assert_eq!(payloads(&mut site, other), numbers);
    assert_eq!(payloads(&mut site, all), numbers);
    let shares = members.map(|member| payloads(&mut site, member));
    assert_eq!(shares.each_ref().map(Vec::len), [10; 3]);
    let mut together: Vec<u32> = shares.concat().iter().map(|number| number.parse().unwrap()).collect();
    together.sort_unstable();
    assert_eq!(together, (0..30).collect::<Vec<_>>());
}

#[test]
fn a_member_gets_what_it_has_subscribed_to_besides() {
    let mut site = Site::new();
    let member = site.plain(V5, "m");
    assert_eq!(site.subscribe_with(member, 1, &[("$share/g/t", 1)]), ["SUBACK #9 01"]);
    assert_eq!(site.subscribe_with(member, 2, &[("t", 0)]), ["SUBACK #9 00"]);
    let publisher = site.plain(V5, "p");
    site.publish(publisher, "t", 1, "x");
    let mut got = site.got(member);
    got.sort();
    assert_eq!(got, ["PUBLISH t q0 x SubscriptionId(2)", "PUBLISH t q1 #1 x SubscriptionId(1)"]);
    let bytes = [&[0, 10][..], b"$share/g/t"].concat();
    let filters = Filters::of_unsubscribe(&bytes);
    site.send(
        member,
        Packet::Unsubscribe(Request { packet_id: 3, properties: Properties::default(), filters }),
    );
    assert_eq!(site.got(member), ["UNSUBACK #3 00"]);
    site.publish(publisher, "t", 1, "y");
    assert_eq!(site.got(member), ["PUBLISH t q0 y SubscriptionId(2)"]);
}

#[test]
fn who_has_no_room_or_is_away_is_passed_over() {
    let mut site = Site::with(Settings { max_inflight: 2, ..Settings::default() });
    let (slow, quick) = (site.client(Hello::lasting(V5, "slow")), site.client(Hello::lasting(V5, "quick")));
    site.subscribe(slow, "$share/g/t", 1);
    site.subscribe(quick, "$share/g/t", 1);
    let publisher = site.plain(V5, "p");
    let mut got = Vec::new();
    for number in 0..8 {
        site.publish(publisher, "t", 1, &number.to_string());
        let new = payloads(&mut site, quick);
        got.extend_from_slice(&new);
        if !new.is_empty() {
            site.ack(quick, AckKind::Puback, got.len() as u16, 0);
        }
    }
    assert_eq!(payloads(&mut site, slow), ["0", "2"]);
    assert_eq!(got, ["1", "3", "4", "5", "6", "7"]);
    site.lose(slow);
    site.publish(publisher, "t", 1, "8");
    assert_eq!(payloads(&mut site, quick), ["8"]);
    // When all are away, one of them gets it at last.
    site.lose(quick);
    site.publish(publisher, "t", 1, "9");
    let (slow, quick) = (site.hello(Hello::lasting(V5, "slow")), site.hello(Hello::lasting(V5, "quick")));
    let mut last = [payloads(&mut site, slow), payloads(&mut site, quick)].concat();
    [1, 2].into_iter().for_each(|id| site.ack(slow, AckKind::Puback, id, 0));
    last.extend(payloads(&mut site, slow));
    last.sort();
    assert_eq!(last, ["0", "2", "8", "9"]);
}

#[test]
fn a_member_with_a_full_queue_is_passed_over() {
    let settings = Settings { max_inflight: 1, max_queued_messages: 1, ..Settings::default() };
    let mut site = Site::with(settings);
    let members = ["1", "2"].map(|id| site.client(Hello::lasting(V5, id)));
    let publisher = site.plain(V5, "p");
    // The first one has all it can have, from elsewhere.
    members.into_iter().for_each(|member| site.subscribe(member, "$share/g/t", 1));
    site.subscribe(members[0], "own", 1);
    (0..2).for_each(|_| site.publish(publisher, "own", 1, "own"));
    for number in 0..2 {
        site.publish(publisher, "t", 1, &number.to_string());
    }
    assert_eq!(payloads(&mut site, members[1]), ["0"]);
    site.ack(members[1], AckKind::Puback, 1, 0);
    assert_eq!(payloads(&mut site, members[1]), ["1"]);
    assert_eq!(site.0.protocol.counts.dropped, 0);
    // Who is away has room too.
    (2..4).for_each(|number| site.publish(publisher, "t", 1, &number.to_string()));
    site.lose(members[1]);
    site.publish(publisher, "t", 1, "4");
    assert_eq!(site.0.protocol.counts.dropped, 2);
}

#[test]
fn who_may_not_receive_a_message_is_passed_over() {
    let mut site = Site::new();
    let user = |name, subscribe: &str| {
        let (publish, subscribe) = ("#".parse().unwrap(), subscribe.parse().unwrap());
        MemoryUser { name, secret: "x", is_token: false, publish, subscribe }
    };
    site.0.door.users = vec![user("some", "t/a"), user("all", "#")];
    let login = |name| Hello { login: Some((name, "x")), ..Hello::new(V5, name) };
    let (some, all) = (site.client(login("some")), site.client(login("all")));
    site.subscribe(some, "$share/g/t/+", 0);
    site.subscribe(all, "$share/g/t/+", 0);
    for topic in ["t/b", "t/b", "t/b", "t/a", "t/a"] {
        site.publish(all, topic, 0, topic);
    }
    assert_eq!(payloads(&mut site, some), ["t/a"]);
    assert_eq!(payloads(&mut site, all), ["t/b", "t/b", "t/b", "t/a"]);
}

#[test]
fn a_member_that_is_away_gets_nothing_that_its_user_may_not_receive_any_more() {
    let user = |name, subscribe: &str| {
        let (publish, subscribe) = ("#".parse().unwrap(), subscribe.parse().unwrap());
        MemoryUser { name, secret: "x", is_token: false, publish, subscribe }
    };
    let kept = Kept::new();
    let mut site = kept.start();
    site.0.door.users = vec![user("one", "#"), user("two", "#")];
    let login = |name| Hello { login: Some((name, "x")), ..Hello::lasting(V5, name) };
    let members = ["one", "two"].map(|name| site.client(login(name)));
    members.into_iter().for_each(|member| site.subscribe(member, "$share/g/t", 1));
    members.into_iter().for_each(|member| site.lose(member));
    drop(site);
    // Before and behind the next start: the rights are those of now.
    let mut site = kept.start();
    site.0.door.users = vec![user("one", "elsewhere"), user("two", "#"), user("p", "none")];
    let publisher = site.client(Hello { login: Some(("p", "x")), ..Hello::new(V5, "p") });
    for number in 0..4 {
        site.publish(publisher, "t", 1, &number.to_string());
    }
    let [one, two] = ["one", "two"].map(|name| site.hello(login(name)));
    assert_eq!(payloads(&mut site, one), [""; 0]);
    assert_eq!(payloads(&mut site, two), ["0", "1", "2", "3"]);
    // Nobody is left who may have it.
    site.lose(two);
    site.0.door.users.truncate(1);
    site.publish(publisher, "t", 1, "4");
    site.0.door.users.push(user("two", "#"));
    let two = site.hello(login("two"));
    assert!(!payloads(&mut site, two).contains(&"4".to_owned()));
}

#[test]
fn a_group_gets_no_retained_messages_and_needs_a_name() {
    let mut site = Site::new();
    let publisher = site.plain(V5, "p");
    site.publish_with(publisher, Publish { retain: true, ..message("t", 0, "x") }, &[]);
    let member = site.plain(V5, "m");
    site.subscribe(member, "$share/g/t", 1);
    assert_eq!(site.got(member), [""; 0]);
    for wrong in ["$share", "$share/g", "$share//t", "$share/+/t", "$share/g#/t", "$share/g/", "$share/g/a#"]
    {
        assert_eq!(site.subscribe_with(member, 0, &[(wrong, 1)]), ["SUBACK #9 8f"], "{wrong}");
    }
    for broker in ["$share/g/$SYS/#", "$share/g/$x"] {
        assert_eq!(site.subscribe_with(member, 0, &[(broker, 1)]), ["SUBACK #9 87"], "{broker}");
    }
    // Own messages cannot be left out of what others get.
    assert_eq!(site.subscribe_with(member, 0, &[("$share/g/t", 4)]), ["DISCONNECT 82"]);
}

#[test]
fn a_group_is_there_again_after_a_kill() {
    let kept = Kept::new();
    let mut site = kept.start();
    let (one, two) = (site.client(Hello::lasting(V5, "1")), site.client(Hello::lasting(V5, "2")));
    site.subscribe(one, "$share/g/t", 1);
    site.subscribe(two, "$share/g/t", 1);
    site.lose(one);
    site.lose(two);
    drop(site);
    let mut site = kept.start();
    let publisher = site.plain(V5, "p");
    for number in 1..=4 {
        let publish = Publish { packet_id: number, ..message("t", 1, "x") };
        site.publish_with(publisher, publish, &[]);
        assert_eq!(site.got(publisher), [format!("PUBACK #{number} 00")]);
    }
    drop(site);
    let mut site = kept.start();
    let (one, two) = (site.hello(Hello::lasting(V5, "1")), site.hello(Hello::lasting(V5, "2")));
    assert_eq!([payloads(&mut site, one).len(), payloads(&mut site, two).len()], [2, 2]);
}

#[test]
fn a_group_has_so_many_members_at_most() {
    let mut site = Site::new();
    for at in 0..MAX_MEMBERS {
        let member = site.plain(V5, &at.to_string());
        site.subscribe(member, "$share/g/t", 0);
    }
    let late = site.plain(V5, "late");
    assert_eq!(
        site.subscribe_with(late, 0, &[("$share/g/t", 0), ("$share/h/t", 0), ("t", 0)]),
        ["SUBACK #9 97 00 00"]
    );
    // Who is in it may change its options.
    let member = site.plain(V5, "0");
    site.subscribe(member, "$share/g/t", 1);
}
