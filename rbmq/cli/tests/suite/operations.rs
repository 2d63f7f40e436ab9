//! The broker as an operator runs it: its log, its configuration while it runs, its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rbmq::Publisher;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use testkit::until;

use crate::common::operator::Operated;
use crate::common::{client, lines, piped, rbmq};

fn config(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("rbmq.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Opens a topic at the broker. The error is the publisher's message if the broker refused.
fn publish(broker: &Operated, topic: &str) -> Result<(), String> {
    let mut process = testkit::Process::start(piped(client("pub", &broker.addr, topic)));
    process.feed(b"hello\n");
    let outcome = process.finish();
    if outcome.status.success() { Ok(()) } else { Err(outcome.stderr) }
}

#[test]
fn the_log_is_text_or_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[log]\nformat = 'json'\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "news").unwrap();
    broker.wait_log("is down");
    let log = broker.end();
    for line in log.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let time = object["timestamp"].as_str().unwrap();
        // RFC 3339 in UTC.
        assert!(time.len() >= 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z'), "{time}");
        assert!(object["message"].is_string() && object["level"].is_string() && object["target"].is_string());
    }
    assert!(log.contains("topic 'news'"), "{log}");
    let path = config(dir.path(), "[log]\nlevel = 'warn'\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "news").unwrap();
    assert_eq!(broker.end(), "", "a broker that is asked for warnings is quiet when there are none");
}

/// What any client can cause as often as it likes is a line in ten seconds, with the number of those that were left out.
#[test]
fn refused_buffers_do_not_flood_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Operated::start(&config(dir.path(), "[broker]\nmax_topics = 1\n"), &[]);
    let (begin, publisher) = (Instant::now(), Publisher::connect(&broker.addr).unwrap());
    let _one = publisher.topic("one").unwrap();
    for n in 0..50 {
        let refused = publisher.topic(&format!("refused/{n}")).unwrap_err().to_string();
        assert!(refused.contains("broker.max_topics"), "{refused}");
    }
    let log = broker.end();
    let lines = log.lines().filter(|line| line.contains("is refused: ")).count() as u64;
    assert!(lines >= 1 && lines <= 1 + begin.elapsed().as_secs() / 10, "{log}");
    assert!(log.contains("more=0"), "{log}");
}

#[test]
fn a_reload_applies_some_changes_and_names_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[log]\nlevel = 'info'\n[broker]\nmax_topics = 1\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "one").unwrap();
    let refused = publish(&broker, "two").unwrap_err();
    assert!(refused.contains("its limit (broker.max_topics) is 1"), "{refused}");
    config(
        dir.path(),
        "[log]\nlevel = 'debug'\n[broker]\nmax_topics = 2\nmax_ring_bytes = 65536\nlisten = '127.0.0.1:1'\n[tcp]\nnodelay = false\n",
    );
    broker.signal("HUP");
    broker.wait_log("reloaded");
    let log = broker.log();
    assert!(log.contains("in force now: broker.max_topics: 1 -> 2"), "{log}");
    assert!(log.contains("in force now: log.level: \"info\" -> \"debug\""), "{log}");
    assert!(log.contains("needs a restart: tcp.nodelay: true -> false"), "{log}");
    assert!(log.contains("3 changes in force, 1 need a restart"), "{log}");
    assert!(!log.contains("broker.listen"), "the command line decides that: {log}");
    publish(&broker, "two --ring-bytes 65536").unwrap();
    assert!(publish(&broker, "three").unwrap_err().contains("broker.max_ring_bytes"));
    assert!(publish(&broker, "three --ring-bytes 65536").unwrap_err().contains("(broker.max_topics) is 2"));
    broker.wait_log("DEBUG");
    broker.end();
}

#[test]
fn a_reload_reports_the_level_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let level = |level: &str| config(dir.path(), &format!("[log]\nlevel = '{level}'\n"));
    let path = level("info");
    for (broker, who) in [
        (Operated::start(&path, &["-v"]), "-v"),
        (Operated::start_in(&path, &[("RBMQ_LOG", "rbmq=info")]), "RBMQ_LOG"),
    ] {
        level("warn");
        broker.signal("HUP");
        broker.wait_log("reloaded");
        level("info");
        let log = broker.end();
        let told = format!("not in force: log.level: \"info\" -> \"warn\": {who} takes precedence");
        assert!(log.contains(&told) && log.contains("0 changes in force"), "{log}");
    }
    let broker = Operated::start(&path, &[]);
    level("warn");
    broker.signal("HUP");
    broker.wait_log("reloaded");
    level("info");
    broker.signal("HUP");
    until("both are told", || broker.log().matches("reloaded").count() == 2);
    let log = broker.end();
    assert!(log.contains("in force now: log.level: \"info\" -> \"warn\""), "{log}");
    assert!(log.contains("in force now: log.level: \"warn\" -> \"info\""), "{log}");
}

#[test]
fn a_variable_that_would_turn_the_log_off_is_refused() {
    for (command, level) in [("serve", "bogus"), ("topics", "rbmq=loud"), ("config", "debug,")] {
        let mut wrong = rbmq([command]);
        wrong.env("RBMQ_LOG", level);
        let (_, error) = output(1, wrong);
        assert!(
            error.contains(&format!("RBMQ_LOG = \"{level}\": it must be a level (error, warn")),
            "{error}"
        );
    }
    let mut empty = rbmq(["config", "--changed"]);
    empty.env("RBMQ_LOG", "");
    assert_eq!(output(0, empty).0, "");
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[broker]\nmax_topics = 1\n");
    let broker = Operated::start(&path, &[]);
    publish(&broker, "one").unwrap();
    for (text, why) in [
        ("[broker]\nmax_topics = 2\nmax_publishers = 0\n", "rbmq.toml, line 3)"),
        ("[broker\n", "rbmq.toml, line 1"),
        ("[broker]\nmax_topic = 2\n", "did you mean 'broker.max_topics'?"),
    ] {
        config(dir.path(), text);
        broker.signal("HUP");
        broker.wait_log(why);
        assert!(publish(&broker, "two").unwrap_err().contains("(broker.max_topics) is 1"));
    }
    std::fs::remove_file(&path).unwrap();
    broker.signal("HUP");
    broker.wait_log("cannot read the configuration file");
    assert_eq!(broker.log().matches("not reloaded, nothing changes").count(), 4);
    // The broker works as before.
    assert!(publish(&broker, "one").is_ok());
    broker.end();
}

#[test]
fn without_a_file_there_is_nothing_to_reload() {
    let broker = Operated::start_with(&[]);
    broker.signal("HUP");
    broker.wait_log("nothing to reload");
    publish(&broker, "news").unwrap();
    broker.end();
}

#[test]
fn a_pipe_instead_of_the_file_blocks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[broker]\nmax_topics = 1\n");
    let broker = Operated::start(&path, &[]);
    std::fs::remove_file(&path).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, 0o600.into(), 0).unwrap();
    broker.signal("HUP");
    broker.wait_log("not reloaded, nothing changes");
    assert!(broker.log().contains("is a pipe"), "{}", broker.log());
    // The pipe has no writer, and a broker does not start with it either.
    let (_, error) = output(1, rbmq(["serve", "--config", path.to_str().unwrap()]));
    assert!(error.contains("a pipe that nobody writes to"), "{error}");
    broker.end();
}

#[test]
fn a_pipe_that_nobody_writes_to_blocks_no_start() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let pipe = pipe.to_str().unwrap();
    for text in [
        format!("[users]\nfile = '{pipe}'"),
        format!("[users]\njwt_key = '{pipe}'\njwt_issuer = 'id'\njwt_audience = 'rbmq'"),
        format!("[http]\ntoken_file = '{pipe}'"),
        format!("[[broker.upstream]]\naddress = '127.0.0.1:1'\ntoken_file = '{pipe}'"),
        format!("[tls]\nmode = 'require'\ncert = '{pipe}'\nkey = '{pipe}'"),
    ] {
        let path = config(dir.path(), &text);
        let args =
            ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", path.to_str().unwrap()];
        let outcome = testkit::Process::start(rbmq(args)).finish();
        assert!(!outcome.status.success() && outcome.stderr.contains(pipe), "{text}: {}", outcome.stderr);
    }
    let (_, error) = output(1, rbmq(["pub", "--token-file", pipe, "news"]));
    assert!(error.contains("a pipe that nobody writes to"), "{error}");
    output(1, rbmq(["token", "list", "--users", pipe]));
}

#[test]
fn a_token_comes_by_a_pipe_that_somebody_writes_to() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let path = config(dir.path(), &format!("[http]\ntoken_file = '{}'", pipe.display()));
    // Opened for both, so that the call does not wait for the broker.
    let mut writer = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    writer.write_all(b"0123456789abcdef\n").unwrap();
    let mut command = rbmq(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--config", path.to_str().unwrap()]).stdout(std::process::Stdio::piped());
    let mut broker = testkit::Process::start(command);
    until("the broker reads the pipe", || rustix::io::ioctl_fionread(&writer) == Ok(0));
    drop(writer);
    let mut line = String::new();
    broker.stdout().read_line(&mut line).unwrap();
    assert!(line.contains("listening on "), "{line}");
    broker.signal("TERM");
    broker.finish().good();
}

#[test]
fn a_configuration_can_be_read_once_from_standard_input() {
    let mut command = piped(rbmq(["config", "--config", "/dev/stdin", "--changed"]));
    command.stderr(std::process::Stdio::inherit());
    let mut process = testkit::Process::start(command);
    process.feed(b"[broker]\nmax_topics = 7\n");
    assert!(process.finish().good().text().contains("max_topics = 7"));
}

#[test]
fn reloaded_times_are_applied() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[broker]\nclosed_linger_ms = 600000\n");
    let broker = Operated::start(&path, &["-v"]);
    config(dir.path(), "[broker]\nclosed_linger_ms = 1\n");
    broker.signal("HUP");
    broker.wait_log("in force now: broker.closed_linger_ms: 600000 -> 1");
    publish(&broker, "short").unwrap();
    broker.wait_log("topic 'short': buffer 1 is removed");
    broker.end();
}

/// The output of a command that ended with this status.
fn output(status: i32, command: std::process::Command) -> (String, String) {
    let outcome = testkit::Process::start(command).finish();
    assert_eq!(outcome.status.code(), Some(status), "{}", outcome.stderr);
    (outcome.text(), outcome.stderr)
}

#[test]
fn every_setting_has_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "\n[broker]\nmax_topics = 5\n[tcp]\nnodelay = false\n");
    let file = path.to_str().unwrap();
    let with = |args: &[&str]| {
        let mut command = rbmq(["config", "--config", file].into_iter().chain(args.iter().copied()));
        command.env("ROCKETBUFS_TCP_BACKLOG", "77").env("RBMQ_LOG", "rbmq=trace");
        command
    };
    let (text, _) = output(0, with(&["--http", "127.0.0.1:1"]));
    let line =
        |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("max_topics = 5").ends_with(&format!("# {file}, line 3")), "{text}");
    assert!(line("nodelay = false").ends_with("line 5"), "{text}");
    assert!(line("backlog = 77").ends_with("# environment variable ROCKETBUFS_TCP_BACKLOG"), "{text}");
    assert!(line("level = \"rbmq=trace\"").ends_with("# environment variable RBMQ_LOG"), "{text}");
    assert!(line("listen = \"127.0.0.1:1\"").ends_with("# argument"), "{text}");
    assert!(line("max_publishers = 1000").ends_with("# the default"), "{text}");
    // The printed text is a valid file with the same settings.
    let again = config(dir.path(), &text);
    let (same, _) = output(0, rbmq(["config", "--config", again.to_str().unwrap()]));
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
    };
    assert_eq!(values(&same), values(&text));
    config(dir.path(), "\n[broker]\nmax_topics = 5\n[tcp]\nnodelay = false\n");
    let (json, _) = output(0, with(&["--json", "--changed"]));
    let names: Vec<String> = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].as_str().unwrap().into())
        .collect();
    assert_eq!(names, ["broker.max_topics", "log.level", "tcp.nodelay", "tcp.backlog"]);
    assert!(json.contains(r#""origin":{"kind":"file","line":3"#), "{json}");
}

#[test]
fn a_file_is_checked_and_a_complete_one_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[broker]\nmax_topics = 0\n");
    let check = || rbmq(["config", "--check", path.to_str().unwrap()]);
    assert!(output(1, check()).1.contains("broker.max_topics = 0: it must be at least 1"));
    config(dir.path(), &output(0, rbmq(["config", "--default"])).0);
    assert!(output(0, check()).0.ends_with("is good\n"));
}

#[test]
fn a_check_of_this_machine_prints_its_findings() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    // Limits that any machine that runs this test can keep.
    let small = "[buffers]\nmax_ring_bytes = 16777216\nsize_bytes = 65536\nreservation_bytes = 1048576\n\
                 [limits]\nmax_connections = 10\n";
    let path = config(dir.path(), small);
    let check = |args: &[&str]| {
        rbmq(["check", "--config", path.to_str().unwrap()].into_iter().chain(args.iter().copied()))
    };
    let (text, _) = output(0, check(&["--listen", &addr]));
    assert!(text.contains(&format!("warn  address              {addr} is in use")), "{text}");
    assert!(text.contains("fix: ss -ltnp") && text.contains("ok    descriptors"), "{text}");
    let (json, error) = output(1, check(&["--listen", "192.0.2.1:1", "--json"]));
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((first["check"].as_str(), first["level"].as_str()), (Some("address"), Some("bad")));
    assert!(error.contains("2 of ") && error.contains("checks are bad"), "{error}");
    assert!(json.contains("exposure") && json.contains("neither TLS nor users"), "{json}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    output(0, rbmq(["man", dir.path().to_str().unwrap()]));
    let mut pages: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let help = output(0, rbmq(["--help"])).0;
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.map(|line| line.split_whitespace().next().unwrap()).filter(|name| *name != "help")
    {
        assert!(pages.contains(&format!("rbmq-{command}.1")), "{command}: {pages:?}");
    }
    assert!(
        pages.contains(&"rbmq.1".into()) && !pages.iter().any(|page| page.contains("worker")),
        "{pages:?}"
    );
    let serve = std::fs::read_to_string(dir.path().join("rbmq-serve.1")).unwrap();
    assert!(serve.contains(".TH rbmq-serve 1") && serve.contains("SIGHUP"), "{serve}");
    assert!(serve.contains("rbmq serve"), "{serve}");
    assert!(output(0, rbmq(["man"])).0.contains(".TH rbmq 1"));
    for name in pages {
        let page = std::fs::read_to_string(dir.path().join(&name)).unwrap();
        let mut at = 0;
        for section in ["SYNOPSIS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "VERSION"] {
            let found = page[at..].find(&format!(".SH {section}\n"));
            let found = found.or_else(|| page[at..].find(&format!(".SH \"{section}\"\n")));
            at += found.unwrap_or_else(|| panic!("{name} has no {section} after what comes before it"));
        }
        assert!(!page.contains("EXTRA"), "{name}");
    }
    let sub = std::fs::read_to_string(dir.path().join("rbmq-sub.1")).unwrap();
    for part in ["RBMQ_BROKER", "messages are missing", "rbmq\\-state", "rbmq sub news"] {
        assert!(sub.contains(part), "{part} is not in {sub}");
    }
}

#[test]
fn a_supervisor_is_notified_of_each_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "");
    let notify = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&notify).unwrap();
    socket.set_read_timeout(Some(testkit::LONG)).unwrap();
    let told = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let broker = Operated::start_in(&path, &[("NOTIFY_SOCKET", notify.to_str().unwrap())]);
    assert!(told().contains("READY=1"));
    broker.signal("HUP");
    let reloading = told();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert!(told().contains("READY=1"));
    broker.end();
    assert!(told().contains("STOPPING=1"));
}

#[test]
fn a_broker_that_ended_in_order_has_sent_everything() {
    let broker = Operated::start_with(&[]);
    let text = lines("news", 5_000);
    let sub = testkit::Process::start(client("sub", &broker.addr, "news --count 5000"));
    let mut publisher =
        testkit::Process::start(piped(client("pub", &broker.addr, "news --wait-subscribers 1")));
    publisher.feed(text.as_bytes());
    publisher.finish().good();
    broker.end();
    assert_eq!(sub.finish().good().text(), text);
}

#[test]
fn an_invalid_configuration_is_status_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "[log]\nlevel = 'loud'\n");
    let outcome = testkit::Process::start(rbmq(["serve", "--config", path.to_str().unwrap()])).finish();
    assert_eq!(outcome.status.code(), Some(1));
    assert!(outcome.stderr.contains("log.level = \"loud\""), "{}", outcome.stderr);
}

/// Fills a pipe without a reader, so that the next write waits.
fn fill(mut pipe: &std::io::PipeWriter) {
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    while pipe.write(b"x").is_ok() {}
    fcntl_setfl(pipe, flags).unwrap();
}

#[test]
fn unread_logs_and_outputs_block_nothing() {
    let (out, to_out) = std::io::pipe().unwrap();
    let (_log, to_log) = std::io::pipe().unwrap();
    let mut command =
        rbmq(["-vv", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--stats", "1"]);
    command.stdout(to_out.try_clone().unwrap()).stderr(to_log.try_clone().unwrap());
    fill(&to_log);
    let broker = testkit::Process::start(command);
    let mut said = BufReader::new(out).lines();
    let mut address = |begin: &str| {
        let line = said.next().unwrap().unwrap();
        line.strip_prefix(begin).unwrap_or_else(|| panic!("{line}")).to_owned()
    };
    let addr = address("rbmq: listening on ");
    let http = address("rbmq: metrics on http://");
    fill(&to_out);
    let sub = testkit::Process::start(client("sub", &addr, "news --count 1000"));
    let publish = client("pub", &addr, "news --wait-subscribers 1 --confirm consumed");
    let mut publisher = testkit::Process::start(piped(publish));
    let text = lines("news", 1000);
    publisher.feed(text.as_bytes());
    publisher.finish().good();
    assert_eq!(sub.finish().good().text(), text);
    let mut health = TcpStream::connect(http.trim_end_matches("/metrics")).unwrap();
    health.set_read_timeout(Some(testkit::LONG)).unwrap();
    health.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    health.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    broker.signal("TERM");
    broker.finish().good();
}

#[test]
fn the_last_lines_of_the_log_are_written() {
    let mut command = rbmq(["-v", "serve", "--listen", "127.0.0.1:0", "--http", "192.0.2.1:9", "--insecure"]);
    command.env("RBMQ_LOG", "trace");
    let outcome = testkit::Process::start(command).finish();
    assert_eq!(outcome.status.code(), Some(1));
    let last = outcome.stderr.lines().last().unwrap();
    assert!(last.starts_with("rbmq: cannot listen for HTTP on 192.0.2.1:9"), "{}", outcome.stderr);
}

#[test]
fn an_error_in_a_file_has_the_same_text_everywhere() {
    let (own, framework) = rbmq_broker::file_parts();
    // Wide enough for no line to be broken.
    let mut help = rbmq(["serve", "--help"]);
    help.env("COLUMNS", "500");
    let help = output(0, help).0.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("TOML file: {own}, and RocketBufs' {framework}")), "{help}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/RBMQ.md");
    let document = std::fs::read_to_string(path).unwrap();
    let begin = document.find("One TOML file: ").unwrap();
    let said = document[begin..].split("\n\n").next().unwrap();
    for part in own.split(", ").chain(framework.split(", ")) {
        assert!(said.contains(&format!("`{part}`")), "{part} is not in: {said}");
    }
    let complete = output(0, rbmq(["config", "--default"])).0;
    assert!(
        complete.contains(&format!("# {own} are the broker's own sections; they have no such variables"))
    );
}

#[test]
fn a_variable_without_a_setting_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = config(dir.path(), "");
    let broker = Operated::start_in(&path, &[("ROCKETBUFS_FOO", "1")]);
    let log = broker.end();
    assert!(log.contains("WARN the environment variable ROCKETBUFS_FOO is not a setting"), "{log}");
    let mut misspelt = rbmq(["config"]);
    misspelt.env("ROCKETBUFS_TPC_NODELAY", "false");
    assert!(output(1, misspelt).1.contains("did you mean 'ROCKETBUFS_TCP_NODELAY'?"));
}
