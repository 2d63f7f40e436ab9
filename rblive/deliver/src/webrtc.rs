//! Viewers by WebRTC (WHEP): their requests, and the cursor that reads their stream.
//!
//! ```text
//!   POST /live/NAME/whep   an offer (SDP)   ─▶ 201, the answer, Location: whep/SESSION
//!   DELETE /live/NAME/whep/SESSION          ─▶ 200, the viewer is disconnected
//!
//!   window of the stream:  ··· 46: part 0, 1, 2 │ 47: part 0, part 1, ▒▒
//!                                                               ▲ Cursor, one for all viewers
//! ```
//!
//! The cursor reads the parts that players of HLS get, out of the same ring, a little after they arrive. A part is copied once, whatever the number of
//! viewers. A cursor that is behind goes on with the newest segment.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use rblive::ChunkRef;
use rblive::content::{Container, check_name};
use rblive_media::fmp4::InitSegment;
use rblive_media::hls::decimal;
use rblive_media::unit::{Input, Media};
use rblive_media::window::{LiveWindow, SegmentState};
use rblive_webrtc::{AnswerError, Bell, Hub, News, Offer, REORDERED, Source, Watcher};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::answer::{Answer, Cache};
use crate::catalog::{LiveRendition, State, Stream};
use crate::live::no_segment;

/// Segments by which a cursor may be behind.
const MAX_BEHIND: u64 = 3;

/// The parts that are searched for frames that browsers would show in the wrong order.
const SEARCHED: usize = 4;

/// The media type of offers and answers.
const SDP: &str = "application/sdp";

/// The request for WebRTC that an address below `/live/` stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// Viewers of this stream are answered here.
    Stream(&'a str),
    /// A viewer of this stream, by its session.
    Session(&'a str, &'a str),
}

/// Reads `NAME/whep` or `NAME/whep/SESSION`.
pub(crate) fn parse(path: &str) -> Option<Target<'_>> {
    let target = match path.strip_suffix("/whep") {
        Some(name) => Target::Stream(name),
        None => {
            let (rest, session) = path.rsplit_once('/')?;
            Target::Session(rest.strip_suffix("/whep")?, session)
        }
    };
    let (Target::Stream(name) | Target::Session(name, _)) = target;
    check_name(name).then_some(target)
}

/// Whether a request may have a body: an offer.
pub(crate) fn takes_body(method: &str, path: &str) -> bool {
    method == "POST"
        && path.strip_prefix("/live/").is_some_and(|path| matches!(parse(path), Some(Target::Stream(_))))
}

/// Whether a stream has what goes by WebRTC, as far as its description says.
pub(crate) fn is_offered(state: &State) -> bool {
    chosen(state, None).is_ok()
}

/// The rendition that a viewer gets: the one that it asks for, or the best one.
fn chosen(state: &State, asked: Option<u16>) -> Result<&LiveRendition, &'static str> {
    if state.description.container != Container::Cmaf {
        return Err("a stream of MPEG-TS that passes as it comes does not go by WebRTC");
    }
    let has =
        |live: &&LiveRendition| live.about.codecs.split(',').any(|codec| codec.trim().starts_with("avc1"));
    let all = state.renditions.iter().filter(|live| asked.is_none_or(|id| live.about.id == id)).filter(has);
    all.max_by_key(|live| live.about.bandwidth).ok_or("the stream has no H.264, which is what goes by WebRTC")
}

/// The sound of a rendition, if it is one that browsers do not take by WebRTC.
fn lost_sound(codecs: &str) -> Option<String> {
    let sound = codecs.split(',').map(str::trim).find(|codec| !codec.starts_with("avc1"))?;
    Some(format!("none; {sound} does not go by WebRTC"))
}

/// The viewer whose offer is answered.
pub(crate) struct Asking {
    pub hub: Arc<Hub>,
    /// The offer.
    pub body: Bytes,
    pub query: String,
    pub client: IpAddr,
    /// The address of this server at which the request arrived.
    pub reached: Option<IpAddr>,
    pub watcher: Box<dyn Watcher>,
    /// When the viewer's token ends.
    pub until: Option<SystemTime>,
}

/// Answers an offer for a stream. This takes as long as the offer makes it, and is no work for a thread that serves playlists.
pub(crate) fn answer(stream: &Arc<Stream>, asking: Asking) -> Answer {
    let asked = asking.query.split('&').find_map(|pair| pair.strip_prefix("rendition="));
    let asked = match asked.map(decimal) {
        Some(None) => return Answer::text(400, "rendition= must be the number of a rendition"),
        asked => asked.flatten(),
    };
    let (id, codecs, newest) = {
        let state = stream.state.lock();
        if state.is_ended() {
            return Answer::text(409, "the stream has ended");
        }
        match chosen(&state, asked) {
            // Until then, nobody knows which time of day it was when the stream began.
            Ok(live) if !state.has_segment(Some(live.about.id)) => return no_segment(),
            Ok(live) => (live.about.id, live.about.codecs.clone(), newest(live)),
            Err(why) => return Answer::text(406, why),
        }
    };
    let name = format!("{}/{id}", stream.name);
    let source = Box::new(Cursor::new(stream.clone(), id, newest));
    let Asking { hub, body, client, reached, watcher, until, .. } = asking;
    let offer = Offer { body: &body, client, reached, stream: &name, source, watcher, until };
    match hub.answer(offer) {
        Ok(made) => {
            let mut more = vec![
                ("location", format!("whep/{}", made.session)),
                ("access-control-expose-headers", "location, x-rblive-sound".to_owned()),
            ];
            more.extend(lost_sound(&codecs).map(|sound| ("x-rblive-sound", sound)));
            Answer { more, ..Answer::of(201, SDP, Cache::No, made.sdp) }
        }
        Err(error) => {
            let status = match &error {
                AnswerError::Offer(rblive_webrtc::OfferError::NoCodec) | AnswerError::Unfit(_) => 406,
                AnswerError::Offer(_) => 400,
                AnswerError::Full(_) | AnswerError::Busy => 503,
                _ => 500,
            };
            // Viewers need not know who else is there.
            tracing::debug!(stream = stream.name, %client, "an offer was refused: {error}");
            Answer::text(status, error.to_string())
        }
    }
}

/// The newest parts of a rendition, with their initialisation segment.
fn newest(live: &LiveRendition) -> Option<(Bytes, Vec<ChunkRef>)> {
    let held =
        live.window.segments().rev().find(|own| own.state != SegmentState::Gap && !own.parts.is_empty())?;
    let newest = held.parts.iter().skip(held.parts.len().saturating_sub(SEARCHED));
    let parts = newest.map(|part| part.data.clone()).collect();
    Some((live.init(held.init)?.clone(), parts))
}

/// Whether pictures are shown in another order than the one in which they come.
fn is_reordered(init: &Bytes, chunks: &[ChunkRef]) -> bool {
    let Ok(init) = InitSegment::parse(init) else { return false };
    let frames = |chunk: &ChunkRef| init.frames(&chunk.to_vec().ok()?.into()).ok();
    let all = chunks.iter().filter_map(frames).flatten();
    !all.filter(|own| own.media == Media::Video).map(|own| own.pts).is_sorted()
}

/// A part, as the cursor has found it.
struct Found {
    breaks: bool,
    chunk: ChunkRef,
    init: u32,
    /// Wall clock minus presentation time.
    offset_ns: i128,
}

/// The place of all viewers of a rendition in its window.
struct Cursor {
    stream: Arc<Stream>,
    rendition: u16,
    /// The segment and the part that come next. `None`: whatever comes next.
    next: Option<(u64, usize)>,
    /// Something is missing before the next part.
    breaks: bool,
    init: Option<(u32, InitSegment)>,
    /// The thread of the peers is none of the runtime's.
    runtime: Handle,
    /// The newest parts, which are looked at before the first is sent.
    newest: Option<(Bytes, Vec<ChunkRef>)>,
    ringing: Option<AbortHandle>,
}

impl Cursor {
    fn new(stream: Arc<Stream>, rendition: u16, newest: Option<(Bytes, Vec<ChunkRef>)>) -> Self {
        let runtime = Handle::current();
        Self { stream, rendition, next: None, breaks: true, init: None, runtime, newest, ringing: None }
    }

    /// Finds the parts behind the cursor, and moves it behind them.
    fn find(&mut self, window: &LiveWindow<ChunkRef>) -> Vec<Found> {
        let end = match window.segments().next_back().filter(|own| own.state == SegmentState::Open) {
            Some(open) => (open.number, open.parts.len()),
            None => (window.next_number(), 0),
        };
        let (mut number, mut part) = self.next.unwrap_or(end);
        if number > end.0 || number + MAX_BEHIND < end.0 {
            ((number, part), self.breaks) = ((end.0, 0), true);
        }
        let mut found = Vec::new();
        while number <= end.0 {
            let held = window.segment(number).filter(|own| own.state != SegmentState::Gap);
            let Some(held) = held else {
                self.breaks |= number < end.0;
                if number == end.0 {
                    break;
                }
                (number, part) = (number + 1, 0);
                continue;
            };
            self.breaks |= part == 0 && held.discontinuity;
            let offset_ns = i128::from(held.wall_ns) - i128::from(held.start_us) * 1000;
            for own in held.parts.iter().skip(part) {
                let (breaks, chunk) = (std::mem::take(&mut self.breaks), own.data.clone());
                found.push(Found { breaks, chunk, init: held.init, offset_ns });
            }
            part = held.parts.len();
            if held.state == SegmentState::Open {
                break;
            }
            (number, part) = (number + 1, 0);
        }
        self.next = Some((number, part));
        found
    }

    /// Reads the parts. What cannot be read is a hole.
    fn read(&mut self, found: Vec<Found>, inits: &[(u32, Bytes)], news: &mut Vec<News>) {
        for one in found {
            if one.breaks {
                news.push(News::Break);
            }
            if !self.configure(one.init, inits, news) {
                news.push(News::Break);
                continue;
            }
            let bytes = one.chunk.to_vec().ok().map(Bytes::from);
            let own = self.init.as_ref().map(|(_, own)| own);
            match bytes.zip(own).and_then(|(bytes, init)| init.frames(&bytes).ok()) {
                Some(frames) => {
                    news.push(News::Clock(one.offset_ns));
                    news.extend(frames.into_iter().map(|frame| News::Input(Input::Unit(frame))));
                }
                None => news.push(News::Break),
            }
        }
    }

    /// Tells the tracks of another initialisation segment. False: it is not there, or damaged.
    fn configure(&mut self, number: u32, inits: &[(u32, Bytes)], news: &mut Vec<News>) -> bool {
        if self.init.as_ref().is_some_and(|(own, _)| *own == number) {
            return true;
        }
        let bytes = inits.iter().find(|(own, _)| *own == number).map(|(_, bytes)| bytes);
        let Some(parsed) = bytes.and_then(|bytes| InitSegment::parse(bytes).ok()) else { return false };
        let tracks = parsed.tracks.iter().map(|track| News::Input(Input::Config(track.config.clone())));
        news.extend(tracks);
        self.init = Some((number, parsed));
        true
    }
}

impl Source for Cursor {
    fn check(&mut self) -> Result<(), &'static str> {
        match self.newest.take() {
            Some((init, chunks)) if is_reordered(&init, &chunks) => Err(REORDERED),
            _ => Ok(()),
        }
    }

    fn start(&mut self, bell: Bell) {
        let mut changes = self.stream.changed.subscribe();
        let rings = async move {
            bell.ring();
            while changes.changed().await.is_ok() {
                bell.ring();
            }
        };
        self.ringing = Some(self.runtime.spawn(rings).abort_handle());
    }

    fn take(&mut self, news: &mut Vec<News>) {
        let stream = self.stream.clone();
        let (found, inits, is_ended) = {
            let state = stream.state.lock();
            let Some(live) = state.live(self.rendition) else {
                return news.push(News::End("the rendition is not there any more".to_owned()));
            };
            let found = self.find(&live.window);
            (found, live.inits().to_vec(), state.is_ended())
        };
        self.read(found, &inits, news);
        if is_ended {
            news.push(News::End("the stream has ended".to_owned()));
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.ringing.iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_stream_or_a_viewer_of_it() {
        assert_eq!(parse("a/b/whep"), Some(Target::Stream("a/b")));
        assert_eq!(parse("a/whep/00ff"), Some(Target::Session("a", "00ff")));
        for bad in ["", "whep", "/whep", "a/whep/", "a/../whep", "a/whep/b/c", "a/whip", "a%2f/whep"] {
            assert!(!matches!(parse(bad), Some(Target::Stream(_))), "{bad}");
        }
        assert!(takes_body("POST", "/live/a/whep") && !takes_body("PUT", "/live/a/whep"));
        assert!(!takes_body("POST", "/live/a/index.m3u8") && !takes_body("POST", "/live/a/whep/1"));
    }

    #[test]
    fn a_sound_that_is_lost_is_said() {
        assert_eq!(lost_sound("avc1.64001f"), None);
        assert_eq!(lost_sound("avc1.64001f,mp4a.40.2").unwrap(), "none; mp4a.40.2 does not go by WebRTC");
    }
}
