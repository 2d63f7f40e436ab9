//! Listeners that other machines can reach, and what protects them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use toml::Value;

use super::{BrokerConfig, GatewayProtocol};

/// A listener that other machines can reach without the protection that it needs. The text says what is missing and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exposed {
    /// The broker's address.
    Broker {
        /// The configured address.
        addr: String,
        /// Whether connections are encrypted.
        tls: bool,
        /// Whether clients have to log in.
        users: bool,
    },
    /// The address of the HTTP endpoint.
    Http {
        /// The configured address.
        addr: String,
        /// Whether connections are encrypted.
        tls: bool,
        /// Whether clients need a token, or a certificate.
        token: bool,
    },
    /// The address of a gateway.
    Gateway {
        /// The protocol.
        protocol: GatewayProtocol,
        /// The configured address.
        addr: String,
        /// Whether connections are encrypted.
        tls: bool,
        /// Whether clients have to log in.
        users: bool,
    },
}

/// The answers to a client of an open endpoint.
const READS: &str = "who reaches it sees the names and rates of all topics";

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker { addr, tls, users } => {
                write!(f, "other machines can reach {addr}, and the broker has {}", lacks(*tls, *users))?;
                if !tls {
                    write!(
                        f,
                        "\n  TLS: rbmq keygen makes certificates; then set tls.mode = \"require\", tls.cert and tls.key"
                    )?;
                }
                write_users(f, *users)?;
            }
            Self::Gateway { protocol, addr, tls, users } => {
                let lacks = lacks(*tls, *users);
                write!(f, "other machines can reach the gateway ({protocol}) at {addr}, and it has {lacks}")?;
                if !tls {
                    write!(
                        f,
                        "\n  TLS: rbmq keygen makes certificates; then set tls = \"require\" in [[gateway]], and tls.cert and tls.key (or \
                         cert and key in [[gateway]])"
                    )?;
                }
                write_users(f, *users)?;
            }
            Self::Http { addr, tls, token } => {
                let (missing, danger) = match (tls, token) {
                    (false, false) => ("it has neither TLS nor a token", READS),
                    (false, true) => ("it has no TLS", "who is on the way reads the token, and all pages"),
                    (true, _) => ("it asks for no token", READS),
                };
                write!(f, "other machines can reach the HTTP endpoint at {addr}, and {missing}: {danger}")?;
                if !tls {
                    write!(
                        f,
                        "\n  TLS: rbmq keygen makes certificates; then set http.tls = \"require\", and tls.cert and tls.key (or http.cert \
                         and http.key)"
                    )?;
                }
                if !token {
                    write!(
                        f,
                        "\n  token: head -c 24 /dev/urandom | base64 > FILE && chmod 600 FILE; then set http.token_file (or \
                         http.client_certificates = \"require\")"
                    )?;
                }
            }
        }
        write!(
            f,
            "\n  or listen on 127.0.0.1 alone, or accept it: --insecure (access.insecure = true), in a network that you trust"
        )
    }
}

/// The protection that clients who publish and subscribe need and do not have, and the danger.
fn lacks(tls: bool, users: bool) -> &'static str {
    match (tls, users) {
        (false, false) => "neither TLS nor users: who reaches it can publish and read everything",
        (false, true) => "no TLS: who is on the way can read everything, passwords too",
        (true, _) => "no users: who reaches it can publish and read everything",
    }
}

fn write_users(f: &mut fmt::Formatter<'_>, users: bool) -> fmt::Result {
    match users {
        true => Ok(()),
        false => f.write_str(
            "\n  users: rbmq passwd makes a file of users; then set users.file, and [[access.rules]]",
        ),
    }
}

impl BrokerConfig {
    /// The listeners that other machines can reach without protection. Empty if `access.insecure` accepts that.
    ///
    /// ```
    /// # use rbmq_broker::BrokerConfig;
    /// let mut config = BrokerConfig::default();
    /// assert!(config.exposed().is_empty());
    /// config.broker.listen = "0.0.0.0:7411".into();
    /// assert!(config.exposed()[0].to_string().contains("neither TLS nor users"));
    /// config.access.insecure = true;
    /// assert!(config.exposed().is_empty());
    /// ```
    pub fn exposed(&self) -> Vec<Exposed> {
        let mut exposed = Vec::new();
        if self.access.insecure {
            return exposed;
        }
        if self.is_broker_reachable() {
            let (tls, users) = (self.text("tls.mode") == "require", self.users.is_required());
            if !(tls && users) {
                exposed.push(Exposed::Broker { addr: self.broker.listen.clone(), tls, users });
            }
        }
        if reachable(&self.http.listen) {
            let (tls, token) = (self.http.is_encrypted(&self.framework.tls.mode), self.http.knows_clients());
            if !(tls && token) {
                exposed.push(Exposed::Http { addr: self.http.listen.clone(), tls, token });
            }
        }
        for gateway in self.gateways().iter().filter(|gateway| reachable(gateway.address())) {
            let (tls, users) = (gateway.is_encrypted(&self.framework.tls.mode), self.users.is_required());
            if !(tls && users) {
                let (protocol, addr) = (gateway.protocol, gateway.address().to_owned());
                exposed.push(Exposed::Gateway { protocol, addr, tls, users });
            }
        }
        exposed
    }

    /// Whether other machines can reach the broker's address, or that of a gateway.
    pub fn is_reachable(&self) -> bool {
        self.is_broker_reachable() || self.gateways().iter().any(|gateway| reachable(gateway.address()))
    }

    fn is_broker_reachable(&self) -> bool {
        reachable(&self.broker.listen)
    }

    /// Whether a broker without users takes every client that reaches its HTTP endpoint: the broker asks for no certificate, and the same
    /// machines reach it.
    pub(crate) fn is_as_open_as_endpoint(&self) -> bool {
        let ips = |addr: &str| -> Vec<IpAddr> {
            let all = peers::resolve(addr).unwrap_or_default();
            all.into_iter().map(|addr| addr.ip().to_canonical()).collect()
        };
        let own = ips(&self.broker.listen);
        let covers = |ip: &IpAddr| loopback(*ip) || own.iter().any(|own| own.is_unspecified() || own == ip);
        self.text("tls.client_certificates") != "require" && ips(&self.http.listen).iter().all(covers)
    }

    /// The value of a setting that is a text; empty if it is unset.
    fn text(&self, name: &str) -> String {
        let value =
            self.settings().into_iter().find(|setting| setting.name == name).and_then(|found| found.value);
        if let Some(Value::String(text)) = value { text } else { String::new() }
    }
}

/// Whether other machines can reach an address. An address without a meaning is reached by nobody: the broker cannot listen there.
fn reachable(addr: &str) -> bool {
    let is_remote = |addr: SocketAddr| !loopback(addr.ip());
    peers::resolve(addr).is_ok_and(|all| all.into_iter().any(is_remote))
}

/// Whether an address is of this machine alone, also as an IPv4 address in IPv6.
fn loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_asks_for_more_than_its_endpoint_is_less_open() {
        let mut config = BrokerConfig::default();
        config.http.listen = "127.0.0.1:0".into();
        assert!(config.is_as_open_as_endpoint());
        config.http.listen = "0.0.0.0:0".into();
        assert!(!config.is_as_open_as_endpoint());
        config.broker.listen = "10.0.0.5:0".into();
        assert!(!config.is_as_open_as_endpoint());
        config.http.listen = "10.0.0.5:0".into();
        assert!(config.is_as_open_as_endpoint());
        config.broker.listen = "0.0.0.0:0".into();
        assert!(config.is_as_open_as_endpoint());
        config.framework.tls.client_certificates = "require".into();
        assert!(!config.is_as_open_as_endpoint());
    }

    #[test]
    fn only_loopback_is_this_machine() {
        for own in ["127.0.0.1:1", "127.9.9.9:0", "[::1]:7411", "[::ffff:127.0.0.1]:1", "localhost:1", ""] {
            assert!(!reachable(own), "{own}");
        }
        for remote in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1", "192.168.0.1:0"] {
            assert!(reachable(remote), "{remote}");
        }
    }

    #[test]
    fn a_refusal_names_what_is_missing_and_the_way_out() {
        let mut config = BrokerConfig::default();
        config.broker.listen = "0.0.0.0:7411".into();
        config.http.listen = "10.0.0.1:7412".into();
        let texts: Vec<String> = config.exposed().iter().map(ToString::to_string).collect();
        assert!(
            texts[0].contains("neither TLS nor users") && texts[0].contains("rbmq keygen"),
            "{}",
            texts[0]
        );
        assert!(texts[0].contains("rbmq passwd") && texts[0].contains("--insecure"), "{}", texts[0]);
        for part in ["10.0.0.1:7412", "neither TLS nor a token", "http.token_file", "http.tls"] {
            assert!(texts[1].contains(part), "{part}: {}", texts[1]);
        }
        config.http.token_file = "/etc/rbmq/token".into();
        let text = config.exposed()[1].to_string();
        assert!(text.contains("has no TLS") && !text.contains("http.token_file"), "{text}");
        config.http.tls = crate::EndpointTls::Require;
        assert_eq!(config.exposed().len(), 1);
        config.http.token_file.clear();
        assert!(config.exposed()[1].to_string().contains("asks for no token"));
        config.http.client_certificates = crate::EndpointClients::Require;
        assert_eq!(config.exposed().len(), 1);
        config.outside.gateway.push("mqtt:0.0.0.0:1883".parse().unwrap());
        config.outside.gateway.push("resp:127.0.0.1:6379".parse().unwrap());
        assert_eq!(config.exposed().len(), 2);
        let text = config.exposed()[1].to_string();
        assert!(text.contains("gateway (mqtt) at 0.0.0.0:1883, and it has neither TLS nor users"), "{text}");
        config.framework.tls.mode = "require".into();
        let text = config.exposed()[1].to_string();
        assert!(text.contains("and it has no users") && !text.contains("TLS"), "{text}");
        let only_users = Exposed::Broker { addr: "a:1".into(), tls: false, users: true }.to_string();
        assert!(only_users.contains("has no TLS") && !only_users.contains("rbmq passwd"), "{only_users}");
    }
}
