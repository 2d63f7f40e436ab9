//! The addresses of viewers: the places of their connections, and how often each asks. All addresses of a host count as one
//! ([`HostAddress`]).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use locks::Mutex;
use peers::{HostAddress, Places, Proxies};

/// A new connection costs as much as this many requests: a handshake is the most work that a client can ask for.
const CONNECTION: u32 = 10;

/// The requests of so much time may come at once.
const BURST: Duration = Duration::from_secs(2);

/// The addresses that have connections, or made requests recently.
#[derive(Debug)]
pub(crate) struct Addresses {
    table: Mutex<HashMap<HostAddress, Arc<Address>>>,
    began: Instant,
    places: Places,
    proxies: Proxies,
    /// The time between two requests that come one after the other. Zero: no limit.
    pause: Duration,
}

/// The requests of an address. `due` is the time, in nanoseconds, at which all its requests so far would have come at the
/// allowed rate. Each request compares `due` with the clock, and moves it on.
#[derive(Debug, Default)]
struct Address {
    due: AtomicU64,
}

/// The place of a connection, and its entry in the table.
#[derive(Debug)]
pub(crate) struct Place {
    addresses: Arc<Addresses>,
    /// `None`: the connection is one of a proxy, whose requests count for its clients.
    address: Option<Arc<Address>>,
    peer: IpAddr,
    /// The address of this server at which the client arrived, if it is known.
    pub reached: Option<IpAddr>,
    pub place: Arc<peers::Place>,
}

/// Why a connection is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NoPlace,
    TooOften,
}

impl Addresses {
    /// `rate`: requests per second of an address; 0 is no limit.
    pub fn new(places: Places, rate: u32, proxies: Proxies) -> Self {
        let pause = Duration::from_secs(1).checked_div(rate).unwrap_or_default();
        Self { table: Mutex::default(), began: Instant::now(), places, proxies, pause }
    }

    /// Adds a connection, which is a stranger.
    pub fn place(self: &Arc<Self>, addr: IpAddr) -> Result<Place, Refused> {
        let (now, is_proxy) = (Instant::now(), self.proxies.has(addr));
        let address = (!is_proxy).then(|| self.entry(addr));
        if address.as_ref().is_some_and(|address| !self.may_ask(address, CONNECTION)) {
            return Err(Refused::TooOften);
        }
        let place = if is_proxy { self.places.enter_proxy(addr, now) } else { self.places.enter(addr, now) };
        let place = Arc::new(place.map_err(|_| Refused::NoPlace)?);
        Ok(Place { addresses: self.clone(), address, peer: addr, reached: None, place })
    }

    fn entry(&self, addr: IpAddr) -> Arc<Address> {
        self.table.lock().entry(HostAddress::of(addr)).or_default().clone()
    }

    fn may_ask(&self, address: &Address, requests: u32) -> bool {
        if self.pause.is_zero() {
            return true;
        }
        let now = self.began.elapsed();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (latest, cost) = (nanoseconds(now + BURST.max(self.pause)), nanoseconds(self.pause * requests));
        let moved = |due: u64| {
            let next = due.max(nanoseconds(now)) + cost;
            (next <= latest.max(nanoseconds(now) + cost)).then_some(next)
        };
        address.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved).is_ok()
    }

    /// Removes the addresses that have no connection and no requests to wait for.
    pub fn sweep(&self) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.table
            .lock()
            .retain(|_, own| Arc::strong_count(own) > 1 || own.due.load(Ordering::Relaxed) > now);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().len()
    }
}

impl Place {
    /// Whether the connection is a proxy's, and so that of many clients.
    pub fn is_shared(&self) -> bool {
        self.address.is_none()
    }

    /// The host of a client, as the connection or its proxy says.
    pub fn client(&self, forwarded_for: &[Vec<u8>]) -> IpAddr {
        match self.is_shared() {
            true => self.addresses.proxies.client(self.peer, forwarded_for),
            false => self.peer,
        }
    }

    /// Whether the client may ask once more now: that of the connection, or the one for which a proxy asks.
    pub fn may_ask(&self, forwarded_for: &[Vec<u8>]) -> bool {
        let own = match &self.address {
            Some(own) => own.clone(),
            None if self.addresses.pause.is_zero() => return true,
            None => self.addresses.entry(self.addresses.proxies.client(self.peer, forwarded_for)),
        };
        self.addresses.may_ask(&own, 1)
    }
}

#[cfg(test)]
mod tests {
    use peers::PlaceLimits;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    /// Addresses with so many connections each, whose places are known as soon as they are taken.
    struct Known(Arc<Addresses>);

    impl Known {
        fn new(of_host: usize, rate: u32) -> Self {
            let limits = PlaceLimits { of_host, ..PlaceLimits::new(1000, "max_connections") };
            Self(Arc::new(Addresses::new(Places::new(limits, |_| ()), rate, Proxies::default())))
        }

        fn place(&self, addr: IpAddr) -> Option<Place> {
            self.0.place(addr).inspect(|own| own.place.known()).ok()
        }
    }

    impl std::ops::Deref for Known {
        type Target = Addresses;

        fn deref(&self) -> &Addresses {
            &self.0
        }
    }

    #[test]
    fn each_address_has_its_own_connections() {
        let addresses = Known::new(2, 0);
        let both = [addresses.place(ONE).unwrap(), addresses.place(ONE).unwrap()];
        assert!(addresses.place(ONE).is_none());
        assert!(addresses.place(OTHER).is_some());
        addresses.sweep();
        assert_eq!(addresses.len(), 1);
        drop(both);
        assert!(addresses.place(ONE).is_some());
        addresses.sweep();
        assert_eq!(addresses.len(), 0);
    }

    /// A host has many addresses of IPv6, and a viewer with IPv4 may be seen as one with IPv6.
    #[test]
    fn the_addresses_of_a_host_share_their_connections() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let addresses = Known::new(1, 0);
        for [one, same, other] in [
            ["2001:db8::1", "2001:db8::2:3:4:5", "2001:db8:0:1::1"],
            ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.2"],
        ] {
            let place = addresses.place(address(one)).unwrap();
            assert!(addresses.place(address(same)).is_none(), "{one} and {same}");
            assert!(addresses.place(address(other)).is_some(), "{one} and {other}");
            drop(place);
            assert!(addresses.place(address(same)).is_some());
        }
    }

    #[test]
    fn an_address_that_asks_too_often_waits_and_others_do_not() {
        // One request in twenty seconds: the clock does not matter here.
        let places = Places::new(PlaceLimits::new(9, "max_connections"), |_| ());
        let slow =
            Addresses { pause: Duration::from_secs(20), ..Addresses::new(places, 0, Proxies::default()) };
        let addresses = Known(Arc::new(slow));
        let place = addresses.place(ONE).unwrap();
        assert!(!place.may_ask(&[]) && addresses.place(ONE).is_none());
        let other = addresses.place(OTHER).unwrap();
        assert!(!other.may_ask(&[]));
        drop(place);
        addresses.sweep();
        assert_eq!(addresses.len(), 2, "an address that is gone is remembered until it may ask");
        let often = Known::new(9, 1_000_000);
        let place = often.place(ONE).unwrap();
        assert!((0..1000).all(|_| place.may_ask(&[])));
    }

    /// The viewers behind a proxy are many hosts, and the proxy has no share of its own.
    #[test]
    fn the_clients_of_a_proxy_count_and_not_the_proxy() {
        let limits = PlaceLimits { of_host: 1, ..PlaceLimits::new(4, "max_connections") };
        let proxies = Proxies::new(&["127.0.0.1".to_owned()]).unwrap();
        let slow = Addresses {
            pause: Duration::from_secs(20),
            ..Addresses::new(Places::new(limits, |_| ()), 0, proxies)
        };
        let addresses = Known(Arc::new(slow));
        let [one, other] = [(); 2].map(|()| addresses.place(ONE).unwrap());
        let asks = |place: &Place, client: &str| place.may_ask(&[client.as_bytes().to_owned()]);
        assert!(asks(&one, "192.0.2.1") && asks(&other, "192.0.2.2"));
        assert!(!asks(&other, "192.0.2.1") && !asks(&one, "192.0.2.2"), "on whichever connection");
        let own = addresses.place(OTHER).unwrap();
        assert!(!asks(&own, "192.0.2.3"), "a connection is ten requests, and its peer is no proxy");
        assert!(addresses.place(OTHER).is_none());
    }
}
