//! Clients that people have: redis-cli, redis-py, node-redis, ioredis, paho and MQTT.js. Those that are not here are skipped, and that is said.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rbmq_broker::GatewayProtocol;

use crate::resp::streams::Folder;
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
        return skip("redis-cli (apt-get install redis-tools)");
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
        return skip("redis-benchmark (apt-get install redis-tools)");
    }
    let site = Site::new(GatewayProtocol::Resp);
    let port = site.address().port().to_string();
    let options = ["-h", "127.0.0.1", "-p", &port, "-n", "20000", "-c", "10", "-P", "32", "-q"];
    let output = run(Command::new("redis-benchmark").args(options).args(["publish", "c", "hello"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("requests per second"), "{output:?}");
    assert!(!text.contains("WARN") && output.stderr.is_empty(), "{output:?}");
}

/// Runs a script of this folder with a gateway. The variable `GATEWAY_PYTHON` names a Python that has the packages `redis` and `paho-mqtt`.
fn python(site: &Site, script: &str, client: &str) {
    let Ok(python) = std::env::var("GATEWAY_PYTHON") else {
        return skip(&format!("{client} (the variable GATEWAY_PYTHON names no Python that has it)"));
    };
    passes(site, script, &mut Command::new(python));
}

/// The same. The variable `GATEWAY_NODE` names a folder `node_modules` that has the packages `redis`, `ioredis` and `mqtt`.
fn node(site: &Site, script: &str, client: &str) {
    let Ok(modules) = std::env::var("GATEWAY_NODE") else {
        return skip(&format!("{client} (the variable GATEWAY_NODE names no node_modules that has it)"));
    };
    passes(site, script, Command::new("node").env("NODE_PATH", modules));
}

/// The script gets the address of the gateway, as that of a web socket if it is one.
fn passes(site: &Site, script: &str, runner: &mut Command) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/people").join(script);
    let kind = if site.broker.config().gateways()[0].websocket { "websockets" } else { "tcp" };
    let output = run(runner.arg(script).arg(site.address().port().to_string()).arg(kind));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn redis_py_publishes_and_subscribes() {
    python(&Site::new(GatewayProtocol::Resp), "redis_client.py", "redis-py");
}

#[test]
fn redis_py_has_streams() {
    let folder = Folder::new();
    python(&folder.site(), "streams_client.py", "streams with redis-py");
}

#[test]
fn node_redis_and_ioredis_have_streams() {
    let folder = Folder::new();
    node(&folder.site(), "streams_client.js", "streams with node-redis and ioredis");
}

#[test]
fn node_redis_and_ioredis_publish_and_subscribe() {
    node(&Site::new(GatewayProtocol::Resp), "redis_client.js", "node-redis and ioredis");
}

#[test]
fn paho_publishes_and_subscribes() {
    python(&Site::new(GatewayProtocol::Mqtt), "mqtt_client.py", "paho");
}

#[test]
fn paho_publishes_and_subscribes_over_websocket() {
    python(&crate::websocket::site(&[]), "mqtt_client.py", "paho over WebSocket");
}

#[test]
fn mqtt_js_publishes_and_subscribes_over_websocket() {
    node(&crate::websocket::site(&[]), "mqtt_client.js", "MQTT.js over WebSocket");
}

#[test]
fn mqtt_js_publishes_and_subscribes() {
    node(&Site::new(GatewayProtocol::Mqtt), "mqtt_client.js", "MQTT.js");
}
