//! Encoders as operators see them, and end them.

use std::time::Duration;

use rblive_ingest::LadderRule;
use rblive_media::rendition::Video;

use crate::http::{put, put_at};
use crate::material::{RATE, SMALL, ts};
use crate::node::{KEY, Node};
use crate::rtmp::Peer;

#[test]
fn encoders_are_listed_with_what_they_send() {
    let rule = LadderRule { name: "show".into(), streams: vec!["show_hi".into()] };
    let node = Node::with(|settings| {
        settings.ladders = vec![rule];
        settings.passthrough = vec!["files".into()];
    });
    assert_eq!(node.ingest.encoders(), []);
    let mut camera = Peer::accepted(&node);
    camera.stream(0..3);
    let (mut show, accepted) = Peer::publish(&node, "show_hi", KEY);
    assert!(accepted);
    show.stream(0..1);
    assert_eq!(put_at(&node, "files/0.ts", &ts(SMALL, 0..2 * RATE)), 201);
    node.wait("the newest segment is measured", || node.ingest.encoders()[0].media.bandwidth > 0);
    let all = node.ingest.encoders();
    let names: Vec<_> =
        all.iter().map(|own| (&*own.name, own.rendition_of.as_deref(), own.protocol)).collect();
    assert_eq!(names, [("camera", None, "rtmp"), ("files", None, "http"), ("show_hi", Some("show"), "rtmp")]);
    for (own, key_frames) in all.iter().zip([1, 2]) {
        assert!(own.media.codecs.starts_with("avc1.") && own.address.is_loopback(), "{own:?}");
        assert!(matches!(own.media.video, Some(Video { width: 160, height: 90, .. })), "{own:?}");
        let apart = own.key_frames.unwrap_or_default();
        assert!(apart.abs_diff(Duration::from_secs(key_frames)) < Duration::from_millis(50), "{own:?}");
        assert!(own.media.bandwidth > 0 && own.since.elapsed().is_ok(), "{own:?}");
    }
    camera.finish();
    node.wait("it is no publisher any more", || node.ingest.encoders().len() == 2);
}

#[test]
fn an_encoder_that_is_ended_is_told_and_does_not_come_back_at_once() {
    let node = Node::start();
    let mut peer = Peer::accepted(&node);
    peer.stream(0..2);
    node.wait_for_frames(usize::from(RATE));
    let number = node.ingest.encoders()[0].number;
    assert_eq!(node.ingest.end_encoder(number), Some("camera".to_owned()));
    assert_eq!((node.ingest.end_encoder(number), node.ingest.encoders()), (None, Vec::new()));
    peer.try_stream(2..3);
    peer.closed();
    let reasons =
        || node.ingest.counters().failures.list().into_iter().map(|own| own.reason).collect::<Vec<_>>();
    node.wait("the list says why", || reasons().iter().any(|own| own.contains("an operator has ended")));
    assert!(!Peer::publish(&node, "camera", KEY).1, "it may not come back yet");
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 403, "nor by another protocol");
    assert!(Peer::publish(&node, "another", KEY).1, "other streams are free");
    node.wait_for_end();
}

#[test]
fn files_of_an_encoder_that_is_ended_are_refused() {
    let node = Node::start();
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 201);
    let number = node.ingest.encoders()[0].number;
    assert_eq!(node.ingest.end_encoder(number), Some("camera".to_owned()));
    assert_eq!(put(&node, "1.ts", &ts(SMALL, RATE..2 * RATE)), 403);
    node.wait_for_end();
    assert_eq!(node.ingest.end_encoder(u64::MAX), None);
}

/// A name of a user that a client only says is neither shown nor taken as another client.
#[test]
fn a_user_that_is_only_said_is_nobody() {
    let node = Node::start();
    let mut peer = Peer::accepted_as(&node, &format!("camera?key={KEY}&user=anna"));
    peer.stream(0..2);
    node.wait_for_frames(usize::from(RATE));
    let all = node.ingest.encoders();
    assert_eq!((all.len(), all[0].user.as_deref()), (1, None));
    assert!(node.ingest.end_encoder(all[0].number).is_some());
    for again in ["camera?key=a-secret&user=bert", "camera?key=a-secret"] {
        assert!(!Peer::begin(&node, again).1, "{again}");
    }
    node.wait_for_end();
}
