//! The gateways of a broker.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rbmq::{ConnectError, TopicOpenError};
use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings, Reception, SlowClient};
use rocketbufs::error::{ConnError, DownReason};
use rocketbufs::{CloseCode, Context};
use rustls::ServerConfig;
use tls13::{Handshake, Reloadable, Versions};
use tracing::{info, warn};

use crate::floor::connections::Slow;
use crate::floor::start::{Options, Running, StartError, prepare};
use crate::floor::wake::Bell;
use crate::floor::web_socket::Welcome;
use crate::floor::worker::NewHandshake;
use crate::mqtt::{Clock, Journal, JournalError, Mqtt, Overflow, Settings as MqttSettings, unix_ms};
use crate::protocol::Protocol;
use crate::resp::machine::{Resp, Settings as RespSettings};
use crate::way::{Connected, Link, Way};

/// The most bytes of a reply with entries of streams, beyond its last entry; less with a smaller log of frames, so that what waits for several clients
/// has room.
const MAX_REPLY_BYTES: usize = 8 << 20;

/// A gateway does not start. The text says whose fault it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The system does not let it listen.
    #[error(
        "the {protocol} gateway cannot listen on {address}: {source}; set gateway.listen to a free address"
    )]
    Listen {
        /// The protocol.
        protocol: GatewayProtocol,
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// Its certificates cannot be used.
    #[error("the {protocol} gateway on {address}: {reason}")]
    Tls {
        /// The protocol.
        protocol: GatewayProtocol,
        /// The address.
        address: String,
        /// The reason.
        reason: String,
    },
    /// It cannot publish to or subscribe at its broker.
    #[error("a gateway does not reach its broker: {0}")]
    Broker(String),
    /// It cannot connect to its broker.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Its broker is lost while it starts, or does not answer in time.
    #[error("a gateway waits for its broker in vain: {0}")]
    Away(String),
    /// The journal of its sessions cannot be used.
    #[error("the {protocol} gateway cannot use the journal of its sessions: {reason} (broker.keep_dir)")]
    Journal {
        /// The protocol.
        protocol: GatewayProtocol,
        /// The reason.
        reason: String,
    },
    /// The system refuses a thread or a descriptor.
    #[error("a gateway cannot start: {0}")]
    System(#[from] io::Error),
}

impl GatewayError {
    /// Whether the broker may be there later, as the machines of a network start in any order: then another attempt may succeed.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Connect(ConnectError::Broker { source, .. }) => match source {
                // A name may be resolved later, too.
                ConnError::TimedOut { .. }
                | ConnError::Down(DownReason::Transport(_) | DownReason::NotStarted(_)) => true,
                // It stops, or has no place at the moment.
                ConnError::Down(DownReason::Peer { code, .. }) => {
                    matches!(
                        code,
                        CloseCode::Normal | CloseCode::ShuttingDown | CloseCode::Limit | CloseCode::Timeout
                    )
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// The running gateways of a broker, as its configuration lists them. Dropping them stops them in order: clients get what is queued, at most for
/// a second each.
///
/// ```
/// use std::io::{BufRead, BufReader, Write};
/// use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings};
/// use rbmq_gateway::Gateways;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = BrokerConfig::default();
/// config.broker.listen = "127.0.0.1:0".into();
/// let mut redis = GatewaySettings::new(GatewayProtocol::Resp);
/// redis.listen = Some("127.0.0.1:0".into());
/// config.outside.gateway.push(redis);
/// let broker = Broker::start(config)?;
/// let gateways = Gateways::start(&broker)?;
///
/// let mut client = std::net::TcpStream::connect(gateways.list()[0].address())?;
/// client.write_all(b"PUBLISH news hello\r\n")?;
/// let mut reply = String::new();
/// BufReader::new(client).read_line(&mut reply)?;
/// assert_eq!(reply, ":0\r\n");
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Gateways(Vec<Gateway>);

/// A running gateway.
pub struct Gateway {
    protocol: GatewayProtocol,
    running: Running,
    tls: Option<Arc<Certificates>>,
    /// Of its connections to the broker.
    context: Context,
}

type Certificates = Reloadable<Arc<ServerConfig>, String>;

impl Gateways {
    /// Starts the gateways of a broker's configuration, which soon [serve](Self::are_serving).
    ///
    /// # Errors
    /// One of them does not start; then none runs.
    pub fn start(broker: &Broker) -> Result<Self, GatewayError> {
        if broker.config().gateways().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let gate = broker.gate().map_err(|error| GatewayError::Broker(error.to_string()))?;
        Self::start_by(Way::Inside(&gate, broker.config()))
    }

    /// Starts the gateways of a configuration in a process without a broker. Their clients are those of the reception, and meet at the broker of
    /// the link. While that is away, clients stay connected.
    ///
    /// ```
    /// use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings, Reception};
    /// use rbmq_gateway::{Gateways, Link};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// # let broker = Broker::start(config)?;
    /// let mut config = BrokerConfig::default();
    /// let mut redis = GatewaySettings::new(GatewayProtocol::Resp);
    /// redis.listen = Some("127.0.0.1:0".into());
    /// config.outside.gateway.push(redis);
    /// let reception = Reception::open(config)?;
    /// let gateways = Gateways::start_beside(&reception, &Link::new(&broker.addr()))?;
    /// println!("clients of Redis at {}", gateways.list()[0].address());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// One of them does not start; then none runs. The broker is not there, or refuses the login or a space of the link.
    pub fn start_beside(reception: &Reception, link: &Link) -> Result<Self, GatewayError> {
        Self::start_by(Way::Beside(reception, link))
    }

    fn start_by(way: Way<'_>) -> Result<Self, GatewayError> {
        let (config, journals) = (way.config(), journal_folders(way.config()));
        warn_of_unused(Path::new(&config.broker.keep_dir), &journals);
        let all = config.gateways().iter().zip(journals);
        let all = all.map(|(settings, journal)| Gateway::prepare(way, settings, journal));
        let mut all = Self(all.collect::<Result<_, _>>()?);
        // None serves clients before the broker has taken the subscriptions of all.
        all.0.iter_mut().try_for_each(|gateway| gateway.running.start())?;
        Ok(all)
    }

    /// Whether all of them serve clients: what their sessions have subscribed to is in force. Until then clients that connect wait.
    pub fn are_serving(&self) -> bool {
        self.0.iter().all(|gateway| gateway.running.is_serving())
    }

    /// Whether one of them has ended by itself: its thread has failed, or it receives nothing more. The log says why.
    pub fn has_ended(&self) -> bool {
        self.0.iter().any(|gateway| gateway.running.has_ended())
    }

    /// The gateways, in the order of the configuration.
    pub fn list(&self) -> &[Gateway] {
        &self.0
    }

    /// Reads the certificates again, for new connections of clients and to the broker. After an error nothing changes for its gateway.
    ///
    /// # Errors
    /// The first setting and file that cannot be used.
    pub fn reload(&self) -> Result<(), String> {
        let mut first = Ok(());
        for tls in self.0.iter().filter_map(|gateway| gateway.tls.as_ref()) {
            first = first.and(tls.reload());
        }
        for gateway in &self.0 {
            let reloaded = gateway.context.reload_tls().map(drop);
            first = first.and(reloaded.map_err(|error| format!("the way to the broker: {error}")));
        }
        first
    }
}

impl Gateway {
    fn prepare(
        way: Way<'_>,
        settings: &GatewaySettings,
        journal: Option<PathBuf>,
    ) -> Result<Self, GatewayError> {
        let (protocol, address, config) = (settings.protocol, settings.address(), way.config());
        let tls = certificates(config, settings).map_err(|reason| GatewayError::Tls {
            protocol,
            address: address.to_owned(),
            reason,
        })?;
        let listener = TcpListener::bind(address).map_err(|source| GatewayError::Listen {
            protocol,
            address: address.to_owned(),
            source,
        })?;
        let options = Options {
            spaces: way.spaces(),
            foreign: way.foreign(),
            name: format!("rbmq-{protocol}"),
            listener,
            handshake: tls.as_ref().map(new_handshake),
            web: settings
                .websocket
                .then(|| Welcome { protocol: "mqtt", origins: settings.origins.clone().into() }),
            max_connections: settings.max_connections,
            max_message_bytes: settings.largest_message(config.framework.buffers.size_bytes),
            max_lag_bytes: settings.max_lag_bytes,
            frames_bytes: usize::try_from(settings.frames_bytes).unwrap_or(usize::MAX),
            slow: match settings.slow() {
                SlowClient::Drop => Slow::Drop,
                _ => Slow::Disconnect,
            },
            stranger_timeout: settings.login_timeout(),
        };
        let journal = journal.map(|dir| {
            let opened = Journal::open(&dir, config.broker.keep_sync());
            opened.map_err(|error| no_journal(protocol, &error))
        });
        let (running, context) = serve(way, settings, options, journal.transpose()?)?;
        Ok(Self { protocol, running, tls, context })
    }

    /// The protocol.
    pub fn protocol(&self) -> GatewayProtocol {
        self.protocol
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }
}

/// Prepares a gateway with the protocol of its settings.
fn serve(
    way: Way<'_>,
    settings: &GatewaySettings,
    options: Options,
    journal: Option<Journal>,
) -> Result<(Running, Context), GatewayError> {
    match settings.protocol {
        GatewayProtocol::Resp => {
            let own = RespSettings {
                max_message_bytes: options.max_message_bytes,
                max_reply_bytes: MAX_REPLY_BYTES.min(options.frames_bytes / 8),
                version: env!("CARGO_PKG_VERSION"),
                began: SystemTime::now(),
            };
            begin(way, settings, options, Resp::new(own, Instant::now()))
        }
        GatewayProtocol::Mqtt => {
            let own = mqtt_settings(settings, options.max_message_bytes);
            // By this number it knows its own messages again, and nobody else does.
            let gateway = RandomState::new().build_hasher().finish();
            let mqtt = match journal {
                Some(journal) => Mqtt::with_journal(own, Clock::now(), gateway, journal)
                    .map_err(|error| no_journal(settings.protocol, &error))?,
                None => {
                    info!(
                        "MQTT: sessions and retained messages end with this process (broker.keep_dir is empty)"
                    );
                    Mqtt::new(own, Clock::now(), gateway)
                }
            };
            begin(way, settings, options, mqtt)
        }
        other => Err(GatewayError::Broker(format!("the protocol {other} is not served"))),
    }
}

fn no_journal(protocol: GatewayProtocol, error: &JournalError) -> GatewayError {
    GatewayError::Journal { protocol, reason: error.to_string() }
}

/// The folder of each gateway's journal. No topic has such a folder: there, `+` is written otherwise.
fn journal_folders(config: &BrokerConfig) -> Vec<Option<PathBuf>> {
    let dir = &config.broker.keep_dir;
    let mut so_far = 0;
    let folder = |settings: &GatewaySettings| {
        if dir.is_empty() || settings.protocol != GatewayProtocol::Mqtt {
            return None;
        }
        so_far += 1;
        let name = match &settings.name {
            Some(name) => format!("+mqtt.{name}"),
            None if so_far == 1 => "+mqtt".to_owned(),
            // The place counts, with and without names before: whoever names a gateway takes no other's journal.
            None => format!("+mqtt-{so_far}"),
        };
        Some(Path::new(dir).join(name))
    };
    config.gateways().iter().map(folder).collect()
}

/// Tells people of journals that no gateway uses any more: their sessions and retained messages are not lost, but nobody gets them.
fn warn_of_unused(dir: &Path, used: &[Option<PathBuf>]) {
    for unused in unused_journals(dir, used) {
        warn!(
            "{}: no gateway of MQTT uses this journal; the folder goes by the name of the gateway (gateway.name), or by its place in the \
             configuration (broker.keep_dir)",
            unused.display()
        );
    }
}

fn unused_journals(dir: &Path, used: &[Option<PathBuf>]) -> Vec<PathBuf> {
    // Without a folder there is nothing to tell.
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let is_journal = |path: &PathBuf| {
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("+mqtt"));
        name.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    let found = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_journal);
    found.filter(|path| used.iter().flatten().all(|used| used != path)).collect()
}

fn mqtt_settings(settings: &GatewaySettings, max_message_bytes: u64) -> MqttSettings {
    let default = MqttSettings::default();
    let expiry = settings.max_session_expiry_ms.map(|ms| Duration::from_millis(ms.into()));
    let retained_bytes =
        settings.max_retained_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    MqttSettings {
        max_message_bytes: usize::try_from(max_message_bytes).unwrap_or(usize::MAX),
        connect_timeout: settings.login_timeout(),
        wall_clock: Some(unix_ms),
        overflow: match settings.slow() {
            SlowClient::Drop => Overflow::DropNewest,
            _ => Overflow::Disconnect,
        },
        max_sessions: settings.max_sessions.unwrap_or(default.max_sessions),
        max_session_expiry: expiry.unwrap_or(default.max_session_expiry),
        max_subscriptions: settings.max_subscriptions.unwrap_or(default.max_subscriptions),
        max_queued_messages: settings.max_queued_messages.unwrap_or(default.max_queued_messages),
        max_inflight: settings.max_inflight.unwrap_or(default.max_inflight),
        max_retained: settings.max_retained.unwrap_or(default.max_retained),
        max_retained_bytes: retained_bytes.unwrap_or(default.max_retained_bytes),
        ..default
    }
}

fn begin<P: Protocol + Send + 'static>(
    way: Way<'_>,
    settings: &GatewaySettings,
    options: Options,
    protocol: P,
) -> Result<(Running, Context), GatewayError> {
    let Connected { context, publisher, subscriber, receiving } = way.connect(&options.name)?;
    let address = options.listener.local_addr()?.to_string();
    let door = |bell: &Bell| way.open(settings, &address, bell, receiving);
    let prepared = prepare(options, protocol, door, publisher, subscriber);
    prepared.map(|running| (running, context)).map_err(|error| match error {
        StartError::System(error) => GatewayError::System(error),
        StartError::NotSettled(_) | StartError::Open(TopicOpenError::TimedOut { .. }) => {
            GatewayError::Away(error.to_string())
        }
        other => GatewayError::Broker(other.to_string()),
    })
}

impl Drop for Gateways {
    fn drop(&mut self) {
        // All at once: each has a second for its clients.
        self.0.iter().for_each(|gateway| gateway.running.ask_to_stop());
    }
}

fn certificates(
    config: &BrokerConfig,
    settings: &GatewaySettings,
) -> Result<Option<Arc<Certificates>>, String> {
    let Some(credentials) = settings.credentials(&config.framework.tls) else { return Ok(None) };
    let load = move || {
        let config = credentials.server_of(Versions::Tls12And13).map_err(|error| error.to_string())?;
        config.ok_or_else(|| {
            "it is encrypted and has no certificate: set gateway.cert and gateway.key, or tls.cert and tls.key (rbmq keygen makes \
             both), or tls = \"off\""
                .to_owned()
        })
    };
    Reloadable::new(load).map(|certificates| Some(Arc::new(certificates)))
}

fn new_handshake(certificates: &Arc<Certificates>) -> NewHandshake {
    let certificates = certificates.clone();
    Arc::new(move || Handshake::accept(certificates.current()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_waited_for_unless_it_refuses() {
        let is_away = |reason| {
            let source = ConnError::Down(reason);
            GatewayError::from(ConnectError::Broker { addr: "broker:7411".into(), source }).is_away()
        };
        let peer = |code| is_away(DownReason::Peer { code, text: String::new() });
        assert!(is_away(DownReason::NotStarted("the name is not known yet".into())));
        for code in [CloseCode::Normal, CloseCode::ShuttingDown, CloseCode::Limit, CloseCode::Timeout] {
            assert!(peer(code), "{code:?}");
        }
        for code in [CloseCode::NotAccepted, CloseCode::Version, CloseCode::Protocol] {
            assert!(!peer(code), "{code:?}");
        }
        assert!(!GatewayError::Broker("it refuses".into()).is_away());
    }

    #[test]
    fn journals_that_no_gateway_uses_are_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        for name in ["+mqtt", "+mqtt-2", "+mqtt-3", "+mqtt.a", "+mqtt.b", "+mqttx", "mqtt", "sensors"] {
            std::fs::create_dir(path(name)).expect("a folder");
        }
        let used = [None, Some(path("+mqtt")), Some(path("+mqtt-3")), Some(path("+mqtt.a"))];
        let mut unused = unused_journals(dir.path(), &used);
        unused.sort();
        assert_eq!(unused, [path("+mqtt-2"), path("+mqtt.b")]);
        assert!(unused_journals(&path("none"), &used).is_empty());
    }

    #[test]
    fn a_journal_goes_by_the_name_of_its_gateway_or_by_its_place() {
        let mut config = BrokerConfig::default();
        config.broker.keep_dir = "/keep".into();
        let gateway = |name: Option<&str>| {
            let mut settings = GatewaySettings::new(GatewayProtocol::Mqtt);
            settings.name = name.map(str::to_owned);
            settings
        };
        let resp = GatewaySettings::new(GatewayProtocol::Resp);
        config.outside.gateway = vec![resp, gateway(Some("a")), gateway(None), gateway(None)];
        let folders = journal_folders(&config);
        let names = [None, Some("/keep/+mqtt.a"), Some("/keep/+mqtt-2"), Some("/keep/+mqtt-3")];
        assert_eq!(folders, names.map(|name| name.map(PathBuf::from)));
        config.outside.gateway.remove(1);
        assert_eq!(journal_folders(&config)[1], Some(PathBuf::from("/keep/+mqtt")));
    }
}
