//! The console in Chromium, as a person uses it. Without Chromium and its driver the tests say that they are skipped.

use std::path::Path;
use std::time::Duration;

use chromium::{Browser, check, fits, keep};
use rbmq::{ConfirmLevel, Login, Publisher, Subscriber, TopicWriter};
use serde_json::{Value, json};
use testkit::{LONG, until};

use super::messages::{Served, bearer, configured};

/// A topic whose name would be markup, and so would that of a subscriber.
const HOSTILE: &str = "open/<img src=x onerror=alert(1)>";

/// Settings of a broker that lets a subscriber hold its publisher without a limit. Without them the broker ends the subscription.
const PATIENT: &str = "[session]\nblock_timeout_ms = 0\n";

/// The bytes of a topic from which on its subscriber holds it, also when its own buffer is full: 512 KiB each of that buffer and of history.
const HELD_FROM: u64 = 1_100_000;

/// A configuration for a client over TCP. A client that maps the ring of a publisher has everything at once.
fn tcp() -> rocketbufs::Config {
    let mut config = rocketbufs::Config::default();
    config.transport = rocketbufs::config::TransportKind::Tcp;
    config
}

/// A publisher, and a subscriber that reads nothing. The publisher publishes until the subscriber holds it: the buffer of the subscriber and the ring
/// of the broker are full, and the cursor stays where it is. The caller keeps both.
fn a_slow_one(served: &Served, token: &str, topic: &str, name: &str) -> (Publisher, TopicWriter, Subscriber) {
    let login = || if token.is_empty() { Login::default() } else { Login::default().token(token) };
    let publisher = Publisher::builder().name("thermometer").login(login()).config(tcp());
    let publisher = publisher.connect(&served.broker.addr).unwrap();
    let mut writer = publisher.topic(topic).unwrap();
    let slow = Subscriber::builder().name(name).login(login()).ring_bytes(65536).config(tcp());
    let mut slow = slow.connect(&served.broker.addr).unwrap();
    slow.subscribe(topic).unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let who = if token.is_empty() { String::new() } else { bearer(token) };
    let mut n = 0;
    until("the subscriber holds the publisher", || {
        let text = |n: usize| {
            format!("{{\"n\":{n},\"celsius\":{}.5,\"text\":\"<script>alert(1)</script>\"}}", 18 + n % 7)
        };
        while n < 1_000_000 && writer.publish_timeout(text(n).as_bytes(), Some(Duration::ZERO)).is_ok() {
            n += 1;
        }
        let _ = writer.flush(Some(Duration::from_millis(1)));
        let page = served.get("/topics?sort=lag&limit=1", &who).json();
        let row = &page["rows"][0];
        row["slowest"]["blocks_publisher"] == true && row["head_bytes"].as_u64() > Some(HELD_FROM)
    });
    (publisher, writer, slow)
}

fn log_in(browser: &Browser, token: &str) {
    browser.wait("document.getElementById('token')");
    browser.run(&format!("document.getElementById('token').value = '{token}'"));
    browser.click("form:has(#token) button");
}

/// The page as it is: for everybody, on a desktop and on a phone, in light and dark colours.
fn look(browser: &Browser, name: &str) {
    for scheme in ["dark", "light"] {
        browser.prefer(scheme);
        check(browser, &format!("{name}, {scheme}"));
    }
    fits(browser, name);
    keep(browser, &format!("console-{name}"));
    browser.resize(390, 844);
    fits(browser, &format!("{name} on a phone"));
    check(browser, &format!("{name} on a phone"));
    keep(browser, &format!("console-{name}-phone"));
    browser.resize(1300, 850);
}

/// Finds the slow subscriber, reads the last ten messages and publishes one.
#[test]
#[ignore = "long: needs Chromium"]
fn a_person_finds_who_is_slow_reads_messages_and_publishes_one() {
    let Some(browser) = Browser::open(1300, 850) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (config, _, [anna, _]) = configured(
        folder.path(),
        &format!("{PATIENT}[[access.rules]]\nusers = ['anna']\nobserve = true\nadminister = true\n"),
    );
    let served = Served::with(folder.path(), &config);
    browser.go(&format!("http://{}/ui/", served.http));
    browser.wait("document.getElementById('token')");
    look(&browser, "login");
    log_in(&browser, &anna);
    browser.wait("document.body.innerText.includes('echo hello | rbmq pub news')");
    look_at_users(&browser, &served);
    reload(&browser, &served, &folder.path().join("rbmq.toml"));
    let clients = a_slow_one(&served, &anna, HOSTILE, "<b>slow</b>");
    // Unchanged parts stay, while the page changes around them: a click that has begun, and the text that somebody selects.
    browser.wait("document.querySelector('#more td a')?.textContent.startsWith('open/<img')");
    browser.wait("document.querySelector('#more td .cut')?.textContent === '<b>slow</b>'");
    browser.wait("document.querySelector('#more .tag')?.textContent === 'holds publishers'");
    let facts = "document.getElementById('state').innerText";
    browser.run(&format!("window.link = document.querySelector('#more td a'); window.before = {facts}"));
    browser.wait(&format!("{facts} !== window.before"));
    assert_eq!(browser.run("return window.link.isConnected"), true);
    browser.click("#more td a");
    browser.wait(
        "document.querySelector('svg.ring .cursor.bad title')?.textContent.startsWith('<b>slow</b>: ')",
    );
    browser.wait("document.querySelector('svg.ring .arc.held')");
    browser.click("#main a[href^='#/messages']");
    browser.wait("document.querySelectorAll('.message').length === 10");
    let newest = browser.run("return document.querySelector('.message pre').textContent");
    let newest: Value = serde_json::from_str(newest.as_str().unwrap()).unwrap();
    assert_eq!(newest["text"], "<script>alert(1)</script>");
    browser.click(".message button");
    browser.wait("document.querySelector('.message pre').textContent.startsWith('7b 22 6e 22')");
    browser.run("document.getElementById('text').value = 'hello from a person'");
    browser.click(".publish button");
    let shown = "[...document.querySelectorAll('.message pre')].map((own) => own.textContent)";
    browser.wait(&format!("{shown}.includes('hello from a person')"));
    assert_eq!(browser.errors(), [""; 0], "no markup, and nothing from elsewhere");
    drop(clients);
    served.broker.end();
}

/// The command that helps where a page has nothing to show.
const EMPTY: &str = "document.querySelector('.empty code')";

/// Goes to a page, and waits until it is shown, up to date and ready.
fn go(browser: &Browser, served: &Served, page: &str, title: &str, ready: &str) {
    browser.go(&format!("http://{}/ui/#/{page}", served.http));
    let is_shown = format!("document.title === '{title} · RBMQ console'");
    let is_live = "document.getElementById('live').className !== 'live wait'";
    browser.wait(&format!("{is_shown} && {is_live} && ({ready})"));
}

/// Looks at all pages of a broker that has something to show.
fn look_at_all(browser: &Browser, served: &Served) {
    let rows = |n: usize| format!("document.querySelectorAll('tbody tr').length >= {n}");
    let rings = "document.querySelector('svg.ring .arc.held')".to_owned();
    let ten = "document.querySelectorAll('.message').length === 10".to_owned();
    let clients = served.get("/clients?search=dashboard", "").json();
    let client = format!("client?conn={}", clients["rows"][0]["conn"]);
    for (page, title, ready) in [
        ("", "Overview", rows(1)),
        ("topics", "Topics", rows(2)),
        ("topic?name=sensors/kitchen", "Topic", rings),
        ("messages?topic=orders/new", "Messages", ten),
        ("clients", "Clients", rows(5)),
        (&*client, "Client", "document.querySelector('#client dl')".to_owned()),
        ("groups", "Groups", rows(1)),
        ("group?topic=orders/new&group=billing", "Group", rows(1)),
        ("kept", "Kept", rows(1)),
        ("cluster", "Cluster", EMPTY.to_owned()),
        ("settings", "Settings", rows(10)),
    ] {
        go(browser, served, page, title, &ready);
        look(browser, &title.to_lowercase());
    }
    trace(browser, served, &client);
}

/// Looks at the pages of users and rights, as an administrator.
fn look_at_users(browser: &Browser, served: &Served) {
    let rows = "document.querySelectorAll('tbody tr').length >= 2";
    for (page, title, ready) in [
        ("users", "Users", rows),
        ("tokens", "Tokens", rows),
        ("rights?user=anna&operation=administer", "Rights", "document.querySelector('#decision .well')"),
    ] {
        go(browser, served, page, title, ready);
        look(browser, &title.to_lowercase());
    }
    go(browser, served, "", "Overview", EMPTY);
}

/// Compares the settings with a file that has changed, and reloads.
fn reload(browser: &Browser, served: &Served, file: &Path) {
    let config = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, format!("{config}[broker]\nmax_topics = 5000\nmax_groups = 7\n")).unwrap();
    go(browser, served, "settings", "Settings", "document.getElementById('compare')");
    browser.click("#compare");
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 2");
    look(browser, "reload");
    browser.click("#reload");
    browser.wait("document.querySelector('.publish [role=status] .well')?.textContent.startsWith('Reloaded: 1 change is')");
    check(browser, "a reload that was made");
    go(browser, served, "", "Overview", EMPTY);
}

/// Traces the slow subscriber from its page.
fn trace(browser: &Browser, served: &Served, client: &str) {
    go(browser, served, client, "Client", "document.querySelector(\"#main a[href^='#/trace']\")");
    browser.click("#main a[href^='#/trace']");
    browser.wait("document.getElementById('begin')");
    browser.click("#begin");
    browser.wait("document.getElementById('list').innerText.includes('the publisher waits') || document.getElementById('list').innerText.includes('holds')");
    look(browser, "trace");
    browser.click("#save");
    browser.click("#end");
    browser.wait("document.getElementById('told').textContent === 'Ended'");
}

/// Keeps what the page asks of traces in `asked`, answers a request with 503 where `busy` is set, and holds one up where `held` is.
const WATCHED: &str = "
    window.asked = [];
    const own = window.fetch;
    window.fetch = async (path, options) => {
      if (!path.includes('/trace')) return own(path, options);
      window.asked.push(options.method);
      if (window.busy && options.method === 'GET') {
        window.busy = false;
        return new Response('{\"error\":\"is busy\"}', { status: 503 });
      }
      const answer = await own(path, options);
      if (window.held) await new Promise((done) => { window.go = done; });
      return answer;
    };";

/// Compares and reloads. The keyboard stays, also where its button goes.
fn keyboard_of_a_reload(browser: &Browser) {
    let focused = || browser.run("return document.activeElement.id");
    browser.click("#compare");
    browser.wait("document.querySelector('.publish [role=status]').textContent");
    assert_eq!(focused(), "compare");
    browser.click("#reload");
    browser.wait("document.querySelector('.publish .well')");
    assert_eq!(focused(), "compare", "its button is gone");
}

const RUNS: &str = "document.getElementById('told').textContent === 'Runs'";
const ENDED: &str =
    "document.getElementById('told').textContent === 'Ended' && !document.getElementById('note').textContent";

/// A trace goes on when the broker cannot answer once, ends when somebody ends it or leaves, and a page that is loaded again ends the one before.
#[test]
#[ignore = "long: needs Chromium"]
fn a_trace_goes_on_and_ends_with_its_page() {
    let Some(browser) = Browser::open(1300, 850) else { return };
    let folder = tempfile::tempdir().unwrap();
    let served = Served::with(folder.path(), "[http]\nconsole = 'write'\n");
    let focused = || browser.run("return document.activeElement.id");
    go(&browser, &served, "trace?topic=news", "Trace", "document.getElementById('begin')");
    browser.run(WATCHED);
    browser.click("#begin");
    browser.wait(RUNS);
    assert_eq!(focused(), "begin", "the keyboard stays");
    // One refusal in the middle.
    browser.run("window.busy = true");
    browser.wait("document.getElementById('note').textContent === 'is busy'");
    assert_eq!(browser.run("return document.querySelectorAll('#list tbody tr').length"), 1);
    browser.wait("!document.getElementById('note').textContent");
    assert_eq!(browser.run(&format!("return {RUNS}")), true);
    // What has happened since the last look is there in the end.
    let publisher = Publisher::builder().name("late").connect(&served.broker.addr).unwrap();
    browser.run("window.held = true");
    browser.wait("window.go");
    let _writer = publisher.topic("news").unwrap();
    browser.run("window.held = false");
    browser.click("#end");
    browser.wait(ENDED);
    browser.wait("document.getElementById('list').innerText.includes('opens the topic')");
    browser.run("window.go()");
    assert_eq!((focused(), browser.run(&format!("return {ENDED}"))), ("end".into(), true.into()));
    // A page that is loaded again.
    browser.click("#begin");
    browser.wait(RUNS);
    browser.run("location.reload()");
    browser.wait("document.getElementById('begin') && !document.getElementById('told').textContent");
    browser.click("#begin");
    browser.wait("document.getElementById('note').textContent.includes('end it first')");
    browser.click("#end");
    browser.wait(ENDED);
    // Somebody leaves before the answer.
    browser.run(WATCHED);
    browser.run("window.held = true");
    browser.click("#begin");
    browser.wait("window.go");
    browser.run("window.held = false; location.hash = '#/settings'");
    browser.wait("document.getElementById('compare')");
    browser.run("window.go()");
    browser.wait("window.asked.at(-1) === 'DELETE'");
    assert_eq!(browser.run("return document.getElementById('live').textContent"), "");
    keyboard_of_a_reload(&browser);
    assert!(browser.errors().iter().all(|error| error.contains("409")), "{:?}", browser.errors());
    served.broker.end();
}

/// All pages, without anything to show, and with something.
#[test]
#[ignore = "long: needs Chromium"]
fn everybody_can_use_all_pages() {
    let Some(browser) = Browser::open(1300, 850) else { return };
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let config = format!(
        "{PATIENT}[broker]\nkeep_dir = '{}'\n[[broker.topics]]\npattern = 'orders/#'\ningest = 'merge'\nkeep = true\n[http]\nconsole = 'write'\n",
        kept.display()
    );
    let served = Served::with(folder.path(), &config);
    let lists = ["Overview", "Topics", "Clients", "Groups", "Kept", "Cluster"];
    for title in lists {
        go(&browser, &served, &title.to_lowercase().replace("overview", ""), title, EMPTY);
        look(&browser, &format!("empty-{}", title.to_lowercase()));
    }
    let _slow = a_slow_one(&served, "", "sensors/kitchen", "dashboard");
    let publisher = Publisher::builder().name("shop").connect(&served.broker.addr).unwrap();
    let mut orders = publisher.topic("orders/new").unwrap();
    for n in 0..40 {
        let text = format!("{{\"order\":{n},\"items\":[\"tea\",\"biscuits\"],\"cents\":{}}}", 400 + 25 * n);
        orders.publish(text.as_bytes()).unwrap();
    }
    let end = orders.position();
    orders.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    let worker = Subscriber::builder().name("billing 1").group("billing").credit(8);
    let mut worker = worker.join(&served.broker.addr, "orders/new").unwrap();
    let first = worker.recv(Some(LONG)).unwrap().unwrap();
    let reader = Subscriber::builder().name("warehouse").connect(&served.broker.addr).unwrap();
    look_at_all(&browser, &served);
    let page = served.get("/topics?sort=lag&limit=1", "").json();
    assert_eq!(page["rows"][0]["slowest"]["blocks_publisher"], true, "it was there all the time: {page}");
    assert_eq!(browser.errors(), [""; 0]);
    drop((first, worker, reader));
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
    browser.go(&address("topics"));
    log_in(&browser, &bert);
    browser.wait("document.body.innerText.includes(\"User 'bert' may not see the state of this broker\")");
    check(&browser, "what a user without rights sees");
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
    check(&browser, "a message that is refused");
    browser.click("#out");
    log_in(&browser, &anna);
    browser.wait("document.getElementById('text')");
    browser.run("document.getElementById('text').value = 'of anna'");
    browser.click(".publish button");
    browser.wait("document.querySelector('.message pre')?.textContent === 'of anna'");
    browser.click("#out");
    browser.wait("document.getElementById('token')");
    served.broker.end();
}

/// Publishes to topics, as often as it is asked, so that pages have something new.
struct Busy {
    publisher: Publisher,
    writers: Vec<TopicWriter>,
    sent: usize,
}

impl Busy {
    fn start(served: &Served, topics: usize) -> Self {
        let publisher = Publisher::builder().name("thermometer").config(tcp());
        let publisher = publisher.connect(&served.broker.addr).unwrap();
        let writers = (0..topics).map(|n| publisher.topic(&format!("rooms/{n:03}")).unwrap()).collect();
        Self { publisher, writers, sent: 0 }
    }

    fn publish(&mut self) {
        self.sent += 1;
        for writer in &mut self.writers {
            writer.publish(&vec![b'x'; 100 * self.sent]).unwrap();
            writer.flush(Some(LONG)).unwrap();
        }
    }

    /// Publishes until the page shows something else than before, twice.
    fn until_changed(&mut self, browser: &Browser) {
        let text = "return document.getElementById('main').innerText";
        for _ in 0..2 {
            let before = browser.run(text);
            until("the page changes", || {
                self.publish();
                browser.run(text) != before
            });
        }
    }
}

/// Elements stay while the page changes around them: those that do something, and those of a client.
#[test]
#[ignore = "long: needs Chromium"]
fn what_somebody_clicks_or_reads_stays_where_it_is() {
    let Some(browser) = Browser::open(1300, 850) else { return };
    let folder = tempfile::tempdir().unwrap();
    let served = Served::with(folder.path(), "");
    let mut busy = Busy::start(&served, 120);
    let _reader = Subscriber::builder().name("reader").connect(&served.broker.addr).unwrap();
    go(&browser, &served, "topics?sort=name", "Topics", "document.getElementById('Next')");
    browser.run(
        "window.next = document.getElementById('Next'); window.link = document.querySelector('tbody a')",
    );
    busy.until_changed(&browser);
    assert_eq!(browser.run("return [window.next.isConnected, window.link.isConnected]"), json!([true, true]));
    browser.click("#Next");
    browser.wait("document.querySelector('tbody a')?.textContent === 'rooms/050'");
    browser.click("#Next");
    browser.wait("document.querySelector('tbody a')?.textContent === 'rooms/100'");
    browser.wait("document.activeElement.id === 'Next' && document.activeElement.ariaDisabled === 'true'");
    browser.click("#Previous");
    browser.wait("document.querySelector('tbody a')?.textContent === 'rooms/050'");
    let clients = served.get("/clients?role=publisher", "").json();
    let page = format!("client?conn={}", clients["rows"][0]["conn"]);
    go(&browser, &served, &page, "Client", "document.querySelector('#client dl')");
    browser.run("window.parts = [document.getElementById('name').firstChild, ...document.querySelectorAll('#client dt')]");
    let more = busy.publisher.topic("rooms/more").unwrap();
    browser.wait("document.getElementById('client').innerText.includes('121 topics')");
    assert_eq!(browser.run("return window.parts.every((own) => own.isConnected)"), true);
    assert_eq!(browser.errors(), [""; 0]);
    drop(more);
    served.broker.end();
}

/// The text of the element that has the focus, or its name for a screen reader.
const FOCUSED: &str = "return (document.activeElement.ariaLabel || document.activeElement.textContent || document.activeElement.id || document.activeElement.tagName).trim()";

/// The elements of the page that a keyboard should reach.
const REACHABLE: &str = "[...document.querySelectorAll('a[href], button:not(:disabled), input, select, textarea, [tabindex=\"0\"]')].filter((own) => own.checkVisibility())";

/// Goes through a page with the Tab key, and returns what it cannot reach.
fn walk(browser: &Browser) -> Value {
    browser.run(&format!(
        "document.activeElement.blur(); window.missed = new Set({REACHABLE}); window.unseen = []"
    ));
    let count = browser.run("return window.missed.size").as_u64().unwrap();
    // A field of a time has a place for each of its parts, which shows the focus itself.
    for _ in 0..2 * count + 8 {
        browser.press(TAB);
        browser.run(
            "const own = document.activeElement; window.missed.delete(own);
             if (!own.matches('body, [type^=\"date\"]') && getComputedStyle(own).outlineStyle === 'none') window.unseen.push(own.outerHTML)",
        );
    }
    let left = "return [...window.missed].filter((own) => own.isConnected).map((own) => own.outerHTML).concat(window.unseen)";
    browser.run(left)
}

/// Walks through all pages.
fn walk_through_all(browser: &Browser, served: &Served) {
    let clients = served.get("/clients?role=publisher", "").json();
    let client = format!("client?conn={}", clients["rows"][0]["conn"]);
    for (page, title, ready) in [
        ("", "Overview", "document.querySelector('.facts')"),
        ("topics", "Topics", "document.getElementById('Next')"),
        ("topic?name=rooms/000", "Topic", "document.querySelector('svg.ring')"),
        ("messages?topic=rooms/000", "Messages", "document.querySelector('.message')"),
        ("clients", "Clients", "document.querySelector('tbody a')"),
        (&*client, "Client", "document.getElementById('disconnect')"),
        ("groups", "Groups", EMPTY),
        ("kept", "Kept", EMPTY),
        ("cluster", "Cluster", EMPTY),
        ("settings", "Settings", "document.querySelector('tbody tr')"),
        ("users", "Users", EMPTY),
        ("rights", "Rights", "document.getElementById('operation')"),
    ] {
        go(browser, served, page, title, ready);
        assert_eq!(walk(browser), json!([]), "{title}");
    }
}

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// Everything can be done with a keyboard alone, which is never lost: it goes on where the new page begins, and stays where it is in a page that changes.
#[test]
#[ignore = "long: needs Chromium"]
fn a_keyboard_reaches_everything() {
    let Some(browser) = Browser::open(1300, 850) else { return };
    let folder = tempfile::tempdir().unwrap();
    let served = Served::with(folder.path(), "[http]\nconsole = 'write'\n");
    let mut busy = Busy::start(&served, 60);
    busy.publish();
    go(&browser, &served, "topics?sort=name", "Topics", "document.getElementById('Next')");
    browser.press(TAB);
    assert_eq!(browser.run(FOCUSED), "Skip to the page");
    browser.press(ENTER);
    browser.wait("document.activeElement.id === 'main'");
    assert_eq!(browser.run("return location.hash"), "#/topics?sort=name");
    browser.press("/");
    assert_eq!(browser.run("return document.activeElement.id"), "search");
    // The first topic, by its order: search, order, first row.
    for _ in 0..2 {
        browser.press(TAB);
    }
    assert_eq!(browser.run(FOCUSED), "rooms/000");
    busy.until_changed(&browser);
    assert_eq!(browser.run(FOCUSED), "rooms/000");
    browser.press(ENTER);
    browser.wait("document.title === 'Topic · RBMQ console' && document.querySelector('svg.ring')");
    assert_eq!(browser.run(FOCUSED), "Topic");
    browser.press(TAB);
    assert_eq!(browser.run(FOCUSED), "‹ Topics");
    browser.press("g");
    browser.press("c");
    browser.wait("document.title === 'Clients · RBMQ console' && document.querySelector('tbody a')");
    assert_eq!(browser.run(FOCUSED), "Clients");
    walk_through_all(&browser, &served);
    assert_eq!(browser.errors(), [""; 0]);
    served.broker.end();
}

/// Parts of a page that have moved without an action of a person, as the browser sums them up (CLS): up to 0.1 is good.
const MOVED: &str = "new Promise((done) => {
    const sum = (list) => list.filter((own) => !own.hadRecentInput).reduce((all, own) => all + own.value, 0);
    const of = ({ sources }) => sources.map(({ node }) => node?.parentElement?.outerHTML.slice(0, 200));
    new PerformanceObserver((list, own) => { own.disconnect(); done([sum(list.getEntries()), list.getEntries().flatMap(of)]); }).observe({ type: 'layout-shift', buffered: true });
    setTimeout(() => done([0, []]), 1000);
  })";

/// A page stays where it is when it comes and when it changes.
#[test]
#[ignore = "long: needs Chromium"]
fn nothing_moves_under_a_reader() {
    let Some(browser) = Browser::open(1300, 850) else { return };
    let folder = tempfile::tempdir().unwrap();
    let served = Served::with(folder.path(), "");
    let mut busy = Busy::start(&served, 60);
    for width in [1300, 390] {
        browser.resize(width, 850);
        for (page, title, ready) in [
            ("", "Overview", "document.querySelector('.facts')"),
            ("topics?sort=name", "Topics", "document.getElementById('Next')"),
            ("topic?name=rooms/000", "Topic", "document.querySelector('svg.ring')"),
            ("clients", "Clients", "document.querySelector('tbody a')"),
        ] {
            browser.go("about:blank");
            go(&browser, &served, page, title, ready);
            if title != "Clients" {
                busy.until_changed(&browser);
            }
            let moved = browser.finish(MOVED);
            assert!(moved[0].as_f64() < Some(MOST_MOVED), "{title}, {width} pixels wide: {moved}");
        }
    }
    served.broker.end();
}

/// A fifth of what counts as good.
const MOST_MOVED: f64 = 0.02;
