//! `rbmq check`: what of this machine will hurt a broker, and the command that mends each.
//!
//! ```text
//!   facts (read from the system) ──▶ rules (pure functions of facts and configuration) ──▶ findings
//! ```
//!
//! `rbmq check rdma` looks at what that transport needs instead.

mod facts;
mod finding;
mod rdma;
mod rules;

use std::io::Write;

use super::failure::Failure;
use super::source::Source;
use super::terminal::colors;
use facts::Facts;
use finding::{Finding, Level};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq check
  rbmq check --listen 0.0.0.0:7411 --json
  rbmq check rdma

Run it as the user and with the limits that the broker will have: `systemd-run --user`, `sudo -u rbmq rbmq check`.

Exit status: 0 if nothing is bad, also with warnings; 1 if something is.")]
pub(super) struct Args {
    /// Look at this alone: rdma (libraries, devices, addresses, permissions)
    #[arg(value_name = "WHAT")]
    what: Option<What>,
    #[command(flatten)]
    source: Source,
    /// Print one JSON object per finding: check, level, found, means, mend
    #[arg(long)]
    json: bool,
}

/// What is looked at, if not the machine as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Rdma,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.source.load().map_err(Failure::failed)?;
    let findings = match args.what {
        None => rules::findings(&Facts::read(&config), &config),
        Some(What::Rdma) => rdma::findings(&rocketnet_rdma::probe(), &config),
    };
    let text: String = if args.json {
        let line = |finding| serde_json::to_string(finding).map(|text| text + "\n");
        findings.iter().map(line).collect::<Result<_, _>>().map_err(Failure::failed)?
    } else {
        let color = colors(&std::io::stdout());
        findings.iter().map(|finding| lines(finding, color)).collect()
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::output(&error))?;
    match findings.iter().filter(|finding| finding.level == Level::Bad).count() {
        0 => Ok(()),
        bad => Err(Failure::Failed(format!("{bad} of {} checks are bad (above)", findings.len()))),
    }
}

fn lines(finding: &Finding, color: bool) -> String {
    let (word, code) = match finding.level {
        Level::Ok => ("ok", "32"),
        Level::Warn => ("warn", "33"),
        Level::Bad => ("bad", "31"),
    };
    let word = if color { format!("\x1b[{code}m{word:<5}\x1b[0m") } else { format!("{word:<5}") };
    let mut text = format!("{word} {:<20} {}\n", finding.check, finding.found);
    if finding.level != Level::Ok {
        text.push_str(&format!("      {}\n", finding.means));
    }
    if let Some(mend) = &finding.mend {
        text.push_str(&format!("      mend: {mend}\n"));
    }
    text
}
