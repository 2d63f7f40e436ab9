//! A node from a publisher to a viewer: frames that a test makes go in over RTMP, and a playlist and its segments come out over HTTP.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rblive_ingest::rtmp::{Client, ClientState};
use testkit::{LONG, awaited, own_addr, until};

use crate::http;
use crate::process::{Serving, serve};

/// Frames per second, of which the first one is a key frame.
pub const RATE: u32 = 25;
const SPS: &[u8] = &[
    0x67, 0x42, 0xC0, 0x1F, 0xDA, 0x01, 0x40, 0x16, 0xE8, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40, 0x00, 0x00,
    0x0C, 0xA1,
];
const PPS: &[u8] = &[0x68, 0xCE, 0x38, 0x80];

/// The slice of a frame: its content says which one it is.
fn slice(number: u32) -> Vec<u8> {
    let header = if number.is_multiple_of(RATE) { 0x65 } else { 0x41 };
    let filler = (0..400_u32).map(|at| (at * 7 + number * 13) as u8 | 1);
    std::iter::once(header).chain(filler).collect()
}

/// A publisher of frames without pictures.
pub struct Publisher {
    client: Client,
    socket: TcpStream,
}

impl Publisher {
    pub fn connect(address: &str, name: &str) -> Self {
        Self::ask(address, name).expect("the node lets the stream begin")
    }

    /// `None`: the node refuses it.
    pub fn ask(address: &str, name: &str) -> Option<Self> {
        let mut client = Client::new("live", name, &format!("rtmp://{address}/live"));
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let mut bytes = [0; 4096];
        loop {
            socket.write_all(&client.take_output()).unwrap();
            let read = socket.read(&mut bytes).unwrap();
            if read == 0 {
                return None;
            }
            if client.receive(&bytes[..read]).ok()? == ClientState::Publishing {
                break;
            }
        }
        let [profile, compatible, level] = [1, 2, 3].map(|at| SPS[at]);
        let head = [0x17, 0, 0, 0, 0, 1, profile, compatible, level, 0xFF, 0xE1, 0, SPS.len() as u8];
        client.metadata(Some(7), None);
        client.video(0, &[&head[..], SPS, &[1, 0, PPS.len() as u8], PPS].concat());
        Some(Self { client, socket })
    }

    pub fn push(&mut self, number: u32) {
        let slice = slice(number);
        let kind = if number.is_multiple_of(RATE) { 0x17 } else { 0x27 };
        let head = [kind, 1, 0, 0, 0];
        self.client
            .video(number * 1000 / RATE, &[&head[..], &(slice.len() as u32).to_be_bytes(), &slice].concat());
        self.socket.write_all(&self.client.take_output()).unwrap();
    }
}

/// The body of an answer, if there is such a file.
fn get(viewers: &str, path: &str) -> Option<Vec<u8>> {
    http::get(viewers, path, "").filter(|(status, _)| *status == 200).map(|(_, body)| body)
}

/// The whole segments of a playlist, and its initialisation segment.
fn segments(playlist: &str) -> (Vec<String>, String) {
    let uris = playlist.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let map = playlist.split("#EXT-X-MAP:URI=\"").nth(1).unwrap_or_default();
    (uris.map(str::to_owned).collect(), map.split('"').next().unwrap_or_default().to_owned())
}

#[test]
fn frames_go_in_and_segments_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let text = "[control]\nlisten = ''\n[deliver]\nlisten = '127.0.0.1:0'\ntls = false\n\
                [ingest]\nrtmp = '127.0.0.1:0'\nsegment_ms = 1000\n[[rules]]\nstreams = '*'\nnodes = ['local']\n";
    std::fs::write(&file, text).unwrap();
    let serving = Serving::start(serve(&file));
    let [encoders, viewers] =
        ["encoders at rtmp://", "viewers at http://"].map(|before| serving.address(before));
    let mut publisher = Publisher::connect(&encoders, "camera");
    (0..3 * RATE + 1).for_each(|number| publisher.push(number));
    let (uris, map) = awaited(LONG, "three segments", || {
        let playlist = get(&viewers, "/live/camera/1/media.m3u8").unwrap_or_default();
        Some(segments(&String::from_utf8(playlist).unwrap())).filter(|(uris, _)| uris.len() >= 3)
    });
    let index = String::from_utf8(get(&viewers, "/live/camera/index.m3u8").unwrap()).unwrap();
    assert!(index.contains("RESOLUTION=1280x720") && index.contains("1/media.m3u8"), "{index}");
    let file = |uri: &str| get(&viewers, &format!("/live/camera/1/{uri}")).unwrap_or_else(|| panic!("{uri}"));
    assert_eq!(&file(&map)[4..8], b"ftyp");
    for (uri, first) in uris.iter().zip([0, RATE, 2 * RATE]) {
        let segment = file(uri);
        let slices: Vec<u8> = (first..first + RATE)
            .flat_map(|number| [&401_u32.to_be_bytes()[..], &slice(number)].concat())
            .collect();
        let frames: Vec<_> = (first..first + RATE).map(slice).collect();
        let is_there = |frame: &Vec<u8>| segment.windows(frame.len()).any(|bytes| bytes == frame);
        assert!(frames.iter().all(is_there), "each frame from {first} on is in {uri}");
        assert!(segment.len() < slices.len() + 4000, "nothing else is");
    }
    serving.process.signal("INT");
    serving.process.finish().good();
}

/// A viewer, and what each address below the stream's had.
struct Addresses {
    files: HashMap<String, Vec<u8>>,
}

impl Addresses {
    /// Fetches the segments and the parts of a playlist: an address has the same bytes at each node, and for ever. Returns whether a
    /// segment has this frame.
    fn look(&mut self, viewers: &str, number: u32) -> bool {
        let playlist = get(viewers, "/live/camera/1/media.m3u8").unwrap_or_default();
        let playlist = String::from_utf8(playlist).unwrap();
        let parts = playlist.lines().filter(|line| line.starts_with("#EXT-X-PART:"));
        let parts = parts.filter_map(|line| line.split("URI=\"").nth(1)?.split('"').next());
        let (wanted, mut is_there) = (slice(number), false);
        for uri in segments(&playlist).0.iter().map(String::as_str).chain(parts) {
            let Some(bytes) = get(viewers, &format!("/live/camera/1/{uri}")) else { continue };
            is_there |= bytes.windows(wanted.len()).any(|own| own == wanted);
            let before = self.files.entry(uri.to_owned()).or_insert_with(|| bytes.clone());
            assert!(*before == bytes, "{uri} has other bytes than before: {playlist}");
        }
        is_there
    }
}

/// An ingest node with a folder for its state, as systemd gives it, and two delivery nodes.
fn start(folder: &Path, node: &str) -> Serving {
    let mut command = serve(&folder.join("nodes.toml"));
    command.args(["--node", node, "--rtmp", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--control", ""]);
    command.env("STATE_DIRECTORY", folder);
    Serving::start(command)
}

/// The numbers of an encoder that sends faster than time passes are ahead of the clock when its node is killed. The node goes on above
/// them: a delivery node that has seen both runs, and one that comes later, give each segment one address.
#[test]
fn a_killed_node_gives_no_number_again() {
    let folder = tempfile::tempdir().unwrap();
    let [near, far] = [own_addr(), own_addr()];
    let text = format!(
        "[[nodes]]\nname = 'ingest'\nid = 1\nrole = 'dissemination'\n\
         [[nodes]]\nname = 'near'\nid = 2\nrole = 'delivery'\naddress = '{near}'\n\
         [[nodes]]\nname = 'far'\nid = 3\nrole = 'delivery'\naddress = '{far}'\n\
         [[rules]]\nstreams = '*'\nnodes = ['near', 'far']\n\
         [ingest]\nsegment_ms = 1000\n[deliver]\ntls = false\n"
    );
    std::fs::write(folder.path().join("nodes.toml"), text).unwrap();
    let [near, ingest] = ["near", "ingest"].map(|node| start(folder.path(), node));
    let mut addresses = Addresses { files: HashMap::new() };
    let viewers = |node: &Serving| node.address("viewers at http://");
    let mut publisher = Publisher::connect(&ingest.address("encoders at rtmp://"), "camera");
    (0..40 * RATE + 1).for_each(|number| publisher.push(number));
    until("the node has it", || addresses.look(&viewers(&near), 39 * RATE));
    drop(ingest);
    let ingest = start(folder.path(), "ingest");
    let mut publisher = Publisher::connect(&ingest.address("encoders at rtmp://"), "camera");
    (100 * RATE..140 * RATE + 1).for_each(|number| publisher.push(number));
    until("the node has what came then", || addresses.look(&viewers(&near), 139 * RATE));
    let far = start(folder.path(), "far");
    until("a node that comes later has it", || addresses.look(&viewers(&far), 139 * RATE));
    addresses.look(&viewers(&near), 139 * RATE);
}
