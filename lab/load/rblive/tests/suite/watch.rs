//! Viewers for load: against a real node with a real push, and against servers that do what no server should.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use testkit::{Process, within};

use crate::node::Node;

fn load() -> Command {
    Command::new(env!("CARGO_BIN_EXE_rblive-load"))
}

fn watch(args: &[&str], url: &str) -> Output {
    load().arg("watch").args(["--json", "--quiet"]).args(args).arg(url).output().unwrap()
}

/// The JSON object, and what was said about the failure.
fn said(output: &Output) -> (Value, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    (serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{message}")), message)
}

/// A loaded machine may be late. No other error may be.
fn assert_only_late(run: &Value) {
    let kinds = run["errors_by_kind"].as_object().unwrap();
    assert!(kinds.keys().all(|kind| kind == "late"), "{run}");
}

/// Viewers check every frame of a push to a node.
fn check_a_push(args: &[&str]) {
    let node = Node::start();
    let mut push = load();
    push.args([
        "push",
        "--quiet",
        "--streams",
        "2",
        "--mbit",
        "1",
        "--key-every",
        "1",
        &node.encoders("load"),
    ]);
    let _push = Process::start(push);
    let [first, second] = [1, 2].map(|number| node.playlist(&format!("load{number}")));
    wait_for(&first);
    wait_for(&second);
    let common = ["--stamped", "--viewers", "9", "--threads", "2", "--ramp", "1", "--seconds", "4", &second];
    let (run, _) = said(&watch(&[args, &common].concat(), &first));
    assert_only_late(&run);
    assert_eq!(run["viewers"], 9, "{run}");
    assert!(run["stamped_frames"].as_u64().unwrap() >= 25, "{run}");
    assert!(run["media"].as_u64().unwrap() > run["inspected"].as_u64().unwrap(), "{run}");
    assert!(run["mbit_per_s"].as_f64().unwrap() > 0.0, "{run}");
}

#[test]
fn viewers_of_segments_check_every_frame() {
    check_a_push(&["--mode", "live"]);
}

#[test]
fn viewers_of_parts_check_every_frame() {
    check_a_push(&["--mode", "low-latency"]);
}

#[test]
fn viewers_over_http_2_check_every_frame() {
    check_a_push(&["--http", "2"]);
}

/// Waits until a stream can be watched.
fn wait_for(url: &str) {
    let mut seconds = 0.5;
    within(Duration::from_secs(120), &format!("something at {url}"), || {
        let mut viewer = load();
        viewer.args(["watch", "--quiet", "--ramp", "0", "--seconds", &seconds.to_string(), url]);
        // A busy machine takes longer for the first bytes.
        seconds = 10f64.min(seconds * 1.2);
        viewer.status().unwrap().success()
    });
}

/// A server with the given answers, of which a path's last one is repeated. More connections at once than `most` are closed.
struct Fake {
    address: SocketAddr,
}

type Answers = HashMap<&'static str, Vec<Vec<u8>>>;

impl Fake {
    fn start(answers: &[(&'static str, &[u8])], most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut table = Answers::new();
        for (path, answer) in answers {
            table.entry(path).or_default().push(answer.to_vec());
        }
        let (table, open) = (Arc::new(Mutex::new(table)), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                let (table, open) = (table.clone(), open.clone());
                std::thread::spawn(move || {
                    if open.fetch_add(1, Ordering::SeqCst) < most {
                        let _ = Self::serve(stream, &table);
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address }
    }

    fn serve(mut stream: TcpStream, table: &Mutex<Answers>) -> std::io::Result<()> {
        let mut head = Vec::new();
        loop {
            let mut byte = [0];
            if stream.read(&mut byte)? == 0 {
                return Ok(());
            }
            head.push(byte[0]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
            let path = text.split(' ').nth(1).unwrap();
            let answer = {
                let mut table = table.lock().unwrap();
                table.get_mut(path).map(|own| if own.len() > 1 { own.remove(0) } else { own[0].clone() })
            };
            match answer {
                Some(body) => {
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
                    stream.write_all(&body)?;
                }
                None => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
            }
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

const ENDED: &[u8] = b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na.m4s\n#EXT-X-ENDLIST\n";
const GOOD: &[u8] = b"\0\0\0\x08moof\0\0\0\x0Cmdatabcd";

/// The first error of two viewers has this kind, and this is said of it.
fn fault(kind: &str, says: &[&str], answers: &[(&'static str, &[u8])]) {
    let mut all = String::new();
    // On a busy machine nobody may come so far in two seconds.
    for seconds in ["2", "30"] {
        let server = Fake::start(answers, 10);
        let output =
            watch(&["--viewers", "2", "--ramp", "0.2", "--seconds", seconds], &server.url("/x.m3u8"));
        let (run, message) = said(&output);
        assert_eq!(output.status.code(), Some(i32::from(run["error_free"] == false)));
        if run["first_error"]["kind"] == kind && says.iter().all(|part| message.contains(part)) {
            return;
        }
        all += &message;
    }
    panic!("{kind} {says:?} is not in: {all}");
}

#[test]
fn a_stream_that_ends_ends_the_run() {
    let server = Fake::start(&[("/x.m3u8", ENDED), ("/a.m4s", GOOD)], 10);
    let output = watch(&["--viewers", "3", "--ramp", "0.1", "--seconds", "10000"], &server.url("/x.m3u8"));
    let (run, message) = said(&output);
    assert!(output.status.success(), "{message}");
    assert_eq!(
        (&run["media"], &run["inspected"], &run["errors"]),
        (&3.into(), &1.into(), &0.into()),
        "{run}"
    );
}

#[test]
fn wrong_bytes_are_found() {
    // Whoever asks gets other bytes.
    let others: Vec<_> = (b'a'..=b'z').map(|last| [&GOOD[..GOOD.len() - 1], &[last]].concat()).collect();
    let mut answers: Vec<_> = others.iter().map(|other| ("/a.m4s", &other[..])).collect();
    answers.push(("/x.m3u8", ENDED));
    fault("content", &["another viewer got", "/a.m4s"], &answers);
    fault("content", &["the box at byte 0"], &[("/x.m3u8", ENDED), ("/a.m4s", &GOOD[1..])]);
}

#[test]
fn missing_segments_and_playlists_are_found() {
    fault("expired", &["404"], &[("/x.m3u8", ENDED)]);
    fault("status", &[], &[]);
    fault("playlist", &["#EXTM3U"], &[("/x.m3u8", b"<html>")]);
    let list = |first: u32| {
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n#EXTINF:0.1,\na.m4s\n")
            .into_bytes()
    };
    let lists = [1, 1, 9].map(list);
    let [first, second, third] = lists.each_ref().map(|list| ("/x.m3u8", &list[..]));
    fault("expired", &["has left the playlist"], &[first, second, third, ("/a.m4s", GOOD)]);
}

#[test]
fn a_stream_that_stands_still_is_late() {
    let list = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.1,\na.m4s\n";
    fault("late", &["has been empty"], &[("/x.m3u8", list), ("/a.m4s", GOOD)]);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.m3u8", server.local_addr().unwrap());
    let (run, message) = said(&watch(&["--ramp", "0", "--seconds", "0.5"], &url));
    assert!(run["error_free"] == false && message.contains("nothing has come"), "{message}");
}

#[test]
fn the_highest_number_of_viewers_is_found() {
    let list = b"#EXTM3U\n#EXT-X-TARGETDURATION:1000\n#EXTINF:1000,\na.m4s\n";
    let server = Fake::start(&[("/x.m3u8", list), ("/a.m4s", GOOD)], 5);
    let find = |seconds: &str| {
        let args = ["--find-max", "--precision", "0", "--ramp", "0.2", "--seconds", seconds];
        let output = watch(&args, &server.url("/x.m3u8"));
        let (found, message) = said(&output);
        (output.status.success() && found["max_viewers"] == 5).then_some(found).ok_or(message)
    };
    // On a busy machine fewer of them see something in half a second.
    let found = find("0.5").or_else(|_| find("10")).unwrap();
    assert_eq!((&found["viewers"], &found["error_free"]), (&5.into(), &true.into()));
    assert!(found["runs"].as_array().unwrap().len() >= 4, "{found}");
}

#[test]
fn wrong_arguments_are_said() {
    for (args, text) in [
        (&["watch", "rtmp://a/b"][..], "is no http or https address"),
        (&["watch", "--ca", "/nowhere.pem", "https://127.0.0.1:1/"], "/nowhere.pem"),
        (&["push", "rtmp://127.0.0.1/live"], "is no address like"),
        (&["push", "--mbit", "0.01", "--fps", "1000", "rtmp://127.0.0.1/live/a"], "needs --mbit"),
        (&["push", "rtmp://127.0.0.1:1/live/a"], "no connection"),
    ] {
        let output = load().args(args).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && message.contains(text), "{message}");
    }
}
