//! The messages of a log that somebody wants to see: of a ring in memory, or of the disk.
//!
//! ```text
//!   newest, before a position    … │ delivery │ delivery │ delivery ┤     steps back, from delivery to delivery, until there are enough
//!   from a position, a time                   ├ delivery │ delivery │ …   forward
//! ```
//!
//! A ring is read where it is, and nothing of it is held ([`Glance`]): no publisher waits, and nobody counts as a subscriber. The disk is read as
//! gateways read it. Both looks end after so many bytes, and after a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use rbmq_wire::{Attributes, TopicName};
use rocketbufs::relay::Glance;
use serde::Serialize;

use super::records::{Gone, LogBytes, Next, Part, Place, Walk};
use crate::gate::{KeptBatch, KeptLog, KeptRead, KeptReadError};

/// The most bytes of a message that are shown and searched, and of its attributes that are read.
pub(super) const MAX_SHOWN: usize = 16 << 10;
const MAX_ATTRIBUTES: usize = 8 << 10;

/// The most attributes of a message that are shown, and characters of each.
const SHOWN_ATTRIBUTES: usize = 16;
const SHOWN_OF_ATTRIBUTE: usize = 200;

/// The bytes of a ring that a look goes back for the newest messages: first, and at most.
const FIRST_STEP: u64 = 64 << 10;
const MAX_STEP: u64 = 4 << 20;

/// The bytes and deliveries of a kept topic from which on a look reads no more, and the most bytes of a block of a look back. A delivery is read
/// whole, since its checksum is of all of it.
const MAX_KEPT_BYTES: u64 = 8 << 20;
const MAX_KEPT_DELIVERIES: usize = 4_000;
const MAX_KEPT_STEP: u64 = 256 << 10;

/// The count of attempts of a look at a ring whose publisher overwrites bytes that the look was about to read.
const TRIES: usize = 4;

/// Which messages somebody wants.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) count: usize,
    pub(super) begin: Begin,
    /// Only messages with this text, whose letters are small. Empty: all.
    pub(super) search: String,
    /// The most bytes of a message that are shown.
    pub(super) shown: usize,
    /// Only messages of this topic: the log has others too.
    pub(super) only: Option<TopicName>,
    pub(super) deadline: Instant,
}

/// Where the messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// The newest that end at or before this position.
    Before(u64),
    /// The first from this position on.
    From(u64),
    /// The first of this time, in milliseconds since 1970, or later.
    Time(u64),
}

/// A message, as far as it is shown: as text where it is one, and else as digits.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// Where it begins.
    pub(super) position: u64,
    /// Where it ends, with everything that belongs to it.
    pub(super) end: u64,
    /// When the broker has stored it, in milliseconds since 1970. None: it keeps the message in memory alone.
    pub(super) time_ms: Option<u64>,
    /// Its bytes, without attributes.
    pub(super) length: u64,
    pub(super) text: Option<String>,
    pub(super) hex: Option<String>,
    /// The log has more bytes than these.
    pub(super) is_cut: bool,
    /// Names and values.
    pub(super) attributes: Vec<(String, String)>,
}

/// The messages of a log.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Found {
    /// The oldest first.
    pub(super) rows: Vec<Row>,
    /// There may be more in the direction of the look.
    pub(super) is_cut: bool,
    /// Bytes were passed over that are no messages.
    pub(super) is_damaged: bool,
}

impl Wanted {
    fn takes<L: LogBytes>(&self, log: &L, place: &Place) -> Result<bool, Gone> {
        let is_there = match self.begin {
            Begin::Before(end) => place.record.end <= end,
            Begin::From(begin) => place.record.start >= begin,
            Begin::Time(_) => true,
        };
        if !is_there {
            return Ok(false);
        }
        if let Some(only) = &self.only {
            let bytes = copied(log, &place.attributes, MAX_ATTRIBUTES)?;
            if !Attributes::new(&bytes).is_ok_and(|of| of.topic() == Some(only.as_str())) {
                return Ok(false);
            }
        }
        if self.search.is_empty() {
            return Ok(true);
        }
        let bytes = copied(log, &place.payload, MAX_SHOWN)?;
        Ok(String::from_utf8_lossy(&bytes).to_lowercase().contains(&self.search))
    }

    fn goes_back(&self) -> bool {
        matches!(self.begin, Begin::Before(_))
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

fn copied<L: LogBytes>(log: &L, range: &Range<u64>, most: usize) -> Result<Vec<u8>, Gone> {
    let length = usize::try_from(range.end - range.start).unwrap_or(most).min(most);
    let mut bytes = vec![0; length];
    log.copy(range.start, &mut bytes)?;
    Ok(bytes)
}

/// The bytes as text, if they are one. A text that was cut may end inside a character.
fn text_of(bytes: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// As text, or as digits: what has characters that control something is no text for people.
fn shown(bytes: &[u8], is_cut: bool) -> (Option<String>, Option<String>) {
    let controls =
        |text: &str| text.bytes().any(|byte| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r'));
    match text_of(bytes, is_cut).filter(|text| !controls(text)) {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
    }
}

fn row<L: LogBytes>(log: &L, place: &Place, time_ms: Option<u64>, most: usize) -> Result<Row, Gone> {
    let length = place.payload.end - place.payload.start;
    let bytes = copied(log, &place.payload, most)?;
    let is_cut = (bytes.len() as u64) < length;
    let (text, hex) = shown(&bytes, is_cut);
    let own = copied(log, &place.attributes, MAX_ATTRIBUTES)?;
    let attributes = Attributes::new(&own).map(named).unwrap_or_default();
    let (position, end) = (place.record.start, place.record.end);
    Ok(Row { position, end, time_ms, length, text, hex, is_cut, attributes })
}

/// The attributes as names and values for people.
fn named(attributes: Attributes<'_>) -> Vec<(String, String)> {
    let bytes = |bytes: &[u8]| {
        let (text, hex) = shown(bytes, false);
        text.or(hex).unwrap_or_default()
    };
    let fixed = [
        ("topic", attributes.topic().map(str::to_owned)),
        ("reply_to", attributes.reply_to().map(str::to_owned)),
        ("correlation", attributes.correlation_data().map(bytes)),
        ("content_type", attributes.content_type().map(str::to_owned)),
        ("key", attributes.key().map(bytes)),
        ("time_ms", attributes.time_ms().map(|ms| ms.to_string())),
        ("expiry_ms", attributes.expiry_ms().map(|ms| ms.to_string())),
    ];
    let fixed = fixed.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let all = fixed.chain(attributes.properties().map(|(name, value)| (name.to_owned(), value.to_owned())));
    let short = |text: String| text.chars().take(SHOWN_OF_ATTRIBUTE).collect::<String>();
    all.take(SHOWN_ATTRIBUTES).map(|(name, value)| (short(name), short(value))).collect()
}

/// The places of a range that are wanted: the last ones for a look back, and else the first ones.
struct Picked {
    places: VecDeque<Place>,
    /// Where the look has ended before its end: something is damaged there.
    damaged: Option<u64>,
    is_late: bool,
    /// The log has more than were wanted.
    has_more: bool,
}

fn pick<L: LogBytes>(
    log: &L,
    range: Range<u64>,
    is_merged: bool,
    wanted: &Wanted,
    most: usize,
) -> Result<Picked, Gone> {
    let mut picked = Picked { places: VecDeque::new(), damaged: None, is_late: false, has_more: false };
    let mut walk = Walk::new(log, range, is_merged, wanted.deadline);
    loop {
        match walk.next()? {
            Next::Record(place) if !wanted.takes(log, &place)? => {}
            Next::Record(place) => {
                if picked.places.len() == most {
                    picked.has_more = true;
                    if !wanted.goes_back() {
                        return Ok(picked);
                    }
                    picked.places.pop_front();
                }
                picked.places.push_back(place);
            }
            Next::End => return Ok(picked),
            Next::Damaged(at) => picked.damaged = Some(at),
            Next::Late(_) => picked.is_late = true,
        }
        if picked.damaged.is_some() || picked.is_late {
            return Ok(picked);
        }
    }
}

impl LogBytes for Glance {
    fn copy(&self, at: u64, to: &mut [u8]) -> Result<(), Gone> {
        self.copy_to(at, to).map_err(|_| Gone)
    }
}

/// The messages of a ring.
pub(super) fn of_ring(glance: &Glance, is_merged: bool, wanted: &Wanted) -> Found {
    for _ in 0..TRIES {
        if let Ok(found) = try_ring(glance, is_merged, wanted) {
            return found;
        }
    }
    // The publisher is faster than the look.
    Found { is_cut: true, ..Found::default() }
}

fn try_ring(glance: &Glance, is_merged: bool, wanted: &Wanted) -> Result<Found, Gone> {
    let first = glance.first();
    if glance.is_overtaken() {
        return Err(Gone);
    }
    let (range, most) = match wanted.begin {
        Begin::Before(before) => return back_in_ring(glance, is_merged, wanted, first, before),
        Begin::From(from) => {
            (glance.boundary_at_or_before(from).unwrap_or(first)..glance.end(), wanted.count)
        }
        Begin::Time(_) => (first..glance.end(), wanted.count),
    };
    let mut found = Found::default();
    let mut places = VecDeque::new();
    for piece in pieces(glance, range) {
        walk_pieces(glance, piece, is_merged, wanted, most, &mut places, &mut found)?;
        if found.is_cut {
            break;
        }
    }
    found.rows =
        places.iter().map(|place| row(glance, place, None, wanted.shown)).collect::<Result<_, _>>()?;
    Ok(found)
}

/// The newest messages before a position.
fn back_in_ring(
    glance: &Glance,
    is_merged: bool,
    wanted: &Wanted,
    first: u64,
    before: u64,
) -> Result<Found, Gone> {
    let end = glance.boundary_at_or_after(before.min(glance.end())).unwrap_or(glance.end());
    let mut step = FIRST_STEP;
    loop {
        let begin = glance.boundary_at_or_before(end.saturating_sub(step)).unwrap_or(first).max(first);
        let mut found = Found::default();
        let mut places = VecDeque::new();
        for piece in pieces(glance, begin..end) {
            walk_pieces(glance, piece, is_merged, wanted, wanted.count, &mut places, &mut found)?;
        }
        found.is_cut |= begin > first;
        if places.len() >= wanted.count || begin <= first || step >= MAX_STEP || wanted.is_late() {
            found.rows = places
                .iter()
                .map(|place| row(glance, place, None, wanted.shown))
                .collect::<Result<_, _>>()?;
            return Ok(found);
        }
        step *= 8;
    }
}

/// The parts of a range between holes.
fn pieces(glance: &Glance, range: Range<u64>) -> Vec<Range<u64>> {
    let (mut pieces, mut at) = (Vec::new(), range.start);
    while let Some(hole) = glance.hole_after(at).filter(|hole| hole.start < range.end) {
        if at < hole.start {
            pieces.push(at..hole.start);
        }
        at = hole.end.max(at + 1);
    }
    if at < range.end {
        pieces.push(at..range.end);
    }
    pieces
}

/// Walks over a part, also behind damage in it: from the next known end of a delivery on.
fn walk_pieces(
    glance: &Glance,
    mut piece: Range<u64>,
    is_merged: bool,
    wanted: &Wanted,
    most: usize,
    places: &mut VecDeque<Place>,
    found: &mut Found,
) -> Result<(), Gone> {
    while piece.start < piece.end {
        let left = if wanted.goes_back() { most } else { most - places.len() };
        let picked = pick(glance, piece.clone(), is_merged, wanted, left)?;
        places.extend(picked.places);
        found.is_cut |= picked.has_more || picked.is_late;
        while places.len() > most {
            found.is_cut = true;
            places.pop_front();
        }
        let Some(at) = picked.damaged else { return Ok(()) };
        found.is_damaged = true;
        let Some(next) = glance.boundary_at_or_after(at + 1) else { return Ok(()) };
        piece.start = next;
    }
    Ok(())
}

/// The newest bytes of a ring of plain bytes.
pub(super) fn of_stream(glance: &Glance) -> Found {
    for _ in 0..TRIES {
        let end = glance.end();
        let begin = glance.first().max(end.saturating_sub(MAX_SHOWN as u64));
        if begin == end {
            return Found { is_cut: glance.is_overtaken(), ..Found::default() };
        }
        let place = Place { record: begin..end, attributes: end..end, payload: begin..end };
        if let Ok(row) = row(glance, &place, None, MAX_SHOWN) {
            return Found { is_cut: glance.first() < begin, rows: vec![row], ..Found::default() };
        }
    }
    Found { is_cut: true, ..Found::default() }
}

/// The messages of a log on the disk. May wait for the disk.
///
/// # Errors
/// The disk does not give them.
pub(super) fn of_disk(log: &mut KeptLog, wanted: &Wanted) -> Result<Found, KeptReadError> {
    match wanted.begin {
        Begin::Before(before) => back_on_disk(log, wanted, before),
        Begin::From(from) => forward_on_disk(log, wanted, from.max(log.first())),
        Begin::Time(time) => {
            let from = log.find_time(time)?;
            forward_on_disk(log, wanted, from)
        }
    }
}

/// The rows of a delivery.
fn rows_of(
    bytes: &[u8],
    position: u64,
    time: u64,
    wanted: &Wanted,
    most: usize,
    found: &mut Found,
) -> Vec<Row> {
    let (part, range) = (Part(position, bytes), position..position + bytes.len() as u64);
    // The bytes are there.
    let Ok(picked) = pick(&part, range, true, wanted, most) else { return Vec::new() };
    found.is_damaged |= picked.damaged.is_some();
    found.is_cut |= picked.has_more || picked.is_late;
    picked.places.iter().filter_map(|place| row(&part, place, Some(time), wanted.shown).ok()).collect()
}

/// The newest messages before a position, block after block: each block is read forwards, once.
fn back_on_disk(log: &mut KeptLog, wanted: &Wanted, before: u64) -> Result<Found, KeptReadError> {
    let (mut end, mut found, mut deliveries, mut step) =
        (before.min(log.end()), Found::default(), 0, FIRST_STEP);
    let begun = log.read_bytes();
    let mut newest_first: Vec<Row> = Vec::new();
    while newest_first.len() < wanted.count
        && end > log.first()
        && log.read_bytes() - begun < MAX_KEPT_BYTES
        && deliveries < MAX_KEPT_DELIVERIES
        && !wanted.is_late()
    {
        let block = batches(log, end.saturating_sub(step)..end)?;
        let Some(first) = block.first() else {
            // Before a hole.
            let before = log.read_before(end)?.map_or(log.first(), |batch| batch.end());
            (end, step) = (before.min(end - 1), FIRST_STEP);
            continue;
        };
        (end, step, deliveries) = (first.position(), (4 * step).min(MAX_KEPT_STEP), deliveries + block.len());
        for batch in block.iter().rev() {
            let left = wanted.count - newest_first.len();
            found.is_cut |= left == 0;
            if left == 0 {
                break;
            }
            let rows = rows_of(batch.bytes(), batch.position(), batch.time_ms(), wanted, left, &mut found);
            newest_first.extend(rows.into_iter().rev());
        }
    }
    newest_first.reverse();
    found.rows = newest_first;
    found.is_cut |= end > log.first();
    Ok(found)
}

/// The deliveries that have bytes in a range.
fn batches(log: &mut KeptLog, range: Range<u64>) -> Result<Vec<KeptBatch>, KeptReadError> {
    let (mut at, mut found) = (range.start.max(log.first()), Vec::new());
    while at < range.end {
        match log.read(at)? {
            KeptRead::Batch(batch) if batch.position() < range.end => {
                at = batch.end();
                found.push(batch);
            }
            KeptRead::Gap(to) => at = to.max(at + 1),
            KeptRead::Batch(_) | KeptRead::End => break,
        }
    }
    Ok(found)
}

fn forward_on_disk(log: &mut KeptLog, wanted: &Wanted, from: u64) -> Result<Found, KeptReadError> {
    let (mut at, mut found, begun) = (from, Found::default(), log.read_bytes());
    for _ in 0..MAX_KEPT_DELIVERIES {
        let left = wanted.count - found.rows.len();
        if found.is_cut || left == 0 || log.read_bytes() - begun >= MAX_KEPT_BYTES || wanted.is_late() {
            break;
        }
        match log.read(at)? {
            KeptRead::Batch(batch) => {
                at = batch.end();
                let rows =
                    rows_of(batch.bytes(), batch.position(), batch.time_ms(), wanted, left, &mut found);
                found.rows.extend(rows);
            }
            KeptRead::Gap(to) => at = to.max(at + 1),
            KeptRead::End => return Ok(found),
        }
    }
    found.is_cut |= at < log.end();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rbmq_wire::{AttributesBuf, push_record, push_record_with, run_header};
    use rocketbufs::{BufferOptions, Config, Context, OutBuffer, OutWriter, ROut};

    use super::*;

    fn all(count: usize, begin: Begin) -> Wanted {
        let deadline = Instant::now() + Duration::from_secs(600);
        Wanted { count, begin, search: String::new(), shown: MAX_SHOWN, only: None, deadline }
    }

    fn newest(count: usize) -> Wanted {
        all(count, Begin::Before(u64::MAX))
    }

    fn texts(found: &Found) -> Vec<&str> {
        found.rows.iter().map(|row| row.text.as_deref().or(row.hex.as_deref()).unwrap()).collect()
    }

    fn ring(bytes: u64) -> (OutBuffer, OutWriter) {
        let out = ROut::new(&Context::new(Config::default()).unwrap());
        let buffer = out.create_buffer_with(7, BufferOptions::new().size_bytes(bytes)).unwrap();
        let writer = buffer.writer().unwrap();
        (buffer, writer)
    }

    fn record(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_record(&mut bytes, payload);
        bytes
    }

    #[test]
    fn the_newest_messages_of_a_ring_are_found_and_nothing_is_held() {
        let (buffer, mut writer) = ring(64 << 10);
        assert_eq!(of_ring(&buffer.glance().unwrap(), false, &newest(3)), Found::default());
        for n in 0..20_000 {
            writer.append(&[&record(format!("message {n}").as_bytes())]).expect("nobody holds the ring");
            if n % 1_000 == 999 {
                let found = of_ring(&buffer.glance().unwrap(), false, &newest(2));
                assert_eq!(texts(&found), [format!("message {}", n - 1), format!("message {n}")]);
                assert!(found.is_cut && !found.is_damaged);
            }
        }
        let glance = buffer.glance().unwrap();
        let last = of_ring(&glance, false, &newest(2));
        let before = of_ring(&glance, false, &all(2, Begin::Before(last.rows[0].position)));
        assert_eq!(texts(&before), ["message 19996", "message 19997"]);
        let after = of_ring(&glance, false, &all(9, Begin::From(before.rows[1].position)));
        assert_eq!((texts(&after).len(), after.is_cut), (3, false));
        let mut some = newest(9);
        some.search = "19,99".into();
        assert!(of_ring(&glance, false, &some).rows.is_empty());
        some.search = "sage 1999".into();
        assert_eq!(of_ring(&glance, false, &some).rows.len(), 9);
        let everything = of_ring(&glance, false, &newest(100_000));
        assert!(everything.rows.len() > 1_000 && !everything.is_cut);
        assert_eq!(buffer.info().unwrap().subscribers, 0);
    }

    #[test]
    fn a_look_that_was_overtaken_shows_nothing_wrong() {
        let (buffer, mut writer) = ring(64 << 10);
        let first = record(&[b'a'; 1_000]);
        (0..64).for_each(|_| _ = writer.append(&[&first]).unwrap());
        let old = buffer.glance().unwrap();
        (0..640).for_each(|_| _ = writer.append(&[&record(&[0; 1_000])]).unwrap());
        assert_eq!(of_ring(&old, false, &newest(5)), Found { is_cut: true, ..Found::default() });
        assert_eq!(of_stream(&old), Found { is_cut: true, ..Found::default() });
    }

    #[test]
    fn large_messages_are_cut_and_their_length_is_told() {
        let (buffer, mut writer) = ring(8 << 20);
        writer.append(&[&record("ä".repeat(1 << 19).as_bytes())]).unwrap();
        writer.append(&[&record(&[0xff; MAX_SHOWN + 1])]).unwrap();
        let found = of_ring(&buffer.glance().unwrap(), false, &newest(9));
        let [text, digits] = &found.rows[..] else { panic!("{} rows", found.rows.len()) };
        assert_eq!(
            (text.length, text.is_cut, text.text.as_ref().map(String::len)),
            (1 << 20, true, Some(MAX_SHOWN))
        );
        assert_eq!((digits.is_cut, digits.hex.as_ref().map(String::len)), (true, Some(2 * MAX_SHOWN)));
        assert_eq!(text_of("aä".as_bytes().get(..2).unwrap(), true), Some("a"));
        assert_eq!(text_of(&[b'a', 0xff, b'b'], true), None);
    }

    #[test]
    fn garbage_is_passed_over() {
        let (buffer, mut writer) = ring(64 << 10);
        writer.append(&[&record(b"before")]).unwrap();
        writer.append(&[&[0xfe; 5_000]]).unwrap();
        // The index knows the end of a block of bytes, and not of each delivery.
        (0..4).for_each(|_| _ = writer.append(&[&record(&[b'x'; 10_000])]).unwrap());
        writer.append(&[&record(b"behind")]).unwrap();
        let found = of_ring(&buffer.glance().unwrap(), false, &newest(9));
        assert!(found.is_damaged, "{found:?}");
        assert_eq!((texts(&found).first(), texts(&found).last()), (Some(&"before"), Some(&"behind")));
    }

    #[test]
    fn a_merged_log_of_a_space_shows_one_topic() {
        let (buffer, mut writer) = ring(64 << 10);
        for n in 0..40_u32 {
            let (mut bytes, mut own) = (Vec::new(), AttributesBuf::new());
            let name = format!("devices/{}", n % 2);
            push_record_with(&mut bytes, own.topic(&name).unwrap().attributes(), format!("n{n}").as_bytes());
            writer.append(&[&run_header(n, bytes.len()).unwrap(), &bytes]).unwrap();
        }
        let mut wanted = newest(2);
        wanted.only = Some("devices/1".parse().unwrap());
        let found = of_ring(&buffer.glance().unwrap(), true, &wanted);
        assert_eq!(texts(&found), ["n37", "n39"]);
        assert_eq!(found.rows[0].attributes, [("topic".to_owned(), "devices/1".to_owned())]);
    }

    /// A look back reads the log once, and not each index block again for each delivery.
    #[test]
    fn a_look_back_on_the_disk_reads_it_once_and_passes_over_holes() {
        let disk = seglog_sim::SimStorage::new(1);
        let mut log = seglog::Log::open_on(Arc::new(disk), "log", seglog::Options::default()).unwrap();
        let append = |log: &mut seglog::Log, n: usize| {
            let bytes = record(format!("message {n}").as_bytes());
            log.append(&[&run_header(1, bytes.len()).unwrap()[..], &bytes].concat()).unwrap()
        };
        (0..1_000).for_each(|n| _ = append(&mut log, n));
        log.append_hole(1 << 40).unwrap();
        (1_000..2_000).for_each(|n| _ = append(&mut log, n));
        let look = |wanted: &Wanted| {
            let mut kept = KeptLog::of_reader(log.reader());
            let found = of_disk(&mut kept, wanted).unwrap();
            (found, kept.read_bytes())
        };
        let (found, _) = look(&newest(3));
        assert_eq!(
            (texts(&found), found.is_cut),
            (vec!["message 1997", "message 1998", "message 1999"], true)
        );
        let (found, _) = look(&all(3, Begin::Before(found.rows[0].position)));
        assert_eq!(texts(&found), ["message 1994", "message 1995", "message 1996"]);
        let mut wanted = newest(1_001);
        let (found, read) = look(&wanted);
        let texts = texts(&found);
        assert_eq!(
            (texts[0], texts[1], texts.len(), found.is_cut),
            ("message 999", "message 1000", 1_001, true)
        );
        assert!(read < 500_000, "{read} bytes");
        wanted.search = "message 0".into();
        let (found, read) = look(&wanted);
        assert_eq!((found.rows.len(), found.is_cut), (1, false));
        assert!(read < 500_000, "{read} bytes");
    }
}
