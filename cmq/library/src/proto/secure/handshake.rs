//! The handshake of two queues: Noise_IKpsk2_25519_AESGCM_SHA256, by the crate snow.
//!
//! ```text
//!   initiator                                             responder
//!   knows the responder's key                             has a key
//!   hello: ephemeral key, own key (sealed) ─────────────▶ knows the initiator's key now
//!          ◀──────────────────────── welcome: ephemeral key, index of the session (sealed)
//!   has the keys of the session                           has the keys of the session
//!   data, or an empty datagram ─────────────────────────▶ the initiator is no replay: the session may be used
//! ```
//!
//! The prologue binds the header of the hello. Without a shared secret the PSK is zeros, as WireGuard has it.

use aws_lc_rs::hmac;
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::primitives::Primitives;
use crate::security::{KEY_BYTES, PublicKey, Security};
use crate::wire::secured::{HEADER_BYTES, MAC_BYTES, NOISE_HELLO_BYTES, NOISE_WELCOME_BYTES};

/// The protocol's name, from which both ends derive their first hash.
const NAME: &str = "Noise_IKpsk2_25519_AESGCM_SHA256";
/// The first bytes of the prologue.
const PROLOGUE: &[u8; 5] = b"CMQ 2";

/// The keys of a session, for sending and for receiving.
pub(crate) struct SessionKeys {
    pub send: Zeroizing<[u8; KEY_BYTES]>,
    pub receive: Zeroizing<[u8; KEY_BYTES]>,
}

/// The secret part of an ephemeral key.
pub(crate) type Ephemeral = Zeroizing<[u8; KEY_BYTES]>;

fn state(
    security: &Security,
    header: &[u8; HEADER_BYTES],
    ephemeral: Ephemeral,
    responder: Option<&PublicKey>,
) -> Result<HandshakeState, snow::Error> {
    let mut prologue = [0; PROLOGUE.len() + HEADER_BYTES];
    prologue[..PROLOGUE.len()].copy_from_slice(PROLOGUE);
    prologue[PROLOGUE.len()..].copy_from_slice(header);
    let none = [0; KEY_BYTES];
    let psk = security.shared_secret.as_ref().map_or(&none, |secret| secret.as_bytes());
    let builder = Builder::with_resolver(NAME.parse()?, Box::new(Primitives { ephemeral }))
        .local_private_key(security.secret.as_bytes())?
        .psk(2, psk)?
        .prologue(&prologue)?;
    match responder {
        Some(key) => builder.remote_public_key(&key.0)?.build_initiator(),
        None => builder.build_responder(),
    }
}

/// A hello that waits for its welcome.
pub(crate) struct Initiator(HandshakeState);

impl Initiator {
    /// Writes the first message. `None` if the responder's key is none.
    pub fn begin(
        security: &Security,
        header: &[u8; HEADER_BYTES],
        ephemeral: Ephemeral,
        responder: &PublicKey,
    ) -> Option<(Initiator, [u8; NOISE_HELLO_BYTES])> {
        let mut state = state(security, header, ephemeral, Some(responder)).ok()?;
        let mut message = [0; NOISE_HELLO_BYTES];
        let length = state.write_message(&[], &mut message).ok()?;
        (length == NOISE_HELLO_BYTES).then_some((Initiator(state), message))
    }

    /// Reads the second message. Returns the responder's index and the keys, or `None` for a message that the responder did not
    /// write; the true one may still follow.
    pub fn finish(&mut self, message: &[u8]) -> Option<(u32, SessionKeys)> {
        let mut index = [0; NOISE_WELCOME_BYTES];
        let length = self.0.read_message(message, &mut index).ok()?;
        let index = u32::from_le_bytes(index.get(..length)?.try_into().ok()?);
        let (send, receive) = self.0.dangerously_get_raw_split();
        Some((index, SessionKeys { send: Zeroizing::new(send), receive: Zeroizing::new(receive) }))
    }
}

/// A hello that was read, and waits for its answer.
pub(crate) struct Responder(HandshakeState);

impl Responder {
    /// Reads the first message. Returns the initiator's key, or `None` for a message that is not for this queue.
    pub fn read(
        security: &Security,
        header: &[u8; HEADER_BYTES],
        ephemeral: Ephemeral,
        message: &[u8],
    ) -> Option<(Responder, PublicKey)> {
        let mut state = state(security, header, ephemeral, None).ok()?;
        let length = state.read_message(message, &mut [0; NOISE_HELLO_BYTES]).ok()?;
        let key = PublicKey(state.get_remote_static()?.try_into().ok()?);
        (length == 0).then_some((Responder(state), key))
    }

    /// Writes the second message, with the index of the session here.
    pub fn answer(mut self, index: u32) -> Option<([u8; NOISE_WELCOME_BYTES], SessionKeys)> {
        let mut message = [0; NOISE_WELCOME_BYTES];
        let length = self.0.write_message(&index.to_le_bytes(), &mut message).ok()?;
        let (receive, send) = self.0.dangerously_get_raw_split();
        let keys = SessionKeys { send: Zeroizing::new(send), receive: Zeroizing::new(receive) };
        (length == NOISE_WELCOME_BYTES).then_some((message, keys))
    }
}

/// The key of the check sums of hellos to a queue. Only a sender that knows its public key can compute one, so a scan of
/// ports gets no answer and costs no key agreement.
pub(crate) fn mac_key(of: &PublicKey) -> hmac::Key {
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"CMQ 2 hello"), &of.0);
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// A check sum.
pub(crate) fn mac(key: &hmac::Key, bytes: &[u8]) -> [u8; MAC_BYTES] {
    *hmac::sign(key, bytes).as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Compares check sums in constant time.
pub(crate) fn same_mac(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}
