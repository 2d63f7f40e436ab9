//! The token that clients of the endpoint present.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use access::{BearerToken, Source, TokenRefused, check_secret_mode};
use hyper::Request;
use hyper::header::AUTHORIZATION;
use private_files::GivenFile;

/// The largest file of a token.
const MAX_BYTES: u64 = 4_096;

/// The token, if the endpoint asks for one.
#[derive(Default)]
pub(super) struct Token(Option<BearerToken>);

impl Token {
    /// Reads the token of a file; an empty path is no token.
    ///
    /// # Errors
    /// The file cannot be read, everybody can read it, or it has no token.
    pub(super) fn read(path: &str) -> io::Result<Self> {
        if path.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let file = GivenFile::open(path.as_ref())?;
        check_secret_mode(path.as_ref(), file.mode()).map_err(|refused| wrong(refused.to_string()))?;
        let text = file.text(MAX_BYTES)?;
        let token = text.trim();
        if !token.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(wrong("it must have one token of printable characters without spaces".to_owned()));
        }
        Ok(Self(Some(BearerToken::new(token).map_err(|weak| wrong(weak.to_string()))?)))
    }

    /// Whether both are one token, or none.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => own.is_same(other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Whether the endpoint asks for a token.
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Whether this is the token. A client that may have meant another one has guessed nothing.
    pub(super) fn is(&self, shown: &str) -> bool {
        self.0.as_ref().is_some_and(|token| token.is(shown.as_bytes()))
    }

    /// Whether a client presents the token, or none is needed.
    ///
    /// # Errors
    /// [`TokenRefused`], for the client and the log.
    pub(super) fn check<B>(&self, request: &Request<B>, client: SocketAddr) -> Result<(), TokenRefused> {
        let presented = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        self.check_shown(presented, Source::Address(client.ip().into()))
    }

    /// The same for the field `Authorization` that a client has sent.
    ///
    /// # Errors
    /// As [`Token::check`].
    pub(super) fn check_shown(&self, presented: Option<&[u8]>, source: Source) -> Result<(), TokenRefused> {
        let Some(token) = &self.0 else { return Ok(()) };
        token.check(presented, source, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_everybody_can_read_or_without_a_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            Token::read(path.to_str().unwrap())
        };
        assert!(read("0123456789abcdef\n", 0o640).unwrap().0.is_some());
        assert!(read("0123456789abcdef\n", 0o644).err().unwrap().to_string().contains("chmod"));
        for text in ["short", "", "0123456789abcdef two", &"x".repeat(5000)] {
            assert!(read(text, 0o600).is_err(), "{text}");
        }
        assert!(Token::read("/nowhere").is_err());
    }
}
