//! Makers of levels for the conformance suite: the kernel level, to which pushes are packets that the program runs on, and those that
//! stand beside it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use multimqc::{
    Appended, Batch, Counters, Epoch, Found, Level, LevelError, LevelKind, Offset, TopicId, Window, Written,
};
use multimqc_conformance::{Lab, User};
use multimqc_kernel::{Config, KernelLevel, Ports};

use super::packet::Packet;

/// The suite's topics have these numbers.
const TOPICS: [u16; 3] = [7, 8, 65_535];
const FIRST_PORT: u16 = 20_000;

/// Kernel levels, each with rings of its own.
#[derive(Default)]
pub struct InKernel {
    made: Mutex<Vec<Arc<KernelLevel>>>,
}

fn port(topic: TopicId) -> u16 {
    FIRST_PORT + TOPICS.iter().position(|known| *known == topic.0).expect("a known topic") as u16
}

impl Lab for InKernel {
    fn kind(&self) -> LevelKind {
        LevelKind::Kernel
    }

    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level> {
        let config = Config::default().ring_bytes(capacity_bytes).batch_bytes(batch_bytes).max_topics(2);
        let kernel = super::kernel(config).expect("the test has found it");
        let ports = TOPICS.map(|id| (TopicId(id), Ports { push: port(TopicId(id)), pull: 0, header: 0 }));
        let level = Arc::new(KernelLevel::new(kernel, ports));
        let mut made = self.made.lock().expect("no test has failed");
        made.push(Arc::clone(&level));
        level
    }

    fn push(&self, level: &dyn Level, topic: TopicId, message: &[u8]) {
        let made = self.made.lock().expect("no test has failed");
        let found = made.iter().find(|made| std::ptr::addr_eq(Arc::as_ptr(made), level));
        let level = Arc::clone(found.expect("a level of this lab"));
        drop(made);
        let run = level.kernel().run(&Packet::new(port(topic), message).frame(), 1).expect("it runs");
        assert_eq!(run.verdict, super::DROP, "the program has stored the message");
    }
}

/// A ring of this process in the place of a level in the NIC: the kernel level gets batches.
pub struct Nic;

impl Lab for Nic {
    fn kind(&self) -> LevelKind {
        LevelKind::NicDram
    }

    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level> {
        Arc::new(InNic(User.level(capacity_bytes, batch_bytes)))
    }
}

struct InNic(Arc<dyn Level>);

impl Level for InNic {
    fn kind(&self) -> LevelKind {
        LevelKind::NicDram
    }

    fn capacity_bytes(&self) -> Option<u64> {
        self.0.capacity_bytes()
    }

    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError> {
        self.0.open(topic, start, epoch)
    }

    fn window(&self, topic: TopicId) -> Option<Window> {
        self.0.window(topic)
    }

    fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError> {
        self.0.append(topic, messages)
    }

    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        self.0.write(topic, batch)
    }

    fn wait_batch(&self, timeout: Duration) -> bool {
        self.0.wait_batch(timeout)
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        self.0.transfer(topic, from, out)
    }

    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        self.0.read(topic, from, out)
    }

    fn counters(&self, topic: TopicId) -> Counters {
        self.0.counters(topic)
    }
}
