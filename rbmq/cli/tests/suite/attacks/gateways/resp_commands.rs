//! Commands with arguments that nobody should send.

use super::resp::{command, words};
use super::{Begin, Case};

/// Lines of a command each, whose words are between blanks, and what comes of them.
fn lines(family: &'static str, all: &[[&str; 2]]) -> Vec<Case> {
    let case = |[line, required]: &[&str; 2]| {
        let bytes: Vec<u8> = line.split(" & ").flat_map(words).collect();
        Case::new(family, Begin::Redis, line, bytes, required)
    };
    all.iter().map(case).collect()
}

/// About the server, and what it has not.
const SERVER: &[[&str; 2]] = &[
    [
        "GET key",
        "-ERR 'GET' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams; goes on",
    ],
    [
        "EVAL return(1) 0",
        "-ERR 'EVAL' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams; goes on",
    ],
    ["SCRIPT LOAD x", "-ERR this gateway of RBMQ executes no scripts; goes on"],
    ["DEBUG SEGFAULT", "-ERR unknown command 'DEBUG', with args beginning with: 'SEGFAULT' ; goes on"],
    ["SHUTDOWN NOSAVE", "-ERR unknown command 'SHUTDOWN', with args beginning with: 'NOSAVE' ; goes on"],
    ["MONITOR", "-ERR unknown command 'MONITOR', with args beginning with: ; goes on"],
    ["SYNC", "-ERR unknown command 'SYNC', with args beginning with: ; goes on"],
    ["PSYNC ? -1", "-ERR unknown command 'PSYNC', with args beginning with: '?' '-1' ; goes on"],
    [
        "REPLICAOF evil.example 6379",
        "-ERR unknown command 'REPLICAOF', with args beginning with: 'evil.example' '6379' ; goes on",
    ],
    ["SLAVEOF NO ONE", "-ERR unknown command 'SLAVEOF', with args beginning with: 'NO' 'ONE' ; goes on"],
    [
        "CONFIG SET dir /var/spool/cron",
        "-ERR the settings of this server are in the configuration of RBMQ: CONFIG GET alone is here; goes on",
    ],
    [
        "CONFIG REWRITE",
        "-ERR the settings of this server are in the configuration of RBMQ: CONFIG GET alone is here; goes on",
    ],
    [
        "CONFIG GET",
        "-ERR the settings of this server are in the configuration of RBMQ: CONFIG GET alone is here; goes on",
    ],
    [
        "MODULE LOAD /tmp/x.so",
        "-ERR unknown command 'MODULE', with args beginning with: 'LOAD' '/tmp/x.so' ; goes on",
    ],
    ["ACL SETUSER evil on nopass", "-ERR unknown subcommand 'SETUSER'. Try ACL HELP.; goes on"],
    ["CLUSTER NODES", "-ERR This instance has cluster support disabled; goes on"],
    [
        "MIGRATE evil.example 6379 key 0 1000",
        "-ERR 'MIGRATE' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams; goes on",
    ],
    ["SELECT 1", "-ERR DB index is out of range; goes on"],
    ["SELECT -1", "-ERR DB index is out of range; goes on"],
    ["SELECT 99999999999999999999", "-ERR invalid DB index; goes on"],
    ["SUBSCRIBE", "-ERR wrong number of arguments for 'subscribe' command; goes on"],
    ["PUBLISH only", "-ERR wrong number of arguments for 'publish' command; goes on"],
    ["PUBLISH a b c", "-ERR wrong number of arguments for 'publish' command; goes on"],
    ["PUBSUB NUMSUB", "[]; goes on"],
    ["PUBSUB WHATEVER", "-ERR unknown subcommand 'WHATEVER'. Try PUBSUB HELP.; goes on"],
    ["CLIENT KILL ID 0", "-ERR client-id should be greater than 0; goes on"],
    ["CLIENT KILL ID -1", "-ERR client-id should be greater than 0; goes on"],
    ["CLIENT KILL SKIPME maybe", "-ERR syntax error; goes on"],
    ["CLIENT LIST ID x", "-ERR client-id should be greater than 0; goes on"],
    ["CLIENT LIST TYPE x", "-ERR Unknown client type 'x'; goes on"],
    ["CLIENT REPLY MAYBE", "-ERR syntax error; goes on"],
    ["CLIENT REPLY OFF & PING & CLIENT REPLY ON", "+OK; goes on"],
    ["CLIENT PAUSE 100000", "-ERR unknown subcommand 'PAUSE'. Try CLIENT HELP.; goes on"],
    ["CLIENT UNBLOCK 1", "-ERR unknown subcommand 'UNBLOCK'. Try CLIENT HELP.; goes on"],
    ["CLIENT TRACKING ON", "-ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.; goes on"],
    ["QUIT & PUBLISH a b", "+OK; closed"],
    ["RESET & RESET", "+RESET, +RESET; goes on"],
];

pub fn server() -> Vec<Case> {
    const FAMILY: &str = "Redis: commands";
    let mut all = lines(FAMILY, SERVER);
    let more: [(&str, &[&[u8]], &str); 6] = [
        (
            "an unknown command with a line end and a reply",
            &[b"x\r\n+OK\r\n", b"\r\n:1\r\n"],
            "-ERR unknown command 'x  +OK  ', with args beginning with: '  :1  ' ; goes on",
        ),
        (
            "an unknown subcommand with a line end",
            &[b"CLIENT", b"x\r\n+OK"],
            "-ERR unknown subcommand 'x  +OK'. Try CLIENT HELP.; goes on",
        ),
        (
            "an unknown command of 100 KiB",
            &[&vec![b'x'; 100 << 10]],
            "-ERR unknown command 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', with args beginning with: ; goes on",
        ),
        (
            "a client's name with a line end",
            &[b"CLIENT", b"SETNAME", b"a\r\nid=1"],
            "-ERR Client names cannot contain spaces, newlines or special characters.; goes on",
        ),
        (
            "a client's library with a blank",
            &[b"CLIENT", b"SETINFO", b"LIB-NAME", b"a b"],
            "-ERR lib-name cannot contain spaces, newlines or special characters.; goes on",
        ),
        ("ECHO of bytes that are no UTF-8", &[b"ECHO", b"\xff\r\n\0"], "\"\\xff\\r\\n\\x00\"; goes on"),
    ];
    all.extend(
        more.map(|(name, words, required)| Case::new(FAMILY, Begin::Redis, name, command(words), required)),
    );
    let many: Vec<&[u8]> =
        [&b"NONSENSE"[..]].into_iter().chain(std::iter::repeat_n(&b"x"[..], 50_000)).collect();
    all.push(Case::new(
        FAMILY,
        Begin::Redis,
        "an unknown command with 50,000 arguments",
        command(&many),
        "-ERR unknown command 'NONSENSE', with args beginning with: 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' 'x' ; goes on",
    ));
    all
}

/// Who a client says it is.
const LOGINS: &[[&str; 2]] = &[
    ["AUTH", "-ERR wrong number of arguments for 'auth' command; goes on"],
    ["AUTH a b c", "-ERR syntax error; goes on"],
    ["AUTH secret", "+OK; goes on"],
    ["AUTH user secret", "+OK; goes on"],
    ["HELLO 0", "-NOPROTO unsupported protocol version; goes on"],
    ["HELLO 1", "-NOPROTO unsupported protocol version; goes on"],
    ["HELLO 4", "-NOPROTO unsupported protocol version; goes on"],
    ["HELLO -3", "-NOPROTO unsupported protocol version; goes on"],
    ["HELLO three", "-ERR Protocol version is not an integer or out of range; goes on"],
    ["HELLO 99999999999999999999", "-ERR Protocol version is not an integer or out of range; goes on"],
    ["HELLO 3 AUTH", "-ERR Syntax error in HELLO option 'AUTH'; goes on"],
    ["HELLO 3 AUTH user", "-ERR Syntax error in HELLO option 'AUTH'; goes on"],
    ["HELLO 3 AUTH user secret", "%7; goes on"],
    ["HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'; goes on"],
    ["HELLO 3 WHATEVER", "-ERR Syntax error in HELLO option 'WHATEVER'; goes on"],
    ["HELLO 3 & HELLO 2 & HELLO 3", "%7, [\"server\" \"redis\" \"version\" \"7.4.0\"], %7; goes on"],
];

pub fn logins() -> Vec<Case> {
    const FAMILY: &str = "Redis: logins";
    let mut all = lines(FAMILY, LOGINS);
    let more: [(&str, &[&[u8]], &str); 3] = [
        (
            "AUTH with bytes that are no UTF-8",
            &[b"AUTH", b"\xff", b"\xfe"],
            "-WRONGPASS invalid username-password pair or user is disabled.; goes on",
        ),
        ("AUTH with NULs", &[b"AUTH", b"\0", b"\0"], "+OK; goes on"),
        (
            "HELLO with a name of two words",
            &[b"HELLO", b"3", b"SETNAME", b"a b"],
            "-ERR Client names cannot contain spaces, newlines or special characters.; goes on",
        ),
    ];
    all.extend(
        more.map(|(name, words, required)| Case::new(FAMILY, Begin::Redis, name, command(words), required)),
    );
    all
}

/// Transactions.
const TRANSACTIONS: &[[&str; 2]] = &[
    ["EXEC", "-ERR EXEC without MULTI; goes on"],
    ["DISCARD", "-ERR DISCARD without MULTI; goes on"],
    ["MULTI & MULTI & DISCARD", "+OK, -ERR MULTI calls can not be nested, +OK; goes on"],
    ["MULTI & WATCH key & DISCARD", "+OK, -ERR WATCH inside MULTI is not allowed, +OK; goes on"],
    [
        "MULTI & NONSENSE & EXEC",
        "+OK, -ERR unknown command 'NONSENSE', with args beginning with: , -EXECABORT Transaction discarded because of previous errors.; goes on",
    ],
    [
        "MULTI & GET key & EXEC",
        "+OK, -ERR 'GET' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams, -EXECABORT Transaction discarded because of previous errors.; goes on",
    ],
    [
        "MULTI & PUBLISH a & PING & EXEC",
        "4 answers, the last -EXECABORT Transaction discarded because of previous errors.; goes on",
    ],
    ["MULTI & SUBSCRIBE a & EXEC", "+OK, +QUEUED, [[\"subscribe\" \"a\" :1]]; goes on"],
    ["MULTI & HELLO 3 & EXEC & RESET", "4 answers, the last +RESET; goes on"],
    ["MULTI & RESET & EXEC", "+OK, +RESET, -ERR EXEC without MULTI; goes on"],
    ["MULTI & QUIT & EXEC", "+OK, +OK; closed"],
    ["MULTI & EXEC & EXEC", "+OK, [], -ERR EXEC without MULTI; goes on"],
    [
        "SUBSCRIBE a & MULTI & EXEC",
        "[\"subscribe\" \"a\" :1], -ERR Can't execute 'multi': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context, -ERR Can't execute 'exec': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context; goes on",
    ],
];

pub fn transactions() -> Vec<Case> {
    lines("Redis: transactions", TRANSACTIONS)
}

/// Entries, and what changes them.
const APPENDS: &[[&str; 2]] = &[
    ["XADD k/a", "-ERR wrong number of arguments for 'xadd' command; goes on"],
    ["XADD k/a *", "-ERR wrong number of arguments for 'xadd' command; goes on"],
    ["XADD k/a * field", "-ERR wrong number of arguments for 'xadd' command; goes on"],
    ["XADD k/a * a 1 b", "-ERR wrong number of arguments for 'xadd' command; goes on"],
    [
        "XADD k/a 0-0 a 1",
        "-ERR the broker gives entries their IDs, which say the time and the place of an entry in the log: use * as the ID; goes on",
    ],
    [
        "XADD k/a 1-1 a 1",
        "-ERR the broker gives entries their IDs, which say the time and the place of an entry in the log: use * as the ID; goes on",
    ],
    [
        "XADD k/a 1-* a 1",
        "-ERR the broker gives entries their IDs, which say the time and the place of an entry in the log: use * as the ID; goes on",
    ],
    ["XADD k/a - a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a + a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a $ a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a abc a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a -1-0 a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a 1- a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a 1-1-1 a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    [
        "XADD k/a 18446744073709551615-18446744073709551615 a 1",
        "-ERR the broker gives entries their IDs, which say the time and the place of an entry in the log: use * as the ID; goes on",
    ],
    [
        "XADD k/a 18446744073709551616-0 a 1",
        "-ERR Invalid stream ID specified as stream command argument; goes on",
    ],
    [
        "XADD k/a MAXLEN 5 * a 1",
        "-ERR a log on disk is not cut at an exact entry: use MAXLEN ~ or MINID ~, which promise nothing more than the rule of the topic does, keep_bytes and keep_ms; goes on",
    ],
    [
        "XADD k/a MAXLEN = 5 * a 1",
        "-ERR a log on disk is not cut at an exact entry: use MAXLEN ~ or MINID ~, which promise nothing more than the rule of the topic does, keep_bytes and keep_ms; goes on",
    ],
    ["XADD k/a MAXLEN ~ -1 * a 1", "-ERR The MAXLEN argument must be >= 0.; goes on"],
    ["XADD k/a MAXLEN ~ x * a 1", "-ERR value is not an integer or out of range; goes on"],
    ["XADD k/a MAXLEN ~ 99999999999999999999 * a 1", "-ERR value is not an integer or out of range; goes on"],
    ["XADD k/a MINID ~ x * a 1", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XADD k/a MAXLEN ~ 5 LIMIT x * a 1", "-ERR The LIMIT argument must be >= 0.; goes on"],
    [
        "XADD k/a MAXLEN ~ 5 MINID ~ 1 * a 1",
        "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible; goes on",
    ],
    ["XADD k/a NOMKSTREAM * a", "-ERR wrong number of arguments for 'xadd' command; goes on"],
    ["XADD k/nothing NOMKSTREAM * a 1", "$-1; goes on"],
    [
        "XADD not-kept * a 1",
        "-ERR a stream is a topic that the broker keeps on disk, and 'not-kept' is not: add [[broker.topics]] with pattern = \"not-kept\" and keep = true to its configuration, and broker.keep_dir; goes on",
    ],
    [
        "XADD $SYS/x * a 1",
        "-ERR a stream is a topic that the broker keeps on disk, and '%24SYS/x' is not: add [[broker.topics]] with pattern = \"%24SYS/x\" and keep = true to its configuration, and broker.keep_dir; goes on",
    ],
    [
        "XTRIM k/a MAXLEN 5",
        "-ERR a log on disk is not cut at an exact entry: use MAXLEN ~ or MINID ~, which promise nothing more than the rule of the topic does, keep_bytes and keep_ms; goes on",
    ],
    ["XTRIM k/a MAXLEN ~ -5", "-ERR The MAXLEN argument must be >= 0.; goes on"],
    ["XTRIM k/a WHATEVER ~ 5", "-ERR syntax error; goes on"],
    [
        "XDEL k/a 1-1",
        "-ERR a stream is a log on disk, of which no entry is changed or deleted: keep_bytes and keep_ms of the topic's rule say how long entries are kept; goes on",
    ],
    [
        "XSETID k/a 1-1",
        "-ERR a stream is a log on disk, of which no entry is changed or deleted: keep_bytes and keep_ms of the topic's rule say how long entries are kept; goes on",
    ],
];

pub fn appends() -> Vec<Case> {
    let mut all = lines("Redis: XADD", APPENDS);
    let long = vec![b'k'; 300];
    let more: [(&str, &[&[u8]], &str); 3] = [
        (
            "XADD with a NUL as the ID",
            &[b"XADD", b"k/a", b"\0", b"a", b"1"],
            "-ERR Invalid stream ID specified as stream command argument; goes on",
        ),
        (
            "XADD without an ID",
            &[b"XADD", b"k/a", b"", b"a", b"1"],
            "-ERR Invalid stream ID specified as stream command argument; goes on",
        ),
        (
            "XADD to a key of 300 bytes",
            &[b"XADD", &long, b"*", b"a", b"1"],
            "-ERR the name of this key is too long for a topic, which has 255 bytes at most; goes on",
        ),
    ];
    all.extend(more.map(|(name, words, required)| {
        Case::new("Redis: XADD", Begin::Redis, name, command(words), required)
    }));
    all
}

/// Reading entries.
const READS: &[[&str; 2]] = &[
    ["XRANGE k/a", "-ERR wrong number of arguments for 'xrange' command; goes on"],
    ["XRANGE k/a a b", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XRANGE k/a ( +", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XRANGE k/a ((1 +", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    [
        "XRANGE k/a (18446744073709551615-18446744073709551615 +",
        "-ERR invalid start ID for the interval; goes on",
    ],
    ["XRANGE k/a - + COUNT", "-ERR syntax error; goes on"],
    ["XRANGE k/a - + COUNT x", "-ERR value is not an integer or out of range; goes on"],
    ["XRANGE k/a - + COUNT -1", "*-1; goes on"],
    ["XRANGE k/a - + COUNT 99999999999999999999", "-ERR value is not an integer or out of range; goes on"],
    ["XRANGE k/a - + WHATEVER 1", "-ERR syntax error; goes on"],
    ["XRANGE k/a + -", "[]; goes on"],
    ["XREVRANGE k/a - +", "[]; goes on"],
    [
        "XRANGE not-kept - +",
        "-ERR a stream is a topic that the broker keeps on disk, and 'not-kept' is not: add [[broker.topics]] with pattern = \"not-kept\" and keep = true to its configuration, and broker.keep_dir; goes on",
    ],
    ["XLEN k/a k/b", "-ERR wrong number of arguments for 'xlen' command; goes on"],
    ["XINFO STREAM", "-ERR wrong number of arguments for 'xinfo' command; goes on"],
    ["XINFO WHATEVER k/a", "-ERR unknown subcommand 'WHATEVER'. Try XINFO HELP.; goes on"],
    ["XREAD STREAMS", "-ERR wrong number of arguments for 'xread' command; goes on"],
    ["XREAD k/a 0", "-ERR wrong number of arguments for 'xread' command; goes on"],
    [
        "XREAD STREAMS k/a k/b 0",
        "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.; goes on",
    ],
    ["XREAD COUNT STREAMS k/a 0", "-ERR value is not an integer or out of range; goes on"],
    ["XREAD COUNT x STREAMS k/a 0", "-ERR value is not an integer or out of range; goes on"],
    ["XREAD COUNT -1 STREAMS k/a 0", "*-1; goes on"],
    ["XREAD COUNT 0 STREAMS k/a $", "*-1; goes on"],
    ["XREAD BLOCK -1 STREAMS k/a $", "-ERR timeout is negative; goes on"],
    ["XREAD BLOCK x STREAMS k/a $", "-ERR timeout is not an integer or out of range; goes on"],
    [
        "XREAD BLOCK 9223372036854775808 STREAMS k/a $",
        "-ERR timeout is not an integer or out of range; goes on",
    ],
    ["XREAD BLOCK 1 STREAMS k/a $", "*-1; goes on"],
    [
        "XREAD STREAMS k/a >",
        "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.; goes on",
    ],
    [
        "XREAD GROUP g c STREAMS k/a 0",
        "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.; goes on",
    ],
    ["XREAD STREAMS k/a -", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XREAD STREAMS k/a abc", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    [
        "XREAD STREAMS not-kept 0",
        "-ERR a stream is a topic that the broker keeps on disk, and 'not-kept' is not: add [[broker.topics]] with pattern = \"not-kept\" and keep = true to its configuration, and broker.keep_dir; goes on",
    ],
    ["XREAD BLOCK 1 BLOCK 2 COUNT 1 COUNT 2 STREAMS k/a $", "*-1; goes on"],
    ["MULTI & XREAD BLOCK 0 STREAMS k/a $ & EXEC", "+OK, +QUEUED, [*-1]; goes on"],
];

pub fn reads() -> Vec<Case> {
    const FAMILY: &str = "Redis: XREAD and XRANGE";
    let mut all = lines(FAMILY, READS);
    for (count, required) in [
        (1001, "-ERR one XREAD has 1000 streams at most; goes on"),
        (10_000, "-ERR one XREAD has 1000 streams at most; goes on"),
    ] {
        let streams = |word| std::iter::repeat_n(word, count);
        let read: Vec<&[u8]> = [&b"XREAD"[..], b"STREAMS"]
            .into_iter()
            .chain(streams(&b"k/a"[..]))
            .chain(streams(b"$"))
            .collect();
        let name = format!("XREAD of {count} streams");
        all.push(Case::new(FAMILY, Begin::Redis, &name, command(&read), required));
    }
    let half = [words("PING"), words("XREAD BLOCK 0 STREAMS k/a $")].concat();
    all.push(Case::new(FAMILY, Begin::Redis, "half a connection that waits", half, "+PONG; closed").ending());
    all
}

/// Consumer groups.
const GROUPS: &[[&str; 2]] = &[
    ["XGROUP", "-ERR wrong number of arguments for 'xgroup' command; goes on"],
    ["XGROUP CREATE k/g", "-ERR wrong number of arguments for 'xgroup|create' command; goes on"],
    ["XGROUP WHATEVER k/g g", "-ERR unknown subcommand 'WHATEVER'. Try XGROUP HELP.; goes on"],
    [
        "XGROUP CREATE k/nothing g $",
        "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.; goes on",
    ],
    [
        "XGROUP CREATE not-kept g $ MKSTREAM",
        "-ERR a stream is a topic that the broker keeps on disk, and 'not-kept' is not: add [[broker.topics]] with pattern = \"not-kept\" and keep = true to its configuration, and broker.keep_dir; goes on",
    ],
    [
        "XGROUP CREATE k/g g x MKSTREAM",
        "-ERR Invalid stream ID specified as stream command argument; goes on",
    ],
    [
        "XGROUP CREATE k/g g 18446744073709551616-0 MKSTREAM",
        "-ERR Invalid stream ID specified as stream command argument; goes on",
    ],
    [
        "XGROUP CREATE k/g g $ MKSTREAM ENTRIESREAD -2",
        "-ERR value for ENTRIESREAD must be positive or -1; goes on",
    ],
    ["XGROUP CREATE k/g g $ WHATEVER", "-ERR syntax error; goes on"],
    [
        "XGROUP CREATE k/g ../../evil $ MKSTREAM & XGROUP CREATE k/g ../../evil $ & XGROUP DESTROY k/g ../../evil",
        "+OK, -BUSYGROUP Consumer Group name already exists, :1; goes on",
    ],
    ["XGROUP CREATE k/g .new-g $ MKSTREAM & XGROUP DESTROY k/g .new-g", "+OK, :1; goes on"],
    ["XREADGROUP GROUP g c STREAMS", "-ERR wrong number of arguments for 'xreadgroup' command; goes on"],
    [
        "XREADGROUP GROUP nobody c STREAMS k/a >",
        "-NOGROUP No such key 'k/a' or consumer group 'nobody' in XREADGROUP with GROUP option; goes on",
    ],
    ["XREADGROUP COUNT 1 BLOCK 1 STREAMS k/a >", "-ERR Missing GROUP option for XREADGROUP; goes on"],
    ["XREADGROUP GROUP g c BLOCK -1 STREAMS k/a >", "-ERR timeout is negative; goes on"],
    ["XREADGROUP GROUP g c COUNT x STREAMS k/a >", "-ERR value is not an integer or out of range; goes on"],
    ["XREADGROUP GROUP GROUP GROUP GROUP GROUP GROUP", "-ERR syntax error; goes on"],
    ["XREADGROUP NOACK NOACK NOACK NOACK NOACK NOACK", "-ERR syntax error; goes on"],
    ["XACK k/a nobody 1-1", ":0; goes on"],
    ["XACK k/a nobody x", "-ERR Invalid stream ID specified as stream command argument; goes on"],
    ["XPENDING k/a nobody", "-NOGROUP No such key 'k/a' or consumer group 'nobody'; goes on"],
    ["XPENDING k/a nobody - + x", "-ERR value is not an integer or out of range; goes on"],
    ["XPENDING k/a nobody IDLE 1", "-ERR syntax error; goes on"],
    ["XCLAIM k/a nobody c 0 1-1", "-NOGROUP No such key 'k/a' or consumer group 'nobody'; goes on"],
    ["XCLAIM k/a nobody c x 1-1", "-ERR Invalid min-idle-time argument for XCLAIM; goes on"],
    ["XCLAIM k/a nobody c 0 1-1 RETRYCOUNT x", "-ERR Invalid RETRYCOUNT option argument for XCLAIM; goes on"],
    ["XAUTOCLAIM k/a nobody c 0 0", "-NOGROUP No such key 'k/a' or consumer group 'nobody'; goes on"],
    ["XAUTOCLAIM k/a nobody c 0 0 COUNT -1", "-ERR COUNT must be > 0; goes on"],
    ["XAUTOCLAIM k/a nobody c 0 0 COUNT 9223372036854775808", "-ERR COUNT must be > 0; goes on"],
];

pub fn groups() -> Vec<Case> {
    const FAMILY: &str = "Redis: consumer groups";
    let mut all = lines(FAMILY, GROUPS);
    let long = vec![b'n'; 300];
    let create = |group: &[u8]| command(&[b"XGROUP", b"CREATE", b"k/g", group, b"$", b"MKSTREAM"]);
    let no_name = "-ERR the name of a group has 1 to 64 bytes, of which those that are no letters, digits or . _ - count as three; goes on";
    let unknown: Vec<&[u8]> =
        [&b"XACK"[..], b"k/a", b"nobody"].into_iter().chain(std::iter::repeat_n(&b"1-1"[..], 3000)).collect();
    for (name, bytes, required) in [
        ("a group with a name of 300 bytes", create(&long), no_name),
        ("a group without a name", create(b""), no_name),
        (
            "a group with NULs and line ends in its name",
            [create(b"\0\r\n"), command(&[b"XGROUP", b"DESTROY", b"k/g", b"\0\r\n"])].concat(),
            "+OK, :1; goes on",
        ),
        ("XACK of 3,000 IDs of no group", command(&unknown), ":0; goes on"),
    ] {
        all.push(Case::new(FAMILY, Begin::Redis, name, bytes, required));
    }
    all
}
