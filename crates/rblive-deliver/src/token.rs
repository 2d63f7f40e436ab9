//! Viewers' tokens: a stream, a time until which it may be watched, and a signature.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;

/// Why a token does not open a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The address has no token.
    #[error("this stream needs a token: add ?token=… to the address")]
    Missing,
    /// The token is no token, or for another stream, or signed with another key.
    #[error("the token is not valid for this stream")]
    Invalid,
    /// The token was valid once.
    #[error("the token has expired; ask for a new one")]
    Expired,
}

/// Makes the token with which `stream` may be watched until `expires` (seconds since 1970), for `?token=` in its addresses.
///
/// ```
/// use rblive_deliver::token;
/// let token = token::sign(b"a long secret", "camera/1", 4_000_000_000);
/// assert!(token::check(b"a long secret", "camera/1", Some(&token)).is_ok());
/// assert!(token::check(b"a long secret", "camera/2", Some(&token)).is_err());
/// ```
pub fn sign(key: &[u8], stream: &str, expires: u64) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message(stream, expires).as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{expires}.{hex}")
}

/// Checks the token of a request.
///
/// # Errors
/// [`TokenError`]: the stream may not be watched.
pub fn check(key: &[u8], stream: &str, token: Option<&str>) -> Result<(), TokenError> {
    let (expires, hex) = token.ok_or(TokenError::Missing)?.split_once('.').ok_or(TokenError::Invalid)?;
    let expires: u64 = expires.parse().map_err(|_| TokenError::Invalid)?;
    let tag = bytes(hex).ok_or(TokenError::Invalid)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::verify(&key, message(stream, expires).as_bytes(), &tag).map_err(|_| TokenError::Invalid)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now > expires { Err(TokenError::Expired) } else { Ok(()) }
}

fn message(stream: &str, expires: u64) -> String {
    // A name has no space.
    format!("{expires} {stream}")
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_stream_until_its_time() {
        let token = sign(b"key", "a/b", 4_000_000_000);
        assert_eq!(check(b"key", "a/b", Some(&token)), Ok(()));
        for (stream, token) in [
            ("a/c", token.as_str()),
            ("a/b", &token.replacen('4', "5", 1)),
            ("a/b", "x"),
            ("a/b", "1."),
            ("a/b", "1.ä"),
        ] {
            assert_eq!(check(b"key", stream, Some(token)), Err(TokenError::Invalid), "{token}");
        }
        assert_eq!(check(b"other", "a/b", Some(&token)), Err(TokenError::Invalid));
        assert_eq!(check(b"key", "a/b", None), Err(TokenError::Missing));
        assert_eq!(check(b"key", "a/b", Some(&sign(b"key", "a/b", 1))), Err(TokenError::Expired));
    }
}
