//! The bytes that a topic carries, known to both ends without being sent twice.
//!
//! A topic's stream is a sequence of records, `u32 length (little endian), payload`, all payloads of one
//! size. Payload byte number `p` of the whole stream is `table[p mod P]`: a random table with the topic's
//! seed, so that neither a byte of another topic nor a byte of this topic at another position passes the check.
//!
//! ```text
//!   table     [ random, P = 65,521 bytes ][ its first bytes again, one payload long ]
//!   payloads  |--r0--|--r1--|--r2--| ...  each starts where the one before ended, modulo P
//! ```
//!
//! Other systems put other bytes around a payload (`framed`): a command before it, a line's end after it. These bytes are
//! part of the stream like the length here, so the ends of all systems write and check in the same way.
//!
//! `P` is prime: shifting a stream by the size of a ring (a power of two), which is what an overrun would do,
//! never lands on equal bytes. Small records are kept encoded, a prime number of them in one block, so that
//! checking and writing them costs one `memcmp` or `memcpy` per block and not per record: the check must not
//! be what is measured.

use std::io::IoSlice;

use benchkit::messages::random_bytes;

/// Bytes of a record's length field.
pub const HEADER: usize = 4;

/// Period of the payload bytes. Prime, and small enough that two topics' tables stay in a core's own cache.
const PERIOD: usize = 65_521;

/// About as many bytes as other systems have around a payload.
const AROUND: usize = 64;

/// Payloads up to this size are kept encoded.
const ENCODED_UP_TO: usize = 4096;

/// The content of one topic's stream.
pub struct Pattern {
    size: usize,
    /// The bytes before each payload, at least `HEADER` bytes.
    prefix: Vec<u8>,
    /// The bytes after each payload.
    suffix: Vec<u8>,
    /// The first bytes of `prefix`, by which a reader finds the next record.
    header: [u8; HEADER],
    /// Whole records if they are small; otherwise the payload table, `PERIOD + size` bytes.
    bytes: Vec<u8>,
    encoded: bool,
}

impl Pattern {
    /// The pattern of topic number `topic` when its messages are `size` bytes, `1..=i32::MAX`.
    pub fn new(topic: u32, size: usize) -> Pattern {
        let header = u32::try_from(size).expect("message size is checked by the arguments").to_le_bytes();
        Pattern::of(topic, size, header.to_vec(), Vec::new(), HEADER)
    }

    /// A pattern with other bytes around each payload: `prefix` (at least 4 bytes) and `suffix`. Publishers and subscribers
    /// may have different ones; the payloads are the same.
    pub fn framed(topic: u32, size: usize, prefix: Vec<u8>, suffix: Vec<u8>) -> Pattern {
        Pattern::of(topic, size, prefix, suffix, AROUND)
    }

    /// As many records are encoded as fit into a period if `around` bytes are around each.
    fn of(topic: u32, size: usize, prefix: Vec<u8>, suffix: Vec<u8>, around: usize) -> Pattern {
        let header = *prefix.first_chunk().expect("every system's messages begin with at least four bytes");
        let mut table = random_bytes(u64::from(topic) + 1, PERIOD);
        table.extend_from_within(..size.min(PERIOD));
        while table.len() < PERIOD + size {
            let more = (PERIOD + size - table.len()).min(PERIOD);
            let from = table.len() - PERIOD;
            table.extend_from_within(from..from + more);
        }
        let encoded = size <= ENCODED_UP_TO;
        let bytes = if encoded {
            encode(&table, size, &prefix, &suffix, prime_at_most(PERIOD / (around + size)))
        } else {
            table
        };
        Pattern { size, prefix, suffix, header, bytes, encoded }
    }

    /// Bytes of a record: the payload and the bytes around it.
    pub fn record_bytes(&self) -> usize {
        self.prefix.len() + self.size + self.suffix.len()
    }

    /// The bytes before each payload.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

/// So many whole records, one after the other.
fn encode(table: &[u8], size: usize, prefix: &[u8], suffix: &[u8], records: usize) -> Vec<u8> {
    let record = prefix.len() + size + suffix.len();
    let mut bytes = Vec::with_capacity(records * record);
    let mut from = 0;
    for _ in 0..records {
        bytes.extend_from_slice(prefix);
        bytes.extend_from_slice(&table[from..from + size]);
        bytes.extend_from_slice(suffix);
        from = (from + size) % PERIOD;
    }
    bytes
}

/// How many bytes at the front of both are equal.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const PIECE: usize = 256;
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let pieces = a.chunks(PIECE).zip(b.chunks(PIECE)).take_while(|(a, b)| a == b).count();
    let from = (pieces * PIECE).min(len);
    from + a[from..].iter().zip(&b[from..]).take_while(|(a, b)| a == b).count()
}

fn prime_at_most(limit: usize) -> usize {
    let is_prime = |n: usize| n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (2..=limit).rev().find(|n| is_prime(*n)).unwrap_or(1)
}

/// A place in a topic's stream, for the end that writes it and for the end that checks it.
pub struct Cursor<'a> {
    pattern: &'a Pattern,
    /// The completed bytes of the current record.
    inner: usize,
    /// The next index of `pattern.bytes`: within the encoded block, or within the payload table.
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning of the stream.
    pub fn new(pattern: &'a Pattern) -> Cursor<'a> {
        Cursor { pattern, inner: 0, at: 0 }
    }

    /// The next bytes that are contiguous in memory: never empty.
    fn run(&self) -> &'a [u8] {
        if self.pattern.encoded {
            return &self.pattern.bytes[self.at..];
        }
        let pattern = self.pattern;
        match self.inner.checked_sub(pattern.prefix.len()) {
            None => &pattern.prefix[self.inner..],
            Some(done) if done < pattern.size => {
                let end = (self.at + pattern.size - done).min(PERIOD);
                &pattern.bytes[self.at..end]
            }
            Some(done) => &pattern.suffix[done - pattern.size..],
        }
    }

    /// Moves on by `len` bytes, at most one run. Returns how many records were completed.
    fn advance(&mut self, len: usize) -> u64 {
        let record = self.pattern.record_bytes();
        let payload = self.pattern.prefix.len()..self.pattern.prefix.len() + self.pattern.size;
        if self.pattern.encoded || payload.contains(&self.inner) {
            self.at += len;
            let end = if self.pattern.encoded { self.pattern.bytes.len() } else { PERIOD };
            if self.at == end {
                self.at = 0;
            }
        }
        let behind = self.inner + len;
        self.inner = behind % record;
        (behind / record) as u64
    }

    /// Whole records that follow and are kept encoded, at most `most` bytes. Only between records.
    pub fn encoded(&self, most: usize) -> Option<&'a [u8]> {
        debug_assert_eq!(self.inner, 0);
        let record = self.pattern.record_bytes();
        let run = self.run();
        let len = run.len().min(most) / record * record;
        (self.pattern.encoded && len > 0).then(|| &run[..len])
    }

    /// Collects what follows, `want` bytes or what `slices.capacity()` pieces have, without moving.
    pub fn gather(&self, want: usize, slices: &mut Vec<IoSlice<'a>>) {
        let mut ahead = Cursor { ..*self };
        let mut left = want;
        slices.clear();
        while left > 0 && slices.len() < slices.capacity() {
            let run = ahead.run();
            let run = &run[..run.len().min(left)];
            slices.push(IoSlice::new(run));
            left -= run.len();
            ahead.advance(run.len());
        }
    }

    /// Moves on by any number of bytes. Returns how many records were completed.
    pub fn skip(&mut self, mut len: usize) -> u64 {
        let mut records = 0;
        while len > 0 {
            let step = self.run().len().min(len);
            records += self.advance(step);
            len -= step;
        }
        records
    }

    /// The completed bytes of the current record; 0 between records.
    pub fn behind(&self) -> usize {
        self.inner
    }

    /// Bytes that are missing until the present record is complete; 0 between records.
    pub fn rest_of_record(&self) -> usize {
        if self.inner == 0 { 0 } else { self.pattern.record_bytes() - self.inner }
    }

    /// Writes the next bytes into all of `to`. Returns the number of completed records.
    pub fn fill(&mut self, mut to: &mut [u8]) -> u64 {
        let mut records = 0;
        while !to.is_empty() {
            let run = self.run();
            let step = run.len().min(to.len());
            let (now, later) = to.split_at_mut(step);
            now.copy_from_slice(&run[..step]);
            records += self.advance(step);
            to = later;
        }
        records
    }

    /// Checks every byte of `data` and reads the length of every record that begins in it.
    /// Returns the number of completed records, or None if a byte is wrong.
    pub fn check(&mut self, mut data: &[u8]) -> Option<u64> {
        let mut records = 0;
        while !data.is_empty() {
            let run = self.run();
            let step = run.len().min(data.len());
            let (now, later) = data.split_at(step);
            if !self.lengths_are_right(now) || now != &run[..step] {
                return None;
            }
            records += self.advance(step);
            data = later;
        }
        Some(records)
    }

    /// Takes this topic's bytes from the front of `data`, where several topics share a connection: up to the first byte that
    /// differs, or to the end of the contiguous pattern. Call it only between records. The call stops at a record's end,
    /// unless enough bytes of the next record are there to exclude all other topics. Returns bytes and records.
    pub fn take(&mut self, data: &[u8]) -> (usize, u64) {
        debug_assert_eq!(self.inner, 0);
        if !self.pattern.encoded {
            let prefix = self.pattern.prefix.len();
            let ours = data.starts_with(&self.pattern.prefix);
            return if ours { (prefix, self.skip(prefix)) } else { (0, 0) };
        }
        let run = self.run();
        let record = self.pattern.record_bytes();
        let same = common_prefix(run, data);
        let whole = same / record * record;
        let begun = same - whole >= self.pattern.prefix.len() && same == data.len();
        let len = if begun { same } else { whole };
        (len, self.skip(len))
    }

    /// Walks from record to record as any reader has to; lengths cut by the end of `data` are left out.
    fn lengths_are_right(&self, data: &[u8]) -> bool {
        let record = self.pattern.record_bytes();
        let first = (record - self.inner) % record;
        let Some(data) = data.get(first..) else { return true };
        data.chunks(record).all(|record| match record.first_chunk::<HEADER>() {
            Some(length) => *length == self.pattern.header,
            None => true,
        })
    }

    /// The payload of the next record. Only between records.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        debug_assert_eq!(self.inner, 0);
        let from = if self.pattern.encoded { self.at + self.pattern.prefix.len() } else { self.at };
        &self.pattern.bytes[from..from + self.pattern.size]
    }

    /// Moves past the next record. Only between records.
    #[inline]
    pub fn next_record(&mut self) {
        debug_assert_eq!(self.inner, 0);
        if self.pattern.encoded {
            self.at += self.pattern.record_bytes();
            if self.at == self.pattern.bytes.len() {
                self.at = 0;
            }
        } else {
            self.at = (self.at + self.pattern.size) % PERIOD;
        }
    }

    /// Checks one message and moves past it.
    #[inline]
    pub fn check_message(&mut self, message: &[u8]) -> bool {
        let expected = self.payload();
        let same = match (message.first_chunk::<8>(), expected.first_chunk::<8>()) {
            // The commonest small size, without a call.
            (Some(a), Some(b)) if message.len() == 8 && expected.len() == 8 => a == b,
            _ => message == expected,
        };
        self.next_record();
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 9] = [1, 8, 64, 1000, 4096, 4097, 16_384, 65_536, 524_288];

    fn stream(topic: u32, size: usize, len: usize) -> Vec<u8> {
        let pattern = Pattern::new(topic, size);
        let mut bytes = vec![0; len];
        Cursor::new(&pattern).fill(&mut bytes);
        bytes
    }

    #[test]
    fn written_bytes_are_checked_wherever_they_are_cut() {
        for size in SIZES {
            let pattern = Pattern::new(3, size);
            let len = 5 * pattern.record_bytes() + 200_001;
            let bytes = stream(3, size, len);
            for cut in [1, 7, 4099, 65_536, len] {
                let mut cursor = Cursor::new(&pattern);
                let records: Option<u64> = bytes.chunks(cut).map(|piece| cursor.check(piece)).sum();
                assert_eq!(records, Some((len / pattern.record_bytes()) as u64), "size {size} cut {cut}");
                assert_eq!(
                    cursor.rest_of_record(),
                    (pattern.record_bytes() - len % pattern.record_bytes()) % pattern.record_bytes()
                );
            }
        }
    }

    #[test]
    fn a_wrong_byte_anywhere_is_seen() {
        for size in SIZES {
            let pattern = Pattern::new(0, size);
            let bytes = stream(0, size, 2 * pattern.record_bytes() + 70_000);
            let step = bytes.len() / 97 + 1;
            for at in (0..bytes.len()).step_by(step).chain([0, 3, bytes.len() - 1]) {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1;
                assert_eq!(Cursor::new(&pattern).check(&wrong), None, "size {size} at {at}");
            }
        }
    }

    #[test]
    fn neither_another_topic_nor_a_stream_shifted_by_a_ring_passes() {
        for size in SIZES {
            let pattern = Pattern::new(0, size);
            let len = 3 * pattern.record_bytes().max(30_000);
            assert_eq!(Cursor::new(&pattern).check(&stream(1, size, len)), None);
            for ring in [65_536, 1 << 20, 1 << 22] {
                let mut shifted = Cursor::new(&pattern);
                shifted.skip(ring / pattern.record_bytes() * pattern.record_bytes());
                let mut bytes = vec![0; len];
                shifted.fill(&mut bytes);
                if ring > pattern.record_bytes() {
                    assert_eq!(Cursor::new(&pattern).check(&bytes), None, "size {size} ring {ring}");
                }
            }
        }
    }

    #[test]
    fn messages_one_by_one_are_the_payloads_of_the_stream() {
        for size in SIZES {
            let pattern = Pattern::new(7, size);
            let bytes = stream(7, size, 20 * pattern.record_bytes());
            let mut cursor = Cursor::new(&pattern);
            for record in bytes.chunks(pattern.record_bytes()) {
                assert_eq!(cursor.payload(), &record[HEADER..]);
                assert!(cursor.check_message(&record[HEADER..]));
            }
            assert!(!cursor.check_message(&vec![0; size]));
        }
    }

    #[test]
    fn encoded_records_are_the_stream_where_messages_are_small() {
        for size in SIZES {
            let pattern = Pattern::new(2, size);
            let mut cursor = Cursor::new(&pattern);
            assert_eq!(cursor.encoded(pattern.record_bytes() - 1), None);
            assert_eq!(cursor.encoded(usize::MAX).is_some(), size <= ENCODED_UP_TO);
            let mut bytes = Vec::new();
            while let Some(records) =
                cursor.encoded(3 * pattern.record_bytes()).filter(|_| bytes.len() < 200_000)
            {
                bytes.extend_from_slice(records);
                cursor.skip(records.len());
            }
            assert_eq!(bytes, stream(2, size, bytes.len()));
        }
    }

    #[test]
    fn payloads_are_the_same_whatever_is_around_them() {
        for size in SIZES {
            let short = Pattern::framed(5, size, b"PUT ".to_vec(), Vec::new());
            let long = Pattern::framed(5, size, vec![b'x'; 70], b"end".to_vec());
            let (mut a, mut b) = (Cursor::new(&short), Cursor::new(&long));
            for _ in 0..3000 {
                assert!(a.payload() == b.payload(), "size {size}");
                a.next_record();
                b.next_record();
            }
        }
    }

    #[test]
    fn topics_that_share_a_connection_are_distinguished_at_each_record() {
        for size in SIZES {
            let framed = |topic: u32| {
                Pattern::framed(topic, size, format!("PUT {topic} {size} ").into(), b"end".to_vec())
            };
            let patterns = [framed(0), framed(1)];
            let mut cursors = patterns.each_ref().map(Cursor::new);
            let mut bytes = Vec::new();
            for (topic, records) in [(0, 3), (1, 1), (0, 700), (1, 2), (1, 5)] {
                let from = bytes.len();
                bytes.resize(from + records * patterns[topic].record_bytes(), 0);
                assert_eq!(cursors[topic].fill(&mut bytes[from..]), records as u64);
            }
            let mut readers = patterns.each_ref().map(Cursor::new);
            let (mut at, mut counts, mut current) = (0, [0, 0], 0);
            while at < bytes.len() {
                let rest = readers[current].rest_of_record();
                if rest > 0 {
                    counts[current] += readers[current].check(&bytes[at..at + rest]).unwrap();
                    at += rest;
                    continue;
                }
                let (len, records) = readers[current].take(&bytes[at..]);
                counts[current] += records;
                at += len;
                if len == 0 {
                    current = 1 - current;
                }
            }
            assert_eq!(counts, [703, 8], "size {size}");
        }
    }

    #[test]
    fn gathered_pieces_are_the_stream() {
        for size in SIZES {
            let pattern = Pattern::new(1, size);
            let mut cursor = Cursor::new(&pattern);
            cursor.skip(1);
            let mut slices = Vec::with_capacity(64);
            cursor.gather(100_000, &mut slices);
            let gathered: Vec<u8> = slices.iter().flat_map(|piece| piece.to_vec()).collect();
            assert_eq!(gathered.len(), 100_000);
            assert_eq!(gathered, stream(1, size, gathered.len() + 1)[1..]);
        }
    }
}
