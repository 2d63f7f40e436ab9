//! Bad requests of many kinds: each gets its status, and the server goes on.

use crate::lab::{Lab, request};

/// Paths that name nothing.
const PATHS: &[&str] = &[
    "/x",
    "//",
    "/live",
    "/live/",
    "/live/x",
    "/live//index.m3u8",
    "/live/cam/1/index.m3u",
    "/live/cam/1/INDEX.M3U8",
    "/live/cam/2/index.m3u8",
    "/live/cam/index.m3u8",
    "/live/cam/1/0/media.m3u8",
    "/live/cam/1/2/media.m3u8",
    "/live/cam/1/-1/media.m3u8",
    "/live/cam/1/01/media.m3u8",
    "/live/cam/1/65536/media.m3u8",
    "/live/cam/1/1/index.m3u8",
    "/live/cam/1/1/0",
    "/live/cam/1/1/.m4s",
    "/live/cam/1/1/x.m4s",
    "/live/cam/1/1/-1.m4s",
    "/live/cam/1/1/+1.m4s",
    "/live/cam/1/1/1e3.m4s",
    "/live/cam/1/1/00.m4s",
    "/live/cam/1/1/0.m4v",
    "/live/cam/1/1/0.mp4",
    "/live/cam/1/1/9.m4s",
    "/live/cam/1/1/18446744073709551616.m4s",
    "/live/cam/1/1/0.x.m4s",
    "/live/cam/1/1/0.0.0.m4s",
    "/live/cam/1/1/0.4294967296.m4s",
    "/live/cam/1/1/init.mp4",
    "/live/cam/1/1/init-.mp4",
    "/live/cam/1/1/init-0.mp4",
    "/live/cam/1/1/init-4294967296.mp4",
    "/live/cam/1/1/init--1.mp4",
    "/live/../etc/passwd",
    "/live/cam/../cam/1/index.m3u8",
    "/live/./cam/1/index.m3u8",
    "/../../etc/passwd",
    "/live/cam%2f1/index.m3u8",
    "/live/cam/1%00/index.m3u8",
    "/live/cam/1/index.m3u8%00",
    "/live/cam/1/index.m3u8/",
    "/live/cam\\1/index.m3u8",
    "/metrics/",
    "/health/x",
    "/streams.json",
    "/nothing.css",
    "/favicon.ico",
    "/.git/config",
    "/index.html",
    "/hls.js.map",
    "/live/cam/1/manifest.mpd/x",
    "/live/cam/1/manifest",
    "/live/cam;1/index.m3u8",
    "/live/cam:1/index.m3u8",
];

/// Queries of a media playlist that are refused.
const QUERIES: &[&str] = &[
    "_HLS_msn=",
    "_HLS_msn=-1",
    "_HLS_msn=+1",
    "_HLS_msn=x",
    "_HLS_msn=1.5",
    "_HLS_msn=0x1",
    "_HLS_msn=%31",
    "_HLS_msn=1_0",
    "_HLS_msn=18446744073709551616",
    "_HLS_msn=1&_HLS_msn=1",
    "_HLS_part=0",
    "_HLS_msn=0&_HLS_part=",
    "_HLS_msn=0&_HLS_part=-1",
    "_HLS_msn=0&_HLS_part=x",
    "_HLS_msn=0&_HLS_part=4294967296",
    "_HLS_msn=0&_HLS_part=0&_HLS_part=0",
    "_HLS_skip=",
    "_HLS_skip=no",
    "_HLS_skip=yes",
    "_HLS_skip=1",
    "_HLS_skip=YES&_HLS_skip=YES",
    "_HLS_msn=100",
    "_HLS_msn=18446744073709551615",
    "_HLS_msn=4&_HLS_part=0",
    "_HLS_msn=100&_HLS_part=5",
    "a=b&_HLS_msn=x",
    "_HLS_msn=x&token=1",
];

const METHODS: &[&str] = &[
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "get",
    "Get",
    "HEADS",
    "PURGE",
    "LINK",
    "LOCK",
    "MKCOL",
    "X",
    "SUBSCRIBE",
    "PRI",
    "OPTION",
    "GETT",
    "A-B",
];

/// Fields that are refused, with the status.
const FIELDS: &[(&str, u16)] = &[
    ("content-length: 5", 413),
    ("content-length: -1", 413),
    ("content-length: 99999999999999999999", 413),
    ("content-length: x", 413),
    ("content-length: 0, 5", 413),
    ("content-length: 0\r\ncontent-length: 5", 413),
    ("transfer-encoding: chunked", 413),
    ("Transfer-Encoding: identity", 413),
    ("TRANSFER-ENCODING: gzip, chunked", 413),
    ("transfer-encoding: x\r\ncontent-length: 3", 413),
    ("host: y", 400),
    ("Host: x", 400),
    ("HOST:", 400),
    (" folded", 400),
    ("no colon", 400),
    (": empty", 400),
    ("a b: c", 400),
    ("a\u{0}: c", 400),
    ("a: b\u{0}", 400),
    ("a: \u{1}", 400),
    ("(x): y", 400),
    ("x[1]: y", 400),
    ("\"x\": y", 400),
    ("é: y", 400),
    ("x\t: y", 400),
    ("x : y", 400),
    ("{}: y", 400),
    ("x=1: y", 400),
    ("@: y", 400),
    ("x,y: z", 400),
];

/// Bytes that are no request at all.
const RAW: &[(&str, u16)] = &[
    ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n", 400),
    ("GET\r\n\r\n", 400),
    ("GET /\r\n\r\n", 400),
    ("GET / \r\n\r\n", 505),
    ("GET / HTTP\r\n\r\n", 505),
    ("GET / HTTP/1.1 \r\n\r\n", 400),
    ("GET / HTTP/2.0\r\nhost: x\r\n\r\n", 505),
    ("GET / HTTP/0.9\r\n\r\n", 505),
    ("GET / HTTP/1.2\r\nhost: x\r\n\r\n", 505),
    ("GET / HTTP/9.9\r\nhost: x\r\n\r\n", 505),
    ("GET / http/1.1\r\nhost: x\r\n\r\n", 505),
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\n\n", 400),
    ("GET x HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET ../x HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET ftp://x/ HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET ?a HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET #a HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET / / HTTP/1.1\r\nhost: x\r\n\r\n", 505),
    (" GET / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("G\u{0}T / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET /\u{0} HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET /\u{7f} HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("{\"a\": 1}\r\n\r\n", 400),
    ("<html>\r\n\r\n", 400),
    ("SSH-2.0-x\r\n\r\n", 400),
    ("*1\r\n$4\r\nPING\r\n\r\n", 400),
    ("(GET) / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    ("GET http:/// HTTP/1.0\r\n\r\n", 200),
    ("GET http://x HTTP/1.0\r\n\r\n", 200),
    ("\r\n\r\nGET /health HTTP/1.0\r\n\r\n", 200),
];

#[test]
fn each_bad_request_has_its_status_and_the_server_goes_on() {
    let lab = Lab::plain();
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    let mut all: Vec<(String, u16)> = Vec::new();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    all.extend(PATHS.iter().map(|path| (get(path), 404)));
    all.extend(QUERIES.iter().map(|query| (get(&format!("/live/cam/1/1/media.m3u8?{query}")), 400)));
    all.extend(METHODS.iter().map(|method| (get("/").replacen("GET", method, 1), 405)));
    let with = |field: &str| format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{field}\r\n\r\n");
    all.extend(FIELDS.iter().map(|(field, status)| (with(field), *status)));
    all.extend(RAW.iter().map(|(text, status)| ((*text).to_owned(), *status)));
    let many = |count: usize| (0..count).map(|at| format!("x{at}: y\r\n")).collect::<String>();
    all.push((with(&many(100)), 431));
    all.push((with(&format!("x: {}", "y".repeat(20_000))), 431));
    all.push((get(&format!("/{}", "a".repeat(20_000))), 431));
    for length in (0..40).map(|at| at * 7) {
        all.push((
            with(&format!("range: bytes={}-", 1_u64 << 40)).replacen(
                "/ ",
                &format!("/live/{}/1/1.m4s ", "n".repeat(length + 1)),
                1,
            ),
            404,
        ));
    }
    assert!(all.len() >= 200, "{} requests", all.len());
    let mut wrong = Vec::new();
    for (text, status) in &all {
        let got = request(lab.server.addr(), text);
        if got.status != *status || !got.whole {
            wrong.push((text.chars().take(200).collect::<String>(), *status, got.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(lab.get("/health").body, b"ok\n");
}
