//! Other nodes that deliver the same streams, and when viewers are sent there.
//!
//! ```text
//!   viewer ── playlist? ─▶ this node: drained, full, or without the stream
//!          ◀─ 307, Location: the same address at another node, and the time of the move
//!          ── playlist? ─▶ the other node, which serves it whatever it knows itself
//! ```
//!
//! Only playlists move: a player that has one finds everything that it names where it got it. The time in the address ends loops: who was
//! moved a moment ago stays. A node lists a segment of a source under the number that all others give it, so a player that is moved goes on.
//!
//! Many players ask at the first address for each playlist. Their connection remembers where they were sent, and they go there again: each
//! of them takes one place there.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use locks::RwLock;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Request};

/// How long a moved viewer stays where it was sent, at least. Clocks of nodes may differ by as much.
const STAYS: Duration = Duration::from_secs(30);
/// The parameter with the time of a move, in seconds since 1970.
const MOVED: &str = "moved=";

/// When viewers are sent to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Redirect {
    /// Never.
    Off,
    /// When this node is drained or does not have the stream.
    Draining,
    /// Then, and when this node has as many viewers as it is to have.
    #[default]
    Overloaded,
}

::settings::by_serde!(Redirect);

/// A node to which viewers may be sent.
#[derive(Debug, Clone, Default)]
pub struct OtherNode {
    /// How its addresses begin, as `https://edge-2.example.org:8443`.
    pub url: String,
    /// The streams that it has.
    pub streams: Arc<HashSet<String>>,
    /// How many more viewers it is to have. A node without a limit has `u32::MAX`.
    pub room: u32,
}

impl OtherNode {
    /// Whether a text can be [`url`](Self::url): a scheme, a host with or without a port, and perhaps a path, of at most 512 bytes that mean
    /// nothing else in an address.
    pub fn is_url(text: &str) -> bool {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let legal = |c: char| c.is_ascii_alphanumeric() || "-._~/:[]".contains(c);
        let has_host = |rest: &str| !rest.starts_with(['/', ':']) && !rest.contains("//");
        text.len() <= 512
            && rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(legal) && has_host(rest))
    }
}

/// The node to which the viewer of a connection was sent.
#[derive(Debug, Default)]
pub(crate) struct SentTo {
    url: Option<Box<str>>,
    /// Whether the connection is a proxy's, and so that of many viewers.
    is_shared: bool,
}

impl SentTo {
    pub fn of(is_shared: bool) -> Self {
        Self { url: None, is_shared }
    }
}

/// A node, and the viewers that were sent there since it said how many it has.
#[derive(Debug)]
struct Target {
    node: OtherNode,
    sent: AtomicU64,
}

/// The other nodes, and how this one is: what decides where viewers go.
#[derive(Debug)]
pub struct Elsewhere {
    redirect: Redirect,
    /// Viewers of this node use https, also if a proxy in front of it does.
    is_encrypted: bool,
    others: RwLock<Vec<Target>>,
    is_draining: AtomicBool,
    /// How many more viewers this node is to have; below 0, how many are to go.
    room: AtomicI64,
    is_degraded: AtomicBool,
    redirected: AtomicU64,
}

impl Elsewhere {
    /// Without other nodes. Viewers that use https are sent to addresses of https alone.
    pub fn new(redirect: Redirect, is_encrypted: bool) -> Self {
        Self {
            redirect,
            is_encrypted,
            others: RwLock::default(),
            is_draining: AtomicBool::new(false),
            room: AtomicI64::new(i64::MAX),
            is_degraded: AtomicBool::new(false),
            redirected: AtomicU64::new(0),
        }
    }

    /// Sets the other nodes.
    pub fn set_others(&self, nodes: Vec<OtherNode>) {
        let is_allowed = |node: &OtherNode| {
            OtherNode::is_url(&node.url) && (!self.is_encrypted || node.url.starts_with("https://"))
        };
        let target = |node| Target { node, sent: AtomicU64::new(0) };
        *self.others.write() = nodes.into_iter().filter(is_allowed).map(target).collect();
    }

    /// Sets whether this node is drained.
    pub fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Ordering::Relaxed);
    }

    /// Whether this node is drained.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Forgets how many viewers were sent to others: what those have said since then counts them.
    pub fn forget_sent(&self) {
        self.others.read().iter().for_each(|target| target.sent.store(0, Ordering::Relaxed));
    }

    /// Sets how many more viewers this node is to have; below 0, how many are to go. `i64::MAX`: there is no limit.
    pub fn set_room(&self, room: i64) {
        self.room.store(room, Ordering::Relaxed);
    }

    /// Sets whether something does not work in the cluster.
    pub fn set_degraded(&self, is_degraded: bool) {
        self.is_degraded.store(is_degraded, Ordering::Relaxed);
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.is_degraded.load(Ordering::Relaxed)
    }

    /// The requests that were sent elsewhere so far.
    pub fn redirected(&self) -> u64 {
        self.redirected.load(Ordering::Relaxed)
    }

    /// Where a request for a playlist goes that this node is not to answer. `is_watching`: its client is one of the viewers. `sent_to`: where
    /// its connection was sent before. None: it is answered here.
    pub(crate) fn playlist(
        &self,
        stream: &str,
        request: &Request,
        is_watching: bool,
        sent_to: &mut SentTo,
    ) -> Option<Answer> {
        let is_draining = self.is_draining();
        let is_full = || {
            let room = self.room.load(Ordering::Relaxed);
            self.redirect == Redirect::Overloaded && if is_watching { room < 0 } else { room <= 0 }
        };
        if self.redirect == Redirect::Off || !(is_draining || is_full()) {
            return None;
        }
        self.moved(stream, request, !is_draining, sent_to)
    }

    /// A viewer begins to watch.
    pub(crate) fn take_room(&self) {
        self.add_room(-1);
    }

    /// A viewer does not watch any more.
    pub(crate) fn give_room(&self) {
        self.add_room(1);
    }

    fn add_room(&self, more: i64) {
        let add = |room: i64| (room != i64::MAX).then(|| room.saturating_add(more).min(i64::MAX - 1));
        // Without a limit, nothing changes.
        let _ = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Where a request for a playlist goes whose stream is not here.
    pub(crate) fn absent(&self, stream: &str, request: &Request, sent_to: &mut SentTo) -> Option<Answer> {
        if self.redirect == Redirect::Off { None } else { self.moved(stream, request, false, sent_to) }
    }

    /// The way to the node where the connection was sent before, or to another one that has the stream, and room if that is asked for.
    fn moved(
        &self,
        stream: &str,
        request: &Request,
        needs_room: bool,
        sent_to: &mut SentTo,
    ) -> Option<Answer> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let pairs = || request.query.split('&').filter(|pair| !pair.is_empty());
        let times = pairs().filter_map(|pair| pair.strip_prefix(MOVED)?.parse::<u64>().ok());
        if times.max().is_some_and(|time| time.abs_diff(now) < STAYS.as_secs()) {
            return None;
        }
        let others = self.others.read();
        let room =
            |target: &Target| u64::from(target.node.room).saturating_sub(target.sent.load(Ordering::Relaxed));
        let has = || others.iter().filter(|target| target.node.streams.contains(stream));
        let again = has().find(|target| sent_to.url.as_deref() == Some(&target.node.url));
        let free = || has().filter(|target| !needs_room || room(target) > 0);
        let best =
            || free().max_by_key(|target| (room(target), u64::MAX - target.sent.load(Ordering::Relaxed)));
        let target = match again {
            Some(target) => target,
            None => {
                let target = best()?;
                target.sent.fetch_add(1, Ordering::Relaxed);
                target
            }
        };
        sent_to.url = (!sent_to.is_shared).then(|| target.node.url.as_str().into());
        self.redirected.fetch_add(1, Ordering::Relaxed);
        let legal = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let moved = format!("{MOVED}{now}");
        let kept = pairs().filter(|pair| !pair.starts_with(MOVED) && legal(pair));
        let query: Vec<&str> = kept.chain([moved.as_str()]).collect();
        let url = target.node.url.trim_end_matches('/');
        Some(Answer::moved(format!("{url}{}?{}", request.path, query.join("&"))))
    }

    /// What the page says of the servers that its player may ask: nodes come and go while it plays.
    pub(crate) fn connects(&self, own: &str) -> String {
        match (self.redirect, self.is_encrypted) {
            (Redirect::Off, _) => own.to_owned(),
            (_, true) => format!("{own} https:"),
            (_, false) => format!("{own} https: http:"),
        }
    }

    /// Whether another node has a stream.
    pub(crate) fn has_any(&self) -> bool {
        self.redirect != Redirect::Off && self.others.read().iter().any(|own| !own.node.streams.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(url: &str, streams: &[&str], room: u32) -> OtherNode {
        let streams = Arc::new(streams.iter().map(|&name| name.to_owned()).collect());
        OtherNode { url: url.into(), streams, room }
    }

    fn location(answer: Option<Answer>) -> Option<String> {
        let answer = answer?;
        assert_eq!(answer.status, 307);
        Some(answer.more.into_iter().find(|(name, _)| *name == "location").unwrap().1)
    }

    fn place(of: &Elsewhere, query: &str) -> Option<String> {
        let request = Request::of("/live/a/index.m3u8", query);
        location(of.playlist("a", &request, false, &mut SentTo::default()))
    }

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn a_drained_node_sends_viewers_to_one_that_has_the_stream_and_keeps_path_and_query() {
        let own = Elsewhere::new(Redirect::Draining, false);
        own.set_others(vec![node("http://b", &["b"], 9), node("http://c:1/path/", &["a"], 9)]);
        assert_eq!(place(&own, ""), None, "it is not drained");
        own.set_draining(true);
        let told = place(&own, "token=1.ab&_HLS_msn=3").unwrap();
        let time =
            told.strip_prefix("http://c:1/path/live/a/index.m3u8?token=1.ab&_HLS_msn=3&moved=").unwrap();
        assert!(time.parse::<u64>().unwrap().abs_diff(now()) < 600);
        assert_eq!(
            location(own.absent("x", &Request::of("/live/x/index.m3u8", ""), &mut SentTo::default())),
            None
        );
        own.set_others(Vec::new());
        assert_eq!(place(&own, ""), None, "nobody else has it, and it is served here");
        let off = Elsewhere::new(Redirect::Off, false);
        off.set_others(vec![node("http://c", &["a"], 9)]);
        off.set_draining(true);
        assert_eq!(place(&off, ""), None);
    }

    #[test]
    fn who_was_moved_a_moment_ago_stays() {
        let own = Elsewhere::new(Redirect::Draining, false);
        own.set_others(vec![node("http://b", &["a"], 9)]);
        own.set_draining(true);
        let now = now();
        assert_eq!(place(&own, &format!("moved={now}")), None);
        assert_eq!(place(&own, &format!("moved=1&token=x&moved={}", now + 5)), None);
        let long_ago = place(&own, "moved=1&token=x").unwrap();
        assert!(long_ago.starts_with("http://b/live/a/index.m3u8?token=x&moved="), "{long_ago}");
        assert!(place(&own, "moved=soon&moved=").is_some(), "nonsense ends no move, and stays behind");
        // A field of an answer has no other bytes.
        let told = place(&own, "a=\u{e9}&b= c&d=#&e=1").unwrap();
        assert!(told.starts_with("http://b/live/a/index.m3u8?e=1&moved="), "{told}");
    }

    #[test]
    fn a_full_node_sends_away_as_many_as_are_too_many() {
        let own = Elsewhere::new(Redirect::Overloaded, false);
        own.set_others(vec![node("http://b", &["a"], 2), node("http://c", &["a"], 3)]);
        let request = Request::of("/live/a/1/media.m3u8", "");
        let go = |is_watching| {
            let told = location(own.playlist("a", &request, is_watching, &mut SentTo::default()));
            told.inspect(|_| {
                if is_watching {
                    own.give_room()
                }
            })
            .map(|told| told[..8].to_owned())
        };
        own.set_room(1);
        assert_eq!(go(false), None);
        own.take_room();
        assert_eq!(go(true), None, "who is there stays while there are not too many");
        assert_eq!(go(false).as_deref(), Some("http://c"), "the one with the most room");
        own.set_room(-2);
        let told: Vec<_> = (0..3).map(|_| go(true)).collect();
        assert!(told[..2].iter().all(Option::is_some) && told[2].is_none(), "{told:?}");
        own.set_room(0);
        let told: Vec<_> = (0..3).filter_map(|_| go(false)).collect();
        assert_eq!(told.len(), 2, "five places are given: {told:?}");
        own.set_room(i64::MAX);
        own.give_room();
        own.take_room();
        assert_eq!(go(false), None, "there is no limit");
    }

    #[test]
    fn a_viewer_that_asks_again_takes_one_place_and_goes_where_it_was() {
        let own = Elsewhere::new(Redirect::Overloaded, false);
        own.set_others(vec![node("http://b", &["a"], 2), node("http://c", &["a"], 1)]);
        own.set_room(0);
        let request = Request::of("/live/a/1/media.m3u8", "");
        let go = |viewer: &mut SentTo| {
            location(own.playlist("a", &request, false, viewer)).map(|told| told[..8].to_owned())
        };
        let mut viewers: [SentTo; 4] = Default::default();
        let first: Vec<_> = viewers.iter_mut().map(go).collect();
        assert!(first[..3].iter().all(Option::is_some) && first[3].is_none(), "{first:?}");
        for _ in 0..100 {
            assert_eq!(viewers.iter_mut().map(go).collect::<Vec<_>>(), first);
        }
        own.forget_sent();
        assert!(go(&mut viewers[3]).is_some(), "what the others say counts them now");
        own.set_others(vec![node("http://c", &["a"], 1)]);
        assert_eq!(go(&mut viewers[0]).as_deref(), Some("http://c"), "the other one is gone");
        // The connection of a proxy is that of many.
        own.set_others(vec![node("http://b", &["a"], 1), node("http://c", &["a"], 1)]);
        let mut proxy = SentTo::of(true);
        let told: HashSet<_> = (0..3).filter_map(|_| go(&mut proxy)).collect();
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn a_drained_node_sends_viewers_also_to_nodes_without_room() {
        let own = Elsewhere::new(Redirect::Draining, false);
        own.set_others(vec![node("http://b", &["a"], 0), node("http://c", &["a"], 0)]);
        own.set_draining(true);
        let told: HashSet<_> = (0..4).map(|_| place(&own, "").unwrap()[..8].to_owned()).collect();
        assert_eq!(told.len(), 2, "all of them have their part");
    }

    #[test]
    fn viewers_of_https_go_to_https_alone() {
        let own = Elsewhere::new(Redirect::Draining, true);
        own.set_draining(true);
        own.set_others(vec![node("http://b", &["a"], 9)]);
        assert_eq!(place(&own, ""), None);
        own.set_others(vec![node("http://b", &["a"], 9), node("https://c", &["a"], 1)]);
        assert!(place(&own, "").unwrap().starts_with("https://c/live/a/"));
    }

    #[test]
    fn a_stranger_in_the_map_is_no_address() {
        for good in ["https://a", "http://10.0.0.1:80", "https://[2001:db8::1]:8443/below/it"] {
            assert!(OtherNode::is_url(good), "{good}");
        }
        let long = format!("https://{}", "a".repeat(512));
        for bad in [
            "",
            "a",
            "https://",
            "ftp://a",
            "https:///x",
            "https://a b",
            "https://a\r\nb: c",
            "https://u@h",
            "https://a?b",
            "https://a#b",
            "https://a//b",
            "javascript:alert(1)",
            "https://:1",
            &long,
        ] {
            assert!(!OtherNode::is_url(bad), "{bad}");
        }
    }
}
