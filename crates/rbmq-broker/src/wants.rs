//! How much a subscriber may ask for.

/// How much one connection may ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct MayWant {
    /// Names and patterns.
    pub(super) filters: usize,
    /// Patterns alone: each is looked at for topics that it may not even match.
    pub(super) patterns: usize,
}

/// A connection would want so much.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WantsTooMuch {
    Filters(usize),
    Patterns(usize),
}
