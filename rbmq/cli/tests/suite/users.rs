//! Users of a broker: logins by password, token and Unix user, right and wrong, from the command line and the library; and what a
//! reload does. The commands are those of docs/security/USERS.md.

use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use access::{NOT_AUTHENTICATED, PasswordHash, TokenHash, UsersFile, new_token};
use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use rbmq::wire::{Credentials, Hello, Role, Secret};
use rbmq::{ConnectError, Observer, Publisher, Subscriber};
use rbmq_broker::{Broker, BrokerConfig};
use rocketbufs::proto::{CloseCode, Message};
use serde_json::json;
use testkit::{LONG, Outcome, Process, Raw, broker_with, introduction, until};

use crate::common::operator::Operated;
use crate::common::{client, rbmq};

const PASSWORD: &str = "correct horse";

/// With users, a broker denies what no rule gives.
const RULES: &str =
    "[[access.rules]]\nusers = ['*']\npublish = ['#']\nsubscribe = ['#']\nobserve = true\nchain = true\n";

fn secret(text: &str) -> Secret {
    Secret::from(text.to_owned())
}

fn run(mut command: Command, input: &str) -> Outcome {
    command.stdin(std::process::Stdio::piped());
    let mut process = Process::start(command);
    process.feed(input.as_bytes());
    process.finish()
}

/// A configuration with rules for every user, beside the file of users.
fn rules_beside(users: impl AsRef<Path>) -> PathBuf {
    let path = users.as_ref().with_file_name("rbmq.toml");
    std::fs::write(&path, RULES).unwrap();
    path
}

/// A file with the users alice and bob, who have the same password, and alice's token.
struct Users {
    _dir: tempfile::TempDir,
    path: PathBuf,
    token: Secret,
}

impl Users {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        let hash = PasswordHash::of(&secret(PASSWORD)).unwrap();
        let mut file = UsersFile::edit(&path).unwrap();
        file.set_password("alice", &hash).unwrap();
        file.set_password("bob", &hash).unwrap();
        file.save().unwrap();
        let mut users = Self { _dir: dir, path, token: secret("") };
        users.token = users.add_token("first", None);
        users
    }

    fn add_token(&self, name: &str, expires: Option<SystemTime>) -> Secret {
        let token = new_token().unwrap();
        let mut file = UsersFile::edit(&self.path).unwrap();
        file.add_token(name, "alice", &TokenHash::of(&token), SystemTime::now(), expires).unwrap();
        file.save().unwrap();
        token
    }

    fn broker(&self) -> Broker {
        broker_with(|config| {
            config.users.file = self.text();
            config.access.rules = BrokerConfig::load(Some(&rules_beside(&self.path))).unwrap().access.rules;
        })
    }

    fn text(&self) -> String {
        self.path.to_str().unwrap().to_owned()
    }

    /// A broker process whose log is read.
    fn operated(&self) -> Operated {
        Operated::start_with(&[
            "--users",
            &self.text(),
            "--config",
            rules_beside(&self.path).to_str().unwrap(),
        ])
    }
}

fn publisher(addr: &str, user: &str, password: &str) -> Result<Publisher, ConnectError> {
    Publisher::builder().user(user, password).connect(addr)
}

fn write_secret(path: &str, secret: &[u8]) {
    std::fs::write(path, secret).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_token_that_nobody_has_seen_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.toml").to_str().unwrap().to_owned();
    run(rbmq(["passwd", "--users", &file, "--stdin", "alice"]), "correct horse\n").good();
    let new = |redirect: &str| {
        let mut shell = std::process::Command::new("sh");
        let command = format!("exec \"$0\" token new --users \"$1\" alice --name sensor {redirect}");
        shell.args(["-c", &command, env!("CARGO_BIN_EXE_rbmq"), &file]).output().unwrap()
    };
    let full = new(">/dev/full");
    let error = String::from_utf8(full.stderr).unwrap();
    assert!(full.status.code() == Some(1) && error.contains("was not shown, and is not made"), "{error}");
    let is_there = || std::fs::read_to_string(&file).unwrap().contains("sensor");
    assert!(!is_there());

    // A pipe that is full, and that nobody reads.
    let (_reader, mut pipe) = std::io::pipe().unwrap();
    let full = rustix::pipe::fcntl_getpipe_size(&pipe).unwrap();
    pipe.write_all(&vec![b'x'; full]).unwrap();
    let mut command = rbmq(["token", "new", "--users", &file, "alice", "--name", "sensor"]);
    command.stdout(pipe).stderr(std::process::Stdio::piped());
    let mut waiting = Process::start(command);
    let mut line = String::new();
    waiting.stderr().read_line(&mut line).unwrap();
    assert!(line.contains("it is shown only now"), "{line}");
    waiting.signal("KILL");
    assert!(!waiting.finish().status.success() && !is_there());

    // The words beside the token may be lost.
    let shown = new("2>/dev/full");
    assert!(shown.status.success() && shown.stdout.starts_with(b"rbmq_"));
    assert!(is_there());
}

#[test]
fn the_commands_of_the_guide() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let file = at("users.toml");
    let said = run(rbmq(["passwd", "--users", &file, "--stdin", "alice"]), "correct horse\n").good().text();
    assert!(said.contains("alice is a user now") && said.contains("SIGHUP"), "{said}");
    assert_eq!(Path::new(&file).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("correct horse"));
    let short = run(rbmq(["passwd", "--users", &file, "--stdin", "alice"]), "short\n");
    assert!(short.stderr.contains("at least 8 characters"), "{}", short.stderr);
    let token = rbmq(["token", "new", "--users", &file, "alice", "--name", "sensor", "--expires", "30d"]);
    let token = run(token, "").good();
    assert!(token.stderr.contains("the token sensor of alice expires 20"), "{}", token.stderr);
    write_secret(&at("token"), &token.stdout);
    write_secret(&at("password"), b"correct horse\n");
    let listed = run(rbmq(["token", "list", "--users", &file]), "").good().text();
    assert!(listed.contains("sensor") && !listed.contains("rbmq_"), "{listed}");

    let broker = Operated::start_with(&["--users", &file, "--config", rules_beside(&file).to_str().unwrap()]);
    let with = |command: &str, args: &[&str]| {
        let mut command = client(command, &broker.addr, "news");
        command.args(args).env_remove("RBMQ_USER").env_remove("RBMQ_PASSWORD").env_remove("RBMQ_TOKEN");
        command
    };
    let (token_file, password_file) = (at("token"), at("password"));
    let subscriber = Process::start(with("sub", &["--count", "3", "--token-file", &token_file]));
    broker.wait_log("method=\"token\"");
    let wait = ["--wait-subscribers", "1"];
    let by_file = ["--user", "alice", "--password-file", &password_file];
    run(with("pub", &[&by_file[..], &wait].concat()), "one\n").good();
    let mut by_variable = with("pub", &[&["--user", "alice"][..], &wait].concat());
    by_variable.env("RBMQ_PASSWORD", "correct horse");
    run(by_variable, "two\n").good();
    let mut token_variable = with("pub", &wait);
    token_variable.env("RBMQ_TOKEN", String::from_utf8(token.stdout).unwrap().trim());
    run(token_variable, "three\n").good();
    assert_eq!(subscriber.finish().good().text(), "one\ntwo\nthree\n");

    let mut wrong = with("pub", &["--user", "alice"]);
    wrong.env("RBMQ_PASSWORD", "battery staple");
    let wrong = run(wrong, "x\n");
    assert!(wrong.stderr.contains("not authenticated"), "{}", wrong.stderr);
    let nobody = run(with("pub", &[]), "x\n");
    assert!(nobody.stderr.contains("not authenticated"), "{}", nobody.stderr);
    // Without a terminal nobody is asked.
    let unasked = run(with("pub", &["--user", "alice"]), "x\n");
    assert_eq!(unasked.status.code(), Some(1), "{}", unasked.stderr);

    run(rbmq(["token", "revoke", "--users", &file, "sensor"]), "").good();
    run(rbmq(["passwd", "--users", &file, "--delete", "alice"]), "").good();
    assert!(!std::fs::read_to_string(&file).unwrap().contains("alice"));
    let log = broker.end();
    assert!(!log.contains("correct horse") && !log.contains("battery staple"), "{log}");
}

#[test]
fn a_token_goes_to_a_new_file_of_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, output) = (at("users.toml"), at("token"));
    run(rbmq(["passwd", "--users", &file, "--stdin", "alice"]), "correct horse\n").good();
    let make = |name, output| {
        run(rbmq(["token", "new", "--users", &file, "alice", "--name", name, "-o", output]), "")
    };
    let made = make("one", &output).good();
    assert!(
        made.stdout.is_empty() && made.stderr.contains("the token one of alice is in"),
        "{}",
        made.stderr
    );
    assert_eq!(Path::new(&output).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&output).unwrap().starts_with("rbmq_"));
    // An existing file stays, also behind a link, and no token is made for it.
    std::os::unix::fs::symlink(at("users.toml"), at("link")).unwrap();
    for taken in [&output, &at("link")] {
        let refused = make("two", taken);
        assert!(refused.stderr.contains("File exists"), "{}", refused.stderr);
    }
    assert!(!run(rbmq(["token", "list", "--users", &file]), "").good().text().contains("two"));
}

#[test]
fn a_check_of_the_configuration_reads_the_users_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rbmq.toml");
    let file = dir.path().join("users.toml");
    std::fs::write(&config, format!("[users]\nfile = '{}'\n", file.display())).unwrap();
    let check = || run(rbmq(["config", "--check", config.to_str().unwrap()]), "");
    let missing = check();
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stderr.contains("make it with its first user: rbmq passwd"), "{}", missing.stderr);
    write_secret(file.to_str().unwrap(), b"[[user]]\nnam = 'x'\n");
    assert!(check().stderr.contains("line 2"));
    write_secret(file.to_str().unwrap(), b"[[user]]\nname = 'x'\n");
    check().good();
}

#[test]
fn a_refused_client_does_not_connect_a_second_time() {
    let users = Users::new();
    let broker = users.operated();
    let mut nobody = client("pub", &broker.addr, "news");
    nobody.env_remove("RBMQ_USER").env_remove("RBMQ_TOKEN");
    let nobody = run(nobody, "x\n");
    assert!(nobody.stderr.contains("not authenticated"), "{}", nobody.stderr);
    let log = broker.end();
    assert!(log.contains("login refused: no credentials") && !log.contains("no rbmq client"), "{log}");
}

#[test]
fn users_without_rules_are_told_to_the_operator() {
    let users = Users::new();
    let broker = Operated::start_with(&["--users", &users.text()]);
    broker.wait_log("nobody may publish or subscribe");
    broker.end();
}

#[test]
fn the_library_logs_in_and_the_identity_of_a_refusal_is_not_told() {
    let users = Users::new();
    let over = users.add_token("over", Some(SystemTime::UNIX_EPOCH));
    let broker = users.broker();
    let addr = broker.addr();
    let mut news = publisher(&addr, "alice", PASSWORD).unwrap().topic("news").unwrap();
    let mut subscriber = Subscriber::builder().token(users.token.expose()).connect(&addr).unwrap();
    subscriber.subscribe("news").unwrap();
    news.wait_subscribers(1, Some(LONG)).unwrap();
    news.publish(b"hello").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"hello");
    assert_eq!(
        Observer::builder().user("bob", PASSWORD).connect(&addr).unwrap().summary().unwrap().topics,
        1
    );

    let never_issued = new_token().unwrap();
    let wrong = [
        publisher(&addr, "alice", "wrong").err().unwrap(),
        publisher(&addr, "eve", PASSWORD).err().unwrap(),
        Publisher::connect(&addr).err().unwrap(),
        Publisher::builder().token(over.expose()).connect(&addr).err().unwrap(),
        Publisher::builder().token(never_issued.expose()).connect(&addr).err().unwrap(),
        Publisher::builder().token("eyJhbGciOiJub25lIn0.e30.").connect(&addr).err().unwrap(),
    ];
    let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(texts[0].contains(NOT_AUTHENTICATED), "{}", texts[0]);
    texts.iter().for_each(|text| assert_eq!(*text, texts[0]));
}

#[test]
fn a_secret_does_not_leave_the_machine_in_plain_text() {
    let refused = Publisher::builder().token("x").connect("192.0.2.1:7411").err().unwrap();
    assert!(matches!(refused, ConnectError::Plaintext { .. }), "{refused}");
}

/// Says hello, and returns what the broker answers.
fn knock(addr: &str, instance: u128, client: u128, credentials: &Credentials) -> Option<Message> {
    let hello = Hello { role: Role::Publisher, client, name: "knocks".into() };
    let mut raw = Raw::of(TcpStream::connect(addr).unwrap());
    raw.say(&Message::Hello(introduction(instance, 65_536, hello.encode_with(credentials).to_vec())));
    raw.hear()
}

fn refusal(answer: Option<Message>) -> String {
    match answer {
        Some(Message::Bye { code: CloseCode::NotAccepted, text }) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_place_of_a_publisher_is_its_users() {
    let users = Users::new();
    let broker = users.broker();
    let of = |user: &str| Credentials::password(user, secret(PASSWORD)).unwrap();
    let hello = Hello { role: Role::Publisher, client: 9, name: "first".into() };
    let first = Raw::connect(&broker.addr(), 7, hello.encode_with(&of("alice")).to_vec());
    let refused = refusal(knock(&broker.addr(), 7, 9, &of("bob")));
    assert_eq!(refused, "a publisher with this number belongs to another user");
    drop(first);
    assert!(matches!(knock(&broker.addr(), 7, 8, &of("bob")), Some(Message::Welcome(_))));
}

#[test]
fn guesses_cost_the_guesser_more_and_more_and_a_token_still_gets_in() {
    let users = Users::new();
    let broker = users.broker();
    let addr = broker.addr();
    // Right once, so that the broker remembers it.
    assert!(publisher(&addr, "bob", PASSWORD).is_ok());
    let guess = |n: u128| {
        let credentials = Credentials::password("alice", secret(&format!("guess {n}"))).unwrap();
        refusal(knock(&addr, 1, n, &credentials))
    };
    let answers: Vec<String> = (0..12).map(guess).collect();
    assert!(answers[..4].iter().all(|text| text == NOT_AUTHENTICATED), "{answers:?}");
    let later = "too many failed logins from there";
    assert!(answers[4..].iter().any(|text| text.starts_with(later)), "{answers:?}");
    assert!(Publisher::builder().token(users.token.expose()).connect(&addr).is_ok());
    assert!(publisher(&addr, "bob", PASSWORD).is_ok(), "it was right a moment ago");
    assert!(publisher(&addr, "bob", "wrong").is_err());
}

#[test]
fn thousands_who_never_finish_do_not_keep_a_client_out() {
    let users = Users::new();
    let broker = users.broker();
    let addr = broker.addr();
    // Half of them say nothing, and the others stop inside of their hello.
    let at_the_door: Vec<TcpStream> = (0..5_000)
        .map(|n| {
            let mut stream = TcpStream::connect(&addr).unwrap();
            if n % 2 == 0 {
                use std::io::Write;
                stream.write_all(&[0xff, 0xff, 0xff, 0x7f, 0x40, 0, 0, 0, 1]).unwrap();
            }
            stream
        })
        .collect();
    let mut news = publisher(&addr, "alice", PASSWORD).unwrap().topic("news").unwrap();
    let mut subscriber = Subscriber::builder().token(users.token.expose()).connect(&addr).unwrap();
    subscriber.subscribe("news").unwrap();
    news.wait_subscribers(1, Some(LONG)).unwrap();
    news.publish(b"in").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"in");
    drop(at_the_door);
}

#[test]
fn a_reload_cuts_off_who_is_no_user_any_more() {
    let users = Users::new();
    let revoked = users.add_token("revoked", None);
    let broker = users.operated();
    let connect = |token: &Secret| Publisher::builder().token(token.expose()).connect(&broker.addr).unwrap();
    let (stays, goes) = (connect(&users.token), connect(&revoked));
    let (removed, changed) = (
        publisher(&broker.addr, "bob", PASSWORD).unwrap(),
        publisher(&broker.addr, "alice", PASSWORD).unwrap(),
    );
    let mut file = UsersFile::edit(&users.path).unwrap();
    file.revoke_token("revoked").unwrap();
    file.delete_user("bob").unwrap();
    file.set_password("alice", &PasswordHash::of(&secret("another one")).unwrap()).unwrap();
    file.save().unwrap();
    broker.signal("HUP");
    for why in ["the token was revoked", "the user was removed", "the password of the user was changed"] {
        broker.wait_log(&format!("cut off: {why}"));
    }
    until("three are cut off", || ![&goes, &removed, &changed].iter().any(|client| client.is_connected()));
    assert!(stays.is_connected());
    assert!(publisher(&broker.addr, "alice", "another one").is_ok());
    assert!(publisher(&broker.addr, "bob", PASSWORD).is_err());

    // A damaged file changes nothing.
    let good = std::fs::read_to_string(&users.path).unwrap();
    std::fs::write(&users.path, format!("{good}\n[[user]]\nnam = 'x'\n")).unwrap();
    broker.signal("HUP");
    broker.wait_log("not reloaded, nothing changes");
    assert!(stays.is_connected() && publisher(&broker.addr, "alice", "another one").is_ok());
}

#[test]
fn a_token_that_expires_ends_the_connection() {
    let users = Users::new();
    // On a busy machine the first one expires before the broker listens.
    let connects = |seconds| {
        let until = SystemTime::now() + Duration::from_secs(seconds);
        let short = users.add_token(&format!("short-{seconds}"), Some(until));
        let broker = users.operated();
        let publisher = Publisher::builder().token(short.expose()).connect(&broker.addr).ok()?;
        Some((broker, publisher))
    };
    let (broker, publisher) = [4, 30].into_iter().find_map(connects).expect("the token is good for 30 s");
    broker.wait_log("cut off: the token has expired");
    until("it is cut off", || !publisher.is_connected());
}

/// A token of an issuer, signed with HS256.
fn jwt(secret: &[u8], algorithm: &str, claims: &serde_json::Value) -> String {
    let part = |value: &serde_json::Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&json!({"alg": algorithm})), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{signed}.{}", BASE64URL_NOPAD.encode(hmac::sign(&key, signed.as_bytes()).as_ref()))
}

#[test]
fn a_token_of_an_issuer_gets_in_and_forged_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key").to_str().unwrap().to_owned();
    let secret = b"0123456789abcdef0123456789abcdef";
    write_secret(&key, secret);
    let broker = broker_with(|config| {
        config.users.jwt_key = key;
        (config.users.jwt_issuer, config.users.jwt_audience) = ("id".into(), "rbmq".into());
    });
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({"iss": "id", "aud": "rbmq", "sub": "alice", "exp": now + 3600, "roles": ["sensor"]});
    let connect = |token: &str| Publisher::builder().token(token).connect(&broker.addr());
    assert!(connect(&jwt(secret, "HS256", &claims)).is_ok());
    let mut over = claims.clone();
    over["exp"] = json!(now - 3600);
    let forged = [
        jwt(b"another secret of thirty-two byte", "HS256", &claims),
        jwt(secret, "none", &claims),
        jwt(secret, "HS256", &over),
        jwt(secret, "HS256", &json!({"iss": "id", "aud": "rbmq", "sub": "alice"})),
    ];
    for token in &forged {
        let refused = connect(token).err().unwrap().to_string();
        assert!(refused.contains(NOT_AUTHENTICATED), "{refused}");
    }
    assert!(Publisher::connect(&broker.addr()).is_err(), "with an issuer everybody logs in");
}

/// Each is in the audit log.
#[test]
fn logins_do_not_flood_the_log() {
    let users = Users::new();
    let audit = users.path.with_file_name("audit.log");
    let config = users.path.with_file_name("rbmq.toml");
    let file = users.text();
    std::fs::write(&config, format!("users.file = '{file}'\naudit.file = '{}'\n{RULES}", audit.display()))
        .unwrap();
    let broker = Operated::start(&config, &[]);
    let begin = std::time::Instant::now();
    for _ in 0..50 {
        Publisher::builder().token(users.token.expose()).connect(&broker.addr).unwrap();
    }
    let log = broker.end();
    let lines = log.lines().filter(|line| line.contains("logged in")).count() as u64;
    assert!(lines >= 1 && lines <= 1 + begin.elapsed().as_secs() / 10, "{log}");
    let audited = std::fs::read_to_string(audit).unwrap();
    assert_eq!(audited.lines().filter(|line| line.contains("\"event\":\"login\"")).count(), 50, "{audited}");
}

#[test]
fn a_unix_user_of_the_file_needs_no_secret() {
    let users = Users::new();
    let uid = rustix::process::geteuid().as_raw();
    let text = std::fs::read_to_string(&users.path).unwrap();
    std::fs::write(&users.path, format!("{text}\n[[user]]\nname = \"local\"\nunix = [{uid}]\n")).unwrap();
    let config = users.path.with_file_name("rbmq.toml");
    std::fs::write(&config, format!("transport = 'auto'\n[users]\nfile = '{}'\n{RULES}", users.text()))
        .unwrap();
    let broker = Operated::start(&config, &[]);
    let with = |transport: &str| {
        let mut command = client("pub", &broker.addr, "news");
        command.env("ROCKETBUFS_TRANSPORT", transport);
        run(command, "hello\n")
    };
    // Over shared memory the kernel tells who the other process is.
    with("auto").good();
    broker.wait_log("method=\"unix\"");
    let refused = with("tcp").stderr;
    assert!(refused.contains("not authenticated"), "over TCP nobody tells: {refused}");
}

#[cfg(feature = "tls")]
#[test]
fn a_client_certificate_is_a_user_and_another_one_is_not() {
    let users = Users::new();
    let tls = users.path.with_file_name("tls").to_str().unwrap().to_owned();
    run(rbmq(["keygen", "all", &tls, "--name", "localhost"]), "").good();
    run(rbmq(["keygen", "client", &tls, "carol"]), "").good();
    let text = std::fs::read_to_string(&users.path).unwrap();
    let carol = "[[user]]\nname = \"c\"\ncertificates = [\"CN=carol\"]\n";
    std::fs::write(&users.path, format!("{text}\n{carol}")).unwrap();
    let config = users.path.with_file_name("rbmq.toml");
    let text = format!(
        "[tls]\nmode = 'require'\ncert = '{tls}/server.pem'\nkey = '{tls}/server-key.pem'\nca = '{tls}/ca.pem'\n\
         client_certificates = 'optional'\n[users]\nfile = '{}'\n{RULES}",
        users.text()
    );
    std::fs::write(&config, text).unwrap();
    let broker = Operated::start(&config, &[]);
    let of = |name: &str| {
        let mut command = client("pub", &broker.addr, "news --server-name localhost");
        command.args(["--ca", &format!("{tls}/ca.pem"), "--cert", &format!("{tls}/{name}.pem")]);
        command.args(["--key", &format!("{tls}/{name}-key.pem")]);
        run(command, "hello\n")
    };
    of("carol").good();
    broker.wait_log("user=\"c\" method=\"certificate\"");
    let refused = of("client").stderr;
    assert!(refused.contains("not authenticated"), "{refused}");
}

#[test]
fn a_broker_logs_in_at_its_upstream_broker() {
    let users = Users::new();
    let upstream = users.broker();
    let file = users.path.with_file_name("upstream-token");
    write_secret(file.to_str().unwrap(), users.token.expose().as_bytes());
    let mut settings = rbmq_broker::UpstreamSettings::new(&upstream.addr());
    settings.token_file = Some(file.to_str().unwrap().to_owned());
    let broker = broker_with(|config| config.broker.upstream = vec![settings.clone()]);
    let mut news = publisher(&upstream.addr(), "alice", PASSWORD).unwrap().topic("news").unwrap();
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    subscriber.subscribe("news").unwrap();
    news.wait_subscribers(1, Some(LONG)).unwrap();
    news.publish(b"through both").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"through both");

    let refused = |settings: &rbmq_broker::UpstreamSettings| {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        config.broker.upstream = vec![settings.clone()];
        Broker::start(config).expect_err("an error").to_string()
    };
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let why = refused(&settings);
    assert!(why.contains("everybody on this machine can read it (mode 644); run: chmod 640"), "{why}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    settings.address = "192.0.2.1:7411".into();
    let why = refused(&settings);
    assert!(why.contains("without encryption"), "{why}");
}

#[test]
fn a_file_that_everybody_can_read_is_refused() {
    let users = Users::new();
    std::fs::set_permissions(&users.path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let outcome = run(rbmq(["serve", "--listen", "127.0.0.1:0", "--users", &users.text()]), "");
    assert_eq!(outcome.status.code(), Some(1));
    assert!(
        outcome.stderr.contains("has the mode 644") && outcome.stderr.contains("chmod 600"),
        "{}",
        outcome.stderr
    );
}

/// The soft limit on the size of a process's core files.
fn core_limit(pid: u32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("a limit");
    line.split_whitespace().next().expect("a soft limit").to_owned()
}

#[test]
fn who_has_secrets_leaves_no_core_file() {
    let users = Users::new();
    // The shell gives the processes the largest limit that it may.
    let start = |command: Command| {
        let mut shell = Command::new("sh");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        shell.args(["-c", &format!("ulimit -S -c $(ulimit -H -c); exec {}", words.join(" "))]);
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            shell.env_remove(name);
        }
        shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        shell.stderr(std::process::Stdio::piped());
        shell
    };
    let serve = |args: &[&str], variable: Option<&str>| {
        let mut command = start(rbmq(["serve", "--listen", "127.0.0.1:0"].iter().chain(args).copied()));
        variable.map(|value| command.env("RBMQ_CORE_DUMPS", value));
        let mut process = Process::start(command);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut process.stdout(), &mut line).unwrap();
        let limit = core_limit(process.id());
        drop(process);
        limit
    };
    let most = serve(&[], None);
    let file = users.text();
    assert_eq!(serve(&["--users", &file], None), "0");
    assert_eq!(serve(&["--users", &file], Some("1")), most);
}

#[test]
fn a_subscriber_reads_with_the_policy_that_the_rules_allow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    let rules = "[[access.rules]]\nusers = ['*']\npublish = ['#']\nsubscribe = ['#']\npolicies = ['drop']\n\
                 [[access.rules]]\nusers = ['*']\nsubscribe = ['own/#']\npolicies = ['block']\n";
    std::fs::write(&path, rules).unwrap();
    let broker = Operated::start(&path, &[]);
    for (topic, reported) in [("news", true), ("own/news", false)] {
        let subscriber = Process::start(client("sub", &broker.addr, &format!("{topic} --count 1")));
        let publisher = client("pub", &broker.addr, &format!("{topic} --wait-subscribers 1"));
        run(publisher, "hello\n").good();
        let outcome = subscriber.finish().good();
        assert_eq!(outcome.text(), "hello\n");
        let said =
            outcome.stderr.contains("reads with the policy 'drop': while it is slow, it skips messages");
        assert_eq!(said, reported, "{}", outcome.stderr);
    }
    // A subscriber that asked for no loss is at no risk of one.
    let mut publisher = Process::start(crate::common::piped(client("pub", &broker.addr, "news")));
    let refused = run(client("sub", &broker.addr, "news --policy block --count 1"), "");
    assert!(!refused.status.success() && refused.stderr.contains("allowed: drop"), "{}", refused.stderr);
    publisher.feed(b"");
    publisher.finish().good();
}
