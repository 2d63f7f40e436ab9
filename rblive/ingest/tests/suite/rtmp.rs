//! RTMP publishers: restarts, two at once, and damage.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::time::Duration;

use rblive_ingest::rtmp::{Session, SessionError, SessionEvent};

use crate::http::{expected, put};
use crate::material::{LARGE, RATE, SMALL, flv_config, flv_frame, ts};
use crate::node::{KEY, Node};

pub fn text(text: &str) -> Vec<u8> {
    [&[2, 0, text.len() as u8], text.as_bytes()].concat()
}

/// A message in one chunk.
pub fn message(kind: u8, timestamp: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![4];
    bytes.extend(&timestamp.to_be_bytes()[1..]);
    bytes.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.push(kind);
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(payload);
    bytes
}

pub fn command(name: &str, number: f64, rest: &[u8]) -> Vec<u8> {
    message(20, 0, &[&text(name)[..], &[0], &number.to_be_bytes(), rest].concat())
}

/// The peer's whole part of the handshake, which needs nothing of the server's.
pub fn handshake() -> Vec<u8> {
    [&[3][..], &[0; 2 * 1536]].concat()
}

/// Messages of an encoder until it publishes.
pub fn hello(name: &str) -> Vec<u8> {
    let app = [&[3, 0, 3][..], b"app", &text("live"), &[0, 0, 9]].concat();
    [
        handshake(),
        message(1, 0, &65_536u32.to_be_bytes()),
        command("connect", 1.0, &app),
        command("createStream", 2.0, &[5]),
        command("publish", 3.0, &[&[5][..], &text(name), &text("live")].concat()),
    ]
    .concat()
}

/// The metadata of a stream without sound.
fn metadata() -> Vec<u8> {
    let codec = [&[0, 12][..], b"videocodecid", &[0], &7f64.to_be_bytes()].concat();
    message(18, 0, &[&text("onMetaData")[..], &[8, 0, 0, 0, 1], &codec, &[0, 0, 9]].concat())
}

/// From 4.7 hours on timestamps are extended. Chunks that go on repeat the timestamp, and those of some encoders do not.
#[test]
fn chunks_that_go_on_may_leave_the_extended_timestamp_out() {
    const TIME: u32 = 0x0123_4567;
    let whole: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    let (first, rest) = whole.split_at(65_536);
    for repeated in [&TIME.to_be_bytes()[..], &[]] {
        let mut session = Session::new(1 << 20);
        session.receive(&hello("camera"));
        assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Publish { .. }))));
        session.accept();
        let mut bytes = message(9, 0xFF_FFFF, &[]);
        bytes[4..7].copy_from_slice(&(whole.len() as u32).to_be_bytes()[1..]);
        for part in [&TIME.to_be_bytes()[..], first, &[0xC4], repeated, rest, &message(8, 7, b"sound")] {
            bytes.extend(part);
        }
        let mut events = Vec::new();
        for piece in bytes.chunks(1000) {
            session.receive(piece);
            events.extend(std::iter::from_fn(|| session.next_event().unwrap()));
        }
        let video = SessionEvent::Video { timestamp: TIME, payload: whole.clone().into() };
        let audio = SessionEvent::Audio { timestamp: 7, payload: b"sound".as_slice().into() };
        assert!(events == [video, audio], "with {} bytes between the chunks", repeated.len());
    }
}

/// Whoever connects takes little memory, and only a publisher that was accepted may send what a picture needs.
#[test]
fn messages_are_small_before_a_publish_is_accepted() {
    const MOST: usize = 16 << 10;
    let begins = |chunk_stream: u8, bytes: usize| {
        let head = message(9, 0, &[]);
        [&[chunk_stream][..], &head[1..4], &(bytes as u32).to_be_bytes()[1..], &head[7..]].concat()
    };
    let after = |publish: bool, bytes: &[u8]| {
        let mut session = Session::new(1 << 20);
        session.receive(&if publish { hello("camera") } else { handshake() });
        if publish {
            assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Publish { .. }))));
            session.accept();
        }
        session.receive(&[&message(1, 0, &8192u32.to_be_bytes()), bytes].concat());
        session.next_event()
    };
    let one = begins(4, MOST + 1);
    let several: Vec<u8> = (4..7).flat_map(|at| [begins(at, MOST), vec![0; 8192]].concat()).collect();
    for bytes in [one, several] {
        assert_eq!(after(true, &bytes), Ok(None), "a publisher may");
        assert!(matches!(after(false, &bytes), Err(SessionError::Chunks(_))), "a stranger may not");
    }
}

/// A publisher.
pub struct Peer {
    socket: TcpStream,
}

/// The messages of whole seconds.
fn frames(seconds: Range<u8>) -> impl Iterator<Item = Vec<u8>> {
    let numbers = seconds.start * RATE..seconds.end * RATE;
    numbers.map(|number| message(9, u32::from(number) * 40, &flv_frame(number)))
}

impl Peer {
    /// Asks to publish, and says whether it was let.
    pub fn publish(node: &Node, name: &str, key: &str) -> (Self, bool) {
        let mut socket = TcpStream::connect(node.addresses().rtmp.unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(&hello(&format!("{name}?key={key}"))).unwrap();
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        let has = |answer: &[u8], code: &[u8]| answer.windows(code.len()).any(|window| window == code);
        loop {
            if has(&answer, b"NetStream.Publish.Start") {
                return (Self { socket }, true);
            }
            if has(&answer, b"NetStream.Publish.BadName") {
                return (Self { socket }, false);
            }
            let count = socket.read(&mut buffer).expect("the server answers");
            assert!(count > 0, "the server answers");
            answer.extend(&buffer[..count]);
        }
    }

    /// A publisher that was let.
    pub fn accepted(node: &Node) -> Self {
        let (mut peer, accepted) = Self::publish(node, "camera", KEY);
        assert!(accepted);
        peer.send(&metadata());
        peer
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends as long as the server takes it.
    pub fn try_send(&mut self, bytes: &[u8]) {
        // The server closes the connection when another publisher takes the stream, or when it refuses what was sent before.
        let _ = self.socket.write_all(bytes);
    }

    fn configure(&mut self, sps: &[u8]) {
        self.send(&message(9, 0, &flv_config(sps)));
    }

    /// Sends whole seconds.
    pub fn seconds(&mut self, seconds: Range<u8>) {
        frames(seconds).for_each(|frame| self.send(&frame));
    }

    /// Sends the configuration and whole seconds, as long as the server takes them.
    pub fn try_stream(&mut self, seconds: Range<u8>) {
        self.configure(SMALL);
        frames(seconds).for_each(|frame| self.try_send(&frame));
    }

    /// Sends the configuration and whole seconds.
    pub fn stream(&mut self, seconds: Range<u8>) {
        self.configure(SMALL);
        self.seconds(seconds);
    }

    /// Ends the stream in order.
    pub fn finish(mut self) {
        self.send(&command("deleteStream", 4.0, &[5, 0, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0]));
        self.leave();
    }

    /// Closes the connection once the server has read everything.
    pub fn leave(self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
        self.closed();
    }

    /// Waits until the server has closed the connection.
    pub fn closed(mut self) {
        let mut rest = Vec::new();
        let timed_out = |kind| matches!(kind, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
        let read = self.socket.read_to_end(&mut rest);
        assert!(!read.is_err_and(|error| timed_out(error.kind())), "the server closes the connection");
    }
}

/// A node whose streams wait long enough for a publisher's return.
fn node() -> Node {
    Node::with(|settings| settings.linger_ms = 1000)
}

#[test]
fn an_encoder_that_restarts_goes_on_behind_a_discontinuity() {
    let node = node();
    for _ in 0..3 {
        let mut peer = Peer::accepted(&node);
        peer.stream(0..2);
        peer.finish();
    }
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 2), (0, 2), (0, 2)]));
    assert_eq!(node.discontinuities(), [0, 0]);
    node.assert_in_order();
}

#[test]
fn a_damaged_message_ends_the_connection_and_the_encoder_may_return() {
    let damaged: [&[u8]; 3] = [&[0x17, 1], &[0x12, 1, 0, 0, 0, 1], &[0x17, 0, 0, 0, 0, 1, 2, 3]];
    for bad in damaged {
        let node = node();
        let mut peer = Peer::accepted(&node);
        peer.stream(0..2);
        peer.send(&message(9, 2000, bad));
        peer.closed();
        node.wait_for_frames(2 * usize::from(RATE));
        let mut peer = Peer::accepted(&node);
        peer.stream(3..5);
        peer.leave();
        node.wait_for_end();
        assert_eq!(node.frames(), expected(&[(0, 2), (3, 5)]), "{bad:?}");
        assert_eq!(node.discontinuities(), [3 * RATE], "{bad:?}");
        node.assert_in_order();
    }
}

#[test]
fn another_picture_size_during_a_push() {
    let node = node();
    let mut peer = Peer::accepted(&node);
    peer.stream(0..2);
    peer.configure(LARGE);
    peer.seconds(2..4);
    peer.leave();
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 4)]));
    assert_eq!(node.discontinuities(), [2 * RATE]);
    assert_eq!(node.inits().len(), 2);
    node.assert_in_order();
}

#[test]
fn a_second_publisher_is_refused_and_the_first_one_goes_on() {
    let node = node();
    let mut first = Peer::accepted(&node);
    first.stream(0..2);
    node.wait_for_frames(1);
    let (second, accepted) = Peer::publish(&node, "camera", KEY);
    assert!(!accepted);
    second.closed();
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 409);
    first.seconds(2..3);
    first.leave();
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 3)]));
    assert!(node.discontinuities().is_empty());
}

#[test]
fn a_second_publisher_takes_the_place_of_the_first_one_if_it_may() {
    let node = Node::with(|settings| (settings.takeover, settings.linger_ms) = (true, 1000));
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 201);
    let mut first = Peer::accepted(&node);
    first.stream(1..3);
    // A publisher whose place was taken does not take it back with its next request.
    assert_eq!(put(&node, "1.ts", &ts(SMALL, RATE..2 * RATE)), 409);
    node.wait_for_frames(usize::from(2 * RATE));
    let mut second = Peer::accepted(&node);
    second.stream(3..5);
    first.send(&message(9, 3000, &flv_frame(3 * RATE)));
    first.closed();
    second.leave();
    node.wait_for_frames(usize::from(5 * RATE));
    // The stream is free.
    assert_eq!(put(&node, "5.ts", &ts(SMALL, 5 * RATE..6 * RATE)), 201);
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 6)]));
    assert_eq!(node.discontinuities(), [RATE, 3 * RATE, 5 * RATE]);
    node.assert_in_order();
}
