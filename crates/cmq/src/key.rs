//! Whom a message is for, and whom it came from.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The paper's key: an address and an integer. For a push it names the receiving queue and the mailbox there; for a pop
/// it names who sent the message and the mailbox it was sent to. So whoever answers pushes to the key that it popped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The address of the other queue. A multicast address reaches every queue that joined it.
    pub addr: SocketAddr,
    /// The mailbox at the receiving end, for example the id of a process.
    pub id: u32,
}

impl Key {
    /// A key of these two.
    pub fn new(addr: SocketAddr, id: u32) -> Key {
        Key { addr, id }
    }

    /// The same with the address that the other queue is popped with.
    #[inline]
    pub(crate) fn canonical(self) -> Key {
        Key { addr: canonical(self.addr), id: self.id }
    }
}

/// The one form of an address, so that whom a message is for can be compared with whom one came from: IPv4 as such where it
/// is mapped into IPv6, no flow label, and a scope (the interface) where the same address may be at each.
#[inline]
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(addr) = addr else { return addr };
    let ip = *addr.ip();
    if let IpAddr::V4(ip) = IpAddr::V6(ip).to_canonical() {
        return SocketAddr::new(ip.into(), addr.port());
    }
    // Of groups those of an interface or a link (ff01, ff02).
    let local = ip.is_unicast_link_local() || matches!(ip.segments()[0] & 0xFF0F, 0xFF01 | 0xFF02);
    let scope = if local { addr.scope_id() } else { 0 };
    SocketAddr::V6(SocketAddrV6::new(ip, addr.port(), 0, scope))
}

/// Whose address it is: ports are free for whoever has one, and so is what is left of 64 bits for whoever has an address of
/// IPv6.
pub(crate) fn host(addr: SocketAddr) -> IpAddr {
    match addr.ip() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
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
    fn an_address_has_one_form() {
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
