//! Consumer groups over the logs of a broker, and beside a server of Redis.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rbmq::{Publisher, Subscriber};
use rbmq_broker::{GatewayProtocol, GatewaySettings, Rule};

use super::command;
use super::streams::{Folder, string, until_blocked};
use crate::people::{has, skip};
use crate::site::{Client, LONG};

/// Sends a command, whose words are between blanks.
fn send(client: &mut Client, line: &str) {
    client.send(command(&line.split(' ').collect::<Vec<_>>()));
}

/// The reply to a command, in one line.
fn say(client: &mut Client, line: &str) -> String {
    send(client, line);
    reply(client)
}

/// The next reply of RESP2, in one line.
fn reply(client: &mut Client) -> String {
    let line = client.line();
    let (kind, rest) = line.trim_end().split_at(1);
    let count = rest.parse::<i64>().unwrap_or(-1);
    match kind {
        "$" if count >= 0 => {
            let bytes = client.take(count as usize + 2);
            String::from_utf8_lossy(&bytes[..count as usize]).into_owned()
        }
        "*" if count >= 0 => {
            let all: Vec<String> = (0..count).map(|_| reply(client)).collect();
            format!("[{}]", all.join(" "))
        }
        "$" | "*" => "nil".to_owned(),
        _ => format!("{kind}{rest}"),
    }
}

#[test]
fn consumers_have_what_they_had_after_a_restart() {
    let folder = Folder::new();
    let mut ids = Vec::new();
    let begin = folder.site();
    let mut client = begin.client();
    assert_eq!(say(&mut client, "XGROUP CREATE events/a my:group $ MKSTREAM"), "+OK");
    for n in 0..6 {
        send(&mut client, &format!("XADD events/a * n {n}"));
        ids.push(string(&mut client));
    }
    let entry = |ids: &[String], n: usize| format!("[{} [n {n}]]", ids[n]);
    let read = "XREADGROUP GROUP my:group anna COUNT 4 STREAMS events/a >";
    let four: Vec<String> = (0..4).map(|n| entry(&ids, n)).collect();
    assert_eq!(say(&mut client, read), format!("[[events/a [{}]]]", four.join(" ")));
    assert_eq!(say(&mut client, &format!("XACK events/a my:group {} {}", ids[0], ids[2])), ":2");
    drop((client, begin));
    let site = folder.site();
    let mut client = site.client();
    let pending = format!("[:2 {} {} [[anna 2]]]", ids[1], ids[3]);
    assert_eq!(say(&mut client, "XPENDING events/a my:group"), pending);
    let history = say(&mut client, "XREADGROUP GROUP my:group anna STREAMS events/a 0");
    assert_eq!(history, format!("[[events/a [{} {}]]]", entry(&ids, 1), entry(&ids, 3)));
    let rest = say(&mut client, "XREADGROUP GROUP my:group ben STREAMS events/a >");
    assert_eq!(rest, format!("[[events/a [{} {}]]]", entry(&ids, 4), entry(&ids, 5)));
    // What is removed does not come again.
    assert_eq!(say(&mut client, "XGROUP DESTROY events/a my:group"), ":1");
    drop((client, site));
    let site = folder.site();
    assert_eq!(say(&mut site.client(), "XINFO GROUPS events/a"), "[]");
}

#[test]
fn a_group_that_is_not_open_is_not_taken_for_none() {
    let folder = Folder::new();
    let begin = folder.site();
    let mut client = begin.client();
    for group in ["g", "h"] {
        assert_eq!(say(&mut client, &format!("XGROUP CREATE events/a {group} $ MKSTREAM")), "+OK");
    }
    send(&mut client, "XADD events/a * n 1");
    let id = string(&mut client);
    for group in ["g", "h"] {
        let read = say(&mut client, &format!("XREADGROUP GROUP {group} anna STREAMS events/a >"));
        assert_eq!(read, format!("[[events/a [[{id} [n 1]]]]]"));
    }
    drop((client, begin));
    let site = folder.site_with(|config| config.broker.max_groups = 1);
    let mut client = site.client();
    let acks = ["g", "h"].map(|group| say(&mut client, &format!("XACK events/a {group} {id}")));
    assert!(acks.contains(&":1".to_owned()), "{acks:?}");
    assert!(acks.iter().any(|ack| ack.contains("is not available now: the broker has 1 groups")), "{acks:?}");
    // It is opened as soon as it can be.
    let (open, other) = if acks[0] == ":1" { ("g", "h") } else { ("h", "g") };
    assert_eq!(say(&mut client, &format!("XGROUP DESTROY events/a {open}")), ":1");
    let since = Instant::now();
    while say(&mut client, &format!("XACK events/a {other} {id}")) != ":1" {
        assert!(since.elapsed() < LONG, "it is not opened");
        std::thread::yield_now();
    }
}

#[test]
fn consumers_of_two_gateways_share_a_group() {
    let folder = Folder::new();
    let site = folder.site_with(|config| {
        let mut second = GatewaySettings::new(GatewayProtocol::Resp);
        second.listen = Some("127.0.0.1:0".into());
        config.outside.gateway.push(second);
    });
    let addresses: Vec<SocketAddr> = site.addresses();
    let (mut first, mut second) = (Client::to(addresses[0]), Client::to(addresses[1]));
    assert_eq!(say(&mut first, "XGROUP CREATE events/b g $ MKSTREAM"), "+OK");
    assert_eq!(
        say(&mut second, "XGROUP CREATE events/b g $"),
        "-BUSYGROUP Consumer Group name already exists"
    );
    // Each waits at its gateway, and gets entries that the other does not.
    let mut got = Vec::new();
    for round in 0..50 {
        for (client, name) in [(&mut first, "anna"), (&mut second, "ben")] {
            send(client, &format!("XREADGROUP GROUP g {name} COUNT 1 BLOCK 0 STREAMS events/b >"));
        }
        let mut writer = Client::to(addresses[round % 2]);
        writer.send(command(&["XADD", "events/b", "*", "n", "1"]).repeat(2));
        let ids = [string(&mut writer), string(&mut writer)];
        for client in [&mut first, &mut second] {
            let reply = reply(client);
            let id = ids.iter().find(|id| reply.contains(id.as_str())).expect("one of the two");
            assert_eq!(reply, format!("[[events/b [[{id} [n 1]]]]]"));
            got.push(id.clone());
        }
    }
    assert_eq!(say(&mut first, &format!("XACK events/b g {}", got.join(" "))), ":100", "each once");
    // Who waits at the other gateway learns that the group is gone.
    send(&mut first, "XREADGROUP GROUP g anna BLOCK 0 STREAMS events/b >");
    until_blocked(&mut Client::to(addresses[0]), 1);
    assert_eq!(say(&mut second, "XGROUP DESTROY events/b g"), ":1");
    assert!(reply(&mut first).starts_with("-NOGROUP "));
}

#[test]
fn native_workers_and_consumers_have_groups_of_their_own() {
    let folder = Folder::new();
    let site = folder.site();
    let mut client = site.client();
    let publisher = Publisher::connect(&site.broker.addr()).expect("the broker listens");
    publisher.topic("events/c").expect("a topic").publish(b"one").expect("room");
    let join =
        |group: &str| Subscriber::builder().group(group).credit(1).join(&site.broker.addr(), "events/c");
    let mut worker = join("native").expect("a worker");
    let refused = say(&mut client, "XGROUP CREATE events/c native $ MKSTREAM");
    assert!(refused.contains("belongs to native workers (rbmq sub --group)"), "{refused}");
    let refused = say(&mut client, "XREADGROUP GROUP native c STREAMS events/c >");
    assert!(refused.contains("belongs to native workers (rbmq sub --group)"), "{refused}");
    assert_eq!(say(&mut client, "XGROUP CREATE events/c redis $ MKSTREAM"), "+OK");
    let error = join("redis").expect_err("the group is of consumers").to_string();
    assert!(error.contains("belongs to consumers of Redis (XGROUP)"), "{error}");
    // Those who look after groups see both, and delete both.
    let mut groups = Subscriber::builder().groups(&site.broker.addr()).expect("a connection");
    let names = |groups: &mut rbmq::Groups| {
        let all = groups.list().expect("the groups");
        all.iter().map(|group| group.group.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut groups), ["native", "redis"]);
    groups.delete("events/c", "redis").expect("it is there");
    assert_eq!(names(&mut groups), ["native"]);
    assert!(say(&mut client, "XREADGROUP GROUP redis c STREAMS events/c >").starts_with("-NOGROUP "));
    drop(worker.recv(Some(Duration::ZERO)));
}

/// A server of Redis without a disk.
struct Redis(Child, SocketAddr);

impl Redis {
    fn start() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, testkit::own_port()));
        let port = address.port().to_string();
        let arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let mut program = Command::new("redis-server");
        let child = program.args(arguments).stdout(Stdio::null()).spawn().expect("it runs");
        let (redis, deadline) = (Self(child, address), Instant::now() + LONG);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "Redis listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client whose entries have numbers: `#3` is the third one, in commands and in replies.
struct Numbered {
    client: Client,
    ids: Vec<String>,
}

impl Numbered {
    fn to(address: SocketAddr) -> Self {
        Self { client: Client::to(address), ids: Vec::new() }
    }

    /// Sends a command and returns its reply, in which idle times are `~`.
    fn say(&mut self, line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(|word| self.named(word)).collect();
        self.client.send(command(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        let mut reply = reply(&mut self.client);
        if line.starts_with("XADD ") {
            self.ids.push(reply.clone());
        }
        let numbers: HashMap<&str, usize> =
            self.ids.iter().enumerate().map(|(at, id)| (id.as_str(), at + 1)).collect();
        let mut shown = Vec::new();
        for word in reply.split(' ') {
            let bare = word.trim_matches(['[', ']']);
            let word = match numbers.get(bare) {
                Some(number) => word.replace(bare, &format!("#{number}")),
                None => word.to_owned(),
            };
            shown.push(word);
        }
        let is_row = line.starts_with("XPENDING ") && line.split(' ').count() > 3;
        if is_row {
            // Rows of four: the third value is an age.
            shown.iter_mut().skip(2).step_by(4).for_each(|age| *age = "~".to_owned());
        }
        reply = shown.join(" ");
        reply
    }

    fn named(&self, word: &str) -> String {
        let (before, number) = word.split_once('#').unwrap_or((word, ""));
        number.parse::<usize>().map_or(word.to_owned(), |at| format!("{before}{}", self.ids[at - 1]))
    }
}

/// Both say the same to all of this.
const COMMANDS: &str = "\
XGROUP CREATE events/r g $
XGROUP DESTROY events/r g
XGROUP SETID events/r g 0
XGROUP CREATECONSUMER events/r g c
XGROUP DELCONSUMER events/r g c
XINFO GROUPS events/r
XREADGROUP GROUP g c STREAMS events/r >
XPENDING events/r g
XACK events/r g 1-1
XGROUP CREATE events/r g $ MKSTREAM
XGROUP CREATE events/r g $ MKSTREAM
XPENDING events/r g
XREADGROUP GROUP g c STREAMS events/r >
XREADGROUP GROUP g c STREAMS events/r 0
XADD events/r * a 1
XADD events/r * a 2
XADD events/r * a 3
XADD events/r * a 4
XADD events/r * a 5
XADD events/r * a 6
XREADGROUP GROUP g anna COUNT 2 STREAMS events/r >
XREADGROUP GROUP g ben COUNT 2 STREAMS events/r >
XPENDING events/r g
XPENDING events/r g - + 10
XPENDING events/r g - + 10 ben
XPENDING events/r g - + 10 nobody
XPENDING events/r g - + 1
XPENDING events/r g (#1 #3 10
XPENDING events/r g (#1 (#3 10
XPENDING events/r g + - 10
XPENDING events/r g - + 0
XPENDING events/r g - + -1
XPENDING events/r g IDLE 100000 - + 10
XPENDING events/r g IDLE 0 - + 10 ben
XPENDING events/r g IDLE 0 - +
XPENDING events/r g - +
XPENDING events/r g - + x
XPENDING events/r g x + 1
XPENDING events/r no - + 1
XPENDING events/r no
XPENDING nothing g
XREADGROUP GROUP g anna STREAMS events/r 0
XREADGROUP GROUP g anna COUNT 1 STREAMS events/r 0
XREADGROUP GROUP g anna STREAMS events/r #1
XREADGROUP GROUP g anna STREAMS events/r #2
XPENDING events/r g - + 10
XREADGROUP GROUP g anna NOACK COUNT 1 STREAMS events/r >
XPENDING events/r g
XACK events/r g #1 #1 #6 0
XACK events/r g x
XACK events/r no #1
XCLAIM events/r g carl 0 #2 #3 #6
XPENDING events/r g - + 10
XCLAIM events/r g carl 0 #2 JUSTID
XPENDING events/r g - + 10
XCLAIM events/r g carl 0 #2 RETRYCOUNT 7 IDLE 100
XPENDING events/r g - + 10
XCLAIM events/r g dora 1000000 #2
XCLAIM events/r g dora 0 #1 FORCE
XPENDING events/r g - + 10
XCLAIM events/r g dora 0 #6 FORCE JUSTID
XPENDING events/r g - + 10
XCLAIM events/r g dora 0 #3 TIME 1 RETRYCOUNT 0
XPENDING events/r g - + 10
XCLAIM events/r g dora 0 #3 #3
XCLAIM events/r g dora x #3
XCLAIM events/r g dora 0 x
XCLAIM events/r g dora 0 #3 IDLE
XCLAIM events/r g dora 0 #3 IDLE x
XCLAIM events/r g dora 0 #3 WHAT
XCLAIM events/r no dora 0 #3
XAUTOCLAIM events/r g emil 0 0 COUNT 2
XPENDING events/r g - + 10
XAUTOCLAIM events/r g emil 0 (#2 COUNT 1 JUSTID
XAUTOCLAIM events/r g emil 1000000 -
XAUTOCLAIM events/r g emil 0 #6
XAUTOCLAIM events/r g emil 0 + COUNT 10
XAUTOCLAIM events/r g emil 0 0 COUNT 0
XAUTOCLAIM events/r g emil 0 0 COUNT x
XAUTOCLAIM events/r g emil x 0
XAUTOCLAIM events/r g emil 0 x
XAUTOCLAIM events/r no emil 0 0
XGROUP CREATECONSUMER events/r g emil
XGROUP CREATECONSUMER events/r g frida
XGROUP DELCONSUMER events/r g emil
XGROUP DELCONSUMER events/r g emil
XGROUP DELCONSUMER events/r no emil
XPENDING events/r g
XGROUP SETID events/r g #4
XREADGROUP GROUP g anna COUNT 1 STREAMS events/r >
XREADGROUP GROUP g anna COUNT 1 BLOCK 1 STREAMS events/r >
XREADGROUP GROUP g anna BLOCK 1 STREAMS events/r >
XREADGROUP GROUP g anna BLOCK 1 STREAMS events/r 0
XGROUP SETID events/r no 0
XGROUP SETID events/r g x
XGROUP SETID events/r g 0
XREADGROUP GROUP g anna STREAMS events/r >
XGROUP CREATE events/r two 0
XGROUP CREATE events/r three $
XGROUP CREATE events/r four 0 ENTRIESREAD 0
XINFO GROUPS events/r
XREADGROUP GROUP two anna COUNT 2 STREAMS events/r >
XINFO GROUPS events/r
XGROUP CREATE events/s two $ MKSTREAM
XADD events/s * a 7
XADD events/s * a 8
XREADGROUP GROUP two anna STREAMS events/r events/s > >
XREADGROUP GROUP two anna COUNT 1 STREAMS events/r events/s > 0
XREADGROUP GROUP two anna STREAMS events/r events/s > >
XREADGROUP GROUP three anna STREAMS events/r events/s > >
XREADGROUP GROUP two anna STREAMS events/r nothing > >
XREADGROUP GROUP two anna STREAMS events/r x
XREADGROUP GROUP two anna STREAMS events/r $
XREADGROUP COUNT 1 BLOCK 1 STREAMS events/r >
XREADGROUP GROUP two STREAMS events/r
XREADGROUP GROUP two anna COUNT x STREAMS events/r >
XREADGROUP GROUP two anna BLOCK -1 STREAMS events/r >
XREADGROUP GROUP two STREAMS STREAMS events/r 0
XREAD GROUP two anna STREAMS events/r 0
XREAD NOACK STREAMS events/r 0
XREAD STREAMS events/r >
XGROUP DESTROY events/r two
XGROUP DESTROY events/r two
XGROUP CREATE events/r
XGROUP DESTROY events/r
XINFO CONSUMERS events/r no
XINFO GROUPS nothing
MULTI
XREADGROUP GROUP four anna COUNT 1 BLOCK 0 STREAMS events/r >
XACK events/r four #1
EXEC";

#[test]
fn redis_says_the_same() {
    if !has("redis-server") {
        return skip("consumer groups beside redis-server (apt-get install redis-server)");
    }
    let (folder, redis) = (Folder::new(), Redis::start());
    // Redis has every key as a stream.
    let site = folder.site_with(|config| {
        let rule = |pattern: &str| {
            let mut rule = Rule::new(pattern.parse().expect("a pattern"));
            rule.keep = true;
            rule
        };
        config.broker.topics = vec![rule("events/#"), rule("nothing")].into();
    });
    let (mut here, mut there) = (Numbered::to(site.address()), Numbered::to(redis.1));
    let mut differences = Vec::new();
    for line in COMMANDS.lines() {
        let (ours, theirs) = (here.say(line), there.say(line));
        if ours != theirs {
            differences.push(format!("{line}\n  here:  {ours}\n  Redis: {theirs}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
