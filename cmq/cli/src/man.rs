//! The sections of the manual pages that `--help` does not define.

use clap::Command;
use commands::man::{Entry, Sections};

pub const SECTIONS: Sections = Sections { statuses, variables, files: |_| Vec::new() };

fn variables(command: &Command) -> Vec<Entry> {
    match command.get_name() {
        "completions" | "man" => Vec::new(),
        _ => vec![(
            "CMQ_CORE_DUMPS",
            "1: core dumps and debuggers are allowed although the process has a secret key.",
        )],
    }
}

fn statuses(command: &Command) -> Vec<Entry> {
    let mut statuses = vec![("0", "Success."), ("1", "Failure, with a message."), ("2", "Wrong usage.")];
    if matches!(command.get_name(), "receive" | "cmq") {
        statuses[0].1 = "Success, also after SIGINT or SIGTERM of receive.";
        statuses.push(("3", "receive --strict: messages were lost."));
        statuses.push(("130", "receive: a second SIGINT ended the command at once."));
    }
    statuses
}
