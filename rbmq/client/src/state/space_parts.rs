//! What of the log of a space counts as consumed, while the application has parts of it.
//!
//! ```text
//!   views:  ├── handed out, or not wanted ──┼──────────────┤ the subscriber's present view
//!   parts:     [consumed]  [open]   [open]     [given up]
//!                          ▲ the log is consumed up to here
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use rocketbufs::{InView, Position};

use crate::connection::lock;

/// The log. Whoever ends a part, on any thread, consumes what nothing holds any more.
#[derive(Default)]
pub(crate) struct SpaceParts(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many parts that begin at a position the application has.
    open: BTreeMap<Position, usize>,
    /// The end of what the application has consumed.
    consumed: Position,
    /// The start of the last part that was ended without being consumed. Only the application consumes it, with something behind it.
    given_up: Option<Position>,
    /// Views of which everything below a position was handed out or is not wanted, in their order.
    views: VecDeque<(InView, Position)>,
}

impl State {
    fn consume(&mut self, to: Position) {
        self.consumed = self.consumed.max(to);
        self.given_up = self.given_up.filter(|given_up| *given_up >= self.consumed);
    }

    fn give_up(&mut self, from: Position) {
        if from >= self.consumed {
            self.given_up = self.given_up.max(Some(from));
        }
    }

    /// Where the log is held.
    fn held(&self) -> Position {
        let open = self.open.first_key_value().map(|(from, _)| *from);
        open.into_iter().chain(self.given_up).min().unwrap_or(Position::MAX)
    }

    /// Consumes what nothing holds.
    fn settle(&mut self) {
        let held = self.held();
        while let Some((mut view, to)) = self.views.pop_front() {
            if to <= held {
                view.consume_up_to(to);
                continue;
            }
            if held > view.position() {
                view.consume_part(held);
            }
            self.views.push_front((view, to));
            return;
        }
    }
}

impl SpaceParts {
    /// The application gets a part.
    pub(crate) fn hand_out(self: &Arc<Self>, from: Position, to: Position) -> OpenPart {
        *lock(&self.0).open.entry(from).or_default() += 1;
        OpenPart { log: self.clone(), from, to, is_open: true }
    }

    /// Everything of a view below `to` was handed out or is not wanted. `received`: the application had messages of it one by one, and
    /// they are consumed.
    pub(crate) fn retire(&self, view: InView, to: Position, received: bool) {
        let mut state = lock(&self.0);
        if received {
            state.consume(to);
        }
        state.views.push_back((view, to));
        state.settle();
    }

    /// Whether nothing has to be remembered.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let state = lock(&self.0);
        Arc::strong_count(self) == 1 && state.views.is_empty() && state.given_up.is_none()
    }
}

/// A part that the application has. Dropping it consumes nothing.
pub(crate) struct OpenPart {
    log: Arc<SpaceParts>,
    from: Position,
    to: Position,
    is_open: bool,
}

impl OpenPart {
    /// Consumes the part.
    pub(crate) fn consume(&mut self) {
        self.end(Some(self.to));
    }

    /// Consumes the part if it ends at or below the position. A subscriber can resume only there.
    pub(crate) fn consume_up_to(mut self, position: Position) {
        self.end((position >= self.to).then_some(self.to));
    }

    fn end(&mut self, consumed: Option<Position>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let mut state = lock(&self.log.0);
        if let Some(count) = state.open.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.from);
            }
        }
        match consumed {
            Some(to) => state.consume(to),
            None => state.give_up(self.from),
        }
        state.settle();
    }
}

impl Drop for OpenPart {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl std::fmt::Debug for OpenPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPart").field("range", &(self.from..self.to)).finish_non_exhaustive()
    }
}
