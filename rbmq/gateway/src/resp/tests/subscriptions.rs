//! Subscriptions: when they are answered, and what is allowed meanwhile.

use super::*;
use crate::protocol::{FilterCount, Protocol as _, Taken};

#[test]
fn a_subscription_is_answered_when_it_is_in_force() {
    let mut world = world();
    let conn = world.open();
    world.bus.is_late = true;
    assert_eq!(world.ask(conn, "SUBSCRIBE a b a\r\nPING\r\n"), "");
    let publisher = world.open();
    assert_eq!(world.say(publisher, "PUBLISH a early"), ":0");
    assert_eq!(world.say(publisher, "PUBSUB NUMSUB a"), "*2 $1 a :0");
    assert_eq!(world.say(publisher, "PUBSUB CHANNELS"), "*0");
    world.deliver();
    assert_eq!(world.line(conn), "");
    world.subscribed();
    let replies = "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2 *3 $9 subscribe $1 a :2 *2 $4 pong $0";
    assert_eq!(world.line(conn), replies);
    assert_eq!(world.say(publisher, "PUBLISH a late"), ":1");
    world.deliver();
    assert_eq!(world.line(conn), "*3 $7 message $1 a $4 late");
}

#[test]
fn subscriptions_count_for_the_quotas_of_their_client() {
    let mut world = world();
    world.door.most_filters = Some(FilterCount { all: 3, patterns: 1 });
    let conn = world.open();
    world.say(conn, "SUBSCRIBE a a b");
    // All or none, and not twice.
    assert_eq!(world.say(conn, "PSUBSCRIBE x* y*"), "-ERR the quota is used up");
    assert_eq!(world.say(conn, "SUBSCRIBE a b"), "*3 $9 subscribe $1 a :2 *3 $9 subscribe $1 b :2");
    world.say(conn, "PSUBSCRIBE x*");
    assert_eq!(world.say(conn, "SUBSCRIBE c"), "-ERR the quota is used up");
    assert_eq!(world.door.filters[&conn], FilterCount { all: 3, patterns: 1 });
    world.say(conn, "PUNSUBSCRIBE");
    world.say(conn, "UNSUBSCRIBE a");
    assert_eq!(world.door.filters[&conn], FilterCount { all: 1, patterns: 0 });
    assert_eq!(world.say(conn, "SSUBSCRIBE s"), "*3 $10 ssubscribe $1 s :1");
    assert_eq!(world.bus.filters.len(), 2);
}

#[test]
fn two_clients_wait_for_the_same_filter_which_is_asked_for_once() {
    let mut world = world();
    let (one, two) = (world.open(), world.open());
    world.bus.is_late = true;
    world.say(one, "PSUBSCRIBE x/a* x/b*");
    world.say(two, "PSUBSCRIBE x/c*");
    assert_eq!(world.bus.filters, [("x/#".parse().unwrap(), 1),].into());
    world.subscribed();
    assert_eq!(world.line(one), "*3 $10 psubscribe $4 x/a* :1 *3 $10 psubscribe $4 x/b* :2");
    assert_eq!(world.line(two), "*3 $10 psubscribe $4 x/c* :1");
}

/// A broker in another process refuses a filter: all or nothing, as with rights and quotas of the gateway itself.
#[test]
fn what_the_broker_refuses_is_an_error() {
    let mut world = world();
    let (one, two, three) = (world.open(), world.open(), world.open());
    world.say(one, "SUBSCRIBE mine");
    world.bus.is_late = true;
    assert_eq!(world.say(three, "SUBSCRIBE b"), "");
    world.say(one, "SUBSCRIBE a b a");
    world.say(two, "SUBSCRIBE a");
    // Only that of 'b' is not refused.
    world.bus.late.retain(|filter| filter.as_str() == "a");
    world.not_subscribed(false);
    world.bus.late.push("b".parse().unwrap());
    assert_eq!(world.line(one), "-NOPERM No permissions to access a channel");
    assert_eq!(world.line(two), "-NOPERM No permissions to access a channel");
    world.say(one, "SUBSCRIBE c");
    world.bus.late.retain(|filter| filter.as_str() == "b");
    world.subscribed();
    assert_eq!(world.line(three), "*3 $9 subscribe $1 b :1");
    assert_eq!(world.line(one), "", "it waits for 'c'");
    world.bus.late.push("c".parse().unwrap());
    world.not_subscribed(true);
    assert!(world.line(one).starts_with("-ERR the broker takes no more subscriptions"));
    assert_eq!(world.bus.filters.len(), 2);
    world.bus.is_late = false;
    assert_eq!(world.say(two, "SUBSCRIBE a"), "*3 $9 subscribe $1 a :1");
}

#[test]
fn a_client_may_leave_before_its_subscription_is_in_force() {
    let mut world = world();
    let conn = world.open();
    world.bus.is_late = true;
    world.say(conn, "SUBSCRIBE a b");
    world.close(conn);
    assert!(world.bus.filters.is_empty());
    world.subscribed();
}

#[test]
fn subscribing_in_a_transaction_waits_too() {
    let mut world = world();
    let conn = world.open();
    world.bus.is_late = true;
    assert_eq!(
        world.ask(conn, "MULTI\r\nPING\r\nSUBSCRIBE a\r\nPING\r\nEXEC\r\n"),
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n"
    );
    world.subscribed();
    assert_eq!(world.line(conn), "*3 +PONG *3 $9 subscribe $1 a :1 *2 $4 pong $0");
}

/// Celery and others live on the text.
#[test]
fn in_resp2_a_subscriber_may_send_few_commands_and_learns_which() {
    let mut world = world();
    let conn = world.open();
    assert_eq!(world.say(conn, "SUBSCRIBE a"), "*3 $9 subscribe $1 a :1");
    let refused = |name| {
        format!(
            "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
    };
    assert_eq!(world.say(conn, "PUBLISH a b"), refused("publish"));
    assert_eq!(world.say(conn, "CLIENT SETINFO lib-name x"), refused("client|setinfo"));
    assert_eq!(world.say(conn, "PING"), "*2 $4 pong $0");
    assert_eq!(world.say(conn, "PING foo"), "*2 $4 pong $3 foo");
    assert!(!world.out.closed.contains_key(&conn));
    assert_eq!(world.say(conn, "UNSUBSCRIBE"), "*3 $11 unsubscribe $1 a :0");
    assert_eq!(world.say(conn, "PING"), "+PONG");
}

/// Others closed the connection, and broke StackExchange's client.
#[test]
fn in_resp3_a_subscriber_may_send_any_command() {
    let mut world = world();
    let conn = world.resp3();
    world.say(conn, "SUBSCRIBE a");
    assert_eq!(world.say(conn, "PUBLISH b c"), ":0");
    assert_eq!(world.say(conn, "PING"), "+PONG");
    assert_eq!(world.say(conn, "PING foo"), "$3 foo");
    assert!(world.say(conn, "CLIENT INFO").contains(" flags=P db=0 sub=1 "));
}

#[test]
fn replies_count_channels_and_patterns_together_and_shard_channels_alone() {
    let mut world = world();
    let conn = world.open();
    assert_eq!(world.say(conn, "SUBSCRIBE a a"), "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 a :1");
    assert_eq!(world.say(conn, "PSUBSCRIBE a*"), "*3 $10 psubscribe $2 a* :2");
    assert_eq!(world.say(conn, "SSUBSCRIBE a"), "*3 $10 ssubscribe $1 a :1");
    assert_eq!(world.say(conn, "UNSUBSCRIBE b"), "*3 $11 unsubscribe $1 b :2");
    assert_eq!(world.say(conn, "PUNSUBSCRIBE a*"), "*3 $12 punsubscribe $2 a* :1");
    assert_eq!(world.say(conn, "SUNSUBSCRIBE"), "*3 $12 sunsubscribe $1 a :0");
    assert_eq!(world.say(conn, "UNSUBSCRIBE"), "*3 $11 unsubscribe $1 a :0");
    for (asked, word, len) in [
        ("UNSUBSCRIBE", "unsubscribe", 11),
        ("PUNSUBSCRIBE", "punsubscribe", 12),
        ("SUNSUBSCRIBE", "sunsubscribe", 12),
    ] {
        assert_eq!(world.say(conn, asked), format!("*3 ${len} {word} $-1 :0"));
    }
    assert!(world.bus.filters.is_empty());
}

#[test]
fn pubsub_channels_are_those_that_match() {
    let mut world = world();
    let conn = world.open();
    world.say(conn, "SUBSCRIBE news.a news.b other");
    let asker = world.open();
    assert_eq!(world.say(asker, "PUBSUB CHANNELS news.*"), "*2 $6 news.a $6 news.b");
    assert_eq!(world.say(asker, "PUBSUB CHANNELS"), "*3 $6 news.a $6 news.b $5 other");
    assert_eq!(world.say(asker, "PUBSUB NUMSUB"), "*0");
    assert_eq!(world.say(asker, "PUBSUB X"), "-ERR unknown subcommand 'X'. Try PUBSUB HELP.");
}

#[test]
fn many_commands_that_look_at_much_leave_others_their_turn() {
    let mut world = world();
    let (conn, other) = (world.open(), world.open());
    let names: Vec<String> = (0..1000).map(|number| format!("{number}")).collect();
    world.say(other, &format!("SUBSCRIBE {}", names.join(" ")));
    let bytes = "PUBSUB CHANNELS x\r\n".repeat(600);
    let taken = world.with(|resp, cx| resp.on_bytes(conn, bytes.as_bytes(), cx));
    let Taken::Later(used) = taken else { panic!("{taken:?}") };
    let done = used / "PUBSUB CHANNELS x\r\n".len();
    assert!((1..600).contains(&done), "{done}");
    assert_eq!(world.ask(conn, &bytes[used..]).matches("*0\r\n").count(), 600);
}

#[test]
fn a_pattern_that_costs_too_much_finds_no_channels() {
    let mut world = world();
    let (conn, other) = (world.open(), world.open());
    let a = "a".repeat(240);
    let names: Vec<String> = (0..1000).map(|number| format!("{a}{number}")).collect();
    world.say(other, &format!("SUBSCRIBE {}", names.join(" ")));
    let costly = format!("PUBSUB CHANNELS *{}b", &a[..120]);
    let refused = "-ERR too many channels: a pattern that begins with some letters finds fewer";
    assert_eq!(world.say(conn, &costly), refused);
    assert!(world.say(conn, "PUBSUB CHANNELS aa*").starts_with("*1000 "));
}

#[test]
fn subscriptions_have_a_limit() {
    let mut world = world();
    let conn = world.open();
    world.say(conn, "SUBSCRIBE a");
    let words: Vec<&str> = ["SUBSCRIBE"].into_iter().chain(std::iter::repeat_n("b", 100_000)).collect();
    world.feed(conn, command(&words));
    assert_eq!(world.line(conn), "-ERR a client has 100000 channels and patterns at most");
    let pattern = "x".repeat(1025);
    let other = world.open();
    assert_eq!(world.say(other, &format!("PSUBSCRIBE {pattern}")), "-ERR a pattern has 1024 bytes at most");
}

#[test]
fn the_subscriptions_of_all_clients_have_a_limit() {
    let mut world = world();
    world.protocol.bounds.subscriptions = 5;
    let (one, two) = (world.open(), world.open());
    let refused = "-ERR all clients have 5 channels and patterns at most";
    world.say(one, "SUBSCRIBE a b a");
    world.say(two, "PSUBSCRIBE a*");
    assert_eq!(world.say(two, "SUBSCRIBE a b c"), refused);
    assert_eq!(world.say(two, "SSUBSCRIBE a b"), "*3 $10 ssubscribe $1 a :1 *3 $10 ssubscribe $1 b :2");
    assert_eq!(world.say(one, "SUBSCRIBE c"), refused);
    world.say(two, "SUNSUBSCRIBE b c");
    world.bus.is_late = true;
    world.say(one, "SUBSCRIBE c");
    assert_eq!(world.say(two, "SUBSCRIBE d"), refused);
    world.close(one);
    world.close(two);
    assert_eq!(world.protocol.routes.subscriptions(), 0);
}

/// Each new topic is matched with each of them.
#[test]
fn patterns_have_limits_of_their_own() {
    let mut world = world();
    let (one, two) = (world.open(), world.open());
    let many: Vec<String> = (0..1001).map(|number| format!("{number}*")).collect();
    let psubscribe = |world: &mut World<Resp>, patterns: &[String]| {
        let words: Vec<&str> =
            ["PSUBSCRIBE"].into_iter().chain(patterns.iter().map(String::as_str)).collect();
        world.feed(one, command(&words));
        world.line(one)
    };
    assert_eq!(psubscribe(&mut world, &many), "-ERR a client has 1000 patterns at most");
    assert!(psubscribe(&mut world, &many[1..]).ends_with(":1000"));
    world.say(one, "PUNSUBSCRIBE");
    world.protocol.bounds.patterns = 2;
    assert_eq!(world.say(one, "PSUBSCRIBE a* b*"), "*3 $10 psubscribe $2 a* :1 *3 $10 psubscribe $2 b* :2");
    assert_eq!(world.say(two, "PSUBSCRIBE c*"), "-ERR all clients have 2 different patterns at most");
    assert_eq!(world.say(two, "PSUBSCRIBE a*"), "*3 $10 psubscribe $2 a* :1");
    world.say(one, "RESET");
    (world.protocol.bounds.patterns, world.protocol.bounds.pattern_bytes) = (3, 1000);
    let sets = "[]".repeat(20);
    assert_eq!(world.say(one, &format!("PSUBSCRIBE b* {sets}")), "-ERR all patterns have 1000 bytes at most");
    assert!(world.say(one, "PSUBSCRIBE b*").ends_with(":1"));
    world.close(one);
    world.close(two);
    assert_eq!((world.protocol.routes.pattern_bytes(), world.bus.filters.len()), (0, 0));
}

/// Nothing would ever come, and such names would be kept without a right and without a limit.
#[test]
fn a_name_that_no_topic_has_is_refused() {
    let mut world = world();
    let conn = world.open();
    let long = "x".repeat(256);
    let refused = "-ERR the name of this channel is too long for a topic, which has 255 bytes at most";
    assert_eq!(world.say(conn, &format!("SUBSCRIBE a {long}")), refused);
    assert_eq!(world.say(conn, &format!("SSUBSCRIBE {}", "+".repeat(86))), refused);
    assert!(world.bus.filters.is_empty());
    assert_eq!(world.say(conn, "PUBSUB CHANNELS"), "*0");
    let longest = &long[1..];
    assert_eq!(
        world.say(conn, &format!("SUBSCRIBE {longest}")),
        format!("*3 $9 subscribe $255 {longest} :1")
    );
    assert_eq!(world.say(conn, &format!("UNSUBSCRIBE {long}")), format!("*3 $11 unsubscribe $256 {long} :1"));
}
