//! An end of an exchange over ZeroMQ, nng or QUIC, started by `cmq-bench`. `has SYSTEM` reports whether the
//! system's library is installed.

mod nng;
mod quic;
mod quic_stream;
mod zeromq;

use std::{io, process::ExitCode};

use benchkit::ends::End;
use clap::Parser;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let done = match words.get(1).map(String::as_str) {
        Some("has") => has(words.get(2).map_or("", String::as_str)),
        _ => run(&Command::parse().end),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cmq-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Parser)]
#[command(name = "cmq-peers")]
struct Command {
    #[command(flatten)]
    end: End,
}

fn has(system: &str) -> io::Result<()> {
    match system {
        "zeromq" => zeromq::Library::load().map(drop),
        "nng" => nng::Library::load().map(drop),
        "quic" | "quic-stream" => Ok(()),
        other => Err(unknown(other)),
    }
}

fn run(end: &End) -> io::Result<()> {
    match end.system.as_str() {
        "zeromq" => end.run(&mut zeromq::Pair::open(end)?),
        "nng" => end.run(&mut nng::Pair::open(end)?),
        "quic" => end.run(&mut quic::Datagrams::open(end)?),
        "quic-stream" => end.run(&mut quic_stream::Streams::open(end)?),
        other => Err(unknown(other)),
    }
}

fn unknown(system: &str) -> io::Error {
    io::Error::other(format!("{system} is not known here"))
}

/// The first of these libraries that can be loaded.
fn load(names: &[&str]) -> io::Result<libloading::Library> {
    let mut last = None;
    for name in names {
        // SAFETY: the initialisers of these libraries have no requirements.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| io::ErrorKind::NotFound.into(), io::Error::other))
}
