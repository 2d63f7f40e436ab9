//! Addresses as people write them, and the sockets behind them. Commands, settings and bindings look names up here, so that all of them take
//! the same texts.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The most threads that wait for the resolver.
const MAX_ASKING: usize = 64;

static ASKING: AtomicUsize = AtomicUsize::new(0);

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
    /// The system's resolver does not say in time where the host is.
    #[error("the system's resolver does not answer in time")]
    Late,
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
    match text.parse() {
        Ok(address) => Ok(vec![address]),
        Err(_) => split(text).and_then(|(host, port)| resolve_host(host, port)),
    }
}

/// As [`resolve`], for a thread for which others wait: it waits no longer than `timeout`.
///
/// # Errors
/// As [`resolve`], and [`AddressError::Late`]; then a thread goes on to wait for the resolver, one of a limited number.
pub fn resolve_within(text: &str, timeout: Duration) -> Result<Vec<SocketAddr>, AddressError> {
    match text.parse() {
        Ok(address) => Ok(vec![address]),
        Err(_) => split(text).and_then(|(host, port)| resolve_host_within(host, port, timeout)),
    }
}

fn split(text: &str) -> Result<(&str, u16), AddressError> {
    check(text)?;
    let (host, port) = text.rsplit_once(':').ok_or(AddressError::Form)?;
    let port = port.parse().map_err(|_| AddressError::Form)?;
    // In brackets, an address may have the name of an interface: [fe80::1%eth0]:7411.
    Ok((host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port))
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

/// The socket addresses of a host and a port, as [`resolve_within`].
///
/// # Errors
/// As [`resolve_within`].
pub fn resolve_host_within(
    host: &str,
    port: u16,
    timeout: Duration,
) -> Result<Vec<SocketAddr>, AddressError> {
    if host.parse::<IpAddr>().is_ok() {
        return resolve_host(host, port);
    }
    let host = host.to_owned();
    ask_within(timeout, move || resolve_host(&host, port))
}

/// A thread that waits for the resolver.
struct Asking;

impl Asking {
    fn begin() -> Option<Self> {
        let one_more = |asking| (asking < MAX_ASKING).then_some(asking + 1);
        ASKING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes a call that may take long, in a thread of its own.
fn ask_within(
    timeout: Duration,
    ask: impl FnOnce() -> Result<Vec<SocketAddr>, AddressError> + Send + 'static,
) -> Result<Vec<SocketAddr>, AddressError> {
    let asking = Asking::begin().ok_or(AddressError::Late)?;
    let (reply, answer) = mpsc::sync_channel(1);
    let run = move || {
        let found = ask();
        drop(asking);
        // Nobody waits any more, if it took too long.
        let _ = reply.send(found);
    };
    threads::spawn("resolver", run).map_err(AddressError::Unknown)?;
    answer.recv_timeout(timeout).unwrap_or(Err(AddressError::Late))
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
    fn a_resolver_that_does_not_answer_is_waited_for_in_a_limited_number_of_threads() {
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let ended = std::sync::Arc::new(locks::Mutex::new(ended));
        let late = |n| {
            let ended = ended.clone();
            let asked = ask_within(Duration::from_millis(1), move || {
                let _ = ended.lock().recv();
                Ok(Vec::new())
            });
            assert!(matches!(asked, Err(AddressError::Late)), "{n}: {asked:?}");
        };
        (0..2 * MAX_ASKING).for_each(late);
        assert!(ASKING.load(Ordering::Relaxed) <= MAX_ASKING);
        // An address is none of its names.
        assert_eq!(resolve_within("[::1]:7411", Duration::ZERO).unwrap().len(), 1);
        drop(end);
        while ASKING.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert!(!resolve_within("localhost:7411", Duration::from_secs(60)).unwrap().is_empty());
    }

    #[test]
    fn brackets_hold_an_address() {
        for text in ["[::1]:7411", "[fe80::1%lo]:7411"] {
            let found = resolve(text).unwrap();
            assert!(found[0].is_ipv6() && found[0].port() == 7411, "{text}: {found:?}");
        }
    }
}
