//! Several publishers whose streams are renditions of one.

use rblive::content::{Description, Flags, Header, Kind};
use rblive_ingest::LadderRule;

use crate::http::{exchange, head, put_at as put};
use crate::material::{LARGE, RATE, SMALL, frames_of, ts};
use crate::node::{KEY, Node};

fn ladder() -> Vec<LadderRule> {
    vec![LadderRule { name: "cam*".into(), streams: vec!["in/cam*_hi".into(), "in/cam*_lo".into()] }]
}

/// The seconds of a rendition with small or large pictures.
fn seconds(sps: &[u8], from: u8, to: u8) -> Vec<u8> {
    ts(sps, from * RATE..to * RATE)
}

/// The first parts of the segments of a rendition.
fn segments(node: &Node, rendition: u16) -> Vec<Header> {
    let first = |header: &Header| header.rendition == rendition && header.flags.contains(Flags::FIRST_PART);
    node.media().into_iter().filter(first).collect()
}

/// The numbers of the frames of a rendition.
fn frames(node: &Node, rendition: u16) -> Vec<u8> {
    let chunks = node.chunks.lock().unwrap();
    let own = chunks.iter().filter(|(own, _)| own.kind == Kind::Media && own.rendition == rendition);
    own.flat_map(|(_, payload)| frames_of(payload)).collect()
}

/// The heights of the pictures that the newest description has, by rendition.
fn described(node: &Node) -> Vec<(u16, u32)> {
    let chunks = node.chunks.lock().unwrap();
    let newest = chunks.iter().rev().find(|(header, _)| header.kind == Kind::Description);
    let Some((_, json)) = newest else { return Vec::new() };
    let description = Description::from_json(json).unwrap();
    description.renditions.iter().map(|own| (own.id, own.video.unwrap().height)).collect()
}

#[test]
fn two_publishers_are_renditions_of_one_stream() {
    let node = Node::with(|settings| settings.ladders = ladder());
    for second in 0..4 {
        let name = format!("{second}.ts");
        assert_eq!(put(&node, &format!("in/camera_lo/{name}"), &seconds(SMALL, second, second + 1)), 201);
        // The other one begins later.
        if second > 0 {
            assert_eq!(put(&node, &format!("in/camera_hi/{name}"), &seconds(LARGE, second, second + 1)), 201);
        }
    }
    node.wait_for_end();
    assert_eq!(frames(&node, 2), (0..4 * RATE).collect::<Vec<_>>());
    assert_eq!(frames(&node, 1), (RATE..4 * RATE).collect::<Vec<_>>());
    let (high, low) = (segments(&node, 1), segments(&node, 2));
    let places = |all: &[Header]| all.iter().map(|own| (own.sequence, own.start_us)).collect::<Vec<_>>();
    assert_eq!((low.len(), places(&high)), (4, places(&low[1..])));
    assert!(high.iter().chain(&low).all(|own| !own.flags.contains(Flags::DISCONTINUITY)));
    assert_eq!(described(&node), [(1, 180), (2, 90)]);
    let ends = node.chunks.lock().unwrap().iter().filter(|(header, _)| header.kind == Kind::End).count();
    assert_eq!(ends, 1, "the stream ends with the last one");
}

#[test]
fn a_rendition_that_stops_leaves_and_returns() {
    let node = Node::with(|settings| settings.ladders = ladder());
    for second in 0..9 {
        let name = format!("{second}.ts");
        assert_eq!(put(&node, &format!("in/camera_lo/{name}"), &seconds(SMALL, second, second + 1)), 201);
        if !(2..7).contains(&second) {
            assert_eq!(put(&node, &format!("in/camera_hi/{name}"), &seconds(LARGE, second, second + 1)), 201);
        }
        if second == 5 {
            node.wait_for_frames(7 * usize::from(RATE));
            assert_eq!(described(&node), [(2, 90)], "viewers are led to the other rendition");
        }
    }
    node.wait_for_end();
    assert_eq!(described(&node), [(1, 180), (2, 90)]);
    let numbers = |id| segments(&node, id).iter().map(|own| own.sequence).collect::<Vec<_>>();
    let (high, low) = (numbers(1), numbers(2));
    assert_eq!(high, [&low[..2], &low[7..]].concat());
    assert_eq!(segments(&node, 1)[2].start_us, segments(&node, 2)[7].start_us);
}

#[test]
fn an_encoder_that_starts_over_begins_one_timeline() {
    let node = Node::with(|settings| settings.ladders = ladder());
    for (turn, second) in [0, 1, 2, 0, 1].into_iter().enumerate() {
        for (of, sps) in [("hi", LARGE), ("lo", SMALL)] {
            let path = format!("in/camera_{of}/{turn}.ts");
            assert_eq!(put(&node, &path, &seconds(sps, second, second + 1)), 201);
        }
    }
    node.wait_for_end();
    for id in [1, 2] {
        let begins: Vec<_> =
            segments(&node, id).iter().map(|own| own.flags.contains(Flags::DISCONTINUITY)).collect();
        assert_eq!(begins, [false, false, false, true, false], "rendition {id}");
    }
    let timelines =
        |id| segments(&node, id).iter().map(|own| (own.sequence, own.discontinuities)).collect::<Vec<_>>();
    assert_eq!(timelines(1), timelines(2));
}

#[test]
fn a_multivariant_playlist_makes_renditions_of_published_streams() {
    let node = Node::start();
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900\n0/media.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=300\n1/media.m3u8\n";
    let both = |second: u8| {
        for (of, sps) in [(0, LARGE), (1, SMALL)] {
            let path = format!("camera/{of}/{second}.ts");
            assert_eq!(put(&node, &path, &seconds(sps, second, second + 1)), 201);
        }
    };
    both(0);
    assert_eq!(put(&node, "camera/index.m3u8", master.as_bytes()), 201);
    // Encoders push it again and again.
    assert_eq!(put(&node, "camera/index.m3u8", master.as_bytes()), 201);
    (1..4).for_each(both);
    node.wait_for_end();
    assert_eq!(described(&node), [(1, 180), (2, 90)]);
    for id in [1, 2] {
        let own = frames(&node, id);
        assert!(own.ends_with(&(RATE..4 * RATE).collect::<Vec<_>>()), "rendition {id}: {own:?}");
    }
}

#[test]
fn what_is_no_ladder_is_refused() {
    let node = Node::with(|settings| settings.ladders = ladder());
    let body = seconds(SMALL, 0, 1);
    assert_eq!(put(&node, "camera/0.ts", &body), 409, "its renditions have names of their own");
    assert_eq!(put(&node, "other/0.ts", &body), 201, "a stream without renditions");
    for uri in ["media.m3u8", "../x/media.m3u8", "https://example.org/a/b.m3u8"] {
        let master = format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900\n{uri}\n");
        assert_eq!(put(&node, "other/index.m3u8", master.as_bytes()), 400, "{uri}");
    }
    // Nothing of it is published.
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900\n0/media.m3u8\n";
    assert_eq!(put(&node, "free/index.m3u8", master.as_bytes()), 201);
    assert_eq!(put(&node, "other/1.ts", &seconds(SMALL, 1, 2)), 201, "the others go on");
}

/// A PUT with another key than that of every stream.
fn put_with(node: &Node, key: &str, path: &str, body: &[u8]) -> u16 {
    let head = String::from_utf8(head("PUT", &format!("/live/{path}"), body.len())).unwrap();
    let head = head.replace(&format!("Bearer {KEY}"), &format!("Bearer {key}"));
    exchange(node.addresses().http.unwrap(), &[head.as_bytes(), body].concat())
}

#[test]
fn a_stream_of_somebody_else_becomes_no_rendition() {
    let (anna, bert) = ("the key of camera", "the key of camera/1");
    let node = Node::with(|settings| {
        settings.keys.insert("camera".to_owned(), anna.to_owned());
        settings.keys.insert("camera/1".to_owned(), bert.to_owned());
        settings.limits.idle_ms = 60_000;
        // A rendition of another encoder is none.
        settings.limits.failed_attempts = 1;
    });
    let master = b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n1/media.m3u8\n";
    assert_eq!(put_with(&node, bert, "camera/1/0.ts", &seconds(SMALL, 0, 1)), 201);
    // Anna has no right to the rendition. The key of all streams has, and is another publisher.
    assert_eq!(put_with(&node, anna, "camera/index.m3u8", master), 401);
    assert_eq!(put_with(&node, KEY, "camera/index.m3u8", master), 409);
    assert_eq!(put_with(&node, bert, "camera/1/1.ts", &seconds(SMALL, 1, 2)), 201);
    // The stream is still camera/1: nobody publishes camera, and anna may.
    for second in 0..2 {
        let path = format!("camera/{second}.ts");
        assert_eq!(put_with(&node, anna, &path, &seconds(LARGE, second, second + 1)), 201);
    }
    node.wait_for_frames(usize::from(RATE));
    assert_eq!(described(&node), [(1, 180)]);
    assert!(frames(&node, 1).starts_with(&(0..RATE).collect::<Vec<_>>()));
}

#[test]
fn a_client_that_goes_on_with_a_stream_may_make_it_a_rendition() {
    let first = "the key of camera/1";
    let node = Node::with(|settings| {
        settings.keys.insert("camera/1".to_owned(), first.to_owned());
        settings.limits.idle_ms = 1000;
    });
    let master = b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n1/media.m3u8\n";
    assert_eq!(put_with(&node, first, "camera/1/0.ts", &seconds(SMALL, 0, 1)), 201);
    // The first one sends nothing any more.
    node.wait("the next one takes its place", || {
        assert_eq!(put(&node, "camera/1/1.ts", &seconds(SMALL, 1, 2)), 201);
        put(&node, "camera/index.m3u8", master) == 201
    });
}
