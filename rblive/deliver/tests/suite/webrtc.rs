//! Viewers by WebRTC get the stream's own frames from a key frame on, within limits.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rblive::content::{Container, Description, Flags, Header, Kind, Rendition};
use rblive_deliver::{Patience, Settings, Setup, token};
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig};
use rblive_media::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec, VideoConfig};
use rblive_webrtc::Hub;
use str0m::media::Direction;
use testkit::until;

use crate::lab::{Lab, NAME, request};
use crate::viewer::{Viewer, post};

const FRAME: i64 = TICKS_PER_SECOND / 25;
/// Pictures from one key frame to the next.
const GROUP: i64 = 10;
const PATH: &str = "/live/cam/1/whep";

const RECORD: &[u8] = &[
    1, 0x42, 0xC0, 0x0B, 0xFF, 0xE1, 0, 24, 0x67, 0x42, 0xC0, 0x0B, 0xDA, 0x0A, 0x37, 0xE4, 0xC0, 0x44, 0, 0,
    3, 0, 4, 0, 0, 3, 0, 0xC8, 0x3C, 0x50, 0xAA, 0x80, 1, 0, 4, 0x68, 0xCE, 0x0F, 0x2C, 0x80,
];

fn h264() -> VideoConfig {
    let (codec, record, name) = (VideoCodec::H264, RECORD.into(), "avc1.42c00b".to_owned());
    VideoConfig { codec, record, name, width: 160, height: 90, frames_per_1000_s: 25_000 }
}

/// The NAL unit of a picture, of several datagrams if it is a key frame.
fn picture(number: i64) -> Vec<u8> {
    let (kind, bytes) = if number % GROUP == 0 { (0x65, 5_000) } else { (0x41, 300) };
    let content = (0..bytes).map(|at| (number as u8).wrapping_mul(31).wrapping_add(at as u8) | 1);
    let number = [number & 0x7F | 0x80, number >> 7 | 0x80].map(|byte| byte as u8);
    [kind].into_iter().chain(number).chain(content).collect()
}

/// A lab with WebRTC, and an encoder.
struct Live {
    lab: Lab,
    hub: Arc<Hub>,
    segmenter: Segmenter,
    next: i64,
}

impl Live {
    fn with(settings: Settings, webrtc: rblive_webrtc::Settings) -> Self {
        let hub = Arc::new(
            Hub::start(&rblive_webrtc::Settings { listen: "127.0.0.1:0".into(), ..webrtc }).unwrap(),
        );
        let patience = Patience { settle: Duration::ZERO, ..Patience::default() };
        let setup = Setup { patience, peers: Some(hub.clone()), ..Setup::default() };
        let lab = Lab::with_setup(Settings { tls: false, ..settings }, setup, 256 << 10, 40);
        let config = SegmenterConfig { target_ms: 400, part_ms: 80, ..SegmenterConfig::default() };
        let mut segmenter = Segmenter::new(config, 0);
        segmenter.push(Input::Tracks { video: true, audio: false }).unwrap();
        segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
        Self { lab, hub, segmenter, next: 0 }
    }

    fn new() -> Self {
        let mut own = Self::with(Settings::default(), rblive_webrtc::Settings::default());
        own.begin("avc1.42c00b,mp4a.40.2");
        own
    }

    /// Begins the stream, until it has a segment.
    fn begin(&mut self, codecs: &str) {
        self.describe(Container::Cmaf, codecs);
        self.encode(2 * GROUP);
        until("the stream has a segment", || self.lab.catalog.statuses()[0].is_live);
    }

    fn describe(&self, container: Container, codecs: &str) {
        let rendition =
            Rendition { id: 1, codecs: codecs.into(), bandwidth: 1_000_000, video: None, audio: None };
        let description = Description {
            name: NAME.into(),
            container,
            target_duration_us: 1_000_000,
            part_target_us: Some(100_000),
            renditions: vec![rendition],
        };
        self.lab.write(Header::new(Kind::Description), &description.to_json().unwrap());
        until("the stream is described", || !self.lab.catalog.statuses().is_empty());
    }

    /// Encodes pictures, all at once.
    fn encode(&mut self, count: i64) {
        self.encode_shifted(count, |_| 0);
    }

    /// Encodes pictures that are shown so much later than decoded.
    fn encode_shifted(&mut self, count: i64, shift: impl Fn(i64) -> i64) {
        for number in self.next..self.next + count {
            let nal = picture(number);
            let data = [&(nal.len() as u32).to_be_bytes(), &nal[..]].concat().into();
            let (dts, key) = (number * FRAME, number % GROUP == 0);
            let pts = dts + shift(number) * FRAME;
            let unit = AccessUnit { media: Media::Video, dts, pts, key, data };
            self.segmenter.push(Input::Unit(unit)).unwrap();
            while let Some(part) = self.segmenter.next_part() {
                self.write(&part);
            }
        }
        self.next += count;
    }

    fn write(&self, part: &Part) {
        if part.index == 0 {
            self.lab.write(Header { rendition: 1, ..Header::new(Kind::Init) }, &part.init);
        }
        let flags = [
            (part.independent, Flags::INDEPENDENT),
            (part.index == 0, Flags::FIRST_PART),
            (part.last, Flags::LAST_PART),
        ];
        let flags =
            flags.into_iter().filter(|(is_set, _)| *is_set).fold(Flags::NONE, |all, (_, own)| all | own);
        let header = Header {
            flags,
            rendition: 1,
            sequence: part.sequence,
            part: part.index,
            duration_us: part.duration_us,
            start_us: part.start_us,
            ..Header::new(Kind::Media)
        };
        self.lab.write(header, &part.to_vec());
    }

    fn viewers(&self) -> usize {
        self.lab.catalog.statuses()[0].viewers
    }

    /// A viewer that is connected, and has a picture.
    fn watch(&mut self) -> (Viewer, String) {
        let mut viewer = Viewer::new(Direction::RecvOnly);
        let session = viewer.join(self.lab.server.addr(), PATH);
        viewer.until("the viewer is connected", |own| own.is_connected);
        until("the server knows", || self.hub.counters().viewers.load(Ordering::Relaxed) > 0);
        while viewer.frames.is_empty() {
            self.encode(1);
            let mut steps = 0;
            viewer.until("a while", |_| {
                steps += 1;
                steps > 3
            });
        }
        (viewer, session)
    }
}

/// The NAL units of a frame, without those that are parameter sets.
fn nals(frame: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut rest = frame.strip_prefix(&[0, 0, 0, 1]).expect("a start code");
    while let Some(at) = rest.windows(4).position(|own| own == [0, 0, 0, 1]) {
        all.push(&rest[..at]);
        rest = &rest[at + 4..];
    }
    all.push(rest);
    all
}

#[test]
fn a_viewer_gets_the_pictures_of_the_encoder_from_a_key_frame_on() {
    let mut live = Live::new();
    let (mut viewer, session) = live.watch();
    assert_eq!(live.viewers(), 1);
    live.encode(3 * GROUP);
    viewer.until("thirty pictures more", |own| own.frames.len() > 3 * GROUP as usize);
    let first = nals(&viewer.frames[0]);
    assert_eq!(first[..2].iter().map(|nal| nal[0] & 31).collect::<Vec<_>>(), [7, 8], "the parameter sets");
    let begin = (0..live.next).find(|number| picture(*number) == first[2]).expect("a picture of the encoder");
    assert_eq!(begin % GROUP, 0, "a key frame");
    for (frame, number) in viewer.frames.iter().zip(begin..) {
        assert_eq!(*nals(frame).last().unwrap(), picture(number), "picture {number}");
    }
    assert!(viewer.times.windows(2).all(|pair| pair[1] - pair[0] == FRAME as u64), "{:?}", viewer.times);
    viewer.ask();
    let asked = &live.hub.counters().key_frames_asked;
    viewer.until("the request for a key frame arrives", |_| asked.load(Ordering::Relaxed) > 0);
    let gone = |live: &Live| {
        let text = format!("DELETE {PATH}/{session} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        request(live.lab.server.addr(), &text).status
    };
    assert_eq!(gone(&live), 200);
    viewer.until("the viewer learns of the end", |own| own.is_closed);
    until("the viewer is not counted any more", || live.viewers() == 0);
    assert_eq!(gone(&live), 404);
    let metrics = String::from_utf8(live.lab.get("/metrics").body).unwrap();
    assert!(metrics.contains("rblive_webrtc_answered_offers_total 1\n"), "{metrics}");
    assert!(metrics.contains("rblive_webrtc_viewers 0\n"), "{metrics}");
}

#[test]
fn viewers_of_a_stream_share_its_frames_and_its_end() {
    let mut live = Live::new();
    let (mut first, _) = live.watch();
    let (mut second, _) = live.watch();
    live.encode(2 * GROUP);
    for viewer in [&mut first, &mut second] {
        viewer.until("pictures", |own| own.frames.len() > GROUP as usize);
    }
    assert_eq!(live.viewers(), 2);
    live.lab.end();
    for viewer in [&mut first, &mut second] {
        viewer.until("the end", |own| own.is_closed);
    }
    until("nobody watches", || live.viewers() == 0);
}

#[test]
fn a_hole_is_followed_by_a_key_frame() {
    let mut live = Live::new();
    let (mut viewer, _) = live.watch();
    let seen = viewer.frames.len();
    // The encoder begins again: its times do, and viewers need what it begins with.
    live.lab.start_over();
    live.describe(Container::Cmaf, "avc1.42c00b");
    let config = SegmenterConfig { target_ms: 400, part_ms: 80, ..SegmenterConfig::default() };
    live.segmenter = Segmenter::new(config, 1_000);
    live.segmenter.push(Input::Tracks { video: true, audio: false }).unwrap();
    live.segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
    live.next = 500;
    let number = |frame: &Vec<u8>| (500..750).find(|number| *nals(frame).last().unwrap() == picture(*number));
    let mut first = None;
    while first.is_none() {
        live.encode(1);
        let mut steps = 0;
        viewer.until("a while", |_| {
            steps += 1;
            steps > 3
        });
        first = viewer.frames.iter().skip(seen).find_map(number);
    }
    assert_eq!(first.map(|number| number % GROUP), Some(0), "a key frame comes first");
    assert!(viewer.times.is_sorted(), "{:?}", viewer.times);
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_reason() {
    let mut live = Live::new();
    let address = live.lab.server.addr();
    let offer = Viewer::new(Direction::RecvOnly).offer;
    let refused = |path: &str, offer: &str| {
        let got = post(address, path, offer);
        (got.status, String::from_utf8(got.body).unwrap())
    };
    assert_eq!(refused("/live/none/whep", &offer).0, 404);
    assert_eq!(refused("/live/cam/1/whip", &offer).0, 413, "it has a body");
    assert_eq!(refused("/live/cam/1/whep?rendition=x", &offer).0, 400);
    assert_eq!(refused("/live/cam/1/whep?rendition=7", &offer).0, 406);
    for bad in [
        "",
        "v=0",
        "m=video 9 UDP/TLS/RTP/SAVPF 96\r\n",
        &offer[..offer.len() / 2],
        &offer.replace("a=fingerprint", "a=x"),
    ] {
        let (status, why) = refused(PATH, bad);
        assert_eq!(status, 400, "{bad}: {why}");
    }
    let no_h264 = offer.replace("H264/90000", "H264X/90000");
    assert_eq!(refused(PATH, &no_h264).0, 406);
    for direction in [Direction::SendOnly, Direction::SendRecv] {
        let (status, why) = refused(PATH, &Viewer::new(direction).offer);
        assert!(status == 400 && why.contains("recvonly"), "{direction:?}: {why}");
    }
    assert_eq!(refused(PATH, &Viewer::new(Direction::Inactive).offer).0, 406, "a viewer that takes nothing");
    let twice = format!("{offer}{}", "a=rtpmap:1 G722/90000\r\n".repeat(2));
    assert!(refused(PATH, &twice).1.contains("payload type twice"), "{twice}");
    let apts = format!("{offer}a=fmtp:2 {}\r\n", ["apt=1"; 20].join(";"));
    assert!(refused(PATH, &apts).1.contains("apt="), "{apts}");
    assert_eq!(refused(PATH, &" ".repeat((64 << 10) + 1)).0, 413);
    assert_eq!(refused(PATH, &"m=video 9 x 1\r\n".repeat(4_000)).0, 400);
    let got = request(address, &format!("GET {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert_eq!(got.status, 404);
    let got = request(address, &format!("PATCH {PATH}/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert_eq!((got.status, got.field("allow")), (405, Some("POST, DELETE, OPTIONS")));
    let got = request(address, &format!("OPTIONS {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert_eq!(got.field("access-control-allow-methods"), Some("POST, DELETE, OPTIONS"));
    live.encode_shifted(4 * GROUP, |number| [1, 3, 0, 0][number as usize % 4]);
    until("the order is seen", || refused(PATH, &offer).1.contains("B-frames"));
    live.describe(Container::Cmaf, "hvc1.1.6.L93.B0");
    until("there is no H.264", || {
        refused(PATH, &offer).0 == 406 && refused(PATH, &offer).1.contains("H.264")
    });
    until("who was answered and never came is gone", || live.viewers() == 0);
}

#[test]
fn a_sound_that_does_not_go_by_webrtc_is_said() {
    let live = Live::new();
    let got = post(live.lab.server.addr(), PATH, &Viewer::new(Direction::RecvOnly).offer);
    assert_eq!(got.field("x-rblive-sound"), Some("none; mp4a.40.2 does not go by WebRTC"));
    let list = String::from_utf8(live.lab.get("/streams").body).unwrap();
    assert!(list.contains(r#""webrtc":true"#), "{list}");
}

#[test]
fn a_viewer_needs_the_token_of_the_stream() {
    let key = "a long secret of viewers";
    let mut live = Live::with(
        Settings { token_key: key.into(), ..Settings::default() },
        rblive_webrtc::Settings::default(),
    );
    live.describe(Container::Cmaf, "avc1.42c00b");
    let offer = Viewer::new(Direction::RecvOnly).offer;
    let token = token::sign(key.as_bytes(), NAME, 4_000_000_000);
    let early = post(live.lab.server.addr(), &format!("{PATH}?token={token}"), &offer);
    assert_eq!((early.status, early.field("retry-after")), (503, Some("2")), "there is no segment yet");
    live.begin("avc1.42c00b");
    let status = |path: &str| post(live.lab.server.addr(), path, &offer).status;
    assert_eq!(status(PATH), 403);
    assert_eq!(status(&format!("{PATH}?token={token}")), 201);
    let other = token::sign(key.as_bytes(), "cam/2", 4_000_000_000);
    assert_eq!(status(&format!("{PATH}?token={other}")), 403);
}

#[test]
fn a_viewer_that_never_connects_makes_room_and_one_that_is_connected_does_not() {
    let webrtc = rblive_webrtc::Settings { max_viewers: 1, ..rblive_webrtc::Settings::default() };
    let mut live = Live::with(Settings::default(), webrtc);
    live.begin("avc1.42c00b");
    let address = live.lab.server.addr();
    for _ in 0..20 {
        assert_eq!(post(address, PATH, &Viewer::new(Direction::RecvOnly).offer).status, 201);
    }
    let (_viewer, _) = live.watch();
    assert_eq!(post(address, PATH, &Viewer::new(Direction::RecvOnly).offer).status, 503);
    until("the others are gone", || live.viewers() == 1);
    assert_eq!(live.hub.counters().never_connected.load(Ordering::Relaxed), 20);
}

#[test]
fn a_stream_has_no_more_viewers_than_it_may_have() {
    let settings = Settings { max_viewers_per_stream: 1, ..Settings::default() };
    let mut live = Live::with(settings, rblive_webrtc::Settings::default());
    live.begin("avc1.42c00b");
    let offer = Viewer::new(Direction::RecvOnly).offer;
    let status = || post(live.lab.server.addr(), PATH, &offer).status;
    assert_eq!([status(), status()], [201, 503]);
}

#[test]
fn datagrams_of_strangers_are_dropped() {
    let mut live = Live::new();
    let (mut viewer, _) = live.watch();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stun = |name: &str| {
        let mut attribute = vec![0, 6, 0, name.len() as u8];
        attribute.extend(name.as_bytes());
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        let mut message = vec![0, 1, 0, attribute.len() as u8, 0x21, 0x12, 0xA4, 0x42];
        message.extend([7; 12]);
        message.extend(attribute);
        message
    };
    let number = viewer.ufrag.clone();
    let datagrams: Vec<Vec<u8>> = (0..=255)
        .flat_map(|first: u8| [0, 1, 19, 200, 1_900].map(|count| [vec![first], vec![first; count]].concat()))
        .chain([stun(&number), stun(&format!("{number}:x")), stun("0:x"), stun("zz:x"), Vec::new()])
        .collect();
    // The kernel drops what the hub does not take soon enough.
    until("they are counted", || {
        for datagram in &datagrams {
            socket.send_to(datagram, live.hub.address()).unwrap();
        }
        live.hub.counters().strange_datagrams.load(Ordering::Relaxed) > 1_000
    });
    let seen = viewer.frames.len();
    live.encode(GROUP);
    viewer.until("pictures", |own| own.frames.len() > seen);
    assert_eq!(live.hub.counters().failed.load(Ordering::Relaxed), 0);
}

#[test]
fn the_stream_goes_where_the_handshake_began_and_what_comes_from_elsewhere_changes_nothing() {
    let mut live = Live::new();
    let mut viewer = Viewer::new(Direction::RecvOnly);
    let second = UdpSocket::bind("127.0.0.2:0").unwrap();
    viewer.second = Some(second.try_clone().unwrap());
    viewer.join(live.lab.server.addr(), PATH);
    viewer.until("the viewer is connected", |own| own.is_connected);
    let counters = live.hub.counters();
    viewer.until("the server knows", |_| counters.viewers.load(Ordering::Relaxed) > 0);
    while viewer.frames.is_empty() {
        live.encode(1);
        let mut steps = 0;
        viewer.until("a while", |_| {
            steps += 1;
            steps > 3
        });
    }
    viewer.ask();
    let asked = &live.hub.counters().key_frames_asked;
    viewer.until("the request for a key frame arrives", |_| asked.load(Ordering::Relaxed) > 0);
    assert!(!viewer.answers.is_empty());
    second.set_nonblocking(true).unwrap();
    let mut bytes = [0; 2000];
    while let Ok((count, _)) = second.recv_from(&mut bytes) {
        viewer.answers.push(bytes[..count].to_vec());
    }
    assert!(
        viewer.answers.iter().all(|own| own[..2] == [1, 1]),
        "answers to requests alone: {:?}",
        viewer.answers
    );
}

#[test]
fn a_viewer_that_comes_again_from_its_address_is_not_its_former_self() {
    let mut live = Live::new();
    let (first, _) = live.watch();
    let socket = first.socket();
    drop(first);
    let mut again = Viewer::on(socket, Direction::RecvOnly);
    again.join(live.lab.server.addr(), PATH);
    again.until("the viewer is connected", |own| own.is_connected);
    until("the server knows", || live.hub.counters().viewers.load(Ordering::Relaxed) == 2);
}

#[test]
fn a_viewer_that_asks_too_often_is_not_answered_and_others_are() {
    let mut live = Live::new();
    let (viewer, _) = live.watch();
    let (socket, strange) = (viewer.socket(), &live.hub.counters().strange_datagrams);
    until("requests are dropped", || {
        for _ in 0..50 {
            socket.send_to(&viewer.request, live.hub.address()).unwrap();
        }
        strange.load(Ordering::Relaxed) > 0
    });
    live.watch();
}

#[test]
fn a_viewer_is_gone_when_its_token_has_ended() {
    let key = "a long secret of viewers";
    let settings = Settings { token_key: key.into(), ..Settings::default() };
    let mut live = Live::with(settings, rblive_webrtc::Settings::default());
    live.begin("avc1.42c00b");
    let offer = Viewer::new(Direction::RecvOnly).offer;
    until("an offer comes before the end of its token", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let token = token::sign(key.as_bytes(), NAME, now + 2);
        post(live.lab.server.addr(), &format!("{PATH}?token={token}"), &offer).status == 201
    });
    until("the viewer is gone", || live.viewers() == 0);
    assert_eq!(live.hub.counters().never_connected.load(Ordering::Relaxed), 0, "its token has ended before");
}

#[test]
fn without_webrtc_no_offer_is_read() {
    let lab = Lab::plain();
    // The body does not come.
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 65536\r\n\r\n");
    assert_eq!(request(lab.server.addr(), &head).status, 413);
}
