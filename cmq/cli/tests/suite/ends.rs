//! How each command ends when something is in its way.

use testkit::{Kind, check_ends, row};

use crate::command::receive;

#[test]
fn each_command_ends_whatever_is_in_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let ((_plain, plain_addr), (_reliable, reliable_addr)) =
        (receive(&["--quiet"]), receive(&["--reliable", "--quiet"]));
    check_ends(
        env!("CARGO_BIN_EXE_cmq"),
        &[
            row(Kind::Reads, format!("send {plain_addr}")),
            row(Kind::Reads, format!("send {reliable_addr} --reliable")),
            row(Kind::Waits, "receive 127.0.0.1:0"),
            row(Kind::Waits, "receive 127.0.0.1:0 --reliable"),
            row(Kind::Prints, "receive 127.0.0.1:0 --idle 0.1 --json"),
            row(Kind::Prints, "keygen NEW"),
            row(Kind::Prints, "completions bash"),
            row(Kind::Prints, "man"),
            row(Kind::Makes, "man NEW"),
        ],
        folder.path(),
    );
}
