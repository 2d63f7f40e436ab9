//! The command `multimqc-bench`, with `multimqc` beside it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_multimqc-bench"));
    let beside = program.with_file_name("multimqc");
    assert!(std::env::var_os("MULTIMQC").is_some() || beside.is_file(), "first: cargo build -p multimqc-cli");
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command is built")
}

fn fails(args: &[&str], status: i32, words: &str) {
    let failed = output(&mut bench(args));
    let error = String::from_utf8(failed.stderr).expect("text");
    assert_eq!(failed.status.code(), Some(status), "{args:?}: {error}");
    assert!(error.contains(words), "{args:?}: {error}");
}

/// Each system of the bench runs, and its rows have all fields.
#[test]
fn the_bench_measures_every_system() {
    let folder = tempfile::tempdir().expect("a folder");
    for (part, fields) in
        [("write", &["batch_bytes", "cpu_ns_per_message"][..]), ("read", &["rtt_p50_us", "rtt_p99_us"])]
    {
        let file = folder.path().join(part);
        let args = [part, "--seconds", "0.05", "--reps", "1", "--payloads", "32", "--json"];
        let run = output(bench(&args).arg(&file));
        assert!(run.status.success(), "{run:?}");
        let rows: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).expect("rows")).expect("JSON");
        let rows = rows.as_array().expect("a list");
        for system in ["standalone", "multimqc"] {
            assert!(rows.iter().any(|row| row["system"] == system && row["part"] == part), "{rows:?}");
        }
        let all = ["level", "mode", "payload_bytes", "rep", "messages_per_s", "lost"];
        for row in rows {
            assert!(all.iter().chain(fields).all(|field| row.get(field).is_some()), "{row}");
        }
    }
}

/// A broker that does not start costs its own rows alone, and the status says so.
#[test]
fn the_bench_goes_on_without_a_broker() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows");
    let args = "read --seconds 0.05 --reps 1 --payloads 32 --only standalone;kafka --broker false --json";
    let run = output(bench(&args.split(' ').collect::<Vec<_>>()).arg(&file));
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(1) && error.contains("1 rows are missing beside 1: kafka"), "{error}");
    assert!(std::fs::read_to_string(&file).expect("rows").contains("standalone"));
}

/// Where frames can be sent, they arrive at every system, and the kernel's level answers them.
#[test]
fn the_bench_sends_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows");
    for (part, more) in [("write", &[][..]), ("read", &["--placements", "everywhere"])] {
        let args = [part, "--generator", "frames", "--seconds", "0.05", "--reps", "1", "--payloads", "32"];
        let run = output(bench(&args).args(more).arg("--json").arg(&file));
        let error = String::from_utf8_lossy(&run.stderr);
        if needs_rights(&error) {
            let said = writeln!(std::io::stderr(), "SKIPPED: the bench with frames ({})", error.trim());
            return said.expect("standard error");
        }
        assert!(run.status.success(), "{run:?}");
        let rows: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).expect("rows")).expect("JSON");
        for row in rows.as_array().expect("a list").iter().filter(|row| row["mode"] == "xdp-native") {
            assert!(row["sent"].as_u64() > row["lost"].as_u64(), "{row}");
        }
    }
    fails(&["read", "--generator", "frames", "--payloads", "4"], 1, "frames pull 22 or more");
}

/// Every processor writes at once, into a ring that is overwritten before it is read, and into one that is not.
#[test]
fn the_bench_finds_nothing_torn() {
    let run = output(&mut bench(&["check", "--seconds", "0.3", "--rings", "4096,67108864"]));
    let error = String::from_utf8_lossy(&run.stderr);
    if needs_rights(&error) {
        let said = writeln!(std::io::stderr(), "SKIPPED: the check of the bench ({})", error.trim());
        return said.expect("standard error");
    }
    assert!(run.status.success(), "{run:?}");
}

/// Whether the bench has said that this process may not send frames.
fn needs_rights(error: &str) -> bool {
    error.contains("frames are sent as root only")
}

/// The examples that help shows are commands with arguments that there are.
#[test]
fn examples_of_help_are_accepted() {
    let mut checked = 0;
    for command in [&["--help"][..], &["check", "--help"]] {
        let help = String::from_utf8(output(&mut bench(command)).stdout).expect("text");
        for example in help.lines().filter_map(|line| line.split_once("  ")?.1.split_once("multimqc-bench "))
        {
            // With --help the other arguments are parsed, and nothing is done.
            let words: Vec<&str> = example.1.split_whitespace().map(|word| word.trim_matches('\'')).collect();
            let run = output(bench(&words).arg("--help"));
            assert!(run.status.success(), "{words:?}: {}", String::from_utf8_lossy(&run.stderr));
            checked += 1;
        }
    }
    assert!(checked >= 5, "{checked} examples");
}
