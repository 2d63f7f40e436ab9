//! The console in Chromium, as a person uses it. Without Chromium and its driver the tests say that they are skipped.

#[path = "../../../../../rblive/cli/tests/suite/browser/driver.rs"]
#[allow(dead_code, reason = "other pages need more of it")]
mod driver;

use std::path::Path;

use super::messages::{Served, configured};
use driver::Browser;

/// Keeps the picture of a page, where somebody wants them (`CONSOLE_PICTURES=folder`).
fn picture(browser: &Browser, name: &str) {
    let Some(folder) = std::env::var_os("CONSOLE_PICTURES") else { return };
    let bytes = data_encoding::BASE64.decode(browser.screenshot().as_bytes()).unwrap();
    std::fs::write(Path::new(&folder).join(format!("console-{name}.webp")), bytes).unwrap();
}

/// Somebody without rights logs in, and sees no more than he may.
#[test]
#[ignore = "long: needs Chromium"]
fn a_user_without_rights_sees_why_and_nothing_else() {
    let Some(browser) = Browser::open(390, 844) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (config, _, [anna, bert]) = configured(folder.path(), "");
    let served = Served::with(folder.path(), &config);
    let address = |page: &str| format!("http://{}/ui/#/{page}", served.http);
    let log_in = |token: &str| {
        browser.wait("document.getElementById('token')");
        browser.run(&format!("document.getElementById('token').value = '{token}'"));
        browser.click("form:has(#token) button");
    };
    browser.go(&address("topics"));
    log_in(&bert);
    browser.wait("document.body.innerText.includes(\"User 'bert' may not see the state of this broker\")");
    let links = "return [...document.querySelectorAll('#nav a')].map((a) => a.textContent).join()";
    assert_eq!(browser.run(links), "Messages");
    browser.go(&address("messages?topic=open/a"));
    browser.wait(
        "document.querySelector('[role=alert]')?.textContent.includes(\"user 'bert' may not subscribe\")",
    );
    assert_eq!(browser.run("return document.querySelectorAll('.message').length"), 0);
    browser.run("document.getElementById('text').value = 'x'");
    browser.click(".publish button");
    browser.wait("document.querySelector('.publish [role=alert]')?.textContent.includes('may not publish')");
    browser.click("#out");
    log_in(&anna);
    browser.wait("document.getElementById('text')");
    browser.run("document.getElementById('text').value = 'of anna'");
    browser.click(".publish button");
    browser.wait("document.querySelector('.message pre')?.textContent === 'of anna'");
    picture(&browser, "phone");
    browser.click("#out");
    browser.wait("document.getElementById('token')");
    served.broker.end();
}
