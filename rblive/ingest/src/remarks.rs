//! What encoders do wrong: for the log, the control page and the metrics.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::net::IpAddr;
use std::time::SystemTime;

use locks::Mutex;

/// What encoders have done wrong, by the stream that they publish. A stream has each kind once, so memory is bounded by the kinds that
/// exist and the streams that are published.
#[derive(Debug, Default)]
pub struct Remarks {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often each kind happened.
    counts: BTreeMap<&'static str, u64>,
    streams: BTreeMap<String, BTreeMap<&'static str, String>>,
}

impl Remarks {
    /// Counts what the publisher of a stream does wrong. If it is the first time, a line of the log says so. The newest text
    /// stays.
    pub(crate) fn tell(&self, stream: &str, kind: &'static str, text: impl Display) {
        let mut state = self.state.lock();
        *state.counts.entry(kind).or_default() += 1;
        let own = state.streams.entry(stream.to_owned()).or_default();
        if own.insert(kind, text.to_string()).is_none() {
            tracing::warn!(stream, "{text}");
        }
    }

    /// Forgets one kind, which is over.
    pub(crate) fn end(&self, stream: &str, kind: &'static str) {
        if let Some(own) = self.state.lock().streams.get_mut(stream) {
            own.remove(kind);
        }
    }

    /// Forgets what the publisher of a stream did: another one begins, or the stream has ended.
    pub(crate) fn forget(&self, stream: &str) {
        self.state.lock().streams.remove(stream);
    }

    /// What publishers do wrong: the stream, the kind, and the reason with what to do.
    pub fn list(&self) -> Vec<(String, &'static str, String)> {
        let state = self.state.lock();
        let rows = state.streams.iter().flat_map(|(stream, own)| own.iter().map(move |row| (stream, row)));
        rows.map(|(stream, (kind, text))| (stream.clone(), *kind, text.clone())).collect()
    }

    /// How often each kind happened, since the start of the node.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.state.lock().counts.iter().map(|(kind, count)| (*kind, *count)).collect()
    }
}

/// The most encoders that are remembered after they were refused, or failed.
const MAX_FAILURES: usize = 16;
/// The longest reason.
const MAX_REASON: usize = 300;

/// An encoder that was refused, or whose connection failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedEncoder {
    /// When it was, the last time.
    pub at: SystemTime,
    /// Its address.
    pub address: IpAddr,
    /// How it came: `rtmp` or `http`.
    pub protocol: &'static str,
    /// Why, with what to do.
    pub reason: String,
    /// How often, one time after the other.
    pub times: u64,
}

/// The newest encoders that were refused, or failed.
#[derive(Debug, Default)]
pub struct Failures(Mutex<VecDeque<FailedEncoder>>);

impl Failures {
    /// Notes one. An encoder that tries again and again is one.
    pub(crate) fn note(&self, address: IpAddr, protocol: &'static str, reason: &str) {
        let reason: String = reason.chars().take(MAX_REASON).collect();
        let mut all = self.0.lock();
        let is_same = |own: &FailedEncoder| own.address == address && own.reason == reason;
        let before = all.iter().position(is_same).and_then(|at| all.remove(at));
        let times = before.map_or(1, |before| before.times + 1);
        all.push_front(FailedEncoder { at: SystemTime::now(), address, protocol, reason, times });
        all.truncate(MAX_FAILURES);
    }

    /// The newest first.
    pub fn list(&self) -> Vec<FailedEncoder> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_says_the_newest() {
        let remarks = Remarks::default();
        ["2.4 s", "10.0 s"].iter().for_each(|text| remarks.tell("camera", "key_frames", text));
        assert_eq!(remarks.list(), [("camera".to_owned(), "key_frames", "10.0 s".to_owned())]);
        assert_eq!(remarks.counts(), [("key_frames", 2)]);
    }

    #[test]
    fn the_newest_failures_are_there_and_one_that_is_repeated_is_one() {
        let failures = Failures::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        for last in 0..40 {
            failures.note(address(last), "rtmp", "no key");
        }
        for _ in 0..3 {
            failures.note(address(30), "rtmp", &"x".repeat(1000));
            failures.note(address(39), "rtmp", "no key");
        }
        let all = failures.list();
        assert_eq!(all.len(), MAX_FAILURES);
        assert_eq!((all[0].address, all[0].times), (address(39), 4));
        assert_eq!((all[1].address, all[1].times, all[1].reason.len()), (address(30), 3, MAX_REASON));
        assert_eq!(all[2].address, address(38));
    }
}
