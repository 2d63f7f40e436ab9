//! How each command ends when something is in its way.

use testkit::{Kind, check_ends, row};

use crate::common::{Server, push};

#[test]
fn each_command_ends_whatever_is_in_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--levels", "user"]);
    push(&server, "one\ntwo\n");
    let Server { address, control, .. } = &server;
    check_ends(
        env!("CARGO_BIN_EXE_multimqc"),
        &[
            row(Kind::Serves, "serve --levels user --topic 1 --port 0 --control NEW"),
            row(Kind::Serves, "serve --levels user --topic 1 --port 0 --control NEW --stats 1ms"),
            row(
                Kind::Serves,
                "serve --levels user,disk --topic 1 --port 0 --control NEW --directory NEW-disk",
            ),
            row(Kind::Reads, format!("push --server {address}")),
            row(Kind::Does, format!("push --server {address} --count 2")),
            row(Kind::Prints, format!("pull --server {address}")),
            row(Kind::Follows, format!("pull --server {address} --follow")),
            row(Kind::Prints, format!("stat --control {control} --interval 100ms")),
            row(Kind::Prints, "detach NEW"),
            row(Kind::Prints, "config"),
            row(Kind::Prints, "completions bash"),
            row(Kind::Prints, "man"),
            row(Kind::Makes, "man NEW"),
        ],
        folder.path(),
    );
}
