//! Confirmations of RBMQ's publishers in a bench, used as for a stream and not for each message. A publisher requests a
//! confirmation for every 64 KiB, and at most 16 are outstanding: the megabyte that publishers of other systems may have
//! unconfirmed.

use std::{collections::VecDeque, time::Duration};

use benchkit::control::Control;
use rbmq::{ConfirmLevel, Confirmation, TopicWriter};
use rocketbufs::Position;

use crate::{error::BenchError, systems::Confirm};

/// Bytes for which one confirmation is asked.
const EVERY_BYTES: usize = 64 * 1024;

/// Confirmations under way.
const UNDER_WAY: usize = 16;

/// A broker that says nothing for so long does not confirm.
const WITHIN: Duration = Duration::from_secs(20);

/// Published and confirmed messages.
pub struct Counted {
    level: Option<ConfirmLevel>,
    waiting: VecDeque<(u64, Confirmation)>,
    published: u64,
    last: Option<Position>,
    unasked_bytes: usize,
}

impl Counted {
    /// Nothing was published yet.
    pub fn new(confirm: Confirm) -> Counted {
        let level = match confirm {
            Confirm::None => None,
            Confirm::Accepted => Some(ConfirmLevel::Accepted),
            Confirm::Consumed => Some(ConfirmLevel::Consumed),
        };
        Counted { level, waiting: VecDeque::new(), published: 0, last: None, unasked_bytes: 0 }
    }

    /// How many messages were published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Adds published messages: their number, their bytes, and the `end` of the last. Counts confirmed messages, or all of them
    /// without a level. Waits while too many bytes are unconfirmed.
    ///
    /// # Errors
    /// The broker did not confirm.
    #[inline]
    pub fn add(
        &mut self,
        control: &Control,
        writer: &TopicWriter,
        messages: u64,
        bytes: usize,
        end: Position,
    ) -> Result<(), BenchError> {
        self.published += messages;
        if self.level.is_none() {
            control.set_messages(self.published);
            return Ok(());
        }
        self.last = Some(end);
        self.unasked_bytes += bytes;
        if self.unasked_bytes >= EVERY_BYTES {
            self.ask(control, writer, UNDER_WAY)?;
        }
        Ok(())
    }

    fn ask(&mut self, control: &Control, writer: &TopicWriter, under_way: usize) -> Result<(), BenchError> {
        if let (Some(level), Some(end)) = (self.level, self.last.take()) {
            self.waiting.push_back((self.published, writer.confirmation(end, level)));
            self.unasked_bytes = 0;
        }
        while self.waiting.len() > under_way {
            let Some((messages, confirmation)) = self.waiting.pop_front() else { break };
            confirmation.wait(Some(WITHIN)).map_err(|error| BenchError::System(Box::new(error)))?;
            control.set_messages(messages);
        }
        Ok(())
    }

    /// Waits until everything is confirmed.
    ///
    /// # Errors
    /// The broker did not confirm.
    pub fn finish(&mut self, control: &Control, writer: &TopicWriter) -> Result<(), BenchError> {
        self.ask(control, writer, 0)
    }
}
