//! ffmpeg pushes a live picture over RTMP to a node, which disseminates it to a delivery node over shared memory and over TCP; ffmpeg
//! takes five seconds of it as a player does.

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Process, has, own_addr, until};

use crate::process::{Serving, ffmpeg, rblive, serve};

/// Starts a node with listeners at any ports.
fn start(config: &Path, node: &str) -> Serving {
    let mut command = serve(config);
    command.args(["--node", node, "--rtmp", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--control", ""]);
    Serving::start(command)
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
    if !has("ffmpeg", "live video through rblive") {
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
        let (delivery, ingest) = (start(&config, "delivery"), start(&config, "ingest"));
        let picture = ["-re", "-f", "lavfi", "-i", "testsrc=size=320x180:rate=25", "-t", "600"];
        let coding =
            ["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-pix_fmt", "yuv420p", "-f", "flv"];
        let mut push = ffmpeg();
        push.args(picture).args(coding);
        push.arg(format!("rtmp://{}/live/camera", ingest.address("encoders at rtmp://")));
        let _pushing = Process::start(push);
        let viewers = delivery.address("viewers at https://");
        let (url, file) =
            (format!("https://{viewers}/live/camera/index.m3u8"), folder.path().join("taken.mp4"));
        until("a playlist appears", || take(&url, &file));
        assert!((120..=130).contains(&frames(&file)), "{transport}: {} frames", frames(&file));
    }
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn the_demonstration_can_be_watched_and_ends_in_order() {
    if !has("ffmpeg", "the demonstration of rblive") {
        return;
    }
    let mut command = rblive();
    command.arg("demo").stdout(Stdio::piped());
    let mut demo = Process::start(command);
    let mut lines = demo.stdout().lines().map(Result::unwrap);
    let list = lines.find_map(|line| line.strip_prefix("The playlists: ").map(str::to_owned)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("taken.mp4");
    for url in [list, lines.next().unwrap().trim().to_owned()] {
        assert!(take(&url, &file), "{url} is there");
        assert!((120..=130).contains(&frames(&file)), "{} frames", frames(&file));
    }
    assert!(lines.any(|line| line.contains("delivery2: ") && line.contains(" ms old")));
    demo.signal("INT");
    demo.finish().good();
}
