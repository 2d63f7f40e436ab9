//! Cookies: an initiator that returns one has received it at its address. The responder keeps no state for them.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;

use super::handshake::{mac, same_mac};
use crate::wire::secured::MAC_BYTES;

/// How long the secret of cookies is used. A cookie is valid for at least this long, and for at most twice as long.
const SECRET_AGE: Duration = Duration::from_secs(60);

/// The secrets behind cookies.
pub(crate) struct Cookies {
    secrets: [hmac::Key; 2],
    since: Instant,
}

fn secret(random: &mut dyn FnMut(&mut [u8])) -> hmac::Key {
    let mut bytes = [0; 32];
    random(&mut bytes);
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
}

fn cookie(secret: &hmac::Key, of: SocketAddr) -> [u8; MAC_BYTES] {
    let mut bytes = [0; 18];
    let ip = match of.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&of.port().to_le_bytes());
    mac(secret, &bytes)
}

impl Cookies {
    pub fn new(now: Instant, random: &mut dyn FnMut(&mut [u8])) -> Cookies {
        Cookies { secrets: [secret(random), secret(random)], since: now }
    }

    /// The cookie of an address.
    pub fn of(
        &mut self,
        now: Instant,
        addr: SocketAddr,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> [u8; MAC_BYTES] {
        self.renew(now, random);
        cookie(&self.secrets[0], addr)
    }

    /// True if the address has received this cookie.
    pub fn prove(
        &mut self,
        now: Instant,
        addr: SocketAddr,
        given: &[u8],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        self.renew(now, random);
        self.secrets.iter().any(|secret| same_mac(&cookie(secret, addr), given))
    }

    fn renew(&mut self, now: Instant, random: &mut dyn FnMut(&mut [u8])) {
        let age = now.saturating_duration_since(self.since);
        if age >= SECRET_AGE {
            self.secrets.swap(0, 1);
            self.secrets[0] = secret(random);
            if age >= 2 * SECRET_AGE {
                self.secrets[1] = secret(random);
            }
            self.since = now;
        }
    }
}
