//! Traces in the console: what one client or one topic does, for those who may administer.

use std::time::Duration;

use rbmq::{Login, Publisher, Subscriber};
use serde_json::Value;
use testkit::{LONG, until};

use super::messages::{Served, bearer, configured, lines};
use super::{Answer, Site, ask};

/// Waits until the trace has an event. Returns all events until then.
fn until_event(
    what: &str,
    mut read: impl FnMut(u64) -> Value,
    mut is: impl FnMut(&Value) -> bool,
) -> Vec<Value> {
    let (mut after, mut rows) = (0, Vec::new());
    until(what, || {
        let look = read(after);
        after = look["next"].as_u64().unwrap();
        let new = look["rows"].as_array().unwrap().clone();
        let found = new.iter().any(&mut is);
        rows.extend(new);
        found
    });
    rows
}

fn is(row: &Value, what: &str, client: &str) -> bool {
    row["what"] == what && row["client"] == client
}

#[test]
fn a_trace_of_a_slow_subscriber_and_of_its_topic_tells_who_holds_whom() {
    let site = Site::start(|_| {});
    let publisher = Publisher::builder().name("sensor").connect(&site.broker.addr()).unwrap();
    let options = rbmq::TopicOptions::default().ring_bytes(64 << 10);
    let mut writer = publisher.topic_with("sensors/kitchen", options).unwrap();
    let mut slow =
        Subscriber::builder().name("slow one").ring_bytes(65536).connect(&site.broker.addr()).unwrap();
    slow.subscribe("sensors/#").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let clients = site.until("/clients?role=subscriber", |page| page["matched"] == 1);
    let of_client = format!("conn={}", clients["rows"][0]["conn"]);
    for target in [of_client.as_str(), "topic=sensors/kitchen"] {
        let begun = site.begin_trace(target);
        assert_eq!((begun.status, &begun.json()["is_running"]), (200, &true.into()), "{begun:?}");
        assert_eq!(site.begin_trace("topic=other").status, 409, "one of each user");
        let read = |after| {
            for _ in 0..1_000 {
                let _ = writer.publish_timeout(&[7; 1_000], Some(Duration::ZERO));
            }
            let _ = writer.flush(Some(Duration::from_millis(1)));
            site.api(&format!("/trace?after={after}"))
        };
        let rows = until_event("who holds is told", read, |row| is(row, "the publisher waits", "slow one"));
        let waits = rows.iter().find(|row| is(row, "the publisher waits", "slow one")).unwrap();
        assert!(waits["numbers"]["lag_bytes"].as_u64() > Some(0), "{waits}");
        assert!(rows.iter().any(|row| row["topic"] == "sensors/kitchen"), "{rows:?}");
        assert!(rows.iter().any(|row| is(row, "has", "slow one")), "{rows:?}");
        let numbers: Vec<_> = rows.iter().map(|row| row["n"].as_u64().unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
        assert_eq!(site.ask_own("DELETE", "/api/v1/trace").status, 200);
        assert_eq!(site.get("/api/v1/trace").status, 404);
    }
}

#[test]
fn a_client_that_leaves_and_comes_back_stays_in_its_trace() {
    let site = Site::start(|_| {});
    let connect = || Subscriber::builder().name("of two lives").connect(&site.broker.addr()).unwrap();
    let first = connect();
    let clients = site.until("/clients?role=subscriber", |page| page["matched"] == 1);
    let conn = &clients["rows"][0]["conn"];
    assert_eq!(site.ask("POST", &format!("/api/v1/trace?conn={conn}"), "", "").status, 403, "it is forged");
    for (wrong, status) in [("conn=999999", 404), ("conn=x", 400), ("", 400), ("topic=a%23", 400)] {
        assert_eq!(site.begin_trace(wrong).status, status, "{wrong}");
    }
    assert_eq!(site.begin_trace(&format!("conn={conn}&seconds=61")).status, 400);
    assert_eq!(site.begin_trace(&format!("conn={conn}")).status, 200);
    drop(first);
    let read = |after| site.api(&format!("/trace?after={after}"));
    until_event("it has left", read, |row| row["what"] == "disconnected");
    let mut second = connect();
    second.subscribe("news").unwrap();
    let rows = until_event("it is back", read, |row| row["what"] == "asks for topics");
    assert!(rows.iter().any(|row| row["what"] == "connected" && row["client"] == "of two lives"), "{rows:?}");
    let asks = rows.iter().find(|row| row["what"] == "asks for topics").unwrap();
    assert_eq!(asks["text"], "news", "{asks}");
}

/// A trace ends after its time, and is still there for those who read it.
#[test]
fn a_trace_ends_by_itself() {
    let site = Site::start(|_| {});
    assert_eq!(site.begin_trace("topic=news&seconds=1").status, 200);
    let ended = site.until("/trace", |look| look["is_running"] == false);
    assert_eq!((&ended["left_ms"], &ended["rows"][0]["what"]), (&0.into(), &"begins".into()), "{ended}");
    assert_eq!(site.begin_trace("topic=news").status, 200, "its user begins the next one");
}

/// Publishes in the console. Returns the status.
fn publish(served: &Served, token: &str, topic: &str) -> u16 {
    let message = serde_json::json!({ "topic": topic, "text": "hello" }).to_string();
    let more = format!("{}Content-Type: application/json\r\n", bearer(token));
    ask(&served.http, "POST", "/api/v1/messages", &more, &message).status
}

#[test]
fn a_refused_subscription_is_seen_with_its_reason_by_administrators_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (config, audit, [anna, bert]) = configured(folder.path(), "");
    let config =
        config.replace("publish = ['open/#']", "administer = true\nobserve = true\npublish = ['open/#']");
    let config = format!("{config}[broker]\nmax_topics = 1\n");
    let served = Served::with(folder.path(), &config);
    let of = |method: &str, path: &str, token: &str| -> Answer {
        ask(&served.http, method, &format!("/api/v1{path}"), &bearer(token), "")
    };
    let builder = Subscriber::builder().name("curious").login(Login::default().token(&anna));
    let mut subscriber = builder.connect(&served.broker.addr).unwrap();
    let mut conn = Value::Null;
    until("the client is shown", || {
        conn = of("GET", "/clients?search=curious", &anna).json()["rows"][0]["conn"].clone();
        conn.is_u64()
    });
    for (method, path) in
        [("POST", format!("/trace?conn={conn}")), ("GET", "/trace".into()), ("DELETE", "/trace".into())]
    {
        assert_eq!(of(method, &path, &bert).status, 403, "{method}");
    }
    let recorded =
        || lines(&audit, &["\"operation\":\"trace\"", "\"event\":\"console\"", "\"user\":\"anna\""]);
    assert_eq!(recorded(), 0);
    assert_eq!(of("POST", &format!("/trace?conn={conn}"), &anna).status, 200);
    until("the trace has its line", || recorded() == 1);
    // The subscriber hears of it in a call of its own.
    let _ = subscriber.subscribe("closed");
    let read = |after| of("GET", &format!("/trace?after={after}"), &anna).json();
    let rows = until_event("the refusal is seen", read, |row| row["what"] == "refused");
    let refused = rows.iter().find(|row| row["what"] == "refused").unwrap();
    assert_eq!(refused["topic"], "closed", "{refused}");
    assert!(refused["text"].as_str().unwrap().contains("user 'anna' may not subscribe to"), "{refused}");
    // A part of the broker itself connects for its user, from no address: its refusals are of its connection as well.
    assert_eq!(of("DELETE", "/trace", &anna).status, 200);
    assert_eq!(publish(&served, &anna, "open/first"), 200);
    until("the publisher of the console is shown", || {
        let publishers = of("GET", "/clients?role=publisher", &anna).json();
        conn = publishers["rows"][0]["conn"].clone();
        conn.is_u64()
    });
    assert_eq!(of("POST", &format!("/trace?conn={conn}"), &anna).status, 200);
    assert_ne!(publish(&served, &anna, "open/second"), 200, "max_topics");
    let read = |after| of("GET", &format!("/trace?after={after}"), &anna).json();
    until_event("the refusal is seen", read, |row| row["what"] == "refused" && row["topic"] == "open/second");
    served.broker.end();
}
