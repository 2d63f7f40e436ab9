//! Everybody meets everybody: clients of Redis, of MQTT 3.1.1 and 5, and native ones each publish, and each receive all of it.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rbmq::{AttributesBuf, Publisher, Subscriber};
use rbmq_broker::{GatewayProtocol, GatewaySettings};
use rustix::process::{Pid, Signal, kill_process};

use crate::people::{has, skip};
use crate::site::{LONG, Site};

/// A program that prints what it receives.
struct Receiver {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Receiver {
    /// Starts it, and reads up to the line that says that it receives.
    fn start(mut command: Command, ready: &str) -> Self {
        let mut program =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let lines = BufReader::new(program.stdout.take().expect("piped")).lines();
        let mut receiver = Self { program, lines };
        receiver.until(ready);
        receiver
    }

    /// Reads lines up to one with this text. Returns that one.
    fn until(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.next().expect("the program goes on").expect("text");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // What bounds the program passes this on to it.
        let _ = kill_process(Pid::from_child(&self.program), Signal::TERM);
        let _ = self.program.wait();
    }
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
}

/// The next message is this one, with the attributes that its publisher gave it.
fn expect_native(subscriber: &mut Subscriber, text: &str) {
    let message = subscriber.recv(Some(LONG)).expect("a message").expect("in time");
    assert_eq!((message.topic.as_str(), &message.bytes[..]), ("a/b", text.as_bytes()));
    let attributes = message.attributes.attributes();
    let properties: Vec<_> = attributes.properties().collect();
    let expected = match text {
        "from-mqtt-5" => (Some("text/plain"), &[("k", "v")][..]),
        "from-native" => (Some("text/csv"), &[][..]),
        _ => (None, &[][..]),
    };
    assert_eq!((attributes.content_type(), &properties[..]), expected);
}

#[test]
fn everybody_meets_everybody() {
    if !has("redis-cli") || !has_mosquitto() {
        return skip("clients of Redis and MQTT (apt-get install redis-tools mosquitto-clients)");
    }
    let site = Site::with(GatewayProtocol::Resp, |config| {
        let mut mqtt = GatewaySettings::new(GatewayProtocol::Mqtt);
        mqtt.listen = Some("127.0.0.1:0".into());
        config.outside.gateway.push(mqtt);
    });
    let port = |protocol| site.address_of(protocol).port().to_string();
    let redis = |arguments: &[&str]| {
        let mut command = bounded("redis-cli");
        command.args(["-p", &port(GatewayProtocol::Resp)]).args(arguments);
        command
    };
    let mqtt = |program: &str, version: &str, arguments: &[&str]| {
        let mut command = bounded(program);
        command.args(["-p", &port(GatewayProtocol::Mqtt), "-V", version, "-t", "a/b"]).args(arguments);
        command
    };
    let mut receivers = [
        Receiver::start(redis(&["SUBSCRIBE", "a/b"]), "1"),
        Receiver::start(mqtt("mosquitto_sub", "311", &["-d", "-q", "1"]), "Subscribed"),
        Receiver::start(mqtt("mosquitto_sub", "5", &["-d", "-F", "%p of %C"]), "Subscribed"),
    ];
    let mut native = Subscriber::connect(&site.broker.addr()).expect("the broker listens");
    native.subscribe("a/+").expect("a filter");
    while !native.is_settled() {
        let _ = native.next_event(Some(Duration::from_millis(1))).expect("a connection");
    }

    run(&mut redis(&["PUBLISH", "a/b", "from-redis"]));
    run(&mut mqtt("mosquitto_pub", "311", &["-m", "from-mqtt-3", "-q", "2"]));
    let properties =
        ["-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "k", "v"];
    run(mqtt("mosquitto_pub", "5", &["-m", "from-mqtt-5", "-q", "1"]).args(properties));
    let publisher = Publisher::connect(&site.broker.addr()).expect("the broker listens");
    let mut attributes = AttributesBuf::new();
    attributes.content_type("text/csv").expect("a short text");
    publisher.topic("a/b").expect("a topic").publish_with(&attributes, b"from-native").expect("room");

    let all = ["from-redis", "from-mqtt-3", "from-mqtt-5", "from-native"];
    for receiver in &mut receivers {
        all.iter().for_each(|text| _ = receiver.until(text));
    }
    all.iter().for_each(|text| expect_native(&mut native, text));
    // What a native client says about its message reaches MQTT 5.
    publisher.topic("a/b").expect("a topic").publish_with(&attributes, b"again").expect("room");
    assert_eq!(receivers[2].until("again of"), "again of text/csv");
}

/// A program that ends by itself at last, and whose output is not kept back.
fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", "stdbuf", "-oL", program]);
    command
}

/// The programs have no option that says their version with success.
fn has_mosquitto() -> bool {
    Command::new("mosquitto_pub").arg("--help").output().is_ok()
}
