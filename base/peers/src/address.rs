//! Addresses as people write them, and the sockets behind them. Commands, settings and bindings look names up here, so that all of them take
//! the same texts.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Why a text leads to no address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text has blanks, which nobody sees in it.
    #[error("there are blanks in {0:?}")]
    Blanks(String),
    /// The text is a URL.
    #[error("'{0}://' does not belong to it; it is written host:port")]
    Scheme(String),
    /// The text has another form.
    #[error("invalid socket address; it is written host:port, 192.0.2.1:port or [2001:db8::1]:port")]
    Form,
    /// The system finds no address of the host.
    #[error("{0}; it is written host:port, 192.0.2.1:port or [2001:db8::1]:port")]
    Unknown(io::Error),
    /// The host has no address.
    #[error("the name has no address")]
    None,
}

/// The socket addresses of `host:port`, at least one, in the order in which to try them. Asks the system's resolver for a name, which may
/// take long.
///
/// ```
/// let [one] = peers::resolve("127.0.0.1:7411")?[..] else { unreachable!() };
/// assert_eq!(one.port(), 7411);
/// let error = peers::resolve("tcp://127.0.0.1:7411").unwrap_err().to_string();
/// assert_eq!(error, "'tcp://' does not belong to it; it is written host:port");
/// # Ok::<(), peers::AddressError>(())
/// ```
///
/// # Errors
/// The text is no address, or the host has none.
pub fn resolve(text: &str) -> Result<Vec<SocketAddr>, AddressError> {
    check(text)?;
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let (host, port) = text.rsplit_once(':').ok_or(AddressError::Form)?;
    let port = port.parse().map_err(|_| AddressError::Form)?;
    // In brackets, an address may have the name of an interface: [fe80::1%eth0]:7411.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    resolve_host(host, port)
}

/// The socket addresses of a host and a port, as [`resolve`].
///
/// # Errors
/// The host has no address.
pub fn resolve_host(host: &str, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
    check(host)?;
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in (host, port).to_socket_addrs().map_err(AddressError::Unknown)? {
        // A file of hosts may have a line twice.
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() { Err(AddressError::None) } else { Ok(found) }
}

fn check(text: &str) -> Result<(), AddressError> {
    if text.contains(char::is_whitespace) {
        return Err(AddressError::Blanks(text.to_owned()));
    }
    match text.split_once("://") {
        Some((scheme, _)) => Err(AddressError::Scheme(scheme.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_address_is_told_why() {
        for (text, why) in [
            (" 127.0.0.1:7411", "there are blanks in \" 127.0.0.1:7411\""),
            ("127.0.0.1:7411\n", "there are blanks in \"127.0.0.1:7411\\n\""),
            ("http://localhost:7411", "'http://' does not belong to it"),
            ("localhost", "invalid socket address; it is written host:port"),
            ("localhost:70000", "invalid socket address"),
            ("", "invalid socket address"),
        ] {
            let error = resolve(text).unwrap_err().to_string();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn brackets_hold_an_address() {
        for text in ["[::1]:7411", "[fe80::1%lo]:7411"] {
            let found = resolve(text).unwrap();
            assert!(found[0].is_ipv6() && found[0].port() == 7411, "{text}: {found:?}");
        }
    }
}
