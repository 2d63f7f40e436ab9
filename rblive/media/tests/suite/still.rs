//! A picture out of a media segment, without a decoder: ffmpeg decodes it to the frame that the segment begins with. Skipped without
//! ffmpeg.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use rblive_media::fmp4::InitSegment;

const MAX_FRAME_BYTES: u32 = 1 << 20;

/// The checksums of the decoded frames of a file.
fn frames(file: &Path) -> Vec<String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i"]).arg(file).args(["-map", "0:v", "-f", "framemd5", "-"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn the_first_frame_of_a_segment_is_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let inputs =
        "-f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 -t 4";
    let coding = "-c:v libx264 -pix_fmt yuv420p -g 50 -sc_threshold 0 -c:a aac -f hls -hls_time 2 -hls_segment_type fmp4 \
                  -hls_segment_filename %d.m4s -hls_list_size 0 list.m3u8";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error"]).args(inputs.split_whitespace()).args(coding.split_whitespace());
    match ffmpeg.current_dir(folder.path()).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            writeln!(std::io::stderr(), "SKIPPED: ffmpeg is not installed (scripts/setup --tests)")
                .expect("standard error");
            return;
        }
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let init = InitSegment::parse(&Bytes::from(read("init.mp4"))).unwrap();
    let all = frames(&folder.path().join("list.m3u8"));
    for (name, first) in [("0.m4s", 0), ("1.m4s", 50)] {
        let segment = read(name);
        let (mut still, frame) = init.still(&segment, MAX_FRAME_BYTES).unwrap();
        still.extend(&segment[frame.clone()]);
        let file = folder.path().join("still.mp4");
        std::fs::write(&file, still).unwrap();
        assert_eq!(frames(&file), [all[first].clone()], "{name}");
        // The beginning of the segment is enough, but it must have the whole `moof`.
        assert_eq!(init.still(&segment[..frame.start], MAX_FRAME_BYTES).unwrap().1, frame);
        // A frame that says to be larger than it may be is none.
        assert!(init.still(&segment, frame.len() as u32 - 1).is_none());
        assert!((0..100).all(|cut| init.still(&segment[..cut], MAX_FRAME_BYTES).is_none()));
    }
}
