//! The credentials that a client presents to show its user.

use std::fmt;

use zeroize::Zeroizing;

/// The longest name of a user in bytes.
pub const MAX_USER_BYTES: usize = 128;

/// The longest password in bytes.
pub const MAX_PASSWORD_BYTES: usize = 512;

/// The longest token in bytes. A token of an issuer (JWT) with an RSA signature has about 1,000.
pub const MAX_TOKEN_BYTES: usize = 3072;

/// A password or token. Its memory is overwritten when it is dropped, and no `Debug` output shows it.
///
/// ```
/// use peers::Secret;
/// let secret = Secret::from("hunter2".to_owned());
/// assert_eq!(secret.expose(), "hunter2");
/// assert_eq!(format!("{secret:?}"), "[secret]");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The credentials in a client's hello.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Credentials {
    /// Nothing: the client is nobody, or its connection shows which user it is (certificate, Unix user).
    #[default]
    None,
    /// A name and a password.
    Password {
        /// The name, 1 to 128 bytes.
        user: String,
        /// The password, 1 to 512 bytes.
        password: Secret,
    },
    /// A token of the broker, or of an issuer that the broker trusts; 1 to 3,072 bytes.
    Token(Secret),
}

/// A client cannot present this. Its user is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} has {bytes} bytes; it must have 1 to {max}")]
pub struct CredentialsError {
    /// Name, password or token.
    pub what: &'static str,
    /// Its length in bytes.
    pub bytes: usize,
    /// The longest that is allowed, in bytes.
    pub max: usize,
}

impl Credentials {
    /// A name and a password.
    ///
    /// # Errors
    /// The name or the password is empty or too long.
    pub fn password(user: &str, password: Secret) -> Result<Self, CredentialsError> {
        check("name of the user", user, MAX_USER_BYTES)?;
        check("password", password.expose(), MAX_PASSWORD_BYTES)?;
        Ok(Self::Password { user: user.to_owned(), password })
    }

    /// A token.
    ///
    /// # Errors
    /// The token is empty or too long.
    pub fn token(token: Secret) -> Result<Self, CredentialsError> {
        check("token", token.expose(), MAX_TOKEN_BYTES)?;
        Ok(Self::Token(token))
    }

    /// Whether nothing is presented, so that nothing has to be kept secret.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

fn check(what: &'static str, text: &str, max: usize) -> Result<(), CredentialsError> {
    match (1..=max).contains(&text.len()) {
        true => Ok(()),
        false => Err(CredentialsError { what, bytes: text.len(), max }),
    }
}
