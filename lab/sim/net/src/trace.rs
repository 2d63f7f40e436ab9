//! The last events of a simulated network, for reading after a seed has failed, and a fingerprint of all of them.

use std::collections::VecDeque;
use std::fmt::Write;

/// An event. Plain numbers, so that recording allocates and formats nothing.
#[derive(Debug, Clone, Copy)]
struct Line {
    at: u64,
    verb: &'static str,
    conn: u64,
    wire: u32,
    a: u64,
    b: u64,
}

/// The last `limit` lines and a hash of all lines.
#[derive(Debug)]
pub(crate) struct Trace {
    lines: VecDeque<Line>,
    limit: usize,
    hash: u64,
}

impl Trace {
    pub(crate) fn new(limit: usize) -> Self {
        Self { lines: VecDeque::with_capacity(limit), limit, hash: 0xCBF2_9CE4_8422_2325 }
    }

    /// `conn` is a `ConnId`'s number (or a host's, for faults of hosts); the meaning of `a` and `b` depends on `verb`.
    pub(crate) fn note(&mut self, at: u64, verb: &'static str, conn: u64, wire: u32, a: u64, b: u64) {
        for byte in verb.bytes() {
            self.mix(u64::from(byte));
        }
        for number in [at, conn, u64::from(wire), a, b] {
            self.mix(number);
        }
        if self.limit == 0 {
            return;
        }
        if self.lines.len() == self.limit {
            self.lines.pop_front();
        }
        self.lines.push_back(Line { at, verb, conn, wire, a, b });
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let Line { at, verb, conn, wire, a, b } = *line;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{at:>12} ns  conn {conn:<4} {verb:<12} wire {wire:#x} {a} {b}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Trace;

    #[test]
    fn keeps_the_last_lines_and_hashes_all() {
        let (mut a, mut b) = (Trace::new(2), Trace::new(2));
        for n in 0..5 {
            a.note(n, "x", 0, 0, 0, 0);
            b.note(n + u64::from(n == 0), "x", 0, 0, 0, 0);
        }
        assert_eq!(a.text(), b.text());
        assert_eq!(a.text().lines().count(), 2);
        assert_ne!(a.hash(), b.hash());
    }
}
