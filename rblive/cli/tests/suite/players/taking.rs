//! ffprobe and ffmpeg as players, and what they took beside what was pushed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::within;

use crate::process::ffmpeg;

/// How long a test waits for what must come.
pub const WAIT: Duration = Duration::from_secs(120);

/// The node has made its certificate itself.
const TRUST: [&str; 2] = ["-tls_verify", "0"];

/// Runs a program that must succeed and say nothing on its standard error.
fn quietly(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{command:?}: {} {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the delivery node has the stream.
pub fn wait_for(url: &str) {
    let mut command = Command::new("ffprobe");
    let command = command.args(["-v", "error"]).args(TRUST).arg(url);
    within(WAIT, &format!("a playlist at {url}"), || command.output().unwrap().status.success());
}

/// The streams that ffprobe finds, as `h264 320` and `aac`. ffprobe lists the streams of a program twice; they are here
/// once.
pub fn streams(url: &str) -> Vec<String> {
    let mut command = Command::new("ffprobe");
    let command = command.args(["-v", "error", "-show_entries", "stream=codec_name,width"]).args(TRUST);
    let told = String::from_utf8(command.arg(url).output().unwrap().stdout).unwrap();
    let value = |line: &str| Some(line.split_once('=')?.1.to_owned());
    let stream = |part: &str| part.lines().filter_map(value).collect::<Vec<_>>().join(" ");
    let parts = told.split("[STREAM]").skip(1).map(|part| part.split("[/STREAM]").next().unwrap_or(""));
    let mut streams: Vec<String> = parts.map(stream).collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

/// The findings of ffprobe in that many seconds of a live stream.
pub fn probe(url: &str, seconds: u32) -> String {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_streams", "-count_packets", "-read_intervals"]);
    let told = quietly(command.arg(format!("%+{seconds}")).args(TRUST).arg(url));
    let count = |line: &str| line.strip_prefix("nb_read_packets=")?.parse::<u32>().ok();
    let most = told.lines().filter_map(count).max().unwrap_or(0);
    assert!(most >= seconds * 20, "{told}");
    told
}

/// Copies that many seconds of a live stream into a file.
pub fn copy(url: &str, seconds: u32, to: &Path) {
    let mut command = ffmpeg();
    command.args(TRUST).args(["-i", url, "-t", &seconds.to_string()]);
    quietly(command.args(["-c", "copy", "-y"]).arg(to));
}

/// How many frames were compared.
pub struct Frames {
    pub video: usize,
    pub audio: usize,
}

/// The taken frames are a piece of the pushed ones: each frame once, none missing, in order. Pictures are compared as they are decoded,
/// since the ways from encoder to player write what is beside them differently; frames of sound as they were encoded.
pub fn compare(pushed: &Path, taken: &Path) -> Frames {
    let sound = |file: &Path| sums(file, &["-map", "0:a", "-c", "copy"]);
    let (video, all, mut audio) = (compare_pictures(pushed, taken), sound(pushed), sound(taken));
    // The sound of an encoder begins some frames later than its pictures. Silence comes before it.
    let silent = audio.iter().take_while(|sum| !all.contains(sum)).count();
    assert!(silent < 6, "{silent} frames of sound that were not pushed");
    audio.drain(..silent);
    is_piece(&all, &audio, "frames of sound");
    Frames { video, audio: audio.len() }
}

/// As [`compare`], for pictures alone. Returns how many were compared.
pub fn compare_pictures(pushed: &Path, taken: &Path) -> usize {
    let pictures = |file: &Path| sums(file, &["-map", "0:v", "-fps_mode", "passthrough"]);
    let all = pictures(pushed);
    let mut different = all.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), all.len(), "each picture is another");
    let mut video = pictures(taken);
    // The file is cut in the order of decoding: the last picture may come before two that are shown before it.
    video.truncate(video.len().saturating_sub(3));
    is_piece(&all, &video, "pictures");
    video.len()
}

fn is_piece(all: &[String], piece: &[String], what: &str) {
    assert!(!piece.is_empty(), "there are {what}");
    let found = all.windows(piece.len()).any(|window| window == piece);
    let places = || piece.iter().map(|sum| all.iter().position(|own| own == sum)).collect::<Vec<_>>();
    assert!(
        found,
        "the {what} are some that were pushed, one after the other: {:?} of {}",
        places(),
        all.len()
    );
}

/// The check sum of each frame, which a line has as its sixth field. Further data of the frame follows: the first frame of
/// sound says how much of it is to be skipped, in some containers only.
fn sums(file: &Path, options: &[&str]) -> Vec<String> {
    let mut command = ffmpeg();
    let command = command.arg("-i").arg(file).args(options);
    let text = quietly(command.args(["-f", "framemd5", "-"]));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(',').nth(5).expect("a check sum").trim().to_owned()).collect()
}
