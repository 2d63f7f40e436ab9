//! The journal on disks that are full, lose power, or give back other bytes.

use std::path::Path;
use std::sync::Arc;

use seglog_sim::SimStorage;

use super::journal::{Kept, connack, publish_as, release};
use super::*;
use crate::mqtt::Journal;

/// The bytes of a message.
const LARGE: usize = 100_000;

/// A gateway whose journal is on such a disk.
fn start_on(disk: &SimStorage, snapshot_after: u64, free: fn(&Path) -> Option<u64>) -> Site {
    let hour = Duration::from_secs(3600);
    let journal = Journal::open_on(Arc::new(disk.clone()), Path::new("journal"), hour).expect("a journal");
    let clock = Clock { at: Instant::now(), unix_ms: 1_000_000 };
    let journal = journal.snapshot_after(snapshot_after).free(free);
    let mqtt = Mqtt::with_journal(Settings::default(), clock, 7, journal).expect("a journal");
    let mut world = World::new(mqtt, clock.at);
    world.with(|protocol, cx| protocol.on_start(cx));
    Site(world)
}

/// Keeps large retained messages of these numbers, each in its topic.
pub(super) fn retain(site: &mut Site, conn: ConnId, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let (topic, payload) = (format!("t/{number}"), format!("<{number}>{}", "x".repeat(LARGE)));
        let publish = Publish { retain: true, ..message(&topic, 1, &payload) };
        assert_eq!(publish_as(site, conn, 5, publish), ["PUBACK #5 00"]);
    }
}

/// The numbers of the retained messages that are there.
pub(super) fn retained(site: &mut Site) -> Vec<u32> {
    let conn = site.plain(V311, "reader");
    let got = site.subscribe_with(conn, 0, &[("t/#", 0)]);
    let number = |word: &String| word.strip_prefix("PUBLISH t/")?.split(' ').next()?.parse().ok();
    let mut numbers: Vec<u32> = got.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn is_failing(site: &Site) -> bool {
    site.0.protocol.journal.as_ref().expect("a journal").is_failing()
}

#[test]
fn nothing_is_removed_before_the_snapshot_is_on_the_disk() {
    for seed in 0..10 {
        let disk = SimStorage::new(seed);
        let mut site = start_on(&disk, 16 << 20, |_| None);
        let subscriber = site.client(Hello::lasting(V5, "s"));
        site.subscribe(subscriber, "other", 1);
        let publisher = site.plain(V5, "p");
        // More than two segments, of which a few bytes are left.
        (0..100).for_each(|_| retain(&mut site, publisher, 0..1));
        // It is stopped, so all of it is on the disk.
        drop(site);
        let mut site = start_on(&disk, 16 << 20, |_| None);
        let conn = site.0.open();
        site.got(conn);
        disk.crash();
        drop(site);
        let mut site = start_on(&disk, 16 << 20, |_| None);
        let subscriber = site.hello(Hello::lasting(V5, "s"));
        connack(&mut site, subscriber, " present");
        assert_eq!(retained(&mut site), [0]);
    }
}

#[test]
fn a_journal_that_cannot_be_made_smaller_goes_on() {
    // A part of the snapshot is in the log, or there was no room from the beginning.
    let scarce: fn(&Path) -> Option<u64> = |_| Some((8 << 20) + 1000);
    for (free, is_written) in [(scarce, false), ((|_| None) as fn(&Path) -> Option<u64>, true)] {
        let disk = SimStorage::new(7);
        let mut site = start_on(&disk, 2 << 20, free);
        let publisher = site.plain(V5, "p");
        retain(&mut site, publisher, 0..19);
        if is_written {
            disk.set_capacity(disk.used() + (4 * LARGE as u64) + (1 << 20) + (1 << 19));
        }
        retain(&mut site, publisher, 19..23);
        assert!(!is_failing(&site));
        disk.set_capacity(u64::MAX);
        retain(&mut site, publisher, 23..24);
        // A message from before.
        let subscriber = site.client(Hello::lasting(V5, "s"));
        site.subscribe_with(subscriber, 0, &[("t/3", 1)]);
        drop(site);
        let mut site = start_on(&disk, 2 << 20, |_| None);
        assert_eq!(retained(&mut site), Vec::from_iter(0..24));
        let subscriber = site.hello(Hello::lasting(V5, "s"));
        connack(&mut site, subscriber, " present");
        let got = site.got(subscriber);
        assert!(got.len() == 1 && got[0].starts_with("PUBLISH t/3 q1 dup retain #1 <3>"), "{}", got.len());
    }
}

#[test]
fn a_first_snapshot_without_room_is_tried_again_at_leisure_and_takes_nothing() {
    let disk = SimStorage::new(7);
    let mut site = start_on(&disk, 16 << 20, |_| None);
    let publisher = site.plain(V5, "p");
    retain(&mut site, publisher, 0..20);
    drop(site);
    let used = disk.used();
    let mut site = start_on(&disk, 16 << 20, |_| Some(9 << 20));
    let mut waits = Vec::new();
    for _ in 0..12 {
        let until = site.0.with(|protocol, cx| protocol.before_sending(cx)).expect("no room");
        waits.push((until - site.0.now).as_millis());
        site.0.now = until;
    }
    assert_eq!(waits[..4], [500, 1000, 2000, 4000]);
    assert_eq!(waits[11], 30_000);
    assert!(disk.used() <= used + 1000);
    drop(site);
    assert_eq!(retained(&mut start_on(&disk, 16 << 20, |_| None)), Vec::from_iter(0..20));
}

#[test]
fn damage_in_a_piece_of_the_last_snapshot_leaves_the_other_pieces() {
    for (damaged, goes_on) in [(59, true), (59, false), (1, true), (30, true)] {
        let kept = Kept::new();
        let mut site = kept.start();
        let publisher = site.plain(V5, "p");
        retain(&mut site, publisher, 0..60);
        drop(site);
        let mut site = kept.start();
        let conn = site.plain(V5, "p");
        // The first segment is gone, and with it the beginning.
        release(&mut site, conn, 11 << 20);
        if goes_on {
            retain(&mut site, conn, 60..61);
        }
        drop(site);
        damage(kept.path(), &format!("<{damaged}>"));
        let mut site = kept.start();
        let left = retained(&mut site);
        assert!(left.len() >= 45 && !left.contains(&damaged), "{damaged}: {left:?}");
        assert_eq!(left.contains(&60), goes_on);
    }
}

#[test]
fn a_session_of_several_pieces_comes_back_whole() {
    let kept = Kept::with(Settings { max_inflight: 20, ..Settings::default() }, 16 << 20);
    let mut site = kept.start();
    let subscriber = site.client(Hello::lasting(V5, "s"));
    site.subscribe(subscriber, "t/#", 1);
    let publisher = site.plain(V5, "p");
    let payload = |id: u16| format!("<{id}>{}", "x".repeat(LARGE));
    let publish = |site: &mut Site, conn: ConnId, id: u16| {
        let payload = payload(id);
        let publish = Publish { packet_id: id, ..message("t/1", 1, &payload) };
        assert_eq!(publish_as(site, conn, id, publish), [format!("PUBACK #{id} 00")]);
    };
    // Some are acknowledged, some in flight, and the others wait.
    (1..=30).for_each(|id| publish(&mut site, publisher, id));
    (1..=5).for_each(|id| site.ack(subscriber, AckKind::Puback, id, 0));
    site.got(subscriber);
    drop(site);
    // It is written in pieces, and read from them.
    let restart = || {
        let mut site = kept.start();
        let conn = site.0.open();
        site.got(conn);
    };
    restart();
    let mut site = kept.start();
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    connack(&mut site, subscriber, " present");
    let mut ids = Vec::new();
    for id in 6..=30 {
        ids.extend(site.got(subscriber).iter().filter_map(|word| {
            let (_, rest) = word.split_once(" #")?;
            let (id, rest) = rest.split_once(" <")?;
            Some((id.parse::<u16>().ok()?, rest.split_once('>')?.0.parse::<u16>().ok()?))
        }));
        site.ack(subscriber, AckKind::Puback, id, 0);
    }
    assert_eq!(ids, Vec::from_iter((6..=30).map(|id| (id, id))));
    // Ids go on behind the last one that was given, which is done.
    let publisher = site.plain(V5, "p");
    (31..=32).for_each(|id| publish(&mut site, publisher, id));
    site.ack(subscriber, AckKind::Puback, 32, 0);
    site.got(subscriber);
    drop(site);
    restart();
    let mut site = kept.start();
    let subscriber = site.hello(Hello::lasting(V5, "s"));
    connack(&mut site, subscriber, " present");
    assert!(site.got(subscriber)[0].starts_with("PUBLISH t/1 q1 dup #31 <31>"));
    let publisher = site.plain(V5, "p");
    publish(&mut site, publisher, 33);
    assert!(site.got(subscriber)[0].starts_with("PUBLISH t/1 q1 #33 <33>"));
}

/// Changes the last place where a text is in the files.
fn damage(dir: &Path, text: &str) {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("a file").path());
    let mut segments: Vec<_> =
        { entries }.filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
    segments.sort();
    for segment in segments.iter().rev() {
        let mut bytes = std::fs::read(segment).expect("a file");
        if let Some(at) = bytes.windows(text.len()).rposition(|window| window == text.as_bytes()) {
            bytes[at] ^= 0x40;
            return std::fs::write(segment, bytes).expect("a file");
        }
    }
    panic!("{text} is nowhere");
}
