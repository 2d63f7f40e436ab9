//! The sections of the manual pages that `--help` does not define.

use clap::Command;
use commands::man::{Entry, Sections};

pub const SECTIONS: Sections = Sections { statuses, variables, files: |_| Vec::new() };

fn variables(command: &Command) -> Vec<Entry> {
    if !matches!(command.get_name(), "serve" | "multimqc") {
        return Vec::new();
    }
    let log =
        "serve: log level on standard error: a level, or levels of parts as in warn,multimqc_kernel=debug.";
    vec![("MULTIMQC_LOG", log), ("NO_COLOR", "If it is set and not empty, the log has no colours.")]
}

fn statuses(command: &Command) -> Vec<Entry> {
    let name = command.get_name();
    let waits = matches!(name, "serve" | "push" | "pull" | "stat" | "multimqc");
    let mut statuses = vec![
        ("0", if waits { "Success, also after SIGINT or SIGTERM." } else { "Success." }),
        ("1", "Failure, with a message about the cause and a remedy."),
        ("2", "Wrong usage."),
    ];
    if matches!(name, "pull" | "multimqc") {
        statuses.push(("3", "pull: bytes are missing, or were not written yet."));
    }
    if waits {
        statuses.push(("130", "A second SIGINT ended the command at once."));
    }
    statuses
}
