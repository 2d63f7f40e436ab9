//! The beginning and the end of streams.

use std::time::{Duration, Instant};

use rblive_deliver::Settings;
use testkit::until;

use crate::lab::{Lab, NAME, media};

fn text(got: crate::lab::Got) -> String {
    String::from_utf8(got.body).unwrap()
}

#[test]
fn a_playlist_waits_for_the_first_segment() {
    let lab = Lab::plain();
    lab.describe();
    while lab.get("/ready").status != 200 {}
    assert!(!lab.catalog.statuses()[0].is_live);
    for file in ["index.m3u8", "1/media.m3u8", "manifest.mpd"] {
        let got = lab.get(&format!("/live/{NAME}/{file}"));
        assert_eq!(got.status, 503, "{file}: the wait is bounded, and players try again");
        assert!(text(got).contains("no whole segment yet"), "{file}");
    }
    std::thread::scope(|scope| {
        let files = ["index.m3u8", "1/media.m3u8", "manifest.mpd"];
        let waiting = files.map(|file| {
            scope.spawn({
                let lab = &lab;
                move || lab.get(&format!("/live/{NAME}/{file}"))
            })
        });
        lab.part(0, 0, 1000);
        lab.part(0, 1, 1000);
        let [all, list, manifest] = waiting.map(|got| got.join().unwrap());
        assert_eq!([all.status, manifest.status], [200; 2]);
        assert!(text(list).contains("\n0.m4s\n"));
    });
    assert!(lab.catalog.statuses()[0].is_live);
}

/// The first segment of an encoder with distant key frames is longer than a playlist waits without any part of it.
#[test]
fn a_playlist_waits_for_a_long_first_segment_while_it_comes() {
    let lab = Lab::plain();
    lab.describe();
    while lab.get("/ready").status != 200 {}
    std::thread::scope(|scope| {
        let list = scope.spawn(|| lab.get(&format!("/live/{NAME}/1/media.m3u8")));
        let begin = Instant::now();
        let mut parts = 0;
        // Three target durations are three seconds.
        while begin.elapsed() < Duration::from_millis(3500) && !list.is_finished() {
            lab.part(parts, 0, 1000);
            parts += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        lab.part(parts, 0, 1000);
        lab.part(parts, 1, 1000);
        let list = list.join().unwrap();
        assert_eq!(list.status, 200, "{}", list.head);
    });
}

/// A stream of two segments, whose end is kept for so many target durations.
fn ending(settings: Settings, keep_ended: u32) -> Lab {
    let lab = Lab::new(Settings { tls: false, keep_ended, ..settings }, 256 << 10, 5);
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    lab
}

#[test]
fn viewers_learn_of_the_end() {
    let lab = ending(Settings::default(), 600);
    lab.end();
    let list = lab.playlist_with("#EXT-X-ENDLIST\n", |path| lab.get(path));
    assert!(list.contains("\n1.m4s\n") && !list.contains("PRELOAD-HINT"), "{list}");
    assert_eq!(lab.get(&format!("/live/{NAME}/1/1.m4s")).status, 200);
    let soon = ending(Settings::default(), 1);
    soon.end();
    until("its playlist is gone", || soon.get(&format!("/live/{NAME}/1/media.m3u8")).status == 404);
    assert!(soon.catalog.statuses().is_empty());
}

#[test]
fn a_stream_whose_source_is_lost_waits_for_another() {
    let mut lab = Lab::plain();
    lab.segments(5..7, 1000);
    lab.playlist_with("\n6.m4s\n", |path| lab.get(path));
    lab.lose();
    let list = lab.playlist_with("\n6.m4s\n", |path| lab.get(path));
    assert!(!list.contains("ENDLIST"), "players would stop: {list}");
    until("other nodes send no viewers here", || !lab.catalog.statuses()[0].is_live);
    lab.start_over();
    // A segment has the number of its source on all servers, also on those that start now.
    lab.segments(900..902, 1000);
    let list = lab.playlist_with("\n901.m4s\n", |path| lab.get(path));
    assert!(list.contains("#EXT-X-MEDIA-SEQUENCE:900\n"), "{list}");
    let (before, after) = list.split_once("#EXT-X-DISCONTINUITY\n").unwrap();
    assert!(!before.contains(".m4s\n") && after.contains("\n900.m4s\n"), "{list}");
    assert!(!list.contains("ENDLIST") && !list.contains("GAP"), "{list}");
    assert_eq!(lab.get(&format!("/live/{NAME}/1/6.m4s")).status, 200, "a viewer may be about to fetch it");
    lab.segments(902..905, 1000);
    lab.playlist_with("\n904.m4s\n", |path| lab.get(path));
    assert_eq!(lab.get(&format!("/live/{NAME}/1/6.m4s")).status, 410);
}

#[test]
fn a_stream_whose_source_does_not_return_ends() {
    let settings = || Settings { linger_ms: 0, ..Settings::default() };
    let lab = ending(settings(), 600);
    lab.lose();
    lab.playlist_with("#EXT-X-ENDLIST\n", |path| lab.get(path));
    let soon = ending(settings(), 1);
    soon.lose();
    until("the stream is forgotten", || soon.catalog.statuses().is_empty());
}

#[test]
fn players_come_back_to_a_server_that_was_restarted() {
    let catalog = std::sync::Arc::new(rblive_deliver::Catalog::default());
    let settings = Settings { listen: "127.0.0.1:0".into(), tls: false, ..Settings::default() };
    let server = rblive_deliver::Server::start(settings, catalog).unwrap();
    let ask = |path: &str| {
        crate::lab::request(
            server.addr(),
            &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
        )
    };
    let got = ask("/live/cam/1/index.m3u8");
    assert_eq!((got.status, got.field("retry-after")), (503, Some("2")), "{}", got.head);
    let lab = Lab::plain();
    lab.describe();
    let waiting = std::thread::scope(|scope| {
        // This number was seen before the restart.
        let waits = scope.spawn(|| lab.get(&format!("/live/{NAME}/1/media.m3u8?_HLS_msn=501")));
        lab.segments(500..502, 1000);
        waits.join().unwrap()
    });
    assert_eq!(waiting.status, 200, "a number that the server has not seen yet is waited for");
    assert!(text(waiting).contains("\n501.m4s\n"));
}

#[test]
fn the_end_of_an_older_stream_leaves_the_newer_one() {
    let settings = Settings { tls: false, keep_ended: 0, ..Settings::default() };
    let mut lab = Lab::new(settings, 256 << 10, 5);
    lab.segments(0..2, 1000);
    lab.playlist_with("\n1.m4s\n", |path| lab.get(path));
    let older = lab.start_over();
    lab.segments(0..2, 1000);
    lab.playlist_with("\n3.m4s\n", |path| lab.get(path));
    // The older source goes on for a moment, and ends.
    let newer = std::mem::replace(&mut lab.id, older);
    lab.segments(2..4, 1000);
    lab.end();
    lab.id = newer;
    until("the older one is gone", || !lab.received(older));
    lab.segments(2..3, 1000);
    let list = lab.playlist_with("\n4.m4s\n", |path| lab.get(path));
    assert!(!list.contains("ENDLIST") && !list.contains("\n5.m4s\n"), "{list}");
    lab.end();
    until("the stream is forgotten", || lab.catalog.statuses().is_empty());
}

/// The smaller buffer of a stream stays for a while beside its successor, and a server that starts then may read it later.
#[test]
fn a_smaller_buffer_that_is_read_later_changes_nothing() {
    let mut lab = Lab::plain();
    let smaller = lab.start_over();
    lab.segments(6..8, 1000);
    lab.playlist_with("\n7.m4s\n", |path| lab.get(path));
    let larger = std::mem::replace(&mut lab.id, smaller);
    lab.segments(3..6, 1000);
    lab.lose();
    lab.id = larger;
    lab.segments(8..9, 1000);
    let list = lab.playlist_with("\n8.m4s\n", |path| lab.get(path));
    assert!(list.contains("#EXT-X-MEDIA-SEQUENCE:6\n") && !list.contains("#EXT-X-DISCONTINUITY\n"), "{list}");
    let got = lab.get(&format!("/live/{NAME}/1/8.m4s"));
    assert!(got.body == [media(8, 0, 1000), media(8, 1, 1000)].concat(), "its number is that of its source");
}
