//! Nodes that find each other in the etcd of the system, and viewers that move between them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::{Etcd, Process, own_addr, until};

use crate::http;
use crate::process::{Serving, rblive, serve, write_own};
use crate::publish::{Publisher, RATE};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// An etcd, and a node that takes streams from encoders.
pub struct Stage {
    folder: TempDir,
    etcd: Etcd,
    ingest: Serving,
}

/// A stage, and the encoder of the stream `camera`.
struct World {
    stage: Stage,
    publisher: Publisher,
    frames: u32,
}

/// A node that delivers.
pub struct Edge {
    serving: Serving,
    pub viewers: String,
}

fn config(folder: &Path, etcd: &Etcd, name: &str, node: &str, more: &str) -> PathBuf {
    let file = folder.join(format!("{name}.toml"));
    let text = format!(
        "[control]\nlisten = '127.0.0.1:0'\n[[nodes]]\nname = '{name}'\n{node}\n[[rules]]\nstreams = '*'\nnodes = ['edge-*']\n{more}\n\
         [cluster]\nname = 'test'\nttl_ms = '10s'\netcd = {:?}\n",
        etcd.endpoints(),
    );
    write_own(&file, &text);
    file
}

impl Stage {
    /// None where the machine has no etcd.
    pub fn new() -> Option<Self> {
        Self::with("")
    }

    /// With these lines more in the configuration of the node.
    fn with(lines: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(folder.path(), 1)?;
        let more = format!("[ingest]\nrtmp = '127.0.0.1:0'\nsegment_ms = 1000\n{lines}");
        let file = config(folder.path(), &etcd, "in", "id = 1\nrole = 'dissemination'", &more);
        let ingest = Serving::start(serve(&file));
        Some(Self { folder, etcd, ingest })
    }

    /// The address for encoders.
    pub fn rtmp(&self) -> String {
        self.ingest.address("encoders at rtmp://")
    }

    pub fn edge(&self, name: &str, number: u16, more: &str) -> Edge {
        let node = format!("id = {number}\nrole = 'delivery'\naddress = '{}'", own_addr());
        let deliver = format!("[deliver]\nlisten = '127.0.0.1:0'\ntls = false\ntoken_key = '{KEY}'\n");
        let file = config(self.folder.path(), &self.etcd, name, &node, &deliver);
        if !more.is_empty() {
            let text = std::fs::read_to_string(&file).unwrap();
            write_own(&file, &(text + more));
        }
        let serving = Serving::start(serve(&file));
        let viewers = serving.address("viewers at http://");
        Edge { serving, viewers }
    }

    /// What `rblive cluster` prints.
    pub fn command(&self, args: &[&str]) -> String {
        let mut command = rblive();
        command.arg("cluster").args(args).args(["--name", "test"]);
        for url in self.etcd.endpoints() {
            command.args(["--etcd", &url]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn members(&self) -> String {
        self.command(&["members"])
    }
}

impl World {
    fn new() -> Option<Self> {
        Self::of(Stage::new()?)
    }

    fn of(stage: Stage) -> Option<Self> {
        let publisher = Publisher::connect(&stage.rtmp(), "camera");
        let mut world = Self { stage, publisher, frames: 0 };
        world.push(4);
        Some(world)
    }

    /// Pushes so many segments.
    fn push(&mut self, segments: u32) {
        let end = self.frames + segments * RATE;
        (self.frames..end).for_each(|number| self.publisher.push(number));
        self.frames = end;
    }
}

impl std::ops::Deref for World {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

/// The token of the stream `camera`, as addresses have it.
pub fn token() -> String {
    format!("token={}", rblive_deliver::token::sign(KEY.as_bytes(), "camera", 4_000_000_000))
}

impl Edge {
    fn get(&self, file: &str, query: &str) -> http::Answer {
        http::whole(&self.viewers, &format!("/live/camera/{file}?{query}"), "").expect("an answer")
    }

    fn playlist(&self) -> String {
        String::from_utf8(self.get("1/media.m3u8", &token()).body).unwrap()
    }

    /// The address of the answer, if it sends the viewer away.
    fn sends_to(&self, file: &str) -> Option<String> {
        let answer = self.get(file, &token());
        let is_open = answer.field("access-control-allow-origin") == Some("*");
        let location = answer.field("location").map(str::to_owned);
        (answer.status == 307 && is_open).then_some(location)?
    }

    /// What playlists say of each segment: its lines, by number.
    pub fn listed(&self) -> BTreeMap<u64, String> {
        let (mut listed, mut lines) = (BTreeMap::new(), String::new());
        for line in self.playlist().lines() {
            match number_of(line) {
                Some(number) => drop(listed.insert(number, std::mem::take(&mut lines) + line)),
                None if line.starts_with("#EXTINF") || line.starts_with("#EXT-X-PROGRAM") => lines += line,
                None => {}
            }
        }
        listed
    }
}

fn number_of(line: &str) -> Option<u64> {
    line.split_once(".m4s").filter(|_| !line.starts_with('#'))?.0.parse().ok()
}

/// A player that has some addresses, follows what it is told, and misses nothing.
struct Player {
    addresses: Vec<String>,
    last: Option<u64>,
    /// The nodes that have answered it.
    hosts: Vec<String>,
}

impl Player {
    fn new(edges: &[&Edge]) -> Self {
        let addresses = edges.iter().map(|edge| edge.viewers.clone()).collect();
        Self { addresses, last: None, hosts: Vec::new() }
    }

    /// Reads the playlist, and each segment that is new. Returns the number of the newest one.
    fn follow(&mut self) -> Option<u64> {
        let (host, text) = self.addresses.clone().iter().find_map(|address| self.read(address))?;
        for number in text.lines().filter_map(number_of) {
            if self.last.is_some_and(|last| number <= last) {
                continue;
            }
            assert!(self.last.is_none_or(|last| number == last + 1), "a hole: {:?}, {number}", self.last);
            let path = format!("/live/camera/1/{number}.m4s?{}", token());
            let (status, body) = http::get(&host, &path, "").expect("the segment");
            assert!(status == 200 && body.len() > 1000, "{status}");
            self.last = Some(number);
        }
        if self.hosts.last() != Some(&host) {
            self.hosts.push(host);
        }
        self.last
    }

    /// The playlist at an address, or where that leads to. None: nobody answers there.
    fn read(&self, address: &str) -> Option<(String, String)> {
        let (mut host, mut path) = (address.to_owned(), format!("/live/camera/1/media.m3u8?{}", token()));
        for _ in 0..3 {
            let answer = http::whole(&host, &path, "")?;
            if answer.status == 200 {
                return Some((host, String::from_utf8(answer.body).unwrap()));
            }
            assert_eq!(answer.status, 307, "{}", answer.head);
            let (next, rest) = answer.field("location")?.strip_prefix("http://")?.split_once('/')?;
            (host, path) = (next.to_owned(), format!("/{rest}"));
        }
        panic!("the way has no end");
    }

    fn reaches(&mut self, world: &mut World, segments: u64) {
        let from = self.last.expect("it plays");
        world.push(segments as u32);
        until("the player has what was pushed", || self.follow().is_some_and(|last| last >= from + segments));
    }
}

#[test]
fn viewers_of_a_drained_node_go_on_at_another_one() {
    let Some(mut world) = World::new() else { return };
    let first = world.edge("edge-a", 2, "");
    until("the first has the stream", || first.listed().len() >= 2);
    let mut player = Player::new(&[&first]);
    player.follow();
    // It comes later, and nobody is told but etcd.
    let second = world.edge("edge-b", 3, "");
    player.reaches(&mut world, 3);
    until("the second has it too", || second.listed().len() >= 2);
    let (one, other) = (first.listed(), second.listed());
    let common: Vec<_> = one.iter().filter(|(number, _)| other.contains_key(number)).collect();
    assert!(common.len() >= 2, "{one:?} {other:?}");
    for (number, lines) in common {
        assert_eq!(lines, &other[number]);
        let file = format!("1/{number}.m4s");
        assert!(first.get(&file, &token()).body == second.get(&file, &token()).body, "{number}");
    }
    let up = |line: &&str| line.contains(" delivery ") && line.contains(" up ");
    until("both are known", || world.members().lines().filter(up).count() == 2);

    assert!(world.command(&["drain", "edge-a"]).contains("edge-a sends its viewers to others"));
    until("viewers are sent away", || first.sends_to("index.m3u8").is_some());
    let told = first.sends_to("1/media.m3u8").unwrap();
    let begin = format!("http://{}/live/camera/1/media.m3u8?{}&moved=", second.viewers, token());
    assert!(told.starts_with(&begin), "{told}");
    let moved = told.split_once('?').unwrap().1;
    assert_eq!(first.get("1/media.m3u8", moved).status, 200, "who was just moved is served");
    let newest = *one.keys().last().unwrap();
    assert_eq!(first.get(&format!("1/{newest}.m4s"), &token()).status, 200, "media stays where it is");
    let stranger = first.get("index.m3u8", "token=1.ab");
    assert!(stranger.status == 403 && stranger.field("location").is_none(), "{}", stranger.head);
    assert_eq!(http::text(&first.viewers, "/ready", ""), (503, "this node is drained\n".into()));
    player.reaches(&mut world, 2);
    assert_eq!(player.hosts, [first.viewers.clone(), second.viewers.clone()]);

    world.command(&["undrain", "edge-a"]);
    until("it has viewers again", || first.sends_to("index.m3u8").is_none());
}

/// The buffer holds five segments: the second node has never seen those with which the first one began. The encoder is faster than its clock, so
/// that each segment says another time of day for the beginning of the stream.
#[test]
fn a_node_that_comes_late_says_the_same_times() {
    let buffers = "[streams]\nchunk_bytes = 8192\nchunks = 4\nmax_buffer_bytes = 65536\n";
    let Some(mut world) = Stage::with(buffers).and_then(World::of) else { return };
    let first = world.edge("edge-a", 2, "");
    until("the first has the stream", || first.listed().len() >= 2);
    let mut player = Player::new(&[&first]);
    player.follow();
    (0..12).for_each(|_| player.reaches(&mut world, 1));
    let second = world.edge("edge-b", 3, "");
    until("the second has it too", || second.listed().len() >= 2);
    player.reaches(&mut world, 1);
    let (one, other) = (first.listed(), second.listed());
    let common: Vec<_> = one.iter().filter(|(number, _)| other.contains_key(number)).collect();
    assert!(common.len() >= 2, "{one:?} {other:?}");
    assert!(common.iter().all(|(number, lines)| other[*number] == **lines), "{one:?} {other:?}");
}

#[test]
fn viewers_of_a_killed_node_go_on_at_another_one_and_all_do_without_etcd() {
    let Some(mut world) = World::new() else { return };
    let (first, mut second) = (world.edge("edge-a", 2, ""), world.edge("edge-b", 3, ""));
    until("both have the stream", || first.listed().len() >= 2 && second.listed().len() >= 2);
    let mut player = Player::new(&[&first]);
    player.follow();
    let mut careful = Player::new(&[&second, &first]);
    careful.follow();
    careful.reaches(&mut world, 1);
    // A node without streams sends everybody on. Both others have room; the drained one was just taken back.
    let front = world.edge("front", 4, "");
    until("it knows the others", || front.sends_to("index.m3u8").is_some());
    let mut led = Player::new(&[&front]);
    until("it is led", || led.follow().is_some());
    led.reaches(&mut world, 1);
    assert!(led.hosts.iter().all(|host| *host != front.viewers));
    second.serving.process.signal("KILL");
    until("it is dead", || !second.serving.process.is_running());
    careful.reaches(&mut world, 2);
    assert_eq!(careful.hosts, [second.viewers.clone(), first.viewers.clone()]);
    player.reaches(&mut world, 1);
    led.reaches(&mut world, 1);
    until("the others learn it", || !world.members().contains("\nedge-b "));

    // It comes back with other ports, and the rest goes on without etcd.
    second = world.edge("edge-b", 3, "");
    until("it is back", || second.listed().len() >= 2);
    world.stage.etcd.kill(0);
    until("it is told", || {
        let (status, text) = http::text(&first.viewers, "/ready", "");
        (status, text.as_str()) == (200, "ok; degraded: cluster\n")
    });
    player.reaches(&mut world, 2);
    let before = *second.listed().keys().last().unwrap();
    world.push(2);
    until("the second goes on too", || second.listed().keys().last().is_some_and(|last| *last > before));
}

/// A viewer that keeps its connection.
struct Viewer(BufReader<TcpStream>);

impl Viewer {
    /// The status of the playlist.
    fn ask(&mut self) -> u16 {
        let socket = self.0.get_mut();
        write!(socket, "GET /live/camera/1/media.m3u8?{} HTTP/1.1\r\nHost: x\r\n\r\n", token()).unwrap();
        let (mut line, mut status, mut length) = (String::new(), 0, 0);
        while line != "\r\n" {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the node closed the connection");
            let lower = line.to_ascii_lowercase();
            if let Some(rest) = lower.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            }
            if let Some(rest) = lower.strip_prefix("content-length: ") {
                length = rest.trim().parse().unwrap();
            }
        }
        self.0.read_exact(&mut vec![0; length]).unwrap();
        status
    }
}

#[test]
fn a_full_node_sends_new_viewers_to_another_one_and_keeps_those_that_it_has() {
    let Some(world) = World::new() else { return };
    let full = world.edge("edge-a", 2, "max_viewers = 1\n");
    let other = world.edge("edge-b", 3, "");
    until("both have the stream", || full.listed().len() >= 2 && other.listed().len() >= 2);
    let mut viewer = Viewer(BufReader::new(TcpStream::connect(&full.viewers).unwrap()));
    until("it watches", || viewer.ask() == 200);
    until("others are sent away", || {
        full.sends_to("index.m3u8").is_some_and(|to| to.contains(&other.viewers))
    });
    assert_eq!(viewer.ask(), 200, "it stays");
    let metrics = http::text(&full.viewers, &format!("/metrics?{}", every()), "").1;
    assert!(metrics.contains("rblive_draining 0") && !metrics.contains("rblive_redirected_requests_total 0"));
    drop(viewer);
    until("there is room again", || full.sends_to("index.m3u8").is_none());
}

fn every() -> String {
    format!("token={}", rblive_deliver::token::sign(KEY.as_bytes(), "*", 4_000_000_000))
}

/// What strangers write into etcd hurts nobody, and a node without the stream sends its viewers to the one that has it.
#[test]
fn keys_that_make_no_sense_count_for_nothing() {
    let Some(world) = World::new() else { return };
    let etcdctl = |key: &str, value: &str| {
        let mut command = std::process::Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &world.etcd.endpoints()[0],
            "put",
            "--",
            key,
            value,
        ]);
        command.stdout(std::process::Stdio::piped());
        Process::start(command).finish().good();
    };
    etcdctl("/rblive/test/nodes/z", "{");
    etcdctl("/rblive/test/nodes/y", r#"{"number":9,"role":"delivery","viewers":"javascript:alert(1)"}"#);
    etcdctl("/rblive/test/nodes/x", &format!("\"{}\"", "x".repeat(100_000)));
    etcdctl("/rblive/test/streams/y", r#"["camera"]"#);
    let edge = world.edge("edge-a", 2, "");
    until("the node has the stream", || edge.listed().len() >= 2);
    let members = world.members();
    assert_eq!(members.matches("counts for nothing").count(), 3, "{members}");
    world.command(&["drain", "edge-a"]);
    until("it is drained", || http::text(&edge.viewers, "/ready", "").0 == 503);
    assert_eq!(edge.get("index.m3u8", &token()).status, 200, "nobody else has the stream");
}
