//! Files through the broker: whole, and again whole after the worst.

use std::io::Write;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use testkit::{Process, until};

use crate::common::{BrokerProcess, assert_same, client, lines, piped, random};

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |m| m.len())
}

#[test]
fn a_random_file_arrives_three_times() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    let bytes = random(1, 50_000_000);
    std::fs::write(&input, &bytes).unwrap();
    let outputs: Vec<_> = (0..3).map(|n| dir.path().join(format!("out{n}"))).collect();
    let subs: Vec<_> = outputs
        .iter()
        .map(|out| broker.sub(&format!("file --until-closed --output {}", out.display())))
        .collect();
    broker.publish_all(&format!("file --raw --wait-subscribers 3 --file {}", input.display()), b"");
    for sub in subs {
        sub.finish().good();
    }
    for out in &outputs {
        assert_same(out, &bytes);
    }
}

#[test]
fn a_killed_subscriber_resumes_exactly_where_it_stopped() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let bytes = random(2, 20_000_000);
    let args = format!("file --until-closed --name attic --hold 60 --rate 20MB --output {}", out.display());
    let mut sub = broker.sub(&args);
    let publish = "file --raw --wait-subscribers 1";
    let mut publisher = Process::start(piped(client("pub", &broker.addr, publish)));
    let (mut feed, begin) = (publisher.stdin(), bytes[..18_000_000].to_vec());
    // The last bytes follow after the last kill, so that a killed subscriber never has everything.
    let feeding = std::thread::spawn(move || {
        feed.write_all(&begin).unwrap();
        feed
    });
    for part in 1..4 {
        until("a part of the file is there", || size(&out) > part * 4_000_000);
        sub.signal("KILL");
        assert!(!sub.finish().status.success());
        // Bytes that were written and not recorded are cut off. A crash between write and record leaves such bytes.
        let mut torn = std::fs::OpenOptions::new().append(true).open(&out).unwrap();
        torn.write_all(b"torn").unwrap();
        sub = broker.sub(&args);
    }
    feeding.join().unwrap().write_all(&bytes[18_000_000..]).unwrap();
    publisher.finish().good();
    sub.finish().good();
    assert_same(&out, &bytes);
}

#[test]
fn records_resume_exactly_too_and_several_topics_use_a_directory() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let args = format!(
        "a b/c --until-closed --name two --hold 60 --rate 2MB --ring-bytes 256k --output {}",
        dir.path().display()
    );
    let mut sub = broker.sub(&args);
    let text = [lines("first", 100_000), lines("second", 100_000)];
    let publishers = ["a", "b/c"].map(|topic| format!("{topic} --wait-subscribers 1 --ring-bytes 256k"));
    let publishers = [
        broker.publish(&publishers[0], b""),
        std::thread::scope(|scope| {
            let second = scope.spawn(|| broker.publish(&publishers[1], text[1].as_bytes()));
            let out = dir.path().join("b%2Fc");
            until("some of it is there", || size(&out) > 300_000);
            sub.signal("KILL");
            sub = broker.sub(&args);
            second.join().unwrap()
        }),
    ];
    for publisher in publishers {
        publisher.finish().good();
    }
    sub.finish().good();
    assert_same(&dir.path().join("b%2Fc"), text[1].as_bytes());
    assert_same(&dir.path().join("a"), b"");
}

#[test]
fn an_output_belongs_to_one_topic() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    broker.publish_all("one", b"1\n");
    broker.publish_all("two", b"2\n");
    let sub = |topic: &str| {
        broker.sub(&format!("{topic} --from oldest --until-closed --output {}", out.display())).finish()
    };
    sub("one").good();
    assert_same(&out, b"1\n");
    let other = sub("two");
    assert_eq!(other.status.code(), Some(1));
    assert!(other.stderr.contains("was written from topic 'one'"), "{}", other.stderr);
    // Everything of it is there already: nothing is added, nothing is lost.
    sub("one").good();
    assert_same(&out, b"1\n");
    std::fs::write(&out, "").unwrap();
    let changed = sub("one");
    assert!(changed.stderr.contains("another program changed it"), "{}", changed.stderr);
}

#[test]
fn a_slow_subscriber_loses_nothing_and_blocks_the_others() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let outs = [dir.path().join("slow"), dir.path().join("fast")];
    let bytes = random(3, 6_000_000);
    let input = dir.path().join("input");
    std::fs::write(&input, &bytes).unwrap();
    let sub = |out: &Path, more: &str| {
        broker.sub(&format!("x --until-closed --ring-bytes 512k --output {} {more}", out.display()))
    };
    let subs = [sub(&outs[0], "--rate 3MB"), sub(&outs[1], "")];
    broker.publish_all(&format!("x --raw --wait-subscribers 2 --file {}", input.display()), b"");
    for sub in subs {
        sub.finish().good();
    }
    for out in &outs {
        assert_same(out, &bytes);
    }
}

#[test]
fn a_subscriber_that_drops_reports_its_losses() {
    let broker = BrokerProcess::start();
    let text = lines("line", 400_000);
    let args = "x --until-closed --policy drop --max-lag 64k --ring-bytes 512k --rate 1MB";
    let sub = Process::start(client("sub", &broker.addr, args));
    broker.publish_all("x --wait-subscribers 1", text.as_bytes());
    let outcome = sub.finish();
    assert_eq!(outcome.status.code(), Some(3), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("were lost"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("not complete:"), "{}", outcome.stderr);
    // The received lines are whole, in order, and some of the sent ones.
    let mut sent = text.lines();
    let got = outcome.text();
    assert!(got.lines().all(|line| sent.any(|other| other == line)));
    let lost: u64 = text.len() as u64 + 3 * 400_000 - (got.len() as u64 + 3 * got.lines().count() as u64);
    assert!(outcome.stderr.contains(&format!("not complete: {lost} bytes were lost")), "{}", outcome.stderr);
}

#[test]
fn two_subscribers_do_not_write_to_one_file() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = format!("x --until-closed --sync --output {}", out.display());
    let first = broker.sub(&args);
    until("the state file exists", || dir.path().join("out.rbmq-state").exists());
    let second = broker.sub(&args).finish();
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stderr.contains("another process writes to"), "{}", second.stderr);
    let text = lines("x", 10_000);
    broker.publish_all("x --wait-subscribers 1", text.as_bytes());
    first.finish().good();
    assert_same(&out, text.as_bytes());
}

#[test]
fn closed_publishers_are_remembered() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let publish = |n: usize| broker.publish_all("x", format!("{n}\n").as_bytes());
    let args = format!("x --from oldest --until-closed --output {}", out.display());
    for n in 0..3 {
        publish(n);
    }
    // All of them are readable still, and none comes again.
    for n in 3..5 {
        broker.sub(&args).finish().good();
        publish(n);
    }
    broker.sub(&args).finish().good();
    let mut got: Vec<String> = std::fs::read_to_string(&out).unwrap().lines().map(str::to_owned).collect();
    got.sort();
    assert_eq!(got, ["0", "1", "2", "3", "4"]);
    let state = std::fs::read_to_string(dir.path().join("out.rbmq-state")).unwrap();
    assert_eq!(state.lines().filter(|line| line.starts_with("ended ")).count(), 5, "{state}");
    assert!(!state.contains("\nlog "), "{state}");
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    // The pipe has no reader.
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for path in [Path::new("/dev/null"), &pipe] {
        let outcome = broker.sub(&format!("x --output {}", path.display())).finish();
        assert_eq!(outcome.status.code(), Some(1));
        let told = format!("{} is not a regular file", path.display());
        assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
    }
}

#[test]
fn without_a_broker_no_file_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        format!("x --output {}", dir.path().join("out").display()),
        format!("x y --output {}", dir.path().display()),
    ] {
        let outcome = Process::start(client("sub", "127.0.0.1:1", &args)).finish();
        assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{args}");
    }
}
