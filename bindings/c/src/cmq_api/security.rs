//! Keys, and the settings of queues that encrypt and authenticate their datagrams.

use std::ffi::c_char;
use std::fmt::Display;

use cmq::{PublicKey, SecretKey, Security};
use zeroize::Zeroize;

use crate::cmq_api::message::cmq_key;
use crate::raw::{Versioned, answer, array, copy_out, get, get_mut, optional_text, options};
use crate::raw::{rb_bool, set, text};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_CONFIG, RB_ERR_SYSTEM};
use crate::status::{Failure, call, rb_status};

/// The public key of a queue, which its senders know.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_public_key {
    /// The key.
    pub bytes: [u8; 32],
}

/// The secret key of a queue. Erase it with `cmq_secret_key_erase` when no call needs it any more.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cmq_secret_key {
    /// The key.
    pub bytes: [u8; 32],
}

/// The public key of the queue at an address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_peer {
    /// The address of the queue. The mailbox counts for nothing.
    pub at: cmq_key,
    /// Its public key.
    pub key: cmq_public_key,
}

/// The settings of a queue that encrypts, which docs/CMQ.md explains: its own key (`key_file` or `secret`), the keys of others, and
/// limits. Zeros are defaults. Everything is copied by the call that opens the queue. `cmq_security security = {.size = sizeof
/// security, .key_file = "server.key"};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_security {
    /// `sizeof(cmq_security)`.
    pub size: usize,
    /// The file with the secret key of this queue, as `cmq keygen` writes it. Only its owner may have a right to it. NULL: `secret`.
    pub key_file: *const c_char,
    /// The secret key of this queue; NULL: `key_file`.
    pub secret: *const cmq_secret_key,
    /// The file with a secret that both ends know beside their keys; NULL: `shared_secret`.
    pub shared_secret_file: *const c_char,
    /// A secret that both ends know beside their keys, against an attacker who will break X25519; NULL: none, or the file's.
    pub shared_secret: *const cmq_secret_key,
    /// The public key of the queues at all addresses that `peers` does not have; NULL: messages to them fail.
    pub default_peer: *const cmq_public_key,
    /// The public keys of the queues at some addresses; NULL if there are none.
    pub peers: *const cmq_peer,
    /// The number of `peers`.
    pub peer_count: usize,
    /// The public keys of the queues that may begin a session with this one, beside those of `peers` and `default_peer`; NULL if
    /// there are none.
    pub allowed: *const cmq_public_key,
    /// The number of `allowed`. 0: every queue that knows the public key of this one may, unless `only_known` is set.
    pub allowed_count: usize,
    /// Lets only the queues of `peers`, `default_peer` and `allowed` begin a session.
    pub only_known: rb_bool,
    /// A session gets new keys after this time in nanoseconds; 0: 120 s. 1 s to 1 h.
    pub rekey_after_ns: i64,
    /// A session gets new keys after this many bytes; 0: 4 GiB. At least 64 KiB.
    pub rekey_bytes: u64,
    /// How long a handshake is tried before the messages that wait for it fail, in nanoseconds; 0: 5 s. 100 ms to 60 s.
    pub handshake_timeout_ns: i64,
    /// Sessions that are remembered, about 2.5 KiB each; 0: 16,384.
    pub max_sessions: usize,
    /// Handshakes that were answered and not yet completed; 0: 1,024. At least 16.
    pub max_half_open: usize,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for cmq_security {}

impl cmq_public_key {
    /// The place of a key that is none.
    pub(crate) const NONE: Self = Self { bytes: [0; 32] };
}

impl From<PublicKey> for cmq_public_key {
    fn from(key: PublicKey) -> Self {
        Self { bytes: key.0 }
    }
}

/// An error with a file, whose name it then has.
fn of_file<E: Display>(path: &str) -> impl FnOnce(E) -> Failure {
    move |error| Failure::of(RB_ERR_CONFIG, format!("{path}: {error}"))
}

fn read_secret(path: &str) -> Result<SecretKey, Failure> {
    SecretKey::read(path).map_err(of_file(path))
}

/// A secret key that the caller gives as a file or as bytes, or not at all.
fn secret(
    file: *const c_char,
    bytes: *const cmq_secret_key,
    what: &str,
) -> Result<Option<SecretKey>, Failure> {
    match (optional_text(file, what)?, bytes.is_null()) {
        (Some(_), false) => {
            Err(Failure::of(RB_ERR_ARGUMENT, format!("{what} is in a file, or in memory: not both")))
        }
        (Some(path), true) => read_secret(path).map(Some),
        (None, false) => Ok(Some(SecretKey::from_bytes(get(bytes, what)?.bytes))),
        (None, true) => Ok(None),
    }
}

/// The settings of the caller; NULL is no encryption.
pub(crate) fn security(given: *const cmq_security) -> Result<Option<Security>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    let given = options(given, "the security")?;
    let own = secret(given.key_file, given.secret, "the secret key")?;
    let own = own.ok_or_else(|| {
        Failure::new(RB_ERR_ARGUMENT, "the security has no secret key: set key_file or secret")
    })?;
    let mut made = Security::new(own);
    made.shared_secret = secret(given.shared_secret_file, given.shared_secret, "the shared secret")?;
    if !given.default_peer.is_null() {
        made = made.default_peer(PublicKey(get(given.default_peer, "the default peer")?.bytes));
    }
    for peer in array(given.peers, given.peer_count, "the peers")? {
        made = made.peer(peer.at.addr()?, PublicKey(peer.key.bytes));
    }
    for key in array(given.allowed, given.allowed_count, "the allowed keys")? {
        made = made.allow(PublicKey(key.bytes));
    }
    if given.only_known.is_set() {
        made.allowed.get_or_insert_default();
    }
    set!(made, given: rekey_bytes, max_sessions, max_half_open;
        rekey_after = rekey_after_ns, handshake_timeout = handshake_timeout_ns);
    Ok(Some(made))
}

/// Makes a random secret key. Any thread. Fails with `RB_ERR_SYSTEM` if the system has no random bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_secret_key_generate(key: *mut cmq_secret_key) -> rb_status {
    call(|| {
        let key = get_mut(key, "the place for the key")?;
        let made = SecretKey::generate().map_err(|error| Failure::of(RB_ERR_SYSTEM, error))?;
        key.bytes = *made.as_bytes();
        Ok(())
    })
}

/// Reads a secret key from a file that only its owner has a right to. Any thread. Fails with `RB_ERR_CONFIG`: the text names the file.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_secret_key_read(path: *const c_char, key: *mut cmq_secret_key) -> rb_status {
    call(|| {
        let key = get_mut(key, "the place for the key")?;
        key.bytes = *read_secret(text(path, "the path")?)?.as_bytes();
        Ok(())
    })
}

/// Writes a secret key into a new file that only its owner may read. Any thread. Fails with `RB_ERR_CONFIG`, also if the file exists.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_secret_key_write_new(key: *const cmq_secret_key, path: *const c_char) -> rb_status {
    call(|| {
        let path = text(path, "the path")?;
        SecretKey::from_bytes(get(key, "the key")?.bytes).write_new(path).map_err(of_file(path))
    })
}

/// The public key that belongs to a secret key. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_secret_key_public(
    key: *const cmq_secret_key,
    public_key: *mut cmq_public_key,
) -> rb_status {
    answer(public_key, "the place for the public key", || {
        Ok(SecretKey::from_bytes(get(key, "the key")?.bytes).public().into())
    })
}

/// Overwrites a secret key with zeros. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_secret_key_erase(key: *mut cmq_secret_key) -> rb_status {
    call(|| {
        get_mut(key, "the key")?.bytes.zeroize();
        Ok(())
    })
}

/// Reads a public key from a file, as `cmq keygen` writes it. Any thread. Fails with `RB_ERR_CONFIG`: the text names the file.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_public_key_read(path: *const c_char, key: *mut cmq_public_key) -> rb_status {
    answer(key, "the place for the key", || {
        let path = text(path, "the path")?;
        Ok(PublicKey::read(path).map_err(of_file(path))?.into())
    })
}

/// The public key of a text of 64 hexadecimal digits. Any thread. Fails with `RB_ERR_ARGUMENT`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_public_key_parse(digits: *const c_char, key: *mut cmq_public_key) -> rb_status {
    answer(key, "the place for the key", || {
        let parsed = text(digits, "the text of the key")?.parse::<PublicKey>();
        Ok(parsed.map_err(|error| Failure::of(RB_ERR_ARGUMENT, error))?.into())
    })
}

/// A public key as 64 hexadecimal digits, as `snprintf` would write them. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_public_key_format(
    key: *const cmq_public_key,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| copy_out(PublicKey(get(key, "the key")?.bytes).to_string().as_bytes(), to, capacity, len))
}
