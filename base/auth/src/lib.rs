//! Users of a broker, and their rights and limits.
//!
//! Separate modules, without I/O on a connection, decide which user a client is ([`Authenticator`], [`Identity`]), which operations a
//! user may perform, and how many resources a user may have.
//!
//! ```
//! use access::{Authenticator, Check, PasswordHash, Peer, Source, Step, Users, UsersFile};
//! use peers::{Credentials, Secret};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("users.toml");
//! let password = || Secret::from("hunter2".to_owned());
//! let mut file = UsersFile::edit(&path)?;
//! file.set_password("alice", &PasswordHash::of(&password())?)?;
//! file.save()?;
//!
//! let options = access::AccessOptions { users: Some(path), ..Default::default() };
//! let authenticator = Authenticator::open(&options)?;
//! let peer = Peer { source: Source::of("127.0.0.1:9"), certificate: None, uid: None };
//! let login = match authenticator.begin(Credentials::password("alice", password())?, &peer) {
//!     Step::Done(login) => login,
//!     Step::Check(check) => check.run(),
//! };
//! assert_eq!(login?.identity.user, "alice");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod attempts;
mod audit;
mod authenticator;
mod bearer;
mod certificate;
mod file;
mod identity;
mod jwt;
mod login;
mod names;
mod password;
mod proofs;
mod quotas;
mod rights;
mod secret_file;
mod token;
mod users;
mod weak_secret;

pub use attempts::{AttemptRule, Attempts, LONGEST_DELAY, Source};
pub use audit::{Audit, AuditEvent};
pub use authenticator::{AccessError, AccessOptions, Authenticator, Check, Peer, Step};
pub use bearer::{BearerToken, TokenRefused};
pub use certificate::{CertificateName, CertificateNameError};
pub use file::{UsersFile, UsersFileError, read_users};
pub use identity::{Identity, Method};
pub use jwt::{JwtKeyError, JwtOptions};
pub use login::{CutOff, Login, NOT_AUTHENTICATED, Refused};
pub use names::{MAX_NAME_BYTES, NameError, check_name};
pub use password::{MAX_MEMORY_KIB, PasswordError, PasswordHash};
pub use quotas::{Charge, Exceeded, Limits, NearLimit, Principal, QuotaLimits, Quotas, Resource};
pub use rights::{
    AccessRule, BrokerRight, Decision, Grants, MAX_NAMES, MAX_PATTERNS, MAX_RULES, Operation, Pattern,
    PatternError, Policies, Policy, Reason, Rights, RuleError,
};
pub use secret_file::{ReadableByAll, check_secret_mode};
pub use token::{NoRandomNumbers, TOKEN_PREFIX, TokenHash, TokenHashError, new_token};
pub use users::{MAX_FILE_BYTES, MAX_TOKENS, MAX_USERS, Token, User, Users, UsersError};
pub use weak_secret::{MIN_SECRET_BYTES, WeakSecret, check_secret};
