//! The state that all viewers share: settings, known media, faults and counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use locks::{Mutex, MutexGuard};

use super::address::Address;
use super::connection::Dialer;
use super::fault::{Fault, Kind};
use super::known::Known;

/// The kind of media that viewers fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Parts where the playlist offers them and requests that wait, else segments
    Auto,
    /// Segments
    Live,
    /// Parts, with requests that wait at the server
    LowLatency,
}

/// How viewers behave.
#[derive(Debug, Clone)]
pub struct Settings {
    pub dialer: Dialer,
    pub mode: Mode,
    /// Seconds between the live edge and a viewer; `None`: what the playlist says.
    pub buffer_s: Option<f64>,
    /// Whether all media must have frames of `rblive-load push`.
    pub stamped: bool,
}

/// The first fault.
#[derive(Debug, Clone, serde::Serialize)]
pub struct FirstFault {
    pub viewer: usize,
    pub at_s: f64,
    pub kind: Kind,
    pub address: String,
    pub message: String,
}

/// Faults and times.
#[derive(Debug)]
pub struct Notes {
    pub first: Option<FirstFault>,
    pub by_kind: BTreeMap<Kind, u64>,
    /// Microseconds from a request for media to its first byte, and to its last.
    pub first_byte: Histogram<u64>,
    pub whole: Histogram<u64>,
    /// Microseconds from the making of the newest frame of `rblive-load push` in a piece of media to its first byte at a viewer.
    pub age: Histogram<u64>,
}

/// All viewers.
pub struct Audience {
    pub settings: Settings,
    pub known: Known,
    pub began: Instant,
    pub requests: AtomicU64,
    pub reconnections: AtomicU64,
    pub faults: AtomicU64,
    notes: Mutex<Notes>,
}

/// The state of one viewer that others read.
#[derive(Debug)]
pub struct Seat {
    pub bytes: AtomicU64,
    pub media: AtomicU64,
    pub failed: AtomicBool,
    /// The least that was left in the playout buffer when media came, in milliseconds.
    pub least_ms: AtomicI64,
    /// When the playout buffer is empty, in milliseconds since the beginning; `u64::MAX` while nothing plays.
    due_ms: AtomicU64,
}

/// Microseconds up to an hour with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order")
}

impl Audience {
    pub fn new(settings: Settings) -> Self {
        let notes = Notes {
            first: None,
            by_kind: BTreeMap::new(),
            first_byte: histogram(),
            whole: histogram(),
            age: histogram(),
        };
        Self {
            settings,
            known: Known::default(),
            began: Instant::now(),
            requests: AtomicU64::new(0),
            reconnections: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            notes: Mutex::new(notes),
        }
    }

    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock()
    }

    /// Counts a fault of a viewer.
    pub fn report(&self, seat: &Seat, viewer: usize, address: &Address, fault: Fault) {
        seat.failed.store(true, Ordering::Relaxed);
        self.faults.fetch_add(1, Ordering::Relaxed);
        let at_s = self.began.elapsed().as_secs_f64();
        let mut notes = self.notes();
        *notes.by_kind.entry(fault.kind).or_default() += 1;
        if notes.first.is_none() {
            let (kind, message) = (fault.kind, fault.message);
            notes.first = Some(FirstFault { viewer, at_s, kind, address: address.to_string(), message });
        }
    }

    pub fn requested(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reconnected(&self) {
        self.reconnections.fetch_add(1, Ordering::Relaxed);
    }

    /// Media was fetched: the times from its request to its first byte and to its last.
    pub fn fetched(&self, first_byte: Duration, whole: Duration) {
        let mut notes = self.notes();
        notes.first_byte.saturating_record(first_byte.as_micros() as u64);
        notes.whole.saturating_record(whole.as_micros() as u64);
    }

    /// The newest frame of media was this old when its first byte came.
    pub fn aged(&self, age: Duration) {
        self.notes().age.saturating_record(age.as_micros() as u64);
    }

    /// Clears the recorded times, so that only later times count.
    pub fn forget_times(&self) {
        let mut notes = self.notes();
        let Notes { first_byte, whole, age, .. } = &mut *notes;
        [first_byte, whole, age].into_iter().for_each(Histogram::reset);
    }
}

impl Seat {
    pub fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            media: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            least_ms: AtomicI64::new(i64::MAX),
            due_ms: AtomicU64::new(u64::MAX),
        }
    }

    pub fn received(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.media.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the playing of the viewer.
    pub fn leave(&self) {
        self.due_ms.store(u64::MAX, Ordering::Relaxed);
    }

    pub fn had_left(&self, left_s: f64) {
        self.least_ms.fetch_min((left_s * 1e3) as i64, Ordering::Relaxed);
    }

    pub fn plays_until(&self, since: Option<Instant>, ready_s: f64, audience: &Audience) {
        let Some(since) = since else { return };
        let due = (since - audience.began).as_secs_f64() + ready_s;
        self.due_ms.store((due * 1e3) as u64, Ordering::Relaxed);
    }

    /// Whether the viewer has received no media, and has reported no fault.
    pub fn has_nothing(&self) -> bool {
        self.media.load(Ordering::Relaxed) == 0 && !self.failed.load(Ordering::Relaxed)
    }

    /// How long ago the playout buffer ran empty, if no media has come since.
    pub fn overdue_ms(&self, audience: &Audience) -> Option<u64> {
        let now = audience.began.elapsed().as_millis() as u64;
        now.checked_sub(self.due_ms.load(Ordering::Relaxed)).filter(|late| *late > 0)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn audience() -> Audience {
        let dialer = Dialer {
            version: super::super::connection::Version::Http1,
            tls: super::super::tls::config(None, b"http/1.1").unwrap(),
            patience: Duration::from_secs(1),
        };
        Audience::new(Settings { dialer, mode: Mode::Auto, buffer_s: None, stamped: false })
    }

    #[test]
    fn the_first_fault_is_kept() {
        let (audience, seat) = (audience(), Seat::new());
        let at = Address::parse("http://a/").unwrap();
        audience.report(&seat, 1, &at, Fault::new(Kind::Late, "first"));
        audience.report(&seat, 2, &at, Fault::new(Kind::Status, "second"));
        let notes = audience.notes();
        assert_eq!(notes.first.as_ref().map(|first| (first.viewer, &first.message[..])), Some((1, "first")));
        assert_eq!((notes.by_kind.len(), audience.faults.load(Ordering::Relaxed)), (2, 2));
        assert!(seat.failed.load(Ordering::Relaxed));
    }
}
