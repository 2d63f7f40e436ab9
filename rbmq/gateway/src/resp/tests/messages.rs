//! Messages on their way to clients.

use proptest::prelude::*;

use super::*;

#[test]
fn a_message_comes_once_for_each_subscription_that_matches() {
    let mut world = world();
    let conn = world.open();
    world.say(conn, "SUBSCRIBE foo.bar");
    world.say(conn, "PSUBSCRIBE foo.* *bar");
    let publisher = world.open();
    assert_eq!(world.say(publisher, "PUBLISH foo.bar hello"), ":3");
    world.deliver();
    assert_eq!(
        world.line(conn),
        "*3 $7 message $7 foo.bar $5 hello *4 $8 pmessage $5 foo.* $7 foo.bar $5 hello \
         *4 $8 pmessage $4 *bar $7 foo.bar $5 hello"
    );
}

#[test]
fn messages_are_pushes_in_resp3() {
    let mut world = world();
    let conn = world.resp3();
    assert_eq!(world.say(conn, "SUBSCRIBE a b"), ">3 $9 subscribe $1 a :1 >3 $9 subscribe $1 b :2");
    world.arrive("a", &[], b"1");
    assert_eq!(world.line(conn), ">3 $7 message $1 a $1 1");
    assert_eq!(world.say(conn, "UNSUBSCRIBE a"), ">3 $11 unsubscribe $1 a :1");
    assert_eq!(world.say(conn, "SSUBSCRIBE a"), ">3 $10 ssubscribe $1 a :1");
    world.arrive("a", SHARD, b"2");
    assert_eq!(world.line(conn), ">3 $8 smessage $1 a $1 2");
}

#[test]
fn a_message_is_framed_once_for_each_form() {
    let mut world = world();
    let two: Vec<ConnId> = (0..5).map(|_| world.open()).collect();
    two.iter().for_each(|conn| _ = world.say(*conn, "SUBSCRIBE a"));
    world.arrive("a", &[], &[b'x'; 600]);
    assert_eq!(world.out.frames, 1, "one form");
    let three: Vec<ConnId> = (0..5).map(|_| world.resp3()).collect();
    three.iter().for_each(|conn| _ = world.say(*conn, "SUBSCRIBE a"));
    two.iter().for_each(|conn| _ = world.got(*conn));
    world.out.frames = 0;
    world.arrive("a", &[], b"small");
    assert_eq!(world.out.frames, 2, "two small forms");
    let before = world.out.framed_bytes();
    let payload = "y".repeat(512);
    world.arrive("a", &[], payload.as_bytes());
    assert_eq!(world.out.framed_bytes() - before, 514, "two large forms share the payload");
    for (conns, sign) in [(two, '*'), (three, '>')] {
        for conn in conns {
            let expected = format!("{sign}3 $7 message $1 a $5 small {sign}3 $7 message $1 a $512 {payload}");
            assert_eq!(world.line(conn), expected);
        }
    }
}

#[test]
fn the_version_may_change_between_messages() {
    let mut world = world();
    let conn = world.resp3();
    world.say(conn, "SUBSCRIBE a");
    world.say(conn, "PSUBSCRIBE a*");
    world.say(conn, "HELLO 2");
    world.arrive("a", &[], b"1");
    assert_eq!(world.line(conn), "*3 $7 message $1 a $1 1 *4 $8 pmessage $2 a* $1 a $1 1");
}

/// The reply comes first, so that a client can tell them apart; in a transaction too.
#[test]
fn a_client_that_hears_itself_gets_the_reply_first() {
    let mut world = world();
    let conn = world.resp3();
    world.say(conn, "SUBSCRIBE foo");
    world.feed(conn, command(&["PUBLISH", "foo", "bar"]));
    world.deliver();
    assert_eq!(world.line(conn), ":1 >3 $7 message $3 foo $3 bar");
    world.feed(conn, "MULTI\r\nPING abc\r\nPUBLISH foo bar\r\nPUBLISH foo vaz\r\nPING def\r\nEXEC\r\n");
    world.deliver();
    assert_eq!(
        world.line(conn),
        "+OK +QUEUED +QUEUED +QUEUED +QUEUED *4 $3 abc :1 :1 $3 def \
         >3 $7 message $3 foo $3 bar >3 $7 message $3 foo $3 vaz"
    );
}

#[test]
fn large_messages_arrive_whole_in_whatever_pieces_they_come() {
    let mut world = world();
    let (conn, publisher) = (world.open(), world.open());
    world.say(conn, "SUBSCRIBE a");
    let payload = "z".repeat(MAX_MESSAGE as usize);
    for piece in command(&["PUBLISH", "a", &payload]).chunks(65_536) {
        world.feed(publisher, piece);
    }
    assert_eq!(world.line(publisher), ":1");
    world.deliver();
    assert_eq!(world.line(conn), format!("*3 $7 message $1 a ${MAX_MESSAGE} {payload}"));
}

#[test]
fn what_the_bus_does_not_take_is_said() {
    let mut world = world();
    let conn = world.open();
    world.bus.refusal = Some(PublishError::Refused("the topic is full of bees".into()));
    assert_eq!(world.say(conn, "PUBLISH a b"), "-ERR the topic is full of bees");
    world.bus.refusal = Some(PublishError::TooLarge { most: 3 });
    assert_eq!(world.say(conn, "PUBLISH a bcde"), "-ERR a message has 3 bytes at most, and this one has 4");
    let long = "x".repeat(256);
    let reply = world.say(conn, &format!("PUBLISH {long} b"));
    assert_eq!(reply, "-ERR the name of this channel is too long for a topic, which has 255 bytes at most");
}

#[test]
fn a_publisher_waits_until_the_bus_has_room_and_loses_nothing() {
    let mut world = world();
    let conn = world.open();
    world.bus.room = Some(2);
    for n in 0..5 {
        world.feed(conn, command(&["PUBLISH", "a", &n.to_string()]));
    }
    assert_eq!(world.line(conn), ":0 :0");
    world.make_room(10);
    assert_eq!(world.line(conn), ":0 :0 :0");
    assert_eq!(
        world.bus.published.iter().map(|one| one.payload[0] - b'0').collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
}

#[test]
fn channels_of_any_bytes_are_topics_and_back() {
    let mut world = world();
    let (conn, publisher) = (world.open(), world.open());
    for channel in ["a+b", "#", "$SYS/x", "with space", "%2B", "a\u{0}b"] {
        world.feed(conn, command(&["SUBSCRIBE", channel]));
        world.feed(publisher, command(&["PUBLISH", channel, "x"]));
        world.deliver();
        let text = world.text(conn);
        assert!(
            text.ends_with(&format!("${}\r\n{channel}\r\n$1\r\nx\r\n", channel.len())),
            "{channel}: {text}"
        );
        assert_eq!(world.line(publisher), ":1", "{channel}");
    }
    let topics: Vec<&str> = world.bus.filters.keys().map(|filter| filter.as_str()).collect();
    assert_eq!(topics, ["%23", "%24SYS/x", "%252B", "a%00b", "a%2Bb", "with space"]);
}

/// A topic that reads as the channel of another one comes through patterns, and never to subscribers of that channel.
#[test]
fn a_topic_that_is_no_channels_own_is_told_apart() {
    let mut world = world();
    let conn = world.open();
    world.say(conn, "SUBSCRIBE é");
    world.say(conn, "PSUBSCRIBE *");
    world.arrive("%C3%A9", &[], b"1");
    assert_eq!(world.line(conn), "*4 $8 pmessage $1 * $2 é $1 1");
}

/// `SPUBLISH` and `PUBLISH` do not hear each other.
#[test]
fn shard_channels_are_apart_from_channels() {
    let mut world = world();
    let (shard, plain, pattern, publisher) = (world.open(), world.open(), world.open(), world.open());
    world.say(shard, "SSUBSCRIBE a");
    world.say(plain, "SUBSCRIBE a");
    world.say(pattern, "PSUBSCRIBE *");
    assert_eq!(world.say(publisher, "SPUBLISH a 1"), ":1");
    assert_eq!(world.say(publisher, "PUBLISH a 2"), ":2");
    world.deliver();
    assert_eq!(world.line(shard), "*3 $8 smessage $1 a $1 1");
    assert_eq!(world.line(plain), "*3 $7 message $1 a $1 2");
    assert_eq!(world.line(pattern), "*4 $8 pmessage $1 * $1 a $1 2");
    for (asked, reply) in [
        ("PUBSUB CHANNELS", "*1 $1 a"),
        ("PUBSUB SHARDCHANNELS", "*1 $1 a"),
        ("PUBSUB NUMSUB a b", "*4 $1 a :1 $1 b :0"),
        ("PUBSUB SHARDNUMSUB a", "*2 $1 a :1"),
        ("PUBSUB NUMPAT", ":1"),
    ] {
        assert_eq!(world.say(publisher, asked), reply, "{asked}");
    }
}

#[test]
fn subscribers_that_come_and_go_change_what_is_known_of_a_channel() {
    let mut world = world();
    let publisher = world.open();
    let mut subscribers: Vec<ConnId> = Vec::new();
    for round in 0..5 {
        assert_eq!(world.say(publisher, "PUBLISH a/b x"), format!(":{}", 2 * subscribers.len()));
        world.deliver();
        for conn in &subscribers {
            assert_eq!(world.line(*conn).matches("message").count(), 2, "{round}");
        }
        let conn = world.open();
        world.say(conn, "SUBSCRIBE a/b");
        world.say(conn, &format!("PSUBSCRIBE a/{}", "*".repeat(round + 1)));
        subscribers.push(conn);
    }
    while let Some(conn) = subscribers.pop() {
        world.close(conn);
        assert_eq!(world.say(publisher, "PUBLISH a/b x"), format!(":{}", 2 * subscribers.len()));
    }
    assert!(world.bus.filters.is_empty());
}

#[test]
fn a_slow_client_harms_nobody_else() {
    let mut world = world();
    let (slow, fast) = (world.open(), world.open());
    world.say(slow, "SUBSCRIBE a");
    world.say(fast, "SUBSCRIBE a");
    world.out.slow.insert(slow);
    world.arrive("a", &[], b"1");
    assert_eq!((world.line(slow), world.line(fast)), (String::new(), "*3 $7 message $1 a $1 1".into()));
}

#[test]
fn a_message_is_counted_once_for_each_client_that_gets_it() {
    let mut world = world();
    let (one, two, slow) = (world.open(), world.resp3(), world.open());
    world.say(one, "SUBSCRIBE a");
    world.say(one, "PSUBSCRIBE a* ?");
    world.say(two, "PSUBSCRIBE a*");
    world.say(slow, "SUBSCRIBE a");
    world.out.slow.insert(slow);
    world.arrive("a", &[], b"1");
    assert_eq!(world.out.counted, [2, 0, 0]);
    world.arrive("ab", &[], &[b'x'; 1000]);
    assert_eq!(world.out.counted, [4, 0, 0]);
    world.arrive("b", &[], b"3");
    assert_eq!(world.out.counted, [5, 0, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whatever the pieces are that commands come in, they say the same.
    #[test]
    fn pieces_say_the_same_as_the_whole(
        sizes in proptest::collection::vec(0usize..60, 1..20), cuts in proptest::collection::vec(1usize..90, 1..20),
    ) {
        let mut world = world();
        let conn = world.open();
        let payload = |(index, size): (usize, &usize)| format!("{index}{}", "x".repeat(*size));
        let payloads: Vec<String> = sizes.iter().enumerate().map(payload).collect();
        let mut bytes = Vec::new();
        for (index, payload) in payloads.iter().enumerate() {
            let publish = ["PUBLISH", "c", payload];
            bytes.extend(command(if index % 5 == 3 { &["PING"] } else { &publish }));
        }
        let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((*cuts.next().expect("a cycle")).min(rest.len()));
            world.feed(conn, piece);
            rest = behind;
        }
        let is_publish = |index: &usize| index % 5 != 3;
        let replies: String = (0..payloads.len()).map(|index| if is_publish(&index) { ":0\r\n" } else { "+PONG\r\n" }).collect();
        prop_assert_eq!(world.text(conn), replies);
        let published: Vec<&[u8]> = world.bus.published.iter().map(|one| &one.payload[..]).collect();
        let expected: Vec<&[u8]> = (0..payloads.len()).filter(is_publish).map(|index| payloads[index].as_bytes()).collect();
        prop_assert_eq!(published, expected);
    }
}
