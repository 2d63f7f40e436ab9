//! Failed attempts to publish, by address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in which failed attempts are counted, and for which an address with too many is refused.
const PERIOD: Duration = Duration::from_secs(60);
/// The most addresses that are remembered.
const MAX_ADDRESSES: usize = 10_000;

/// Counts failed attempts.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The most of an address in a period; 0 is no limit.
    most: u32,
    failed: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Attempts {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, failed: Mutex::default() }
    }

    /// Whether an address may try.
    pub(crate) fn may(&self, address: IpAddr) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failed.get(&network(address)).filter(|(since, _)| since.elapsed() < PERIOD);
        self.most == 0 || known.is_none_or(|(_, count)| *count < self.most)
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&self, address: IpAddr) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= MAX_ADDRESSES {
            failed.retain(|_, (since, _)| since.elapsed() < PERIOD);
        }
        let room = failed.len() < MAX_ADDRESSES;
        let address = network(address);
        if let Some((since, count)) = failed.get_mut(&address) {
            let goes_on = since.elapsed() < PERIOD;
            (*since, *count) = if goes_on { (*since, count.saturating_add(1)) } else { (Instant::now(), 1) };
        } else if room {
            failed.insert(address, (Instant::now(), 1));
        }
    }
}

/// The network of an address. A client with an address of IPv6 has its whole network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() >> 64 << 64).into(),
        own => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_few_attempts() {
        let attempts = Attempts::new(3);
        let [one, same, other]: [IpAddr; 3] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:1::1"].map(|text| text.parse().unwrap());
        for _ in 0..3 {
            assert!(attempts.may(one));
            attempts.failed(one);
        }
        assert!(!attempts.may(one) && !attempts.may(same) && attempts.may(other));
        let unlimited = Attempts::new(0);
        unlimited.failed(one);
        assert!(unlimited.may(one));
    }
}
