//! A viewer by WebRTC: str0m at the other end of a socket.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, KeyframeRequestKind, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};

use crate::lab::{Got, WAIT, request};

/// The longest sleep for a datagram.
const NAP: Duration = Duration::from_millis(50);

pub struct Viewer {
    rtc: Rtc,
    socket: UdpSocket,
    pending: Option<SdpPendingOffer>,
    pub video: Mid,
    pub offer: String,
    /// The pictures so far.
    pub frames: Vec<Vec<u8>>,
    /// Their times, in ticks of 90 kHz.
    pub times: Vec<u64>,
    pub is_connected: bool,
    pub is_closed: bool,
    /// The server's name of the connection.
    pub ufrag: String,
    /// Its newest request of ICE.
    pub request: Vec<u8>,
    /// Another way of the viewer to the server, on which it sends its request before each step of the handshake, and what came back.
    pub second: Option<UdpSocket>,
    pub answers: Vec<Vec<u8>>,
}

impl Viewer {
    /// A viewer with an offer for these directions of a picture.
    pub fn new(direction: Direction) -> Self {
        Self::on(UdpSocket::bind("127.0.0.1:0").unwrap(), direction)
    }

    /// As [`new`](Self::new), at a socket.
    pub fn on(socket: UdpSocket, direction: Direction) -> Self {
        let mut rtc = Rtc::new(Instant::now());
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
        let mut changes = rtc.sdp_api();
        let video = changes.add_media(MediaKind::Video, direction, None, None, None);
        changes.add_media(MediaKind::Audio, direction, None, None, None);
        let (offer, pending) = changes.apply().unwrap();
        let (offer, pending) = (offer.to_sdp_string(), Some(pending));
        let (frames, times) = (Vec::new(), Vec::new());
        Self {
            rtc,
            socket,
            pending,
            video,
            offer,
            frames,
            times,
            is_connected: false,
            is_closed: false,
            ufrag: String::new(),
            request: Vec::new(),
            second: None,
            answers: Vec::new(),
        }
    }

    /// Offers itself to a stream, and takes the answer. Returns the name of the session.
    pub fn join(&mut self, server: SocketAddr, path: &str) -> String {
        let got = post(server, path, &self.offer);
        assert_eq!(got.status, 201, "{got:?}");
        assert_eq!(got.field("content-type"), Some("application/sdp"));
        let session = got.field("location").unwrap().strip_prefix("whep/").unwrap().to_owned();
        let lines = String::from_utf8(got.body.clone()).unwrap();
        self.ufrag = lines.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap().to_owned();
        let answer = SdpAnswer::from_sdp_string(std::str::from_utf8(&got.body).unwrap()).unwrap();
        self.rtc.sdp_api().accept_answer(self.pending.take().unwrap(), answer).unwrap();
        session
    }

    /// Another handle of the viewer's socket.
    pub fn socket(&self) -> UdpSocket {
        self.socket.try_clone().unwrap()
    }

    /// Asks for a key frame.
    pub fn ask(&mut self) {
        let mut writer = self.rtc.writer(self.video).unwrap();
        writer.request_keyframe(None, KeyframeRequestKind::Pli).unwrap();
    }

    /// Watches until something is so.
    pub fn until(&mut self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + WAIT;
        while !so(self) {
            assert!(Instant::now() < end, "never: {what}; {} frames", self.frames.len());
            self.step();
        }
    }

    fn ask_elsewhere(&mut self, server: SocketAddr) {
        let Some(second) = &self.second else { return };
        second.send_to(&self.request, server).unwrap();
        second.set_read_timeout(Some(NAP)).unwrap();
        let mut bytes = [0; 2000];
        while let Ok((count, _)) = second.recv_from(&mut bytes) {
            self.answers.push(bytes[..count].to_vec());
            if self.answers.len() == 1 {
                break;
            }
        }
    }

    /// Takes one datagram, or lets time pass.
    fn step(&mut self) {
        let until = loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(until) => break until,
                Output::Transmit(out) => {
                    match out.contents[0] {
                        0 | 1 => self.request = out.contents.to_vec(),
                        20..64 => self.ask_elsewhere(out.destination),
                        _ => {}
                    }
                    let _ = self.socket.send_to(&out.contents, out.destination);
                }
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::Closed) => self.is_closed = true,
                Output::Event(Event::MediaData(data)) if data.mid == self.video => {
                    self.times.push(data.time.numer());
                    self.frames.push(data.data.to_vec());
                }
                Output::Event(_) => {}
            }
        };
        let wait = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), NAP);
        self.socket.set_read_timeout(Some(wait)).unwrap();
        let mut bytes = [0; 2000];
        let own = self.socket.local_addr().unwrap();
        let input = match self.socket.recv_from(&mut bytes) {
            Ok((count, from)) => match Receive::new(Protocol::Udp, from, own, &bytes[..count]) {
                Ok(datagram) => Input::Receive(Instant::now(), datagram),
                Err(_) => return,
            },
            Err(_) => Input::Timeout(Instant::now()),
        };
        self.rtc.handle_input(input).unwrap();
    }
}

pub fn post(server: SocketAddr, path: &str, offer: &str) -> Got {
    let length = offer.len();
    request(
        server,
        &format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/sdp\r\ncontent-length: {length}\r\n\r\n{offer}"
        ),
    )
}
