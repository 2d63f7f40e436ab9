//! The sections of the manual pages that `--help` does not define.

use clap::{Arg, Command};
use commands::man::{Entry, Sections};

pub(super) const SECTIONS: Sections = Sections { statuses, variables, files };

fn statuses(command: &Command) -> Vec<Entry> {
    let name = command.get_name();
    let done = match name {
        "serve" | "gateway" | "pub" | "sub" | "top" => "Success, also after SIGINT or SIGTERM.",
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
    if matches!(name, "serve" | "gateway" | "pub" | "sub" | "top" | "rbmq") {
        statuses.push(("130", "A second SIGINT ended the command at once."));
    }
    statuses
}

fn variables(command: &Command) -> Vec<Entry> {
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
    if has(|arg| arg.get_id() == "token_file") {
        variables.push(("RBMQ_USER", "User to log in as, without --user and a token."));
        variables.push(("RBMQ_PASSWORD", "Password of the user, without --password-file."));
        variables.push(("RBMQ_TOKEN", "Token to log in with, without --user and --token-file."));
    }
    if has(|arg| arg.get_env().is_some_and(|name| name == "RBMQ_USERS")) {
        variables.push(("RBMQ_USERS", "File of a broker's users, without --users."));
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
    if has(|arg| matches!(arg.get_id().as_str(), "users" | "token_file")) {
        variables.push((
            "RBMQ_CORE_DUMPS",
            "1: core dumps and debuggers are allowed although the process has passwords, tokens or keys.",
        ));
    }
    variables.push(("NO_COLOR", "If it is set and not empty, output has no colours."));
    variables
}

fn files(command: &Command) -> Vec<Entry> {
    const PACKAGED: Entry = (
        "/etc/rbmq/rbmq.toml",
        "The configuration of a packaged broker's unit. It is read if --config names it.",
    );
    const DEFAULTS: Entry =
        ("/etc/default/rbmq", "Variables of a packaged broker's unit, as ROCKETBUFS_TCP_NODELAY=false.");
    const STATE: Entry = (
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
