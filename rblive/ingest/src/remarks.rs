//! What encoders do wrong: for the log, the control page and the metrics.

use std::collections::BTreeMap;
use std::fmt::Display;

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
    /// Counts what the publisher of a stream does wrong. If it is the first time, a line of the log says so.
    pub(crate) fn tell(&self, stream: &str, kind: &'static str, text: impl Display) {
        let mut state = self.state.lock();
        *state.counts.entry(kind).or_default() += 1;
        let own = state.streams.entry(stream.to_owned()).or_default();
        if !own.contains_key(kind) {
            tracing::warn!(stream, "{text}");
            own.insert(kind, text.to_string());
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
