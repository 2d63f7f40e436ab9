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
    folder::Folder,
    server::{self, Group, Start},
};

use clap::ValueEnum;
use testkit::own_port;

use super::{Peer, connect, mosquitto, nats, rabbitmq, redis};
use crate::{error::BenchError, systems::System};

/// RabbitMQ takes up to ten seconds on a quiet machine.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How often a server that is starting is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The servers that the guard can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Servers {
    /// One Redis server
    Redis,
    /// One Redis server with a thread for each core
    RedisThreads,
    /// A Redis server for each core
    #[value(name = "redis-servers")]
    RedisForEachCore,
    /// One NATS server
    Nats,
    /// One RabbitMQ server
    Rabbitmq,
    /// One Mosquitto server
    Mosquitto,
    /// RBMQ's broker with a gateway for clients of Redis
    Resp,
    /// RBMQ's broker with a gateway for clients of MQTT
    Mqtt,
}

impl Servers {
    /// The servers of a system; none for the broker and the relay, which are this program.
    pub fn of(system: System) -> Option<Servers> {
        match system {
            System::Rbmq | System::Relay => None,
            System::Redis => Some(Servers::Redis),
            System::RedisThreads => Some(Servers::RedisThreads),
            System::RedisServers => Some(Servers::RedisForEachCore),
            System::Nats => Some(Servers::Nats),
            System::Rabbitmq => Some(Servers::Rabbitmq),
            System::Resp => Some(Servers::Resp),
            System::Mqtt => Some(Servers::Mqtt),
            System::Mosquitto => Some(Servers::Mosquitto),
        }
    }

    /// As on the guard's command line; the names of systems are the same.
    pub fn name(self) -> &'static str {
        match self {
            Servers::Redis => "redis",
            Servers::RedisThreads => "redis-threads",
            Servers::RedisForEachCore => "redis-servers",
            Servers::Nats => "nats",
            Servers::Rabbitmq => "rabbitmq",
            Servers::Mosquitto => "mosquitto",
            Servers::Resp => "resp",
            Servers::Mqtt => "mqtt",
        }
    }

    /// Looks for the program.
    pub fn find(self) -> Option<PathBuf> {
        match self {
            Servers::Redis | Servers::RedisThreads | Servers::RedisForEachCore => {
                server::find("redis-server")
            }
            Servers::Nats => server::find("nats-server"),
            // Not the wrapper in PATH, which changes the user and writes to the system's folders.
            Servers::Rabbitmq => {
                Some(PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server")).filter(|path| path.is_file())
            }
            Servers::Mosquitto => server::find("mosquitto"),
            Servers::Resp | Servers::Mqtt => std::env::current_exe().ok(),
        }
    }

    /// The systems whose servers are installed, each once. Reports the others on standard error.
    pub fn installed(systems: impl IntoIterator<Item = System>) -> Vec<System> {
        let mut installed: Vec<System> = Vec::new();
        for system in systems {
            match Servers::of(system) {
                Some(servers) if servers.find().is_none() => {
                    let name = system.name();
                    eprintln!("SKIPPED: {name} is not installed (scripts/bench-peers installs it)");
                }
                _ if installed.contains(&system) => {}
                _ => installed.push(system),
            }
        }
        installed
    }

    /// The version of a server that is ready.
    fn version(self, program: &Path, port: u16) -> Result<String, BenchError> {
        let mut socket = connect(&addr(port), None)?;
        match self {
            Servers::Redis | Servers::RedisThreads | Servers::RedisForEachCore => {
                Peer::Redis.version(&mut socket)
            }
            Servers::Nats => Peer::Nats.version(&mut socket),
            Servers::Rabbitmq => Peer::Rabbitmq.version(&mut socket),
            // The protocol does not tell it.
            Servers::Mosquitto => mosquitto::version(Command::new(program)),
            Servers::Resp | Servers::Mqtt => Ok(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }
}

/// The running servers of a system, and the helper process that they need.
pub struct Guard {
    kind: Servers,
    /// Whether the servers keep their default limits for slow clients.
    limits: bool,
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
    /// Starts a system's servers on free ports, in a folder of its own.
    ///
    /// # Errors
    /// The server is not installed, or did not start; the error has the end of its log.
    pub fn start(kind: Servers, limits: bool, folder: PathBuf) -> Result<Guard, BenchError> {
        let program = kind.find().ok_or(BenchError::NotInstalled { peer: kind.name() })?;
        let folder = Folder::make(folder)?;
        let servers = if kind == Servers::RedisForEachCore { cores() } else { 1 };
        let ports = (0..servers).map(|_| own_port()).collect();
        let mut guard = Guard { kind, limits, program, folder, ports, helper: None, servers: Vec::new() };
        if kind == Servers::Rabbitmq {
            let port = own_port();
            let start = Start {
                program: "epmd".into(),
                args: ["-address", "127.0.0.1", "-port", &port.to_string()].map(str::to_owned).to_vec(),
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
        let (program, folder, limits) = (&self.program, self.folder.path(), self.limits);
        match self.kind {
            Servers::Redis | Servers::RedisForEachCore => Ok(redis::start(program, folder, port, 1, limits)),
            Servers::RedisThreads => Ok(redis::start(program, folder, port, cores(), limits)),
            Servers::Nats => nats::start(program, folder, port, limits),
            Servers::Rabbitmq => {
                let helper = self.helper.as_ref().map_or(0, |(_, port)| *port);
                rabbitmq::start(program, folder, port, helper, limits)
            }
            Servers::Mosquitto => mosquitto::start(program, folder, port, limits),
            Servers::Resp | Servers::Mqtt => {
                let args = ["worker", "gateway", "--protocol", self.kind.name(), "--listen", &addr(port)];
                let args = args.map(str::to_owned).to_vec();
                Ok(Start { program: program.clone(), args, env: Vec::new() })
            }
        }
    }

    /// Waits until every server answers. Returns their version.
    fn wait_ready(&mut self) -> Result<String, BenchError> {
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
pub fn guard(kind: Servers, limits: bool, folder: PathBuf) -> Result<(), BenchError> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The end of standard input says when it is over, and leaves the time to clean up.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut guard = Guard::start(kind, limits, folder)?;
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
