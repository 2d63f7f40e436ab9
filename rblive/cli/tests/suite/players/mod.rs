//! Real encoders push a picture to a node, which disseminates it to a delivery node; ffprobe and ffmpeg take it as players do, and get
//! each frame that was pushed, once and in order. A parser of playlists that is not this project's reads what they read.
//!
//! ```text
//!   ffmpeg ──HTTPS PUT──▶            ┌─▶ ffprobe, ffmpeg
//!   ffmpeg ──RTMP───────▶ ingest ──▶ delivery
//!   GStreamer ──RTMP────▶            └─▶ apple.py
//! ```
//!
//! `RBLIVE_SECONDS=30` sets how long they take the stream. The variable `M3U8` names the package m3u8 of PyPI (a folder or a wheel).

mod apple;
mod encoders;
mod film;
mod ladder;
mod nodes;
mod taking;

use std::io::Write;

use testkit::has;

use crate::process::end;
use encoders::Encoder;
use nodes::{NARROW, Nodes, ROOMY};

/// How many seconds of a stream are taken.
fn seconds() -> u32 {
    std::env::var("RBLIVE_SECONDS").map_or(5, |text| text.parse().expect("RBLIVE_SECONDS is a number"))
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What real players are called where there are none.
const PLAYERS: &str = "real players";

/// Whether the players are installed. Otherwise the test says that it is skipped.
fn are_here() -> bool {
    has("ffmpeg", PLAYERS) && has("ffprobe", PLAYERS)
}

/// Pushes by an encoder, and takes the stream by the playlist of its renditions.
fn is_taken_whole(encoder: Encoder) {
    if !are_here() || !encoder.is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nodes = Nodes::start(folder.path(), &ROOMY);
    let pushing = encoder.push(&nodes, 0);
    let url = nodes.file(&format!("{}/index.m3u8", encoder.stream()));
    taking::wait_for(&url);
    let taken = folder.path().join("taken.mkv");
    std::thread::scope(|both| {
        both.spawn(|| taking::copy(&url, seconds(), &taken));
        let told = taking::probe(&url, seconds());
        assert!(
            encoder.codecs().iter().all(|codec| told.contains(&format!("codec_name={codec}\n"))),
            "{told}"
        );
    });
    // Its rules are those of fragmented MP4 with H.264 and AAC, and its rates those of a stream that runs for some time.
    if !matches!(encoder, Encoder::PutThrough | Encoder::PutNewer) {
        apple::check(&url, seconds(), &["--picture", encoder.picture()]);
    }
    end(pushing.process);
    let frames = taking::compare(&pushing.pushed, &taken);
    let least = seconds() as usize * encoders::RATE - encoders::RATE / 2;
    assert!(frames.video >= least, "{} frames of {} s", frames.video, seconds());
    say(&format!("{encoder:?}: {} frames and {} of sound, as pushed", frames.video, frames.audio));
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn what_leaves_the_playlists_can_still_be_fetched() {
    if !are_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nodes = Nodes::start(folder.path(), &NARROW);
    let _pushing = Encoder::Rtmp.push(&nodes, -1);
    let url = nodes.file("camera/index.m3u8");
    taking::wait_for(&url);
    apple::check(&url, 5, &["--removals", "3"]);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_https_put() {
    is_taken_whole(Encoder::Put);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_https_put_of_hevc_and_e_ac3() {
    is_taken_whole(Encoder::PutNewer);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_https_put_of_fragmented_mp4() {
    is_taken_whole(Encoder::PutMp4);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_https_put_of_transport_streams_that_pass() {
    is_taken_whole(Encoder::PutThrough);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffmpeg_by_rtmp() {
    is_taken_whole(Encoder::Rtmp);
}

#[test]
#[ignore = "long: needs GStreamer and ffmpeg"]
fn gstreamer_by_rtmp() {
    is_taken_whole(Encoder::Gstreamer);
}
