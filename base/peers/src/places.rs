//! The places of a listener: who may be connected at the same time.
//!
//! ```text
//!   enter ──▶ its host has its share? ── a stranger of this host makes room, or nobody enters
//!         ──▶ all places are taken? ──── a stranger of the host that has most strangers makes room, or nobody enters
//!         ──▶ Place: a stranger, until it is known ──▶ dropped: the place is free
//! ```
//!
//! A host, as [`HostAddress`] defines it, has a share of the places, so that one address cannot take all of them. Silent connections cannot take
//! all of them either, from however many addresses: they are [`Strangers`], and make room for newcomers.
//!
//! Nothing here does I/O: a listener asks for a place after each accept, and its connection ends when [`Place::while_held`] says so. Lines for
//! the log go to a function of the listener, at most one of a kind in ten seconds.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Instant;

use locks::Mutex;

use crate::{HostAddress, LogLimiter, Strangers};

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Of all hosts together.
    pub all: usize,
    /// The setting of `all`, for the log.
    pub all_setting: &'static str,
    /// Of each host.
    pub of_host: usize,
    /// The setting of `of_host`, for the log.
    pub of_host_setting: &'static str,
}

impl PlaceLimits {
    /// So many for all hosts together. Each has three quarters at most, so that there is always room for others; of fewer than four it may have
    /// all.
    ///
    /// ```
    /// let share = |all| peers::PlaceLimits::new(all, "http.max_connections").of_host;
    /// assert_eq!([share(64), share(4), share(3), share(1)], [48, 3, 3, 1]);
    /// ```
    pub const fn new(all: usize, setting: &'static str) -> Self {
        Self { all, all_setting: setting, of_host: all - all / 4, of_host_setting: setting }
    }
}

/// A connection found no place. Others have them all, and are no strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} has {held} of {all} places, and {taken} are taken; none is free for it, as {setting} = {limit}"
)]
#[non_exhaustive]
pub struct TurnedAway {
    /// The host of the connection.
    pub host: HostAddress,
    /// The places that it has.
    pub held: usize,
    /// All places that are taken.
    pub taken: usize,
    /// All places.
    pub all: usize,
    /// The limit that is reached.
    pub limit: usize,
    /// Its setting.
    pub setting: &'static str,
}

/// The numbers of connections so far, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaceCounts {
    /// Connections that found no place.
    pub turned_away: u64,
    /// Strangers that made room for others.
    pub made_room: u64,
}

/// The places of one or several listeners. Clones share them.
///
/// ```
/// use std::time::Instant;
/// use peers::{PlaceLimits, Places};
///
/// let places = Places::new(PlaceLimits::new(4, "max_connections"), |line| println!("{line}"));
/// let enter = |address: [u8; 4]| places.enter(address.into(), Instant::now());
/// let known: Vec<_> = (0..3).map_while(|_| enter([10, 0, 0, 1]).ok()).collect();
/// known.iter().for_each(|place| place.known());
/// assert!(enter([10, 0, 0, 1]).is_err());                 // its share is three of four
/// let silent = enter([10, 0, 0, 2]).unwrap();
/// assert!(enter([10, 0, 0, 3]).is_ok());                  // the silent one makes room
/// assert!(silent.is_leaving() && !known[0].is_leaving());
/// ```
#[derive(Debug, Clone)]
pub struct Places(Arc<Shared>);

struct Shared {
    limits: PlaceLimits,
    log: fn(&str),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The connections of each host that has some.
    held: HashMap<HostAddress, usize>,
    taken: usize,
    strangers: Strangers<HostAddress, Arc<Exit>>,
    counts: PlaceCounts,
    away_lines: LogLimiter,
    room_lines: LogLimiter,
}

/// How a connection learns that it has to make room.
#[derive(Debug, Default)]
struct Exit(Mutex<(bool, Option<Waker>)>);

/// The place of a connection. It is free again when this is dropped.
#[derive(Debug)]
#[must_use = "dropping the place gives it back"]
pub struct Place {
    shared: Arc<Shared>,
    host: HostAddress,
    number: u64,
    exit: Arc<Exit>,
    known: OnceLock<()>,
}

impl Places {
    /// All places are free. `log` writes a line to the log, as a warning.
    pub fn new(limits: PlaceLimits, log: fn(&str)) -> Self {
        Self(Arc::new(Shared { limits, log, state: Mutex::default() }))
    }

    /// A place for a new connection, which is a stranger. Another stranger may have to leave for it.
    ///
    /// # Errors
    /// [`TurnedAway`]: there is no room for it.
    pub fn enter(&self, address: IpAddr, now: Instant) -> Result<Place, TurnedAway> {
        self.enter_of(address, now, self.0.limits)
    }

    /// As [`enter`](Self::enter), for a connection of a proxy, which may have all places: its clients share them.
    ///
    /// # Errors
    /// As of [`enter`](Self::enter).
    pub fn enter_proxy(&self, address: IpAddr, now: Instant) -> Result<Place, TurnedAway> {
        self.enter_of(address, now, PlaceLimits { of_host: self.0.limits.all, ..self.0.limits })
    }

    fn enter_of(&self, address: IpAddr, now: Instant, limits: PlaceLimits) -> Result<Place, TurnedAway> {
        let host = HostAddress::of(address);
        let mut state = self.0.state.lock();
        let room = state.make_room(host, &limits);
        let line = state.line(host, &room, now);
        let place = room.map(|_| {
            *state.held.entry(host).or_default() += 1;
            state.taken += 1;
            let exit = Arc::<Exit>::default();
            let number = state.strangers.add(host, exit.clone());
            Place { shared: self.0.clone(), host, number, exit, known: OnceLock::new() }
        });
        drop(state);
        line.iter().for_each(|line| (self.0.log)(line));
        place
    }

    /// The numbers so far.
    pub fn counts(&self) -> PlaceCounts {
        self.0.state.lock().counts
    }

    /// The places that are taken.
    pub fn taken(&self) -> usize {
        self.0.state.lock().taken
    }
}

impl State {
    /// Makes room for a connection of a host, if there is none. Returns the host whose stranger leaves, and the limit that was reached.
    fn make_room(
        &mut self,
        host: HostAddress,
        limits: &PlaceLimits,
    ) -> Result<Option<TurnedAway>, TurnedAway> {
        let held = self.held.get(&host).copied().unwrap_or(0);
        let share = limits.of_host.min(limits.all);
        let reached =
            |limit, setting| TurnedAway { host, held, taken: self.taken, all: limits.all, limit, setting };
        let (reached, leaves) = if held >= share {
            let reached = reached(share, limits.of_host_setting);
            (reached, self.strangers.pop_of(host).map(|exit| (host, exit)))
        } else if self.taken >= limits.all {
            (reached(limits.all, limits.all_setting), self.strangers.pop())
        } else {
            return Ok(None);
        };
        let Some((host, exit)) = leaves else {
            self.counts.turned_away += 1;
            return Err(reached);
        };
        self.counts.made_room += 1;
        let held = self.held.get(&host).copied().unwrap_or(0);
        exit.ask();
        self.free(host);
        Ok(Some(TurnedAway { host, held, ..reached }))
    }

    fn free(&mut self, host: HostAddress) {
        self.taken -= 1;
        if let Some(held) = self.held.get_mut(&host) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&host);
            }
        }
    }

    /// The line of the log about a connection of a host, if one is due.
    fn line(
        &mut self,
        host: HostAddress,
        room: &Result<Option<TurnedAway>, TurnedAway>,
        now: Instant,
    ) -> Option<String> {
        let (limiter, said) = match room {
            Ok(None) => return None,
            Ok(Some(left)) => (
                &mut self.room_lines,
                format!(
                    "a connection of {} that has said nothing of use was closed to make room for one of {host}: it had {} of {} places, and {} \
                     were taken ({} = {})",
                    left.host, left.held, left.all, left.taken, left.setting, left.limit
                ),
            ),
            Err(away) => (
                &mut self.away_lines,
                format!("a connection was turned away: {away}; raise it if these are wanted"),
            ),
        };
        let more = limiter.allow(now)?;
        Some(if more == 0 { said } else { format!("{said}; so were {more} more since the last line") })
    }
}

impl Place {
    /// The connection is no stranger: it has logged in, or was given what it asked for. It does not have to leave for others any more.
    pub fn known(&self) {
        if !self.is_known() && self.shared.state.lock().strangers.remove(self.host, self.number).is_some() {
            self.known.get_or_init(|| ());
        }
    }

    /// Whether [`known`](Self::known) was called, in time.
    pub fn is_known(&self) -> bool {
        self.known.get().is_some()
    }

    /// Whether the connection has to end, since its place was given to another one.
    pub fn is_leaving(&self) -> bool {
        self.exit.0.lock().0
    }

    /// Does what the connection is for. `None`: it has to end before that is done. A connection has one such call at a time.
    pub async fn while_held<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if !self.is_known() && self.exit.poll(cx.waker()) {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if !self.is_known() {
            state.strangers.remove(self.host, self.number);
        }
        // A connection that had to leave has given its place away.
        if !self.is_leaving() {
            state.free(self.host);
        }
    }
}

impl Exit {
    /// Whether the connection has to end. The waker is called when it has to.
    fn poll(&self, waker: &Waker) -> bool {
        let mut exit = self.0.lock();
        exit.1 = Some(waker.clone());
        exit.0
    }

    fn ask(&self) {
        let waker = {
            let mut exit = self.0.lock();
            exit.0 = true;
            exit.1.take()
        };
        waker.iter().for_each(Waker::wake_by_ref);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn address(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    fn places(all: usize, of_host: usize) -> Places {
        let limits = PlaceLimits { of_host, of_host_setting: "max_of_one", ..PlaceLimits::new(all, "max") };
        Places::new(limits, |_| ())
    }

    #[test]
    fn a_host_takes_its_share_and_no_more() {
        let (places, now) = (places(9, 3), Instant::now());
        let network = |n: u128| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        let own: Vec<_> = (0..3).map(|n| places.enter(network(n), now).unwrap()).collect();
        own.iter().for_each(Place::known);
        let away = places.enter(network(77), now).unwrap_err();
        assert_eq!(
            away.to_string(),
            "2001:db8:: has 3 of 9 places, and 3 are taken; none is free for it, as max_of_one = 3"
        );
        let other = places.enter(network(1 << 64), now).unwrap();
        assert_eq!((places.taken(), places.counts().turned_away), (4, 1));
        drop((own, other));
        assert!(places.0.state.lock().held.is_empty() && places.taken() == 0);
    }

    #[test]
    fn a_stranger_learns_that_it_has_to_leave() {
        let (places, now) = (places(1, 1), Instant::now());
        let first = places.enter(address(1), now).unwrap();
        let mut leaves = pin!(first.while_held(std::future::pending::<()>()));
        let mut cx = std::task::Context::from_waker(Waker::noop());
        assert!(leaves.as_mut().poll(&mut cx).is_pending());
        let second = places.enter(address(2), now).unwrap();
        assert_eq!(leaves.as_mut().poll(&mut cx), Poll::Ready(None));
        second.known();
        first.known();
        assert!(second.is_known() && !first.is_known(), "too late");
        assert!(places.enter(address(1), now).is_err());
        assert_eq!(places.counts(), PlaceCounts { turned_away: 1, made_room: 1 });
    }

    #[test]
    fn a_flood_has_a_line_that_says_whose_and_what_to_raise() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let places = Places::new(PlaceLimits::new(4, "max"), |line| LINES.lock().push(line.to_owned()));
        let now = Instant::now();
        let _silent: Vec<_> = (0..9).map(|_| places.enter(address(1), now).unwrap()).collect();
        let _known: Vec<_> = (2..9)
            .map_while(|host| places.enter(address(host), now).ok())
            .map(|own| (own.known(), own))
            .collect();
        let later = now + LogLimiter::INTERVAL;
        assert!(places.enter(address(8), later).is_err());
        let lines = LINES.lock();
        assert!(
            lines[0].contains("of 10.0.0.1 that has said nothing") && lines[0].contains("3 of 4"),
            "{lines:?}"
        );
        assert!(lines[1].contains("10.0.0.6 has 0 of 4 places") && lines[1].contains("max = 4"), "{lines:?}");
        assert_eq!(lines.len(), 3, "{lines:?}");
    }

    proptest! {
        /// Compared with a list of connections in order of age.
        #[test]
        fn behaves_like_a_plain_list(
            all in 0_usize..8, share in 0_usize..8,
            steps in prop::collection::vec((0_u8..5, 0_u8..4, any::<prop::sample::Index>()), 0..80),
        ) {
            let (places, now) = (places(all, share), Instant::now());
            // The host, whether it is known, the place.
            let mut model = Vec::<(u8, bool, Place)>::new();
            let (mut away, mut left) = (0, Vec::new());
            for (kind, host, at) in steps {
                match kind {
                    0..3 => {
                        let held = |host| model.iter().filter(|own| own.0 == host).count();
                        let strange = |host| model.iter().filter(|own| own.0 == host && !own.1).count();
                        let leaves = if held(host) >= share.min(all) {
                            Some(model.iter().position(|own| own.0 == host && !own.1))
                        } else if model.len() >= all {
                            let most = model.iter().map(|own| strange(own.0)).max().unwrap_or(0);
                            Some(model.iter().position(|own| !own.1 && strange(own.0) == most))
                        } else {
                            None
                        };
                        let entered = places.enter(address(host), now);
                        prop_assert_eq!(entered.is_err(), leaves == Some(None));
                        away += u64::from(entered.is_err());
                        left.extend(leaves.flatten().map(|at| model.remove(at).2));
                        model.extend(entered.map(|place| (host, false, place)));
                    }
                    3 if !model.is_empty() => {
                        let at = at.index(model.len());
                        model[at].1 = true;
                        model[at].2.known();
                    }
                    _ if !model.is_empty() => drop(model.remove(at.index(model.len()))),
                    _ => drop(left.pop()),
                }
                prop_assert!(left.iter().all(Place::is_leaving));
                prop_assert!(!model.iter().any(|own| own.2.is_leaving()));
                prop_assert_eq!(places.taken(), model.len());
            }
            prop_assert_eq!(places.counts().turned_away, away);
            drop((model, left));
            prop_assert!(places.taken() == 0 && places.0.state.lock().strangers.is_empty());
        }
    }
}
