//! The proofs that receivers give before streams are announced to them, if the nodes have a token.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex};
use rocketbufs::{Conn, PolicySet, ROut};

use crate::trust::is_same;
use crate::wire::{PROOF_BYTES, decode_answer};

/// How long a receiver may take for its proof.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two checks that the connection is still up.
const LOOK: Duration = Duration::from_millis(100);

/// Connections to receivers, by their ids.
#[derive(Default)]
pub struct Proofs {
    states: Mutex<HashMap<u64, State>>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum State {
    /// The receiver must give this answer.
    Waiting([u8; PROOF_BYTES]),
    Proven,
    Wrong,
}

impl Proofs {
    /// Lets only receivers that have proved that they know the token subscribe to buffers of `out`.
    pub fn guard(self: &Arc<Self>, out: &ROut) {
        let proofs = self.clone();
        out.set_admission(move |asking| {
            let is_proven = matches!(proofs.states.lock().get(&asking.conn), Some(State::Proven));
            is_proven.then_some(PolicySet::ALL)
        });
        let proofs = self.clone();
        out.set_control_msg_cb(move |conn, message| proofs.take(conn.id(), message));
    }

    /// Handles the first message of a receiver. Any message but the right answer is a wrong proof.
    fn take(&self, conn: u64, message: &[u8]) {
        let mut states = self.states.lock();
        if let Some(state) = states.get_mut(&conn)
            && let State::Waiting(expected) = *state
        {
            let is_right = decode_answer(message).is_some_and(|answer| is_same(&expected, &answer));
            *state = if is_right { State::Proven } else { State::Wrong };
            self.changed.notify_all();
        }
    }

    /// Adds a connection to `out`, and waits until the receiver has answered.
    pub fn wait(&self, conn: &Conn, out: &ROut, expected: [u8; PROOF_BYTES]) -> Result<(), String> {
        self.states.lock().insert(conn.id(), State::Waiting(expected));
        out.add_conn(conn);
        let until = Instant::now() + PATIENCE;
        let mut states = self.states.lock();
        let why = loop {
            match states.get(&conn.id()) {
                Some(State::Proven) => return Ok(()),
                Some(State::Waiting(_)) if conn.is_up() && Instant::now() < until => {}
                Some(State::Waiting(_)) if conn.is_up() => {
                    break "it does not prove in time that it knows the token".to_owned();
                }
                Some(State::Waiting(_)) => {
                    break conn.down_reason().map_or_else(String::new, |why| why.to_string());
                }
                _ => break "its token is not that of this node (dissemination.token_file)".to_owned(),
            }
            self.changed.wait_for(&mut states, LOOK);
        };
        states.remove(&conn.id());
        Err(why)
    }

    /// Removes a connection that is down.
    pub fn forget(&self, conn: u64) {
        self.states.lock().remove(&conn);
    }
}
