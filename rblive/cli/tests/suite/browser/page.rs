//! The viewers' page: the video plays, and what hinders it is told in words.

use chromium::{Browser, WAIT, check, fits, keep};
use serde_json::json;
use testkit::{own_addr, within};

use super::node::{browser, demo, encode, serve};
use crate::http;

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";

/// Seconds of video that must play; RBLIVE_SECONDS sets another number.
fn seconds() -> f64 {
    std::env::var("RBLIVE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20.0)
}

/// Plays for some seconds of the video's own clock, and tells the frames.
pub(super) fn play(browser: &Browser, seconds: f64) {
    browser.wait("!video.paused && video.currentTime > 0 && video.readyState >= 3");
    let begin = browser.run("return video.currentTime").as_f64().unwrap();
    browser.wait(&format!("video.currentTime > {}", begin + seconds));
    let frames = browser.run(
        "const own = video.getVideoPlaybackQuality(); return [own.totalVideoFrames, own.droppedVideoFrames]",
    );
    let [all, dropped] = [0, 1].map(|at| frames[at].as_u64().unwrap());
    eprintln!("played {seconds} s: {all} frames, {dropped} of them dropped");
    assert!(all > dropped, "pictures are shown");
    let errors = browser.run("return video.error && video.error.message");
    assert_eq!(errors, json!(null));
}

/// Plays behind the words about what hindered it.
fn play_on(browser: &Browser) {
    browser.wait("document.getElementById('veil').hidden");
    play(browser, 3.0);
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn the_demonstration_plays() {
    let Some(browser) = browser(1440, 900) else { return };
    let demo = demo();
    browser.go(&demo.page);
    browser.wait("document.querySelector('#streams canvas')");
    let colours = "const own = document.querySelector('#streams canvas'); \
                   const data = own.getContext('2d').getImageData(0, 0, own.width, own.height).data; return new Set(data).size";
    assert!(browser.run(colours).as_u64().unwrap() > 30, "the poster has a picture");
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        check(&browser, &format!("the list, {scheme}"));
    }
    keep(&browser, "list");
    // The keyboard alone: to the first stream, and play.
    browser.run("document.getElementById('streams-title').focus()");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.getAttribute('href')"), "#/demo");
    browser.press(ENTER);
    play(&browser, seconds());
    assert_eq!(browser.run("return document.activeElement.id"), "title", "the focus is at what was opened");
    browser.run("document.getElementById('more').open = true");
    browser.wait("document.getElementById('details').innerText.includes('shown')");
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        check(&browser, &format!("the player, {scheme}"));
    }
    browser.run("document.getElementById('more').open = false");
    keep(&browser, "player");
    browser.resize(390, 844);
    browser.prefer("dark");
    fits(&browser, "the player on a phone");
    check(&browser, "the player on a phone");
    keep(&browser, "player-phone");
    browser.click("#close");
    browser.wait("document.getElementById('player').hidden");
    assert_eq!(
        browser.run("return document.activeElement.getAttribute('href')"),
        "#/demo",
        "the focus is back"
    );
    fits(&browser, "the list on a phone");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn a_stream_that_stops_is_told_and_plays_again_when_it_returns() {
    let Some(browser) = browser(1200, 800) else { return };
    let folder = tempfile::tempdir().unwrap();
    // An encoder that is cut off stays expected for longer than any picture that the browser has: the page must tell it.
    let node = serve(folder.path(), "[ingest]\nlinger_ms = 600000");
    browser.go(&node.page);
    browser.wait("!document.getElementById('empty').hidden");
    check(&browser, "the empty list");
    keep(&browser, "empty");
    let encoder = node.publish("camera-1");
    browser.go(&format!("{}#/camera-1", node.page));
    play(&browser, 3.0);
    drop(encoder);
    browser.wait("document.getElementById('said').textContent.includes('encoder sends nothing')");
    check(&browser, "an interrupted stream");
    keep(&browser, "interrupted");
    let encoder = node.publish("camera-1");
    play_on(&browser);
    drop(encoder);
    // What was interrupted for a while ends at last.
    browser.wait("document.getElementById('said').textContent.includes('encoder sends nothing')");
    let control = node.control.trim_start_matches("http://").trim_end_matches('/');
    let state: serde_json::Value = serde_json::from_str(&http::text(control, "/streams", "").1).unwrap();
    let path =
        format!("/streams/{}/nodes/{}", state["sends"][0]["id"].as_str().unwrap(), state["node"]["id"]);
    assert_eq!(http::ask(control, "DELETE", &path, "").map(|answer| answer.status), Some(200));
    browser.wait("document.getElementById('said').textContent.includes('has ended')");
    browser.wait("document.getElementById('sound').hidden");
    // At this node the stream ends at once, and is remembered for as long.
    let node = serve(folder.path(), "[ingest]\nlinger_ms = 100\n[deliver]\nkeep_ended = 600");
    let encoder = node.publish("camera-1");
    browser.go(&format!("{}#/camera-1", node.page));
    play(&browser, 3.0);
    drop(encoder);
    browser.wait("document.getElementById('said').textContent.includes('has ended')");
    let _encoder = node.publish("camera-1");
    play_on(&browser);
    // The server says 404 or 503 for what is not there, which the browser counts as errors of the page.
    let other = |message: &String| !message.contains("Failed to load resource");
    assert_eq!(browser.errors().into_iter().filter(other).collect::<Vec<_>>(), [""; 0]);
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn the_player_is_alone_where_other_pages_embed_it() {
    let Some(browser) = browser(640, 360) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = serve(folder.path(), "");
    let _encoder = node.publish("camera-1");
    browser.go(&format!("{}#bare/camera-1", node.page));
    play(&browser, 1.0);
    browser.wait("['streams', 'bar', 'more'].every((id) => !document.getElementById(id).checkVisibility())");
    browser.wait("document.getElementById('stage').clientHeight === innerHeight && document.body.scrollHeight <= innerHeight");
    check(&browser, "the player alone");
    browser.go(&format!("{}#/camera-1", node.page));
    play(&browser, 1.0);
    browser.run("document.getElementById('more').open = true");
    let embed = browser.run("return document.querySelector('[data-of=Embed] code').textContent");
    let src = format!("<iframe src=\"{}#bare/camera-1\"", node.page);
    assert!(embed.as_str().unwrap().starts_with(&src), "{embed}");
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn a_stream_with_renditions_has_a_choice_of_quality() {
    let Some(browser) = browser(1200, 800) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = serve(folder.path(), "[[ingest.ladders]]\nname = 'show'\nstreams = ['hi', 'lo']");
    let _encoder = node.publish_two(["hi", "lo"]);
    browser.go(&node.page);
    // Players read the list of the renditions once, and an encoder begins one after the other.
    let list = "(async () => (await (await fetch('live/show/index.m3u8')).text()).split('#EXT-X-STREAM-INF').length)()";
    within(WAIT, "both renditions are there", || browser.finish(list) == json!(3));
    browser.go(&format!("{}#/show", node.page));
    play(&browser, 1.0);
    browser.wait("document.getElementById('quality').options.length === 3");
    check(&browser, "the choice of quality");
    for (index, height) in [(2, 90), (1, 180)] {
        browser.run(&format!(
            "const own = document.getElementById('quality'); own.selectedIndex = {index}; own.dispatchEvent(new Event('change'))"
        ));
        browser.wait(&format!("video.videoHeight === {height}"));
        play(&browser, 1.0);
    }
    keep(&browser, "quality");
    browser.run("document.getElementById('quality').focus()");
    browser.resize(390, 844);
    fits(&browser, "the choice of quality on a phone");
    // The server says 503 until the stream begins.
    let other = |message: &String| !message.contains("Failed to load resource");
    assert_eq!(browser.errors().into_iter().filter(other).collect::<Vec<_>>(), [""; 0]);
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn what_cannot_be_watched_says_why() {
    let Some(browser) = browser(1200, 800) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = serve(folder.path(), "");
    browser.go(&format!("{}#/nowhere", node.page));
    browser.wait("document.getElementById('said').textContent.includes('no such stream')");
    let node = serve(folder.path(), "[deliver]\ntoken_key = '0123456789abcdef'");
    browser.go(&format!("{}#/closed", node.page));
    browser.wait("document.getElementById('said').textContent.includes('invited viewers')");
    browser.wait("document.getElementById('trouble').textContent.includes('invited viewers')");
    drop(node);
    browser.wait("document.getElementById('trouble').textContent.includes('does not answer')");
    check(&browser, "a server that is gone");
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn transport_streams_that_pass_play() {
    let Some(browser) = browser(1200, 800) else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = own_addr();
    let node = serve(folder.path(), &format!("[ingest]\nhttp = '{port}'\npassthrough = ['ts']"));
    let coding = "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -c:a aac -f hls -hls_time 1 -method PUT";
    let _encoder = encode(coding, &[&format!("http://{port}/live/ts/index.m3u8")]);
    browser.go(&format!("{}#/ts", node.page));
    play(&browser, 3.0);
}

/// HEVC and AC-3 pass as they come, and few browsers decode them.
#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn codecs_that_the_browser_does_not_know_are_told() {
    let Some(browser) = browser(1200, 800) else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = own_addr();
    let node = serve(folder.path(), &format!("[ingest]\nhttp = '{port}'"));
    let hevc = "-c:v libx265 -preset ultrafast -x265-params log-level=error:keyint=25:min-keyint=25 -c:a aac";
    let ac3 = "-c:v libx264 -preset ultrafast -g 25 -c:a ac3";
    let knows = |kind: &str| {
        let asked = format!("return MediaSource.isTypeSupported('video/mp4; codecs=\"{kind}\"')");
        browser.run(&asked) == json!(true)
    };
    for (name, coding, kind) in [("hevc", hevc, "hvc1.1.6.L60.90"), ("ac3", ac3, "ac-3")] {
        let options = format!("-pix_fmt yuv420p {coding} -f hls -hls_time 1 -method PUT");
        let _encoder = encode(&options, &[&format!("http://{port}/live/{name}/index.m3u8")]);
        browser.go(&format!("{}#/{name}", node.page));
        if knows(kind) {
            play(&browser, 1.0);
        } else {
            browser.wait("document.getElementById('said').textContent.includes('cannot play the codecs')");
            check(&browser, "codecs that the browser does not know");
            keep(&browser, &format!("codec-{name}"));
        }
    }
}
