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
    /// The number of rings that another thread looks at. If it is not that of all rings, it counts for nothing: then the rings have changed since.
    attended: usize,
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

    pub fn add(&mut self, conn: ConnId, wire: WireId) {
        self.rings.push((conn, wire));
    }

    pub fn remove(&mut self, conn: ConnId, wire: WireId) {
        self.rings.retain(|followed| *followed != (conn, wire));
    }

    pub fn forget(&mut self, conn: ConnId) {
        self.rings.retain(|(followed, _)| *followed != conn);
    }

    /// The followed rings.
    pub fn rings(&self) -> &[(ConnId, WireId)] {
        &self.rings
    }

    /// Another thread looks at so many rings. True if writers ring since this call, and did not before: the caller must check the rings once more.
    pub fn attend(&mut self, rings: usize) -> bool {
        let were = self.are_attended();
        self.attended = rings;
        match (were, self.are_attended()) {
            (_, true) => self.set_awake(),
            (true, false) => self.set_asleep(),
            (false, false) => {}
        }
        were && !self.are_attended()
    }

    /// Whether another thread looks at all rings, so that writers need not ring while the polling thread sleeps.
    pub fn are_attended(&self) -> bool {
        self.attended > 0 && self.attended == self.rings.len()
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
