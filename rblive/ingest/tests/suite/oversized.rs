//! Frames and files that are larger than a chunk.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::Ordering;

use rblive::config::StreamSettings;
use rblive::content::{Flags, Kind};

use crate::http::{expected, put};
use crate::material::{RATE, SMALL, flv_config, flv_frame_of, ts};
use crate::node::Node;
use crate::rtmp::{Peer, message, text};

fn small() -> Node {
    Node::with_chunks(2048, |_| ())
}

#[test]
fn parts_end_before_they_are_too_large() {
    let node = small();
    for second in 0..3 {
        assert_eq!(put(&node, &format!("{second}.ts"), &ts(SMALL, second * RATE..(second + 1) * RATE)), 201);
    }
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 3)]));
    assert!(node.media().len() > 20, "the default parts have more frames");
    assert!(node.discontinuities().is_empty());
    node.assert_in_order();
}

#[test]
fn a_frame_that_fits_nowhere_is_left_out_and_the_publisher_goes_on() {
    let node = small();
    let mut peer = Peer::accepted(&node);
    peer.stream(0..1);
    for number in RATE..2 * RATE {
        let bytes = if number == RATE + 5 { 30_000 } else { 300 };
        peer.send(&message(9, u32::from(number) * 40, &flv_frame_of(number, bytes)));
    }
    peer.seconds(2..4);
    // The node has subscribed to the stream then, which ends soon.
    node.wait_for_frames(1);
    peer.leave();
    node.wait_for_end();
    let frames = node.frames();
    assert!(frames.starts_with(&expected(&[(0, 1)])) && frames.ends_with(&expected(&[(2, 4)])), "{frames:?}");
    assert!(!frames.contains(&(RATE + 5)));
    assert_eq!(node.ingest.counters().oversized.load(Ordering::Relaxed), 1);
}

/// A node whose buffers begin with so many chunks of 16 KiB, and grow.
fn growing(chunks: u64) -> Node {
    let streams = StreamSettings {
        chunk_bytes: 16 << 10,
        chunks,
        max_buffer_bytes: 64 << 20,
        ..StreamSettings::default()
    };
    Node::with_streams(streams, |settings| (settings.limits.idle_ms, settings.linger_ms) = (600_000, 600_000))
}

/// The capacities of the buffers of `camera`, of which one is in use.
fn capacity(node: &Node) -> u64 {
    node.manager.outbound().iter().map(|stream| stream.capacity_bytes).max().unwrap_or(0)
}

/// The frames that came, whatever the order of those of two buffers.
fn sorted(node: &Node) -> Vec<u8> {
    let mut frames = node.frames();
    frames.sort_unstable();
    frames
}

/// Five frames of this size in each of some seconds.
fn few_frames(peer: &mut Peer, seconds: std::ops::Range<u8>, bytes: usize) {
    for number in seconds.flat_map(|second| (0..5).map(move |at| second * RATE + at)) {
        peer.send(&message(
            9,
            u32::from(number / RATE) * 1000 + u32::from(number % RATE) * 200,
            &flv_frame_of(number, bytes),
        ));
    }
}

#[test]
fn a_buffer_grows_with_the_rate() {
    // The files of a second have 40 KiB, for which a buffer of 128 KiB is too small.
    let node = growing(4);
    let mut peer = Peer::accepted(&node);
    peer.send(&message(9, 0, &flv_config(SMALL)));
    few_frames(&mut peer, 0..2, 8000);
    node.wait("the buffer grows behind the first segment", || capacity(&node) == 1 << 20);
    few_frames(&mut peer, 2..4, 8000);
    assert_eq!(capacity(&node), 1 << 20, "it is large enough");
    peer.leave();
    let all: Vec<u8> = (0..4).flat_map(|second| (0..5).map(move |at| second * RATE + at)).collect();
    node.wait("all frames come", || sorted(&node) == all);
    node.end_behind_frames(all.len());
    assert_eq!(node.ingest.counters().oversized.load(Ordering::Relaxed), 0);
}

#[test]
fn a_rate_for_which_no_buffer_may_be_large_enough_is_told() {
    let streams = StreamSettings {
        chunk_bytes: 16 << 10,
        chunks: 4,
        max_buffer_bytes: 256 << 10,
        ..StreamSettings::default()
    };
    let node = Node::with_streams(streams, |settings| settings.limits.idle_ms = 600_000);
    let told = || node.ingest.counters().remarks.list().into_iter().find(|(_, kind, _)| *kind == "buffer");
    let mut peer = Peer::accepted(&node);
    peer.send(&message(9, 0, &flv_config(SMALL)));
    few_frames(&mut peer, 0..2, 100);
    node.wait_for_frames(5);
    assert_eq!(told(), None, "a small rate");
    few_frames(&mut peer, 2..6, 8000);
    node.wait("the rate is too high", || told().is_some());
    let (_, _, text) = told().unwrap();
    assert!(text.contains("no buffer of 1 MiB") && text.contains("streams.max_buffer_bytes"), "{text}");
    let counts = node.ingest.counters().remarks.counts();
    assert_eq!(counts.iter().find(|(kind, _)| *kind == "buffer"), Some(&("buffer", 1)), "once");
}

/// Viewers see another buffer as a discontinuity, behind which nothing is decoded without a key frame.
#[test]
fn a_buffer_grows_with_a_key_frame() {
    let node = growing(4);
    let mut peer = Peer::accepted(&node);
    peer.send(&message(9, 0, &flv_config(SMALL)));
    let before = capacity(&node);
    let mut sent = 0_usize;
    let mut send = |number: u8, time: u32| {
        // Not more than half of the first buffer is on its way: a chunk may be overwritten before the node reads it, as the stream does not wait.
        node.wait_for_frames(sent.saturating_sub(8));
        sent += 1;
        peer.send(&message(9, time, &flv_frame_of(number, 8000)));
    };
    send(0, 0);
    (1..=60).for_each(|at| send(1, at * 200));
    node.wait("a segment begins after ten seconds", || {
        let media = node.media();
        let mut first = media.iter().filter(|own| own.flags.contains(Flags::FIRST_PART));
        first.any(|own| !own.flags.contains(Flags::INDEPENDENT))
    });
    assert_eq!(capacity(&node), before);
    send(0, 12_200);
    (62..=80).for_each(|at| send(1, at * 200));
    node.wait("the buffer grows", || capacity(&node) > before);
}

/// The encoder's connection breaks behind a key frame: what is large for so short a segment is not the rate of the stream.
#[test]
fn a_buffer_does_not_grow_with_a_short_segment() {
    let node = growing(4);
    let mut peer = Peer::accepted(&node);
    peer.send(&message(9, 0, &flv_config(SMALL)));
    few_frames(&mut peer, 0..2, 8000);
    node.wait("the buffer grows behind the first segment", || capacity(&node) == 1 << 20);
    for (number, time) in [(2 * RATE, 2000), (2 * RATE + 1, 2010)] {
        peer.send(&message(9, time, &flv_frame_of(number, 8000)));
    }
    peer.leave();
    node.wait_for_frames(12);
    let mut peer = Peer::accepted(&node);
    peer.send(&message(9, 0, &flv_config(SMALL)));
    few_frames(&mut peer, 3..6, 8000);
    peer.leave();
    let whole = [0, 1, 3, 4, 5].into_iter().flat_map(|second| (0..5).map(move |at| second * RATE + at));
    let mut all: Vec<u8> = whole.chain([2 * RATE, 2 * RATE + 1]).collect();
    all.sort_unstable();
    node.wait("all frames come", || sorted(&node) == all);
    assert_eq!(capacity(&node), 1 << 20, "the rate is the same");
    node.end_behind_frames(all.len());
}

#[test]
fn a_buffer_has_room_for_the_rate_that_is_announced() {
    let node = growing(4);
    let mut peer = Peer::accepted(&node);
    let number = |name: &str, value: f64| {
        [&[0, name.len() as u8][..], name.as_bytes(), &[0], &value.to_be_bytes()].concat()
    };
    let members = [number("videocodecid", 7.0), number("videodatarate", 4000.0)].concat();
    peer.send(&message(18, 0, &[&text("onMetaData")[..], &[8, 0, 0, 0, 2], &members, &[0, 0, 9]].concat()));
    peer.stream(0..2);
    node.wait_for_frames(1);
    assert_eq!(capacity(&node), 8 << 20, "7 MB");
    peer.leave();
    node.end_behind_frames(2 * usize::from(RATE));
    assert_eq!(node.frames(), expected(&[(0, 2)]), "no frame is in another buffer");
}

/// The pictures of 2160 lines have key frames of 2 MB.
#[test]
fn a_key_frame_that_is_larger_than_a_chunk_has_a_larger_buffer() {
    let node = growing(4);
    let mut peer = Peer::accepted(&node);
    peer.send(&message(9, 0, &flv_config(SMALL)));
    few_frames(&mut peer, 0..3, 60_000);
    peer.leave();
    let all: Vec<u8> = (0..3).flat_map(|second| (0..5).map(move |at| second * RATE + at)).collect();
    node.wait("all frames come", || sorted(&node) == all);
    node.end_behind_frames(all.len());
    assert_eq!(node.ingest.counters().oversized.load(Ordering::Relaxed), 0);
}

#[test]
fn a_buffer_grows_for_files_that_are_passed_on() {
    let streams = StreamSettings {
        chunk_bytes: 4096,
        chunks: 4,
        max_buffer_bytes: 1 << 20,
        ..StreamSettings::default()
    };
    let node = Node::with_streams(streams, |settings| settings.passthrough.push("*".to_owned()));
    let files: Vec<_> = (0..3).map(|second| ts(SMALL, second * RATE..(second + 1) * RATE)).collect();
    assert!(files[0].len() > 8192, "half of the first buffer");
    let all: usize = files.iter().map(Vec::len).sum();
    for (second, file) in files.iter().enumerate() {
        assert_eq!(put(&node, &format!("{second}.ts"), file), 201);
    }
    node.wait("the files come", || {
        let chunks = node.chunks.lock().unwrap();
        let media = chunks.iter().filter(|(header, _)| header.kind == Kind::Media);
        media.map(|(_, payload)| payload.len()).sum::<usize>() == all
    });
    assert_eq!(put(&node, "3.ts", &vec![0x47; 600 << 10]), 413, "more than half of the largest buffer");
}

/// Encodes a second of fragmented MP4 in a file of its own, with its initialisation segment.
fn encode(node: &Node) -> Option<(Vec<u8>, Vec<u8>)> {
    let args = "-v error -f lavfi -i testsrc2=size=320x180:rate=25 -t 1 -c:v libx264 -g 25 -f hls -hls_time 1 \
                -hls_segment_type fmp4 s.m3u8";
    let encoded =
        Command::new("ffmpeg").args(args.split_whitespace()).current_dir(node.folder.path()).status();
    if !encoded.is_ok_and(|status| status.success()) {
        writeln!(std::io::stderr(), "SKIPPED: large files (ffmpeg is not installed; scripts/setup --tests)")
            .expect("standard error");
        return None;
    }
    let read = |name: &str| std::fs::read(node.folder.path().join(name)).unwrap();
    Some((read("init.mp4"), read("s0.m4s")))
}

#[test]
#[ignore = "long: needs ffmpeg"]
fn a_file_is_split_over_chunks_and_one_that_no_buffer_holds_is_refused() {
    let node = small();
    let Some((init, media)) = encode(&node) else { return };
    assert!(media.len() > 10_000, "several chunks are needed");
    assert_eq!(put(&node, "init.mp4", &init), 201);
    assert_eq!(put(&node, "0.m4s", &media), 201);
    let mut large = (2u32 << 20).to_be_bytes().to_vec();
    large.extend(b"free");
    large.resize(2 << 20, 0);
    assert_eq!(put(&node, "1.m4s", &[&large[..], &media].concat()), 413);
    assert_eq!(put(&node, "2.m4s", &media), 201);
    node.wait_for_end();
    let chunks = node.chunks.lock().unwrap();
    let first = chunks.iter().find(|(header, _)| header.kind == Kind::Media).unwrap().0.sequence;
    for sequence in first..first + 2 {
        let parts: Vec<_> = chunks
            .iter()
            .filter(|(header, _)| header.kind == Kind::Media && header.sequence == sequence)
            .collect();
        assert!(parts.len() > 5);
        for (index, (header, _)) in parts.iter().enumerate() {
            assert_eq!(header.part as usize, index);
            assert_eq!(header.flags.contains(Flags::LAST_PART), index + 1 == parts.len());
            assert_eq!(header.duration_us > 0, index == 0);
        }
        let whole: Vec<u8> = parts.iter().flat_map(|(_, payload)| payload.clone()).collect();
        assert!(whole == media, "segment {sequence}");
    }
    assert_eq!(node.ingest.counters().oversized.load(Ordering::Relaxed), 1);
}
