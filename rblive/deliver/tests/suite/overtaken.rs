//! New data takes the place of what a viewer asks for, before and while it is sent; a viewer that is too slow.

use std::io::{Read, Write};
use std::net::TcpStream;

use rblive_deliver::Settings;
use testkit::until;

use crate::lab::{Files, Got, Lab, NAME, WAIT, media, patient, tls};

const BIG: usize = 24 << 20;

#[test]
fn what_was_overwritten_before_is_gone() {
    let lab = Lab::plain();
    lab.segments(0..2, 100_000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    lab.segments(2..12, 100_000);
    let list = lab.playlist_with("\n11.m4s\n", |path| lab.get(path));
    assert!(!list.contains("\n0.m4s\n"), "{list}");
    for path in ["0.m4s", "0.0.m4s", "1.1.m4s"] {
        let got = lab.get(&format!("/live/{NAME}/1/{path}"));
        assert_eq!(got.status, 410, "{path}");
        assert!(String::from_utf8_lossy(&got.body).contains("older than what the server holds"));
    }
    let listed: Vec<&str> = list.lines().filter(|line| line.ends_with(".m4s")).collect();
    for uri in listed {
        assert_eq!(lab.get(&format!("/live/{NAME}/1/{uri}")).status, 200, "what is listed is held: {uri}");
    }
}

/// A viewer reads the beginning, the writer goes around the ring, and the viewer reads on.
fn overtake<V: Read + Write>(lab: &Lab, get: impl Fn(&str) -> Got, connect: impl Fn() -> V) {
    lab.describe();
    lab.part(0, 0, BIG);
    lab.part(0, 1, 1000);
    lab.playlist_with("\"0.0.m4s\"", get);
    let text = format!("GET /live/{NAME}/1/0.0.m4s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    // A viewer that connects and is silent for long is turned away.
    let mut viewer = connect();
    viewer.write_all(text.as_bytes()).unwrap();
    viewer.flush().unwrap();
    let mut begin = vec![0; 1000];
    viewer.read_exact(&mut begin).unwrap();
    for number in 1..6 {
        lab.describe();
        lab.part(number, 0, BIG);
        lab.part(number, 1, 1000);
    }
    let got = Got::read(begin.chain(viewer));
    assert_eq!(got.status, 200);
    assert!(!got.whole && got.body.len() < BIG, "{} bytes came", got.body.len());
    assert!(media(0, 0, BIG).starts_with(&got.body), "what came is not mixed");
}

#[test]
fn a_response_that_is_overtaken_ends_with_an_error_and_has_no_mixed_bytes() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), (BIG + 4096) as u64, 4);
    let connect = || tls(lab.server.addr(), files.client(b"http/1.1"));
    let get = |path: &str| {
        let mut own = connect();
        write!(own, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        Got::read(own)
    };
    overtake(&lab, get, connect);
    let metrics = String::from_utf8(get("/metrics").body).unwrap();
    assert!(metrics.contains("rblive_overtaken_responses_total 1\n"), "{metrics}");
}

#[test]
fn so_does_one_without_tls() {
    let lab = Lab::new(Settings { tls: false, ..patient() }, (BIG + 4096) as u64, 4);
    let connect = || {
        let viewer = TcpStream::connect(lab.server.addr()).unwrap();
        viewer.set_read_timeout(Some(WAIT)).unwrap();
        viewer
    };
    overtake(&lab, |path| lab.get(path), connect);
}

#[test]
fn a_viewer_that_takes_too_little_is_disconnected() {
    let settings = Settings { tls: false, min_bytes_per_second: 1 << 30, ..Settings::default() };
    let lab = Lab::new(settings, (BIG + 4096) as u64, 4);
    lab.describe();
    lab.part(0, 0, BIG);
    lab.part(0, 1, 1000);
    lab.playlist_with("\"0.0.m4s\"", |path| lab.get(path));
    let mut viewer = TcpStream::connect(lab.server.addr()).unwrap();
    write!(viewer, "GET /live/{NAME}/1/0.0.m4s HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let slow =
        || String::from_utf8(lab.get("/metrics").body).unwrap().contains("rblive_slow_viewers_total 1\n");
    until("the viewer is slow", slow);
    assert!(!Got::read(viewer).whole);
}
