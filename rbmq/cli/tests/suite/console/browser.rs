//! The console in Chromium, as a person uses it. Without Chromium and its driver the tests say that they are skipped.

#[path = "../../../../../rblive/cli/tests/suite/browser/driver.rs"]
#[allow(dead_code, reason = "other pages need more of it")]
mod driver;

use std::path::Path;

use driver::Browser;
use testkit::LONG;

use super::messages::{Served, configured};

/// Keeps the picture of a page, where somebody wants them (`CONSOLE_PICTURES=folder`).
fn picture(browser: &Browser, name: &str) {
    let Some(folder) = std::env::var_os("CONSOLE_PICTURES") else { return };
    let bytes = data_encoding::BASE64.decode(browser.screenshot().as_bytes()).unwrap();
    std::fs::write(Path::new(&folder).join(format!("console-{name}.webp")), bytes).unwrap();
}

/// A client whose bytes go over TCP: one that maps the ring of a publisher has everything at once.
fn tcp() -> rocketbufs::Config {
    let mut config = rocketbufs::Config::default();
    config.transport = rocketbufs::config::TransportKind::Tcp;
    config
}

/// No page is wider than a window, or than a phone.
fn all_pages_fit(browser: &Browser, served: &Served) {
    for page in ["topics", "messages?topic=news", "clients", "kept", "cluster", "settings", ""] {
        browser.go(&format!("http://{}/ui/#/{page}", served.http));
        browser.wait("document.querySelector('#live').className !== 'live wait'");
        for width in [1300, 390] {
            browser.resize(width, 844);
            let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
            assert!(widths[0].as_u64() <= widths[1].as_u64(), "{page} is wider than the page: {widths}");
        }
    }
}

/// Finds the slow subscriber, reads the last ten messages, and publishes one.
#[test]
#[ignore = "long: needs Chromium"]
fn a_person_finds_who_is_slow_reads_messages_and_publishes_one() {
    let Some(browser) = Browser::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let served = Served::with(folder.path(), "[http]\nconsole = 'write'\n");
    browser.go(&format!("http://{}/ui/", served.http));
    browser.wait("document.body.innerText.includes('echo hello | rbmq pub news')");
    let publisher = rbmq::Publisher::builder().name("sensor").config(tcp());
    let publisher = publisher.connect(&served.broker.addr).unwrap();
    let mut writer = publisher.topic("logs/<img src=x onerror=alert(1)>").unwrap();
    let slow = rbmq::Subscriber::builder().name("<b>slow</b>").ring_bytes(65536).config(tcp());
    let mut slow = slow.connect(&served.broker.addr).unwrap();
    slow.subscribe("logs/#").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    // More than the subscriber takes, and less than the broker.
    for n in 0..400 {
        let text = format!("{{\"n\":{n},\"text\":\"<script>alert(1)</script>\",\"more\":\"{:900}\"}}", "");
        writer.publish_timeout(text.as_bytes(), Some(LONG)).unwrap();
    }
    writer.flush(Some(LONG)).unwrap();
    browser.wait("document.querySelector('#more td')?.textContent.includes('logs/')");
    picture(&browser, "overview");
    browser.click("#more td a");
    browser.wait("document.querySelector('svg.ring .cursor title')?.textContent.startsWith('<b>slow</b>')");
    browser.wait("document.querySelector('svg.ring .arc.lag, svg.ring .arc.held')");
    picture(&browser, "topic");
    browser.click("#main a[href^='#/messages']");
    browser.wait("document.querySelectorAll('.message').length === 10");
    browser.wait("document.querySelector('.message pre').textContent.includes('\"n\": 399')");
    picture(&browser, "messages");
    browser.click(".message button");
    browser.wait("document.querySelector('.message pre').textContent.startsWith('7b 22 6e 22')");
    browser.run("document.getElementById('text').value = 'hello from a person'");
    browser.click(".publish button");
    let shown = "[...document.querySelectorAll('.message pre')].map((own) => own.textContent)";
    browser.wait(&format!("{shown}.includes('hello from a person')"));
    all_pages_fit(&browser, &served);
    assert_eq!(browser.errors(), Vec::<String>::new(), "no markup, and nothing from elsewhere");
    drop(slow);
    served.broker.end();
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
