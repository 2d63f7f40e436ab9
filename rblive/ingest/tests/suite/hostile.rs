//! Bad exchanges: cut, with lying lengths, with wrong keys, too much, too slow. Each one is refused or closed, and none disturbs the
//! encoders after it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::http::{expected, head, put};
use crate::material::{RATE, SMALL, flv_config, flv_frame, ts};
use crate::node::{KEY, Node};
use crate::rtmp::{Peer, command, handshake, hello, message, text};

/// A name, the sent bytes, and the status of the answer; `None`: the connection is closed, with or without a refusal.
type Exchange = (&'static str, Vec<u8>, Option<u16>);

const BODY: usize = 64 << 10;

fn node() -> Node {
    Node::with(|settings| {
        // Streams last until the node receives them, of which there are many.
        (settings.limits.idle_ms, settings.linger_ms) = (1500, 600_000);
        settings.limits.message_bytes = 64 << 10;
        settings.limits.body_bytes = BODY;
        settings.limits.bytes_per_second = 100_000;
    })
}

/// Sends and keeps the connection open until the server closes it. `None`: it does not.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may close before it has read everything.
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
        {
            None
        }
        _ => Some(answer),
    }
}

fn head_with(line: &str, headers: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\r\n").into_bytes()
}

fn keyed(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    [&head_with(line, &format!("Authorization: Bearer {KEY}\r\n{headers}"))[..], body].concat()
}

fn upload(name: &str, body: &[u8]) -> Vec<u8> {
    [&head("PUT", &format!("/live/{name}/0.ts"), body.len())[..], body].concat()
}

fn requests() -> Vec<Exchange> {
    let line = "PUT /live/a/0.ts";
    let flood = format!("X: {}\r\n", "y".repeat(1000)).repeat(1000);
    vec![
        ("nothing", vec![], None),
        ("zeros", vec![0; 4000], Some(400)),
        ("a TLS handshake", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3], Some(400)),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), None),
        ("an RTMP handshake", handshake(), Some(400)),
        ("a cut head", b"PUT /live/a/0.ts HTTP/1.1\r\nHost: a\r\nAuth".to_vec(), None),
        ("a header without a colon", head_with(line, "rubbish\r\n"), Some(400)),
        ("a thousand headers", head_with(line, &"X: y\r\n".repeat(1000)), Some(431)),
        ("headers of 17 KiB", head_with(line, &format!("X: {}\r\n", "y".repeat(17 << 10))), Some(431)),
        ("headers of a megabyte", head_with(line, &flood), None),
        ("a path of 100 kB", head_with(&format!("PUT /live/{}/0.ts", "a".repeat(100_000)), ""), Some(431)),
        ("GET", keyed("GET /live/a/0.ts", "", b""), Some(405)),
        ("another place", keyed("PUT /other/a/0.ts", "Content-Length: 0\r\n", b""), Some(404)),
        ("no stream", keyed("PUT /live/0.ts", "Content-Length: 0\r\n", b""), Some(404)),
        ("no file", keyed("PUT /live/a/", "Content-Length: 0\r\n", b""), Some(404)),
        ("POST without a stream", keyed("POST /live/", "Content-Length: 0\r\n", b""), Some(404)),
        ("a path upwards", keyed("PUT /live/../a/0.ts", "Content-Length: 0\r\n", b""), Some(404)),
        ("a name with a percent", keyed("PUT /live/%00/0.ts", "Content-Length: 0\r\n", b""), Some(404)),
        ("a long name", keyed(&format!("PUT /live/{}/0.ts", "a".repeat(9000)), "", b""), Some(404)),
        ("no key", head_with(line, "Content-Length: 0\r\n"), Some(401)),
        ("a wrong key", head_with(line, "Authorization: Bearer a-secre\r\n"), Some(401)),
        ("a wrong key in the query", head_with("PUT /live/a/0.ts?key=x", ""), Some(401)),
        ("a wrong password", head_with(line, "Authorization: Basic YTpi\r\n"), Some(401)),
        ("no password", head_with(line, "Authorization: Basic YQ==\r\n"), Some(401)),
        ("no base64", head_with(line, "Authorization: Basic ~~~~\r\n"), Some(401)),
        ("a playlist with a wrong key", head_with("PUT /live/a/i.m3u8", "Content-Length: 0\r\n"), Some(401)),
        ("DELETE with a wrong key", head_with("DELETE /live/a/0.ts?key=x", ""), Some(401)),
        ("POST with a wrong key", head_with("POST /live/a?key=x", "Content-Length: 0\r\n"), Some(401)),
    ]
}

fn bodies() -> Vec<Exchange> {
    let line = "PUT /live/b/0.ts";
    let chunked = |body: &[u8]| keyed(line, "Transfer-Encoding: chunked\r\n", body);
    let length = |length: &str, body: &[u8]| keyed(line, &format!("Content-Length: {length}\r\n"), body);
    let good = ts(SMALL, 0..RATE);
    let boxed =
        |kind: &[u8], size: u32, rest: usize| [&size.to_be_bytes()[..], kind, &vec![0; rest]].concat();
    let flood = [&b"10000\r\n"[..], &vec![0x47; 0x10000], b"\r\n10000\r\n", &vec![0x47; 0x10000]].concat();
    vec![
        ("a negative length", length("-1", b""), Some(400)),
        ("a length of letters", length("many", b""), Some(400)),
        ("a length of 70 bits", length("1180591620717411303424", b""), Some(400)),
        ("two lengths", length("3\r\nContent-Length: 4", b"aaaa"), Some(400)),
        ("a length over the limit", length("65537", b""), Some(413)),
        ("a length that is not reached", length("60000", &good[..2000]), Some(408)),
        ("a body that never begins", length("60000", b""), Some(408)),
        ("chunks without a size", chunked(b"zz\r\naaa"), Some(400)),
        ("a chunk of 2^64 bytes", chunked(b"10000000000000000\r\n"), Some(400)),
        ("a cut chunk", chunked(b"1000\r\n\x47\x47"), Some(408)),
        ("chunks over the limit", chunked(&flood), Some(413)),
        ("a flood of empty lines", chunked(&b"\r\n".repeat(1000)), Some(400)),
        ("an empty file", upload("c", b""), Some(400)),
        ("four bytes", upload("c", b"\x47\x40\0\x10"), Some(400)),
        ("text", upload("c", b"hello, is this a stream?"), Some(400)),
        ("packets without tables", upload("c", &[0x47; 188].repeat(100)), Some(400)),
        ("a stream without its tables", upload("c", &good[376..]), Some(400)),
        ("one packet", upload("c", &good[..188]), Some(400)),
        ("rubbish after one packet", upload("c", &[&good[..188], &[0; 40_000]].concat()), Some(400)),
        ("cut parameter sets", upload("c", &ts(&SMALL[..5], 0..RATE)), Some(400)),
        ("empty parameter sets", upload("c", &ts(&[0x67], 0..RATE)), Some(400)),
        ("a media segment first", upload("d", &boxed(b"moof", 100, 92)), Some(400)),
        ("an empty moov", upload("d", &boxed(b"moov", 8, 0)), Some(400)),
        ("a moov that is cut", upload("d", &boxed(b"moov", 1 << 31, 100)), Some(400)),
        ("a box of no size", upload("d", &boxed(b"moov", 0, 100)), Some(400)),
        ("a box of 2^64 bytes", upload("d", &[&boxed(b"moov", 1, 0)[..], &[255; 8]].concat()), Some(400)),
        ("an ftyp alone", upload("d", &boxed(b"ftyp", 16, 8)), Some(400)),
    ]
}

fn after_handshake(bytes: &[u8]) -> Vec<u8> {
    [&handshake()[..], bytes].concat()
}

/// The handshake and the chunk stream.
fn chunk_streams() -> Vec<Exchange> {
    let control = |kind: u8, payload: &[u8]| after_handshake(&message(kind, 0, payload));
    let many: Vec<u8> =
        (3..64).flat_map(|id| [&[id, 0, 0, 0, 0, 1, 0, 9, 1, 0, 0, 0][..], &[0; 128]].concat()).collect();
    let unfinished: Vec<u8> = (5..30)
        .flat_map(|id| [&[id, 0, 0, 0, 0, 255, 255, 9, 1, 0, 0, 0][..], &vec![0; 60_000]].concat())
        .collect();
    let large = message(1, 0, &60_000u32.to_be_bytes());
    let exchanges: Vec<(&'static str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("another version", vec![6; 1537]),
        ("a request of HTTP", head_with("GET /", "")),
        ("half a handshake", handshake()[..800].to_vec()),
        ("a handshake without its end", handshake()[..2000].to_vec()),
        ("a handshake alone", handshake()),
        ("a chunk that continues nothing", after_handshake(&[0xC3; 300])),
        ("a chunk with a delta only", after_handshake(&[0x83; 300])),
        ("chunks of no bytes", control(1, &[0; 4])),
        ("chunks of 2 GiB", control(1, &[0x7F, 255, 255, 255])),
        ("a cut chunk size", control(1, &[0, 0])),
        ("a cut abort", control(2, &[1])),
        ("a cut window", control(5, &[])),
        ("a cut ping", control(4, &[0, 6, 1])),
        ("an abort of nothing", control(2, &[255; 4])),
        ("a window of no bytes", control(5, &[0; 4])),
        ("a message of 16 MiB", after_handshake(&[4, 0, 0, 0, 255, 255, 255, 9, 1, 0, 0, 0, 1])),
        ("too many chunk streams", after_handshake(&many)),
        ("too many unfinished messages", after_handshake(&[large, unfinished].concat())),
        ("a kind of message that is none", control(99, &[1; 100])),
        ("pings without end", after_handshake(&message(4, 0, &[0, 6, 0, 0, 0, 0]).repeat(20_000))),
    ];
    exchanges.into_iter().map(|(name, bytes)| (name, bytes, None)).collect()
}

fn commands() -> Vec<Exchange> {
    let amf = |payload: &[u8]| after_handshake(&message(20, 0, payload));
    let say = |name: &str, rest: &[u8]| after_handshake(&command(name, 1.0, rest));
    let control = |kind: u8, payload: &[u8]| after_handshake(&message(kind, 0, payload));
    let list = [&text("connect")[..], &[10, 255, 255, 255, 255, 5, 5]].concat();
    let exchanges: Vec<(&'static str, Vec<u8>)> = vec![
        ("an empty command", amf(&[])),
        ("a command that is a number", amf(&[0; 9])),
        ("a cut number", amf(&[&text("connect")[..], &[0, 1, 2]].concat())),
        ("a text of a lying length", amf(&[2, 255, 255, b'a'])),
        ("an object without an end", say("connect", &[3, 0, 1, b'a'])),
        ("a list of 2^32 values", amf(&list)),
        ("deep nesting", amf(&[&text("connect")[..], &[10, 0, 0, 0, 1].repeat(500)].concat())),
        ("ten thousand values", amf(&[&text("connect")[..], &[5; 10_000]].concat())),
        ("unknown values", amf(&[&text("connect")[..], &[0x55; 10]].concat())),
        ("sound before a publish", control(8, &[0xAF, 1, 0])),
        ("a picture before a publish", control(9, &flv_config(SMALL))),
        ("play", say("play", &[&[5][..], &text("camera")].concat())),
        ("a publish without a name", say("publish", &[5])),
        ("a publish of a number", say("publish", &[&[5, 0][..], &[0; 8]].concat())),
        ("a publish without a key", hello("e")),
        ("a publish with a wrong key", hello("e?key=b-secret")),
        ("a publish with a beginning of the key", hello("e?key=a-s")),
        ("a publish of no name", hello(&format!("?key={KEY}"))),
        ("a publish upwards", hello(&format!("../e?key={KEY}"))),
        ("a publish of a long name", hello(&format!("{}?key={KEY}", "e".repeat(200)))),
    ];
    exchanges.into_iter().map(|(name, bytes)| (name, bytes, None)).collect()
}

/// Exchanges of a publisher that was admitted.
fn publishers() -> Vec<Exchange> {
    let audio = |payload: &[u8]| message(8, 0, payload);
    let video = |payload: &[u8]| message(9, 0, payload);
    let flood: Vec<u8> = (0..240).flat_map(|at| message(9, at * 40, &flv_frame(at as u8))).collect();
    let frame = [&[0x17, 1, 0, 0, 0][..], &vec![1; 50_000]].concat();
    let sent: Vec<(&'static str, Vec<u8>)> = vec![
        ("silence", vec![]),
        ("empty messages", [audio(&[]), video(&[])].concat()),
        ("MP3", audio(&[0x2F, 1, 2])),
        ("a cut AAC message", audio(&[0xAF])),
        ("a cut AAC configuration", audio(&[0xAF, 0, 0x12])),
        ("AAC of no rate", audio(&[0xAF, 0, 0x17, 0x80, 0, 0, 0])),
        ("enhanced sound of no codec", audio(&[0x90, b'n', b'o', b'n', b'e'])),
        ("H.263", video(&[0x12, 1, 2, 3, 4, 5])),
        ("a cut H.264 message", video(&[0x17, 1, 0])),
        ("a cut H.264 configuration", video(&flv_config(SMALL)[..12])),
        ("a configuration of ones", video(&[&[0x17, 0, 0, 0, 0][..], &[255; 40]].concat())),
        ("enhanced video of no codec", video(&[0x90, b'n', b'o', b'n', b'e'])),
        ("cut enhanced video", video(&[0x91, b'h', b'v'])),
        ("frames without a configuration", video(&flv_frame(0)).repeat(10)),
        ("a second publish", command("publish", 4.0, &[&[5][..], &text(&format!("g?key={KEY}"))].concat())),
        ("play", command("play", 4.0, &[&[5][..], &text("camera")].concat())),
        ("more than its rate", [video(&flv_config(SMALL)), flood.repeat(20)].concat()),
        ("more than a part holds", [video(&flv_config(SMALL)), message(9, 0, &frame).repeat(400)].concat()),
        ("metadata of ones", message(18, 0, &[255; 500])),
        ("a cut message", flv_frame(0)[..200].to_vec()),
    ];
    let begin = |index: usize| hello(&format!("f{index}?key={KEY}"));
    sent.into_iter()
        .enumerate()
        .map(|(at, (name, bytes))| (name, [begin(at), bytes].concat(), None))
        .collect()
}

/// A good beginning that is cut or changed at many places.
fn variations() -> Vec<Exchange> {
    let good = |index: usize| {
        let name = format!("v{index}?key={KEY}");
        [hello(&name), message(9, 0, &flv_config(SMALL)), message(9, 0, &flv_frame(0))].concat()
    };
    let begin = handshake().len();
    let cut = (0..20).map(|index| {
        let bytes = good(index);
        let end = begin + (bytes.len() - begin) * index / 20;
        ("a cut session", bytes[..end].to_vec(), None)
    });
    let changed = (20..60).map(|index| {
        let mut bytes = good(index);
        let at = begin + (bytes.len() - begin) * (index - 20) / 40;
        bytes[at] ^= 0x55;
        ("a changed session", bytes, None)
    });
    cut.chain(changed).collect()
}

/// Makes all exchanges, many at once, and gives those that went wrong.
fn failures(node: &Node) -> Vec<String> {
    let (http, rtmp) = (node.addresses().http.unwrap(), node.addresses().rtmp.unwrap());
    let by_http = [requests(), bodies()].concat().into_iter().map(|exchange| (http, exchange));
    let by_rtmp = [chunk_streams(), commands(), publishers(), variations()]
        .concat()
        .into_iter()
        .map(|exchange| (rtmp, exchange));
    let exchanges: Vec<(SocketAddr, Exchange)> = by_http.chain(by_rtmp).collect();
    assert!(exchanges.len() >= 60);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failed = Vec::new();
        while let Some((address, (name, bytes, status))) = exchanges.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let answer = exchange(*address, bytes);
            let text = answer.as_deref().map(String::from_utf8_lossy);
            let found = text.as_deref().and_then(|text| text.split(' ').nth(1)?.parse::<u16>().ok());
            let refused = *address == rtmp || found.is_none_or(|found| (400..500).contains(&found));
            if text.is_none() || !refused || status.is_some() && *status != found {
                failed.push(format!("{name}: {found:?} instead of {status:?}"));
            }
        }
        failed
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..40).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

fn good_publishers_are_served(node: &Node) {
    let from = node.frames().len();
    let mut peer = Peer::accepted(node);
    peer.stream(0..2);
    peer.finish();
    node.wait_for_frames(from + 2 * usize::from(RATE));
    for second in 2..4 {
        assert_eq!(put(node, &format!("{second}.ts"), &ts(SMALL, second * RATE..(second + 1) * RATE)), 201);
    }
    node.wait_for_frames(from + 4 * usize::from(RATE));
    assert_eq!(node.frames()[from..], expected(&[(0, 4)]));
}

#[test]
fn bad_exchanges_are_refused_and_good_publishers_are_served_after_them() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("rblive-ingest")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(panic);
    }));
    let node = node();
    let failed = failures(&node);
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "the servers do not panic");
    good_publishers_are_served(&node);
}

#[test]
fn connections_that_publish_nothing_make_room_and_publishers_stay() {
    let node = Node::with(|settings| (settings.limits.connections, settings.limits.idle_ms) = (8, 600_000));
    let rtmp = node.addresses().rtmp.unwrap();
    let counters = node.ingest.counters();
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    // An address has six of the eight places.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(rtmp).unwrap()).collect();
    node.wait("silent connections make room for others", || of(&counters.made_room) == 14);
    let publishers: Vec<Peer> = (0..6)
        .map(|at| {
            let (peer, accepted) = Peer::publish(&node, &format!("p{at}"), KEY);
            assert!(accepted);
            peer
        })
        .collect();
    node.wait("the others too", || of(&counters.made_room) == 20);
    assert_eq!((of(&counters.turned_away), of(&counters.failed)), (0, 0));
    for mut socket in silent {
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert_eq!(exchange(rtmp, &hello(&format!("camera?key={KEY}"))), Some(vec![]));
    assert_eq!(of(&counters.turned_away), 1);
    drop(publishers);
    node.wait("there is a place", || exchange(rtmp, &hello("..")).is_some_and(|said| !said.is_empty()));
    let mut peer = Peer::accepted(&node);
    peer.stream(0..2);
    // The node has subscribed to the stream then, which ends soon.
    node.wait_for_frames(usize::from(RATE));
    peer.finish();
    node.wait_for_frames(2 * usize::from(RATE));
}
