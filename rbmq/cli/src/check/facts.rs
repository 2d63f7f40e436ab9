//! Facts about the system. A fact that the system does not report is none, and is not checked.

use std::net::TcpListener;
use std::path::Path;

use rbmq_broker::BrokerConfig;
use threads::LimitOf;

/// A limit of the process, soft and hard; none: no limit that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Limit {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
}

/// Whether an address can be listened on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Port {
    Free,
    /// Another process listens there.
    Taken,
    /// The system refuses the address, with the reason.
    Refused(String),
}

/// The facts about the machine that matter to a broker.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) descriptors: Limit,
    pub(super) file_size: Limit,
    pub(super) address_space: Limit,
    pub(super) max_map_count: Option<u64>,
    pub(super) somaxconn: Option<u64>,
    pub(super) rmem_max: Option<u64>,
    pub(super) wmem_max: Option<u64>,
    pub(super) congestion_control: Option<String>,
    pub(super) congestion_controls: Vec<String>,
    /// The mode of transparent huge pages for shared memory.
    pub(super) shmem_huge_pages: Option<String>,
    pub(super) governor: Option<String>,
    pub(super) clock: Option<String>,
    /// Cores that this process may use.
    pub(super) cores: usize,
    pub(super) memory_bytes: Option<u64>,
    /// The smallest memory limit of the control groups of this process.
    pub(super) group_memory_bytes: Option<u64>,
    /// The addresses of the broker, of its HTTP endpoint and of its gateways.
    pub(super) ports: Vec<(&'static str, String, Port)>,
}

impl Facts {
    pub(super) fn read(config: &BrokerConfig) -> Self {
        let net = |name: &str| number(&format!("/proc/sys/net/{name}"));
        let word = |path: &str| text(path).filter(|text| !text.is_empty());
        let addresses = [("broker.listen", &*config.broker.listen), ("http.listen", &*config.http.listen)];
        let gateways = config.gateways().iter().map(|gateway| ("gateway.listen", gateway.address()));
        let asked = addresses.into_iter().chain(gateways).filter(|(_, addr)| !addr.is_empty());
        Self {
            descriptors: descriptors(),
            file_size: limit(LimitOf::FileSize),
            address_space: limit(LimitOf::AddressSpace),
            max_map_count: number("/proc/sys/vm/max_map_count"),
            somaxconn: net("core/somaxconn"),
            rmem_max: net("core/rmem_max"),
            wmem_max: net("core/wmem_max"),
            congestion_control: word("/proc/sys/net/ipv4/tcp_congestion_control"),
            congestion_controls: words("/proc/sys/net/ipv4/tcp_available_congestion_control"),
            shmem_huge_pages: text("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
                .and_then(|t| chosen(&t)),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: text("/proc/meminfo").and_then(|text| meminfo(&text, "MemTotal:")),
            group_memory_bytes: group_memory(),
            ports: asked.map(|(name, addr)| (name, addr.to_owned(), port(addr))).collect(),
        }
    }
}

pub(super) fn descriptors() -> Limit {
    limit(LimitOf::OpenFiles)
}

fn limit(of: LimitOf) -> Limit {
    threads::limit(of).map_or(Limit::default(), |limit| Limit { soft: limit.soft, hard: limit.hard })
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

fn words(path: &str) -> Vec<String> {
    text(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Returns the word in brackets: `always [never] force`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Returns a line of /proc/meminfo in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the smallest memory limit of this process's control group and its ancestors, in either version of control groups.
fn group_memory() -> Option<u64> {
    let groups = text("/proc/self/cgroup")?;
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) =
            (fields.next(), fields.next().unwrap_or(""), fields.next().unwrap_or("/"));
        let (base, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        let above = Path::new(group).ancestors();
        above
            .filter_map(|group| {
                let path = Path::new(base).join(group.strip_prefix("/").ok()?).join(file);
                number(path.to_str()?)
            })
            .collect::<Vec<_>>()
    });
    // The absence of a limit is the word "max", or a number beyond all memory.
    limits.filter(|limit| *limit < 1 << 60).min()
}

fn port(addr: &str) -> Port {
    match TcpListener::bind(addr) {
        Ok(_) => Port::Free,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Port::Taken,
        Err(error) => Port::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_system_are_read() {
        assert_eq!(chosen("always within_size advise [never] deny force").as_deref(), Some("never"));
        assert_eq!(chosen("never"), None);
        let text = "MemTotal:       24576000 kB\nMemFree:  1 kB\n";
        assert_eq!(meminfo(text, "MemTotal:"), Some(24_576_000 * 1024));
        assert_eq!(meminfo(text, "SwapTotal:"), None);
        assert_eq!(meminfo("MemTotal: lots", "MemTotal:"), None);
    }

    #[test]
    fn the_facts_of_this_machine_are_read() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = BrokerConfig::default();
        config.broker.listen = taken.local_addr().unwrap().to_string();
        config.http.listen = "127.0.0.1:0".into();
        config.outside.gateway.push("resp:127.0.0.1:0".parse().unwrap());
        let facts = Facts::read(&config);
        assert!(facts.memory_bytes > Some(1 << 20) && facts.cores > 0, "{facts:?}");
        let ports: Vec<_> = facts.ports.iter().map(|(name, _, port)| (*name, port.clone())).collect();
        assert_eq!(
            ports,
            [("broker.listen", Port::Taken), ("http.listen", Port::Free), ("gateway.listen", Port::Free)]
        );
    }
}
