//! Clients that people have: redis-cli, redis-py, node-redis and ioredis. Those that are not here are skipped, and that is said.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rbmq_broker::GatewayProtocol;

use crate::site::Site;

pub fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Runs a client to its end.
fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program runs")
}

pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn redis_cli_publishes_and_subscribes() {
    if !has("redis-cli") {
        return skip("RESP with redis-cli (apt-get install redis-tools)");
    }
    let site = Site::new(GatewayProtocol::Resp);
    let address = site.address();
    let cli = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]).args(arguments);
        command
    };
    let text = |arguments: &[&str]| {
        let output = run(&mut cli(arguments));
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(text(&["PUBLISH", "c", "x"]), "0\n");
    assert_eq!(text(&["-3", "PING"]), "PONG\n");
    assert!(text(&["INFO", "server"]).contains("redis_mode:standalone"));
    let mut subscriber = cli(&["SUBSCRIBE", "c"])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(subscriber.stdout.take().expect("piped")));
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!([next(), next(), next()], ["subscribe", "c", "1"]);
    assert_eq!(text(&["PUBLISH", "c", "hello world"]), "1\n");
    assert_eq!([next(), next(), next()], ["message", "c", "hello world"]);
    subscriber.kill().expect("it runs");
    subscriber.wait().expect("it ended");
}

#[test]
fn redis_benchmark_measures() {
    if !has("redis-benchmark") {
        return skip("RESP with redis-benchmark (apt-get install redis-tools)");
    }
    let site = Site::new(GatewayProtocol::Resp);
    let port = site.address().port().to_string();
    let options = ["-h", "127.0.0.1", "-p", &port, "-n", "20000", "-c", "10", "-P", "32", "-q"];
    let output = run(Command::new("redis-benchmark").args(options).args(["publish", "c", "hello"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("requests per second"), "{output:?}");
    assert!(!text.contains("WARN") && output.stderr.is_empty(), "{output:?}");
}

/// The variable `REDIS_PY` names a Python that has the package redis.
#[test]
fn redis_py_publishes_and_subscribes() {
    let Ok(python) = std::env::var("REDIS_PY") else {
        return skip("RESP with redis-py (the variable REDIS_PY names no Python with the package redis)");
    };
    let site = Site::new(GatewayProtocol::Resp);
    let output = run(Command::new(python).arg(script("people.py")).arg(site.address().port().to_string()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The variable `REDIS_NODE` names a folder `node_modules` that has the packages redis and ioredis.
#[test]
fn node_redis_and_ioredis_publish_and_subscribe() {
    let Ok(modules) = std::env::var("REDIS_NODE") else {
        return skip(
            "RESP with node-redis and ioredis (the variable REDIS_NODE names no node_modules with them)",
        );
    };
    let site = Site::new(GatewayProtocol::Resp);
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules).arg(script("people.js")).arg(site.address().port().to_string());
    let output = run(&mut node);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/resp").join(name)
}
