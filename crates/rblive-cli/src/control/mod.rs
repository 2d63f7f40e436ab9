//! Control calls over HTTP, and metrics.
//!
//! | Call | What it does |
//! |---|---|
//! | `GET /streams` | the streams that the node sends and receives, and its nodes, as JSON |
//! | `PUT /streams/ID/nodes/NODE` | lets a node have a stream |
//! | `DELETE /streams/ID/nodes/NODE` | takes the stream away |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /health` | `ok` |

mod metrics;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rblive::{NodeId, RsId, RsManager, StreamError};
use rblive_ingest::Ingest;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use super::config::Control;
use super::failure::Failure;

/// The longest time for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The longest life of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// The largest head of a request in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The pause after a connection that the system could not accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

type Answer = Response<Full<Bytes>>;

/// A running endpoint. Dropping it stops the endpoint.
pub struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts an endpoint on a thread of its own.
    pub fn start(rs: RsManager, ingest: Option<Arc<Ingest>>, settings: &Control) -> Result<Self, Failure> {
        let listen = &settings.listen;
        let refused = |error| Failure::Failed(format!("cannot listen for HTTP on {listen}: {error}"));
        let listener = TcpListener::bind(listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(refused)?;
        let (stop, stopped) = oneshot::channel();
        let calls = Arc::new(Calls { rs, ingest, token: settings.token.clone() });
        let most = settings.max_connections;
        let serve = move || {
            runtime.block_on(async move {
                tokio::spawn(accept(listener, calls, most));
                // A dropped sender stops the endpoint too.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("rblive-http".to_owned()).spawn(serve);
        Ok(Self { address, stop: Some(stop), thread: Some(thread.map_err(refused)?) })
    }

    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, calls: Arc<Calls>, most: usize) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the control endpoint cannot start: {error}"),
    };
    let slots = Arc::new(Semaphore::new(most));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let calls = calls.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_TIME, serve(stream, calls)).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("a control connection was not accepted: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, calls: Arc<Calls>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = calls.answer(request.method(), request.uri().path(), token_of(&request));
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a control connection ended: {error}");
    }
}

fn token_of(request: &Request<Incoming>) -> Option<&str> {
    request.headers().get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// The parts of the node that answer calls.
struct Calls {
    rs: RsManager,
    ingest: Option<Arc<Ingest>>,
    token: String,
}

impl Calls {
    fn answer(&self, method: &Method, path: &str, token: Option<&str>) -> Answer {
        if path == "/health" && method == Method::GET {
            return text(StatusCode::OK, "ok\n".to_owned());
        }
        if !self.token.is_empty() && !same(token.unwrap_or_default(), &self.token) {
            return text(StatusCode::UNAUTHORIZED, "this call needs the token of control.token\n".to_owned());
        }
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            (&Method::GET, ["metrics"]) => {
                let page = metrics::page(&self.rs, self.ingest.as_deref().map(Ingest::counters));
                answer(StatusCode::OK, "text/plain; version=0.0.4", page)
            }
            (&Method::GET, ["streams"]) => {
                answer(StatusCode::OK, "application/json", format!("{}\n", streams(&self.rs)))
            }
            (&Method::PUT | &Method::DELETE, ["streams", id, "nodes", node]) => {
                self.change(method == Method::PUT, id, node)
            }
            (_, ["metrics" | "streams" | "health"] | ["streams", _, "nodes", _]) => {
                text(StatusCode::METHOD_NOT_ALLOWED, "no such method here\n".to_owned())
            }
            _ => text(StatusCode::NOT_FOUND, "there are /streams, /metrics and /health\n".to_owned()),
        }
    }

    /// Adds or removes a node of a stream.
    fn change(&self, add: bool, id: &str, node: &str) -> Answer {
        let (Ok(id), Ok(node)) = (id.parse::<RsId>(), node.parse::<NodeId>()) else {
            let said = "a stream is named by the 16 digits of its id, a node by its number\n";
            return text(StatusCode::BAD_REQUEST, said.to_owned());
        };
        let done = match add {
            true => self.rs.set_outbound(node, id).map(|()| true),
            false => self.rs.remove_outbound(node, id),
        };
        match done {
            Ok(true) => text(StatusCode::OK, String::new()),
            Ok(false) => text(StatusCode::NOT_FOUND, format!("node {node} does not get this stream\n")),
            Err(error @ (StreamError::NoSuchStream(_) | StreamError::NoSuchNode(_))) => {
                text(StatusCode::NOT_FOUND, format!("{error}\n"))
            }
            Err(error) => text(StatusCode::CONFLICT, format!("{error}\n")),
        }
    }
}

/// Whether two texts are equal, in a time that depends on their lengths only.
fn same(given: &str, wanted: &str) -> bool {
    let differ = given.bytes().zip(wanted.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == wanted.len() && differ == 0
}

fn streams(rs: &RsManager) -> serde_json::Value {
    let sent = rs.outbound().into_iter().map(|stream| {
        json!({ "id": stream.id.to_string(), "name": &*stream.name, "created_here": stream.created_here,
            "nodes": stream.nodes, "chunks": stream.chunks, "bytes": stream.bytes,
            "capacity_bytes": stream.capacity_bytes })
    });
    let received = rs.inbound().into_iter().map(|stream| {
        json!({ "id": stream.id.to_string(), "name": &*stream.name, "from": stream.from,
            "connected": stream.connected, "chunks": stream.chunks, "bytes": stream.bytes,
            "lost_bytes": stream.lost_bytes })
    });
    let peers = rs.peers().into_iter().map(|peer| {
        json!({ "node": peer.node, "name": peer.name, "connected": peer.connected, "carrier": peer.carrier })
    });
    let node = rs.node();
    json!({ "node": { "id": node.id, "name": node.name }, "sends": sent.collect::<Vec<_>>(),
        "receives": received.collect::<Vec<_>>(), "peers": peers.collect::<Vec<_>>() })
}

fn text(status: StatusCode, body: String) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

fn answer(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use rblive::Config;
    use rblive_ingest::IngestCounters;

    use super::*;

    fn calls(token: &str) -> Calls {
        Calls { rs: RsManager::new(Config::default()).unwrap(), ingest: None, token: token.to_owned() }
    }

    #[test]
    fn a_stream_is_given_to_a_node_and_taken_away() {
        let calls = calls("");
        let id = calls.rs.create_stream("a").unwrap();
        let status = |method: Method, path: &str| calls.answer(&method, path, None).status();
        let path = format!("/streams/{id}/nodes/1");
        assert_eq!(status(Method::DELETE, &path), StatusCode::NOT_FOUND);
        assert_eq!(status(Method::PUT, &path), StatusCode::OK);
        assert_eq!(calls.rs.outbound()[0].nodes, [1]);
        assert_eq!(status(Method::DELETE, &path), StatusCode::OK);
        assert!(calls.rs.outbound()[0].nodes.is_empty());
        assert_eq!(status(Method::PUT, &format!("/streams/{id}/nodes/9")), StatusCode::NOT_FOUND);
        assert_eq!(status(Method::PUT, "/streams/x/nodes/1"), StatusCode::BAD_REQUEST);
        assert_eq!(status(Method::POST, &path), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(status(Method::GET, "/nothing"), StatusCode::NOT_FOUND);
        assert!(metrics::page(&calls.rs, None).contains("rblive_sent_streams 1\n"));
    }

    #[test]
    fn no_row_of_the_metrics_is_there_twice() {
        let calls = calls("");
        for _ in 0..2 {
            let id = calls.rs.create_stream("a").unwrap();
            calls.rs.set_outbound(1, id).unwrap();
        }
        while calls.rs.inbound().len() < 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let counters = IngestCounters::default();
        let page = metrics::page(&calls.rs, Some(&counters));
        assert!(page.contains("rblive_ingest_publishers_total 0\n"), "{page}");
        let mut rows: Vec<_> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.rsplit_once(' ').unwrap().0)
            .collect();
        let all = rows.len();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), all, "{page}");
    }

    #[test]
    fn a_token_is_asked_for() {
        let calls = calls("secret");
        let status = |token| calls.answer(&Method::GET, "/streams", token).status();
        assert_eq!(status(None), StatusCode::UNAUTHORIZED);
        assert_eq!(status(Some("secreT")), StatusCode::UNAUTHORIZED);
        assert_eq!(status(Some("secret")), StatusCode::OK);
        assert_eq!(calls.answer(&Method::GET, "/health", None).status(), StatusCode::OK);
    }
}
