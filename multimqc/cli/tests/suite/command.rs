//! The command as a user runs it.

use std::io::{BufRead, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use testkit::{Process, own_addr, until};

use crate::common::{Server, feed, in_world, multimqc, multimqc_with_open_files, must, output, push};

#[test]
fn what_is_pushed_is_pulled_from_every_set_of_levels() {
    for levels in ["user", "disk", "user,disk"] {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(folder.path(), &["--levels", levels, "--topic", "0"]);
        push(&server, "one\ntwo\nthree\n");
        server.wait_for_pushes(3);
        let pulled = output(&mut server.client(&["pull"]));
        assert_eq!(
            (pulled.status.code(), &pulled.stdout[..]),
            (Some(0), &b"one\ntwo\nthree\n"[..]),
            "{levels}"
        );
        let pulled = output(&mut server.client(&["pull", "--from", "4", "--length", "3"]));
        assert_eq!(pulled.stdout, b"two");
        let beyond = output(&mut server.client(&["pull", "--from", "99"]));
        let error = String::from_utf8(beyond.stderr).expect("text");
        assert!(beyond.status.code() == Some(3) && error.contains("the end of the log, 14"), "{error}");
        let report = server.stat();
        let names: Vec<&str> = report["topics"][0]["levels"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|level| level["level"].as_str().expect("a name"))
            .collect();
        assert_eq!(names.join(","), levels);
        let shown = output(&mut multimqc(&["stat", "--interval", "1ms", "--control", &server.control]));
        let shown = String::from_utf8(shown.stdout).expect("text");
        assert!(shown.contains("topic 0: ends at 14"), "{shown}");
        server.end("INT");
        assert!(!folder.path().join("control").exists(), "the control socket is removed");
    }
}

/// A topic costs a server no thread, and more descriptors than the usual limit are no obstacle.
#[test]
fn many_topics_on_disk_need_few_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let ids: Vec<String> = (1..=200).map(|id| id.to_string()).collect();
    let mut args = vec!["--levels", "disk"];
    args.extend(ids.iter().flat_map(|id| ["--topic", id]));
    let server = Server::start_as(multimqc_with_open_files(256), folder.path(), &args);
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.process.id())).expect("it runs").count();
    assert!(threads <= 16, "{threads} threads for 200 topics");
    server.end("INT");
}

#[test]
fn a_server_that_ended_in_order_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    let sent = output(&mut server.client(&["push", "--count", "1000", "--size", "20", "--rate", "50000"]));
    assert!(sent.status.success(), "{sent:?}");
    server.wait_for_pushes(1000);
    server.end("TERM");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    push(&server, "after\n");
    server.wait_for_pushes(1);
    let pulled = output(&mut server.client(&["pull", "--from", "19980"]));
    assert_eq!(pulled.stdout, [&999_u64.to_le_bytes()[..], &[0; 12], b"after\n"].concat());
}

#[test]
fn a_server_that_was_killed_leaves_a_hole() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    push(&server, "before\n");
    server.wait_for_pushes(1);
    drop(server);
    let server = Server::start(folder.path(), &["--topic", "0"]);
    push(&server, "after\n");
    server.wait_for_pushes(1);
    let pulled = output(&mut server.client(&["pull"]));
    let text = String::from_utf8(pulled.stdout).expect("text");
    assert!(text.ends_with("after\n"), "{text}");
    assert_eq!(pulled.status.code(), Some(3), "bytes are missing");
    let error = String::from_utf8(pulled.stderr).expect("text");
    assert!(error.contains("were lost (a hole)"), "{error}");
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_told() {
    let path = format!("/tmp/{}", "x".repeat(200));
    for args in [
        &["stat", "--control", &path][..],
        &["serve", "--levels", "user", "--topic", "1", "--control", &path],
    ] {
        let refused =
            output(multimqc(args).args(if args[0] == "serve" { &["--port", "0"][..] } else { &[] }));
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && error.contains("at most 107 bytes"), "{error}");
    }
}

/// The first address of the name is one where nobody listens.
#[test]
fn a_server_is_found_at_any_address_of_its_name() {
    in_world("command::a_server_is_found_at_any_address_of_its_name", || {
        let folder = tempfile::tempdir().expect("a folder");
        let hosts = folder.path().join("hosts");
        std::fs::write(&hosts, "::1 two\n127.0.0.1 two\n").expect("a file");
        must(&format!("mount --bind {} /etc/hosts", hosts.display()));
        let server = Server::start(folder.path(), &["--levels", "user", "--topic", "0"]);
        let (_, port) = server.address.rsplit_once(':').expect("a port");
        let named = format!("two:{port}");
        feed(multimqc(&["push", "--server", &named]), "one\n");
        server.wait_for_pushes(1);
        assert_eq!(output(&mut multimqc(&["pull", "--server", &named])).stdout, b"one\n");
        let nobody = output(&mut multimqc(&["pull", "--server", "two:1"]));
        let error = String::from_utf8_lossy(&nobody.stderr);
        assert!(error.contains("[::1]:1: Connection refused") && error.contains("127.0.0.1:1: "), "{error}");
    });
}

#[test]
fn pull_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--levels", "user", "--topic", "0"]);
    push(&server, "old\n");
    server.wait_for_pushes(1);
    let mut command = server.client(&["pull", "--follow", "--from", "newest"]);
    command.stdout(Stdio::piped());
    let mut follower = Process::start(command);
    // The pull has begun when it has asked twice: for the end, and for the bytes after it.
    until("the pull begins", || server.stat()["service"]["pulls"].as_u64() >= Some(2));
    push(&server, "new\n");
    let mut lines = follower.stdout().lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "new");
    follower.signal("INT");
    follower.finish().good();
}

#[test]
fn the_configuration_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("multimqc.toml");
    let text = "levels = [\"user\"]\n[[topics]]\nid = 4\npush_port = 0\npull_port = 0\n\
                input = { drop_range = { at = 0, type = \"u8\", from = 97, to = 97 } }\n";
    std::fs::write(&file, text).expect("a file");
    let mut server = Server::start(folder.path(), &["--config", file.to_str().expect("text")]);
    let mut line = String::new();
    server.output.as_mut().expect("a pipe").read_line(&mut line).expect("a line");
    let plain = line.trim().rsplit(' ').next().expect("an address").to_owned();
    assert!(line.starts_with("multimqc: topic 4: pushes on 127.0.0.1:"), "{line}");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for message in ["apple", "banana", "avocado", "cherry"] {
        socket.send_to(message.as_bytes(), &plain).expect("it is sent");
    }
    server.wait_for_pushes(4);
    let pulled = output(&mut server.client(&["pull", "--topic", "4"]));
    assert_eq!(pulled.stdout, b"bananacherry", "what begins with an a is dropped");
    let printed = output(&mut multimqc(&["config"]));
    assert!(String::from_utf8(printed.stdout).expect("text").contains("#: levels = [\"user\", \"disk\"]"));
}

/// Runs the command, which fails with this status and these words.
fn fails(args: &[&str], status: i32, words: &str) {
    let failed = output(&mut multimqc(args));
    let error = String::from_utf8(failed.stderr).expect("text");
    assert_eq!(failed.status.code(), Some(status), "{args:?}: {error}");
    assert!(error.contains(words), "{args:?}: {error}");
}

#[test]
fn errors_name_the_cause_and_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("multimqc.toml");
    let path = file.to_str().expect("text");
    #[cfg(not(feature = "kafka"))]
    fails(&["serve", "--levels", "user,kafka"], 1, "build multimqc-cli with --features kafka");
    #[cfg(feature = "kafka")]
    fails(
        &["serve", "--levels", "user,kafka", "--brokers", "127.0.0.1:9", "--port", "0"],
        1,
        "the level is down",
    );
    fails(&["serve", "--levels", "nic"], 1, "level \"nic\": there are kernel, user and disk");
    fails(&["serve", "--levels", "kernel"], 1, "it needs the name of an interface");
    fails(
        &["serve", "--levels", "kernel", "--interface", "eth0"],
        1,
        "127.0.0.1 is not reached through eth0",
    );
    fails(&["serve", "--levels", "kernel", "--interface", "lo", "--mode", "fast"], 1, "use auto, xdp-native");
    fails(
        &["serve", "--levels", "kernel", "--interface", "lo", "--port", "0"],
        1,
        "the numbers of all ports",
    );
    fails(&["serve", "--levels", "user,user"], 1, "the level user is named twice");
    std::fs::write(&file, "levels = [\"user\"]\nport = 1\n").expect("a file");
    fails(&["serve", "--config", path], 1, "unknown field `port`");
    let small = "[user]\ncapacity_bytes = 1048576\n";
    std::fs::write(&file, small).expect("a file");
    let directory = folder.path().to_str().expect("text");
    let equation = "latency < (capacity - (batch + overlap)) / rate, here 100ms < (917504 - (32768 + 1500)) B / 100000000 B/s";
    fails(&["serve", "--config", path, "--directory", directory], 1, equation);
}

/// More topics than the system has room for are refused before any is opened.
#[test]
fn too_many_topics_are_refused_with_the_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("many.toml");
    let topics: String = (0..65_000).map(|id| format!("[[topics]]\nid = {id}\n")).collect();
    std::fs::write(&file, format!("header_port = 0\n{topics}")).expect("a file");
    let directory = folder.path().join("disk");
    for (levels, says) in [
        ("user", "65000 topics need 65064 descriptors, and the limit is 1000"),
        ("user,disk", "65000 topics need 195064 descriptors, and the limit is 1000"),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 1000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_multimqc"), "serve"]);
        command.args(["--levels", levels, "--directory"]).arg(&directory).arg("--config").arg(&file);
        let failed = output(&mut command);
        let error = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{levels}: {error}");
        assert!(error.contains(says) && error.contains("ulimit -n"), "{levels}: {error}");
        assert!(!directory.exists(), "nothing was opened");
    }
    let path = file.to_str().expect("text");
    fails(
        &["serve", "--config", path, "--levels", "kernel", "--interface", "lo", "--port", "19997"],
        1,
        "65000 topics: it takes at most 4096",
    );
}

#[test]
fn errors_of_clients_and_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = folder.path().join("nobody").display().to_string();
    fails(&["stat", "--control", &control], 1, "is `multimqc serve` running");
    fails(&["pull", "--from", "yesterday"], 2, "use an offset, oldest or newest");
    fails(&["push", "--rate", "0"], 2, "--rate");
    fails(&["pull", "--server", &own_addr()], 1, "nobody listens at");
    let server = Server::start(folder.path(), &["--levels", "user", "--topic", "0"]);
    fails(
        &["serve", "--control", &server.control, "--levels", "user", "--port", "0", "--topic", "0"],
        1,
        "another server has",
    );
    fails(&["pull", "--server", &server.address, "--topic", "9"], 1, "has no topic 9");
    fails(
        &[
            "serve",
            "--control",
            &control,
            "--levels",
            "user",
            "--port",
            "0",
            "--topic",
            "0",
            "--address",
            "192.0.2.1",
        ],
        1,
        "cannot bind",
    );
}

#[test]
fn completions_and_help() {
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&mut multimqc(&["completions", shell]));
        assert!(script.status.success() && !script.stdout.is_empty());
    }
    for command in ["serve", "push", "pull", "stat", "detach", "completions", "man"] {
        let help = output(&mut multimqc(&[command, "--help"]));
        assert!(String::from_utf8(help.stdout).expect("text").contains("\nExample"), "{command}");
    }
}

/// The commands of the examples in a help text: lines that begin with two spaces, without their comments.
fn examples(help: &str) -> Vec<Vec<String>> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    let commands = lines.filter_map(|line| {
        let line = line.split(" # ").next().unwrap_or(line);
        let parts = line.split(['|', '<', '>', '&', '(', ')']);
        parts.map(|part| part.trim().trim_start_matches("sudo ")).find(|part| part.starts_with("multimqc "))
    });
    let words = |line: &str| line.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect();
    commands.map(words).collect()
}

/// The examples that help shows are commands with arguments that there are.
#[test]
fn examples_of_help_are_accepted() {
    let mut checked = 0;
    for command in [&[][..], &["serve"], &["push"], &["pull"], &["stat"]] {
        let mut args = command.to_vec();
        args.push("--help");
        let help = output(&mut multimqc(&args));
        for example in examples(std::str::from_utf8(&help.stdout).expect("text")) {
            // With --help the arguments before it are parsed, and nothing is done.
            let mut words: Vec<&str> = example[1..].iter().map(String::as_str).collect();
            // Behind `--` are arguments of another command.
            let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            words.insert(end, "--help");
            let run = output(&mut multimqc(&words));
            assert!(run.status.success(), "{example:?}: {}", String::from_utf8_lossy(&run.stderr));
            checked += 1;
        }
    }
    assert!(checked >= 15, "{checked} examples");
}

#[test]
fn manual_pages_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    assert!(output(multimqc(&["man"]).arg(&pages)).status.success());
    for (page, says) in [("multimqc.1", "multimqc\\-serve(1)"), ("multimqc-serve.1", "\\-\\-levels")] {
        let text = std::fs::read_to_string(pages.join(page)).expect("a page");
        assert!(text.contains(says), "{page} does not have {says}: {text}");
    }
    let page = output(&mut multimqc(&["man"]));
    assert!(page.status.success() && page.stdout.starts_with(b".ie"), "{page:?}");
    fails(&["man", "/dev/null/man1"], 1, "cannot write to /dev/null/man1");
}

#[test]
fn the_level_in_the_kernel() {
    in_world("command::the_level_in_the_kernel", || {
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            ["--levels", "kernel,user,disk", "--interface", "lo", "--port", "19997", "--topic", "0"];
        let server = Server::start(folder.path(), &options);
        // Without an address, at that port.
        feed(multimqc(&["push"]), "one\ntwo\n");
        let pull = || output(&mut multimqc(&["pull", "--from", "0", "--length", "8"])).stdout;
        until("both are pulled", || pull() == b"one\ntwo\n");
        until("the disk has them", || server.stat()["topics"][0]["levels"][2]["head"] == 8);
        let stat = server.stat();
        let levels = &stat["topics"][0]["levels"];
        assert_eq!((&levels[0]["level"], &levels[0]["messages"]), (&"kernel".into(), &2.into()), "{stat}");
        assert!(levels[0]["hits"].as_u64() > Some(0), "the kernel has answered: {stat}");
        assert_eq!((&levels[2]["level"], &levels[2]["holes"]), (&"disk".into(), &0.into()), "{stat}");
        server.end("INT");
    });
}

#[test]
fn one_signal_ends_what_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    let mut command = server.client(&["push"]);
    command.stdin(Stdio::piped());
    let mut pusher = Process::start(command);
    let mut input = pusher.stdin();
    // The command reads its input once a line has arrived.
    input.write_all(b"one\n").expect("it reads");
    server.wait_for_pushes(1);
    pusher.signal("TERM");
    pusher.finish().good();
    // A reader that ends is noticed although nothing more comes.
    let mut command = server.client(&["pull", "--follow"]);
    command.stdout(Stdio::piped());
    let mut follow = Process::start(command);
    assert_eq!(follow.line(), "one\n");
    follow.finish().good();
}

#[test]
fn a_line_without_end_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    let zeros = std::fs::File::open("/dev/zero").expect("a device");
    let pushed = output(server.client(&["push"]).stdin(zeros));
    let error = String::from_utf8(pushed.stderr).expect("text");
    assert!(pushed.status.code() == Some(1) && error.contains("line 1 has more than"), "{error}");
}

#[test]
fn a_server_outlives_the_reader_of_its_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(folder.path(), &["--topic", "0", "--stats", "100ms"]);
    // Two tables were tried after the reader had gone.
    server.output = None;
    std::thread::sleep(std::time::Duration::from_millis(300));
    push(&server, "one\n");
    server.wait_for_pushes(1);
    server.end("TERM");
}

#[test]
fn a_file_that_is_no_control_socket_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("control");
    std::fs::write(&file, "precious").expect("a file");
    let path = file.display().to_string();
    let refused = output(&mut multimqc(&["serve", "--levels", "user", "--port", "0", "--control", &path]));
    let error = String::from_utf8(refused.stderr).expect("text");
    assert!(
        refused.status.code() == Some(1) && error.contains("no socket of a server, and stays"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).expect("it is there"), b"precious");
    // One that a killed server has left is replaced.
    std::fs::remove_file(&file).expect("a file");
    drop(std::os::unix::net::UnixListener::bind(&file).expect("a socket"));
    let server = Server::start(folder.path(), &["--topic", "0"]);
    // And one that another server made in its place is not removed with this one.
    std::fs::remove_file(&file).expect("its socket");
    let _other = std::os::unix::net::UnixListener::bind(&file).expect("a socket");
    server.end("TERM");
    assert!(file.exists());
}
