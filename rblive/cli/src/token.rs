//! `rblive token`: tokens for viewers.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use commands::{Failure, print_error};
use rblive::content::check_name;
use rblive_deliver::token;

use super::config::{Config, doubt};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive token camera --config node.toml                         # https://HOST/?token=TOKEN#/camera plays it
  rblive token camera --expires 30d --config node.toml
  rblive token '*' --expires 365d --config node.toml             # every stream, all lists, and /metrics

A token is for deliver.token_key of the configuration, and good at every node with the same key. It cannot be revoked: give it a short \
time, or change the key.")]
pub struct Args {
    /// Name of the stream; * is every stream, with the lists of all and the metrics
    #[arg(value_name = "STREAM", value_parser = stream)]
    stream: String,
    /// Time until the token expires, as 30d or 12h
    #[arg(long, default_value = "1d", value_name = "TIME", value_parser = expires)]
    expires: Duration,
    /// Configuration file, whose deliver.token_key signs
    #[arg(long, short, value_name = "FILE", env = "RBLIVE_CONFIG", required = true)]
    config: PathBuf,
}

/// Prints a token.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = Config::load(Some(&args.config))?;
    let key = config.deliver.token_key;
    if key.is_empty() {
        return Err(Failure::Failed(format!(
            "{} has no deliver.token_key, so everybody may watch without a token",
            args.config.display()
        )));
    }
    if let Some(doubt) = doubt(&args.stream) {
        print_error("rblive", doubt);
    }
    let now = commands::clock::now()?.duration_since(UNIX_EPOCH).map_err(Failure::failed)?;
    commands::print(format!(
        "{}\n",
        token::sign(key.as_bytes(), &args.stream, (now + args.expires).as_secs())
    ))
}

fn stream(text: &str) -> Result<String, String> {
    if text == token::EVERY || check_name(text) {
        return Ok(text.to_owned());
    }
    Err("it is the name of a stream, as camera, or *".to_owned())
}

fn expires(text: &str) -> Result<Duration, String> {
    // A hundred years are for ever.
    let most = Duration::from_secs(100 * 365 * 86_400);
    // A time needs a unit: a number alone would be days for some, and seconds for others.
    match settings::parse_time(text, Duration::ZERO) {
        Some(after) if !after.is_zero() && after <= most => Ok(after),
        _ => Err("it is a time as 30d or 12h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times_are_checked() {
        for good in ["live/camera", "*"] {
            assert_eq!(stream(good).as_deref(), Ok(good));
        }
        for bad in ["", "a b", "/a", "live/*"] {
            assert!(stream(bad).is_err(), "{bad}");
        }
        assert_eq!(expires("12h"), Ok(Duration::from_secs(43_200)));
        for bad in ["0s", "x", "30", "36501d"] {
            assert!(expires(bad).is_err(), "{bad}");
        }
    }
}
