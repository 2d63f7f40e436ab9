//! `rbmq check`: the settings of this machine that harm a broker, with a command that fixes each.
//!
//! ```text
//!   facts (read from the system) ──▶ rules (pure functions of facts and configuration) ──▶ findings
//! ```
//!
//! `rbmq check rdma` checks the requirements of that transport instead, and `rbmq check tls` the certificates.

mod facts;
mod finding;
mod rdma;
mod rules;
#[cfg(feature = "tls")]
mod tls;
mod users;

use commands::Failure;
use commands::terminal::colors;
use rbmq_broker::BrokerConfig;

use super::source::Source;
use facts::Facts;
use finding::{Finding, Level};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq check
  rbmq check --listen 0.0.0.0:7411 --json
  rbmq check rdma
  rbmq check tls --config /etc/rbmq/rbmq.toml

Run the command as the user and with the limits of the broker: `systemd-run --user`, `sudo -u rbmq rbmq check`.

Exit status: 0 if no check is bad, also with warnings; 1 otherwise.")]
pub(super) struct Args {
    /// Check only this: rdma (libraries, devices, addresses, permissions), tls (certificates, keys, encryption)
    #[arg(value_name = "WHAT")]
    what: Option<What>,
    #[command(flatten)]
    source: Source,
    /// Print one JSON object per finding: check, level, found, consequence, fix
    #[arg(long)]
    json: bool,
}

/// The subject of the checks, if it is not the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Rdma,
    #[cfg(feature = "tls")]
    Tls,
}

/// What a broker that starts says of too few descriptors for its clients; none if they are enough. It counts its kept topics as it opens them.
pub(super) fn few_descriptors(config: &BrokerConfig) -> Option<String> {
    let Finding { level, found, consequence, fix, .. } = rules::descriptors(facts::descriptors(), config, 0);
    let fix = fix.filter(|_| level != Level::Ok)?;
    Some(format!("descriptors: {found}. {consequence} {fix}"))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.source.load().map_err(Failure::failed)?;
    let findings = match args.what {
        None => {
            let mut findings = rules::findings(&Facts::read(&config), &config);
            findings.extend(users::findings(&config));
            findings
        }
        #[cfg(feature = "tls")]
        Some(What::Tls) => tls::findings(&tls::Machine::read(), &config),
        Some(What::Rdma) => rdma::findings(&rocketnet_rdma::probe(), &config),
    };
    let text: String = if args.json {
        let line = |finding| serde_json::to_string(finding).map(|text| text + "\n");
        findings.iter().map(line).collect::<Result<_, _>>().map_err(Failure::failed)?
    } else {
        let color = colors(&std::io::stdout());
        findings.iter().map(|finding| lines(finding, color)).collect()
    };
    commands::print(text)?;
    match findings.iter().filter(|finding| finding.level == Level::Bad).count() {
        0 => Ok(()),
        bad => Err(Failure::Failed(format!("{bad} of {} checks are bad (above)", findings.len()))),
    }
}

/// Whether the certificates of a configuration fit together.
///
/// # Errors
/// The first bad finding.
#[cfg(feature = "tls")]
pub(super) fn certificates(config: &BrokerConfig) -> Result<(), Failure> {
    let findings = [tls::whole(&config.framework.tls)].into_iter();
    match findings
        .chain(tls::endpoint(config))
        .chain(tls::gateways(config))
        .find(|finding| finding.level == Level::Bad)
    {
        Some(bad) => Err(Failure::Failed(bad.found)),
        None => Ok(()),
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
        text.push_str(&format!("      {}\n", finding.consequence));
    }
    if let Some(fix) = &finding.fix {
        text.push_str(&format!("      fix: {fix}\n"));
    }
    text
}
