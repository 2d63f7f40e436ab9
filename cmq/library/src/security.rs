//! Keys, and the settings of queues that encrypt and authenticate their datagrams.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use private_files::GivenFile;
use zeroize::{Zeroize, Zeroizing};

use crate::key::canonical;

/// Bytes of each key.
pub const KEY_BYTES: usize = 32;
/// The most bytes of a file with a key.
const MAX_FILE: u64 = 4096;

/// The public key of a queue, which its senders know. A key is written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        parse_hex(text).map(|bytes| PublicKey(*bytes))
    }
}

impl PublicKey {
    /// Reads a public key from a file, as `cmq keygen` writes it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: impl AsRef<Path>) -> Result<PublicKey, KeyError> {
        read_text(path.as_ref(), false)?.parse()
    }
}

/// The secret key of a queue. The key is erased from memory when it is dropped, and no output shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; KEY_BYTES]);

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey of {}", self.public())
    }
}

impl SecretKey {
    /// A new random key.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn generate() -> Result<SecretKey, KeyError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| KeyError::Io(io::Error::other(error)))?;
        Ok(SecretKey(bytes))
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> SecretKey {
        SecretKey(bytes)
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The public key that belongs to this key.
    pub fn public(&self) -> PublicKey {
        let key = PrivateKey::from_private_key(&X25519, &self.0).expect("every 32 bytes are a key");
        let public = key.compute_public_key().expect("a key has a public key");
        PublicKey(public.as_ref().try_into().expect("a public key has 32 bytes"))
    }

    /// Reads a secret key from a file that only its owner may read.
    ///
    /// # Errors
    /// [`KeyError`], also if the group or others have a right to the file.
    pub fn read(path: impl AsRef<Path>) -> Result<SecretKey, KeyError> {
        let text = read_text(path.as_ref(), true)?;
        parse_hex(&text).map(|bytes| SecretKey(*bytes))
    }

    /// Writes the key into a new file that only its owner may read.
    ///
    /// # Errors
    /// [`KeyError::Io`], also if the file exists.
    pub fn write_new(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
        for byte in self.0 {
            text.push(char::from_digit(u32::from(byte >> 4), 16).expect("a digit"));
            text.push(char::from_digit(u32::from(byte & 15), 16).expect("a digit"));
        }
        text.push('\n');
        Ok(file.write_all(text.as_bytes())?)
    }
}

/// The text of a file. A secret file belongs to its owner alone.
fn read_text(path: &Path, secret: bool) -> Result<Zeroizing<String>, KeyError> {
    let file = GivenFile::open(path)?;
    if secret && file.mode() & 0o077 != 0 {
        return Err(KeyError::Readable);
    }
    Ok(Zeroizing::new(file.text(MAX_FILE)?))
}

fn parse_hex(text: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    let text = text.trim().as_bytes();
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    if text.len() != 2 * KEY_BYTES {
        return Err(KeyError::Format);
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8).ok_or(KeyError::Format);
    for (byte, pair) in key.iter_mut().zip(text.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(key)
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The caller's: a key has 64 hexadecimal digits.
    #[error("a key has 64 hexadecimal digits, and this text has something else")]
    Format,
    /// The caller's: the group or others have a right to the file with the secret key.
    #[error("users other than the owner have a right to the file with the secret key: run chmod 600")]
    Readable,
}

/// The settings of a queue that encrypts: its own key, the keys of others, and limits.
///
/// A queue with these settings sends and takes encrypted datagrams only. Senders know the public key of the queue that they send
/// to. A queue answers each peer with a session, without knowing its key before.
///
/// ```
/// use cmq::{Config, SecretKey, Security};
///
/// let (server, client) = (SecretKey::generate()?, SecretKey::generate()?);
/// let at_client = Security::new(client.clone()).default_peer(server.public());
/// let at_server = Security::new(server).allow(client.public());
/// let receiver = cmq::new_rq_with::<u32>("127.0.0.1:0", Config::default().security(Some(at_server)))?;
/// let sender = cmq::new_rq_with::<u32>("127.0.0.1:0", Config::default().security(Some(at_client)))?;
/// sender.cw_push((receiver.local_addr(), 0), &7)?;
/// let (message, from) = receiver.pop_timeout(std::time::Duration::from_secs(10)).expect("loopback");
/// assert_eq!((message, receiver.peer_key(from.addr)), (7, Some(client.public())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Security {
    /// The secret key of this queue.
    pub secret: SecretKey,
    /// A secret that both ends know beside their keys: a handshake needs it too. This secret protects against an attacker
    /// who will break X25519. Default `None`.
    pub shared_secret: Option<SecretKey>,
    /// The public keys of the queues at these addresses. Default: none.
    pub peers: BTreeMap<SocketAddr, PublicKey>,
    /// The public key of the queues at all other addresses. Default `None`: messages to them fail.
    pub default_peer: Option<PublicKey>,
    /// The public keys of the queues that may begin a session with this one. Default `None`: every queue that knows the public
    /// key of this one. The keys of `peers` and `default_peer` are always allowed.
    pub allowed: Option<BTreeSet<PublicKey>>,
    /// A session gets new keys after this time. Default 120 s; 1 s to 1 h. Its old keys work for half as long again.
    pub rekey_after: Duration,
    /// A session gets new keys after this many bytes. Default 4 GiB; at least 64 KiB.
    ///
    /// New keys also follow after 8,388,608 datagrams, the limit of AES-GCM.
    pub rekey_bytes: u64,
    /// How long a handshake is tried before the messages that wait for it fail. Default 5 s; 100 ms to 60 s.
    pub handshake_timeout: Duration,
    /// Sessions that are remembered: about 2.5 KiB each. Default 16,384. Beyond it an IP address with more than its share loses its
    /// oldest session, or else the oldest session of all ends.
    pub max_sessions: usize,
    /// Handshakes that were answered and not yet completed, beside the sessions: they evict none. Default 1,024, at least 16. A quarter
    /// of them belongs to one IP address at most, and beyond an eighth an initiator proves its address with a cookie.
    pub max_half_open: usize,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("public", &self.secret.public()).finish_non_exhaustive()
    }
}

option_setters::setters! { fields of Security:
    shared_secret: Option<SecretKey>,
    rekey_after: Duration,
    rekey_bytes: u64,
    handshake_timeout: Duration,
    max_sessions: usize,
    max_half_open: usize,
}

impl Security {
    /// The settings of a queue with this key, which knows no other queue.
    pub fn new(secret: SecretKey) -> Security {
        Security {
            secret,
            shared_secret: None,
            peers: BTreeMap::new(),
            default_peer: None,
            allowed: None,
            rekey_after: Duration::from_secs(120),
            rekey_bytes: 4 << 30,
            handshake_timeout: Duration::from_secs(5),
            max_sessions: 16_384,
            max_half_open: 1024,
        }
    }

    /// Sets the public key of the queue at an address.
    #[must_use]
    pub fn peer(mut self, addr: SocketAddr, key: PublicKey) -> Security {
        self.peers.insert(canonical(addr), key);
        self
    }

    /// Sets the public key of the queues at all other addresses.
    #[must_use]
    pub fn default_peer(mut self, key: PublicKey) -> Security {
        self.default_peer = Some(key);
        self
    }

    /// Allows the queue with this key to begin a session, and no queue that is not allowed.
    #[must_use]
    pub fn allow(mut self, key: PublicKey) -> Security {
        self.allowed.get_or_insert_default().insert(key);
        self
    }

    /// The known key of the queue at an address.
    pub(crate) fn key_of(&self, addr: SocketAddr) -> Option<PublicKey> {
        self.peers.get(&addr).copied().or(self.default_peer)
    }

    /// True if the queue with this key may begin a session.
    pub(crate) fn allows(&self, key: &PublicKey) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        allowed.contains(key)
            || self.default_peer == Some(*key)
            || self.peers.values().any(|peer| peer == key)
    }
}
