//! Recordings on the viewers' page: they are listed, play with the keyboard alone, and say how they end.

use chromium::{Browser, WAIT, check, fits, keep};
use testkit::within;

use super::node::{Node, browser, serve};

const ENTER: &str = "\u{e007}";
const TAB: &str = "\u{e004}";

/// The links to recordings.
const LINKS: &str = "document.querySelectorAll('#recordings a')";

fn focused(browser: &Browser) -> String {
    let hash = browser.run("return document.activeElement.getAttribute('href') ?? document.activeElement.id");
    hash.as_str().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn what_was_kept_is_listed_and_plays() {
    let Some(browser) = browser(1440, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    // Two recordings of each stream: the encoder returns too late for the first one.
    let lines = format!(
        "[ingest]\nlinger_ms = 300\nsegment_ms = 1000\n[[record]]\nfolder = '{}'\nrejoin_ms = '1s'\n",
        kept.display()
    );
    let node = serve(folder.path(), &lines);
    browser.go(&node.page);
    browser.wait("!document.getElementById('empty').hidden");
    assert_eq!(browser.run("return document.getElementById('recordings').hidden"), true);
    for number in 1..=2 {
        record(&browser, &node, number);
    }
    browser.wait(&format!("{LINKS}.length === 2"));
    let spoken = browser.run(&format!("return {LINKS}[0].textContent"));
    let spoken = spoken.as_str().unwrap();
    assert!(spoken.starts_with("Recording camera ") && spoken.contains(" second"), "{spoken}");
    check(&browser, "recordings");
    keep(&browser, "recordings");
    // The keyboard alone: the second link, which is the older recording.
    browser.run("document.getElementById('recordings-title').focus()");
    browser.press(TAB);
    browser.press(TAB);
    let link = focused(&browser);
    assert!(link.starts_with("#vod/camera/2"), "{link}");
    browser.press(ENTER);
    a_recording_plays(&browser);
    browser.click("#close");
    browser.wait("document.getElementById('player').hidden");
    assert_eq!(focused(&browser), link, "the focus is back");
    assert_eq!(browser.errors(), [""; 0]);
    // The link of a recording that is not there.
    browser.go(&format!("{}#vod/camera/20200101T000000Z", node.page));
    browser.wait("document.getElementById('said').textContent.includes('no such recording')");
}

/// Publishes until this number of recordings is kept, of which the newest has some segments.
fn record(browser: &Browser, node: &Node, number: usize) {
    let encoder = node.publish("camera");
    let listed = "(async () => (await (await fetch('/vod')).json()).recordings.map((own) => own.segments))()";
    // Segments of both, of the newest one first.
    within(WAIT, &format!("recording {number} is kept"), || {
        let segments = browser.finish(listed);
        let all: Vec<u64> = segments.as_array().unwrap().iter().filter_map(|own| own.as_u64()).collect();
        all.len() == number && all[0] >= 4
    });
    drop(encoder);
    browser.wait("document.getElementById('streams').childElementCount === 0");
}

/// The recording that was opened plays, on a screen of any size, to its end and again.
fn a_recording_plays(browser: &Browser) {
    browser.wait("video.currentTime > 1 && video.readyState >= 2");
    assert_eq!(focused(browser), "title", "the focus is at what was opened");
    let length = browser.run("return video.duration").as_f64().unwrap();
    assert!(length.is_finite() && length >= 4.0, "{length} s");
    assert!(
        browser.run("return document.getElementById('facts').innerText").to_string().contains("Recorded ")
    );
    let current = "document.querySelectorAll('#recordings [aria-current]').length === 1";
    browser.wait(&format!("{current} && {LINKS}[1].hasAttribute('aria-current')"));
    browser.run("document.getElementById('more').open = true");
    browser.wait("document.getElementById('details').innerText.includes('shown')");
    let addresses = browser.run("return document.getElementById('details').innerText").to_string();
    assert!(addresses.contains("/vod/camera/") && !addresses.contains("DASH"), "{addresses}");
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        check(browser, &format!("a recording, {scheme}"));
    }
    browser.resize(390, 844);
    fits(browser, "a recording on a phone");
    check(browser, "a recording on a phone");
    browser.wait("document.getElementById('said').textContent === 'The recording is over.'");
    // The recording is over again some seconds after its beginning.
    browser.run(
        "video.addEventListener('timeupdate', () => { \
         window.playedAgain ||= !video.paused && video.currentTime > 0.2 && video.currentTime < video.duration; })",
    );
    browser.click("#act");
    browser.wait("window.playedAgain");
}
