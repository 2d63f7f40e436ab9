//! The HTTP endpoint with TLS, as scrapers and operators see it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{LONG, Process, until};

use crate::common::operator::Operated;
use crate::common::secure::{chain, config, connect};
use crate::common::setup::{Setup, run};
use crate::common::{piped, rbmq};

const TOKEN: &str = "0123456789abcdef";

/// A broker with an endpoint, and the address of the endpoint.
fn start(setup: &Setup, http: &str) -> (Operated, String) {
    let config = setup.config(&format!("[http]\nlisten = '127.0.0.1:0'\n{http}"));
    let broker = Operated::start(&config, &[]);
    let addr = broker.wait_said("rbmq: metrics on https://");
    (broker, addr.trim_end_matches("/metrics").to_owned())
}

/// The settings of a token, whose file exists then.
fn token(setup: &Setup) -> String {
    let path = setup.file("token");
    write_secret(&path, TOKEN);
    format!("token_file = '{}'\n", path.display())
}

fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("a file");
}

fn request(more: &str) -> String {
    request_for("/health", more)
}

fn request_for(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n")
}

/// The head of the answer to a request over TLS; `own`: the name of the client's certificate.
fn ask(
    setup: &Setup,
    addr: &str,
    own: Option<&str>,
    protocols: &[&[u8]],
    more: &str,
) -> Result<String, String> {
    exchange(setup, addr, own, protocols, &request(more))
}

/// The answer to any request over TLS.
fn exchange(
    setup: &Setup,
    addr: &str,
    own: Option<&str>,
    protocols: &[&[u8]],
    request: &str,
) -> Result<String, String> {
    let file = |name: &str| setup.file(&format!("tls/{name}.pem"));
    let own = own.map(|own| (file(own), file(&format!("{own}-key"))));
    let own = own.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
    let mut stream = connect(config(&file("ca"), own, protocols), addr).map_err(|error| error.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = String::new();
    // An end without close_notify is an error of rustls.
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
    Ok(answer)
}

/// The answer to these bytes from a client without TLS.
fn plain(addr: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).expect("a listener");
    stream.set_read_timeout(Some(LONG)).expect("a time");
    stream.write_all(bytes).expect("a peer");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_scraper_gets_its_pages_over_tls_and_a_client_without_it_learns_why_not() {
    let setup = Setup::new();
    let (broker, addr) = start(&setup, &token(&setup));
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for protocols in [&[][..], &[&b"http/1.1"[..]], &[&b"h2"[..], b"http/1.1"]] {
        let answer = ask(&setup, &addr, None, protocols, &bearer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"healthy\":true"), "{answer}");
        let answer = ask(&setup, &addr, None, protocols, "").expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let foreign = ask(&setup, &addr, None, &[b"rocketbufs/1"], &bearer).expect_err("another protocol");
    assert!(foreign.contains("NoApplicationProtocol"), "{foreign}");
    let answer = plain(&addr, request(&bearer).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");
    let stranger = ask(&Setup::new(), &addr, None, &[], &bearer).expect_err("another authority");
    assert!(stranger.contains("UnknownIssuer") || stranger.contains("certificate"), "{stranger}");
    broker.wait_log("a TLS handshake at the HTTP endpoint failed");
    let answer = ask(&setup, &addr, None, &[], &bearer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    broker.end();
}

#[test]
fn a_line_turns_tls_off_and_on_whatever_the_broker_has() {
    let setup = Setup::new();
    let config = setup.config("[http]\nlisten = '127.0.0.1:0'\ntls = 'off'\n");
    let broker = Operated::start(&config, &[]);
    let addr = broker.wait_said("rbmq: metrics on http://");
    assert!(plain(addr.trim_end_matches("/metrics"), request("").as_bytes()).starts_with("HTTP/1.1 200"));
    broker.end();
    // With certificates of its own, of a broker without TLS.
    let path = setup.file("own.toml");
    let tls = setup.text("tls");
    let own = format!(
        "[http]\nlisten = '127.0.0.1:0'\ntls = 'require'\ncert = '{tls}/server.pem'\nkey = '{tls}/server-key.pem'\n"
    );
    std::fs::write(&path, &own).expect("a file");
    let broker = Operated::start(&path, &[]);
    let addr = broker.wait_said("rbmq: metrics on https://");
    let answer = ask(&setup, addr.trim_end_matches("/metrics"), None, &[], "").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    broker.end();
    for (text, wrong) in [
        ("[http]\nlisten = '127.0.0.1:0'\ntls = 'require'\n".to_owned(), "no certificate"),
        (own.replace("server-key.pem", "client-key.pem"), "http.key: the key in"),
        (own.replace("/server.pem", "/nothing.pem"), "http.cert: cannot read"),
        (format!("{own}client_certificates = 'require'\n"), "tls.ca is not"),
        ("[http]\nclient_certificates = 'require'\n".to_owned(), "http.tls = \"require\""),
        ("[http]\ntls = 'sometimes'\n".to_owned(), "auto"),
    ] {
        std::fs::write(&path, text).expect("a file");
        let args = ["serve", "--listen", "127.0.0.1:0", "--config", path.to_str().expect("UTF-8")];
        let outcome = Process::start(piped(rbmq(args))).finish();
        assert!(!outcome.status.success() && outcome.stderr.contains(wrong), "{wrong}: {}", outcome.stderr);
    }
}

#[test]
fn clients_show_certificates_where_they_are_asked_for_them() {
    let setup = Setup::new();
    let (broker, addr) = start(&setup, "client_certificates = 'require'\n");
    let answer = ask(&setup, &addr, Some("client"), &[], "").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let nobody = ask(&setup, &addr, None, &[], "").expect_err("no certificate");
    assert!(nobody.contains("CertificateRequired"), "{nobody}");
    broker.end();
    let (broker, addr) = start(&setup, "client_certificates = 'optional'\n");
    for own in [None, Some("client")] {
        assert!(ask(&setup, &addr, own, &[], "").expect("an answer").starts_with("HTTP/1.1 200"));
    }
    broker.end();
}

/// Certificates of an authority that also signs those of publishers, and a file with two of their users.
fn with_users(certificates: &str) -> (Setup, String) {
    let setup = Setup::new();
    for name in ["carol", "mallory"] {
        run(&["keygen", "client", &setup.text("tls"), name], b"").expect("a certificate");
    }
    let user = |name: &str| format!("[[user]]\nname = '{name}'\ncertificates = ['CN={name}']\n");
    write_secret(&setup.file("users.toml"), &(user("carol") + &user("mallory")));
    let file = setup.text("users.toml");
    let http =
        format!("client_certificates = '{certificates}'\n[users]\nfile = '{file}'\n{}", observe("carol"));
    (setup, http)
}

fn observe(user: &str) -> String {
    format!("[[access.rules]]\nusers = ['{user}']\nobserve = true\n")
}

/// The status and the body of a page.
fn page(setup: &Setup, addr: &str, own: Option<&str>, path: &str, more: &str) -> (u16, String) {
    let answer = exchange(setup, addr, own, &[], &request_for(path, more)).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

#[test]
fn a_certificate_opens_the_pages_for_a_user_who_may_observe() {
    let (setup, http) = with_users("require");
    let audit = setup.text("audit.log");
    let (broker, addr) = start(&setup, &format!("{http}[audit]\nfile = '{audit}'\n"));
    let get = |own: &str, path: &str| page(&setup, &addr, Some(own), path, "");
    for path in ["/", "/metrics", "/topics"] {
        assert_eq!(get("carol", path).0, 200, "{path}");
        let (status, why) = get("mallory", path);
        assert!(status == 403 && why.contains("user 'mallory' may not observe the broker"), "{path}: {why}");
        let (status, why) = get("client", path);
        assert!(status == 403 && why.contains("of no user"), "{path}: {why}");
    }
    // A probe learns nothing of topics.
    for path in ["/health", "/ready"] {
        assert_eq!((get("mallory", path).0, get("client", path).0), (200, 200), "{path}");
    }
    broker.wait_log("refused at the HTTP endpoint: user 'mallory' may not observe the broker");
    until("the refusals are in the audit log", || {
        let lines = std::fs::read_to_string(&audit).unwrap_or_default();
        lines.contains("\"user\":\"mallory\"") && lines.contains("no user has the certificate CN=client")
    });
    // A reload takes the right from one user and gives it to another.
    setup.config(&format!("[http]\nlisten = '127.0.0.1:0'\n{}", http.replace("'carol'", "'mallory'")));
    broker.signal("HUP");
    broker.wait_log("HTTP endpoint: token and certificates read again");
    assert_eq!((get("carol", "/metrics").0, get("mallory", "/metrics").0), (403, 200));
    broker.end();
}

#[test]
fn without_a_certificate_the_token_opens_the_pages() {
    let (setup, http) = with_users("optional");
    let metrics = |addr: &str, own, more: &str| page(&setup, addr, own, "/metrics", more).0;
    let (broker, addr) = start(&setup, &http);
    assert_eq!([None, Some("carol"), Some("client")].map(|own| metrics(&addr, own, "")), [403, 200, 403]);
    assert_eq!(page(&setup, &addr, None, "/health", "").0, 200);
    broker.end();
    let (broker, addr) = start(&setup, &(token(&setup) + &http));
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!([None, Some("carol")].map(|own| metrics(&addr, own, "")), [401, 401]);
    let shown = [None, Some("carol"), Some("mallory"), Some("client")];
    assert_eq!(shown.map(|own| metrics(&addr, own, &bearer)), [200, 200, 403, 403]);
    broker.end();
}

#[test]
fn with_rules_and_no_users_a_rule_for_everybody_opens_the_pages() {
    let setup = Setup::new();
    for (user, expected) in [("*", 200), ("client", 403)] {
        let (broker, addr) = start(&setup, &format!("client_certificates = 'require'\n{}", observe(user)));
        assert_eq!(page(&setup, &addr, Some("client"), "/metrics", "").0, expected, "{user}");
        broker.end();
    }
}

#[test]
fn a_reload_takes_another_certificate_and_another_token() {
    let setup = Setup::new();
    let (broker, addr) = start(&setup, &token(&setup));
    let shown = || {
        let client = config(&setup.file("tls/ca.pem"), None, &[]);
        let stream = connect(client, &addr).expect("a handshake");
        stream.conn.peer_certificates().expect("a certificate")[0].clone().into_owned()
    };
    let before = shown();
    for name in ["server.pem", "server-key.pem"] {
        std::fs::rename(setup.file(&format!("tls/{name}")), setup.file(name)).expect("a file");
    }
    broker.signal("HUP");
    broker.wait_log("HTTP endpoint: not reloaded, the old token and certificates stay");
    assert_eq!(shown(), before);
    run(&["keygen", "server", &setup.text("tls")], b"").expect("another certificate");
    std::fs::write(setup.file("token"), "fedcba9876543210").expect("a file");
    broker.signal("HUP");
    broker.wait_log("HTTP endpoint: token and certificates read again");
    assert_eq!(shown(), chain(&setup.file("tls/server.pem"))[0]);
    let status = |token: &str| {
        let answer = ask(&setup, &addr, None, &[], &format!("Authorization: Bearer {token}\r\n"));
        answer.expect("an answer")[9..12].to_owned()
    };
    assert_eq!((status(TOKEN), status("fedcba9876543210")), ("401".into(), "200".into()));
    broker.end();
}

#[test]
fn an_endpoint_for_other_machines_needs_tls_and_a_token() {
    let setup = Setup::new();
    let (path, token) = (setup.file("open.toml"), token(&setup));
    let tls = setup.text("tls");
    let own = format!("tls = 'require'\ncert = '{tls}/server.pem'\nkey = '{tls}/server-key.pem'\n");
    let refused = |http: &str, more: &[&str]| {
        std::fs::write(&path, format!("[http]\nlisten = '0.0.0.0:0'\n{http}")).expect("a file");
        let args = ["serve", "--listen", "127.0.0.1:0", "--config", path.to_str().expect("UTF-8")];
        let outcome = Process::start(piped(rbmq(args.into_iter().chain(more.iter().copied())))).finish();
        assert!(!outcome.status.success());
        outcome.stderr
    };
    let neither = refused("", &[]);
    assert!(neither.contains("neither TLS nor a token") && neither.contains("--insecure"), "{neither}");
    assert!(refused(&token, &[]).contains("it has no TLS"));
    assert!(refused(&own, &[]).contains("it asks for no token"));
    std::fs::write(&path, format!("[http]\nlisten = '0.0.0.0:0'\n{own}{token}")).expect("a file");
    let broker = Operated::start(&path, &[]);
    broker.wait_said("rbmq: metrics on https://0.0.0.0:");
    broker.end();
}

#[test]
fn clients_that_never_finish_their_handshake_leave_room_for_others() {
    let setup = Setup::new();
    let (broker, addr) = start(&setup, "max_connections = 4\nheader_timeout_ms = 500\n");
    let mut silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(&addr).expect("a listener")).collect();
    silent[1].write_all(&[22]).expect("a peer");
    silent[2].write_all(b"\x16\x03\x01\x40\x00\x01").expect("a peer");
    silent[3]
        .write_all(&[0; 100_000])
        .or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
            _ => Err(error),
        })
        .expect("a peer");
    for stream in &mut silent {
        stream.set_read_timeout(Some(LONG)).expect("a time");
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        assert!(!matches!(ended, Err(error) if error.kind() == ErrorKind::WouldBlock), "it hangs");
    }
    until("there is room again", || {
        ask(&setup, &addr, None, &[], "").is_ok_and(|answer| answer.contains("200"))
    });
    broker.end();
}

/// Whether a program is there; says so if not.
fn has(program: &str, arguments: &[&str]) -> bool {
    let there = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let there = there.is_ok_and(|output| output.status.success());
    if !there {
        let _ = writeln!(std::io::stderr(), "SKIPPED: HTTPS with {program} (scripts/setup --tests)");
    }
    there
}

#[test]
fn openssl_python_and_curl_read_the_pages() {
    let setup = Setup::new();
    let (broker, addr) = start(&setup, "");
    let ca = setup.text("tls/ca.pem");
    if has("openssl", &["version"]) {
        let client = |version: &str| {
            let mut command = Command::new("openssl");
            command.args(["s_client", "-quiet", "-ign_eof", "-connect", &addr, version, "-CAfile", &ca]);
            command.args(["-verify_return_error", "-verify_ip", "127.0.0.1"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut process = Process::start(command);
            process.feed(request("").as_bytes());
            process.finish()
        };
        let answer = client("-tls1_3");
        assert!(answer.text().starts_with("HTTP/1.1 200"), "{answer:?}");
        assert!(!client("-tls1_2").status.success());
    }
    if has("python3", &["-c", "import ssl"]) {
        let program = "import sys, ssl, urllib.request as r\n\
            print(r.urlopen(sys.argv[1], context=ssl.create_default_context(cafile=sys.argv[2])).read().decode())";
        let said = output("python3", &["-c", program, &format!("https://{addr}/metrics"), &ca]);
        assert!(said.contains("rbmq_topics 0"), "{said}");
    }
    if has("curl", &["--version"]) {
        let said = output("curl", &["-sS", "--cacert", &ca, &format!("https://{addr}/health")]);
        assert!(said.contains("\"healthy\":true"), "{said}");
    }
    broker.end();
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_check_looks_at_the_certificates_of_the_endpoint() {
    let setup = Setup::new();
    let tls = setup.text("tls");
    let path = setup.config(&format!(
        "[http]\nlisten = '127.0.0.1:0'\ncert = '{tls}/server.pem'\nkey = '{tls}/client-key.pem'\n"
    ));
    let check = |path: &Path| run(&["check", "tls", "--config", path.to_str().expect("UTF-8")], b"");
    check(&path).expect_err("the key is another's");
    let gateway = "[[gateway]]\nprotocol = 'mqtt'\n";
    let path = setup.config(&format!("{gateway}cert = '{tls}/server.pem'\nkey = '{tls}/client-key.pem'\n"));
    check(&path).expect_err("the key is another's");
    let file = path.to_str().expect("UTF-8");
    run(&["config", "--check", file], b"").expect_err("a reload would fail");
    let good = setup.config(&format!("{gateway}[http]\nlisten = '127.0.0.1:0'\n"));
    let said = check(&good).expect("all is well");
    assert!(said.contains("HTTPS, and the certificate and its key fit together"), "{said}");
    assert!(said.contains("mqtt:127.0.0.1:1883: TLS, and the certificate"), "{said}");
}
