//! `rblive man`: manual pages from the definitions of `--help`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use super::failure::Failure;

/// Writes the page of the command, or one page for each command into a folder.
pub fn run(dir: Option<PathBuf>, command: Command) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).map_err(Failure::failed)?;
        return io::stdout().write_all(&page).map_err(|error| Failure::output(&error));
    };
    std::fs::create_dir_all(&dir)
        .and_then(|()| write_all(&command, &dir))
        .map_err(|error| Failure::Failed(format!("cannot write to {}: {error}", dir.display())))
}

fn write_all(command: &Command, dir: &Path) -> io::Result<()> {
    for command in command.get_subcommands() {
        write_all(command, dir)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    std::fs::write(dir.join(man.get_filename()), page)
}
