//! The conditions that a run must meet, and its chance.

use rocketbufs::Position;

/// SplitMix64.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Below `n`, which is not 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True in `percent` of 100 cases.
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The bytes of the log from a position on.
pub(super) fn bytes(from: Position, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|at| (mix(at / 8) >> (8 * (at % 8))) as u8).collect()
}

/// The bytes that may be missing, and the cause.
pub(super) struct Oracle {
    seed: u64,
    /// Bytes below may be missing, since retention has removed them.
    removed: Position,
    /// Other ranges that may be missing, in no order.
    excused: Vec<(Position, Position)>,
    /// Nothing may be excused.
    pub(super) lossless: bool,
    trace: u64,
}

impl Oracle {
    pub(super) fn new(seed: u64, lossless: bool) -> Self {
        Self { seed, removed: 0, excused: Vec::new(), lossless, trace: 0 }
    }

    /// A range may be missing from now on.
    pub(super) fn excuse(&mut self, from: Position, to: Position) {
        if from < to {
            assert!(!self.lossless, "seed {}: there is nothing that could lose {from} to {to}", self.seed);
            self.excused.push((from, to));
        }
    }

    /// Bytes below may be missing from now on.
    pub(super) fn remove(&mut self, below: Position) {
        assert!(below == 0 || !self.lossless, "seed {}: nothing removes what lies below {below}", self.seed);
        self.removed = self.removed.max(below);
    }

    pub(super) fn check(&self, what: &str, holds: bool, about: impl FnOnce() -> String) {
        assert!(
            holds,
            "seed {seed}: {what}: {}\n  replay: REPLAY_SEED={seed} cargo test -p rbmq-broker --lib simulator",
            about(),
            seed = self.seed
        );
    }

    /// A subscriber was told that a range is lost.
    pub(super) fn check_lost(&self, who: &str, from: Position, to: Position) {
        let mut at = from.max(self.removed);
        while let Some((_, end)) = self.excused.iter().find(|(start, end)| (*start..*end).contains(&at)) {
            at = *end;
        }
        self.check("a loss has a reason", at >= to, || {
            format!("{who}: {from} to {to} are lost, and nothing has lost {at}")
        });
    }

    /// Notes what happened.
    pub(super) fn note(&mut self, what: u64, a: u64, b: u64) {
        self.trace = mix(self.trace ^ mix(what) ^ mix(a.wrapping_add(1)).rotate_left(17) ^ b.rotate_left(32));
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace
    }
}
