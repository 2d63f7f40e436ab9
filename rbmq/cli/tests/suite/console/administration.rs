//! Administration: who may see users and disconnect clients, and what becomes of a client that is disconnected.

use rbmq_broker::{BrokerConfig, EndpointConsole};
use serde_json::json;
use testkit::{LONG, until};

use super::logins::{PASSWORD, Users, log_in};
use super::{Answer, Site};

/// The fields of a request by a browser that has logged in.
fn fields(answer: &Answer) -> String {
    let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();
    format!("Cookie: {}\r\nX-RBMQ-CSRF: {csrf}\r\n", answer.cookie())
}

fn writes(config: &mut BrokerConfig) {
    config.http.console = EndpointConsole::Write;
}

/// The connection of the only publisher.
fn publisher(site: &Site) -> u64 {
    let page = site.until("/clients?role=publisher", |page| page["rows"][0]["connected"] == true);
    page["rows"][0]["conn"].as_u64().unwrap()
}

#[test]
fn a_client_is_disconnected_with_an_audit_line_and_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let site = Site::start(|config| {
        writes(config);
        config.audit.file = log.display().to_string();
    });
    let publisher_ = rbmq::Publisher::builder().name("sensor").connect(&site.broker.addr()).unwrap();
    let mut writer = publisher_.topic("news").unwrap();
    let mut subscriber = rbmq::Subscriber::builder().name("reader").connect(&site.broker.addr()).unwrap();
    subscriber.subscribe("news").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let conn = publisher(&site);
    let path = format!("/api/v1/client?conn={conn}");
    assert_eq!(site.get(&path).json()["row"]["name"], "sensor");
    let session = site.api("/session");
    assert_eq!((&session["may_administer"], &session["changes"]), (&json!(true), &json!(true)));
    let forged = site.ask("DELETE", &path, "", "");
    assert!(forged.status == 403 && forged.why().contains("X-RBMQ-CSRF"), "{forged:?}");
    let csrf = format!("X-RBMQ-CSRF: {}\r\n", session["csrf"].as_str().unwrap());
    let done = site.ask("DELETE", &path, &csrf, "");
    assert!(done.status == 200 && done.json()["client"]["name"] == "sensor", "{done:?}");
    // Nothing is lost: the publisher goes on with another connection.
    until("it is here again", || publisher(&site) != conn);
    writer.publish(b"after").unwrap();
    assert_eq!(&subscriber.recv(Some(LONG)).unwrap().unwrap().bytes[..], b"after");
    let again = site.ask("DELETE", &path, &csrf, "");
    assert!(again.status == 404 && again.why().contains("no client has this connection"), "{again:?}");
    let wrong = site.ask("DELETE", "/api/v1/client?conn=x", &csrf, "");
    assert!(wrong.status == 400 && wrong.why().starts_with("conn: "), "{wrong:?}");
    let page = site.until("/clients?search=reader", |page| page["matched"] == 1);
    let conn = &page["rows"][0]["conn"];
    let done = site.ask("DELETE", &format!("/api/v1/client?conn={conn}"), &csrf, "");
    assert_eq!(done.json()["client"]["role"], "subscriber", "{done:?}");
    drop((site, writer, publisher_));
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("\"event\":\"disconnect\"")).collect();
    assert!(lines.len() == 2 && lines[0].contains("\"client\":\"sensor\""), "{log}");
    assert!(
        lines[0].contains("\"role\":\"console\"") && lines[0].contains("publisher at 127.0.0.1:"),
        "{log}"
    );
}

#[test]
fn a_console_that_only_reads_disconnects_nobody() {
    let site = Site::start(|_| {});
    let _publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let conn = publisher(&site);
    let session = site.api("/session");
    let csrf = format!("X-RBMQ-CSRF: {}\r\n", session["csrf"].as_str().unwrap());
    let refused = site.ask("DELETE", &format!("/api/v1/client?conn={conn}"), &csrf, "");
    assert!(refused.status == 403 && refused.why().contains("http.console"), "{refused:?}");
    assert_eq!((session["changes"].clone(), publisher(&site)), (json!(false), conn));
}

#[test]
fn users_and_clients_are_of_those_who_may_administer() {
    let users = Users::new();
    let token = users.folder.path().join("token");
    super::logins::write_token(&token, "the token of the endpoint, which is long enough");
    let site = users.start(|config| {
        writes(config);
        config.http.token_file = token.display().to_string();
        config.access.rules[0].administer = true;
        config.access.rules[0].publish.push("home/%u/#".parse().unwrap());
        config.access.rules[1].observe = true;
    });
    let anna = fields(&log_in(&site, &json!({ "user": "anna", "password": PASSWORD })));
    let bert = log_in(&site, &json!({ "user": "bert", "password": PASSWORD }));
    assert_eq!((&bert.json()["may_observe"], &bert.json()["may_administer"]), (&json!(true), &json!(false)));
    let bert = fields(&bert);
    let scraper = "Authorization: Bearer the token of the endpoint, which is long enough\r\n";
    let all = ["GET users", "GET tokens", "GET rights?operation=observe&user=anna", "DELETE client?conn=1"];
    for (method, path) in all.map(|line| line.split_once(' ').unwrap()) {
        let ask = |fields: &str| site.ask(method, &format!("/api/v1/{path}"), fields, "");
        let (of_bert, of_scraper) = (ask(&bert), ask(scraper));
        assert!(of_bert.status == 403 && of_bert.why().contains("administer = true"), "{path}: {of_bert:?}");
        assert!(
            of_scraper.status == 403 && of_scraper.why().contains("administers nothing"),
            "{of_scraper:?}"
        );
        assert_eq!(ask("").status, 401, "{path}");
        let of_anna = ask(&anna);
        assert_eq!(of_anna.status, if method == "GET" { 200 } else { 404 }, "{path}: {of_anna:?}");
        assert!(!of_anna.body.contains("$argon2") && !of_anna.body.contains("sha256"), "{of_anna:?}");
    }
    let get = |path: &str| site.ask("GET", &format!("/api/v1/{path}"), &anna, "").json();
    let page = get("users?search=AN");
    assert_eq!((&page["total"], &page["matched"]), (&json!(2), &json!(1)), "{page}");
    let row = &page["rows"][0];
    assert_eq!(
        (&row["name"], &row["tokens"], &row["may_administer"]),
        (&json!("anna"), &json!(1), &json!(true))
    );
    assert_eq!(get("tokens")["rows"][0]["user"], "anna");
    let given = get("rights?user=anna&operation=publish&topic=home/anna/door");
    assert!(given["allowed"] == true && given["rule"] == 1 && given["is_known"] == true, "{given}");
    assert!(given["why"].as_str().unwrap().ends_with("gives it: publish = \"home/%u/#\""), "{given}");
    let none = get("rights?user=eve&operation=publish&topic=home/anna/door");
    assert!(none["allowed"] == false && none["is_known"] == false && none["rule"] == json!(null), "{none}");
    let wrong = site.ask("GET", "/api/v1/rights?user=anna&operation=publish", &anna, "");
    assert!(wrong.status == 400 && wrong.why().starts_with("topic: "), "{wrong:?}");
}
