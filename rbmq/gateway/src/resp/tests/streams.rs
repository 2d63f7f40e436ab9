//! Streams over logs in memory.

use rbmq_wire::{AttributesBuf, TopicName, push_record, push_record_with};

use super::*;
use crate::double::MemoryLog;

pub(super) fn topic(name: &str) -> TopicName {
    name.parse().expect("tests name topics")
}

/// A world that keeps `s` and `t`, and a client.
pub(super) fn kept() -> (World<Resp>, ConnId) {
    let mut world = world();
    world.bus.time_ms = 1000;
    // Each command waits for the disk before.
    world.bus.is_cold = true;
    for name in ["s", "t"] {
        world.bus.logs.insert(topic(name), MemoryLog::default());
    }
    let conn = world.open();
    (world, conn)
}

/// The log of a topic.
pub(super) fn log<'a>(world: &'a mut World<Resp>, name: &str) -> &'a mut MemoryLog {
    world.bus.logs.get_mut(&topic(name)).expect("the topic is kept")
}

/// Three entries of one delivery, as a native client writes them, and one of a later delivery.
pub(super) fn native(world: &mut World<Resp>) {
    let mut records = Vec::new();
    ["1", "2", "3"].iter().for_each(|text| push_record(&mut records, text.as_bytes()));
    let log = log(world, "s");
    log.append(1000, &records);
    log.skip(100);
    records.clear();
    push_record(&mut records, b"4");
    log.append(2000, &records);
}

const ENTRIES: [&str; 4] = [
    "*2 $6 1000-8 *2 $7 payload $1 1",
    "*2 $7 1000-13 *2 $7 payload $1 2",
    "*2 $7 1000-18 *2 $7 payload $1 3",
    "*2 $8 2000-131 *2 $7 payload $1 4",
];

pub(super) fn entries(which: &[usize]) -> String {
    let all: Vec<_> = which.iter().map(|at| ENTRIES[*at]).collect();
    format!("*{} {}", which.len(), all.join(" ")).trim_end().to_owned()
}

#[test]
fn an_entry_has_its_id_when_it_is_stored() {
    let (mut world, conn) = kept();
    assert_eq!(world.say(conn, "XADD s * a 1 b 2"), "", "it is not stored yet");
    assert!(world.is_blocked(conn));
    world.store();
    assert_eq!(world.line(conn), "$6 1000-8");
    assert!(!world.is_blocked(conn));
    world.say(conn, "XADD s NOMKSTREAM MAXLEN ~ 1000 LIMIT 10 * payload x");
    world.store();
    assert_eq!(world.line(conn), "$7 1000-85");
    let expected = "*2 *2 $6 1000-8 *4 $1 a $1 1 $1 b $1 2 *2 $7 1000-85 *2 $7 payload $1 x";
    assert_eq!(world.say(conn, "XRANGE s - +"), expected);
    let mut three = world.open();
    assert!(world.say(three, "HELLO 3").starts_with('%'));
    assert_eq!(world.say(three, "XRANGE s 1000-85 1000-85"), "*1 *2 $7 1000-85 *2 $7 payload $1 x");
    three = world.open();
    assert_eq!(world.say(three, "XADD t NOMKSTREAM * a 1"), "$-1", "nothing was ever stored in it");
}

#[test]
fn a_pipeline_of_entries_waits_once_and_its_replies_keep_their_order() {
    let (mut world, conn) = kept();
    let pipeline =
        ["XADD s * payload 1", "XADD s 5-1 payload 2", "XADD t * payload 3", "PING", "XADD s * payload 4"];
    let lines: String = pipeline.iter().map(|line| format!("{line}\r\n")).collect();
    assert_eq!(world.ask(conn, lines), "");
    world.store();
    let refused = "-ERR the broker gives entries their IDs, which say the time and the place of an entry in the log: use * as the ID";
    assert_eq!(world.line(conn), format!("$6 1000-8 {refused} $6 1000-8 +PONG"));
    world.store();
    assert_eq!(world.line(conn), "$7 1000-21");
    world.feed(conn, "CLIENT REPLY SKIP\r\nXADD s * payload 5\r\nXADD s * payload 6\r\n");
    world.store();
    assert_eq!(world.line(conn), "$7 1000-47", "nobody wants the first one");
    world.bus.room = Some(0);
    assert_eq!(world.say(conn, "XADD s * payload 7"), "");
    world.make_room(1);
    world.store();
    assert_eq!(world.line(conn), "$7 1000-60");
    world.bus.room = None;
    world.feed(conn, "XADD s * payload 8\r\n*x\r\n");
    world.store();
    assert_eq!(world.line(conn), "$7 1000-73 -ERR Protocol error: invalid multibulk length");
    let leaves = world.open();
    world.say(leaves, "XADD s * payload 9");
    world.close(leaves);
    world.store();
}

#[test]
fn entries_of_a_transaction_have_their_replies_in_it() {
    let (mut world, conn) = kept();
    for line in ["MULTI", "XADD s * payload 1", "XADD s * payload 2", "XLEN s", "XREAD BLOCK 0 STREAMS t 0"] {
        world.say(conn, line);
    }
    assert_eq!(world.say(conn, "EXEC"), "");
    world.store();
    assert_eq!(world.line(conn), "", "the second one is sent now");
    world.store();
    assert_eq!(world.line(conn), "*4 $6 1000-8 $7 1000-21 :2 *-1");
}

/// Others are served, and the replies of a client keep their order. What was read once is in memory.
#[test]
fn while_the_disk_reads_for_a_client_others_are_served() {
    let (mut world, conn) = kept();
    native(&mut world);
    world.bus.is_slow = true;
    assert_eq!(world.ask(conn, "PING\r\nXLEN s\r\nXRANGE s - + COUNT 1\r\nPING\r\n"), "+PONG\r\n");
    assert!(world.is_blocked(conn));
    let (other, leaves) = (world.open(), world.open());
    assert_eq!(world.say(other, "PING"), "+PONG");
    assert_eq!(world.say(leaves, "XREVRANGE s + -"), "");
    world.close(leaves);
    let mut waits = 0;
    while world.is_blocked(conn) {
        waits += 1;
        assert!(world.fetch_one() && waits < 10);
        assert_eq!(world.say(other, "PING"), "+PONG");
    }
    assert_eq!(world.line(conn), format!(":4 {} +PONG", entries(&[0])));
    assert_eq!(world.say(conn, "XRANGE s - + COUNT 1"), entries(&[0]));
    assert_eq!(world.say(conn, "XRANGE s 1999 +"), "");
    while world.fetch_one() {}
    assert_eq!(world.line(conn), entries(&[3]));
    // In the middle of a transaction too.
    for line in ["MULTI", "PING", "XREVRANGE s + - COUNT 1", "XREAD COUNT 1 STREAMS s 1001"] {
        world.say(conn, line);
    }
    assert_eq!(world.say(conn, "EXEC"), "");
    while world.fetch_one() {}
    let expected = format!("*3 +PONG {} *1 *2 $1 s {}", entries(&[3]), entries(&[3]));
    assert_eq!(world.line(conn), expected);
}

#[test]
fn nothing_is_read_for_clients_that_have_left() {
    let (mut world, conn) = kept();
    native(&mut world);
    world.bus.is_slow = true;
    assert_eq!(world.say(conn, "XRANGE s - +"), "");
    world.close(conn);
    assert!(!world.fetch_one());
}

/// With many who read, what was read for a command may be forgotten before it has all it needs.
#[test]
fn a_command_ends_also_where_its_first_part_is_forgotten_before_the_last_is_there() {
    let (mut world, conn) = kept();
    native(&mut world);
    (world.bus.is_slow, world.bus.is_forgetful) = (true, true);
    let other = world.open();
    let read = format!("*1 *2 $1 s {}", entries(&[3]));
    for (line, expected) in [
        ("XRANGE s 1999 +", entries(&[3])),
        ("XREVRANGE s 1999 -", entries(&[2, 1, 0])),
        ("XREAD STREAMS s 1999", read),
        ("XLEN s", ":4".to_owned()),
    ] {
        assert_eq!(world.say(conn, line), "");
        let mut waits = 0;
        while world.is_blocked(conn) {
            waits += 1;
            assert!(world.fetch_one() && waits < 100, "{line}");
            assert_eq!(world.say(other, "PING"), "+PONG");
        }
        assert_eq!(world.line(conn), expected, "{line}");
    }
}

#[test]
fn a_range_is_that_of_its_ids() {
    let (mut world, conn) = kept();
    native(&mut world);
    for (range, expected) in [
        ("- +", &[0, 1, 2, 3][..]),
        ("- + COUNT 2", &[0, 1]),
        ("1000 1000", &[0, 1, 2]),
        ("1000-13 +", &[1, 2, 3]),
        ("(1000-13 (2000-131", &[2]),
        ("1000-9 1000-17", &[1]),
        ("1001 1999", &[]),
        ("1500 +", &[3]),
        ("2000-131 2000-131", &[3]),
        ("0-50 999-50", &[]),
        ("3000 +", &[]),
        ("2000 1000", &[]),
    ] {
        assert_eq!(world.say(conn, &format!("XRANGE s {range}")), entries(expected), "{range}");
        let (ends, count) = range.split_once(" COUNT").unwrap_or((range, ""));
        if count.is_empty() {
            let (start, end) = ends.split_once(' ').expect("two ends");
            let reversed: Vec<usize> = expected.iter().rev().copied().collect();
            assert_eq!(world.say(conn, &format!("XREVRANGE s {end} {start}")), entries(&reversed), "{range}");
        }
    }
    assert_eq!(world.say(conn, "XREVRANGE s + - COUNT 2"), entries(&[3, 2]));
    assert_eq!(world.say(conn, "XRANGE s - + COUNT 0"), "*-1");
    assert_eq!(world.say(conn, "XRANGE s - + COUNT x"), "-ERR value is not an integer or out of range");
    assert_eq!(world.say(conn, "XRANGE s - + 1"), "-ERR syntax error");
    let invalid = "-ERR Invalid stream ID specified as stream command argument";
    assert_eq!(world.say(conn, "XRANGE s $ +"), invalid);
    // What is not kept any more.
    log(&mut world, "s").first = 123;
    assert_eq!(world.say(conn, "XRANGE s - +"), entries(&[3]));
    assert_eq!(world.say(conn, "XREVRANGE s + 1000-13"), entries(&[3]));
    assert_eq!(world.say(conn, "XREAD STREAMS s 1000-8"), format!("*1 *2 $1 s {}", entries(&[3])));
}

#[test]
fn native_messages_are_entries_with_their_attributes() {
    let (mut world, conn) = kept();
    let (mut records, mut attributes) = (Vec::new(), AttributesBuf::new());
    attributes.content_type("text/plain").unwrap().property("city", "Graz").unwrap().key(b"k").unwrap();
    push_record_with(&mut records, attributes.attributes(), b"hello");
    // Fields that would break the stream of replies of whoever reads them.
    attributes.clear();
    attributes.content_type("application/x-resp-fields").unwrap();
    push_record_with(&mut records, attributes.attributes(), b"*2\r\n$1\r\na\r\n");
    log(&mut world, "s").append(1000, &records);
    let expected = "*2 *2 $6 1000-8 *8 $7 payload $5 hello $12 content_type $10 text/plain $4 city $4 Graz $3 key $1 k *2 $7 1000-54 \
                    *4 $7 payload $11 *2 $1 a  $12 content_type $25 application/x-resp-fields";
    assert_eq!(world.say(conn, "XRANGE s - +"), expected);
}

#[test]
fn streams_are_read_from_a_place_on() {
    let (mut world, conn) = kept();
    native(&mut world);
    let s = |which: &[usize]| format!("*1 *2 $1 s {}", entries(which));
    assert_eq!(world.say(conn, "XREAD STREAMS s 0"), s(&[0, 1, 2, 3]));
    assert_eq!(world.say(conn, "XREAD COUNT 1 STREAMS s t 1000-8 0"), s(&[1]));
    assert_eq!(world.say(conn, "XREAD STREAMS s 2000-131"), "*-1");
    assert_eq!(world.say(conn, "XREAD STREAMS s $"), "*-1");
    assert_eq!(world.say(conn, "XREAD STREAMS s +"), s(&[3]));
    assert_eq!(world.say(conn, "XREAD STREAMS s 9000-50"), s(&[3]), "a crash has taken the entry of this id");
    assert_eq!(world.say(conn, "XREAD STREAMS s 9000-131"), "*-1");
    assert_eq!(world.say(conn, "XREAD COUNT 1 STREAMS t +"), "*-1");
    let three = world.resp3();
    assert_eq!(world.say(three, "XREAD COUNT 1 STREAMS s 0"), format!("%1 $1 s {}", entries(&[0])));
    assert_eq!(world.say(three, "XREAD STREAMS s $"), "_");
    for (line, error) in [
        ("XREAD STREAMS s", "ERR wrong number of arguments for 'xread' command"),
        (
            "XREAD STREAMS s t 0",
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
        ),
        ("XREAD COUNT 1 s 0", "ERR syntax error"),
        ("XREAD BLOCK -1 STREAMS s 0", "ERR timeout is negative"),
        ("XREAD BLOCK x STREAMS s 0", "ERR timeout is not an integer or out of range"),
        ("XREAD STREAMS s -", "ERR Invalid stream ID specified as stream command argument"),
    ] {
        assert_eq!(world.say(conn, line), format!("-{error}"), "{line}");
    }
}

#[test]
fn a_client_waits_until_a_stream_grows() {
    let (mut world, conn) = kept();
    let (writer, other) = (world.open(), world.open());
    assert_eq!(world.say(conn, "XREAD COUNT 1 BLOCK 0 STREAMS s t $ $"), "");
    assert!(world.out.known.contains(&conn), "a client that waits makes room for nobody");
    assert_eq!(world.say(other, "XREAD BLOCK 0 STREAMS t $"), "");
    assert!(world.say(writer, "INFO clients").contains("blocked_clients:2"));
    world.feed(writer, "XADD s * payload 1\r\nXADD s * payload 2\r\n");
    world.store();
    assert_eq!(world.line(conn), "*1 *2 $1 s *1 *2 $6 1000-8 *2 $7 payload $1 1");
    assert_eq!(world.line(other), "", "its stream has not grown");
    assert_eq!(world.bus.followed.len(), 1);
    assert_eq!(world.say(conn, "PING"), "+PONG");
    world.close(other);
    assert!(world.bus.followed.is_empty(), "a client that has left leaves nothing behind");
    // A stream that grows by something else than an entry.
    assert_eq!(world.say(conn, "XREAD BLOCK 0 STREAMS t $"), "");
    log(&mut world, "t").skip(10);
    world.grow(&topic("t"));
    assert!(world.is_blocked(conn) && world.bus.followed.len() == 1);
    world.say(writer, "XADD t * payload 3");
    world.store();
    assert_eq!(world.line(conn), "*1 *2 $1 t *1 *2 $7 1000-18 *2 $7 payload $1 3");
}

#[test]
fn a_client_waits_for_its_time() {
    let (mut world, conn) = kept();
    let forever = world.open();
    assert_eq!(world.say(conn, "XREAD BLOCK 100 STREAMS s s $ $"), "");
    assert_eq!(world.say(forever, "XREAD BLOCK 0 STREAMS s $"), "");
    world.pass(Duration::from_millis(99));
    assert!(world.is_blocked(conn));
    world.feed(conn, "PING\r\n");
    world.pass(Duration::from_millis(1));
    assert_eq!(world.line(conn), "*-1 +PONG");
    assert!(world.is_blocked(forever) && world.bus.followed.len() == 1);
    let id = world.say(forever, "");
    assert_eq!(id, "");
    world.close(forever);
    assert!(world.bus.followed.is_empty());
}

#[test]
fn what_is_known_of_streams() {
    let (mut world, conn) = kept();
    assert_eq!(world.say(conn, "XLEN s"), ":0");
    assert_eq!(world.say(conn, "TYPE s"), "+none");
    assert_eq!(world.say(conn, "XINFO STREAM s"), "-ERR no such key");
    native(&mut world);
    assert_eq!(world.say(conn, "XLEN s"), ":4");
    assert_eq!(world.say(conn, "EXISTS s t nothing s"), ":2");
    assert_eq!((world.say(conn, "TYPE s"), world.say(conn, "TYPE x")), ("+stream".into(), "+none".into()));
    let facts = world.say(conn, "XINFO STREAM s");
    assert!(facts.starts_with("*20 $6 length :4 "), "{facts}");
    assert!(facts.contains("$17 last-generated-id $8 2000-131"), "{facts}");
    assert!(
        facts.contains("$11 first-entry *2 $6 1000-8") && facts.contains("$10 last-entry *2 $8 2000-131"),
        "{facts}"
    );
    assert_eq!(world.say(conn, "XINFO GROUPS s"), "*0");
    assert_eq!(world.say(conn, "XTRIM s MAXLEN ~ 10"), ":0");
    for line in ["XTRIM s MAXLEN 10", "XADD s MAXLEN 10 * a 1", "XADD s MINID = 1 * a 1"] {
        assert!(world.say(conn, line).contains("use MAXLEN ~ or MINID ~"), "{line}");
    }
    assert!(world.say(conn, "XDEL s 1000-8").contains("no entry is changed or deleted"));
    // What retention has removed is not counted.
    log(&mut world, "s").first = 123;
    assert_eq!(world.say(conn, "XLEN s"), ":1");
    log(&mut world, "s").first = 136;
    assert_eq!(world.say(conn, "XLEN s"), ":0");
}

#[test]
fn a_large_stream_is_counted_in_turns() {
    let (mut world, conn) = kept();
    let mut records = Vec::new();
    (0..1000).for_each(|_| push_record(&mut records, &[b'x'; 996]));
    (0..20).for_each(|_| _ = log(&mut world, "s").append(1000, &records));
    assert_eq!(world.say(conn, "XLEN s"), ":20000");
    log(&mut world, "s").first = 7 * 1_000_008;
    // The disk has to be waited for again, and only what is before the next mark is read.
    world.bus.forget_logs();
    let before = world.bus.read_bytes;
    assert_eq!(world.say(conn, "XLEN s"), ":13000");
    assert!(world.bus.read_bytes - before < 3_000_000, "{}", world.bus.read_bytes - before);
    log(&mut world, "s").append(1000, &records);
    log(&mut world, "s").first = 9 * 1_000_008;
    assert_eq!(world.say(conn, "XLEN s"), ":12000");
    assert!(
        world
            .say(conn, "XRANGE s - +")
            .starts_with("-ERR the entries of this range have more than 8388608 bytes")
    );
    let part = world.say(conn, "XREAD STREAMS s 0");
    assert!(part.len() > 7 << 20 && part.len() < 9 << 20, "XREAD goes on where its reply ends");
}

#[test]
fn what_is_no_entry_is_not_read_without_end() {
    let (mut world, conn) = kept();
    // The attributes of the record are cut off.
    let garbage = [&(0x8000_0004_u32 | 1 << 20).to_le_bytes()[..], &[0xFF; (1 << 20) + 4]].concat();
    push_record_to(&mut world, b"first");
    (0..70).for_each(|_| _ = log(&mut world, "s").append(1000, &garbage));
    assert_eq!(world.say(conn, "XRANGE s - + COUNT 1"), "*1 *2 $6 1000-8 *2 $7 payload $5 first");
    assert!(world.say(conn, "XRANGE s - +").contains("are no entries: ask for what is beyond 1000-"));
    assert!(world.say(conn, "XREVRANGE s + -").contains("are no entries"));
    assert_eq!(world.say(conn, "XLEN s"), ":1");
}

fn push_record_to(world: &mut World<Resp>, payload: &[u8]) {
    let mut record = Vec::new();
    push_record(&mut record, payload);
    log(world, "s").append(1000, &record);
}

#[test]
fn keys_need_a_kept_topic_and_rights() {
    let (mut world, conn) = kept();
    world.bus.kept_space = Some("devices/#".parse().unwrap());
    for line in ["XADD x * a 1", "XRANGE x - +", "XREAD STREAMS s x 0 0", "XLEN x", "XINFO STREAM x"] {
        let error = world.say(conn, line);
        assert!(error.starts_with("-ERR a stream is a topic that the broker keeps on disk"), "{error}");
        assert!(error.contains("[[broker.topics]] with pattern = \"x\" and keep = true"), "{error}");
    }
    assert!(world.say(conn, "XLEN devices/1").contains("before the rule of the space"));
    let long = "y".repeat(300);
    assert!(world.say(conn, &format!("XLEN {long}")).starts_with("-ERR the name of this key is too long"));
    world.door.users.push(reader());
    for name in ["news/s", "public/s"] {
        world.bus.logs.insert(topic(name), MemoryLog::default());
    }
    let ada = world.open();
    assert_eq!(world.say(ada, "AUTH ada secret"), "+OK");
    assert_eq!(world.say(ada, "XLEN news/s"), ":0");
    for line in [
        "XADD news/s * a 1",
        "XLEN public/s",
        "XREAD BLOCK 0 STREAMS public/s 0",
        "TYPE public/s",
        "XTRIM news/s MAXLEN ~ 1",
    ] {
        assert_eq!(world.say(ada, line), "-NOPERM No permissions to access a key", "{line}");
    }
    world.say(ada, "XADD public/s * a 1");
    world.store();
    assert_eq!(world.line(ada), "$6 1000-8");
}
