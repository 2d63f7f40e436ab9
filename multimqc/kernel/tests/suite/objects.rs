//! The committed objects are those that the sources of multimqc/bpf/ compile to.

use std::path::Path;
use std::process::Command;

use crate::common;

/// The compiler whose output is committed. Another one makes other objects of the same sources.
const COMPILER: &str = "19.1.7";

#[test]
#[ignore = "long: needs clang 19"]
fn objects_are_what_the_sources_compile_to() {
    let version = match Command::new("clang-19").arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            return common::skip(&format!(
                "the objects of multimqc/bpf/ were not compiled again: clang-19: {error}"
            ));
        }
    };
    if !version.contains(COMPILER) {
        return common::skip(&format!(
            "the objects of multimqc/bpf/ were not compiled again: clang is not {COMPILER}"
        ));
    }
    if !Path::new("/usr/include/bpf/bpf_helpers.h").exists()
        || Command::new("llvm-strip-19").arg("-V").output().is_err()
    {
        return common::skip(
            "the objects of multimqc/bpf/ were not compiled again: libbpf-dev or llvm-19 is missing",
        );
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf");
    let output = Command::new("make").args(["-C", folder, "check"]).output().expect("make runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "run `make -C multimqc/bpf` and commit the objects\n{text}");
}
