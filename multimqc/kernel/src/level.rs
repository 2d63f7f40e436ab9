//! The kernel level as a [`Level`] of a stack: the first one, or behind a level in the NIC.
//!
//! The programs write, read and forward on the wire. This module is their side in user space. It reads the rings for the next level, and
//! for pulls that the programs left to the network stack.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use locks::{Mutex, MutexGuard};
use multimqc::{
    Appended, Batch, Counters, Epoch, Found, Kept, Level, LevelError, LevelKind, MAX_OFFSET, Offset,
    Sessions, TopicId, Window, Written,
};

use crate::config::Ports;
use crate::counters::KernelCounters;
use crate::error::KernelError;
use crate::kernel::Kernel;
use crate::topic::Topic;

/// How long a transfer sleeps if the kernel's wake-ups cannot be waited for.
const RETRY: Duration = Duration::from_millis(10);

/// A [`Kernel`] as a level of a [`Stack`](multimqc::Stack).
///
/// Pushes reach it on the wire. [`Level::append`] stores pushes that the programs have left to the network stack (long messages, IPv6,
/// fragments), up to an eighth of a ring. [`Level::write`] stores batches of a level below it, if that level gets the pushes instead.
/// The programs answer pulls behind the last hole, user space also pulls before it.
///
/// Hits are pulls that the programs or user space have answered; misses are those that went on to the next level.
#[derive(Debug)]
pub struct KernelLevel {
    kernel: Kernel,
    capacity_bytes: u64,
    ports: HashMap<TopicId, Ports>,
    /// The beginning of the window of each open topic when it was opened.
    opened: Mutex<HashMap<TopicId, Offset>>,
}

impl KernelLevel {
    /// The level of a kernel that is attached, or will be, with the ports of its topics. A topic without ports here gets no messages on the
    /// wire.
    pub fn new(kernel: Kernel, ports: impl IntoIterator<Item = (TopicId, Ports)>) -> KernelLevel {
        let capacity_bytes = kernel.ring_bytes();
        KernelLevel { kernel, capacity_bytes, ports: ports.into_iter().collect(), opened: Mutex::default() }
    }

    /// The programs and their attachments.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn topic(&self, topic: TopicId) -> Result<Topic, LevelError> {
        self.kernel.topic(topic).ok_or(LevelError::UnknownTopic(topic))
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<TopicId, Offset>> {
        self.opened.lock()
    }
}

fn level_error(error: KernelError) -> LevelError {
    match error {
        KernelError::TooManyTopics { max_topics, .. } => LevelError::TooManyTopics(max_topics as usize),
        other => LevelError::Io(io::Error::other(other)),
    }
}

impl Level for KernelLevel {
    fn kind(&self) -> LevelKind {
        LevelKind::Kernel
    }

    fn capacity_bytes(&self) -> Option<u64> {
        Some(self.capacity_bytes)
    }

    fn kept(&self, topic: TopicId) -> Result<Option<Kept>, LevelError> {
        let window = self.kernel.kept(topic).map_err(level_error)?;
        Ok(window.map(|window| Kept { window, unsure_bytes: 0 }))
    }

    fn sessions(&self, topic: TopicId) -> Result<Option<Sessions>, LevelError> {
        Ok(Some(self.kernel.sessions(topic)))
    }

    fn keep_sessions(&self, topic: TopicId, sessions: &Sessions) -> Result<(), LevelError> {
        self.kernel.keep_sessions(topic, sessions);
        Ok(())
    }

    fn rebase(&self, topic: TopicId, from: Offset, to: Offset) -> Result<Window, LevelError> {
        let window = self.topic(topic)?.rebase(from, to);
        self.opened().insert(topic, window.first);
        Ok(window)
    }

    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError> {
        let ports = self.ports.get(&topic).copied().unwrap_or(Ports { push: 0, pull: 0, header: 0 });
        let opened = self.kernel.open(topic, ports, start, epoch).map_err(level_error)?;
        let window = opened.window();
        self.opened().entry(topic).or_insert(window.first);
        Ok(window)
    }

    fn window(&self, topic: TopicId) -> Option<Window> {
        self.kernel.topic(topic).map(|topic| topic.window())
    }

    fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError> {
        let topic = self.topic(topic)?;
        let mut appended = Appended { offset: topic.window().head, bytes: 0, messages: 0, oversize: 0 };
        for message in messages {
            match topic.append(message) {
                Some(offset) => {
                    if appended.messages == 0 {
                        appended.offset = offset;
                    }
                    appended.messages += 1;
                    appended.bytes += message.len() as u64;
                }
                None => appended.oversize += 1,
            }
        }
        Ok(appended)
    }

    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        if batch.offset > MAX_OFFSET || batch.end() > MAX_OFFSET {
            return Err(LevelError::Offset(batch.offset));
        }
        Ok(self.topic(topic)?.write(batch))
    }

    fn wait_batch(&self, timeout: Duration) -> bool {
        self.kernel.wait_batch(timeout).unwrap_or_else(|_| {
            // Without wake-ups, batches move by their age.
            std::thread::sleep(timeout.min(RETRY));
            false
        })
    }

    fn wake(&self) {
        self.kernel.wake();
    }

    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        Ok(self.topic(topic)?.read(from, out))
    }

    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        let topic = self.topic(topic)?;
        let found = topic.read(from, out);
        topic.level_counters().read(Some(&found));
        Ok(found)
    }

    fn counters(&self, topic: TopicId) -> Counters {
        let Ok(open) = self.topic(topic) else { return Counters::default() };
        let first = self.opened().get(&topic).copied().unwrap_or(0);
        let KernelCounters { stored, stored_bytes, hits, corrupt, .. } = open.counters();
        let own = open.level_counters().counters(open.window().first.saturating_sub(first));
        Counters { messages: stored, bytes: stored_bytes, hits: hits + own.hits, refused: corrupt, ..own }
    }
}
