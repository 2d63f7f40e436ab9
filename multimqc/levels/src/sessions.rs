//! Sessions: the offset up to which two levels that outlive their process have the same log.
//!
//! Levels can be removed from a stack and added again. A kept ring in the kernel even stores messages while no server uses it, and
//! meanwhile another server may give the same offsets to other bytes. The epoch of these logs is the same, since both servers continue
//! the log that they have found. So each stack that opens a topic is a *session* with a random name, and each level that keeps its log
//! keeps the list of sessions that have written it.
//!
//! ```text
//!   ring    │ session a                  │ a goes on without a server │
//!   disk    │ session a                  │ session b, without the ring       │
//!           └── both have these bytes ───┘ agreement: the start of b
//! ```
//!
//! Two logs are the same up to the end of the last session that is in both lists. After it each level has bytes of its own.

use crate::log::Offset;

/// The most sessions that a list keeps: the newest.
pub const MAX_SESSIONS: usize = 16;

/// A stack that has opened a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The random name. 0 stands for an unknown session, which is equal to no other session, not even to another 0.
    pub id: u64,
    /// The end of the log when the session began. The session's bytes are at this offset or above.
    pub start: Offset,
}

/// The sessions that have written a log, the oldest first, with ascending starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sessions(Vec<Session>);

impl Sessions {
    /// The list of these sessions, of which the newest [`MAX_SESSIONS`] are kept.
    pub fn new(sessions: impl IntoIterator<Item = Session>) -> Sessions {
        let mut sessions: Vec<Session> = sessions.into_iter().collect();
        sessions.drain(..sessions.len().saturating_sub(MAX_SESSIONS));
        Sessions(sessions)
    }

    /// The sessions, the oldest first.
    pub fn list(&self) -> &[Session] {
        &self.0
    }

    /// Whether the last session of both lists is the same.
    pub fn end_together(&self, other: &Sessions) -> bool {
        let last = |sessions: &Sessions| sessions.0.last().map(|last| last.id);
        last(self) == last(other) && last(self) != Some(0)
    }

    /// The list of a log that ends at `head`, with one more session that begins at `head` or above.
    #[must_use]
    pub fn with(&self, head: Offset, next: Session) -> Sessions {
        Sessions::new(self.written(head).iter().copied().chain([next]))
    }

    /// The sessions that have written at least a byte of a log that ends at `head`.
    fn written(&self, head: Offset) -> &[Session] {
        let count = self.0.iter().take_while(|session| session.start < head).count();
        &self.0[..count]
    }

    /// Returns the offset up to which a log with this list, which ends at `head`, and another log have the same bytes.
    ///
    /// ```
    /// use multimqc::{Session, Sessions};
    ///
    /// let [a, b] = [Session { id: 1, start: 0 }, Session { id: 2, start: 1000 }];
    /// let (ring, disk) = (Sessions::new([a]), Sessions::new([a, b]));
    /// assert_eq!(ring.agreement(1500, &disk, 2000), 1000);
    /// assert_eq!(ring.agreement(900, &disk, 2000), 900);
    /// ```
    pub fn agreement(&self, head: Offset, other: &Sessions, other_head: Offset) -> Offset {
        let (these, those) = (self.written(head), other.written(other_head));
        let ends = head.min(other_head);
        let start = |session: Option<&Session>| session.map_or(Offset::MAX, |session| session.start);
        for (at, session) in these.iter().enumerate().rev() {
            if let Some(there) = those.iter().position(|that| that.id == session.id && that.id != 0) {
                return ends.min(start(these.get(at + 1))).min(start(those.get(there + 1)));
            }
        }
        // A list of this length may have been cut, so the sessions before its first one are unknown.
        if these.len() == MAX_SESSIONS || those.len() == MAX_SESSIONS {
            return 0;
        }
        ends.min(start(these.first())).min(start(those.first()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sessions: &[(u64, Offset)]) -> Sessions {
        Sessions::new(sessions.iter().map(|&(id, start)| Session { id, start }))
    }

    #[test]
    fn lists_agree_up_to_the_last_common_session() {
        let one = list(&[(1, 0), (2, 100), (3, 200)]);
        for (other, other_head, agreed) in [
            (one.clone(), 250, 250),
            (list(&[(1, 0), (2, 100)]), 500, 200),
            (list(&[(1, 0), (2, 100), (4, 150)]), 500, 150),
            (list(&[(1, 0), (4, 50)]), 500, 50),
            (list(&[(4, 30)]), 500, 0),
            (list(&[]), 500, 0),
            (list(&[(0, 90)]), 90, 0),
        ] {
            assert_eq!(one.agreement(300, &other, other_head), agreed, "{other:?}");
            assert_eq!(other.agreement(other_head, &one, 300), agreed, "{other:?}, turned round");
        }
        assert_eq!(list(&[]).agreement(10, &list(&[]), 20), 10, "logs of before there were sessions");
        assert_eq!(list(&[]).agreement(10, &list(&[(1, 7)]), 20), 7);
        assert_eq!(
            list(&[(0, 0)]).agreement(10, &list(&[(0, 0)]), 20),
            0,
            "nothing is known of the sessions"
        );
    }

    #[test]
    fn a_session_that_wrote_nothing_does_not_count() {
        let (ring, disk) = (list(&[(1, 0)]), list(&[(1, 0), (2, 1000)]));
        assert_eq!(ring.agreement(1500, &disk, 1000), 1000, "the ring is ahead, and nothing contradicts it");
        assert_eq!(ring.agreement(1500, &disk, 1001), 1000);
        let next = disk.with(1000, Session { id: 3, start: 1000 });
        assert_eq!(next, list(&[(1, 0), (3, 1000)]));
    }

    #[test]
    fn a_list_that_was_cut_claims_nothing_about_its_beginning() {
        let many = Sessions::new((1..=20).map(|id| Session { id, start: id * 10 }));
        assert_eq!((many.list().len(), many.list()[0].id), (MAX_SESSIONS, 5));
        assert_eq!(many.agreement(1000, &list(&[(1, 10)]), 1000), 0);
        assert_eq!(many.agreement(1000, &list(&[(1, 10), (19, 190)]), 1000), 200);
    }
}
