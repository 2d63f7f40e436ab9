//! Encoders that push a picture and a sound in real time, out of a film that they have encoded before.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use testkit::{Process, has, skip};

use super::PLAYERS;
use super::film::{self, Film};
use super::nodes::Nodes;
use crate::process::ffmpeg;

/// Pictures per second.
pub const RATE: usize = 25;

#[derive(Debug, Clone, Copy)]
pub enum Encoder {
    /// ffmpeg: HLS by PUT, in transport streams.
    Put,
    /// ffmpeg: HLS by PUT, in transport streams, of HEVC and E-AC-3.
    PutNewer,
    /// ffmpeg: HLS by PUT, in transport streams that viewers get as they are.
    PutThrough,
    /// ffmpeg: HLS by PUT, in fragmented MP4.
    PutMp4,
    /// ffmpeg: RTMP.
    Rtmp,
    /// GStreamer: RTMP.
    Gstreamer,
}

/// An encoder that runs.
pub struct Pushing {
    pub process: Process,
    /// The file with what it pushes.
    pub pushed: PathBuf,
    /// Keeps the pushed file.
    _film: Arc<Film>,
}

impl Encoder {
    /// Whether this machine has it.
    pub fn is_installed(self) -> bool {
        if let Self::PutNewer = self {
            let output = Command::new("ffmpeg").args(["-hide_banner", "-encoders"]).output();
            let has_hevc =
                output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libx265"));
            if !has_hevc {
                skip("HEVC and E-AC-3 (this ffmpeg has no libx265)");
            }
            return has_hevc;
        }
        let Self::Gstreamer = self else { return true };
        let elements = "x264enc voaacenc flvmux rtmp2sink matroskamux matroskademux h264parse aacparse";
        let inspect = |name: &&str| {
            let output = Command::new("gst-inspect-1.0").arg(name).output();
            !output.is_ok_and(|output| output.status.success())
        };
        let missing: Vec<&str> = if has("gst-launch-1.0", PLAYERS) {
            elements.split(' ').filter(inspect).collect()
        } else {
            return false;
        };
        if !missing.is_empty() {
            skip(&format!("GStreamer as encoder (there is no {missing:?}; scripts/setup --tests)"));
        }
        missing.is_empty()
    }

    /// The size and the rate of its pictures.
    pub fn picture(self) -> &'static str {
        if let Self::Gstreamer = self { "160x120@25" } else { "320x180@25" }
    }

    /// The codecs of picture and sound.
    pub fn codecs(self) -> [&'static str; 2] {
        if let Self::PutNewer = self { ["hevc", "eac3"] } else { ["h264", "aac"] }
    }

    /// The stream as which it pushes.
    pub fn stream(self) -> &'static str {
        if let Self::PutThrough = self { "ts" } else { "camera" }
    }

    /// Pushes in real time. ffmpeg repeats the film that often; -1: without an end.
    pub fn push(self, nodes: &Nodes, repetitions: i32) -> Pushing {
        let put = format!("https://{}/live/{}/index.m3u8", nodes.https, self.stream());
        let hls = ["-f", "hls", "-hls_time", "1", "-hls_list_size", "5", "-method", "PUT"];
        let rtmp = format!("rtmp://{}/live/camera", nodes.rtmp);
        let by_ffmpeg = |options: &[&str], to: &str| {
            let film = match self {
                Self::PutNewer => film::take(&NEWER_FILM, |folder| encode(folder, HEVC_AND_E_AC3)),
                _ => film::take(&FILM, |folder| encode(folder, H264_AND_AAC)),
            };
            let mut command = ffmpeg();
            command.args(["-re", "-stream_loop", &repetitions.to_string(), "-i"]);
            command.arg(&film.files[0]).args(["-c", "copy"]).args(options).arg(to);
            Pushing { process: Process::start(command), pushed: film.files[0].clone(), _film: film }
        };
        match self {
            Self::Put | Self::PutNewer | Self::PutThrough => by_ffmpeg(&hls, &put),
            Self::PutMp4 => by_ffmpeg(&[&hls[..], &["-hls_segment_type", "fmp4"]].concat(), &put),
            Self::Rtmp => by_ffmpeg(&["-f", "flv"], &rtmp),
            Self::Gstreamer => {
                let film = film::take(&GSTREAMER_FILM, encode_with_gstreamer);
                let pushed = film.files[0].clone();
                Pushing { process: gstreamer(&pushed, &rtmp), pushed, _film: film }
            }
        }
    }
}

static FILM: film::Shelf = Mutex::new(Weak::new());
static NEWER_FILM: film::Shelf = Mutex::new(Weak::new());
static GSTREAMER_FILM: film::Shelf = Mutex::new(Weak::new());

const H264_AND_AAC: &str =
    "-c:v libx264 -preset veryfast -bf 2 -g 25 -keyint_min 25 -sc_threshold 0 -c:a aac";
const HEVC_AND_E_AC3: &str = "-c:v libx265 -preset ultrafast -tag:v hvc1 \
                              -x265-params log-level=error:keyint=25:min-keyint=25:scenecut=0:open-gop=0:bframes=2 -c:a eac3";

fn encode(folder: &Path, coding: &str) -> Vec<PathBuf> {
    let file = folder.join("pushed.mp4");
    let input = "-y -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 \
                 -pix_fmt yuv420p";
    let mut command = ffmpeg();
    command.args(input.split_whitespace()).args(coding.split_whitespace());
    command.args(["-t", &film::length().to_string()]).arg(&file);
    assert!(command.status().unwrap().success(), "ffmpeg encodes");
    vec![file]
}

/// Encodes a film with GStreamer, with pictures that all differ.
fn encode_with_gstreamer(folder: &Path) -> Vec<PathBuf> {
    let file = folder.join("pushed.mkv");
    let frames = film::length() as usize * RATE;
    // A buffer of the sound is as long as a picture.
    let pipeline = format!(
        "videotestsrc pattern=snow num-buffers={frames} ! video/x-raw,width=160,height=120,framerate={RATE}/1 ! \
         x264enc tune=zerolatency speed-preset=ultrafast key-int-max={RATE} bitrate=600 ! \
         video/x-h264,profile=baseline ! h264parse ! queue ! matroskamux name=file ! filesink location={} \
         audiotestsrc num-buffers={frames} samplesperbuffer={} ! audio/x-raw,rate=48000,channels=2 ! voaacenc ! \
         aacparse ! queue ! file.",
        file.display(),
        48_000 / RATE,
    );
    let mut command = Command::new("gst-launch-1.0");
    assert!(
        command.arg("-q").args(pipeline.split_whitespace()).status().unwrap().success(),
        "GStreamer encodes"
    );
    vec![file]
}

/// Pushes a film with GStreamer. The film is encoded before: a pipeline that pushes and keeps its pictures at the same time comes to a
/// stop now and then, before its first picture. The mux waits for the sound for up to ten seconds: otherwise it goes on without, as after a
/// lost source, where the machine is busy.
fn gstreamer(film: &Path, to: &str) -> Process {
    let pipeline = format!(
        "filesrc location={} ! matroskademux name=film \
         film. ! queue ! h264parse ! identity sync=true ! flvmux name=flv streamable=true latency=10000000000 ! rtmp2sink location={to} \
         film. ! queue ! aacparse ! identity sync=true ! flv.",
        film.display()
    );
    let mut command = Command::new("gst-launch-1.0");
    command.arg("-q").args(pipeline.split_whitespace());
    Process::start(command)
}
