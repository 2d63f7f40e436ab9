//! Nodes on free ports, and what they see.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rblive::{ChunkRef, Config, Node, NodeId, NodeRole, RsId, RsManager, Rule, StreamEvent};
use rocketbufs::config::TransportKind;
use testkit::own_addr;

/// How long a test waits for something that must come.
pub const WAIT: Duration = Duration::from_secs(60);

/// Writes a token into a file that its owner alone reads. The file is named after its token.
pub fn token(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join(text);
    std::fs::write(&file, format!("{text} of these nodes\n")).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

/// Nodes with the numbers from 1 on.
pub struct Cluster {
    /// What all nodes are told.
    pub config: Config,
}

impl Cluster {
    pub fn new(roles: &[NodeRole], transport: TransportKind) -> Self {
        let address = |role: NodeRole| match role {
            NodeRole::Dissemination if roles.len() == 2 => String::new(),
            _ => own_addr(),
        };
        let nodes = roles.iter().enumerate().map(|(index, role)| Node {
            name: format!("n{}", index + 1),
            id: index as NodeId + 1,
            role: *role,
            address: address(*role),
        });
        let mut config = Config { nodes: nodes.collect(), ..Config::default() };
        config.framework.transport = transport;
        config.streams.chunk_bytes = 64 << 10;
        config.dissemination.linger_ms = 2000;
        config.dissemination.reconnect_max_ms = 200;
        Self { config }
    }

    pub fn start(&self, node: NodeId) -> RsManager {
        self.ruled(node, &[])
    }

    /// A node that sends every stream to these nodes.
    pub fn ruled(&self, node: NodeId, to: &[NodeId]) -> RsManager {
        RsManager::new(self.config_of(node, to)).unwrap()
    }

    pub fn config_of(&self, node: NodeId, to: &[NodeId]) -> Config {
        let mut config = self.config.clone();
        config.node = format!("n{node}");
        let nodes = to.iter().map(|node| format!("n{node}")).collect();
        config.rules = vec![Rule { streams: "*".to_owned(), nodes }];
        config
    }

    pub fn receiver(&self, node: NodeId) -> (RsManager, Seen) {
        let mut seen = None;
        let manager =
            RsManager::prepared(self.config_of(node, &[]), |manager| seen = Some(Seen::of(manager)));
        (manager.unwrap(), seen.unwrap())
    }
}

/// Calls to the application of a node.
pub struct Seen {
    chunks: Receiver<ChunkRef>,
    events: Receiver<StreamEvent>,
}

impl Seen {
    pub fn of(manager: &RsManager) -> Self {
        let ((chunk, chunks), (event, events)) = (sync_channel(4096), sync_channel(4096));
        manager.inbound_callback(move |arrived| drop(chunk.send(arrived)));
        manager.stream_callback(move |_, told| drop(event.send(told)));
        Self { chunks, events }
    }

    /// The next chunk.
    pub fn chunk(&self) -> ChunkRef {
        self.chunks.recv_timeout(WAIT).expect("a chunk arrives")
    }

    /// Waits for an event, past others.
    pub fn event(&self, is: impl Fn(&StreamEvent) -> bool) {
        while !is(&self.events.recv_timeout(WAIT).expect("the event comes")) {}
    }
}

/// The content of a chunk by its number.
pub fn chunk_of(number: u64, size: usize) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(131)) as u8).collect()
}

/// Disseminates a chunk.
pub fn send(manager: &RsManager, id: RsId, number: u64, size: usize) {
    let mut chunk = manager.allocate_chunk(id, size).unwrap();
    chunk.bytes_mut().copy_from_slice(&chunk_of(number, size));
    manager.disseminate_chunk(chunk, size, None).unwrap();
}
