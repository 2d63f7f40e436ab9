//! An encoder pushes two renditions of a picture, of which one has no sound; players find both, and each frame of both.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, Weak};

use testkit::{Process, within};

use super::nodes::{Nodes, ROOMY};
use super::{apple, are_here, encoders, film, say, seconds, taking};
use crate::process::{end, ffmpeg};

static FILM: film::Shelf = Mutex::new(Weak::new());

/// Encodes the renditions. The smaller one has no sound.
fn encode(folder: &Path) -> Vec<PathBuf> {
    let seconds = film::length();
    let files = ["hi.mp4", "lo.mp4"].map(|name| folder.join(name));
    let coding =
        "-c:v libx264 -preset veryfast -bf 2 -g 25 -keyint_min 25 -sc_threshold 0 -pix_fmt yuv420p -c:a aac";
    let coding = || coding.split(' ');
    let mut command = ffmpeg();
    command.args(["-y", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25"]);
    command.args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000", "-t"]);
    command.arg(seconds.to_string()).args(["-map", "0:v", "-map", "1:a"]).args(coding()).arg(&files[0]);
    command.args(["-t", &seconds.to_string(), "-map", "0:v", "-s", "160x90"]).args(coding()).arg(&files[1]);
    assert!(command.status().unwrap().success(), "ffmpeg encodes");
    files.into()
}

/// Pushes both files at their pace.
fn push(files: &[PathBuf], outputs: &[&str]) -> Process {
    let mut command = ffmpeg();
    for file in files {
        command.args(["-re", "-i"]).arg(file);
    }
    command.args(outputs);
    Process::start(command)
}

/// Takes both renditions as players do.
fn are_taken_whole(pushing: impl FnOnce(&Nodes, &[PathBuf]) -> Process) {
    if !are_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nodes = Nodes::start(folder.path(), &ROOMY);
    let film = film::take(&FILM, encode);
    let files = &film.files;
    let running = pushing(&nodes, files);
    let url = nodes.file("ladder/index.m3u8");
    taking::wait_for(&url);
    // An encoder that says late that its streams belong together has them apart at first.
    let all = ["aac", "h264 160", "h264 320"];
    within(taking::WAIT, "both renditions", || taking::streams(&url) == all);
    let taken = ["1", "2"].map(|id| folder.path().join(format!("taken-{id}.mkv")));
    apple::check(&url, seconds(), &["--picture", "320x180@25", "--variants", "2"]);
    std::thread::scope(|both| {
        for (id, taken) in (1..).zip(&taken) {
            let url = nodes.file(&format!("ladder/{id}/media.m3u8"));
            both.spawn(move || taking::copy(&url, seconds(), taken));
        }
        assert_eq!(taking::streams(&nodes.file("ladder/manifest.mpd")), all);
    });
    end(running);
    let least = seconds() as usize * encoders::RATE - encoders::RATE / 2;
    let high = taking::compare(&files[0], &taken[0]);
    let low = taking::compare_pictures(&files[1], &taken[1]);
    assert!(high.video >= least && low >= least, "{} and {low} frames", high.video);
    say(&format!("two renditions: {} and {low} frames, as pushed", high.video));
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn renditions_by_rtmp() {
    are_taken_whole(|nodes, files| {
        let [high, low] = ["hi", "lo"].map(|name| format!("rtmp://{}/live/{name}", nodes.rtmp));
        let first = ["-map", "0", "-c", "copy", "-f", "flv", &high];
        push(files, &[&first[..], &["-map", "1", "-c", "copy", "-f", "flv", &low]].concat())
    });
}

/// ffmpeg names the renditions in its multivariant playlist.
fn by_put(nodes: &Nodes, files: &[PathBuf], kind: &str) -> Process {
    let put = format!("https://{}/live/ladder/%v/media.m3u8", nodes.https);
    let mapped = ["-map", "0:v", "-map", "0:a", "-map", "1:v", "-c", "copy", "-f", "hls", "-hls_time", "1"];
    let named = ["-hls_list_size", "5", "-method", "PUT", "-var_stream_map", "v:0,a:0 v:1"];
    let kinds = ["-hls_segment_type", kind, "-master_pl_name", "index.m3u8", &put];
    push(files, &[&mapped[..], &named, &kinds].concat())
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn renditions_by_https_put() {
    are_taken_whole(|nodes, files| by_put(nodes, files, "mpegts"));
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn renditions_by_https_put_of_fragmented_mp4() {
    are_taken_whole(|nodes, files| by_put(nodes, files, "fmp4"));
}
