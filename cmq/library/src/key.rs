//! Keys: the destination or the source of a message.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use peers::HostAddress;

/// The paper's key: an address and an integer.
///
/// For a push, the key names the receiving queue and the mailbox there. For a pop, it names the sender and
/// the mailbox that the message was sent to. An answer is pushed to the key that its question was popped
/// with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The address of the other queue. A multicast address reaches every queue that joined it.
    pub addr: SocketAddr,
    /// The mailbox of the receiving queue, for example the id of a process.
    pub id: u32,
}

impl Key {
    /// The key of an address and a mailbox.
    pub fn new(addr: SocketAddr, id: u32) -> Key {
        Key { addr, id }
    }

    /// The same key with the canonical form of its address.
    #[inline]
    pub(crate) fn canonical(self) -> Key {
        Key { addr: canonical(self.addr), id: self.id }
    }
}

/// The canonical form of an address, so that destinations can be compared with sources: a mapped IPv4 address
/// becomes IPv4, the flow label is dropped, and the scope (the interface) stays only for addresses that may
/// exist at each interface.
#[inline]
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(addr) = addr else { return addr };
    let ip = *addr.ip();
    if let IpAddr::V4(ip) = IpAddr::V6(ip).to_canonical() {
        return SocketAddr::new(ip.into(), addr.port());
    }
    // Groups of an interface or a link: ff01, ff02.
    let local = ip.is_unicast_link_local() || matches!(ip.segments()[0] & 0xFF0F, 0xFF01 | 0xFF02);
    let scope = if local { addr.scope_id() } else { 0 };
    SocketAddr::V6(SocketAddrV6::new(ip, addr.port(), 0, scope))
}

/// The host of an address, for fair shares: a host has all its ports.
pub(crate) fn host(addr: SocketAddr) -> HostAddress {
    HostAddress::of(addr.ip())
}

impl From<(SocketAddr, u32)> for Key {
    fn from((addr, id): (SocketAddr, u32)) -> Key {
        Key { addr, id }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.addr, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_canonical_form() {
        let v6 = |ip: &str, flow, scope| {
            SocketAddr::V6(SocketAddrV6::new(ip.parse().expect("an address"), 7, flow, scope))
        };
        let v4 = SocketAddr::from(([10, 0, 0, 1], 7));
        assert_eq!([canonical(v4), canonical(v6("::ffff:10.0.0.1", 0, 3))], [v4, v4]);
        assert_eq!(canonical(v6("2001:db8::1", 9, 3)), v6("2001:db8::1", 0, 0));
        for local in ["fe80::1", "ff02::1", "ff12::1", "ff01::1"] {
            assert_eq!(canonical(v6(local, 9, 3)), v6(local, 0, 3), "answers leave by the same interface");
        }
        assert_eq!(canonical(v6("ff05::1", 0, 3)), v6("ff05::1", 0, 0));
    }
}
