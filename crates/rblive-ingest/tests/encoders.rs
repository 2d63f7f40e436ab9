//! Real encoders push a stream; the chunks that come out are a file with the same frames. Skipped without ffmpeg.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rblive::content::{Flags, Header, Kind};
use rblive::{Config, RsManager};
use rblive_ingest::{Ingest, IngestAddresses, IngestSettings};

const KEY: &str = "a-secret";
const FRAMES: usize = 60;
const LIMIT: Duration = Duration::from_secs(60);

type Chunks = Arc<Mutex<Vec<(Header, Vec<u8>)>>>;

/// A node that takes streams and sees their chunks.
struct Node {
    ingest: Ingest,
    chunks: Chunks,
    folder: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, private_key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&private_key, made.signing_key.serialize_pem()).unwrap();
        let node =
            rblive::Rule { streams: "*".to_owned(), nodes: vec![Config::default().nodes[0].name.clone()] };
        let manager = RsManager::new(Config { rules: vec![node], ..Config::default() }).unwrap();
        let chunks = Chunks::default();
        let seen = chunks.clone();
        manager.inbound_callback(move |chunk| {
            let (header, payload) = chunk.content().expect("a chunk has a header");
            seen.lock().unwrap().push((header, payload.to_vec().expect("the chunk is there")));
        });
        let any = || "127.0.0.1:0".to_owned();
        let mut settings = IngestSettings {
            rtmp: any(),
            rtmps: any(),
            http: any(),
            https: any(),
            certificate,
            private_key,
            keys: [("*".to_owned(), KEY.to_owned())].into(),
            segment_ms: 1000,
            linger_ms: 200,
            ..IngestSettings::default()
        };
        settings.limits.idle_ms = 3000;
        let ingest = Ingest::start(manager, settings).unwrap();
        Self { ingest, chunks, folder }
    }

    fn addresses(&self) -> IngestAddresses {
        self.ingest.addresses()
    }

    /// Waits for the stream's end and gives its media as a file.
    fn file(&self) -> PathBuf {
        let begin = Instant::now();
        while !self.chunks.lock().unwrap().iter().any(|(header, _)| header.kind == Kind::End) {
            assert!(begin.elapsed() < LIMIT, "the stream ends: {:?}", self.ingest.counters());
            std::thread::sleep(Duration::from_millis(20));
        }
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
fn ffmpeg_by_rtmp() {
    if missing() {
        return;
    }
    let node = Node::start();
    let url = format!("rtmp://{}/live/camera?key={KEY}", node.addresses().rtmp.unwrap());
    pushed(&["-f", "flv", &url]);
    check(&node);
}

#[test]
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
fn ffmpeg_by_put_of_fragmented_mp4_over_tls() {
    if missing() {
        return;
    }
    let node = Node::start();
    let port = node.addresses().https.unwrap().port();
    let url = format!("https://user:{KEY}@localhost:{port}/live/camera/index.m3u8");
    pushed(&["-f", "hls", "-hls_time", "1", "-hls_segment_type", "fmp4", "-method", "PUT", &url]);
    check(&node);
}
