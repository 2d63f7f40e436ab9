//! The console in Chromium, as a person uses it. Without Chromium and its driver the test says that it is skipped.

#[path = "../../../../../rblive/cli/tests/suite/browser/driver.rs"]
#[allow(dead_code, reason = "other pages need more of it")]
mod driver;

use std::time::Duration;

use driver::Browser;
use testkit::LONG;

use super::messages::{Served, configure};

/// From nothing: the slow subscriber is found, the newest messages are read, and one is published.
#[test]
#[ignore = "long: needs Chromium"]
fn a_person_finds_who_is_slow_reads_messages_and_publishes_one() {
    let Some(browser) = Browser::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rbmq.toml");
    std::fs::write(&config, "[http]\nconsole = 'write'\n").unwrap();
    let served = Served::start(&["--config", config.to_str().unwrap()]);
    browser.go(&format!("http://{}/ui/", served.http));
    browser.wait("document.body.innerText.includes('echo hello | rbmq pub news')");

    let topic = "logs/<img src=x onerror=alert(1)>";
    let publisher = rbmq::Publisher::connect(&served.broker.addr).unwrap();
    let mut writer = publisher.topic(topic).unwrap();
    let slow = rbmq::Subscriber::builder().name("<b>slow</b>").ring_bytes(65536);
    let mut slow = slow.connect(&served.broker.addr).unwrap();
    slow.subscribe("logs/#").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    // More than the subscriber takes, and less than the broker.
    for n in 0..850 {
        let _ = writer
            .publish_timeout(format!("{{\"n\":{n}}}{:1000}", "").as_bytes(), Some(Duration::from_millis(10)));
    }
    browser.wait("document.querySelector('#more td .cut')?.textContent === '<b>slow</b>'");
    browser.click("#more td a");
    browser.wait("document.querySelector('svg.ring .cursor title')?.textContent.startsWith('<b>slow</b>')");
    browser.wait("document.querySelector('svg.ring .arc.lag, svg.ring .arc.held')");
    browser.click("#main a[href^='#/messages']");
    browser.wait("document.querySelector('.message pre')?.textContent.includes('\"n\"')");
    browser.run("document.getElementById('text').value = 'hello from a person'");
    browser.click(".publish button");
    browser.wait("document.querySelector('.message pre')?.textContent === 'hello from a person'");
    for page in ["topics", "clients", "kept", "cluster", "settings", ""] {
        browser.go(&format!("http://{}/ui/#/{page}", served.http));
        browser.wait("document.querySelector('#live').className !== 'live wait'");
        for width in [1300, 390] {
            browser.resize(width, 844);
            let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
            assert!(widths[0].as_u64() <= widths[1].as_u64(), "{page} is wider than the page: {widths}");
        }
    }
    assert_eq!(browser.errors(), Vec::<String>::new(), "no markup, and nothing from elsewhere");
    served.broker.end();
}

/// Somebody without rights logs in, and sees no more than he may.
#[test]
#[ignore = "long: needs Chromium"]
fn a_user_without_rights_sees_why_and_nothing_else() {
    let Some(browser) = Browser::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let token = configure(folder.path());
    let served = Served::start(&["--config", folder.path().join("rbmq.toml").to_str().unwrap()]);
    browser.go(&format!("http://{}/ui/#/topics", served.http));
    browser.wait("document.getElementById('token')");
    browser.run(&format!("document.getElementById('token').value = '{}'", token.expose()));
    browser.click("form:has(#token) button");
    browser.wait("document.body.innerText.includes(\"User 'anna' may not see the state of this broker\")");
    assert_eq!(
        browser.run("return [...document.querySelectorAll('#nav a')].map((a) => a.textContent).join()"),
        "Messages"
    );
    browser.click("#out");
    browser.wait("document.getElementById('token')");
    served.broker.end();
}
