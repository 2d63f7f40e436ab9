//! Logins that are wrong in every way, at a broker with users: all get the same answer.

use std::path::Path;

use access::{NOT_AUTHENTICATED, PasswordHash, TokenHash, UsersFile, new_token};
use rbmq::wire::{Credentials, Hello as ClientHello, Role, Secret};
use rbmq::{Publisher, Subscriber};
use rocketbufs::proto::Message;

use super::exchange::{Code, Exchange, Outcome, hello, hello_with, said};
use super::{Bystanders, table};
use crate::common::BrokerProcess;

const PASSWORD: &str = "correct horse battery staple";

fn password(user: &str, password: &str) -> Vec<u8> {
    let credentials =
        Credentials::Password { user: user.into(), password: Secret::from(password.to_owned()) };
    introduction().encode_with(&credentials).to_vec()
}

fn token(token: &str) -> Vec<u8> {
    introduction().encode_with(&Credentials::Token(Secret::from(token.to_owned()))).to_vec()
}

fn introduction() -> ClientHello {
    ClientHello::decode(&hello(Role::Publisher).hello).expect("an introduction")
}

fn exchange(family: &'static str, name: &str, introduction: Vec<u8>) -> Exchange {
    let bytes = said(&Message::Hello(hello_with(introduction)));
    let outcome = Outcome::Bye(Code::NotAccepted);
    Exchange { family, name: name.into(), role: None, bytes, outcome }
}

/// Logins with the right form and wrong content. `good` is a token of the broker.
fn wrong(good: &str) -> Vec<Exchange> {
    let of = |name, introduction| exchange("logins", name, introduction);
    let mut all: Vec<Exchange> = [Role::Publisher, Role::Subscriber, Role::Observer, Role::Broker]
        .into_iter()
        .map(|role| of("nothing presented", hello(role).hello))
        .collect();
    let users = [
        "nobody",
        "Alice",
        "alice ",
        "alice\0",
        "*",
        "' OR 1=1 --",
        "../../etc/shadow",
        "alice\nroot",
        "\u{202e}ecila",
        "$SYS",
    ];
    all.extend(users.map(|user| of("the right password of another name", password(user, PASSWORD))));
    let passwords = [
        "x",
        "correct horse battery stapl",
        "Correct horse battery staple",
        "correct horse battery staple ",
        "$argon2id$v=19$m=19456,t=2,p=1$",
    ];
    all.extend(passwords.map(|text| of("a wrong password", password("alice", text))));
    all.push(of("a password of 512 bytes", password("alice", &"x".repeat(512))));
    all.push(of("the password of a user who has none", password("carol", PASSWORD)));
    let cut = &good[..good.len() - 1];
    let (longer, upper) = (format!("{good}A"), good.to_uppercase());
    let hash = format!("{:?}", TokenHash::of(&Secret::from(good.to_owned())));
    let tokens =
        ["rbmq_", cut, &longer, &upper, &hash, PASSWORD, "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."];
    all.extend(tokens.map(|text| of("a wrong token", token(text))));
    all.push(of("a token of 3,072 bytes", token(&"x".repeat(3072))));
    all.push(of("a token as the password", password("alice", good)));
    all
}

/// Logins whose form is wrong.
fn malformed() -> Vec<Exchange> {
    let good = password("alice", PASSWORD);
    let plain = introduction().encode().len();
    let mut all: Vec<Exchange> = (plain..good.len())
        .map(|at| exchange("malformed logins", "a login, cut at each of its bytes", good[..at].to_vec()))
        .collect();
    all.push(exchange("malformed logins", "a login with a byte more", [&good[..], b"\0"].concat()));
    for kind in [0, 3, 4, 127, 255] {
        let mut bytes = good.clone();
        bytes[6] = kind;
        all.push(exchange("malformed logins", "a kind of credentials that does not exist", bytes));
    }
    for empty in [password("alice", ""), password("", PASSWORD), token("")] {
        all.push(exchange("malformed logins", "an empty name, password or token", empty));
    }
    let mut old = good.clone();
    old[4] = 1;
    all.push(exchange("malformed logins", "credentials in a version without them", old));
    let mut text = good;
    let end = text.len() - 1;
    text[end] = 0xff;
    all.push(exchange("malformed logins", "a password that is no UTF-8", text));
    all
}

#[test]
fn wrong_logins_all_get_the_same_answer_and_others_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.toml");
    let good = new_token().expect("random bytes");
    let mut file = UsersFile::edit(&path).expect("a file");
    let hash = PasswordHash::of(&Secret::from(PASSWORD.to_owned())).expect("a hash");
    file.set_password("alice", &hash).expect("a user");
    file.add_token("t", "alice", &TokenHash::of(&good), std::time::SystemTime::now(), None).expect("a token");
    file.save().expect("a file");
    let config = folder.path().join("rbmq.toml");
    let rule = "[[access.rules]]\nusers = ['*']\npublish = ['#']\nsubscribe = ['#']\n";
    std::fs::write(&config, rule).expect("a file");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let mut broker = BrokerProcess::start_with(&["--users", &text(&path), "--config", &text(&config)]);
    let publisher = Publisher::builder().token(good.expose()).connect(&broker.addr).expect("a right token");
    let subscriber = Subscriber::builder().token(good.expose()).connect(&broker.addr).expect("a right token");
    let mut bystanders = Bystanders::with(&publisher, subscriber, "bystanders");
    let mut corpus = wrong(good.expose());
    let uniform = corpus.len();
    corpus.extend(malformed());
    for (n, exchange) in corpus.iter().enumerate() {
        let (outcome, reason) = exchange.run(&broker.addr);
        assert_eq!(outcome, exchange.outcome, "{}: {reason}", exchange.name);
        let same = reason == NOT_AUTHENTICATED || reason.starts_with("too many failed logins from there");
        assert!(n >= uniform || same, "{}: {reason}", exchange.name);
        bystanders.go_on(&exchange.name);
    }
    assert!(broker.process.is_running());
    table::check("LOGINS.md", table::LOGINS, &corpus);
}
