//! Connecting and reconnecting, for clients and brokers. The first attempt follows after 100 ms, and the pause doubles up to 5 s.
//! Each pause is shortened by a random part of up to one half, so that the peers of a restarted broker do not all return at the
//! same moment.

use std::time::Duration;

use rocketbufs::error::ConnError;
use rocketbufs::{Conn, Context};

const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect.
pub const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Whether an address is of this machine for certain, so that what is sent there leaves it on no wire. Of names only `localhost` is:
/// a name server could answer so for any other name.
///
/// ```
/// use rbmq_wire::connect::is_this_machine;
/// assert!(is_this_machine("127.0.0.1:7411") && is_this_machine("[::1]:7411") && is_this_machine("localhost:7411"));
/// assert!(!is_this_machine("10.0.0.1:7411") && !is_this_machine("localhost.example.com:7411"));
/// ```
pub fn is_this_machine(addr: &str) -> bool {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether every connection that leaves this machine is encrypted, and the other end shows a trusted certificate before it learns anything.
pub fn is_encrypted(ctx: &Context) -> bool {
    ctx.config().tls.mode == "require"
}

/// A random number that identifies a client or broker.
///
/// # Errors
/// The system has no random numbers.
pub fn random() -> Result<u128, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// The pauses between attempts to connect.
pub struct Backoff(Duration);

impl Default for Backoff {
    /// Begins with the shortest pause.
    fn default() -> Self {
        Self(FIRST_DELAY)
    }
}

impl Backoff {
    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let jitter = random().map_or(0, |n| n % 1000) as u32;
        let pause = self.0 / 2 + self.0 * jitter / 2000;
        self.0 = (self.0 * 2).min(LONGEST_DELAY);
        pause
    }
}

/// Starts a connection, calls `on_start`, and waits until the connection is up.
///
/// # Errors
/// The connection could not be made, or not in time.
pub fn start(ctx: &Context, addr: &str, hello: &[u8], on_start: &dyn Fn(&Conn)) -> Result<Conn, ConnError> {
    let conn = Conn::connect_start(ctx, addr, hello)?;
    on_start(&conn);
    let timeout = Duration::from_millis(ctx.config().session.connect_timeout_ms.into());
    conn.wait_up(Some(timeout)).inspect_err(|_| conn.close("gave up connecting"))?;
    Ok(conn)
}
