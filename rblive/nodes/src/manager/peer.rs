//! The connection to a node that receives streams: a thread connects, announces the streams, and connects again when the
//! connection is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use locks::{Condvar, Mutex};
use rocketbufs::{Conn, Context, ROut};

use super::proofs::Proofs;
use crate::config::{DisseminationSettings, Node};
use crate::ids::{NodeId, RsId};
use crate::trust::{self, Token};
use crate::wire::{Announce, Message};

/// The connection to a node.
pub struct Peer {
    node: Node,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Streams that the node gets.
    streams: BTreeMap<RsId, Announce>,
    /// The connection, once it is up and everything was announced.
    conn: Option<Conn>,
    stopped: bool,
    /// Whether the node is left with its connection.
    is_leaving: bool,
}

impl State {
    /// Removes a stream that has ended. Returns it if there is no connection by which the node gets the rest.
    fn forget(&mut self, id: RsId) -> Option<Announce> {
        let ended = self.streams.remove(&id)?;
        self.conn.is_none().then_some(ended)
    }
}

/// The state that the thread of a peer needs.
pub struct Link {
    pub context: Context,
    pub out: ROut,
    /// The own node.
    pub node: NodeId,
    pub settings: DisseminationSettings,
    pub token: Option<Arc<Token>>,
    pub proofs: Arc<Proofs>,
}

impl Peer {
    /// Starts the thread of a node.
    pub fn start(node: Node, link: Link) -> std::io::Result<Arc<Self>> {
        let name = format!("rblive-{}", node.id);
        let peer = Arc::new(Self { node, state: Mutex::default(), changed: Condvar::new() });
        let runs = peer.clone();
        threads::spawn(name, move || runs.run(&link))?;
        Ok(peer)
    }

    /// Whether the thread has ended, or ends.
    pub fn is_over(&self) -> bool {
        self.state.lock().stopped
    }

    /// Announces a stream to the node, now and on each later connection.
    pub fn add(&self, announce: Announce) {
        let mut state = self.state.lock();
        if let Some(conn) = &state.conn {
            // If the connection is lost meanwhile, the next one announces everything.
            let _ = conn.send_control(&Message::Announce(announce.clone()).encode());
        }
        state.streams.insert(announce.id, announce);
        self.changed.notify_all();
    }

    /// Withdraws a stream from the node. False if the node did not have it.
    pub fn remove(&self, id: RsId) -> bool {
        let mut state = self.state.lock();
        let removed = state.streams.remove(&id).is_some();
        if let Some(conn) = state.conn.as_ref().filter(|_| removed) {
            let _ = conn.send_control(&Message::Withdraw(id).encode());
        }
        removed
    }

    /// Removes a stream that has ended. The node gets the end through the buffer, after the last data; without a connection it gets nothing
    /// more, since only streams that exist are announced.
    pub fn forget(&self, id: RsId) {
        if let Some(lost) = self.state.lock().forget(id) {
            tracing::warn!(
                node = self.node.name,
                stream = lost.name,
                "the stream has ended without a connection to the node, which does not get what it lacks of it"
            );
        }
    }

    /// Leaves the node when its connection is down, or takes this back. True: there is no connection, and the thread ends.
    pub fn leave(&self, is_leaving: bool) -> bool {
        let mut state = self.state.lock();
        state.is_leaving = is_leaving;
        let is_over = is_leaving && state.conn.is_none();
        state.stopped |= is_over;
        self.changed.notify_all();
        state.stopped
    }

    /// The node with the address that it has here.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The streams that the node gets.
    pub fn streams(&self) -> Vec<RsId> {
        self.state.lock().streams.keys().copied().collect()
    }

    /// Whether the node gets this stream.
    pub fn has(&self, id: RsId) -> bool {
        self.state.lock().streams.contains_key(&id)
    }

    /// Whether the node is connected.
    pub fn is_up(&self) -> bool {
        self.state.lock().conn.is_some()
    }

    /// The carrier of the connection.
    pub fn carrier(&self) -> Option<&'static str> {
        self.state.lock().conn.as_ref()?.carrier().map(|carrier| carrier.name)
    }

    /// Ends the connection and the thread.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        if let Some(conn) = &state.conn {
            conn.close("the node stops");
        }
        self.changed.notify_all();
    }

    fn run(&self, link: &Link) {
        let mut failures = 0_u32;
        while self.wait_for_streams() {
            match self.connect(link) {
                Some(why) => {
                    tracing::info!(node = self.node.name, "the connection to the node is lost: {why}");
                    failures = 0;
                }
                None => failures = failures.saturating_add(1),
            }
            let wait = link.settings.reconnect_min_ms.saturating_mul(1 << failures.min(20));
            self.pause(Duration::from_millis(wait.min(link.settings.reconnect_max_ms)));
        }
    }

    /// Waits until the node has streams to get. False: the thread ends.
    fn wait_for_streams(&self) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.streams.is_empty() && !state.stopped);
        !state.stopped
    }

    /// Connects and waits until the connection is down. Returns the reason of the loss; `None` if the connection never was up.
    fn connect(&self, link: &Link) -> Option<String> {
        let conn = match self.open(link) {
            Ok(conn) => conn,
            Err(why) => {
                tracing::warn!(node = self.node.name, address = self.node.address, "cannot connect: {why}");
                return None;
            }
        };
        let mut state = self.state.lock();
        for announce in state.streams.values() {
            if conn.send_control(&Message::Announce(announce.clone()).encode()).is_err() {
                link.proofs.forget(conn.id());
                conn.close("too many streams to announce at once");
                return None;
            }
        }
        let _ = conn.send_control(&Message::Complete.encode());
        if state.stopped {
            conn.close("the node stops");
        }
        state.conn = Some(conn.clone());
        drop(state);
        let why = conn.wait_down(None).ok().flatten();
        let mut state = self.state.lock();
        state.conn = None;
        state.stopped |= state.is_leaving;
        drop(state);
        link.proofs.forget(conn.id());
        Some(why.map_or_else(String::new, |why| why.to_string()))
    }

    /// Connects, and checks the certificate and the proof of the node that answers, where the configuration asks for them.
    fn open(&self, link: &Link) -> Result<Conn, String> {
        let claim = trust::claim(link.token.as_deref(), link.node, self.node.id)?;
        let conn = Conn::connect(&link.context, &self.node.address, &claim.hello);
        let conn = conn.map_err(|error| error.to_string())?;
        let names = link.settings.certificates.get(&self.node.name);
        let is_known = trust::check_certificate(&self.node.name, names, &conn.peer_identity());
        let is_proven = is_known.and_then(|()| match claim.answer {
            None => {
                link.out.add_conn(&conn);
                Ok(())
            }
            Some(answer) => link.proofs.wait(&conn, &link.out, answer),
        });
        match is_proven {
            Ok(()) => Ok(conn),
            Err(why) => {
                conn.close(&why);
                Err(why)
            }
        }
    }

    /// Waits for the next attempt.
    fn pause(&self, time: Duration) {
        self.changed.wait_while_for(&mut self.state.lock(), |state| !state.stopped, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_ends_before_its_node_is_connected_is_told() {
        let (id, other) = (RsId::from_u64(7), RsId::from_u64(8));
        let announce = Announce { id, bid: 1, capacity: 4096, name: "live/camera".into() };
        let mut state = State { streams: [(id, announce)].into(), ..State::default() };
        assert!(state.forget(other).is_none());
        assert_eq!(state.forget(id).map(|lost| lost.name).as_deref(), Some("live/camera"));
        assert!(state.forget(id).is_none());
    }
}
