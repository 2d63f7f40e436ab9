//! Reverse proxies in front of a listener, which say for whom they ask.

use std::net::{IpAddr, SocketAddr};

/// The addresses of proxies whose field `X-Forwarded-For` is believed. Of anybody else it is not looked at, since everybody can send it.
///
/// ```
/// use peers::Proxies;
///
/// let proxies = Proxies::new(&["127.0.0.1".to_owned(), "10.0.0.0/8".to_owned()]).unwrap();
/// let client = |peer: &str, said: &str| proxies.client(peer.parse().unwrap(), [said]).to_string();
/// assert_eq!(client("127.0.0.1", "192.0.2.7"), "192.0.2.7");
/// // Each proxy appends whom it sees, so what stands before that is the client's own word.
/// assert_eq!(client("127.0.0.1", "203.0.113.9, 192.0.2.7, 10.1.2.3"), "192.0.2.7");
/// assert_eq!(client("192.0.2.8", "192.0.2.7"), "192.0.2.8");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies(Vec<Network>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

/// The bits of an address, the highest one first, and how many there are.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(own) => (u128::from(own.to_bits()) << 96, 32),
        IpAddr::V6(own) => (own.to_bits(), 128),
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) =
            text.split_once('/').map_or((text, None), |(own, length)| (own, Some(length)));
        let address = address.parse::<IpAddr>().ok()?.to_canonical();
        let most = bits(address).1;
        let bits = length.map_or(Some(most), |length| length.parse().ok()).filter(|bits| *bits <= most)?;
        Some(Self { address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let ((own, kind), (other, other_kind)) = (bits(self.address), bits(address));
        kind == other_kind && (own ^ other).leading_zeros() >= self.bits
    }
}

impl Proxies {
    /// Reads addresses (`127.0.0.1`, `::1`) and networks (`10.0.0.0/8`).
    ///
    /// # Errors
    /// The text that is neither.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        let read = |text: &String| {
            let wrong =
                || format!("'{text}' is no address of a proxy, as 127.0.0.1, and no network, as 10.0.0.0/8");
            Network::parse(text).ok_or_else(wrong)
        };
        texts.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there is a proxy at this address.
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.has(address))
    }

    /// The client that asks: the peer, or for whom a proxy asks by the fields `X-Forwarded-For`, in their order. What is no address ends the
    /// search, and the proxy that said it is the client.
    pub fn client<'a>(
        &self,
        peer: IpAddr,
        fields: impl IntoIterator<Item = &'a (impl AsRef<[u8]> + ?Sized + 'a), IntoIter: DoubleEndedIterator>,
    ) -> IpAddr {
        // Clients may have put any bytes before what the proxy saw.
        let mut said = fields.into_iter().rev().flat_map(|field| field.as_ref().rsplit(|byte| *byte == b','));
        let mut client = peer;
        while self.has(client)
            && let Some(before) = said.next().and_then(address)
        {
            client = before;
        }
        client
    }
}

/// An address, which some proxies write with its port.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(bytes).ok()?.trim();
    let with_port = || text.parse::<SocketAddr>().ok().map(|own| own.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> Proxies {
        Proxies::new(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_have_their_addresses_alone() {
        let own = proxies(&["127.0.0.1", "10.0.0.0/8", "2001:db8::/32", "::ffff:192.0.2.1"]);
        for there in ["127.0.0.1", "::ffff:127.0.0.1", "10.255.0.1", "2001:db8:1::1", "192.0.2.1"] {
            assert!(own.has(ip(there)), "{there}");
        }
        for elsewhere in ["127.0.0.2", "11.0.0.1", "2001:db9::1", "::1", "a00::"] {
            assert!(!own.has(ip(elsewhere)), "{elsewhere}");
        }
        assert!(proxies(&["0.0.0.0/0"]).has(ip("1.2.3.4")) && !proxies(&["0.0.0.0/0"]).has(ip("::1")));
        for wrong in ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8/8"] {
            assert!(Proxies::new(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_is_known_by_its_own_proxies_alone() {
        let own = proxies(&["127.0.0.1", "10.0.0.0/8"]);
        let client = |peer: &str, fields: &[&str]| own.client(ip(peer), fields.iter().copied()).to_string();
        assert_eq!(client("127.0.0.1", &["[2001:db8::1]:5"]), "2001:db8::1");
        assert_eq!(client("127.0.0.1", &["192.0.2.1:80"]), "192.0.2.1");
        assert_eq!(
            client("127.0.0.1", &["1.1.1.1", "192.0.2.1, 10.0.0.1"]),
            "192.0.2.1",
            "two fields are one list"
        );
        assert_eq!(client("127.0.0.1", &["192.0.2.1, unknown"]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["192.0.2.1,,"]), "127.0.0.1");
        let odd: &[u8] = b"\xff, 192.0.2.1";
        assert_eq!(own.client(ip("127.0.0.1"), [odd]), ip("192.0.2.1"), "a client may say what is no text");
        assert_eq!(client("127.0.0.1", &["10.0.0.2"]), "10.0.0.2", "the proxy itself asks");
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client("192.0.2.9", &["127.0.0.1"]), "192.0.2.9");
        assert_eq!(Proxies::default().client(ip("127.0.0.1"), ["192.0.2.1"]), ip("127.0.0.1"));
    }
}
