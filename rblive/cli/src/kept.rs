//! `rblive kept`: the recordings that nodes keep.

use std::fmt::Write as _;
use std::path::PathBuf;

use commands::Failure;
use rblive_record::{About, Store};

use super::config::Config;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive kept --config node.toml
  rblive kept /var/lib/rblive --stream camera --json
  ffplay /var/lib/rblive/live+camera/20261125T214822Z/index.m3u8")]
pub struct Args {
    /// Folders with recordings, besides those of the configuration file
    #[arg(value_name = "FOLDER", required_unless_present = "config")]
    folders: Vec<PathBuf>,
    /// Configuration file, whose rules name folders
    #[arg(long, short, value_name = "FILE", env = "RBLIVE_CONFIG")]
    config: Option<PathBuf>,
    /// Only the recordings of this stream
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// The most recordings, the newest first
    #[arg(long, value_name = "N", default_value_t = 1000)]
    most: usize,
    /// Print JSON, one recording in each line
    #[arg(long)]
    json: bool,
}

/// Lists recordings.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut folders = args.folders.clone();
    if let Some(path) = &args.config {
        folders.extend(Config::load(Some(path))?.record.into_iter().map(|rule| rule.folder));
    }
    if let Some(absent) = folders.iter().find(|folder| !folder.is_dir()) {
        return Err(Failure::Failed(format!("there is no folder {}", absent.display())));
    }
    let found = Store::new(folders).list(args.stream.as_deref(), args.most);
    let mut said = String::new();
    for about in &found {
        if args.json {
            let line = serde_json::to_string(about).map_err(Failure::failed)?;
            let _ = writeln!(said, "{line}");
        } else {
            row(&mut said, about);
        }
    }
    commands::print(said)
}

fn row(said: &mut String, about: &About) {
    let About { name, begin, seconds, segments, gaps, bytes, renditions } = about;
    let whole = *seconds as u64;
    let length = format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    let mib = *bytes as f64 / f64::from(1 << 20);
    let lost = if *gaps > 0 { format!(", {gaps} of them lost") } else { String::new() };
    let several =
        if renditions.len() > 1 { format!(" of {} renditions", renditions.len()) } else { String::new() };
    let _ =
        writeln!(said, "{begin:18} {length:>9} {mib:9.1} MiB  {name} ({segments} segments{several}{lost})");
}
