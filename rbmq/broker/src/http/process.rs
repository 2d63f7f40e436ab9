//! Metrics of the process, with the names of Prometheus' own client libraries.

/// The values of one scrape. A value that the system doesn't provide is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) max_descriptors: Option<u64>,
    pub(super) started_seconds: Option<f64>,
}

impl Process {
    pub(super) fn read() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let descriptors = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as u64;
        Self {
            open_descriptors: descriptors,
            max_descriptors: threads::limit(threads::LimitOf::OpenFiles).ok().and_then(|limit| limit.soft),
            ..Self::parse(&stat, &boot, ticks, page)
        }
    }

    /// Parses the texts of /proc/self/stat and /proc/stat.
    fn parse(stat: &str, boot: &str, ticks: f64, page: u64) -> Self {
        // The name is in parentheses and may contain parentheses.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The numbers are those of proc(5), where the state after the name is field 3.
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
        let booted = boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok());
        let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) as f64 / ticks);
        Self {
            cpu_seconds: cpu,
            resident_bytes: field(24).map(|pages| pages * page),
            started_seconds: booted.zip(field(22)).map(|(at, after)| at as f64 + after as f64 / ticks),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_system_are_parsed() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 5 0 1000 9 25 18446744073709551615";
        let process = Process::parse(stat, "cpu 1\nbtime 5000\n", 100.0, 4096);
        assert_eq!(process.cpu_seconds, Some(3.0));
        assert_eq!(process.resident_bytes, Some(25 * 4096));
        assert_eq!(process.started_seconds, Some(5010.0));
        assert_eq!(Process::parse("", "", 100.0, 4096).cpu_seconds, None);
        let here = Process::read();
        assert!(here.resident_bytes > Some(100_000) && here.open_descriptors > Some(2), "{here:?}");
    }
}
