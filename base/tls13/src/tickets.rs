//! Tickets, with which a client resumes a session without certificates.
//!
//! A server keeps nothing: the ticket is the session, sealed with a key that only this server has. A key seals tickets for half of their
//! life and opens them for the other half, and is then forgotten. Other certificates come with other keys, so that a reload ends all
//! tickets. The server takes no early data: anybody who saw the data could send it again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use rustls::crypto::GetRandomFailed;
use rustls::server::ProducesTickets;
use rustls::ticketer::TicketRotator;

/// The shortest life of a ticket that makes sense.
const MIN_LIFE: Duration = Duration::from_secs(2);

/// The longest ticket that is looked at: longer ones are not of this server.
const MAX_TICKET: usize = 64 << 10;

/// The maker of tickets that live this long; none for no time.
///
/// # Errors
/// The system has no random bytes, or its clock is before 1970.
pub(super) fn ticketer(life: Duration) -> Result<Option<Arc<dyn ProducesTickets>>, rustls::Error> {
    if life < MIN_LIFE {
        return Ok(None);
    }
    // The rotator of rustls panics then.
    if SystemTime::now() < SystemTime::UNIX_EPOCH {
        return Err(rustls::Error::General("the clock of this machine is before 1970: set it".into()));
    }
    let half = u32::try_from(life.as_secs() / 2).unwrap_or(u32::MAX / 2);
    Ok(Some(Arc::new(TicketRotator::new(half, || Ok(Box::new(Sealer::new()?)))?)))
}

/// The key of some tickets.
struct Sealer(RandomizedNonceKey);

impl Sealer {
    fn new() -> Result<Self, GetRandomFailed> {
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).map_err(|_| GetRandomFailed)?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).map(Self).map_err(|_| GetRandomFailed)
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl ProducesTickets for Sealer {
    fn enabled(&self) -> bool {
        true
    }

    /// The rotator says how long tickets live.
    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::empty(), &mut sealed).ok()?;
        let mut ticket = nonce.as_ref().to_vec();
        ticket.append(&mut sealed);
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.split_at_checked(NONCE_LEN)?;
        if sealed.len() > MAX_TICKET {
            return None;
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = sealed.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::empty(), &mut bytes).ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_with_its_key_alone_and_unchanged() {
        let (one, other) = (Sealer::new().unwrap(), Sealer::new().unwrap());
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_ne!(one.encrypt(b"session").unwrap(), ticket);
        assert_eq!(other.decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(one.decrypt(&changed), None, "{at}");
            assert_eq!(one.decrypt(&ticket[..at]), None, "{at}");
        }
        assert_eq!(one.decrypt(&vec![0; MAX_TICKET + 100]), None);
    }

    #[test]
    fn no_time_is_no_ticket_and_a_rotation_says_how_long_one_lives() {
        assert!(ticketer(Duration::ZERO).unwrap().is_none());
        let maker = ticketer(Duration::from_secs(3600)).unwrap().unwrap();
        assert_eq!(maker.lifetime(), 3600);
        let ticket = maker.encrypt(b"session").unwrap();
        assert_eq!(maker.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    }
}
