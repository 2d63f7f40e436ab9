//! Vouchers: a part of this process has seen who a client is, and connects in its place.
//!
//! ```text
//!   console ── issue(login, address) ──▶ Vouchers ◀── of(token) ── broker's thread: a connection at the own listener shows the token
//!      └─────── token ─▶ publisher ── connects, with the token ──────────────────▶┘
//! ```
//!
//! The connection is that user's then, with its rights, quotas, limits of bytes per second, and its end. A token is random, is known to this
//! process alone, and is worth something at the listener of this process alone.

use std::collections::HashMap;
use std::sync::Arc;

use access::Login;
use locks::Mutex;
use rbmq_wire::Secret;

/// What a voucher says.
#[derive(Clone)]
pub(crate) struct Vouched {
    pub(crate) login: Login,
    /// Where the client is, as `192.0.2.1`: its quotas count there.
    pub(crate) address: Arc<str>,
}

/// The vouchers in force. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Vouchers(Arc<Mutex<HashMap<String, Vouched>>>);

/// A voucher, which is in force until the drop.
pub(crate) struct Voucher {
    token: Secret,
    all: Vouchers,
}

impl Vouchers {
    /// A new voucher.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn issue(&self, vouched: Vouched) -> Result<Voucher, String> {
        let token = access::new_token().map_err(|error| error.to_string())?;
        self.0.lock().insert(token.expose().to_owned(), vouched);
        Ok(Voucher { token, all: self.clone() })
    }

    /// How many there are.
    #[cfg(all(test, feature = "http"))]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// What the voucher with this token says. None: there is none.
    pub(crate) fn of(&self, token: &str) -> Option<Vouched> {
        self.0.lock().get(token).cloned()
    }
}

impl Voucher {
    /// The token that shows it.
    pub(crate) fn token(&self) -> &Secret {
        &self.token
    }
}

impl Drop for Voucher {
    fn drop(&mut self) {
        self.all.0.lock().remove(self.token.expose());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voucher_is_in_force_until_it_is_dropped() {
        let all = Vouchers::default();
        let issue = |address: &str| all.issue(Vouched { login: Login::anonymous(), address: address.into() });
        let (one, other) = (issue("a").unwrap(), issue("b").unwrap());
        let address = |voucher: &Voucher| all.of(voucher.token().expose()).map(|vouched| vouched.address);
        assert_eq!((address(&one).as_deref(), address(&other).as_deref()), (Some("a"), Some("b")));
        let token = one.token().expose().to_owned();
        drop(one);
        assert!(all.of(&token).is_none() && all.of("").is_none() && address(&other).is_some());
    }
}
