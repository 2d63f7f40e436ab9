//! Runs of `redis-benchmark`, which comes with Redis.

use std::process::{Command, Stdio};

use benchkit::server;

use crate::error::BenchError;

/// The program.
const PROGRAM: &str = "redis-benchmark";

/// Commands that a client has on their way; 50 clients have one each.
const PIPELINES: [u32; 3] = [1, 16, 100];
const MANY_CLIENTS: u32 = 50;

/// A run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Benchmark {
    /// XADD to a stream on disk, or PUBLISH to a channel that nobody hears.
    pub stream: bool,
    clients: u32,
    pipeline: u32,
}

/// What came of it.
pub struct Measured {
    pub per_s: f64,
    pub server_cpu_us: f64,
    pub p50_us: f64,
}

impl Benchmark {
    /// The runs of the bench; none without the program.
    pub fn all() -> Vec<Benchmark> {
        if server::find(PROGRAM).is_none() {
            eprintln!("SKIPPED: {PROGRAM} is not installed (scripts/bench-peers installs it)");
            return Vec::new();
        }
        let of = |stream| {
            let one = PIPELINES.map(|pipeline| Benchmark { stream, clients: 1, pipeline });
            one.into_iter().chain([Benchmark { stream, clients: MANY_CLIENTS, pipeline: 1 }])
        };
        [false, true].into_iter().flat_map(of).collect()
    }

    /// As in the rows.
    pub fn name(self) -> String {
        let command = if self.stream { "XADD" } else { "PUBLISH" };
        format!("{PROGRAM} {command}, {} clients, {} on their way", self.clients, self.pipeline)
    }

    /// Runs it once with the server at this address.
    ///
    /// # Errors
    /// The program says something else than figures.
    pub fn measure(
        self,
        size: u32,
        messages: u64,
        addr: &str,
        cpu_s: impl Fn() -> f64,
    ) -> Result<Measured, BenchError> {
        let messages = if self.pipeline > 1 { messages } else { messages.div_ceil(10) };
        // The program sends whole pipelines. If it has sent more than it was asked for at the moment it prints its progress, it says that all clients are gone and fails.
        let messages = messages.next_multiple_of(u64::from(self.pipeline));
        let payload = "x".repeat(size as usize);
        let said = |said: &str| BenchError::PeerSaid { peer: PROGRAM.to_owned(), said: said.to_owned() };
        let (host, port) = addr.split_once(':').ok_or_else(|| said(addr))?;
        let program =
            server::find(PROGRAM).ok_or_else(|| BenchError::NotInstalled { peer: PROGRAM.to_owned() })?;
        let mut command = Command::new(program);
        command.args(["-h", host, "-p", port, "-n", &messages.to_string(), "-c", &self.clients.to_string()]);
        command.args(["-P", &self.pipeline.to_string(), "--csv"]);
        match self.stream {
            true => command.args(["XADD", "m", "*", "p", &payload]),
            false => command.args(["PUBLISH", "m", &payload]),
        };
        let before_s = cpu_s();
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        let spent_s = cpu_s() - before_s;
        // The name of the test, commands per second, and milliseconds: mean, least, median, …
        let text = String::from_utf8_lossy(&output.stdout);
        let fields: Vec<&str> = text.lines().last().unwrap_or_default().split(',').collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.trim_matches('"').parse::<f64>().ok());
        let (Some(per_s), Some(p50_ms)) = (field(1), field(4)) else { return Err(said(&text)) };
        let server_cpu_us = spent_s * 1e6 / messages as f64;
        Ok(Measured { per_s, server_cpu_us, p50_us: p50_ms * 1e3 })
    }
}
