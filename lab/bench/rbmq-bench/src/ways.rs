//! The transports from publishers to the broker, and from the broker to subscribers.
//!
//! The programs are the same over all transports, only their configuration differs. Other systems and the relay always
//! use TCP.

use clap::{Args, ValueEnum};
use rocketbufs::config::TransportKind;
use serde::Serialize;

use crate::systems::{Api, Confirm, System};

/// The measured transports.
#[derive(Debug, Clone, Args)]
pub struct Ways {
    /// Transports of RBMQ: the publishers' side, then the subscribers' side if it differs
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    transport: Vec<Way>,
}

impl Ways {
    /// The transports that a system has.
    pub fn of(&self, system: System) -> &[Way] {
        if system == System::Rbmq { &self.transport } else { &[Way::Tcp] }
    }
}

/// From publishers to subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// TCP
    Tcp,
    /// Shared memory: subscribers read what publishers wrote where it is
    Shm,
    /// Publishers on TCP, subscribers over shared memory
    TcpShm,
    /// Publishers over shared memory, subscribers on TCP
    ShmTcp,
}

impl Way {
    /// The interfaces that a system has over this transport, each once.
    pub fn apis(self, system: System, apis: &[Api], confirm: Confirm) -> Vec<Api> {
        let mut own: Vec<Api> = apis.iter().map(|api| system.own(*api)).collect();
        own.sort_unstable();
        own.dedup();
        own.retain(|api| system.has(*api, confirm) && (*api != Api::Wire || self == Way::Tcp));
        own
    }

    /// The publishers' transport.
    pub fn of_publishers(self) -> TransportKind {
        match self {
            Way::Tcp | Way::TcpShm => TransportKind::Tcp,
            Way::Shm | Way::ShmTcp => TransportKind::Shm,
        }
    }

    /// The subscribers' transport.
    pub fn of_subscribers(self) -> TransportKind {
        match self {
            Way::Tcp | Way::ShmTcp => TransportKind::Tcp,
            Way::Shm | Way::TcpShm => TransportKind::Shm,
        }
    }

    /// The broker's transport: the same as both sides, or `auto`, which accepts both.
    pub fn of_broker(self) -> TransportKind {
        let publishers = self.of_publishers();
        if publishers == self.of_subscribers() { publishers } else { TransportKind::Auto }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ours_is_measured_over_other_transports() {
        let ways = Ways { transport: vec![Way::Shm, Way::TcpShm] };
        assert_eq!(ways.of(System::Rbmq), [Way::Shm, Way::TcpShm]);
        assert_eq!(ways.of(System::Redis), [Way::Tcp]);
    }

    #[test]
    fn a_broker_meets_both_sides() {
        for way in Way::value_variants() {
            let broker = way.of_broker();
            for side in [way.of_publishers(), way.of_subscribers()] {
                assert!(broker == side || broker == TransportKind::Auto, "{way:?}");
            }
        }
    }
}
