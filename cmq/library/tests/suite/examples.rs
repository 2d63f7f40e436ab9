//! The examples, run as programs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[test]
fn figures_two_and_three_of_the_paper() {
    // Tests are built into `deps`, the examples beside it.
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.parent().expect("the test program has a folder").with_file_name("examples");
    let example = |name: &str, addr: &str| {
        let mut command = Command::new(folder.join(name));
        command.arg(addr).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("cargo builds examples with the tests")
    };
    let mut receiver = example("cmq_receive", "127.0.0.1:0");
    let mut line = String::new();
    BufReader::new(receiver.stderr.take().expect("piped")).read_line(&mut line).expect("where it is");
    let addr = line.trim().strip_prefix("receiving at ").expect("its address");
    assert!(example("cmq_send", addr).wait().expect("the process ends").success());
    let mut out = String::new();
    receiver.stdout.take().expect("piped").read_to_string(&mut out).expect("the receiver's output");
    assert!(receiver.wait().expect("the process ends").success());
    let numbers: Vec<u64> =
        out.split_whitespace().filter_map(|w| w.trim_end_matches(':').parse().ok()).collect();
    let [sent, received, lost] = numbers[..] else { panic!("{out}") };
    assert_eq!((sent, received + lost), (10_000, 10_000), "{out}");
}
