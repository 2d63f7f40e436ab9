//! The kernel level by the conformance suite, alone and in every subset of levels. Pushes are packets that the program runs on.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::packet::Packet;
use multimqc::conformance::{self, Lab};
use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{Level, LevelKind, TopicId};
use multimqc_kernel::{Config, KernelLevel, Ports};

/// The suite's topics have these numbers.
const TOPICS: [u16; 3] = [7, 8, 65_535];
const FIRST_PORT: u16 = 20_000;

#[derive(Default)]
struct InKernel {
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
        let kernel = common::kernel(config).expect("the test has found it");
        let ports = TOPICS.map(|id| (TopicId(id), Ports { push: port(TopicId(id)), pull: 0, header: 0 }));
        let level = Arc::new(KernelLevel::new(kernel, ports));
        let mut made = self.made.lock().expect("no test has failed");
        made.push(Arc::clone(&level));
        level
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn push(&self, level: &dyn Level, topic: TopicId, message: &[u8]) {
        let made = self.made.lock().expect("no test has failed");
        let found = made.iter().find(|made| std::ptr::addr_eq(Arc::as_ptr(made), level));
        let level = Arc::clone(found.expect("a level of this lab"));
        drop(made);
        let run = level.kernel().run(&Packet::new(port(topic), message).frame(), 1).expect("it runs");
        assert_eq!(run.verdict, common::DROP, "the program has stored the message");
    }
}

struct User;

impl Lab for User {
    fn kind(&self) -> LevelKind {
        LevelKind::User
    }

    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level> {
        let config = UserConfig { capacity_bytes, batch_bytes, max_topics: 2 };
        Arc::new(UserLevel::new(config).expect("the configuration is good"))
    }
}

struct Disk {
    folder: tempfile::TempDir,
    levels: AtomicUsize,
}

impl Lab for Disk {
    fn kind(&self) -> LevelKind {
        LevelKind::Disk
    }

    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level> {
        let number = self.levels.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path().join(number.to_string());
        let config = DiskConfig {
            max_bytes: Some(8 * capacity_bytes),
            segment_bytes: capacity_bytes,
            batch_bytes,
            max_topics: 2,
            ..DiskConfig::new(folder)
        };
        Arc::new(DiskLevel::new(config).expect("a folder"))
    }
}

#[test]
fn the_kernel_level_conforms() {
    if common::kernel(Config::default()).is_some() {
        conformance::level(&InKernel::default());
    }
}

#[test]
fn every_subset_with_the_kernel_level_conforms() {
    if common::kernel(Config::default()).is_some() {
        let disk = Disk { folder: tempfile::tempdir().expect("a folder"), levels: AtomicUsize::new(0) };
        conformance::stack(&[&InKernel::default(), &User, &disk]);
    }
}
