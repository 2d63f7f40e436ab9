//! What the machine says about itself: CPU time, memory, congestion control, and a network namespace.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// Set in the environment of the program that was started again in its own network namespace.
const IN_NAMESPACE: &str = "RBMQ_BENCH_NAMESPACE";

const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// CPU time of one process and all its threads, in seconds; 0 once it is gone.
pub fn process_cpu_s(pid: u32) -> f64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    // The second field is the command in parentheses and may hold anything; fields 14 and 15 count from there.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / ticks_per_s()
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

/// Sees to it that everybody runs under `wanted`. As root the program replaces itself once by itself in a new
/// network namespace, which has its own setting; otherwise sockets have to be told one by one.
///
/// # Errors
/// The kernel does not have that congestion control, or the program could not be started again.
pub fn settle_congestion(wanted: &str) -> io::Result<Congestion> {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        run_quietly(Command::new("ip").args(["link", "set", "lo", "up"]))?;
        fs::write(CONGESTION_FILE, wanted)?;
        return Ok(Congestion::Namespace(wanted.to_owned()));
    }
    if fs::read_to_string(CONGESTION_FILE).is_ok_and(|now| now.trim() == wanted) {
        return Ok(Congestion::Namespace(wanted.to_owned()));
    }
    let script = format!("ip link set lo up && echo {wanted} > {CONGESTION_FILE}");
    let namespace_works = rustix::process::geteuid().is_root()
        && run_quietly(Command::new("unshare").args(["--net", "sh", "-c", &script])).is_ok();
    if !namespace_works {
        return Ok(Congestion::Sockets(wanted.to_owned()));
    }
    let mut again = Command::new("unshare");
    again.arg("--net").arg("--").arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    // Returns only if it failed.
    Err(again.env(IN_NAMESPACE, "1").exec())
}

fn run_quietly(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?} failed: {status}"))) }
}

/// One line about the machine for the head of a table.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {model}, Linux {}", kernel.trim())
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
