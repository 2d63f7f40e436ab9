//! The peers of a node: offers are answered here, and the thread that serves them is started and stopped.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::rand;
use peers::{PlaceLimits, Places, TurnedAway};
use str0m::change::SdpOffer;
use str0m::crypto::from_feature_flags;
use str0m::rtp::{Extension, ExtensionMap};
use str0m::{Candidate, IceCreds, RtcConfig};

use crate::counters::Counters;
use crate::engine::Engine;
use crate::offer::{self, OfferError};
use crate::port::Port;
use crate::session::{Joining, Parts, Session, Tracks};
use crate::settings::Settings;
use crate::shared::{Shared, name_of};
use crate::source::{Source, Watcher};

/// The datagrams of a viewer that are kept, so that they can be sent again: half a second of a stream of 4 Mbit/s.
const KEPT_DATAGRAMS: usize = 256;

/// Sessions beyond the places of viewers: those that have made room for others, and that the thread has not ended yet.
const MAX_LEAVING: usize = 64;

/// The time between two reckonings of what a viewer lost.
const STATISTICS: Duration = Duration::from_secs(2);

/// Why there are no peers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The port cannot be opened.
    #[error("cannot listen for WebRTC on {listen} (webrtc.listen): {source}; choose another address")]
    Listen {
        /// The configured address.
        listen: String,
        /// The system's error.
        source: io::Error,
    },
    /// An address for viewers is none.
    #[error("webrtc.addresses: {0} is no address; write 203.0.113.7 or 203.0.113.7:8443")]
    Address(String),
    /// The system refused a thread, or a descriptor.
    #[error("cannot start the thread of WebRTC: {0}")]
    System(io::Error),
    /// No certificate could be made.
    #[error("cannot make a certificate for WebRTC")]
    Certificate,
}

/// Why an offer is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The fault is in the offer.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// There are too many viewers.
    #[error("there are as many viewers by WebRTC as there may be")]
    Full(#[from] TurnedAway),
    /// The stream cannot be sent.
    #[error("{0}")]
    Unfit(&'static str),
    /// Viewers come faster than others that never connected are gone.
    #[error("too many viewers ask at once; try again in some seconds")]
    Busy,
    /// The node does not know its address.
    #[error("the node does not know at which address viewers reach it: set webrtc.addresses")]
    NoAddress,
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandom,
}

/// A viewer's offer.
pub struct Offer<'a> {
    /// The offer: SDP.
    pub body: &'a [u8],
    /// The address of the viewer, for which limits count.
    pub client: IpAddr,
    /// The address of this node at which the offer arrived.
    pub reached: Option<IpAddr>,
    /// What the viewer watches. All viewers with the same name share a source.
    pub stream: &'a str,
    /// Where the frames come from, if nobody else watches the stream.
    pub source: Box<dyn Source>,
    /// The viewer, until it is gone.
    pub watcher: Box<dyn Watcher>,
    /// When the viewer's right to watch ends.
    pub until: Option<SystemTime>,
}

/// The answer to an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The answer: SDP.
    pub sdp: String,
    /// The name of the session, for [`Hub::leave`]. Nobody guesses it.
    pub session: String,
}

/// The peers of a node. Dropping it disconnects them.
#[derive(Debug)]
pub struct Hub {
    shared: Arc<Shared>,
    config: RtcConfig,
    places: Places,
    /// The most sessions.
    most: usize,
    /// The addresses that viewers are told. Empty: the one at which their offer arrived.
    addresses: Vec<SocketAddr>,
    listens: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Hub {
    /// Opens the port, and starts the thread.
    ///
    /// # Errors
    /// [`StartError`]: the port is taken, a setting is wrong, or the system refuses.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let listen = settings.listen.clone();
        let port = Port::open(&listen).map_err(|source| StartError::Listen { listen, source })?;
        let listens = port.address();
        let addresses = addresses(settings, listens)?;
        let shared = Arc::new(Shared::new().map_err(StartError::System)?);
        let engine = Engine::new(shared.clone(), port);
        let config = config().ok_or(StartError::Certificate)?;
        let thread = threads::spawn("rblive-webrtc", || engine.run()).map_err(StartError::System)?;
        let mut limits = PlaceLimits::new(settings.max_viewers, "webrtc.max_viewers");
        limits.of_host_setting = "webrtc.max_viewers_per_address";
        if settings.max_viewers_per_address > 0 {
            limits.of_host = settings.max_viewers_per_address;
        }
        let places = Places::new(limits, |line| tracing::warn!("WebRTC: {line}"));
        let most = settings.max_viewers.saturating_add(MAX_LEAVING);
        Ok(Self { shared, config, places, most, addresses, listens, thread: Some(thread) })
    }

    /// The address of the port.
    pub fn address(&self) -> SocketAddr {
        self.listens
    }

    /// The counts of what happened so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Answers a viewer's offer. The viewer gets the stream from its next key frame on.
    ///
    /// # Errors
    /// [`AnswerError`]: the offer is none, or there is no place for it.
    pub fn answer(&self, offer: Offer<'_>) -> Result<Answer, AnswerError> {
        let answered = self.try_answer(offer);
        let counters = self.counters();
        Counters::add(if answered.is_ok() { &counters.answered } else { &counters.refused });
        answered
    }

    fn try_answer(&self, offer: Offer<'_>) -> Result<Answer, AnswerError> {
        let Offer { body, client, reached, stream, mut source, watcher, until } = offer;
        let text = offer::checked(body)?;
        if self.shared.sessions.lock().len() >= self.most {
            return Err(AnswerError::Busy);
        }
        let now = Instant::now();
        let candidates = self.candidates(reached).ok_or(AnswerError::NoAddress)?;
        let [number, pass] = [random::<8>()?, random()?].map(u64::from_be_bytes);
        let secret = random()?;
        let pass = format!("{pass:016x}{:016x}", u64::from_be_bytes(random()?));
        let creds = IceCreds { ufrag: format!("{number:016x}"), pass };
        let unreadable = |error: &dyn std::fmt::Display| OfferError::Unreadable(shown(&error.to_string()));
        let parsed = SdpOffer::from_sdp_string(&text).map_err(|error| unreadable(&error))?;
        let mut rtc = self.config.clone().set_local_ice_credentials(creds).build(now);
        for address in &candidates {
            let candidate = Candidate::host(*address, "udp").map_err(|error| unreadable(&error))?;
            rtc.add_local_candidate(candidate);
        }
        let sdp = rtc.sdp_api().accept_offer(parsed).map_err(|error| unreadable(&error))?.to_sdp_string();
        let tracks = Tracks::of(&mut rtc, &sdp).ok_or(OfferError::NoCodec)?;
        // Nobody has to make room for an offer that cannot be answered.
        let place = self.places.enter(client, now)?;
        source.check().map_err(AnswerError::Unfit)?;
        let stream = stream.into();
        let parts = Parts { number, secret, stream, rtc, place, watcher, candidates, tracks, until };
        let joining = Joining { session: Session::new(parts, now), source };
        let has_joined = self.shared.join(joining, self.most);
        has_joined.then(|| Answer { sdp, session: name_of(number, &secret) }).ok_or(AnswerError::Busy)
    }

    /// The addresses at which a viewer whose offer arrived at `reached` reaches the port.
    fn candidates(&self, reached: Option<IpAddr>) -> Option<Vec<SocketAddr>> {
        if !self.addresses.is_empty() {
            return Some(self.addresses.clone());
        }
        let own = if self.listens.ip().is_unspecified() { reached? } else { self.listens.ip() };
        Some(vec![SocketAddr::new(own.to_canonical(), self.listens.port())])
    }

    /// Disconnects a viewer. False: there is no session of this name.
    pub fn leave(&self, session: &str) -> bool {
        self.shared.leave(session)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What all sessions have in common: one certificate, the codecs, and no more extensions of RTP than are of use.
fn config() -> Option<RtcConfig> {
    let crypto = Arc::new(from_feature_flags());
    let certificate = crypto.dtls_provider.generate_certificate()?;
    let mut extensions = ExtensionMap::empty();
    extensions.set(4, Extension::RtpMid);
    let config = RtcConfig::new()
        .set_crypto_provider(crypto)
        .set_dtls_cert(certificate)
        .set_ice_lite(true)
        .clear_codecs()
        .enable_h264(true)
        .enable_opus(true)
        .set_extension_map(extensions)
        .set_send_buffer_video(KEPT_DATAGRAMS)
        .set_stats_interval(Some(STATISTICS));
    Some(config)
}

/// The addresses that viewers are told, as they are set.
fn addresses(settings: &Settings, listens: SocketAddr) -> Result<Vec<SocketAddr>, StartError> {
    let parsed = |text: &String| {
        let whole = text.parse::<SocketAddr>().ok();
        whole
            .or_else(|| Some(SocketAddr::new(text.parse().ok()?, listens.port())))
            .filter(|own| !own.ip().is_unspecified() && own.port() > 0)
            .ok_or_else(|| StartError::Address(text.clone()))
    };
    settings.addresses.iter().map(parsed).collect()
}

fn random<const N: usize>() -> Result<[u8; N], AnswerError> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| AnswerError::NoRandom)?;
    Ok(bytes)
}

/// What an error says of a stranger's text, as a line that may be shown.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use str0m::Rtc;
    use str0m::media::{Direction, MediaKind};

    use super::*;
    use crate::source::{Bell, News};

    /// A source that holds up the thread until the other end of the channel is dropped.
    struct Held(Receiver<()>);

    impl Source for Held {
        fn start(&mut self, _: Bell) {}

        fn take(&mut self, _: &mut Vec<News>) {
            let _ = self.0.recv();
        }
    }

    struct Anybody;

    impl Watcher for Anybody {
        fn sent(&self, _: usize) {}
    }

    fn offer() -> String {
        let mut rtc = Rtc::new(Instant::now());
        let mut changes = rtc.sdp_api();
        changes.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        changes.apply().unwrap().0.to_sdp_string()
    }

    #[test]
    fn offers_that_come_faster_than_strangers_go_are_refused() {
        let hub =
            Hub::start(&Settings { listen: "127.0.0.1:0".into(), max_viewers: 2, ..Settings::default() })
                .unwrap();
        let (release, held) = sync_channel::<()>(0);
        let mut held = Some(Held(held));
        let body = offer();
        let mut answer = || {
            let (_, idle) = sync_channel::<()>(0);
            let source = Box::new(held.take().unwrap_or(Held(idle)));
            let (client, watcher) = ([127, 0, 0, 1].into(), Box::new(Anybody));
            hub.answer(Offer {
                body: body.as_bytes(),
                client,
                reached: None,
                stream: "cam",
                source,
                watcher,
                until: None,
            })
        };
        let all: Vec<_> = (0..3 * MAX_LEAVING).map(|_| answer().err()).collect();
        assert_eq!(all.iter().filter(|own| own.is_none()).count(), 2 + MAX_LEAVING);
        assert_eq!(all.last(), Some(&Some(AnswerError::Busy)));
        assert_eq!(hub.shared.sessions.lock().len(), 2 + MAX_LEAVING);
        drop(release);
        testkit::until("those that made room are gone", || hub.shared.sessions.lock().len() <= 2);
        assert_eq!(answer().err(), None);
    }

    #[test]
    fn an_offer_that_cannot_be_answered_takes_no_place() {
        let hub = Hub::start(&Settings { listen: "127.0.0.1:0".into(), ..Settings::default() }).unwrap();
        let body = offer().replace("H264/90000", "H264X/90000");
        let (_, idle) = sync_channel::<()>(0);
        let (client, source, watcher) = ([127, 0, 0, 1].into(), Box::new(Held(idle)), Box::new(Anybody));
        let offer = Offer {
            body: body.as_bytes(),
            client,
            reached: None,
            stream: "cam",
            source,
            watcher,
            until: None,
        };
        assert_eq!(hub.answer(offer), Err(AnswerError::Offer(OfferError::NoCodec)));
        assert_eq!(hub.places.taken(), 0);
    }
}
