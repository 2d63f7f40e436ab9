//! RBLive: the headers of chunks and the descriptions of streams.

use rblive::content::{Description, HEADER_BYTES, Header, check_name};

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
