//! Connecting and reconnecting, for clients and brokers. The first attempt follows at once, if the connection was up for a while, and the next
//! ones after pauses that double from 2 ms to 5 s. Each pause is shortened by a random part of up to one half, so that the peers of a restarted
//! broker do not all return at the same moment.

use std::time::{Duration, Instant};

use rocketbufs::error::ConnError;
use rocketbufs::{Conn, Context, DownReason};

const FIRST_DELAY: Duration = Duration::from_millis(2);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// The shortest pause after the peer has said no, as to a wrong password, so that a client does not use up the attempts of its host at once.
const REFUSED_DELAY: Duration = Duration::from_millis(100);
/// A connection that was up longer was no failure.
const SETTLED: Duration = Duration::from_secs(1);

/// The addresses in a text: one, or several with commas between them.
pub fn addresses(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|address| !address.is_empty())
}

/// Whether an address, or all of several, are of this machine for certain, so that what is sent there leaves it on no wire. Of names only `localhost` is:
/// a name server could answer so for any other name.
///
/// ```
/// use rbmq_wire::connect::is_this_machine;
/// assert!(is_this_machine("127.0.0.1:7411") && is_this_machine("[::1]:7411") && is_this_machine("localhost:7411"));
/// assert!(is_this_machine("127.0.0.1:7411,[::1]:7411") && !is_this_machine("127.0.0.1:7411,10.0.0.1:7411"));
/// assert!(!is_this_machine("10.0.0.1:7411") && !is_this_machine("localhost.example.com:7411"));
/// ```
pub fn is_this_machine(addr: &str) -> bool {
    addresses(addr).next().is_some()
        && addresses(addr).all(|addr| {
            let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
            let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
        })
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
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    /// Since when the connection was up that is lost.
    up: Option<Instant>,
}

impl Default for Backoff {
    /// Begins with the shortest pause.
    fn default() -> Self {
        Self { next: FIRST_DELAY, up: None }
    }
}

impl Backoff {
    /// A connection is up.
    pub fn connected(&mut self, now: Instant) {
        self.up = Some(now);
    }

    /// An attempt has failed.
    pub fn failed(&mut self, error: &ConnError) {
        if matches!(error, ConnError::Down(DownReason::Peer { .. })) {
            self.next = self.next.max(REFUSED_DELAY);
        }
    }

    /// The next pause. There is none after a connection that was up for a second. One that was lost sooner counts as a failure, so that a peer
    /// which accepts connections and closes them at once is not tried without pauses.
    pub fn pause(&mut self, now: Instant) -> Duration {
        if self.up.take().is_some_and(|up| now.saturating_duration_since(up) > SETTLED) {
            *self = Self::default();
            return Duration::ZERO;
        }
        let jitter = random().map_or(0, |n| n % 1000) as u32;
        let pause = self.next / 2 + self.next * jitter / 2000;
        self.next = (self.next * 2).min(LONGEST_DELAY);
        pause
    }
}

/// Starts a connection, calls `on_start`, and waits until the connection is up. Of several addresses, with commas between them, the first at
/// which that succeeds is taken; each gets the whole time.
///
/// # Errors
/// The connection could not be made, or not in time, at the last address.
pub fn start(ctx: &Context, addr: &str, hello: &[u8], on_start: &dyn Fn(&Conn)) -> Result<Conn, ConnError> {
    let mut last = None;
    for one in addresses(addr) {
        match start_at(ctx, one, hello, on_start) {
            Ok(conn) => return Ok(conn),
            Err(error) => last = Some(error),
        }
    }
    // An empty text is no address.
    last.map_or_else(|| start_at(ctx, addr, hello, on_start), Err)
}

fn start_at(ctx: &Context, addr: &str, hello: &[u8], on_start: &dyn Fn(&Conn)) -> Result<Conn, ConnError> {
    let conn = Conn::look_up_and_start(ctx, addr, hello)?;
    on_start(&conn);
    let timeout = Duration::from_millis(ctx.config().session.connect_timeout_ms.into());
    conn.wait_up(Some(timeout)).inspect_err(|_| conn.close("gave up connecting"))?;
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use rocketbufs::CloseCode;

    use super::*;

    fn pauses(backoff: &mut Backoff, now: Instant) -> Vec<Duration> {
        (0..14).map(|_| backoff.pause(now)).collect()
    }

    #[test]
    fn pauses_double_and_begin_again_after_a_connection_that_lasted() {
        let (now, mut backoff) = (Instant::now(), Backoff::default());
        let first = pauses(&mut backoff, now);
        assert!((FIRST_DELAY / 2..=FIRST_DELAY).contains(&first[0]), "{first:?}");
        assert!(first.windows(2).all(|two| two[0] / 2 <= two[1]), "{first:?}");
        assert!((LONGEST_DELAY / 2..=LONGEST_DELAY).contains(&first[13]), "{first:?}");
        // Closed at once, it is no success.
        backoff.connected(now);
        assert!(backoff.pause(now + SETTLED) >= LONGEST_DELAY / 2);
        backoff.connected(now);
        let again = pauses(&mut backoff, now + 2 * SETTLED);
        assert!(again[0].is_zero() && again[1] <= FIRST_DELAY, "{again:?}");
        let mut refused = Backoff::default();
        refused
            .failed(&ConnError::Down(DownReason::Peer { code: CloseCode::NotAccepted, text: String::new() }));
        assert!(refused.pause(now) >= REFUSED_DELAY / 2);
    }

    /// The times at which a client tries within a time after its connection was lost, if the broker is away.
    fn attempts(within: Duration) -> Vec<Duration> {
        let (begin, mut backoff) = (Instant::now(), Backoff::default());
        backoff.connected(begin);
        let lost = begin + 2 * SETTLED;
        let (mut at, mut all) = (Duration::ZERO, Vec::new());
        loop {
            at += backoff.pause(lost + at);
            if at > within {
                return all;
            }
            all.push(at);
        }
    }

    /// A broker is away for a minute: its clients try at once, and are spread when it is back.
    #[test]
    fn a_thousand_clients_of_a_broker_that_is_away_are_no_storm() {
        let clients: Vec<Vec<Duration>> = (0..1000).map(|_| attempts(Duration::from_secs(60))).collect();
        for tries in &clients {
            assert!(tries[0].is_zero() && tries[1] <= FIRST_DELAY, "{tries:?}");
            // Twelve until the pauses are the longest, and then one in the shortest of these at most.
            assert!(tries.len() <= 12 + 60 / 2, "{}", tries.len());
        }
        let mut windows = [0; 600];
        for at in clients.iter().flatten() {
            // The last one is of the end itself.
            windows[(at.as_millis() as usize / 100).min(599)] += 1;
        }
        let most = windows[200..].iter().max().expect("windows");
        // About 27 in each tenth of a second, if they are spread evenly.
        assert!(*most <= 100, "{most} of 1,000 try within a tenth of a second");
    }
}
