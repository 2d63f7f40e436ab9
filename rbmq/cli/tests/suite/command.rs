//! The command as people use it: lines in, lines out, and error messages.

use std::io::{BufRead, Write};
use std::process::Stdio;
use testkit::{Process, own_addr, until};

use crate::common::{BrokerProcess, client, lines, piped, rbmq};

#[test]
fn lines_come_out_as_they_went_in() {
    let broker = BrokerProcess::start();
    let subs: Vec<_> = (0..2).map(|_| broker.sub("news --until-closed")).collect();
    let mut text = lines("news", 20_000);
    text.push_str("\nan empty line before, and no newline behind");
    broker.publish_all("news --wait-subscribers 2", text.as_bytes());
    for sub in subs {
        assert_eq!(sub.finish().good().text(), format!("{text}\n"));
    }
}

#[test]
fn a_single_line_is_sent_at_once() {
    let broker = BrokerProcess::start();
    let mut sub = broker.sub("chat");
    let mut publisher = Process::start(piped(client("pub", &broker.addr, "chat --wait-subscribers 1")));
    let (mut input, mut output) = (publisher.stdin(), sub.stdout());
    for text in ["one\n", "two\n"] {
        input.write_all(text.as_bytes()).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, text);
    }
    assert!(publisher.is_running());
    publisher.signal("INT");
    publisher.finish().good();
    sub.signal("INT");
    sub.finish().good();
}

#[test]
fn every_topic_has_its_own_messages() {
    let broker = BrokerProcess::start();
    let names: Vec<String> = (0..20).map(|n| format!("topic/{n}")).collect();
    let sub = broker.sub(&format!("{} --until-closed --print-topic", names.join(" ")));
    let publishers: Vec<_> = names
        .iter()
        .map(|name| broker.publish(&format!("{name} --wait-subscribers 1"), lines(name, 500).as_bytes()))
        .collect();
    for publisher in publishers {
        publisher.finish().good();
    }
    let text = sub.finish().good().text();
    for name in &names {
        let prefix = format!("{name}\t");
        let own: String =
            text.lines().filter_map(|l| l.strip_prefix(&prefix)).map(|l| format!("{l}\n")).collect();
        assert_eq!(own, lines(name, 500));
    }
    assert_eq!(text.lines().count(), 20 * 500);
}

#[test]
fn several_publishers_of_a_topic_are_all_received() {
    let broker = BrokerProcess::start();
    let mut sub = broker.sub("shared --count 3000");
    let publishers: Vec<_> = ["a", "b", "c"]
        .map(|name| broker.publish("shared --wait-subscribers 1", lines(name, 1000).as_bytes()))
        .into();
    for publisher in publishers {
        publisher.finish().good();
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut sub.stdout(), &mut text).unwrap();
    sub.finish().good();
    for name in ["a", "b", "c"] {
        let prefix = format!("{name} ");
        let own: String = text.lines().filter(|l| l.starts_with(&prefix)).map(|l| format!("{l}\n")).collect();
        assert_eq!(own, lines(name, 1000), "in order, each once");
    }
}

#[test]
fn a_closed_topic_can_still_be_read() {
    let broker = BrokerProcess::start();
    broker.publish_all("late", lines("late", 100).as_bytes());
    let all = broker.sub("late --from oldest --until-closed").finish().good().text();
    assert_eq!(all, lines("late", 100));
    let three = broker.sub("late --from oldest --count 3 --json").finish().good().text();
    let objects: Vec<serde_json::Value> = three.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[2]["text"], "late 2");
    // The position of a message is where to begin in order to get it.
    let from = format!("{}:{}", objects[2]["epoch"].as_str().unwrap(), objects[2]["position"]);
    let rest = broker.sub(&format!("late --from {from} --until-closed")).finish().good().text();
    assert_eq!(rest, lines("late", 100).lines().skip(2).map(|l| format!("{l}\n")).collect::<String>());
    let position = objects[1]["position"].to_string();
    let one = broker.sub(&format!("late --from {position} --count 1")).finish().good().text();
    assert_eq!(one, "late 1\n");
}

#[test]
fn messages_say_what_their_options_say() {
    let broker = BrokerProcess::start();
    let says = "--reply-to answers/7 --correlation-data c --content-type text/plain --property lang=en \
                --property a=b=c --property lang= --message-key k --retain";
    broker.publish_all(&format!("said {says}"), b"one\ntwo\n");
    let json = broker.sub("said --from oldest --until-closed --json").finish().good().text();
    let objects: Vec<serde_json::Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let expected = serde_json::json!({
        "reply_to": "answers/7", "correlation_data": "c", "content_type": "text/plain", "key": "k", "retain": true,
        "properties": [["lang", "en"], ["a", "b=c"], ["lang", ""]],
    });
    assert_eq!(objects.len(), 2);
    for (object, text) in objects.iter().zip(["one", "two"]) {
        assert_eq!((&object["attributes"], &object["text"]), (&expected, &text.into()));
    }
    let plain = broker.sub("said --from oldest --until-closed").finish().good().text();
    assert_eq!(plain, "one\ntwo\n");
    broker.publish_all("unsaid", b"one\n");
    let json = broker.sub("unsaid --from oldest --until-closed --json").finish().good().text();
    assert!(!json.contains("attributes"), "{json}");
    // The largest message is that without what it says.
    broker.publish_all(&format!("short {says} --max-message-bytes 5000"), &[b'x'; 5000]);
    let long = broker.publish(&format!("short {says} --max-message-bytes 5000"), &[b'x'; 5001]).finish();
    assert!(long.stderr.contains("more than 5000 bytes"), "{}", long.stderr);
}

#[test]
fn a_waiting_command_reports_the_reason() {
    let broker = BrokerProcess::start();
    let mut sub = broker.sub("nosuch");
    let mut line = String::new();
    sub.stderr().read_line(&mut line).unwrap();
    assert_eq!(line, "rbmq: waiting for a publisher of 'nosuch'\n");
    sub.signal("INT");
    sub.finish().good();
    broker.publish_all("over", &lines("over", 3).into_bytes());
    // The notice comes only if the end comes at once, which a busy machine may delay.
    until("the notice of missed messages", || {
        let over = broker.sub("over --until-closed").finish().good();
        assert_eq!(over.text(), "");
        over.stderr.contains("'over' was closed before you subscribed; --from oldest")
            && over.stderr.lines().count() == 1
    });
}

#[test]
fn an_invalid_position_is_reported() {
    let broker = BrokerProcess::start();
    broker.publish_all("t", b"aaaa\nbbbb\ncccc\n");
    let inside = broker.sub("t --from 3 --until-closed").finish();
    assert_eq!(inside.status.code(), Some(1));
    assert_eq!(inside.text(), "");
    assert!(inside.stderr.contains("position 3 is not the start of a message"), "{}", inside.stderr);
    let beyond = broker.sub("t --from 1000 --until-closed").finish().good();
    assert!(beyond.stderr.contains("no message follows position 1000"), "{}", beyond.stderr);
}

#[test]
fn a_closed_output_ends_the_command_quietly() {
    let broker = BrokerProcess::start();
    broker.publish_all("long", lines("long", 30_000).as_bytes());
    let mut sub = broker.sub("long --from oldest");
    drop(sub.stdout());
    let outcome = sub.finish().good();
    assert_eq!(outcome.stderr, "");
}

#[test]
fn the_summary_counts_the_published_messages() {
    let broker = BrokerProcess::start();
    let outcome = broker.publish("t --json --progress", b"a\nbc\n").finish().good();
    assert_eq!(outcome.text(), "{\"bytes\":3,\"messages\":2,\"position\":11,\"topic\":\"t\"}\n");
    assert!(outcome.stderr.contains("2 messages, 3 B"), "{}", outcome.stderr);
}

#[test]
fn wrong_usage_ends_with_2() {
    for args in [
        "sub",
        "pub",
        "sub a#b",
        "pub a+b",
        "sub a --from yesterday",
        "sub a --policy perhaps",
        "sub a --policy overwrite",
        "sub a --max-lag 1M",
        "sub a --hold 5",
        "pub a --confirm-each",
        "pub a --timeout -1s",
        "sub a --policy block --max-lag 1M",
        "sub a --count 0",
        "sub a --rate 0",
        "serve --json",
    ] {
        let outcome = Process::start(rbmq(args.split(' '))).finish();
        assert_eq!(outcome.status.code(), Some(2), "{args}");
        assert!(!outcome.stderr.is_empty());
    }
}

/// Runs a command that fails, with a message that has these parts.
fn fails(mut command: std::process::Command, parts: &[&str]) {
    command.stdin(Stdio::null());
    let outcome = Process::start(command).finish();
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
    for part in parts {
        assert!(outcome.stderr.contains(part), "{:?} is not in: {}", part, outcome.stderr);
    }
    assert!(outcome.stderr.lines().count() <= 2, "{}", outcome.stderr);
}

#[test]
fn a_listener_that_others_reach_needs_protection_or_a_word() {
    let refused = |args: &[&str]| {
        let outcome = Process::start(rbmq(["serve"].into_iter().chain(args.iter().copied()))).finish();
        assert_eq!(outcome.status.code(), Some(1));
        outcome.stderr
    };
    let why = refused(&["--listen", "0.0.0.0:0"]);
    for part in ["neither TLS nor users", "rbmq keygen", "rbmq passwd", "--insecure"] {
        assert!(why.contains(part), "{part:?} is not in: {why}");
    }
    let why = refused(&["--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"]);
    assert!(why.contains("neither TLS nor a token") && why.contains("http.token_file"), "{why}");
    let broker = BrokerProcess::start_with(&["--http", "0.0.0.0:0", "--insecure"]);
    drop(broker);
}

#[test]
fn the_rule_that_decides_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    std::fs::write(&path, "[[access.rules]]\nusers = ['anna']\npublish = ['home/%u/#']\n").unwrap();
    let check = |user: &str| {
        let file = path.to_str().unwrap();
        Process::start(piped(rbmq(["acl", "check", user, "publish", "home/anna/door", "--config", file])))
            .finish()
    };
    let yes = check("anna");
    assert_eq!(yes.status.code(), Some(0), "{}", yes.stderr);
    assert!(
        yes.text().contains("yes: user 'anna' may publish") && yes.text().contains("line 2"),
        "{}",
        yes.text()
    );
    let no = check("bert");
    assert_eq!(no.status.code(), Some(1));
    assert!(no.stderr.contains("no: user 'bert' may not publish topic 'home/anna/door'"), "{}", no.stderr);
}

#[test]
fn errors_of_addresses_name_the_cause_and_the_remedy() {
    // Without a listener.
    let addr = own_addr();
    fails(client("sub", &addr, "x"), &["cannot connect to the broker at", &addr, "rbmq serve --listen"]);
    let broker = BrokerProcess::start();
    let in_use =
        ["cannot listen on", "is another broker running there? Choose another address with --listen"];
    fails(rbmq(["serve", "--listen", &broker.addr]), &in_use);
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let mut serve = rbmq(["serve", "--listen", "127.0.0.1:0", "--http", &taken]);
    serve.stdin(Stdio::null());
    let outcome = Process::start(piped(serve)).finish();
    assert_eq!(outcome.status.code(), Some(1));
    assert!(outcome.stderr.contains("cannot listen for HTTP"), "{}", outcome.stderr);
    assert!(!outcome.text().contains("listening on"), "it says that it listens, and ends");
    fails(rbmq(["serve", "-l", "127.0.0.1:0", "-u", "10.0.0.5"]), &["broker.upstream.address", "host:port"]);
    // The fault is the address, neither a missing broker nor another listener.
    for wrong in [client("pub", "nowhere", "x"), rbmq(["serve", "--listen", "nowhere"])] {
        let outcome = Process::start(wrong).finish();
        assert_eq!(outcome.status.code(), Some(1));
        assert!(outcome.stderr.contains("it is written host:port"), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("running there"), "{}", outcome.stderr);
    }
}

#[test]
fn what_nobody_sees_in_an_address_is_shown() {
    fails(client("topics", "tcp://127.0.0.1:1", ""), &["'tcp://' does not belong to it"]);
    let mut named = rbmq(["topics"]);
    named.env("RBMQ_BROKER", "127.0.0.1:1\n");
    let outcome = Process::start(named).finish();
    assert!(outcome.stderr.contains("there are blanks in \"127.0.0.1:1\\n\""), "{}", outcome.stderr);
}

/// Files of variables have an empty one for what is not set.
#[test]
fn an_empty_variable_is_not_set() {
    let mut command = rbmq(["config"]);
    command.envs(["RBMQ_CONFIG", "RBMQ_LOG"].map(|name| (name, "")));
    Process::start(command).finish().good();
    let mut command = rbmq(["topics"]);
    command.env("RBMQ_BROKER", "");
    let outcome = Process::start(command).finish();
    assert!(!outcome.stderr.contains("cannot use the address"), "{}", outcome.stderr);
}

#[test]
fn errors_of_limits_and_files_name_the_cause_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rbmq.toml");
    std::fs::write(&config, "[broker]\nmax_topics = 1\nmax_ring_bytes = 1048576\n").unwrap();
    let broker = BrokerProcess::start_with(&["--config", config.to_str().unwrap()]);
    broker.publish_all("first", b"x\n");
    fails(
        client("pub", &broker.addr, "second"),
        &["refused topic 'second'", "1 topics", "broker.max_topics"],
    );
    fails(
        client("pub", &broker.addr, "first --ring-bytes 4M"),
        &["a ring of 4194304 bytes was requested", "1048576", "broker.max_ring_bytes"],
    );
    fails(client("pub", &broker.addr, "x --file /does/not/exist"), &["cannot read /does/not/exist"]);
    let here = dir.path().join("out");
    std::fs::write(&here, "something").unwrap();
    let out = here.to_str().unwrap();
    fails(
        client("sub", &broker.addr, &format!("first --output {out}")),
        &["has 9 bytes and no", "remove it"],
    );
    fails(client("sub", &broker.addr, &format!("a b --output {out}")), &["need a directory"]);
    let below = format!("cannot write {out}/below:");
    fails(client("sub", &broker.addr, &format!("a --output {out}/below")), &[&below]);
    std::fs::write(&config, "[broker]\nmax_topic = 1\n").unwrap();
    fails(
        rbmq(["serve", "--config", config.to_str().unwrap()]),
        &["no setting 'broker.max_topic'", "did you mean 'broker.max_topics'?"],
    );
}

#[test]
fn a_line_that_is_too_long_is_reported() {
    let broker = BrokerProcess::start();
    let mut text = lines("short", 2);
    text.push_str(&"x".repeat(300_000));
    let outcome = broker.publish("t --max-message-bytes 100k", text.as_bytes()).finish();
    assert_eq!(outcome.status.code(), Some(1));
    assert!(outcome.stderr.contains("line 3 has more than 102400 bytes"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--max-message-bytes"), "{}", outcome.stderr);
    for larger in
        ["--ring-bytes 2M", "--max-message-bytes 300k", "--ring-bytes 4k --max-message-bytes 300000"]
    {
        broker.publish_all(&format!("t {larger}"), text.as_bytes());
    }
    // Without any of them as well.
    broker.publish_all("t", text.as_bytes());
}

#[test]
fn completions_name_the_commands() {
    let text = Process::start(rbmq(["completions", "bash"])).finish().good().text();
    assert!(text.contains("--wait-subscribers"));
    // Possible values are completed too.
    for values in ["block drop disconnect", "newest oldest last", "none accepted delivered consumed"] {
        assert!(text.contains(values), "{values}");
    }
}

#[test]
fn wrong_usage_is_answered_with_the_correct_one() {
    for (args, part) in [
        ("sub a --count 0", "at least 1"),
        ("sub a --policy overwrite", "[possible values: block, drop, disconnect]"),
        ("sub a --max-lag 1M", "Usage: rbmq sub --policy <POLICY> --max-lag <BYTES> <TOPIC>..."),
        ("sub a --policy block --max-lag 1M", "needs --policy drop or --policy disconnect"),
        ("sub a --policy block --max-lag 1M", "Usage: rbmq sub [OPTIONS] <TOPIC>..."),
        ("sub a --name n --hold 1x", "seconds alone, or with a unit: us, ms, s, m or min, h, d"),
        ("pub a --timeout 1moon", "seconds alone, or with a unit"),
        ("serve --stats 10ms", "an interval is 100ms to 1d"),
        ("pub a --confirm-each", "Usage: rbmq pub --confirm <LEVEL> --confirm-each <TOPIC>"),
        ("pub a --confirm none --confirm-each", "Usage: rbmq pub [OPTIONS] <TOPIC>"),
        // The options are wrong, and not the missing broker.
        ("pub a --confirm none --confirm-each --broker 127.0.0.1:1", "--confirm LEVEL"),
        ("serve --upstream 127.0.0.1:7411=", "cannot be empty"),
    ] {
        let outcome = Process::start(rbmq(args.split(' '))).finish();
        assert!(outcome.stderr.contains(part), "{part:?} is not in: {}", outcome.stderr);
    }
}

#[test]
fn every_time_has_the_same_units() {
    let broker = BrokerProcess::start();
    let outcome = broker.publish("t --wait-subscribers 1 --wait-timeout 20ms --timeout 1m30s", b"").finish();
    assert!(outcome.stderr.contains("0 of 1 subscribers after 20ms (--wait-timeout)"), "{}", outcome.stderr);
    broker.publish_all("t --timeout 0.5m", b"one\n");
    for args in
        ["--from -1h30m", "--from oldest --name n --hold 1m", "--from -2d --policy drop --max-lag 64k"]
    {
        assert_eq!(broker.sub(&format!("t --count 1 {args}")).finish().good().text(), "one\n");
    }
    Process::start(client("top", &broker.addr, "--once --interval 100ms")).finish().good();
}

#[test]
fn a_publisher_reports_that_its_broker_is_offline() {
    let broker = BrokerProcess::start();
    let mut publisher = Process::start(piped(client("pub", &broker.addr, "t")));
    let (mut input, mut errors) = (publisher.stdin(), publisher.stderr());
    input.write_all(b"one\n").unwrap();
    broker.sub("t --from oldest --count 1").finish().good();
    drop(broker);
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("is down") && line.contains("trying again"), "{line}");
}

#[test]
fn a_closed_output_ends_an_idle_command_too() {
    let broker = BrokerProcess::start();
    let mut sub = broker.sub("quiet");
    drop(sub.stdout());
    sub.finish().good();
}

#[test]
fn a_refusal_is_printed_once_and_without_control_characters() {
    let broker = BrokerProcess::start_with(&["--config", "/dev/null"]);
    let refused = broker.publish("t --ring-bytes 1T", b"").finish();
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    for args in ["completions bash", "man", "config --default"] {
        let mut process = Process::start(rbmq(args.split(' ')));
        drop(process.stdout());
        process.finish().good();
    }
}

#[test]
fn an_unnamed_subscription_keeps_no_position() {
    let mut command = rbmq(["sub", "x", "--name"]);
    command.args(["", "--hold", "30s"]);
    let outcome = Process::start(command).finish();
    assert_eq!(outcome.status.code(), Some(2));
    assert!(outcome.stderr.contains("--name"), "{}", outcome.stderr);
}
