//! The command as its users run it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::process::{Running, rblive};

fn output(args: &[&str]) -> String {
    let output = rblive().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn get(address: &str, path: &str) -> String {
    get_with(address, path, "")
}

/// With more fields.
fn get_with(address: &str, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{fields}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
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
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write("[deliver]\ntoken_key = 'a secret that is long'\n");
    let opens = |token: &str, stream: &str| {
        rblive_deliver::token::check(b"a secret that is long", stream, Some(token.trim())).is_ok()
    };
    let one = output(&["token", "live/camera", "--expires", "1h", "--config", path]);
    assert!(opens(&one, "live/camera") && !opens(&one, "live/other"), "{one}");
    let every = output(&["token", "*", "-c", path]);
    assert!(opens(&every, "live/camera") && opens(&every, "live/other"), "{every}");
    for (text, args, said) in [
        ("", ["token", "a", "-c", path], "has no deliver.token_key"),
        ("[deliver]\ntoken_key = 'k'\n", ["token", "a", "-c", path], "deliver.token_key is too weak"),
        ("[deliver]\ntoken_key = '0123456789abcdef'\n", ["token", "a b", "-c", path], "the name of a stream"),
    ] {
        write(text);
        let output = rblive().args(args).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(said), "{error}");
    }
}

/// The hash of a line on standard input, or the error.
fn hash_of(line: &[u8]) -> Result<String, String> {
    let mut command = rblive();
    command.arg("password").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(line).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
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
    let mut child =
        rblive().arg("serve").args(addresses.as_flattened()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut serving = Running(child);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("encoders at rtmp://127.0.0.1:"), "{line}");
    assert!(line.contains("viewers at https://127.0.0.1:"), "{line}");
    let address = line.trim().rsplit("http://").next().unwrap().to_owned();
    assert!(get(&address, "/health").ends_with("ok\n"), "{line}");
    assert!(get(&address, "/streams").contains("\"name\":\"local\""));
    assert!(get(&address, "/metrics").contains("rblive_sent_streams 0"));
    assert!(get(&address, "/metrics").contains("rblive_ingest_connections_total 0"));
    // A node has the key of a certificate: the kernel writes no core file of it, whatever its soft limit was.
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.0.id())).unwrap();
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"]);
    let pid = rustix::process::Pid::from_child(&serving.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(serving.0.wait().unwrap().success());
}

#[test]
fn wrong_tokens_are_told_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    std::fs::write(
        &file,
        "[control]\nlisten = '127.0.0.1:0'\ntoken = '0123456789abcdef'\n[deliver]\nlisten = ''\n",
    )
    .unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = rblive();
    command.arg("serve").arg("--config").arg(&file).env("RBLIVE_LOG", "warn");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let _serving = Running(child);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let address = line.trim().rsplit("http://").next().unwrap().to_owned();
    let metrics = |token: &str| get_with(&address, "/metrics", &format!("Authorization: Bearer {token}\r\n"));
    assert!(metrics("0123456789abcdeF").starts_with("HTTP/1.1 401 "));
    let mut said = String::new();
    while !said.contains("refused at the control page: the token is wrong") {
        assert_ne!(messages.read_line(&mut said).unwrap(), 0, "{said}");
    }
    assert!(metrics("0123456789abcdef").contains("\nrblive_control_wrong_tokens_total 1\n"));
}

#[test]
fn a_hangup_reads_the_certificate_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let renew = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(file("chain.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    };
    renew();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| file(name).display().to_string());
    let text = format!(
        "[control]\nlisten = ''\n[deliver]\nlisten = '127.0.0.1:0'\ncertificate = '{chain}'\nprivate_key = '{key}'\n"
    );
    std::fs::write(file("node.toml"), text).unwrap();
    let mut command = rblive();
    command.arg("serve").arg("--config").arg(file("node.toml")).env("RBLIVE_LOG", "info");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let serving = Running(child);
    lines.read_line(&mut String::new()).unwrap();
    let mut hangup_says = |text: &str| {
        let pid = rustix::process::Pid::from_child(&serving.0);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let mut line = String::new();
        while !line.contains("certificate") {
            line.clear();
            assert_ne!(messages.read_line(&mut line).unwrap(), 0, "the node goes on");
        }
        assert!(line.contains(text), "{line}");
    };
    std::fs::write(file("chain.pem"), "rubbish").unwrap();
    hangup_says("the certificate stays as it was");
    renew();
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
    let serve = |more: &str, options: &[&str]| {
        let node = "[[nodes]]\nname = 'open'\nid = 1\nrole = 'both'\naddress = '0.0.0.0:0'\n[deliver]\nlisten = ''\n";
        std::fs::write(&file, format!("{node}{more}")).unwrap();
        let mut command = rblive();
        command.args(["serve", "--config"]).arg(&file).args(["--control", "127.0.0.1:0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut line, mut said) = (String::new(), String::new());
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // A process that is killed may owe lines of its log.
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        (line, said)
    };
    let (line, said) = serve("", &[]);
    assert!(
        line.is_empty() && said.contains("dissemination.token_file") && said.contains("--insecure"),
        "{said}"
    );
    let (line, said) = serve("", &["--insecure"]);
    assert!(line.contains("takes streams of other nodes at 0.0.0.0:"), "{line} {said}");
    assert!(said.contains("insecure: other machines reach"), "{said}");
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let more = format!("[dissemination]\ntoken_file = '{}'\n", token.display());
    allow(&token, 0o644);
    let (line, said) = serve(&more, &[]);
    assert!(line.is_empty() && said.contains(&format!("run: chmod 640 {}", token.display())), "{said}");
    allow(&token, 0o600);
    let (line, said) = serve(&more, &[]);
    assert!(line.contains("takes streams of other nodes"), "{line} {said}");
    let more = format!("{more}[ingest.keys]\ncamera = '0123456789abcdef'\n");
    allow(&file, 0o644);
    let (line, said) = serve(&more, &[]);
    assert!(line.is_empty() && said.contains("ingest.keys: everybody on this machine can read it"), "{said}");
    allow(&file, 0o640);
    let (line, said) = serve(&more, &[]);
    assert!(line.contains("takes streams of other nodes"), "{line} {said}");
}
