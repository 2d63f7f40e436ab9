//! Frames and files that are larger than a chunk.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::Ordering;

use rblive::content::{Flags, Kind};

use crate::http::{expected, put};
use crate::material::{RATE, SMALL, flv_frame_of, ts};
use crate::node::Node;
use crate::rtmp::{Peer, message};

fn small() -> Node {
    Node::with_chunks(2048, |settings| settings.limits.idle_ms = 1500)
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
    peer.leave();
    node.wait_for_end();
    let frames = node.frames();
    assert!(frames.starts_with(&expected(&[(0, 1)])) && frames.ends_with(&expected(&[(2, 4)])), "{frames:?}");
    assert!(!frames.contains(&(RATE + 5)));
    assert_eq!(node.ingest.counters().oversized.load(Ordering::Relaxed), 1);
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
