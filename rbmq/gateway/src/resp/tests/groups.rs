//! Consumer groups over logs in memory.

use rbmq_broker::{Consumers, Delivered};
use rbmq_wire::{push_record, push_record_with};

use super::super::streams::ids::Id;
use super::streams::{entries, kept, log, native, topic};
use super::*;
use crate::double::MemoryLog;

/// `s` has four entries, and a group that begins with the first.
fn grouped() -> (World<Resp>, ConnId) {
    let (mut world, conn) = kept();
    native(&mut world);
    assert_eq!(world.say(conn, "XGROUP CREATE s g 0"), "+OK");
    (world, conn)
}

fn read(which: &[usize]) -> String {
    format!("*1 *2 $1 s {}", entries(which))
}

const NO_GROUP: &str = "-NOGROUP No such key 's' or consumer group 'x'";

#[test]
fn each_entry_goes_to_one_consumer_and_stays_with_it() {
    let (mut world, conn) = grouped();
    let other = world.open();
    assert_eq!(world.say(conn, "XREADGROUP GROUP g anna COUNT 2 STREAMS s >"), read(&[0, 1]));
    assert_eq!(world.say(other, "XREADGROUP GROUP g ben COUNT 1 STREAMS s >"), read(&[2]));
    // The consumer has a name, and its connection has none.
    world.close(conn);
    assert_eq!(world.say(other, "XREADGROUP GROUP g anna STREAMS s 0"), read(&[0, 1]));
    assert_eq!(world.say(other, "XREADGROUP GROUP g anna STREAMS s 1000-8"), read(&[1]));
    assert_eq!(world.say(other, "XREADGROUP GROUP g anna COUNT 1 STREAMS s 0"), read(&[0]));
    assert_eq!(world.say(other, "XREADGROUP GROUP g carl STREAMS s 0"), "*1 *2 $1 s *0");
    let pending = "*4 :3 $6 1000-8 $7 1000-18 *2 *2 $4 anna $1 2 *2 $3 ben $1 1";
    assert_eq!(world.say(other, "XPENDING s g"), pending);
    assert_eq!(world.say(other, "XACK s g 1000-8 1000-8 1000-9 7"), ":1", "from any connection");
    assert_eq!(world.say(other, "XACK s g 1000-8"), ":0");
    assert_eq!(world.say(other, "XREADGROUP GROUP g ben STREAMS s >"), read(&[3]));
    assert_eq!(world.say(other, "XREADGROUP GROUP g ben STREAMS s >"), "*-1");
    assert_eq!(world.say(other, "XACK s g 1000-13 1000-18 2000-131"), ":3");
    assert_eq!(world.say(other, "XPENDING s g"), "*4 :0 $-1 $-1 *-1");
    let three = world.resp3();
    assert_eq!(world.say(three, "XREADGROUP GROUP g ben STREAMS s 0"), "%1 $1 s *0");
    assert_eq!(world.say(three, "XREADGROUP GROUP g ben STREAMS s >"), "_");
}

#[test]
fn who_needs_no_acknowledgement_has_nothing_pending() {
    let (mut world, conn) = grouped();
    assert_eq!(world.say(conn, "XREADGROUP GROUP g STREAMS NOACK COUNT 3 STREAMS s >"), read(&[0, 1, 2]));
    assert_eq!(world.say(conn, "XPENDING s g"), "*4 :0 $-1 $-1 *-1");
    assert_eq!(world.say(conn, "XREADGROUP GROUP g STREAMS STREAMS s >"), read(&[3]), "a name is a name");
    assert_eq!(world.say(conn, "XPENDING s g - + 9 STREAMS"), "*1 *4 $8 2000-131 $7 STREAMS :0 :1");
}

#[test]
fn pending_entries_have_an_age_and_a_count() {
    let (mut world, conn) = grouped();
    world.say(conn, "XREADGROUP GROUP g anna COUNT 1 STREAMS s >");
    world.pass(Duration::from_millis(500));
    world.say(conn, "XREADGROUP GROUP g ben COUNT 2 STREAMS s >");
    world.pass(Duration::from_millis(70));
    let [one, two, three] =
        ["*4 $6 1000-8 $4 anna :570 :1", "*4 $7 1000-13 $3 ben :70 :1", "*4 $7 1000-18 $3 ben :70 :1"];
    for (line, expected) in [
        ("- + 9", format!("*3 {one} {two} {three}")),
        ("- + 1", format!("*1 {one}")),
        ("- + 0", "*0".to_owned()),
        ("- + -1", "*0".to_owned()),
        ("(1000-8 1000-13 9", format!("*1 {two}")),
        ("IDLE 100 - + 9", format!("*1 {one}")),
        ("IDLE 100 - + 9 ben", "*0".to_owned()),
        ("- + 1 ben", format!("*1 {two}")),
        ("- + 9 nobody", "*0".to_owned()),
    ] {
        assert_eq!(world.say(conn, &format!("XPENDING s g {line}")), expected, "{line}");
    }
    // A look at one's own entries is a delivery.
    world.say(conn, "XREADGROUP GROUP g anna STREAMS s 0");
    assert_eq!(world.say(conn, "XPENDING s g - + 1"), "*1 *4 $6 1000-8 $4 anna :0 :2");
    world.max_reply(10);
    assert!(world.say(conn, "XPENDING s g - + 9").starts_with("-ERR these entries take more than 10 bytes"));
}

#[test]
fn a_consumer_takes_what_another_had_for_long() {
    let (mut world, conn) = grouped();
    world.say(conn, "XREADGROUP GROUP g anna STREAMS s >");
    world.pass(Duration::from_millis(100));
    assert_eq!(world.say(conn, "XCLAIM s g ben 101 1000-8"), "*0");
    assert_eq!(world.say(conn, "XCLAIM s g ben 100 1000-8 1000-9 1000-18"), entries(&[0, 2]));
    assert_eq!(
        world.say(conn, "XPENDING s g - + 9 ben"),
        "*2 *4 $6 1000-8 $3 ben :0 :2 *4 $7 1000-18 $3 ben :0 :2"
    );
    assert_eq!(world.say(conn, "XCLAIM s g ben 0 1000-8 JUSTID IDLE 700 RETRYCOUNT 9"), "*1 $6 1000-8");
    assert_eq!(world.say(conn, "XPENDING s g - + 1 ben"), "*1 *4 $6 1000-8 $3 ben :700 :9");
    assert_eq!(world.say(conn, "XACK s g 1000-8"), ":1");
    assert_eq!(world.say(conn, "XCLAIM s g ben 0 1000-8"), "*0", "nobody has it");
    assert_eq!(world.say(conn, "XCLAIM s g ben 0 1000-8 FORCE JUSTID"), "*1 $6 1000-8");
    assert_eq!(world.say(conn, "XCLAIM s g ben 0 1000-7 FORCE"), "*0", "the log has no such entry");
    assert_eq!(world.say(conn, "XCLAIM s g ben 0 1-0 LASTID 3000-0"), "*0");
    assert!(world.say(conn, "XINFO GROUPS s").contains("$17 last-delivered-id $6 3000-0"));
    world.pass(Duration::from_millis(100));
    assert_eq!(
        world.say(conn, "XAUTOCLAIM s g carl 50 0 COUNT 2 JUSTID"),
        "*3 $7 1000-18 *2 $6 1000-8 $7 1000-13 *0"
    );
    assert_eq!(
        world.say(conn, "XAUTOCLAIM s g carl 50 1000-18"),
        format!("*3 $3 0-0 {} *0", entries(&[2, 3]))
    );
    assert_eq!(world.say(conn, "XAUTOCLAIM s g carl 50 -"), "*3 $3 0-0 *0 *0", "all are new");
}

#[test]
fn entries_that_retention_has_removed_are_told() {
    let (mut world, conn) = grouped();
    world.say(conn, "XREADGROUP GROUP g anna STREAMS s >");
    log(&mut world, "s").first = 123;
    let gone = "*4 *2 $6 1000-8 *-1 *2 $7 1000-13 *-1 *2 $7 1000-18 *-1";
    let left = entries(&[3]);
    let history = format!("*1 *2 $1 s {gone} {}", left.trim_start_matches("*1 "));
    assert_eq!(world.say(conn, "XREADGROUP GROUP g anna STREAMS s 0"), history);
    assert_eq!(world.say(conn, "XCLAIM s g ben 0 1000-8 2000-131"), entries(&[3]));
    let auto = format!("*3 $3 0-0 {} *2 $7 1000-13 $7 1000-18", entries(&[3]));
    assert_eq!(world.say(conn, "XAUTOCLAIM s g ben 0 0"), auto);
    assert_eq!(world.say(conn, "XPENDING s g"), "*4 :1 $8 2000-131 $8 2000-131 *1 *2 $3 ben $1 1");
}

#[test]
fn groups_are_made_and_removed() {
    let (mut world, conn) = kept();
    let no_key = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an \
                  empty stream automatically.";
    assert_eq!(world.say(conn, "XGROUP CREATE s g $"), no_key);
    assert_eq!(world.say(conn, "XGROUP DESTROY s g"), no_key);
    assert_eq!(world.say(conn, "XGROUP CREATE s my:group $ MKSTREAM"), "+OK");
    let busy = "-BUSYGROUP Consumer Group name already exists";
    assert_eq!(world.say(conn, "XGROUP CREATE s my:group $ MKSTREAM"), busy);
    native(&mut world);
    assert_eq!(world.say(conn, "XREADGROUP GROUP my:group c STREAMS s >"), read(&[0, 1, 2, 3]));
    assert_eq!(world.say(conn, "XGROUP CREATE s late $"), "+OK");
    assert_eq!(world.say(conn, "XREADGROUP GROUP late c STREAMS s >"), "*-1");
    assert_eq!(world.say(conn, "XGROUP CREATE s middle 1000-13 ENTRIESREAD 2"), "+OK");
    let facts = world.say(conn, "XINFO GROUPS s");
    let of = |name: &str, consumers, pending, last: &str, read: &str, lag: &str| {
        let (name_len, last_len) = (name.len(), last.len());
        format!(
            "*12 $4 name ${name_len} {name} $9 consumers :{consumers} $7 pending :{pending} $17 last-delivered-id ${last_len} {last} \
             $12 entries-read {read} $3 lag {lag}"
        )
    };
    let expected = [
        of("late", 1, 0, "2000-131", "$-1", ":0"),
        of("middle", 0, 0, "1000-13", ":2", ":2"),
        of("my:group", 1, 4, "2000-131", ":4", ":0"),
    ];
    assert_eq!(facts, format!("*3 {}", expected.join(" ")));
    assert!(world.say(conn, "XINFO STREAM s").contains("$6 groups :3"));
    assert_eq!(world.say(conn, "XREADGROUP GROUP middle c COUNT 1 STREAMS s >"), read(&[2]));
    assert_eq!(world.say(conn, "XGROUP SETID s middle $"), "+OK");
    assert_eq!(world.say(conn, "XREADGROUP GROUP middle c STREAMS s >"), "*-1");
    assert_eq!(world.say(conn, "XGROUP SETID s middle 0"), "+OK");
    assert_eq!(world.say(conn, "XREADGROUP GROUP middle c COUNT 1 STREAMS s >"), read(&[0]));
    assert_eq!(world.say(conn, "XGROUP CREATECONSUMER s middle d"), ":1");
    assert_eq!(world.say(conn, "XGROUP CREATECONSUMER s middle d"), ":0");
    world.pass(Duration::from_millis(5));
    assert_eq!(
        world.say(conn, "XINFO CONSUMERS s middle"),
        "*2 *8 $4 name $1 c $7 pending :2 $4 idle :5 $8 inactive :5 *8 $4 name $1 d $7 pending :0 $4 idle :5 $8 inactive :-1"
    );
    assert_eq!(world.say(conn, "XGROUP DELCONSUMER s middle c"), ":2");
    assert_eq!(world.say(conn, "XGROUP DELCONSUMER s middle c"), ":0");
    assert_eq!(world.say(conn, "XGROUP DESTROY s middle"), ":1");
    assert_eq!(world.say(conn, "XGROUP DESTROY s middle"), ":0");
    assert!(world.say(conn, "XREADGROUP GROUP middle c STREAMS s >").starts_with("-NOGROUP "));
}

const NOT_THERE: &str = "NOGROUP No such consumer group 'x' for key name 's'";

/// Commands, and the errors that they get.
const WRONG: &[(&str, &str)] = &[
    (
        "XREADGROUP GROUP x c STREAMS s >",
        "NOGROUP No such key 's' or consumer group 'x' in XREADGROUP with GROUP option",
    ),
    (
        "XREADGROUP GROUP g c STREAMS s t > >",
        "NOGROUP No such key 't' or consumer group 'g' in XREADGROUP with GROUP option",
    ),
    ("XREADGROUP COUNT 1 BLOCK 1 STREAMS s >", "ERR Missing GROUP option for XREADGROUP"),
    (
        "XREADGROUP GROUP g c STREAMS s t >",
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
    ),
    ("XREADGROUP GROUP g c COUNT x STREAMS s >", "ERR value is not an integer or out of range"),
    ("XREADGROUP GROUP g c STREAMS s x", "ERR Invalid stream ID specified as stream command argument"),
    (
        "XREAD GROUP g c STREAMS s 0",
        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
    ),
    (
        "XREAD NOACK STREAMS s 0",
        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
    ),
    (
        "XREAD STREAMS s >",
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
    ),
    ("XACK s g x", "ERR Invalid stream ID specified as stream command argument"),
    ("XPENDING s g -", "ERR syntax error"),
    ("XPENDING s g - + x", "ERR value is not an integer or out of range"),
    ("XPENDING s g IDLE x - + 1", "ERR value is not an integer or out of range"),
    ("XPENDING s g - + 1 c d", "ERR syntax error"),
    ("XCLAIM s g c x 0", "ERR Invalid min-idle-time argument for XCLAIM"),
    ("XCLAIM s g c 0 x", "ERR Unrecognized XCLAIM option 'x'"),
    ("XCLAIM s g c 0 1-1 WHAT", "ERR Unrecognized XCLAIM option 'WHAT'"),
    ("XAUTOCLAIM s g c x 0", "ERR Invalid min-idle-time argument for XAUTOCLAIM"),
    ("XAUTOCLAIM s g c 0 0 COUNT 0", "ERR COUNT must be > 0"),
    ("XAUTOCLAIM s g c 0 0 WHAT", "ERR syntax error"),
    ("XGROUP CREATE s", "ERR wrong number of arguments for 'xgroup|create' command"),
    ("XGROUP CREATE s h x", "ERR Invalid stream ID specified as stream command argument"),
    ("XGROUP CREATE s h 0 ENTRIESREAD -2", "ERR value for ENTRIESREAD must be positive or -1"),
    ("XGROUP SETID s x 0", NOT_THERE),
    ("XGROUP CREATECONSUMER s x c", NOT_THERE),
    ("XGROUP DELCONSUMER s x c", NOT_THERE),
    ("XGROUP WHAT s x", "ERR unknown subcommand 'WHAT'. Try XGROUP HELP."),
    ("XINFO CONSUMERS s x", NOT_THERE),
    ("XINFO GROUPS t", "ERR no such key"),
];

#[test]
fn what_is_wrong_is_told_in_the_words_of_redis() {
    let (mut world, conn) = grouped();
    for (line, error) in WRONG {
        assert_eq!(world.say(conn, line), format!("-{error}"), "{line}");
    }
    let dollar = world.say(conn, "XREADGROUP GROUP g c STREAMS s $");
    assert!(dollar.starts_with("-ERR The $ ID is meaningless in the context of XREADGROUP"), "{dollar}");
    for line in ["XPENDING s x", "XPENDING s x - + 1", "XCLAIM s x c 0 1-1", "XAUTOCLAIM s x c 0 0"] {
        assert_eq!(world.say(conn, line), NO_GROUP, "{line}");
    }
    assert_eq!(world.say(conn, "XACK s x 1-1"), ":0");
    assert_eq!(world.say(conn, "XPENDING s g"), "*4 :0 $-1 $-1 *-1");
}

#[test]
fn a_consumer_waits_for_new_entries() {
    let (mut world, conn) = kept();
    let (second, writer) = (world.open(), world.open());
    for stream in ["s", "t"] {
        assert_eq!(world.say(writer, &format!("XGROUP CREATE {stream} g $ MKSTREAM")), "+OK");
    }
    assert_eq!(world.say(conn, "XREADGROUP GROUP g anna COUNT 1 BLOCK 0 STREAMS s t > >"), "");
    assert_eq!(world.say(second, "XREADGROUP GROUP g ben COUNT 1 BLOCK 0 STREAMS s >"), "");
    world.feed(writer, "XADD s * payload 1\r\nXADD s * payload 2\r\n");
    world.store();
    // Each gets one, and nobody gets it twice.
    assert_eq!(world.line(conn), "*1 *2 $1 s *1 *2 $6 1000-8 *2 $7 payload $1 1");
    assert_eq!(world.line(second), "*1 *2 $1 s *1 *2 $7 1000-21 *2 $7 payload $1 2");
    assert_eq!(world.say(conn, "XREADGROUP GROUP g anna BLOCK 100 STREAMS s >"), "");
    world.pass(Duration::from_millis(100));
    assert_eq!(world.line(conn), "*-1");
    assert_eq!(
        world.say(conn, "XREADGROUP GROUP g anna BLOCK 0 STREAMS s 0"),
        "*1 *2 $1 s *1 *2 $6 1000-8 *2 $7 payload $1 1"
    );
    assert_eq!(world.line(writer), "$6 1000-8 $7 1000-21");
    // Who waits learns that the group is gone, or begins elsewhere.
    assert_eq!(world.say(conn, "XREADGROUP GROUP g anna BLOCK 0 STREAMS t >"), "");
    assert_eq!(world.say(writer, "XGROUP DESTROY t g"), ":1");
    assert!(world.line(conn).starts_with("-NOGROUP No such key 't' or consumer group 'g' in XREADGROUP"));
    assert_eq!(world.say(conn, "XREADGROUP GROUP g anna BLOCK 0 COUNT 1 STREAMS s >"), "");
    assert_eq!(world.say(writer, "XGROUP SETID s g 0"), "+OK");
    assert_eq!(world.line(conn), "*1 *2 $1 s *1 *2 $6 1000-8 *2 $7 payload $1 1");
    assert!(world.bus.followed.is_empty());
}

#[test]
fn a_stream_that_is_named_twice_gives_its_next_entries_twice() {
    let twice = |from, to| format!("*2 *2 $1 s {} *2 $1 s {}", entries(from), entries(to));
    for noack in ["", "NOACK "] {
        let (mut world, conn) = grouped();
        let line = format!("XREADGROUP GROUP g c {noack}COUNT 1 STREAMS s s > >");
        assert_eq!(world.say(conn, &line), twice(&[0], &[1]));
        let pending = world.say(conn, "XPENDING s g - + 9");
        assert!(pending.starts_with(if noack.is_empty() { "*2 " } else { "*0" }), "{pending}");
        assert_eq!(world.say(conn, &line), twice(&[2], &[3]));
    }
    let (mut world, conn) = grouped();
    world.bus.max_pending = Some(1);
    assert_eq!(world.say(conn, "XREADGROUP GROUP g c STREAMS s s > >"), read(&[0]), "there is room for one");
}

#[test]
fn what_others_get_meanwhile_takes_nothing_from_a_reply() {
    let (mut world, conn) = grouped();
    world.bus.is_cold = false;
    log(&mut world, "t").append(1000, &{
        let mut records = Vec::new();
        push_record(&mut records, b"t");
        records
    });
    assert_eq!(world.say(conn, "XGROUP CREATE t g 0"), "+OK");
    // Both are looked at, `s` is noted, and `t` has begun elsewhere by then.
    world.bus.rivals =
        [None, None, None, Some((|group: &mut Consumers| group.set_last(Id::MAX, None)) as fn(&mut _))]
            .into();
    assert_eq!(world.say(conn, "XREADGROUP GROUP g c COUNT 1 STREAMS s t > >"), read(&[0]));
    assert!(world.say(conn, "XPENDING s g").starts_with("*4 :1 "));
    // Somebody else has claimed what was looked for.
    world.bus.rivals = [
        None,
        Some(
            (|group: &mut Consumers| {
                let entry = group.pending_from(Id::MIN).next().expect("it is pending").0;
                let (consumer, _) = group.consumer(b"rival", 0, 9).expect("there is room");
                group.claim(entry, Delivered { consumer, count: 7, at_ms: u64::MAX });
            }) as fn(&mut _),
        ),
    ]
    .into();
    world.pass(Duration::from_millis(100));
    assert_eq!(world.say(conn, "XAUTOCLAIM s g d 50 0"), "*3 $3 0-0 *0 *0");
    assert!(world.say(conn, "XPENDING s g").ends_with("*2 $5 rival $1 1"));
}

#[test]
fn each_history_of_a_reply_has_something() {
    let (mut world, conn) = grouped();
    let mut records = Vec::new();
    push_record(&mut records, &[b'x'; 20_000]);
    log(&mut world, "t").append(1000, &records);
    assert_eq!(world.say(conn, "XGROUP CREATE t g 0"), "+OK");
    assert!(world.say(conn, "XREADGROUP GROUP g c STREAMS t >").starts_with("*1 *2 $1 t *1 "));
    assert_eq!(world.say(conn, "XREADGROUP GROUP g c STREAMS s >"), read(&[0, 1, 2, 3]));
    world.max_reply(1);
    let both = world.say(conn, "XREADGROUP GROUP g c STREAMS t s 0 0");
    assert!(both.starts_with("*2 *2 $1 t *1 *2 $6 1000-8 "), "{both}");
    assert!(both.ends_with(&format!("*2 $1 s {}", entries(&[0]))), "an empty history is one that is over");
}

#[test]
fn a_look_at_many_entries_leaves_others_their_turn() {
    let (mut world, conn) = grouped();
    world.bus.is_cold = false;
    let group = world.bus.groups.values_mut().next().expect("there is one");
    let (number, _) = group.consumer(b"c", u64::MAX, 9).expect("there is room");
    let ids: Vec<Id> = (1..50_000).map(|position| Id { time: 1, position }).collect();
    assert!(group.deliver(number, Id::MIN, &ids, u64::MAX, true));
    let looks = world.bus.group_looks;
    // The call ends, and another one goes on: so others have their turn.
    world.feed(conn, "XAUTOCLAIM s g c 1000000 0 COUNT 5000\r\n".repeat(100));
    assert!(world.calls > 10, "{} looks in {} calls", world.bus.group_looks - looks, world.calls);
    let got = world.text(conn);
    assert_eq!((got.matches("*3\r\n").count(), got.contains("-ERR")), (100, false));
}

#[test]
fn histories_of_many_streams_share_what_is_read() {
    let (mut world, conn) = grouped();
    world.bus.is_cold = false;
    let mut records = Vec::new();
    push_record(&mut records, b"small");
    push_record_with(&mut records, rbmq_wire::Attributes::EMPTY, &vec![0; 5 << 20]);
    let names: Vec<String> = (0..8).map(|n| format!("u{n}")).collect();
    for name in &names {
        world.bus.logs.insert(topic(name), MemoryLog::default());
        log(&mut world, name).append(1000, &records);
        assert_eq!(world.say(conn, &format!("XGROUP CREATE {name} g 0")), "+OK");
        world.say(conn, &format!("XREADGROUP GROUP g c COUNT 1 STREAMS {name} >"));
    }
    world.most_read = 0;
    let all = world.say(
        conn,
        &format!("XREADGROUP GROUP g c COUNT 1 STREAMS {} {}", names.join(" "), "0 ".repeat(8).trim_end()),
    );
    assert!(all.starts_with("*2 *2 $2 u0 *1 ") || all.starts_with("*3 *2 $2 u0 *1 "), "{}", &all[..40]);
    assert!(world.most_read < 20 << 20, "{} bytes", world.most_read);
}

#[test]
fn a_group_gets_nothing_below_its_id() {
    let (mut world, conn) = grouped();
    for id in ["18446744073709551615-18446744073709551615", "99999999999999-0", "2000-999999"] {
        assert_eq!(world.say(conn, &format!("XGROUP SETID s g {id}")), "+OK");
        assert_eq!(world.say(conn, "XREADGROUP GROUP g c STREAMS s >"), "*-1");
        let mut records = Vec::new();
        push_record(&mut records, b"below");
        log(&mut world, "s").append(2000, &records);
        assert_eq!(world.say(conn, "XREADGROUP GROUP g c STREAMS s >"), "*-1", "{id}");
    }
}

#[test]
fn a_group_begins_behind_what_has_no_entries() {
    let (mut world, conn) = kept();
    log(&mut world, "s").append(1000, &vec![0xFF; 5 << 20]);
    assert_eq!(world.say(conn, "XGROUP CREATE s g $"), "+OK");
    let facts = world.say(conn, "XINFO GROUPS s");
    assert!(facts.contains("last-delivered-id $12 1000-"), "{facts}");
}

#[test]
fn what_was_made_for_a_client_that_has_left_is_forgotten() {
    let (mut world, conn) = kept();
    native(&mut world);
    world.bus.is_slow = true;
    world.bus.is_cold = false;
    assert_eq!(world.say(conn, "XGROUP CREATE s g 0"), "");
    world.with(|protocol, cx| crate::protocol::Protocol::on_fetched(protocol, conn, cx));
    world.close(conn);
    assert!(world.bus.changed.is_empty());
}

#[test]
fn groups_work_in_transactions() {
    let (mut world, conn) = kept();
    native(&mut world);
    for line in [
        "MULTI",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c BLOCK 0 COUNT 1 STREAMS s >",
        "XACK s g 1000-8",
        "XGROUP DESTROY s g",
    ] {
        world.say(conn, line);
    }
    assert_eq!(world.say(conn, "EXEC"), format!("*4 +OK {} :1 :1", read(&[0])));
}

#[test]
fn what_the_disk_does_not_take_is_not_answered() {
    let (mut world, conn) = grouped();
    let other = world.open();
    world.bus.is_cold = false;
    world.bus.unwritten = Some("the disk is full".to_owned());
    assert_eq!(world.say(other, "XPENDING s g"), "*4 :0 $-1 $-1 *-1", "nothing has changed");
    let got = world.ask(conn, "XREADGROUP GROUP g anna STREAMS s >\r\nPING\r\n");
    assert_eq!(got, "-ERR the disk is full\r\n");
    assert!(world.out.closed.contains_key(&conn));
    world.bus.unwritten = None;
    assert_eq!(world.say(other, "PING"), "+PONG");
    // It may have got them, and asks.
    assert_eq!(world.say(other, "XREADGROUP GROUP g anna STREAMS s 0"), read(&[0, 1, 2, 3]));
}

#[test]
fn a_group_has_limits() {
    let (mut world, conn) = grouped();
    world.bus.max_pending = Some(3);
    assert_eq!(world.say(conn, "XREADGROUP GROUP g c STREAMS s >"), read(&[0, 1, 2]));
    let full = world.say(conn, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert!(full.starts_with("-ERR group 'g' has as many pending entries as it may have"), "{full}");
    assert_eq!(world.say(conn, "XREADGROUP GROUP g c NOACK STREAMS s >"), read(&[3]));
    assert_eq!(world.say(conn, "XCLAIM s g c 0 2000-131 FORCE JUSTID"), "*0", "there is no room for it");
    world.bus.max_pending = None;
    for (name, id) in [("d", "1000-8"), ("e", "1000-13"), ("f", "1000-18"), ("c", "2000-131")] {
        let created = if name == "c" { ":0" } else { ":1" };
        assert_eq!(world.say(conn, &format!("XGROUP CREATECONSUMER s g {name}")), created);
        assert!(world.say(conn, &format!("XCLAIM s g {name} 0 {id} FORCE JUSTID")).starts_with("*1 "));
    }
    let many = world.say(conn, "XREADGROUP GROUP g another STREAMS s >");
    assert!(
        many.starts_with("-ERR the group has 4 consumers with pending entries, and may have no more"),
        "{many}"
    );
    let long = "x".repeat(256);
    assert!(
        world.say(conn, &format!("XREADGROUP GROUP g {long} STREAMS s >")).contains("has 255 bytes at most")
    );
    assert!(
        world
            .say(conn, &format!("XGROUP CREATE s {long} 0"))
            .starts_with("-ERR the name of a group has 1 to 64")
    );
    assert!(
        world
            .say(conn, &format!("XPENDING s {long}"))
            .starts_with("-NOGROUP No such key 's' or consumer group 'xxx")
    );
    world.door.refuses_groups = true;
    assert_eq!(world.say(conn, "XGROUP CREATE s h 0"), "-ERR the quota is used up");
    // A reply ends where it is large, and the next one goes on.
    world.bus.max_pending = None;
    assert_eq!(world.say(conn, "XGROUP SETID s g 0"), "+OK");
    world.max_reply(1);
    let one = world.say(conn, "XREADGROUP GROUP g c STREAMS s >");
    assert!(one == read(&[0]) || one == read(&[0, 1, 2, 3]), "{one}");
    assert_eq!(world.say(conn, "XAUTOCLAIM s g d 0 0"), format!("*3 $7 1000-13 {} *0", entries(&[0])));
    assert_eq!(world.say(conn, "XCLAIM s g e 0 1000-13 1000-18"), entries(&[1]));
}

#[test]
fn groups_need_rights() {
    let (mut world, conn) = kept();
    world.door.users.push(reader());
    for name in ["news/s", "public/s"] {
        world.bus.logs.insert(topic(name), MemoryLog::default());
    }
    assert_eq!(world.say(conn, "AUTH ada secret"), "+OK");
    let denied = "-NOPERM No permissions to access a key";
    for line in [
        "XGROUP CREATE public/s g 0 MKSTREAM",
        "XGROUP CREATE news/s g 0 MKSTREAM",
        "XREADGROUP GROUP g c STREAMS public/s >",
        "XACK public/s g 1-1",
        "XPENDING public/s g",
        "XCLAIM public/s g c 0 1-1",
        "XAUTOCLAIM public/s g c 0 0",
        "XINFO GROUPS public/s",
        "XINFO CONSUMERS public/s g",
        "XGROUP DESTROY public/s g",
    ] {
        assert_eq!(world.say(conn, line), denied, "{line}");
    }
}
