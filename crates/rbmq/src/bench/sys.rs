//! What the machine says about itself: CPU time, memory, congestion control, and a network namespace.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::{fd::AsFd, unix::fs::FileExt},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const ALLOWED_FILE: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// CPU time of one process and all its threads, in seconds; 0 once it is gone.
pub fn process_cpu_s(pid: u32) -> f64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    // The second field is the command in parentheses and may hold anything; fields 14 and 15 count from there.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / ticks_per_s()
}

/// CPU time of all processes of a process group, in seconds.
pub fn group_cpu_s(group: u32) -> f64 {
    members(group).into_iter().map(process_cpu_s).sum()
}

/// Resident memory of all processes of a process group, in bytes; what they share counts for each.
pub fn group_rss_bytes(group: u32) -> u64 {
    members(group).into_iter().map(process_rss_bytes).sum()
}

/// Fewer than a millisecond for a machine with a few hundred processes.
fn members(group: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the command: state, parent, group.
        let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2));
        field.and_then(|field| field.parse().ok()) == Some(group)
    })
    .collect()
}

/// Resident memory of a process in bytes; 0 once it is gone.
pub fn process_rss_bytes(pid: u32) -> u64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|value| value.split_whitespace().next()).and_then(|value| value.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// CPU time that the whole machine spent on anything but idling, all cores together, in seconds. Time that a
/// hypervisor took away counts: it was not ours.
pub fn machine_busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let Some(line) = stat.lines().next() else { return 0.0 };
    // user nice system idle iowait irq softirq steal; the guest fields after them are in user already.
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let busy: u64 =
        fields.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks).sum();
    busy as f64 / ticks_per_s()
}

fn ticks_per_s() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// How TCP's congestion control was made the same for everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Congestion {
    /// The network namespace's setting: sockets need not be told.
    Namespace(String),
    /// Every socket is told.
    Sockets(String),
}

impl Congestion {
    /// The congestion control's name.
    pub fn name(&self) -> &str {
        let (Congestion::Namespace(name) | Congestion::Sockets(name)) = self;
        name
    }

    /// What a worker has to set on its sockets, if anything.
    pub fn for_sockets(&self) -> Option<&str> {
        match self {
            Congestion::Namespace(_) => None,
            Congestion::Sockets(name) => Some(name),
        }
    }
}

/// Sees to it that everybody runs under `wanted`. As root this thread, and with it everything that it starts, moves
/// into a new network namespace, which has its own setting; otherwise sockets have to be told one by one.
pub fn settle_congestion(wanted: &str) -> Congestion {
    let in_force = || fs::read_to_string(CONGESTION_FILE).is_ok_and(|now| now.trim() == wanted);
    if !in_force() && rustix::process::geteuid().is_root() {
        match in_namespace(wanted) {
            Ok(()) => {}
            Err(error) => {
                eprintln!("no network namespace with {wanted} ({error}): sockets are told one by one")
            }
        }
    }
    if in_force() { Congestion::Namespace(wanted.to_owned()) } else { Congestion::Sockets(wanted.to_owned()) }
}

/// A process that was started in a new namespace holds it until this thread has moved there.
fn in_namespace(wanted: &str) -> io::Result<()> {
    let mut holder = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && echo up && read -r _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let moved = move_to(&mut holder, wanted);
    // Its input ends, and so does it.
    drop(holder.stdin.take());
    holder.wait()?;
    moved
}

fn move_to(holder: &mut Child, wanted: &str) -> io::Result<()> {
    let output = holder.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() != "up" {
        return Err(io::Error::other("unshare or ip failed"));
    }
    // Namespaces may choose only among what the first one allows to everybody. What was allowed is put back at once:
    // only the choice needs it.
    let allowed = fs::read_to_string(ALLOWED_FILE)?;
    let listed = allowed.split_whitespace().any(|name| name == wanted);
    let list = fs::OpenOptions::new().write(true).open(ALLOWED_FILE)?;
    if !listed {
        list.write_all_at(format!("{} {wanted}", allowed.trim()).as_bytes(), 0)?;
    }
    let namespace = fs::File::open(format!("/proc/{}/ns/net", holder.id()))?;
    let chosen = move_into_thread_name_spaces(namespace.as_fd(), ThreadNameSpaceType::NETWORK)
        .map_err(io::Error::from)
        .and_then(|()| fs::write(CONGESTION_FILE, wanted));
    if !listed {
        list.write_all_at(allowed.trim().as_bytes(), 0)?;
    }
    chosen
}

/// What runs in no namespace and on sockets that nobody told anything.
pub fn default_congestion() -> String {
    fs::read_to_string(CONGESTION_FILE).map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// A number that this process has not used before.
pub fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The processor and how many of its cores there are.
pub fn cpu() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {model}")
}

/// The kernel's version.
pub fn kernel() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", kernel.trim())
}

/// What this program was called with.
pub fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("rbmq {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_uses_cpu_and_memory() {
        let pid = std::process::id();
        let busy = machine_busy_s();
        while process_cpu_s(pid) == 0.0 {
            std::hint::black_box(vec![1_u8; 1 << 20]);
        }
        assert!(process_rss_bytes(pid) > 100_000);
        assert!(machine_busy_s() >= busy);
    }

    #[test]
    fn a_process_that_is_gone_counts_nothing() {
        assert_eq!(process_cpu_s(u32::MAX), 0.0);
        assert_eq!(process_rss_bytes(u32::MAX), 0);
    }
}
