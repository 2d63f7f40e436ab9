//! The memory and the keys of a receiver that each host uses, limited so that no host can use all of them and block the others.
//!
//! A host may use [`ALPHA`] times the rest that is then free: eight ninths of the whole if it is alone, and less the more the others
//! use. So a rest is always free for a host that uses nothing yet. (These are the dynamic thresholds of Choudhury and Hahne for
//! switches with shared memory.)

use std::collections::HashMap;

use peers::HostAddress;

/// How many times the free rest a host may have.
const ALPHA: usize = 8;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Used {
    bytes: usize,
    keys: usize,
}

/// The use of memory and keys, by host.
#[derive(Debug)]
pub(crate) struct Shares {
    by: HashMap<HostAddress, Used>,
    all: Used,
    limit: Used,
    /// The bytes that a host may use in any case, as long as memory is free.
    window: usize,
}

impl Shares {
    /// For so many bytes and keys, none of which is used yet.
    pub fn new(bytes: usize, keys: usize, window: usize) -> Shares {
        Shares { by: HashMap::new(), all: Used::default(), limit: Used { bytes, keys }, window }
    }

    /// Bytes of all hosts.
    pub fn bytes(&self) -> usize {
        self.all.bytes
    }

    fn of(&self, host: HostAddress) -> Used {
        self.by.get(&host).copied().unwrap_or_default()
    }

    /// True if all hosts together have room for so many bytes more, and this host may have them.
    pub fn has_room(&self, host: HostAddress, more: usize) -> bool {
        let Some(free) = self.limit.bytes.checked_sub(self.all.bytes + more) else { return false };
        // Usually so much is free that the share of the host does not matter.
        if self.all.bytes + more <= free.saturating_mul(ALPHA) {
            return true;
        }
        let own = self.of(host).bytes + more;
        own <= free.saturating_mul(ALPHA) || own <= self.window
    }

    /// True if this host may have one more key.
    pub fn has_place(&self, host: HostAddress) -> bool {
        let free = self.limit.keys.saturating_sub(self.all.keys);
        self.all.keys < free.saturating_mul(ALPHA) || self.of(host).keys < free.saturating_mul(ALPHA)
    }

    /// Notes that a part of a host's bytes, `before`, has become `after`.
    pub fn change(&mut self, host: HostAddress, before: usize, after: usize) {
        if before != after {
            self.edit(host, |used| used.bytes = used.bytes + after - before);
        }
    }

    /// Notes one more key of a host.
    pub fn add_key(&mut self, host: HostAddress) {
        self.edit(host, |used| used.keys += 1);
    }

    /// Notes that so many keys of a host are gone, with their bytes.
    pub fn remove(&mut self, host: HostAddress, keys: usize, bytes: usize) {
        self.edit(host, |used| *used = Used { bytes: used.bytes - bytes, keys: used.keys - keys });
    }

    fn edit(&mut self, host: HostAddress, change: impl Fn(&mut Used)) {
        let used = self.by.entry(host).or_default();
        change(used);
        if *used == Used::default() {
            self.by.remove(&host);
        }
        change(&mut self.all);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(number: u8) -> HostAddress {
        HostAddress::of([10, 0, 0, number].into())
    }

    /// Takes as many bytes as a host may have, in pieces.
    fn hoard(shares: &mut Shares, number: u8) -> usize {
        let mut got = 0;
        while shares.has_room(host(number), 10) {
            shares.change(host(number), got, got + 10);
            got += 10;
        }
        got
    }

    #[test]
    fn something_is_left_for_the_next_host() {
        let mut shares = Shares::new(900_000, 9000, 10);
        let got: Vec<usize> = (0..4).map(|number| hoard(&mut shares, number)).collect();
        assert_eq!(got, [800_000, 88_880, 9880, 1100]);
        for number in 0..4 {
            while shares.has_place(host(number)) {
                shares.add_key(host(number));
            }
        }
        let keys: Vec<usize> = (0..4).map(|number| shares.of(host(number)).keys).collect();
        assert_eq!(keys, [8000, 889, 99, 11]);
    }

    #[test]
    fn a_host_may_have_a_window_and_a_key() {
        let mut shares = Shares::new(1000, 1, 1000);
        assert_eq!(hoard(&mut shares, 1), 1000);
        assert!(shares.has_place(host(1)) && !shares.has_room(host(2), 1));
        shares.add_key(host(1));
        assert!(!shares.has_place(host(2)));
    }

    proptest! {
        #[test]
        fn the_use_is_that_of_a_list(steps in prop::collection::vec((0_u8..4, 0_usize..300, any::<bool>()), 0..200)) {
            let (limit, window) = (2000, 150);
            let mut shares = Shares::new(limit, 20, window);
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (number, bytes, adds) in steps {
                let sum = |of: Option<u8>| -> (usize, usize) {
                    let own = model.iter().filter(|(host, _)| of.is_none_or(|of| of == *host));
                    own.fold((0, 0), |(keys, all), (_, bytes)| (keys + 1, all + bytes))
                };
                let ((all_keys, all), (keys, own)) = (sum(None), sum(Some(number)));
                let fair = limit.checked_sub(all + bytes).is_some_and(|free| own + bytes <= (8 * free).max(window));
                prop_assert_eq!(shares.has_room(host(number), bytes), fair);
                prop_assert_eq!(shares.has_place(host(number)), keys < 8 * 20_usize.saturating_sub(all_keys));
                prop_assert_eq!(shares.bytes(), all);
                if adds && fair && shares.has_place(host(number)) {
                    shares.add_key(host(number));
                    shares.change(host(number), 0, bytes);
                    model.push((number, bytes));
                } else if let Some(at) = model.iter().position(|(host, _)| *host == number) {
                    let (_, bytes) = model.remove(at);
                    shares.remove(host(number), 1, bytes);
                }
            }
            for (number, bytes) in model {
                shares.remove(host(number), 1, bytes);
            }
            prop_assert!(shares.by.is_empty() && shares.all == Used::default());
        }
    }
}
