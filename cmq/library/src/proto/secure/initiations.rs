//! Handshakes that this queue has begun, and that wait for their answers.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::handshake::{Ephemeral, Initiator, SessionKeys, mac, mac_key, same_mac};
use super::session::Peer;
use crate::event::HandshakeError;
use crate::proto::after;
use crate::security::{PublicKey, Security};
use crate::wire::secured::{HEADER_BYTES, HELLO_BYTES, Header, Kind, MAC_BYTES, NOISE_HELLO_BYTES};

/// How long after the first hello it is repeated. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait between two hellos.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The most handshakes at a time.
const MAX_INITIATIONS: usize = 4096;
/// The most cookies that one handshake follows: another end cannot make it send on and on.
const MAX_COOKIES: u32 = 4;
/// Where the check sum of a hello begins.
const MAC_AT: usize = HEADER_BYTES + NOISE_HELLO_BYTES;

struct Initiation {
    index: u32,
    remote: PublicKey,
    noise: Initiator,
    hello: [u8; HELLO_BYTES],
    again: Instant,
    wait: Duration,
    give_up: Instant,
    cookies: u32,
}

/// The handshakes, by the address of the responder.
pub(crate) struct Initiations {
    timeout: Duration,
    by_addr: HashMap<SocketAddr, Initiation>,
    by_index: HashMap<u32, SocketAddr>,
    due: BTreeSet<(Instant, SocketAddr)>,
}

impl Initiations {
    pub fn new(timeout: Duration) -> Initiations {
        Initiations { timeout, by_addr: HashMap::new(), by_index: HashMap::new(), due: BTreeSet::new() }
    }

    pub fn contains(&self, to: SocketAddr) -> bool {
        self.by_addr.contains_key(&to)
    }

    pub fn has_index(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    /// Begins a handshake. Returns the hello.
    pub fn begin(
        &mut self,
        now: Instant,
        peer: Peer,
        index: u32,
        security: &Security,
        ephemeral: Ephemeral,
    ) -> Result<Vec<u8>, HandshakeError> {
        let Peer { addr: to, key: remote } = peer;
        if self.by_addr.len() >= MAX_INITIATIONS {
            return Err(HandshakeError::Busy);
        }
        let header = Header { kind: Kind::Hello, index, number: 0 }.encode();
        let (noise, message) =
            Initiator::begin(security, &header, ephemeral, &remote).ok_or(HandshakeError::BadKey)?;
        let mut hello = [0; HELLO_BYTES];
        hello[..HEADER_BYTES].copy_from_slice(&header);
        hello[HEADER_BYTES..MAC_AT].copy_from_slice(&message);
        let sum = mac(&mac_key(&remote), &hello[..MAC_AT]);
        hello[MAC_AT..MAC_AT + MAC_BYTES].copy_from_slice(&sum);
        let (wait, give_up) = (FIRST_WAIT, after(now, self.timeout));
        let again = (now + wait).min(give_up);
        let initiation = Initiation { index, remote, noise, hello, again, wait, give_up, cookies: 0 };
        self.by_addr.insert(to, initiation);
        self.by_index.insert(index, to);
        self.due.insert((again, to));
        Ok(hello.to_vec())
    }

    /// Handles an answer. Returns the responder's index, the keys and the responder's key.
    pub fn finish(
        &mut self,
        from: SocketAddr,
        header: Header,
        message: &[u8],
    ) -> Option<(u32, SessionKeys, PublicKey)> {
        let waiting = self.by_addr.get_mut(&from).filter(|waiting| waiting.index == header.index)?;
        let (index, keys) = waiting.noise.finish(message)?;
        let remote = waiting.remote;
        self.remove(from);
        Some((index, keys, remote))
    }

    /// Handles a cookie. Returns the hello with the cookie.
    pub fn with_cookie(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: Header,
        sum: &[u8],
        cookie: &[u8],
    ) -> Option<Vec<u8>> {
        let waiting = self.by_addr.get_mut(&from).filter(|waiting| waiting.index == header.index)?;
        if !same_mac(&waiting.hello[MAC_AT..MAC_AT + MAC_BYTES], sum) || waiting.cookies >= MAX_COOKIES {
            return None;
        }
        waiting.cookies += 1;
        waiting.hello[MAC_AT + MAC_BYTES..].copy_from_slice(cookie);
        let hello = waiting.hello.to_vec();
        self.schedule(now, from);
        Some(hello)
    }

    /// Sets the time of the next hello.
    fn schedule(&mut self, now: Instant, to: SocketAddr) {
        let Some(waiting) = self.by_addr.get_mut(&to) else { return };
        self.due.remove(&(waiting.again, to));
        waiting.again = (now + waiting.wait).min(waiting.give_up);
        self.due.insert((waiting.again, to));
    }

    fn remove(&mut self, to: SocketAddr) {
        if let Some(removed) = self.by_addr.remove(&to) {
            self.by_index.remove(&removed.index);
            self.due.remove(&(removed.again, to));
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|&(again, _)| again)
    }

    /// The next handshake that is due: its hello to send again, or `None` for one that got no answer in time.
    pub fn due(&mut self, now: Instant) -> Option<(SocketAddr, Option<Vec<u8>>)> {
        let &(again, to) = self.due.first()?;
        if again > now {
            return None;
        }
        let waiting = self.by_addr.get_mut(&to).expect("a handshake that is due is known");
        if waiting.give_up <= now {
            self.remove(to);
            return Some((to, None));
        }
        waiting.wait = (2 * waiting.wait).min(MAX_WAIT);
        let hello = waiting.hello.to_vec();
        self.schedule(now, to);
        Some((to, Some(hello)))
    }
}
