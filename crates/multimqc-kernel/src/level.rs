//! The kernel level behind the contract of levels: the first of a stack.
//!
//! The programs do the writing, reading and forwarding on the wire. Here is their side in user space: the rings are read for the next
//! level, and for pulls that the programs left to the network stack.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use multimqc::{
    Appended, Batch, Counters, Epoch, Found, Kept, Level, LevelError, LevelKind, Offset, TopicId, Window,
    Written,
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
/// Pushes reach it on the wire. [`Level::append`] takes those that the programs have left to the network stack (long ones, IPv6,
/// fragments), up to an eighth of a ring. It is always the first level, so [`Level::write`] refuses. The counters are those of the
/// programs: hits and misses are pulls on the wire.
#[derive(Debug)]
pub struct KernelLevel {
    kernel: Kernel,
    capacity_bytes: u64,
    ports: HashMap<TopicId, Ports>,
    /// Where the window of each open topic began when it was opened.
    opened: Mutex<HashMap<TopicId, Offset>>,
}

impl KernelLevel {
    /// The level of a kernel that is attached, or will be, with the ports of its topics. A topic that has no ports here gets none:
    /// nothing arrives for it.
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
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn write(&self, topic: TopicId, _batch: Batch<'_>) -> Result<Written, LevelError> {
        self.topic(topic)?;
        Err(LevelError::NotWritable)
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
        self.transfer(topic, from, out)
    }

    fn counters(&self, topic: TopicId) -> Counters {
        let Ok(open) = self.topic(topic) else { return Counters::default() };
        let first = self.opened().get(&topic).copied().unwrap_or(0);
        let KernelCounters { stored, stored_bytes, hits, misses, overwritten, corrupt, .. } = open.counters();
        Counters {
            messages: stored,
            bytes: stored_bytes,
            hits,
            misses: misses + overwritten,
            overwritten_bytes: open.window().first - first,
            refused: corrupt,
            ..Counters::default()
        }
    }
}
