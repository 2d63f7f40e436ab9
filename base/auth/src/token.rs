//! Tokens that a broker issues: random numbers, of which the broker keeps only the hash.
//!
//! ```text
//!   rbmq_<32 random bytes, base64url>        what the client presents
//!   <SHA-256 of that text>                   what the file of users has
//! ```
//!
//! A fast hash is enough, since 256 random bits cannot be guessed. So a token is checked in a microsecond, and thousands of devices may
//! connect again at the same time.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use peers::Secret;
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

/// The beginning of every token, by which secret scanners find one that was published by mistake.
pub const TOKEN_PREFIX: &str = "rbmq_";

const RANDOM_BYTES: usize = 32;

/// The hash of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &Secret) -> Self {
        Self(Sha256::digest(token.expose().as_bytes()).into())
    }
}

impl std::fmt::Display for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenHash({self})")
    }
}

impl std::str::FromStr for TokenHash {
    type Err = TokenHashError;

    fn from_str(text: &str) -> Result<Self, TokenHashError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| TokenHashError)?;
        bytes.try_into().map(Self).map_err(|_| TokenHashError)
    }
}

/// A text is not the hash of a token. Its author is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it must be 64 hexadecimal digits in lower case: the SHA-256 of the token, as 'rbmq token new' writes it"
)]
pub struct TokenHashError;

/// Makes a token.
///
/// ```
/// let token = access::new_token()?;
/// assert!(token.expose().starts_with("rbmq_") && token.expose().len() == 48);
/// # Ok::<(), access::NoRandomNumbers>(())
/// ```
///
/// # Errors
/// The system has no random numbers.
pub fn new_token() -> Result<Secret, NoRandomNumbers> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| NoRandomNumbers(error.to_string()))?;
    let mut text = String::with_capacity(TOKEN_PREFIX.len() + RANDOM_BYTES.div_ceil(3) * 4);
    text.push_str(TOKEN_PREFIX);
    BASE64URL_NOPAD.encode_append(&random, &mut text);
    random.zeroize();
    Ok(Secret::from(text))
}

/// The system has no random numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system has no random numbers: {0}")]
pub struct NoRandomNumbers(pub(crate) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_their_hashes_are_read_again() {
        let (one, other) = (new_token().unwrap(), new_token().unwrap());
        assert_ne!(one, other);
        let hash = TokenHash::of(&one);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_ne!(hash, TokenHash::of(&other));
        for wrong in ["", "abc", &"A".repeat(64), &"a".repeat(62), &"a".repeat(66)] {
            assert_eq!(wrong.parse::<TokenHash>(), Err(TokenHashError));
        }
    }

    #[test]
    fn the_hash_is_sha_256_of_the_whole_text() {
        let hash = TokenHash::of(&Secret::from("abc".to_owned()));
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
