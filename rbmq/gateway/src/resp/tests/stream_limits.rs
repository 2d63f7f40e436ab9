//! What clients of streams cost.

use rbmq_wire::push_record;

use super::streams::{kept, log, topic};
use super::*;
use crate::double::MemoryLog;

/// The most bytes that a call reads which executes many commands, beside those of one of them.
const TURN: u64 = 9 << 20;

/// Appends deliveries of ten records, of a thousand bytes each.
fn fill(world: &mut World<Resp>, deliveries: usize) {
    let mut records = Vec::new();
    (0..10).for_each(|_| push_record(&mut records, &[b'x'; 996]));
    (0..deliveries).for_each(|_| _ = log(world, "s").append(1000, &records));
}

#[test]
fn what_is_read_for_nothing_has_its_price() {
    let (mut world, conn) = kept();
    fill(&mut world, 100);
    // The whole log, several times.
    let range = command(&["XRANGE", "s", "1500", "1600"]);
    assert_eq!(world.ask(conn, range.repeat(100)), "*0\r\n".repeat(100));
    assert!(world.most_read < TURN + (4 << 20), "{}", world.most_read);
    world.most_read = 0;
    let read = [&["XREAD", "STREAMS"][..], &["s"; 500], &["1500-1"; 500]].concat();
    assert_eq!(world.ask(conn, command(&read)), "*-1\r\n");
    assert!(world.most_read < 2 * TURN + (4 << 20), "{}", world.most_read);
}

#[test]
fn a_transaction_reads_only_so_much() {
    let (mut world, conn) = kept();
    fill(&mut world, 100);
    world.say(conn, "MULTI");
    world.ask(conn, command(&["XRANGE", "s", "1500", "1600"]).repeat(100));
    let replies = world.say(conn, "EXEC");
    assert!(replies.starts_with("*100 *0 *0 *0") && replies.ends_with("-ERR too much for a transaction"));
    assert!(world.most_read < 36 << 20, "{}", world.most_read);
}

#[test]
fn deliveries_without_entries_do_not_keep_others_waiting() {
    let (mut world, conn) = kept();
    let (junk, mut one) = (vec![0xff; 1_000_000], Vec::new());
    push_record(&mut one, b"1");
    (0..60).for_each(|_| _ = log(&mut world, "s").append(1000, &junk));
    let id = format!("1000-{}", log(&mut world, "s").append(1000, &one));
    let entry = format!("*1 *2 ${} {id} *2 $7 payload $1 1", id.len());
    let found = format!("*1 *2 $1 s {entry}");
    assert_eq!(world.say(conn, "XREAD STREAMS s 0"), found);
    assert_eq!(world.say(conn, "XREAD STREAMS t s s 0 0 0"), found, "what there is now");
    assert_eq!(world.say(conn, "XREAD BLOCK 0 STREAMS s 0"), found);
    assert_eq!(world.say(conn, "XLEN s"), ":1");
    let facts = world.say(conn, "XINFO STREAM s");
    assert!(facts.contains(&format!("last-generated-id ${} {id}", id.len())), "{facts}");
    assert!(world.most_read < 2 * TURN, "{}", world.most_read);
    assert_eq!(world.say(conn, "XREVRANGE s + - COUNT 1"), entry);
    for line in ["XRANGE s - +", "XRANGE s - + COUNT 1", "XREVRANGE s + -"] {
        let error = world.say(conn, line);
        assert!(
            error.contains("bytes of this stream are no entries: ask for what is beyond 1000-"),
            "{error}"
        );
    }
    assert!(world.most_read < 40 << 20, "{}", world.most_read);
    (0..60).for_each(|_| _ = log(&mut world, "s").append(1000, &junk));
    assert_eq!(world.say(conn, &format!("XREAD BLOCK 100 STREAMS s {id}")), "");
    world.pass(Duration::from_millis(100));
    assert_eq!(world.line(conn), "*-1");
}

#[test]
fn replies_are_small_where_much_waits() {
    let (mut world, conn) = kept();
    fill(&mut world, 100);
    assert!(world.say(conn, "XREAD STREAMS s 0").len() > 1_000_000);
    world.out.room = Some(1 << 20);
    let reply = world.say(conn, "XREAD STREAMS s 0");
    assert!(reply.len() > 100_000 && reply.len() < 140_000, "{}", reply.len());
    world.out.room = Some(0);
    let reply = world.say(conn, "XREAD STREAMS s 0");
    assert!(reply.len() > 10_000 && reply.len() < 20_000, "{}", reply.len());
}

#[test]
fn clients_of_one_address_do_not_wait_for_everything() {
    let (mut world, _) = kept();
    let names: Vec<String> = (0..1000).map(|n| format!("k{n}")).collect();
    names.iter().for_each(|name| _ = world.bus.logs.insert(topic(name), MemoryLog::default()));
    let mut words = vec!["XREAD", "BLOCK", "0", "STREAMS"];
    words.extend(names.iter().map(String::as_str));
    words.extend(["$"; 1000]);
    let read = command(&words);
    let conns: Vec<ConnId> = (0..26).map(|_| world.open()).collect();
    for conn in &conns[..25] {
        assert_eq!(world.ask(*conn, &read), "");
    }
    let error = "-ERR the clients of a user or an address wait for 25000 streams at most\r\n";
    assert_eq!(world.ask(conns[25], &read), error);
    world.close(conns[0]);
    assert_eq!(world.ask(conns[25], &read), "");
    conns[1..].iter().for_each(|conn| world.close(*conn));
    assert!(world.bus.followed.is_empty());
}

#[test]
fn a_stream_that_vanishes_while_a_client_begins_to_wait_is_an_error() {
    let (mut world, conn) = kept();
    let other = world.open();
    world.bus.vanishing = Some(topic("s"));
    let error = world.say(conn, "XREAD BLOCK 100 STREAMS t s $ $");
    assert!(error.starts_with("-ERR a stream is a topic"), "{error}");
    assert!(world.bus.followed.is_empty());
    world.pass(Duration::from_secs(1));
    assert!(world.say(other, "INFO clients").contains("blocked_clients:0"));
}

#[test]
fn a_count_is_kept_while_others_are_asked_for() {
    let (mut world, conn) = kept();
    fill(&mut world, 500);
    assert_eq!(world.say(conn, "XLEN s"), ":5000");
    for n in 0..1100 {
        world.bus.logs.insert(topic(&format!("k{n}")), MemoryLog::default());
        assert_eq!(world.say(conn, &format!("XLEN k{n}")), ":0");
    }
    let before = world.bus.read_bytes;
    assert_eq!(world.say(conn, "XLEN s"), ":5000");
    assert_eq!(world.bus.read_bytes, before, "nothing is new");
    // It was removed and has begun anew.
    world.bus.logs.insert(topic("s"), MemoryLog::default());
    fill(&mut world, 3);
    assert_eq!(world.say(conn, "XLEN s"), ":30");
}
