//! Stores that fail: each fault has its reason in words, and costs no byte.

use std::os::unix::fs::PermissionsExt;

use rbmq_broker::{ArchiveError, ArchiveRead, S3Settings};
use rbmq_s3::{S3Archive, S3Error};

use super::contract::bytes;
use super::fake::{Fake, Fault, SECRET, open};

/// What a log says when its next request fails. `open` has two requests before: the probe's, and the first name.
fn reason_of(fault: Fault) -> ArchiveError {
    let fake = Fake::start();
    fake.open().unwrap();
    fake.fail(fault);
    fake.open().err().expect("a reason")
}

#[test]
fn refusals_say_what_can_be_done() {
    let located = "x-amz-bucket-region: eu-central-1\r\n";
    let moved =
        Fault::Refuse { status: 301, code: "PermanentRedirect", message: "elsewhere", header: located };
    for (fault, expected, is_down) in [
        (moved, "set s3.region = \"eu-central-1\"", true),
        (Fault::refuse(307, "TemporaryRedirect"), "it is in another region", true),
        (Fault::refuse(403, "InvalidObjectState"), "to an archive class", true),
        (Fault::refuse(404, "MethodNotAllowed"), "PUT is refused (HTTP 404", true),
        (Fault::refuse(400, "AuthorizationHeaderMalformed"), "it is in another region", true),
        (Fault::refuse(404, "NoSuchBucket"), "there is no such bucket", true),
        (Fault::refuse(403, "RequestTimeTooSkewed"), "the clock of this machine", true),
        (
            Fault::refuse(403, "SignatureDoesNotMatch"),
            "the access key is refused (HTTP 403, SignatureDoesNotMatch",
            true,
        ),
        (Fault::refuse(403, "InvalidAccessKeyId"), "the access key is refused", true),
        (Fault::refuse(503, "SlowDown"), "it asks for fewer requests", true),
        (Fault::refuse(500, "InternalError"), "PUT is refused (HTTP 500, InternalError: no & no)", true),
        (Fault::refuse(409, "ConditionalRequestConflict"), "PUT is refused", true),
        (Fault::refuse(501, "NotImplemented"), "PUT is refused (HTTP 501", true),
        (Fault::refuse(200 + 99, "\u{1b}[31m\n"), "PUT is refused", true),
        (Fault::Lost, "the bucket 'bucket' at http://", true),
    ] {
        let name = format!("{fault:?}");
        let error = reason_of(fault);
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains("the bucket 'bucket' at http://"), "{name}: {text}");
        assert_eq!(matches!(error, ArchiveError::Down(_)), is_down, "{name}");
        assert!(!text.contains(SECRET) && !text.contains(char::is_control), "{text}");
    }
}

#[test]
fn a_store_that_asks_for_fewer_requests_gets_none_for_a_while() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    fake.requests();
    fake.fail(Fault::refuse(503, "SlowDown"));
    for _ in 0..100 {
        assert!(matches!(log.append(0, b"bytes"), Err(ArchiveError::Down(_))));
    }
    assert!(fake.requests().len() < 100 / 2);
    testkit::until("the store is asked again", || log.append(0, b"bytes").is_ok());
}

#[test]
fn a_store_that_overwrites_is_refused() {
    let fake = Fake::start();
    fake.set_overwrites();
    let Err(ArchiveError::Refused(reason)) = fake.open() else { panic!("it is taken") };
    assert!(reason.contains("overwrites objects") && reason.contains("conditional writes"), "{reason}");
}

#[test]
fn a_store_that_does_not_answer_is_given_up() {
    let fake = Fake::start();
    let archive = S3Archive::new(&S3Settings { timeout_ms: 300, ..fake.settings() }).unwrap();
    fake.fail(Fault::Silence);
    let error = open(&archive).err().unwrap();
    assert!(matches!(error, ArchiveError::Down(_)) && error.to_string().contains("timeout"), "{error}");
    fake.fail_always(Some(Fault::Silence));
    assert!(open(&archive).is_err());
    fake.fail_always(None);
    // Other topics do not wait for it meanwhile.
    fake.requests();
    let opens = || open(&archive).is_ok();
    testkit::until("the store is asked again", opens);
}

/// The object is there once, whatever was heard of it.
#[test]
fn an_append_whose_answer_was_lost_is_not_repeated() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    fake.fail(Fault::Lost);
    assert!(matches!(log.append(0, &bytes(0..100)), Err(ArchiveError::Down(_))));
    // More bytes have arrived meanwhile.
    log.append(0, &bytes(0..150)).unwrap();
    assert_eq!(log.kept(), 0..100);
    log.append(100, &bytes(100..150)).unwrap();
    assert_eq!((log.kept(), fake.names().len()), (0..150, 2));
}

#[test]
fn a_cut_or_damaged_answer_is_got_again() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    log.append(0, &bytes(0..100)).unwrap();
    let (log, mut out) = (fake.open().unwrap(), [0; 100]);
    let whole = fake.open().unwrap();
    for fault in [Fault::Cut(0), Fault::Cut(20)] {
        fake.fail(fault);
        let other = fake.open();
        assert!(matches!(other, Err(ArchiveError::Down(_))));
    }
    assert_eq!(log.read(0, &mut out).unwrap(), ArchiveRead::Bytes(100));
    // The first answer to GET has other bytes, and the second one is good.
    whole.append(100, &bytes(100..200)).unwrap();
    assert_eq!(whole.read(0, &mut out).unwrap(), ArchiveRead::Bytes(100));
    fake.fail(Fault::Body(b"\0".repeat(300)));
    assert_eq!(whole.read(100, &mut out).unwrap(), ArchiveRead::Bytes(100));
    assert_eq!(out[..], bytes(100..200));
    // A list that is none.
    fake.fail(Fault::Body(Vec::new()));
    fake.fail(Fault::Body(b"<html>\xff".to_vec()));
    let error = fake.open().err().unwrap();
    assert!(error.to_string().contains("its list of objects cannot be read"), "{error}");
}

/// A page of something in between says nothing of an object, and large answers are not read.
#[test]
fn an_answer_that_is_none_of_the_store_removes_nothing() {
    let fake = Fake::start();
    let (log, large) = (fake.open().unwrap(), &*"x".repeat(100 << 10).leak());
    for at in 0..3 {
        log.append(at * 100, &bytes(at * 100..at * 100 + 100)).unwrap();
    }
    for fault in [
        Fault::refuse(404, "html"),
        Fault::Refuse { status: 404, code: "NoSuchKey", message: large, header: "" },
        Fault::refuse(500, large),
        Fault::refuse(500, &large[..1 << 10]),
    ] {
        // The first and the last object are known.
        let log = fake.open().unwrap();
        fake.fail(fault);
        let Err(ArchiveError::Down(reason)) = log.read(100, &mut [0; 9]) else { panic!("it is an answer") };
        assert!(reason.len() < 1_000, "{reason}");
        assert_eq!(log.read(100, &mut [0; 9]).unwrap(), ArchiveRead::Bytes(9));
    }
}

/// Names that are no positions stop neither readers nor writers.
#[test]
fn a_stray_name_is_left_alone() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    let folder = format!("rbmq/plant_a/{:032x}/", 0xab);
    log.append(0, &bytes(0..100)).unwrap();
    fake.change(|objects| {
        objects.insert(folder.clone(), Vec::new());
        objects.insert(format!("{folder}readme"), Vec::new());
    });
    let log = fake.open().unwrap();
    assert_eq!((log.kept(), log.read(0, &mut [0; 100]).unwrap()), (0..100, ArchiveRead::Bytes(100)));
    fake.change(|objects| objects.retain(|key, _| !key.ends_with("0")));
    assert!(matches!(fake.open(), Err(ArchiveError::Refused(_))), "there are only others");
    assert_eq!(log.read(50, &mut [0; 9]).unwrap(), ArchiveRead::Bytes(9));
    log.append(100, b"x").unwrap();
}

/// Otherwise the same page would come for ever.
#[test]
fn a_store_whose_lists_begin_anywhere_is_given_up() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    for at in 0..9 {
        log.append(at << 40, b"x").unwrap();
    }
    fake.set_page(3);
    fake.set_ignores_after();
    let error = fake.open().err().unwrap();
    assert!(matches!(error, ArchiveError::Down(_)), "{error}");
    assert!(error.to_string().contains("begins before the name"), "{error}");
    assert!(matches!(log.read(5 << 40, &mut [0; 9]), Err(ArchiveError::Down(_))));
}

/// An object that is not what was written is told, skipped and never served.
#[test]
fn a_damaged_object_is_a_hole_and_never_the_end_of_a_log() {
    let fake = Fake::start();
    let log = fake.open().unwrap();
    for at in 0..4 {
        log.append(at * 100, &bytes(at * 100..at * 100 + 100)).unwrap();
    }
    let key = |at: u64| format!("rbmq/plant_a/{:032x}/{at:020}", 0xab);
    fake.change(|objects| {
        let damaged = objects.get_mut(&key(100)).unwrap();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        // Another object of the same log, and something else.
        let other = objects[&key(0)].clone();
        objects.insert(key(200), other);
        objects.insert(key(0), b"a readme of somebody else".repeat(10));
    });
    let log = fake.open().unwrap();
    let mut out = [0; 100];
    for at in [0, 100, 150, 200, 299] {
        let to = (at / 100 + 1) * 100;
        assert_eq!(log.read(at, &mut out).unwrap(), ArchiveRead::Hole { to }, "{at}");
    }
    assert_eq!(log.read(300, &mut out).unwrap(), ArchiveRead::Bytes(100));
    // The end of the log is not known if its last object does not say it.
    fake.change(|objects| objects.get_mut(&key(300)).unwrap().truncate(90));
    let Err(ArchiveError::Refused(reason)) = fake.open() else { panic!("it is continued") };
    assert!(reason.contains(&key(300)) && reason.contains("lacks some"), "{reason}");
    let foreign = |objects: &mut std::collections::BTreeMap<String, Vec<u8>>| {
        objects.insert(key(400), b"x".to_vec());
        objects.remove(&key(300));
    };
    fake.change(foreign);
    assert!(matches!(log.append(400, b"bytes"), Err(ArchiveError::Refused(_))), "the next name is taken");
    fake.change(|objects| {
        objects.clear();
        objects.insert(format!("rbmq/plant_a/{:032x}/readme", 0xab), Vec::new());
    });
    let Err(ArchiveError::Refused(reason)) = fake.open() else { panic!("it is taken") };
    assert!(reason.contains("objects of somebody else"), "{reason}");
}

#[test]
fn a_key_is_read_again_when_it_is_refused_and_never_shown() {
    let fake = Fake::start();
    let archive = fake.archive();
    fake.write_key("NEWID\nnew\ntoken\n");
    fake.fail(Fault::refuse(400, "ExpiredToken"));
    assert!(open(&archive).is_err());
    open(&archive).unwrap();
    let mut settings = fake.settings();
    std::fs::set_permissions(&settings.access_key_file, std::fs::Permissions::from_mode(0o604)).unwrap();
    assert!(matches!(S3Archive::new(&settings), Err(S3Error::Mode(_))));
    settings.access_key_file.push('x');
    assert!(matches!(S3Archive::new(&settings), Err(S3Error::File { .. })));
}
