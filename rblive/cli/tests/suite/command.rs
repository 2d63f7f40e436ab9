//! The command as its users run it.

use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use testkit::Process;

use crate::http;
use crate::process::{Serving, certify, rblive, serve, write_own};

fn output(args: &[&str]) -> String {
    let output = rblive().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pages_and_scripts_are_printed() {
    assert!(output(&["config"]).contains("[streams]"));
    assert!(output(&["completions", "bash"]).contains("rblive"));
    assert!(output(&["man"]).contains("rblive"));
    let folder = tempfile::tempdir().unwrap();
    output(&["man", folder.path().to_str().unwrap()]);
    assert!(folder.path().join("rblive-serve.1").exists());
}

#[test]
fn tokens_are_made_with_the_key_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let path = file.to_str().unwrap();
    write_own(&file, "[deliver]\ntoken_key = 'a secret that is long'\n");
    let opens = |token: &str, stream: &str| {
        rblive_deliver::token::check(b"a secret that is long", stream, Some(token.trim())).is_ok()
    };
    let one = output(&["token", "live/camera", "--expires", "1h", "--config", path]);
    assert!(opens(&one, "live/camera") && !opens(&one, "live/other"), "{one}");
    let doubted = rblive().args(["token", "live/camera", "-c", path]).output().unwrap();
    let said = String::from_utf8(doubted.stderr).unwrap();
    assert!(doubted.status.success() && said.contains("has the name 'camera'"), "{said}");
    let every = output(&["token", "*", "-c", path]);
    assert!(opens(&every, "live/camera") && opens(&every, "live/other"), "{every}");
    for (text, args, said) in [
        ("", ["token", "a", "-c", path], "has no deliver.token_key"),
        ("[deliver]\ntoken_key = 'k'\n", ["token", "a", "-c", path], "deliver.token_key is too weak"),
        ("[deliver]\ntoken_key = '0123456789abcdef'\n", ["token", "a b", "-c", path], "the name of a stream"),
    ] {
        write_own(&file, text);
        let output = rblive().args(args).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(said), "{error}");
    }
}

/// The hash of a line on standard input, or the error.
fn hash_of(line: &[u8]) -> Result<String, String> {
    let mut command = rblive();
    command.arg("password").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command);
    process.feed(line);
    let outcome = process.finish();
    if outcome.status.success() { Ok(outcome.text()) } else { Err(outcome.stderr) }
}

#[test]
fn passwords_are_hashed_as_those_of_rbmq() {
    let text = hash_of(b"pass word\n").unwrap();
    let hash: access::PasswordHash = text.trim_end().parse().unwrap();
    for (password, is_right) in [("pass word", true), ("pass word\n", false), ("pass", false)] {
        assert_eq!(hash.verify(&peers::Secret::from(password.to_owned())), is_right, "{password:?}");
    }
    assert!(hash_of(b"\n").unwrap_err().contains("the password is empty"));
    assert!(hash_of(&[b'x'; 513]).unwrap_err().contains("the limit is 512"));
}

#[test]
fn a_node_serves_without_a_configuration_until_a_signal() {
    let addresses = ["--control", "--listen", "--rtmp", "--http"].map(|option| [option, "127.0.0.1:0"]);
    let mut command = rblive();
    command.arg("serve").args(addresses.as_flattened());
    let serving = Serving::start(command);
    let line = &serving.said;
    assert!(line.contains("encoders at rtmp://127.0.0.1:"), "{line}");
    assert!(line.contains("viewers at https://127.0.0.1:"), "{line}");
    let address = serving.address("metrics at http://");
    let get = |path: &str| http::text(&address, path, "").1;
    assert_eq!(get("/health"), "ok\n");
    assert!(get("/streams").contains("\"name\":\"local\""));
    assert!(get("/metrics").contains("rblive_sent_streams 0"));
    assert!(get("/metrics").contains("rblive_ingest_connections_total 0"));
    assert!(get("/metrics").contains("# TYPE rblive_ingest_remarks_total counter"));
    assert!(get("/streams").contains("\"remarks\":[]"));
    // A node has the key of a certificate: the kernel writes no core file of it, whatever its soft limit was.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.process.id())).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"]);
    serving.process.signal("TERM");
    serving.process.finish().good();
}

#[test]
fn wrong_tokens_are_told_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    write_own(
        &file,
        "[control]\nlisten = '127.0.0.1:0'\ntoken = '0123456789abcdef'\n[deliver]\nlisten = ''\n",
    );
    let mut command = serve(&file);
    command.env("RBLIVE_LOG", "warn").stderr(Stdio::piped());
    let mut serving = Serving::start(command);
    let mut messages = serving.process.stderr();
    let address = serving.address("metrics at http://");
    let metrics =
        |token: &str| http::text(&address, "/metrics", &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(metrics("0123456789abcdeF").0, 401);
    let mut said = String::new();
    while !said.contains("refused at the control page: the token is wrong") {
        assert_ne!(messages.read_line(&mut said).unwrap(), 0, "{said}");
    }
    assert!(metrics("0123456789abcdef").1.contains("\nrblive_control_wrong_tokens_total 1\n"));
}

#[test]
fn a_hangup_reads_the_certificate_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    certify(folder.path());
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| file(name).display().to_string());
    let text = format!(
        "[control]\nlisten = ''\n[deliver]\nlisten = '127.0.0.1:0'\ncertificate = '{chain}'\nprivate_key = '{key}'\n"
    );
    std::fs::write(file("node.toml"), text).unwrap();
    let mut command = serve(&file("node.toml"));
    command.env("RBLIVE_LOG", "info").stderr(Stdio::piped());
    let mut serving = Serving::start(command).process;
    let mut messages = serving.stderr();
    let mut hangup_says = |text: &str| {
        serving.signal("HUP");
        let mut line = String::new();
        while !line.contains("certificate") {
            line.clear();
            assert_ne!(messages.read_line(&mut line).unwrap(), 0, "the node goes on");
        }
        assert!(line.contains(text), "{line}");
    };
    std::fs::write(file("chain.pem"), "rubbish").unwrap();
    hangup_says("the certificate stays as it was");
    certify(folder.path());
    hangup_says("the certificate was read again");
}

#[test]
fn errors_name_the_cause() {
    let output = rblive().args(["serve", "--node", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no node 'nowhere'"));
    // An address of the documentation, which no machine has.
    let listeners = [
        ("--rtmp", "ingest.rtmp"),
        ("--http", "ingest.http"),
        ("--listen", "deliver.listen"),
        ("--control", "control.listen"),
    ];
    for (option, setting) in listeners {
        let mut serve = rblive();
        serve.args(["serve", "--insecure"]);
        for (own, _) in listeners {
            serve.args([own, if own == option { "192.0.2.1:1" } else { "127.0.0.1:0" }]);
        }
        let output = serve.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(&format!("192.0.2.1:1 ({setting})")), "{said}");
    }
    let output = rblive().arg("demo").env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("apt-get install ffmpeg"));
}

#[test]
fn a_node_that_other_machines_reach_asks_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let starts = |more: &str, options: &[&str]| {
        let node = "[[nodes]]\nname = 'open'\nid = 1\nrole = 'both'\naddress = '0.0.0.0:0'\n[deliver]\nlisten = ''\n";
        std::fs::write(&file, format!("{node}{more}")).unwrap();
        let mut command = serve(&file);
        command.args(["--control", "127.0.0.1:0"]).args(options).stderr(Stdio::piped());
        let Serving { process, said } = Serving::start(command);
        // A process that is killed may owe lines of its log.
        process.signal("TERM");
        (said, process.finish().stderr)
    };
    let (line, said) = starts("", &[]);
    assert!(
        line.is_empty() && said.contains("dissemination.token_file") && said.contains("--insecure"),
        "{said}"
    );
    let (line, said) = starts("", &["--insecure"]);
    assert!(line.contains("takes streams of other nodes at 0.0.0.0:"), "{line} {said}");
    assert!(said.contains("insecure: other machines reach"), "{said}");
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let more = format!("[dissemination]\ntoken_file = '{}'\n", token.display());
    allow(&token, 0o644);
    let (line, said) = starts(&more, &[]);
    assert!(line.is_empty() && said.contains(&format!("run: chmod 640 {}", token.display())), "{said}");
    allow(&token, 0o600);
    let (line, said) = starts(&more, &[]);
    assert!(line.contains("takes streams of other nodes"), "{line} {said}");
    let more = format!("{more}[ingest.keys]\ncamera = '0123456789abcdef'\n");
    allow(&file, 0o644);
    let (line, said) = starts(&more, &[]);
    assert!(line.is_empty() && said.contains("ingest.keys: everybody on this machine can read it"), "{said}");
    allow(&file, 0o640);
    let (line, said) = starts(&more, &[]);
    assert!(line.contains("takes streams of other nodes"), "{line} {said}");
}
