//! Administration: the users that may see users and disconnect clients, and the fate of these clients.

use std::path::{Path, PathBuf};

use access::AccessRule;
use rbmq::ConfirmLevel;
use rbmq_broker::{BrokerConfig, EndpointConsole, UpstreamSettings};
use serde_json::{Value, json};
use testkit::{LONG, until};

use super::logins::{PASSWORD, Users, log_in, write_token};
use super::{Answer, Site, keeping_and};

/// The fields of a request by a browser that has logged in.
fn fields(answer: &Answer) -> String {
    let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();
    format!("Cookie: {}\r\nX-RBMQ-CSRF: {csrf}\r\n", answer.cookie())
}

/// The field of a request to a broker without logins.
fn csrf(site: &Site) -> String {
    format!("X-RBMQ-CSRF: {}\r\n", site.api("/session")["csrf"].as_str().unwrap())
}

/// Gives the endpoint a token, as a collector of metrics has it.
fn with_token(users: &Users, config: &mut BrokerConfig) {
    let token = users.folder.path().join("token");
    write_token(&token, "0123456789abcdef");
    config.http.token_file = token.display().to_string();
}

fn writes(config: &mut BrokerConfig) {
    config.http.console = EndpointConsole::Write;
}

/// The only client of a role that is connected.
fn client(site: &Site, role: &str) -> Value {
    let path = format!("/clients?role={role}");
    let page = site.until(&path, |page| page["matched"] == 1 && page["rows"][0]["connected"] == true);
    page["rows"][0].clone()
}

fn path(client: &Value) -> String {
    format!("/api/v1/client?conn={}", client["conn"])
}

fn disconnect(site: &Site, client: &Value) -> Answer {
    site.ask("DELETE", &path(client), &csrf(site), "")
}

/// Disconnects the only client of a role, and waits until it is here with another connection. Returns the connection before.
fn send_away(site: &Site, role: &str) -> Value {
    let before = client(site, role);
    let done = disconnect(site, &before);
    assert!(done.status == 200 && done.json()["client"]["conn"] == before["conn"], "{done:?}");
    until("it is here again", || client(site, role)["conn"] != before["conn"]);
    before
}

/// The lines of the log about disconnected clients.
fn lines(log: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(log).unwrap();
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["event"] == "disconnect").collect()
}

/// A broker whose console makes changes, and its audit log.
fn audited() -> (tempfile::TempDir, PathBuf, Site) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let site = Site::start(|config| {
        writes(config);
        config.audit.file = log.display().to_string();
    });
    (folder, log, site)
}

/// A publisher amid its messages, and a subscriber with a place of its own: nothing is lost.
#[test]
fn a_client_is_disconnected_with_an_audit_line_and_comes_again() {
    let (_folder, log, site) = audited();
    let name = "<b>sen\"sor\u{202e}";
    let publisher = rbmq::Publisher::builder().name(name).connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("news").unwrap();
    let subscriber = rbmq::Subscriber::builder().durable("reader", LONG);
    let mut subscriber = subscriber.connect(&site.broker.addr()).unwrap();
    subscriber.subscribe("news").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let mut gone = Vec::new();
    for n in 0..300_u32 {
        writer.publish(&n.to_le_bytes()).unwrap();
        if n == 150 {
            gone.push(send_away(&site, "publisher"));
            gone.push(send_away(&site, "subscriber"));
        }
    }
    for n in 0..300_u32 {
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes[..], n.to_le_bytes());
    }
    // The same request again finds no client, and the client that is here again stays.
    let now = client(&site, "publisher");
    for before in &gone {
        let again = disconnect(&site, before);
        assert!(again.status == 404 && again.why().contains("no client has this connection"), "{again:?}");
    }
    assert_eq!((client(&site, "publisher"), site.get(&path(&now)).json()["row"].clone()), (now.clone(), now));
    for wrong in ["", "?conn=", "?conn=x", "?conn=-1", "?conn=1&conn=1"] {
        let answer = site.ask("DELETE", &format!("/api/v1/client{wrong}"), &csrf(&site), "");
        assert!(answer.status == 400 && answer.why().contains("conn"), "{wrong}: {answer:?}");
    }
    drop(site);
    let lines = lines(&log);
    let roles: Vec<_> =
        lines.iter().map(|line| line["reason"].as_str().unwrap().split(' ').next().unwrap()).collect();
    assert_eq!(roles, ["publisher", "subscriber"]);
    assert_eq!((&lines[0]["client"], &lines[0]["role"]), (&json!(name), &json!("console")));
    assert!(lines[0]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{lines:?}");
}

/// The worker comes again, and so do the messages that it had.
#[test]
fn the_messages_of_a_worker_that_is_disconnected_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let site = keeping_and(folder.path(), "k/#", writes);
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("k/work").unwrap();
    for n in 0..4 {
        writer.publish(&[n]).unwrap();
    }
    let end = writer.position();
    writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    let mut worker =
        rbmq::Subscriber::builder().group("g").credit(4).join(&site.broker.addr(), "k/work").unwrap();
    let first = worker.recv(Some(LONG)).unwrap().unwrap();
    let group = site.until("/group?topic=k/work&group=g", |page| page["row"]["held"] == 4);
    let done = disconnect(&site, &group["members"][0]);
    assert!(done.status == 200 && done.json()["client"]["role"] == "subscriber", "{done:?}");
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 4 {
        let message = worker.recv(Some(LONG)).unwrap().unwrap();
        seen.insert(message.bytes[0]);
        message.ack();
    }
    drop(first);
}

/// Brokers at either end of a chain, and observers.
#[test]
fn brokers_and_observers_come_again_too() {
    let first = Site::start(writes);
    let second = Site::start(|config| {
        writes(config);
        config.broker.upstream = vec![UpstreamSettings::new(&first.broker.addr())];
    });
    let publisher = rbmq::Publisher::connect(&first.broker.addr()).unwrap();
    let mut writer = publisher.topic("news").unwrap();
    let mut subscriber = rbmq::Subscriber::connect(&second.broker.addr()).unwrap();
    subscriber.subscribe("news").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    for (n, end) in [(1_u8, &first), (2, &second)] {
        send_away(end, "broker");
        writer.publish(&[n]).unwrap();
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes[..], [n]);
    }
    let mut observer = rbmq::Observer::connect(&first.broker.addr()).unwrap();
    let done = disconnect(&first, &client(&first, "observer"));
    assert_eq!(done.status, 200, "{done:?}");
    first.until("/clients?role=observer", |page| page["matched"] == 0);
    let why = observer.summary().unwrap_err().to_string();
    assert!(why.contains("an administrator of the broker has disconnected this client"), "{why}");
}

/// A gateway of this process has many clients, of other protocols.
#[test]
fn a_gateway_of_the_broker_is_not_disconnected() {
    let (_folder, log, site) = audited();
    let gate = site.broker.gate().unwrap();
    let publisher = rbmq::Publisher::builder().config(gate.config()).connect(gate.address()).unwrap();
    let mut subscriber = rbmq::Subscriber::builder().config(gate.config()).connect(gate.address()).unwrap();
    subscriber.subscribe("news").unwrap();
    let page = site.until("/clients?role=gateway", |page| page["matched"] == 2);
    for own in page["rows"].as_array().unwrap() {
        let refused = disconnect(&site, own);
        assert!(refused.status == 403 && refused.why().contains("[[gateway]]"), "{refused:?}");
    }
    assert_eq!(site.api("/clients?role=gateway")["rows"], page["rows"]);
    assert!(publisher.is_connected() && subscriber.is_connected());
    drop(site);
    assert_eq!(lines(&log), [Value::Null; 0]);
}

#[test]
fn a_console_that_only_reads_disconnects_nobody() {
    let site = Site::start(|_| {});
    let _publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let before = client(&site, "publisher");
    let refused = disconnect(&site, &before);
    assert!(refused.status == 403 && refused.why().contains("http.console = \"write\""), "{refused:?}");
    assert_eq!(
        (site.api("/session")["may_change"].clone(), client(&site, "publisher")),
        (json!(false), before)
    );
}

/// A broker with users: anna may administer it, bert may see it, and everybody may publish. Its endpoint has a token too.
fn administered(users: &Users) -> Site {
    users.start(|config| {
        writes(config);
        with_token(users, config);
        config.access.rules[0].administer = true;
        config.access.rules[1].observe = true;
        let mut everybody = AccessRule::for_user("*");
        everybody.publish.push("#".parse().unwrap());
        config.access.rules.push(everybody);
    })
}

/// The publishers, as the API shows them for the fields of a request.
fn publishers(site: &Site, script: &str) -> Value {
    site.ask("GET", "/api/v1/clients?role=publisher", script, "").json()["rows"].clone()
}

/// The answer to a user without the right does not tell whether the client exists.
#[test]
fn clients_are_disconnected_by_those_who_may_administer_and_ask_themselves() {
    let users = Users::new();
    let site = administered(&users);
    let anna = log_in(&site, &json!({ "user": "anna", "password": PASSWORD }));
    let bert = log_in(&site, &json!({ "user": "bert", "password": PASSWORD }));
    let may = |answer: &Answer| {
        [&answer.json()["may_administer"], &answer.json()["may_change"]].map(Value::as_bool)
    };
    assert_eq!((may(&anna), may(&bert)), ([Some(true); 2], [Some(false), Some(true)]));
    let token = users.token.expose();
    let script = format!("Authorization: Bearer {token}\r\n");
    let _publisher = rbmq::Publisher::builder().token(token).connect(&site.broker.addr()).unwrap();
    until("the publisher is here", || publishers(&site, &script)[0]["connected"] == true);
    let there = path(&publishers(&site, &script)[0]);
    let nowhere = "/api/v1/client?conn=0".to_owned();
    for (who, status, why) in [
        (fields(&bert), 403, "administer = true"),
        ("Authorization: Bearer 0123456789abcdef\r\n".to_owned(), 403, "administers nothing"),
        (String::new(), 401, "log in first"),
        (format!("Cookie: {}\r\n", anna.cookie()), 403, "X-RBMQ-CSRF"),
        (fields(&anna).replace("X-RBMQ-CSRF: ", "X-RBMQ-CSRF: x"), 403, "X-RBMQ-CSRF"),
        (format!("{}Sec-Fetch-Site: cross-site\r\n", fields(&anna)), 403, "another address"),
    ] {
        let [one, other] = [&there, &nowhere].map(|path| site.ask("DELETE", path, &who, ""));
        assert!(one.status == status && one.why().contains(why), "{who}: {one:?}");
        assert_eq!((one.status, one.body), (other.status, other.body), "{who}");
    }
    assert_eq!(path(&publishers(&site, &script)[0]), there, "nobody was disconnected");
    assert_eq!(site.ask("DELETE", &nowhere, &fields(&anna), "").status, 404);
    let done = site.ask("DELETE", &there, &fields(&anna), "");
    assert_eq!((done.status, &done.json()["client"]["user"]), (200, &json!("anna")), "{done:?}");
    drop(site);
    let log = users.folder.path().join("audit.log");
    let lines = lines(&log);
    assert_eq!((lines.len(), &lines[0]["user"]), (1, &json!("anna")), "{lines:?}");
    assert!(lines[0]["reason"].as_str().unwrap().starts_with("publisher of user 'anna' at "), "{lines:?}");
    let refused = std::fs::read_to_string(&log).unwrap();
    assert!(refused.contains("\"operation\":\"/api/v1/client\""), "{refused}");
}

/// The right ends for a login of before, too.
#[test]
fn the_right_to_administer_ends_with_a_reload() {
    let users = Users::new();
    let mut site = administered(&users);
    let anna = fields(&log_in(&site, &json!({ "user": "anna", "password": PASSWORD })));
    let script = format!("Authorization: Bearer {}\r\n", users.token.expose());
    let ask = |site: &Site, who: &str| site.ask("DELETE", "/api/v1/client?conn=0", who, "");
    assert_eq!([&anna, &script].map(|who| ask(&site, who).status), [404; 2]);
    let mut config = site.broker.config().clone();
    config.access.rules[0].administer = false;
    site.broker.reload(&config).unwrap();
    for who in [anna, script] {
        let refused = ask(&site, &who);
        assert!(refused.status == 403 && refused.why().contains("administer = true"), "{refused:?}");
    }
}

/// Users without the right see none of them, and no user sees a secret.
#[test]
fn users_tokens_and_rights_are_shown_to_those_who_may_administer() {
    let users = Users::new();
    let site = users.start(|config| {
        with_token(&users, config);
        let [anna, bert] = &mut config.access.rules[..] else { panic!("two rules") };
        (anna.observe, anna.administer, bert.observe) = (false, true, true);
        anna.publish.push("home/%u/#".parse().unwrap());
    });
    let anna = fields(&log_in(&site, &json!({ "user": "anna", "password": PASSWORD })));
    let bert = fields(&log_in(&site, &json!({ "user": "bert", "password": PASSWORD })));
    let scraper = "Authorization: Bearer 0123456789abcdef\r\n";
    for path in ["users", "tokens", "rights?operation=observe&user=anna"] {
        let ask = |fields: &str| site.ask("GET", &format!("/api/v1/{path}"), fields, "");
        let (of_bert, of_scraper, of_anna) = (ask(&bert), ask(scraper), ask(&anna));
        assert!(of_bert.status == 403 && of_bert.why().contains("administer = true"), "{path}: {of_bert:?}");
        assert!(of_scraper.status == 403 && !of_scraper.body.contains("anna"), "{of_scraper:?}");
        assert_eq!((ask("").status, of_anna.status), (401, 200), "{path}: {of_anna:?}");
        for secret in ["$argon2", "sha256", users.token.expose(), PASSWORD] {
            assert!(!of_anna.body.contains(secret), "{of_anna:?}");
        }
        assert_eq!(site.ask("GET", &format!("/api/v1/stream/{path}"), &anna, "").status, 404, "{path}");
    }
    let get = |path: &str| site.ask("GET", &format!("/api/v1/{path}"), &anna, "").json();
    let page = get("users?search=AN&limit=1");
    assert_eq!((&page["total"], &page["matched"]), (&json!(2), &json!(1)), "{page}");
    let row = &page["rows"][0];
    assert_eq!((&row["name"], &row["tokens"], &row["rules"]), (&json!("anna"), &json!(1), &json!(1)));
    let may = ["may_observe", "may_chain", "may_administer"].map(|right| row[right].as_bool());
    assert_eq!((may, &row["has_password"]), ([Some(false), Some(false), Some(true)], &json!(true)));
    assert_eq!(get("users?offset=1")["rows"][0]["name"], "bert");
    let tokens = get("tokens");
    assert_eq!((&tokens["rows"][0]["name"], &tokens["rows"][0]["user"]), (&json!("script"), &json!("anna")));
}

#[test]
fn the_rule_that_decides_is_told_of_the_rules_in_force() {
    let users = Users::new();
    let mut site = users.start(|config| {
        config.access.rules[0].administer = true;
        config.access.rules[0].publish.push("home/%u/#".parse().unwrap());
    });
    let anna = fields(&log_in(&site, &json!({ "user": "anna", "password": PASSWORD })));
    let ask = |site: &Site, query: &str| site.ask("GET", &format!("/api/v1/rights?{query}"), &anna, "");
    let door = "user=anna&operation=publish&topic=home/anna/door";
    let given = ask(&site, door).json();
    assert!(given["allowed"] == true && given["rule"] == 1 && given["is_known"] == true, "{given}");
    assert!(given["why"].as_str().unwrap().ends_with("gives it: publish = \"home/%u/#\""), "{given}");
    let none = ask(&site, "user=eve&operation=publish&topic=home/anna/door").json();
    assert!(none["allowed"] == false && none["is_known"] == false && none["rule"] == json!(null), "{none}");
    let chain = ask(&site, "user=anna&operation=chain").json();
    assert_eq!(chain["why"], "the only rule for this user has no chain = true");
    for (wrong, why) in [
        ("operation=publish&user=anna", "topic: "),
        ("operation=x", "operation must be"),
        ("operation=publish&topic=a/%23", "topic: "),
    ] {
        let answer = ask(&site, wrong);
        assert!(answer.status == 400 && answer.why().starts_with(why), "{wrong}: {answer:?}");
    }
    // Rights of a role that no user has, and rules after a reload.
    let mut config = site.broker.config().clone();
    let mut family = AccessRule::for_user("nobody");
    (family.users, family.roles) = (Vec::new(), vec!["family".into()]);
    family.deny_publish.push("home/+/door".parse().unwrap());
    config.access.rules.push(family);
    site.broker.reload(&config).unwrap();
    assert_eq!(ask(&site, door).json()["allowed"], true);
    let denied = ask(&site, &format!("{door}&roles=guest,%20family")).json();
    assert!(denied["allowed"] == false && denied["rule"] == 3, "{denied}");
    assert_eq!(denied["roles"], json!(["guest", "family"]), "{denied}");
    assert!(
        denied["why"].as_str().unwrap().ends_with("denies it: deny_publish = \"home/+/door\""),
        "{denied}"
    );
}

/// The pages show no users where everybody may do everything.
#[test]
fn a_broker_without_users_says_so() {
    let site = Site::start(|_| {});
    assert_eq!((&site.api("/users")["total"], &site.api("/tokens")["total"]), (&json!(0), &json!(0)));
    let all = site.api("/rights?operation=administer&user=anna");
    assert!(all["allowed"] == true && all["rule"] == json!(null), "{all}");
    assert!(all["what"].as_str().unwrap().contains("every client may do everything"), "{all}");
}
