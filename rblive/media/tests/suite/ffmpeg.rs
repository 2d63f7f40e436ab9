//! Streams that ffmpeg encodes, remuxed and read by ffprobe: the same frames at the same times. Skipped without ffmpeg.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig};
use rblive_media::unit::Input;
use rblive_media::{flv, fmp4, ts};

const MAX_UNIT: usize = 1 << 20;

/// Whether ffmpeg and an encoder are there; says so if not.
fn missing(encoder: &str) -> bool {
    let output = Command::new("ffmpeg").args(["-hide_banner", "-encoders"]).output();
    let found = output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(encoder));
    if !found {
        writeln!(
            std::io::stderr(),
            "SKIPPED: ffmpeg with {encoder} is not installed (scripts/setup --tests)"
        )
        .expect("standard error");
    }
    !found
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Three seconds of a test picture and a tone.
fn encode(file: &Path, options: &str) {
    let inputs =
        "-f lavfi -i testsrc2=size=160x90:rate=30 -f lavfi -i sine=frequency=440:sample_rate=44100 -t 3";
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-y"]).args(inputs.split(' '));
    run(command.args(options.split(' ')).arg(file));
}

/// The presentation times of a stream's packets in milliseconds, in order.
fn times(file: &Path, stream: &str) -> Vec<i64> {
    let mut command = Command::new("ffprobe");
    command.args([
        "-v",
        "error",
        "-select_streams",
        stream,
        "-show_entries",
        "packet=pts_time",
        "-of",
        "csv=p=0",
    ]);
    let text = String::from_utf8(run(command.arg(file))).unwrap();
    let seconds = |line: &str| line.trim_end_matches(',').parse::<f64>().ok();
    let mut times: Vec<i64> =
        text.lines().filter_map(seconds).map(|time| (time * 1000.0).round() as i64).collect();
    times.sort_unstable();
    times
}

/// Every frame decodes, and none is reported as damaged.
fn decodes(file: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i"]).arg(file).args(["-f", "null", "-"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

fn parts(inputs: impl IntoIterator<Item = Input>) -> Vec<Part> {
    let mut segmenter = Segmenter::new(SegmenterConfig { target_ms: 1000, ..Default::default() }, 7);
    let mut parts = Vec::new();
    for input in inputs {
        segmenter.push(input).unwrap();
        parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    }
    segmenter.finish();
    parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    assert_eq!(segmenter.dropped(), 0);
    parts
}

/// The parts are numbered and joined as they should be; together they have the frames of `source`.
fn check(parts: &[Part], source: &Path, folder: &Path, segments: u64) {
    let first = &parts[0];
    assert_eq!((first.sequence, first.index, first.start_us, first.discontinuity), (7, 0, 0, false));
    for (before, part) in parts.iter().zip(&parts[1..]) {
        let place = if before.last { (before.sequence + 1, 0) } else { (before.sequence, before.index + 1) };
        assert_eq!((part.sequence, part.index), place);
        assert!(part.start_us.abs_diff(before.start_us + u64::from(before.duration_us)) <= 1);
        assert!(!before.last || part.independent);
        assert!(part.duration_us <= 320_000);
    }
    assert_eq!(parts.last().map(|part| (part.sequence, part.last)), Some((7 + segments - 1, true)));
    let file = folder.join("remuxed.mp4");
    let bytes = parts.iter().map(Part::to_vec).fold(first.init.to_vec(), |all, part| [all, part].concat());
    std::fs::write(&file, bytes).unwrap();
    for stream in ["v:0", "a:0"] {
        let (expected, found) = (times(source, stream), times(&file, stream));
        assert_eq!(found.len(), expected.len(), "frames of {stream}");
        let Some(offset) = expected.first().map(|first| found[0] - first) else { continue };
        for (expected, found) in expected.iter().zip(&found) {
            assert!(
                (found - expected - offset).abs() <= 25,
                "{stream}: {expected} became {found}, offset {offset}"
            );
        }
    }
    decodes(&file);
}

fn from_ts(file: &Path) -> Vec<Input> {
    let mut demuxer = ts::Demuxer::new(MAX_UNIT);
    let mut inputs = Vec::new();
    for piece in std::fs::read(file).unwrap().chunks(1000) {
        demuxer.push(piece).unwrap();
        inputs.extend(std::iter::from_fn(|| demuxer.next_input()));
    }
    demuxer.finish().unwrap();
    inputs.extend(std::iter::from_fn(|| demuxer.next_input()));
    assert_eq!(demuxer.damaged(), 0);
    inputs
}

/// The messages in an FLV file, as RTMP would carry them.
fn from_flv(file: &Path) -> Vec<Input> {
    let bytes = Bytes::from(std::fs::read(file).unwrap());
    let (mut demuxer, mut at, mut inputs) = (flv::Demuxer::new(), 13, Vec::new());
    while at + 11 <= bytes.len() {
        let number = |at: usize, count: usize| {
            bytes[at..at + count].iter().fold(0, |all, byte| all << 8 | u32::from(*byte))
        };
        let (size, time) = (number(at + 1, 3) as usize, number(at + 7, 1) << 24 | number(at + 4, 3));
        let payload = bytes.slice(at + 11..at + 11 + size);
        inputs.extend(match bytes[at] {
            8 => demuxer.audio(time, &payload).unwrap(),
            9 => demuxer.video(time, &payload).unwrap(),
            _ => None,
        });
        at += 11 + size + 4;
    }
    inputs
}

const H264: &str = "-c:v libx264 -preset veryfast -g 30 -bf 2 -pix_fmt yuv420p -c:a aac";

#[test]
#[ignore = "long: needs ffmpeg"]
fn h264_and_aac_in_a_transport_stream() {
    if missing("libx264") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.ts");
    encode(&file, H264);
    let parts = parts(from_ts(&file));
    check(&parts, &file, folder.path(), 3);
    let frames: u32 = parts.iter().map(|part| part.video_frames).sum();
    assert_eq!(frames, 90);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn hevc_in_a_transport_stream() {
    if missing("libx265") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.ts");
    encode(
        &file,
        "-c:v libx265 -preset ultrafast -x265-params log-level=error:keyint=30:min-keyint=30:scenecut=0:open-gop=0 -pix_fmt yuv420p -c:a aac",
    );
    check(&parts(from_ts(&file)), &file, folder.path(), 3);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ac3_and_e_ac3_in_a_transport_stream() {
    if missing("libx264") {
        return;
    }
    for options in
        ["-c:a ac3 -ac 6", "-c:a eac3 -ac 6", "-c:a ac3 -ar 44100", "-c:a eac3 -mpegts_flags system_b"]
    {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("source.ts");
        encode(&file, &format!("-c:v libx264 -preset veryfast -g 30 -pix_fmt yuv420p {options}"));
        check(&parts(from_ts(&file)), &file, folder.path(), 3);
    }
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn h264_and_aac_in_flv_messages() {
    if missing("libx264") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.flv");
    encode(&file, H264);
    check(&parts(from_flv(&file)), &file, folder.path(), 3);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn a_transport_stream_that_ffmpeg_copies_into_flv_messages() {
    if missing("libx264") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, file) = (folder.path().join("source.ts"), folder.path().join("copy.flv"));
    encode(&source, H264);
    // ffmpeg learns the sound's configuration from its first frame, and says before that it has an empty one.
    run(Command::new("ffmpeg").args(["-v", "error", "-i"]).arg(&source).args(["-c", "copy"]).arg(&file));
    check(&parts(from_flv(&file)), &source, folder.path(), 3);
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn one_track_alone() {
    if missing("libx264") {
        return;
    }
    for (options, segments) in [("-an -c:v libx264 -g 30 -pix_fmt yuv420p", 3), ("-vn -c:a aac", 4)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("source.ts");
        encode(&file, options);
        check(&parts(from_ts(&file)), &file, folder.path(), segments);
    }
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn fragmented_mp4_is_understood() {
    for (encoder, options) in [
        ("libx264", H264),
        ("libx265", "-c:v libx265 -preset ultrafast -x265-params log-level=error -g 30 -tag:v hvc1 -c:a aac"),
        ("libx264", "-c:v libx264 -g 30 -pix_fmt yuv420p -c:a ac3"),
        ("libx264", "-c:v libx264 -g 30 -pix_fmt yuv420p -c:a eac3"),
        ("libsvtav1", "-an -c:v libsvtav1 -preset 12 -g 30 -pix_fmt yuv420p -t 1"),
    ] {
        if missing(encoder) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("source.mp4");
        // AC-3's configuration is known when the first frame is.
        let begins = if options.contains("ac3") { "delay_moov" } else { "empty_moov" };
        encode(&file, &format!("{options} -movflags frag_keyframe+{begins}+default_base_moof"));
        let bytes = Bytes::from(std::fs::read(&file).unwrap());
        let init = fmp4::InitSegment::parse(&bytes).unwrap();
        let found = init.times(&bytes).unwrap();
        let expected = times(&file, "v:0");
        let audio = options.split("-c:a ").nth(1).map_or(0, |_| 1);
        assert_eq!(init.tracks.len(), 1 + audio, "{options}");
        assert_eq!(found.frames, expected.len() as u64, "{encoder}");
        assert!(found.key && found.duration_us.abs_diff(expected.len() as u64 * 1_000_000 / 30) < 2000);
    }
}
