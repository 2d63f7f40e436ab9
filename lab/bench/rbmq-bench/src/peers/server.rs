//! Servers of other systems, started for one measurement and always ended after it.
//!
//! ```text
//!   harness ──pipe──▶ guard (`rbmq-bench worker server`) ──▶ the server, in a process group of its own
//! ```
//!
//! The guard ends when its standard input ends, and so with the harness, also after Ctrl-C, an error or `kill -9`. The guard
//! then kills the server's process group by its number and removes the folder. If the guard itself is killed, the kernel kills
//! the server (`benchkit::server`).

use std::{
    fs,
    io::{self, BufRead},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use benchkit::{
    fleet::words,
    folder::Folder,
    named::Named,
    server::{self, Group, Start},
    sys,
};
use testkit::own_port;

use super::{connect, mosquitto, nats, rabbitmq, redis};
use crate::{
    error::BenchError,
    systems::{Setup, System},
};

/// RabbitMQ takes up to ten seconds on a quiet machine.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How often a server that is starting is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_millis(50);

impl System {
    /// Looks for the program of the system's servers.
    pub fn find(self) -> Option<PathBuf> {
        match self {
            System::Redis | System::RedisThreads | System::RedisServers => server::find("redis-server"),
            System::Nats => server::find("nats-server"),
            // Not the wrapper in PATH, which changes the user and writes to the system's folders.
            System::Rabbitmq => {
                Some(PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server")).filter(|path| path.is_file())
            }
            System::Mosquitto => server::find("mosquitto"),
            System::Rbmq | System::Relay | System::Resp | System::Mqtt => std::env::current_exe().ok(),
        }
    }

    /// The systems whose servers are installed, each once. Reports the others on standard error.
    pub fn installed(systems: impl IntoIterator<Item = System>) -> Vec<System> {
        let mut installed: Vec<System> = Vec::new();
        for system in systems {
            match system.find() {
                None => {
                    let name = system.name();
                    eprintln!("SKIPPED: {name} is not installed (scripts/bench-peers installs it)");
                }
                _ if installed.contains(&system) => {}
                _ => installed.push(system),
            }
        }
        installed
    }

    /// The version of a server, once it can be connected to.
    fn version(self, program: &Path, port: u16) -> Result<String, BenchError> {
        let mut socket = connect(&addr(port), None)?;
        match self {
            System::Redis | System::RedisThreads | System::RedisServers | System::Nats => {
                self.said_version(program, "--version")
            }
            System::Mosquitto => self.said_version(program, "-h"),
            System::Rabbitmq => rabbitmq::version(&mut socket),
            System::Rbmq | System::Relay | System::Resp | System::Mqtt => {
                Ok(env!("CARGO_PKG_VERSION").to_owned())
            }
        }
    }

    /// The version in the first line that the program says: `Redis server v=7.0.15 …`, `nats-server: v2.10.7`, `mosquitto version 2.0.11`.
    fn said_version(self, program: &Path, option: &str) -> Result<String, BenchError> {
        let said = Command::new(program).arg(option).output()?.stdout;
        let said = String::from_utf8_lossy(&said);
        let first = said.lines().next().unwrap_or_default();
        let mut words = first.split(' ').map(|word| word.trim_start_matches(['v', '=']));
        let version = words.find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        let nothing = || BenchError::PeerSaid { peer: self.name(), said: first.to_owned() };
        version.map(str::to_owned).ok_or_else(nothing)
    }
}

/// The running servers of a system, and the helper process that they need.
pub struct Guard {
    kind: System,
    setup: Setup,
    program: PathBuf,
    /// The port of each server.
    ports: Vec<u16>,
    // Dropped in this order.
    servers: Vec<Group>,
    /// Erlang's name service, for RabbitMQ: its port.
    helper: Option<(Group, u16)>,
    folder: Folder,
}

impl Guard {
    /// Starts a system's servers with this program on free ports, in a folder of its own.
    ///
    /// # Errors
    /// The server is not installed, or did not start; the error has the end of its log.
    pub fn start(
        kind: System,
        program: Option<PathBuf>,
        setup: Setup,
        folder: PathBuf,
    ) -> Result<Guard, BenchError> {
        let program = program.ok_or_else(|| BenchError::NotInstalled { peer: kind.name() })?;
        let folder = Folder::make(folder)?;
        let servers = if kind == System::RedisServers { cores() } else { 1 };
        let ports = (0..servers).map(|_| own_port()).collect();
        let mut guard = Guard { kind, setup, program, folder, ports, helper: None, servers: Vec::new() };
        if kind == System::Rabbitmq {
            let port = own_port();
            let start = Start {
                program: "epmd".into(),
                args: words(&["-address", "127.0.0.1", "-port", &port.to_string()]),
                env: Vec::new(),
            };
            guard.helper = Some((Group::start(&start, guard.folder.path(), "helper.log")?, port));
        }
        guard.run()?;
        Ok(guard)
    }

    /// Starts the servers on their ports, after it killed running ones.
    fn run(&mut self) -> Result<(), BenchError> {
        self.servers.clear();
        for &port in &self.ports {
            let start = self.start_of(port)?;
            self.servers.push(Group::start(&start, self.folder.path(), &log_of(port))?);
        }
        Ok(())
    }

    fn start_of(&self, port: u16) -> io::Result<Start> {
        let (program, folder, setup) = (&self.program, self.folder.path(), &self.setup);
        match self.kind {
            System::Redis | System::RedisServers => Ok(redis::start(program, folder, port, 1, setup)),
            System::RedisThreads => Ok(redis::start(program, folder, port, cores(), setup)),
            System::Nats => nats::start(program, folder, port, setup),
            System::Rabbitmq => {
                let helper = self.helper.as_ref().map_or(0, |(_, port)| *port);
                rabbitmq::start(program, folder, port, helper, setup.limits)
            }
            System::Mosquitto => mosquitto::start(program, folder, port, setup.limits),
            kind @ (System::Rbmq | System::Relay | System::Resp | System::Mqtt) => {
                let mut args = match kind {
                    System::Rbmq => words(&["serve", "--quiet"]),
                    _ => words(&["worker", "gateway", "--protocol", &kind.name()]),
                };
                args.extend(words(&["--listen", &addr(port)]));
                if setup.keep {
                    args.extend(words(&["--keep", &folder.join("kept").to_string_lossy()]));
                }
                Ok(Start { program: program.clone(), args, env: Vec::new() })
            }
        }
    }

    /// Waits until every server can be connected to. Returns their version.
    ///
    /// # Errors
    /// A server ended, or is not ready in time; the error has the end of its log.
    pub fn wait_ready(&mut self) -> Result<String, BenchError> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut version = String::new();
        for (server, &port) in self.servers.iter_mut().zip(&self.ports) {
            loop {
                match self.kind.version(&self.program, port) {
                    Ok(answer) => {
                        version = answer;
                        break;
                    }
                    Err(_) if server.has_ended()? || Instant::now() > deadline => {
                        let log =
                            fs::read_to_string(self.folder.path().join(log_of(port))).unwrap_or_default();
                        let tail: Vec<&str> = log.lines().rev().take(5).collect();
                        let log = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
                        return Err(BenchError::ServerFailed { peer: self.kind.name(), log });
                    }
                    Err(_) => std::thread::sleep(ASK_EVERY),
                }
            }
        }
        Ok(version)
    }

    /// Where the first server listens.
    pub fn addr(&self) -> String {
        addr(self.ports[0])
    }

    /// Processor time of the servers so far.
    pub fn cpu_s(&self) -> f64 {
        self.servers.iter().map(|server| sys::group_cpu_s(server.id())).sum()
    }

    /// `ready ADDRESS,… GROUP,… VERSION`
    fn announce(&mut self) -> Result<(), BenchError> {
        let version = self.wait_ready()?;
        let addrs: Vec<String> = self.ports.iter().map(|port| addr(*port)).collect();
        let groups: Vec<String> = self.servers.iter().map(|server| server.id().to_string()).collect();
        println!("ready {} {} {version}", addrs.join(","), groups.join(","));
        Ok(())
    }
}

fn addr(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn log_of(port: u16) -> String {
    format!("server-{port}.log")
}

/// Paper 2 has ten servers on a machine of ten cores.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a system's servers until standard input ends; `restart` kills them and starts them again at the same addresses.
///
/// # Errors
/// As `Guard::start`.
pub fn guard(kind: System, setup: Setup, folder: PathBuf) -> Result<(), BenchError> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The end of standard input says when it is over, and leaves the time to clean up.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut guard = Guard::start(kind, kind.find(), setup, folder)?;
    guard.announce()?;
    for line in io::stdin().lock().lines() {
        match line?.trim() {
            "kill" => guard.servers.clear(),
            "restart" => {
                guard.run()?;
                guard.announce()?;
            }
            _ => break,
        }
    }
    Ok(())
}
