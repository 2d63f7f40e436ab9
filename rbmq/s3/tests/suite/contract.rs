//! What an archive promises, and how many requests that takes.

use rbmq_broker::{Archive, ArchiveError, ArchiveLog, ArchiveRead};
use rocketbufs::{Epoch, Position};

use super::fake::{Fake, log_at};

/// The bytes of a log: each position has its own.
pub fn bytes(range: std::ops::Range<Position>) -> Vec<u8> {
    range.map(|at| (at * 31 % 251) as u8).collect()
}

/// Reads everything that is there, and the holes.
fn read_all(log: &dyn ArchiveLog, from: Position, piece: usize) -> Vec<(Position, Position)> {
    let (mut at, mut holes, mut out) = (from, Vec::new(), vec![0; piece]);
    loop {
        at = match log.read(at, &mut out).unwrap() {
            ArchiveRead::Bytes(len) => {
                let end = at + len as u64;
                assert!(out[..len] == bytes(at..end), "{at}");
                end
            }
            ArchiveRead::Hole { to } | ArchiveRead::Removed { first: to } => {
                holes.push((at, to));
                to
            }
            ArchiveRead::End => return holes,
        };
    }
}

fn append(log: &dyn ArchiveLog, range: std::ops::Range<Position>) {
    log.append(range.start, &bytes(range.clone())).unwrap();
}

#[test]
fn a_log_comes_back_with_its_holes_from_each_position() {
    let fake = Fake::start();
    let log = fake.open_at(50).unwrap();
    assert_eq!((log.kept(), log.read(50, &mut [0; 9]).unwrap()), (50..50, ArchiveRead::End));
    append(&*log, 50..150);
    log.append(200, b"").unwrap();
    append(&*log, 300..1_000);
    // What is there already is dropped.
    append(&*log, 900..1_100);
    append(&*log, 950..1_100);
    let prefix = format!("rbmq/plant_a/{:032x}", 0xab);
    let names = [0u64, 150, 200, 1_000].map(|at| format!("{prefix}/{at:020}"));
    assert_eq!(fake.names(), names);
    for log in [log, fake.open().unwrap()] {
        assert_eq!(log.kept(), 50..1_100);
        assert_eq!(read_all(&*log, 50, 64), [(150, 200), (200, 300)]);
        for from in (50..1_100).step_by(7) {
            let holes = read_all(&*fake.open().unwrap(), from, 1 << 20);
            assert_eq!(holes.len(), usize::from(from < 200) + usize::from(from < 300), "{from}");
        }
        assert_eq!(log.read(0, &mut [0; 9]).unwrap(), ArchiveRead::Removed { first: 50 });
        assert_eq!(log.read(1_100, &mut [0; 9]).unwrap(), ArchiveRead::End);
    }
}

/// One after the other, an object is one request; lists have more names than an answer.
#[test]
fn an_object_among_many_is_found_with_few_requests() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    // Many small objects, a hole that is larger than all of them, and some more.
    for at in 0..3_000 {
        append(&*log, at * 10..at * 10 + 10);
    }
    log.append(1 << 40, b"").unwrap();
    let end = (1 << 40) + 500 * 9;
    for at in 0..500 {
        append(&*log, (1 << 40) + at * 9..(1 << 40) + at * 9 + 9);
    }
    fake.requests();
    assert_eq!(fake.open().unwrap().kept(), 0..end);
    assert!(fake.requests().len() < 25);
    // The disk begins near the end: the probe, the first name, the last ones, the last object, and the first one.
    let near = fake.open_at(end - 4_000).unwrap();
    assert_eq!((near.kept(), fake.requests().len()), (0..end, 5));
    for position in [0, 5, 10, 14_995, 29_999, 1 << 39, 1 << 40, (1 << 40) + 1_234, end - 1] {
        let log = fake.open().unwrap();
        fake.requests();
        let holes = read_all(&*log, position, 1 << 20);
        assert_eq!(holes.len(), usize::from(position < 1 << 40), "{position}");
        let lists = fake.requests().iter().filter(|line| line.contains("list-type")).count();
        assert!(lists < 50, "{position}: {lists}");
    }
    fake.set_page(3);
    let log = fake.open().unwrap();
    assert_eq!(log.kept(), 0..end);
    assert_eq!(log.read(14_995, &mut [0; 99]).unwrap(), ArchiveRead::Bytes(5));
}

#[test]
fn what_the_store_removed_is_told() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    for at in 0..20 {
        append(&*log, at * 100..at * 100 + 100);
    }
    // By a rule of the bucket from the front, and by somebody from the middle.
    fake.change(|objects| objects.retain(|key, _| !key.contains("plant") || key[key.len() - 4..] >= *"0500"));
    fake.change(|objects| objects.retain(|key, _| !key.ends_with("1200") && !key.ends_with("1300")));
    for log in [log, fake.open().unwrap()] {
        assert_eq!(log.read(50, &mut [0; 9]).unwrap(), ArchiveRead::Removed { first: 500 });
        assert_eq!(log.kept(), 500..2_000);
        assert_eq!(read_all(&*log, 500, 64), [(1_200, 1_400)]);
        assert_eq!(read_all(&*log, 1_250, 64), [(1_250, 1_400)]);
        append(&*log, 2_000..2_000);
    }
    // All of them: the log that is open goes on, and one that is opened begins where the disk does.
    let log = fake.open().unwrap();
    fake.change(|objects| objects.retain(|key, _| !key.contains("plant")));
    assert_eq!(log.read(700, &mut [0; 9]).unwrap(), ArchiveRead::Removed { first: 2_000 });
    append(&*log, 2_000..2_100);
    assert_eq!(read_all(&*log, 2_000, 64), []);
    assert_eq!(fake.open_at(7).unwrap().kept(), 2_000..2_100);
}

/// A log of before it could go on elsewhere: who goes on asks for the note, and nobody else does.
#[test]
fn the_end_of_a_log_without_notes_can_have_one() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    assert_eq!(log.noted().unwrap(), b"", "there is no log yet");
    append(&*log, 0..100);
    log.note_end(b"a note").unwrap();
    log.note_end(b"another one").unwrap();
    fake.requests();
    let next = fake.open().unwrap();
    assert!(!fake.requests().iter().any(|line| line.contains(".notes")));
    assert_eq!((next.note(), next.noted().unwrap()), (vec![], b"a note".to_vec()));
    append(&*log, 100..150);
    assert_eq!(fake.open().unwrap().noted().unwrap(), b"", "that is another end");
    log.append_with(150, &bytes(150..160), b"its own").unwrap();
    assert_eq!(fake.open().unwrap().noted().unwrap(), b"its own");
    // Rules that remove all objects of the log may leave the note.
    fake.change(|objects| objects.retain(|key, _| !key.contains("plant")));
    assert_eq!(fake.open_at(7).unwrap().kept(), 7..7);
}

/// Their disks begin at other positions, so only the first name can tell them.
#[test]
fn of_two_writers_of_a_new_log_one_makes_the_first_object() {
    let fake = Fake::start();
    let [one, other] = [200, 500].map(|first| fake.open_at(first).unwrap());
    append(&*one, 200..300);
    let Err(ArchiveError::Down(reason)) = other.append(500, b"x") else { panic!("two logs") };
    assert!(reason.contains("somebody else has written the object"), "{reason}");
    assert_eq!((other.kept(), fake.names().len()), (200..300, 1));
    let log = fake.open_at(250).unwrap();
    assert_eq!((log.kept(), read_all(&*log, 0, 64)), (200..300, vec![(0, 200)]));
}

#[test]
fn of_two_writers_one_makes_the_next_object() {
    let fake = Fake::start();
    let (one, other) = (fake.open().unwrap(), fake.open().unwrap());
    append(&*one, 0..100);
    // The other one has removed the bytes from its disk, and wants to begin later.
    for range in [0..50, 30..60, 700..800] {
        let late = other.append(range.start, &bytes(range));
        if let Err(ArchiveError::Down(reason)) = late {
            assert!(reason.contains("somebody else has written the object rbmq/plant_a/"), "{reason}");
            append(&*one, one.kept().end..one.kept().end + 100);
        }
    }
    assert!(matches!(other.append(2_000, b"x"), Err(ArchiveError::Down(_)) | Ok(())));
    assert_eq!(read_all(&*fake.open().unwrap(), 0, 64).len(), usize::from(other.kept().end > 2_000));
}

/// The first list is asked for, and nothing that follows it.
#[test]
fn a_broker_that_stops_does_not_wait_for_all_that_opening_asks() {
    let fake = Fake::start();
    append(&*fake.open().unwrap(), 0..100);
    let Err(ArchiveError::Down(reason)) = fake.archive().open(&log_at(0), &|| true) else {
        panic!("it is open")
    };
    assert_eq!(reason, "the broker stops");
}

/// The one that goes on makes the object that the one before would make next: an end of a hole, with what it knows.
#[test]
fn who_goes_on_in_a_log_ends_the_writing_of_the_one_before() {
    let fake = Fake::start();
    let former = fake.open().unwrap();
    former.append_with(0, &bytes(0..100), b"first").unwrap();
    let next = fake.open().unwrap();
    assert_eq!((next.kept(), next.note()), (0..100, b"first".to_vec()));
    // A batch of the former one was on its way.
    former.append_with(100, &bytes(100..150), b"second").unwrap();
    let Err(ArchiveError::Down(reason)) = next.append_with(5_000, b"", b"mine") else { panic!("a fork") };
    assert!(reason.contains("somebody else has written the object"), "{reason}");
    assert_eq!((next.kept(), next.note()), (0..150, b"second".to_vec()));
    next.append_with(5_000, b"", b"mine").unwrap();
    let Err(ArchiveError::Down(_)) = former.append_with(150, &bytes(150..200), b"late") else {
        panic!("no fence")
    };
    assert_eq!((former.kept(), former.note()), (0..5_000, b"mine".to_vec()));
    append(&*next, 5_000..5_100);
    let log = fake.open().unwrap();
    assert_eq!((log.kept(), log.note()), (0..5_100, Vec::new()));
    assert_eq!(read_all(&*log, 0, 64), [(150, 5_000)]);
}

#[test]
fn all_brokers_of_a_cluster_hear_the_same_name_of_a_log() {
    let fake = Fake::start();
    let [one, other] = [fake.archive(), fake.archive()];
    let long = "k/".repeat(100) + &"x".repeat(50);
    for (n, topic) in ["plant/a", "plant_a", "plant/\u{e9}", &long].into_iter().enumerate() {
        let (topic, first) = (topic.parse().unwrap(), Epoch(n as u128 * 3 + 1));
        assert_eq!(one.name_of("c", &topic, first).unwrap(), first);
        assert_eq!(other.name_of("c", &topic, Epoch(99)).unwrap(), first);
        assert_eq!(one.name_of("c", &topic, Epoch(98)).unwrap(), first);
        assert_eq!(one.name_of("d", &topic, Epoch(97)).unwrap(), Epoch(97), "another cluster");
    }
    assert!(fake.names().iter().all(|name| name.len() < 1_000 && name.is_ascii()));
    fake.change(|objects| objects.values_mut().for_each(|object| object.truncate(20)));
    let Err(ArchiveError::Refused(reason)) = one.name_of("c", &"plant/a".parse().unwrap(), Epoch(5)) else {
        panic!("it is another one")
    };
    assert!(reason.contains("does not say which log"), "{reason}");
}
