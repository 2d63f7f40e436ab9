//! The credentials that a client presents to the broker, and when it must not.

use std::fmt;
use std::sync::Arc;

use rbmq_wire::connect::{addresses, is_this_machine};
use zeroize::Zeroizing;

use crate::ground::error::ConnectError;
use crate::wire::{Credentials, CredentialsError, Hello, Secret};

/// How a client logs in: with a name and a password, with a token, or not at all (the default); and whether what it presents may leave
/// this machine without encryption.
///
/// ```
/// use rbmq::{Login, Publisher};
/// let login = Login::default().token("rbmq_secret");
/// assert!(!format!("{login:?}").contains("secret\""));
/// let builder = Publisher::builder().login(login);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Login {
    credentials: Credentials,
    /// Credentials that cannot be presented. Connecting fails with it.
    invalid: Option<CredentialsError>,
    allow_plaintext: bool,
    source: Option<Source>,
    /// The broker that names the addresses, if it is not the program that does.
    home: Option<Arc<str>>,
}

/// Gives the login of each connection.
#[derive(Clone)]
struct Source(Arc<dyn Fn() -> Login + Send + Sync>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Login {
    /// Logs in with the name of a user, 1 to 128 bytes, and a password, 1 to 512 bytes.
    #[must_use]
    pub fn user(self, name: &str, password: &str) -> Self {
        self.with(Credentials::password(name, Secret::from(password.to_owned())))
    }

    /// Logs in with a token, 1 to 3,072 bytes.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.with(Credentials::token(Secret::from(token.to_owned())))
    }

    /// Logs in with these credentials.
    #[doc(hidden)]
    #[must_use]
    pub fn of(credentials: Credentials) -> Self {
        Self { credentials, ..Self::default() }
    }

    /// Logs in as the function says at each connection, also after a loss: a program reads files again that have changed.
    #[doc(hidden)]
    #[must_use]
    pub fn anew(source: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        Self { source: Some(Source(Arc::new(source))), ..Self::default() }
    }

    fn with(self, credentials: Result<Credentials, CredentialsError>) -> Self {
        match credentials {
            Ok(credentials) => Self { credentials, invalid: None, ..self },
            Err(invalid) => Self { credentials: Credentials::None, invalid: Some(invalid), ..self },
        }
    }

    /// With true, passwords and tokens are sent also over connections that leave this machine and are not encrypted.
    #[must_use]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.allow_plaintext = allow;
        self
    }

    /// For addresses that the broker at `home` names.
    pub(crate) fn named_by(self, home: &str) -> Self {
        Self { home: Some(home.into()), ..self }
    }

    /// The bytes of a hello with these credentials, for a broker at an address. `encrypted`: whether every connection there is.
    ///
    /// # Errors
    /// The credentials are invalid, or would leave this machine readable for everybody on the way.
    pub(crate) fn hello(
        &self,
        hello: &Hello,
        addr: &str,
        encrypted: bool,
    ) -> Result<Zeroizing<Vec<u8>>, ConnectError> {
        if let Some(Source(source)) = &self.source {
            return Self { home: self.home.clone(), ..source() }.hello(hello, addr, encrypted);
        }
        if let Some(invalid) = &self.invalid {
            return Err(ConnectError::Credentials(invalid.clone()));
        }
        if !self.credentials.is_none() {
            self.check(addr, encrypted)?;
        }
        Ok(hello.encode_with(&self.credentials))
    }

    /// Refuses addresses to which no secret goes. What the program allows is about the addresses that it names: another broker's word sends
    /// nothing in the clear over a network, and nothing from a network to programs of this machine.
    fn check(&self, addr: &str, encrypted: bool) -> Result<(), ConnectError> {
        let Some(home) = &self.home else {
            let is_safe = encrypted || self.allow_plaintext || is_this_machine(addr);
            return is_safe.then_some(()).ok_or_else(|| ConnectError::Plaintext { addr: addr.to_owned() });
        };
        let is_safe = |one: &str| match is_this_machine(one) {
            true => is_this_machine(home),
            false => encrypted,
        };
        match addresses(addr).find(|one| !addresses(home).any(|own| own == *one) && !is_safe(one)) {
            Some(one) => Err(ConnectError::Named { addr: one.to_owned(), home: home.to_string() }),
            None => Ok(()),
        }
    }
}

/// The setters of a builder with a field `login`.
macro_rules! login_setters {
    ($builder:ident) => {
        impl $builder {
            /// Logs in with the name of a user and a password, also after every reconnect. The name has 1 to 128 bytes, the password
            /// 1 to 512. Replaces what an earlier call has set. The password is overwritten in memory when it is not needed
            /// any more; it leaves this machine only encrypted ([`allow_plaintext`](Self::allow_plaintext)).
            ///
            /// ```
            #[doc = concat!("let builder = rbmq::", stringify!($builder), "::default().user(\"alice\", \"hunter2\");")]
            /// ```
            #[must_use]
            pub fn user(mut self, name: &str, password: &str) -> Self {
                self.login = self.login.user(name, password);
                self
            }

            /// Logs in with a token: of the broker (`rbmq token new`), or of an issuer that the broker trusts (JWT), 1 to 3,072 bytes.
            /// Replaces what an earlier call has set, and is treated as a password is.
            #[must_use]
            pub fn token(mut self, token: &str) -> Self {
                self.login = self.login.token(token);
                self
            }

            /// With true, passwords and tokens are sent also over connections that leave this machine and are not encrypted, where
            /// everybody on the way reads them. Default: false; connecting fails instead.
            #[must_use]
            pub fn allow_plaintext(mut self, allow: bool) -> Self {
                self.login = self.login.allow_plaintext(allow);
                self
            }

            /// Logs in so. Replaces what [`user`](Self::user), [`token`](Self::token) and
            /// [`allow_plaintext`](Self::allow_plaintext) have set.
            #[must_use]
            pub fn login(mut self, login: $crate::Login) -> Self {
                self.login = login;
                self
            }
        }
    };
}
pub(crate) use login_setters;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Role;

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:7411", "[::ffff:127.0.0.1]:1"] {
            assert!(is_this_machine(local), "{local}");
        }
        for remote in [
            "10.0.0.1:1",
            "[2001:db8::1]:1",
            "localhost.example.com:1",
            "127.0.0.1.example.com:1",
            "0.0.0.0:1",
            "",
        ] {
            assert!(!is_this_machine(remote), "{remote}");
        }
    }

    #[test]
    fn secrets_do_not_leave_the_machine_unencrypted_unless_told() {
        let hello = Hello { role: Role::Publisher, client: 1, name: String::new() };
        let login = Login::default();
        assert!(login.hello(&hello, "10.0.0.1:1", false).is_ok(), "there is nothing to protect");
        let login = login.token("hunter2");
        let refused = login.hello(&hello, "10.0.0.1:1", false).unwrap_err();
        assert!(matches!(refused, ConnectError::Plaintext { .. }));
        assert!(!refused.to_string().contains("hunter2") && !format!("{login:?}").contains("hunter2"));
        assert!(login.hello(&hello, "10.0.0.1:1", true).is_ok());
        assert!(login.hello(&hello, "127.0.0.1:1", false).is_ok());
        let login = login.allow_plaintext(true);
        assert!(login.hello(&hello, "10.0.0.1:1", false).is_ok());
        let login = login.user("", "x");
        assert!(matches!(login.hello(&hello, "127.0.0.1:1", false), Err(ConnectError::Credentials(_))));
    }

    #[test]
    fn a_broker_names_no_address_where_a_secret_could_be_read() {
        let hello = Hello { role: Role::Publisher, client: 1, name: String::new() };
        let login = Login::default().token("hunter2").allow_plaintext(true);
        let again = login.clone();
        let (far, here) = ("10.0.0.1:1,10.0.0.2:1", "127.0.0.1:1");
        for login in [login, Login::anew(move || again.clone())] {
            let is_sent = |home: &str, addr: &str, encrypted: bool| {
                let sent = login.clone().named_by(home).hello(&hello, addr, encrypted);
                let why = sent.as_ref().err().map(ToString::to_string);
                assert!(why.is_none_or(|why| why.contains(addresses(addr).last().unwrap())));
                sent.is_ok()
            };
            assert!(is_sent(far, "10.0.0.3:1", true) && !is_sent(far, "10.0.0.3:1", false));
            assert!(!is_sent(far, here, true) && !is_sent(far, here, false));
            assert!(!is_sent(far, "10.0.0.3:1,[::1]:1", true), "each address counts");
            assert!(is_sent(here, "localhost:2", false) && !is_sent(here, "10.0.0.3:1", false));
            assert!(is_sent(far, "10.0.0.2:1", false), "the program has named it");
        }
        let anybody = Login::default().named_by(far);
        assert!(anybody.hello(&hello, "10.0.0.3:1", false).is_ok(), "there is nothing to protect");
    }
}
