//! A node as a member of a cluster: what it says of itself in etcd, and what it does with what others say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use commands::Failure;
use etcd::{Presence, PresenceSettings, PresenceStatus, Presented, Snapshot, running_system};
use rblive::RsManager;
use rblive_deliver::Elsewhere;

use super::super::config::Cluster;
use super::super::deliver::Viewers;
use super::map::{About, Keys, Load, Map, told_streams};

/// How often at most a node writes and reads.
const PACE: Duration = Duration::from_secs(1);
/// How often a small change of the load is told. A large one is told within [`PACE`].
const SMALL_CHANGES: Duration = Duration::from_secs(10);
/// The part of the limits that others leave free: what they know of a node is some seconds old.
const SPARE: u64 = 10;

/// A node of a cluster. It leaves when it is dropped.
pub struct Member {
    presence: Presence,
    nodes: Arc<AtomicUsize>,
}

impl Member {
    /// Enters the cluster of the configuration. None: there is no such section.
    pub fn start(
        rs: &RsManager,
        viewers: Option<Arc<Viewers>>,
        settings: &Cluster,
    ) -> Result<Option<Self>, Failure> {
        if !settings.is_used() {
            return Ok(None);
        }
        let node = rs.node();
        let about = About {
            number: node.id,
            role: node.role,
            address: address(rs, settings)?,
            viewers: match &viewers {
                Some(viewers) => url(&viewers.address(), settings)?,
                None => String::new(),
            },
            host: running_system(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let keys = Keys::new(&settings.name);
        let presence = PresenceSettings {
            prefix: keys.prefix().to_owned(),
            key: keys.node(&node.name),
            ttl: settings.ttl(),
            pace: PACE,
        };
        let nodes = Arc::<AtomicUsize>::default();
        let own = Own {
            name: node.name.clone(),
            rs: rs.clone(),
            meter: Meter::new(settings),
            viewers,
            about,
            keys,
            nodes: nodes.clone(),
            conflict: None,
            heard: Instant::now(),
        };
        let presence =
            Presence::start(settings.client()?, presence, Box::new(own)).map_err(Failure::failed)?;
        Ok(Some(Self { presence, nodes }))
    }

    /// How the node is known.
    pub fn status(&self) -> PresenceStatus {
        self.presence.status()
    }

    /// The nodes of the map, as far as this one knows.
    pub fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }
}

/// Where other nodes reach this one.
fn address(rs: &RsManager, settings: &Cluster) -> Result<String, Failure> {
    let own = settings.advertise.first().cloned().or_else(|| rs.address()).unwrap_or_default();
    check_reachable(&own, "cluster.advertise", settings)?;
    Ok(own)
}

/// How the addresses for viewers of this node begin.
fn url(page: &str, settings: &Cluster) -> Result<String, Failure> {
    let own = if settings.viewers.is_empty() { page } else { &settings.viewers };
    let own = own.trim_end_matches('/');
    if settings.viewers.is_empty() {
        let address = own.split_once("://").map_or(own, |(_, rest)| rest);
        check_reachable(address, "cluster.viewers", settings)?;
    }
    Ok(own.to_owned())
}

/// Refuses an address that no other machine reaches, unless all of the cluster is on this one.
fn check_reachable(address: &str, setting: &str, settings: &Cluster) -> Result<(), Failure> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip = host.parse::<std::net::IpAddr>().ok().map(|ip| ip.to_canonical());
    if ip.is_some_and(|ip| ip.is_unspecified()) {
        return Err(Failure::Failed(format!("nobody reaches this node at {address}: set {setting}")));
    }
    let is_near = host == "localhost" || ip.is_some_and(|ip| ip.is_loopback());
    if is_near && !settings.access().is_local() {
        return Err(Failure::Failed(format!(
            "etcd is on another machine, and no other machine reaches this node at {address}: set {setting}"
        )));
    }
    Ok(())
}

/// What a node says of itself, and what it takes from the others.
struct Own {
    name: String,
    rs: RsManager,
    viewers: Option<Arc<Viewers>>,
    about: About,
    keys: Keys,
    meter: Meter,
    nodes: Arc<AtomicUsize>,
    /// Why the others leave this node out.
    conflict: Option<String>,
    /// Since when the others have told what viewers they have.
    heard: Instant,
}

impl Own {
    fn elsewhere(&self) -> Option<&Elsewhere> {
        self.viewers.as_ref().and_then(|viewers| viewers.elsewhere())
    }

    /// Sets how many more viewers this node is to have. Returns the load that others are told, if it delivers.
    fn measure(&mut self) -> Option<Load> {
        let viewers = self.viewers.clone()?;
        let watching = viewers.streams().iter().map(|stream| stream.viewers as u64).sum();
        let (room, load) = self.meter.measure(watching, viewers.media_bytes(), Instant::now());
        if let Some(elsewhere) = viewers.elsewhere() {
            elsewhere.set_room(room);
        }
        Some(load)
    }
}

impl Presented for Own {
    fn value(&mut self) -> Vec<u8> {
        serde_json::to_vec(&self.about).unwrap_or_default()
    }

    fn was_mine(&self, value: &[u8]) -> bool {
        // A node that was started again may have other ports.
        let before = serde_json::from_slice::<About>(value);
        before.is_ok_and(|before| before.host == self.about.host && before.number == self.about.number)
    }

    fn others(&mut self) -> Vec<(String, Vec<u8>)> {
        let (Some(viewers), Some(load)) = (self.viewers.clone(), self.measure()) else { return Vec::new() };
        // Sorted by name, so that the value changes with the streams alone.
        let streams = viewers.streams();
        let live = streams.iter().filter(|stream| stream.is_live).map(|stream| stream.name.as_str());
        let load = serde_json::to_vec(&load).unwrap_or_default();
        vec![(self.keys.load(&self.name), load), (self.keys.streams(&self.name), told_streams(live))]
    }

    fn seen(&mut self, snapshot: &Snapshot) {
        let map = Map::read(snapshot, &self.keys);
        self.nodes.store(map.members.len(), Ordering::Relaxed);
        for (key, problem) in &map.unreadable {
            tracing::debug!("a key of the cluster counts for nothing: {key}: {problem}");
        }
        let conflict = map.unreadable.get(&self.keys.node(&self.name)).cloned();
        if let Some(why) = conflict.as_ref().filter(|_| self.conflict != conflict) {
            tracing::error!("other nodes leave this one out: {why}");
        }
        self.conflict = conflict;
        self.rs.set_found_nodes(map.nodes(&self.name));
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.set_others(map.for_viewers(&self.name));
            elsewhere.set_draining(map.draining.contains(&self.name));
        }
    }

    fn told(&mut self, degraded: Option<&str>) {
        // Whatever etcd says: viewers come and go without it.
        self.measure();
        let now = Instant::now();
        if degraded.is_some() {
            self.heard = now;
        }
        if now.saturating_duration_since(self.heard) >= SMALL_CHANGES {
            self.heard = now;
            if let Some(elsewhere) = self.elsewhere() {
                elsewhere.forget_sent();
            }
        }
        if let Some(elsewhere) = self.elsewhere() {
            elsewhere.set_degraded(degraded.is_some() || self.conflict.is_some());
        }
    }
}

/// What a node has to do, and how much more it is to have.
struct Meter {
    max_viewers: u64,
    max_bits_per_second: u64,
    bits_per_second: f64,
    bytes: u64,
    at: Option<Instant>,
    /// What was told last, and when.
    told: Option<(Load, Instant)>,
}

impl Meter {
    fn new(settings: &Cluster) -> Self {
        Self {
            max_viewers: settings.max_viewers as u64,
            max_bits_per_second: settings.max_bits_per_second,
            bits_per_second: 0.0,
            bytes: 0,
            at: None,
            told: None,
        }
    }

    /// The room of this node, which is below 0 if viewers are to go, and the load that the others are told.
    fn measure(&mut self, viewers: u64, bytes: u64, now: Instant) -> (i64, Load) {
        let since = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        if since > 0.1 {
            let rate = bytes.saturating_sub(self.bytes) as f64 * 8.0 / since;
            // Segments come in one piece: some seconds count.
            self.bits_per_second += (rate - self.bits_per_second) * (since / 5.0).min(1.0);
        }
        if since > 0.1 || self.at.is_none() {
            (self.at, self.bytes) = (Some(now), bytes);
        }
        let limit = self.limit(viewers);
        let room = limit.map_or(i64::MAX, |limit| limit as i64 - viewers as i64);
        let spare = limit.map_or(0, |limit| (limit / SPARE) as i64);
        // Without limits the node with the fewest viewers has the most room.
        let others = if limit.is_some() { room - spare } else { i64::from(u32::MAX) - viewers as i64 };
        let load = Load {
            viewers,
            bits_per_second: (self.bits_per_second / 100_000.0).round() as u64 * 100_000,
            room: others.clamp(0, i64::from(u32::MAX)) as u32,
        };
        (room, self.tell(load, now))
    }

    /// The viewers that the node is to have at most. The rate of the present ones says how many the limit of the rate allows.
    fn limit(&self, viewers: u64) -> Option<u64> {
        let by_number = (self.max_viewers > 0).then_some(self.max_viewers);
        let has_rate = self.max_bits_per_second > 0 && viewers > 0 && self.bits_per_second >= 1.0;
        let by_rate = has_rate
            .then(|| (viewers as f64 * self.max_bits_per_second as f64 / self.bits_per_second) as u64);
        match (by_number, by_rate) {
            (Some(number), Some(rate)) => Some(number.min(rate)),
            (number, rate) => number.or(rate),
        }
    }

    /// The load that others are told: a small change waits.
    fn tell(&mut self, load: Load, now: Instant) -> Load {
        if let Some((told, at)) = self.told {
            let far = |a: u64, b: u64| a.abs_diff(b) * 10 > a.max(b).max(10);
            let is_large = far(told.viewers, load.viewers) || (told.room == 0) != (load.room == 0);
            if !is_large && now.saturating_duration_since(at) < SMALL_CHANGES {
                return told;
            }
        }
        self.told = Some((load, now));
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(max_viewers: usize, max_bits_per_second: u64) -> Meter {
        Meter::new(&Cluster { max_viewers, max_bits_per_second, ..Cluster::default() })
    }

    #[test]
    fn a_limit_of_viewers_leaves_room() {
        let now = Instant::now();
        let mut meter = meter(100, 0);
        assert_eq!(meter.measure(0, 0, now), (100, Load { viewers: 0, bits_per_second: 0, room: 90 }));
        let (room, load) = meter.measure(95, 0, now + PACE);
        assert_eq!(
            (room, load.viewers, load.room),
            (5, 95, 0),
            "others send nobody to a node that is nearly full"
        );
        assert_eq!(meter.measure(120, 0, now + 2 * PACE).0, -20);
    }

    #[test]
    fn a_limit_of_the_rate_is_one_of_viewers() {
        let now = Instant::now();
        let mut meter = meter(0, 50_000_000);
        assert_eq!(meter.measure(0, 0, now).0, i64::MAX);
        // Ten viewers take 10 Mbit/s each.
        let last = (1..60).map(|n| meter.measure(10, n * 12_500_000, now + PACE * n as u32)).last().unwrap();
        assert_eq!(last.0, -5, "{last:?}");
        assert!((99_000_000..101_000_000).contains(&last.1.bits_per_second), "{last:?}");
    }

    #[test]
    fn small_changes_are_told_seldom() {
        let now = Instant::now();
        let mut meter = meter(0, 0);
        let mut told =
            |viewers, seconds| meter.measure(viewers, 0, now + Duration::from_secs(seconds)).1.viewers;
        assert_eq!((told(100, 0), told(105, 1), told(120, 2)), (100, 100, 120));
        assert_eq!((told(121, 5), told(121, 12)), (120, 121));
        assert_eq!((told(2, 13), told(1, 14)), (2, 2));
        assert_eq!((told(1, 24), told(0, 34)), (1, 0), "the last ones too");
    }

    #[test]
    fn others_must_be_able_to_reach_a_node() {
        let settings = |etcd: &str| Cluster { etcd: vec![etcd.to_owned()], ..Cluster::default() };
        let check =
            |address: &str, etcd: &str| match check_reachable(address, "cluster.viewers", &settings(etcd)) {
                Ok(()) => String::new(),
                Err(failure) => format!("{failure:?}"),
            };
        for (address, etcd, expected) in [
            ("127.0.0.1:8443", "http://localhost", ""),
            ("10.0.0.1:8443", "http://10.0.0.9", ""),
            ("", "http://10.0.0.9", ""),
            ("0.0.0.0:8443", "http://localhost", "set cluster.viewers"),
            ("[::]:8443", "http://localhost", "set cluster.viewers"),
            ("[::1]:8443", "http://10.0.0.9", "etcd is on another machine"),
        ] {
            let told = check(address, etcd);
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{address}: {told}");
        }
    }
}
