//! Where an etcd listens for its clients.

use std::fmt;
use std::str::FromStr;

/// The port of etcd's clients.
const USUAL_PORT: u16 = 2379;

/// The URL of an etcd: `http://HOST:PORT` or `https://HOST:PORT`. Without a port it is 2379.
///
/// ```
/// # use etcd::Endpoint;
/// let endpoint: Endpoint = "https://[2001:db8::1]/".parse()?;
/// assert_eq!(endpoint.to_string(), "https://[2001:db8::1]:2379");
/// # Ok::<(), etcd::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// The name or address of the host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A text that is no [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of an etcd; it is written http://HOST:2379 or https://HOST:2379")]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let encrypted = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            // A colon of an address of IPv6.
            Some((_, port)) if port.ends_with(']') => (rest, None),
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        };
        let port = port.map_or(Ok(USUAL_PORT), str::parse).map_err(|_| wrong())?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_legal = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(legal),
        };
        if !is_legal || port == 0 {
            return Err(wrong());
        }
        Ok(Self { encrypted, host: inner.unwrap_or(host).to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl Endpoint {
    /// Whether it is on this machine: the host is a loopback address, or `localhost`.
    pub fn is_local(&self) -> bool {
        let ip = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_port() {
        for (text, expected) in [
            ("http://a", "http://a:2379"),
            ("http://10.0.0.1:1/", "http://10.0.0.1:1"),
            ("https://etcd-0.etcd:2379", "https://etcd-0.etcd:2379"),
            ("http://[::1]:5", "http://[::1]:5"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), expected);
        }
        for wrong in [
            "",
            "a:2379",
            "ftp://a",
            "http://",
            "http://:1",
            "http://a:0",
            "http://a:70000",
            "http://a/b",
            "http://u:p@a:1",
            "http://a b",
            "http://::1",
            "http://[a]:1",
            "http://a\r\nX: y",
        ] {
            let error = wrong.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("http://HOST:2379"), "{wrong}: {error}");
        }
    }
}
