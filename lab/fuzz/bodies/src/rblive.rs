//! RBLive: the headers of chunks, the descriptions of streams, the protocol of nodes, and the requests of viewers.

use rblive::content::{Description, HEADER_BYTES, Header, check_name};
use rblive::wire::{Hello, Message};
use rblive_deliver::probe;
use rblive_record::Place;

/// The body of every answer to a request that is read.
const BODY: &[u8] = &[7; 300];

/// An accepted header is encoded to the same bytes.
pub fn rblive_chunk(data: &[u8]) {
    if let Ok(header) = Header::decode(data) {
        assert_eq!(header.encode(), data[..HEADER_BYTES], "a header has one encoding");
    }
}

/// An accepted description has a safe name and is written again as the same description.
pub fn rblive_description(data: &[u8]) {
    if let Ok(description) = Description::from_json(data) {
        assert!(check_name(&description.name), "the name is safe in a URL and in a playlist");
        if let Ok(json) = description.to_json() {
            assert_eq!(Description::from_json(&json).ok(), Some(description));
        }
    }
}

/// An accepted message of a node is encoded to the same bytes, and names its stream safely. So is an accepted hello.
pub fn rblive_wire(data: &[u8]) {
    if let Ok(hello) = Hello::decode(data) {
        assert_eq!(hello.encode(), data, "a hello has one encoding");
    }
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data, "a message has one encoding");
        if let Message::Announce(announce) = message {
            assert!(check_name(&announce.name), "the name is safe in a URL and in a playlist");
        }
    }
}

/// The head of a viewer's request: read from the bytes that it has, with an answer that fits its range, and with one path for each
/// resource.
pub fn rblive_request(data: &[u8]) {
    let Some(read) = probe::read(data, BODY) else { return };
    assert!(read.bytes <= data.len(), "a head ends within the bytes");
    let (status, sent) = read.answer;
    match status {
        200 => assert_eq!(sent, BODY),
        206 => assert!((1..=BODY.len()).contains(&sent.len())),
        _ => assert!(sent.len() <= BODY.len()),
    }
    if let Some((name, path)) = read.stream {
        assert!(check_name(&name));
        assert_eq!(path, read.target.0, "each resource has one path");
    }
    let recording = read.target.0.strip_prefix("/vod/").and_then(Place::parse);
    if let Some(place) = recording {
        assert!(check_name(&place.stream), "the name cannot leave the folder");
        assert!(place.begin.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    }
}
