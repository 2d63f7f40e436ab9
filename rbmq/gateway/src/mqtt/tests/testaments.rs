//! Wills of clients whose gateway has died.

use super::journal::Kept;
use super::*;
use crate::double::MemoryUser;

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

/// What the bus has got since.
fn taken(site: &mut Site) -> Vec<String> {
    let text = |payload: Vec<u8>| String::from_utf8(payload).expect("tests send text");
    let mut all: Vec<String> = site.0.bus.published.drain(..).map(|message| text(message.payload)).collect();
    all.sort();
    all
}

/// A gateway with a client whose will has no room on the bus, of a session that has ended, and one of a session that has not.
fn owing(kept: &Kept) -> Site {
    let mut site = kept.start();
    site.0.bus.room = Some(0);
    for (id, hello) in [("ended", Hello::new(V5, "a")), ("lasting", Hello::lasting(V5, "b"))] {
        let conn = site.client(Hello { will: Some(will(id, &[])), ..hello });
        site.lose(conn);
    }
    site
}

#[test]
fn a_will_for_which_there_is_no_room_outlives_the_gateway() {
    for stops in [false, true] {
        let kept = Kept::new();
        let mut site = owing(&kept);
        for start in [10, 20] {
            if stops {
                site.0.with(|protocol, cx| protocol.on_stop(cx));
                assert!(site.0.protocol.has_unpublished());
            }
            site.0.with(|protocol, cx| protocol.before_sending(cx));
            drop(site);
            site = kept.start_at(start);
            // Again without room: the session goes on, and its client comes back.
            site.0.bus.room = Some(0);
            site.pass(0);
            site.client(Hello::lasting(V5, "b"));
        }
        assert_eq!(taken(&mut site), [""; 0]);
        site.0.bus.room = None;
        site.pass(1);
        site.0.with(|protocol, cx| protocol.before_sending(cx));
        drop(site);
        // Once.
        assert_eq!(published(&kept, 50, &[2000]), [[""; 0], [""; 0]]);
    }
}

#[test]
fn a_gateway_that_stops_publishes_what_it_owes() {
    let kept = Kept::new();
    let mut site = owing(&kept);
    site.0.with(|protocol, cx| protocol.on_stop(cx));
    assert!(site.0.protocol.has_unpublished());
    site.0.bus.room = None;
    site.0.with(|protocol, cx| protocol.on_time(cx));
    assert!(!site.0.protocol.has_unpublished());
    assert_eq!(taken(&mut site), ["ended", "lasting"]);
}

#[test]
fn a_snapshot_has_wills_without_a_session() {
    let kept = Kept::with(Settings::default(), 1);
    let mut site = owing(&kept);
    for _ in 0..10 {
        let other = site.client(Hello::lasting(V5, "other"));
        site.lose(other);
        site.0.with(|protocol, cx| protocol.before_sending(cx));
    }
    drop(site);
    let mut got = published(&kept, 10, &[]);
    got[0].sort();
    assert_eq!(got, [["ended", "lasting"]]);
}

#[test]
fn however_many_died_no_will_is_lost() {
    const CLIENTS: usize = 10_500;
    let kept = Kept::new();
    let mut site = kept.start();
    for id in 0..CLIENTS {
        let id = id.to_string();
        let hello = if id.ends_with('7') { Hello::lasting(V5, &id) } else { Hello::new(V5, &id) };
        site.client(Hello { will: Some(will("gone", &[])), ..hello });
    }
    drop(site);
    let mut site = kept.start_at(10);
    let mut count = 0;
    while count < CLIENTS {
        // As with a ring that is full before the gateway has taken what is in it.
        site.0.bus.room = Some(400);
        site.0.now += Duration::from_secs(1);
        site.0.with(|protocol, cx| protocol.on_time(cx));
        let got = taken(&mut site).len();
        assert!(got > 0, "{count}");
        count += got;
    }
    assert!(!site.0.protocol.has_unpublished());
    assert_eq!(site.0.protocol.counts.refused, 0);
}

#[test]
fn wills_without_room_are_bounded_as_sessions_are() {
    let mut site = Site::with(Settings { max_sessions: 3, ..Settings::default() });
    site.0.bus.room = Some(0);
    for id in 0..5 {
        let id = id.to_string();
        let conn = site.client(Hello { will: Some(will(&id, &[])), ..Hello::new(V5, &id) });
        site.lose(conn);
    }
    assert_eq!(site.0.protocol.counts.refused, 2);
    site.0.bus.room = None;
    site.0.with(|protocol, cx| protocol.on_time(cx));
    assert_eq!(taken(&mut site), ["0", "1", "2"]);
}

#[test]
fn beside_the_broker_a_will_is_kept_until_that_one_has_it() {
    let kept = Kept::new();
    let die = |site: &mut Site| {
        site.0.bus.is_beside = true;
        let conn = site.client(Hello { will: Some(will("gone", &[])), ..Hello::new(V5, "a") });
        site.lose(conn);
        site.0.with(|protocol, cx| protocol.before_sending(cx));
    };
    let mut site = kept.start();
    die(&mut site);
    // It was in the ring of this gateway alone.
    drop(site);
    assert_eq!(published(&kept, 10, &[]), [["gone"]]);
    let mut site = kept.start_at(20);
    die(&mut site);
    let (_, ticket) = site.0.bus.take_unstored().expect("the will");
    site.0.with(|protocol, cx| protocol.on_stored(ticket, Err("the topic has ended".into()), cx));
    assert!(site.0.protocol.has_unpublished());
    site.pass(1);
    site.0.store();
    assert!(!site.0.protocol.has_unpublished());
    site.0.with(|protocol, cx| protocol.before_sending(cx));
    drop(site);
    assert_eq!(published(&kept, 30, &[]), [[""; 0]]);
}

#[test]
fn a_will_is_not_published_after_a_restart_without_the_right() {
    let user = |publish: &str| MemoryUser {
        name: "ann",
        secret: "pw",
        is_token: false,
        publish: publish.parse().expect("a filter"),
        subscribe: "x".parse().expect("a filter"),
    };
    let other = MemoryUser { name: "bob", ..user("w") };
    for (after, expected) in [(vec![user("w")], 1), (vec![user("x")], 0), (vec![other], 0), (vec![], 1)] {
        let kept = Kept::new();
        let mut site = kept.start();
        site.0.door.users = vec![user("w")];
        let hello = Hello { login: Some(("ann", "pw")), ..Hello::new(V5, "a") };
        site.client(Hello { will: Some(will("gone", &[])), ..hello });
        drop(site);
        let mut site = kept.start_at(10);
        site.0.door.users = after;
        site.0.with(|protocol, cx| protocol.on_time(cx));
        assert_eq!(taken(&mut site).len(), expected);
        assert_eq!(site.0.protocol.counts.refused, 1 - expected as u64);
    }
}

#[test]
fn a_clock_that_is_wrong_makes_no_will_wait_for_more_than_its_delay() {
    let mut kept = Kept::new();
    let properties = delay(30);
    let mut site = kept.start();
    let conn = site.client(Hello { will: Some(will("gone", &properties)), ..Hello::lasting(V5, "a") });
    site.lose(conn);
    site.got(conn);
    drop(site);
    kept.unix_ms = 0;
    assert_eq!(published(&kept, 0, &[29, 2]), [vec![], vec![], vec!["gone".to_owned()]]);
}
