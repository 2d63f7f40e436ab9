//! Groups of workers: that a page shows how far they are and who works, and that one without workers is an alarm.

use rbmq::ConfirmLevel;
use rbmq_broker::{Consumers, EntryId, GroupChange};
use serde_json::Value;
use testkit::{LONG, Process};

use super::{Site, keeping};
use crate::common::client;

/// The titles of the alarms.
fn alarms(site: &Site) -> Vec<String> {
    let overview = site.api("/overview");
    let titles = overview["alarms"].as_array().unwrap().iter().map(|alarm| alarm["title"].to_string());
    titles.map(|title| title.trim_matches('"').to_owned()).collect()
}

#[test]
fn a_group_is_shown_with_its_lag_and_its_workers_and_is_an_alarm_without_any() {
    let folder = tempfile::tempdir().unwrap();
    let site = keeping(folder.path(), "k/#");
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("k/work").unwrap();
    for n in 0..10 {
        writer.publish(format!("message {n}").as_bytes()).unwrap();
    }
    let end = writer.position();
    writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    let builder = || rbmq::Subscriber::builder().name("worker one").group("g");
    let mut worker = builder().credit(4).join(&site.broker.addr(), "k/work").unwrap();
    let first = worker.recv(Some(LONG)).unwrap().unwrap();
    let has = |page: &Value| page["row"]["held"] == 4;
    let group = site.until("/group?topic=k/work&group=g", has);
    let row = &group["row"];
    assert!(row["lag_messages"].as_u64().is_some_and(|lag| (4..=10).contains(&lag)), "{group}");
    assert!(row["lag_bytes"].as_u64() > Some(0) && row["state"] == "well", "{group}");
    let member = &group["members"][0];
    assert_eq!((&member["name"], &member["held"]), (&"worker one".into(), &4.into()), "{group}");
    assert!(member["address"].as_str().unwrap().contains(':') && member["credit"] == 4, "{group}");
    assert!(!alarms(&site).iter().any(|title| title.contains("roup")), "{:?}", alarms(&site));
    assert_eq!(site.api("/groups?search=WORK")["matched"], 1);
    assert_eq!(site.api("/groups?search=other")["matched"], 0);
    first.ack();
    worker.close().unwrap();
    // The list of the groups is of the second before.
    let gone =
        site.until("/group?topic=k/work&group=g", |page| page["members"].as_array().unwrap().is_empty());
    assert_eq!(gone["is_cut"], false, "{gone}");
    site.until("/groups?sort=state", |page| page["rows"][0]["state"] == "no_workers");
    site.until("/overview", |_| alarms(&site).contains(&"Groups have no workers".to_owned()));
    let top = Process::start(client("top", &site.broker.addr(), "--once --interval 0.1")).finish();
    let text = top.good().text();
    assert!(text.contains("group g of k/work · no workers · lag "), "{text}");
    // The worker that comes again has the rest, and nothing is left then.
    let mut worker = builder().join(&site.broker.addr(), "k/work").unwrap();
    for _ in 0..9 {
        worker.recv(Some(LONG)).unwrap().unwrap().ack();
    }
    worker.flush(Some(LONG)).unwrap();
    let done = |page: &Value| page["rows"][0]["lag_messages"] == 0 && page["rows"][0]["lag_bytes"] == 0;
    site.until("/groups", done);
}

#[test]
fn a_group_of_named_consumers_is_shown_without_workers() {
    let folder = tempfile::tempdir().unwrap();
    let site = keeping(folder.path(), "k/#");
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("k/work").unwrap();
    writer.publish(b"an entry").unwrap();
    let end = writer.position();
    writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    let kept = site.broker.gate().unwrap().kept_topics(|| ());
    let (topic, group) = ("k/work".parse().unwrap(), "g".parse().unwrap());
    let made = Some(Consumers::new(EntryId::MIN, None));
    let change = GroupChange { topic, group, make: made, charge: None };
    assert_eq!(kept.change_group(change).recv_timeout(LONG).unwrap(), Ok(true));
    let page = site.until("/group?topic=k/work&group=g", |page| page["row"]["topic"] == "k/work");
    assert_eq!((&page["members"], &page["is_cut"]), (&Value::Array(vec![]), &false.into()), "{page}");
}

#[test]
fn a_group_that_is_not_there_is_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    for site in [keeping(folder.path(), "k/#"), Site::start(|_| {})] {
        assert_eq!(site.api("/groups")["total"], 0);
        let missing = site.get("/api/v1/group?topic=k/work&group=g");
        assert!(missing.status == 404 && missing.why().contains("no such group"), "{missing:?}");
        let wrong = site.get("/api/v1/group?topic=k/work");
        assert!(wrong.status == 400 && wrong.why().starts_with("group: "), "{wrong:?}");
    }
}
