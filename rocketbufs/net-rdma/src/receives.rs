//! Counting the peer's posted receives: a message is sent only if there is a receive for it.
//!
//! Each side counts the receives that it has posted since the connection began and reports the total with every message. A
//! quarter of the peer's receives is reserved for reports:
//!
//! ```text
//!   posted by the peer, as reported  used                     reported − used = free
//!   ├────────────────────────────────┤▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┤··free··|reserve┤
//! ```
//!
//! so that two busy ends can always report new receives. An end that has posted a quarter again reports it. To use up the
//! reserve of a quarter and one, an end must have received a quarter as many reports, and then the other end must report too.
//! An end that is asked reports out of turn, but not from the reserve.
//!
//! A receive is posted again when its message was handled. So a total also says how many messages were handled.

/// The receives of both ends of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Receives {
    own_depth: u32,
    posted: u32,
    reported: u32,
    peer_depth: u32,
    peer_posted: u32,
    used: u32,
    /// The peer asked how many are posted.
    urged: bool,
}

impl Receives {
    pub fn new(own_depth: u32, peer_depth: u32) -> Self {
        Self {
            own_depth,
            posted: own_depth,
            reported: own_depth,
            peer_depth,
            peer_posted: peer_depth,
            used: 0,
            urged: false,
        }
    }

    fn free(&self) -> u32 {
        self.peer_posted.wrapping_sub(self.used)
    }

    /// How many transfers and messages the peer has receives for.
    pub fn sendable(&self) -> u32 {
        self.free().saturating_sub(self.peer_depth / 4 + 1)
    }

    /// Whether there are new receives to report, and room for the message.
    pub fn should_report(&self) -> bool {
        let due = self.posted.wrapping_sub(self.reported) >= self.own_depth / 4 && self.free() > 0;
        due || self.urged && self.sendable() > 0
    }

    /// The peer asked for a report.
    pub fn urge(&mut self) {
        self.urged = true;
    }

    /// The message that is sent now uses one. Returns the number used, with it.
    pub fn take(&mut self) -> u32 {
        debug_assert!(self.free() > 0);
        self.used = self.used.wrapping_add(1);
        self.used
    }

    /// How many of the sent messages the peer has handled.
    pub fn handled(&self) -> u32 {
        self.peer_posted.wrapping_sub(self.peer_depth)
    }

    /// Counts a receive of this end that is posted again.
    pub fn post(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// The total, which is being reported.
    pub fn report(&mut self) -> u32 {
        (self.reported, self.urged) = (self.posted, false);
        self.posted
    }

    /// The peer reported its total. False if the total is impossible.
    pub fn on_told(&mut self, total: u32) -> bool {
        let more = total.wrapping_sub(self.peer_posted);
        let free = total.wrapping_sub(self.used);
        if more > self.peer_depth || free > self.peer_depth {
            return false;
        }
        self.peer_posted = total;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// An end, the messages in flight to it (data, or a reported total), and how many receives it really has.
    struct End {
        receives: Receives,
        inbox: VecDeque<Option<u32>>,
        posted: u32,
    }

    proptest! {
        /// In any order of both ends' steps, each message finds a receive, and neither end is stuck.
        #[test]
        fn never_without_a_receive_and_never_stuck(
            depths in [32..200_u32, 32..200_u32],
            turns in prop::collection::vec((0..2_usize, any::<bool>(), 1..60_usize), 1..300),
            asks_every in 1..40_u32,
        ) {
            let end = |own: usize| End {
                receives: Receives::new(depths[own], depths[1 - own]),
                inbox: VecDeque::new(),
                posted: depths[own],
            };
            let mut ends = [end(0), end(1)];
            let read_all = (0..2000).map(|i| (i % 2, true, 60));
            for (side, reads, count) in turns.into_iter().chain(read_all) {
                for _ in 0..count {
                    if reads && let Some(came) = ends[side].inbox.pop_front() {
                        if let Some(total) = came {
                            prop_assert!(ends[side].receives.on_told(total));
                        } else if ends[side].posted % asks_every == 0 {
                            ends[side].receives.urge();
                        }
                        ends[side].posted += 1;
                        ends[side].receives.post();
                    }
                    let own = &mut ends[side].receives;
                    let what = if own.should_report() {
                        Some(Some(own.report()))
                    } else {
                        (!reads && own.sendable() > 0).then_some(None)
                    };
                    if let Some(what) = what {
                        own.take();
                        ends[1 - side].inbox.push_back(what);
                        prop_assert!(ends[1 - side].posted > 0, "no receive was left");
                        ends[1 - side].posted -= 1;
                    }
                }
            }
            for end in &ends {
                prop_assert!(end.inbox.is_empty(), "the ends send reports without end");
                prop_assert!(end.receives.sendable() > 0, "an end is stuck");
            }
        }
    }

    #[test]
    fn totals_that_cannot_be_are_noticed() {
        let mut receives = Receives::new(64, 64);
        assert!(!receives.on_told(65), "more than it ever has");
        receives.take();
        assert!(receives.on_told(65) && !receives.on_told(64), "never back");
    }
}
