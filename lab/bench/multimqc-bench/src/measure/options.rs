//! The options of both benches.

use std::path::PathBuf;
use std::time::Duration;

use super::placement::Placement;

/// The options of both benches.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Write the rows to this file, as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// How long each row is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// How often each row is measured
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub reps: u32,
    /// Bytes of a message (write), or of a range (read) [default: 4,32,128,512 and 32,512,1472]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1472))]
    pub payloads: Vec<u16>,
    /// Bytes of a batch between levels
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [32 << 10])]
    pub batches: Vec<u64>,
    /// How pushes are sent (write), or pulls (read: sendmmsg is a client with a socket, and there is no gso)
    #[arg(long, value_enum, default_value_t = Generator::Sendmmsg)]
    pub generator: Generator,
    /// Which processors clients and server run on, with frames [default: all of these to read, and any processors to write]
    ///
    /// A generator runs on one processor, and shares it with the packet path of what it sends to. A rate that is not limited by the
    /// generator is that of the better placement.
    #[arg(long, value_enum, value_name = "PLACEMENT", value_delimiter = ',')]
    pub placements: Vec<Placement>,
    /// Measure a program of yours too (write): `NAME[@MODE]=COMMAND`
    ///
    /// The command runs where the server would. The program prints a line with "listening", takes pushes, and keeps the
    /// number of those that it has stored in the file {count}, as text. {address}, {push_port}, {interface}, {folder},
    /// {broker} and {run} are replaced too. With the mode xdp-native it brings its own program for the device {interface}.
    #[arg(long = "peer", value_name = "NAME=COMMAND", value_parser = Peer::parse)]
    pub peers: Vec<Peer>,
    /// Measure the level kafka too, with the broker that this command runs
    ///
    /// The command prints a line "listening HOST:PORT", and ends with SIGTERM.
    #[arg(long, value_name = "COMMAND")]
    pub broker: Option<String>,
    /// Measure only systems whose row contains one of these texts, for example kernel, standalone or tcx
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    pub only: Vec<String>,
}

/// A program that is measured beside the levels.
#[derive(Debug, Clone)]
pub struct Peer {
    pub name: String,
    pub mode: String,
    command: String,
}

impl Peer {
    fn parse(text: &str) -> Result<Peer, String> {
        let (name, command) = text.split_once('=').ok_or("use NAME=COMMAND, or NAME@MODE=COMMAND")?;
        let (name, mode) = name.split_once('@').unwrap_or((name, "socket"));
        if !matches!(mode, "socket" | "xdp-native") {
            return Err(format!("mode {mode:?}: use socket or xdp-native"));
        }
        if name.is_empty() || command.trim().is_empty() {
            return Err("the name or the command is empty".into());
        }
        Ok(Peer { name: name.into(), mode: mode.into(), command: command.into() })
    }

    /// Whether the command needs the address of a Kafka broker.
    pub fn uses_broker(&self) -> bool {
        self.command.contains("{broker}")
    }

    /// The words of the command, with the values of the placeholders.
    pub fn words(&self, placeholders: &[(&str, String)]) -> Vec<String> {
        let filled = |word: &str| {
            placeholders.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value))
        };
        self.command.split_whitespace().map(filled).collect()
    }
}

/// How pushes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Generator {
    /// 64 messages with each call, each a packet of its own: what many small senders cause
    Sendmmsg,
    /// Up to 64 messages as one packet, which the kernel cuts as late as it can: faster, and sockets get many with one call. Without
    /// the modes that would see the uncut packet
    Gso,
    /// Frames that the kernel makes, each a packet of its own and without a socket: the fastest. As root
    Frames,
}

pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "use a number of seconds".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("use 0.05 to 3600 seconds".into()) }
}

impl Options {
    /// Whether a system with this description is measured.
    pub fn selects(&self, description: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| description.contains(text))
    }

    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn payloads_or(&self, default: &[u16]) -> Vec<u16> {
        if self.payloads.is_empty() { default.to_vec() } else { self.payloads.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_name_a_mode_and_a_command() {
        let peer =
            Peer::parse("afxdp@xdp-native=program --port {push_port} --count={count}").expect("a peer");
        assert_eq!((peer.name.as_str(), peer.mode.as_str()), ("afxdp", "xdp-native"));
        let words = peer.words(&[("{push_port}", "7".into()), ("{count}", "/tmp/count".into())]);
        assert_eq!(words, ["program", "--port", "7", "--count=/tmp/count"]);
        assert!(!peer.uses_broker());
        for wrong in ["program", "=program", "name=", "name@tcx=program"] {
            assert!(Peer::parse(wrong).is_err(), "{wrong}");
        }
    }
}
