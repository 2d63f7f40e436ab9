//! Encrypted and authenticated datagrams, without I/O: handshakes, sessions, new keys.
//!
//! ```text
//!   batch for an address ── route ──▶ Wait: a handshake runs, and the batch waits with it
//!                                 └─▶ Sealed: a key and numbers; the sender seals each datagram in place
//!   received datagram ──── receive ─▶ the plain datagram, opened in place
//!                                 └─▶ outputs: answers, batches that may leave, events
//! ```
//!
//! | Module | Subject |
//! |---|---|
//! | `primitives` | aws-lc-rs, as Noise wants it |
//! | `handshake` | Noise_IKpsk2, by the crate snow |
//! | `session` | the keys of one session |
//! | `replay` | numbers that have arrived |
//! | `table` | all sessions, and what is known of their peers |
//! | `initiations` | handshakes that this queue has begun, and what waits for them |
//! | `cookies` | proofs of addresses |

mod cookies;
mod handshake;
mod initiations;
#[cfg(test)]
mod interop_tests;
mod primitives;
mod replay;
mod session;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use self::cookies::Cookies;
use self::handshake::{Responder, mac, mac_key, same_mac};
use self::initiations::{Due, Initiations};
pub use self::session::SealKey;
use self::session::{MAX_DATAGRAMS, Opened, REKEY_DATAGRAMS, Remote, Session, Unconfirmed};
use self::table::Table;
use crate::event::{Event, HandshakeError, Refusal, SecurityCounts};
use crate::key::canonical;
use crate::security::{PublicKey, Security};
use crate::wire::secured::{
    HEADER_BYTES, Header, Kind, MAC_BYTES, NOISE_HELLO_BYTES, TAG_BYTES, VERSION, WELCOME_BYTES,
};
use crate::wire::{self, MAGIC};

/// The least time between two answers to datagrams for no session, and to plain datagrams.
const NOTICE_INTERVAL: Duration = Duration::from_millis(1);
/// A session that is younger is not given up because of a reset, which may be forged.
const RESET_AGE: Duration = Duration::from_secs(1);
/// How far a number in a reset may lie behind the newest one.
const RESET_WINDOW: u64 = 1 << 16;

/// The treatment of datagrams for an address.
#[derive(Debug)]
pub enum Route {
    /// They are sealed with this key, and with numbers from this one on.
    Sealed(Arc<SealKey>, u64),
    /// They wait for a handshake: [`Sessions::wait`].
    Wait,
    /// They cannot be sent.
    Failed(HandshakeError),
}

/// The actions that the machine wants. `B` is a batch for an address.
#[derive(Debug)]
pub enum Output<B> {
    /// Send this datagram as it is.
    Send(SocketAddr, Vec<u8>),
    /// Batches have waited for a handshake, and may leave: [`Sessions::take_released`].
    Ready,
    /// There is no session with this address, and these batches fail.
    Failed(SocketAddr, HandshakeError, Vec<B>),
    /// Report this.
    Event(Event),
}

/// Random bytes, which the caller provides.
pub type RandomSource = Box<dyn FnMut(&mut [u8]) + Send>;

/// The machine. It keeps the batches, of type `B`, that wait for a handshake.
pub struct Sessions<B = Vec<u8>> {
    security: Security,
    own_mac: hmac::Key,
    table: Table,
    initiations: Initiations<B>,
    /// The batches whose handshakes are done, until they are taken. Later ones for the same addresses wait behind them.
    released: HashMap<SocketAddr, Vec<B>>,
    cookies: Cookies,
    random: RandomSource,
    outputs: Vec<Output<B>>,
    last_notice: Option<Instant>,
    counts: SecurityCounts,
}

impl<B> Sessions<B> {
    /// The sessions of a queue with these settings: none.
    pub fn new(mut security: Security, now: Instant, mut random: RandomSource) -> Sessions<B> {
        security.peers = security.peers.iter().map(|(&addr, &key)| (canonical(addr), key)).collect();
        Sessions {
            own_mac: mac_key(&security.secret.public()),
            table: Table::new(&security),
            initiations: Initiations::new(security.handshake_timeout),
            released: HashMap::new(),
            cookies: Cookies::new(now, &mut random),
            random,
            outputs: Vec::new(),
            last_notice: None,
            counts: SecurityCounts::default(),
            security,
        }
    }

    /// Decides on datagrams with this many bytes for an address, and begins a handshake if one is due.
    pub fn route(&mut self, now: Instant, to: SocketAddr, datagrams: u64, bytes: u64) -> Route {
        if self.released.contains_key(&to) {
            return Route::Wait;
        }
        let Sessions { table, security, .. } = self;
        let (mut route, mut renew) = (None, None);
        if let Some((_, session)) = table.current_mut(to) {
            let age = now.saturating_duration_since(session.born);
            if usable(session, age, security, datagrams) {
                if age >= security.rekey_after
                    || session.sent_bytes >= security.rekey_bytes
                    || session.next >= REKEY_DATAGRAMS
                {
                    renew = Some(session.remote);
                }
                let first = session.take_numbers(datagrams, bytes);
                route = Some(Route::Sealed(Arc::clone(&session.seal), first));
            }
        }
        if let Some(route) = route {
            if let Some(remote) = renew {
                // Without new keys the old ones still work for a while, and the next datagrams try again.
                let _ = self.begin(now, to, remote);
            }
            return route;
        }
        let Some(remote) = self.security.key_of(to).or_else(|| self.table.key_of(to)) else {
            return Route::Failed(HandshakeError::NoKey);
        };
        match self.begin(now, to, remote) {
            Ok(()) => Route::Wait,
            Err(why) => Route::Failed(why),
        }
    }

    /// A batch waits for the handshake that its [route](Sessions::route) has found: [`Route::Wait`].
    pub fn wait(&mut self, to: SocketAddr, batch: B) {
        match self.released.get_mut(&to) {
            Some(released) => released.push(batch),
            None => self.initiations.wait(to, batch),
        }
    }

    /// The batches whose handshakes are done, each address' in their order. They must leave before any other that is not sealed yet.
    pub fn take_released(&mut self) -> impl Iterator<Item = (SocketAddr, B)> {
        let released = std::mem::take(&mut self.released).into_iter();
        released.flat_map(|(to, batches)| batches.into_iter().map(move |batch| (to, batch)))
    }

    /// Begins a handshake, unless one runs.
    fn begin(&mut self, now: Instant, to: SocketAddr, remote: PublicKey) -> Result<(), HandshakeError> {
        if self.initiations.contains(to) {
            return Ok(());
        }
        let (index, ephemeral) = (self.new_index(), self.ephemeral());
        let peer = Remote { addr: to, key: remote };
        let hello = self.initiations.begin(now, peer, index, &self.security, ephemeral)?;
        self.outputs.push(Output::Send(to, hello));
        Ok(())
    }

    fn ephemeral(&mut self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        (self.random)(&mut *bytes);
        bytes
    }

    /// An index that nothing has.
    fn new_index(&mut self) -> u32 {
        loop {
            let mut bytes = [0; 4];
            (self.random)(&mut bytes);
            let index = u32::from_le_bytes(bytes);
            if !self.table.contains(index) && !self.initiations.has_index(index) {
                return index;
            }
        }
    }

    /// Handles a datagram. Returns where the plain datagram lies in it, if there is one.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) -> Option<Range<usize>> {
        if datagram.len() > 1 && datagram[0] == MAGIC && datagram[1] >> 4 != VERSION {
            self.on_plain(now, from, datagram);
            return None;
        }
        let header = match Header::parse(datagram) {
            Ok(header) => header,
            Err(why) => {
                self.counts.malformed += 1;
                self.outputs.push(Output::Event(Event::Malformed { from, why }));
                return None;
            }
        };
        match header.kind {
            Kind::Data => return self.on_data(now, from, header, datagram),
            Kind::Hello => self.on_hello(now, from, header, datagram),
            Kind::Welcome => self.on_welcome(now, from, header, datagram),
            Kind::Cookie => self.on_cookie(now, from, header, datagram),
            Kind::Reset => self.on_reset(now, from, header),
            // An answer to plain datagrams, which this queue does not send.
            Kind::Required => self.refuse(from, Refusal::Forged),
        }
        None
    }

    fn refuse(&mut self, from: SocketAddr, why: Refusal) {
        let count = match why {
            Refusal::Plain => &mut self.counts.plain,
            Refusal::Forged => &mut self.counts.forged,
            Refusal::Replayed => &mut self.counts.replayed,
            Refusal::UnknownSession => &mut self.counts.unknown_sessions,
            Refusal::Stranger(_) => &mut self.counts.strangers,
            Refusal::Crowded => &mut self.counts.crowded,
        };
        *count += 1;
        self.outputs.push(Output::Event(Event::Refused { from, why }));
    }

    /// Answers with a datagram that is shorter than every one that it answers, and not too often.
    fn notice(&mut self, now: Instant, to: SocketAddr, header: Header) {
        if self.last_notice.is_none_or(|last| now.saturating_duration_since(last) >= NOTICE_INTERVAL) {
            self.last_notice = Some(now);
            self.outputs.push(Output::Send(to, header.encode().to_vec()));
        }
    }

    fn on_plain(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        self.refuse(from, Refusal::Plain);
        if wire::Datagram::parse(datagram).is_ok() {
            self.notice(now, from, Header { kind: Kind::Required, index: 0, number: 0 });
        }
    }

    fn on_data(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: Header,
        datagram: &mut [u8],
    ) -> Option<Range<usize>> {
        let Some(session) = self.table.get_mut(header.index) else {
            self.refuse(from, Refusal::UnknownSession);
            self.notice(now, from, Header { kind: Kind::Reset, ..header });
            return None;
        };
        let newest = match session.open(header, datagram) {
            Opened::Good(newest) => newest,
            Opened::Replayed => {
                self.refuse(from, Refusal::Replayed);
                return None;
            }
            Opened::Forged => {
                self.refuse(from, Refusal::Forged);
                return None;
            }
        };
        let (remote, born) = (session.remote, session.born);
        let (moved, confirms) = (newest && session.peer != from, session.unconfirmed.is_some());
        if moved {
            self.table.move_to(header.index, from);
        }
        if confirms {
            let peer = Remote { addr: from, key: remote };
            self.established(peer, |table| table.confirm(now, header.index));
        }
        // The sender of a session renews it. The receiver does if the sender does not.
        if now.saturating_duration_since(born) >= self.security.rekey_after + self.security.rekey_after / 4
            && self.table.current_mut(from).is_some_and(|(current, _)| current == header.index)
        {
            let _ = self.begin(now, from, remote);
        }
        let body = HEADER_BYTES..datagram.len() - TAG_BYTES;
        (!body.is_empty()).then_some(body)
    }

    /// A session with a peer may be used from now on. `add` puts it into the table.
    fn established(&mut self, Remote { addr: peer, key }: Remote, add: impl FnOnce(&mut Table)) {
        let renewed = self.table.current_mut(peer).is_some_and(|(_, before)| before.remote == key);
        self.counts.handshakes += 1;
        self.counts.renewals += u64::from(renewed);
        add(&mut self.table);
        self.outputs.push(Output::Event(Event::Secured { peer, key, renewed }));
        let waiting = self.initiations.take_waiting(peer);
        if !waiting.is_empty() {
            self.released.entry(peer).or_default().extend(waiting);
            self.outputs.push(Output::Ready);
        }
    }

    fn on_hello(&mut self, now: Instant, from: SocketAddr, header: Header, datagram: &[u8]) {
        let (checked, rest) = datagram.split_at(HEADER_BYTES + NOISE_HELLO_BYTES);
        let (sum, cookie) = rest.split_at(MAC_BYTES);
        if !same_mac(&mac(&self.own_mac, checked), sum) {
            return self.refuse(from, Refusal::Forged);
        }
        // The same hello again: the welcome was lost, or is on its way.
        if let Some(welcome) = self.table.welcome(from, sum) {
            return self.outputs.push(Output::Send(from, welcome.to_vec()));
        }
        if self.table.is_crowded() && !self.cookies.prove(now, from, cookie, &mut self.random) {
            self.counts.cookies += 1;
            let mut answer = Header { kind: Kind::Cookie, ..header }.encode().to_vec();
            answer.extend_from_slice(sum);
            answer.extend_from_slice(&self.cookies.of(now, from, &mut self.random));
            return self.outputs.push(Output::Send(from, answer));
        }
        if self.table.is_greedy(from) {
            return self.refuse(from, Refusal::Crowded);
        }
        let (head, message) = checked.split_first_chunk().expect("a hello has a header");
        let ephemeral = self.ephemeral();
        let Some((responder, remote)) = Responder::read(&self.security, head, ephemeral, message) else {
            return self.refuse(from, Refusal::Forged);
        };
        if !self.security.allows(&remote) {
            return self.refuse(from, Refusal::Stranger(remote));
        }
        let hello = sum.try_into().expect("a sum has 16 bytes");
        self.answer(now, Remote { addr: from, key: remote }, header.index, responder, hello);
    }

    /// Answers a hello, and remembers the session until its initiator has used it.
    fn answer(
        &mut self,
        now: Instant,
        peer: Remote,
        theirs: u32,
        responder: Responder,
        hello: [u8; MAC_BYTES],
    ) {
        let index = self.new_index();
        let Some((message, keys)) = responder.answer(index) else {
            return self.refuse(peer.addr, Refusal::Forged);
        };
        let mut welcome = [0; WELCOME_BYTES];
        welcome[..HEADER_BYTES]
            .copy_from_slice(&Header { kind: Kind::Welcome, index: theirs, number: 0 }.encode());
        welcome[HEADER_BYTES..].copy_from_slice(&message);
        let unconfirmed = Some(Unconfirmed { hello, welcome });
        self.table.insert_half_open(index, Session::new(now, peer, theirs, &keys, unconfirmed));
        self.outputs.push(Output::Send(peer.addr, welcome.to_vec()));
    }

    fn on_welcome(&mut self, now: Instant, from: SocketAddr, header: Header, datagram: &[u8]) {
        let Some((index, keys, remote)) = self.initiations.finish(from, header, &datagram[HEADER_BYTES..])
        else {
            return self.refuse(from, Refusal::Forged);
        };
        let peer = Remote { addr: from, key: remote };
        let session = Session::new(now, peer, index, &keys, None);
        self.established(peer, |table| table.insert_confirmed(now, header.index, session));
        self.initiations.remove(from);
        // The responder learns that its welcome has arrived.
        if let Some((_, session)) = self.table.current_mut(from) {
            let mut empty = vec![0; HEADER_BYTES + TAG_BYTES];
            let number = session.take_numbers(1, empty.len() as u64);
            session.seal.seal(number, &mut empty);
            self.outputs.insert(0, Output::Send(from, empty));
        }
    }

    fn on_cookie(&mut self, now: Instant, from: SocketAddr, header: Header, datagram: &[u8]) {
        let (sum, cookie) = datagram[HEADER_BYTES..].split_at(MAC_BYTES);
        match self.initiations.with_cookie(now, from, header, sum, cookie) {
            Some(hello) => self.outputs.push(Output::Send(from, hello)),
            None => self.refuse(from, Refusal::Forged),
        }
    }

    /// The peer does not know a session, because it was restarted. The reset may be forged: the session goes on until a handshake
    /// has replaced it.
    fn on_reset(&mut self, now: Instant, from: SocketAddr, header: Header) {
        let Some((_, session)) = self.table.current_mut(from) else {
            return self.refuse(from, Refusal::Forged);
        };
        let recent = header.number < session.next && header.number + RESET_WINDOW >= session.next;
        let old = now.saturating_duration_since(session.born) >= RESET_AGE;
        if session.seal.index() != header.index || !recent {
            return self.refuse(from, Refusal::Forged);
        }
        self.counts.resets += 1;
        let remote = session.remote;
        if old {
            let _ = self.begin(now, from, remote);
        }
    }

    /// When [`Sessions::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let ends = [self.table.next_end(), self.initiations.next_deadline()];
        ends.into_iter().flatten().min()
    }

    /// Repeats hellos, and removes sessions that are too old.
    pub fn expire(&mut self, now: Instant) {
        self.table.expire(now);
        while let Some(due) = self.initiations.due(now) {
            match due {
                Due::Again(to, hello) => self.outputs.push(Output::Send(to, hello)),
                Due::GivenUp(to, waited) => {
                    self.counts.failed += 1;
                    self.outputs.push(Output::Failed(to, HandshakeError::NoAnswer, waited));
                }
            }
        }
    }

    /// Takes the machine's outputs, which the caller executes.
    pub fn take_outputs(&mut self) -> Vec<Output<B>> {
        std::mem::take(&mut self.outputs)
    }

    /// The key of the queue at an address, while there is a session with it.
    pub fn peer_key(&mut self, of: SocketAddr) -> Option<PublicKey> {
        self.table.current_mut(of).map(|(_, session)| session.remote)
    }

    /// The number of handshakes that this queue has answered, and that their initiators have not completed.
    pub fn half_open(&self) -> usize {
        self.table.half_open()
    }

    /// The counters of the machine.
    pub fn counts(&self) -> SecurityCounts {
        let sessions = self.table.len() as u64;
        SecurityCounts { sessions, evicted: self.table.evicted, ..self.counts }
    }
}

/// True if a session may still send this many datagrams.
fn usable(session: &Session, age: Duration, security: &Security, datagrams: u64) -> bool {
    age < security.rekey_after + security.rekey_after / 2
        && session.sent_bytes < security.rekey_bytes.saturating_add(security.rekey_bytes / 2)
        && session.next + datagrams <= MAX_DATAGRAMS
}
