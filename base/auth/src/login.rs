//! A login: its user, its basis, and the reasons for which it is refused or ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::certificate::CertificateName;
use crate::identity::Identity;
use crate::token::TokenHash;

/// The answer to every refused client, whatever the reason, so that it does not reveal which users exist.
pub const NOT_AUTHENTICATED: &str = "not authenticated: this broker needs a user that it knows (name and password, token, \
                                     client certificate or Unix user)";

/// The identity that a client has shown.
#[derive(Debug, Clone)]
pub struct Login {
    /// The user.
    pub identity: Arc<Identity>,
    /// When the login ends by itself. `None`: never.
    pub expires: Option<SystemTime>,
    pub(crate) basis: Basis,
}

impl Login {
    /// The login of every client of a broker without users.
    pub fn anonymous() -> Self {
        Self { identity: Arc::new(Identity::anonymous()), expires: None, basis: Basis::Open }
    }
}

/// The parts of a user that must not change for a login to stay valid.
#[derive(Debug, Clone)]
pub(crate) enum Basis {
    /// The broker has no users.
    Open,
    /// The hash of the password, as the file has it.
    Password(String),
    /// The hash of the token.
    Token(TokenHash),
    /// The fingerprint of the issuer's key, its name and the audience.
    Jwt([u8; 32]),
    /// The names in the certificate.
    Certificate(Vec<CertificateName>),
    /// The number of the Unix user.
    Unix(u32),
}

/// Why a login is refused: for the log of the broker, never for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The client presented no credentials, and the connection has no certificate and no Unix user.
    #[error("no credentials")]
    NoCredentials,
    /// No user has the name.
    #[error("there is no user {user:?}")]
    UnknownUser {
        /// The name that was presented.
        user: String,
    },
    /// The password is wrong, or the user has none.
    #[error("wrong password of the user {user:?}")]
    WrongPassword {
        /// The name of the user.
        user: String,
    },
    /// No token has this hash.
    #[error("unknown token")]
    UnknownToken,
    /// The token has expired.
    #[error("the token {name:?} of the user {user:?} has expired")]
    ExpiredToken {
        /// The name of the token.
        name: String,
        /// The name of its user.
        user: String,
    },
    /// A token of an issuer is not valid.
    #[error("token of an issuer: {why}")]
    Jwt {
        /// The problem.
        why: &'static str,
    },
    /// The certificate is of no user, or of more than one.
    #[error("no user has the certificate {names}")]
    UnknownCertificate {
        /// The names in the certificate.
        names: String,
    },
    /// The Unix user belongs to no user of the broker.
    #[error("no user has the Unix user {uid}")]
    UnknownUnixUser {
        /// The number of the Unix user.
        uid: u32,
    },
    /// The source has to wait after failed logins. Nothing was checked.
    #[error("too many failed logins from there; the next one is checked in {} s", wait.as_secs() + 1)]
    TooManyAttempts {
        /// How long.
        wait: Duration,
    },
    /// Too many passwords wait to be checked. Nothing was checked.
    #[error("too many passwords wait to be checked; try again")]
    Busy,
    /// The client has left before its password was checked.
    #[error("the client has left before its password was checked")]
    Left,
}

impl Refused {
    /// The text for the client. The text is the same for every failed check. Only a client that was not checked gets the time for which
    /// it must wait.
    pub fn for_client(&self) -> String {
        match self {
            Self::TooManyAttempts { .. } | Self::Busy => self.to_string(),
            _ => NOT_AUTHENTICATED.to_owned(),
        }
    }
}

/// Why a connected client is cut off: text for the client and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutOff {
    /// The broker has users now, and the client is not logged in.
    #[error("the broker has users now: log in")]
    NowAuthenticated,
    /// The user was removed from the file.
    #[error("the user was removed")]
    Removed,
    /// The password was changed or removed.
    #[error("the password of the user was changed")]
    PasswordChanged,
    /// The token was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The broker does not trust the issuer any more.
    #[error("the broker takes no such tokens any more")]
    IssuerRemoved,
    /// The certificate or Unix user belongs to another user or none now.
    #[error("the certificate or Unix user is of another user now, or of none")]
    Unmapped,
}
