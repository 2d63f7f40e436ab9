//! Players of a node that is drained: the page with hls.js in Chromium, and ffmpeg.

use std::path::Path;
use std::process::Command;

use testkit::until;

use super::node::{CODING, browser, encode};
use super::page::play;
use crate::cluster::{Stage, token};
use crate::process::ffmpeg;

#[test]
#[ignore = "long: needs Chromium, ffmpeg and etcd"]
fn players_go_on_when_their_node_is_drained() {
    let Some(browser) = browser(1200, 800) else { return };
    let Some(stage) = Stage::new() else { return };
    let (first, second) = (stage.edge("edge-a", 2, ""), stage.edge("edge-b", 3, ""));
    let _encoder = encode(CODING, &[&format!("rtmp://{}/live/camera", stage.rtmp())]);
    until("both have the stream", || first.listed().len() >= 2 && second.listed().len() >= 2);
    browser.go(&format!("http://{}/?{}#/camera", first.viewers, token()));
    browser.run("performance.setResourceTimingBufferSize(100000)");
    play(&browser, 3.0);
    let copied = tempfile::tempdir().unwrap();
    let file = copied.path().join("copy.mkv");
    let url = format!("http://{}/live/camera/index.m3u8?{}", first.viewers, token());
    let mut copy = ffmpeg();
    // A connection to one host that leads to another one is told as an error.
    copy.args(["-http_persistent", "0", "-i", &url, "-c", "copy"])
        .arg(&file)
        .stderr(std::process::Stdio::piped());
    let mut copy = testkit::Process::start(copy);
    until("ffmpeg has pictures", || pictures_of(&file) > 0);
    stage.command(&["drain", "edge-a"]);
    let of_second = format!(
        "performance.getEntriesByType('resource').some(own => own.name.startsWith('http://{}/') && own.name.includes('.m4s'))",
        second.viewers
    );
    browser.wait(&of_second);
    play(&browser, 10.0);
    assert_eq!(browser.errors(), [""; 0]);
    let before = pictures_of(&file);
    until("ffmpeg goes on too", || pictures_of(&file) > 480.max(before + 200));
    assert!(copy.is_running(), "the stream has no end");
    copy.signal("INT");
    let outcome = copy.finish();
    assert!(outcome.stderr.is_empty(), "{}", outcome.stderr);
    let times = times_of(&file);
    let longest = times.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
    eprintln!("ffmpeg took {} pictures; the longest pause between two is {longest} s", times.len());
    assert!(longest < 0.06, "25 pictures in each second, and none is missing");
    let all = browser.run("return performance.getEntriesByType('resource').map(own => own.name).filter(name => name.includes('.m4s'))");
    let moved = all
        .as_array()
        .unwrap()
        .iter()
        .filter(|name| name.as_str().unwrap().contains(&second.viewers))
        .count();
    eprintln!("{moved} of {} segments and parts came from the other node", all.as_array().unwrap().len());
}

/// The number of pictures in a file that grows, now and then.
fn pictures_of(file: &Path) -> usize {
    std::thread::sleep(std::time::Duration::from_millis(500));
    times_of(file).len()
}

/// The times of the pictures of a file, in seconds.
fn times_of(file: &Path) -> Vec<f64> {
    let mut command = Command::new("ffprobe");
    command.args("-v error -select_streams v:0 -show_entries packet=pts_time -of csv=p=0".split(' '));
    let output = command.arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut times: Vec<f64> =
        text.lines().filter_map(|line| line.trim_end_matches(',').parse().ok()).collect();
    times.sort_by(f64::total_cmp);
    times
}
