//! The control page: rates, ages and nodes, and which node gets which stream.

use chromium::{check, fits, keep};

use super::node::{browser, demo, serve};

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
