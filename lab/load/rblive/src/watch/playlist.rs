//! Reads the parts of HLS playlists that a viewer needs.

/// A playlist.
#[derive(Debug, PartialEq)]
pub enum Playlist {
    /// The addresses of the media playlists, the first one first.
    Multivariant(Vec<String>),
    Media(Media),
}

/// A media playlist.
#[derive(Debug, Default, PartialEq)]
pub struct Media {
    pub target_s: f64,
    /// The longest part, if the server offers low latency and requests that wait.
    pub part_target_s: Option<f64>,
    /// The distance from the end at which players begin, if the playlist has it: without and with low latency.
    pub hold_back_s: Option<f64>,
    pub part_hold_back_s: Option<f64>,
    pub segments: Vec<Segment>,
    pub ended: bool,
}

/// A segment. Without an address, it is not complete yet.
#[derive(Debug, Default, PartialEq)]
pub struct Segment {
    pub number: u64,
    pub uri: Option<String>,
    pub duration_s: f64,
    pub map: Option<String>,
    pub discontinuity: bool,
    /// Whether the playlist marks the segment as a gap.
    pub gap: bool,
    pub parts: Vec<Part>,
}

/// A part of a segment.
#[derive(Debug, PartialEq)]
pub struct Part {
    pub uri: String,
    pub duration_s: f64,
    pub independent: bool,
}

/// The most segments of a playlist; more are no live playlist.
const MAX_SEGMENTS: usize = 100_000;

impl Playlist {
    /// Reads a playlist.
    ///
    /// # Errors
    /// The text is not a playlist, or needs features that these viewers do not have.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "the playlist is no UTF-8".to_owned())?;
        if text.lines().next().map(str::trim_end) != Some("#EXTM3U") {
            return Err("the answer is no playlist: #EXTM3U is missing".to_owned());
        }
        if text.contains("#EXT-X-STREAM-INF:") {
            return multivariant(text).map(Self::Multivariant);
        }
        let mut reader = Reader::default();
        for line in text.lines().skip(1) {
            reader.line(line.trim_end())?;
        }
        reader.end().map(Self::Media)
    }
}

fn multivariant(text: &str) -> Result<Vec<String>, String> {
    let mut lines = text.lines().map(str::trim_end);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("#EXT-X-STREAM-INF:") {
            let uri = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
            found.push(uri.ok_or("EXT-X-STREAM-INF without an address")?.to_owned());
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Reader {
    media: Media,
    open: Segment,
    number: u64,
    map: Option<String>,
    can_block: bool,
    part_target_s: Option<f64>,
    has_target: bool,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || (line.starts_with('#') && !line.starts_with("#EXT")) {
            return Ok(());
        }
        if !line.starts_with('#') {
            return self.segment(line);
        }
        let (tag, value) = line.split_once(':').unwrap_or((line, ""));
        match tag {
            "#EXT-X-TARGETDURATION" => (self.media.target_s, self.has_target) = (seconds(value)?, true),
            "#EXT-X-MEDIA-SEQUENCE" => {
                self.number = value.parse().map_err(|_| format!("'{line}' has no number"))?;
            }
            "#EXTINF" => self.open.duration_s = seconds(value.split(',').next().unwrap_or(""))?,
            "#EXT-X-DISCONTINUITY" => self.open.discontinuity = true,
            "#EXT-X-GAP" => self.open.gap = true,
            "#EXT-X-ENDLIST" => self.media.ended = true,
            "#EXT-X-MAP" => {
                self.map = Some(attribute(value, "URI").ok_or("EXT-X-MAP without an address")?.to_owned());
                if attribute(value, "BYTERANGE").is_some() {
                    return Err("EXT-X-MAP with a BYTERANGE is not supported".to_owned());
                }
            }
            "#EXT-X-BYTERANGE" => return Err("EXT-X-BYTERANGE is not supported".to_owned()),
            "#EXT-X-SKIP" => return Err("the server skips segments, and was not asked to".to_owned()),
            "#EXT-X-KEY" if attribute(value, "METHOD") != Some("NONE") => {
                return Err("encrypted segments (EXT-X-KEY) are not supported".to_owned());
            }
            "#EXT-X-PART-INF" => self.part_target_s = number(value, "PART-TARGET"),
            "#EXT-X-SERVER-CONTROL" => {
                self.can_block = attribute(value, "CAN-BLOCK-RELOAD") == Some("YES");
                self.media.hold_back_s = number(value, "HOLD-BACK");
                self.media.part_hold_back_s = number(value, "PART-HOLD-BACK");
            }
            "#EXT-X-PART" => self.part(value)?,
            _ => {}
        }
        Ok(())
    }

    fn part(&mut self, value: &str) -> Result<(), String> {
        if attribute(value, "BYTERANGE").is_some() {
            return Err("EXT-X-PART with a BYTERANGE is not supported".to_owned());
        }
        if attribute(value, "GAP") == Some("YES") {
            self.open.gap = true;
        }
        let uri = attribute(value, "URI").ok_or("EXT-X-PART without an address")?.to_owned();
        let duration_s = number(value, "DURATION").ok_or("EXT-X-PART without a duration")?;
        let independent = attribute(value, "INDEPENDENT") == Some("YES");
        self.open.parts.push(Part { uri, duration_s, independent });
        Ok(())
    }

    fn segment(&mut self, uri: &str) -> Result<(), String> {
        self.open.uri = Some(uri.to_owned());
        self.close()
    }

    fn close(&mut self) -> Result<(), String> {
        if self.media.segments.len() == MAX_SEGMENTS {
            return Err(format!("the playlist has more than {MAX_SEGMENTS} segments"));
        }
        let mut segment = std::mem::take(&mut self.open);
        (segment.number, segment.map) = (self.number, self.map.clone());
        self.number += 1;
        self.media.segments.push(segment);
        Ok(())
    }

    fn end(mut self) -> Result<Media, String> {
        if !self.has_target {
            return Err("the playlist has no EXT-X-TARGETDURATION".to_owned());
        }
        if !self.open.parts.is_empty() {
            self.close()?;
        }
        self.media.part_target_s = self.part_target_s.filter(|_| self.can_block);
        Ok(self.media)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (0.0..=1e6).contains(value));
    value.ok_or_else(|| format!("'{text}' is no duration"))
}

fn number(attributes: &str, name: &str) -> Option<f64> {
    seconds(attribute(attributes, name)?).ok()
}

/// The value of an attribute, without its quotes.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = attributes;
    while let Some((own, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, next) = quoted.split_once('"')?;
                (value, next.strip_prefix(',').unwrap_or(next))
            }
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if own.trim() == name {
            return Some(value);
        }
        rest = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: &str = "#EXTM3U
#EXT-X-VERSION:9
#EXT-X-TARGETDURATION:2
#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.900000,HOLD-BACK=6.0
#EXT-X-PART-INF:PART-TARGET=0.300000
#EXT-X-MEDIA-SEQUENCE:7
#EXT-X-MAP:URI=\"init-1,x.mp4?a=b\"
#EXTINF:2.000000,
7.m4s
#EXT-X-DISCONTINUITY
#EXT-X-PART:DURATION=0.3,URI=\"8.0.m4s\",INDEPENDENT=YES
#EXT-X-PART:DURATION=0.3,URI=\"8.1.m4s\"
#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"8.2.m4s\"
";

    #[test]
    fn a_playlist_with_low_latency_is_read() {
        let Playlist::Media(media) = Playlist::parse(LOW.as_bytes()).unwrap() else { panic!("it is one") };
        assert_eq!((media.target_s, media.part_target_s, media.ended), (2.0, Some(0.3), false));
        assert_eq!((media.hold_back_s, media.part_hold_back_s), (Some(6.0), Some(0.9)));
        let [first, second] = &media.segments[..] else { panic!("it has two segments") };
        assert_eq!((first.number, first.uri.as_deref(), first.duration_s), (7, Some("7.m4s"), 2.0));
        assert_eq!(first.map.as_deref(), Some("init-1,x.mp4?a=b"));
        assert_eq!((second.number, second.uri.as_deref(), second.discontinuity), (8, None, true));
        let parts: Vec<_> = second.parts.iter().map(|part| (&part.uri[..], part.independent)).collect();
        assert_eq!(parts, [("8.0.m4s", true), ("8.1.m4s", false)]);
    }

    #[test]
    fn renditions_are_found() {
        let text = "#EXTM3U\r\n#EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"a,b\"\r\n\r\n1/media.m3u8\r\n#EXT-X-STREAM-INF:BANDWIDTH=2\nb.m3u8\n";
        let found = Playlist::parse(text.as_bytes());
        assert_eq!(found, Ok(Playlist::Multivariant(vec!["1/media.m3u8".into(), "b.m3u8".into()])));
    }

    #[test]
    fn what_cannot_be_followed_is_said() {
        let refused = |text: &str| Playlist::parse(text.as_bytes()).unwrap_err();
        assert!(refused("<html>").contains("#EXTM3U"));
        assert!(refused("#EXTM3U\n#EXTINF:1,\na.ts\n").contains("TARGETDURATION"));
        for (line, word) in [
            ("#EXT-X-BYTERANGE:5@0", "BYTERANGE"),
            ("#EXT-X-KEY:METHOD=AES-128,URI=\"k\"", "encrypted"),
            ("#EXTINF:-1,", "duration"),
            ("#EXT-X-MEDIA-SEQUENCE:x", "number"),
            ("#EXT-X-SKIP:SKIPPED-SEGMENTS=3", "skips"),
            ("#EXT-X-PART:DURATION=1", "without an address"),
        ] {
            assert!(refused(&format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{line}\n")).contains(word), "{line}");
        }
    }
}
