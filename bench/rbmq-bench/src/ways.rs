//! What carries the bytes: from publishers to the broker, and from there to subscribers.
//!
//! The programs are the same over all of them, only their configuration differs. Other systems and the relay are
//! always on TCP.

use clap::{Args, ValueEnum};
use rocketbufs::config::TransportKind;
use serde::Serialize;

use crate::systems::{Api, Confirm, System};

/// Which transports are measured.
#[derive(Debug, Clone, Args)]
pub struct Ways {
    /// What carries RBMQ's bytes: publishers' side, then subscribers' side where that is another
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    transport: Vec<Way>,
}

impl Ways {
    /// Those by which this system can be reached.
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
    /// As in the rows and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Way::Tcp => "tcp",
            Way::Shm => "shm",
            Way::TcpShm => "tcp-shm",
            Way::ShmTcp => "shm-tcp",
        }
    }

    /// Those of these interfaces that a system has over this transport, each once.
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

    /// The broker's: that of both sides, or the one that meets both.
    pub fn of_broker(self) -> TransportKind {
        let publishers = self.of_publishers();
        if publishers == self.of_subscribers() { publishers } else { TransportKind::Auto }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ours_is_measured_over_what_others_have_not() {
        let ways = Ways { transport: vec![Way::Shm, Way::TcpShm] };
        assert_eq!(ways.of(System::Rbmq), [Way::Shm, Way::TcpShm]);
        assert_eq!(ways.of(System::Redis), [Way::Tcp]);
    }

    #[test]
    fn a_broker_meets_both_sides() {
        for way in Way::value_variants() {
            let broker = way.of_broker();
            for side in [way.of_publishers(), way.of_subscribers()] {
                assert!(broker == side || broker == TransportKind::Auto, "{}", way.name());
            }
            let named = way.to_possible_value().unwrap();
            assert_eq!(named.get_name(), way.name());
        }
    }
}
