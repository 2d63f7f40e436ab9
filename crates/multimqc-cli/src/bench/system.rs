//! What is measured: a stack of levels, or the standalone middleware.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::process::Process;
use super::world::{SERVER_DEVICE, World};
use crate::control;
use crate::failure::Failure;

pub const PUSH_PORT: u16 = 29_999;
pub const PULL_PORT: u16 = 29_998;
const HEADER_PORT: u16 = 29_997;

/// A system with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// The name in the rows.
    pub name: &'static str,
    /// The levels, or `file`.
    pub levels: &'static str,
    /// Where packets are taken.
    pub mode: &'static str,
}

/// The systems of the paper's comparison that need no rights.
const IN_USER_SPACE: [System; 5] = [
    System { name: "standalone", levels: "file", mode: "socket" },
    System { name: "recvmmsg", levels: "file", mode: "socket" },
    System { name: "multimqc", levels: "user", mode: "socket" },
    System { name: "multimqc", levels: "disk", mode: "socket" },
    System { name: "multimqc", levels: "user,disk", mode: "socket" },
];
const IN_KERNEL: [System; 4] = [
    System { name: "multimqc", levels: "kernel,user,disk", mode: "xdp-native" },
    System { name: "multimqc", levels: "kernel,user,disk", mode: "xdp-generic" },
    System { name: "multimqc", levels: "kernel,user,disk", mode: "tcx" },
    System { name: "multimqc", levels: "kernel,user,disk", mode: "netfilter" },
];

impl System {
    /// Whether the system gets messages one by one if the sender leaves it to the kernel to cut them.
    pub fn sees_cut_messages(&self) -> bool {
        matches!(self.mode, "socket" | "xdp-native")
    }

    /// All systems that can run in this world.
    pub fn all(world: &World) -> Vec<System> {
        let in_kernel = if world.has_kernel { &IN_KERNEL[..] } else { &[] };
        IN_USER_SPACE.iter().chain(in_kernel).copied().collect()
    }
}

/// A system that runs. Its files are removed with it.
pub struct Running {
    process: Process,
    /// The file of the standalone middleware.
    file: Option<PathBuf>,
    control: PathBuf,
    _folder: Folder,
}

/// A folder in memory, as in the paper, which is removed with its handle.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let shared = Path::new("/dev/shm");
        let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("multimqc-bench-{}", std::process::id()));
        // What an earlier system of this bench has left.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path)
            .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Running {
    /// Starts a system in the server's namespace.
    pub fn start(system: System, world: &World, batch_bytes: u64) -> Result<Running, Failure> {
        let folder = Folder::new()?;
        let (file, control) = (folder.0.join("log"), folder.0.join("control"));
        let mut args: Vec<String> = Vec::new();
        if system.levels == "file" {
            args.extend(["bench", "standalone", "--address"].map(str::to_owned));
            args.push(world.address.to_string());
            args.extend([
                "--push-port".into(),
                PUSH_PORT.to_string(),
                "--pull-port".into(),
                PULL_PORT.to_string(),
            ]);
            args.extend(["--file".into(), file.display().to_string()]);
            if system.name == "recvmmsg" {
                args.push("--many".into());
            }
        } else {
            let settings = folder.0.join("multimqc.toml");
            std::fs::write(&settings, configuration(system, world, batch_bytes, &folder.0))
                .map_err(Failure::failed)?;
            args.extend(["serve".into(), "--config".into(), settings.display().to_string()]);
        }
        let mut process = Process::start(&world.server, &args)?;
        process.wait_for_line("listening")?;
        let file = (system.levels == "file").then_some(file);
        Ok(Running { process, file, control, _folder: folder })
    }

    /// Bytes that have reached the last level.
    pub fn stored_bytes(&self) -> Result<u64, Failure> {
        if let Some(file) = &self.file {
            return Ok(std::fs::metadata(file).map_err(Failure::failed)?.len());
        }
        let report = control::ask(&self.control)?;
        let levels = report["topics"][0]["levels"].as_array();
        let last = levels.and_then(|levels| levels.last()).and_then(|level| level["bytes"].as_u64());
        last.ok_or_else(|| Failure::Failed(format!("a report without levels: {report}")))
    }

    /// The report of a stack; null for the standalone middleware.
    pub fn report(&self) -> Result<Value, Failure> {
        if self.file.is_some() { Ok(Value::Null) } else { control::ask(&self.control) }
    }

    pub fn cpu_ns(&self) -> u64 {
        self.process.cpu_ns()
    }
}

fn configuration(system: System, world: &World, batch_bytes: u64, folder: &Path) -> String {
    let levels: Vec<String> = system.levels.split(',').map(|level| format!("{level:?}")).collect();
    let mode = if system.mode == "socket" { "auto" } else { system.mode };
    format!(
        "levels = [{}]\naddress = \"{}\"\nheader_port = {HEADER_PORT}\ncontrol = {:?}\nbatch_bytes = {batch_bytes}\n\
         [kernel]\ninterface = \"{SERVER_DEVICE}\"\nmode = \"{mode}\"\nring_bytes = 67108864\n\
         [disk]\ndirectory = {:?}\nmax_bytes = 268435456\n\
         [[topics]]\nid = 0\npush_port = {PUSH_PORT}\npull_port = {PULL_PORT}\n",
        levels.join(", "),
        world.address,
        folder.join("control"),
        folder.join("disk"),
    )
}
