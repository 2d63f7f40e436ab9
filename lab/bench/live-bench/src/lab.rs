//! Programs of a measurement, each on its core, and the processor time that they take.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub use benchkit::fleet::Process as Program;
use benchkit::server;

use crate::failure::Result;

/// The core of the measured program, and that of everything else.
pub const SERVER: &str = "0";
pub const LOAD: &str = "1";

/// How long a program may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command on a core. Its threads stay there.
pub fn on(core: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts a command, and waits for a line with `before`; returns what follows it, up to `;` or a space.
pub fn ready(command: Command, before: &str) -> Result<(Program, String)> {
    let program = Program::quiet(command)?;
    let line = program.line_with(before, PATIENCE)?;
    let rest = line.split_once(before).map_or("", |(_, rest)| rest);
    Ok((program, rest.split([';', ' ', '/']).next().unwrap_or("").to_owned()))
}

/// Starts a command, and waits until it listens at `address`.
pub fn listening(command: Command, address: &str) -> Result<Program> {
    let mut program = Program::quiet(command)?;
    server::wait_listening(address, PATIENCE, || program.has_ended())?;
    Ok(program)
}

/// The memory of a program in MiB: what it shares with others by its share, and what it has mapped twice once.
pub fn memory_mib(program: &Program) -> Result<f64> {
    // `taskset` becomes the program, so that it is the child itself.
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", program.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

/// Lets a program use only this share of a core, so that load on the other core is not what ends first.
pub fn limit(program: &Program, share: f64) -> Result<Limit> {
    let id = program.id();
    let folder = PathBuf::from(format!("/sys/fs/cgroup/cpu/live-bench-{id}"));
    fs::create_dir_all(&folder)?;
    let limit = Limit(folder);
    fs::write(limit.0.join("cpu.cfs_period_us"), "20000")?;
    fs::write(limit.0.join("cpu.cfs_quota_us"), format!("{}", (share * 20_000.0) as u64))?;
    fs::write(limit.0.join("cgroup.procs"), id.to_string())?;
    Ok(limit)
}

/// A limit of processor time, removed with this value after its program has ended.
pub struct Limit(PathBuf);

impl Drop for Limit {
    fn drop(&mut self) {
        // An empty group that stays does no harm.
        let _ = fs::remove_dir(&self.0);
    }
}
