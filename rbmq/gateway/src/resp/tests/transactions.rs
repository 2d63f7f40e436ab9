//! `MULTI` and `EXEC`.

use super::*;

#[test]
fn transactions_execute_their_commands_at_exec() {
    let mut world = world();
    let (conn, subscriber) = (world.open(), world.open());
    world.say(subscriber, "SUBSCRIBE a");
    assert_eq!(world.say(conn, "WATCH key"), "+OK");
    assert_eq!(world.say(conn, "MULTI"), "+OK");
    assert_eq!(world.say(conn, "PUBLISH a 1"), "+QUEUED");
    assert_eq!(world.ask(conn, "publish b 2\r\n"), "+QUEUED\r\n");
    assert_eq!(world.say(conn, "MULTI"), "-ERR MULTI calls can not be nested");
    assert!(world.bus.published.is_empty());
    assert_eq!(world.say(conn, "EXEC"), "*2 :1 :0");
    assert_eq!(world.bus.published.len(), 2);
    assert_eq!(world.say(conn, "EXEC"), "-ERR EXEC without MULTI");
    assert_eq!(world.say(conn, "DISCARD"), "-ERR DISCARD without MULTI");
    world.say(conn, "MULTI");
    world.say(conn, "PUBLISH a 3");
    assert_eq!(world.say(conn, "WATCH a"), "-ERR WATCH inside MULTI is not allowed");
    assert_eq!(world.say(conn, "DISCARD"), "+OK");
    assert_eq!(world.say(conn, "UNWATCH"), "+OK");
    assert_eq!(world.bus.published.len(), 2);
    world.say(conn, "MULTI");
    assert_eq!(world.say(conn, "PUBLISH a"), "-ERR wrong number of arguments for 'publish' command");
    assert_eq!(world.say(conn, "PUBLISH a 4"), "+QUEUED");
    assert_eq!(world.say(conn, "EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(world.say(conn, "MULTI"), "+OK");
    assert_eq!(world.say(conn, "EXEC"), "*0");
    assert_eq!(world.bus.published.len(), 2);
}

#[test]
fn a_transaction_waits_in_the_middle_until_the_bus_has_room() {
    let mut world = world();
    let conn = world.open();
    world.bus.room = Some(1);
    let lines = "MULTI\r\nPUBLISH a 1\r\nPUBLISH a 2\r\nPING\r\nPUBLISH a 3\r\nEXEC\r\nPING\r\n";
    assert_eq!(world.ask(conn, lines), "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
    assert!(world.is_blocked(conn));
    world.make_room(1);
    assert_eq!(world.text(conn), "");
    world.make_room(1);
    assert_eq!(world.text(conn), "*4\r\n:0\r\n:0\r\n+PONG\r\n:0\r\n+PONG\r\n");
    let payloads: Vec<&[u8]> = world.bus.published.iter().map(|one| &one.payload[..]).collect();
    assert_eq!(payloads, [b"1", b"2", b"3"]);
}

#[test]
fn a_transaction_has_a_limit() {
    let mut world = world();
    let conn = world.open();
    world.say(conn, "MULTI");
    let large = "x".repeat(700_000);
    assert_eq!(world.say(conn, &format!("PUBLISH a {large}")), "+QUEUED");
    assert!(world.say(conn, &format!("PUBLISH a {large}")).starts_with("-ERR a transaction has "));
    assert!(world.say(conn, "EXEC").starts_with("-EXECABORT"));
}

/// Its replies come at once, so that nothing else bounds them.
#[test]
fn a_transaction_has_no_more_replies_than_memory_has_room_for() {
    let mut world = world();
    let (conn, other) = (world.open(), world.open());
    let names: Vec<String> = (0..1000).map(|number| format!("{number:0200}")).collect();
    world.say(other, &format!("SUBSCRIBE {}", names.join(" ")));
    world.say(conn, "MULTI");
    world.feed(conn, "PUBSUB CHANNELS\r\n".repeat(100));
    world.say(conn, "PUBLISH a b");
    let text = world.ask(conn, "EXEC\r\nPING\r\n");
    assert!(text.len() < 5 << 20 && text.starts_with("*101\r\n*1000\r\n"), "{}", text.len());
    assert!(text.ends_with("-ERR too much for a transaction\r\n:0\r\n+PONG\r\n"));
    assert_eq!(world.bus.published.len(), 1, "small replies have room");
}

#[test]
fn a_transaction_goes_on_after_it_has_subscribed() {
    let mut world = world();
    let conn = world.open();
    world.bus.is_late = true;
    world.feed(conn, "MULTI\r\nSUBSCRIBE a\r\nSUBSCRIBE b\r\nEXEC\r\n");
    world.subscribed();
    world.got(conn);
    world.subscribed();
    assert_eq!(world.line(conn), "*2 *3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2");
}

#[test]
fn the_transactions_of_all_clients_have_a_limit() {
    let mut world = world();
    world.protocol.bounds.transaction_bytes = 100;
    let (one, two) = (world.open(), world.open());
    world.say(one, "MULTI");
    world.say(two, "MULTI");
    let (large, refused) =
        (format!("PUBLISH a {}", "x".repeat(50)), "-ERR all transactions have 100 bytes at most");
    for free in ["DISCARD", "RESET", "EXEC", "QUIT"] {
        assert_eq!(world.say(one, &large), "+QUEUED");
        assert_eq!(world.say(two, &large), refused);
        assert_eq!(world.say(two, "PING"), "+QUEUED");
        assert!(world.say(two, "EXEC").starts_with("-EXECABORT"));
        world.say(one, free);
        world.say(one, "MULTI");
        world.say(two, "MULTI");
    }
    world.close(one);
    assert_eq!(world.say(two, &large), "+QUEUED");
    world.close(two);
    assert_eq!(world.protocol.transaction_bytes, 0);
}

/// Its replies wait with it.
#[test]
fn a_transaction_that_waits_with_many_replies_ends_where_there_is_no_room_for_them() {
    let mut world = world();
    world.protocol.bounds.transaction_bytes = 1000;
    let conn = world.open();
    world.bus.room = Some(0);
    world.feed(conn, "MULTI\r\nCOMMAND\r\nPUBLISH a b\r\nEXEC\r\n");
    assert!(world.out.closed.contains_key(&conn));
    world.close(conn);
    assert_eq!(world.protocol.transaction_bytes, 0);
}
