//! Messages in the console: who reads and publishes which, and that nobody waits for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use access::{TokenHash, UsersFile, new_token};
use rbmq::{PublishError, StartFrom};
use serde_json::{Value, json};
use testkit::{LONG, until};

use super::{Answer, Site, answer, ask, connect, request};
use crate::common::operator::Operated;

/// A broker process, and the address of its endpoint.
pub(super) struct Served {
    pub(super) broker: Operated,
    pub(super) http: String,
}

impl Served {
    pub(super) fn start(args: &[&str]) -> Self {
        let broker = Operated::start_with(&[&["--http", "127.0.0.1:0"], args].concat());
        let console = broker.wait_said("rbmq: console at http://");
        Self { broker, http: console.trim_end_matches("/ui/").to_owned() }
    }

    /// With this configuration.
    pub(super) fn with(folder: &Path, config: &str) -> Self {
        let path = folder.join("rbmq.toml");
        std::fs::write(&path, config).unwrap();
        Self::start(&["--config", path.to_str().unwrap()])
    }

    pub(super) fn get(&self, path: &str, more: &str) -> Answer {
        ask(&self.http, "GET", &format!("/api/v1{path}"), more, "")
    }

    fn publish(&self, topic: &str, text: &str, more: &str) -> Answer {
        ask(&self.http, "POST", "/api/v1/messages", more, &message(topic, text))
    }

    /// The field against forged requests, of somebody who need not log in.
    fn csrf(&self) -> String {
        let csrf = self.get("/session", "").json()["csrf"].as_str().unwrap().to_owned();
        format!("X-RBMQ-CSRF: {csrf}\r\n")
    }
}

fn message(topic: &str, text: &str) -> String {
    json!({ "topic": topic, "text": text }).to_string()
}

/// The texts of the only log of an answer, or the digits.
fn texts(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let logs = answer.json()["logs"].as_array().unwrap().clone();
    let rows = logs.iter().flat_map(|log| log["rows"].as_array().unwrap().clone());
    let text = |row: Value| row["text"].as_str().or(row["hex"].as_str()).unwrap().to_owned();
    rows.map(text).collect()
}

/// The broker gives the publishers of a topic on pages, the oldest first.
#[test]
fn the_newest_message_is_there_however_many_publishers_were_before() {
    let served = Served::start(&[]);
    let publisher = rbmq::Publisher::connect(&served.broker.addr).unwrap();
    for n in 0..200 {
        let options = rbmq::TopicOptions::default().ring_bytes(64 << 10);
        let mut writer = publisher.topic_with("news", options).unwrap();
        writer.publish(format!("of {n}").as_bytes()).unwrap();
        writer.close_timeout(Some(LONG)).unwrap();
    }
    let newest = served.get("/messages?topic=news&count=1", "");
    assert_eq!(texts(&newest)[0], "of 199");
    assert_eq!(newest.json()["is_cut"], true);
}

/// Other machines reach the endpoint, and not the broker.
#[test]
fn an_endpoint_that_is_more_open_than_its_broker_shows_no_messages() {
    let broker = Operated::start_with(&["--http", "0.0.0.0:0", "--insecure"]);
    let console = broker.wait_said("rbmq: console at http://0.0.0.0:");
    let served = Served { broker, http: format!("127.0.0.1:{}", console.trim_end_matches("/ui/")) };
    let refused = served.get("/messages?topic=news", "");
    assert!(refused.status == 403 && refused.body.contains("users.file"), "{refused:?}");
    assert_eq!(served.get("/topics", "").status, 200);
}

/// A user with a token.
fn add_user(users: &Path, name: &str) -> String {
    let token = new_token().unwrap();
    let before = std::fs::read_to_string(users).unwrap_or_default();
    std::fs::write(users, format!("{before}[[user]]\nname = '{name}'\n")).unwrap();
    std::fs::set_permissions(users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut file = UsersFile::edit(users).unwrap();
    file.add_token(&format!("of-{name}"), name, &TokenHash::of(&token), SystemTime::now(), None).unwrap();
    file.save().unwrap();
    token.expose().to_owned()
}

/// A configuration in which users publish in the console, and its audit log. Returns the tokens of anna, who may use the topics below `open`, and of
/// bert, who has no rights.
pub(super) fn configured(folder: &Path, more: &str) -> (String, PathBuf, [String; 2]) {
    let (users, audit) = (folder.join("users.toml"), folder.join("audit.log"));
    let tokens = ["anna", "bert"].map(|name| add_user(&users, name));
    let config = format!(
        "[users]\nfile = '{}'\n[audit]\nfile = '{}'\n[http]\nconsole = 'write'\n{more}\n\
         [[access.rules]]\nusers = ['anna']\npublish = ['open/#']\nsubscribe = ['open/#']\n",
        users.display(),
        audit.display()
    );
    (config, audit, tokens)
}

pub(super) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The lines of an audit log that have all of these texts.
pub(super) fn lines(audit: &Path, texts: &[&str]) -> usize {
    let log = std::fs::read_to_string(audit).unwrap_or_default();
    log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
}

/// Of a topic in memory, and of one on the disk.
#[test]
fn messages_are_shown_as_text_or_digits_from_where_somebody_wants() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    for args in [&[][..], &["--keep", kept.to_str().unwrap()]] {
        let served = Served::start(args);
        let publisher = rbmq::Publisher::connect(&served.broker.addr).unwrap();
        let mut writer = publisher.topic("news").unwrap();
        for n in 0..30 {
            writer.publish(format!("{{\"n\":{n}}}").as_bytes()).unwrap();
        }
        writer.publish(&[0, 0xff]).unwrap();
        writer.flush(Some(LONG)).unwrap();
        let newest = served.get("/messages?topic=news&count=3", "");
        assert_eq!(texts(&newest), ["{\"n\":28}", "{\"n\":29}", "00ff"], "{args:?}");
        let log = newest.json()["logs"][0].clone();
        let (first, last) = (&log["rows"][0], &log["rows"][2]);
        assert_eq!((&log["is_kept"], &log["is_cut"]), (&json!(!args.is_empty()), &json!(true)));
        let older = served.get(&format!("/messages?topic=news&count=2&before={}", first["position"]), "");
        assert_eq!(texts(&older), ["{\"n\":26}", "{\"n\":27}"]);
        let from = served.get(&format!("/messages?topic=news&count=9&from={}", first["position"]), "");
        assert_eq!(texts(&from), texts(&newest));
        assert!(texts(&served.get(&format!("/messages?topic=news&from={}", last["end"]), "")).is_empty());
        assert_eq!(texts(&served.get("/messages?topic=news&search=N%22:7", "")), ["{\"n\":7}"]);
        let since = served.get("/messages?topic=news&count=1&time=1000", "");
        match args.is_empty() {
            true => assert_eq!((since.status, since.why().contains("keep = true")), (400, true)),
            false => assert_eq!(texts(&since), ["{\"n\":0}"]),
        }
        assert!(texts(&served.get("/messages?topic=nothing", "")).is_empty());
        for wrong in
            ["", "?topic=news&count=101", "?topic=a%00", "?topic=a&from=1&before=2", "?topic=a&from=x"]
        {
            assert_eq!(served.get(&format!("/messages{wrong}"), "").status, 400, "{wrong}");
        }
        // The console changes nothing unless it is told so.
        assert_eq!(served.get("/session", "").json()["may_publish"], false);
        let refused = served.publish("news", "x", &served.csrf());
        assert_eq!((refused.status, refused.why().contains("http.console")), (403, true), "{refused:?}");
        served.broker.end();
    }
}

#[test]
fn a_user_reads_and_publishes_what_its_rights_allow() {
    let folder = tempfile::tempdir().unwrap();
    let (config, audit, [anna, bert]) = configured(folder.path(), "");
    let served = Served::with(folder.path(), &config);
    assert_eq!(served.get("/messages?topic=open/a", "").status, 401);
    assert_eq!(served.publish("open/a", "x", "").status, 401);
    let login = json!({ "token": anna }).to_string();
    let begun = ask(&served.http, "POST", "/api/v1/session", "", &login);
    let csrf = begun.json()["csrf"].as_str().unwrap().to_owned();
    let cookie = format!("Cookie: {}\r\n", begun.cookie());
    let own = format!("{cookie}X-RBMQ-CSRF: {csrf}\r\n");
    assert_eq!(served.publish("open/a", "forged", &cookie).status, 403);
    let published = served.publish("open/a", "hello <b>", &own);
    assert_eq!((published.status, &published.json()["length"]), (200, &json!(9)), "{published:?}");
    assert_eq!(texts(&served.get("/messages?topic=open/a", &cookie)), ["hello <b>"]);
    let closed = served.publish("closed", "x", &own);
    assert!(closed.status == 403 && closed.why().contains("may not publish topic 'closed'"), "{closed:?}");
    let closed = served.get("/messages?topic=closed", &cookie);
    assert!(closed.status == 403 && closed.why().contains("may not subscribe"), "{closed:?}");
    assert_eq!(served.get("/topics", &cookie).status, 403, "it may not observe");
    for refused in
        [served.get("/messages?topic=open/a", &bearer(&bert)), served.publish("open/a", "x", &bearer(&bert))]
    {
        assert!(refused.status == 403 && refused.why().contains("user 'bert' may not"), "{refused:?}");
    }
    assert_eq!(served.publish("open/a", &"x".repeat(70_000), &own).status, 413);
    assert_eq!(served.publish("open/a", &"x".repeat(600_000), &own).status, 413);
    served.broker.end();
    let line = [
        "\"event\":\"console\"",
        "\"user\":\"anna\"",
        "\"operation\":\"publish\"",
        "\"topic\":\"open/a\"",
        "\"count\":9",
    ];
    assert_eq!((lines(&audit, &line), lines(&audit, &line[..1])), (1, 1));
}

/// A message has its line also where nobody waits for the answer, and one publisher serves all of a user's messages.
#[test]
fn every_message_has_its_line_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let (config, audit, [anna, _]) = configured(folder.path(), "");
    let served = Served::with(folder.path(), &config);
    let subscriber = rbmq::Subscriber::builder().login(rbmq::Login::default().token(&anna));
    let mut subscriber = subscriber.connect(&served.broker.addr).unwrap();
    subscriber.subscribe_from("open/#", StartFrom::Oldest).unwrap();
    for n in 0..12 {
        let (text, own) = (n.to_string(), bearer(&anna));
        // One of three waits for the answer, and for the message before. The others leave at once.
        if n % 3 == 0 {
            until("it is published", || served.publish("open/a", &text, &own).status == 200);
            continue;
        }
        let body = message("open/a", &text);
        connect(&served.http).write_all(request("POST", "/api/v1/messages", &own, &body).as_bytes()).unwrap();
    }
    let mut seen = 0;
    until("each message has its line", || {
        while subscriber.recv(Some(Duration::ZERO)).unwrap().is_some() {
            seen += 1;
        }
        seen >= 4 && lines(&audit, &["\"event\":\"console\"", "\"operation\":\"publish\""]) == seen
    });
    drop(subscriber);
    served.broker.end();
    assert_eq!(lines(&audit, &["\"event\":\"login\"", "\"role\":\"publisher\"", "\"user\":\"anna\""]), 1);
}

/// Messages that a user publishes here count for its quotas, as those of any client.
#[test]
fn publishing_has_the_quotas_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let (config, audit, [anna, _]) = configured(folder.path(), "[quotas]\nuser_topics = 2\n");
    let served = Served::with(folder.path(), &config);
    for topic in ["open/a", "open/b", "open/a"] {
        let published = served.publish(topic, "x", &bearer(&anna));
        assert_eq!(published.status, 200, "{topic}: {published:?}");
    }
    let refused = served.publish("open/c", "x", &bearer(&anna));
    assert!(refused.status == 403 && refused.why().contains("anna"), "{refused:?}");
    assert_eq!(lines(&audit, &["\"event\":\"console\"", "\"topic\":\"open/c\"", "\"reason\""]), 1);
    served.broker.end();
}

/// Somebody who loses the right is cut off as any publisher, and the next message is refused.
#[test]
fn a_reload_takes_the_right_away() {
    let folder = tempfile::tempdir().unwrap();
    let (config, audit, [anna, _]) = configured(folder.path(), "");
    let served = Served::with(folder.path(), &config);
    assert_eq!(served.publish("open/a", "x", &bearer(&anna)).status, 200);
    std::fs::write(folder.path().join("rbmq.toml"), config.replace("publish = ['open/#']\n", "")).unwrap();
    served.broker.signal("HUP");
    until("the reload is there", || lines(&audit, &["\"event\":\"reload\""]) == 1);
    let refused = served.publish("open/a", "x", &bearer(&anna));
    assert!(refused.status == 403 && refused.why().contains("may not publish"), "{refused:?}");
    served.broker.end();
}

/// The publisher of a user that is removed is cut off at once, also where it has nothing to do.
#[test]
fn a_user_that_is_removed_has_no_publisher_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (config, audit, [anna, _]) = configured(folder.path(), "");
    let served = Served::with(folder.path(), &config);
    assert_eq!(served.publish("open/a", "x", &bearer(&anna)).status, 200);
    std::fs::write(folder.path().join("users.toml"), "[[user]]\nname = 'bert'\n").unwrap();
    served.broker.signal("HUP");
    until("it is cut off", || lines(&audit, &["\"event\":\"cut\"", "\"user\":\"anna\""]) == 1);
    assert_eq!(served.publish("open/a", "x", &bearer(&anna)).status, 401);
    served.broker.end();
}

/// While somebody looks, a publisher that wants a subscriber has none, and another one writes its ring again and again: it overtakes a look.
#[test]
fn a_look_is_no_subscriber_and_holds_nobody() {
    let site = Site::start(|_| {});
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let options = rbmq::TopicOptions::default();
    let mut free = publisher.topic_with("free", options.clone().ring_bytes(1 << 20)).unwrap();
    let mut bound = publisher.topic_with("bound", options.min_subscribers(1)).unwrap();
    let looks = Arc::new(());
    let going_on = Arc::downgrade(&looks);
    let publishing = std::thread::spawn(move || {
        while going_on.upgrade().is_some() {
            for _ in 0..64 {
                free.publish_timeout(&[b'x'; 100], Some(LONG)).unwrap();
            }
            let refused = bound.publish_timeout(b"x", Some(Duration::ZERO));
            let is_refused = matches!(refused, Err(PublishError::TooFewSubscribers { present: 0, .. }));
            assert!(is_refused, "{refused:?}");
        }
    });
    until("the publisher overtakes a look that goes through all of its ring", || {
        assert!(!publishing.is_finished(), "a publisher was held, or had a subscriber");
        assert!([200, 429].contains(&site.get("/api/v1/messages?topic=bound").status));
        let answer = site.get("/api/v1/messages?topic=free&from=0&search=nothing");
        answer.status == 200 && answer.json()["logs"][0]["is_cut"] == true && texts(&answer).is_empty()
    });
    drop(looks);
    publishing.join().unwrap();
    let clients = site.until("/clients", |page| page["total"] == 1);
    assert_eq!(clients["rows"][0]["role"], "publisher", "{clients}");
}

/// A thousand looks at once are answered or told to wait, and others find a place.
#[test]
fn a_thousand_looks_at_once_are_answered() {
    let site = Site::start(|config| config.http.max_connections = 2_000);
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("news").unwrap();
    (0..1_000).for_each(|_| _ = writer.publish(&[b'x'; 1_000]).unwrap());
    writer.flush(Some(LONG)).unwrap();
    let look = request("GET", "/api/v1/messages?topic=news&count=100", "", "");
    let begin = |_| {
        let mut stream = connect(&site.endpoint.addr().to_string());
        stream.write_all(look.as_bytes()).unwrap();
        stream
    };
    let all: Vec<_> = (0..1_000).map(begin).collect();
    assert_eq!(site.get("/health").status, 200);
    let statuses: Vec<_> = all.into_iter().map(|stream| answer(stream).status).collect();
    let of = |status| statuses.iter().filter(|own| **own == status).count();
    assert!(of(200) > 0 && of(429) > 0, "{statuses:?}");
    assert_eq!(of(200) + of(429) + of(503), 1_000, "{statuses:?}");
}

/// A topic of a space shows its own messages alone. Who may publish only some topics of a space is told so, as everywhere.
#[test]
fn topics_of_a_space_are_read_one_by_one_and_published_by_who_may_all() {
    let folder = tempfile::tempdir().unwrap();
    let more = "[[broker.topics]]\npattern = 'open/#'\nspace = true\n\
                [[access.rules]]\nusers = ['bert']\npublish = ['open/7']\nsubscribe = ['open/7']\n";
    let (config, _, [anna, bert]) = configured(folder.path(), more);
    let served = Served::with(folder.path(), &config);
    for (topic, text) in [("open/7", "seven"), ("open/8", "eight"), ("open/7", "seven again")] {
        let published = served.publish(topic, text, &bearer(&anna));
        assert_eq!(published.status, 200, "{published:?}");
    }
    for user in [&anna, &bert] {
        let seven = served.get("/messages?topic=open/7", &bearer(user));
        assert_eq!(texts(&seven), ["seven", "seven again"]);
        assert_eq!(seven.json()["space"], "$space/open");
    }
    assert_eq!(served.get("/messages?topic=open/8", &bearer(&bert)).status, 403);
    let all = served.get("/messages?topic=$space/open", &bearer(&anna));
    assert_eq!(texts(&all), ["seven", "eight", "seven again"]);
    assert_eq!(served.get("/messages?topic=$space/open", &bearer(&bert)).status, 403);
    let refused = served.publish("open/7", "x", &bearer(&bert));
    assert!(refused.status == 403 && refused.why().contains("which is a space"), "{refused:?}");
    served.broker.end();
}
