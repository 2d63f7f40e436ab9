//! A row of the results.

use std::path::Path;

use benchkit::output::write_json;
use commands::{Failure, print_error};
use serde::{Deserialize, Serialize};

/// The result of a measurement. Fields without a value do not apply.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// `write` or `read`.
    pub part: String,
    /// `multimqc`, `standalone` (recvmsg), `recvmmsg`, `drop` (the generator alone), or the name of a peer.
    pub system: String,
    /// The kernel's version.
    pub kernel: String,
    /// The levels of the stack, or `file`, `none` and `peer`.
    pub level: String,
    /// Where packets are taken: `socket`, `xdp-native`, `tcx`, …
    pub mode: String,
    /// How pushes are sent: `sendmmsg`, `gso` or `frames`; or `frames` if pulls are.
    pub generator: Option<String>,
    /// Which processors clients and server run on, where this is fixed.
    pub placement: Option<String>,
    /// Bytes of a message, or of a range.
    pub payload_bytes: u16,
    /// Bytes that move to the next level at a time.
    pub batch_bytes: Option<u64>,
    /// The repetition.
    pub rep: u32,
    /// Messages that reached the last level, or replies.
    pub messages_per_s: f64,
    /// Processor time of the server's process.
    pub cpu_ns_per_message: f64,
    /// Processor time of the client's process, with what the kernel does on its account.
    pub sender_cpu_ns_per_message: f64,
    /// Processor time of the server, the client, and the kernel's threads that take packets; with Kafka also that of its broker.
    pub total_cpu_ns_per_message: f64,
    /// The median round trip of a lone pull.
    pub rtt_p50_us: Option<f64>,
    /// The round trip that one pull of a hundred exceeds.
    pub rtt_p99_us: Option<f64>,
    /// Messages that were sent and are in no level, or pulls without a reply.
    pub lost: u64,
    /// Messages or pulls that were sent.
    pub sent: u64,
}

/// The version of the running kernel.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

impl Row {
    /// Prints the row for people.
    pub fn print(&self) -> Result<(), Failure> {
        let rtt = match (self.rtt_p50_us, self.rtt_p99_us) {
            (Some(p50), Some(p99)) => format!("  rtt {p50:.1} / {p99:.1} us"),
            _ => String::new(),
        };
        let line = format!(
            "{:<10} {:<17} {:<11} {}{:>5} B  {:>10.0}/s  cpu {:>6.0} ns, sender {:>6.0} ns, all {:>6.0} ns  lost {} of {}{rtt}\n",
            self.system,
            self.level,
            self.mode,
            self.placement.as_ref().map(|placement| format!("{placement:<10} ")).unwrap_or_default(),
            self.payload_bytes,
            self.messages_per_s,
            self.cpu_ns_per_message,
            self.sender_cpu_ns_per_message,
            self.total_cpu_ns_per_message,
            self.lost,
            self.sent,
        );
        commands::print(line)
    }
}

/// The rows of a bench, which a file has as soon as they are measured. A system that fails does not end the bench.
pub struct Rows<'a> {
    rows: Vec<Row>,
    file: Option<&'a Path>,
    failed: Vec<String>,
}

impl<'a> Rows<'a> {
    pub fn new(file: Option<&'a Path>) -> Rows<'a> {
        Rows { rows: Vec::new(), file, failed: Vec::new() }
    }

    /// Prints and keeps a row, or says why this system has none.
    ///
    /// # Errors
    /// The row cannot be printed or kept.
    pub fn add(&mut self, system: &str, row: Result<Row, Failure>) -> Result<(), Failure> {
        match row {
            Ok(row) => {
                row.print()?;
                self.rows.push(row);
                Ok(self.file.map_or(Ok(()), |file| write_json(file, &self.rows))?)
            }
            Err(Failure::Failed(why)) => {
                print_error("multimqc-bench", format_args!("{system}: {why}"));
                self.failed.push(system.to_owned());
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// # Errors
    /// A row is missing.
    pub fn end(self) -> Result<(), Failure> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let [failed, rows] = [self.failed.len(), self.rows.len()];
        Err(Failure::Failed(format!("{failed} rows are missing beside {rows}: {}", self.failed.join("; "))))
    }
}
