//! Somebody else's server, started for one measurement and never left behind.
//!
//! ```text
//!   harness ──pipe──▶ guard (`rbmq bench worker server`) ──▶ the server, in a process group of its own
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
use crate::bench::BenchError;

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

/// A server that runs, and what it needs besides.
pub struct Guard {
    peer: Peer,
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    /// Erlang's name service, for RabbitMQ: its port.
    helper: Option<(Group, u16)>,
    server: Option<Group>,
}

impl Guard {
    /// Starts a server on a free port, in a folder of its own.
    ///
    /// # Errors
    /// It is not installed, or did not start; the end of its log is in the error.
    pub fn start(peer: Peer, folder: PathBuf) -> Result<Guard, BenchError> {
        let program = find(peer).ok_or(BenchError::NotInstalled { peer: peer.name() })?;
        fs::create_dir(&folder)?;
        let port = free_port()?;
        let mut guard = Guard { peer, program, folder, port, helper: None, server: None };
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

    /// Starts the server on its port; a server that runs is killed first.
    fn run(&mut self) -> Result<(), BenchError> {
        self.server = None;
        let start = match (self.peer, &self.helper) {
            (Peer::Redis, _) => redis::start(&self.program, &self.folder, self.port),
            (Peer::Nats, _) => nats::start(&self.program, &self.folder, self.port)?,
            (Peer::Rabbitmq, helper) => {
                let helper = helper.as_ref().map_or(0, |(_, port)| *port);
                rabbitmq::start(&self.program, &self.folder, self.port, helper)?
            }
        };
        self.server = Some(Group::start(&start, &self.folder, "server.log")?);
        Ok(())
    }

    /// Waits until the server answers. Returns its version.
    fn wait_ready(&mut self) -> Result<String, BenchError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let version = connect(&self.addr(), None)
                .map_err(BenchError::from)
                .and_then(|mut s| self.peer.version(&mut s));
            let ended = match &mut self.server {
                Some(server) => server.has_ended()?,
                None => true,
            };
            match version {
                Ok(version) => return Ok(version),
                Err(_) if ended || Instant::now() > deadline => {
                    let log = fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
                    let tail: Vec<&str> = log.lines().rev().take(5).collect();
                    let log = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
                    return Err(BenchError::ServerFailed { peer: self.peer.name(), log });
                }
                Err(_) => std::thread::sleep(ASK_EVERY),
            }
        }
    }

    fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `ready ADDRESS GROUP VERSION`
    fn announce(&mut self) -> Result<(), BenchError> {
        let version = self.wait_ready()?;
        let group = self.server.as_ref().map_or(0, |server| server.id());
        println!("ready {} {group} {version}", self.addr());
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.server = None;
        self.helper = None;
        // What cannot be removed is small, and in the system's folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs a server until standard input ends; `restart` kills it and starts it again at the same address.
///
/// # Errors
/// As `Guard::start`.
pub fn guard(peer: Peer, folder: PathBuf) -> Result<(), BenchError> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The end of standard input says when it is over, and leaves the time to clean up.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut guard = Guard::start(peer, folder)?;
    guard.announce()?;
    for line in io::stdin().lock().lines() {
        match line?.trim() {
            "kill" => guard.server = None,
            "restart" => {
                guard.run()?;
                guard.announce()?;
            }
            _ => break,
        }
    }
    Ok(())
}
