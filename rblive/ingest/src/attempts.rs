//! Failed attempts to publish, by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use peers::HostAddress;

/// The time in which failed attempts are counted, and for which an address with too many is refused.
const PERIOD: Duration = Duration::from_secs(60);
/// The most addresses that are remembered.
const MAX_ADDRESSES: usize = 10_000;

/// Counts failed attempts.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The most of an address in a period; 0 is no limit.
    most: u32,
    failed: Mutex<HashMap<HostAddress, (Instant, u32)>>,
}

impl Attempts {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, failed: Mutex::default() }
    }

    /// Whether an address may try.
    pub(crate) fn may(&self, address: IpAddr) -> bool {
        let failed = self.failed.lock();
        let known = failed.get(&HostAddress::of(address)).filter(|(since, _)| since.elapsed() < PERIOD);
        self.most == 0 || known.is_none_or(|(_, count)| *count < self.most)
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&self, address: IpAddr) {
        let mut failed = self.failed.lock();
        if failed.len() >= MAX_ADDRESSES {
            failed.retain(|_, (since, _)| since.elapsed() < PERIOD);
        }
        let room = failed.len() < MAX_ADDRESSES;
        let address = HostAddress::of(address);
        if let Some((since, count)) = failed.get_mut(&address) {
            let goes_on = since.elapsed() < PERIOD;
            (*since, *count) = if goes_on { (*since, count.saturating_add(1)) } else { (Instant::now(), 1) };
        } else if room {
            failed.insert(address, (Instant::now(), 1));
        }
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
