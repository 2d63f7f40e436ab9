//! Gateways: `[[gateway]]`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use settings::{bytes, millis, optional_bytes, optional_millis, section};

use super::broker::{are_the_same, is_address};
use super::endpoint::{EndpointClients, EndpointTls};
use super::error::BrokerConfigError;

/// The largest number of gateways. Each has a thread.
const MAX_GATEWAYS: usize = 16;

/// The address of a gateway for clients of WebSocket that sets none.
const WEBSOCKET_ADDRESS: &str = "127.0.0.1:9001";

section! {
    /// The broker's settings outside of all sections.
    OutsideSettings {
        /// Gateways: clients of other systems publish to and subscribe to topics of this broker, in their own protocols. Default none, at
        /// most 16. Each has a thread and `frames_bytes` of memory.
        gateway: Vec<GatewaySettings> = Vec::new();
    }
}

/// The protocol of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum GatewayProtocol {
    /// Redis' RESP2 and RESP3: publish and subscribe.
    Resp,
    /// MQTT 3.1.1 and 5.
    Mqtt,
}

impl GatewayProtocol {
    /// The name in a configuration, and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Mqtt => "mqtt",
        }
    }

    /// The address of a gateway that sets none.
    fn address(self) -> &'static str {
        match self {
            Self::Resp => "127.0.0.1:6379",
            Self::Mqtt => "127.0.0.1:1883",
        }
    }
}

impl fmt::Display for GatewayProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens to a client that is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SlowClient {
    /// The client is disconnected.
    Disconnect,
    /// The client loses messages, and stays.
    Drop,
}

/// An entry of `[[gateway]]`: clients of another system, in their own protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GatewaySettings {
    /// The protocol: `resp` for clients of Redis, `mqtt` for clients of MQTT.
    pub protocol: GatewayProtocol,
    /// The address to listen on. Default `127.0.0.1:6379` for `resp`, `127.0.0.1:1883` for `mqtt`, and `127.0.0.1:9001` with `websocket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// MQTT: the name of the gateway, of letters, digits, `-` and `_`, at most 64: its journal is the folder `+mqtt.NAME` in `broker.keep_dir`, wherever the
    /// entry is in the list. Default none: then the folder goes by the place of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// MQTT: whether clients connect by WebSocket, as pages in browsers do, and not directly. Default false. An entry of the same protocol
    /// beside this one takes the others.
    #[serde(default)]
    pub websocket: bool,
    /// WebSocket: the sites whose pages may connect, as `https://dash.example` or `http://localhost:8080`; `*` for all. Default none: then only
    /// programs connect, which name no site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// Whether connections are encrypted: `auto`, as `tls.mode` says; `off`; or `require`. Default `auto`.
    #[serde(default)]
    pub tls: EndpointTls,
    /// The file with the certificate of the gateway in PEM. Default: `tls.cert`, `tls.key` and `tls.ca` are those of the gateway too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// The file with the key of `cert` in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The file with the certificates of the authorities that sign the clients' certificates, in PEM. Default `tls.ca`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Whether clients are asked for certificates: `none`, `optional` or `require`. Default `none`. A client whose certificate is of a user
    /// (`users.file`) is that user and need not log in.
    #[serde(default)]
    pub client_certificates: EndpointClients,
    /// The largest number of connections. Default 10,000, 1 to 1,000,000. A connection costs a file descriptor and about 2 KiB; with TLS 1.3 5 KiB, with
    /// TLS 1.2 more.
    #[serde(default = "GatewaySettings::default_max_connections")]
    pub max_connections: usize,
    /// The largest message of a client, in bytes. Default: what fits into the ring of a topic, and into a quarter of `frames_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub max_message_bytes: Option<u64>,
    /// What waits for a client at most, in bytes, before it is too slow. Default 8 MiB, at least 64 KiB, at most half of `frames_bytes`.
    #[serde(default = "GatewaySettings::default_max_lag_bytes", deserialize_with = "bytes")]
    pub max_lag_bytes: u64,
    /// The ring with the messages that wait for clients, in bytes: one for all clients of the gateway. Default 16 MiB, 1 MiB to 1 GiB.
    #[serde(default = "GatewaySettings::default_frames_bytes", deserialize_with = "bytes")]
    pub frames_bytes: u64,
    /// What happens to a client for which more than `max_lag_bytes` waits: `disconnect` or `drop`. Default `disconnect` for `resp`, as Redis
    /// does, and `drop` for `mqtt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowClient>,
    /// Time within which a client must have shown who it is, in milliseconds; with TLS, also the time for the handshake before it. Default
    /// 10,000, 100 to 600,000.
    #[serde(default = "GatewaySettings::default_login_timeout_ms", deserialize_with = "millis")]
    pub login_timeout_ms: u32,
    /// MQTT: the largest number of sessions, with and without a client. Default 100,000. A session costs about 500 bytes, and what waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<usize>,
    /// MQTT: how long a session lives without a client at most, in milliseconds. Default 24 hours, at most 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_millis")]
    pub max_session_expiry_ms: Option<u32>,
    /// MQTT: the largest number of filters of a session. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_subscriptions: Option<usize>,
    /// MQTT: the largest number of messages that wait for a session. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued_messages: Option<usize>,
    /// MQTT: the largest number of messages of QoS 1 and 2 that a client has not acknowledged. Default 100, at most 65,535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_inflight: Option<u16>,
    /// MQTT: the largest number of retained messages. Default 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retained: Option<usize>,
    /// MQTT: the most bytes of retained messages. Default 256 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub max_retained_bytes: Option<u64>,
}

impl GatewaySettings {
    /// A gateway of a protocol with default settings.
    pub fn new(protocol: GatewayProtocol) -> Self {
        Self {
            protocol,
            listen: None,
            name: None,
            websocket: false,
            origins: Vec::new(),
            tls: EndpointTls::Auto,
            cert: None,
            key: None,
            ca: None,
            client_certificates: EndpointClients::None,
            max_connections: Self::default_max_connections(),
            max_message_bytes: None,
            max_lag_bytes: Self::default_max_lag_bytes(),
            frames_bytes: Self::default_frames_bytes(),
            slow: None,
            login_timeout_ms: Self::default_login_timeout_ms(),
            max_sessions: None,
            max_session_expiry_ms: None,
            max_subscriptions: None,
            max_queued_messages: None,
            max_inflight: None,
            max_retained: None,
            max_retained_bytes: None,
        }
    }

    fn default_max_connections() -> usize {
        10_000
    }

    fn default_max_lag_bytes() -> u64 {
        8 << 20
    }

    fn default_frames_bytes() -> u64 {
        16 << 20
    }

    fn default_login_timeout_ms() -> u32 {
        10_000
    }

    /// The address to listen on.
    pub fn address(&self) -> &str {
        let default = if self.websocket { WEBSOCKET_ADDRESS } else { self.protocol.address() };
        self.listen.as_deref().unwrap_or(default)
    }

    /// What happens to a client that is too slow.
    pub fn slow(&self) -> SlowClient {
        self.slow.unwrap_or(match self.protocol {
            GatewayProtocol::Resp => SlowClient::Disconnect,
            GatewayProtocol::Mqtt => SlowClient::Drop,
        })
    }

    /// `login_timeout_ms` as a duration.
    pub fn login_timeout(&self) -> Duration {
        Duration::from_millis(self.login_timeout_ms.into())
    }

    /// The largest message of a client, in bytes, beside topics whose ring has so many.
    pub fn largest_message(&self, ring_bytes: u64) -> u64 {
        self.max_message_bytes.unwrap_or((ring_bytes / 4).min(self.frames_bytes / 4))
    }

    /// Whether connections are encrypted, beside connections whose setting `tls.mode` is `mode`.
    pub fn is_encrypted(&self, mode: &str) -> bool {
        self.tls.is_encrypted(mode)
    }

    /// The certificates of the gateway: its own files, or those of the broker's connections, whose settings are `transport`. None: connections
    /// are not encrypted.
    #[cfg(feature = "tls")]
    pub fn credentials(&self, transport: &rocketbufs::config::TlsSettings) -> Option<tls13::Credentials> {
        let files = super::endpoint::EndpointFiles {
            cert: self.cert.as_deref().unwrap_or_default(),
            key: self.key.as_deref().unwrap_or_default(),
            ca: self.ca.as_deref().unwrap_or_default(),
            clients: self.client_certificates,
            names: tls13::SettingNames {
                cert: "gateway.cert",
                key: "gateway.key",
                ca: "gateway.ca",
                crl: "tls.crl",
                client_certificates: "gateway.client_certificates",
            },
            protocols: &[],
        };
        self.is_encrypted(&transport.mode).then(|| files.credentials(transport))
    }

    fn problem(&self, mode: &str) -> Option<(&'static str, String)> {
        let address = self.address();
        if !is_address(address) {
            let problem = format!("listen = {address:?}: it must be a host and a port, as in 127.0.0.1:6379");
            return Some(("listen", problem));
        }
        let within = |field, value: u64, min: u64, max: u64| {
            let problem = format!("{field} = {value}: it must be {min} to {max}");
            (!(min..=max).contains(&value)).then_some((field, problem))
        };
        let lag = self.max_lag_bytes;
        let ranges = within("max_connections", self.max_connections as u64, 1, 1_000_000)
            .or_else(|| within("frames_bytes", self.frames_bytes, 1 << 20, 1 << 30))
            .or_else(|| within("max_lag_bytes", lag, 64 << 10, self.frames_bytes / 2))
            .or_else(|| within("login_timeout_ms", self.login_timeout_ms.into(), 100, 600_000))
            .or_else(|| within("max_message_bytes", self.max_message_bytes?, 1, self.frames_bytes / 4));
        ranges
            .or_else(|| self.problem_of_name())
            .or_else(|| self.problem_of_mqtt())
            .or_else(|| self.problem_of_web())
            .or_else(|| self.problem_of_tls(mode))
    }

    fn problem_of_name(&self) -> Option<(&'static str, String)> {
        let name = self.name.as_deref()?;
        if self.protocol != GatewayProtocol::Mqtt {
            return Some(("name", "name is a setting of mqtt".into()));
        }
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let is_name = (1..=64).contains(&name.len()) && name.chars().all(is_letter);
        (!is_name).then(|| ("name", format!("name = {name:?}: it must be 1 to 64 letters, digits, - and _")))
    }

    /// A setting of MQTT that is out of its range, or of another gateway.
    fn problem_of_mqtt(&self) -> Option<(&'static str, String)> {
        let most = 100_000_000;
        let wide = |value: Option<usize>| value.map(|value| value as u64);
        [
            ("max_sessions", wide(self.max_sessions), most),
            ("max_session_expiry_ms", self.max_session_expiry_ms.map(u64::from), 30 * 24 * 3_600_000),
            ("max_subscriptions", wide(self.max_subscriptions), most),
            ("max_queued_messages", wide(self.max_queued_messages), most),
            ("max_inflight", self.max_inflight.map(u64::from), u16::MAX.into()),
            ("max_retained", wide(self.max_retained), most),
            ("max_retained_bytes", self.max_retained_bytes, 1 << 40),
        ]
        .into_iter()
        .find_map(|(field, value, most)| match value? {
            _ if self.protocol != GatewayProtocol::Mqtt => {
                Some((field, format!("{field} is a setting of mqtt")))
            }
            value if (1..=most).contains(&value) => None,
            value => Some((field, format!("{field} = {value}: it must be 1 to {most}"))),
        })
    }

    fn problem_of_web(&self) -> Option<(&'static str, String)> {
        if self.websocket && self.protocol != GatewayProtocol::Mqtt {
            return Some(("websocket", "websocket is a setting of mqtt".into()));
        }
        if !self.websocket && !self.origins.is_empty() {
            return Some(("origins", "origins are for pages in browsers: set websocket = true".into()));
        }
        let origin = self.origins.iter().find(|origin| !is_origin(origin))?;
        let problem = format!(
            "origins: {origin:?}: it must be a scheme, a host and perhaps a port, as in https://dash.example, or *"
        );
        Some(("origins", problem))
    }

    fn problem_of_tls(&self, mode: &str) -> Option<(&'static str, String)> {
        match (&self.cert, &self.key) {
            (Some(_), None) => return Some(("cert", "cert is set and key is not".into())),
            (None, Some(_)) => return Some(("key", "key is set and cert is not".into())),
            _ => {}
        }
        // An operator who asks for certificates believes that nobody gets in without one.
        let asks = self.client_certificates != EndpointClients::None;
        (asks && !self.is_encrypted(mode)).then(|| {
            ("client_certificates", "client_certificates needs TLS: set tls = \"require\" too".into())
        })
    }
}

/// Whether a browser sends this as the origin of a page, or it is the word for all.
fn is_origin(text: &str) -> bool {
    let host = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, host)| host);
    text == "*"
        || text == "null"
        || host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', ' ', '@']))
}

/// `PROTOCOL`, or `PROTOCOL:ADDRESS`.
impl FromStr for GatewaySettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, address) =
            text.split_once(':').map_or((text, None), |(protocol, address)| (protocol, Some(address)));
        let protocol = match protocol {
            "resp" => GatewayProtocol::Resp,
            "mqtt" => GatewayProtocol::Mqtt,
            other => return Err(format!("'{other}' is no protocol of gateways; there are resp and mqtt")),
        };
        let gateway = Self { listen: address.map(str::to_owned), ..Self::new(protocol) };
        gateway.problem("off").map_or(Ok(gateway), |(_, problem)| Err(problem))
    }
}

/// Checks all entries. `mode` is `tls.mode`, and `taken` are the addresses of other endpoints.
pub(super) fn check(all: &[GatewaySettings], mode: &str, taken: &[&str]) -> Result<(), BrokerConfigError> {
    if all.len() > MAX_GATEWAYS {
        let (name, value, expects) = ("gateway", all.len() as u64, "at most 16 entries");
        return Err(BrokerConfigError::Value { name, value, expects });
    }
    for (entry, gateway) in all.iter().enumerate() {
        let others = taken.iter().copied().chain(all[..entry].iter().map(GatewaySettings::address));
        let address = gateway.address();
        let problem = gateway.problem(mode).or_else(|| {
            let other = { others }.find(|other| are_the_same(other, address))?;
            Some(("listen", format!("listen = {address:?}: {other:?} is the address of another endpoint")))
        });
        let problem = problem.or_else(|| {
            // Some file systems do not tell their case apart.
            let name = gateway.name.as_ref()?;
            let others = all[..entry].iter().filter_map(|other| other.name.as_ref());
            let other = { others }.find(|other| other.eq_ignore_ascii_case(name))?;
            Some(("name", format!("name = {name:?}: {other:?} is the name of another gateway")))
        });
        if let Some((field, problem)) = problem {
            let message = format!("{}: {problem}", gateway.protocol);
            return Err(BrokerConfigError::Gateway { entry, field, message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_of(text: &str) -> Result<Vec<GatewaySettings>, String> {
        #[derive(Deserialize)]
        struct File {
            gateway: Vec<GatewaySettings>,
        }
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let taken = ["127.0.0.1:7411", "127.0.0.1:7412"];
        check(&file.gateway, "off", &taken).map_err(|error| error.to_string())?;
        Ok(file.gateway)
    }

    #[test]
    fn entries_have_the_defaults_of_their_protocol() {
        let both = check_of(
            "[[gateway]]\nprotocol = 'resp'\n[[gateway]]\nprotocol = 'mqtt'\nmax_lag_bytes = '1 MiB'\nlogin_timeout_ms = '2s'\n",
        )
        .unwrap();
        assert_eq!(both[0], GatewaySettings::new(GatewayProtocol::Resp));
        assert_eq!((both[0].address(), both[0].slow()), ("127.0.0.1:6379", SlowClient::Disconnect));
        assert_eq!((both[1].address(), both[1].slow()), ("127.0.0.1:1883", SlowClient::Drop));
        assert_eq!((both[1].max_lag_bytes, both[1].login_timeout()), (1 << 20, Duration::from_secs(2)));
        assert_eq!("resp".parse(), Ok(both[0].clone()));
        let web = check_of(
            "[[gateway]]\nprotocol = 'mqtt'\n[[gateway]]\nprotocol = 'mqtt'\nwebsocket = true\norigins = ['http://[::1]:8080', 'null', '*']\n",
        );
        assert_eq!(web.unwrap()[1].address(), "127.0.0.1:9001");
        let elsewhere: GatewaySettings = "mqtt:[::1]:1".parse().unwrap();
        assert_eq!((elsewhere.protocol, elsewhere.address()), (GatewayProtocol::Mqtt, "[::1]:1"));
    }

    #[test]
    fn wrong_entries_have_a_reason() {
        for (entries, says) in [
            ("protocol = 'nats'", "unknown variant `nats`"),
            ("protocol = 'resp'\nlisten = '6379'", "resp: listen = \"6379\": it must be a host and a port"),
            ("protocol = 'resp'\nmax_connections = 0", "max_connections = 0: it must be 1 to 1000000"),
            ("protocol = 'mqtt'\nframes_bytes = 1", "mqtt: frames_bytes = 1: it must be 1048576 to "),
            (
                "protocol = 'mqtt'\nframes_bytes = '1 MiB'\nmax_lag_bytes = '1 MiB'",
                "it must be 65536 to 524288",
            ),
            ("protocol = 'mqtt'\nmax_message_bytes = '5 MiB'", "it must be 1 to 4194304"),
            ("protocol = 'mqtt'\nlogin_timeout_ms = 1", "it must be 100 to 600000"),
            ("protocol = 'mqtt'\ncert = 'c'", "cert is set and key is not"),
            ("protocol = 'mqtt'\nkey = 'k'", "key is set and cert is not"),
            ("protocol = 'mqtt'\nclient_certificates = 'require'", "needs TLS: set tls"),
            ("protocol = 'resp'\nlisten = 'localhost:7411'", "\"127.0.0.1:7411\" is the address of another"),
            ("protocol = 'resp'\nlisten = '0.0.0.0:7412'", "the address of another endpoint"),
            ("protocol = 'resp'\n[[gateway]]\nprotocol = 'resp'", "\"127.0.0.1:6379\" is the address of"),
            ("protocol = 'resp'\nmax_sessions = 1", "resp: max_sessions is a setting of mqtt"),
            ("protocol = 'resp'\nname = 'a'", "resp: name is a setting of mqtt"),
            ("protocol = 'mqtt'\nname = ''", "name = \"\": it must be 1 to 64 letters, digits, - and _"),
            ("protocol = 'mqtt'\nname = '../a'", "name = \"../a\": it must be 1 to 64 letters"),
            (
                "protocol = 'mqtt'\nname = 'a'\n[[gateway]]\nprotocol = 'mqtt'\nlisten = 'localhost:1'\nname = 'A'",
                "mqtt: name = \"A\": \"a\" is the name of another gateway",
            ),
            ("protocol = 'mqtt'\nmax_inflight = 0", "max_inflight = 0: it must be 1 to 65535"),
            ("protocol = 'mqtt'\nmax_session_expiry_ms = '745h'", "it must be 1 to 2592000000"),
            ("protocol = 'resp'\nport = 1", "unknown field `port`"),
            ("protocol = 'resp'\nwebsocket = true", "resp: websocket is a setting of mqtt"),
            ("protocol = 'mqtt'\norigins = ['*']", "set websocket = true"),
            (
                "protocol = 'mqtt'\nwebsocket = true\norigins = ['https://a/']",
                "origins: \"https://a/\": it must be",
            ),
            ("protocol = 'mqtt'\nwebsocket = true\norigins = ['a.example']", "it must be a scheme, a host"),
        ] {
            let error = check_of(&format!("[[gateway]]\n{entries}\n")).unwrap_err();
            assert!(error.contains(says), "{entries}: {error}");
        }
        let many: String =
            (0..17).map(|n| format!("[[gateway]]\nprotocol = 'resp'\nlisten = 'h:{n}'\n")).collect();
        assert_eq!(check_of(&many).unwrap_err(), "gateway = 17: it must be at most 16 entries");
        for (text, says) in [("nats", "there are resp and mqtt"), ("resp:x", "a host and a port")] {
            let error = text.parse::<GatewaySettings>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
