//! Requests of encoders: repeated, broken off, damaged, from two encoders at once.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::material::{LARGE, RATE, SMALL, ts};
use crate::node::{KEY, Node};

/// The head of a request with a body of this length.
pub fn head(method: &str, path: &str, length: usize) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// Sends bytes and gives the status of the answer; 0 if there is none.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may answer and close before it has read everything.
    let _ = socket.write_all(bytes).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn request(node: &Node, method: &str, path: &str, body: &[u8]) -> u16 {
    exchange(node.addresses().http.unwrap(), &[&head(method, path, body.len())[..], body].concat())
}

pub fn put_at(node: &Node, path: &str, body: &[u8]) -> u16 {
    request(node, "PUT", &format!("/live/{path}"), body)
}

pub fn put(node: &Node, file: &str, body: &[u8]) -> u16 {
    put_at(node, &format!("camera/{file}"), body)
}

/// A PUT that breaks off.
pub fn broken(node: &Node, file: &str, body: &[u8], sent: usize) {
    broken_at(node, &format!("camera/{file}"), body, sent);
}

pub fn broken_at(node: &Node, path: &str, body: &[u8], sent: usize) {
    let bytes = [&head("PUT", &format!("/live/{path}"), body.len())[..], &body[..sent]].concat();
    let failed = node.ingest.counters().failed.load(Ordering::Relaxed);
    exchange(node.addresses().http.unwrap(), &bytes);
    node.wait("the server sees it", || node.ingest.counters().failed.load(Ordering::Relaxed) > failed);
}

fn seconds(from: u8, to: u8) -> Vec<u8> {
    ts(SMALL, from * RATE..to * RATE)
}

/// The numbers of the frames of seconds.
pub fn expected(seconds: &[(u8, u8)]) -> Vec<u8> {
    seconds.iter().flat_map(|(from, to)| from * RATE..to * RATE).collect()
}

#[test]
fn an_upload_that_broke_off_is_taken_from_where_it_broke() {
    for sent in [0, 5, 3000, 9000] {
        let node = Node::start();
        assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
        broken(&node, "1.ts", &seconds(1, 2), sent);
        assert_eq!(put(&node, "1.ts", &seconds(1, 2)), 201);
        assert_eq!(put(&node, "2.ts", &seconds(2, 3)), 201);
        node.wait_for_end();
        assert_eq!(node.frames(), expected(&[(0, 3)]), "{sent} bytes of the first attempt");
        assert!(node.discontinuities().is_empty());
        node.assert_in_order();
    }
}

#[test]
fn an_upload_that_broke_off_and_is_given_up_leaves_a_marked_hole() {
    let node = Node::start();
    assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
    broken(&node, "1.ts", &seconds(1, 2), 9000);
    assert_eq!(put(&node, "2.ts", &seconds(2, 3)), 201);
    node.wait_for_end();
    let frames = node.frames();
    assert!(frames.starts_with(&expected(&[(0, 1)])) && frames.ends_with(&expected(&[(2, 3)])), "{frames:?}");
    assert_eq!(node.discontinuities(), [2 * RATE]);
    node.assert_in_order();
}

#[test]
fn a_repetition_is_not_taken_twice_and_other_content_of_the_same_name_is() {
    let node = Node::start();
    for body in [seconds(0, 1), seconds(0, 1), seconds(1, 2), seconds(1, 2), seconds(1, 2), seconds(2, 3)] {
        assert_eq!(put(&node, "file.ts", &body), 201);
    }
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 3)]));
    node.assert_in_order();
}

/// Rubbish that begins like a transport stream, and one whose parameter sets are damaged.
#[test]
fn good_segments_after_damaged_ones_arrive_behind_a_discontinuity() {
    let rubbish = [&[0x47; 1][..], &[1; 100_000]].concat();
    let no_frames = [&[0x47; 1][..], &[1; 1880]].concat();
    let no_sets = ts(&[0x67, 0x42, 0xC0], RATE..2 * RATE);
    for (name, bad) in [("no packets", rubbish), ("no frames", no_frames), ("no parameter sets", no_sets)] {
        let node = Node::start();
        assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
        assert_eq!(put(&node, "1.ts", &bad), 400, "{name}");
        assert_eq!(put(&node, "2.ts", &seconds(2, 3)), 201, "{name}");
        assert_eq!(put(&node, "3.ts", &seconds(3, 4)), 201, "{name}");
        node.wait_for_end();
        assert_eq!(node.frames(), expected(&[(0, 1), (2, 4)]), "{name}");
        assert_eq!(node.discontinuities(), [2 * RATE], "{name}");
        node.assert_in_order();
    }
}

#[test]
fn playlists_have_a_limit_of_their_own() {
    let node = Node::start();
    let playlist = |bytes: usize| [b"#EXTM3U\n".as_slice(), &vec![b'#'; bytes]].concat();
    assert_eq!(put(&node, "index.m3u8", &playlist(1000)), 201);
    assert_eq!(put(&node, "index.m3u8", &playlist(2 << 20)), 413);
    assert_eq!(put(&node, "index", &playlist(2 << 20)), 413);
    let small = Node::with(|settings| settings.limits.body_bytes = 4000);
    assert_eq!(put(&small, "index.m3u8", &playlist(5000)), 413);
}

#[test]
fn files_by_post() {
    let node = Node::start();
    for second in 0..3 {
        assert_eq!(request(&node, "POST", "/live/camera", &seconds(second, second + 1)), 201);
    }
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 3)]));
    assert!(node.discontinuities().is_empty());
    node.assert_in_order();
}

/// The encoder starts over within `idle_ms`, and its clock does too.
#[test]
fn an_encoder_that_starts_over_goes_on_behind_a_discontinuity() {
    let node = Node::start();
    for (file, second) in [("0.ts", 0), ("1.ts", 1), ("2.ts", 2), ("0.ts", 0), ("1.ts", 1)] {
        assert_eq!(put(&node, file, &seconds(second, second + 1)), 201);
    }
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 3), (0, 2)]));
    assert_eq!(node.discontinuities(), [0]);
    node.assert_in_order();
}

#[test]
fn another_picture_size_gets_its_own_initialisation_segment() {
    let node = Node::start();
    assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
    assert_eq!(put(&node, "1.ts", &ts(LARGE, RATE..2 * RATE)), 201);
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 2)]));
    assert_eq!(node.discontinuities(), [RATE]);
    assert_eq!(node.inits().len(), 2);
    node.assert_in_order();
}

#[test]
fn the_rate_of_an_http_publisher_is_limited() {
    let node = Node::with(|settings| settings.limits.bytes_per_second = 3000);
    assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
    let statuses: Vec<u16> = (1..6).map(|at| put(&node, &format!("{at}.ts"), &seconds(at, at + 1))).collect();
    assert!(statuses.contains(&429), "{statuses:?}");
}

/// A browser sends such a POST for any web page, at 127.0.0.1 too.
#[test]
fn requests_of_foreign_web_pages_are_refused() {
    let open = Node::with(|settings| settings.keys.clear());
    let closed = Node::start();
    let body = seconds(0, 1);
    let status = |node: &Node, method: &str, host: &str, fields: &str| {
        let path = "/live/camera/0.ts".trim_end_matches(if method == "POST" { "/0.ts" } else { "" });
        let head = String::from_utf8(head(method, path, body.len())).unwrap();
        let mut head = head.replace("Host: a\r\n", &format!("Host: {host}\r\n{fields}"));
        if fields.contains("Authorization: ") {
            head = head.replace(&format!("Authorization: Bearer {KEY}\r\n"), "");
        }
        exchange(node.addresses().http.unwrap(), &[head.as_bytes(), &body].concat())
    };
    for method in ["POST", "PUT", "DELETE"] {
        for (host, fields) in [
            ("127.0.0.1:8935", "Origin: http://evil.example\r\nContent-Type: text/plain\r\n"),
            ("127.0.0.1:8935", "Origin: null\r\n"),
            ("127.0.0.1:8935", "Sec-Fetch-Site: cross-site\r\n"),
            ("127.0.0.1:8935", "Origin: http://127.0.0.1:9000\r\nSec-Fetch-Site: same-site\r\n"),
        ] {
            assert_eq!(status(&open, method, host, fields), 403, "{method} {host} {fields}");
            // A browser adds a password by itself, and nothing else.
            let fields = format!("{fields}Authorization: Basic OnNlY3JldA==\r\n");
            assert_eq!(status(&closed, method, host, &fields), 403, "{method} {host} {fields}");
        }
        // The name of the page leads to this machine: for the browser both are one.
        let rebound = "Origin: http://evil.example:8935\r\n";
        assert_eq!(status(&open, method, "evil.example:8935", rebound), 403, "{method}");
    }
    assert!(open.media().is_empty() && closed.media().is_empty());
    let refused = open.ingest.counters().refused.load(Ordering::Relaxed);
    assert_eq!(refused, 15, "each of them is counted");
    // A page behind a proxy that puts its own Host there: a foreign one cannot show a key in a field.
    let behind = "Origin: https://studio.example\r\n";
    assert_eq!(status(&closed, "POST", "127.0.0.1:8935", behind), 201);
    let wrong = format!("{behind}Authorization: Bearer wrong\r\n");
    assert_eq!(status(&closed, "POST", "127.0.0.1:8935", &wrong), 401);
    // Encoders know nothing of origins, and find the node by any name. A page of its own address has the key.
    assert_eq!(status(&open, "POST", "ingest.example:8935", ""), 201);
    assert_eq!(status(&closed, "POST", "ingest.example:8935", "Origin: http://ingest.example:8935\r\n"), 201);
}

/// A PUT whose body stays incomplete until `end` is called.
struct Dripping {
    socket: TcpStream,
    rest: Vec<u8>,
}

impl Dripping {
    /// Sends half of a file, with this key.
    fn begin(node: &Node, key: &str, file: &str, body: &[u8]) -> Self {
        let head = head("PUT", &format!("/live/camera/{file}"), body.len());
        let head =
            String::from_utf8(head).unwrap().replace(&format!("Bearer {KEY}"), &format!("Bearer {key}"));
        let before = node.ingest.counters().bytes.load(Ordering::Relaxed);
        let (sent, rest) = body.split_at(body.len() / 2);
        let mut socket = TcpStream::connect(node.addresses().http.unwrap()).unwrap();
        socket.write_all(&[head.as_bytes(), sent].concat()).unwrap();
        let all = before + sent.len() as u64;
        node.wait("the half arrives", || node.ingest.counters().bytes.load(Ordering::Relaxed) >= all);
        Self { socket, rest: rest.to_vec() }
    }

    /// Sends the rest. Returns the answer.
    fn end(mut self) -> String {
        self.socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may have answered already.
        let _ = self.socket.write_all(&self.rest);
        let mut answer = Vec::new();
        let _ = self.socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[test]
fn a_slow_file_of_another_client_holds_nobody_up() {
    let other = "the key of the camera";
    let node = Node::with(|settings| {
        settings.keys.insert("camera".to_owned(), other.to_owned());
        settings.limits.idle_ms = 600_000;
    });
    assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
    let slow = Dripping::begin(&node, other, "slow.ts", &seconds(2, 3));
    assert_eq!(put(&node, "1.ts", &seconds(1, 2)), 201, "the encoder goes on");
    assert!(slow.end().starts_with("HTTP/1.1 201"));
    assert_eq!(put(&node, "3.ts", &seconds(3, 4)), 201);
    node.wait_for_frames(3 * usize::from(RATE));
    assert!(
        node.frames().starts_with(&expected(&[(0, 3)])),
        "the slow file is written as a whole, at its end"
    );
}

#[test]
fn a_file_that_stands_still_makes_room_for_the_next_one_of_its_encoder() {
    let node = Node::with(|settings| settings.limits.idle_ms = 600_000);
    assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
    let stuck = Dripping::begin(&node, KEY, "1.ts", &seconds(1, 2));
    assert_eq!(put(&node, "2.ts", &seconds(2, 3)), 201);
    let answer = stuck.end();
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("the next file of the encoder waits"),
        "{answer}"
    );
    assert_eq!(put(&node, "3.ts", &seconds(3, 4)), 201);
    node.wait("the next file arrives", || {
        let frames = node.frames();
        expected(&[(2, 3)]).iter().all(|frame| frames.contains(frame))
    });
}

/// A slow sound is sent as it is encoded.
#[test]
fn a_file_that_moves_slowly_is_not_ended() {
    let body = seconds(1, 2);
    // A test that stood still itself for so long says nothing.
    let is_telling = |_| {
        let node = Node::with(|settings| settings.limits.idle_ms = 15_000);
        assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
        let mut slow = Dripping::begin(&node, KEY, "1.ts", &body);
        let mut longest = Duration::ZERO;
        std::thread::scope(|scope| {
            let next = scope.spawn(|| put(&node, "2.ts", &seconds(2, 3)));
            for _ in 0..100 {
                let before = Instant::now();
                let byte = slow.rest.remove(0);
                // The server may have answered already.
                let _ = slow.socket.write_all(&[byte]);
                std::thread::sleep(Duration::from_millis(25));
                longest = longest.max(before.elapsed());
            }
            let answer = slow.end();
            let next = next.join().unwrap();
            let is_telling = longest < Duration::from_millis(500);
            assert!(!is_telling || answer.starts_with("HTTP/1.1 201") && next == 201, "{next} {answer}");
            is_telling
        })
    };
    assert!((0..20).any(is_telling), "the machine is too slow for this test");
}

#[test]
fn files_of_an_encoder_wait_for_the_memory_of_others() {
    let files: Vec<_> = (2..8).map(|at| (format!("{at}.ts"), seconds(at, at + 1))).collect();
    let node = Node::with(|settings| {
        settings.limits.body_bytes = files[0].1.len() + 100;
        settings.limits.idle_ms = 600_000;
    });
    assert_eq!(put(&node, "0.ts", &seconds(0, 1)), 201);
    let slow = Dripping::begin(&node, KEY, "1.ts", &seconds(1, 2));
    std::thread::scope(|scope| {
        let all: Vec<_> = files.iter().map(|(file, body)| scope.spawn(|| put(&node, file, body))).collect();
        let all: Vec<u16> = all.into_iter().map(|file| file.join().unwrap()).collect();
        assert_eq!(all, [201; 6]);
    });
    assert!(slow.end().starts_with("HTTP/1.1 408"), "it stood still");
}

#[test]
fn slow_files_of_other_clients_leave_memory_to_others() {
    let names = ["a", "b", "camera"];
    let small = seconds(1, 2);
    let most = small.len() * 5 / 2;
    let node = Node::with(|settings| {
        settings.keys.extend(names.map(|name| (name.to_owned(), name.to_owned())));
        (settings.limits.body_bytes, settings.limits.idle_ms) = (most, 600_000);
    });
    let counters = node.ingest.counters();
    let mut slow = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        assert_eq!(put_at(&node, &format!("{name}/0.ts"), &seconds(0, 1)), 201);
        let bytes = if name == "camera" { continue } else { most / 8 * 7 };
        let before = counters.bytes.load(Ordering::Relaxed);
        let head = String::from_utf8(head("PUT", &format!("/live/{name}/slow.ts"), most)).unwrap();
        let head = head.replace(&format!("Bearer {KEY}"), &format!("Bearer {name}"));
        let mut socket = TcpStream::connect(node.addresses().http.unwrap()).unwrap();
        // The server may have refused it already.
        let _ = socket.write_all(&[head.as_bytes(), &vec![0; bytes]].concat());
        node.wait("the server has it, or refuses it", || {
            let is_there = counters.bytes.load(Ordering::Relaxed) - before == bytes as u64;
            is_there || at > 0 && counters.failed.load(Ordering::Relaxed) == 1
        });
        slow.push(socket);
    }
    let head = String::from_utf8(head("PUT", "/live/camera/1.ts", small.len())).unwrap();
    let head = head.replace(&format!("Bearer {KEY}"), "Bearer camera");
    assert_eq!(exchange(node.addresses().http.unwrap(), &[head.as_bytes(), &small].concat()), 201);
}

#[test]
fn each_refused_request_is_counted() {
    let node = Node::start();
    let requests = [
        ("PUT", "/live/camera/0.ts"),
        ("PUT", "/live/camera/index.m3u8"),
        ("POST", "/live/camera"),
        ("DELETE", "/live/camera/0.ts"),
    ];
    for (method, path) in requests {
        let head = String::from_utf8(head(method, path, 0)).unwrap().replace(KEY, "wrong");
        assert_eq!(exchange(node.addresses().http.unwrap(), head.as_bytes()), 401, "{method} {path}");
    }
    assert_eq!(node.ingest.counters().refused.load(Ordering::Relaxed), 4);
}
