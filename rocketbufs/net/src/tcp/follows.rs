//! The rings of other processes that one worker follows, and the doorbell by which their writers wake it.

use std::io;
use std::os::fd::BorrowedFd;

use rocketring::Doorbell;

use crate::contract::{ConnId, WireId};

/// The most rings that one worker follows.
const MAX_FOLLOWED: usize = 64;
/// The kernel is asked at least once in this many polls, also while rings always have new data.
const POLLS_UNASKED: u32 = 16;

/// The rings that one worker follows.
#[derive(Default)]
pub(super) struct Follows {
    doorbell: Option<Doorbell>,
    rings: Vec<(ConnId, WireId)>,
    /// Another thread looks at all rings. A change of the rings ends it: that thread knows only the rings from before.
    is_attended: bool,
    /// Consecutive polls that had new data and did not ask the kernel.
    unasked: u32,
}

impl Follows {
    /// The doorbell, which is made on first use. `heavy`: as for [`Doorbell::new`].
    pub fn doorbell(
        &mut self,
        heavy: bool,
        watch: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<&Doorbell> {
        match &mut self.doorbell {
            Some(doorbell) => Ok(doorbell),
            none => {
                let doorbell = Doorbell::new(heavy)?;
                watch(doorbell.fd())?;
                Ok(none.insert(doorbell))
            }
        }
    }

    pub fn has_room(&self) -> bool {
        self.rings.len() < MAX_FOLLOWED
    }

    /// The caller polls or checks the rings before it sleeps. So it does after the other two calls that change the rings.
    pub fn add(&mut self, conn: ConnId, wire: WireId) {
        self.rings.push((conn, wire));
        self.is_attended = false;
    }

    pub fn remove(&mut self, conn: ConnId, wire: WireId) {
        self.retain(|followed| *followed != (conn, wire));
    }

    pub fn forget(&mut self, conn: ConnId) {
        self.retain(|(followed, _)| *followed != conn);
    }

    fn retain(&mut self, keep: impl FnMut(&(ConnId, WireId)) -> bool) {
        let before = self.rings.len();
        self.rings.retain(keep);
        self.is_attended &= self.rings.len() == before;
    }

    /// The followed rings.
    pub fn rings(&self) -> &[(ConnId, WireId)] {
        &self.rings
    }

    /// Another thread looks at so many rings, which counts for nothing unless these are all. True if writers ring since this call, and did not before:
    /// the caller must check the rings once more.
    pub fn attend(&mut self, rings: usize) -> bool {
        let were = std::mem::replace(&mut self.is_attended, rings > 0 && rings == self.rings.len());
        match (were, self.is_attended) {
            (_, true) => self.set_awake(),
            (true, false) => self.set_asleep(),
            (false, false) => {}
        }
        were && !self.is_attended
    }

    /// Whether another thread looks at all rings, so that writers need not ring while the polling thread sleeps.
    pub fn are_attended(&self) -> bool {
        self.is_attended
    }

    /// Writers need not ring: this end polls.
    pub fn set_awake(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.set_awake();
        }
    }

    /// The caller must check the followed rings once more after this, before it sleeps.
    pub fn set_asleep(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.set_asleep();
        }
    }

    /// Empties the doorbell's pipe.
    pub fn clear_doorbell(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.clear();
        }
    }

    /// Whether a poll that found new data may do without asking the kernel, which costs a system call.
    pub fn is_enough(&mut self, landed: bool) -> bool {
        self.unasked = if landed { (self.unasked + 1) % POLLS_UNASKED } else { 0 };
        self.unasked > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnId = ConnId(1);
    const OTHER: ConnId = ConnId(2);

    /// A worker that sleeps, and follows so many rings of one connection.
    fn asleep(rings: WireId) -> Follows {
        let mut follows = Follows::default();
        follows.doorbell(false, |_| Ok(())).unwrap();
        (0..rings).for_each(|wire| follows.add(ONE, wire));
        follows.set_asleep();
        follows
    }

    /// Whether a writer that publishes now rings: the reader's word in the doorbell's page is odd.
    fn do_writers_ring(follows: &Follows) -> bool {
        let mut word = [0; 8];
        let page = follows.doorbell.as_ref().unwrap().files()[0];
        assert_eq!(rustix::io::pread(page, &mut word, 128).unwrap(), 8);
        u64::from_le_bytes(word) % 2 == 1
    }

    #[test]
    fn writers_ring_unless_all_rings_are_attended() {
        let mut follows = asleep(2);
        // Nothing is attended before and after: there is nothing to check.
        for rings in [0, 1, 3] {
            assert!(
                !follows.attend(rings) && !follows.are_attended() && do_writers_ring(&follows),
                "{rings}"
            );
        }
        // Not attended, and then attended; attended before and after.
        for _ in 0..2 {
            assert!(!follows.attend(2) && follows.are_attended() && !do_writers_ring(&follows));
        }
        // Attended, and then not: what came before the writers rang has to be found.
        assert!(follows.attend(0) && !follows.are_attended() && do_writers_ring(&follows));
        assert!(!follows.attend(2) && follows.attend(1) && do_writers_ring(&follows));
    }

    #[test]
    fn no_ring_is_not_attended() {
        let mut follows = asleep(0);
        assert!(!follows.attend(0) && !follows.are_attended() && do_writers_ring(&follows));
    }

    /// Also if there are as many rings afterwards.
    #[test]
    fn a_change_of_the_rings_ends_the_attention() {
        let changes: [fn(&mut Follows); 4] = [
            |follows| follows.add(OTHER, 1),
            |follows| follows.remove(ONE, 0),
            |follows| follows.forget(ONE),
            |follows| {
                follows.forget(ONE);
                (0..2).for_each(|wire| follows.add(OTHER, wire));
            },
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut follows = asleep(2);
            follows.attend(2);
            change(&mut follows);
            assert!(!follows.are_attended(), "{n}");
        }
        let mut follows = asleep(2);
        follows.attend(2);
        follows.remove(OTHER, 0);
        follows.forget(OTHER);
        assert!(follows.are_attended(), "no ring was of it");
    }
}
