//! Somebody else's servers, started for one measurement and never left behind.
//!
//! ```text
//!   harness ──pipe──▶ guard (`rbmq-bench worker server`) ──▶ the server, in a process group of its own
//! ```
//!
//! The guard ends when its standard input does, which is when the harness ends, however that happens: Ctrl-C, an
//! error, `kill -9`. It then kills the server's process group by its number and removes the folder. If the guard
//! itself is killed, the kernel kills the server (`benchkit::server`).

use std::{
    fs,
    io::{self, BufRead},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use benchkit::server::{self, Group, Start, free_port};

use super::{Peer, connect, nats, rabbitmq, redis};
use crate::{BenchError, System};

/// RabbitMQ takes up to ten seconds on a quiet machine.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How often a server that is starting is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Looks for a peer's server.
pub fn find(peer: Peer) -> Option<PathBuf> {
    match peer {
        Peer::Redis => server::find("redis-server"),
        Peer::Nats => server::find("nats-server"),
        // Not the wrapper in PATH: that one changes the user and writes to the system's folders.
        Peer::Rabbitmq => {
            Some(PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server")).filter(|path| path.is_file())
        }
    }
}

/// The servers of a system that run, and what they need besides.
pub struct Guard {
    system: System,
    peer: Peer,
    program: PathBuf,
    folder: PathBuf,
    /// One for each server.
    ports: Vec<u16>,
    /// Erlang's name service, for RabbitMQ: its port.
    helper: Option<(Group, u16)>,
    servers: Vec<Group>,
}

impl Guard {
    /// Starts a system's servers on free ports, in a folder of its own.
    ///
    /// # Errors
    /// It is not installed, or did not start; the end of its log is in the error.
    pub fn start(system: System, peer: Peer, folder: PathBuf) -> Result<Guard, BenchError> {
        let program = find(peer).ok_or(BenchError::NotInstalled { peer: peer.name() })?;
        fs::create_dir(&folder)?;
        let servers = if system == System::RedisServers { cores() } else { 1 };
        let ports = (0..servers).map(|_| free_port()).collect::<Result<_, _>>()?;
        let mut guard = Guard { system, peer, program, folder, ports, helper: None, servers: Vec::new() };
        if peer == Peer::Rabbitmq {
            let port = free_port()?;
            let start = Start {
                program: "epmd".into(),
                args: ["-address", "127.0.0.1", "-port", &port.to_string()].map(str::to_owned).to_vec(),
                env: Vec::new(),
            };
            guard.helper = Some((Group::start(&start, &guard.folder, "helper.log")?, port));
        }
        guard.run()?;
        Ok(guard)
    }

    /// Starts the servers on their ports; those that run are killed first.
    fn run(&mut self) -> Result<(), BenchError> {
        self.servers.clear();
        for &port in &self.ports {
            let start = match (self.peer, &self.helper) {
                (Peer::Redis, _) => {
                    let threads = if self.system == System::RedisThreads { cores() } else { 1 };
                    redis::start(&self.program, &self.folder, port, threads)
                }
                (Peer::Nats, _) => nats::start(&self.program, &self.folder, port)?,
                (Peer::Rabbitmq, helper) => {
                    let helper = helper.as_ref().map_or(0, |(_, port)| *port);
                    rabbitmq::start(&self.program, &self.folder, port, helper)?
                }
            };
            self.servers.push(Group::start(&start, &self.folder, &log_of(port))?);
        }
        Ok(())
    }

    /// Waits until every server answers. Returns their version.
    fn wait_ready(&mut self) -> Result<String, BenchError> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut version = String::new();
        for (server, &port) in self.servers.iter_mut().zip(&self.ports) {
            loop {
                let answer = connect(&addr(port), None)
                    .map_err(BenchError::from)
                    .and_then(|mut socket| self.peer.version(&mut socket));
                match answer {
                    Ok(answer) => {
                        version = answer;
                        break;
                    }
                    Err(_) if server.has_ended()? || Instant::now() > deadline => {
                        let log = fs::read_to_string(self.folder.join(log_of(port))).unwrap_or_default();
                        let tail: Vec<&str> = log.lines().rev().take(5).collect();
                        let log = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
                        return Err(BenchError::ServerFailed { peer: self.peer.name(), log });
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

impl Drop for Guard {
    fn drop(&mut self) {
        self.servers.clear();
        self.helper = None;
        // What cannot be removed is small, and in the system's folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs a system's servers until standard input ends; `restart` kills them and starts them again at the same addresses.
///
/// # Errors
/// As `Guard::start`.
pub fn guard(system: System, peer: Peer, folder: PathBuf) -> Result<(), BenchError> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The end of standard input says when it is over, and leaves the time to clean up.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut guard = Guard::start(system, peer, folder)?;
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
