//! Streams whose files of MPEG-TS pass as they come.

use std::sync::atomic::Ordering;

use rblive::content::{Container, Description, Flags, Kind};
use rblive_ingest::LadderRule;

use crate::http::{broken, broken_at, put, put_at};
use crate::material::{LARGE, RATE, SMALL, ts};
use crate::node::Node;
use crate::rtmp::Peer;

fn node(chunk_bytes: u64) -> Node {
    Node::with_chunks(chunk_bytes, |settings| {
        settings.passthrough = vec!["came*a".into()];
    })
}

fn second(sps: &[u8], number: u8) -> Vec<u8> {
    ts(sps, number * RATE..(number + 1) * RATE)
}

/// The segments of a rendition that came, each with its bytes together.
fn segments(node: &Node, rendition: u16) -> Vec<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for (header, payload) in node.chunks.lock().unwrap().iter() {
        if header.kind != Kind::Media || header.rendition != rendition {
            continue;
        }
        match segments.last_mut().filter(|_| !header.flags.contains(Flags::FIRST_PART)) {
            Some(bytes) => bytes.extend_from_slice(payload),
            None => segments.push(payload.clone()),
        }
    }
    segments
}

/// The newest description of the stream.
fn description(node: &Node) -> Description {
    let chunks = node.chunks.lock().unwrap();
    let (_, json) = chunks.iter().rfind(|(own, _)| own.kind == Kind::Description).unwrap();
    Description::from_json(json).unwrap()
}

#[test]
fn every_byte_passes_as_it_came() {
    // A chunk is smaller than a file in one case, and larger in the other.
    for chunk_bytes in [4096, 1 << 20] {
        let node = node(chunk_bytes);
        for number in 0..3 {
            assert_eq!(put(&node, &format!("{number}.ts"), &second(SMALL, number)), 201);
        }
        node.wait_for_end();
        assert_eq!(segments(&node, 1), [0, 1, 2].map(|number| second(SMALL, number)));
        let media = node.media();
        assert!(node.inits().is_empty() && media.iter().all(|own| !own.flags.contains(Flags::DISCONTINUITY)));
        let first: Vec<_> = media.iter().filter(|own| own.flags.contains(Flags::FIRST_PART)).collect();
        assert!(
            first.iter().all(|own| own.duration_us == 1_000_000 && own.flags.contains(Flags::INDEPENDENT))
        );
        let begins =
            |at: usize| (first[at].sequence - first[0].sequence, first[at].start_us - first[0].start_us);
        assert_eq!([begins(1), begins(2)], [(1, 1_000_000), (2, 2_000_000)]);
        assert_eq!(media.iter().filter(|own| own.flags.contains(Flags::LAST_PART)).count(), 3);
        let about = description(&node);
        assert_eq!((about.container, about.part_target_us), (Container::Ts, Some(about.target_duration_us)));
        assert_eq!(about.renditions[0].video.unwrap().height, 90);
    }
}

#[test]
fn a_file_that_broke_off_passes_whole() {
    let node = node(1 << 20);
    let file = second(SMALL, 0);
    broken(&node, "0.ts", &file, 5000);
    assert_eq!(put(&node, "0.ts", &file), 201);
    assert_eq!(put(&node, "1.ts", &second(SMALL, 1)), 201);
    // The rest of this one never comes.
    broken(&node, "2.ts", &second(SMALL, 2), 5000);
    assert_eq!(put(&node, "3.ts", &second(SMALL, 3)), 201);
    node.wait_for_end();
    assert_eq!(segments(&node, 1), [0, 1, 3].map(|number| second(SMALL, number)));
    let breaks = node.media().iter().map(|own| own.flags.contains(Flags::DISCONTINUITY)).collect::<Vec<_>>();
    assert_eq!(breaks, [false, false, true]);
}

#[test]
fn another_picture_and_times_that_go_back_are_discontinuities() {
    let node = node(1 << 20);
    for (name, file) in [second(SMALL, 4), second(LARGE, 5), second(LARGE, 0)].iter().enumerate() {
        assert_eq!(put(&node, &format!("{name}.ts"), file), 201);
    }
    node.wait_for_end();
    let media = node.media();
    let breaks: Vec<_> = media.iter().map(|own| own.flags.contains(Flags::DISCONTINUITY)).collect();
    assert_eq!(breaks, [false, true, true]);
    let timelines: Vec<_> = media.iter().map(|own| own.discontinuities - media[0].discontinuities).collect();
    assert_eq!(timelines, [0, 1, 2]);
}

#[test]
fn anything_else_is_refused() {
    let node = node(1 << 20);
    assert_eq!(put(&node, "init.mp4", b"\0\0\0\x18ftypisom\0\0\0\0isomiso2"), 415);
    assert_eq!(put(&node, "empty.ts", &second(SMALL, 0)[..376]), 400, "no frame");
    assert_eq!(put(&node, "0.ts", &second(SMALL, 0)), 201);
    node.wait_for_end();
    let failed = node.ingest.counters().failed.load(Ordering::Relaxed);
    let mut peer = Peer::accepted(&node);
    peer.try_stream(0..1);
    node.wait("the publisher is refused", || node.ingest.counters().failed.load(Ordering::Relaxed) > failed);
    assert_eq!(segments(&node, 1).len(), 1);
}

#[test]
fn a_file_that_the_buffer_cannot_hold_is_refused_and_the_next_one_passes() {
    let node = node(2048);
    let null = [&[0x47, 0x1F, 0xFF, 0x10][..], &[0xFF; 184]].concat();
    let large = [second(SMALL, 1), null.repeat(12_000)].concat();
    for (name, file, status) in
        [("0.ts", second(SMALL, 0), 201), ("1.ts", large, 413), ("2.ts", second(SMALL, 2), 201)]
    {
        assert_eq!(put(&node, name, &file), status, "{name}");
    }
    node.wait_for_end();
    assert_eq!(node.ingest.counters().oversized.load(Ordering::Relaxed), 1);
    assert_eq!(segments(&node, 1), [0, 2].map(|number| second(SMALL, number)));
    assert_eq!(
        node.media().iter().filter(|own| own.flags.contains(Flags::DISCONTINUITY)).count(),
        1,
        "the hole is marked"
    );
}

#[test]
fn renditions_pass_with_numbers_in_common() {
    let streams = vec!["in/hi".into(), "in/lo".into()];
    let node = Node::with(|settings| {
        settings.ladders = vec![LadderRule { name: "camera".into(), streams }];
        settings.passthrough = vec!["camera".into()];
    });
    for number in 0..3 {
        for (name, sps) in [("hi", LARGE), ("lo", SMALL)] {
            assert_eq!(put_at(&node, &format!("in/{name}/{number}.ts"), &second(sps, number)), 201);
        }
    }
    node.wait_for_end();
    assert_eq!(segments(&node, 1), [0, 1, 2].map(|number| second(LARGE, number)));
    assert_eq!(segments(&node, 2), [0, 1, 2].map(|number| second(SMALL, number)));
    let places = |id: u16| {
        let own = node.media().into_iter().filter(move |own| own.rendition == id);
        own.map(|own| (own.sequence, own.start_us, own.discontinuities)).collect::<Vec<_>>()
    };
    assert_eq!(places(1), places(2));
}

/// A file that began while the stream was one by itself, which does not pass.
#[test]
fn a_stream_that_becomes_a_rendition_passes_whole_files_alone() {
    let node = node(1 << 20);
    let file = second(SMALL, 0);
    let path = "camera/0/0.ts";
    broken_at(&node, path, &file, 5000);
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900\n0/media.m3u8\n";
    assert_eq!(put_at(&node, "camera/index.m3u8", master.as_bytes()), 201);
    assert_eq!(put_at(&node, path, &file), 201, "goes on where it broke off");
    for number in [1, 2] {
        assert_eq!(put_at(&node, &format!("camera/0/{number}.ts"), &second(SMALL, number)), 201);
    }
    node.wait_for_end();
    assert_eq!(segments(&node, 1), [1, 2].map(|number| second(SMALL, number)));
    assert_eq!(description(&node).renditions[0].video.unwrap().height, 90, "the demuxer told it before");
}

/// Renditions of which one lost a file, after which its picture is that of `sps`. Returns the numbers, times, timelines and flags of the
/// segments of each.
fn after_a_lost_file(sps: &[u8]) -> [Vec<(u64, u64, u64, bool)>; 2] {
    let streams = vec!["in/hi".into(), "in/lo".into()];
    let node = Node::with(|settings| {
        settings.ladders = vec![LadderRule { name: "camera".into(), streams }];
        settings.passthrough = vec!["camera".into()];
    });
    for number in 0..5 {
        let lost = number == 2;
        let high = second(if number < 2 { LARGE } else { sps }, number);
        let high = if lost { &high[..376] } else { &high[..] };
        assert_eq!(put_at(&node, &format!("in/hi/{number}.ts"), high), if lost { 400 } else { 201 });
        assert_eq!(put_at(&node, &format!("in/lo/{number}.ts"), &second(SMALL, number)), 201);
    }
    node.wait_for_end();
    let places = |id: u16| {
        let own = node.media().into_iter().filter(move |own| own.rendition == id);
        let breaks = |flags: Flags| flags.contains(Flags::DISCONTINUITY);
        own.map(|own| (own.sequence, own.start_us, own.discontinuities, breaks(own.flags))).collect()
    };
    [places(1), places(2)]
}

/// The other rendition goes on, and a viewer may change to it.
#[test]
fn a_rendition_that_lost_a_file_has_the_numbers_of_the_others() {
    let [high, low] = after_a_lost_file(LARGE);
    assert_eq!((&high, low.len()), (&[&low[..2], &low[3..]].concat(), 5));
    assert!(low.iter().all(|(_, _, timeline, breaks)| *timeline == low[0].2 && !breaks));
}

#[test]
fn another_picture_after_a_lost_file_is_a_discontinuity() {
    let [high, low] = after_a_lost_file(SMALL);
    assert_eq!(high, [&low[..2], &low[3..]].concat());
    let timelines: Vec<_> = low.iter().map(|own| (own.2 - low[0].2, own.3)).collect();
    assert_eq!(timelines, [(0, false), (0, false), (0, false), (1, true), (1, false)]);
}

/// The demuxer has told the tracks while the files passed.
#[test]
fn a_stream_that_passed_becomes_a_rendition_that_does_not() {
    let node = Node::with(|settings| settings.passthrough = vec!["camera/*".into()]);
    let put = |number| put_at(&node, &format!("camera/0/{number}.ts"), &second(SMALL, number));
    assert_eq!(put(0), 201);
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900\n0/media.m3u8\n";
    assert_eq!(put_at(&node, "camera/index.m3u8", master.as_bytes()), 201);
    for number in [1, 2, 3] {
        assert_eq!(put(number), 201);
    }
    node.wait_for_end();
    assert_eq!(node.frames(), (RATE..4 * RATE).collect::<Vec<_>>());
}

/// Playlists announce one length, and files that pass are not cut.
#[test]
fn a_file_that_is_longer_than_the_first_ones_is_told() {
    let node = node(64 << 10);
    let told = || node.ingest.counters().remarks.counts();
    for (number, frames) in [(0, 0..RATE), (1, RATE..2 * RATE)] {
        assert_eq!(put(&node, &format!("{number}.ts"), &ts(SMALL, frames)), 201);
        assert_eq!(told(), []);
    }
    assert_eq!(put(&node, "2.ts", &ts(SMALL, 2 * RATE..4 * RATE)), 201);
    assert_eq!(told(), [("length", 1)]);
    assert_eq!(put(&node, "3.ts", &ts(SMALL, 4 * RATE + 1..7 * RATE)), 201);
    assert_eq!(told(), [("key_frames", 1), ("length", 2)]);
    let list = node.ingest.counters().remarks.list();
    assert!(list.iter().any(|(_, _, text)| text.contains("key frames are 2.9 s apart")), "{list:?}");
    assert!(list.iter().any(|(_, _, text)| text.contains("longer than the 2 s")), "{list:?}");
}
