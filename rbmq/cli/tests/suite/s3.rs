//! Kept topics with a real object store below their disk: the S3 of moto, a program in Python (`scripts/test s3` installs it).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Process, Proxy, own_port, until};

use crate::cluster::archived_numbers_stay;
use crate::common::archived::{Engine, are_one_log};
use crate::common::rbmq;

/// A store with a bucket that checks signatures, and the way to it, which can be cut.
struct Store {
    _process: Process,
    addr: String,
    proxy: Proxy,
    /// The access key as its file has it.
    key: String,
}

/// What somebody may do who has no key yet.
const POLICY: &str = "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":\"s3:*\",\"Resource\":\"*\"}]}";

impl Store {
    /// Starts one. None, with the reason printed, where it cannot be had.
    fn start() -> Option<Self> {
        let Ok(program) = std::env::var("S3_SERVER") else {
            // Past the harness, which captures what tests print.
            std::io::stderr()
                .write_all(b"SKIPPED: object stores (S3_SERVER names no moto_server)\n")
                .unwrap();
            return None;
        };
        let (port, mut command) = (own_port(), Command::new(program));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        // These are the bucket, the user, the right and the key.
        command.env("INITIAL_NO_AUTH_ACTION_COUNT", "4");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (process, addr) = (Process::start(command), format!("127.0.0.1:{port}"));
        until("the store starts", || TcpStream::connect(&addr).is_ok());
        let mut store = Self { _process: process, proxy: Proxy::to(&addr), addr, key: String::new() };
        store.ask("PUT /bucket", "s3", "");
        store.ask("POST /", "iam", "Action=CreateUser&UserName=u");
        let policy = format!("Action=PutUserPolicy&UserName=u&PolicyName=p&PolicyDocument={POLICY}");
        store.ask("POST /", "iam", &policy);
        let made = store.ask("POST /", "iam", "Action=CreateAccessKey&UserName=u");
        let part = |tag: &str| {
            let (_, rest) = made.split_once(&format!("<{tag}>")).expect("a part of a key");
            rest.split('<').next().expect("its end").to_owned()
        };
        store.key = format!("{}\n{}\n", part("AccessKeyId"), part("SecretAccessKey"));
        Some(store)
    }

    /// Asks for what needs no key yet.
    fn ask(&self, what: &str, service: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        let scope = format!(
            "Credential=a/20130524/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=0"
        );
        write!(
            stream,
            "{what} HTTP/1.1\r\nHost: {}\r\nAuthorization: AWS4-HMAC-SHA256 {scope}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.addr,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }

    fn section(&self, dir: &Path) -> String {
        let key = dir.join("key");
        private_files::write(&key, self.key.as_bytes()).unwrap();
        format!(
            "[s3]\nendpoint = 'http://{}'\nbucket = 'bucket'\naccess_key_file = '{}'",
            self.proxy.addr,
            key.display()
        )
    }
}

impl Engine for Store {
    fn kill(&mut self) {
        self.proxy.cut();
    }

    fn run(&mut self) {
        self.proxy.restore();
    }

    fn pause(&mut self) {
        self.proxy.stall_after(0);
    }

    fn go_on(&mut self) {
        self.proxy.go_on();
    }
}

#[test]
fn store_disk_and_ring_are_one_log_while_broker_and_store_are_killed() {
    let Some(mut store) = Store::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let section = store.section(dir.path());
    are_one_log(&mut store, "archive = 's3'", &section);
}

#[test]
fn what_was_archived_is_in_the_log_whatever_happens_to_its_owners() {
    let Some(store) = Store::start() else { return };
    archived_numbers_stay(|folder| store.section(folder));
}

#[test]
fn a_broker_without_an_access_key_says_where_it_is_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    let text = format!(
        "[broker]\nkeep_dir = '{}'\n[[broker.topics]]\npattern = 'a'\nkeep = true\narchive = 's3'\n[s3]\nbucket = 'b'\n",
        dir.path().join("kept").display()
    );
    std::fs::write(&path, text).unwrap();
    let mut serve = rbmq(["serve", "--listen", "127.0.0.1:0", "--config", path.to_str().unwrap()]);
    for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        serve.env_remove(variable);
    }
    let refused = Process::start(serve).finish();
    assert!(refused.stderr.contains("s3.access_key_file") && !refused.status.success(), "{}", refused.stderr);
}
