//! Systems that the bench measures: a stack of levels, the standalone middleware, or a program of the user.

use std::fs;
use std::path::{Path, PathBuf};

use benchkit::folder::Folder;
use commands::Failure;
use serde_json::Value;

use super::control;
use super::options::{Options, Peer};
use super::process::{Process, multimqc};
use super::world::{SERVER_DEVICE, World};

pub const PUSH_PORT: u16 = 29_999;
pub const PULL_PORT: u16 = 29_998;
const HEADER_PORT: u16 = 29_997;

/// The usual bytes of the level `user`.
pub const USER_BYTES: u64 = 64 << 20;

/// Drops what arrives: the rate and the cost of the generator.
const SINK: System<'_> = System { name: "drop", levels: "none", mode: "xdp-native", kind: Kind::Sink };

/// A system with its configuration.
#[derive(Debug, Clone, Copy)]
pub struct System<'a> {
    /// The name in the rows.
    pub name: &'a str,
    /// The levels, or `file`.
    pub levels: &'a str,
    /// Where packets are taken.
    pub mode: &'a str,
    pub kind: Kind<'a>,
}

/// The kind of program that a system is.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'a> {
    /// `multimqc serve`.
    Levels,
    /// `multimqc-bench standalone`.
    Standalone,
    /// `multimqc-bench sink`.
    Sink,
    /// The command of a `--peer`.
    Peer(&'a Peer),
}

const fn standalone(name: &'static str) -> System<'static> {
    System { name, levels: "file", mode: "socket", kind: Kind::Standalone }
}

const fn levels(levels: &'static str, mode: &'static str) -> System<'static> {
    System { name: "multimqc", levels, mode, kind: Kind::Levels }
}

/// The systems of the paper's comparison that need no rights.
const IN_USER_SPACE: [System<'_>; 5] = [
    standalone("standalone"),
    standalone("recvmmsg"),
    levels("user", "socket"),
    levels("disk", "socket"),
    levels("user,disk", "socket"),
];
const IN_KERNEL: [System<'_>; 5] = [
    levels("kernel", "xdp-native"),
    levels("kernel,user,disk", "xdp-native"),
    levels("kernel,user,disk", "xdp-generic"),
    levels("kernel,user,disk", "tcx"),
    levels("kernel,user,disk", "netfilter"),
];

impl<'a> System<'a> {
    /// Its description for messages and for `--only`.
    pub fn describe(&self) -> String {
        format!("{} {} {}", self.name, self.levels, self.mode)
    }

    /// Whether the system gets messages one by one if the sender leaves it to the kernel to cut them.
    pub fn sees_cut_messages(&self) -> bool {
        matches!(self.mode, "socket" | "xdp-native")
    }

    pub fn uses_kafka(&self) -> bool {
        self.levels.ends_with("kafka") || matches!(self.kind, Kind::Peer(peer) if peer.uses_broker())
    }

    /// All systems that can run in this world.
    pub fn all(world: &World, options: &'a Options) -> Vec<System<'a>> {
        let mut systems = IN_USER_SPACE.to_vec();
        if world.has_kernel {
            systems.push(SINK);
            systems.extend(IN_KERNEL);
        }
        let has_broker = !world.broker_address().is_empty();
        if has_broker {
            systems.push(levels("user,kafka", "socket"));
        }
        if has_broker && world.has_kernel {
            systems.push(levels("kernel,user,kafka", "xdp-native"));
        }
        let of_peer = |peer: &'a Peer| System {
            name: &peer.name,
            levels: "peer",
            mode: &peer.mode,
            kind: Kind::Peer(peer),
        };
        // A program in the driver needs a device of the bench's own.
        let runs =
            |peer: &&Peer| (world.has_kernel || peer.mode == "socket") && (has_broker || !peer.uses_broker());
        systems.extend(options.peers.iter().filter(runs).map(of_peer));
        systems.retain(|system| options.selects(&system.describe()));
        systems
    }
}

/// A system that runs. Its files are removed with it.
pub struct Running {
    process: Process,
    stored: Stored,
    _folder: Folder,
}

/// Where the number of stored messages is found.
enum Stored {
    /// The file of the standalone middleware.
    File(PathBuf),
    /// The control socket of a server.
    Control(PathBuf),
    /// A file with the number, as text.
    Count(PathBuf),
    /// The packets that a device has got, and how many it had at the start.
    Device { process: u32, before: u64 },
}

impl Running {
    /// Starts a system in the server's namespace.
    pub fn start(system: System<'_>, world: &World, setup: Setup) -> Result<Running, Failure> {
        // As in the paper.
        let folder = Folder::in_memory("multimqc-bench")?;
        let own = std::env::current_exe().map_err(Failure::failed)?;
        let (program, args, mut stored) = match system.kind {
            Kind::Levels => {
                let settings = folder.path().join("multimqc.toml");
                let text = configuration(system, world, setup, folder.path());
                fs::write(&settings, text).map_err(Failure::failed)?;
                let args = vec!["serve".into(), "--config".into(), settings.display().to_string()];
                (multimqc()?, args, Stored::Control(folder.path().join("control")))
            }
            Kind::Standalone => {
                let file = folder.path().join("log");
                (own, standalone_args(system, world, &file), Stored::File(file))
            }
            Kind::Sink => {
                let args = ["sink", "--interface", SERVER_DEVICE].map(str::to_owned).to_vec();
                (own, args, Stored::Device { process: 0, before: 0 })
            }
            Kind::Peer(peer) => {
                let mut words = peer.words(&placeholders(world, setup, folder.path())).into_iter();
                let program = words.next().unwrap_or_default().into();
                (program, words.collect(), Stored::Count(folder.path().join("count")))
            }
        };
        let (process, _) = Process::start_other(&world.server, &program, &args, "listening")?;
        if let Stored::Device { .. } = stored {
            let [before, _] = received_by_device(process.id(), SERVER_DEVICE)?;
            stored = Stored::Device { process: process.id(), before };
        }
        Ok(Running { process, stored, _folder: folder })
    }

    /// Messages that have reached the last level.
    pub fn stored_messages(&self, payload: u16) -> Result<u64, Failure> {
        match &self.stored {
            Stored::Count(file) => {
                let text = fs::read_to_string(file).unwrap_or_default();
                Ok(text.trim().parse().unwrap_or(0))
            }
            Stored::Device { process, before } => {
                let [packets, _] = received_by_device(*process, SERVER_DEVICE)?;
                Ok(packets.saturating_sub(*before))
            }
            Stored::File(_) | Stored::Control(_) => Ok(self.stored_bytes()? / u64::from(payload)),
        }
    }

    /// Bytes that have reached the last level of a stack, or the file of the standalone middleware.
    pub fn stored_bytes(&self) -> Result<u64, Failure> {
        if let Stored::File(file) = &self.stored {
            return Ok(fs::metadata(file).map_err(Failure::failed)?.len());
        }
        let report = self.report()?;
        let levels = report["topics"][0]["levels"].as_array();
        let last = levels.and_then(|levels| levels.last()).and_then(|level| level["bytes"].as_u64());
        last.ok_or_else(|| Failure::Failed(format!("a report without levels: {report}")))
    }

    /// The report of a stack; null for other systems.
    pub fn report(&self) -> Result<Value, Failure> {
        match &self.stored {
            Stored::Control(control) => control::ask(control),
            _ => Ok(Value::Null),
        }
    }

    pub fn cpu_ns(&self) -> u64 {
        self.process.cpu_ns()
    }
}

/// Values that differ between the runs of a system.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub batch_bytes: u64,
    /// The bytes of the level `user`.
    pub user_bytes: u64,
    /// Another number each time.
    pub run: u32,
}

/// Packets that a device has got, and their bytes, as the process with this id sees it.
pub fn received_by_device(process: u32, device: &str) -> Result<[u64; 2], Failure> {
    let text = fs::read_to_string(format!("/proc/{process}/net/dev")).map_err(Failure::failed)?;
    let of_device = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    let mut numbers = of_device.unwrap_or_default().split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(bytes)), Some(Ok(packets))) => Ok([packets, bytes]),
        _ => Err(Failure::Failed(format!("no counters of {device}"))),
    }
}

fn standalone_args(system: System<'_>, world: &World, file: &Path) -> Vec<String> {
    let (push, pull) = (PUSH_PORT.to_string(), PULL_PORT.to_string());
    let address = world.address.to_string();
    let args = ["standalone", "--address", &address, "--push-port", &push, "--pull-port", &pull];
    let mut args: Vec<String> = args.map(str::to_owned).to_vec();
    args.extend(["--file".into(), file.display().to_string()]);
    if system.name == "recvmmsg" {
        args.push("--many".into());
    }
    args
}

/// Placeholders in the command of a peer, and their values.
fn placeholders(world: &World, setup: Setup, folder: &Path) -> [(&'static str, String); 8] {
    [
        ("{address}", world.address.to_string()),
        ("{push_port}", PUSH_PORT.to_string()),
        ("{pull_port}", PULL_PORT.to_string()),
        ("{interface}", SERVER_DEVICE.to_owned()),
        ("{folder}", folder.display().to_string()),
        ("{count}", folder.join("count").display().to_string()),
        ("{broker}", world.broker_address().to_owned()),
        ("{run}", setup.run.to_string()),
    ]
}

fn configuration(system: System<'_>, world: &World, setup: Setup, folder: &Path) -> String {
    let levels: Vec<String> = system.levels.split(',').map(|level| format!("{level:?}")).collect();
    let mode = if system.mode == "socket" { "auto" } else { system.mode };
    let Setup { batch_bytes, user_bytes, run } = setup;
    // A small ring keeps a byte only as long as a slow sender allows.
    let expected = if user_bytes < 1 << 24 { 1_000_000 } else { 100_000_000 };
    format!(
        "levels = [{}]\naddress = \"{}\"\nheader_port = {HEADER_PORT}\ncontrol = {:?}\nbatch_bytes = {batch_bytes}\n\
         expected_bytes_per_second = {expected}\n\
         [kernel]\ninterface = \"{SERVER_DEVICE}\"\nmode = \"{mode}\"\nring_bytes = 67108864\n\
         [user]\ncapacity_bytes = {user_bytes}\n\
         [disk]\ndirectory = {:?}\nmax_bytes = 268435456\n\
         [kafka]\nbrokers = {:?}\nprefix = \"levels{run}\"\nretention_bytes = 268435456\n\
         [[topics]]\nid = 0\npush_port = {PUSH_PORT}\npull_port = {PULL_PORT}\n",
        levels.join(", "),
        world.address,
        folder.join("control"),
        folder.join("disk"),
        world.broker_address(),
    )
}
