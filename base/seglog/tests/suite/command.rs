//! The command, run on a log that has a writer.

use std::process::{Command, Output};

use seglog::{Log, Options};

fn seglog(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seglog")).args(arguments).output().expect("the command starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_lists_checks_and_writes_what_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a name");
    let mut log = Log::open(path, Options::default()).expect("a log");
    log.append(b"hello").expect("an append");
    log.append_at(10, b"a batch of more than sixteen bytes").expect("an append");

    let dump = seglog(&["dump", path]);
    let lines: Vec<String> = text(&dump).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("0 5 data time=") && lines[0].ends_with("bytes=68656c6c6f"), "{lines:?}");
    assert_eq!(lines[1], "5 10 hole");
    assert!(lines[2].starts_with("10 44 data") && lines[2].ends_with('…'), "{lines:?}");
    assert_eq!(text(&seglog(&["cat", path, "2", "17"])), "lloa batch");

    let verified = seglog(&["verify", path]);
    assert!(verified.status.success());
    assert!(text(&verified).ends_with("2 batches, 39 bytes, 5 in holes, 0 damaged\n"), "{}", text(&verified));

    // The second batch tells that the first one was durable.
    log.sync().expect("a sync");
    log.append(b"later").expect("an append");
    let segment = dir.path().join("00000000000000000000.seg");
    let mut bytes = std::fs::read(&segment).expect("the segment");
    bytes[64 + 48] ^= 1;
    std::fs::write(&segment, &bytes).expect("it is damaged");
    let verified = seglog(&["verify", path]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified).starts_with("damaged: 0 to 5\n"), "{}", text(&verified));

    // Nothing follows the last batch, whose end is known nevertheless.
    log.close().expect("it closes");
    let file = std::fs::File::options().write(true).open(&segment).expect("the segment");
    file.set_len(bytes.len() as u64 - 7).expect("it is cut");
    let verified = seglog(&["verify", path]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified).contains("missing at the end: 44 to 49\n"), "{}", text(&verified));
}

#[test]
fn errors_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a name");
    for arguments in
        [&["verify", path][..], &["dump", "/does/not/exist"], &["dump", path, "x"], &[], &["what"]]
    {
        let output = seglog(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let mut log = Log::open(&path, Options::default()).expect("a log");
    log.append(&[b'x'; 4096]).expect("an append");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1; exec \"$0\" cat \"$1\" >\"$2\"", env!("CARGO_BIN_EXE_seglog")]);
    let output = shell.arg(&path).arg(dir.path().join("out")).output().expect("a shell");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && error.contains("File too large"),
        "{:?} {error}",
        output.status
    );
}
