//! TLS from `rbmq keygen` to a message, as a user sets it up.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::Process;

use crate::common::operator::Operated;
use crate::common::setup::{Setup, run};
use crate::common::{piped, rbmq};

fn publish(addr: &str, options: &[String]) -> Result<String, String> {
    let args = ["pub", "news", "--broker", addr].into_iter().chain(options.iter().map(String::as_str));
    run(&args.collect::<Vec<_>>(), b"hello\n")
}

/// Publishes as soon as there is a subscriber.
fn publish_to_one(addr: &str, options: &[String]) -> Result<String, String> {
    publish(addr, &[options, &["--wait-subscribers".into(), "1".into()]].concat())
}

/// A subscriber that ends after one message.
fn subscriber(addr: &str, options: &[String]) -> Process {
    let args = ["sub", "news", "--count", "1", "--broker", addr];
    let args = args.into_iter().chain(options.iter().map(String::as_str));
    Process::start(piped(rbmq(args)))
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o777
}

#[test]
fn keys_are_secret_and_nothing_is_overwritten() {
    let setup = Setup::new();
    for name in ["ca", "server", "client"] {
        assert_eq!(mode(&setup.file(&format!("tls/{name}-key.pem"))), 0o600, "{name}");
        assert_eq!(mode(&setup.file(&format!("tls/{name}.pem"))), 0o644, "{name}");
    }
    assert_eq!(mode(&setup.file("tls")), 0o700);
    let tls = setup.text("tls");
    for again in
        [&["keygen", "ca", &tls][..], &["keygen", "server", &tls], &["keygen", "client", &tls, "client"]]
    {
        let error = run(again, b"").expect_err("the files exist");
        assert!(error.contains("move it away"), "{error}");
    }
    let error = run(&["keygen", "client", &setup.text("empty"), "a"], b"").expect_err("no authority");
    assert!(error.contains("rbmq keygen ca"), "{error}");
    for wrong in ["ca", "../a", ".a", "a/b"] {
        assert!(run(&["keygen", "client", &tls, wrong], b"").is_err(), "{wrong}");
    }
}

#[test]
fn a_large_message_passes_with_tls() {
    let setup = Setup::new();
    let broker = Operated::start(&setup.config("client_certificates = 'require'\n"), &[]);
    let options = setup.options(true);
    let mut waiting = subscriber(&broker.addr, &options);
    let args = ["pub", "news", "--wait-subscribers", "1", "--broker", &broker.addr]
        .into_iter()
        .chain(options.iter().map(String::as_str));
    let line = [vec![b'x'; 5 << 20], vec![b'\n']].concat();
    run(&args.collect::<Vec<_>>(), &line).expect("a publisher with a certificate");
    waiting.stdin();
    assert!(waiting.finish().good().text().as_bytes() == line);
    broker.end();
}

#[test]
fn messages_pass_with_tls_and_whoever_does_it_wrong_learns_what_to_do() {
    let setup = Setup::new();
    let broker = Operated::start(&setup.config("client_certificates = 'require'\n"), &[]);
    let options = setup.options(true);
    let mut waiting = subscriber(&broker.addr, &options);
    publish_to_one(&broker.addr, &options).expect("a publisher with a certificate");
    waiting.stdin();
    assert_eq!(waiting.finish().good().text(), "hello\n");

    let plain = publish(&broker.addr, &[]).expect_err("TLS is required");
    assert!(plain.contains("--tls"), "{plain}");
    let nobody = publish(&broker.addr, &setup.options(false)).expect_err("a certificate is required");
    assert!(nobody.contains("requires a certificate") && nobody.contains("--cert"), "{nobody}");
    let other = Setup::new();
    let stranger = publish(&broker.addr, &other.options(true)).expect_err("another authority");
    assert!(stranger.contains("--ca"), "{stranger}");
    let mut named = options.clone();
    named.extend(["--server-name".into(), "other.example".into()]);
    let wrong = publish(&broker.addr, &named).expect_err("another name");
    assert!(wrong.contains("other.example") && wrong.contains("--server-name"), "{wrong}");
    let log = broker.end();
    assert!(log.contains("does not speak TLS"), "{log}");
}

#[test]
fn a_reload_reads_the_certificates_again_and_no_connection_is_lost() {
    let setup = Setup::new();
    let broker = Operated::start(&setup.config(""), &[]);
    let options = setup.options(false);
    let mut waiting = subscriber(&broker.addr, &options);
    broker.wait_log("subscriber ");
    let tls = setup.text("tls");
    for name in ["server.pem", "server-key.pem"] {
        std::fs::rename(setup.file(&format!("tls/{name}")), setup.file(name)).expect("a file");
    }
    broker.signal("HUP");
    broker.wait_log("certificates: not reloaded, the old ones stay");
    publish_to_one(&broker.addr, &options).expect("the old certificate works");
    run(&["keygen", "server", &tls], b"").expect("another certificate");
    broker.signal("HUP");
    broker.wait_log("certificates: read again");
    publish(&broker.addr, &options).expect("the new certificate works");
    waiting.stdin();
    assert_eq!(waiting.finish().good().text(), "hello\n");
    broker.end();
}

#[test]
fn certificates_that_variables_name_are_read_again_too() {
    let setup = Setup::new();
    let (certificate, key) = (setup.text("tls/server.pem"), setup.text("tls/server-key.pem"));
    let variables = [
        ("ROCKETBUFS_TLS_MODE", "require"),
        ("ROCKETBUFS_TLS_CERT", &certificate),
        ("ROCKETBUFS_TLS_KEY", &key),
    ];
    let broker = Operated::start_as(&[], &variables);
    let options = setup.options(false);
    publish(&broker.addr, &options).expect("the certificate works");
    std::fs::remove_file(&certificate).expect("a file");
    broker.signal("HUP");
    broker.wait_log("certificates: not reloaded, the old ones stay");
    std::fs::remove_file(&key).expect("a file");
    run(&["keygen", "server", &setup.text("tls")], b"").expect("another certificate");
    broker.signal("HUP");
    broker.wait_log("certificates: read again");
    publish(&broker.addr, &options).expect("the new certificate works");
    broker.end();
}

#[test]
fn who_is_revoked_does_not_get_in_after_a_reload() {
    let setup = Setup::new();
    let tls = setup.text("tls");
    run(&["keygen", "client", &tls, "mallory"], b"").expect("a certificate");
    let said = run(&["keygen", "revoke", &tls], b"").expect("an empty list");
    assert!(said.contains("0 revoked") && said.contains("crl = \""), "{said}");
    let config = setup.config(&format!("client_certificates = 'require'\ncrl = '{tls}/crl.pem'\n"));
    let broker = Operated::start(&config, &[]);
    let mallory: Vec<String> =
        setup.options(true).iter().map(|option| option.replace("/client", "/mallory")).collect();
    publish(&broker.addr, &mallory).expect("not revoked yet");
    for _ in 0..2 {
        let said = run(&["keygen", "revoke", &tls, "mallory"], b"").expect("a list");
        assert!(said.contains("has 1 revoked"), "{said}");
    }
    assert_eq!(mode(&setup.file("tls/crl.pem")), 0o644);
    run(&["keygen", "revoke", &tls, "nobody"], b"").expect_err("there is no such certificate");
    broker.signal("HUP");
    broker.wait_log("certificates: read again");
    let refused = publish(&broker.addr, &mallory).expect_err("it is revoked");
    assert!(refused.contains("was revoked"), "{refused}");
    publish(&broker.addr, &setup.options(true)).expect("another certificate");
    let check =
        run(&["check", "tls", "--config", config.to_str().expect("UTF-8")], b"").expect("all is well");
    assert!(check.contains("tls revoked") && check.contains("crl.pem: 1 of"), "{check}");
    let log = broker.end();
    assert!(log.contains("A list in tls.crl names it"), "{log}");
    std::fs::write(setup.file("tls/crl.pem"), "no list").expect("a file");
    run(&["check", "tls", "--config", config.to_str().expect("UTF-8")], b"").expect_err("it is no list");
}

#[test]
fn a_chain_of_brokers_is_encrypted_with_the_same_settings() {
    let setup = Setup::new();
    let first = Operated::start(&setup.config("client_certificates = 'require'\n"), &[]);
    let upstream =
        format!("client_certificates = 'require'\n[[broker.upstream]]\naddress = '{}'\n", first.addr);
    let second = Operated::start(&setup.config(&upstream), &[]);
    let options = setup.options(true);
    let mut waiting = subscriber(&second.addr, &options);
    publish_to_one(&first.addr, &options).expect("a publisher");
    waiting.stdin();
    assert_eq!(waiting.finish().good().text(), "hello\n");
    second.end();
    first.end();
}

#[test]
fn the_check_names_what_is_wrong() {
    let setup = Setup::new();
    let config = setup.config("");
    let check = || run(&["check", "tls", "--config", config.to_str().expect("UTF-8")], b"");
    let said = check().expect("all is well");
    for part in ["tls provider", "in the process", "broker.example", "fit together", "mode 0600"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let key = setup.file("tls/server-key.pem");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).expect("a file");
    assert!(check().expect("a warning").contains("chmod 600"));
    std::fs::copy(setup.file("tls/client-key.pem"), &key).expect("a file");
    check().expect_err("the key is another's");
    let serve = Process::start(piped(rbmq(["serve", "--config", config.to_str().expect("UTF-8")]))).finish();
    assert!(!serve.status.success() && serve.stderr.contains("does not belong"), "{}", serve.stderr);
}

#[test]
fn a_limit_on_bytes_per_second_holds_with_tls() {
    let setup = Setup::new();
    let limits =
        "[quotas]\naddress_in_bytes_per_s = 200000\naddress_out_bytes_per_s = 200000\nrate_burst_ms = 100\n";
    let broker = Operated::start(&setup.config(limits), &[]);
    let options = setup.options(false);
    let text = crate::common::lines("a line of some length, so that there are not too many of them", 4_000);
    let begin = std::time::Instant::now();
    let args = ["pub", "news", "--ring-bytes", "64K", "--broker", &broker.addr];
    let args = args.into_iter().chain(options.iter().map(String::as_str));
    run(&args.collect::<Vec<_>>(), text.as_bytes()).expect("it is only delayed");
    // All but the burst, and as much that had been granted before.
    let least = (text.len() - 40_000) as f64 / 200_000.0;
    assert!(begin.elapsed().as_secs_f64() >= least, "{:?} instead of {least} s", begin.elapsed());
    broker.end();
}
