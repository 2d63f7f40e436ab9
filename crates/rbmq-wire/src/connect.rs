//! Connecting, as clients and brokers do it: the first attempt after 100 ms, then after twice as long each time, up to
//! 5 s; each waits between half and all of that, so that those of a broker that restarts do not come back at the same
//! moment.

use std::time::Duration;

use rocketbufs::{Conn, ConnError, Context};

const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect.
pub const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// A random number, for a name.
///
/// # Errors
/// The system has none.
pub fn random() -> Result<u128, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// How long to wait before each attempt to connect again.
pub struct Backoff(Duration);

impl Default for Backoff {
    /// Begins with the shortest.
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

/// Begins a connection, and waits until it is up.
pub fn start(ctx: &Context, addr: &str, hello: &[u8], on_start: &dyn Fn(&Conn)) -> Result<Conn, ConnError> {
    let conn = Conn::connect_start(ctx, addr, hello)?;
    on_start(&conn);
    let timeout = Duration::from_millis(ctx.config().session.connect_timeout_ms.into());
    conn.wait_up(Some(timeout)).inspect_err(|_| conn.close("gave up connecting"))?;
    Ok(conn)
}
