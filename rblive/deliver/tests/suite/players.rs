//! ffprobe gets every frame that ffmpeg encoded, from the server.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use rblive::content::{Flags, Header, Kind};
use rblive_deliver::Settings;

use crate::lab::{Lab, NAME};

const SECONDS: u64 = 6;

fn run(command: &mut Command) -> String {
    let out = command.output().expect("the program starts");
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8(out.stdout).unwrap()
}

/// Encodes a clock of 25 pictures per second into an initialisation segment and segments of one second.
fn encode(to: &Path) {
    let args = "-v error -f lavfi -i testsrc2=size=320x180:rate=25 -c:v libx264 -profile:v high -preset veryfast -g 25 -keyint_min 25 \
                -sc_threshold 0 -bf 0 -f hls -hls_time 1 -hls_segment_type fmp4 -hls_list_size 0";
    let mut ffmpeg = Command::new("ffmpeg");
    run(ffmpeg.args(args.split_whitespace()).args(["-t", &SECONDS.to_string(), "s.m3u8"]).current_dir(to));
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn ffprobe_gets_every_frame() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        writeln!(std::io::stderr(), "SKIPPED: there is no ffmpeg (apt-get install ffmpeg)")
            .expect("standard error");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    encode(folder.path());
    let mut lab = Lab::new(Settings { tls: false, ..Settings::default() }, 256 << 10, 16);
    lab.init = std::fs::read(folder.path().join("init.mp4")).unwrap();
    for sequence in 0..SECONDS {
        lab.describe();
        let media = std::fs::read(folder.path().join(format!("s{sequence}.m4s"))).unwrap();
        let header = Header {
            flags: Flags::INDEPENDENT | Flags::FIRST_PART | Flags::LAST_PART,
            rendition: 1,
            sequence,
            duration_us: 1_000_000,
            start_us: sequence * 1_000_000,
            produced_ns: 1_760_000_001_000_000_000 + sequence * 1_000_000_000,
            ..Header::new(Kind::Media)
        };
        lab.write(header, &media);
    }
    lab.write(Header::new(Kind::End), b"");
    lab.playlist_with("#EXT-X-ENDLIST", |path| lab.get(path));
    for file in ["index.m3u8", "1/media.m3u8"] {
        let url = format!("http://{}/live/{NAME}/{file}", lab.server.addr());
        let args = "-v error -count_frames -select_streams v:0 -show_entries stream=nb_read_frames,width -of csv=p=0";
        let counted = run(Command::new("ffprobe").args(args.split_whitespace()).arg(&url));
        assert!(counted.lines().any(|line| line == format!("320,{}", SECONDS * 25)), "{file}: {counted}");
    }
}
