//! Processor time, memory, processor and kernel.

use std::{
    fs, io,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

/// CPU time of a process and its threads, in seconds, to the nanosecond unless threads have ended; 0 once the
/// process has ended.
pub fn process_cpu_s(pid: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let of_thread = |thread: fs::DirEntry| {
        let schedule = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        schedule.split_whitespace().next()?.parse::<u64>().ok()
    };
    let nanos: u64 = threads.flatten().filter_map(of_thread).sum();
    (nanos as f64 / 1e9).max(process_ticks_s(pid))
}

/// CPU time of a process and of all that it has started, in seconds.
pub fn tree_cpu_s(pid: u32) -> f64 {
    process_cpu_s(pid) + children(pid).into_iter().map(tree_cpu_s).sum::<f64>()
}

/// The processes that a process has started or adopted, and has not waited for.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let pids = |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>();
    lists.flat_map(pids).collect()
}

/// CPU time of a process in ticks of 10 ms, with the time of threads that have ended, rounded down.
fn process_ticks_s(pid: u32) -> f64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    // The second field is the command in parentheses, which may contain anything. Fields 14 and 15 count from
    // there.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / ticks_per_s()
}

/// CPU time of all processes of a process group, in seconds.
pub fn group_cpu_s(group: u32) -> f64 {
    members(group).into_iter().map(process_cpu_s).sum()
}

/// Resident memory of all processes of a group, in bytes. Shared memory counts for each.
pub fn group_rss_bytes(group: u32) -> u64 {
    members(group).into_iter().map(process_rss_bytes).sum()
}

/// Takes less than a millisecond with a few hundred processes.
fn members(group: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the command: state, parent, group.
        let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2));
        field.and_then(|field| field.parse().ok()) == Some(group)
    })
    .collect()
}

/// Resident memory of a process in bytes; 0 once it has ended.
pub fn process_rss_bytes(pid: u32) -> u64 {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|value| value.split_whitespace().next()).and_then(|value| value.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// CPU time of the whole machine without idle time, over all cores, in seconds. Time that a hypervisor took
/// counts, since it was not available.
pub fn machine_busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let Some(line) = stat.lines().next() else { return 0.0 };
    // user nice system idle iowait irq softirq steal; user includes the guest fields after them.
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let busy: u64 =
        fields.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks).sum();
    busy as f64 / ticks_per_s()
}

fn ticks_per_s() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// A number that this process has not returned before.
pub fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The model of the processor and its number of cores.
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

/// A command that starts this program as a worker.
///
/// # Errors
/// The path of this program is unknown.
pub fn worker() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker");
    Ok(command)
}

/// The command line of this program, without the folder of the program.
pub fn command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    words.join(" ")
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
    fn an_ended_process_counts_nothing() {
        assert_eq!(process_cpu_s(u32::MAX), 0.0);
        assert_eq!(process_rss_bytes(u32::MAX), 0);
    }
}
