//! The token of an HTTP endpoint, and the clients that guess it.

use std::time::{Duration, Instant};

use locks::Mutex;
use peers::Secret;
use subtle::ConstantTimeEq;

use crate::attempts::{AttemptRule, Attempts, Source};
use crate::weak_secret::{WeakSecret, check_secret};

/// All failures are of the one token, so that it makes up for them.
const NOBODY: &str = "";

/// The one token of an HTTP endpoint, which clients show as `Authorization: Bearer TOKEN`. A host that has shown several wrong ones waits
/// longer and longer before it is told again that one is wrong. The right one passes at any time, since it cannot be guessed: others may have the
/// address of who guesses, behind a proxy or NAT.
///
/// ```
/// use access::{BearerToken, Source, TokenRefused};
/// let token = BearerToken::new("fX1vhSdzJ9vSgw9Zb5eDGlC4")?;
/// let (source, now) = (Source::of("192.0.2.7:9"), std::time::Instant::now());
/// assert_eq!(token.check(Some(b"Bearer fX1vhSdzJ9vSgw9Zb5eDGlC4"), source, now), Ok(()));
/// assert_eq!(token.check(None, source, now), Err(TokenRefused::Missing));
/// # Ok::<(), access::WeakSecret>(())
/// ```
pub struct BearerToken {
    token: Secret,
    attempts: Mutex<Attempts>,
}

/// Why a request is refused: it does not show the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenRefused {
    /// The request shows none. That is no guess.
    #[error("this endpoint asks for its token: Authorization: Bearer TOKEN")]
    Missing,
    /// The request shows another one.
    #[error("the token is wrong")]
    Wrong,
    /// The same, and the host has shown several wrong ones before.
    #[error("the token is wrong, and too many wrong ones came from this address: try again in {} s", .wait.as_secs() + 1)]
    TooMany {
        /// How long the host still has to wait.
        wait: Duration,
    },
}

impl BearerToken {
    /// Takes the token.
    ///
    /// # Errors
    /// [`WeakSecret`]: somebody may guess it.
    pub fn new(token: &str) -> Result<Self, WeakSecret> {
        check_secret(token)?;
        let attempts = Mutex::new(Attempts::new(AttemptRule::default()));
        Ok(Self { token: Secret::from(token.to_owned()), attempts })
    }

    /// Whether this is the token. No attempt is counted: for an endpoint that also takes other tokens, and counts wrong ones there.
    pub fn is(&self, shown: &[u8]) -> bool {
        shown.ct_eq(self.token.expose().as_bytes()).into()
    }

    /// Whether two are one token.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is(other.token.expose().as_bytes())
    }

    /// Whether a client may come in that shows this field `Authorization`.
    ///
    /// # Errors
    /// [`TokenRefused`], for the client and the log.
    pub fn check(
        &self,
        authorization: Option<&[u8]>,
        source: Source,
        now: Instant,
    ) -> Result<(), TokenRefused> {
        let (scheme, shown) = authorization.unwrap_or_default().split_at_checked(7).unwrap_or((&[], &[]));
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(TokenRefused::Missing);
        }
        let is_right = self.is(shown.trim_ascii());
        let mut attempts = self.attempts.lock();
        if is_right {
            attempts.succeeded(source, NOBODY, false);
            return Ok(());
        }
        if let Some(wait) = attempts.delay(source, now) {
            return Err(TokenRefused::TooMany { wait });
        }
        attempts.failed(source, Some(NOBODY), now);
        Err(TokenRefused::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn token() -> BearerToken {
        BearerToken::new(TOKEN).unwrap()
    }

    #[test]
    fn only_the_token_admits() {
        let (source, now) = (Source::Unix(1), Instant::now());
        let check = |shown: &str| token().check(Some(shown.as_bytes()), source, now);
        for good in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for missing in ["", "Bearer", "Basic 0123456789abcdef", "0123456789abcdef"] {
            assert_eq!(check(missing), Err(TokenRefused::Missing), "{missing}");
        }
        for wrong in
            ["Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer 0123456789abcdeF"]
        {
            assert_eq!(check(wrong), Err(TokenRefused::Wrong), "{wrong}");
        }
        assert_eq!(token().check(None, source, now), Err(TokenRefused::Missing));
        assert!(BearerToken::new("0123456789abcde").is_err());
    }

    #[test]
    fn a_host_that_guesses_waits_and_others_do_not() {
        let (token, now) = (token(), Instant::now());
        let (guesser, other) = (Source::Unix(1), Source::Unix(2));
        let show =
            |source, shown: &str, now| token.check(Some(format!("Bearer {shown}").as_bytes()), source, now);
        let guesses: Vec<_> = (0..1000).map(|_| show(guesser, "guess", now)).collect();
        let looked_at = guesses.iter().filter(|refused| **refused == Err(TokenRefused::Wrong)).count();
        assert_eq!(looked_at, 4, "three are free, and another one tells of the delay");
        let waits = matches!(guesses[999], Err(TokenRefused::TooMany { wait }) if !wait.is_zero());
        assert!(waits, "{:?}", guesses[999]);
        assert_eq!(show(other, TOKEN, now), Ok(()));
        assert_eq!(show(guesser, TOKEN, now), Ok(()), "somebody else may have the same address");
        assert_eq!(
            show(guesser, "guess", now),
            Err(TokenRefused::Wrong),
            "the token made up for the guesses"
        );
        (0..1000).for_each(|_| assert_eq!(token.check(None, other, now), Err(TokenRefused::Missing)));
        assert_eq!(show(other, TOKEN, now), Ok(()), "a missing token is no guess");
    }
}
