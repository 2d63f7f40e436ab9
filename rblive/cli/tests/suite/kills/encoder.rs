//! The encoder: ffmpeg pushes a film over RTMP, and starts again when it ends, as an encoder does that is left alone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::Process;

use super::media;
use crate::process::ffmpeg;

/// A minute of moving picture, each frame of which is known.
pub struct Film {
    _folder: tempfile::TempDir,
    file: PathBuf,
    /// The place of each frame, by its bytes.
    frames: HashMap<Vec<u8>, usize>,
}

impl Film {
    pub fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, raw) = (folder.path().join("film.mp4"), folder.path().join("film.h264"));
        let picture = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=24", "-t", "60", "-c:v", "libx264"];
        let coding = ["-preset", "veryfast", "-threads", "1", "-bf", "2", "-pix_fmt", "yuv420p"];
        let groups = ["-g", "12", "-keyint_min", "12", "-sc_threshold", "0"];
        convert(picture.iter().chain(&coding).chain(&groups), &file);
        let path = file.to_str().unwrap();
        convert(["-i", path, "-c", "copy", "-bsf:v", "h264_mp4toannexb", "-f", "h264"].iter(), &raw);
        let mut frames = HashMap::new();
        for nal in media::annexb(&std::fs::read(raw).unwrap()) {
            if media::is_picture(nal) {
                let place = frames.len();
                assert!(frames.insert(nal.to_vec(), place).is_none(), "each frame has bytes of its own");
            }
        }
        assert_eq!(frames.len(), 60 * 24);
        Self { _folder: folder, file, frames }
    }

    /// The place of a frame in the film, if it is one of the film's.
    pub fn place(&self, nal: &[u8]) -> Option<usize> {
        self.frames.get(nal).copied()
    }

    /// The place of the next frame; the film is repeated.
    pub fn after(&self, place: usize) -> usize {
        (place + 1) % self.frames.len()
    }
}

fn convert<'a>(arguments: impl Iterator<Item = &'a &'a str>, to: &Path) {
    let output = ffmpeg().arg("-y").args(arguments).arg(to).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub struct Encoder {
    running: Arc<Mutex<Process>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Encoder {
    /// Pushes the film under these names at once.
    pub fn start(film: Arc<Film>, address: String, streams: &'static [&'static str]) -> Self {
        let push = move || {
            let mut command = ffmpeg();
            command.args(["-re", "-stream_loop", "-1", "-i"]).arg(&film.file);
            for stream in streams {
                command.args(["-c", "copy", "-f", "flv"]).arg(format!("rtmp://{address}/live/{stream}"));
            }
            command.stdout(Stdio::null()).stderr(Stdio::null());
            Process::start(command)
        };
        let running = Arc::new(Mutex::new(push()));
        let stopped = Arc::new(AtomicBool::new(false));
        let (watched, stop) = (running.clone(), stopped.clone());
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let mut process = watched.lock().unwrap();
                if !process.is_running() {
                    *process = push();
                }
            }
        });
        Self { running, stopped, thread: Some(thread) }
    }

    pub fn kill(&self) {
        self.running.lock().unwrap().signal("KILL");
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
