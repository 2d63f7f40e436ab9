//! Manual pages from the definitions of `--help`, with the other sections that a manual page has.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::failure::Failure;
use crate::output::print;

/// The arguments of a subcommand `man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for one page per command; without it, the page of the program goes to standard output
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A word of a section, as an exit status or the name of a variable, and its meaning.
pub type Entry = (&'static str, &'static str);

/// The sections of a page that `--help` does not define, each by the command whose page it is. A section without entries is left
/// out.
#[derive(Debug, Clone, Copy)]
pub struct Sections {
    /// EXIT STATUS
    pub statuses: fn(&Command) -> Vec<Entry>,
    /// ENVIRONMENT
    pub variables: fn(&Command) -> Vec<Entry>,
    /// FILES
    pub files: fn(&Command) -> Vec<Entry>,
}

impl Default for Sections {
    /// No sections.
    fn default() -> Self {
        Self { statuses: |_| Vec::new(), variables: |_| Vec::new(), files: |_| Vec::new() }
    }
}

/// Writes the pages. Hidden commands have none. The examples of a command's `after_help`, which are indented by two spaces, are a
/// section of their own; a paragraph that begins with `Exit status:` is left out.
///
/// # Errors
/// If the folder or standard output cannot be written to.
pub fn run(args: &Args, command: Command, sections: &Sections) -> Result<(), Failure> {
    // Each page ends with the version, also that of a command of a command.
    let mut command = command.disable_help_subcommand(true).propagate_version(true);
    // Gives the commands of commands their full names.
    command.build();
    let Some(dir) = &args.dir else {
        return print(page(&command, sections)?);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| write_all(&command, sections, dir))
        .map_err(|error| Failure::Failed(format!("cannot write to {}: {error}", dir.display())))
}

fn write_all(command: &Command, sections: &Sections, dir: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(command, sections, dir)?;
    }
    std::fs::write(dir.join(Man::new(command.clone()).get_filename()), page(command, sections)?)
}

fn page(command: &Command, sections: &Sections) -> io::Result<Vec<u8>> {
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
    section(&mut roff, "EXIT STATUS", &(sections.statuses)(command));
    section(&mut roff, "ENVIRONMENT", &(sections.variables)(command));
    section(&mut roff, "FILES", &(sections.files)(command));
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
fn section(roff: &mut Roff, title: &str, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    roff.control("SH", [title]);
    for (word, meaning) in entries {
        roff.control("TP", []).text([bold(*word)]).text([roman(*meaning)]);
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

    #[test]
    fn commands_of_commands_have_pages() {
        let folder = std::env::temp_dir().join(format!("commands-man-{}", std::process::id()));
        let command = Command::new("clock").version("1").subcommand(Command::new("wind").about("Wind it up"));
        let args = Args { dir: Some(folder.clone()) };
        run(&args, command, &Sections::default()).unwrap();
        let page = std::fs::read_to_string(folder.join("clock-wind.1")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(page.contains(".TH clock-wind 1") && page.contains("Wind it up"), "{page}");
    }

    #[test]
    fn a_page_has_only_sections_with_entries() {
        let command = Command::new("clock").version("1").after_help("Example:\n  clock | date");
        let sections = Sections { statuses: |_| vec![("0", "Success.")], ..Sections::default() };
        let text = String::from_utf8(page(&command, &sections).unwrap()).unwrap();
        let found: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert_eq!(
            found,
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "EXAMPLES", "VERSION"]
        );
        assert!(text.contains("Success.") && text.contains("clock | date"), "{text}");
    }
}
