//! Programs of a measurement, each on its core, and the processor time that they take.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use benchkit::sys;

use crate::failure::Result;

/// The core of the measured program, and that of everything else.
pub const SERVER: &str = "0";
pub const LOAD: &str = "1";

/// How long a program may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running program, which ends with this value.
pub struct Program {
    child: Child,
    name: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command on a core. Its threads stay there.
pub fn on(core: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

impl Program {
    /// Starts a command, and waits for a line with `before`; returns what follows it, up to `;` or a space.
    pub fn ready(mut command: Command, before: &str) -> Result<(Self, String)> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("a program without output")?;
        let own = Self { child, name: format!("{command:?}") };
        let mut lines = BufReader::new(output).lines();
        let found = lines.by_ref().map_while(std::result::Result::ok).find_map(|line| {
            let rest = line.split_once(before)?.1.to_owned();
            Some(rest.split([';', ' ', '/']).next().unwrap_or("").to_owned())
        });
        let found = found.ok_or_else(|| format!("{} does not start", own.name))?;
        // The rest of its output is read, so that it can go on.
        thread::spawn(move || lines.for_each(drop));
        Ok((own, found))
    }

    /// Starts a command, and waits until it listens at `address`.
    pub fn listening(mut command: Command, address: &str) -> Result<Self> {
        let child = command.stdout(Stdio::null()).spawn()?;
        let own = Self { child, name: format!("{command:?}") };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} does not listen at {address}", own.name).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(own)
    }

    /// Its processor time so far in seconds, that of its children included.
    pub fn cpu_s(&self) -> f64 {
        let own = self.child.id();
        children(own).into_iter().chain([own]).map(sys::process_cpu_s).sum()
    }

    /// Its memory in MiB: what it shares with others by its share, and what it has mapped twice once.
    pub fn memory_mib(&self) -> Result<f64> {
        // `taskset` becomes the program, so that it is the child itself.
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    /// Lets it use only this share of a core, so that load on the other core is not what ends first.
    pub fn limit(&self, share: f64) -> Result<Limit> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/cpu/live-bench-{}", self.child.id()));
        fs::create_dir_all(&folder)?;
        let limit = Limit(folder);
        fs::write(limit.0.join("cpu.cfs_period_us"), "20000")?;
        fs::write(limit.0.join("cpu.cfs_quota_us"), format!("{}", (share * 20_000.0) as u64))?;
        fs::write(limit.0.join("cgroup.procs"), self.child.id().to_string())?;
        Ok(limit)
    }
}

/// A limit of processor time, removed with this value after its program has ended.
pub struct Limit(PathBuf);

impl Drop for Limit {
    fn drop(&mut self) {
        // An empty group that stays does no harm.
        let _ = fs::remove_dir(&self.0);
    }
}

fn children(of: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
