//! `rbmq man`: the manual pages, from what `--help` is made of.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;

use super::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq man | man -l -
  rbmq man /usr/local/share/man/man1")]
pub(super) struct Args {
    /// Folder to write one page for each command to; without it the page of rbmq goes to standard output
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Pages of commands that are not for people are left out.
pub(super) fn run(args: &Args, command: Command) -> Result<(), Failure> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).map_err(Failure::failed)?;
        return io::stdout().write_all(&page).map_err(|error| Failure::output(&error));
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .map_err(|error| Failure::Failed(format!("cannot write to {}: {error}", dir.display())))
}
