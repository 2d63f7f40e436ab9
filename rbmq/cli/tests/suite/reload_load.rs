//! A reload while messages flow: another certificate, other users and other rules. A user that keeps the rights loses
//! nothing; a user that lost them is told and cut off.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use access::{TokenHash, UsersFile, new_token};
use rbmq::wire::Secret;
use rbmq::{Event, Notice, PublishError, Publisher, Subscriber, TopicWriter};
use rocketbufs::Config;
use testkit::{LONG, until};

use crate::common::operator::Operated;
use crate::common::secure::{chain, config, connect};
use crate::common::setup::{Setup, run};

/// Reloads with other certificates before the one with other users and rules.
const ROUNDS: usize = 3;

/// Messages of each topic between two reloads, at least.
const MESSAGES: u64 = 2_000;

/// How long a publisher waits for room before it looks whether it should stop.
const WAIT: Duration = Duration::from_millis(500);

const USERS: [&str; 3] = ["alice", "bob", "carol"];

const BEFORE: &str = "
[[access.rules]]
users = ['alice']
publish = ['a/#']
subscribe = ['#']

[[access.rules]]
users = ['bob', 'carol']
publish = ['%u']
subscribe = ['#']
";

/// Carol may neither publish, nor read more than a/#.
const AFTER: &str = "
[[access.rules]]
users = ['alice']
publish = ['a/#']
subscribe = ['#']

[[access.rules]]
users = ['carol']
subscribe = ['a/#']
";

/// A broker with TLS, users and rules.
struct World {
    setup: Setup,
    users: PathBuf,
    tokens: BTreeMap<&'static str, Secret>,
    broker: Operated,
}

impl World {
    fn new() -> Self {
        let setup = Setup::new();
        let users = setup.file("users.toml");
        let names: String = USERS.map(|user| format!("[[user]]\nname = '{user}'\n\n")).concat();
        std::fs::write(&users, names).expect("a file");
        std::fs::set_permissions(&users, PermissionsExt::from_mode(0o600)).expect("an own file");
        let mut file = UsersFile::edit(&users).expect("a file");
        let mut tokens = BTreeMap::new();
        for user in USERS {
            let token = new_token().expect("random bytes");
            file.add_token(user, user, &TokenHash::of(&token), SystemTime::now(), None).expect("a token");
            tokens.insert(user, token);
        }
        file.save().expect("a file");
        let broker = Operated::start(&write(&setup, BEFORE), &["--users", users.to_str().expect("UTF-8")]);
        Self { setup, users, tokens, broker }
    }

    fn client(&self) -> Config {
        let mut config = Config::default();
        config.tls.mode = "require".into();
        config.tls.ca = Some(self.setup.text("tls/ca.pem"));
        config
    }

    fn publisher(&self, user: &str) -> Publisher {
        let builder = Publisher::builder().config(self.client()).token(self.tokens[user].expose());
        builder.connect(&self.broker.addr).expect("a user")
    }

    fn subscriber(&self, user: &str, filters: &[&str]) -> Subscriber {
        let builder = Subscriber::builder().config(self.client()).token(self.tokens[user].expose());
        let mut subscriber = builder.connect(&self.broker.addr).expect("a user");
        filters.iter().for_each(|filter| subscriber.subscribe(filter).expect("a filter"));
        subscriber
    }

    /// The certificate that a new connection sees.
    fn certificate(&self) -> Vec<u8> {
        let client = config(&self.setup.file("tls/ca.pem"), None, &[b"rocketbufs/1"]);
        let stream = connect(client, &self.broker.addr).expect("a handshake");
        stream.conn.peer_certificates().expect("a certificate")[0].to_vec()
    }

    /// Makes another certificate for the broker.
    fn replace_certificate(&self) {
        for name in ["server.pem", "server-key.pem"] {
            std::fs::remove_file(self.setup.file(&format!("tls/{name}"))).expect("a file");
        }
        run(&["keygen", "server", &self.setup.text("tls")], b"").expect("another certificate");
    }

    fn reload(&self) {
        let done = |log: &str| log.matches("reloaded ").count();
        let before = done(&self.broker.log());
        self.broker.signal("HUP");
        until("the reload", || done(&self.broker.log()) > before);
    }
}

fn write(setup: &Setup, rules: &str) -> PathBuf {
    setup.config(rules)
}

/// Publishes numbers from 1 on until it is told to stop, or the topic is refused. Returns the last number that was accepted, and why it
/// ended early.
fn pump(mut writer: TopicWriter, stop: &Arc<AtomicBool>) -> JoinHandle<(u64, Option<String>)> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            match writer.publish_timeout(&(number + 1).to_le_bytes(), Some(WAIT)) {
                Ok(_) => number += 1,
                // A subscriber is slow.
                Err(PublishError::TimedOut { last_error: None }) => {}
                Err(error) => return (number, Some(error.to_string())),
            }
        }
        let flushed = writer.flush(Some(LONG)).map_err(|error| error.to_string());
        (number, flushed.err())
    })
}

/// The messages that a subscriber has heard, and is to hear.
#[derive(Default)]
struct Heard {
    messages: AtomicU64,
    /// The last number of each topic that goes on to the end, once that is known.
    wanted: OnceLock<BTreeMap<String, u64>>,
}

/// A refused topic, and the reason.
#[derive(Debug)]
struct Refusal {
    topic: Option<String>,
    reason: String,
}
type Result = (BTreeMap<String, u64>, Vec<Refusal>);

/// Whether it is the refusal of bob's topic.
fn is_of_bob(refusal: &Refusal) -> bool {
    refusal.topic.as_deref() == Some("bob") || refusal.reason.contains("bob")
}

/// Receives up to the last number of each topic, and up to a refusal, if there is to be one. Each topic's numbers must follow each other.
fn listen(
    mut subscriber: Subscriber,
    heard: &Arc<Heard>,
    is_refused: impl Fn(&[Refusal]) -> bool + Send + 'static,
) -> JoinHandle<Result> {
    let heard = heard.clone();
    std::thread::spawn(move || {
        let (mut last, mut refused) = (BTreeMap::<String, u64>::new(), Vec::new());
        let mut until = None;
        loop {
            if let Some(wanted) = heard.wanted.get() {
                if wanted.iter().all(|(topic, number)| last.get(topic) == Some(number))
                    && is_refused(&refused)
                {
                    return (last, refused);
                }
                let until = *until.get_or_insert_with(|| Instant::now() + LONG);
                assert!(Instant::now() < until, "{last:?} of {wanted:?}, {refused:?}");
            }
            let event = subscriber.next_event(Some(Duration::from_millis(200))).expect("a broker");
            match event {
                None => {}
                Some(Event::Batch(batch)) => {
                    let topic = batch.topic().to_string();
                    let known = last.entry(topic.clone()).or_default();
                    for record in batch.records() {
                        let number = u64::from_le_bytes(record.try_into().expect("a number"));
                        assert!(*known == 0 || number == *known + 1, "{topic}: {number} after {known}");
                        *known = number;
                        heard.messages.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Some(Event::Notice(Notice::Refused { topic, reason })) => {
                    refused.push(Refusal { topic: topic.map(|topic| topic.to_string()), reason });
                }
                Some(Event::Notice(Notice::Lost { topic, .. })) => panic!("{topic}: a loss"),
                Some(Event::Notice(Notice::Disconnected(why))) => panic!("cut off: {why}"),
                Some(_) => {}
            }
        }
    })
}

/// Reloads certificates several times, while messages flow. New connections see each of them.
fn reload_certificates(world: &World, flow: &impl Fn(&str)) {
    let mut certificates = vec![world.certificate()];
    for _ in 0..ROUNDS {
        world.replace_certificate();
        world.reload();
        let shown = world.certificate();
        assert_eq!(shown, chain(&world.setup.file("tls/server.pem"))[0].to_vec());
        certificates.push(shown);
        flow("messages after a reload of certificates");
    }
    certificates.dedup();
    assert_eq!(certificates.len(), ROUNDS + 1, "each reload shows another certificate");
}

/// Reloads another certificate, other users and other rules at once.
fn change_rights(world: &World) {
    let mut file = UsersFile::edit(&world.users).expect("a file");
    file.delete_user("bob").expect("a user");
    file.save().expect("a file");
    write(&world.setup, AFTER);
    world.replace_certificate();
    world.reload();
}

/// Publishers that lost their right to a topic were told so.
fn were_told<'a>(pumps: &mut BTreeMap<&'a str, JoinHandle<(u64, Option<String>)>>, topics: &[&'a str]) {
    for topic in topics {
        let (_, why) = pumps.remove(topic).expect("it runs").join().expect("no panic");
        let why = why.unwrap_or_else(|| panic!("{topic} goes on"));
        let told = [format!("may not publish topic '{topic}'"), "not authenticated".into()];
        assert!(told.iter().any(|told| why.contains(told)), "{topic}: {why}");
    }
}

/// Ends the publishers. Returns the last number of each topic.
fn end(pumps: BTreeMap<&str, JoinHandle<(u64, Option<String>)>>) -> BTreeMap<String, u64> {
    let last = |(topic, pump): (&str, JoinHandle<(u64, Option<String>)>)| match pump.join().expect("no panic")
    {
        (last, None) => (topic.to_owned(), last),
        (_, Some(why)) => panic!("{topic}: {why}"),
    };
    pumps.into_iter().map(last).collect()
}

#[test]
fn messages_flow_through_reloads_and_who_lost_a_right_is_told() {
    let world = World::new();
    let heard: [Arc<Heard>; 2] = Default::default();
    let alice = listen(world.subscriber("alice", &["#"]), &heard[0], |_| true);
    let is_told = |refused: &[Refusal]| refused.iter().any(is_of_bob);
    let carol = listen(world.subscriber("carol", &["a/#", "bob"]), &heard[1], is_told);
    let publishers: Vec<(&str, &str, Publisher)> =
        [("alice", "a/0"), ("alice", "a/1"), ("bob", "bob"), ("carol", "carol")]
            .map(|(user, topic)| (user, topic, world.publisher(user)))
            .into();
    let stop = Arc::new(AtomicBool::new(false));
    let mut pumps = BTreeMap::new();
    for (_, topic, publisher) in &publishers {
        let writer = publisher.topic(topic).expect("a topic");
        let readers = if *topic == "carol" { 1 } else { 2 };
        writer.wait_subscribers(readers, Some(LONG)).expect("its subscribers");
        pumps.insert(*topic, pump(writer, &stop));
    }
    let flow = |what: &str| {
        let counts = || heard.each_ref().map(|heard| heard.messages.load(Ordering::Relaxed));
        let before = counts();
        until(what, || counts().iter().zip(before).all(|(now, before)| *now >= before + MESSAGES));
    };
    flow("messages before a reload");
    reload_certificates(&world, &flow);
    change_rights(&world);
    flow("messages after a reload of everything");
    were_told(&mut pumps, &["bob", "carol"]);
    stop.store(true, Ordering::Relaxed);
    let sent = end(pumps);
    heard.iter().for_each(|heard| heard.wanted.set(sent.clone()).expect("once"));
    let (by_alice, refused_alice) = alice.join().expect("nothing is lost");
    let (by_carol, refused_carol) = carol.join().expect("nothing is lost of a/#");
    // The topics of users that may not publish any more end for her too.
    let kept = |refusal: &Refusal| refusal.topic.as_deref().is_some_and(|topic| topic.starts_with("a/"));
    assert!(
        !refused_alice.iter().any(kept) && !refused_carol.iter().any(kept),
        "{refused_alice:?} {refused_carol:?}"
    );
    for (topic, last) in &sent {
        assert_eq!((by_alice[topic], by_carol[topic]), (*last, *last), "{topic}");
    }
    assert!(refused_carol.iter().any(is_of_bob), "{refused_carol:?}");
    until("bob is no user any more", || !publishers[2].2.is_connected());
    assert!(publishers[0].2.is_connected() && publishers[3].2.is_connected());
    let log = world.broker.end();
    assert!(log.contains("the user was removed"), "{log}");
}
