//! Logins and rights.

use super::*;

fn guarded() -> World<Resp> {
    let mut world = world();
    world.door.users =
        vec![reader(), MemoryUser { name: "token", secret: "tok", is_token: true, ..reader() }];
    world
}

#[test]
fn nothing_but_a_login_is_allowed_before_it() {
    let mut world = guarded();
    let conn = world.open();
    for asked in ["PING", "PUBLISH public/a b", "SUBSCRIBE news/a", "CLIENT ID", "MULTI", "COMMAND"] {
        assert_eq!(world.say(conn, asked), "-NOAUTH Authentication required.", "{asked}");
    }
    assert!(
        world
            .say(conn, "HELLO 3")
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    assert!(!world.out.known.contains(&conn), "it has said nothing of use");
    assert_eq!(world.say(conn, "AUTH ada secret"), "+OK");
    assert!(world.out.known.contains(&conn));
    assert_eq!(world.say(conn, "PING"), "+PONG");
    assert_eq!(world.say(conn, "ACL WHOAMI"), "$3 ada");
}

#[test]
fn strangers_cannot_make_the_server_keep_much() {
    for (bytes, text) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*2\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut world = guarded();
        let conn = world.open();
        assert_eq!(world.ask(conn, bytes), format!("-ERR Protocol error: {text}\r\n"));
        assert!(world.out.closed.contains_key(&conn));
    }
}

#[test]
fn wrong_passwords_have_the_text_of_redis() {
    let mut world = guarded();
    let conn = world.open();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for asked in ["AUTH ada x", "AUTH x", "AUTH nobody secret", "HELLO 3 AUTH ada x", "AUTH default secret"] {
        assert_eq!(world.say(conn, asked), wrong, "{asked}");
    }
    world.feed(conn, [&b"*3\r\n$4\r\nAUTH\r\n$3\r\nada\r\n$1\r\n"[..], b"\xFF\r\n"].concat());
    assert_eq!(world.line(conn), wrong);
    assert_eq!(world.say(conn, "AUTH a b c"), "-ERR syntax error");
}

#[test]
fn a_secret_without_a_user_is_a_token() {
    for asked in ["AUTH tok", "AUTH default tok", "HELLO 3 AUTH default tok SETNAME me"] {
        let mut world = guarded();
        let conn = world.open();
        assert!(!world.say(conn, asked).starts_with('-'), "{asked}");
        assert_eq!(world.say(conn, "ACL WHOAMI"), "$5 token");
    }
}

#[test]
fn commands_wait_while_a_password_is_checked() {
    let mut world = guarded();
    world.door.is_slow = true;
    let conn = world.open();
    assert_eq!(world.ask(conn, "AUTH ada x\r\nHELLO 3 AUTH ada secret SETNAME me\r\nCLIENT GETNAME\r\n"), "");
    assert!(world.is_blocked(conn));
    world.checked();
    assert!(world.text(conn).starts_with("-WRONGPASS") && world.is_blocked(conn));
    world.checked();
    let text = world.text(conn);
    assert!(text.starts_with("%7\r\n") && text.ends_with("$2\r\nme\r\n"), "{text}");
    assert!(world.out.known.contains(&conn));
}

#[test]
fn a_client_may_leave_while_its_password_is_checked() {
    let mut world = guarded();
    world.door.is_slow = true;
    let conn = world.open();
    world.say(conn, "AUTH ada secret");
    world.close(conn);
    world.checked();
}

#[test]
fn channels_without_a_right_are_refused() {
    let mut world = guarded();
    let conn = world.open();
    world.say(conn, "AUTH ada secret");
    let refused = "-NOPERM No permissions to access a channel";
    assert_eq!(world.say(conn, "PUBLISH news/a b"), refused);
    assert_eq!(world.say(conn, "SPUBLISH news/a b"), refused);
    assert_eq!(world.say(conn, "SUBSCRIBE news/a public/a"), refused);
    assert_eq!(world.say(conn, "SSUBSCRIBE public/a"), refused);
    assert_eq!(world.say(conn, "PSUBSCRIBE public/*"), refused);
    assert!(world.bus.published.is_empty() && world.bus.filters.is_empty());
    assert_eq!(world.door.refusals, 5);
    assert_eq!(world.say(conn, "PUBLISH public/a b"), ":0");
    assert_eq!(world.say(conn, "SUBSCRIBE news/a"), "*3 $9 subscribe $6 news/a :1");
}

#[test]
fn messages_of_a_pattern_without_a_right_are_withheld() {
    let mut world = guarded();
    let conn = world.open();
    world.say(conn, "AUTH ada secret");
    assert_eq!(world.say(conn, "PSUBSCRIBE *"), "*3 $10 psubscribe $1 * :1");
    world.arrive("public/a", &[], b"not for ada");
    assert_eq!(world.line(conn), "");
    world.arrive("news/a", &[], b"for all");
    assert_eq!(world.line(conn), "*4 $8 pmessage $1 * $6 news/a $7 for all");
    assert_eq!(world.door.refusals, 0, "what is withheld is no refusal");
    let other = world.open();
    world.say(other, "AUTH ada secret");
    assert_eq!(world.say(other, "PUBSUB CHANNELS"), "*0");
}

#[test]
fn reset_takes_everything_back() {
    let mut world = guarded();
    let conn = world.open();
    world.say(conn, "HELLO 3 AUTH ada secret SETNAME me");
    world.say(conn, "SUBSCRIBE news/a");
    world.say(conn, "CLIENT REPLY OFF");
    assert_eq!(world.say(conn, "RESET"), "+RESET");
    assert!(world.bus.filters.is_empty());
    assert_eq!(world.say(conn, "PING"), "-NOAUTH Authentication required.");
    assert_eq!(world.say(conn, "AUTH ada secret"), "+OK");
    assert_eq!(world.say(conn, "CLIENT GETNAME"), "$-1");
    world.say(conn, "SUBSCRIBE news/a");
    assert_eq!(world.say(conn, "RESET"), "+RESET");
}

/// What a user may not have is no longer delivered, whoever it was that subscribed to it.
#[test]
fn subscriptions_are_checked_again_after_another_login() {
    let mut world = guarded();
    let wide = MemoryUser { name: "wide", subscribe: "#".parse().unwrap(), ..reader() };
    let other = MemoryUser { name: "other", subscribe: "public/#".parse().unwrap(), ..reader() };
    world.door.users.extend([wide, other]);
    for is_slow in [false, true] {
        for subscribe in ["SUBSCRIBE news/a", "SSUBSCRIBE news/a", "PSUBSCRIBE news/*"] {
            world.door.is_slow = false;
            let conn = world.open();
            world.say(conn, "HELLO 3 AUTH ada secret");
            world.say(conn, subscribe);
            assert_eq!(world.say(conn, "AUTH other x").split(' ').next(), Some("-WRONGPASS"));
            assert_eq!(world.say(conn, "AUTH ada secret"), "+OK");
            assert_eq!(world.say(conn, "AUTH wide secret"), "+OK");
            assert!(!world.out.closed.contains_key(&conn), "{subscribe}");
            world.door.is_slow = is_slow;
            world.feed(conn, "AUTH other secret\r\n");
            world.checked();
            assert_eq!(world.line(conn), "+OK");
            assert!(world.out.closed.contains_key(&conn), "{subscribe}");
        }
    }
}
