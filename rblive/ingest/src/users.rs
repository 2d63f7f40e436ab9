//! Users with passwords, of which only hashes are stored.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use parking_lot::Mutex;
use rblive::config::matches;
use serde::{Deserialize, Serialize};

/// A user who may publish.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The hash of the password, as `rblive password` prints it.
    pub password: String,
    /// The names of the streams that the user may publish, where `*` stands for any characters. Default: all.
    #[serde(default = "all")]
    pub streams: Vec<String>,
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

const SCHEME: &str = "pbkdf2-sha256";
/// The rounds of a new hash: some hundredths of a second.
const ROUNDS: u32 = 200_000;
/// The most rounds that a hash of the configuration may ask for.
const MAX_ROUNDS: u32 = 10_000_000;
const BYTES: usize = 32;
const SALT: usize = 16;

/// A hash that was read.
#[derive(Debug, Clone)]
struct Hash {
    rounds: NonZeroU32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// The hash of a password, for the setting `ingest.users.NAME.password`.
///
/// # Errors
/// The system gives no random bytes.
pub fn hash_password(password: &str) -> Result<String, std::io::Error> {
    let mut salt = [0; SALT];
    rand::fill(&mut salt).map_err(|_| std::io::Error::other("the system gives no random bytes"))?;
    Ok(hashed(password, ROUNDS, &salt))
}

fn hashed(password: &str, rounds: u32, salt: &[u8]) -> String {
    let mut hash = [0; BYTES];
    let count = NonZeroU32::new(rounds).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, count, salt, password.as_bytes(), &mut hash);
    format!("{SCHEME}:{rounds}:{}:{}", hex(salt), hex(&hash))
}

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Hash {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (scheme, rounds, salt, hash) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let rounds = rounds.parse::<NonZeroU32>().ok().filter(|rounds| rounds.get() <= MAX_ROUNDS)?;
        let (salt, hash) = (unhex(salt)?, unhex(hash)?);
        let known = scheme == SCHEME && hash.len() == BYTES && !salt.is_empty() && parts.next().is_none();
        known.then_some(Self { rounds, salt, hash })
    }

    fn fits(&self, password: &str) -> bool {
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::verify(algorithm, self.rounds, &self.salt, password.as_bytes(), &self.hash).is_ok()
    }
}

/// The users of a configuration.
pub(crate) struct Users {
    users: BTreeMap<String, (Hash, Vec<String>)>,
    /// For names that no user has: a check takes as long.
    nobody: Hash,
    /// Passwords that were right, under a key of this process: encoders repeat them with each request.
    known: Mutex<HashMap<String, hmac::Tag>>,
    key: hmac::Key,
}

impl Users {
    /// Reads the users. The error names one with a password that is no hash.
    pub(crate) fn new(users: &BTreeMap<String, User>) -> Result<Self, String> {
        let mut read = BTreeMap::new();
        for (name, user) in users {
            let hash = Hash::parse(&user.password);
            let wrong =
                || format!("ingest.users.{name}.password is no hash: make one with `rblive password`");
            read.insert(name.clone(), (hash.ok_or_else(wrong)?, user.streams.clone()));
        }
        let nobody = Hash {
            rounds: NonZeroU32::MIN.saturating_add(ROUNDS),
            salt: vec![0; SALT],
            hash: vec![0; BYTES],
        };
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key = key.map_err(|_| "the system gives no random bytes".to_owned())?;
        Ok(Self { users: read, nobody, known: Mutex::default(), key })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether this user may publish this stream, and the password was right before. Takes no time.
    pub(crate) fn open_known(&self, name: &str, password: &str, stream: &str) -> bool {
        self.is_known(name, password)
            && self.users.get(name).is_some_and(|(_, streams)| Self::names(streams, stream))
    }

    fn is_known(&self, name: &str, password: &str) -> bool {
        let known = self.known.lock();
        let tag = known.get(name);
        tag.is_some_and(|tag| hmac::verify(&self.key, password.as_bytes(), tag.as_ref()).is_ok())
    }

    fn names(streams: &[String], stream: &str) -> bool {
        streams.iter().any(|pattern| matches(pattern, stream))
    }

    /// Whether this user with this password may publish this stream.
    pub(crate) fn open(&self, name: &str, password: &str, stream: &str) -> bool {
        let user = self.users.get(name);
        let is_known = self.is_known(name, password);
        let fits = is_known || user.map_or(&self.nobody, |(hash, _)| hash).fits(password);
        let Some((_, streams)) = user.filter(|_| fits) else { return false };
        if !is_known {
            let tag = hmac::sign(&self.key, password.as_bytes());
            self.known.lock().insert(name.to_owned(), tag);
        }
        Self::names(streams, stream)
    }
}

/// Compares without stopping at the first difference.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    // Digests have one length, so that the comparison tells nothing of the lengths either.
    let digest = |bytes| digest::digest(&digest::SHA256, bytes);
    !a.is_empty()
        && aws_lc_rs::constant_time::verify_slices_are_equal(digest(a).as_ref(), digest(b).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_publishes_the_own_streams_with_the_own_password() {
        let hash = hashed("secret", 1000, b"salt");
        let user = User { password: hash.clone(), streams: vec!["anna/*".to_owned()] };
        let users = Users::new(&[("anna".to_owned(), user)].into()).unwrap();
        for _ in 0..2 {
            assert!(users.open("anna", "secret", "anna/1"));
            for (name, password, stream) in [
                ("anna", "Secret", "anna/1"),
                ("anna", "", "anna/1"),
                ("anna", "secret", "b"),
                ("bert", "secret", "anna/1"),
            ] {
                assert!(!users.open(name, password, stream), "{name} {password} {stream}");
            }
        }
        let text = hash_password("x").unwrap();
        assert!(Hash::parse(&text).unwrap().fits("x") && text != hash_password("x").unwrap());
        for bad in [
            "",
            "secret",
            "pbkdf2-sha256:0:00:00",
            "md5:1:00:00",
            &hash[..hash.len() - 2],
            &format!("{hash}:"),
        ] {
            let user = User { password: bad.to_owned(), streams: all() };
            let error = Users::new(&[("a".to_owned(), user)].into()).err().unwrap();
            assert!(
                error.contains("ingest.users.a.password") && (bad.is_empty() || !error.contains(bad)),
                "{error}"
            );
        }
    }

    #[test]
    fn only_equal_bytes_are_the_same() {
        assert!(same(b"a", b"a"));
        for (a, b) in [(&b""[..], &b""[..]), (b"a", b"b"), (b"a", b"aa"), (b"", b"a")] {
            assert!(!same(a, b));
        }
    }
}
