//! Viewers' tokens: a stream, a time until which it may be watched, and a signature. A token for the stream [`EVERY`] opens all.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;

/// The name in a token that opens every stream and recording, the lists of all, and the metrics. No stream has this name.
pub const EVERY: &str = "*";

/// Why a token does not open a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The address has no token.
    #[error("this address needs a token: add ?token=… to it")]
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
    if Access::of(Some(key), token)?.opens(stream) { Ok(()) } else { Err(TokenError::Invalid) }
}

/// The streams that a request may see.
pub(crate) enum Access {
    /// All streams: no key is configured.
    Open,
    /// The streams that the token was signed for.
    Signed { key: Box<hmac::Key>, expires: u64, tag: Vec<u8> },
}

impl Access {
    /// The access that a token gives. Without a configured key it is access to everything.
    ///
    /// # Errors
    /// The token is missing, malformed or expired.
    pub fn of(key: Option<&[u8]>, token: Option<&str>) -> Result<Self, TokenError> {
        let Some(key) = key else { return Ok(Self::Open) };
        let (expires, hex) = token.ok_or(TokenError::Missing)?.split_once('.').ok_or(TokenError::Invalid)?;
        let expires: u64 = expires.parse().map_err(|_| TokenError::Invalid)?;
        let tag = bytes(hex).ok_or(TokenError::Invalid)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if now > expires {
            return Err(TokenError::Expired);
        }
        Ok(Self::Signed { key: Box::new(hmac::Key::new(hmac::HMAC_SHA256, key)), expires, tag })
    }

    /// When the access ends. `None`: never.
    pub fn until(&self) -> Option<SystemTime> {
        match self {
            Self::Open => None,
            Self::Signed { expires, .. } => UNIX_EPOCH.checked_add(Duration::from_secs(*expires)),
        }
    }

    /// Whether all streams are open, so that the names of streams may be listed too.
    pub fn is_all(&self) -> bool {
        self.is_for(EVERY)
    }

    /// Whether a stream is open.
    pub fn opens(&self, stream: &str) -> bool {
        // Most tokens are for one stream.
        self.is_for(stream) || self.is_all()
    }

    /// Whether the token is for exactly this stream. Lists, which ask for many streams, ask [`Access::is_all`] once before.
    pub fn is_for(&self, stream: &str) -> bool {
        match self {
            Self::Open => true,
            Self::Signed { key, expires, tag } => {
                hmac::verify(key, message(stream, *expires).as_bytes(), tag).is_ok()
            }
        }
    }
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
            ("a/b", "4000000000."),
            ("a/b", "4000000000.ä"),
        ] {
            assert_eq!(check(b"key", stream, Some(token)), Err(TokenError::Invalid), "{token}");
        }
        assert_eq!(check(b"other", "a/b", Some(&token)), Err(TokenError::Invalid));
        assert_eq!(check(b"key", "a/b", None), Err(TokenError::Missing));
        assert_eq!(check(b"key", "a/b", Some(&sign(b"key", "a/b", 1))), Err(TokenError::Expired));
    }

    /// Web sites sign too, as docs/RBLIVE.md says.
    #[test]
    fn the_form_of_a_token_stays() {
        let digits = "a17ba61ebc4abcd7190453ebf68414e62ab8559eb74ed76b9886a3bcbc312ca6";
        let token = sign(b"a long secret", "live/camera", 4_000_000_000);
        assert_eq!(token, format!("4000000000.{digits}"));
    }

    #[test]
    fn a_token_for_every_stream_opens_all() {
        assert!(Access::of(None, None).unwrap().is_all());
        let every = sign(b"key", EVERY, 4_000_000_000);
        assert!(Access::of(Some(b"key"), Some(&every)).unwrap().is_all());
        assert_eq!(check(b"key", "a/b", Some(&every)), Ok(()));
        assert_eq!(check(b"other", "a/b", Some(&every)), Err(TokenError::Invalid));
        let one = Access::of(Some(b"key"), Some(&sign(b"key", "a/b", 4_000_000_000))).unwrap();
        assert!(!one.is_all() && one.opens("a/b") && !one.opens("a/c") && !one.opens(EVERY));
    }
}
