//! The demonstration, nodes and encoders for the browser's tests.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::driver::Browser;
use crate::process::Running;

/// A browser window for a test, unless there is none here, or no encoder.
pub fn browser(width: u32, height: u32) -> Option<Browser> {
    let encodes = Command::new("ffmpeg").arg("-version").output().is_ok();
    let browser = encodes.then(|| Browser::open(width, height)).flatten();
    if browser.is_none() {
        let needs = "chromedriver with Chromium, and ffmpeg (scripts/setup --tests)";
        writeln!(std::io::stderr(), "SKIPPED: the pages in a browser need {needs}").expect("standard error");
    }
    browser
}

/// A running `rblive demo`.
pub struct Demo {
    pub page: String,
    pub control: String,
    _process: Running,
}

pub fn demo() -> Demo {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rblive"));
    let mut process = Running(command.arg("demo").stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut address = |before: &str| {
        let found = lines.find_map(|line| {
            let rest = line.strip_prefix(before)?.trim();
            Some(rest.split(' ').next().unwrap().to_owned())
        });
        found.unwrap_or_else(|| panic!("the demonstration says '{before}'"))
    };
    let (page, control) = (address("The page:"), address("Control:"));
    std::thread::spawn(move || lines.for_each(drop));
    Demo { page, control, _process: process }
}

/// A running node.
pub struct Node {
    pub page: String,
    pub control: String,
    rtmp: String,
    _process: Running,
}

/// A node for encoders and viewers, with these lines in its configuration.
pub fn serve(folder: &Path, lines: &str) -> Node {
    let file = folder.join("node.toml");
    std::fs::write(&file, format!("{lines}\n[[rules]]\nstreams = '*'\nnodes = ['local']\n")).unwrap();
    // A file with tokens must not be readable by everybody.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let addresses = ["--control", "--listen", "--rtmp"].map(|option| [option, "127.0.0.1:0"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rblive"));
    command.arg("serve").arg("--config").arg(&file).args(addresses.as_flattened());
    let mut process = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let after = |before: &str| {
        let rest = line.trim().split_once(before).unwrap_or_else(|| panic!("{before}: {line}")).1;
        rest.split(';').next().unwrap().to_owned()
    };
    let control = format!("http://{}/", after("metrics at http://"));
    Node { page: after("viewers at "), control, rtmp: after("encoders at "), _process: process }
}

impl Node {
    /// Where an encoder publishes a stream.
    pub fn encoders(&self, name: &str) -> String {
        self.rtmp.replace("NAME", name)
    }

    /// An encoder that publishes a stream until it is dropped.
    pub fn publish(&self, name: &str) -> Running {
        let input =
            "-nostdin -v error -re -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440";
        let coding =
            "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -c:a aac -f flv";
        let mut command = Command::new("ffmpeg");
        command.args(input.split(' ')).args(coding.split(' ')).arg(self.encoders(name));
        Running(command.spawn().unwrap())
    }
    /// An encoder that publishes a picture of 320x180 and the same one of 160x90.
    pub fn publish_two(&self, [high, low]: [&str; 2]) -> Running {
        let input =
            "-nostdin -v error -re -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440";
        let coding = "-map 0:v -map 1:a -c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -sc_threshold 0 \
                      -c:a aac -f flv";
        let coding = || coding.split_whitespace();
        let mut command = Command::new("ffmpeg");
        command.args(input.split(' ')).args(coding()).arg(self.encoders(high));
        command.args(["-s", "160x90"]).args(coding()).arg(self.encoders(low));
        Running(command.spawn().unwrap())
    }
}
