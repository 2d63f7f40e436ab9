//! Members of a cluster: who has a topic, and who is sent to whom.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;
use rbmq::{
    ConfirmError, ConfirmLevel, Publisher, StartFrom, Subscriber, TopicOpenError, TopicOptions, TopicWriter,
};
use rbmq_broker::{
    Broker, BrokerConfig, Cluster, ClusterMember, ClusterStatus, LogClaim, NotTaken, Owner, Parts, Rule,
    TopicName, TopicStats,
};
use rbmq_wire::{Control, Framing, Hello, RefuseCode, Role, push_record};
use rocketbufs::proto::Message;
use rocketbufs::{Bid, Context, Listener, RIn, ROut, Start};
use tempfile::TempDir;
use testkit::{Proxy, Raw, own_addr};

/// The time for events that must come. The machine may be loaded.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// The map as one member sees it: a table that the test changes. A topic that is not in it is here, with the first term.
#[derive(Default)]
pub(super) struct Table {
    owners: Mutex<HashMap<TopicName, Owner>>,
    others: Mutex<Vec<ClusterMember>>,
    /// What the broker says it has on its disk.
    logs: Mutex<Vec<TopicName>>,
    claims: Mutex<Arc<Claims>>,
    changes: AtomicU64,
}

/// What the members may write: one store for all of them. It takes no claim of an earlier term.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<TopicName, LogClaim>>);

impl Table {
    pub(super) fn set(&self, topic: &str, owner: Owner) {
        self.owners.lock().insert(topic.parse().unwrap(), owner);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn share_claims(&self, claims: &Arc<Claims>) {
        *self.claims.lock() = claims.clone();
    }

    pub(super) fn claim(&self, topic: &str) -> Option<LogClaim> {
        self.log_claim(&topic.parse().unwrap()).unwrap()
    }

    pub(super) fn set_others(&self, others: Vec<ClusterMember>) {
        *self.others.lock() = others;
    }
}

impl Cluster for Table {
    fn owner(&self, topic: &TopicName) -> Owner {
        self.owners.lock().get(topic).cloned().unwrap_or(Owner::Here { term: 1 })
    }

    fn has_log(&self, topic: &TopicName) {
        self.logs.lock().push(topic.clone());
    }

    fn members(&self) -> Vec<ClusterMember> {
        self.others.lock().clone()
    }

    fn status(&self) -> ClusterStatus {
        let mut status = ClusterStatus::default();
        status.term_changes = self.changes.load(Ordering::SeqCst);
        status
    }

    fn logs(&self) -> Result<Vec<TopicName>, String> {
        Ok(self.claims.lock().0.lock().keys().cloned().collect())
    }

    fn log_claim(&self, topic: &TopicName) -> Result<Option<LogClaim>, String> {
        Ok(self.claims.lock().0.lock().get(topic).copied())
    }

    fn claim_log(&self, topic: &TopicName, claim: &LogClaim) -> Result<bool, String> {
        let claims = self.claims.lock().clone();
        let mut claims = claims.0.lock();
        let (revision, term) = claims.get(topic).map_or((0, 0), |known| (known.revision, known.term));
        let held = revision == claim.revision && term <= claim.term;
        if held {
            claims.insert(topic.clone(), LogClaim { revision: revision + 1, ..*claim });
        }
        Ok(held)
    }
}

pub(super) fn config(dir: &Path) -> BrokerConfig {
    let mut rules = ["k/#", "s/#"].map(|pattern| Rule::new(pattern.parse().unwrap()));
    rules.iter_mut().for_each(|rule| rule.keep = true);
    rules[1].space = true;
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.broker.keep_dir = dir.to_str().unwrap().into();
    config.broker.drain_timeout_ms = 60_000;
    config.broker.topics = rules.to_vec().into();
    config
}

/// Some brokers that are one cluster.
struct Members {
    brokers: Vec<Broker>,
    tables: Vec<Arc<Table>>,
    _dirs: Vec<TempDir>,
    term: u64,
}

impl Members {
    fn new(count: usize) -> Self {
        let dirs: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let configs: Vec<BrokerConfig> = dirs.iter().map(|dir| config(dir.path())).collect();
        let member =
            |n: usize| ClusterMember { id: n.to_string(), addresses: vec![configs[n].broker.listen.clone()] };
        let tables: Vec<Arc<Table>> = (0..count).map(|_| Arc::default()).collect();
        for (n, table) in tables.iter().enumerate() {
            *table.others.lock() = (0..count).filter(|other| *other != n).map(member).collect();
        }
        let start = |(config, table): (&BrokerConfig, &Arc<Table>)| {
            let parts = Parts { cluster: Some(table.clone()), ..Parts::default() };
            Broker::start_with(config.clone(), parts).unwrap()
        };
        let brokers = configs.iter().zip(&tables).map(start).collect();
        Self { brokers, tables, _dirs: dirs, term: 0 }
    }

    fn addr(&self, n: usize) -> String {
        self.brokers[n].addr()
    }

    /// Gives a topic to a member, and tells all.
    fn give(&mut self, topic: &str, to: usize) {
        self.term += 1;
        let elsewhere = Owner::Elsewhere { addresses: vec![self.addr(to)] };
        for (n, table) in self.tables.iter().enumerate() {
            let owner = if n == to { Owner::Here { term: self.term } } else { elsewhere.clone() };
            table.set(topic, owner);
        }
        self.tell();
    }

    /// Waits until a member has the publisher of a topic.
    fn wait_publisher(&self, topic: &str, at: usize) {
        let is_it = |stats: &TopicStats| stats.topic.as_str() == topic && stats.publishers > 0;
        while !self.brokers[at].topics().iter().any(is_it) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nobody has a topic.
    fn take(&mut self, topic: &str) {
        for table in &self.tables {
            table.set(topic, Owner::Unsettled { reason: "the test says so".into() });
        }
        self.tell();
    }

    fn tell(&self) {
        self.brokers.iter().for_each(|broker| broker.watch().cluster_changed());
    }
}

/// Publishes numbers until it is told to stop.
struct Counting {
    published: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    writer: Arc<Mutex<TopicWriter>>,
    thread: JoinHandle<()>,
}

impl Counting {
    fn start(writer: TopicWriter) -> Self {
        let (published, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, stopped, writer) = (published.clone(), stop.clone(), Arc::new(Mutex::new(writer)));
        let writing = writer.clone();
        let thread = std::thread::spawn(move || {
            for n in 0_u64.. {
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                writing.lock().publish_timeout(&n.to_le_bytes(), Some(LONG)).unwrap();
                counted.fetch_add(1, Ordering::Release);
                if n % 64 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Self { published, stop, writer, thread }
    }

    /// Calls `act` while nothing is published, and the ring of the publisher is empty.
    fn pause(&self, act: impl FnOnce()) {
        let writer = self.writer.lock();
        writer.confirm(writer.position(), ConfirmLevel::Stored, Some(LONG)).unwrap();
        act();
    }

    /// Waits until more has been published, and a part of it stored.
    fn wait_more(&self, more: usize) {
        let goal = self.published.load(Ordering::Acquire) + more;
        while self.published.load(Ordering::Acquire) < goal {
            assert!(!self.thread.is_finished(), "the publisher has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) -> (TopicWriter, usize) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap();
        let writer = Arc::into_inner(self.writer).expect("the thread has ended").into_inner();
        (writer, self.published.load(Ordering::Acquire))
    }
}

pub(super) fn options() -> TopicOptions {
    TopicOptions::default().ring_bytes(64 << 10).open_timeout(Some(LONG))
}

fn topic(at: &str, name: &str) -> TopicWriter {
    Publisher::connect(at).unwrap().topic_with(name, options()).unwrap()
}

pub(super) fn subscribe(at: &str, topics: &str) -> Subscriber {
    let mut subscriber = Subscriber::connect(at).unwrap();
    subscriber.subscribe_from(topics, StartFrom::Oldest).unwrap();
    subscriber
}

#[test]
fn what_is_not_kept_has_no_owner() {
    let mut members = Members::new(2);
    members.give("far", 1);
    members.give("k/here", 0);
    let publisher = Publisher::connect(&members.addr(0)).unwrap();
    for topic in ["far", "k/here"] {
        publisher.topic(topic).unwrap().publish(b"here").unwrap();
    }
}

#[test]
fn a_member_that_is_away_is_named_to_who_waits_for_it() {
    let members = Members::new(1);
    let nobody = own_addr();
    members.tables[0].set("k/far", Owner::Elsewhere { addresses: vec![nobody.clone()] });
    let publisher = Publisher::connect(&members.addr(0)).unwrap();
    let options = TopicOptions::default().open_timeout(Some(Duration::from_millis(200)));
    loop {
        match publisher.topic_with("k/far", options.clone()) {
            Err(TopicOpenError::TimedOut { last_error: None, .. }) => {}
            Err(TopicOpenError::TimedOut { last_error: Some(why), .. }) => {
                assert!(why.contains(&nobody), "{why}");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn members_that_name_each_other_are_named_in_the_error() {
    let members = Members::new(2);
    for n in 0..2 {
        members.tables[n].set("k/loop", Owner::Elsewhere { addresses: vec![members.addr(1 - n)] });
    }
    let options = TopicOptions::default().open_timeout(Some(LONG));
    let error = Publisher::connect(&members.addr(0)).unwrap().topic_with("k/loop", options).unwrap_err();
    let TopicOpenError::Refused { code: RefuseCode::Elsewhere, reason, .. } = &error else {
        panic!("{error:?}");
    };
    assert!((0..2).all(|n| reason.contains(&members.addr(n))), "{reason}");
}

#[test]
fn a_publisher_waits_while_nobody_has_its_topic() {
    let mut members = Members::new(2);
    members.take("k/later");
    let addr = members.addr(0);
    let opening = std::thread::spawn(move || topic(&addr, "k/later"));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!opening.is_finished());
    members.give("k/later", 0);
    let counting = Counting::start(opening.join().unwrap());
    for to in [1, 0] {
        counting.wait_more(100);
        counting.pause(|| members.take("k/later"));
        counting.wait_more(100);
        members.give("k/later", to);
    }
    let mut subscriber = subscribe(&members.addr(1), "k/later");
    let (writer, count) = counting.end();
    writer.confirm(writer.position(), ConfirmLevel::Synced, Some(LONG)).unwrap();
    receive_all(&mut subscriber, count);
}

#[test]
fn the_topics_of_a_member_that_is_gone_go_on_where_others_have_them() {
    let mut members = Members::new(2);
    members.give("k/1", 1);
    members.give("k/2", 1);
    let publisher = Publisher::connect(&members.addr(0)).unwrap();
    let mut writers = ["k/1", "k/2"].map(|name| publisher.topic_with(name, options()).unwrap());
    for writer in &mut writers {
        let position = writer.publish(b"before").unwrap();
        writer.confirm(position, ConfirmLevel::Synced, Some(LONG)).unwrap();
    }
    drop(members.brokers.pop());
    members.tables.pop();
    for (n, mut writer) in writers.into_iter().enumerate() {
        writer.publish(b"after").unwrap();
        members.give(&format!("k/{}", n + 1), 0);
        writer.confirm(writer.position(), ConfirmLevel::Synced, Some(LONG)).unwrap();
        let mut subscriber = subscribe(&members.addr(0), &format!("k/{}", n + 1));
        // The member has what came from the other one while that lived.
        while subscriber.recv(Some(LONG)).unwrap().expect("the message").bytes != b"after" {}
        writer.close().unwrap();
    }
}

#[test]
fn what_waits_for_room_at_a_member_that_stops_in_order_comes_once() {
    let mut members = Members::new(2);
    members.give("k/stops", 1);
    let mut subscriber = subscribe(&members.addr(0), "k/stops");
    let mut writer = topic(&members.addr(0), "k/stops");
    writer.publish(b"first").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().expect("the message").bytes, b"first");
    let mut count = 0_u64;
    while writer.publish_timeout(&count.to_le_bytes().repeat(100), Some(Duration::from_millis(500))).is_ok() {
        count += 1;
    }
    let stopping = members.brokers.pop().unwrap();
    let stopping = std::thread::spawn(move || stopping.stop());
    let mut seen = vec![0; count as usize];
    for left in (0..count).rev() {
        if left == count / 2 {
            members.give("k/stops", 0);
        }
        let message = subscriber.recv(Some(LONG)).unwrap();
        let message = message.unwrap_or_else(|| panic!("{} of {count} are missing", left + 1));
        seen[u64::from_le_bytes(message.bytes[..8].try_into().unwrap()) as usize] += 1;
    }
    assert!(seen.iter().all(|times| *times == 1));
    assert_eq!(stopping.join().unwrap(), 0);
    writer.publish(b"next").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().expect("the message").bytes, b"next");
}

#[test]
fn the_last_batch_of_a_publisher_of_the_process_stays_where_its_topic_was() {
    let mut members = Members::new(2);
    members.give("k/local", 0);
    let gate = members.brokers[0].gate().unwrap();
    let writer = topic(&members.addr(0), "k/local");
    let mut slow = subscribe(&members.addr(0), "k/local");
    let mut local = gate.local_publisher(writer.topic(), LONG, || {}).unwrap();
    let (mut taken, mut batch) = (0, Vec::new());
    while batch.is_empty() {
        push_record(&mut batch, &[7; 10_000]);
        let until = Instant::now() + Duration::from_secs(1);
        while local.publish(&mut batch) == Err(NotTaken::Full) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        taken += usize::from(batch.is_empty());
    }
    members.give("k/local", 1);
    for n in 0..taken {
        let message = slow.recv(Some(LONG)).unwrap();
        assert_eq!(message.unwrap_or_else(|| panic!("{n} of {taken}")).bytes.len(), 10_000);
    }
    while local.publish(&mut batch) != Err(NotTaken::Ended) {
        std::thread::sleep(Duration::from_millis(1));
        if batch.is_empty() {
            push_record(&mut batch, b"too late");
        }
    }
}

#[test]
fn a_kept_space_moves_as_one_topic() {
    let mut members = Members::new(2);
    members.give("$space/s", 1);
    let publisher = Publisher::connect(&members.addr(0)).unwrap();
    let mut writers = ["s/1", "s/2"].map(|name| publisher.topic_with(name, options()).unwrap());
    for to in [0, 1, 0] {
        for writer in &mut writers {
            writer.publish(b"there").unwrap();
            writer.confirm(writer.position(), ConfirmLevel::Stored, Some(LONG)).unwrap();
        }
        members.give("$space/s", to);
    }
    for writer in &mut writers {
        writer.publish(b"last").unwrap();
        writer.confirm(writer.position(), ConfirmLevel::Stored, Some(LONG)).unwrap();
    }
    let mut subscriber = subscribe(&members.addr(1), "s/#");
    for _ in 0..8 {
        subscriber.recv(Some(LONG)).unwrap().expect("a message of each writer and step");
    }
}

#[test]
fn a_publisher_goes_to_the_member_that_has_the_topic() {
    let mut members = Members::new(2);
    members.give("k/far", 1);
    let mut writer = topic(&members.addr(0), "k/far");
    let position = writer.publish(b"a message").unwrap();
    for level in [ConfirmLevel::Accepted, ConfirmLevel::Stored, ConfirmLevel::Synced] {
        writer.confirm(position, level, Some(LONG)).unwrap();
    }
    let mut subscriber = subscribe(&members.addr(0), "k/far");
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"a message");
    writer.close().unwrap();
}

#[test]
fn a_topic_moves_thirty_times_while_its_publisher_publishes() {
    let mut members = Members::new(2);
    members.give("k/moves", 0);
    let mut subscribers = [0, 1].map(|n| subscribe(&members.addr(n), "k/moves"));
    let counting = Counting::start(topic(&members.addr(0), "k/moves"));
    for n in 1..=30 {
        counting.wait_more(200);
        members.give("k/moves", n % 2);
        members.wait_publisher("k/moves", n % 2);
    }
    counting.wait_more(200);
    let (writer, count) = counting.end();
    let end = writer.position();
    for level in [ConfirmLevel::Accepted, ConfirmLevel::Stored, ConfirmLevel::Synced] {
        writer.confirm(end, level, Some(LONG)).unwrap();
    }
    writer.close().unwrap();
    for subscriber in &mut subscribers {
        receive_all(subscriber, count);
    }
}

#[test]
fn a_publisher_that_is_away_while_its_topic_is_nobodys_for_a_moment_repeats_nothing() {
    let mut members = Members::new(1);
    members.give("k/flaps", 0);
    let mut subscriber = subscribe(&members.addr(0), "k/flaps");
    let proxy = Proxy::to(&members.addr(0));
    let mut writer = topic(&proxy.addr, "k/flaps");
    for n in 0..4_u64 {
        writer.publish(&n.to_le_bytes()).unwrap();
        let message = subscriber.recv(Some(LONG)).unwrap().expect("the message");
        assert_eq!(message.bytes, n.to_le_bytes());
        proxy.cut();
        members.take("k/flaps");
        members.brokers[0].topics();
        members.give("k/flaps", 0);
        members.brokers[0].topics();
        proxy.restore();
    }
    writer.confirm(writer.position(), ConfirmLevel::Synced, Some(LONG)).unwrap();
    assert!(subscriber.recv(Some(Duration::from_millis(200))).unwrap().is_none());
}

/// It leaves the member that was the one at home, and comes back to it from another one.
#[test]
fn an_owner_knows_a_publisher_again_that_comes_another_way() {
    let mut members = Members::new(2);
    members.give("k/ways", 0);
    let proxy = Proxy::to(&members.addr(0));
    let publisher = Publisher::connect(&format!("{},{}", proxy.addr, members.addr(1))).unwrap();
    let mut writer = publisher.topic_with("k/ways", options().keep_until_delivered(true)).unwrap();
    let mut write = |n: u64| {
        writer.publish(&n.to_le_bytes()).unwrap();
        writer.confirm(writer.position(), ConfirmLevel::Synced, Some(LONG)).unwrap();
    };
    write(0);
    proxy.cut();
    write(1);
    receive_all(&mut subscribe(&members.addr(0), "k/ways"), 2);
}

#[test]
fn an_owner_to_which_the_publisher_comes_home_goes_on() {
    let mut members = Members::new(2);
    members.give("k/home", 0);
    let proxy = Proxy::to(&members.addr(1));
    let publisher = Publisher::connect(&format!("{},{}", proxy.addr, members.addr(0))).unwrap();
    let mut writer = publisher.topic_with("k/home", options().keep_until_delivered(true)).unwrap();
    for n in 0..8_u64 {
        writer.publish(&n.to_le_bytes()).unwrap();
        writer.confirm(writer.position(), ConfirmLevel::Synced, Some(LONG)).unwrap();
        if n == 3 {
            proxy.cut();
        }
    }
    receive_all(&mut subscribe(&members.addr(0), "k/home"), 8);
}

/// A publisher that says what it likes.
fn raw_publisher(addr: &str, says: &[Control]) -> Raw {
    let hello = Hello { role: Role::Publisher, client: 1, name: "raw".into() };
    let mut raw = Raw::connect(addr, 1, hello.encode());
    says.iter().for_each(|message| raw.say(&Message::App(message.encode())));
    raw
}

fn create(bid: u32, topic: &str) -> Control {
    let (ring_bytes, max_delivery_bytes, min_subscribers) = (64 << 10, 4096, 0);
    let (framing, topic) = (Framing::Records, topic.parse().unwrap());
    Control::Create { bid, framing, ring_bytes, max_delivery_bytes, min_subscribers, topic }
}

#[test]
fn who_is_in_no_cluster_takes_no_place_and_answers_about_buffers_that_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(config(dir.path())).unwrap();
    let place = Control::Place { bid: 1, epoch: 5, position: 1000 };
    let ask = Control::AskStored { bid: 9, position: 1, synced: 0, archived: 0 };
    let mut raw = raw_publisher(&broker.addr(), &[place, create(1, "k/1"), ask]);
    raw.until("SUBSCRIBE from the oldest byte on", |message| {
        let Message::Subscribe(subscribe) = message else { return None };
        assert!(matches!(subscribe.start, Start::Oldest), "{:?}", subscribe.start);
        Some(())
    });
    raw.until("NOT_STORED", |message| {
        let Message::App(bytes) = message else { return None };
        matches!(Control::decode(&bytes), Ok(Control::NotStored { bid: 9, .. })).then_some(())
    });
}

/// A member that takes a topic, and gives it away when it is told to, with what it says to have of it. Later it has it no more.
struct Former {
    addr: String,
    taken: Arc<Mutex<Option<(RIn, Bid)>>>,
    next: Vec<String>,
    _parts: (Context, Listener, ROut),
}

impl Former {
    fn start(next: &str) -> Self {
        let ctx = Context::new(rocketbufs::Config::default()).unwrap();
        let (out, listener) = (ROut::new(&ctx), Listener::bind(&ctx, "127.0.0.1:0").unwrap());
        let (taken, next) = (Arc::<Mutex<Option<(RIn, Bid)>>>::default(), vec![next.to_owned()]);
        let (first, owner) = (taken.clone(), next.clone());
        listener.set_conn_cb(move |conn| {
            let (first, owner) = (first.clone(), owner.clone());
            RIn::new(&conn).set_control_msg_cb(move |rin, message| {
                let Ok(Control::Create { bid, .. }) = Control::decode(message) else { return };
                let mut first = first.lock();
                if first.is_some() {
                    return refuse(rin, bid, &owner);
                }
                say(rin, &Control::Created { bid });
                *first = Some((rin.clone(), bid));
            });
        });
        Self { addr: listener.local_addr(), taken, next, _parts: (ctx, listener, out) }
    }

    fn give_away(&self, position: u64) {
        let (rin, bid) = self.taken.lock().clone().expect("a publisher");
        say(&rin, &Control::Stored { bid, position, synced: 0, archived: 0 });
        refuse(&rin, bid, &self.next);
    }
}

fn say(rin: &RIn, message: &Control) {
    rin.conn().send_control(&message.encode()).unwrap();
}

fn refuse(rin: &RIn, bid: Bid, owner: &[String]) {
    let reason = RefuseCode::elsewhere(owner, "the test says so");
    say(rin, &Control::Refused { bid, code: RefuseCode::Elsewhere, reason });
}

#[test]
fn what_only_another_broker_is_said_to_have_is_confirmed_by_no_later_process() {
    let mut members = Members::new(1);
    let former = Former::start(&members.addr(0));
    let mut writer = topic(&former.addr, "k/said");
    let said = writer.publish(b"there, as it says").unwrap();
    former.give_away(said);
    for text in ["here", "again"] {
        let here = writer.publish(text.as_bytes()).unwrap();
        writer.confirm(here, ConfirmLevel::Stored, Some(LONG)).unwrap();
        let error = writer.confirm(said, ConfirmLevel::Synced, Some(LONG)).unwrap_err();
        assert!(matches!(error, ConfirmError::NotStored { lost: true, .. }), "{error:?}");
        let config = members.brokers[0].config().clone();
        members.brokers.pop().unwrap().stop();
        let parts = Parts { cluster: Some(members.tables[0].clone()), ..Parts::default() };
        members.brokers.push(Broker::start_with(config, parts).unwrap());
    }
}

#[test]
fn what_the_disk_of_a_former_broker_lost_is_confirmed_by_nobody() {
    let members = Members::new(1);
    let former = Former::start(&members.addr(0));
    let mut writer = topic(&former.addr, "k/lost");
    let lost = writer.publish(b"lost").unwrap();
    // Nobody waits for a confirmation when the broker says so.
    let (rin, bid) = former.taken.lock().clone().expect("a publisher");
    say(
        &rin,
        &Control::NotStored { bid, is_of_archive: false, is_lost: true, reason: "the test says so".into() },
    );
    former.give_away(lost);
    let here = writer.publish(b"here").unwrap();
    writer.confirm(here, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    for level in [ConfirmLevel::Stored, ConfirmLevel::Synced] {
        for position in [here, lost] {
            let error = writer.confirm(position, level, Some(LONG)).unwrap_err();
            assert!(matches!(error, ConfirmError::Lost { from: 0, to, .. } if to == lost), "{error:?}");
        }
        assert_eq!(writer.accept_lost(level), Some((0, lost)));
        writer.confirm(here, level, Some(LONG)).unwrap();
    }
}

#[test]
fn an_owner_without_an_address_is_waited_for() {
    let members = Members::new(1);
    let far = |addresses: &[String]| Owner::Elsewhere { addresses: addresses.to_vec() };
    members.tables[0].set("k/far", far(&[]));
    let mut raw = raw_publisher(&members.addr(0), &[create(1, "k/far"), create(2, "k/here")]);
    let refused = |message| match message {
        Message::App(bytes) => match Control::decode(&bytes) {
            Ok(Control::Refused { bid: 1, reason, .. }) => Some(reason),
            _ => None,
        },
        _ => None,
    };
    raw.until("SUBSCRIBE", |message| {
        let is_subscribe = matches!(message, Message::Subscribe(_));
        assert_eq!(refused(message), None);
        is_subscribe.then_some(())
    });
    members.tables[0].set("k/far", far(&["far:7411".into()]));
    members.tell();
    let reason = raw.until("REFUSED", refused);
    assert_eq!(RefuseCode::addresses(&reason), "far:7411");
}

#[test]
fn a_member_that_is_missing_in_the_map_is_received_from_as_before() {
    let mut members = Members::new(2);
    members.give("k/far", 1);
    let mut subscriber = subscribe(&members.addr(0), "k/far");
    let mut writer = topic(&members.addr(1), "k/far");
    for text in [b"one", b"two"] {
        writer.publish(text).unwrap();
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().expect("the message").bytes, text);
        // Its lease has ended, and it serves on.
        members.tables.iter().for_each(|table| table.others.lock().clear());
        members.tell();
        // The broker has handled that.
        members.brokers[0].topics();
    }
}

#[test]
fn a_broker_that_starts_says_which_logs_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let table = Arc::new(Table::default());
        let parts = Parts { cluster: Some(table.clone()), ..Parts::default() };
        (Broker::start_with(config(dir.path()), parts).unwrap(), table)
    };
    let (broker, table) = start();
    assert!(table.logs.lock().is_empty());
    let mut writer = topic(&broker.addr(), "k/1");
    writer.publish(b"kept").unwrap();
    writer.confirm(writer.position(), ConfirmLevel::Synced, Some(LONG)).unwrap();
    drop((writer, broker));
    let (_broker, table) = start();
    let mut logs = table.logs.lock().clone();
    logs.sort_unstable();
    assert_eq!(logs.iter().map(TopicName::as_str).collect::<Vec<_>>(), ["$space/s", "k/1"]);
}

/// Receives all numbers: each once, and in order within a log.
fn receive_all(subscriber: &mut Subscriber, count: usize) {
    let mut seen = vec![false; count];
    let mut last = HashMap::new();
    for left in (0..count).rev() {
        let message = subscriber.recv(Some(LONG)).unwrap();
        let message = message.unwrap_or_else(|| panic!("{} of {count} are missing", left + 1));
        let number = u64::from_le_bytes(message.bytes.as_slice().try_into().unwrap()) as usize;
        assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice");
        let before = last.insert(message.epoch, number);
        assert!(before.is_none_or(|before| before < number), "{number} came after {before:?}");
    }
    assert!(subscriber.recv(Some(Duration::from_millis(200))).unwrap().is_none());
}

#[test]
fn a_member_refuses_groups_and_makes_no_log() {
    let members = Members::new(1);
    members.tables[0].set("k/a", Owner::Unsettled { reason: "the test says so".into() });
    let join =
        |topic| Subscriber::builder().group("g").join(&members.addr(0), topic).unwrap_err().to_string();
    for topic in ["k/a", "k/b"] {
        assert!(join(topic).contains("cluster"), "{}", join(topic));
    }
    let topics = members.brokers[0].topics();
    assert!(topics.iter().all(|stats| !stats.topic.as_str().starts_with("k/")), "{topics:?}");
    let groups = Subscriber::builder().groups(&members.addr(0)).unwrap().list().unwrap();
    assert_eq!(groups, []);
}
