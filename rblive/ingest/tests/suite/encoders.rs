//! Real encoders push a stream; the chunks that come out are a file with the same frames. Skipped without ffmpeg.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use rblive::content::{Flags, Kind};

use crate::node::{KEY, Node};

const FRAMES: usize = 60;

impl Node {
    /// Waits for the stream's end and gives its media as a file.
    fn file(&self) -> PathBuf {
        self.wait_for_end();
        let chunks = self.chunks.lock().unwrap();
        let of = |kind: Kind| chunks.iter().filter(move |(header, _)| header.kind == kind);
        let mut bytes = of(Kind::Init).next().unwrap().1.clone();
        for (header, payload) in of(Kind::Media) {
            assert!(header.part > 0 || header.flags.contains(Flags::FIRST_PART | Flags::INDEPENDENT));
            bytes.extend(payload);
        }
        let file = self.folder.path().join("received.mp4");
        std::fs::write(&file, bytes).unwrap();
        file
    }
}

fn missing() -> bool {
    let found = Command::new("ffmpeg").arg("-version").output().is_ok_and(|output| output.status.success());
    if !found {
        writeln!(std::io::stderr(), "SKIPPED: ffmpeg is not installed (scripts/setup --tests)")
            .expect("standard error");
    }
    !found
}

/// Pushes two seconds of H.264 and AAC in real time.
fn push(options: &[&str]) -> Output {
    let encode = "-hide_banner -loglevel error -re -f lavfi -i testsrc2=size=160x90:rate=30 -f lavfi -i sine=frequency=440 \
                  -t 2 -c:v libx264 -preset ultrafast -tune zerolatency -g 30 -pix_fmt yuv420p -c:a aac";
    let mut command = Command::new("timeout");
    command.args(["40", "ffmpeg"]).args(encode.split_whitespace()).args(options);
    command.output().unwrap()
}

fn pushed(options: &[&str]) {
    let output = push(options);
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn frames(file: &Path, stream: &str) -> usize {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-select_streams", stream, "-count_packets"]);
    let output = command
        .args(["-show_entries", "stream=nb_read_packets", "-of", "csv=p=0"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().trim_end_matches(',').parse().unwrap()
}

fn check(node: &Node) {
    let file = node.file();
    assert_eq!(frames(&file, "v:0"), FRAMES);
    assert!(frames(&file, "a:0") >= 85, "the sound is there");
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_rtmp() {
    if missing() {
        return;
    }
    let node = Node::start();
    let url = format!("rtmp://{}/live/camera?key={KEY}", node.addresses().rtmp.unwrap());
    pushed(&["-f", "flv", &url]);
    check(&node);
}

/// ffmpeg takes `live/stage` as the application.
#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_rtmp_with_a_slash_in_the_name() {
    if missing() {
        return;
    }
    let node = Node::with(|settings| settings.keys = [("stage/camera".to_owned(), KEY.to_owned())].into());
    let url = format!("rtmp://{}/live/stage/camera?key={KEY}", node.addresses().rtmp.unwrap());
    pushed(&["-f", "flv", &url]);
    let counters = node.ingest.counters();
    assert_eq!(counters.publishers.load(Ordering::Relaxed), 1, "the key opens no other name");
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_rtmps() {
    if missing() {
        return;
    }
    let node = Node::start();
    let port = node.addresses().rtmps.unwrap().port();
    let url = format!("rtmps://localhost:{port}/live/camera?key={KEY}");
    pushed(&["-f", "flv", &url]);
    check(&node);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn a_wrong_key_is_refused() {
    if missing() {
        return;
    }
    let node = Node::start();
    let (rtmp, http) = (node.addresses().rtmp.unwrap(), node.addresses().http.unwrap());
    assert!(!push(&["-f", "flv", &format!("rtmp://{rtmp}/live/camera?key=wrong")]).status.success());
    let url = format!("http://user:wrong@{http}/live/camera/index.m3u8");
    push(&["-f", "hls", "-hls_time", "1", "-method", "PUT", &url]);
    assert!(node.chunks.lock().unwrap().is_empty());
    assert!(node.ingest.counters().refused.load(Ordering::Relaxed) >= 2);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_put_of_transport_streams() {
    if missing() {
        return;
    }
    let node = Node::start();
    let url = format!("http://user:{KEY}@{}/live/camera/index.m3u8", node.addresses().http.unwrap());
    pushed(&["-f", "hls", "-hls_time", "1", "-method", "PUT", "-http_persistent", "1", &url]);
    check(&node);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_put_of_fragmented_mp4_over_tls() {
    if missing() {
        return;
    }
    let node = Node::start();
    let port = node.addresses().https.unwrap().port();
    let url = format!("https://user:{KEY}@localhost:{port}/live/camera/index.m3u8");
    pushed(&["-f", "hls", "-hls_time", "1", "-hls_segment_type", "fmp4", "-method", "PUT", &url]);
    check(&node);
    // ffmpeg closes each of its connections without having read the answer.
    assert_eq!(node.ingest.counters().failed.load(Ordering::Relaxed), 0);
}
