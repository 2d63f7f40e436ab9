//! Who may see the console: tokens, users, sessions, and what ends them.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use access::{AccessRule, PasswordHash, TokenHash, UsersFile, new_token};
use rbmq::wire::Secret;
use serde_json::json;

use super::Site;

pub(super) const PASSWORD: &str = "correct horse";

/// A file of users: anna may observe, and bert may not.
pub(super) struct Users {
    pub(super) folder: tempfile::TempDir,
    pub(super) token: Secret,
}

impl Users {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = new_token().unwrap();
        let users = Self { folder, token };
        let mut file = UsersFile::edit(&users.path()).unwrap();
        let hash = PasswordHash::of(&Secret::from(PASSWORD.to_owned())).unwrap();
        file.set_password("anna", &hash).unwrap();
        file.set_password("bert", &hash).unwrap();
        file.add_token("script", "anna", &TokenHash::of(&users.token), SystemTime::now(), None).unwrap();
        file.save().unwrap();
        users
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("users.toml")
    }

    pub(super) fn start(&self, more: impl FnOnce(&mut rbmq_broker::BrokerConfig)) -> Site {
        Site::start(|config| {
            config.users.file = self.path().display().to_string();
            let mut anna = AccessRule::for_user("anna");
            anna.observe = true;
            config.access.rules = vec![anna, AccessRule::for_user("bert")];
            config.audit.file = self.folder.path().join("audit.log").display().to_string();
            more(config);
        })
    }
}

pub(super) fn log_in(site: &Site, body: &serde_json::Value) -> super::Answer {
    site.ask("POST", "/api/v1/session", "", &body.to_string())
}

pub(super) fn write_token(path: &Path, token: &str) {
    std::fs::write(path, token).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn a_user_logs_in_and_sees_what_its_rights_allow() {
    let users = Users::new();
    let site = users.start(|_| {});
    let nobody = site.api("/session");
    assert_eq!((&nobody["who"], &nobody["logins"]["password"]), (&json!(null), &json!(true)));
    assert_eq!(site.get("/api/v1/overview").status, 401);
    for wrong in [
        json!({ "user": "anna", "password": "x" }),
        json!({ "user": "eve", "password": PASSWORD }),
        json!({ "token": "rbmq_x" }),
    ] {
        let answer = log_in(&site, &wrong);
        assert_eq!((answer.status, &*answer.why()), (401, "the name, the password or the token is wrong"));
    }
    let anna = log_in(&site, &json!({ "user": "anna", "password": PASSWORD }));
    assert_eq!(anna.status, 200, "{anna:?}");
    for wanted in ["HttpOnly", "SameSite=Strict", "Path=/api/"] {
        assert!(anna.head.contains(wanted), "{}", anna.head);
    }
    let own = format!("Cookie: {}\r\n", anna.cookie());
    assert_eq!(site.ask("GET", "/api/v1/overview", &own, "").status, 200);
    assert_eq!(site.ask("GET", "/api/v1/session", &own, "").json()["who"]["user"], "anna");

    let bert = log_in(&site, &json!({ "user": "bert", "password": PASSWORD }));
    assert_eq!((bert.status, &bert.json()["may_observe"]), (200, &json!(false)));
    let cookie = format!("Cookie: {}\r\n", bert.cookie());
    let all = "overview topics topic?name=a clients kept settings cluster history stream/topics";
    for path in all.split(' ') {
        let answer = site.ask("GET", &format!("/api/v1/{path}"), &cookie, "");
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.why().contains("observe = true"), "{path}: {answer:?}");
    }
    let script = format!("Authorization: Bearer {}\r\n", users.token.expose());
    assert_eq!(site.ask("GET", "/api/v1/overview", &script, "").status, 200);
    assert_eq!(site.ask("GET", "/api/v1/overview", "Authorization: Bearer rbmq_wrong\r\n", "").status, 401);
    drop(site);
    let log = std::fs::read_to_string(users.folder.path().join("audit.log")).unwrap();
    for wanted in [
        "\"event\":\"login\",\"user\":\"anna\"",
        "wrong password of the user",
        "\"role\":\"console\"",
        "observe the broker",
    ] {
        assert!(log.contains(wanted), "{wanted}: {log}");
    }
}

#[test]
fn a_session_ends_with_its_user_its_logout_and_never_comes_back() {
    let users = Users::new();
    let mut site = users.start(|_| {});
    let begun = log_in(&site, &json!({ "token": users.token.expose() }));
    let (cookie, csrf) = (begun.cookie(), begun.json()["csrf"].as_str().unwrap().to_owned());
    let own = format!("Cookie: {cookie}\r\n");
    // Without the text, which a foreign page cannot read, nothing changes.
    for wrong in ["", "X-RBMQ-CSRF: x\r\n", "X-RBMQ-CSRF:\r\n"] {
        let answer = site.ask("DELETE", "/api/v1/session", &format!("{own}{wrong}"), "");
        assert_eq!(answer.status, 403, "{wrong}: {answer:?}");
    }
    assert_eq!(site.ask("GET", "/api/v1/topics", &own, "").status, 200);
    let out = site.ask("DELETE", "/api/v1/session", &format!("{own}X-RBMQ-CSRF: {csrf}\r\n"), "");
    assert!(out.status == 200 && out.head.contains("Max-Age=0"), "{out:?}");
    let replayed = site.ask("GET", "/api/v1/topics", &own, "");
    assert_eq!((replayed.status, &*replayed.why()), (401, "the session has ended: log in again"));

    let again = log_in(&site, &json!({ "user": "anna", "password": PASSWORD }));
    let own = format!("Cookie: {}\r\n", again.cookie());
    assert_eq!(site.ask("GET", "/api/v1/topics", &own, "").status, 200);
    let mut file = UsersFile::edit(&users.path()).unwrap();
    let other = PasswordHash::of(&Secret::from("another one".to_owned())).unwrap();
    file.set_password("anna", &other).unwrap();
    file.save().unwrap();
    let config = site.broker.config().clone();
    site.broker.reload(&config).unwrap();
    assert_eq!(site.ask("GET", "/api/v1/topics", &own, "").status, 401, "the password is another one");
}

#[test]
fn the_token_of_the_endpoint_opens_the_console_until_another_one_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    write_token(&path, "0123456789abcdef");
    let site = Site::start(|config| config.http.token_file = path.display().to_string());
    assert_eq!(site.get("/api/v1/topics").status, 401);
    let bearer = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(site.ask("GET", "/api/v1/topics", bearer, "").status, 200);
    let wrong = log_in(&site, &json!({ "token": "0123456789abcdex" }));
    assert_eq!((wrong.status, &*wrong.why()), (401, "the token is wrong"));
    let begun = log_in(&site, &json!({ "token": "0123456789abcdef" }));
    let own = format!("Cookie: {}\r\n", begun.cookie());
    assert_eq!(site.ask("GET", "/api/v1/topics", &own, "").status, 200);
    // A cookie opens the console alone.
    assert_eq!(site.ask("GET", "/topics", &own, "").status, 401);
    site.endpoint.reload().unwrap();
    assert_eq!(site.ask("GET", "/api/v1/topics", &own, "").status, 200, "the token is the same");
    write_token(&path, "fedcba9876543210");
    site.endpoint.reload().unwrap();
    assert_eq!(site.ask("GET", "/api/v1/topics", &own, "").status, 401);
    assert_eq!(site.ask("GET", "/api/v1/topics", bearer, "").status, 401);
}

/// With a token of the endpoint and users, the token of a user is no guess of the endpoint's. What is no user's is one.
#[test]
fn the_token_of_a_user_is_no_wrong_one_of_the_endpoint() {
    let users = Users::new();
    let path = users.folder.path().join("token");
    write_token(&path, "0123456789abcdef");
    let site = users.start(|config| config.http.token_file = path.display().to_string());
    let script = format!("Authorization: Bearer {}\r\n", users.token.expose());
    for _ in 0..10 {
        assert_eq!(site.ask("GET", "/api/v1/overview", &script, "").status, 200);
        assert_eq!(log_in(&site, &json!({ "token": users.token.expose() })).status, 200);
        let own = "Authorization: Bearer 0123456789abcdef\r\n";
        assert_eq!(site.ask("GET", "/api/v1/overview", own, "").status, 200);
    }
    let log = || std::fs::read_to_string(users.folder.path().join("audit.log")).unwrap_or_default();
    let guess = site.ask("GET", "/api/v1/overview", "Authorization: Bearer fedcba9876543210\r\n", "");
    assert_eq!((guess.status, &*guess.why()), (401, "the token is wrong"));
    // Shown as an issuer's token, and so to the users.
    let issued = site.ask("GET", "/api/v1/overview", "Authorization: Bearer eyJ0.eyJz.c2ln\r\n", "");
    assert_eq!((issued.status, &*issued.why()), (401, "the name, the password or the token is wrong"));
    drop(site);
    assert_eq!(log().matches("the token is wrong").count(), 1, "the one guess: {}", log());
}

/// Two brokers of a host have cookies of their own.
#[test]
fn a_cookie_is_of_one_port() {
    let users = Users::new();
    let site = users.start(|_| {});
    let body = json!({ "token": users.token.expose() }).to_string();
    let mut stream = site.connect();
    let head = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:7412\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("set-cookie: rbmq-console-7412="), "{answer}");
}

/// A cookie that is shown at another port opens nothing: neither another broker with the same users, nor its own under the other's name.
#[test]
fn a_cookie_opens_its_own_broker_alone() {
    let users = Users::new();
    let (site, other) = (users.start(|_| {}), users.start(|_| {}));
    let begun = log_in(&site, &json!({ "token": users.token.expose() })).cookie();
    let (name, secret) = begun.split_once('=').unwrap();
    let status = |site: &Site, name: &str| {
        site.ask("GET", "/api/v1/topics", &format!("Cookie: {name}={secret}\r\n"), "").status
    };
    assert_eq!((status(&site, name), status(&other, name)), (200, 401));
    assert_eq!(status(&site, "rbmq-console-7412"), 401);
}

/// A stream ends with the session that has opened it, and nobody opens it again with the cookie.
#[test]
fn a_stream_ends_with_its_session() {
    let users = Users::new();
    let site = users.start(|_| {});
    let begun = log_in(&site, &json!({ "token": users.token.expose() }));
    let (own, csrf) = (format!("Cookie: {}\r\n", begun.cookie()), begun.json()["csrf"].clone());
    let mut stream = site.connect();
    let request =
        format!("GET /api/v1/stream/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{own}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut seen, mut bytes) = (String::new(), [0; 512]);
    let mut read = |seen: &mut String| {
        let read = stream.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        read > 0
    };
    while !seen.contains("data: ") {
        assert!(read(&mut seen), "it has begun: {seen}");
    }
    let csrf = format!("{own}X-RBMQ-CSRF: {}\r\n", csrf.as_str().unwrap());
    assert_eq!(site.ask("DELETE", "/api/v1/session", &csrf, "").status, 200);
    while read(&mut seen) {}
    assert!(seen.contains("event: problem") && seen.contains("401"), "{seen}");
    assert_eq!(site.ask("GET", "/api/v1/stream/topics", &own, "").status, 401);
}
