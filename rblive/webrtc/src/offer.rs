//! Offers of viewers: what is read of them, and how much.

/// The longest offer, in bytes. Those of browsers have about six thousand.
pub const MAX_BYTES: usize = 64 << 10;

/// The most lines, and the most of them that describe a track. Browsers have about 150.
const MAX_LINES: usize = 2_000;
const MAX_TRACKS: usize = 8;

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

/// Checks the size and the kinds of an offer. Returns its text without candidates: the viewer's address is where its requests come from, so that
/// nobody is asked at addresses that somebody wrote into an offer.
pub(crate) fn checked(body: &[u8]) -> Result<String, OfferError> {
    if body.len() > MAX_BYTES {
        return Err(OfferError::TooMuch("64 KiB"));
    }
    let text = std::str::from_utf8(body).map_err(|_| OfferError::NoText)?;
    if text.lines().count() > MAX_LINES {
        return Err(OfferError::TooMuch("2000 lines"));
    }
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
    let is_read = |line: &&str| !line.starts_with("a=candidate:") && !line.starts_with("a=end-of-candidates");
    Ok(text.lines().filter(is_read).flat_map(|line| [line, "\r\n"]).collect())
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
        assert_eq!(checked("\n".repeat(2001).as_bytes()), Err(OfferError::TooMuch("2000 lines")));
        assert_eq!(checked("m=video\n".repeat(9).as_bytes()), Err(OfferError::TooMuch("8 tracks")));
        assert_eq!(checked(b"m=audio 9\n"), Err(OfferError::NoVideo));
        assert_eq!(checked(b""), Err(OfferError::NoVideo));
        let other = checked(b"m=video 9\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\n");
        assert_eq!(other, Err(OfferError::Kind("application".to_owned())));
    }
}
