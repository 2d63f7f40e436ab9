//! Messages in the console: who reads and publishes which.

use std::path::Path;
use std::time::SystemTime;

use access::{TokenHash, UsersFile, new_token};
use rbmq::wire::Secret;
use serde_json::json;
use testkit::LONG;

use super::{Answer, ask};
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

    fn get(&self, path: &str, more: &str) -> Answer {
        ask(&self.http, "GET", &format!("/api/v1{path}"), more, "")
    }

    fn publish(&self, topic: &str, text: &str, more: &str) -> Answer {
        let body = json!({ "topic": topic, "text": text }).to_string();
        ask(&self.http, "POST", "/api/v1/messages", more, &body)
    }
}

/// The newest messages of a topic that is in memory alone, and of one that is kept.
#[test]
fn the_newest_messages_are_shown_as_text_or_digits() {
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
        let shown = served.get("/messages?topic=news&count=3", "");
        assert_eq!(shown.status, 200, "{shown:?}");
        let rows = shown.json()["rows"].clone();
        let texts = [&rows[0]["text"], &rows[1]["text"], &rows[2]["hex"]];
        assert_eq!(texts, [&json!("{\"n\":28}"), &json!("{\"n\":29}"), &json!("00ff")], "{args:?} {shown:?}");
        assert_eq!(served.get("/messages?topic=nothing", "").json()["rows"], json!([]));
        for wrong in ["/messages", "/messages?topic=news&count=101", "/messages?topic=a%00"] {
            assert_eq!(served.get(wrong, "").status, 400, "{wrong}");
        }
        // The console changes nothing unless it is told so.
        assert_eq!(served.get("/session", "").json()["may_publish"], false);
        let csrf = served.get("/session", "").json()["csrf"].as_str().unwrap().to_owned();
        let refused = served.publish("news", "x", &format!("X-RBMQ-CSRF: {csrf}\r\n"));
        assert_eq!((refused.status, refused.why().contains("http.console")), (403, true), "{refused:?}");
        served.broker.end();
    }
}

/// A configuration with the user anna, who may use the topics below `open` and nothing else.
pub(super) fn configure(folder: &Path) -> Secret {
    let token = new_token().unwrap();
    let users = folder.join("users.toml");
    std::fs::write(&users, "[[user]]\nname = 'anna'\n").unwrap();
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut file = UsersFile::edit(&users).unwrap();
    file.add_token("script", "anna", &TokenHash::of(&token), SystemTime::now(), None).unwrap();
    file.save().unwrap();
    let config = format!(
        "[users]\nfile = '{}'\n[audit]\nfile = '{}'\n[http]\nconsole = 'write'\n\
         [[access.rules]]\nusers = ['anna']\npublish = ['open/#']\nsubscribe = ['open/#']\n",
        users.display(),
        folder.join("audit.log").display()
    );
    std::fs::write(folder.join("rbmq.toml"), config).unwrap();
    token
}

#[test]
fn a_user_reads_and_publishes_what_its_rights_allow() {
    let folder = tempfile::tempdir().unwrap();
    let token = configure(folder.path());
    let served = Served::start(&["--config", folder.path().join("rbmq.toml").to_str().unwrap()]);
    assert_eq!(served.get("/messages?topic=open/a", "").status, 401);
    assert_eq!(served.publish("open/a", "x", "").status, 401);
    let login = json!({ "token": token.expose() }).to_string();
    let begun = ask(&served.http, "POST", "/api/v1/session", "", &login);
    let csrf = begun.json()["csrf"].as_str().unwrap().to_owned();
    let cookie = format!("Cookie: {}\r\n", begun.cookie());
    let own = format!("{cookie}X-RBMQ-CSRF: {csrf}\r\n");
    assert_eq!(served.publish("open/a", "forged", &cookie).status, 403);
    let published = served.publish("open/a", "hello <b>", &own);
    assert_eq!((published.status, &published.json()["length"]), (200, &json!(9)), "{published:?}");
    let rows = served.get("/messages?topic=open/a", &cookie).json()["rows"].clone();
    assert_eq!((rows[0]["text"].as_str(), rows.as_array().unwrap().len()), (Some("hello <b>"), 1));
    let closed = served.publish("closed", "x", &own);
    assert!(closed.status == 403 && closed.why().contains("may not publish topic 'closed'"), "{closed:?}");
    let closed = served.get("/messages?topic=closed", &cookie);
    assert!(closed.status == 403 && closed.why().contains("may not subscribe"), "{closed:?}");
    assert_eq!(served.get("/topics", &cookie).status, 403, "it may not observe");
    assert_eq!(served.publish("open/a", &"x".repeat(70_000), &own).status, 400);
    served.broker.end();
    let log = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
    let line = log.lines().find(|line| line.contains("\"event\":\"console\"")).unwrap();
    for wanted in ["\"user\":\"anna\"", "\"operation\":\"publish\"", "\"topic\":\"open/a\""] {
        assert!(line.contains(wanted), "{line}");
    }
}
