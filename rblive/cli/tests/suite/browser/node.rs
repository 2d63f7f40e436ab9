//! The demonstration, nodes and encoders for the browser's tests.

use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;

use chromium::Browser;
use testkit::{Process, has};

use crate::process::{self, Serving, ffmpeg, rblive, write_own};

/// A browser window for a test, unless there is none here, or no encoder.
pub fn browser(width: u32, height: u32) -> Option<Browser> {
    has("ffmpeg", "the pages in a browser").then(|| Browser::open(width, height)).flatten()
}

/// A running `rblive demo`.
pub struct Demo {
    pub page: String,
    pub control: String,
    _process: Process,
}

pub fn demo() -> Demo {
    let mut command = rblive();
    command.arg("demo").stdout(Stdio::piped());
    let mut process = Process::start(command);
    let mut lines = process.stdout().lines().map(Result::unwrap);
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
    _process: Process,
}

/// A node for encoders and viewers, with these lines in its configuration.
pub fn serve(folder: &Path, lines: &str) -> Node {
    let file = folder.join("node.toml");
    write_own(&file, &format!("{lines}\n[[rules]]\nstreams = '*'\nnodes = ['local']\n"));
    let mut command = process::serve(&file);
    command.args(["--control", "--listen", "--rtmp"].map(|option| [option, "127.0.0.1:0"]).as_flattened());
    let node = Serving::start(command);
    let control = format!("http://{}/", node.address("metrics at http://"));
    Node {
        page: node.after("viewers at "),
        control,
        rtmp: node.after("encoders at "),
        _process: node.process,
    }
}

/// How ffmpeg codes what is not decoded but shown.
pub const CODING: &str =
    "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -c:a aac -f flv";

/// Runs ffmpeg in real time with a picture and a tone, and these options.
pub fn encode(options: &str, to: &[&str]) -> Process {
    let input = "-re -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440";
    let mut command = ffmpeg();
    command.args(input.split(' ')).args(options.split_whitespace()).args(to);
    Process::start(command)
}

impl Node {
    /// Where an encoder publishes a stream.
    pub fn encoders(&self, name: &str) -> String {
        self.rtmp.replace("NAME", name)
    }

    /// The host and the port for encoders.
    pub fn rtmp(&self) -> &str {
        self.rtmp.trim_start_matches("rtmp://").split('/').next().unwrap()
    }

    /// An encoder that publishes a stream until it is dropped.
    pub fn publish(&self, name: &str) -> Process {
        encode(CODING, &[&self.encoders(name)])
    }

    /// An encoder that publishes a picture of 320x180 and the same one of 160x90.
    pub fn publish_two(&self, names: [&str; 2]) -> Process {
        let coding = format!("-map 0:v -map 1:a -sc_threshold 0 {CODING}");
        let [high, low] = names.map(|name| self.encoders(name));
        let small: Vec<&str> = ["-s", "160x90"].into_iter().chain(coding.split(' ')).collect();
        encode(&coding, &[&[&*high], &small[..], &[&*low]].concat())
    }
}
