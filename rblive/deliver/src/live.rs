//! The addresses below `/live/`: playlists, manifests, initialisation segments, segments and parts of a stream.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rblive::ChunkRef;
use rblive::content::{Container, check_name};
use rblive_media::dash;
use rblive_media::hls::{self, Directives, MediaPlaylist, Report, decimal, multivariant_playlist};
use rblive_media::window::{LiveWindow, Reached, SegmentState};

use crate::answer::{Answer, Body, Cache, Request};
use crate::catalog::{LiveRendition, State, Stream};
use crate::playlist_cache::Text;
use crate::poster;

/// The resource that an address below `/live/` names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Multivariant,
    Manifest,
    Poster,
    Playlist(u16),
    Init(u16, u32),
    Segment(u16, u64),
    Part(u16, u64, u32),
}

impl Target {
    /// The address below that of the stream, as playlists have it.
    pub(crate) fn file(&self) -> String {
        match self {
            Self::Multivariant => "index.m3u8".to_owned(),
            Self::Manifest => "manifest.mpd".to_owned(),
            Self::Poster => "poster.mp4".to_owned(),
            Self::Playlist(id) => format!("{id}/media.m3u8"),
            Self::Init(id, number) => format!("{id}/init-{number}.mp4"),
            Self::Segment(id, number) => format!("{id}/{number}.m4s"),
            Self::Part(id, number, part) => format!("{id}/{number}.{part}.m4s"),
        }
    }
}

/// How the server judges a player that asks for a segment far beyond the newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// The request is wrong.
    Wrong,
    /// The server has just started and still reads what the rings hold, so the player may have the newer segments.
    Settling,
}

impl Ahead {
    fn answer(self) -> Answer {
        match self {
            Self::Wrong => Answer::text(400, "this is too far in the future"),
            Self::Settling => Answer::text(
                503,
                "the server has just started and is not there yet; try again in some seconds",
            ),
        }
    }
}

/// Reads `NAME/index.m3u8`, `NAME/manifest.mpd`, `NAME/poster.mp4`, or `NAME/RENDITION/FILE`.
pub(crate) fn parse(path: &str) -> Option<(&str, Target)> {
    let (rest, file) = path.rsplit_once('/')?;
    let (name, target) = match file {
        "index.m3u8" => (rest, Target::Multivariant),
        "manifest.mpd" => (rest, Target::Manifest),
        "poster.mp4" => (rest, Target::Poster),
        file => {
            let (name, id) = rest.rsplit_once('/')?;
            (name, of_rendition(decimal(id)?, file)?)
        }
    };
    check_name(name).then_some((name, target))
}

fn of_rendition(id: u16, file: &str) -> Option<Target> {
    if file == "media.m3u8" {
        return Some(Target::Playlist(id));
    }
    if let Some(init) = file.strip_prefix("init-").and_then(|rest| rest.strip_suffix(".mp4")) {
        return Some(Target::Init(id, decimal(init)?));
    }
    let numbers = file.strip_suffix(".m4s").or_else(|| file.strip_suffix(".ts"))?;
    Some(match numbers.split_once('.') {
        Some((number, part)) => Target::Part(id, decimal(number)?, decimal(part)?),
        None => Target::Segment(id, decimal(numbers)?),
    })
}

/// Whether a request asks for media or a media playlist: its client watches the stream.
pub(crate) fn is_watching(target: &Target) -> bool {
    !matches!(target, Target::Multivariant | Target::Manifest | Target::Poster)
}

/// Whether a request asks for what says where media is.
pub(crate) fn is_playlist(target: &Target) -> bool {
    matches!(target, Target::Multivariant | Target::Manifest | Target::Playlist(_))
}

/// Answers a request for a stream. `query`, a token, is appended to the addresses in playlists.
pub(crate) async fn answer(
    stream: &Arc<Stream>,
    target: Target,
    request: &Request,
    query: &str,
    ahead: Ahead,
) -> Answer {
    match target {
        Target::Multivariant => {
            if let Err(answer) = all_renditions(stream).await {
                return answer;
            }
            let state = stream.state.lock();
            let renditions: Vec<_> = state.listed().map(LiveRendition::measured).collect();
            Text::from(multivariant_playlist(&renditions, query)).answer(hls::MEDIA_TYPE)
        }
        Target::Manifest => match all_renditions(stream).await {
            Ok(()) => manifest(&mut stream.state.lock(), query),
            Err(answer) => answer,
        },
        Target::Poster => poster::answer(&stream.state.lock()),
        Target::Playlist(id) => media_playlist(stream, id, request, query, ahead).await,
        Target::Init(id, number) => {
            let state = stream.state.lock();
            match state.held(id).and_then(|live| live.init(number)) {
                Some(bytes) => Answer::of(200, "video/mp4", Cache::Forever, bytes.clone()),
                None => Answer::text(404, "there is no such initialisation segment"),
            }
        }
        Target::Segment(id, number) => segment(&stream.state.lock(), id, number),
        Target::Part(id, number, part) => {
            if let Err(answer) = wait(stream, id, number, Some(part), ahead).await {
                return answer;
            }
            part_of(&stream.state.lock(), id, number, part)
        }
    }
}

fn manifest(state: &mut State, query: &str) -> Answer {
    if state.description.container != Container::Cmaf {
        return Answer::text(404, "a stream of MPEG-TS has no DASH manifest; use index.m3u8");
    }
    state.release();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let all: Vec<_> = state.renditions.iter().map(|live| (live.about.clone(), &live.window)).collect();
    match dash::manifest(&all, query, now) {
        Some(text) => Text::from(text).answer(dash::MEDIA_TYPE),
        None => no_segment(),
    }
}

async fn media_playlist(
    stream: &Arc<Stream>,
    id: u16,
    request: &Request,
    query: &str,
    ahead: Ahead,
) -> Answer {
    let directives = match Directives::parse(&request.query) {
        Ok(directives) => directives,
        Err(error) => return Answer::text(400, error.to_string()),
    };
    if let Some(number) = directives.number
        && let Err(answer) = wait(stream, id, number, directives.part, ahead).await
    {
        return answer;
    }
    if let Err(answer) = first_segment(stream, Some(id)).await {
        return answer;
    }
    let mut state = stream.state.lock();
    state.release();
    let key = (id, directives.skip);
    if !state.playlists.has(key) {
        let Some(live) = state.live(id) else { return Answer::text(404, "the stream has no such rendition") };
        let low_latency = state.is_low_latency();
        let reports: Vec<Report> = if low_latency { reports(&state, id) } else { Vec::new() };
        let container = state.description.container;
        let text = Text::of(query, |query| {
            let list =
                MediaPlaylist { container, low_latency, skip: directives.skip, query, reports: &reports };
            list.write(&live.window)
        });
        state.playlists.put(key, text);
    }
    match state.playlists.get(key, query) {
        Some(text) => text.answer(hls::MEDIA_TYPE),
        None => no_segment(),
    }
}

fn reports(state: &State, id: u16) -> Vec<Report> {
    let others = state.renditions.iter().filter(|live| live.about.id != id);
    others
        .filter_map(|live| {
            let (number, part) = live.window.newest_part()?;
            Some(Report { uri: format!("../{}/media.m3u8", live.about.id), number, part })
        })
        .collect()
}

pub(crate) fn no_segment() -> Answer {
    Answer::text(503, "the stream has no whole segment yet; try again in some seconds")
}

/// The longest time for which a playlist waits for its first segment while parts come: a segment may have ten seconds, and players wait
/// for no longer than 20.
const FIRST_SEGMENT: Duration = Duration::from_secs(15);

/// Waits until rendition `id` (`None`: any) has a segment, for at most three target durations, or [`FIRST_SEGMENT`] while parts of it come:
/// players give up on a playlist without segments.
async fn first_segment(stream: &Arc<Stream>, id: Option<u16>) -> Result<(), Answer> {
    let mut changes = stream.changed.subscribe();
    let target_us = {
        let state = stream.state.lock();
        if id.is_some_and(|id| state.live(id).is_none()) {
            return Err(Answer::text(404, "the stream has no such rendition"));
        }
        if state.has_segment(id) {
            return Ok(());
        }
        state.description.target_duration_us
    };
    let until_listed = async {
        while changes.changed().await.is_ok() {
            let state = stream.state.lock();
            if state.has_segment(id) {
                return true;
            }
            if state.is_ended() {
                return false;
            }
        }
        false
    };
    let (most, mut deadline) = (Instant::now() + FIRST_SEGMENT, Instant::now() + patience(target_us));
    let mut until_listed = pin!(until_listed);
    let listed = loop {
        let listed = tokio::time::timeout_at(deadline.into(), &mut until_listed).await;
        let next = (stream.state.lock().last_chunk + patience(target_us)).min(most);
        if listed.is_ok() || next <= deadline {
            break listed;
        }
        deadline = next;
    };
    if listed == Ok(true) { Ok(()) } else { Err(no_segment()) }
}

/// Waits until a stream that has just begun has a segment of each rendition that is described: players read the list of renditions
/// once. Fails without any segment.
async fn all_renditions(stream: &Arc<Stream>) -> Result<(), Answer> {
    first_segment(stream, None).await?;
    let mut changes = stream.changed.subscribe();
    let (patience, is_whole) = {
        let state = stream.state.lock();
        let patience = patience(state.description.target_duration_us);
        (patience.saturating_sub(state.began.elapsed()), state.is_whole())
    };
    if is_whole || patience.is_zero() {
        return Ok(());
    }
    let until_whole = async {
        while changes.changed().await.is_ok() {
            let state = stream.state.lock();
            if state.is_whole() || state.is_ended() {
                return;
            }
        }
    };
    // After this time the playlist lists the renditions that have a segment.
    let _ = tokio::time::timeout(patience, until_whole).await;
    Ok(())
}

/// How long a request may wait: three target durations.
fn patience(target_us: u64) -> Duration {
    Duration::from_micros(target_us.saturating_mul(3).min(60_000_000))
}

/// Waits until the playlist has a segment or a part, for at most three target durations (RFC 8216bis, 6.2.5.2).
async fn wait(
    stream: &Arc<Stream>,
    id: u16,
    number: u64,
    part: Option<u32>,
    ahead: Ahead,
) -> Result<(), Answer> {
    let mut changes = stream.changed.subscribe();
    let (reached, target_us) = reached(stream, id, number, part)?;
    match reached {
        Reached::Yes => return Ok(()),
        Reached::TooFar => return Err(ahead.answer()),
        Reached::NotYet => {}
    }
    let until_reached = async {
        while changes.changed().await.is_ok() {
            if self::reached(stream, id, number, part)?.0 == Reached::Yes {
                return Ok(());
            }
        }
        Ok(())
    };
    match tokio::time::timeout(patience(target_us), until_reached).await {
        Ok(result) => result,
        Err(_) => Err(Answer::text(503, "the stream stands still")),
    }
}

fn reached(stream: &Stream, id: u16, number: u64, part: Option<u32>) -> Result<(Reached, u64), Answer> {
    let state = stream.state.lock();
    let missing = || Answer::text(404, "the stream has no such rendition");
    let live = state.held(id).ok_or_else(missing)?;
    match live.window.reached(number, part) {
        // A rendition that has left the stream gets no more segments.
        Reached::NotYet if state.live(id).is_none() => Err(missing()),
        reached => Ok((reached, live.window.target_us())),
    }
}

fn gone(window: &LiveWindow<ChunkRef>, number: u64) -> Answer {
    if number < window.first_number() {
        Answer::text(410, "the segment is older than what the server holds")
    } else {
        Answer::text(404, "there is no such segment")
    }
}

fn segment(state: &State, id: u16, number: u64) -> Answer {
    let Some(live) = state.held(id) else { return Answer::text(404, "the stream has no such rendition") };
    match live.window.segment(number) {
        Some(segment) if segment.state == SegmentState::Complete => {
            media(state, segment.parts.iter().map(|part| part.data.clone()).collect())
        }
        Some(segment) if segment.state == SegmentState::Gap => {
            Answer::text(404, "the segment has lost bytes")
        }
        _ => gone(&live.window, number),
    }
}

fn part_of(state: &State, id: u16, number: u64, part: u32) -> Answer {
    let Some(live) = state.held(id) else { return Answer::text(404, "the stream has no such rendition") };
    match live.window.segment(number).and_then(|segment| segment.parts.get(part as usize)) {
        Some(part) => media(state, vec![part.data.clone()]),
        None => gone(&live.window, number),
    }
}

/// The answer with memory of the ring, if it is not overwritten.
fn media(state: &State, chunks: Vec<ChunkRef>) -> Answer {
    if chunks.iter().any(|chunk| chunk.check().is_err()) {
        return Answer::text(410, "the segment is older than what the server holds");
    }
    let kind = match state.description.container {
        Container::Ts => "video/mp2t",
        Container::Cmaf => "video/mp4",
    };
    let first = chunks.first().map_or(0, ChunkRef::position);
    let id = chunks.first().map_or(0, |chunk| chunk.stream().to_u64());
    let body = Body::Ring(chunks);
    let etag = Some(format!("\"{id:x}-{first:x}-{:x}\"", body.len()));
    Answer { etag, ranges: true, body, ..Answer::of(200, kind, Cache::Forever, "") }
}

#[cfg(test)]
mod tests {
    use super::{Target, parse};

    #[test]
    fn an_address_names_one_thing() {
        assert_eq!(parse("a/b/index.m3u8"), Some(("a/b", Target::Multivariant)));
        assert_eq!(parse("a/poster.mp4"), Some(("a", Target::Poster)));
        assert_eq!(parse("a/1/media.m3u8"), Some(("a", Target::Playlist(1))));
        assert_eq!(parse("a/2/init-77.mp4"), Some(("a", Target::Init(2, 77))));
        assert_eq!(parse("a/2/5.m4s"), Some(("a", Target::Segment(2, 5))));
        assert_eq!(parse("a/2/5.3.ts"), Some(("a", Target::Part(2, 5, 3))));
        for bad in [
            "",
            "index.m3u8",
            "/index.m3u8",
            "a/../index.m3u8",
            "a%2f/index.m3u8",
            "a/1/05.m4s",
            "a/1/+5.m4s",
            "a/1/5.m4s.m4s",
            "a/99999/media.m3u8",
            "a/1/5.1.1.m4s",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
