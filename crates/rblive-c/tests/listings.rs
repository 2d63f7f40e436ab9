//! Paper 3's listings in C++, compiled against the library.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder into which the static library is built.
fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(folder.join("target"), PathBuf::from);
    let built = Command::new(env!("CARGO"))
        .args(["build", "--locked", "-p", "rblive-c"])
        .current_dir(&folder)
        .status();
    assert!(built.unwrap().success());
    target.join("debug")
}

#[test]
fn the_listings_of_the_paper_run() {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if Command::new(&compiler).arg("--version").output().is_err() {
        writeln!(std::io::stderr(), "SKIPPED: the C++ API of RBLive (there is no C++ compiler)")
            .expect("standard error");
        return;
    }
    let (folder, scratch) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    let program = scratch.path().join("listings");
    let compiled = Command::new(compiler)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(folder.join("../../include"))
        .arg(folder.join("tests/cpp/listings.cpp"))
        .arg("-L")
        .arg(library())
        .args(["-lrocketstreams", "-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nodes = format!(
        "[[nodes]]\nname = 'ingest'\nid = 1\nrole = 'dissemination'\n\
         [[nodes]]\nname = 'delivery'\nid = 2\nrole = 'delivery'\naddress = '{port}'\n"
    );
    let file = |name: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, format!("node = '{name}'\n{nodes}")).unwrap();
        path
    };
    let output = Command::new(&program).args([file("ingest"), file("delivery")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("no node 9"), "{said}");
}
