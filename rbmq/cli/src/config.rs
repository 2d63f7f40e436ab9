//! `rbmq config`: the settings of a broker with these arguments, and the origin of each.

use std::path::PathBuf;

use access::Authenticator;
use commands::Failure;
use rbmq_broker::{BrokerConfig, BrokerError, Setting};
use rocketbufs::config::Origin;
use serde_json::{Value, json};

#[cfg(feature = "tls")]
use super::check;
use super::log;
use super::source::{self, Source};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq config --default > rbmq.toml
  rbmq config --check rbmq.toml
  rbmq config --config rbmq.toml --http 127.0.0.1:7412 --changed
  rbmq config --check /etc/rbmq/rbmq.toml && systemctl reload rbmq     # where it is installed as a package

The output is a configuration file again. It shows what `rbmq serve` with the same options and environment would work \
with; what a running broker took over of a reload is in its log.")]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Show only settings that differ from their defaults
    #[arg(long)]
    changed: bool,
    /// Print one JSON object per setting: name, value, origin
    #[arg(long)]
    json: bool,
    /// Only check this file (with the environment over it), and the users and certificates that it names: exit status 0 if
    /// `rbmq serve` would start with them, 1 if not
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "changed", "config", "listen", "http"])]
    check: Option<PathBuf>,
    /// Print a file with every setting at its default, commented out and explained
    #[arg(long, conflicts_with_all = ["json", "changed", "check", "listen", "http"])]
    default: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    source::warn_of_unknown_variables();
    let text = if args.default {
        BrokerConfig::example()
    } else if let Some(path) = &args.check {
        let mut config = BrokerConfig::load(Some(path)).map_err(Failure::failed)?;
        config.access.insecure |= args.source.insecure;
        check_files(&config)?;
        if let Some(exposed) = config.exposed().first() {
            return Err(Failure::failed(exposed));
        }
        format!("rbmq: {} is good\n", path.display())
    } else {
        let mut settings = args.source.load().map_err(Failure::failed)?.settings();
        environment(&mut settings);
        settings.retain(|setting| !args.changed || setting.origin != Origin::Default);
        if args.json { settings.iter().map(json_line).collect() } else { table(&settings) }
    };
    commands::print(text)
}

/// Reads the files that a reload reads again, as it would.
fn check_files(config: &BrokerConfig) -> Result<(), Failure> {
    let users = Authenticator::open(&config.users.options()).map_err(BrokerError::from);
    users.map_err(Failure::failed)?;
    #[cfg(feature = "tls")]
    check::certificates(config)?;
    Ok(())
}

/// RBMQ_LOG takes precedence over the log level and is not part of the configuration.
fn environment(settings: &mut [Setting]) {
    let Some(level) = log::variable().and_then(|level| level.into_string().ok()) else { return };
    if let Some(setting) = settings.iter_mut().find(|setting| setting.name == "log.level") {
        setting.value = Some(toml::Value::String(level));
        setting.origin = Origin::Variable(log::VARIABLE.into());
    }
}

/// The settings in the form of a file, with their origins as comments.
fn table(settings: &[Setting]) -> String {
    let (outside, inside): (Vec<_>, Vec<_>) =
        settings.iter().partition(|setting| !setting.name.contains('.'));
    let mut section = "";
    let mut text = String::new();
    for setting in outside.into_iter().chain(inside) {
        let (own, field) = setting.name.split_once('.').unwrap_or(("", &setting.name));
        if own != section {
            section = own;
            text.push_str(&format!("{}[{section}]\n", if text.is_empty() { "" } else { "\n" }));
        }
        let assignment = match &setting.value {
            Some(value) => format!("{field} = {value}"),
            None => format!("# {field} is unset"),
        };
        text.push_str(&format!("{assignment:<40} # {}\n", setting.origin));
    }
    text
}

fn json_line(setting: &Setting) -> String {
    let origin = match &setting.origin {
        Origin::Default => json!({ "kind": "default" }),
        Origin::File { path, line } => json!({ "kind": "file", "path": path, "line": line }),
        Origin::Variable(name) => json!({ "kind": "variable", "name": name }),
        Origin::Argument => json!({ "kind": "argument" }),
        _ => json!({ "kind": "program" }),
    };
    let value = serde_json::to_value(&setting.value).unwrap_or(Value::Null);
    format!("{}\n", json!({ "name": setting.name, "value": value, "origin": origin }))
}
