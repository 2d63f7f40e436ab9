//! Bytes that are no commands, and names that are no names.

use super::{Begin, Case};

fn case(family: &'static str, name: &str, bytes: impl Into<Vec<u8>>, required: &str) -> Case {
    Case::new(family, Begin::Redis, name, bytes, required)
}

/// A command as an array.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Words between blanks as a command.
pub fn words(line: &str) -> Vec<u8> {
    command(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Bytes, and what comes of them.
const FRAMES: &[(&str, &[u8], &str)] = &[
    (
        "an array in an array",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        "-ERR Protocol error: expected '$', got '*'; closed",
    ),
    ("a number in an array", b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'; closed"),
    ("a simple string in an array", b"*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'; closed"),
    ("an error in an array", b"*1\r\n-ERR\r\n", "-ERR Protocol error: expected '$', got '-'; closed"),
    ("a null of RESP3 in an array", b"*1\r\n_\r\n", "-ERR Protocol error: expected '$', got '_'; closed"),
    ("a NUL in an array", b"*1\r\n\0", "-ERR Protocol error: expected '$', got ' '; closed"),
    ("a carriage return in an array", b"*1\r\n\r\n", "-ERR Protocol error: expected '$', got ' '; closed"),
    (
        "a byte that is no ASCII in an array",
        b"*1\r\n\xff",
        "-ERR Protocol error: expected '$', got '\\xc3\\xbf'; closed",
    ),
    (
        "a map of RESP3",
        b"%1\r\n$4\r\nPING\r\n",
        "-ERR unknown command '%1', with args beginning with: , -ERR unknown command '$4', with args beginning with: , +PONG; goes on",
    ),
    (
        "a push of RESP3",
        b">1\r\n$4\r\nPING\r\n",
        "-ERR unknown command '>1', with args beginning with: , -ERR unknown command '$4', with args beginning with: , +PONG; goes on",
    ),
    (
        "a verbatim string of RESP3",
        b"=8\r\ntxt:PING\r\n",
        "-ERR unknown command '=8', with args beginning with: , -ERR unknown command 'txt:PING', with args beginning with: ; goes on",
    ),
    ("a reply", b"+OK\r\n", "-ERR unknown command '+OK', with args beginning with: ; goes on"),
    (
        "another reply",
        b":1\r\n$-1\r\n-ERR x\r\n",
        "-ERR unknown command ':1', with args beginning with: , -ERR unknown command '$-1', with args beginning with: , -ERR unknown command '-ERR', with args beginning with: 'x' ; goes on",
    ),
    (
        "an argument that is longer than it says",
        b"*1\r\n$4\r\nPINGPING\r\n",
        "+PONG, -ERR unknown command 'NG', with args beginning with: ; goes on",
    ),
    (
        "an argument that is shorter than it says",
        b"*2\r\n$4\r\nECHO\r\n$9\r\nx\r\n*1\r\n$4\r\nPING\r\n",
        "\"x\\r\\n*1\\r\\n$4\", +PONG; goes on",
    ),
    ("an array without arguments", b"*0\r\n*0\r\n*0\r\n", "goes on"),
    (
        "a command without a name",
        b"*1\r\n$0\r\n\r\n",
        "-ERR unknown command '', with args beginning with: ; goes on",
    ),
    (
        "line ends without a carriage return",
        b"*1\n$4\nPING\n",
        "-ERR Protocol error: invalid multibulk length; closed",
    ),
];

pub fn frames() -> Vec<Case> {
    const FAMILY: &str = "Redis: frames";
    let publish = words("PUBLISH channel hello");
    let mut all = Case::cuts(FAMILY, Begin::Redis, "PUBLISH", &publish, "closed");
    for (name, bytes, required) in FRAMES {
        all.push(case(FAMILY, name, *bytes, required));
    }
    all
}

/// Lengths, and what comes of an array and of an argument with them.
const LENGTHS: &[(&str, &str, &str)] = &[
    (
        "2147483647",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "2147483648",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "4294967295",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "4294967296",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "9223372036854775807",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "9223372036854775808",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "18446744073709551615",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "18446744073709551616",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    ("-1", "goes on", "-ERR Protocol error: invalid bulk length; closed"),
    ("-2147483648", "goes on", "-ERR Protocol error: invalid bulk length; closed"),
    ("-9223372036854775808", "goes on", "-ERR Protocol error: invalid bulk length; closed"),
    (
        "-9223372036854775809",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "1048577",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "0000000001",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "+1",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        " 1",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "1 ",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "1.0",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "1e3",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "0x1",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
    (
        "\0",
        "-ERR Protocol error: invalid multibulk length; closed",
        "-ERR Protocol error: invalid bulk length; closed",
    ),
];

pub fn lengths() -> Vec<Case> {
    const FAMILY: &str = "Redis: lengths";
    let mut all = Vec::new();
    for (length, of_array, of_argument) in LENGTHS {
        let shown = length.escape_default();
        let bytes = format!("*{length}\r\n");
        all.push(case(FAMILY, &format!("an array of «{shown}» arguments"), bytes, of_array));
        let bytes = format!("*2\r\n$4\r\nECHO\r\n${length}\r\n");
        all.push(case(FAMILY, &format!("an argument of «{shown}» bytes"), bytes, of_argument));
    }
    let endless = "1".repeat(70 << 10);
    for (name, begin, required) in [
        ("an array", "*", "-ERR Protocol error: too big mbulk count string; closed"),
        ("an argument", "*1\r\n$", "-ERR Protocol error: too big bulk count string; closed"),
    ] {
        let bytes = begin.to_owned() + &endless;
        all.push(case(FAMILY, &format!("the length of {name} without an end"), bytes, required).ending());
    }
    all
}

pub fn lines() -> Vec<Case> {
    const FAMILY: &str = "Redis: lines";
    let long = |end: &str| [&b"ECHO "[..], &vec![b'x'; 2 << 20], end.as_bytes()].concat();
    [
        ("2 MiB without an end", long(""), "-ERR Protocol error: too big inline request; closed"),
        ("2 MiB with an end", long("\r\n"), "-ERR Protocol error: too big inline request; closed"),
        ("2 MiB of NULs", vec![0; 2 << 20], "-ERR Protocol error: too big inline request; closed"),
        ("100,000 line ends", b"\r\n".repeat(100_000), "goes on"),
        ("2 MiB of blanks", vec![b' '; 2 << 20], "-ERR Protocol error: too big inline request; closed"),
        ("a quote without an end", b"ECHO \"x\r\n".to_vec(), "-ERR Protocol error: unbalanced quotes in request; closed"),
        ("a quote that ends inside a word", b"ECHO \"x\"y\r\n".to_vec(), "-ERR Protocol error: unbalanced quotes in request; closed"),
        ("a single quote without an end", b"ECHO 'x\r\n".to_vec(), "-ERR Protocol error: unbalanced quotes in request; closed"),
        ("an escape at the end", b"ECHO \"\\\r\n".to_vec(), "-ERR Protocol error: unbalanced quotes in request; closed"),
        ("half an escape of a byte", b"ECHO \"\\x4\"\r\n".to_vec(), "\"x4\"; goes on"),
        ("bytes that are no UTF-8", b"\xff\xfe\xc3\x28\r\n".to_vec(), "-ERR unknown command '\\xef\\xbf\\xbd\\xef\\xbf\\xbd\\xef\\xbf\\xbd(', with args beginning with: ; goes on"),
        ("control characters", b"\x1b[31m\x07\x08\r\n".to_vec(), "-ERR unknown command '\\x1b[31m\\x07\\x08', with args beginning with: ; goes on"),
        ("30,000 words", [&b"PING"[..], &b" x".repeat(30_000), b"\r\n"].concat(), "-ERR wrong number of arguments for 'ping' command; goes on"),
        ("a request of HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "-ERR 'GET' needs a key-value store, and this is none: RBMQ's gateway has PUBLISH, SUBSCRIBE and streams; closed"),
        ("a page that posts", b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPUBLISH a b\r\n".to_vec(), "closed"),
        ("a page that names the host", b"host: localhost\r\nPUBLISH a b\r\n".to_vec(), "closed"),
        ("a client hello of TLS", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n".to_vec(), "-ERR unknown command '\\x16\\x03\\x01', with args beginning with: '\\xef\\xbf\\xbd\\x01' '' '\\xef\\xbf\\xbd\\x03\\x03' ; goes on"),
        ("a CONNECT of MQTT", b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00\r\n".to_vec(), "-ERR unknown command '\\x10', with args beginning with: '' '\\x04MQTT\\x05\\x02' '<' '' '' ; goes on"),
    ]
    .map(|(name, bytes, required)| case(FAMILY, name, bytes, required))
    .into()
}

const NAMES: &str = "Redis: names";

/// Names of channels, and what comes of PUBLISH and SUBSCRIBE.
const CHANNELS: &[(&str, &[u8], &str, &str)] = &[
    ("empty", b"", ":0; goes on", "[\"subscribe\" \"\" :1]; goes on"),
    ("a NUL", b"\0", ":0; goes on", "[\"subscribe\" \"\\x00\" :1]; goes on"),
    ("a line end", b"a\r\nb", ":0; goes on", "[\"subscribe\" \"a\\r\\nb\" :1]; goes on"),
    (
        "bytes that are no UTF-8",
        b"\xff\xc3\x28",
        ":0; goes on",
        "[\"subscribe\" \"\\xff\\xc3(\" :1]; goes on",
    ),
    ("a surrogate", b"\xed\xa0\x80", ":0; goes on", "[\"subscribe\" \"\\xed\\xa0\\x80\" :1]; goes on"),
    ("an overlong slash", b"\xc0\xaf", ":0; goes on", "[\"subscribe\" \"\\xc0\\xaf\" :1]; goes on"),
    ("wildcards of topics", b"+/#", ":0; goes on", "[\"subscribe\" \"+/#\" :1]; goes on"),
    ("the broker's own", b"$SYS/x", ":0; goes on", "[\"subscribe\" \"$SYS/x\" :1]; goes on"),
    ("a log of a space", b"$space/x", ":0; goes on", "[\"subscribe\" \"$space/x\" :1]; goes on"),
    ("half an escape", b"%2", ":0; goes on", "[\"subscribe\" \"%2\" :1]; goes on"),
    ("levels without names", b"////", ":0; goes on", "[\"subscribe\" \"////\" :1]; goes on"),
];

fn of_channel(name: &str, channel: &[u8], published: &str, subscribed: &str) -> [Case; 2] {
    let publish = command(&[b"PUBLISH", channel, b"x"]);
    let subscribe = command(&[b"SUBSCRIBE", channel]);
    [
        case(NAMES, &format!("PUBLISH to a channel: {name}"), publish, published),
        case(NAMES, &format!("SUBSCRIBE to a channel: {name}"), subscribe, subscribed),
    ]
}

pub fn names() -> Vec<Case> {
    CHANNELS
        .iter()
        .flat_map(|(name, channel, published, subscribed)| of_channel(name, channel, published, subscribed))
        .collect()
}

pub fn long_names() -> Vec<Case> {
    const TOO_LONG: &str =
        "-ERR the name of this channel is too long for a topic, which has 255 bytes at most; goes on";
    let long = |count| vec![b'n'; count];
    let shown = format!("[\"subscribe\" \"{}\" :1]; goes on", "n".repeat(40));
    let mut all = Vec::from(of_channel("255 bytes", &long(255), ":0; goes on", &shown));
    for (name, channel) in [
        ("256 bytes", long(256)),
        ("100 NULs, which are 300 bytes as a topic", vec![0; 100]),
        ("100 KiB", long(100 << 10)),
    ] {
        all.extend(of_channel(name, &channel, TOO_LONG, TOO_LONG));
    }
    all
}

pub fn patterns() -> Vec<Case> {
    let mut all = Vec::new();
    for (name, pattern, required) in [
        ("empty", Vec::new(), "[\"psubscribe\" \"\" :1]; goes on"),
        ("an open bracket", b"[".to_vec(), "[\"psubscribe\" \"[\" :1]; goes on"),
        ("a range to nowhere", b"[a-".to_vec(), "[\"psubscribe\" \"[a-\" :1]; goes on"),
        ("a backslash at the end", b"\\".to_vec(), "[\"psubscribe\" \"\\\\\" :1]; goes on"),
        (
            "500 asterisks",
            b"*a".repeat(500),
            "[\"psubscribe\" \"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a\" :1]; goes on",
        ),
        ("1,025 bytes", vec![b'n'; 1025], "-ERR a pattern has 1024 bytes at most; goes on"),
        ("bytes that are no UTF-8", b"\xff*".to_vec(), "[\"psubscribe\" \"\\xff*\" :1]; goes on"),
    ] {
        let subscribe = command(&[b"PSUBSCRIBE", &pattern]);
        all.push(case(NAMES, &format!("PSUBSCRIBE to a pattern: {name}"), subscribe, required));
    }
    all
}
