//! From a picture to the eye: the encoder's pictures show the time at which they were made, as black and white blocks, and a script in
//! the browser reads it where hls.js plays them.
//!
//! ```text
//!   blocks: the time, 48 bits of milliseconds since 1970, and 8 bits of a check
//!   ffmpeg ──RTMP──▶ node ──HTTPS, parts──▶ hls.js ──▶ video ──▶ canvas ──▶ now minus the time
//!                      └───────WebRTC───────────────────▶ video
//! ```
//!
//! `GLASS_JSON=FILE` writes a row; `RBLIVE_SECONDS=30` sets how long is measured.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chromium::Browser;
use serde_json::json;
use tempfile::TempDir;
use testkit::Process;

use super::node::{Node, browser, serve};

/// The picture, in pixels, and the blocks of a row and of a column.
const SIZE: (usize, usize) = (320, 180);
const BLOCKS: (usize, usize) = (8, 7);
const RATE: u32 = 25;

/// Pictures that must be read, for a start: players change their rate and their place at the beginning.
const SETTLED: usize = 50;

/// Reads each picture that is shown. A block's middle says what it is.
const READER: &str = "
  const pad = document.createElement('canvas'); [pad.width, pad.height] = [320, 180];
  const paper = pad.getContext('2d', { willReadFrequently: true });
  window.seen = []; window.unread = 0;
  const read = () => {
    const now = Date.now();
    paper.drawImage(video, 0, 0, 320, 180);
    const { data } = paper.getImageData(0, 0, 320, 180);
    const bit = (at) => data[4 * (320 * Math.floor((Math.floor(at / 8) + .5) * 180 / 7) + Math.floor((at % 8 + .5) * 40))] > 127;
    let time = 0, check = 0, sum = 0;
    for (let at = 0; at < 48; at += 1) time = time * 2 + bit(at);
    for (let at = 48; at < 56; at += 1) check = check * 2 + bit(at);
    for (let rest = time; rest > 0; rest = Math.floor(rest / 256)) sum = (sum * 31 + rest % 256) % 251;
    if (sum === check) window.seen.push([time, now]); else window.unread += 1;
    video.requestVideoFrameCallback(read);
  };
  video.requestVideoFrameCallback(read);";

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The picture of a time: grey values.
fn picture(ms: u64) -> Vec<u8> {
    let (mut sum, mut rest) = (0, ms);
    while rest > 0 {
        (sum, rest) = ((sum * 31 + rest % 256) % 251, rest / 256);
    }
    let bits = ms << 8 | sum;
    let (width, height) = SIZE;
    let block = |at: usize| at % width * BLOCKS.0 / width + at / width * BLOCKS.1 / height * BLOCKS.0;
    let shade = |at: usize| if bits >> (55 - block(at)) & 1 == 1 { 235 } else { 16 };
    (0..width * height).map(shade).collect()
}

/// An encoder whose pictures show their time.
struct Clock {
    stopped: Arc<AtomicBool>,
    drawing: Option<JoinHandle<()>>,
    _encoder: Process,
}

impl Clock {
    fn start(to: &str) -> Self {
        let input =
            format!("-f rawvideo -pixel_format gray -video_size {}x{} -framerate {RATE}", SIZE.0, SIZE.1);
        // No picture waits for the one after it, neither here nor in a player.
        let coding = "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -bf 0 -g 50 -flvflags no_duration_filesize";
        let mut command = Command::new("ffmpeg");
        command.args("-v error -fflags nobuffer -probesize 32 -analyzeduration 0".split(' '));
        command.args(input.split(' ')).args(["-i", "-"]).args(coding.split(' '));
        command.args(["-flush_packets", "1", "-f", "flv", to]).stdin(Stdio::piped());
        let mut encoder = Process::start(command);
        let mut pipe = encoder.stdin();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let drawing = std::thread::spawn(move || {
            let begun = Instant::now();
            for number in 0.. {
                let at = Duration::from_secs(1) * number / RATE;
                std::thread::sleep(at.saturating_sub(begun.elapsed()));
                if stop.load(Ordering::Relaxed) || pipe.write_all(&picture(now_ms())).is_err() {
                    return;
                }
            }
        });
        Self { stopped, drawing: Some(drawing), _encoder: encoder }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = self.drawing.take().map(JoinHandle::join);
    }
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn from_a_picture_to_the_eye() {
    measure("glass_to_glass", "", "");
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn from_a_picture_to_the_eye_by_webrtc() {
    let lines = "[ingest]\npart_ms = 100\n[webrtc]\nlisten = '127.0.0.1:0'\n";
    let Some(Measured { browser, .. }) = &measure("glass_to_glass_webrtc", lines, "?latency=webrtc") else {
        return;
    };
    assert_eq!(browser.run("return video.srcObject !== null"), json!(true), "it is WebRTC that plays");
    // The page was opened before the stream began.
    drop(browser.errors());
    browser.wait("/[0-9.]+ s behind live/.test(facts.innerText)");
    eprintln!("the page says: {}", browser.run("return facts.innerText"));
    browser.click("#quick");
    browser
        .wait("video.srcObject === null && !video.paused && video.currentTime > 0 && video.readyState >= 3");
    browser.click("#quick");
    browser.wait("video.srcObject !== null && !video.paused && video.readyState >= 3");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// A page that goes on after its pictures were measured.
struct Measured {
    browser: Browser,
    _clock: Clock,
    _node: Node,
    _folder: TempDir,
}

/// Measures how late the pictures are that a page with this query shows, from a node with these lines in its configuration.
fn measure(name: &str, lines: &str, query: &str) -> Option<Measured> {
    let browser = browser(1200, 800)?;
    let folder = tempfile::tempdir().unwrap();
    let node = serve(folder.path(), lines);
    let clock = Clock::start(&node.encoders("clock"));
    browser.go(&format!("{}{query}#/clock", node.page));
    browser.wait("!video.paused && video.currentTime > 0 && video.readyState >= 3");
    browser.run(READER);
    let seconds: usize = std::env::var("RBLIVE_SECONDS").map_or(10, |text| text.parse().expect("a number"));
    let wanted = SETTLED + seconds * RATE as usize / 2;
    browser.wait(&format!("window.seen.length >= {wanted}"));
    let seen: Vec<(u64, u64)> = serde_json::from_value(browser.run("return window.seen")).unwrap();
    let unread = browser.run("return window.unread").as_u64().unwrap();
    assert!(unread < seen.len() as u64 / 10, "pictures are read: {unread} of {} are not", seen.len());
    for pair in seen.windows(2) {
        assert!(pair[0].0 <= pair[1].0, "pictures are shown in order: {pair:?}");
    }
    let mut late: Vec<u64> =
        seen.iter().skip(SETTLED).map(|(made, shown)| shown.saturating_sub(*made)).collect();
    late.sort_unstable();
    let [median, p95] = [late.len() / 2, late.len() * 95 / 100].map(|at| late[at]);
    let row = json!({ "name": name, "system": "rblive", "median_ms": median, "p95_ms": p95,
        "longest_ms": late.last(), "pictures": late.len(), "unread": unread });
    eprintln!("{row}");
    if let Some(file) = std::env::var_os("GLASS_JSON") {
        std::fs::write(file, format!("{row}\n")).unwrap();
    }
    Some(Measured { browser, _clock: clock, _node: node, _folder: folder })
}
