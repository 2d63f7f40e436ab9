//! The control page: rates, ages and nodes, and which node gets which stream.

use chromium::{check, fits, keep};

use super::node::{browser, demo, serve};
use crate::publish::Publisher;

const TOGGLE: &str = "#streams input[aria-label='demo goes to delivery2']";

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn streams_are_given_and_taken() {
    let Some(browser) = browser(1440, 1000) else { return };
    let demo = demo();
    browser.go(&demo.control);
    browser.wait(&format!("document.querySelector(\"{TOGGLE}\")?.checked"));
    let nodes =
        "const got = await fetch('/streams'); const { sends } = await got.json(); return sends[0].nodes";
    let nodes = || browser.finish(&format!("(async () => {{ {nodes} }})()"));
    assert_eq!(nodes(), serde_json::json!([2, 3]));
    browser.click(TOGGLE);
    browser.wait("document.getElementById('said').textContent.includes('no longer goes to delivery2')");
    assert_eq!(nodes(), serde_json::json!([2]));
    browser.click(TOGGLE);
    browser.wait("document.getElementById('said').textContent.includes('demo goes to delivery2')");
    assert_eq!(nodes(), serde_json::json!([2, 3]));
    // Plots with a line of some length.
    browser.wait(
        "(document.querySelector('#rates path.line')?.getAttribute('d').match(/L/g) ?? []).length > 12",
    );
    let told = browser.run("return document.querySelector('#rates svg').getAttribute('aria-label')");
    assert!(told.as_str().unwrap().contains("Mbit/s"), "{told}");
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        check(&browser, &format!("the control page, {scheme}"));
        keep(&browser, &format!("control-{scheme}"));
    }
    browser.resize(390, 844);
    fits(&browser, "the control page on a phone");
    check(&browser, "the control page on a phone");
    keep(&browser, "control-phone");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn encoders_are_shown_with_what_they_do_wrong_and_are_ended() {
    let Some(browser) = browser(1440, 1000) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = serve(
        folder.path(),
        "[ingest]\nhttp = '127.0.0.1:0'\nsegment_ms = 1000\n[ingest.limits]\nidle_ms = '10m'",
    );
    browser.go(&node.control);
    let has = |place: &str, text: &str| {
        format!(
            "document.querySelector(\"{place}\")?.checkVisibility() && document.querySelector(\"{place}\").textContent.includes('{text}')"
        )
    };
    browser.wait(&has("#how", "ffmpeg -re -i FILE -c copy -f flv 'rtmp://").replace("'rtmp", "\\'rtmp"));
    browser.wait(&has("#how", "-f hls -method PUT http://:KEY@127.0.0.1"));
    let viewers = browser.run("return document.querySelector('#viewers a').href");
    assert_eq!(viewers, serde_json::json!(node.page));
    let mut camera = Publisher::connect(node.rtmp(), "camera");
    (0..60).chain([100_001]).chain(61..90).for_each(|number| camera.push(number));
    assert!(Publisher::ask(node.rtmp(), "camera").is_none());
    browser.wait(&has("#remarks", "a time far from those of its neighbours"));
    browser.wait(&has("#failed tbody", "the stream has a publisher already"));
    browser.wait(&has("#now a[href='#failures-title']", "refused"));
    for text in ["camera", "1280 × 720", "avc1.42c01f", "1.0 s apart", "127.0.0.1 (RTMP)"] {
        browser.wait(&has("#encoders tbody", text));
    }
    check(&browser, "the control page with an encoder");
    keep(&browser, "control-encoders");
    browser.resize(390, 844);
    fits(&browser, "the control page with an encoder on a phone");
    keep(&browser, "control-encoders-phone");
    browser.resize(1440, 1000);
    browser.click("#encoders button");
    browser.wait(&has("#end", "End the encoder of camera at 127.0.0.1?"));
    check(&browser, "the question before an encoder is ended");
    browser.click("#end button:not(.main)");
    browser.wait("!document.getElementById('end').open");
    browser.click("#encoders button");
    browser.click("#end button.main");
    browser.wait("document.getElementById('said').textContent.includes('camera was ended')");
    browser.wait("document.getElementById('encoders').hidden");
    assert!(Publisher::ask(node.rtmp(), "camera").is_none(), "not yet");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
#[ignore = "long: needs Chromium and ffmpeg"]
fn the_token_is_asked_for() {
    let Some(browser) = browser(1200, 800) else { return };
    let folder = tempfile::tempdir().unwrap();
    let node = serve(folder.path(), "[control]\ntoken = 'open sesame, please'");
    browser.go(&node.control);
    browser.wait("!document.getElementById('unlock').hidden");
    check(&browser, "the question for the token");
    let enter = |token: &str| {
        browser.run(&format!("document.getElementById('token').value = '{token}'"));
        browser.click("#unlock button");
    };
    enter("wrong");
    browser.wait("document.getElementById('trouble').textContent.includes('not the token')");
    enter("open sesame, please");
    browser.wait("!document.getElementById('content').hidden && document.getElementById('unlock').hidden");
    browser.click("a[href='metrics']");
    browser.wait("document.querySelector('#text pre').textContent.includes('rblive_sent_streams 0')");
}
