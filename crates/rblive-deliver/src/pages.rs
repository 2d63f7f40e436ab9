//! All addresses of the server.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::answer::{Answer, Cache, Request};
use crate::catalog::{Catalog, Stream};
use crate::counters::Counters;
use crate::live::{self, parse};
use crate::settings::Settings;
use crate::{metrics, token};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The pages of a server.
#[derive(Debug)]
pub(crate) struct Pages {
    pub catalog: Arc<Catalog>,
    pub settings: Settings,
    pub counters: Counters,
}

/// The stream that a connection watches, so that viewers are counted.
#[derive(Debug, Default)]
pub(crate) struct Watching(Option<Arc<Stream>>);

impl Watching {
    /// Whether the connection may watch `stream`, from now on instead of another.
    pub fn switch_to(&mut self, stream: &Arc<Stream>, most: usize) -> bool {
        if self.0.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream)) {
            return true;
        }
        if stream.viewers.fetch_add(1, Ordering::Relaxed) >= most {
            stream.viewers.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let before = self.0.replace(stream.clone());
        drop(Self(before));
        true
    }

    /// Counts media that was sent.
    pub fn sent(&self, bytes: usize) {
        if let Some(stream) = &self.0 {
            stream.delivered.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.viewers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Pages {
    /// Answers a request. `method` is the method as it was sent.
    pub async fn answer(
        &self,
        method: &str,
        request: &Request,
        watching: &parking_lot::Mutex<Watching>,
    ) -> Answer {
        let answer = match method {
            "GET" | "HEAD" => self.get(request, watching).await.for_request(request),
            "OPTIONS" => Answer::of(204, "text/plain", Cache::No, ""),
            _ => Answer::text(405, "viewers may GET, HEAD and OPTIONS"),
        };
        self.counters.answered(answer.status);
        answer
    }

    async fn get(&self, request: &Request, watching: &parking_lot::Mutex<Watching>) -> Answer {
        if let Some(path) = request.path.strip_prefix("/live/") {
            return self.live(path, request, watching).await;
        }
        match request.path.as_str() {
            "/" => page(HTML, include_str!("../assets/page.html")),
            "/page.js" => page(SCRIPT, include_str!("../assets/page.js")),
            "/hls.js" => page(SCRIPT, include_str!("../assets/hls.light.min.js")),
            "/hls.LICENSE" => page("text/plain; charset=utf-8", include_str!("../assets/hls.LICENSE")),
            "/health" => Answer::text(200, "ok"),
            "/ready" if self.catalog.streams().is_empty() => Answer::text(503, "no stream yet"),
            "/ready" => Answer::text(200, "ok"),
            "/streams" => Answer::of(200, "application/json", Cache::No, self.streams()),
            "/metrics" => match metrics::text(&self.catalog, &self.counters) {
                Ok(text) => Answer::of(
                    200,
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    Cache::No,
                    text,
                ),
                Err(error) => Answer::text(500, error.to_string()),
            },
            _ => Answer::text(404, "there is nothing at this address; / lists the streams"),
        }
    }

    async fn live(&self, path: &str, request: &Request, watching: &parking_lot::Mutex<Watching>) -> Answer {
        let Some((name, target)) = parse(path) else {
            return Answer::text(
                404,
                "there is nothing at this address; a stream is at /live/NAME/index.m3u8",
            );
        };
        let mut query = String::new();
        if let Some(key) = &self.settings.token_key {
            let own = request.query.split('&').find_map(|pair| pair.strip_prefix("token="));
            if let Err(error) = token::check(key, name, own) {
                return Answer::text(403, error.to_string());
            }
            // A valid token has digits, a dot and letters only.
            let _ = write!(query, "?token={}", own.unwrap_or(""));
        }
        let Some(stream) = self.catalog.stream(name) else {
            return Answer::text(404, "there is no such stream");
        };
        if live::is_watching(&target)
            && !watching.lock().switch_to(&stream, self.settings.max_viewers_per_stream)
        {
            return Answer::text(503, "the stream has as many viewers as it may have");
        }
        live::answer(&stream, target, request, &query).await
    }

    fn streams(&self) -> String {
        let all: Vec<_> = self.catalog.streams().iter().map(|stream| row(stream)).collect();
        serde_json::json!({ "streams": all }).to_string()
    }
}

fn page(kind: &'static str, text: &'static str) -> Answer {
    let etag = Some(format!("\"{:08x}\"", crc32c::crc32c(text.as_bytes())));
    Answer { etag, ..Answer::of(200, kind, Cache::For(60), Bytes::from_static(text.as_bytes())) }
}

fn row(stream: &Stream) -> serde_json::Value {
    let state = stream.state.lock();
    let health = match (state.is_ended(), state.is_stalled()) {
        (true, _) => "ended",
        (_, true) => "stalled",
        _ => "live",
    };
    let renditions: Vec<_> = state
        .renditions
        .iter()
        .map(|live| {
            let (bytes, us) = live
                .track
                .segments()
                .fold((0, 0), |(bytes, us), own| (bytes + own.bytes(), us + own.duration_us));
            serde_json::json!({
                "id": live.about.id,
                "codecs": live.about.codecs,
                "width": live.about.resolution.map(|size| size.0),
                "height": live.about.resolution.map(|size| size.1),
                "bits_per_second": (bytes * 8_000_000).checked_div(us),
                "first_segment": live.track.first_number(),
                "next_segment": live.track.next_number(),
            })
        })
        .collect();
    serde_json::json!({
        "name": stream.name,
        "playlist": format!("/live/{}/index.m3u8", stream.name),
        "health": health,
        "low_latency": state.is_low_latency(),
        "viewers": stream.viewers.load(Ordering::Relaxed),
        "received_bytes": stream.received.load(Ordering::Relaxed),
        "delivered_bytes": stream.delivered.load(Ordering::Relaxed),
        "seconds": state.began.elapsed().as_secs(),
        "last_chunk_ms": state.last_chunk.elapsed().as_millis() as u64,
        "renditions": renditions,
    })
}
