//! Handshakes that this queue has begun, and that wait for their answers, with the batches that wait for them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::handshake::{Ephemeral, Initiator, SessionKeys, mac, mac_key, same_mac};
use super::session::Remote;
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

struct Initiation<B> {
    index: u32,
    remote: PublicKey,
    noise: Initiator,
    hello: [u8; HELLO_BYTES],
    again: Instant,
    wait: Duration,
    give_up: Instant,
    cookies: u32,
    /// What leaves when there is a session.
    waiting: Vec<B>,
}

/// What a handshake needs now.
pub(crate) enum Due<B> {
    /// This hello is sent again.
    Again(SocketAddr, Vec<u8>),
    /// No answer came in time. These batches waited for it.
    GivenUp(SocketAddr, Vec<B>),
}

/// The handshakes, by the address of the responder.
pub(crate) struct Initiations<B> {
    timeout: Duration,
    by_addr: HashMap<SocketAddr, Initiation<B>>,
    indices: HashSet<u32>,
    due: BTreeSet<(Instant, SocketAddr)>,
}

impl<B> Initiations<B> {
    pub fn new(timeout: Duration) -> Initiations<B> {
        Initiations { timeout, by_addr: HashMap::new(), indices: HashSet::new(), due: BTreeSet::new() }
    }

    pub fn contains(&self, to: SocketAddr) -> bool {
        self.by_addr.contains_key(&to)
    }

    pub fn has_index(&self, index: u32) -> bool {
        self.indices.contains(&index)
    }

    /// Begins a handshake. Returns the hello.
    pub fn begin(
        &mut self,
        now: Instant,
        peer: Remote,
        index: u32,
        security: &Security,
        ephemeral: Ephemeral,
    ) -> Result<Vec<u8>, HandshakeError> {
        let Remote { addr: to, key: remote } = peer;
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
        let (cookies, waiting) = (0, Vec::new());
        let initiation = Initiation { index, remote, noise, hello, again, wait, give_up, cookies, waiting };
        self.by_addr.insert(to, initiation);
        self.indices.insert(index);
        self.due.insert((again, to));
        Ok(hello.to_vec())
    }

    /// A batch waits for the handshake with an address, which runs.
    pub fn wait(&mut self, to: SocketAddr, batch: B) {
        self.by_addr.get_mut(&to).expect("the handshake runs").waiting.push(batch);
    }

    /// The batches that wait for the handshake with an address.
    pub fn take_waiting(&mut self, to: SocketAddr) -> Vec<B> {
        let initiation = self.by_addr.get_mut(&to);
        initiation.map(|initiation| std::mem::take(&mut initiation.waiting)).unwrap_or_default()
    }

    /// Handles an answer. Returns the responder's index, the keys and the responder's key. [`Initiations::remove`] then ends the
    /// handshake.
    pub fn finish(
        &mut self,
        from: SocketAddr,
        header: Header,
        message: &[u8],
    ) -> Option<(u32, SessionKeys, PublicKey)> {
        let waiting = self.by_addr.get_mut(&from).filter(|waiting| waiting.index == header.index)?;
        let (index, keys) = waiting.noise.finish(message)?;
        Some((index, keys, waiting.remote))
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

    /// Ends a handshake. Returns the batches that waited for it.
    pub fn remove(&mut self, to: SocketAddr) -> Vec<B> {
        let Some(removed) = self.by_addr.remove(&to) else { return Vec::new() };
        self.indices.remove(&removed.index);
        self.due.remove(&(removed.again, to));
        removed.waiting
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.first().map(|&(again, _)| again)
    }

    /// The next handshake that is due.
    pub fn due(&mut self, now: Instant) -> Option<Due<B>> {
        let &(again, to) = self.due.first()?;
        if again > now {
            return None;
        }
        let waiting = self.by_addr.get_mut(&to).expect("a handshake that is due is known");
        if waiting.give_up <= now {
            return Some(Due::GivenUp(to, self.remove(to)));
        }
        waiting.wait = (2 * waiting.wait).min(MAX_WAIT);
        let hello = waiting.hello.to_vec();
        self.schedule(now, to);
        Some(Due::Again(to, hello))
    }
}
