//! ffmpeg pushes a live picture over RTMP to a node, which disseminates it to a delivery node over shared memory and over TCP; ffmpeg
//! takes five seconds of it as a player does.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{Running, rblive};
use testkit::own_addr;

/// Starts a node and returns the address that follows `before` in what it says.
fn serve(config: &Path, node: &str, before: &str) -> (Running, String) {
    let arguments = ["--node", node, "--rtmp", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--control", ""];
    let mut command = rblive();
    let command = command.arg("serve").arg("--config").arg(config).args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let running = Running(child);
    let rest = line.trim().split_once(before).unwrap_or_else(|| panic!("{line}")).1;
    (running, rest.split(['/', ';']).next().unwrap().to_owned())
}

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error"]);
    command
}

/// Five seconds of a stream, copied into a file. False while there is no such stream, or no segment of it.
fn take(url: &str, file: &Path) -> bool {
    let input = ["-tls_verify", "0", "-i", url, "-t", "5", "-c", "copy", "-y"];
    let output = ffmpeg().args(input).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("404 Not Found") || said.contains("5XX") {
        return false;
    }
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
    true
}

fn frames(file: &Path) -> u32 {
    let show = ["-select_streams", "v", "-count_frames", "-show_entries", "stream=nb_read_frames"];
    let output =
        Command::new("ffprobe").args(["-v", "error", "-of", "csv=p=0"]).args(show).arg(file).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn a_player_gets_what_an_encoder_pushes() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        eprintln!("SKIPPED: live video through rblive (there is no ffmpeg; apt-get install ffmpeg)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for transport in ["auto", "tcp"] {
        let port = own_addr();
        let config = folder.path().join(format!("{transport}.toml"));
        let text = format!(
            "transport = '{transport}'\n\
             [[nodes]]\nname = 'ingest'\nid = 1\nrole = 'dissemination'\n\
             [[nodes]]\nname = 'delivery'\nid = 2\nrole = 'delivery'\naddress = '{port}'\n\
             [[rules]]\nstreams = '*'\nnodes = ['delivery']\n"
        );
        std::fs::write(&config, text).unwrap();
        let (_delivery, viewers) = serve(&config, "delivery", "viewers at https://");
        let (_ingest, encoders) = serve(&config, "ingest", "encoders at rtmp://");
        let picture = ["-re", "-f", "lavfi", "-i", "testsrc=size=320x180:rate=25", "-t", "60"];
        let coding =
            ["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-pix_fmt", "yuv420p", "-f", "flv"];
        let push = format!("rtmp://{encoders}/live/camera");
        let _pushing = Running(ffmpeg().args(picture).args(coding).arg(push).spawn().unwrap());
        let (url, file) =
            (format!("https://{viewers}/live/camera/index.m3u8"), folder.path().join("taken.mp4"));
        let begun = Instant::now();
        while !take(&url, &file) {
            assert!(begun.elapsed() < Duration::from_secs(40), "no playlist appears");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!((120..=130).contains(&frames(&file)), "{transport}: {} frames", frames(&file));
    }
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn the_demonstration_can_be_watched_and_ends_in_order() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        eprintln!("SKIPPED: the demonstration of rblive (there is no ffmpeg; apt-get install ffmpeg)");
        return;
    }
    let mut command = rblive();
    let mut child = Running(command.arg("demo").stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let list = lines.find_map(|line| line.strip_prefix("The playlists: ").map(str::to_owned)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("taken.mp4");
    for url in [list, lines.next().unwrap().trim().to_owned()] {
        assert!(take(&url, &file), "{url} is there");
        assert!((120..=130).contains(&frames(&file)), "{} frames", frames(&file));
    }
    assert!(lines.any(|line| line.contains("delivery2: ") && line.contains(" ms old")));
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.0.wait().unwrap().success());
}
