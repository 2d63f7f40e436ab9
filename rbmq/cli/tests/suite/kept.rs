//! Kept topics with real processes: brokers that are killed, disks that are full, and the commands.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rbmq::{
    BlockReason, ConfirmError, ConfirmLevel, Observer, Publisher, PublisherEvent, StartFrom, Subscriber,
    TopicOptions, TopicWriter,
};
use testkit::{LONG, Process, own_addr, until};

use crate::common::{BrokerProcess, lines, random, rbmq};
use crate::gateways::Redis;

/// The configuration of a broker that keeps the topics `k/#`.
fn config(dir: &Path, rule: &str) -> String {
    let path = dir.join("rbmq.toml");
    let keep = dir.join("kept");
    let text = format!(
        "[broker]\nkeep_dir = '{}'\n[[broker.topics]]\npattern = 'k/#'\nkeep = true\nring_bytes = '256k'\n{rule}\n",
        keep.display()
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

fn topic(at: &str, name: &str) -> TopicWriter {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    Publisher::connect(at).unwrap().topic_with(name, options).unwrap()
}

fn subscriber(at: &str, from: StartFrom) -> Subscriber {
    let mut subscriber = Subscriber::connect(at).unwrap();
    subscriber.subscribe_from("k/#", from).unwrap();
    subscriber
}

/// Receives messages of several publishers (`publisher number`) and checks that each one comes once, in order.
fn receive(subscriber: &mut Subscriber, publishers: usize, each: usize) {
    let mut next = vec![0; publishers];
    while next.iter().any(|next| *next < each) {
        let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
        let text = String::from_utf8(message.bytes).unwrap();
        let mut words = text.split_whitespace().map(|word| word.parse::<usize>().unwrap());
        let (publisher, number) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(number, next[publisher], "of publisher {publisher}");
        next[publisher] += 1;
    }
}

/// Two publishers and a subscriber go on while their broker is killed again and again. `padding`: the bytes of a message beside its numbers.
fn go_on_while_the_broker_is_killed(each: usize, pause_every: usize, padding: fn(usize) -> usize) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "");
    let mut broker = BrokerProcess::start_with(&["--config", &config]);
    let addr = broker.addr.clone();
    let publishers: Vec<_> = (0..2)
        .map(|publisher| {
            let mut writer = topic(&addr, "k/a");
            std::thread::spawn(move || {
                for number in 0..each {
                    let message = format!("{publisher} {number} {}", "0".repeat(padding(number)));
                    writer.publish(message.as_bytes()).unwrap();
                    if number % pause_every == 0 {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
            })
        })
        .collect();
    let mut follower = subscriber(&addr, StartFrom::Oldest);
    let reader = std::thread::spawn(move || receive(&mut follower, 2, each));
    for moment in random(23, 8) {
        std::thread::sleep(Duration::from_millis(u64::from(moment) / 2 + 50));
        broker.process.signal("KILL");
        broker.process.finish();
        broker = BrokerProcess::start_at(&addr, &["--config", &config]);
    }
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    reader.join().unwrap();
    // Everything is there for a late subscriber, also behind the last broker.
    broker.process.signal("TERM");
    broker.process.finish().good();
    let broker = BrokerProcess::start_at(&addr, &["--config", &config]);
    receive(&mut subscriber(&addr, StartFrom::Oldest), 2, each);
    drop(broker);
}

#[test]
fn a_killed_broker_loses_nothing_and_repeats_nothing() {
    go_on_while_the_broker_is_killed(12_000, 100, |_| 200);
}

/// The rings of publishers, the broker and its subscriber grow meanwhile, and each new broker begins with small ones.
#[test]
fn a_killed_broker_loses_no_large_message() {
    go_on_while_the_broker_is_killed(200, 1, |number| if number % 5 == 3 { number << 14 } else { 200 });
}

#[test]
fn the_commands_read_what_earlier_brokers_kept() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "");
    for round in 0..2 {
        let broker = BrokerProcess::start_with(&["--config", &config]);
        broker.publish_all(
            "k/log --confirm accepted --ring-bytes 64k",
            lines(&round.to_string(), 2_000).as_bytes(),
        );
        broker.process.signal("KILL");
        broker.process.finish();
    }
    let broker = BrokerProcess::start_with(&["--config", &config]);
    let all = broker.sub("k/log --from oldest --count 4000").finish().good().text();
    assert_eq!(all, lines("0", 2_000) + &lines("1", 2_000));
    let recent = broker.sub("k/log --from -1h --count 4000").finish().good().text();
    assert_eq!(recent, all);
    // The position behind the first publisher's run is the beginning of the second one's.
    let json = broker.sub("k/log --from oldest --count 4000 --json").finish().good().text();
    let second = json.lines().nth(2_000).unwrap();
    let second: serde_json::Value = serde_json::from_str(second).unwrap();
    let from = format!("{}:{}", second["epoch"].as_str().unwrap(), second["position"]);
    let rest = broker.sub(&format!("k/log --from {from} --count 2000")).finish().good().text();
    assert_eq!(rest, lines("1", 2_000));
}

/// Sets the largest size of the files of a process; none: no limit. False if the system does not allow it.
pub fn limit_files(process: &Process, bytes: Option<u64>) -> bool {
    let limit = rustix::process::Rlimit { current: bytes, maximum: None };
    let pid = rustix::process::Pid::from_raw(process.id() as i32);
    match rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit) {
        Ok(_) => true,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: the size of files cannot be limited: {error}");
            false
        }
    }
}

/// A broker that survives the limits of [`limit_files`].
pub fn broker_with_file_limits(addr: &str, config: &str) -> Process {
    let rbmq = rbmq(["serve", "--listen", addr, "--config", config]);
    let mut ignoring = std::process::Command::new("sh");
    ignoring.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(rbmq.get_program()).args(rbmq.get_args());
    ignoring.env_remove("RBMQ_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut broker = Process::start(ignoring);
    broker.stdout().read_line(&mut String::new()).unwrap();
    broker
}

/// A limit on the size of files has the effect of a full disk. Rings are files too, so they are made before.
#[test]
fn a_full_disk_stops_the_kept_topics_only_and_only_while_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let addr = own_addr();
    let mut broker = broker_with_file_limits(&addr, &config(dir.path(), ""));
    let mut log = broker.stderr().lines().map_while(Result::ok);
    let (mut writer, mut other) = (topic(&addr, "k/a"), topic(&addr, "other"));
    let mut there = Subscriber::connect(&addr).unwrap();
    there.subscribe("other").unwrap();
    other.wait_subscribers(1, Some(LONG)).unwrap();
    if !limit_files(&broker, Some(512 << 10)) {
        return;
    }
    let publisher = std::thread::spawn(move || {
        for number in 0..4_000 {
            writer.publish(format!("0 {number} {:0500}", 0).as_bytes()).unwrap();
        }
        writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
    });
    let told = log.by_ref().find(|line| line.contains("its publishers wait for the disk"));
    let told = told.expect("the log says so");
    assert!(told.contains("File too large"), "{told}");
    // The rest of the log would fill its pipe.
    let rest = std::thread::spawn(move || log.any(|line| line.contains("the disk takes data again")));
    other.publish(b"goes on").unwrap();
    assert_eq!(there.recv(Some(LONG)).unwrap().unwrap().bytes, b"goes on");
    assert!(!publisher.is_finished());
    assert!(limit_files(&broker, None));
    publisher.join().unwrap();
    assert!(rest.join().unwrap());
    receive(&mut subscriber(&addr, StartFrom::Oldest), 1, 4_000);
}

/// A subscriber that comes and goes with its own positions, as `--output` does, while the log grows and is cut.
#[test]
fn an_output_continues_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "");
    let mut broker = BrokerProcess::start_with(&["--config", &config]);
    let addr = broker.addr.clone();
    let file = dir.path().join("out");
    let output = format!("k/log --from oldest --output {}", file.display());
    let mut expected = String::new();
    for round in 0..3 {
        let text = lines(&round.to_string(), 5_000);
        broker.publish_all("k/log --confirm accepted --ring-bytes 64k", text.as_bytes());
        expected += &text;
        let sub = broker.sub(&output);
        until("the output is complete", || {
            std::fs::metadata(&file).is_ok_and(|file| file.len() >= expected.len() as u64)
        });
        sub.signal("TERM");
        sub.finish();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        broker.process.signal("KILL");
        broker.process.finish();
        broker = BrokerProcess::start_at(&addr, &["--config", &config]);
    }
}

/// The option keeps all topics, or those that match, and rules of the file come first.
#[test]
fn an_option_keeps_topics_without_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("kept");
    let keep = format!("{}=k/#,also", folder.display());
    let broker = BrokerProcess::start_with(&["--keep", &keep]);
    for name in ["k/a", "also"] {
        let mut writer = topic(&broker.addr, name);
        writer.publish(b"kept").unwrap();
        writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
    }
    let addr = broker.addr.clone();
    let mut from = Subscriber::connect(&addr).unwrap();
    from.subscribe_from("#", StartFrom::Oldest).unwrap();
    let mut names: Vec<_> =
        (0..2).map(|_| from.recv(Some(LONG)).unwrap().expect("a message").topic).collect();
    names.sort();
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["also", "k/a"]);
    let kept = std::fs::read_dir(&folder).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(kept.count(), 2, "a folder for each topic");
    let refused = rbmq(["serve", "--keep", "=k/#"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a folder is missing"));
}

/// A broker that is started with fewer descriptors than its topics need serves its clients, and says what is missing.
#[test]
fn kept_topics_leave_descriptors_to_clients() {
    const TOPICS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("kept").display().to_string();
    let earlier = BrokerProcess::start_with(&["--keep", &folder]);
    let publisher = Publisher::connect(&earlier.addr).unwrap();
    for n in 0..TOPICS {
        let options = TopicOptions::default().ring_bytes(64 << 10);
        let mut writer = publisher.topic_with(&format!("k/{n:02}"), options).unwrap();
        writer.publish(b"kept").unwrap();
        writer.confirm(writer.position(), ConfirmLevel::Stored, Some(LONG)).unwrap();
    }
    drop((publisher, earlier));
    let addr = own_addr();
    let serve = rbmq(["serve", "--listen", &addr, "--keep", &folder, "--http", "127.0.0.1:0"]);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""]).arg(serve.get_program()).args(serve.get_args());
    limited.env("RBMQ_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut broker = Process::start(limited);
    let told = broker
        .stderr()
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("kept topics are not available"));
    let told = told.expect("the log says how many topics are missing");
    assert!(told.contains(&format!("of {TOPICS} kept topics")) && told.contains("ulimit -n"), "{told}");
    let lines = broker.stdout().lines().map_while(Result::ok);
    let http = lines.into_iter().find_map(|line| Some(line.split_once("http://")?.1.replace("/metrics", "")));
    let mut page = std::net::TcpStream::connect(http.expect("its address")).expect("a descriptor is left");
    page.write_all(b"GET /ready HTTP/1.0\r\n\r\n").unwrap();
    let answer = std::io::read_to_string(page).unwrap();
    assert!(answer.contains("200 OK") && answer.contains("\"unavailable_topics\":"), "{answer}");
    let publisher = Publisher::connect(&addr).expect("clients are served");
    let refused = publisher.topic(&format!("k/{:02}", TOPICS - 1)).expect_err("no descriptors for it");
    assert!(refused.to_string().contains("descriptors are in use"), "{refused}");
    publisher.topic("other/but/kept").expect_err("nor for another topic that is kept");
    let mut subscriber = subscriber(&addr, StartFrom::Oldest);
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().expect("of a topic that was opened").bytes, b"kept");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_command_without_kafka_names_the_feature() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "kafka = true\n[kafka]\nbrokers = '127.0.0.1:9092'");
    let refused = Process::start(rbmq(["serve", "--listen", "127.0.0.1:0", "--config", &config])).finish();
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("cargo build -p rbmq-cli --features kafka"), "{}", refused.stderr);
    // The file is good for all builds.
    Process::start(rbmq(["config", "--check", &config])).finish().good();
}

/// Publishes numbered messages until the broker is gone, and asks now and then for a level of the disk. Returns the number of messages
/// of each level that were confirmed. Everything else dies with the publisher.
fn publish_until_killed(
    addr: &str,
    publisher: usize,
    opened: SyncSender<()>,
    killed: &AtomicBool,
) -> [usize; 2] {
    const RECORD: u64 = 204;
    let mut writer = topic(addr, "k/a");
    opened.send(()).unwrap();
    drop(opened);
    let mut waiting = VecDeque::new();
    for number in 0.. {
        let text = format!("{publisher} {number} ");
        if writer
            .publish_timeout(format!("{text:x<200}").as_bytes(), Some(Duration::from_millis(20)))
            .is_err()
        {
            break;
        }
        let level = if number % 3 == 0 { ConfirmLevel::Synced } else { ConfirmLevel::Stored };
        waiting.push_back(writer.confirmation(writer.position(), level));
        if number % 16 == publisher {
            waiting.retain(|one| one.try_get().is_none());
            std::thread::sleep(Duration::from_millis(1));
        }
        if killed.load(Ordering::SeqCst) {
            break;
        }
    }
    // The messages that were confirmed before the broker died.
    [ConfirmLevel::Stored, ConfirmLevel::Synced].map(|level| (writer.confirmed(level) / RECORD) as usize)
}

/// Brokers are killed while publishers wait, and the publishers end before the next broker comes: only its files have the messages.
#[test]
fn what_was_confirmed_as_stored_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "");
    let mut broker = BrokerProcess::start_with(&["--config", &config]);
    let addr = broker.addr.clone();
    let mut confirmed = Vec::new();
    for (round, moment) in random(31, 8).into_iter().enumerate() {
        let killed = AtomicBool::new(false);
        let (opened, all_opened) = sync_channel(2);
        std::thread::scope(|scope| {
            let publishers: Vec<_> = (0..2)
                .map(|n| {
                    let (addr, opened, killed) = (&addr, opened.clone(), &killed);
                    scope.spawn(move || publish_until_killed(addr, 2 * round + n, opened, killed))
                })
                .collect();
            drop(opened);
            // A publisher that fails is reported where it is joined.
            let _ = (0..2).all(|_| all_opened.recv().is_ok());
            std::thread::sleep(Duration::from_millis(u64::from(moment) / 2 + 50));
            broker.process.signal("KILL");
            killed.store(true, Ordering::SeqCst);
            confirmed.extend(publishers.into_iter().map(|publisher| publisher.join().unwrap()));
        });
        broker.process.finish();
        broker = BrokerProcess::start_at(&addr, &["--config", &config]);
    }
    assert!(confirmed.iter().any(|[stored, synced]| *stored > 0 && *synced > 0), "{confirmed:?}");
    let mut last = topic(&addr, "k/a");
    last.publish(format!("{} 0", confirmed.len()).as_bytes()).unwrap();
    let mut next = vec![0; confirmed.len() + 1];
    let mut reader = subscriber(&addr, StartFrom::Oldest);
    while next[confirmed.len()] == 0 {
        let message = String::from_utf8(reader.recv(Some(LONG)).unwrap().expect("a message").bytes).unwrap();
        let mut words = message.split(' ').map(|word| word.parse::<usize>());
        let (publisher, number) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
        assert_eq!(number, next[publisher], "of publisher {publisher}");
        next[publisher] += 1;
    }
    for (publisher, [stored, synced]) in confirmed.into_iter().enumerate() {
        assert!(
            synced <= stored && stored <= next[publisher],
            "{publisher}: {stored} of {}",
            next[publisher]
        );
    }
}

/// Waits until a publisher learns that the disk works again, and returns the topic.
fn recovered(publisher: &Publisher) -> String {
    loop {
        let event = publisher.next_event(Some(LONG)).expect("an event");
        if let PublisherEvent::DiskRecovered { topic } = event {
            return topic.to_string();
        }
    }
}

#[test]
fn a_full_disk_confirms_nothing_more_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let addr = own_addr();
    let mut broker = broker_with_file_limits(&addr, &config(dir.path(), ""));
    let log = broker.stderr();
    let drain = std::thread::spawn(move || log.lines().map_while(Result::ok).count());
    let publisher = Publisher::connect(&addr).unwrap();
    let mut writer = publisher.topic_with("k/a", TopicOptions::default().ring_bytes(64 << 10)).unwrap();
    let first = writer.publish(b"0 0 ").unwrap();
    writer.confirm(first, ConfirmLevel::Synced, Some(LONG)).unwrap();
    assert_eq!(publisher.next_event(Some(Duration::ZERO)), None);
    if !limit_files(&broker, Some(512 << 10)) {
        return;
    }
    let mut number = 0;
    let failed = loop {
        // The ring may be full before the event comes.
        let text = format!("0 {} {:0500}", number + 1, 0);
        let published = writer.publish_timeout(text.as_bytes(), Some(Duration::from_millis(10)));
        number += usize::from(published.is_ok());
        match publisher.next_event(Some(Duration::ZERO)) {
            Some(PublisherEvent::DiskFailed { topic, reason }) if topic.as_str() == "k/a" => break reason,
            Some(PublisherEvent::Room { .. } | PublisherEvent::Subscribers { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
    };
    assert!(failed.contains("File too large"), "{failed}");
    assert_eq!(writer.disk_failure(), Some(failed.clone()));
    let end = writer.position();
    let stored = writer.confirmation(end, ConfirmLevel::Stored);
    let error = writer.confirm(end, ConfirmLevel::Synced, Some(Duration::from_millis(100))).unwrap_err();
    assert!(matches!(error, ConfirmError::TimedOut { confirmed, .. } if confirmed < end), "{error:?}");
    assert!(error.to_string().contains(&format!("the broker's disk takes nothing: {failed}")), "{error}");
    assert!(stored.try_get().is_none());
    let reason = Observer::connect(&addr).unwrap().topics(None).unwrap()[0].blocked_by;
    assert_eq!(reason, Some(BlockReason::Disk));
    // A publisher that comes meanwhile learns it too.
    let other = Publisher::connect(&addr).unwrap();
    assert_eq!(other.next_event(Some(Duration::ZERO)), None);
    let waits = other.topic_with("k/a", TopicOptions::default().ring_bytes(64 << 10)).unwrap();
    until("the other publisher knows", || waits.disk_failure() == Some(failed.clone()));
    assert!(limit_files(&broker, None));
    let end = stored.wait(Some(LONG)).unwrap().position;
    writer.confirm(end, ConfirmLevel::Synced, Some(LONG)).unwrap();
    assert_eq!([recovered(&publisher), recovered(&other)], ["k/a", "k/a"]);
    assert_eq!((writer.disk_failure(), waits.disk_failure()), (None, None));
    receive(&mut subscriber(&addr, StartFrom::Oldest), 1, number + 1);
    drop(broker);
    drain.join().unwrap();
}

/// Whether an entry of `XADD` is stored.
fn is_stored(redis: &mut Redis) -> bool {
    let line = redis.line();
    if line.starts_with('$') {
        redis.line();
        return true;
    }
    assert!(line.starts_with("-ERR the disk of the broker takes nothing now"), "{line}");
    false
}

/// Entries on their way are stored later, and those that come meanwhile are told.
#[test]
fn each_entry_of_a_gateway_with_a_full_disk_is_answered() {
    const COUNT: usize = 1500;
    let (dir, addr, redis) = (tempfile::tempdir().unwrap(), own_addr(), own_addr());
    let gateway = format!("[[gateway]]\nprotocol = 'resp'\nlisten = '{redis}'");
    let mut broker = broker_with_file_limits(&addr, &config(dir.path(), &gateway));
    let log = broker.stderr();
    let drain = std::thread::spawn(move || log.lines().map_while(Result::ok).count());
    until("the gateway listens", || TcpStream::connect(&redis).is_ok());
    let add = format!("XADD k/a * n {:0500}", 0);
    let mut client = Redis::connect(&redis);
    client.say(&add);
    assert!(is_stored(&mut client));
    if !limit_files(&broker, Some(512 << 10)) {
        return;
    }
    let mut stored = 1;
    std::thread::scope(|scope| {
        let mut sender = client.sender();
        let all = format!("{add}\r\n").repeat(COUNT);
        scope.spawn(move || sender.write_all(all.as_bytes()).unwrap());
        let mut waiting = Vec::new();
        loop {
            assert!(waiting.len() < 600, "nobody is told");
            let mut other = Redis::connect(&redis);
            other.say("XADD k/a * a 1");
            if !other.has_answer(Duration::from_millis(100)) {
                waiting.push(other);
            } else if is_stored(&mut other) {
                stored += 1;
            } else {
                break;
            }
        }
        assert!(limit_files(&broker, None));
        stored += (0..COUNT).filter(|_| is_stored(&mut client)).count();
        waiting.iter_mut().for_each(|other| stored += usize::from(is_stored(other)));
    });
    let mut client = Redis::connect(&redis);
    client.say("XLEN k/a");
    assert_eq!(client.line(), format!(":{stored}"));
    drop(broker);
    drain.join().unwrap();
}

#[test]
fn pub_confirms_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "");
    let broker = BrokerProcess::start_with(&["--config", &config]);
    for level in ["stored", "synced"] {
        let args = format!("k/log --confirm {level} --ring-bytes 64k --json");
        let said = broker.publish(&args, lines(level, 2_000).as_bytes()).finish().good().text();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let confirmed = &said["confirmed"];
        assert_eq!((&confirmed["level"], &confirmed["messages"]), (&level.into(), &2_000.into()), "{said}");
        assert_eq!(confirmed["position"], said["position"]);
    }
    let each =
        broker.publish("k/log --confirm stored --confirm-each --ring-bytes 64k", b"one\n").finish().good();
    assert_eq!((each.text().as_str(), each.stderr.as_str()), ("stored: 1 messages\n", ""));
    let refused = broker.publish("plain --confirm stored", b"one\n").finish();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("topic 'plain' will not be stored: the broker does not keep"),
        "{refused:?}"
    );
}
