//! The gate for gateways in the broker's process: what they publish and subscribe, and who their clients are.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use access::{AccessRule, PasswordHash, TokenHash, UsersFile, new_token};
use peers::Secret;
use rbmq::{ConnectError, Publisher, StartFrom, Subscriber, TopicOptions};
use rbmq_broker::{
    Broker, BrokerConfig, Count, Entrance, EntranceEvent, Entry, Gate, GatewayProtocol, GatewaySettings,
    Keeping, KeptRead, Rule,
};
use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Conn, Context};
use testkit::{LONG, until};

const PASSWORD: &str = "correct horse";

fn secret(text: &str) -> Secret {
    Secret::from(text.to_owned())
}

fn rule(user: &str, publish: &[&str], subscribe: &[&str]) -> AccessRule {
    let mut rule = AccessRule::for_user(user);
    rule.publish = publish.iter().map(|pattern| pattern.parse().unwrap()).collect();
    rule.subscribe = subscribe.iter().map(|pattern| pattern.parse().unwrap()).collect();
    rule
}

/// A broker with the user anna, her tokens, an audit log, and a gateway.
struct Fixture {
    dir: tempfile::TempDir,
    config: BrokerConfig,
    broker: Broker,
    token: Secret,
    /// It is valid for a day.
    short_token: Secret,
}

impl Fixture {
    fn new(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let users = dir.path().join("users.toml");
        let (token, short_token) = (new_token().unwrap(), new_token().unwrap());
        let mut file = UsersFile::edit(&users).unwrap();
        file.set_password("anna", &PasswordHash::of(&secret(PASSWORD)).unwrap()).unwrap();
        file.add_token("t", "anna", &TokenHash::of(&token), SystemTime::now(), None).unwrap();
        let (now, end) = (SystemTime::now(), SystemTime::now() + Duration::from_secs(24 * 3600));
        file.add_token("s", "anna", &TokenHash::of(&short_token), now, Some(end)).unwrap();
        file.save().unwrap();
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        config.users.file = users.to_str().unwrap().into();
        config.audit.file = dir.path().join("audit").to_str().unwrap().into();
        config.access.rules = vec![rule("anna", &["a/#"], &["a/#", "b"])];
        change(&mut config);
        config.validate().unwrap();
        let broker = Broker::start(config.clone()).unwrap();
        Self { dir, config, broker, token, short_token }
    }

    fn open(&self) -> (Entrance, mpsc::Receiver<()>) {
        let (tell, woken) = mpsc::sync_channel(100);
        let settings = GatewaySettings::new(GatewayProtocol::Resp);
        let gate = self.broker.gate().unwrap();
        (gate.open(&settings, "127.0.0.1:6379", move || _ = tell.try_send(())), woken)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until so many lines of the audit log have a text.
    fn audited(&self, text: &str, lines: usize) {
        until(&format!("{lines} audited: {text}"), || {
            let log = std::fs::read_to_string(self.file("audit")).unwrap();
            let found = log.lines().filter(|line| line.contains(text)).count();
            assert!(found <= lines, "{text}: {log}");
            found == lines
        });
    }
}

/// The next change, which the broker tells of.
fn next(entrance: &mut Entrance, woken: &mpsc::Receiver<()>) -> EntranceEvent {
    loop {
        if let Some(event) = entrance.next_event(Instant::now()) {
            return event;
        }
        woken.recv_timeout(LONG).expect("a wake");
    }
}

fn publisher(gate: &Gate) -> Result<Publisher, ConnectError> {
    Publisher::builder().config(gate.config()).connect(gate.address())
}

#[test]
fn a_part_of_the_process_may_do_everything() {
    let fixture = Fixture::new(|config| {
        config.broker.max_publishers = 1;
        config.broker.max_buffers_per_publisher = 1;
        config.broker.max_topics_per_subscriber = 1;
        config.broker.max_patterns_per_subscriber = 1;
        config.quotas.user_topics = Some(1);
    });
    let stranger = Publisher::builder().user("anna", PASSWORD).connect(&fixture.broker.addr()).unwrap();
    let gate = fixture.broker.gate().unwrap();
    let own = publisher(&gate).unwrap();
    let mut subscriber = Subscriber::builder().config(gate.config()).connect(gate.address()).unwrap();
    for filter in ["x/1", "x/+", "+/2"] {
        subscriber.subscribe_from(filter, StartFrom::Oldest).unwrap();
    }
    let mut writers = Vec::new();
    for topic in ["x/1", "x/2"] {
        let mut writer = own.topic_with(topic, TopicOptions::default().ring_bytes(64 << 10)).unwrap();
        writer.publish(topic.as_bytes()).unwrap();
        writer.flush(Some(LONG)).unwrap();
        writers.push(writer);
    }
    let mut got: Vec<_> = (0..2).map(|_| subscriber.recv(Some(LONG)).unwrap().unwrap().bytes).collect();
    got.sort();
    assert_eq!(got, [b"x/1", b"x/2"]);
    drop(stranger);
    // Nothing listens there over TCP, and nothing at all once the broker has stopped.
    let tcp = Config { transport: TransportKind::Tcp, ..gate.config() };
    assert!(Conn::connect(&Context::new(tcp).unwrap(), gate.address(), b"").is_err());
    drop((subscriber, writers, own));
    fixture.broker.stop();
    assert!(publisher(&gate).is_err());
}

#[test]
fn clients_log_in_and_have_the_rights_of_their_user() {
    let fixture = Fixture::new(|config| config.quotas.user_connections = Some(2));
    let (mut entrance, woken) = fixture.open();
    assert!(!entrance.lets_in_anonymous());
    for client in 1..=4 {
        assert_eq!(entrance.arrive(client, "10.0.0.1:9", None), Ok(false));
    }
    let name = |text: &str| text.parse().unwrap();
    assert!(!entrance.may_publish(1, &name("a/x")), "a stranger may do nothing");
    assert_eq!(entrance.log_in(1, None, fixture.token.expose()), Entry::In);
    assert_eq!(entrance.user(1), Some("anna"));
    assert_eq!(entrance.log_in(2, Some("anna"), PASSWORD), Entry::Wait);
    let decided = next(&mut entrance, &woken);
    assert_eq!(decided, EntranceEvent::LoginDecided { client: 2, entry: Entry::In });
    // Now it is known, and need not be checked. The quota of the user is used up.
    match entrance.log_in(3, Some("anna"), PASSWORD) {
        Entry::Refused(why) => assert!(why.contains("quotas.user_connections"), "{why}"),
        other => panic!("{other:?}"),
    }
    entrance.left(1);
    assert_eq!(entrance.log_in(3, Some("anna"), PASSWORD), Entry::In);
    assert_eq!(entrance.log_in(4, Some("anna"), "wrong"), Entry::Wait);
    match next(&mut entrance, &woken) {
        EntranceEvent::LoginDecided { client: 4, entry: Entry::Refused(why) } => {
            assert_eq!(why, access::NOT_AUTHENTICATED);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(entrance.log_in(4, None, "wrong"), Entry::Refused(_)));
    assert!(matches!(entrance.log_in(4, Some(""), ""), Entry::Refused(_)));
    assert!(entrance.may_publish(2, &name("a/x")) && entrance.may_subscribe(2, &name("b")));
    assert!(entrance.may_subscribe_to_some(2, &"#".parse().unwrap()));
    assert!(entrance.may_receive(2, &name("b")) && !entrance.may_receive(2, &name("c")));
    assert!(!entrance.may_receive_all(2));
    for _ in 0..3 {
        assert!(!entrance.may_publish(2, &name("b")) && !entrance.may_subscribe(2, &name("c")));
        assert!(!entrance.may_subscribe_to_some(2, &"c/#".parse().unwrap()));
    }
    let counters = entrance.counters();
    assert_eq!((counters.connections(), counters.get(Count::Denied)), (3, 1 + 9));
    assert_eq!((counters.get(Count::LoginsRefused), counters.get(Count::Accepted)), (3, 4));
    // Each refusal is recorded once.
    fixture.audited("\"event\":\"refused\"", 1 + 3 + 3);
    fixture.audited("may not publish topic 'b'", 1);
    fixture.audited("\"role\":\"resp\"", 3);
}

#[test]
fn a_reload_cuts_clients_off_and_changes_their_rights() {
    let mut fixture = Fixture::new(|_| {});
    let (mut entrance, woken) = fixture.open();
    entrance.arrive(1, "10.0.0.1:9", None).unwrap();
    assert_eq!(entrance.log_in(1, None, fixture.token.expose()), Entry::In);
    let topic = "c".parse().unwrap();
    assert!(!entrance.may_receive(1, &topic));
    fixture.config.access.rules = vec![rule("*", &[], &["c"])];
    fixture.broker.reload(&fixture.config).unwrap();
    assert_eq!(next(&mut entrance, &woken), EntranceEvent::RightsChanged { client: 1 });
    assert!(entrance.may_receive(1, &topic) && !entrance.may_publish(1, &"a/x".parse().unwrap()));
    let users = fixture.file("users.toml");
    std::fs::write(&users, "").unwrap();
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).unwrap();
    fixture.broker.reload(&fixture.config).unwrap();
    match next(&mut entrance, &woken) {
        EntranceEvent::CutOff { client: 1, reason } => assert_eq!(reason, "the user was removed"),
        other => panic!("{other:?}"),
    }
    assert!(!entrance.may_receive(1, &topic) && entrance.user(1).is_none());
    assert_eq!(entrance.next_event(Instant::now()), None);
    fixture.audited("\"cut\"", 1);
    // A password that was begun to be checked and whose client has left decides nothing.
    entrance.arrive(2, "10.0.0.1:9", None).unwrap();
    assert_eq!(entrance.log_in(2, Some("anna"), PASSWORD), Entry::Wait);
    entrance.left(2);
    woken.recv_timeout(LONG).unwrap();
    assert_eq!(entrance.next_event(Instant::now()), None);
}

/// A client that is looked at once a minute is that once, however often it logs in.
#[test]
fn a_client_that_logs_in_again_has_one_login() {
    let mut fixture = Fixture::new(|config| config.quotas.user_connections = Some(1));
    let (mut entrance, woken) = fixture.open();
    entrance.arrive(1, "10.0.0.1:9", None).unwrap();
    assert_eq!(entrance.next_due(), None);
    for _ in 0..3 {
        assert_eq!(entrance.log_in(1, None, fixture.short_token.expose()), Entry::In);
    }
    assert!(entrance.next_due().is_some());
    // The same user without an end, and with one again.
    assert_eq!(entrance.log_in(1, None, fixture.token.expose()), Entry::In);
    assert_eq!(entrance.next_due(), None);
    assert_eq!(entrance.log_in(1, None, fixture.short_token.expose()), Entry::In);
    fixture.broker.reload(&fixture.config).unwrap();
    woken.recv_timeout(LONG).unwrap();
    assert_eq!(entrance.next_event(Instant::now()), None);
    entrance.log_out(1);
    assert_eq!((entrance.next_due(), entrance.user(1)), (None, None));
    // Passwords that nobody waits for any more, of a client that goes.
    for _ in 0..3 {
        assert_eq!(entrance.log_in(1, Some("anna"), "wrong"), Entry::Wait);
    }
    assert!(entrance.next_due().is_some());
    assert_eq!(entrance.log_in(1, None, fixture.token.expose()), Entry::In);
    assert_eq!(entrance.next_due(), None);
    assert_eq!(entrance.log_in(1, None, fixture.short_token.expose()), Entry::In);
    entrance.left(1);
    assert_eq!(entrance.next_due(), None);
    fixture.audited("\"event\":\"login\"", 2);
}

#[test]
fn a_user_who_is_not_connected_has_its_present_rights() {
    let mut fixture = Fixture::new(|_| {});
    let (mut entrance, woken) = fixture.open();
    let topic = |name: &str| name.parse().unwrap();
    assert!(entrance.may_user_publish("anna", &topic("a/x")));
    for (user, name) in [("anna", "b"), ("nobody", "a/x"), ("", "a/x")] {
        assert!(!entrance.may_user_publish(user, &topic(name)), "{user} {name}");
    }
    fixture.audited("\"refused\"", 3);
    assert!(entrance.may_user_receive("anna", &topic("a/x")));
    assert!(
        !entrance.may_user_receive("anna", &topic("z"))
            && !entrance.may_user_receive("nobody", &topic("a/x"))
    );
    // Its rules are still there, and the user is not.
    let mut file = UsersFile::edit(&fixture.file("users.toml")).unwrap();
    file.delete_user("anna").unwrap();
    file.save().unwrap();
    fixture.broker.reload(&fixture.config).unwrap();
    woken.recv_timeout(LONG).unwrap();
    assert_eq!(entrance.next_event(Instant::now()), None);
    assert!(!entrance.may_user_publish("anna", &topic("a/x")));
    assert!(!entrance.may_user_receive("anna", &topic("a/x")));
}

#[test]
fn filters_of_all_clients_of_a_user_share_its_quotas() {
    let fixture = Fixture::new(|config| {
        config.quotas.user_subscriptions = Some(10);
        config.quotas.user_patterns = Some(5);
    });
    let (mut entrance, _woken) = fixture.open();
    for client in 1..=2 {
        entrance.arrive(client, "10.0.0.1:9", None).unwrap();
        assert_eq!(entrance.log_in(client, None, fixture.token.expose()), Entry::In);
    }
    assert_eq!(entrance.ask_for_filters(1, 8, 3), Ok(()));
    for (filters, patterns, setting) in [(3, 0, "quotas.user_subscriptions"), (2, 3, "quotas.user_patterns")]
    {
        let why = entrance.ask_for_filters(2, filters, patterns).unwrap_err();
        assert!(why.contains(setting), "{why}");
    }
    assert_eq!(entrance.ask_for_filters(2, 2, 2), Ok(()));
    // One for another, and what was there before.
    assert_eq!(entrance.ask_for_filters(2, 2, 1), Ok(()));
    entrance.set_filters(2, 20, 2);
    assert!(entrance.ask_for_filters(1, 9, 3).is_err());
    // A login as the same user changes nothing, and who leaves gives back what it had.
    assert_eq!(entrance.log_in(2, None, fixture.token.expose()), Entry::In);
    assert!(entrance.ask_for_filters(1, 9, 3).is_err());
    entrance.left(2);
    assert_eq!(entrance.ask_for_filters(1, 9, 3), Ok(()));
    // As another login, it has its filters still.
    entrance.log_out(1);
    entrance.arrive(3, "10.0.0.1:9", None).unwrap();
    assert_eq!(entrance.log_in(3, None, fixture.token.expose()), Entry::In);
    assert_eq!(entrance.ask_for_filters(3, 2, 0), Ok(()));
    match entrance.log_in(1, None, fixture.token.expose()) {
        Entry::Refused(why) => assert!(why.contains("quotas.user_subscriptions"), "{why}"),
        other => panic!("{other:?}"),
    }
    fixture.audited("quotas.user_patterns", 1);
}

#[test]
fn without_users_everybody_is_let_in_with_the_rights_of_everybody() {
    let fixture = Fixture::new(|config| {
        config.users.file.clear();
        config.access.rules = vec![rule("*", &["a"], &[])];
        config.quotas.address_connections = Some(1);
    });
    let (mut entrance, _woken) = fixture.open();
    assert!(entrance.lets_in_anonymous());
    assert_eq!(entrance.arrive(1, "10.0.0.1:9", None), Ok(true));
    assert_eq!(entrance.log_in(1, Some("x"), "y"), Entry::In);
    assert_eq!(entrance.user(1), Some(""));
    assert!(
        entrance.may_publish(1, &"a".parse().unwrap()) && !entrance.may_publish(1, &"b".parse().unwrap())
    );
    entrance.log_out(1);
    assert_eq!(entrance.user(1), Some(""), "it is still in");
    let why = entrance.arrive(2, "10.0.0.1:8", None).unwrap_err();
    assert!(why.contains("quotas.address_connections"), "{why}");
    let open = Fixture::new(|config| {
        config.users.file.clear();
        config.access.rules.clear();
    });
    let (mut entrance, _woken) = open.open();
    entrance.arrive(1, "10.0.0.1:9", None).unwrap();
    assert!(entrance.may_receive_all(1) && entrance.may_subscribe_to_some(1, &"#".parse().unwrap()));
}

#[test]
fn a_gateway_reads_kept_topics_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(|config| {
        let mut kept = Rule::new("a/k/#".parse().unwrap());
        kept.keep = true;
        let mut space = Rule::new("a/s/#".parse().unwrap());
        (space.keep, space.space) = (true, true);
        config.broker.topics = vec![kept, space].into();
        config.broker.keep_dir = dir.path().to_str().unwrap().into();
    });
    let gate = fixture.broker.gate().unwrap();
    let (tell, woken) = mpsc::sync_channel(100);
    let topics = gate.kept_topics(move || _ = tell.try_send(()));
    let [kept, in_space, other] = ["a/k/1", "a/s/1", "b"].map(|name| name.parse().unwrap());
    let keeping = [&kept, &in_space, &other].map(|topic| topics.keeping(topic));
    assert_eq!(keeping, [Keeping::Yes, Keeping::InSpace, Keeping::No]);
    assert!(topics.log(&kept).is_none());
    assert_eq!(topics.max_delivery_bytes(&kept), Some(256 << 10));
    let context = Context::new(gate.config()).unwrap();
    let publisher = Publisher::builder().context(&context).connect(gate.address()).unwrap();
    let mut writer = publisher.topic_with("a/k/1", TopicOptions::default().ring_bytes(64 << 10)).unwrap();
    let log = writer.epoch().unwrap();
    topics.follow_topic(&kept, true);
    topics.follow_publisher(log, true);
    let end = writer.publish(b"hello").unwrap();
    woken.recv_timeout(LONG).unwrap();
    let (grown, stored) = topics.take_news();
    assert_eq!((grown, stored.len()), (vec![kept.clone()], 1));
    assert_eq!((stored[0].log, stored[0].to), (log, end));
    let mut reader = topics.log(&kept).unwrap();
    let Ok(KeptRead::Batch(batch)) = reader.read(stored[0].at + 3) else { panic!("it is stored") };
    assert_eq!((batch.position(), batch.end()), (reader.first(), reader.end()));
    assert_eq!(&batch.bytes()[(stored[0].at - batch.position()) as usize..], b"\x05\0\0\0hello");
    assert_eq!(reader.read_before(reader.end()).unwrap().unwrap().position(), batch.position());
    assert_eq!(reader.find_time(batch.time_ms()).unwrap(), batch.position());
    assert_eq!(reader.find_time(batch.time_ms() + 1).unwrap(), reader.end());
    assert!(matches!(reader.read(reader.end()), Ok(KeptRead::End)) && !reader.is_closed());
    topics.follow_topic(&kept, false);
    let end = writer.publish(b"again").unwrap();
    woken.recv_timeout(LONG).unwrap();
    let (grown, stored) = topics.take_news();
    assert_eq!((grown, stored[0].to), (vec![], end));
}
