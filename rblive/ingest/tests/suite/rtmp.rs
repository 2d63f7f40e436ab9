//! RTMP publishers: restarts, two at once, and damage.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::time::Duration;

use rblive_ingest::FailedEncoder;
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

/// One odd timestamp in each second is none of the viewers' business. The operator is told once.
#[test]
fn odd_timestamps_are_mended_and_told() {
    let node = Node::with(|_| {});
    let remarks = &node.ingest.counters().remarks;
    let mut peer = Peer::accepted(&node);
    peer.configure(SMALL);
    for number in 0..3 * RATE {
        let odd = if number % RATE == 7 { 9_000_000 } else { 0 };
        peer.send(&message(9, u32::from(number) * 40 + odd, &flv_frame(number)));
    }
    node.wait("the frames are there", || remarks.counts() == [("time", 3)]);
    // The node has subscribed to the stream then, which ends soon.
    node.wait_for_frames(1);
    let listed = remarks.list();
    assert!(
        listed.len() == 1 && listed[0].0 == "camera" && listed[0].2.contains("look at the encoder's clock")
    );
    peer.leave();
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 3)]));
    assert!(node.discontinuities().is_empty() && remarks.list().is_empty());
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

/// All sizes above that of the largest message mean the same.
#[test]
fn chunks_may_be_announced_as_large_as_the_protocol_knows() {
    let whole: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    let after = |size: u32| {
        let mut session = Session::new(1 << 20);
        session.receive(&hello("camera"));
        assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Publish { .. }))));
        session.accept();
        session.receive(&[message(1, 0, &size.to_be_bytes()), message(9, 7, &whole)].concat());
        session.next_event()
    };
    for size in [100_000, 0xFF_FFFF, 0x100_0000, 128 << 20, 0x7FFF_FFFF] {
        let video = SessionEvent::Video { timestamp: 7, payload: whole.clone().into() };
        assert_eq!(after(size), Ok(Some(video)), "{size}");
    }
    for size in [0, 0x8000_0000, u32::MAX] {
        assert!(matches!(after(size), Err(SessionError::Chunks(_))), "{size}");
    }
}

/// A message of kind 22 with these messages in it.
fn aggregate(timestamp: u32, messages: &[(u8, u32, &[u8])]) -> Vec<u8> {
    let one = |(kind, time, payload): &(u8, u32, &[u8])| {
        let [highest, time @ ..] = time.to_be_bytes();
        let length = (payload.len() as u32).to_be_bytes();
        let size = (payload.len() as u32 + 11).to_be_bytes();
        [&[*kind][..], &length[1..], &time, &[highest, 0, 0, 0], payload, &size].concat()
    };
    message(22, timestamp, &messages.iter().flat_map(one).collect::<Vec<_>>())
}

#[test]
fn aggregate_messages_are_their_messages_at_their_times() {
    let node = node();
    let mut peer = Peer::accepted(&node);
    peer.send(&aggregate(0, &[(9, 0, &flv_config(SMALL))]));
    for second in 0..2 {
        let frames: Vec<_> = (second * RATE..(second + 1) * RATE).map(|at| (at, flv_frame(at))).collect();
        // The times within it are those of another clock.
        let inner: Vec<_> =
            frames.iter().map(|(at, frame)| (9, 0xFF_FFF0 + u32::from(*at) * 40, &frame[..])).collect();
        peer.send(&aggregate(u32::from(second) * 1000, &inner));
    }
    peer.leave();
    node.end_behind_frames(2 * usize::from(RATE));
    assert_eq!(node.frames(), expected(&[(0, 2)]));
    node.assert_in_order();
}

#[test]
fn damaged_aggregates_and_those_of_strangers_are_refused() {
    let after = |bytes: &[u8], publishes: bool| {
        let mut session = Session::new(1 << 20);
        session.receive(&if publishes { hello("camera") } else { handshake() });
        if publishes {
            assert!(matches!(session.next_event(), Ok(Some(SessionEvent::Publish { .. }))));
            session.accept();
        }
        session.receive(bytes);
        session.next_event()
    };
    let good = aggregate(5, &[(20, 0, b"no command"), (22, 0, b"no aggregate"), (9, 0, b"picture")]);
    let picture = SessionEvent::Video { timestamp: 5, payload: b"picture".as_slice().into() };
    assert_eq!(after(&good, true), Ok(Some(picture)));
    assert_eq!(after(&good, false), Err(SessionError::Early));
    for bad in [&[9][..], &[9, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1]] {
        assert_eq!(after(&message(22, 0, bad), true), Err(SessionError::Aggregate), "{bad:?}");
    }
}

/// A publisher that is accepted, and of which viewers get nothing, is told of while that is so.
#[test]
fn a_publisher_without_anything_to_play_is_told_of() {
    let node = Node::with(|settings| settings.limits.idle_ms = 5000);
    let remarks = || {
        let list = node.ingest.counters().remarks.list();
        list.into_iter().find(|(_, kind, _)| *kind == "nothing").map(|(_, _, text)| text)
    };
    let told = |peer: &mut Peer, sent: &[u8], what: &str| {
        node.wait(what, || {
            peer.send(sent);
            remarks().is_some_and(|text| text.contains(what))
        });
    };
    let mut peer = Peer::accepted(&node);
    told(&mut peer, &message(9, 0, &flv_frame(1)), "no configuration");
    peer.finish();
    node.wait_for_no_stream();
    assert_eq!(remarks(), None, "it is gone");
    let mut peer = Peer::accepted(&node);
    peer.configure(SMALL);
    told(&mut peer, &message(9, 0, &flv_frame(1)), "no key frame");
    peer.seconds(1..3);
    node.wait("it plays", || remarks().is_none());
    let counts = node.ingest.counters().remarks.counts();
    assert!(counts.contains(&("nothing", 2)), "once each: {counts:?}");
}

/// Encoders show what the server says before the end of the connection.
#[test]
fn a_connection_that_is_closed_is_told_why() {
    let node = node();
    for (sent, why) in [
        (message(8, 0, &[0x2F, 1, 2, 3]), "audio codec 2 is not supported"),
        (message(9, 0, &[0x90, b'v', b'p', b'0', b'9']), "video codec vp09 is not supported"),
        (message(9, 0, &[0x17, 1]), "damaged video message"),
        (command("play", 5.0, &[&[5][..], &text("camera")].concat()), "for publishing only"),
    ] {
        let mut peer = Peer::accepted(&node);
        // What follows is not read any more, and takes nothing back of what was said.
        peer.try_send(&[sent, vec![0; 100_000]].concat());
        let mut said = Vec::new();
        let read = peer.socket.read_to_end(&mut said);
        assert!(read.is_ok(), "{why}: {read:?}");
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("NetStream.Publish.Failed") && said.contains(why), "{said:?}");
    }
    node.wait("the list of failures has them", || node.ingest.counters().failures.list().len() == 4);
    let all = node.ingest.counters().failures.list();
    let is_last = |own: &FailedEncoder| own.reason.contains("for publishing only") && own.protocol == "rtmp";
    assert!(all.iter().any(is_last), "{all:?}");
    let mut stranger = TcpStream::connect(node.addresses().rtmp.unwrap()).unwrap();
    stranger.write_all(&[handshake(), message(9, 0, b"picture")].concat()).unwrap();
    let mut said = Vec::new();
    stranger.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("before its publish was accepted"));
}

/// An encoder whose network broke is there again before the server has noticed.
#[test]
fn an_encoder_that_returns_takes_the_place_of_its_silent_connection() {
    let node = Node::with(|settings| settings.limits.idle_ms = 600_000);
    let mut lost = Peer::accepted(&node);
    lost.stream(0..2);
    let mut found = None;
    node.wait("the encoder gets its place", || {
        let (peer, accepted) = Peer::publish(&node, "camera", KEY);
        found = accepted.then_some(peer);
        accepted
    });
    let mut found = found.unwrap();
    found.send(&metadata());
    found.stream(2..4);
    lost.try_send(&message(9, 4000, &flv_frame(0)));
    lost.closed();
    found.leave();
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 4)]));
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
        Self::begin(node, &format!("{name}?key={key}"))
    }

    /// Publishes what an encoder has as its stream key.
    pub fn begin(node: &Node, name: &str) -> (Self, bool) {
        let mut socket = TcpStream::connect(node.addresses().rtmp.unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(&hello(name)).unwrap();
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
        Self::accepted_as(node, &format!("camera?key={KEY}"))
    }

    pub fn accepted_as(node: &Node, name: &str) -> Self {
        let (mut peer, accepted) = Self::begin(node, name);
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

/// A node whose streams wait for a publisher's return.
fn node() -> Node {
    Node::with(|settings| settings.linger_ms = 600_000)
}

#[test]
fn an_encoder_that_restarts_goes_on_behind_a_discontinuity() {
    let node = node();
    for _ in 0..3 {
        let mut peer = Peer::accepted(&node);
        peer.stream(0..2);
        peer.finish();
    }
    node.end_behind_frames(6 * usize::from(RATE));
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
        node.end_behind_frames(4 * usize::from(RATE));
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
    node.end_behind_frames(4 * usize::from(RATE));
    assert_eq!(node.frames(), expected(&[(0, 4)]));
    assert_eq!(node.discontinuities(), [2 * RATE]);
    assert_eq!(node.inits().len(), 2);
    node.assert_in_order();
}

#[test]
fn a_second_publisher_is_refused_and_the_first_one_goes_on() {
    let node = Node::with(|settings| {
        settings.keys.insert("camera".to_owned(), "another-secret".to_owned());
        settings.limits.idle_ms = 600_000;
    });
    let mut first = Peer::accepted(&node);
    first.stream(0..2);
    node.wait_for_frames(1);
    // Another client: the own one would get the place of a publisher that stood still for a moment.
    let (second, accepted) = Peer::publish(&node, "camera", "another-secret");
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
    let node = Node::with(|settings| (settings.takeover, settings.linger_ms) = (true, 600_000));
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
    node.end_behind_frames(6 * usize::from(RATE));
    assert_eq!(node.frames(), expected(&[(0, 6)]));
    assert_eq!(node.discontinuities(), [RATE, 3 * RATE, 5 * RATE]);
    node.assert_in_order();
}
