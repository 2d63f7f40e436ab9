//! All addresses of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rblive::content::check_name;
use rblive_record::Place;
use rblive_webrtc::{Hub, Watcher};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::addresses;
use crate::answer::{Answer, Cache, Request};
use crate::assets::{self, Asset};
use crate::catalog::{Catalog, Stream};
use crate::counters::Counters;
use crate::elsewhere::{Elsewhere, SentTo};
use crate::kept::Kept;
use crate::live::{self, Ahead, parse};
use crate::metrics;
use crate::settings::{Patience, Settings};
use crate::token::{Access, TokenError};
use crate::webrtc::{self, Asking};

/// What the page says of the servers that its player may ask.
const CONNECTS: &str = "connect-src 'self'";

/// The most offers of viewers by WebRTC that are read at once, and how long one waits for its turn.
pub(crate) const OFFERS_AT_ONCE: usize = 4;
const OFFER_WAIT: Duration = Duration::from_secs(2);

/// The pages of a server.
#[derive(Debug)]
pub(crate) struct Pages {
    pub catalog: Arc<Catalog>,
    pub settings: Settings,
    pub patience: Patience,
    pub counters: Counters,
    pub started: Instant,
    pub kept: Kept,
    /// Other nodes of a cluster.
    pub elsewhere: Option<Arc<Elsewhere>>,
    /// Viewers by WebRTC, if the node has some.
    pub peers: Option<Arc<Hub>>,
    /// The offers that are read at once.
    pub offers: Arc<Semaphore>,
}

/// A viewer of a stream, which counts among those of the stream, and of this node of a cluster.
#[derive(Debug)]
struct Viewer {
    stream: Arc<Stream>,
    /// The cluster in which the viewer takes a place of this node.
    elsewhere: Option<Arc<Elsewhere>>,
}

impl Viewer {
    /// `None`: the stream has as many viewers as it may have.
    fn of(stream: &Arc<Stream>, most: usize, elsewhere: Option<&Arc<Elsewhere>>) -> Option<Self> {
        if stream.viewers.fetch_add(1, Ordering::Relaxed) >= most {
            stream.viewers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        if let Some(elsewhere) = elsewhere {
            elsewhere.take_room();
        }
        Some(Self { stream: stream.clone(), elsewhere: elsewhere.cloned() })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.stream.viewers.fetch_sub(1, Ordering::Relaxed);
        if let Some(elsewhere) = self.elsewhere.take() {
            elsewhere.give_room();
        }
    }
}

impl Watcher for Viewer {
    fn sent(&self, bytes: usize) {
        self.stream.delivered.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The stream that a connection watches, and the connection's entry among those of its address.
#[derive(Debug)]
pub(crate) struct Watching {
    viewer: Option<Viewer>,
    sent_to: SentTo,
    place: addresses::Place,
}

impl Watching {
    pub fn of(place: addresses::Place) -> Self {
        Self { viewer: None, sent_to: SentTo::of(place.is_shared()), place }
    }

    /// Counts the connection as a viewer of `stream`, and no longer of another stream. False if the stream has too many viewers.
    pub fn switch_to(
        &mut self,
        stream: &Arc<Stream>,
        most: usize,
        elsewhere: Option<&Arc<Elsewhere>>,
    ) -> bool {
        if self.is_of(stream) {
            return true;
        }
        let viewer = Viewer::of(stream, most, elsewhere);
        let has_room = viewer.is_some();
        if has_room {
            self.viewer = viewer;
        }
        has_room
    }

    /// Whether the connection watches `stream`.
    fn is_of(&self, stream: &Arc<Stream>) -> bool {
        self.viewer.as_ref().is_some_and(|own| Arc::ptr_eq(&own.stream, stream))
    }

    /// Counts media that was sent.
    pub fn sent(&self, bytes: usize) {
        if let Some(viewer) = &self.viewer {
            viewer.sent(bytes);
        }
    }
}

impl Pages {
    /// Answers a request. `method` is the method as it was sent.
    pub async fn answer(&self, method: &str, request: &Request, watching: &locks::Mutex<Watching>) -> Answer {
        let (may_ask, is_known) = {
            let own = watching.lock();
            (own.place.may_ask(&request.forwarded_for), own.place.place.is_known())
        };
        let for_peers = self.for_peers(request);
        let answer = match (method, &for_peers) {
            _ if !may_ask => Answer::text(429, "your address asks too often; wait a second"),
            ("GET" | "HEAD", _) => self.get(request, watching).await.for_request(request),
            ("OPTIONS", _) => Answer::methods(request, for_peers.is_some()),
            ("POST", Some((peers, webrtc::Target::Stream(name)))) => {
                self.offer(peers, name, request, watching).await
            }
            ("DELETE", Some((peers, webrtc::Target::Session(_, session)))) => leave(peers, session),
            (_, for_peers) => Answer::not_allowed(for_peers.is_some()),
        };
        self.counters.answered(answer.status);
        // The files of the page and the calls of probes are for everybody, so they prove nothing.
        let is_asked =
            ["/live/", "/vod", "/streams", "/metrics"].iter().any(|own| request.path.starts_with(own));
        if !is_known && is_asked && matches!(method, "GET" | "HEAD" | "POST") && answer.status < 400 {
            watching.lock().place.place.known();
        }
        answer
    }

    /// The request for WebRTC that an address stands for, if the node has it.
    fn for_peers<'a>(&self, request: &'a Request) -> Option<(&Arc<Hub>, webrtc::Target<'a>)> {
        Some((self.peers.as_ref()?, webrtc::parse(request.path.strip_prefix("/live/")?)?))
    }

    /// Whether a request may have a body: an offer, where there is WebRTC.
    pub fn takes_body(&self, method: &str, path: &str) -> bool {
        self.peers.is_some() && webrtc::takes_body(method, path)
    }

    /// Answers the offer of a viewer by WebRTC. Tokens, limits and other nodes are those of playlists. Offers are read by few threads of their own:
    /// nobody waits for them who watches by HLS.
    async fn offer(
        &self,
        hub: &Arc<Hub>,
        name: &str,
        request: &Request,
        watching: &locks::Mutex<Watching>,
    ) -> Answer {
        let until = match self.access(request) {
            Ok(access) if access.opens(name) => access.until(),
            Ok(_) => return refused(TokenError::Invalid),
            Err(error) => return refused(error),
        };
        let Some(stream) = self.catalog.stream(name) else { return self.absent(name, request, watching) };
        if let Some(elsewhere) = &self.elsewhere
            && let Some(answer) = move_viewer(elsewhere, &stream, request, watching)
        {
            return answer;
        }
        let Ok(Ok(turn)) = timeout(OFFER_WAIT, self.offers.clone().acquire_owned()).await else {
            return Answer::text(503, "too many viewers ask at once; try again in some seconds");
        };
        let most = self.settings.max_viewers_per_stream;
        let Some(viewer) = Viewer::of(&stream, most, self.elsewhere.as_ref()) else { return full() };
        let (client, reached) = {
            let own = watching.lock();
            (own.place.client(&request.forwarded_for), own.place.reached.filter(|_| !own.place.is_shared()))
        };
        let (hub, watcher) = (hub.clone(), Box::new(viewer));
        let (body, query) = (request.body.clone(), request.query.clone());
        let asking = Asking { hub, body, query, client, reached, watcher, until };
        let read = move || {
            let _turn = turn;
            webrtc::answer(&stream, asking)
        };
        let answered = tokio::task::spawn_blocking(read).await;
        answered.unwrap_or_else(|_| Answer::text(500, "the offer could not be read"))
    }

    /// The answer to a request for the list of a stream that is not here.
    fn absent(&self, name: &str, request: &Request, watching: &locks::Mutex<Watching>) -> Answer {
        let elsewhere = self.elsewhere.as_ref();
        let other = elsewhere.and_then(|own| own.absent(name, request, &mut watching.lock().sent_to));
        other.unwrap_or_else(|| self.no_stream())
    }

    async fn get(&self, request: &Request, watching: &locks::Mutex<Watching>) -> Answer {
        if let Some(path) = request.path.strip_prefix("/vod/") {
            return self.recording(path, request).await;
        }
        if let Some(path) = request.path.strip_prefix("/live/") {
            return self.live(path, request, watching).await;
        }
        match request.path.as_str() {
            "/vod" => match self.access(request) {
                Ok(access) => self.kept.list(listed(request), &access).await,
                Err(error) => refused(error),
            },
            "/health" => Answer::text(200, "ok"),
            "/ready" => self.ready(),
            "/streams" => match self.access(request) {
                Ok(access) => Answer::of(200, "application/json", Cache::No, self.streams(&access)),
                Err(error) => refused(error),
            },
            "/metrics" => self.metrics(request),
            path => match assets::VIEWERS.iter().find(|asset| asset.path == path) {
                Some(found) => match self.elsewhere.as_ref().filter(|_| path == "/") {
                    Some(elsewhere) => {
                        let text = found.text.replacen(CONNECTS, &elsewhere.connects(CONNECTS), 1);
                        asset(found, text.into())
                    }
                    None => asset(found, Bytes::from_static(found.text.as_bytes())),
                },
                // A request of HTTP/2 may have no path at all.
                None => {
                    path.strip_prefix('/').and_then(|name| self.page_of(name, request)).unwrap_or_else(|| {
                        Answer::text(404, "there is nothing at this address; / lists the streams")
                    })
                }
            },
        }
    }

    /// The way to the page that plays a stream, for people who leave out the file: relative, since a proxy may have put all below a path.
    fn page_of(&self, name: &str, request: &Request) -> Option<Answer> {
        let name = name.trim_end_matches('/');
        // Without a token, nobody learns which streams there are.
        if let Err(answer) = self.token(name, request) {
            return Some(answer);
        }
        self.catalog.stream(name)?;
        let up = "../".repeat(request.path.matches('/').count() - 1);
        let query = if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
        Some(Answer::see(format!("./{up}{query}#/{name}")))
    }

    async fn live(&self, path: &str, request: &Request, watching: &locks::Mutex<Watching>) -> Answer {
        let Some((name, target)) = parse(path) else {
            return self.page_of(path, request).unwrap_or_else(|| {
                Answer::text(404, "there is nothing at this address; a stream is at /live/NAME/index.m3u8")
            });
        };
        let query = match self.token(name, request) {
            Ok(query) => query,
            Err(answer) => return answer,
        };
        let is_list = live::is_playlist(&target);
        let Some(stream) = self.catalog.stream(name) else {
            return if is_list { self.absent(name, request, watching) } else { self.no_stream() };
        };
        if let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| is_list)
            && let Some(answer) = move_viewer(elsewhere, &stream, request, watching)
        {
            return answer;
        }
        if live::is_watching(&target)
            && !watching.lock().switch_to(
                &stream,
                self.settings.max_viewers_per_stream,
                self.elsewhere.as_ref(),
            )
        {
            return full();
        }
        let ahead = if self.is_settling() { Ahead::Settling } else { Ahead::Wrong };
        live::answer(&stream, target, request, &query, ahead).await
    }

    /// Whether viewers may be sent here. A drained node has others for that.
    fn ready(&self) -> Answer {
        let others = self.elsewhere.as_deref();
        match others.is_some_and(Elsewhere::is_draining) {
            true => Answer::text(503, "this node is drained"),
            false if self.catalog.streams().is_empty() && !others.is_some_and(Elsewhere::has_any) => {
                Answer::text(503, "no stream yet")
            }
            // Viewers need not know more; the log says why.
            false if others.is_some_and(Elsewhere::is_degraded) => Answer::text(200, "ok; degraded: cluster"),
            false => Answer::text(200, "ok"),
        }
    }

    /// The answer for an unknown stream. Players do not try again after a 404, so a server that has just started answers 503.
    fn no_stream(&self) -> Answer {
        match self.is_settling() {
            true => Answer::text(
                503,
                "the server has just started and has no such stream yet; try again in some seconds",
            ),
            false => Answer::text(404, "there is no such stream"),
        }
    }

    fn is_settling(&self) -> bool {
        self.started.elapsed() < self.patience.settle
    }

    async fn recording(&self, path: &str, request: &Request) -> Answer {
        let Some(place) = Place::parse(path) else {
            return Answer::text(
                404,
                "there is nothing at this address; a recording is at /vod/NAME/BEGIN/index.m3u8, and /vod lists them",
            );
        };
        match self.token(&place.stream, request) {
            Ok(query) => self.kept.file(place, &query).await,
            Err(answer) => answer,
        }
    }

    /// The query that is appended to the addresses in a viewer's playlists: the token that opens the stream.
    fn token(&self, name: &str, request: &Request) -> Result<String, Answer> {
        if !self.access(request).map_err(refused)?.opens(name) {
            return Err(refused(TokenError::Invalid));
        }
        // A valid token has digits, a dot and letters only.
        let own = self.settings.token_key().and_then(|_| presented(request));
        Ok(own.map_or(String::new(), |own| format!("?token={own}")))
    }

    fn access(&self, request: &Request) -> Result<Access, TokenError> {
        Access::of(self.settings.token_key(), presented(request))
    }

    /// The streams that a request may see.
    fn streams(&self, access: &Access) -> String {
        let (all, is_all) = (self.catalog.streams(), access.is_all());
        let open = all.iter().filter(|stream| is_all || access.is_for(&stream.name));
        let open: Vec<_> = open.map(|stream| row(stream, self.peers.is_some())).collect();
        serde_json::json!({ "streams": open }).to_string()
    }

    /// The answer with the metrics. They contain the name of every stream, so a token for one stream does not open them.
    fn metrics(&self, request: &Request) -> Answer {
        match self.access(request) {
            Ok(access) if access.is_all() => {}
            Ok(_) => return Answer::text(403, "the metrics need a token for every stream: rblive token '*'"),
            Err(error) => return refused(error),
        }
        match metrics::text(&self.catalog, &self.counters, self.elsewhere.as_deref(), self.peers.as_deref()) {
            Ok(text) => {
                Answer::of(200, "application/openmetrics-text; version=1.0.0; charset=utf-8", Cache::No, text)
            }
            Err(error) => Answer::text(500, error.to_string()),
        }
    }
}

/// Where a viewer of a cluster goes that this node is not to have.
fn move_viewer(
    elsewhere: &Elsewhere,
    stream: &Arc<Stream>,
    request: &Request,
    watching: &locks::Mutex<Watching>,
) -> Option<Answer> {
    let mut own = watching.lock();
    let is_own = own.is_of(stream);
    let answer = elsewhere.playlist(&stream.name, request, is_own, &mut own.sent_to)?;
    // It is no viewer of this node any more.
    own.viewer = None;
    Some(answer)
}

fn full() -> Answer {
    Answer::text(503, "the stream has as many viewers as it may have")
}

/// Disconnects a viewer by WebRTC.
fn leave(peers: &Hub, session: &str) -> Answer {
    match peers.leave(session) {
        true => Answer::text(200, "the viewer is disconnected"),
        false => Answer::text(404, "there is no such viewer; it may have left"),
    }
}

fn refused(error: TokenError) -> Answer {
    Answer::text(403, error.to_string())
}

/// The token of a request.
fn presented(request: &Request) -> Option<&str> {
    request.query.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn asset(asset: &Asset, text: Bytes) -> Answer {
    let etag = Some(format!("\"{:08x}\"", crc32c::crc32c(&text)));
    Answer { etag, ..Answer::of(200, asset.kind, Cache::For(60), text) }
}

/// The stream whose recordings a request asks for.
fn listed(request: &Request) -> Option<String> {
    let named = request.query.split('&').find_map(|pair| pair.strip_prefix("stream="));
    named.filter(|name| check_name(name)).map(str::to_owned)
}

fn row(stream: &Stream, has_peers: bool) -> serde_json::Value {
    let state = stream.state.lock();
    let health = match (state.is_ended(), state.is_stalled()) {
        (true, _) => "ended",
        (_, true) => "stalled",
        // Its playlists wait for the first segment.
        _ if !state.has_segment(None) => "starting",
        _ => "live",
    };
    let renditions: Vec<_> = state
        .renditions
        .iter()
        .map(|live| {
            let (bytes, us) = live
                .window
                .segments()
                .fold((0, 0), |(bytes, us), own| (bytes + own.bytes(), us + own.duration_us));
            serde_json::json!({
                "id": live.about.id,
                "codecs": live.about.codecs,
                "width": live.about.video.map(|video| video.width),
                "height": live.about.video.map(|video| video.height),
                "bits_per_second": (bytes * 8_000_000).checked_div(us),
                "first_segment": live.window.first_number(),
                "next_segment": live.window.next_number(),
            })
        })
        .collect();
    serde_json::json!({
        "name": stream.name,
        "playlist": format!("/live/{}/index.m3u8", stream.name),
        "health": health,
        "low_latency": state.is_low_latency(),
        "webrtc": has_peers && webrtc::is_offered(&state),
        "viewers": stream.viewers.load(Ordering::Relaxed),
        "received_bytes": stream.received.load(Ordering::Relaxed),
        "delivered_bytes": stream.delivered.load(Ordering::Relaxed),
        "seconds": state.began.elapsed().as_secs(),
        "last_chunk_ms": state.last_chunk.elapsed().as_millis() as u64,
        "renditions": renditions,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use peers::{PlaceLimits, Places, Proxies};

    use super::*;
    use crate::elsewhere::{OtherNode, Redirect};

    /// A client that asks for one stream and the other takes one place, however often, and gives it back.
    #[test]
    fn a_connection_takes_one_place_of_a_node() {
        let places = Places::new(PlaceLimits::new(9, "max_connections"), |_| ());
        let addresses = Arc::new(addresses::Addresses::new(places, 0, Proxies::default()));
        let place = addresses.place(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        let [a, b] = ["a", "b"].map(|name| Arc::new(Stream::of_test(name)));
        let own = Arc::new(Elsewhere::new(Redirect::Overloaded, false));
        let node =
            OtherNode { url: "http://b".into(), streams: Arc::new(["a".to_owned()].into()), room: 100 };
        own.set_others(vec![node]);
        own.set_room(2);
        let request = Request::of("/live/a/index.m3u8", "");
        let is_full = || own.playlist("a", &request, false, &mut SentTo::default()).is_some();
        let mut watching = Watching::of(place);
        for _ in 0..10 {
            assert!(!watching.switch_to(&a, 0, Some(&own)), "the stream is full");
            assert!(watching.switch_to(&a, 1, Some(&own)) && watching.switch_to(&b, 1, Some(&own)));
        }
        assert!(!is_full());
        own.take_room();
        assert!(is_full());
        drop(watching);
        assert!(!is_full());
    }
}
