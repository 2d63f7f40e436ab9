//! Files of fragmented MP4: whole ones, those of DASH, and large ones.

use bytes::Bytes;
use rblive::content::Flags;
use rblive_media::flv::Demuxer;
use rblive_media::segmenter::{Segmenter, SegmenterConfig};

use crate::http::{expected, put};
use crate::material::{LARGE, RATE, SMALL, flv_config, flv_frame};
use crate::node::Node;

/// The initialisation segment, and the segments of a second, of messages of FLV: `(is_sound, time, payload)`.
fn encode(messages: Vec<(bool, u32, Vec<u8>)>) -> (Vec<u8>, Vec<Vec<u8>>) {
    let config = SegmenterConfig { target_ms: 1000, part_ms: 1000, ..SegmenterConfig::default() };
    let (mut segmenter, mut demuxer) = (Segmenter::new(config, 0), Demuxer::new());
    for (is_sound, time, payload) in messages {
        let payload = Bytes::from(payload);
        let read = if is_sound { demuxer.audio(time, &payload) } else { demuxer.video(time, &payload) };
        read.unwrap().into_iter().for_each(|input| segmenter.push(input).unwrap());
    }
    segmenter.finish();
    let (mut init, mut segments) = (Vec::new(), Vec::new());
    while let Some(part) = segmenter.next_part() {
        init = part.init.to_vec();
        let mut bytes = vec![0; part.size()];
        part.copy_to(&mut bytes);
        if part.index == 0 {
            segments.push(Vec::new());
        }
        segments.last_mut().unwrap().extend(bytes);
    }
    (init, segments)
}

/// Three seconds of pictures.
fn pictures() -> (Vec<u8>, Vec<Vec<u8>>) {
    pictures_of(SMALL)
}

fn pictures_of(sps: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let frames = (0..3 * RATE).map(|number| (false, u32::from(number) * 40, flv_frame(number)));
    encode(std::iter::once((false, 0, flv_config(sps))).chain(frames).collect())
}

/// Three seconds of sound.
fn sound() -> (Vec<u8>, Vec<Vec<u8>>) {
    let frames = (0..141).map(|number| (true, number * 1024 * 1000 / 48_000, vec![0xAF, 1, 0x21, 7]));
    encode(std::iter::once((true, 0, vec![0xAF, 0, 0x11, 0x90])).chain(frames).collect())
}

#[test]
fn whole_files_are_one_stream_with_one_initialisation_segment() {
    let (init, segments) = pictures();
    // A long `moov`, as one with names and many fields.
    let padding = [&6000u32.to_be_bytes()[..], b"free", &[0; 5992]].concat();
    for init in [init.clone(), [padding, init].concat()] {
        let node = Node::start();
        for (number, segment) in segments.iter().enumerate() {
            assert_eq!(put(&node, &format!("{number}.mp4"), &[&init[..], segment].concat()), 201);
        }
        node.wait_for_end();
        assert_eq!(node.inits(), [init], "without media");
        assert_eq!(node.frames(), expected(&[(0, 3)]));
        assert!(node.media().iter().all(|header| !header.flags.contains(Flags::DISCONTINUITY)));
        node.assert_in_order();
    }
}

#[test]
fn pictures_and_sound_apart_are_refused_and_nothing_broken_comes_out() {
    let ((picture, pictures), (sound, sounds)) = (pictures(), sound());
    let node = Node::start();
    assert_eq!(put(&node, "init-stream0.m4s", &picture), 201);
    assert_eq!(put(&node, "init-stream1.m4s", &sound), 415);
    for (number, (picture, sound)) in pictures.iter().zip(&sounds).enumerate() {
        assert_eq!(put(&node, &format!("chunk-stream0-{number}.m4s"), picture), 415);
        assert_eq!(put(&node, &format!("chunk-stream1-{number}.m4s"), sound), 415);
    }
    assert!(node.media().is_empty());
    node.wait_for_no_stream();
    assert_eq!(put(&node, "init.mp4", &picture), 201, "another one begins anew");
    assert_eq!(put(&node, "0.m4s", &pictures[0]), 201);
    node.wait_for_frames(usize::from(RATE));
}

/// An encoder of DASH sends the initialisation segments first, or each before its first segment.
#[test]
fn several_representations_of_pictures_are_refused() {
    let (high, low) = (pictures_of(LARGE), pictures_of(SMALL));
    let chunk = |stream, number: usize| format!("chunk-stream{stream}-{number}.m4s");
    for are_first in [true, false] {
        let node = Node::start();
        assert_eq!(put(&node, "init-stream0.m4s", &high.0), 201);
        if !are_first {
            assert_eq!(put(&node, &chunk(0, 0), &high.1[0]), 201);
            node.wait_for_frames(usize::from(RATE));
        }
        assert_eq!(put(&node, "init-stream1.m4s", &low.0), if are_first { 415 } else { 201 });
        for number in 0..3 {
            assert_eq!(put(&node, &chunk(1, number), &low.1[number]), 415);
            assert_eq!(put(&node, &chunk(0, number), &high.1[number]), 415);
        }
        assert_eq!(node.media().len(), usize::from(!are_first), "nothing comes twice");
        let failures = node.ingest.counters().failures.list();
        assert!(failures[0].reason.contains("ingest.ladders"), "{failures:?}");
        node.wait_for_no_stream();
    }
}

#[test]
fn an_encoder_that_changes_its_picture_is_no_second_one() {
    let (high, low) = (pictures_of(LARGE), pictures_of(SMALL));
    let node = Node::start();
    // It has started over before its first segment, and later behind it.
    for (file, bytes) in [
        ("init.mp4", &high.0),
        ("init.mp4", &low.0),
        ("0.m4s", &low.1[0]),
        ("init.mp4", &high.0),
        ("0.m4s", &high.1[0]),
        ("init_1.mp4", &low.0),
        ("1.m4s", &low.1[1]),
    ] {
        assert_eq!(put(&node, file, bytes), 201, "{file}");
    }
}

#[test]
fn files_that_are_neither_are_refused() {
    let node = Node::start();
    let ((init, segments), free) = (pictures(), [&16u32.to_be_bytes()[..], b"free", &[0; 8]].concat());
    assert_eq!(put(&node, "0.m4s", &segments[0]), 400, "before its initialisation segment");
    assert_eq!(put(&node, "free.mp4", &free), 400);
    assert_eq!(put(&node, "init.mp4", &init), 201);
    assert_eq!(put(&node, "0.m4s", &segments[0]), 201);
    assert_eq!(put(&node, "cut.m4s", &segments[1][..50]), 400);
    node.wait_for_end();
    assert_eq!(node.frames(), expected(&[(0, 1)]));
}

/// What can never succeed is no reason to try again.
#[test]
fn an_initialisation_segment_that_no_chunk_has_room_for_is_too_large() {
    let (init, segments) = pictures();
    let node = Node::with_chunks(2048, |_| ());
    let padding = [&6000u32.to_be_bytes()[..], b"free", &[0; 5992]].concat();
    assert_eq!(put(&node, "0.mp4", &[&padding[..], &init, &segments[0]].concat()), 413);
}
