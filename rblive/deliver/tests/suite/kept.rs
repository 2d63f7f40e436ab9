//! Recordings: played back from their files, and nothing else of the disk.

use std::path::Path;

use rblive_deliver::{Settings, token};
use rblive_media::hls::{VodPlaylist, VodSegment, multivariant_playlist};
use rblive_media::rendition::{Container, Rendition};

use crate::lab::{Files, Got, Lab, media, request, tls};

pub const AT: &str = "/vod/cam/1/20261125T214822Z";

/// A recording of `cam/1` with two segments.
pub fn record(root: &Path, bytes: usize) {
    let folder = root.join("cam+1/20261125T214822Z");
    std::fs::create_dir_all(folder.join("1")).unwrap();
    let mut list = VodPlaylist::new(Container::Cmaf);
    for number in 0..2 {
        std::fs::write(folder.join(format!("1/{number}.m4s")), media(number, 0, bytes)).unwrap();
        let segment = VodSegment {
            duration_us: 1_000_000,
            wall_ns: 0,
            init: 7,
            gap: false,
            discontinuity: false,
            independent: true,
        };
        list.push(&segment);
    }
    std::fs::write(folder.join("1/init-7.mp4"), "init").unwrap();
    std::fs::write(folder.join("1/media.m3u8"), list.write()).unwrap();
    let codecs = "avc1.64001f".into();
    let rendition = Rendition { id: 1, codecs, bandwidth: 1_000_000, video: None, audio: None };
    std::fs::write(folder.join("index.m3u8"), multivariant_playlist(&[(rendition, None)], "")).unwrap();
    let about = serde_json::json!({
        "name": "cam/1", "begin": "20261125T214822Z", "seconds": 2.0, "segments": 2, "gaps": 0, "bytes": bytes * 2,
    });
    std::fs::write(folder.join("about.json"), about.to_string()).unwrap();
}

fn lab(root: &Path, settings: Settings) -> Lab {
    Lab::new(Settings { kept: vec![root.to_owned()], ..settings }, 256 << 10, 5)
}

fn plain() -> Settings {
    Settings { tls: false, ..Settings::default() }
}

fn get_with(lab: &Lab, path: &str, fields: &str) -> Got {
    request(
        lab.server.addr(),
        &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n"),
    )
}

#[test]
fn a_recording_is_listed_and_played() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 200_000);
    let lab = lab(root.path(), plain());
    let list: serde_json::Value = serde_json::from_slice(&lab.get("/vod?stream=cam/1").body).unwrap();
    let playlist = list["recordings"][0]["playlist"].as_str().unwrap();
    assert_eq!(playlist, format!("{AT}/index.m3u8"));
    assert_eq!(lab.get("/vod?stream=cam/2").body, br#"{"recordings":[]}"#);
    let index = lab.get(playlist);
    assert_eq!(index.field("content-type"), Some("application/vnd.apple.mpegurl"));
    assert!(String::from_utf8(index.body).unwrap().contains("\n1/media.m3u8\n"));
    let media_list = lab.get(&format!("{AT}/1/media.m3u8"));
    assert_eq!(media_list.field("cache-control"), Some("no-cache"));
    assert!(String::from_utf8(media_list.body).unwrap().ends_with("\n1.m4s\n#EXT-X-ENDLIST\n"));
    assert_eq!(lab.get(&format!("{AT}/1/init-7.mp4")).body, b"init");
    let segment = lab.get(&format!("{AT}/1/1.m4s"));
    assert_eq!((segment.status, segment.whole), (200, true));
    assert_eq!(segment.field("content-type"), Some("video/mp4"));
    assert_eq!(segment.field("cache-control"), Some("max-age=3600, immutable"));
    assert!(segment.body == media(1, 0, 200_000));
}

#[test]
fn parts_and_known_files_are_answered_as_such() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 200_000);
    let lab = lab(root.path(), plain());
    let path = format!("{AT}/1/0.m4s");
    let whole = media(0, 0, 200_000);
    for (range, status, bytes) in [
        ("bytes=0-99", 206, &whole[..100]),
        ("bytes=199999-", 206, &whole[199_999..]),
        ("bytes=-70000", 206, &whole[130_000..]),
        ("bytes=100-199", 206, &whole[100..200]),
        ("lines=1-2", 200, &whole[..]),
    ] {
        let got = get_with(&lab, &path, &format!("range: {range}\r\n"));
        assert_eq!((got.status, got.whole), (status, true), "{range}");
        assert!(got.body == bytes, "{range}");
    }
    let beyond = get_with(&lab, &path, "range: bytes=200000-\r\n");
    assert_eq!((beyond.status, beyond.field("content-range")), (416, Some("bytes */200000")));
    for path in [path.clone(), format!("{AT}/1/media.m3u8")] {
        let etag = lab.get(&path).field("etag").unwrap().to_owned();
        let again = get_with(&lab, &path, &format!("if-none-match: {etag}\r\n"));
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
    let head =
        request(lab.server.addr(), &format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("200000"), 0));
}

#[test]
fn nothing_else_of_the_disk_is_reached() {
    let root = tempfile::tempdir().unwrap();
    record(&root.path().join("kept"), 1000);
    std::fs::write(root.path().join("secret"), "secret").unwrap();
    let folder = root.path().join("kept/cam+1/20261125T214822Z");
    std::os::unix::fs::symlink(root.path().join("secret"), folder.join("1/9.m4s")).unwrap();
    std::os::unix::fs::symlink(root.path(), root.path().join("kept/link")).unwrap();
    std::fs::create_dir(folder.join("1/8.m4s")).unwrap();
    let fifo = folder.join("1/7.m4s");
    assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
    let lab = lab(&root.path().join("kept"), plain());
    for path in [
        "/vod/../secret",
        "/vod/",
        "/vod/cam/1",
        "/vod/cam/1/20261125T214822Z/about.json",
        "/vod/cam/1/20261125T214822Z/1/.part",
        "/vod/cam/1/20261125T214822Z/1/%2e%2e/index.m3u8",
        "/vod/cam/1/20261125T214822Z/../../../secret",
        "/vod/cam/1/20261125T214822Z/1/../../../../secret",
        "/vod/cam%2f1/20261125T214822Z/index.m3u8",
        "/vod/cam+1/20261125T214822Z/index.m3u8",
        "/vod/cam/1/20261125T214822Z/1/2.m4s",
        "/vod/cam/1/20261125T214822Z/1/2.ts",
        "/vod/cam/1/20261125T214822Z/1/8.m4s",
        "/vod/cam/1/20261125T214822Z/1/7.m4s",
        "/vod/cam/1/20261125T214823Z/index.m3u8",
        "/vod/..%2fsecret/20261125T214822Z/index.m3u8",
    ] {
        assert_eq!(lab.get(path).status, 404, "{path}");
    }
    for path in ["/vod/cam/1/20261125T214822Z/1/9.m4s", "/vod/link/20261125T214822Z/index.m3u8"] {
        let got = lab.get(path);
        assert!(
            got.status >= 404 && !String::from_utf8_lossy(&got.body).contains("secret"),
            "{path}: {got:?}"
        );
    }
    assert_eq!(lab.get(&format!("{AT}/1/1.m4s")).status, 200);
}

#[test]
fn tokens_open_recordings_of_their_stream() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 1000);
    let lab = lab(root.path(), Settings { token_key: "key".into(), ..plain() });
    let path = format!("{AT}/1/media.m3u8");
    assert_eq!(lab.get(&path).status, 403);
    let other = token::sign(b"key", "cam/2", 4_000_000_000);
    assert_eq!(lab.get(&format!("{path}?token={other}")).status, 403);
    let own = token::sign(b"key", "cam/1", 4_000_000_000);
    let text = String::from_utf8(lab.get(&format!("{path}?token={own}")).body).unwrap();
    assert!(text.contains(&format!("URI=\"init-7.mp4?token={own}\"\n")), "{text}");
    assert!(text.contains(&format!("\n0.m4s?token={own}\n")), "{text}");
    assert_eq!(lab.get(&format!("{AT}/1/0.m4s")).status, 403);
    assert_eq!(lab.get(&format!("{AT}/1/0.m4s?token={own}")).status, 200);
    let every = token::sign(b"key", token::EVERY, 4_000_000_000);
    for (query, listed) in [
        (format!("token={own}"), 1),
        (format!("stream=cam/1&token={own}"), 1),
        (format!("token={other}"), 0),
        (format!("stream=cam/1&token={other}"), 0),
        (format!("token={every}"), 1),
    ] {
        let got = lab.get(&format!("/vod?{query}"));
        let list: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        assert_eq!(
            (got.status, list["recordings"].as_array().unwrap().len()),
            (200, listed),
            "{query}: {list}"
        );
    }
}

#[test]
fn segments_are_encrypted_and_removed_ones_end_nothing_that_began() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 3_000_000);
    let files = Files::new();
    let lab = lab(root.path(), files.settings());
    let mut stream = tls(lab.server.addr(), files.client(b"http/1.1"));
    use std::io::{Read, Write};
    let ask = format!("GET {AT}/1/1.m4s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    std::fs::remove_dir_all(root.path().join("cam+1")).unwrap();
    let got = Got::read(std::io::Cursor::new(first).chain(stream));
    assert!(got.status == 200 && got.whole && got.body == media(1, 0, 3_000_000));
    let mut stream = tls(lab.server.addr(), files.client(b"http/1.1"));
    stream.write_all(ask.as_bytes()).unwrap();
    assert_eq!(Got::read(stream).status, 404);
}
