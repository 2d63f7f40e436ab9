//! Many at once, and again and again: connections that never finish, guesses of keys, odd names, encoders that fight for a stream.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::http::expected;
use crate::material::{RATE, SMALL, flv_config, flv_frame};
use crate::node::{KEY, Node};
use crate::rtmp::{Peer, handshake, hello, message};

/// The answer of a server before it closes the connection.
fn answer(address: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may close before it has read everything.
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    // A connection that is reset has said everything before.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// An encoder takes its whole way.
fn a_good_publisher_is_served(node: &Node) {
    let from = node.frames().len();
    let mut peer = Peer::accepted(node);
    peer.stream(0..2);
    // The node subscribes to a stream that it does not know, which takes longer than this one lasts where the machine has other work.
    node.wait_for_frames(from + usize::from(RATE));
    peer.finish();
    node.wait_for_frames(from + 2 * usize::from(RATE));
    assert_eq!(node.frames()[from..], expected(&[(0, 2)]));
}

#[test]
fn thousands_of_connections_that_never_finish_make_place() {
    let node = Node::with(|settings| (settings.limits.connections, settings.limits.idle_ms) = (200, 10_000));
    let addresses = node.addresses();
    let (rtmp, http) = (addresses.rtmp.unwrap(), addresses.http.unwrap());
    let begins = [
        (rtmp, handshake()[..700].to_vec()),
        (rtmp, Vec::new()),
        (http, b"PUT /live/a/0.ts HTTP/1.1\r\nHost: a\r\nX: ".to_vec()),
        (addresses.rtmps.unwrap(), vec![0x16, 3, 1, 0, 200, 1]),
        (addresses.https.unwrap(), vec![0x16, 3, 1]),
    ];
    let mut silent = Vec::new();
    for at in 0..3000 {
        let (address, begin) = &begins[at % begins.len()];
        let mut socket = TcpStream::connect(address).unwrap();
        // Connections over the limit are closed at once.
        let _ = socket.write_all(begin);
        silent.push(socket);
    }
    let counters = node.ingest.counters();
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    node.wait("each connection is taken or turned away", || {
        of(&counters.connections) + of(&counters.turned_away) == 3000
    });
    assert!(of(&counters.made_room) >= 1000, "{counters:?}");
    // Encoders get in, as these silent peers lose their places.
    node.wait("there is a place", || {
        let said = answer(rtmp, &hello(&format!("..?key={KEY}")));
        said.contains("the name of the stream is not valid")
    });
    a_good_publisher_is_served(&node);
    drop(silent);
}

#[test]
fn guesses_of_a_key_learn_nothing() {
    // The publisher is silent meanwhile.
    let node = Node::with(|settings| settings.limits.idle_ms = 600_000);
    let addresses = node.addresses();
    let (rtmp, http) = (addresses.rtmp.unwrap(), addresses.http.unwrap());
    // One stream exists, the other does not.
    let mut peer = Peer::accepted(&node);
    peer.stream(0..1);
    let put = |stream: &str, key: &str| {
        format!(
            "PUT /live/{stream}/0.ts?key={key} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
    };
    let without_date =
        |answer: String| answer.lines().filter(|line| !line.starts_with("date")).collect::<String>();
    let begins = (1..KEY.len()).map(|end| &KEY[..end]);
    let guesses: Vec<&str> =
        begins.chain(["", "A-SECRET", "a-secret ", "a-secretx", "%61-secret", "*"]).collect();
    let (mut by_rtmp, mut by_http) = (Vec::new(), Vec::new());
    for stream in ["camera", "nobody"] {
        for guess in &guesses {
            by_rtmp.push(answer(rtmp, &hello(&format!("{stream}?key={guess}"))));
            let guess = guess.replace(' ', "%20");
            by_http.push(without_date(answer(http, put(stream, &guess).as_bytes())));
        }
    }
    // All wrong keys get one answer, until there were too many of them.
    for said in by_rtmp.iter().chain(&by_http) {
        let is_refused = said.contains("the stream key, or the user and the password, are wrong or missing");
        assert!(is_refused || said.contains("too many attempts from this address"), "{said:?}");
    }
    by_rtmp.dedup();
    by_http.dedup();
    assert!(by_rtmp.len() <= 2 && by_http.len() <= 2, "{by_rtmp:?} {by_http:?}");
    let counters = node.ingest.counters();
    assert_eq!(counters.publishers.load(Ordering::Relaxed), 1, "nobody else publishes");
    peer.seconds(1..2);
    peer.finish();
    node.wait_for_frames(2 * usize::from(RATE));
}

#[test]
fn odd_names_are_refused_with_a_reason() {
    let node = Node::start();
    let rtmp = node.addresses().rtmp.unwrap();
    let names: [&str; 16] = [
        "",
        ".",
        "..",
        "../camera",
        "a/../camera",
        "camera/",
        "/camera",
        "a//b",
        "ä",
        "ca\u{301}mera",
        "\u{202e}aremac",
        "a\0b",
        "a\r\n#EXT-X-ENDLIST",
        "a b",
        "a%2fb",
        "\u{1f3a5}",
    ];
    for name in names {
        let said = answer(rtmp, &hello(&format!("{name}?key={KEY}")));
        assert!(said.contains("NetStream.Publish.BadName"), "{name:?}: {said:?}");
        assert!(
            said.contains("the name of the stream is not valid: use letters, digits and . _ - /"),
            "{said:?}"
        );
    }
    // Bytes that are no text.
    let mut bytes = hello(&format!("camexx?key={KEY}"));
    let at = bytes.windows(6).position(|own| own == b"camexx").unwrap();
    bytes[at + 4..at + 6].copy_from_slice(&[0xFF, 0xC0]);
    let said = answer(rtmp, &bytes);
    assert!(!said.contains("NetStream.Publish.Start"), "{said:?}");
    assert_eq!(node.ingest.counters().publishers.load(Ordering::Relaxed), 0);
    a_good_publisher_is_served(&node);
}

#[test]
fn encoders_that_fight_for_a_stream_do_not_mix_their_frames() {
    let node = Node::with(|settings| (settings.takeover, settings.linger_ms) = (true, 600_000));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let (mut peer, accepted) = Peer::publish(&node, "camera", KEY);
                    assert!(accepted, "whoever has the key may take the stream");
                    let frames = (0..RATE).flat_map(|at| message(9, u32::from(at) * 40, &flv_frame(at)));
                    let sent: Vec<u8> = message(9, 0, &flv_config(SMALL)).into_iter().chain(frames).collect();
                    peer.try_send(&sent);
                }
            });
        }
    });
    let mut peer = Peer::accepted(&node);
    peer.stream(0..2);
    peer.finish();
    node.wait("the last one is served whole", || node.frames().ends_with(&expected(&[(0, 2)])));
    node.end_behind_frames(0);
    node.assert_in_order();
    assert!(node.frames().ends_with(&expected(&[(0, 2)])), "nothing is behind it");
    let (frames, breaks) = (node.frames(), node.discontinuities().len());
    let jumps = frames.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(frames.len() > usize::from(RATE) && jumps <= breaks, "{jumps} jumps, {breaks} discontinuities");
}

#[test]
fn five_hundred_encoders_at_once() {
    // An encoder waits for its turn longer than usual where the machine has other work.
    let node = Node::with(|settings| (settings.linger_ms, settings.limits.idle_ms) = (100, 600_000));
    std::thread::scope(|scope| {
        for worker in 0..20 {
            let node = &node;
            scope.spawn(move || {
                let mut peers: Vec<Peer> = (0..25)
                    .map(|at| {
                        let (peer, accepted) = Peer::publish(node, &format!("flood/{worker}-{at}"), KEY);
                        assert!(accepted);
                        peer
                    })
                    .collect();
                peers.iter_mut().for_each(|peer| peer.stream(0..1));
            });
        }
        a_good_publisher_is_served(&node);
    });
    assert_eq!(node.ingest.counters().publishers.load(Ordering::Relaxed), 501);
    a_good_publisher_is_served(&node);
}
