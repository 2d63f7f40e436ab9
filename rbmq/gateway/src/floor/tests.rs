//! The floor with a small protocol: lines `sub FILTER`, `wait FILTER`, which nothing overtakes, `pub TOPIC TEXT`, `echo TEXT`, `many LETTER`, `nap X`,
//! which waits for the end of the round, `hold X`, after which nothing is sent for a moment, `fill TOPICS`, which publishes more than their logs have room for
//! and has the gateway stop, `end`. A message is framed as `TOPIC TEXT`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rbmq::{Publisher, SlowPolicy, Subscriber};
use rbmq_broker::{Broker, BrokerConfig, Rule};
use rbmq_wire::{Levels, TopicFilter, TopicName};
use rocketbufs::Meter;
use testkit::{Proxy, until};

use super::bus::BusCounts;
use super::connections::{ConnectionCounts, Slow};
use super::hall::{Change, Hall};
use super::openings::Side;
use super::start::{Options, Running, prepare};
use super::wake::Bell;
use crate::protocol::{ConnId, Cx, Door, Entry, FilterCount, Message, Protocol, PublishError, Taken};

const LONG: Duration = Duration::from_secs(30);

/// The letters of an answer to `many`.
const MANY: usize = 100_000;

/// The messages of `fill`, of 8 kB: more than fits into the log (4 MiB) and the ring of a gateway (2 MiB) that reads nothing, and less than that and what
/// waits for room.
const FILLS: usize = 788;

#[derive(Default)]
struct Lines {
    subscribers: Levels<Vec<ConnId>>,
    waiting: Vec<(TopicFilter, ConnId)>,
    /// Filters that connections are blocked for, and whether they are in force.
    blocked: Vec<(TopicFilter, ConnId, bool)>,
    /// Connections that are blocked until the end of the round, and those that were.
    napping: Vec<ConnId>,
    rested: Vec<ConnId>,
    hold: Option<Hold>,
    /// How the gateway is told to stop.
    bell: Arc<OnceLock<Bell>>,
    /// What sessions would have subscribed to before.
    begins_with: Option<TopicFilter>,
}

/// Nothing is sent and no command executed for some time.
struct Hold {
    by: ConnId,
    until: Instant,
    /// How often it was asked whether it is over.
    rounds: usize,
    blocked: Vec<ConnId>,
}

impl Hold {
    /// For a moment from now on.
    fn by(conn: ConnId) -> Self {
        Self { by: conn, until: Instant::now() + Duration::from_millis(300), rounds: 0, blocked: Vec::new() }
    }
}

impl Lines {
    /// Whether a connection has to wait until the end of the round, as it did not before.
    fn is_tired(&mut self, conn: ConnId) -> bool {
        let rested = self.rested.iter().position(|rested| *rested == conn);
        match rested {
            Some(at) => _ = self.rested.swap_remove(at),
            None => self.napping.push(conn),
        }
        rested.is_none()
    }

    /// Publishes what the logs of topics have room for, and what is on the way there, and has the gateway stop.
    fn fill(&self, conn: ConnId, topics: &str, cx: &mut Cx<'_>) {
        let (text, began) = ("x".repeat(8000), Instant::now());
        for topic in topics.split(' ').map(|topic| topic.parse().expect("a name")) {
            for number in 0..FILLS {
                let message = format!("{number} {text}");
                // The log may be about to take what came before.
                while let Err(error) = cx.bus.publish(&topic, &[], message.as_bytes()) {
                    assert_eq!(error, PublishError::Full);
                    assert!(began.elapsed() < LONG, "there is room for {number} messages");
                    std::thread::yield_now();
                }
            }
        }
        cx.out.send(conn, b"filled\n");
        self.bell.get().expect("there is one").stop();
    }

    /// Whether a filter is in force that nothing of the connection overtakes.
    fn has_waited(&mut self, conn: ConnId, filter: TopicFilter, cx: &mut Cx<'_>) -> bool {
        let at = self.blocked.iter().position(|(_, blocked, _)| *blocked == conn).unwrap_or_else(|| {
            let is_in_force = cx.bus.subscribe(&filter);
            self.blocked.push((filter, conn, is_in_force));
            self.blocked.len() - 1
        });
        let is_in_force = self.blocked[at].2;
        if is_in_force {
            self.blocked.remove(at);
        }
        is_in_force
    }
}

impl Protocol for Lines {
    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.begins_with.iter().for_each(|filter| _ = cx.bus.subscribe(filter));
    }

    fn on_open(&mut self, conn: ConnId, _: &str, cx: &mut Cx<'_>) {
        cx.out.known(conn);
    }

    fn before_sending(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        if let Some(hold) = self.hold.as_mut().filter(|hold| Instant::now() < hold.until) {
            hold.rounds += 1;
            return Some(hold.until);
        }
        let Hold { by, rounds, blocked, .. } = self.hold.take()?;
        blocked.iter().for_each(|conn| cx.out.resume(*conn));
        cx.out.send(by, format!("{rounds}\n").as_bytes());
        None
    }

    fn on_bytes(&mut self, conn: ConnId, bytes: &[u8], cx: &mut Cx<'_>) -> Taken {
        let mut used = 0;
        if let Some(hold) = &mut self.hold {
            hold.blocked.push(conn);
            return Taken::Blocked(used);
        }
        while let Some(len) = bytes[used..].iter().position(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(&bytes[used..used + len]).expect("tests send text");
            match line.split_once(' ') {
                Some(("sub", filter)) => {
                    let filter: TopicFilter = filter.parse().expect("tests subscribe to filters");
                    self.subscribers.entry(filter.as_str()).push(conn);
                    match cx.bus.subscribe(&filter) {
                        true => cx.out.send(conn, b"ok\n"),
                        false => self.waiting.push((filter, conn)),
                    }
                }
                Some(("wait", filter)) => {
                    let filter: TopicFilter = filter.parse().expect("tests subscribe to filters");
                    match self.has_waited(conn, filter, cx) {
                        true => cx.out.send(conn, b"waited\n"),
                        false => return Taken::Blocked(used),
                    }
                }
                Some(("nap", _)) if self.is_tired(conn) => return Taken::Blocked(used),
                Some(("nap", _)) => {}
                Some(("hold", _)) => self.hold = Some(Hold::by(conn)),
                Some(("many", letter)) => {
                    cx.out.send(conn, letter.repeat(MANY).as_bytes());
                    cx.out.send(conn, b"\n");
                    return Taken::Later(used + len + 1);
                }
                Some(("pub", rest)) => {
                    let (topic, text) = rest.split_once(' ').expect("tests publish texts");
                    match cx.bus.publish(&topic.parse().expect("a name"), &[], text.as_bytes()) {
                        Ok(()) => cx.out.send(conn, b"published\n"),
                        Err(PublishError::Full) => return Taken::Blocked(used),
                        Err(error) => cx.out.send(conn, format!("{error:?}\n").as_bytes()),
                    }
                }
                Some(("fill", topics)) => self.fill(conn, topics, cx),
                Some(("echo", text)) => cx.out.send(conn, format!("{text}\n").as_bytes()),
                _ => cx.out.close(conn, "it asked for its end"),
            }
            used += len + 1;
        }
        Taken::Bytes(used)
    }

    fn on_closed(&mut self, conn: ConnId, _: &mut Cx<'_>) {
        self.waiting.retain(|(_, waiting)| *waiting != conn);
        for filter in ["#", "t/#", "t"] {
            if let Some(conns) = self.subscribers.get_mut(filter) {
                conns.retain(|other| *other != conn);
            }
        }
    }

    fn on_message(&mut self, message: Message<'_>, cx: &mut Cx<'_>) {
        let range = cx.out.frame(&[message.topic.as_str().as_bytes(), b" ", message.payload, b"\n"]);
        self.subscribers.matching(message.topic, &mut |conns| {
            conns.iter().for_each(|conn| {
                cx.out.push(*conn, range);
            });
            false
        });
    }

    fn on_subscribed(&mut self, filter: &TopicFilter, cx: &mut Cx<'_>) {
        for (blocked, conn, is_in_force) in &mut self.blocked {
            if blocked == filter {
                *is_in_force = true;
                cx.out.resume(*conn);
            }
        }
        self.waiting.retain(|(waiting, conn)| {
            let is_it = waiting == filter;
            if is_it {
                cx.out.send(*conn, b"ok\n");
            }
            !is_it
        });
    }

    fn on_not_subscribed(&mut self, _: &TopicFilter, _: bool, _: &mut Cx<'_>) {}
    fn on_login(&mut self, _: ConnId, _: bool, _: &mut Cx<'_>) {}
    fn on_lost(&mut self, _: &TopicName, _: u64, _: &mut Cx<'_>) {}
    fn on_drained(&mut self, _: ConnId, _: &mut Cx<'_>) {}

    fn on_time(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        self.napping.iter().for_each(|conn| cx.out.resume(*conn));
        self.rested.append(&mut self.napping);
        None
    }

    fn on_stop(&mut self, _: &mut Cx<'_>) {}
}

/// Everybody may do everything.
struct Open;

impl Door for Open {
    fn lets_in_anonymous(&self) -> bool {
        true
    }

    fn log_in(&mut self, _: ConnId, _: Option<&str>, _: &str) -> Entry {
        Entry::In
    }

    fn log_out(&mut self, _: ConnId) {}

    fn user(&self, _: ConnId) -> Option<&str> {
        None
    }

    fn may_publish(&mut self, _: ConnId, _: &TopicName) -> bool {
        true
    }

    fn may_user_publish(&mut self, _user: &str, _topic: &TopicName) -> bool {
        true
    }

    fn may_user_receive(&mut self, _: &str, _: &TopicName) -> bool {
        true
    }

    fn may_subscribe(&mut self, _: ConnId, _: &TopicName) -> bool {
        true
    }

    fn may_receive(&mut self, _: ConnId, _: &TopicName) -> bool {
        true
    }

    fn may_subscribe_to_some(&mut self, _: ConnId, _: &TopicFilter) -> bool {
        true
    }

    fn ask_for_filters(&mut self, _: ConnId, _: FilterCount) -> Result<(), String> {
        Ok(())
    }

    fn charge_group(&mut self, _conn: ConnId) -> Result<Option<rbmq_broker::GroupCharge>, String> {
        Ok(None)
    }

    fn set_filters(&mut self, _: ConnId, _: FilterCount) {}
}

impl Hall for Open {
    fn arrive(&mut self, _: ConnId, _: &str, _: Option<&[u8]>) -> Result<bool, String> {
        Ok(true)
    }

    fn leave(&mut self, _: ConnId) {}

    fn next_change(&mut self, _: Instant) -> Option<Change> {
        None
    }

    fn next_due(&self) -> Option<Instant> {
        None
    }

    fn take_meters(&mut self) -> Vec<(ConnId, Option<Meter>)> {
        Vec::new()
    }

    fn count(&mut self, _: &ConnectionCounts, _: &BusCounts) {}
}

/// Of a gateway at a broker without spaces.
fn options(frames_bytes: usize, slow: Slow, max_lag_bytes: u64) -> Options {
    Options {
        spaces: Vec::new(),
        foreign: Vec::new(),
        name: "lines".into(),
        listener: TcpListener::bind("127.0.0.1:0").expect("an address"),
        handshake: None,
        web: None,
        max_connections: 100,
        max_message_bytes: 16 << 10,
        max_lag_bytes,
        frames_bytes,
        slow,
        stranger_timeout: LONG,
    }
}

struct Site {
    gateway: Running,
    broker: Broker,
}

fn site(slow: Slow, frames_bytes: usize, max_lag_bytes: u64) -> Site {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    let mut all = Rule::new(TopicFilter::all());
    all.space = true;
    // Topics of both kinds, in several spaces.
    let mut rules =
        ["u/#", "v/#", "w/#", "x/#"].map(|text| Rule::new(text.parse().expect("a filter"))).to_vec();
    rules[1..].iter_mut().for_each(|rule| rule.space = true);
    rules.push(all);
    let spaces = rules[1..].iter().map(|rule| rule.pattern.clone()).collect();
    config.broker.topics = rules.into();
    let broker = Broker::start(config).expect("a broker starts");
    let address = broker.addr();
    let publisher = Publisher::connect(&address).expect("the broker listens");
    let subscriber = Subscriber::connect(&address).expect("the broker listens");
    let options = Options { spaces, ..options(frames_bytes, slow, max_lag_bytes) };
    let kept = broker.gate().expect("a gate").kept_topics(|| {});
    let gate = broker.gate().expect("a gate");
    let (lines, told) = (Lines::default(), Arc::<OnceLock<Bell>>::default());
    let lines = Lines { bell: told.clone(), ..lines };
    let door = |bell: &Bell| {
        told.get_or_init(|| bell.clone());
        (Open, Side::Inside { kept, gate, bell: bell.clone() })
    };
    let mut gateway = prepare(options, lines, door, publisher, subscriber).expect("it is prepared");
    gateway.start().expect("a thread");
    Site { gateway, broker }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(gateway: &Running) -> Self {
        let stream = TcpStream::connect(gateway.address()).expect("the gateway listens");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        Self(BufReader::new(stream))
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the gateway reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the gateway sends");
        line
    }

    fn ask(&mut self, text: &str, answer: &str) {
        self.say(text);
        assert_eq!(self.line(), answer);
    }
}

#[test]
fn what_one_publishes_all_subscribers_get_in_one_order() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut subscribers: Vec<Client> = (0..3).map(|_| Client::of(&site.gateway)).collect();
    subscribers.iter_mut().for_each(|one| one.ask("sub t/#\n", "ok\n"));
    let mut publisher = Client::of(&site.gateway);
    let lines: String = (0..1000).map(|n| format!("pub t/{} {n}\n", n % 7)).collect();
    publisher.say(&lines);
    for _ in 0..1000 {
        assert_eq!(publisher.line(), "published\n");
    }
    let mut orders = subscribers.iter_mut().map(|one| (0..1000).map(|_| one.line()).collect::<Vec<_>>());
    let first = orders.next().expect("three");
    for topic in 0..7 {
        let prefix = format!("t/{topic} ");
        let mine: Vec<&String> = first.iter().filter(|line| line.starts_with(&prefix)).collect();
        let expected: Vec<String> = (topic..1000).step_by(7).map(|n| format!("{prefix}{n}\n")).collect();
        assert_eq!(mine, expected.iter().collect::<Vec<_>>());
    }
    assert!(orders.all(|order| order == first));
}

/// A subscriber that all wait for reads nothing for longer than clients may take to read their last words.
#[test]
fn a_gateway_that_stops_publishes_what_it_has_taken() {
    let Site { gateway, broker } = site(Slow::Disconnect, 0, 1 << 20);
    let subscriber = Subscriber::builder().slow(SlowPolicy::Block).connect(&broker.addr());
    let mut subscriber = subscriber.expect("the broker listens");
    subscriber.subscribe("t").expect("a filter");
    while !subscriber.is_settled() {
        subscriber.next_event(Some(Duration::from_millis(1))).expect("the broker listens");
    }
    let mut client = Client::of(&gateway);
    client.0.get_ref().set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
    let text = "x".repeat(8000);
    let mut taken = 0;
    loop {
        client.say(&format!("pub t {taken} {text}\n"));
        let mut line = String::new();
        match client.0.read_line(&mut line) {
            Ok(_) => taken += 1,
            // The log is full.
            Err(_) => break,
        }
    }
    let stopping = std::thread::spawn(move || drop(gateway));
    std::thread::sleep(Duration::from_millis(1500));
    for number in 0..taken {
        let message = subscriber.recv(Some(LONG)).expect("nothing is lost").expect("a message");
        assert!(message.bytes.starts_with(format!("{number} x").as_bytes()), "{number}");
    }
    stopping.join().expect("the gateway stops");
}

/// Its own places keep the logs full, since it has more to read than it reads before it stops.
#[test]
fn a_gateway_that_stops_a_ring_behind_publishes_what_it_has_taken() {
    let Site { gateway, broker } = site(Slow::Disconnect, 0, 1 << 20);
    let subscriber = Subscriber::builder().slow(SlowPolicy::Block).connect(&broker.addr());
    let mut subscriber = subscriber.expect("the broker listens");
    let topics = ["t", "v/t", "w/t", "x/t"];
    topics.iter().for_each(|topic| subscriber.subscribe(topic).expect("a filter"));
    while !subscriber.is_settled() {
        subscriber.next_event(Some(Duration::from_millis(1))).expect("the broker listens");
    }
    let mut client = Client::of(&gateway);
    client.say("fill t v/t w/t x/t\n");
    let mut next = [0; 4];
    while next != [FILLS; 4] {
        let message = subscriber.recv(Some(LONG)).expect("nothing is lost").expect("a message");
        let at = topics.iter().position(|topic| *topic == message.topic.as_str()).expect("one of them");
        let next = &mut next[at];
        assert!(message.bytes.starts_with(format!("{next} x").as_bytes()), "{next}");
        *next += 1;
    }
    assert_eq!(client.line(), "filled\n");
}

/// The broker takes the subscription of a session late.
#[test]
fn a_gateway_serves_when_the_subscriptions_of_its_sessions_are_in_force() {
    let broker = || {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        Broker::start(config).expect("a broker starts")
    };
    let (broker, late) = (broker(), broker());
    let publisher = Publisher::connect(&broker.addr()).expect("the broker listens");
    let proxy = Proxy::to(&late.addr());
    let subscriber = Subscriber::connect(&proxy.addr).expect("the broker listens");
    proxy.stall_after(0);
    let gate = broker.gate().expect("a gate");
    let kept = gate.kept_topics(|| {});
    let door = |bell: &Bell| (Open, Side::Inside { kept, gate, bell: bell.clone() });
    let lines = Lines { begins_with: Some("t".parse().expect("a filter")), ..Lines::default() };
    let options = options(0, Slow::Disconnect, 1 << 20);
    let mut gateway = prepare(options, lines, door, publisher, subscriber).expect("it is prepared");
    gateway.start().expect("a thread");
    until("the subscription waits", || proxy.is_stalled());
    assert!(!gateway.is_serving());
    proxy.go_on();
    until("the gateway serves", || gateway.is_serving());
    let mut client = Client::of(&gateway);
    client.ask("echo x\n", "x\n");
}

#[test]
fn natives_and_clients_of_a_gateway_meet() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut client = Client::of(&site.gateway);
    client.ask("sub t\n", "ok\n");
    let publisher = Publisher::connect(&site.broker.addr()).expect("the broker listens");
    publisher.topic("t").expect("a topic").publish(b"from a native").expect("room");
    assert_eq!(client.line(), "t from a native\n");
    let mut native = Subscriber::connect(&site.broker.addr()).expect("the broker listens");
    native.subscribe("u").expect("a topic");
    while !native.is_settled() {
        native.next_event(Some(Duration::from_millis(1))).expect("the broker listens");
    }
    client.ask("pub u to a native\n", "published\n");
    let message = native.recv(Some(LONG)).expect("a message").expect("in time");
    assert_eq!(message.bytes, b"to a native");
}

/// A client that reads nothing loses messages or is disconnected, and the others get everything.
#[test]
fn a_slow_client_is_alone_with_it() {
    for slow in [Slow::Drop, Slow::Disconnect] {
        let site = site(slow, 0, 256 << 10);
        let (mut idle, mut busy, mut publisher) =
            (Client::of(&site.gateway), Client::of(&site.gateway), Client::of(&site.gateway));
        idle.ask("sub t\n", "ok\n");
        busy.ask("sub t\n", "ok\n");
        let text = "x".repeat(10_000);
        for n in 0..3000 {
            publisher.ask(&format!("pub t {n} {text}\n"), "published\n");
            assert_eq!(busy.line(), format!("t {n} {text}\n"));
        }
        let mut got = 0;
        let mut next = 0;
        idle.0.get_ref().set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
        if slow == Slow::Drop {
            idle.say("echo the end\n");
        }
        loop {
            let mut line = String::new();
            match idle.0.read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) if line == "the end\n" => break,
                Ok(_) => {}
            }
            let number = line.split(' ').nth(1).and_then(|number| number.parse::<usize>().ok());
            // The last line of a connection that was cut may be a part.
            let Some(number) = number.filter(|_| line.ends_with("x\n")) else { break };
            assert!(number >= next && line.len() == format!("t {number} {text}\n").len());
            (got, next) = (got + 1, number + 1);
        }
        assert!(got > 0 && got < 3000, "{slow:?}: {got}");
        busy.ask("echo still here\n", "still here\n");
    }
}

/// Replies that nobody reads stop the reading of commands, and nothing is lost.
#[test]
fn a_client_that_reads_no_replies_is_not_read() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut client = Client::of(&site.gateway);
    let mut other = Client::of(&site.gateway);
    let stream = client.0.get_ref().try_clone().expect("a descriptor");
    let text = "y".repeat(1000);
    let writer = std::thread::spawn({
        let text = text.clone();
        move || {
            let mut stream = stream;
            for n in 0..30_000 {
                stream.write_all(format!("echo {n} {text}\n").as_bytes()).expect("the gateway reads at last");
            }
        }
    });
    other.ask("echo hello\n", "hello\n");
    for n in 0..30_000 {
        assert_eq!(client.line(), format!("{n} {text}\n"));
    }
    writer.join().expect("it wrote everything");
}

#[test]
fn a_gateway_stops_with_its_clients() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut client = Client::of(&site.gateway);
    client.ask("echo hello\n", "hello\n");
    drop(site);
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).expect("an orderly end");
    assert!(rest.is_empty());
}

#[test]
fn the_last_words_are_answered_before_the_end() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut client = Client::of(&site.gateway);
    client.say("echo one\npub t two\nend\necho three\n");
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).expect("an orderly end");
    assert_eq!(rest, "one\npublished\n");
}

/// A connection that waits for its subscription goes on without an event of its own.
#[test]
fn a_blocked_connection_goes_on_when_its_filter_is_in_force() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut client = Client::of(&site.gateway);
    client.say("wait t\npub t hello\n");
    assert_eq!((client.line(), client.line()), ("waited\n".into(), "published\n".into()));
}

/// Commands whose replies are large are executed as the client reads, and each of them is.
#[test]
fn large_replies_come_one_after_the_other() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut client = Client::of(&site.gateway);
    let letters = ["a", "b", "c"].repeat(50);
    client.say(&letters.iter().map(|letter| format!("many {letter}\n")).collect::<String>());
    for letter in letters {
        assert_eq!(client.line(), format!("{}\n", letter.repeat(MANY)));
    }
}

/// A client that is cut off while it sends gets the last words: its connection is not reset.
#[test]
fn the_last_words_reach_a_client_that_is_still_sending() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    for _ in 0..20 {
        let mut client = Client::of(&site.gateway);
        client.ask("echo hello\n", "hello\n");
        client.say(&format!("echo the last words\nend\n{}", "echo nobody reads this\n".repeat(10_000)));
        let mut rest = String::new();
        client.0.read_to_string(&mut rest).expect("an orderly end");
        assert_eq!(rest, "the last words\n");
    }
}

/// A client that leaves has its commands executed, also those that have to wait then.
#[test]
fn what_a_client_sends_before_it_leaves_is_executed() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut subscriber = Client::of(&site.gateway);
    subscriber.ask("sub t\n", "ok\n");
    for n in 0..100 {
        let mut client = Client::of(&site.gateway);
        client.say(&format!("nap a\nnap b\nnap c\npub t {n}\n"));
        client.0.get_ref().shutdown(std::net::Shutdown::Write).expect("a socket");
        assert_eq!(subscriber.line(), format!("t {n}\n"));
        let mut answer = String::new();
        client.0.read_to_string(&mut answer).expect("an orderly end");
        assert_eq!(answer, "published\n");
    }
}

/// What clients send while nothing is executed or sent wakes the gateway once, and not again and again.
#[test]
fn a_gateway_that_holds_its_replies_sleeps() {
    let site = site(Slow::Disconnect, 0, 1 << 20);
    let mut others = [(); 3].map(|()| Client::of(&site.gateway));
    others.iter_mut().for_each(|client| client.ask("sub t\n", "ok\n"));
    let mut holder = Client::of(&site.gateway);
    holder.ask("echo x\n", "x\n");
    holder.say("hold x\n");
    for _ in 0..5 {
        others.iter_mut().for_each(|client| client.say("echo y\n"));
        std::thread::sleep(Duration::from_millis(10));
    }
    let rounds: usize = holder.line().trim().parse().expect("a number");
    assert!(rounds < 100, "{rounds}");
    for client in &mut others {
        (0..5).for_each(|_| assert_eq!(client.line(), "y\n"));
    }
}
