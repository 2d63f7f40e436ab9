//! Wills of clients whose gateway has died.

use super::journal::Kept;
use super::*;

fn will<'a>(payload: &'a str, properties: &'a [u8]) -> Will<'a> {
    Will {
        qos: 1,
        retain: false,
        properties: Properties::new(properties),
        topic: "w",
        payload: payload.as_bytes(),
    }
}

/// What the next gateway publishes as its first act, so many seconds after the first one began, and then after each of these times.
fn published(kept: &Kept, start: u64, after: &[u64]) -> Vec<Vec<String>> {
    let mut site = kept.start_at(start);
    let watcher = site.plain(V5, "watcher");
    site.subscribe(watcher, "w", 0);
    let mut all = Vec::new();
    for seconds in [0].iter().chain(after) {
        site.pass(*seconds);
        all.push(site.got(watcher).into_iter().map(|word| word.replace("PUBLISH w q0 ", "")).collect());
    }
    all
}

fn delay(seconds: u32) -> Vec<u8> {
    encode_all(&[Property::WillDelay(seconds)])
}

#[test]
fn clients_that_were_connected_have_lost_their_connection_when_the_gateway_died() {
    let kept = Kept::new();
    let mut site = kept.start();
    let (soon, late, properties) =
        (delay(0), delay(30), [delay(0), encode_all(&[Property::User("k", "v")])].concat());
    site.client(Hello { will: Some(will("lasting", &properties)), ..Hello::lasting(V5, "a") });
    site.client(Hello { will: Some(will("volatile", &soon)), ..Hello::new(V311, "b") });
    site.client(Hello { will: Some(will("late", &late)), ..Hello::lasting(V5, "c") });
    // Its session ends with the connection, and so does the time of the will.
    site.client(Hello { will: Some(will("ends", &late)), ..Hello::new(V5, "d") });
    site.0.with(|protocol, cx| protocol.before_sending(cx));
    drop(site);
    let mut got = published(&kept, 100, &[29, 2, 2000]);
    got[0].sort();
    assert_eq!(got[0], ["ends", "lasting User(\"k\", \"v\")", "volatile"]);
    assert_eq!(got[1..], [vec![], vec!["late".to_owned()], vec![]]);
    // Once.
    assert_eq!(published(&kept, 3000, &[2000]), [[""; 0], [""; 0]]);
}

#[test]
fn a_delay_goes_on_while_no_gateway_runs() {
    let kept = Kept::new();
    let properties = delay(30);
    let hello = Hello { will: Some(will("gone", &properties)), ..Hello::lasting(V5, "a") };
    for (start, after, expected) in [(10, 21, [0, 1]), (100, 1, [1, 0])] {
        let mut site = kept.start();
        let conn = site.client(Hello { clean: true, ..hello });
        site.lose(conn);
        site.got(conn);
        drop(site);
        let got = published(&kept, start, &[after]);
        assert_eq!([got[0].len(), got[1].len()], expected, "{start}");
    }
}

#[test]
fn a_reconnect_cancels_a_will_that_waits() {
    let kept = Kept::new();
    let properties = delay(30);
    let hello = Hello { will: Some(will("gone", &properties)), ..Hello::lasting(V5, "a") };
    let mut site = kept.start();
    site.client(hello);
    drop(site);
    let mut site = kept.start_at(10);
    let conn = site.client(Hello { will: None, ..hello });
    site.got(conn);
    drop(site);
    assert_eq!(published(&kept, 50, &[100, 2000]), [[""; 0], [""; 0], [""; 0]]);
}

#[test]
fn the_end_of_a_session_publishes_its_will_while_no_gateway_runs() {
    let kept = Kept::new();
    let mut site = kept.start();
    let properties = delay(3000);
    let conn = site.client(Hello { will: Some(will("gone", &properties)), ..Hello::lasting(V5, "a") });
    site.lose(conn);
    site.got(conn);
    drop(site);
    // The session lived for 1,000 seconds.
    let got = published(&kept, 1001, &[3000]);
    assert_eq!(got, [vec!["gone".to_owned()], vec![]]);
    assert!(!kept.start_at(1002).0.protocol.names.keys().any(|key| key.ends_with("\0a")));
}

#[test]
fn nobody_who_left_in_order_has_died() {
    let kept = Kept::new();
    let mut site = kept.start();
    for (id, lasting) in [("a", true), ("b", false)] {
        let hello = if lasting { Hello::lasting(V5, id) } else { Hello::new(V5, id) };
        let conn = site.client(Hello { will: Some(will(id, &[])), ..hello });
        site.disconnect(conn, 0, &[]);
        site.lose(conn);
    }
    let properties = delay(30);
    site.client(Hello { will: Some(will("c", &[])), ..Hello::lasting(V5, "c") });
    let conn = site.client(Hello { will: Some(will("d", &properties)), ..Hello::lasting(V5, "d") });
    site.lose(conn);
    // The gateway stops: whoever is connected now has not died either, and one that has waits on.
    site.0.with(|protocol, cx| protocol.on_stop(cx));
    site.0.with(|protocol, cx| protocol.before_sending(cx));
    drop(site);
    assert_eq!(published(&kept, 10, &[25]), [vec![], vec!["d".to_owned()]]);
}

#[test]
fn a_snapshot_has_the_wills() {
    let kept = Kept::with(Settings::default(), 1);
    let mut site = kept.start();
    let (soon, late) = (delay(0), delay(30));
    site.client(Hello { will: Some(will("volatile", &soon)), ..Hello::new(V5, "b") });
    site.client(Hello { will: Some(will("lasting", &soon)), ..Hello::lasting(V5, "a") });
    let away = site.client(Hello { will: Some(will("away", &late)), ..Hello::lasting(V5, "c") });
    site.lose(away);
    for _ in 0..10 {
        let other = site.client(Hello::lasting(V5, "other"));
        site.lose(other);
        site.0.with(|protocol, cx| protocol.before_sending(cx));
    }
    drop(site);
    let mut got = published(&kept, 10, &[21]);
    got[0].sort();
    assert_eq!(got, [vec!["lasting".to_owned(), "volatile".to_owned()], vec!["away".to_owned()]]);
}
