//! A viewer: follows a live playlist as a player does, at the rate at which media is made.
//!
//! ```text
//!   multivariant playlist ─▶ media playlist ─▶ what is listed and not yet fetched ─▶ checked, added to the playout buffer
//!                               ▲                                                        │
//!                               └── after a target duration, or at once and the server waits ◀──┘
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rblive_media::fmp4::InitSegment;

use super::address::Address;
use super::answer::Body;
use super::audience::{Audience, Mode, Seat};
use super::connection::Connection;
use super::fault::{Fault, Kind};
use super::inspect::Facts;
use super::playback::Playback;
use super::playlist::{Media, Playlist, Segment};

/// The largest playlist and initialisation segment.
const MAX_SMALL: usize = 4 << 20;
/// The largest segment.
const MAX_MEDIA: usize = 256 << 20;
/// The most redirections of a request.
const MAX_REDIRECTS: usize = 5;
/// The pause after a fault, before the viewer begins again.
const PAUSE: Duration = Duration::from_secs(1);
/// The target durations between a beginning viewer and the end of a playlist that does not say it (RFC 8216, 6.3.3).
const HOLD_BACK: f64 = 3.0;
/// The most playlists that a thread remembers.
const MAX_PARSED: usize = 10_000;

/// A playlist with the size and the check sum of its text.
type Parsed = (u64, u32, Rc<Media>);

thread_local! {
    /// The newest playlist of each address. All viewers get the same, and one of them reads it.
    static PARSED: RefCell<HashMap<String, Parsed>> = RefCell::default();
}

/// The next media that a viewer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Next {
    number: u64,
    part: usize,
}

/// A viewer.
pub struct Viewer {
    pub audience: Arc<Audience>,
    pub seat: Arc<Seat>,
    pub number: usize,
    /// The playlist that it was given.
    pub address: Address,
    connection: Option<Connection>,
    cookie: Option<String>,
    map: Option<(String, Option<Arc<InitSegment>>)>,
    /// The facts about the newest media, if they are known.
    before: Option<Facts>,
    playback: Playback,
}

impl Viewer {
    pub fn new(audience: Arc<Audience>, seat: Arc<Seat>, number: usize, address: Address) -> Self {
        let (connection, cookie, map, before) = (None, None, None, None);
        let playback = Playback::default();
        Self { audience, seat, number, address, connection, cookie, map, before, playback }
    }

    /// Watches until the stream ends. After a fault the viewer begins again.
    pub async fn run(mut self) {
        loop {
            let Err((fault, at)) = self.watch().await else {
                self.seat.leave();
                return;
            };
            self.seat.leave();
            self.audience.report(&self.seat, self.number, &at, fault);
            (self.connection, self.map, self.before) = (None, None, None);
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn watch(&mut self) -> Result<(), (Fault, Address)> {
        let at = |address: &Address| {
            let address = address.clone();
            move |fault| (fault, address)
        };
        let own = self.address.clone();
        let mut asked_at = Instant::now();
        let (media, mut list) = self.join(&own).await.map_err(at(&own))?;
        let low = match self.audience.settings.mode {
            Mode::Auto => list.part_target_s.is_some(),
            Mode::Live => false,
            Mode::LowLatency if list.part_target_s.is_none() => {
                let fault = Fault::new(Kind::Playlist, "the playlist offers no low latency");
                return Err((fault, media));
            }
            Mode::LowLatency => true,
        };
        let hold_s = self.audience.settings.buffer_s.unwrap_or_else(|| hold_back(&list, low));
        let Some(mut next) = beginning(&list, low, hold_s) else {
            return Err((Fault::new(Kind::Playlist, "the playlist has no segment"), media));
        };
        self.playback = Playback::default();
        loop {
            let before = next;
            self.follow(&media, &list, low, &mut next).await?;
            if list.ended {
                return Ok(());
            }
            self.playback.begin(hold_s, &self.seat, &self.audience);
            let wait_s = match (low, next == before) {
                (true, true) => list.part_target_s.unwrap_or(list.target_s),
                (true, false) => 0.0,
                (false, true) => list.target_s / 2.0,
                (false, false) => list.target_s,
            };
            tokio::time::sleep_until((asked_at + Duration::from_secs_f64(wait_s)).into()).await;
            asked_at = Instant::now();
            let target = if low {
                media.with_query(&format!("_HLS_msn={}&_HLS_part={}", next.number, next.part))
            } else {
                media.target.clone()
            };
            list = self.media_playlist(&media, &target).await.map_err(at(&media))?;
        }
    }

    /// Finds the media playlist.
    async fn join(&mut self, own: &Address) -> Result<(Address, Rc<Media>), Fault> {
        let body = self.small(own, &own.target).await?;
        let renditions = match parse(&body)? {
            Playlist::Media(media) => return Ok((own.clone(), Rc::new(media))),
            Playlist::Multivariant(renditions) => renditions,
        };
        let first = renditions.first().and_then(|first| own.join(first));
        let media = first
            .ok_or_else(|| Fault::new(Kind::Playlist, "the playlist names no rendition of this server"))?;
        let list = self.media_playlist(&media, &media.target).await?;
        Ok((media, list))
    }

    async fn media_playlist(&mut self, media: &Address, target: &str) -> Result<Rc<Media>, Fault> {
        let body = self.small(media, target).await?;
        let known = PARSED.with_borrow(|parsed| {
            let (bytes, crc, list) = parsed.get(&media.target)?;
            ((*bytes, *crc) == (body.bytes, body.crc)).then(|| list.clone())
        });
        if let Some(list) = known {
            return Ok(list);
        }
        let Playlist::Media(list) = parse(&body)? else {
            return Err(Fault::new(
                Kind::Playlist,
                "a media playlist was expected, and the answer is another kind",
            ));
        };
        let list = Rc::new(list);
        PARSED.with_borrow_mut(|parsed| {
            if parsed.len() < MAX_PARSED {
                parsed.insert(media.target.clone(), (body.bytes, body.crc, list.clone()));
            }
        });
        Ok(list)
    }

    /// Fetches what is listed from `next` on.
    async fn follow(
        &mut self,
        media: &Address,
        list: &Media,
        low: bool,
        next: &mut Next,
    ) -> Result<(), (Fault, Address)> {
        let gone = |text: String| (Fault::new(Kind::Expired, text), media.clone());
        if let Some(first) = list.segments.first().filter(|first| first.number > next.number) {
            let (wanted, first) = (next.number, first.number);
            return Err(gone(format!("segment {wanted} has left the playlist, which begins with {first}")));
        }
        let from = next.number;
        for segment in list.segments.iter().filter(|own| own.number >= from) {
            if segment.gap {
                return Err(gone(format!("the server has lost segment {}", segment.number)));
            }
            if segment.discontinuity && next.part == 0 {
                self.before = None;
            }
            self.initialise(media, segment).await?;
            if low && segment.parts.len() >= next.part.max(1) {
                for part in &segment.parts[next.part..] {
                    self.media(media, &part.uri, part.duration_s).await?;
                    next.part += 1;
                }
            } else if next.part > 0 {
                return Err(gone(format!("the parts of segment {} have left the playlist", segment.number)));
            } else if let Some(uri) = &segment.uri {
                self.media(media, uri, segment.duration_s).await?;
            }
            if segment.uri.is_some() {
                *next = Next { number: segment.number + 1, part: 0 };
            }
        }
        Ok(())
    }

    /// Fetches the initialisation segment, if the viewer does not have it.
    async fn initialise(&mut self, media: &Address, segment: &Segment) -> Result<(), (Fault, Address)> {
        let Some(uri) = &segment.map else { return Ok(()) };
        if self.map.as_ref().is_some_and(|(own, _)| own == uri) {
            return Ok(());
        }
        let address = joined(media, uri)?;
        let body = self.small(media, &address.target).await.map_err(|fault| (fault, address.clone()))?;
        let init = self.audience.known.init(&address.to_string(), &body).map_err(|fault| (fault, address))?;
        self.map = Some((uri.clone(), init));
        Ok(())
    }

    /// Fetches and checks a segment or a part.
    async fn media(&mut self, media: &Address, uri: &str, duration_s: f64) -> Result<(), (Fault, Address)> {
        let address = joined(media, uri)?;
        let name = address.to_string();
        let claimed = self.audience.known.claim(&name);
        let fetched = self.checked(&address, &name, claimed).await;
        if claimed && fetched.is_err() {
            self.audience.known.release(&name);
        }
        fetched.map_err(|fault| (fault, address.clone()))?;
        if let Some(fault) = self.playback.add(duration_s, &self.seat, &self.audience) {
            // The picture stands still, and the viewer continues.
            self.audience.report(&self.seat, self.number, &address, fault);
        }
        Ok(())
    }

    async fn checked(&mut self, address: &Address, name: &str, claimed: bool) -> Result<(), Fault> {
        let asked_at = Instant::now();
        let body = self.fetch(address, &address.target, claimed.then_some(MAX_MEDIA)).await;
        let body = body.map_err(|(fault, status)| match status {
            Some(404 | 410) => Fault { kind: Kind::Expired, ..fault },
            _ => fault,
        })?;
        let now = Instant::now();
        let init = self.map.as_ref().and_then(|(_, init)| init.as_deref());
        let facts = self.audience.known.compare(name, &body, init)?;
        let gap = facts.zip(self.before).and_then(|(own, before)| own.gap_after(&before));
        self.before = facts;
        if let Some(gap) = gap {
            return Err(Fault::new(Kind::Content, gap));
        }
        let stamps = facts.and_then(|facts| facts.stamps);
        if self.audience.settings.stamped && facts.is_some() && stamps.is_none() {
            return Err(Fault::new(Kind::Content, "the media has no frame of rblive-load push"));
        }
        let first = body.first.unwrap_or(now);
        self.audience.fetched(first - asked_at, now - asked_at);
        if let Some(stamps) = stamps.filter(|_| claimed) {
            let wall =
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() - (Instant::now() - first);
            self.audience.aged(wall.saturating_sub(Duration::from_nanos(stamps.newest_ns)));
        }
        self.seat.received(body.bytes);
        Ok(())
    }

    /// Fetches a playlist or an initialisation segment.
    async fn small(&mut self, at: &Address, target: &str) -> Result<Body, Fault> {
        self.fetch(at, target, Some(MAX_SMALL)).await.map_err(|(fault, _)| fault)
    }

    /// Fetches from the server of `at`. The body is kept if `keep` has a limit for its size. A fault has the status, if there was an
    /// answer.
    async fn fetch(
        &mut self,
        at: &Address,
        target: &str,
        keep: Option<usize>,
    ) -> Result<Body, (Fault, Option<u16>)> {
        let mut target = target.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let (status, location, body) =
                self.once(at, &target, keep).await.map_err(|fault| (fault, None))?;
            if status == 200 {
                return Ok(body);
            }
            let moved = matches!(status, 301 | 302 | 303 | 307 | 308).then_some(location).flatten();
            let Some(moved) = moved.and_then(|moved| Address { target, ..at.clone() }.join(&moved)) else {
                let fault = Fault::new(Kind::Status, format!("the server answers with status {status}"));
                return Err((fault, Some(status)));
            };
            target = moved.target;
        }
        Err((Fault::new(Kind::Status, format!("more than {MAX_REDIRECTS} redirections")), None))
    }

    /// Sends a request. A kept connection that the server has closed meanwhile is replaced.
    async fn once(
        &mut self,
        at: &Address,
        target: &str,
        keep: Option<usize>,
    ) -> Result<(u16, Option<String>, Body), Fault> {
        let patience = self.audience.settings.dialer.patience;
        loop {
            let (mut connection, reused) = match self.connection.take() {
                Some(connection) => (connection, true),
                None => (self.audience.settings.dialer.connect(&at.origin).await?, false),
            };
            let mut body = keep.map_or_else(Body::counted, Body::kept);
            let cookie = self.cookie.as_deref();
            self.audience.requested();
            let answered = connection.get(&at.origin, target, cookie, &mut body, patience).await;
            let head = match answered {
                Ok(head) => head,
                Err(_) if reused && body.first.is_none() => {
                    self.audience.reconnected();
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            if head.keep {
                self.connection = Some(connection);
            }
            if head.cookie.is_some() {
                self.cookie = head.cookie;
            }
            return Ok((head.status, head.location, body));
        }
    }
}

fn joined(media: &Address, uri: &str) -> Result<Address, (Fault, Address)> {
    media.join(uri).ok_or_else(|| {
        let text = format!("'{}' is no address at the server of the playlist", uri.escape_default());
        (Fault::new(Kind::Playlist, text), media.clone())
    })
}

fn parse(body: &Body) -> Result<Playlist, Fault> {
    let parsed = Playlist::parse(body.bytes_kept().unwrap_or_default());
    parsed.map_err(|message| Fault::new(Kind::Playlist, message))
}

/// The distance from the end of the playlist at which a viewer begins, in seconds.
fn hold_back(list: &Media, low: bool) -> f64 {
    match list.part_target_s.filter(|_| low) {
        Some(part) => list.part_hold_back_s.unwrap_or(HOLD_BACK * part),
        None => list.hold_back_s.unwrap_or(HOLD_BACK * list.target_s),
    }
}

/// Where a viewer begins: at a segment, or with low latency at a part that can be decoded, at least `hold_s` before the end.
fn beginning(list: &Media, low: bool, hold_s: f64) -> Option<Next> {
    let mut until_end = 0.0;
    // Durations are rounded.
    let enough = hold_s - 0.01;
    for segment in list.segments.iter().rev().filter(|own| low || own.uri.is_some()) {
        let number = segment.number;
        if low {
            for (part, own) in segment.parts.iter().enumerate().rev() {
                until_end += own.duration_s;
                if until_end >= enough && own.independent {
                    return Some(Next { number, part });
                }
            }
        }
        if !low || segment.parts.is_empty() {
            until_end += segment.duration_s;
        }
        if until_end >= enough {
            return Some(Next { number, part: 0 });
        }
    }
    let first = list.segments.iter().find(|own| low || own.uri.is_some())?;
    Some(Next { number: first.number, part: 0 })
}

#[cfg(test)]
mod tests {
    use super::super::playlist::Part;
    use super::*;

    fn list() -> Media {
        let part = |index: usize| Part { uri: index.to_string(), duration_s: 0.5, independent: index == 0 };
        let segment = |number: u64, parts: usize| Segment {
            number,
            uri: (number < 5).then(String::new),
            duration_s: 2.0,
            parts: (0..parts).map(part).collect(),
            ..Segment::default()
        };
        let segments = vec![segment(1, 0), segment(2, 0), segment(3, 4), segment(4, 4), segment(5, 2)];
        Media { target_s: 2.0, part_target_s: Some(0.5), segments, ..Media::default() }
    }

    #[test]
    fn a_viewer_begins_before_the_end() {
        let at = |low, hold_s| beginning(&list(), low, hold_s).map(|next| (next.number, next.part));
        assert_eq!(at(false, hold_back(&list(), false)), Some((2, 0)));
        assert_eq!(at(false, 2.0), Some((4, 0)));
        assert_eq!(at(false, 60.0), Some((1, 0)));
        assert_eq!(at(true, 0.5), Some((5, 0)));
        assert_eq!(at(true, hold_back(&list(), true)), Some((4, 0)));
        assert_eq!(at(true, 60.0), Some((1, 0)));
        assert_eq!(beginning(&Media::default(), false, 6.0), None);
    }
}
