//! A publisher, subscriber, pinger or echoer over a client library, started by `rbmq-bench libraries`.
//!
//! ```text
//!   publisher ──library──▶ server ──library──▶ subscriber        each end is a process of its own
//! ```
//!
//! The loops, the messages and their checks are those of `benchkit::library`, which RBMQ's ends run too. Each library is used
//! as its own examples use it. Where a setting differs from the library's default, its file says which and why.
//! All asynchronous libraries run on tokio's runtime with one thread for each core, its default. Small packets leave at once
//! on every connection (`TCP_NODELAY`).

#![forbid(unsafe_code)]

mod mqtt;
mod nats;
mod rabbitmq;
mod redis_manager;
mod redis_pipelined;
mod zenoh;

use std::process::ExitCode;

use benchkit::library::{self, End};
use clap::{Parser, ValueEnum};

/// The manifest, which has the exact versions of the libraries.
const MANIFEST: &str = include_str!("../Cargo.toml");

#[derive(Parser)]
#[command(name = "library-peers")]
enum Command {
    /// Runs one end of a measurement
    End {
        #[arg(value_enum)]
        library: Library,
        #[command(flatten)]
        end: End,
    },
    /// Zenoh's router, until standard input ends
    Router,
}

#[derive(Clone, Copy, ValueEnum)]
enum Library {
    RedisPipelined,
    RedisManager,
    AsyncNats,
    Lapin,
    Rumqttc,
    Zenoh,
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("library-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(command: Command) -> Result<(), benchkit::Error> {
    match command {
        Command::Router => Ok(zenoh::route().await?),
        Command::End { library, end } => match library {
            Library::RedisPipelined => library::run(&redis_pipelined::Pipelined, &end).await,
            Library::RedisManager => library::run(&redis_manager::Manager, &end).await,
            Library::AsyncNats => library::run(&nats::Nats, &end).await,
            Library::Lapin => library::run(&rabbitmq::Rabbitmq, &end).await,
            Library::Rumqttc => library::run(&mqtt::Mqtt, &end).await,
            Library::Zenoh => library::run(&zenoh::Zenoh, &end).await,
        },
    }
}

/// The version of a library, as the manifest has it.
fn version_of(library: &str) -> String {
    let line =
        MANIFEST.lines().find(|line| line.strip_prefix(library).is_some_and(|rest| rest.starts_with(" =")));
    let version = line.and_then(|line| line.split("version = \"=").nth(1)?.split('"').next());
    version.unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_has_an_exact_version() {
        for library in ["async-nats", "lapin", "redis", "rumqttc", "zenoh"] {
            assert!(version_of(library).starts_with(|first: char| first.is_ascii_digit()), "{library}");
        }
    }
}
