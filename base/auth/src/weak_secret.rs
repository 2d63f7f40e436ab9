//! The least lengths of secrets, for all products.

/// The least length of a token, a stream key or another secret of a configuration: 96 random bits in base64.
pub const MIN_SECRET_BYTES: usize = 16;

/// The least length of a secret of HS256, as RFC 7518 (3.2) has it: whoever has a token can try secrets without asking anybody.
pub(crate) const MIN_HS256_BYTES: usize = 32;

const _: () = assert!(MIN_HS256_BYTES >= MIN_SECRET_BYTES);

/// A secret is so short that somebody may guess it. Who configured it is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has {0} characters, and a secret that nobody guesses has at least {MIN_SECRET_BYTES}; this makes one: openssl rand -hex 32"
)]
pub struct WeakSecret(usize);

/// Refuses a secret of less than [`MIN_SECRET_BYTES`], wherever it opens something: loopback too, which web browsers and other users reach.
///
/// ```
/// assert!(access::check_secret("fX1vhSdzJ9vSgw9Zb5eDGlC4").is_ok());
/// assert!(access::check_secret("letmein").unwrap_err().to_string().contains("it has 7 characters"));
/// ```
///
/// # Errors
/// [`WeakSecret`], with the command that makes a better one.
pub fn check_secret(secret: &str) -> Result<(), WeakSecret> {
    if secret.len() < MIN_SECRET_BYTES { Err(WeakSecret(secret.chars().count())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_secrets_are_refused() {
        for good in ["0123456789abcdef", "0123456789abcdef0"] {
            assert_eq!(check_secret(good), Ok(()), "{good}");
        }
        for (bad, characters) in [("", 0), ("x", 1), ("0123456789abcde", 15), ("äöüäöü", 6)] {
            assert_eq!(check_secret(bad), Err(WeakSecret(characters)), "{bad}");
        }
    }
}
