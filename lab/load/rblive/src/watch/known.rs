//! The media at each address: the first viewer's bytes are inspected, and those of all others must be the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::{Mutex, MutexGuard};
use rblive_media::fmp4::InitSegment;

use super::answer::Body;
use super::fault::{Fault, Kind};
use super::inspect::{self, Facts};

/// How long an address is remembered after its first answer.
const KEPT: Duration = Duration::from_secs(120);
/// The number of answers between two sweeps of old addresses.
const SWEEP_EVERY: usize = 1024;
/// The most addresses. Servers with more are compared less.
const MAX_ADDRESSES: usize = 200_000;

/// The media at an address.
enum Entry {
    /// A viewer fetches it, to inspect it.
    Claimed,
    Seen {
        bytes: u64,
        crc: u32,
        facts: Facts,
    },
}

#[derive(Default)]
struct Table {
    media: HashMap<String, (Instant, Entry)>,
    inits: HashMap<String, (u64, u32, Option<Arc<InitSegment>>)>,
    since_sweep: usize,
    inspected: u64,
    stamped: u64,
}

/// The media of each address, which all viewers share.
#[derive(Default)]
pub struct Known(Mutex<Table>);

impl Known {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Whether the caller is the first to fetch this address: it keeps the bytes, and must call [`compare`](Self::compare), or
    /// [`release`](Self::release) if it gets none.
    pub fn claim(&self, address: &str) -> bool {
        let mut table = self.table();
        if table.media.contains_key(address) || table.media.len() >= MAX_ADDRESSES {
            return false;
        }
        table.media.insert(address.to_owned(), (Instant::now(), Entry::Claimed));
        true
    }

    /// Lets another viewer inspect the address.
    pub fn release(&self, address: &str) {
        let mut table = self.table();
        if matches!(table.media.get(address), Some((_, Entry::Claimed))) {
            table.media.remove(address);
        }
    }

    /// Inspects the bytes if they were kept, and compares them with those of earlier viewers. `None`: no viewer has inspected the address
    /// yet.
    pub fn compare(
        &self,
        address: &str,
        body: &Body,
        init: Option<&InitSegment>,
    ) -> Result<Option<Facts>, Fault> {
        let own = body.bytes_kept().map(|bytes| inspect::media(bytes, init)).transpose();
        let own = own.map_err(|message| Fault::new(Kind::Content, message))?;
        let mut table = self.table();
        let Some(facts) = own else {
            return match table.media.get(address) {
                Some((_, Entry::Seen { bytes, crc, facts })) => {
                    same(body, *bytes, *crc)?;
                    Ok(Some(*facts))
                }
                _ => Ok(None),
            };
        };
        table.inspected += 1;
        table.stamped += facts.stamps.map_or(0, |own| own.last - own.first + 1);
        let now = Instant::now();
        table
            .media
            .insert(address.to_owned(), (now, Entry::Seen { bytes: body.bytes, crc: body.crc, facts }));
        table.since_sweep += 1;
        if table.since_sweep >= SWEEP_EVERY {
            table.since_sweep = 0;
            table.media.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
        }
        Ok(Some(facts))
    }

    /// The same for an initialisation segment, which must be kept.
    pub fn init(&self, address: &str, body: &Body) -> Result<Option<Arc<InitSegment>>, Fault> {
        let mut table = self.table();
        if let Some((bytes, crc, init)) = table.inits.get(address) {
            same(body, *bytes, *crc)?;
            return Ok(init.clone());
        }
        let init = inspect::init(body.bytes_kept().unwrap_or_default());
        let init = init.map_err(|message| Fault::new(Kind::Content, message))?.map(Arc::new);
        if table.inits.len() < MAX_ADDRESSES {
            table.inits.insert(address.to_owned(), (body.bytes, body.crc, init.clone()));
        }
        Ok(init)
    }

    /// Pieces of media that were inspected, and their frames that `rblive-load push` had made.
    pub fn inspected(&self) -> (u64, u64) {
        let table = self.table();
        (table.inspected, table.stamped)
    }
}

fn same(body: &Body, bytes: u64, crc: u32) -> Result<(), Fault> {
    if (body.bytes, body.crc) == (bytes, crc) {
        return Ok(());
    }
    let message = format!(
        "{} bytes with check sum {:08x}, where another viewer got {bytes} bytes with {crc:08x}",
        body.bytes, body.crc
    );
    Err(Fault::new(Kind::Content, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8], kept: bool) -> Body {
        let mut body = if kept { Body::kept(1 << 20) } else { Body::counted() };
        body.push(bytes).unwrap();
        body
    }

    #[test]
    fn the_first_inspects_and_the_others_compare() {
        let media = [&b"\0\0\0\x08moof"[..], b"\0\0\0\x0Bmdatabc"].concat();
        let known = Known::default();
        assert!(known.claim("a") && !known.claim("a"));
        assert_eq!(known.compare("a", &body(&media, false), None), Ok(None));
        known.release("a");
        assert!(known.claim("a"));
        assert_eq!(known.compare("a", &body(&media, true), None), Ok(Some(Facts::default())));
        assert_eq!(known.compare("a", &body(&media, false), None), Ok(Some(Facts::default())));
        let mut other = media.clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(known.compare("a", &body(&other, false), None).unwrap_err().kind, Kind::Content);
        assert_eq!(known.compare("b", &body(b"rubbish", true), None).unwrap_err().kind, Kind::Content);
        assert_eq!(known.inspected(), (1, 0));
        known.release("a");
        assert!(!known.claim("a"));
    }

    #[test]
    fn initialisation_segments_are_compared() {
        let known = Known::default();
        assert_eq!(known.init("i", &body(b"\0\0\0\x08moov", true)), Ok(None));
        assert!(known.init("i", &body(b"\0\0\0\x08moof", true)).is_err());
        assert!(known.init("j", &body(b"\0\0\0\x08moof", true)).is_err());
    }
}
