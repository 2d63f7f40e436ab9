//! RTMP connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use peers::Place;
use rblive_media::flv::{Demuxer, FlvError};
use rblive_media::unit::Input;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::access::Claim;
use crate::counters::IngestCounters;
use crate::rate::Rate;
use crate::registry::{Gone, Publisher, Registry};
use crate::rtmp::{Session, SessionError, SessionEvent};
use crate::stream::{Stream, StreamFailure};

/// The bytes that are read at once, before a publish and after it.
const STRANGERS_READ: usize = 4 << 10;
const PUBLISHERS_READ: usize = 64 << 10;
/// How long a peer may take to read why its connection ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RtmpFailure {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Flv(#[from] FlvError),
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the peer did not publish, or sent nothing, for limits.idle_ms = {0}")]
    Idle(u64),
    #[error("the encoder sent more than limits.bytes_per_second = {0}")]
    Rate(u64),
    #[error(transparent)]
    Gone(#[from] Gone),
    #[error("the publisher was refused: {0}")]
    Refused(String),
}

/// The publisher of a connection.
struct Publishing {
    publisher: Publisher,
    name: String,
    demuxer: Demuxer,
}

/// A connection.
struct Connection<S> {
    socket: S,
    address: IpAddr,
    registry: Arc<Registry>,
    session: Session,
    rate: Rate,
    publishing: Option<Publishing>,
}

/// Serves a connection until it ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    address: IpAddr,
    registry: Arc<Registry>,
    place: &Place,
) -> Result<(), RtmpFailure> {
    let limits = &registry.settings.limits;
    let (session, rate) = (Session::new(limits.message_bytes), Rate::new(limits.bytes_per_second));
    let mut connection = Connection { socket, address, registry, session, rate, publishing: None };
    match connection.run(place).await {
        // An encoder that is stopped often leaves without a word.
        Err(RtmpFailure::Io(error)) if let Some(own) = &connection.publishing => {
            tracing::info!(stream = own.name, "the connection of the encoder broke: {error}");
            Ok(())
        }
        Err(failure) => {
            connection.tell(&failure).await;
            Err(failure)
        }
        Ok(()) => Ok(()),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self, place: &Place) -> Result<(), RtmpFailure> {
        let limits = self.registry.settings.limits.clone();
        let mut buffer = vec![0; STRANGERS_READ];
        let idle = Duration::from_millis(limits.idle_ms);
        let mut deadline = Instant::now() + idle;
        loop {
            // A peer that does not publish yet has one such time for all of its messages.
            if self.publishing.is_some() {
                deadline = Instant::now() + idle;
            }
            let read = timeout_at(deadline, self.socket.read(&mut buffer)).await;
            let count = read.map_err(|_| RtmpFailure::Idle(limits.idle_ms))??;
            if count == 0 {
                return Ok(());
            }
            IngestCounters::count(&self.registry.counters.bytes, count as u64);
            if !self.rate.allows(count) {
                return Err(RtmpFailure::Rate(limits.bytes_per_second));
            }
            self.session.receive(&buffer[..count]);
            let outcome = events(&mut self.session, &self.registry, self.address, &mut self.publishing).await;
            if self.publishing.is_some() {
                place.known();
                buffer.resize(PUBLISHERS_READ, 0);
            }
            outcome?;
            let sent = timeout(idle, self.send()).await;
            sent.map_err(|_| RtmpFailure::Idle(limits.idle_ms))??;
        }
    }

    async fn send(&mut self) -> std::io::Result<()> {
        let output = self.session.take_output();
        if output.is_empty() {
            return Ok(());
        }
        self.socket.write_all(&output).await?;
        self.socket.flush().await
    }

    /// Tells the encoder why its connection ends. What it sends meanwhile is read, since a socket that is closed with unread bytes takes
    /// back what it has sent.
    async fn tell(&mut self, failure: &RtmpFailure) {
        if let RtmpFailure::Io(_) = failure {
            return;
        }
        // Others may publish the stream now.
        self.publishing = None;
        if !matches!(failure, RtmpFailure::Refused(_)) {
            self.session.fail(&failure.to_string());
        }
        let last = async {
            self.send().await?;
            self.socket.shutdown().await?;
            let mut buffer = [0; STRANGERS_READ];
            loop {
                let count = self.socket.read(&mut buffer).await?;
                if count == 0 || !self.rate.allows(count) {
                    return std::io::Result::Ok(());
                }
            }
        };
        // A peer that does not hear it goes without.
        let _ = timeout(LAST_WORDS, last).await;
    }
}

async fn events(
    session: &mut Session,
    registry: &Arc<Registry>,
    address: IpAddr,
    publishing: &mut Option<Publishing>,
) -> Result<(), RtmpFailure> {
    while let Some(event) = session.next_event()? {
        let input = match event {
            SessionEvent::Publish { app, name } => {
                *publishing = Some(publish(session, registry, address, &app, &name).await?);
                continue;
            }
            SessionEvent::Unpublish => {
                if let Some(ended) = publishing.take() {
                    tracing::info!(stream = ended.name, "the encoder has ended its stream");
                }
                continue;
            }
            event => event,
        };
        let Some(current) = publishing.as_mut() else { continue };
        let input = match input {
            SessionEvent::Audio { timestamp, payload } => current.demuxer.audio(timestamp, &payload)?,
            SessionEvent::Video { timestamp, payload } => current.demuxer.video(timestamp, &payload)?,
            SessionEvent::Tracks { video, audio, bits_per_second } => {
                let most = registry.settings.limits.bytes_per_second.saturating_mul(8);
                let announce = |stream: &mut Stream| {
                    stream.announce_rate(bits_per_second.min(most));
                    Ok(())
                };
                current.publisher.with(announce)??;
                Some(Input::Tracks { video, audio })
            }
            SessionEvent::Publish { .. } | SessionEvent::Unpublish => None,
        };
        if let Some(input) = input {
            current.publisher.with(|stream| stream.push(input))??;
        }
    }
    Ok(())
}

/// The name of a stream that an encoder publishes. Encoders have no rule which part of `live/stage/camera` is the application.
fn full_name(app: &str, name: &str) -> String {
    match app.strip_prefix("live/").unwrap_or(app) {
        "" | "live" => name.to_owned(),
        app => format!("{app}/{name}"),
    }
}

/// `rtmp://host/live/NAME?key=KEY` (or `?user=USER&password=PASSWORD`) publishes NAME; what an application has besides `live` is a part of the name.
async fn publish(
    session: &mut Session,
    registry: &Arc<Registry>,
    address: IpAddr,
    app: &str,
    name: &str,
) -> Result<Publishing, RtmpFailure> {
    let (name, query) = name.split_once('?').unwrap_or((name, ""));
    let value = |name| crate::query::value(query, name);
    let (user, key) = (value("user"), value("key").or_else(|| value("password")));
    let claim = Claim { key, user, is_user: false, address, protocol: "rtmp" };
    let name = full_name(app, name);
    match registry.publish(&name, &claim).await {
        Ok(publisher) => {
            session.accept();
            tracing::info!(stream = name, "an encoder publishes by RTMP");
            let name = publisher.name.clone();
            Ok(Publishing { publisher, name, demuxer: Demuxer::new() })
        }
        Err(refusal) => {
            registry.count_refusal();
            session.refuse(&refusal.to_string());
            Err(RtmpFailure::Refused(refusal.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn a_name_is_the_same_wherever_its_application_ends() {
        let names =
            [("live", "stage/camera"), ("live/stage", "camera"), ("", "stage/camera"), ("stage", "camera")];
        assert!(names.iter().all(|(app, name)| full_name(app, name) == "stage/camera"));
        assert_eq!(full_name("live/", "camera"), "camera");
    }
}
