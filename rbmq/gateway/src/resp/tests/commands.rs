//! What clients ask before they trust a server, and what they get wrong.

use super::*;

#[test]
fn hello_says_which_server_this_is_in_the_version_that_was_asked_for() {
    let mut world = world();
    let conn = world.open();
    let rest = "$5 proto :2 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0";
    let hello = |proto: &str| {
        let server = "$6 server $5 redis $7 version $5 7.4.0";
        format!("{server} {}", rest.replace("proto :2", proto))
    };
    assert_eq!(world.say(conn, "HELLO"), format!("*14 {}", hello("proto :2")));
    assert_eq!(world.say(conn, "hello 3 SETNAME me"), format!("%7 {}", hello("proto :3")));
    assert_eq!(world.say(conn, "CLIENT GETNAME"), "$2 me");
    assert_eq!(world.say(conn, "HELLO 4"), "-NOPROTO unsupported protocol version");
    assert_eq!(world.say(conn, "HELLO x"), "-ERR Protocol version is not an integer or out of range");
    assert_eq!(world.say(conn, "HELLO 3 WHAT"), "-ERR Syntax error in HELLO option 'WHAT'");
    assert_eq!(world.say(conn, "HELLO 3 SETNAME"), "-ERR Syntax error in HELLO option 'SETNAME'");
}

/// Clients of 2026 begin with it, and go on without when the error says «unknown».
#[test]
fn client_maint_notifications_is_an_unknown_subcommand() {
    let mut world = world();
    let conn = world.resp3();
    let reply = world.say(conn, "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip");
    assert_eq!(reply, "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.");
    assert_eq!(world.say(conn, "PING"), "+PONG");
}

#[test]
fn ping_and_echo_answer() {
    let mut world = world();
    let conn = world.open();
    assert_eq!(world.say(conn, "PING"), "+PONG");
    assert_eq!(world.say(conn, "ping hello"), "$5 hello");
    assert_eq!(world.say(conn, "ECHO x"), "$1 x");
    assert_eq!(world.say(conn, "ping a b"), "-ERR wrong number of arguments for 'ping' command");
    assert_eq!(world.ask(conn, "PING\r\n"), "+PONG\r\n");
    assert_eq!(world.ask(conn, "\r\necho 'a b'\n"), "$3\r\na b\r\n");
}

#[test]
fn quit_is_answered_and_ends_the_connection() {
    let mut world = world();
    let conn = world.open();
    world.feed(conn, [command(&["QUIT"]), command(&["PING"])].concat());
    assert_eq!(world.line(conn), "+OK");
    assert!(world.out.closed.contains_key(&conn));
}

#[test]
fn commands_that_need_a_store_say_so_and_others_are_unknown_as_in_redis() {
    let mut world = world();
    let conn = world.open();
    let store = |name| {
        format!(
            "-ERR '{name}' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams"
        )
    };
    assert_eq!(world.say(conn, "GET a"), store("GET"));
    assert_eq!(world.say(conn, "set a b"), store("set"));
    assert_eq!(world.say(conn, "FOO a b"), "-ERR unknown command 'FOO', with args beginning with: 'a' 'b'");
    assert_eq!(
        world.say(conn, "DEBUG SLEEP"),
        "-ERR unknown command 'DEBUG', with args beginning with: 'SLEEP'"
    );
    let long = "x".repeat(500);
    let reply = world.say(conn, &format!("FOO {long} b"));
    assert_eq!(reply, format!("-ERR unknown command 'FOO', with args beginning with: '{}'", &long[..128]));
    world.feed(conn, command(&["A\r\nB"]));
    assert_eq!(world.text(conn), "-ERR unknown command 'A  B', with args beginning with: \r\n");
    assert_eq!(world.say(conn, "publish a"), "-ERR wrong number of arguments for 'publish' command");
}

#[test]
fn one_database_is_there_and_it_is_empty() {
    let mut world = world();
    let conn = world.open();
    for (asked, reply) in [
        ("SELECT 0", "+OK"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR invalid DB index"),
        ("DBSIZE", ":0"),
        ("FLUSHALL", "+OK"),
        ("FLUSHDB ASYNC", "+OK"),
        ("FUNCTION FLUSH", "+OK"),
        ("ROLE", "*3 $6 master :0 *0"),
        ("CLUSTER INFO", "-ERR This instance has cluster support disabled"),
        ("ACL WHOAMI", "$7 default"),
        ("TIME", "*2 $10 1700000000 $1 0"),
    ] {
        assert_eq!(world.say(conn, asked), reply, "{asked}");
    }
    world.pass(Duration::from_micros(61_000_007));
    assert_eq!(world.say(conn, "TIME"), "*2 $10 1700000061 $1 7");
}

#[test]
fn info_has_what_clients_look_for() {
    let mut world = world();
    let conn = world.open();
    let info = world.ask(conn, "INFO\r\n");
    assert!(info.starts_with('$') && info.ends_with("\r\n"));
    for line in ["redis_version:7.4.0", "rbmq_version:1.2.3", "loading:0", "role:master", "cluster_enabled:0"]
    {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}");
    }
    assert_eq!(world.ask(conn, "info cluster\r\n"), "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n");
    let conn = world.resp3();
    assert_eq!(world.ask(conn, "info CLUSTER\r\n"), "=34\r\ntxt:# Cluster\r\ncluster_enabled:0\r\n\r\n");
    assert_eq!(world.ask(conn, "info nothing\r\n"), "=4\r\ntxt:\r\n");
}

#[test]
fn config_get_answers_what_redis_benchmark_asks() {
    let mut world = world();
    let conn = world.open();
    assert_eq!(world.say(conn, "CONFIG GET save"), "*2 $4 save $0");
    assert_eq!(world.say(conn, "CONFIG GET appendonly SAVE"), "*4 $10 appendonly $2 no $4 save $0");
    assert_eq!(
        world.say(conn, "CONFIG GET maxmemory*"),
        "*4 $9 maxmemory $1 0 $16 maxmemory-policy $10 noeviction"
    );
    assert_eq!(world.say(conn, "CONFIG GET nothing"), "*0");
    assert!(world.say(conn, "CONFIG SET save x").starts_with("-ERR the settings of this server are in"));
    let conn = world.resp3();
    assert_eq!(world.say(conn, "CONFIG GET save"), "%1 $4 save $0");
}

#[test]
fn command_describes_the_commands() {
    let mut world = world();
    let conn = world.open();
    let count: usize = world.say(conn, "COMMAND COUNT")[1..].parse().unwrap();
    assert!(world.say(conn, "COMMAND LIST").starts_with(&format!("*{count} ")));
    assert!(world.say(conn, "COMMAND").starts_with(&format!("*{count} *10 $3 acl")));
    assert_eq!(world.say(conn, "COMMAND DOCS"), "*0");
    assert_eq!(
        world.say(conn, "COMMAND INFO publish get"),
        "*2 *10 $7 publish :3 *3 +pubsub +loading +stale :0 :0 :0 *0 *0 *0 *0 *-1"
    );
    assert_eq!(world.say(conn, "COMMAND X"), "-ERR unknown subcommand 'X'. Try COMMAND HELP.");
}

#[test]
fn clients_say_who_they_are() {
    let mut world = world();
    let conn = world.open();
    for (asked, reply) in [
        ("CLIENT ID", ":1"),
        ("CLIENT GETNAME", "$-1"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "$2 me"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
        ("CLIENT SETINFO lib-ver 8.1.0", "+OK"),
        ("CLIENT SETINFO lib-what x", "-ERR Unrecognized option 'lib-what'"),
        ("CLIENT NO-EVICT on", "+OK"),
        ("CLIENT NO-TOUCH off", "+OK"),
        ("CLIENT NO-TOUCH x", "-ERR syntax error"),
    ] {
        assert_eq!(world.say(conn, asked), reply, "{asked}");
    }
    world.feed(conn, command(&["CLIENT", "SETNAME", "a b"]));
    assert_eq!(world.line(conn), "-ERR Client names cannot contain spaces, newlines or special characters.");
    world.pass(Duration::from_secs(3));
    assert_eq!(
        world.ask(conn, "client info\r\n").lines().nth(1).unwrap(),
        "id=1 addr=127.0.0.1:40001 name=me age=3 idle=3 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 omem=0 cmd=client \
         user=default redir=-1 resp=2 lib-name=redis-py lib-ver=8.1.0"
    );
}

#[test]
fn client_list_and_kill_reach_the_own_users_connections() {
    let mut world = world();
    world.door.users = vec![reader(), MemoryUser { name: "bob", ..reader() }];
    let (one, two, other, stranger) = (world.open(), world.open(), world.open(), world.open());
    for (conn, user) in [(one, "ada"), (two, "ada"), (other, "bob")] {
        assert_eq!(world.say(conn, &format!("AUTH {user} secret")), "+OK");
    }
    let ids = |text: String| -> Vec<String> {
        text.lines()
            .filter_map(|line| Some(line.strip_prefix("id=")?.split(' ').next()?.to_owned()))
            .collect()
    };
    assert_eq!(ids(world.ask(one, "CLIENT LIST\r\n")), ["1", "2"]);
    assert_eq!(ids(world.ask(one, "CLIENT LIST ID 2 3\r\n")), ["2"]);
    assert_eq!(ids(world.ask(one, "CLIENT LIST ID 2 1 2\r\n")), ["1", "2"]);
    assert_eq!(ids(world.ask(one, "CLIENT LIST TYPE pubsub\r\n")), Vec::<String>::new());
    assert_eq!(world.say(one, "CLIENT KILL ID 3"), ":0");
    assert_eq!(world.say(one, "CLIENT KILL 127.0.0.1:40003"), "-ERR No such client");
    assert_eq!(world.say(one, "CLIENT KILL ADDR 127.0.0.1:40002"), ":1");
    assert!(world.out.closed.contains_key(&two) && world.out.closed.len() == 1);
    assert_eq!(world.say(one, "CLIENT KILL ID 1"), ":0");
    assert_eq!(world.say(one, "CLIENT KILL ID 1 SKIPME no"), ":1");
    assert!(world.out.closed.contains_key(&one) && !world.out.closed.contains_key(&stranger));
    assert_eq!(world.say(other, "CLIENT KILL ID 0"), "-ERR client-id should be greater than 0");
}

#[test]
fn client_reply_silences_replies_and_no_messages() {
    let mut world = world();
    let conn = world.resp3();
    assert_eq!(world.say(conn, "CLIENT REPLY SKIP"), "");
    assert_eq!(world.say(conn, "PING"), "");
    assert_eq!(world.say(conn, "PING"), "+PONG");
    assert_eq!(world.say(conn, "CLIENT REPLY OFF"), "");
    assert_eq!(world.say(conn, "PUBLISH a b"), "");
    assert_eq!(world.say(conn, "CLIENT REPLY SKIP"), "");
    assert_eq!(world.say(conn, "SUBSCRIBE channel"), ">3 $9 subscribe $7 channel :1");
    assert_eq!(world.say(conn, "PSUBSCRIBE ch*"), ">3 $10 psubscribe $3 ch* :2");
    world.arrive("channel", &[], b"hello");
    let messages = ">3 $7 message $7 channel $5 hello >4 $8 pmessage $3 ch* $7 channel $5 hello";
    assert_eq!(world.line(conn), messages);
    assert_eq!(world.say(conn, "UNSUBSCRIBE channel"), ">3 $11 unsubscribe $7 channel :1");
    assert_eq!(world.say(conn, "NOTHING"), "");
    assert_eq!(world.say(conn, "CLIENT REPLY ON"), "+OK");
    assert_eq!(world.say(conn, "PING"), "+PONG");
}

#[test]
fn what_is_no_resp_is_answered_and_closed() {
    for (bytes, text) in [
        (&b"*1\r\n$-7\r\n"[..], "invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "invalid bulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\nx\r\n", "expected '$', got 'x'"),
        (b"ping \"\r\n", "unbalanced quotes in request"),
    ] {
        let mut world = world();
        let conn = world.open();
        assert_eq!(world.ask(conn, bytes), format!("-ERR Protocol error: {text}\r\n"));
        assert!(world.out.closed.contains_key(&conn));
        assert_eq!(world.out.counted, [0, 0, 1], "a fault");
        assert_eq!(world.ask(conn, "PING\r\n"), "");
    }
}

/// A page in a browser can send requests to a server of this machine, whose bodies would be commands.
#[test]
fn http_is_no_way_in() {
    let mut world = world();
    let conn = world.open();
    assert_eq!(world.ask(conn, "POST / HTTP/1.1\r\nPUBLISH a b\r\n"), "");
    assert!(world.out.closed.contains_key(&conn) && world.bus.published.is_empty());
    let conn = world.open();
    world.feed(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\nPUBLISH a b\r\n");
    assert!(world.out.closed.contains_key(&conn) && world.bus.published.is_empty());
}

#[test]
fn many_small_commands_with_large_replies_come_one_after_the_other() {
    let mut world = world();
    let conn = world.open();
    world.out.queued = u64::MAX;
    world.feed(conn, "COMMAND\r\n".repeat(1000));
    let text = world.text(conn);
    assert_eq!(text.matches("*10\r\n$3\r\nacl\r\n").count(), 1000);
}
