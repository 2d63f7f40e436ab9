//! One viewer: its connection, and which frames it gets.
//!
//! ```text
//!   offer answered ──▶ half open ── ICE, DTLS ──▶ connected ──▶ key frame ──▶ frames
//!                        │ 10 s, or others need the place         │ silent for 15 s
//!                        └──────────────▶ ended ◀─────────────────┘
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use peers::{HostAddress, Place};
use rblive_media::unit::Media;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, MediaTime, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::{Event, Input, Output, Rtc, RtcError};

use crate::counters::Counters;
use crate::feed::Frame;
use crate::port::Port;
use crate::source::{Source, Watcher};

/// How long a viewer may take from the answer to its offer until it is connected.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a connected viewer may be silent. Browsers ask every few seconds whether they may go on.
const SILENCE: Duration = Duration::from_secs(15);

/// The most addresses from which a viewer speaks: those of its networks.
const MAX_SOURCES: usize = 8;

/// The most requests of ICE, and the most other datagrams, that are taken of a viewer from one look to the next. Browsers send some dozen.
const MAX_TAKEN: [u32; 2] = [200, 500];

/// The share of lost datagrams from which on a viewer gets nothing until the next key frame: its way takes less than the stream has.
const MAX_LOSS: f32 = 0.15;

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The viewer left, or the stream ended.
    Over,
    /// It never connected, or its place was needed.
    NeverConnected,
    Silent,
    Failed,
}

/// A track of the viewer.
#[derive(Debug, Clone, Copy)]
struct Track {
    mid: Mid,
    pt: Pt,
}

/// The tracks on which a viewer gets something.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tracks {
    video: Option<Track>,
    audio: Option<Track>,
}

pub(crate) struct Session {
    pub(crate) number: u64,
    pub(crate) secret: [u8; 16],
    pub(crate) stream: Arc<str>,
    rtc: Rtc,
    place: Place,
    watcher: Box<dyn Watcher>,
    /// The addresses that the viewer was told.
    candidates: Vec<SocketAddr>,
    /// The addresses of the viewer that were answered, for the thread also the one that was answered last.
    pub(crate) sources: Vec<SocketAddr>,
    pub(crate) answered: Option<SocketAddr>,
    tracks: Tracks,
    /// The viewer needs a key frame.
    waits: bool,
    /// The host of the viewer, once the handshake has begun. Nothing but answers to requests goes to another one, so only who reads there is connected.
    host: Option<HostAddress>,
    is_connected: bool,
    /// When the right to watch ends.
    until: Option<SystemTime>,
    /// The requests and the other datagrams since the last look.
    taken: [u32; 2],
    began: Instant,
    heard: Instant,
    /// When the connection has something to do.
    pub(crate) wakes: Instant,
}

/// A viewer that joins a stream.
pub(crate) struct Joining {
    pub(crate) session: Session,
    /// The stream, if nobody watches it yet.
    pub(crate) source: Box<dyn Source>,
}

/// What a session sends by.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) port: &'a Port,
    pub(crate) counters: &'a Counters,
}

/// What makes a session.
pub(crate) struct Parts {
    pub(crate) number: u64,
    pub(crate) secret: [u8; 16],
    pub(crate) stream: Arc<str>,
    pub(crate) rtc: Rtc,
    pub(crate) place: Place,
    pub(crate) watcher: Box<dyn Watcher>,
    pub(crate) candidates: Vec<SocketAddr>,
    pub(crate) tracks: Tracks,
    pub(crate) until: Option<SystemTime>,
}

impl Tracks {
    /// Those of an offer that was accepted with this answer. `None`: it has none for video of H.264.
    pub(crate) fn of(rtc: &mut Rtc, answer: &str) -> Option<Self> {
        let mut own = Self::default();
        answer
            .lines()
            .filter_map(|line| line.strip_prefix("a=mid:"))
            .for_each(|mid| own.add(rtc, mid.into()));
        own.video.is_some().then_some(own)
    }

    fn add(&mut self, rtc: &mut Rtc, mid: Mid) {
        let Some(media) = rtc.media(mid).filter(|own| own.direction() == Direction::SendOnly) else { return };
        let kind = media.kind();
        let codec = if kind == MediaKind::Video { Codec::H264 } else { Codec::Opus };
        let Some(writer) = rtc.writer(mid) else { return };
        let fits = writer.payload_params().filter(|own| {
            let spec = own.spec();
            // Frames need several datagrams, which mode 0 has none of.
            spec.codec == codec && (codec != Codec::H264 || spec.format.packetization_mode == Some(1))
        });
        // Whoever decodes a high profile decodes the lower ones.
        let best = fits.max_by_key(|own| own.spec().format.profile_level_id);
        let track = best.map(|own| Track { mid, pt: own.pt() });
        let to = if kind == MediaKind::Video { &mut self.video } else { &mut self.audio };
        *to = to.or(track);
    }
}

impl Session {
    pub(crate) fn new(parts: Parts, now: Instant) -> Self {
        let Parts { number, secret, stream, rtc, place, watcher, candidates, tracks, until } = parts;
        Self {
            number,
            secret,
            stream,
            rtc,
            place,
            watcher,
            candidates,
            sources: Vec::new(),
            answered: None,
            tracks,
            waits: true,
            host: None,
            is_connected: false,
            until,
            taken: [0; 2],
            began: now,
            heard: now,
            wakes: now,
        }
    }

    /// Takes a datagram.
    pub(crate) fn receive(&mut self, from: SocketAddr, bytes: &[u8], way: Way<'_>) -> Result<(), End> {
        let strange = || {
            Counters::add(&way.counters.strange_datagrams);
            Ok(())
        };
        let is_elsewhere = self.host.is_some_and(|host| host != HostAddress::of(from.ip()));
        let is_new = !self.sources.contains(&from);
        if is_elsewhere
            || (is_new && self.sources.len() >= MAX_SOURCES)
            || is_media(bytes)
            || !self.takes(bytes)
        {
            return strange();
        }
        let is_same = |own: &&SocketAddr| own.is_ipv4() == from.is_ipv4();
        let Some(to) = self.candidates.iter().find(is_same).or(self.candidates.first()) else {
            return strange();
        };
        let Ok(datagram) = Receive::new(Protocol::Udp, from, *to, bytes) else { return strange() };
        let now = Instant::now();
        let input = Input::Receive(now, datagram);
        if !self.rtc.accepts(&input) {
            return strange();
        }
        self.rtc.handle_input(input).map_err(|error| failed(&error))?;
        self.drain(way)
    }

    /// Sends what is to be sent, and learns what happened.
    fn drain(&mut self, way: Way<'_>) -> Result<(), End> {
        let mut bytes = 0;
        let ended = loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(until)) => {
                    self.wakes = until;
                    break Ok(());
                }
                Ok(Output::Transmit(out)) => bytes += self.transmit(out.destination, &out.contents, way),
                Ok(Output::Event(event)) => {
                    if let Err(end) = self.event(&event, way.counters) {
                        break Err(end);
                    }
                }
                Err(error) => break Err(failed(&error)),
            }
        };
        if bytes > 0 {
            self.watcher.sent(bytes);
        }
        if ended.is_ok() && !self.rtc.is_alive() { Err(End::Over) } else { ended }
    }

    /// Counts a datagram of the viewer. False: there were too many since the last look.
    fn takes(&mut self, bytes: &[u8]) -> bool {
        // Requests have a count of their own, so that nobody uses it up who does not know the password.
        let kind = usize::from(!is_stun(bytes));
        self.taken[kind] = self.taken[kind].saturating_add(1);
        self.taken[kind] <= MAX_TAKEN[kind]
    }

    /// Sends a datagram, and returns its bytes.
    fn transmit(&mut self, to: SocketAddr, bytes: &[u8], way: Way<'_>) -> usize {
        let host = HostAddress::of(to.ip());
        if is_stun(bytes) {
            // Only a request with the password of the session is answered.
            self.heard = Instant::now();
            self.answered = Some(to);
        } else if *self.host.get_or_insert(host) != host {
            return 0;
        }
        if !self.sources.contains(&to) && self.sources.len() < MAX_SOURCES {
            self.sources.push(to);
        }
        way.port.send(to, bytes, way.counters);
        bytes.len()
    }

    fn event(&mut self, event: &Event, counters: &Counters) -> Result<(), End> {
        match event {
            Event::Connected if !self.is_connected => {
                self.place.known();
                self.is_connected = true;
                counters.viewers.fetch_add(1, Ordering::Relaxed);
            }
            Event::KeyframeRequest(_) => Counters::add(&counters.key_frames_asked),
            Event::MediaEgressStats(stats) => {
                let is_video = self.tracks.video.is_some_and(|own| own.mid == stats.mid);
                self.waits |= is_video && stats.loss.is_some_and(|loss| loss > MAX_LOSS);
            }
            Event::Closed => return Err(End::Over),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether another viewer was given its place.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.is_connected && self.place.is_leaving()
    }

    /// Sends a frame, unless the viewer has to wait for another one.
    pub(crate) fn send(&mut self, frame: &Frame, way: Way<'_>) -> Result<(), End> {
        if !self.is_connected() {
            return Ok(());
        }
        let is_video = frame.media == Media::Video;
        self.waits |= frame.breaks;
        if is_video && self.waits {
            if !frame.key {
                Counters::add(&way.counters.dropped_frames);
                return Ok(());
            }
            self.waits = false;
        }
        let Some(track) = (if is_video { self.tracks.video } else { self.tracks.audio }) else {
            return Ok(());
        };
        let Some(writer) = self.rtc.writer(track.mid) else { return Ok(()) };
        let time = MediaTime::from_90khz(frame.time);
        let written = writer.write(track.pt, frame.made, time, frame.data.clone());
        written.map_err(|error| failed(&error))?;
        self.work(way)
    }

    /// Does what is due.
    pub(crate) fn work(&mut self, way: Way<'_>) -> Result<(), End> {
        self.rtc.handle_input(Input::Timeout(Instant::now())).map_err(|error| failed(&error))?;
        self.drain(way)
    }

    /// Whether the session has to end by itself. From one look to the next, so many datagrams are taken.
    pub(crate) fn look(&mut self, now: Instant) -> Result<(), End> {
        self.taken = [0; 2];
        if self.until.is_some_and(|until| SystemTime::now() > until) {
            return Err(End::Over);
        }
        let silent = now.saturating_duration_since(self.heard);
        match self.is_connected() {
            true if silent > SILENCE => Err(End::Silent),
            false if self.is_leaving() || now.saturating_duration_since(self.began) > PATIENCE => {
                Err(End::NeverConnected)
            }
            _ => Ok(()),
        }
    }

    /// Says goodbye.
    pub(crate) fn close(&mut self, way: Way<'_>) {
        if self.rtc.close().is_ok() {
            let _ = self.work(way);
        }
    }
}

/// Whether a datagram is of ICE.
fn is_stun(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|kind| *kind < 2)
}

/// Whether a datagram is one of media, as RFC 5761 tells them from reports. Viewers send none, and each sender that one names would be remembered.
fn is_media(bytes: &[u8]) -> bool {
    matches!(bytes, [128..=191, kind, ..] if !(64..96).contains(&(kind & 0x7F)))
}

fn failed(error: &RtcError) -> End {
    tracing::debug!("a viewer's connection failed: {error}");
    End::Failed
}
