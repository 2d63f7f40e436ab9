//! A session: the keys between two queues, from their handshake until they are too old.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::aead::{Aad, LessSafeKey};

use super::handshake::SessionKeys;
use super::primitives::{aead_key, nonce};
use super::replay::ReplayWindow;
use crate::security::PublicKey;
use crate::wire::secured::{HEADER_BYTES, Header, Kind, MAC_BYTES, TAG_BYTES, WELCOME_BYTES};

/// The datagrams after which a session gets new keys: the confidentiality limit of AES-GCM, as QUIC has it.
pub(crate) const REKEY_DATAGRAMS: u64 = 1 << 23;
/// The datagrams after which a session sends nothing more.
pub(crate) const MAX_DATAGRAMS: u64 = 1 << 24;

/// The key that seals the datagrams of a session. Threads that send hold it without a lock.
#[derive(Debug)]
pub struct SealKey {
    /// The index of the session at the peer.
    index: u32,
    key: LessSafeKey,
}

impl SealKey {
    /// Seals a datagram in place: room for the header, the plain datagram, room for the tag. No number is used twice.
    pub fn seal(&self, number: u64, datagram: &mut [u8]) {
        let header = Header { kind: Kind::Data, index: self.index, number }.encode();
        let (head, rest) = datagram.split_at_mut(HEADER_BYTES);
        let (text, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
        head.copy_from_slice(&header);
        let sealed = self.key.seal_in_place_separate_tag(nonce(number), Aad::from(header), text);
        tag.copy_from_slice(sealed.expect("a datagram is shorter than the limit of AES-GCM").as_ref());
    }

    /// The index of the session at the peer.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

/// A welcome that may be asked for again, until the initiator has used the session.
pub(crate) struct Unconfirmed {
    /// The check sum of the hello.
    pub hello: [u8; MAC_BYTES],
    pub welcome: [u8; WELCOME_BYTES],
}

/// The result of opening a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The datagram is authentic and new; the flag says whether its number is the greatest.
    Good(bool),
    Replayed,
    Forged,
}

/// The queue at the other end of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub addr: SocketAddr,
    pub key: PublicKey,
}

/// A session.
pub(crate) struct Session {
    pub peer: SocketAddr,
    pub remote: PublicKey,
    pub seal: Arc<SealKey>,
    open: LessSafeKey,
    window: ReplayWindow,
    pub born: Instant,
    /// The number of the next datagram.
    pub next: u64,
    pub sent_bytes: u64,
    /// Present at a responder until the initiator has used the session.
    pub unconfirmed: Option<Unconfirmed>,
    /// When the session ends, and its index among those of its host, as the table has them.
    pub end: Instant,
    pub at_host: usize,
}

impl Session {
    pub fn new(
        now: Instant,
        peer: Remote,
        index: u32,
        keys: &SessionKeys,
        unconfirmed: Option<Unconfirmed>,
    ) -> Session {
        Session {
            peer: peer.addr,
            remote: peer.key,
            seal: Arc::new(SealKey { index, key: aead_key(&keys.send) }),
            open: aead_key(&keys.receive),
            window: ReplayWindow::new(),
            born: now,
            next: 0,
            sent_bytes: 0,
            unconfirmed,
            end: now,
            at_host: 0,
        }
    }

    /// Opens a datagram in place.
    pub fn open(&mut self, header: Header, datagram: &mut [u8]) -> Opened {
        if !self.window.is_new(header.number) {
            return Opened::Replayed;
        }
        let (head, body) = datagram.split_at_mut(HEADER_BYTES);
        if self.open.open_in_place(nonce(header.number), Aad::from(head), body).is_err() {
            return Opened::Forged;
        }
        let newest = self.window.is_newest(header.number);
        self.window.mark(header.number);
        Opened::Good(newest)
    }

    /// Takes this many numbers. Returns the first one.
    pub fn take_numbers(&mut self, datagrams: u64, bytes: u64) -> u64 {
        let first = self.next;
        (self.next, self.sent_bytes) = (first + datagrams, self.sent_bytes.saturating_add(bytes));
        first
    }
}
