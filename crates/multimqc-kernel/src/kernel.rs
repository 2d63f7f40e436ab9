//! The kernel level: topics, programs, interfaces.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use multimqc::{Epoch, Offset, TopicId};

use crate::attach::{self, Link};
use crate::config::{Config, Ports};
use crate::error::KernelError;
use crate::layout::{CpuState, PORTS, PortKind, TopicState, port_entry};
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
    /// Words that say what each port and each topic id is, 8 bytes apart.
    ports: Mapping,
    ids: Mapping,
    wakes: Wakes,
    programs: Vec<Loaded>,
    links: Vec<Link>,
    topics: Mutex<HashMap<TopicId, Opened>>,
}

#[derive(Debug)]
struct Opened {
    topic: Topic,
    /// The head up to which batches were reported.
    reported: Offset,
}

/// What a program did with a packet.
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
    /// Creates the maps, or takes kept ones, and loads the programs. Nothing arrives before [`Kernel::attach`].
    ///
    /// # Errors
    /// [`KernelError`]. Nothing is left behind.
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
            cpus: map("cpus", page(topics * maps.cpus as usize * size_of::<CpuState>()))?,
            cpus_of_topic: maps.cpus,
            ring_bytes: config.ring_bytes,
        };
        let (ports, ids) = (map("ports", PORTS as usize * 8)?, map("ids", PORTS as usize * 8)?);
        let wakes = Wakes::new(maps.fd("wakes")).map_err(KernelError::call("read wake-ups"))?;
        let (shared, links, topics) = (Arc::new(shared), Vec::new(), Mutex::default());
        Ok(Kernel { config, maps, shared, ports, ids, wakes, programs, links, topics })
    }

    /// Attaches the programs to an interface of this thread's network namespace, and forgets interfaces that are gone. With [`Config::keep`], programs of an earlier
    /// process are replaced in one step: nothing is lost meanwhile.
    ///
    /// # Errors
    /// [`KernelError::Interface`], [`KernelError::Attach`], or [`KernelError::Call`].
    pub fn attach(&mut self, interface: &str) -> Result<(), KernelError> {
        let kept = self.maps.kept.as_ref();
        self.links.retain(Link::is_attached);
        let mut links = Vec::new();
        for loaded in &self.programs {
            links.push(attach::attach(loaded, self.config.mode, interface, kept)?);
        }
        let modes: Vec<&str> = links.iter().map(|link| link.mode).collect();
        tracing::info!(interface, ?modes, "kernel level attached");
        self.links.extend(links);
        Ok(())
    }

    /// Bytes of each topic's ring.
    pub fn ring_bytes(&self) -> u64 {
        self.config.ring_bytes
    }

    /// How the programs are attached: `xdp-native`, `xdp-generic`, `tcx`, `netfilter`.
    pub fn modes(&self) -> Vec<&'static str> {
        self.links.iter().map(|link| link.mode).collect()
    }

    /// Whether all interfaces still exist. After one is gone, its rings can be read, and [`Kernel::attach`] takes a new one.
    pub fn is_attached(&self) -> bool {
        !self.links.is_empty() && self.links.iter().all(Link::is_attached)
    }

    /// Opens a topic. A ring that was kept goes on where it was, with its own epoch. A new one is empty and begins at `start`.
    ///
    /// # Errors
    /// [`KernelError::TooManyTopics`], [`KernelError::PortTaken`], or [`KernelError::Call`].
    pub fn open(&self, id: TopicId, ports: Ports, start: Offset, epoch: Epoch) -> Result<Topic, KernelError> {
        let mut topics = self.lock();
        if let Some(opened) = topics.get(&id) {
            return Ok(opened.topic.clone());
        }
        let states = (0..self.config.max_topics).map(|index| (index, self.shared.state(index)));
        let mut free = None;
        let mut found = None;
        for (index, state) in states {
            match state.open.load(Acquire) {
                0 => free = free.or(Some(index)),
                _ if state.id.load(Acquire) == id.0 => found = Some(index),
                _ => {}
            }
        }
        let index = found
            .or(free)
            .ok_or(KernelError::TooManyTopics { topic: id, max_topics: self.config.max_topics })?;
        self.check_ports(index, ports)?;
        let stride = self.maps.ring_stride * index as usize;
        let ring = Mapping::twice(self.maps.fd("rings"), stride, self.config.ring_bytes as usize)
            .map_err(KernelError::call("map a ring"))?;
        let topic = Topic::new(Arc::clone(&self.shared), ring, index);
        if found.is_none() {
            topic.clear_slots();
            topic.reset(id, start, epoch);
        }
        self.set_ports(index, id, ports);
        topics.insert(id, Opened { reported: topic.window().first, topic: topic.clone() });
        Ok(topic)
    }

    /// An open topic.
    pub fn topic(&self, id: TopicId) -> Option<Topic> {
        self.lock().get(&id).map(|opened| opened.topic.clone())
    }

    /// Waits until a topic has grown by a batch ([`Config::batch_bytes`]) since the last call that said so. False after `timeout`,
    /// which so is the age of a batch that is not full; may return early. One thread at a time waits.
    ///
    /// # Errors
    /// The machine's.
    pub fn wait_batch(&self, timeout: Duration) -> io::Result<bool> {
        if self.has_batch() {
            return Ok(true);
        }
        self.wakes.wait(timeout)?;
        Ok(self.has_batch())
    }

    /// Ends the wait of another thread.
    pub fn wake(&self) {
        self.wakes.wake();
    }

    /// Whether there is a batch, in any topic. Those without one wake the waiting thread when they have.
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

    /// Detaches the programs and removes what is kept. Topics that were taken out stay readable.
    ///
    /// # Errors
    /// The machine's. What could not be removed stays for [`detach`](crate::detach).
    pub fn detach(self) -> Result<(), KernelError> {
        for link in &self.links {
            // An interface that is gone has no program any more.
            let _ = sys::detach_link(link.fd.as_fd());
        }
        match &self.maps.kept {
            Some(kept) => attach::remove(kept).map_err(KernelError::call("remove what is kept")),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TopicId, Opened>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Lets the programs find the topic, and forgets plain ports that it had before.
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
