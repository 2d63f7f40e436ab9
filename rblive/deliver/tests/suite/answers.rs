//! Playlists, segments and what HTTP promises about them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rblive::content::{Container, Description, Flags, Header, Kind, Rendition};
use rblive_deliver::{Server, Settings, token};
use testkit::{awaited, until};

use crate::lab::{Got, Lab, NAME, WAIT, media, request};

/// The metrics by a connection that stays.
fn ask_again(viewer: &mut BufReader<TcpStream>) -> String {
    viewer.get_mut().write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let head: Vec<String> = viewer.lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().unwrap()];
    viewer.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn playlists_lead_to_every_byte() {
    let lab = Lab::plain();
    assert_eq!(lab.get("/ready").status, 503);
    lab.segments(0..3, 20_000);
    let list = lab.playlist_with("\n2.m4s\n", |path| lab.get(path));
    let init = list.split("MAP:URI=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(lab.get(&format!("/live/{NAME}/1/{init}")).body, b"init");
    for number in 0..3 {
        let [first, second] = [0, 1].map(|part| media(number, part, 20_000));
        assert_eq!(lab.get(&format!("/live/{NAME}/1/{number}.0.m4s")).body, first);
        assert_eq!(lab.get(&format!("/live/{NAME}/1/{number}.1.m4s")).body, second);
        let segment = lab.get(&format!("/live/{NAME}/1/{number}.m4s"));
        assert!(segment.whole && segment.body == [first, second].concat());
        assert_eq!(segment.field("content-type"), Some("video/mp4"));
    }
    let all = String::from_utf8(lab.get(&format!("/live/{NAME}/index.m3u8")).body).unwrap();
    assert!(
        all.contains("CODECS=\"avc1.64001f\",RESOLUTION=640x360,FRAME-RATE=25.000\n1/media.m3u8\n"),
        "{all}"
    );
    let manifest = lab.get(&format!("/live/{NAME}/manifest.mpd"));
    assert_eq!(manifest.field("content-type"), Some("application/dash+xml"));
    let streams = String::from_utf8(lab.get("/streams").body).unwrap();
    assert!(streams.contains("\"name\":\"cam/1\"") && streams.contains("\"health\":\"live\""), "{streams}");
    let metrics = String::from_utf8(lab.get("/metrics").body).unwrap();
    assert!(metrics.contains("rblive_stream_received_bytes_total{stream=\"cam/1\"}"), "{metrics}");
    let mut stays = BufReader::new(TcpStream::connect(lab.server.addr()).unwrap());
    until("one connection alone is open", || ask_again(&mut stays).contains("rblive_open_connections 1\n"));
    assert_eq!([lab.get("/").status, lab.get("/hls.js").status, lab.get("/ready").status], [200; 3]);
}

/// A stream of an application, whose segments are files of a transport stream.
#[test]
fn whole_segments_of_a_transport_stream_are_served_as_they_are() {
    let lab = Lab::plain();
    let codecs = "avc1.64001f,ac-3".into();
    let rendition = Rendition { id: 1, codecs, bandwidth: 1_000_000, video: None, audio: None };
    let description = Description {
        name: NAME.into(),
        container: Container::Ts,
        target_duration_us: 1_000_000,
        part_target_us: None,
        renditions: vec![rendition],
    };
    for sequence in 0..4 {
        lab.write(Header::new(Kind::Description), &description.to_json().unwrap());
        let header = Header {
            flags: Flags::FIRST_PART | Flags::INDEPENDENT,
            rendition: 1,
            sequence,
            duration_us: 1_000_000,
            start_us: sequence * 1_000_000,
            ..Header::new(Kind::Media)
        };
        lab.write(header, &media(sequence, 0, 18_800));
    }
    let list = lab.playlist_with("\n3.ts\n", |path| lab.get(path));
    assert!(list.starts_with("#EXTM3U\n#EXT-X-VERSION:3\n") && list.contains("#EXTINF:1.0"), "{list}");
    assert!(!list.contains("EXT-X-MAP") && !list.contains("EXT-X-PART") && !list.contains(".m4s"), "{list}");
    for sequence in 0..4 {
        let got = lab.get(&format!("/live/{NAME}/1/{sequence}.ts"));
        assert_eq!((got.field("content-type"), got.whole), (Some("video/mp2t"), true));
        assert_eq!(got.body, media(sequence, 0, 18_800));
    }
    // Neither has a form for them.
    for path in ["manifest.mpd", "poster.mp4"] {
        assert_eq!(lab.get(&format!("/live/{NAME}/{path}")).status, 404, "{path}");
    }
}

/// A stream whose files of a transport stream the ingesting node splits into chunks.
#[test]
fn segments_of_a_transport_stream_may_have_several_chunks() {
    let lab = Lab::plain();
    let codecs = "avc1.64001f".into();
    let rendition = Rendition { id: 1, codecs, bandwidth: 1_000_000, video: None, audio: None };
    let description = Description {
        name: NAME.into(),
        container: Container::Ts,
        target_duration_us: 1_000_000,
        part_target_us: Some(1_000_000),
        renditions: vec![rendition],
    };
    let first = Flags::FIRST_PART | Flags::INDEPENDENT;
    for sequence in 0..4 {
        lab.write(Header::new(Kind::Description), &description.to_json().unwrap());
        for (part, flags, duration_us) in
            [(0, first, 1_000_000), (1, Flags::NONE, 0), (2, Flags::LAST_PART, 0)]
        {
            let (rendition, start_us) = (1, sequence * 1_000_000);
            let header = Header::new(Kind::Media);
            lab.write(
                Header { flags, rendition, sequence, part, duration_us, start_us, ..header },
                &media(sequence, part, 9_000),
            );
        }
    }
    let list = lab.playlist_with("\n3.ts\n", |path| lab.get(path));
    assert!(
        !list.contains("EXT-X-PART") && !list.contains("PRELOAD") && !list.contains("EXT-X-GAP"),
        "{list}"
    );
    let got = lab.get(&format!("/live/{NAME}/1/2.ts"));
    assert!(got.whole && got.body == [0, 1, 2].map(|part| media(2, part, 9_000)).concat());
}

#[test]
fn ranges_tags_and_heads() {
    let lab = Lab::plain();
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    let whole = [media(1, 0, 1000), media(1, 1, 1000)].concat();
    let ask = |method: &str, field: &str| {
        let text = format!(
            "{method} /live/{NAME}/1/1.m4s HTTP/1.1\r\nhost: x\r\n{field}\r\nconnection: close\r\n\r\n"
        );
        request(lab.server.addr(), &text)
    };
    for (range, bytes, place) in [
        ("bytes=0-0", &whole[..1], "bytes 0-0/2000"),
        ("bytes=900-1100", &whole[900..1101], "bytes 900-1100/2000"),
        ("bytes=1990-", &whole[1990..], "bytes 1990-1999/2000"),
        ("bytes=-5", &whole[1995..], "bytes 1995-1999/2000"),
        ("bytes=1500-99999", &whole[1500..], "bytes 1500-1999/2000"),
    ] {
        let got = ask("GET", &format!("range: {range}"));
        assert_eq!((got.status, got.body.as_slice()), (206, bytes), "{range}");
        assert_eq!(got.field("content-range"), Some(place));
    }
    assert_eq!(ask("GET", "range: bytes=2000-").status, 416);
    assert_eq!(ask("GET", "range: bytes=5-1").status, 200, "no range is ignored");
    let head = ask("HEAD", "x: y");
    assert_eq!((head.status, head.body.len(), head.field("content-length")), (200, 0, Some("2000")));
    let etag = head.field("etag").unwrap().to_owned();
    let same = ask("GET", &format!("if-none-match: \"x\", {etag}"));
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(ask("GET", "if-none-match: \"x\"").status, 200);
    for (field, status) in [(etag.as_str(), 206), ("\"other\"", 200), ("Tue, 01 Dec 2026 00:00:00 GMT", 200)]
    {
        let got = ask("GET", &format!("range: bytes=0-9\r\nif-range: {field}"));
        assert_eq!((got.status, got.body.len()), (status, if status == 206 { 10 } else { 2000 }), "{field}");
    }
    let options = ask("OPTIONS", "origin: https://elsewhere");
    assert_eq!((options.status, options.field("access-control-allow-origin")), (204, Some("*")));
    assert_eq!(options.field("access-control-allow-headers"), Some("range, if-none-match"));
    let asked = "authorization, cmcd-request";
    let options = ask("OPTIONS", &format!("access-control-request-headers: {asked}"));
    assert_eq!(options.field("access-control-allow-headers"), Some(asked));
    let long = "x".repeat(2000);
    let options = ask("OPTIONS", &format!("access-control-request-headers: {long}"));
    assert_eq!(options.field("access-control-allow-headers"), Some("range, if-none-match"));
}

/// Letters may be written as escapes, and people leave out the file.
#[test]
fn an_address_may_have_escapes_and_one_without_a_file_leads_to_the_page() {
    let lab = Lab::plain();
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    assert_eq!(lab.get("/live/c%61m/%31/index%2Em3u8").status, 200);
    for other in [
        "/live/cam%2F1/index.m3u8",
        "/live/cam%/index.m3u8",
        "/live/cam%zz/index.m3u8",
        "/live/cam%2/1/index.m3u8",
    ] {
        assert_eq!(lab.get(other).status, 404, "{other}");
    }
    for (path, page) in [
        ("/live/cam/1", "./../../#/cam/1"),
        ("/live/cam/1/", "./../../../#/cam/1"),
        ("/cam/1", "./../#/cam/1"),
        ("/live/cam/1?token=x", "./../../?token=x#/cam/1"),
    ] {
        let got = lab.get(path);
        assert_eq!((got.status, got.field("location")), (302, Some(page)), "{path}");
    }
    for path in ["/live/none", "/none", "/live/", "/live/cam", "/live//"] {
        assert_eq!(lab.get(path).status, 404, "{path}");
    }
    let (closed, _) = closed_lab();
    assert_eq!(
        ["/live/cam/1", "/live/none", "/cam/1", "/none"].map(|path| closed.get(path).status),
        [403; 4]
    );
}

/// The page and its files work below any path, since no address in them begins at the root.
#[test]
fn the_page_has_relative_addresses_only() {
    let lab = Lab::plain();
    for file in [
        "",
        "page.css",
        "theme.css",
        "page.js",
        "player.js",
        "peer.js",
        "recordings.js",
        "poster.js",
        "theme.js",
    ] {
        let text = String::from_utf8(lab.get(&format!("/{file}")).body).unwrap();
        for rooted in ["=\"/", "from '/", "fetch('/", "fetch(`/", "url(/", "`/live", "'/live", "`/vod"] {
            assert!(!text.contains(rooted), "{file}: {rooted}");
        }
    }
}

/// What a proxy says of its clients counts; what anybody else says does not.
#[test]
fn requests_of_a_proxy_count_for_the_viewer() {
    let settings = |proxies: &[&str]| Settings {
        tls: false,
        max_requests_per_address: 1,
        max_connections_per_address: 1,
        proxies: proxies.iter().map(|own| (*own).to_owned()).collect(),
        ..Settings::default()
    };
    let lab = Lab::new(settings(&["127.0.0.0/8"]), 256 << 10, 5);
    let ask = |client: &str| {
        // A viewer says of itself what it likes, also what is no text.
        let head = b"GET /health HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 203.0.113.1, \xff, ";
        let end = format!("{client}\r\nconnection: close\r\n\r\n");
        let mut socket = TcpStream::connect(lab.server.addr()).unwrap();
        socket.write_all(&[&head[..], end.as_bytes()].concat()).unwrap();
        Got::read(socket).status
    };
    // As many as the proxy likes, of as many viewers.
    assert!((0..50).all(|viewer| ask(&format!("192.0.2.{viewer}")) == 200));
    assert!((0..50).map(|_| ask("198.51.100.1")).any(|status| status == 429));
    assert_eq!(ask("198.51.100.2"), 200);
    let error = Server::start(settings(&["localhost"]), Arc::default()).unwrap_err().to_string();
    assert!(error.contains("deliver.proxies: 'localhost'"), "{error}");
}

#[test]
fn a_request_waits_for_the_part_that_it_names() {
    let lab = Lab::plain();
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    std::thread::scope(|scope| {
        let list = scope.spawn(|| lab.get(&format!("/live/{NAME}/1/media.m3u8?_HLS_msn=2&_HLS_part=0")));
        let part = scope.spawn(|| lab.get(&format!("/live/{NAME}/1/2.0.m4s")));
        lab.describe();
        lab.part(2, 0, 777);
        let list = String::from_utf8(list.join().unwrap().body).unwrap();
        assert!(
            list.contains("URI=\"2.0.m4s\"") && list.contains("PRELOAD-HINT:TYPE=PART,URI=\"2.1.m4s\""),
            "{list}"
        );
        assert_eq!(part.join().unwrap().body, media(2, 0, 777));
    });
    assert_eq!(lab.get(&format!("/live/{NAME}/1/media.m3u8?_HLS_msn=9")).status, 400);
    let late = lab.get(&format!("/live/{NAME}/1/media.m3u8?_HLS_msn=2&_HLS_part=1"));
    assert_eq!(late.status, 503, "the wait is bounded");
}

const KEY: &str = "0123456789abcdef";

/// A server whose viewers need tokens, with two segments of a stream, and the key.
fn closed_lab() -> (Lab, Vec<u8>) {
    let settings = Settings { tls: false, token_key: KEY.into(), ..Settings::default() };
    let lab = Lab::new(settings, 256 << 10, 5);
    lab.segments(0..2, 1000);
    (lab, KEY.into())
}

#[test]
fn tokens_open_their_stream_and_travel_in_playlists() {
    let (lab, key) = closed_lab();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let good = token::sign(&key, NAME, now + 1000);
    let list = lab.playlist_with("\n1.m4s?token", |path| lab.get(&format!("{path}?token={good}")));
    assert!(list.contains(&format!("\n1.m4s?token={good}\n")), "{list}");
    assert_eq!(lab.get(&format!("/live/{NAME}/1/1.m4s?token={good}")).status, 200);
    for bad in [
        String::new(),
        "?token=1.2".into(),
        format!("?token={}", token::sign(&key, NAME, now - 1)),
        format!("?token={}", token::sign(&key, "other", now + 9)),
    ] {
        for file in ["index.m3u8", "manifest.mpd", "1/media.m3u8", "1/1.m4s"] {
            assert_eq!(lab.get(&format!("/live/{NAME}/{file}{bad}")).status, 403, "{file}{bad}");
        }
    }
}

#[test]
fn lists_and_metrics_name_only_streams_that_the_token_opens() {
    let (lab, key) = closed_lab();
    let token = |stream: &str, expires| format!("?token={}", token::sign(&key, stream, expires));
    let [own, other, every] = [NAME, "cam/2", token::EVERY].map(|stream| token(stream, 4_000_000_000));
    lab.playlist_with("\n1.m4s?token", |path| lab.get(&format!("{path}{every}")));
    for refused in [String::new(), "?token=1.2".into(), token(token::EVERY, 1)] {
        for path in ["/streams", "/vod", "/metrics"] {
            let got = lab.get(&format!("{path}{refused}"));
            let said = String::from_utf8(got.body).unwrap();
            assert!(got.status == 403 && !said.contains(NAME), "{path}{refused}: {said}");
        }
    }
    for (token, is_named) in [(&own, true), (&other, false), (&every, true)] {
        let got = lab.get(&format!("/streams{token}"));
        let said = String::from_utf8(got.body).unwrap();
        assert_eq!((got.status, said.contains(NAME)), (200, is_named), "{said}");
    }
    assert_eq!(
        [&own, &other, &every].map(|token| lab.get(&format!("/metrics{token}")).status),
        [403, 403, 200]
    );
    // Nothing on these depends on the streams' names.
    assert_eq!([lab.get("/").status, lab.get("/health").status, lab.get("/ready").status], [200; 3]);
}

#[test]
fn limits_refuse_what_is_too_much() {
    let settings = Settings {
        tls: false,
        max_connections_per_address: 2,
        max_viewers_per_stream: 0,
        ..Settings::default()
    };
    let lab = Lab::new(settings, 256 << 10, 5);
    lab.segments(0..2, 1000);
    while lab.get("/ready").status != 200 {}
    // The place of a connection may be taken until a moment after its end.
    until("the stream is full", || lab.get(&format!("/live/{NAME}/1/media.m3u8")).status == 503);
    let silent = [(); 9].map(|()| TcpStream::connect(lab.server.addr()).unwrap());
    until("connections that have asked for nothing make room", || lab.get("/health").status == 200);
    let viewer = || {
        let mut viewer = TcpStream::connect(lab.server.addr()).unwrap();
        let asked = viewer.write_all(b"GET /streams HTTP/1.1\r\nhost: x\r\n\r\n");
        asked.and_then(|()| viewer.read_exact(&mut [0; 12])).ok().map(|()| viewer)
    };
    let open = [(); 2].map(|()| awaited(WAIT, "a viewer has a place", viewer));
    assert_eq!(lab.get("/health").status, 0, "a third connection is closed");
    drop((silent, open));
}

#[test]
fn an_address_that_asks_too_often_is_told() {
    let settings = Settings { tls: false, max_requests_per_address: 1, ..Settings::default() };
    let lab = Lab::new(settings, 256 << 10, 5);
    let pipelined = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n".repeat(8);
    let last = "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let got = request(lab.server.addr(), &format!("{pipelined}{last}"));
    assert_eq!(got.status, 429, "a connection counts as ten requests");
    assert_eq!(got.field("retry-after"), Some("1"));
}
