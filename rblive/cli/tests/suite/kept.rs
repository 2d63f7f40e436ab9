//! ffmpeg pushes over RTMP, a node keeps the stream, and ffmpeg plays what was kept: every picture, in order, also after kills.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::{Process, awaited, has, own_addr};

use crate::process::{Serving, ffmpeg, rblive, serve};

const WAIT: Duration = Duration::from_secs(120);

/// An ingest node, and the configuration of a node that keeps its streams.
struct Lab {
    folder: tempfile::TempDir,
    encoders: String,
    _ingest: Serving,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = own_addr();
        let text = format!(
            "[ingest]\nlinger_ms = 600000\nsegment_ms = 1000\n\
             [[nodes]]\nname = 'ingest'\nid = 1\nrole = 'dissemination'\n\
             [[nodes]]\nname = 'keeper'\nid = 2\nrole = 'delivery'\naddress = '{port}'\n\
             [[rules]]\nstreams = '*'\nnodes = ['keeper']\n\
             [[ingest.ladders]]\nname = 'ladder'\nstreams = ['hi', 'lo']\n\
             [[record]]\nfolder = '{}'\n",
            folder.path().join("kept").display()
        );
        std::fs::write(folder.path().join("node.toml"), text).unwrap();
        let ingest = start(folder.path(), "ingest");
        let encoders = ingest.address("rtmp://");
        Self { folder, encoders, _ingest: ingest }
    }

    /// The list of the newest recording.
    fn list(&self) -> Option<PathBuf> {
        self.list_of("camera")
    }

    fn list_of(&self, stream: &str) -> Option<PathBuf> {
        let stream = std::fs::read_dir(self.folder.path().join("kept").join(stream)).ok()?;
        let newest = stream.flatten().map(|entry| entry.path()).max()?;
        Some(newest.join("1/media.m3u8")).filter(|list| list.is_file())
    }

    fn push(&self, file: &Path, pace: &[&str]) -> Process {
        let url = format!("rtmp://{}/live/camera", self.encoders);
        let mut command = ffmpeg();
        command.args(pace).arg("-i").arg(file).args(["-c", "copy", "-f", "flv"]).arg(url);
        Process::start(command)
    }
}

/// Starts a node with listeners at any ports.
fn start(folder: &Path, node: &str) -> Serving {
    let mut command = serve(&folder.join("node.toml"));
    command.args(["--node", node, "--rtmp", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--control", ""]);
    Serving::start(command)
}

/// The check sums of all pictures, which all differ.
fn pictures(of: &Path) -> Vec<String> {
    // The node makes its certificate itself.
    let trust: &[&str] = if of.starts_with("https:") { &["-tls_verify", "0"] } else { &[] };
    let output =
        ffmpeg().args(trust).arg("-i").arg(of).args(["-map", "0:v", "-f", "framemd5", "-"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{}: {said}", of.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

/// Encodes a picture and a tone, with a key frame in each second.
fn encode(to: &Path, seconds: u32) -> bool {
    encode_in(to, seconds, "320x180")
}

fn encode_in(to: &Path, seconds: u32, size: &str) -> bool {
    let inputs =
        format!("-f lavfi -i testsrc2=size={size}:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000");
    let coding =
        "-c:v libx264 -preset ultrafast -g 25 -keyint_min 25 -sc_threshold 0 -pix_fmt yuv420p -c:a aac";
    let mut command = ffmpeg();
    command.args(inputs.split_whitespace()).args(coding.split_whitespace());
    command.args(["-t", &seconds.to_string()]).arg(to);
    has("ffmpeg", "what was kept") && command.status().is_ok_and(|status| status.success())
}

/// The segments of a list, all of which are whole: boxes that end where the file does.
fn segments(list: &Path) -> usize {
    let text = std::fs::read_to_string(list).unwrap();
    assert!(text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
    let files: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for file in
        text.split("#EXT-X-GAP\n").flat_map(|part| part.lines().skip(2)).filter(|line| line.ends_with(".m4s"))
    {
        let bytes =
            std::fs::read(list.with_file_name(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut at = 0;
        while at < bytes.len() {
            at += u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        }
        assert!(at == bytes.len() && at > 0, "{file} is whole");
    }
    files.len()
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn every_picture_is_kept() {
    let lab = Lab::new();
    let (file, root) = (lab.folder.path().join("pushed.mp4"), lab.folder.path());
    if !encode(&file, 12) {
        return;
    }
    let keeper = start(root, "keeper");
    let viewers = keeper.after("viewers at ");
    lab.push(&file, &[]).finish().good();
    let pushed = pictures(&file);
    let list = awaited(WAIT, "the whole stream is kept", || lab.list().filter(|list| segments(list) >= 12));
    assert_eq!(pictures(&list), pushed);
    let index = list.parent().unwrap().with_file_name("index.m3u8");
    assert_eq!(pictures(&index), pushed);
    let begin = index.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let url = format!("{viewers}vod/camera/{begin}/index.m3u8");
    assert_eq!(pictures(Path::new(&url)), pushed, "{url}");
    let mut command = rblive();
    let output = command.arg("kept").arg("--config").arg(root.join("node.toml")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("0:00:12") && said.contains("camera (12 segments)"), "{said}");
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn every_picture_of_each_rendition_is_kept() {
    let lab = Lab::new();
    let root = lab.folder.path();
    let files = ["hi", "lo"].map(|name| root.join(format!("{name}.mp4")));
    if !encode_in(&files[0], 6, "320x180") || !encode_in(&files[1], 6, "160x90") {
        return;
    }
    let keeper = start(root, "keeper");
    let viewers = keeper.after("viewers at ");
    let urls = ["hi", "lo"].map(|name| format!("rtmp://{}/live/{name}", lab.encoders));
    let mut command = ffmpeg();
    for file in &files {
        command.arg("-re").arg("-i").arg(file);
    }
    for (input, url) in ["0", "1"].iter().zip(&urls) {
        command.args(["-map", input, "-c", "copy", "-f", "flv", url]);
    }
    assert!(command.status().unwrap().success());
    let list = awaited(WAIT, "both renditions are kept", || {
        let list = lab.list_of("ladder")?;
        let both = [&list, &list.parent()?.with_file_name("2").join("media.m3u8")];
        both.iter().all(|list| list.is_file() && segments(list) >= 6).then_some(list.clone())
    });
    let folder = list.parent().unwrap().parent().unwrap();
    let begin = folder.file_name().unwrap().to_str().unwrap();
    for (id, file) in [(1, &files[0]), (2, &files[1])] {
        let url = format!("{viewers}vod/ladder/{begin}/{id}/media.m3u8");
        assert_eq!(pictures(Path::new(&url)), pictures(file), "{url}");
    }
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "error", "-tls_verify", "0", "-show_entries", "program_stream=codec_name,width"]);
    let told = probe.arg(format!("{viewers}vod/ladder/{begin}/index.m3u8")).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(told.contains("width=320") && told.contains("width=160"), "{told}");
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn killed_at_any_moment_it_leaves_a_list_that_plays_and_goes_on() {
    let lab = Lab::new();
    let (file, root) = (lab.folder.path().join("pushed.mp4"), lab.folder.path());
    if !encode(&file, 60) {
        return;
    }
    let pushed = pictures(&file);
    let _pushing = lab.push(&file, &["-re"]);
    let mut kept = 0;
    for round in 0..4u64 {
        let keeper = start(root, "keeper");
        awaited(WAIT, "segments are kept", || {
            lab.list().map(|list| segments(&list)).filter(|now| *now >= kept + 2)
        });
        // At another moment of a segment each time.
        std::thread::sleep(Duration::from_millis(170 * round));
        drop(keeper);
        let list = lab.list().unwrap();
        kept = segments(&list);
        // The ring has what the keeper missed, so that nothing is lost, and nothing is there twice.
        let pictures = pictures(&list);
        let first = pushed.iter().position(|own| *own == pictures[0]).expect("a picture that was pushed");
        assert_eq!(pictures, pushed[first..first + pictures.len()], "round {round}");
    }
    let text = std::fs::read_to_string(lab.list().unwrap()).unwrap();
    assert!(!text.contains("#EXT-X-DISCONTINUITY\n"), "{text}");
    assert_eq!(std::fs::read_dir(root.join("kept/camera")).unwrap().count(), 1, "one recording");
}
