//! The options of both benches.

use std::path::PathBuf;
use std::time::Duration;

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
    /// How pushes are sent (write)
    #[arg(long, value_enum, default_value_t = Generator::Sendmmsg)]
    pub generator: Generator,
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

impl Generator {
    pub fn name(self) -> &'static str {
        match self {
            Generator::Sendmmsg => "sendmmsg",
            Generator::Gso => "gso",
            Generator::Frames => "frames",
        }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "use a number of seconds".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("use 0.05 to 3600 seconds".into()) }
}

impl Options {
    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn payloads_or(&self, default: &[u16]) -> Vec<u16> {
        if self.payloads.is_empty() { default.to_vec() } else { self.payloads.clone() }
    }
}
