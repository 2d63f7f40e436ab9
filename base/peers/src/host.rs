//! The hosts for which limits count.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The host of an address, as limits count it: all addresses of one host are one.
///
/// | Address | Host |
/// |---|---|
/// | IPv4 | the address |
/// | IPv4 mapped to IPv6 (`::ffff:a.b.c.d`) | the IPv4 address |
/// | IPv6 | the first 64 bits: a customer has at least so many addresses, and could use a new one for each connection |
/// | `::1` | itself |
///
/// ```
/// use peers::HostAddress;
/// let host = |text: &str| text.parse::<HostAddress>();
/// assert_eq!(host("[2001:db8::1]:9")?, host("2001:db8::2")?);
/// assert_eq!(host("10.0.0.1:9")?, host("[::ffff:10.0.0.1]:8")?);
/// assert_eq!(host("[2001:db8::1]:9")?.to_string(), "2001:db8::");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostAddress(IpAddr);

impl HostAddress {
    /// The host of an address.
    #[inline]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(own) if !own.is_loopback() => Ipv6Addr::from_bits(own.to_bits() >> 64 << 64).into(),
            own => own,
        })
    }
}

impl From<IpAddr> for HostAddress {
    fn from(address: IpAddr) -> Self {
        Self::of(address)
    }
}

/// An address with or without a port.
impl FromStr for HostAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let address = text.parse::<SocketAddr>().map(|address| address.ip());
        address.or_else(|_| text.parse()).map(Self::of)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn the_addresses_of_a_host_are_one() {
        for [one, same] in [
            ["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"],
            ["[2001:db8::1]:1", "[2001:db8::2]:2"],
            ["[fe80::1%3]:9", "fe80::2"],
            ["10.0.0.1", "::ffff:10.0.0.1"],
            ["10.0.0.1:9", "[::ffff:10.0.0.1]:8"],
            ["[::1]:9", "::1"],
        ] {
            assert_eq!(host(one), host(same));
        }
        for [one, other] in [
            ["10.0.0.1", "10.0.0.2"],
            ["2001:db8::1", "2001:db8:0:1::1"],
            ["::ffff:10.0.0.1", "::ffff:10.0.0.2"],
            ["::1", "::2"],
            ["::1", "127.0.0.1"],
        ] {
            assert_ne!(host(one), host(other));
        }
        assert!("somewhere".parse::<HostAddress>().is_err());
    }

    #[test]
    fn a_host_is_written_as_an_address() {
        let written = ["2001:db8::7", "::1", "::ffff:10.0.0.1"].map(|text| host(text).to_string());
        assert_eq!(written, ["2001:db8::", "::1", "10.0.0.1"]);
    }
}
