//! The sections of the manual pages that `--help` does not define.

use clap::Command;
use commands::man::{Entry, Sections};

pub const SECTIONS: Sections = Sections { statuses, variables, files: |_| Vec::new() };

fn statuses(command: &Command) -> Vec<Entry> {
    let name = command.get_name();
    let waits = matches!(name, "serve" | "demo" | "rblive");
    let mut statuses = vec![
        ("0", if waits { "Success, also after SIGINT or SIGTERM." } else { "Success." }),
        ("1", "Failure, with a message."),
        ("2", "Wrong usage."),
    ];
    if waits {
        statuses.push(("130", "A second SIGINT ended the command at once."));
    }
    statuses
}

fn variables(command: &Command) -> Vec<Entry> {
    // The page of rblive itself lists the variables of all commands.
    let has = |name| {
        command.get_name() == "rblive"
            || command.get_arguments().any(|arg| arg.get_env().is_some_and(|own| own == name))
    };
    let mut variables = Vec::new();
    if has("RBLIVE_CONFIG") {
        variables.push(("RBLIVE_CONFIG", "Configuration file, without --config."));
    }
    if matches!(command.get_name(), "rblive" | "serve") {
        variables.push((
            "RBLIVE_CORE_DUMPS",
            "1: core dumps and debuggers are allowed although a node has tokens and keys.",
        ));
    }
    if has("DEMO_SECONDS") {
        variables.push(("DEMO_SECONDS", "When a demo ends, without --seconds."));
    }
    let log = "Log level on standard error: a level, or levels of parts as in info,rblive_ingest=debug.";
    variables
        .extend([("RBLIVE_LOG", log), ("NO_COLOR", "If it is set and not empty, output has no colours.")]);
    variables
}
