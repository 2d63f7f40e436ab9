//! The systems: their programs, their limits and their options.

use std::{net::SocketAddr, path::PathBuf, process::Command, time::Duration};

use benchkit::{named::Named, server};
use clap::ValueEnum;
use serde::Serialize;

/// The system that carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// CMQ with its default settings
    Cmq,
    /// CMQ with the paper's settings: batches of 512 bytes or 200 ms (pingpong: every message at once)
    CmqPaper,
    /// CMQ with its default settings and parity fragments
    CmqParity,
    /// CMQ with keys at both ends
    CmqSealed,
    /// CMQ's reliable mode
    CmqReliable,
    /// CMQ's reliable mode with keys at both ends
    CmqReliableSealed,
    /// Plain UDP sockets: a system call for each message
    Udp,
    /// The minimum with UDP_SEGMENT and UDP_GRO, one way only
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
    /// QUIC streams with quinn, one each way
    QuicStream,
}

/// The pattern of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// A single outstanding message; each is sent back
    Pingpong,
    /// Many outstanding messages; each is sent back
    Pingping,
    /// Many outstanding messages; an answer for every few has only a number
    Oneway,
}

impl System {
    /// True for CMQ with any settings.
    pub fn is_ours(self) -> bool {
        matches!(self, System::Cmq | System::CmqPaper | System::CmqParity)
    }

    /// True if a fragmented message survives the loss of one fragment. The measured sizes have one parity
    /// fragment.
    pub fn has_parity(self) -> bool {
        self == System::CmqParity
    }

    /// True if lost messages are retransmitted.
    pub fn repeats(self) -> bool {
        matches!(
            self,
            System::CmqReliable
                | System::CmqReliableSealed
                | System::Zeromq
                | System::MsgpackRpc
                | System::Nng
                | System::Nats
                | System::QuicStream
        )
    }

    /// True if the system can carry messages of this size in this pattern.
    pub fn carries(self, pattern: Pattern, size: u32, lossy: bool) -> bool {
        match self {
            System::Cmq | System::CmqPaper | System::CmqSealed | System::Udp => true,
            System::CmqReliable | System::CmqReliableSealed | System::QuicStream => true,
            // Smaller messages are not fragmented, and larger ones have several parity fragments.
            System::CmqParity => pattern != Pattern::Pingpong && (1_473..=22_000).contains(&size),
            // The GSO loop does not reassemble messages, so every datagram must arrive.
            System::Gso => pattern == Pattern::Oneway && !lossy,
            // A QUIC datagram must fit into a packet.
            System::Quic => size <= 1_024,
            System::Zeromq | System::MsgpackRpc | System::Nng | System::Nats => true,
        }
    }

    /// `qthresh` and `timeout` of CMQ.
    pub fn batches(self, pattern: Pattern) -> (usize, Duration) {
        let config = match self {
            System::CmqPaper if pattern == Pattern::Pingpong => cmq::Config::immediate(),
            System::CmqPaper => cmq::Config::paper(),
            _ => cmq::Config::default(),
        };
        (config.qthresh, config.timeout)
    }

    /// How long a driver waits for an answer before it gives up: longer than an answer takes. Systems that
    /// retransmit must answer.
    pub fn give_up(self) -> Duration {
        if self.repeats() { Duration::from_secs(15) } else { Duration::from_millis(10) }
    }

    /// The program of an end, and its first arguments.
    fn program(self) -> Option<(PathBuf, &'static [&'static str])> {
        match self {
            System::Cmq
            | System::CmqPaper
            | System::CmqParity
            | System::CmqSealed
            | System::CmqReliable
            | System::CmqReliableSealed
            | System::Udp
            | System::Gso => Some((std::env::current_exe().ok()?, &["worker", "end"])),
            System::Zeromq | System::Nng | System::Quic | System::QuicStream => {
                Some((server::find("cmq-peers")?, &[]))
            }
            System::MsgpackRpc | System::Nats => Some((server::find("cmq-peers-go")?, &[])),
        }
    }

    /// The program or library that the system needs and this machine lacks.
    fn missing(self) -> Option<&'static str> {
        match self {
            System::Nats if server::find("nats-server").is_none() => Some("nats-server"),
            _ if self.program().is_none() => Some("its program in target/peers"),
            _ => {
                let (program, _) = self.program()?;
                // The program knows whether its library can be loaded.
                let external = matches!(self, System::Zeromq | System::Nng);
                let there = !external
                    || Command::new(program).args(["has", &self.name()]).status().is_ok_and(|s| s.success());
                (!there).then_some("its library")
            }
        }
    }

    /// The installed ones among these systems. Reports the missing ones.
    pub fn installed(systems: &[System]) -> Vec<System> {
        let mut there = Vec::new();
        for &system in systems {
            match system.missing() {
                Some(what) => {
                    eprintln!(
                        "SKIPPED: {}: {what} is missing; scripts/bench-peers cmq installs it",
                        system.name()
                    );
                }
                None if there.contains(&system) => {}
                None => there.push(system),
            }
        }
        there
    }

    /// The command of an end.
    pub fn command(self, role: &str, bind: SocketAddr, to: SocketAddr) -> Option<Command> {
        let (program, words) = self.program()?;
        let mut command = Command::new(program);
        command.args(words).args([role, &self.name()]);
        command.args(["--bind", &bind.to_string(), "--to", &to.to_string()]);
        Some(command)
    }
}
