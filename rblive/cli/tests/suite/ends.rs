//! How each command ends when something is in its way.

use testkit::{Kind, check_ends, row};

use crate::process::write_own;

#[test]
fn each_command_ends_whatever_is_in_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let (node, recordings) = (folder.path().join("node.toml"), folder.path().join("recordings"));
    std::fs::create_dir(&recordings).unwrap();
    write_own(&node, "[deliver]\ntoken_key = 'a long secret of 32 bytes at least'\n");
    let (node, recordings) = (node.display(), recordings.display());
    check_ends(
        env!("CARGO_BIN_EXE_rblive"),
        &[
            row(
                Kind::Serves,
                "serve --rtmp 127.0.0.1:0 --http 127.0.0.1:0 --listen 127.0.0.1:0 --control 127.0.0.1:0",
            ),
            // Its encoder is another program, which is not everywhere.
            row(Kind::Prints, "demo --help"),
            row(Kind::Does, format!("kept {recordings}")),
            // An etcd is not everywhere.
            row(Kind::Prints, "cluster members --help"),
            row(Kind::Prints, "cluster drain --help"),
            row(Kind::Prints, "cluster undrain --help"),
            row(Kind::Prints, format!("token live/camera --config {node}")),
            row(Kind::Asks, "password"),
            row(Kind::Prints, "config"),
            row(Kind::Prints, "completions bash"),
            row(Kind::Prints, "man"),
            row(Kind::Makes, "man NEW"),
        ],
        folder.path(),
    );
}
