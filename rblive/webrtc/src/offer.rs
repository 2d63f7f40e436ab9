//! Offers of viewers: what is read of them, and how much.

use std::collections::BTreeSet;

/// The longest offer, in bytes. Those of browsers have about six thousand.
pub const MAX_BYTES: usize = 64 << 10;

/// The most lines, and the most of them that describe a track. Browsers have about 200, of less than 200 bytes each.
const MAX_LINES: usize = 512;
const MAX_LINE_BYTES: usize = 512;
const MAX_TRACKS: usize = 8;

/// The most codecs of a track. Whoever reads an offer compares each with each, several times over, so that more would take seconds.
const MAX_CODECS: usize = 64;

/// Lines that are not read. Candidates: the viewer's address is where its requests come from, so that nobody is asked at addresses that somebody
/// wrote into an offer. The others describe media that the offerer sends, each of which would take memory, and a viewer sends none.
const UNREAD: [&str; 7] =
    ["a=candidate:", "a=end-of-candidates", "a=ssrc:", "a=ssrc-group:", "a=simulcast:", "a=rid:", "a=msid:"];

/// Why an offer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The body is no text.
    #[error("the offer is no text; it must be SDP, as application/sdp")]
    NoText,
    /// There is too much of it.
    #[error("the offer has more than {0}; it is no viewer's")]
    TooMuch(&'static str),
    /// It has no track of video.
    #[error("the offer has no track of video (m=video) that the viewer receives")]
    NoVideo,
    /// It wants to send.
    #[error("the offer wants to send; all tracks of a viewer's offer are a=recvonly")]
    Sends,
    /// A track has a payload type twice.
    #[error("the offer has a payload type twice in a track")]
    Repeats,
    /// It wants what is not there.
    #[error("the offer has a track of {0}; there are video and audio only")]
    Kind(String),
    /// It cannot be read.
    #[error("the offer cannot be answered: {0}")]
    Unreadable(String),
    /// The viewer has no codec of the stream.
    #[error("the viewer has no H.264 in its offer, and the stream has nothing else")]
    NoCodec,
}

/// Checks the size and the kinds of an offer, so that it is read in less than a millisecond. Returns the lines that are read.
pub(crate) fn checked(body: &[u8]) -> Result<String, OfferError> {
    if body.len() > MAX_BYTES {
        return Err(OfferError::TooMuch("64 KiB"));
    }
    let text = std::str::from_utf8(body).map_err(|_| OfferError::NoText)?;
    let read = || text.lines().filter(|line| !UNREAD.iter().any(|own| line.starts_with(own)));
    if read().count() > MAX_LINES {
        return Err(OfferError::TooMuch("512 lines"));
    }
    if read().any(|line| line.len() > MAX_LINE_BYTES) {
        return Err(OfferError::TooMuch("512 bytes in a line"));
    }
    check_kinds(text)?;
    check_codecs(read())?;
    // Before the tracks, Firefox names a direction that is none of theirs.
    let mut tracks = read().skip_while(|line| !line.starts_with("m="));
    if tracks.any(|line| line.starts_with("a=sendrecv") || line.starts_with("a=sendonly")) {
        return Err(OfferError::Sends);
    }
    Ok(read().flat_map(|line| [line, "\r\n"]).collect())
}

fn check_kinds(text: &str) -> Result<(), OfferError> {
    let kinds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("m=")).collect();
    if kinds.len() > MAX_TRACKS {
        return Err(OfferError::TooMuch("8 tracks"));
    }
    let kind = |track: &&str| track.split(' ').next().unwrap_or("").to_owned();
    if let Some(other) = kinds.iter().map(kind).find(|kind| kind != "audio" && kind != "video") {
        return Err(OfferError::Kind(other.chars().filter(char::is_ascii_alphanumeric).take(32).collect()));
    }
    if !kinds.iter().any(|track| kind(track) == "video") {
        return Err(OfferError::NoVideo);
    }
    Ok(())
}

/// Checks that the tracks have few codecs, each of them once.
fn check_codecs<'a>(lines: impl Iterator<Item = &'a str>) -> Result<(), OfferError> {
    let mut mapped = BTreeSet::new();
    for line in lines {
        if let Some(track) = line.strip_prefix("m=") {
            mapped.clear();
            let mut listed = BTreeSet::new();
            track.split(' ').skip(3).try_for_each(|own| add(&mut listed, own))?;
        } else if let Some(map) = line.strip_prefix("a=rtpmap:") {
            add(&mut mapped, map.split(' ').next().unwrap_or(""))?;
        } else if line.starts_with("a=fmtp:") && line.matches("apt=").nth(1).is_some() {
            return Err(OfferError::TooMuch("one apt= in a line"));
        }
    }
    Ok(())
}

/// Adds a payload type to those of a track.
fn add(all: &mut BTreeSet<u8>, own: &str) -> Result<(), OfferError> {
    let own = own.parse().map_err(|_| OfferError::Unreadable("a payload type is no number".to_owned()))?;
    if !all.insert(own) {
        return Err(OfferError::Repeats);
    }
    if all.len() > MAX_CODECS { Err(OfferError::TooMuch("64 payload types in a track")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_bounds_and_no_candidates() {
        let offer = "v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=candidate:1 1 udp 1 10.0.0.1 9 typ host\r\na=end-of-candidates\r\na=mid:0\r\n";
        assert_eq!(
            checked(offer.as_bytes()).unwrap(),
            "v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n"
        );
        assert_eq!(checked(&[0xFF]), Err(OfferError::NoText));
        assert_eq!(checked(&[b' '; MAX_BYTES + 1]), Err(OfferError::TooMuch("64 KiB")));
        assert_eq!(checked("\n".repeat(513).as_bytes()), Err(OfferError::TooMuch("512 lines")));
        assert_eq!(checked(&[b' '; 513]), Err(OfferError::TooMuch("512 bytes in a line")));
        assert_eq!(checked("m=video\n".repeat(9).as_bytes()), Err(OfferError::TooMuch("8 tracks")));
        assert_eq!(checked(b"m=audio 9\n"), Err(OfferError::NoVideo));
        assert_eq!(checked(b""), Err(OfferError::NoVideo));
        let other = checked(b"m=video 9\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\n");
        assert_eq!(other, Err(OfferError::Kind("application".to_owned())));
    }
    #[test]
    fn the_codecs_of_a_track_are_few_and_none_is_there_twice() {
        let offer = |types: &str, lines: &str| {
            checked(format!("m=audio 9 x 96\r\na=rtpmap:96 a/1\r\nm=video 9 x {types}\r\n{lines}").as_bytes())
                .map(drop)
        };
        let types = |count: u8| (0..count).map(|own| own.to_string()).collect::<Vec<_>>();
        let maps = |count| {
            types(count).iter().map(|own| format!("a=rtpmap:{own} VP8/90000\r\n")).collect::<String>()
        };
        assert_eq!(offer(&types(64).join(" "), &maps(64)), Ok(()));
        let many = Err(OfferError::TooMuch("64 payload types in a track"));
        assert_eq!(offer(&types(65).join(" "), ""), many);
        assert_eq!(offer("96", &maps(65)), many);
        assert_eq!(offer("96 096", ""), Err(OfferError::Repeats));
        assert_eq!(offer("96", "a=rtpmap:1 VP8/90000\r\na=rtpmap:1 VP8/90000\r\n"), Err(OfferError::Repeats));
        assert!(matches!(offer("96 x", ""), Err(OfferError::Unreadable(_))));
        assert_eq!(offer("96", "a=fmtp:2 apt=1;apt=1\r\n"), Err(OfferError::TooMuch("one apt= in a line")));
    }

    #[test]
    fn an_offer_that_sends_is_refused_and_its_media_take_no_memory() {
        for direction in ["sendrecv", "sendonly"] {
            let offer = format!("m=video 9 x 96\r\na={direction}\r\n");
            assert_eq!(checked(offer.as_bytes()), Err(OfferError::Sends));
        }
        let sent = "a=ssrc:1 cname:x\r\na=ssrc-group:FID 1 2\r\na=simulcast:send a\r\na=rid:a send\r\na=msid:- x\r\n";
        let offer = format!(
            "a=sendrecv\r\nm=video 9 x 96\r\na=recvonly\r\na=msid-semantic: WMS\r\n{}",
            sent.repeat(400)
        );
        let read = "a=sendrecv\r\nm=video 9 x 96\r\na=recvonly\r\na=msid-semantic: WMS\r\n";
        assert_eq!(checked(offer.as_bytes()).unwrap(), read);
    }
}
