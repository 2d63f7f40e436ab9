//! `rbmq man`: manual pages from the definitions of `--help`, with the other sections of a manual page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq man | man -l -
  rbmq man /usr/local/share/man/man1")]
pub(super) struct Args {
    /// Folder for one page per command; without it, the page of rbmq goes to standard output
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes the pages. Hidden commands have none.
pub(super) fn run(args: &Args, command: Command) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = &args.dir else {
        return io::stdout()
            .write_all(&page(&command).map_err(Failure::failed)?)
            .map_err(|e| Failure::output(&e));
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| write_all(&command, dir))
        .map_err(|error| Failure::Failed(format!("cannot write to {}: {error}", dir.display())))
}

fn write_all(command: &Command, dir: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(command, dir)?;
    }
    std::fs::write(dir.join(Man::new(command.clone()).get_filename()), page(command)?)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes) = parts(&help);
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        for note in notes {
            roff.text([roman(note)]).control("PP", []);
        }
    }
    section(&mut roff, "EXIT STATUS", &statuses(command));
    section(&mut roff, "ENVIRONMENT", &variables(command));
    section(&mut roff, "FILES", &files(command));
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for example in examples {
            roff.text([roman(example)]);
        }
        roff.control("fi", []);
    }
    roff.to_writer(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// The examples and the paragraphs below a command's help. Exit statuses have a section of their own.
fn parts(help: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut examples, mut notes) = (Vec::new(), Vec::new());
    for paragraph in help.split("\n\n") {
        match paragraph.split_once('\n') {
            Some((_, lines)) if lines.starts_with("  ") => examples.extend(lines.lines().map(str::trim)),
            _ if paragraph.is_empty() || paragraph.starts_with("Exit status:") => {}
            _ => notes.push(paragraph),
        }
    }
    (examples, notes)
}

/// A section with words and their meanings.
fn section(roff: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (word, meaning) in entries {
        roff.control("TP", []).text([bold(*word)]).text([roman(*meaning)]);
    }
}

fn statuses(command: &Command) -> Vec<(&'static str, &'static str)> {
    let name = command.get_name();
    let done = match name {
        "serve" | "pub" | "sub" | "top" => "Success, also after SIGINT or SIGTERM.",
        "check" => "No check is bad. There may be warnings.",
        _ => "Success.",
    };
    let failed = match name {
        "check" => "A check is bad, or failed.",
        "pub" => {
            "Failure, with a message. Also if a signal ended the command before everything was published."
        }
        _ => "Failure, with a message about the cause and a remedy.",
    };
    let mut statuses = vec![("0", done), ("1", failed), ("2", "Wrong usage.")];
    if matches!(name, "sub" | "rbmq") {
        let lost =
            "sub: messages are missing: some were lost, or a publisher ended without closing its topic.";
        statuses.push(("3", lost));
    }
    if matches!(name, "serve" | "pub" | "sub" | "top" | "rbmq") {
        statuses.push(("130", "A second SIGINT ended the command at once."));
    }
    statuses
}

fn variables(command: &Command) -> Vec<(&'static str, &'static str)> {
    // The page of rbmq itself lists the variables of all commands.
    let all = command.get_name() == "rbmq";
    let has = |wanted: fn(&Arg) -> bool| all || command.get_arguments().any(wanted);
    let mut variables = Vec::new();
    if has(|arg| arg.get_id() == "broker") {
        variables.push(("RBMQ_BROKER", "Address of the broker, without --broker."));
    }
    if has(|arg| arg.get_env().is_some_and(|name| name == "RBMQ_CONFIG")) {
        variables.push(("RBMQ_CONFIG", "Configuration file of a broker, without --config."));
    }
    variables.push((
        "RBMQ_LOG",
        "Log level on standard error, with precedence over -v and -q: a level, or levels of parts as in info,rocketnet=debug.",
    ));
    if has(|arg| arg.get_id() == "config") {
        variables.push((
            "ROCKETBUFS_SECTION_FIELD",
            "A setting of RocketBufs, with precedence over the file, as in ROCKETBUFS_TCP_NODELAY=false.",
        ));
    }
    variables.push(("NO_COLOR", "If it is set and not empty, output has no colours."));
    variables
}

fn files(command: &Command) -> Vec<(&'static str, &'static str)> {
    const PACKAGED: (&str, &str) = (
        "/etc/rbmq/rbmq.toml",
        "The configuration of a packaged broker's unit. It is read if --config names it.",
    );
    const DEFAULTS: (&str, &str) =
        ("/etc/default/rbmq", "Variables of a packaged broker's unit, as ROCKETBUFS_TCP_NODELAY=false.");
    const STATE: (&str, &str) = (
        "FILE.rbmq-state",
        "Beside each file of sub --output: the length of the file that counts, and its positions in the topic.",
    );
    match command.get_name() {
        "rbmq" => vec![PACKAGED, DEFAULTS, STATE],
        "serve" => vec![PACKAGED, DEFAULTS],
        "config" => vec![PACKAGED],
        "check" => vec![PACKAGED, ("/proc, /sys", "The state of the system.")],
        "sub" => vec![STATE],
        _ => vec![("none", "Only files that arguments name are read or written.")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_split_into_examples_and_notes() {
        let help = "Examples:\n  a\n  b | c\n\nA note.\nOf two lines.\n\nExit status: 0.";
        assert_eq!(parts(help), (vec!["a", "b | c"], vec!["A note.\nOf two lines."]));
        assert_eq!(parts(""), (vec![], vec![]));
    }
}
