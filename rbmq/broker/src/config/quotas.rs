//! The `[quotas]` section: how much users and addresses may have.

use access::{Limits, QuotaLimits, Resource};
use settings::section;

use crate::rates::RateSettings;

section! {
    /// The `[quotas]` section: how much of the broker each user and each address may have at once. An unset quota has a default if other
    /// machines can reach `broker.listen` or a gateway, and no limit otherwise; 0 is no limit. A client without a user counts for its address
    /// alone. IPv6 addresses count by their first 64 bits.
    "quotas" QuotaSettings {
        /// Connected clients of a user. Default 1,000 beyond this machine. Too small: clients are refused.
        #[reloadable]
        user_connections: Option<u64> = None, range [at least 0];
        /// Buffers of topics that the publishers of a user have open. Default 2,000 beyond this machine.
        #[reloadable]
        user_topics: Option<u64> = None, range [at least 0];
        /// Filters, names and patterns, of the subscribers of a user. Default 20,000 beyond this machine.
        #[reloadable]
        user_subscriptions: Option<u64> = None, range [at least 0];
        /// Filters with wildcards of the subscribers of a user. Default 2,000 beyond this machine.
        #[reloadable]
        user_patterns: Option<u64> = None, range [at least 0];
        /// Rings at the broker for the publishers of a user, in bytes. Default 1 GiB beyond this machine.
        #[reloadable]
        user_ring_bytes: Option<u64> = None, "bytes", range [at least 0];
        /// Connected clients at an address. Default 2,000 beyond this machine. Too small: clients behind one gateway are refused.
        #[reloadable]
        address_connections: Option<u64> = None, range [at least 0];
        /// Buffers of topics that the publishers at an address have open. Default 5,000 beyond this machine.
        #[reloadable]
        address_topics: Option<u64> = None, range [at least 0];
        /// Filters, names and patterns, of the subscribers at an address. Default 50,000 beyond this machine.
        #[reloadable]
        address_subscriptions: Option<u64> = None, range [at least 0];
        /// Filters with wildcards of the subscribers at an address. Default 5,000 beyond this machine.
        #[reloadable]
        address_patterns: Option<u64> = None, range [at least 0];
        /// Rings at the broker for the publishers at an address, in bytes. Default 4 GiB beyond this machine.
        #[reloadable]
        address_ring_bytes: Option<u64> = None, "bytes", range [at least 0];
        /// Bytes per second that all publishers of a user publish. More is delayed: their credit waits. Default no limit.
        #[reloadable]
        user_in_bytes_per_s: Option<u64> = None, "bytes", range [at least 0];
        /// Bytes per second that the broker sends to all subscriptions of a user. More is delayed, and lag until then. Default no
        /// limit.
        #[reloadable]
        user_out_bytes_per_s: Option<u64> = None, "bytes", range [at least 0];
        /// As `user_in_bytes_per_s`, of all publishers at an address.
        #[reloadable]
        address_in_bytes_per_s: Option<u64> = None, "bytes", range [at least 0];
        /// As `user_out_bytes_per_s`, of all subscriptions at an address.
        #[reloadable]
        address_out_bytes_per_s: Option<u64> = None, "bytes", range [at least 0];
        /// The bytes of so many milliseconds may come or go at once after a pause, at least 4 KiB. Default 1,000. Too small: what comes
        /// in bursts is delayed without need. Too large: a burst takes from the others for longer.
        #[reloadable]
        rate_burst_ms: Option<u32> = None, "ms", range [at least 0];
    }
}

impl QuotaSettings {
    /// The limits on bytes per second.
    pub(crate) fn rates(&self) -> RateSettings {
        let set = |limit: Option<u64>| limit.filter(|limit| *limit > 0);
        RateSettings {
            user: [set(self.user_in_bytes_per_s), set(self.user_out_bytes_per_s)],
            address: [set(self.address_in_bytes_per_s), set(self.address_out_bytes_per_s)],
            burst_ms: self.rate_burst_ms.unwrap_or(1_000).into(),
        }
    }

    /// The limits. `reachable`: other machines can reach the broker.
    pub fn limits(&self, reachable: bool) -> QuotaLimits {
        let limits = |of: [(Resource, Option<u64>, u64); 5]| {
            of.into_iter().fold(Limits::none(), |limits, (resource, set, default)| {
                let limit = set.or(reachable.then_some(default)).filter(|limit| *limit > 0);
                limits.with(resource, limit)
            })
        };
        QuotaLimits {
            user: limits([
                (Resource::Connections, self.user_connections, 1_000),
                (Resource::Topics, self.user_topics, 2_000),
                (Resource::Subscriptions, self.user_subscriptions, 20_000),
                (Resource::Patterns, self.user_patterns, 2_000),
                (Resource::RingBytes, self.user_ring_bytes, 1 << 30),
            ]),
            address: limits([
                (Resource::Connections, self.address_connections, 2_000),
                (Resource::Topics, self.address_topics, 5_000),
                (Resource::Subscriptions, self.address_subscriptions, 50_000),
                (Resource::Patterns, self.address_patterns, 5_000),
                (Resource::RingBytes, self.address_ring_bytes, 4 << 30),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_for_brokers_that_others_reach_and_zero_is_no_limit() {
        let settings =
            QuotaSettings { user_topics: Some(7), address_topics: Some(0), ..QuotaSettings::default() };
        let (own, reachable) = (settings.limits(false), settings.limits(true));
        assert_eq!((own.user.of(Resource::Topics), own.user.of(Resource::Connections)), (Some(7), None));
        assert_eq!(reachable.user.of(Resource::Connections), Some(1_000));
        assert_eq!(
            (reachable.user.of(Resource::Topics), reachable.address.of(Resource::Topics)),
            (Some(7), None)
        );
        assert_eq!(reachable.address.of(Resource::RingBytes), Some(4 << 30));
    }
}
