//! The command `nic-sim` as a user runs it.

use std::process::{Command, Output};

fn nic_sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nic-sim")).args(args).output().expect("the command is built")
}

#[test]
fn it_needs_root_and_its_simulator() {
    let ended = nic_sim(&["--simulator", "/nowhere/nic_tap"]);
    let error = String::from_utf8(ended.stderr).expect("text");
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0), "{error}");
    let expected = match rustix::process::geteuid().is_root() {
        true => "/nowhere/nic_tap: there is no simulator; `scripts/nic setup tap`",
        false => "only root can: start it with sudo",
    };
    assert!(error.contains(expected), "{error}");
}

#[test]
fn help_shows_each_option_and_an_example() {
    let help = nic_sim(&["--help"]);
    let text = String::from_utf8(help.stdout).expect("text");
    assert!(
        help.status.success() && text.contains("Examples:") && text.contains("MULTIMQC_NIC_SIM"),
        "{text}"
    );
}

/// The examples that help shows are commands with arguments that there are.
#[test]
fn examples_of_help_are_accepted() {
    let help = String::from_utf8(nic_sim(&["--help"]).stdout).expect("text");
    let examples: Vec<&str> =
        help.lines().filter_map(|line| Some(line.split_once("sudo nic-sim")?.1)).collect();
    assert_eq!(examples.len(), 3, "{help}");
    for example in examples {
        // Behind `--` are arguments of another command. With --help the others are parsed, and nothing is done.
        let words = example.split_whitespace().take_while(|word| *word != "--").chain(["--help"]);
        let run = nic_sim(&words.collect::<Vec<_>>());
        assert!(run.status.success(), "{example:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
}
