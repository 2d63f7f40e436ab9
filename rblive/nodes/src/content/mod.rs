//! The content of a chunk: a header of 64 bytes, and a payload.
//!
//! ```text
//!   offset  bytes
//!        0      4  "RBLC"
//!        4      1  version, 2
//!        5      1  kind: 1 description, 2 init, 3 media, 4 end
//!        6      2  flags: 1 independent, 2 discontinuity, 4 first part, 8 last part
//!        8      2  rendition
//!       10      6  zero
//!       16      8  sequence: the number of the segment
//!       24      4  part: the number of the part within the segment
//!       28      4  duration, microseconds
//!       32      8  start, microseconds
//!       40      8  produced, nanoseconds since 1970
//!       48      4  bytes of the payload
//!       52      8  discontinuities: the number of the timeline, 0 if the source does not count
//!       60      4  zero
//!       64         the payload                                     integers are little endian
//! ```
//!
//! | Kind | Payload |
//! |---|---|
//! | description | JSON: a [`Description`] of the stream |
//! | init | the initialization segment of a rendition (fragmented MP4) |
//! | media | a CMAF part (`moof` and `mdat`, one or several), or a whole MPEG-TS segment |
//! | end | nothing: the stream has ended |
//!
//! The description and the initialization segments are repeated before each segment, so that a delivery node that joins or comes back
//! needs no history. A segment is its parts in order; CMAF parts in one piece are the segment.

mod description;
mod header;

pub use description::{
    Description, DescriptionError, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, MAX_RENDITIONS, MAX_TARGET_US,
    check_name,
};
pub use header::{Flags, HEADER_BYTES, Header, HeaderError, Kind};
pub use rblive_media::rendition::{Audio, Container, Rendition, Video};
