//! Who is compared: where their programs are, what they can carry, and how they are told to.

use std::{net::SocketAddr, path::PathBuf, process::Command, time::Duration};

use benchkit::server;
use clap::ValueEnum;
use serde::Serialize;

/// Who carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// CMQ with its default settings
    Cmq,
    /// CMQ with the paper's: batches of 512 bytes or 200 ms; every message at once where one is outstanding
    CmqPaper,
    /// CMQ with its default settings and parity fragments
    CmqParity,
    /// Plain UDP sockets: a call for each message
    Udp,
    /// The bare minimum with UDP_SEGMENT and UDP_GRO, one way only
    Gso,
    /// ZeroMQ: libzmq, PAIR over TCP
    Zeromq,
    /// MessagePack-RPC over TCP: the codec of ugorji/go under Go's net/rpc
    MsgpackRpc,
    /// nng, pair0 over TCP
    Nng,
    /// NATS: nats-server and its Go client
    Nats,
    /// QUIC datagrams with quinn
    Quic,
}

/// What carries messages from where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One message at a time, each answered with itself
    Pingpong,
    /// The next messages are sent before the first is answered with itself
    Pingping,
    /// Only the number of every so many messages comes back
    Oneway,
}

impl Pattern {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Pingpong => "pingpong",
            Pattern::Pingping => "pingping",
            Pattern::Oneway => "oneway",
        }
    }
}

impl System {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            System::Cmq => "cmq",
            System::CmqPaper => "cmq-paper",
            System::CmqParity => "cmq-parity",
            System::Udp => "udp",
            System::Gso => "gso",
            System::Zeromq => "zeromq",
            System::MsgpackRpc => "msgpack-rpc",
            System::Nng => "nng",
            System::Nats => "nats",
            System::Quic => "quic",
        }
    }

    /// Whether it is CMQ in one of its settings.
    pub fn is_ours(self) -> bool {
        matches!(self, System::Cmq | System::CmqPaper | System::CmqParity)
    }

    /// Whether a fragmented message may lose one fragment; those that are measured have one parity fragment each.
    pub fn has_parity(self) -> bool {
        self == System::CmqParity
    }

    /// Whether a message is repeated until it arrives.
    pub fn repeats(self) -> bool {
        matches!(self, System::Zeromq | System::MsgpackRpc | System::Nng | System::Nats)
    }

    /// Whether it can carry messages of this size this way.
    pub fn carries(self, pattern: Pattern, size: u32, lossy: bool) -> bool {
        match self {
            System::Cmq | System::CmqPaper | System::Udp => true,
            // Smaller messages are not fragmented, and larger ones have several parity fragments.
            System::CmqParity => pattern != Pattern::Pingpong && (1_473..=22_000).contains(&size),
            // It does not put messages together, so nothing but whole messages may come.
            System::Gso => pattern == Pattern::Oneway && !lossy,
            // A datagram of QUIC fits into a packet.
            System::Quic => size <= 1_024,
            System::Zeromq | System::MsgpackRpc | System::Nng | System::Nats => true,
        }
    }

    /// Bytes of a batch, and how long a message waits in it.
    pub fn batches(self, pattern: Pattern) -> (usize, Duration) {
        let config = match self {
            System::CmqPaper if pattern == Pattern::Pingpong => cmq::Config::immediate(),
            System::CmqPaper => cmq::Config::paper(),
            _ => cmq::Config::default(),
        };
        (config.qthresh, config.timeout)
    }

    /// How long a driver waits for an answer before it goes on without: where nothing is repeated, longer than an answer
    /// takes; where everything is, it has to come.
    pub fn give_up(self) -> Duration {
        if self.repeats() { Duration::from_secs(15) } else { Duration::from_millis(10) }
    }

    /// The program that runs an end of it, and the words it begins with.
    fn program(self) -> Option<(PathBuf, &'static [&'static str])> {
        match self {
            System::Cmq | System::CmqPaper | System::CmqParity | System::Udp | System::Gso => {
                Some((std::env::current_exe().ok()?, &["worker", "end"]))
            }
            System::Zeromq | System::Nng | System::Quic => Some((server::find("cmq-peers")?, &[])),
            System::MsgpackRpc | System::Nats => Some((server::find("cmq-peers-go")?, &[])),
        }
    }

    /// What it needs and has not got here.
    fn missing(self) -> Option<&'static str> {
        match self {
            System::Nats if server::find("nats-server").is_none() => Some("nats-server"),
            _ if self.program().is_none() => Some("its program in target/peers"),
            _ => {
                let (program, _) = self.program()?;
                // It knows whether the library that it loads is there.
                let external = matches!(self, System::Zeromq | System::Nng);
                let there = !external
                    || Command::new(program).args(["has", self.name()]).status().is_ok_and(|s| s.success());
                (!there).then_some("its library")
            }
        }
    }

    /// Of these systems those that are there; says aloud which are not.
    pub fn installed(systems: &[System]) -> Vec<System> {
        let mut there = Vec::new();
        for &system in systems {
            match system.missing() {
                Some(what) => {
                    eprintln!(
                        "SKIPPED: {}: {what} is missing (scripts/bench-peers cmq installs it)",
                        system.name()
                    );
                }
                None if there.contains(&system) => {}
                None => there.push(system),
            }
        }
        there
    }

    /// The command that starts an end of it.
    pub fn command(self, role: &str, bind: SocketAddr, to: SocketAddr) -> Option<Command> {
        let (program, words) = self.program()?;
        let mut command = Command::new(program);
        command.args(words).args([role, self.name()]);
        command.args(["--bind", &bind.to_string(), "--to", &to.to_string()]);
        Some(command)
    }
}
