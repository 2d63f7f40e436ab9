//! The rules of RFC 8216bis for a live media playlist, and for a playlist after another, as far as one can see them in the text.

use std::collections::BTreeMap;

/// A segment as a playlist shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub uri: String,
    pub us: u64,
    pub gap: bool,
    pub discontinuities: u64,
    pub map: Option<String>,
    pub date: Option<String>,
}

/// The content of a playlist, as [`check`] reads it.
#[derive(Debug, Default, Clone)]
pub struct Read {
    pub sequence: u64,
    /// The discontinuity sequence number before the first segment.
    pub breaks: u64,
    pub target_s: u64,
    pub part_target_us: u64,
    pub segments: BTreeMap<u64, Listed>,
    /// The parts of each segment: duration and address.
    pub parts: BTreeMap<u64, Vec<(u64, String)>>,
    pub skipped: u64,
    pub hint: Option<String>,
    pub ended: bool,
    /// Whether each segment begins with a key frame.
    pub independent: bool,
    /// How far from the end players begin.
    pub start_us: Option<u64>,
}

fn us(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').expect("a decimal number");
    assert_eq!(fraction.len(), 6);
    whole.parse::<u64>().unwrap() * 1_000_000 + fraction.parse::<u64>().unwrap()
}

/// The attributes of a tag. Values in quotes come without them.
pub fn attributes(text: &str) -> BTreeMap<&str, &str> {
    let mut rest = text;
    let mut all = BTreeMap::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').expect("an attribute has a value");
        assert!(name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'), "{name}");
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"').expect("a closing quote");
                (value, after.strip_prefix(',').unwrap_or(after))
            }
            None => after.split_once(',').unwrap_or((after, "")),
        };
        assert!(all.insert(name, value).is_none(), "{name} twice in {text}");
        rest = after;
    }
    all
}

/// Attributes of the next segment, from the lines so far.
#[derive(Default)]
struct Reader {
    read: Read,
    number: Option<u64>,
    discontinuities: u64,
    low_latency: bool,
    map: Option<String>,
    date: Option<String>,
    duration: Option<u64>,
    gap: bool,
}

/// Reads a playlist and checks the rules for one playlist.
pub fn check(text: &str) -> Read {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("#EXTM3U"), "4.4.1.1: the first line");
    assert!(text.ends_with('\n'));
    let mut reader = Reader::default();
    for line in lines {
        let (tag, value) = line.split_once(':').unwrap_or((line, ""));
        if !reader.head(tag, value) && !reader.of_segment(tag, value) {
            assert!(!line.starts_with('#'), "an unknown tag: {line}");
            reader.segment(line);
        }
    }
    check_parts(&reader.read);
    reader.read
}

impl Reader {
    fn head(&mut self, tag: &str, value: &str) -> bool {
        let read = &mut self.read;
        match tag {
            "#EXT-X-VERSION" => assert!((3..=12).contains(&value.parse::<u32>().unwrap())),
            "#EXT-X-TARGETDURATION" => read.target_s = value.parse().unwrap(),
            "#EXT-X-MEDIA-SEQUENCE" => {
                read.sequence = value.parse().unwrap();
                assert!(self.number.replace(read.sequence).is_none() && read.segments.is_empty());
            }
            "#EXT-X-DISCONTINUITY-SEQUENCE" => {
                read.breaks = value.parse().unwrap();
                self.discontinuities = read.breaks;
                assert!(read.segments.is_empty(), "4.4.3.3: before the first segment");
            }
            "#EXT-X-INDEPENDENT-SEGMENTS" => read.independent = true,
            "#EXT-X-START" => read.start_us = attributes(value)["TIME-OFFSET"].strip_prefix('-').map(us),
            "#EXT-X-SERVER-CONTROL" => {
                self.low_latency = true;
                let control = attributes(value);
                assert_eq!(control["CAN-BLOCK-RELOAD"], "YES");
                assert!(us(control["CAN-SKIP-UNTIL"]) >= 6 * read.target_s * 1_000_000, "4.4.3.8");
                assert!(us(control["HOLD-BACK"]) >= 3 * read.target_s * 1_000_000, "4.4.3.8");
                read.part_target_us = us(control["PART-HOLD-BACK"]) / 3;
            }
            "#EXT-X-PART-INF" => {
                assert_eq!(us(attributes(value)["PART-TARGET"]), read.part_target_us, "4.4.3.7")
            }
            "#EXT-X-SKIP" => {
                read.skipped = attributes(value)["SKIPPED-SEGMENTS"].parse().unwrap();
                self.number = self.number.map(|first| first + read.skipped);
            }
            "#EXT-X-ENDLIST" => read.ended = true,
            _ => return false,
        }
        true
    }

    fn of_segment(&mut self, tag: &str, value: &str) -> bool {
        let read = &mut self.read;
        match tag {
            "#EXT-X-DISCONTINUITY" => self.discontinuities += 1,
            "#EXT-X-MAP" => self.map = Some(attributes(value)["URI"].to_owned()),
            "#EXT-X-PROGRAM-DATE-TIME" => self.date = Some(value.to_owned()),
            "#EXT-X-GAP" => self.gap = true,
            "#EXT-X-PART" => {
                let part = attributes(value);
                let own = us(part["DURATION"]);
                assert!(
                    self.low_latency && own <= read.part_target_us,
                    "4.4.4.9: no part is longer than the target"
                );
                read.parts.entry(self.number.unwrap()).or_default().push((own, part["URI"].to_owned()));
            }
            "#EXTINF" => {
                let own = us(value.strip_suffix(',').unwrap());
                assert!((own + 500_000) / 1_000_000 <= read.target_s, "4.4.3.1: {own} us");
                assert!(self.duration.replace(own).is_none());
            }
            "#EXT-X-PRELOAD-HINT" => {
                assert_eq!(attributes(value)["TYPE"], "PART");
                assert!(read.hint.replace(attributes(value)["URI"].to_owned()).is_none());
            }
            "#EXT-X-RENDITION-REPORT" => assert!(attributes(value).contains_key("LAST-MSN")),
            _ => return false,
        }
        true
    }

    fn segment(&mut self, uri: &str) {
        let own = self.number.expect("4.4.3.2: the media sequence comes first");
        let us = self.duration.take().expect("4.4.4.1: each segment has a duration");
        let (gap, date, map) = (std::mem::take(&mut self.gap), self.date.take(), self.map.clone());
        let listed =
            Listed { uri: uri.to_owned(), us, gap, discontinuities: self.discontinuities, map, date };
        self.read.segments.insert(own, listed);
        self.number = Some(own + 1);
    }
}

/// The parts of a listed segment are all of it, and parts are near the live edge only.
fn check_parts(read: &Read) {
    let end = read.segments.keys().next_back().copied();
    for (number, parts) in &read.parts {
        let Some(segment) = read.segments.get(number) else {
            assert!(end.is_none_or(|end| *number == end + 1), "only one segment is open");
            continue;
        };
        let sum: u64 = parts.iter().map(|(us, _)| us).sum();
        assert!(segment.gap || sum == segment.us, "4.4.4.9: the parts of {number} are its whole duration");
        let after: u64 = read.segments.range(number + 1..).map(|(_, later)| later.us).sum();
        assert!(
            after <= 3 * read.target_s * 1_000_000,
            "4.4.4.9: parts at most three durations from the end"
        );
    }
    if let (Some(hint), Some((number, parts))) = (&read.hint, read.parts.iter().next_back()) {
        let open = !read.segments.contains_key(number);
        let next = if open {
            format!("{number}.{}.m4s", parts.len())
        } else {
            format!("{}.0.m4s", end.unwrap() + 1)
        };
        assert_eq!(*hint, next, "4.4.5.3: the hint is the next part");
    }
}

/// Checks the rules of section 6.2.1 for a playlist that replaces another.
pub fn check_after(old: &Read, new: &Read) {
    assert!(new.sequence >= old.sequence, "6.2.2: the media sequence never decreases");
    assert!(new.breaks >= old.breaks, "6.2.2: the discontinuity sequence neither");
    let constants = |read: &Read| (read.target_s, read.part_target_us);
    assert!(old.segments.is_empty() || constants(new) == constants(old), "6.2.1: no other value");
    for (number, segment) in &new.segments {
        if let Some(before) = old.segments.get(number) {
            assert_eq!(before.uri, segment.uri);
            assert_eq!(before.us, segment.us, "6.2.1: a listed segment does not change");
            assert_eq!(before.gap, segment.gap);
            assert_eq!(before.discontinuities, segment.discontinuities, "6.2.2: discontinuity sequence");
            assert_eq!(before.map, segment.map);
            assert_eq!(before.date, segment.date);
        }
        if let (Some(before), Some(parts)) = (old.parts.get(number), new.parts.get(number)) {
            assert!(parts.starts_with(before), "6.2.1: parts are only appended");
        }
    }
    let (last, end) =
        (old.segments.keys().next_back(), new.sequence + new.skipped + new.segments.len() as u64);
    assert!(
        last.is_none_or(|last| end > *last || new.segments.is_empty()),
        "no segment disappears at the end"
    );
}
