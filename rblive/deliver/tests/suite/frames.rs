//! HTTP/2, frame by frame: what is overtaken resets its stream alone, and clients that are no viewers are disconnected.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rblive_deliver::{Patience, Settings};
use rustls::{ClientConnection, StreamOwned};
use testkit::until;

use crate::lab::{Files, Got, Lab, NAME, media, tls};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A client that sends any frames.
struct Client(StreamOwned<ClientConnection, TcpStream>);

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    body: Vec<u8>,
}

impl Client {
    fn new(lab: &Lab, files: &Files) -> Self {
        let mut own = Self(tls(lab.server.addr(), files.client(b"h2")));
        own.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        own.frame(SETTINGS, 0, 0, &[]).unwrap();
        own
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, body: &[u8]) -> io::Result<()> {
        let mut frame = (body.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(body);
        self.0.write_all(&frame)
    }

    /// A request: GET, https, and literals without an index for the path and the authority.
    fn get(&mut self, stream: u32, path: &str) -> io::Result<()> {
        let mut block = vec![0x82, 0x87, 0x04, path.len() as u8];
        block.extend(path.as_bytes());
        block.extend([0x01, 1, b'x']);
        self.frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
    }

    fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut body)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(Frame { kind: head[3], flags: head[4], stream, body })
    }

    /// The next frame of a stream. Settings are acknowledged on the way.
    fn next_of(&mut self, stream: u32) -> Frame {
        loop {
            let frame = self.read().unwrap();
            if frame.kind == SETTINGS && frame.flags == 0 {
                self.frame(SETTINGS, 1, 0, &[]).unwrap();
            }
            if frame.stream == stream && frame.kind != WINDOW_UPDATE {
                return frame;
            }
        }
    }

    /// The data of a stream up to its end.
    fn data_of(&mut self, stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let frame = self.next_of(stream);
            assert_eq!(frame.kind, DATA);
            all.extend(frame.body);
            if frame.flags & END_STREAM != 0 {
                return all;
            }
        }
    }

    /// Reads until the connection ends.
    fn read_to_end(&mut self) {
        while self.read().is_ok() {}
    }

    fn open_windows(&mut self, stream: u32) {
        for stream in [0, stream] {
            self.frame(WINDOW_UPDATE, 0, stream, &(1_u32 << 30).to_be_bytes()).unwrap();
        }
    }
}

/// Asks over HTTP/1.1.
fn get(lab: &Lab, files: &Files, path: &str) -> Got {
    let mut own = tls(lab.server.addr(), files.client(b"http/1.1"));
    write!(own, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    Got::read(own)
}

fn metrics(lab: &Lab, files: &Files) -> String {
    String::from_utf8(get(lab, files, "/metrics").body).unwrap()
}

/// Waits until the metrics have this line.
fn counted(lab: &Lab, files: &Files, line: &str) {
    until(line, || metrics(lab, files).contains(line));
}

/// HTTP/2 has the path in a field of its own, which a client can leave out, or send without a path.
#[test]
fn a_request_without_a_path_is_answered() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    let mut client = Client::new(&lab, &files);
    for (stream, block) in [(1, &[0x82, 0x87][..]), (3, &[0x82, 0x87, 0x04, 1, b'#'])] {
        client.frame(HEADERS, END_STREAM | END_HEADERS, stream, block).unwrap();
        assert_eq!(client.next_of(stream).kind, HEADERS, "{block:?}");
        assert!(client.data_of(stream).starts_with(b"there is nothing"));
    }
}

/// A proxy passes on what a client has put before its address, whatever that is.
#[test]
fn a_request_of_a_proxy_counts_for_the_viewer_whatever_the_viewer_said() {
    let files = Files::new();
    let proxies = vec!["127.0.0.1".to_owned()];
    let lab = Lab::new(Settings { max_requests_per_address: 1, proxies, ..files.settings() }, 256 << 10, 5);
    let mut client = Client::new(&lab, &files);
    for viewer in 1..50_u8 {
        let stream = u32::from(viewer) * 2 - 1;
        let said = [b"\xff, 192.0.2.", viewer.to_string().as_bytes()].concat();
        let name = b"x-forwarded-for";
        let field = [&[0, name.len() as u8], &name[..], &[said.len() as u8], &said].concat();
        let block = [&[0x82, 0x87, 0x04, 7][..], b"/health", &field].concat();
        client.frame(HEADERS, END_STREAM | END_HEADERS, stream, &block).unwrap();
        assert_eq!(client.next_of(stream).kind, HEADERS);
        assert_eq!(client.data_of(stream), b"ok\n", "viewer {viewer}");
    }
}

#[test]
fn a_response_that_is_overtaken_resets_its_stream_and_the_others_go_on() {
    const BIG: usize = 4 << 20;
    let files = Files::new();
    let lab = Lab::new(files.settings(), (BIG + 4096) as u64, 4);
    lab.describe();
    lab.part(0, 0, BIG);
    lab.part(0, 1, 1000);
    lab.playlist_with("\"0.0.m4s\"", |path| get(&lab, &files, path));
    let mut client = Client::new(&lab, &files);
    // The window of a stream has 65,535 bytes: the response stands still behind them.
    client.get(1, &format!("/live/{NAME}/1/0.0.m4s")).unwrap();
    assert_eq!(client.next_of(1).kind, HEADERS);
    let mut got = Vec::new();
    while got.len() < 65_535 {
        got.extend(client.next_of(1).body);
    }
    for number in 1..12 {
        lab.describe();
        lab.part(number, 0, BIG);
        lab.part(number, 1, 1000);
    }
    client.get(3, &format!("/live/{NAME}/1/media.m3u8?_HLS_msn=11")).unwrap();
    assert_eq!(client.next_of(3).kind, HEADERS);
    client.open_windows(1);
    let reset = loop {
        let frame = client.next_of(1);
        if frame.kind != DATA {
            break frame;
        }
        assert_eq!(frame.flags & END_STREAM, 0, "the response cannot be whole");
        got.extend(frame.body);
    };
    assert_eq!(reset.kind, RST_STREAM, "{reset:?}");
    assert!(
        got.len() < BIG && media(0, 0, BIG).starts_with(&got),
        "what came is not mixed: {} bytes",
        got.len()
    );
    // Another stream of the connection gets all of a segment.
    client.get(5, &format!("/live/{NAME}/1/11.0.m4s")).unwrap();
    client.open_windows(5);
    assert_eq!(client.next_of(5).kind, HEADERS);
    assert!(client.data_of(5) == media(11, 0, BIG));
    assert!(metrics(&lab, &files).contains("rblive_overtaken_responses_total 1\n"));
}

/// Sends frames until the server has enough of them.
fn floods(lab: &Lab, files: &Files, send: impl Fn(&mut Client, u32) -> io::Result<()>) {
    let mut client = Client::new(lab, files);
    // A client that is disconnected finds out when it writes or reads.
    let mut number = 1;
    while send(&mut client, number).is_ok() && number < 10_000_000 {
        number += 2;
    }
    client.read_to_end();
    assert!(number < 10_000_000, "the server took everything");
}

#[test]
fn floods_of_frames_end_their_connection_and_no_other() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    lab.segments(0..2, 1000);
    let mut viewer = Client::new(&lab, &files);
    floods(&lab, &files, |client, _| client.frame(PING, 0, 0, &[0; 8]));
    counted(&lab, &files, "rblive_flooding_clients_total 1\n");
    floods(&lab, &files, |client, _| client.frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
    counted(&lab, &files, "rblive_flooding_clients_total 2\n");
    floods(&lab, &files, |client, _| client.frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
    counted(&lab, &files, "rblive_flooding_clients_total 3\n");
    // Frames of an unknown kind are ignored, and count.
    floods(&lab, &files, |client, _| client.frame(0xbe, 0, 0, &[0; 1000]));
    counted(&lab, &files, "rblive_flooding_clients_total 4\n");
    viewer.get(1, "/health").unwrap();
    assert_eq!(viewer.next_of(1).kind, HEADERS);
    assert_eq!(viewer.next_of(1).body, b"ok\n");
}

#[test]
fn requests_that_are_reset_at_once_end_their_connection() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| get(&lab, &files, path));
    // The request would wait for a segment.
    let path = format!("/live/{NAME}/1/media.m3u8?_HLS_msn=2");
    floods(&lab, &files, |client, number| {
        client.get(number, &path)?;
        client.frame(RST_STREAM, 0, number, &8_u32.to_be_bytes())
    });
    let mut viewer = Client::new(&lab, &files);
    viewer.get(1, "/health").unwrap();
    assert_eq!(viewer.next_of(1).kind, HEADERS);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_the_others_answered() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| get(&lab, &files, path));
    let mut client = Client::new(&lab, &files);
    client.get(1, "/health").unwrap();
    assert_eq!(client.next_of(1).kind, HEADERS);
    let path = format!("/live/{NAME}/1/media.m3u8?_HLS_msn=2");
    let all: Vec<u32> = (0..40).map(|at| 3 + 2 * at).collect();
    all.iter().for_each(|stream| client.get(*stream, &path).unwrap());
    let mut next = |kind: u8| loop {
        let frame = client.read().unwrap();
        assert_ne!(frame.kind, GOAWAY, "{frame:?}");
        if frame.kind == kind {
            break;
        }
    };
    (0..all.len() - 32).for_each(|_| next(RST_STREAM));
    lab.segments(2..3, 1000);
    (0..32).for_each(|_| next(HEADERS));
}

#[test]
fn responses_that_nobody_takes_end_their_connection() {
    let files = Files::new();
    let settings = Settings { min_bytes_per_second: 1 << 30, ..files.settings() };
    let lab = Lab::new(settings, 4 << 20, 5);
    lab.describe();
    lab.part(0, 0, 2 << 20);
    lab.part(0, 1, 1000);
    lab.playlist_with("\"0.0.m4s\"", |path| get(&lab, &files, path));
    let mut client = Client::new(&lab, &files);
    client.get(1, &format!("/live/{NAME}/1/0.0.m4s")).unwrap();
    client.read_to_end();
    counted(&lab, &files, "rblive_slow_viewers_total 1\n");
}

#[test]
fn a_connection_without_requests_is_closed() {
    let files = Files::new();
    let patience = Patience { idle: Duration::from_secs(1), settle: Duration::ZERO, ..Patience::default() };
    let lab = Lab::with(files.settings(), patience, 256 << 10, 5);
    let mut client = Client::new(&lab, &files);
    let goaway = loop {
        let frame = client.read().unwrap();
        match frame.kind {
            GOAWAY => break frame,
            PING if frame.flags == 0 => client.frame(PING, 1, 0, &frame.body).unwrap(),
            _ => {}
        }
    };
    assert_eq!(goaway.body[4..8], [0; 4], "no error");
    let mut asks = Client::new(&lab, &files);
    asks.get(1, "/health").unwrap();
    assert_eq!(asks.next_of(1).kind, HEADERS);
}
