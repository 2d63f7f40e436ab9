//! The kernel level: topics, programs, interfaces.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use locks::{Mutex, MutexGuard};
use multimqc::{Epoch, Offset, Sessions, TopicId, Window};

use crate::attach::{self, Link};
use crate::config::{Config, Ports};
use crate::error::KernelError;
use crate::layout::{CpuState, PORTS, PortKind, TopicNotes, TopicState, port_entry};
use crate::maps::Maps;
use crate::programs::{self, Loaded};
use crate::sys::{self, Mapping};
use crate::topic::{Shared, Topic};
use crate::wakes::Wakes;

/// The level in the kernel.
///
/// Dropping it detaches the programs and frees the rings, unless [`Config::keep`] names a folder.
#[derive(Debug)]
pub struct Kernel {
    config: Config,
    maps: Maps,
    shared: Arc<Shared>,
    /// The use of each port and of each topic id, in words that are 8 bytes apart.
    ports: Mapping,
    ids: Mapping,
    programs: Vec<Loaded>,
    links: Mutex<Vec<Link>>,
    topics: Mutex<HashMap<TopicId, Opened>>,
}

#[derive(Debug)]
struct Opened {
    topic: Topic,
    /// The head up to which batches were reported.
    reported: Offset,
}

/// The result of a program's run on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The program's verdict, a number of its kind: for XDP 1 is dropped, 2 passed up, 3 sent back.
    pub verdict: u32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// How long one run took on average.
    pub nanos: u32,
}

impl Kernel {
    /// Creates the maps, or uses kept ones, and loads the programs. No packet arrives before [`Kernel::attach`].
    ///
    /// # Errors
    /// [`KernelError`]. Nothing stays in the kernel.
    pub fn new(config: Config) -> Result<Kernel, KernelError> {
        config.check()?;
        let maps = Maps::open(&config)?;
        let programs = programs::load(&config, &maps)?;
        let map = |name, bytes| {
            Mapping::new(maps.fd(name), 0, bytes, true).map_err(KernelError::call("map the kernel's memory"))
        };
        let page = |bytes: usize| bytes.next_multiple_of(sys::page_bytes());
        let topics = config.max_topics as usize;
        let shared = Shared {
            topics: map("topics", page(topics * size_of::<TopicState>()))?,
            notes: map("notes", page(topics * size_of::<TopicNotes>()))?,
            cpus: map("cpus", page(topics * maps.writers as usize * size_of::<CpuState>()))?,
            writers: maps.writers,
            ring_bytes: config.ring_bytes,
            wakes: Wakes::new(maps.fd("wakes")).map_err(KernelError::call("read wake-ups"))?,
        };
        let (ports, ids) = (map("ports", PORTS as usize * 8)?, map("ids", PORTS as usize * 8)?);
        let (shared, links, topics) = (Arc::new(shared), Mutex::default(), Mutex::default());
        Ok(Kernel { config, maps, shared, ports, ids, programs, links, topics })
    }

    /// Attaches the programs to an interface of this thread's network namespace, and forgets interfaces that are gone. With
    /// [`Config::keep`], programs of an earlier process are replaced in one step, so that no packet is lost meanwhile.
    ///
    /// # Errors
    /// [`KernelError::Interface`], [`KernelError::Attach`], or [`KernelError::Call`]. With [`Config::keep`], a program that was
    /// attached before the error stays until [`Kernel::detach`].
    pub fn attach(&self, interface: &str) -> Result<(), KernelError> {
        let kept = self.maps.kept.as_ref();
        let mut attached = self.links();
        attached.retain(Link::is_attached);
        let mut links = Vec::new();
        for loaded in &self.programs {
            links.push(attach::attach(loaded, self.config.mode, interface, kept)?);
        }
        let modes: Vec<&str> = links.iter().map(|link| link.mode).collect();
        tracing::info!(interface, ?modes, "kernel level attached");
        attached.extend(links);
        Ok(())
    }

    /// Bytes of each topic's ring.
    pub fn ring_bytes(&self) -> u64 {
        self.config.ring_bytes
    }

    /// The kinds of attachment of the programs: `xdp-native`, `xdp-generic`, `tcx`, `netfilter`.
    pub fn modes(&self) -> Vec<&'static str> {
        self.links().iter().map(|link| link.mode).collect()
    }

    /// Whether all interfaces still exist. After an interface is gone, the rings can still be read, and [`Kernel::attach`] accepts a new
    /// interface.
    pub fn is_attached(&self) -> bool {
        let links = self.links();
        !links.is_empty() && links.iter().all(Link::is_attached)
    }

    /// Opens a topic. A kept ring continues where it ended, with its own epoch. A new ring is empty and begins at `start`.
    ///
    /// # Errors
    /// [`KernelError::TooManyTopics`], [`KernelError::PortTaken`], or [`KernelError::Call`].
    pub fn open(&self, id: TopicId, ports: Ports, start: Offset, epoch: Epoch) -> Result<Topic, KernelError> {
        let mut topics = self.lock();
        if let Some(opened) = topics.get(&id) {
            return Ok(opened.topic.clone());
        }
        let (found, free) = self.find(id);
        let index = found
            .or(free)
            .ok_or(KernelError::TooManyTopics { topic: id, max_topics: self.config.max_topics })?;
        self.check_ports(index, ports)?;
        let topic = self.map_topic(index).map_err(KernelError::call("map a ring"))?;
        match found {
            Some(_) if topic.has_records() != self.config.records => return Err(self.other_records(id)),
            Some(_) => topic.recover(),
            None => topic.reset(id, start, epoch, self.config.records),
        }
        self.set_ports(index, id, ports);
        topics.insert(id, Opened { reported: topic.window().first, topic: topic.clone() });
        Ok(topic)
    }

    /// The error for a kept ring whose messages were stored in the other form.
    fn other_records(&self, id: TopicId) -> KernelError {
        let (kept, wanted) = if self.config.records { ("without", "with") } else { ("with", "without") };
        let path = self.maps.kept.as_ref().map_or_else(PathBuf::new, |kept| kept.folder.clone());
        let difference = format!("topic {id}: messages {kept} their lengths kept, {wanted} them wanted");
        KernelError::OtherSizes { path, difference }
    }

    /// The window of a topic that this process or one before it has opened.
    ///
    /// # Errors
    /// The machine's.
    pub fn kept(&self, id: TopicId) -> Result<Option<Window>, KernelError> {
        let topics = self.lock();
        if let Some(opened) = topics.get(&id) {
            return Ok(Some(opened.topic.window()));
        }
        let Some(index) = self.find(id).0 else { return Ok(None) };
        let topic = self.map_topic(index).map_err(KernelError::call("map a ring"))?;
        topic.recover();
        Ok(Some(topic.window()))
    }

    /// The sessions of a topic that this process or one before it has opened.
    pub(crate) fn sessions(&self, id: TopicId) -> Sessions {
        self.find(id).0.map_or_else(Sessions::default, |index| self.shared.sessions(index))
    }

    /// Keeps the sessions of a topic as long as its ring.
    pub(crate) fn keep_sessions(&self, id: TopicId, sessions: &Sessions) {
        if let Some(index) = self.find(id).0 {
            self.shared.keep_sessions(index, sessions);
        }
    }

    /// The index of a topic, and a free index.
    fn find(&self, id: TopicId) -> (Option<u32>, Option<u32>) {
        let (mut found, mut free) = (None, None);
        for index in 0..self.config.max_topics {
            let state = self.shared.state(index);
            match state.open.load(Acquire) {
                0 => free = free.or(Some(index)),
                _ if state.id.load(Acquire) == id.0 => found = Some(index),
                _ => {}
            }
        }
        (found, free)
    }

    /// Maps the ring at an index, and its mirror.
    fn map_topic(&self, index: u32) -> io::Result<Topic> {
        let (fd, ring_bytes) = (self.maps.fd("rings"), self.config.ring_bytes as usize);
        let at = self.maps.ring_stride * index as usize;
        let ring = Mapping::twice(fd, at, ring_bytes)?;
        let mirror = Mapping::new(fd, at + ring_bytes, self.maps.ring_stride - ring_bytes, true)?;
        Ok(Topic::new(Arc::clone(&self.shared), ring, mirror, index))
    }

    /// An open topic.
    pub fn topic(&self, id: TopicId) -> Option<Topic> {
        self.lock().get(&id).map(|opened| opened.topic.clone())
    }

    /// Waits until a topic has grown by a batch ([`Config::batch_bytes`]) since the last call that returned true for it. False after
    /// `timeout`, so that the caller can move a batch that is not full. May return early. One thread at a time waits.
    ///
    /// # Errors
    /// The machine's.
    pub fn wait_batch(&self, timeout: Duration) -> io::Result<bool> {
        if self.has_batch() {
            return Ok(true);
        }
        self.shared.wakes.wait(timeout)?;
        Ok(self.has_batch())
    }

    /// Ends the wait of another thread.
    pub fn wake(&self) {
        self.shared.wakes.wake();
    }

    /// Whether there is a batch, in any topic. A topic without a batch wakes the waiting thread when it has one.
    fn has_batch(&self) -> bool {
        let mut any = false;
        for opened in self.lock().values_mut() {
            if opened.topic.wake_at(opened.reported + self.config.batch_bytes) {
                opened.reported = opened.topic.head();
                any = true;
            }
        }
        any
    }

    /// Runs the first program on a packet, `repeat` times, without an interface: for tests and measurements.
    ///
    /// # Errors
    /// The kernel refuses the packet, or the kind of program cannot be run like this.
    pub fn run(&self, packet: &[u8], repeat: u32) -> io::Result<Run> {
        let mut out = vec![0; packet.len() + 4096];
        let run = sys::test_run(self.programs[0].program.as_fd(), packet, &mut out, repeat)?;
        out.truncate(run.bytes);
        Ok(Run { verdict: run.result, packet: out, nanos: run.nanos })
    }

    /// Detaches the programs and removes the kept files. Topics that were taken out stay readable.
    ///
    /// # Errors
    /// The machine's. A file that could not be removed stays for [`detach`](crate::detach).
    pub fn detach(self) -> Result<(), KernelError> {
        for link in self.links().iter() {
            // An interface that is gone has no program any more.
            let _ = sys::detach_link(link.fd.as_fd());
        }
        match &self.maps.kept {
            Some(kept) => attach::remove(kept).map_err(KernelError::call("remove what is kept")),
            None => Ok(()),
        }
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TopicId, Opened>> {
        self.topics.lock()
    }

    fn word(map: &Mapping, at: u16) -> &AtomicU32 {
        let at = map.at(usize::from(at) * 8, 4);
        // SAFETY: inside of the mapping, aligned, and only changed atomically.
        unsafe { at.cast().as_ref() }
    }

    fn entries(index: u32, ports: Ports) -> [(u16, u32); 3] {
        let entry = |kind, topic: u32| u32::from_ne_bytes(port_entry(kind, topic as u16));
        [
            (ports.push, entry(PortKind::Push, index)),
            (ports.pull, entry(PortKind::Pull, index)),
            (ports.header, entry(PortKind::Header, 0)),
        ]
    }

    fn check_ports(&self, index: u32, ports: Ports) -> Result<(), KernelError> {
        let entries = Kernel::entries(index, ports);
        for (at, (port, entry)) in entries.into_iter().enumerate() {
            let other = entries[..at].iter().any(|(other, _)| *other == port);
            let has = Kernel::word(&self.ports, port).load(Acquire);
            if port != 0 && (other || has != 0 && has != entry) {
                return Err(KernelError::PortTaken(port));
            }
        }
        Ok(())
    }

    /// Makes the topic known to the programs, and removes the plain ports that it had before.
    fn set_ports(&self, index: u32, id: TopicId, ports: Ports) {
        let entries = Kernel::entries(index, ports);
        for (port, word) in (1..=u16::MAX).map(|port| (port, Kernel::word(&self.ports, port))) {
            let has = word.load(Acquire);
            let was_ours = has != 0 && entries[..2].iter().any(|(_, entry)| *entry == has);
            match entries.iter().find(|(new, _)| *new == port) {
                Some((_, entry)) => word.store(*entry, Release),
                None if was_ours => word.store(0, Release),
                None => {}
            }
        }
        Kernel::word(&self.ids, id.0).store(index + 1, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use multimqc::Stop;

    use super::*;

    const RING: u64 = 4096;
    const LENGTH: usize = 100;

    /// Says past the test harness that a test did not run.
    fn skip(why: &str) {
        let line = format!("SKIPPED: {why}\n");
        std::io::stderr().write_all(line.as_bytes()).expect("standard error");
    }

    /// A level with one topic. None, with a message, where eBPF cannot be used.
    fn open() -> Option<(Kernel, Topic)> {
        open_with(Config::default().ring_bytes(RING).batch_bytes(1024))
    }

    fn open_with(config: Config) -> Option<(Kernel, Topic)> {
        let kernel = match Kernel::new(config) {
            Ok(kernel) => kernel,
            Err(error) if error.is_missing_right() => {
                skip(&format!("eBPF needs root ({error})"));
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let topic = kernel.open(TopicId(1), Ports::default(), 0, Epoch(1)).expect("a topic");
        Some((kernel, topic))
    }

    /// The level after a writer has reserved a place and was stopped, and others have written `rounds` messages.
    fn stopped_writer(rounds: u8) -> Option<(Kernel, Topic, Offset)> {
        let (kernel, topic) = open()?;
        topic.append(&[0xaa; 60]).expect("it fits");
        let start = topic.reserve(LENGTH);
        for round in 0..rounds {
            push(&kernel, &topic, &[round; 500]);
        }
        Some((kernel, topic, start))
    }

    /// Pushes a message by a packet.
    fn push(kernel: &Kernel, topic: &Topic, message: &[u8]) {
        let head = topic.head();
        assert_eq!(kernel.run(&push_frame(message), 1).expect("it runs").verdict, 1, "stored");
        assert_eq!(topic.head(), head + message.len() as u64);
    }

    fn push_frame(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend((28 + message.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum: u32 = frame[14..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        frame[24..26].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
        frame.extend([0x9c, 0x40, 0x4e, 0x1f]);
        frame.extend((8 + message.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(message);
        frame
    }

    #[test]
    fn records_keep_where_messages_end() {
        let config = Config::default().ring_bytes(RING).batch_bytes(1024).records(true);
        let Some((kernel, topic)) = open_with(config) else { return };
        let mut log = Vec::new();
        // Lengths that put a header on each offset from the end of the ring.
        for round in 0..60_u16 {
            let message = vec![round as u8; 101 + usize::from(round) * 13 % 500];
            assert_eq!(kernel.run(&push_frame(&message), 1).expect("it runs").verdict, 1, "stored");
            log.extend((message.len() as u32).to_le_bytes());
            log.extend(&message);
            let window = topic.window();
            assert_eq!(window.head, log.len() as u64);
            let mut bytes = vec![0; window.bytes() as usize];
            assert_eq!(topic.read(window.first, &mut bytes).stop, Stop::Filled);
            assert_eq!(bytes, log[window.first as usize..]);
        }
        assert_eq!((topic.counters().stored, topic.counters().stored_bytes), (60, log.len() as u64));
    }

    #[test]
    fn a_stopped_writer_holds_readers_back() {
        let Some((_kernel, topic, start)) = stopped_writer(3) else { return };
        assert_eq!(topic.window().head, start);
        assert_eq!(topic.range(start, 1).map(|range| range.len()), Err(Stop::Head));
        topic.copy_in(start, &[0xbb; LENGTH]);
        topic.commit(start, LENGTH);
        assert_eq!(topic.window().first, 0);
        let mut bytes = vec![0; 60 + LENGTH + 1500];
        assert_eq!(topic.read(0, &mut bytes).stop, Stop::Filled);
        assert_eq!((bytes[59], bytes[60], bytes[159], bytes[160], bytes[1659]), (0xaa, 0xbb, 0xbb, 0, 2));
    }

    #[test]
    fn a_lapped_writer_leaves_a_hole() {
        let Some((_kernel, topic, start)) = stopped_writer(9) else { return };
        topic.copy_in(start, &[0xbb; LENGTH]);
        topic.commit(start, LENGTH);
        let window = topic.window();
        assert_eq!(window.head, 60 + LENGTH as u64 + 4500);
        assert_eq!(window.first, start + RING + LENGTH as u64, "the damaged bytes are not there");
        let mut bytes = vec![0; window.bytes() as usize];
        assert_eq!(topic.read(window.first, &mut bytes).stop, Stop::Filled);
        let round = |at: u64| ((at - 160) / 500) as u8;
        let expected: Vec<u8> = (window.first..window.head).map(round).collect();
        assert_eq!(bytes, expected);
        assert_eq!(topic.read(window.first - 1, &mut [0]).stop, Stop::Gone(window.first));
    }

    /// The same of a program: the head runs away while it copies.
    #[test]
    fn a_lapped_program_leaves_a_hole() {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            writeln!(std::io::stderr(), "SKIPPED: a program is lapped only by another CPU")
                .expect("standard error");
            return;
        }
        let Some((kernel, topic)) = open() else { return };
        let state = kernel.shared.state(0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(relaxed) {
                    state.head.fetch_add(RING, relaxed);
                }
            });
            let mut lapped = 0;
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while lapped < 100 && std::time::Instant::now() < deadline {
                let before = topic.head();
                kernel.run(&push_frame(&[1; 500]), 1).expect("it runs");
                if topic.counters().lapped > lapped {
                    lapped = topic.counters().lapped;
                    let floor = state.floor.load(relaxed);
                    assert!(floor >= before + RING + 500, "{floor} after a lap from {before}");
                }
            }
            stop.store(true, relaxed);
            assert_eq!(lapped, 100);
        });
    }

    #[test]
    fn a_writer_that_was_killed_leaves_a_hole() {
        let Some((_kernel, topic, start)) = stopped_writer(2) else { return };
        topic.recover();
        let head = start + LENGTH as u64 + 1000;
        assert_eq!((topic.window().first, topic.window().head), (head, head));
        assert_eq!(topic.append(b"and on"), Some(head));
        assert_eq!(topic.window().bytes(), 6);
    }
}
