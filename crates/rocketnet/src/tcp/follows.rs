//! The rings of other processes that one worker follows, and the doorbell by which their writers wake it.

use std::io;
use std::os::fd::BorrowedFd;

use rocketring::Doorbell;

use crate::contract::{ConnId, WireId};

/// Rings that one worker follows.
const MAX_FOLLOWED: usize = 64;
/// So many polls in a row, less one, may do without the kernel.
const POLLS_UNASKED: u32 = 16;

/// What one worker follows.
#[derive(Default)]
pub(super) struct Follows {
    doorbell: Option<Doorbell>,
    rings: Vec<(ConnId, WireId)>,
    /// Polls in a row that had enough to do without asking the kernel.
    unasked: u32,
}

impl Follows {
    /// The doorbell; made when it is first needed. `heavy`: as for [`Doorbell::new`].
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

    pub fn has_place(&self) -> bool {
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

    /// What is followed, in turn.
    pub fn rings(&self) -> &[(ConnId, WireId)] {
        &self.rings
    }

    /// Writers need not ring: this end looks.
    pub fn wake_up(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.set_awake();
        }
    }

    /// Whoever calls looks at what is followed once more after this, before it sleeps.
    pub fn fall_asleep(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.set_asleep();
        }
    }

    pub fn hear(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.clear();
        }
    }

    /// Whether a poll that found news need not ask the kernel for more: each time costs a system call.
    pub fn is_enough(&mut self, news: bool) -> bool {
        self.unasked = if news { (self.unasked + 1) % POLLS_UNASKED } else { 0 };
        self.unasked > 0
    }
}
