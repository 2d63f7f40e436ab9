//! The program `apple.py` beside this file, which reads playlists with a parser that is not this project's.

use std::process::Command;

use testkit::skip;

use super::say;

/// Follows the playlists for that many seconds. The test is skipped where there is no parser.
pub fn check(url: &str, seconds: u32, options: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/players/apple.py");
    let Some(parser) = std::env::var_os("M3U8").filter(|path| !path.is_empty()) else {
        return skip("Apple's rules by another parser (the variable M3U8 names no package m3u8 of PyPI)");
    };
    let mut command = Command::new("python3");
    let command = command.env("PYTHONPATH", parser).env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    let output = command.args(options).arg(url).arg(seconds.to_string()).output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    say(said.trim_end());
}
