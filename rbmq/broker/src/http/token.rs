//! The token that clients of the endpoint present.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;

use access::check_secret_mode;
use hyper::Request;
use hyper::header::AUTHORIZATION;

/// The shortest token, in characters: 96 bits in base64.
const MIN_CHARS: usize = 16;

/// The largest file of a token.
const MAX_BYTES: u64 = 4_096;

/// The token, if the endpoint asks for one.
#[derive(Default)]
pub(super) struct Token(Option<Box<[u8]>>);

impl Token {
    /// Reads the token of a file; an empty path is no token.
    ///
    /// # Errors
    /// The file cannot be read, everybody can read it, or it has no token.
    pub(super) fn read(path: &str) -> io::Result<Self> {
        if path.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why.to_owned()));
        let file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode();
        check_secret_mode(path.as_ref(), mode)
            .map_err(|refused| io::Error::new(io::ErrorKind::InvalidData, refused))?;
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        let token = text.trim();
        if text.len() as u64 > MAX_BYTES
            || token.len() < MIN_CHARS
            || !token.bytes().all(|c| c.is_ascii_graphic())
        {
            return wrong("it must have one token of at least 16 printable characters without spaces");
        }
        Ok(Self(Some(token.as_bytes().into())))
    }

    /// Whether the endpoint asks for a token.
    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a request presents the token, or none is needed.
    pub(super) fn admits<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.0 else { return true };
        let presented = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        let (scheme, presented) = presented.unwrap_or_default().split_at_checked(7).unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"Bearer ") && is_same(presented.trim_ascii(), token)
    }
}

/// Compares in a time that depends on the lengths alone.
fn is_same(presented: &[u8], token: &[u8]) -> bool {
    let differing = presented.iter().zip(token).fold(0, |all, (one, other)| all | (one ^ other));
    std::hint::black_box(differing) == 0 && presented.len() == token.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(authorization: Option<&str>) -> Request<()> {
        let request = Request::builder();
        let request =
            authorization.into_iter().fold(request, |request, value| request.header(AUTHORIZATION, value));
        request.body(()).unwrap()
    }

    #[test]
    fn only_the_token_admits() {
        let token = Token(Some(b"0123456789abcdef".as_slice().into()));
        for good in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert!(token.admits(&request(Some(good))), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ] {
            assert!(!token.admits(&request(Some(bad))), "{bad}");
        }
        assert!(!token.admits(&request(None)) && Token::default().admits(&request(None)));
    }

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
