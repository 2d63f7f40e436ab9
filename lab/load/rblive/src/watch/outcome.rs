//! The result of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::audience::{Audience, FirstFault, Seat};
use super::fault::Kind;

/// The result of a run, and the fields of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub viewers: usize,
    /// The measured time. Errors count from the first viewer on, and all other figures are of this time.
    pub seconds: f64,
    pub error_free: bool,
    pub errors: u64,
    pub errors_by_kind: BTreeMap<Kind, u64>,
    pub viewers_with_errors: usize,
    pub first_error: Option<FirstFault>,
    pub mbit_per_s: f64,
    /// The throughput of the viewers that had no error.
    pub error_free_mbit_per_s: f64,
    /// Segments and parts, of the whole run as the fields that follow.
    pub media: u64,
    pub requests: u64,
    pub reconnections: u64,
    /// Pieces of media that were inspected; all others were compared with these.
    pub inspected: u64,
    pub stamped_frames: u64,
    /// The least that a viewer had left to play when media came.
    pub least_buffer_s: Option<f64>,
    pub first_byte_ms: Option<Quantiles>,
    pub whole_ms: Option<Quantiles>,
    pub age_ms: Option<Quantiles>,
    /// Processor seconds of this program per Gbit of media.
    pub cpu_s_per_gbit: Option<f64>,
}

/// Percentiles of times, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    fn of(times: &Histogram<u64>) -> Option<Self> {
        let ms = |us: u64| us as f64 / 1e3;
        let at = |quantile| ms(times.value_at_quantile(quantile));
        (!times.is_empty()).then(|| Self { p50: at(0.5), p99: at(0.99), max: ms(times.max()) })
    }
}

/// What was measured between two moments.
pub struct Measured {
    pub time: Duration,
    pub bytes: u64,
    /// The bytes of viewers without an error.
    pub good_bytes: u64,
    pub cpu_s: f64,
}

impl Outcome {
    pub fn new(audience: &Audience, seats: &[Arc<Seat>], measured: &Measured) -> Self {
        let Measured { time, bytes, good_bytes, cpu_s } = *measured;
        let seconds = time.as_secs_f64().max(1e-9);
        let mbit_per_s = |bytes: u64| bytes as f64 * 8e-6 / seconds;
        let (inspected, stamped_frames) = audience.known.inspected();
        let least = seats.iter().map(|seat| seat.least_ms.load(Ordering::Relaxed)).min();
        let notes = audience.notes();
        let errors = audience.faults.load(Ordering::Relaxed);
        Self {
            viewers: seats.len(),
            seconds,
            error_free: errors == 0,
            errors,
            errors_by_kind: notes.by_kind.clone(),
            viewers_with_errors: seats.iter().filter(|seat| seat.failed.load(Ordering::Relaxed)).count(),
            first_error: notes.first.clone(),
            mbit_per_s: mbit_per_s(bytes),
            error_free_mbit_per_s: mbit_per_s(good_bytes),
            media: seats.iter().map(|seat| seat.media.load(Ordering::Relaxed)).sum(),
            requests: audience.requests.load(Ordering::Relaxed),
            reconnections: audience.reconnections.load(Ordering::Relaxed),
            inspected,
            stamped_frames,
            least_buffer_s: least.filter(|least| *least != i64::MAX).map(|least| least as f64 / 1e3),
            first_byte_ms: Quantiles::of(&notes.first_byte),
            whole_ms: Quantiles::of(&notes.whole),
            age_ms: Quantiles::of(&notes.age),
            cpu_s_per_gbit: (bytes > 0).then(|| cpu_s / (bytes as f64 * 8e-9)),
        }
    }

    /// The first error as a sentence.
    pub fn first_error_text(&self) -> Option<String> {
        let FirstFault { viewer, at_s, kind, address, message } = self.first_error.as_ref()?;
        Some(format!("{kind}: {message} (viewer {viewer}, after {at_s:.1} s, {address})"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { viewers, seconds, errors, viewers_with_errors, .. } = self;
        let faults = match errors {
            0 => "no errors".to_owned(),
            errors => format!("{errors} errors of {viewers_with_errors} viewers"),
        };
        writeln!(f, "{viewers} viewers, {seconds:.1} s: {faults}")?;
        if let Some(first) = self.first_error_text() {
            let kinds: Vec<_> =
                self.errors_by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            writeln!(f, "  the first: {first}\n  all: {}", kinds.join(", "))?;
        }
        writeln!(
            f,
            "  {:.1} Mbit/s of media, {:.1} of it to viewers without an error",
            self.mbit_per_s, self.error_free_mbit_per_s
        )?;
        writeln!(
            f,
            "  {} segments and parts by {} requests; {} of them inspected, the others compared; {} stamped frames",
            self.media, self.requests, self.inspected, self.stamped_frames
        )?;
        let times =
            [("first byte after", self.first_byte_ms), ("all after", self.whole_ms), ("age", self.age_ms)];
        for (what, Quantiles { p50, p99, max }) in
            times.iter().filter_map(|(what, own)| Some((what, (*own)?)))
        {
            writeln!(f, "  {what} {p50:.1} ms (p50), {p99:.1} ms (p99), {max:.1} ms (longest)")?;
        }
        if let Some(least) = self.least_buffer_s {
            writeln!(f, "  no playout buffer had less than {least:.2} s when media came")?;
        }
        match self.cpu_s_per_gbit {
            Some(cpu_s) => writeln!(f, "  {cpu_s:.3} processor seconds of this program per Gbit"),
            None => Ok(()),
        }
    }
}
