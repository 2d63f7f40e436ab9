//! A connection of a worker, and the marks that leave over it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use rbmq_wire::connect::{is_encrypted, start};
use rocketbufs::{Conn, Context, RIn};

use crate::connection::{hello, lock, own_context};
use crate::ground::error::ConnectError;
use crate::ground::options::SubscriberBuilder;
use crate::wire::{GroupMessage, Hello, MAX_MARKS, Mark, MarkKind, Role};

/// How a client of groups connects.
pub(super) struct Dialer {
    pub(super) context: Context,
    addr: String,
    hello: Hello,
    login: crate::ground::login::Login,
}

/// A connection.
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) rin: RIn,
}

impl Dialer {
    pub(super) fn new(options: SubscriberBuilder, addr: &str) -> Result<Self, ConnectError> {
        let context = match options.context {
            Some(context) => context,
            None => own_context(options.config)?,
        };
        let hello = hello(Role::Subscriber, &options.options.name)?;
        Ok(Self { context, addr: addr.to_owned(), hello, login: options.login })
    }

    /// Connects, at most in the time that the configuration says.
    pub(super) fn dial(&self) -> Result<Link, ConnectError> {
        let hello = self.login.hello(&self.hello, &self.addr, is_encrypted(&self.context))?;
        let refused = |source| ConnectError::Broker { addr: self.addr.clone(), source };
        let conn = start(&self.context, &self.addr, &hello, &|_| {}).map_err(refused)?;
        let rin = RIn::new(&conn);
        Ok(Link { conn, rin })
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.context.config().session.connect_timeout_ms.into())
    }
}

/// The marks of a worker. Messages keep a handle, so that they can be acknowledged wherever they are.
#[derive(Default)]
pub(super) struct Marks(Mutex<State>);

/// A mark, and the generation of its message.
type OfGeneration = (u64, Mark);

#[derive(Default)]
struct State {
    /// None: there is no connection, or the group is not joined.
    conn: Option<Conn>,
    /// The number of the connection. What was received over an earlier one is not the worker's any more.
    number: u64,
    unsent: VecDeque<OfGeneration>,
    sent: VecDeque<OfGeneration>,
    /// Marks of this connection that are confirmed, and those of them that were refused.
    confirmed: u64,
    refused: u64,
    /// Acknowledgements that count for nothing, of which the application does not know yet.
    in_vain: u64,
}

impl Marks {
    /// A connection has joined the group. What was acknowledged and is not confirmed is told again, unless the group has begun anew since.
    pub(super) fn joined(&self, conn: &Conn, generation: u64) {
        let mut state = lock(&self.0);
        state.conn = Some(conn.clone());
        (state.confirmed, state.refused) = (0, 0);
        let (sent, rest) = (std::mem::take(&mut state.sent), std::mem::take(&mut state.unsent));
        let acks = sent.into_iter().chain(rest).filter(|(_, mark)| mark.kind == MarkKind::Ack);
        let (current, old): (VecDeque<_>, VecDeque<_>) = acks.partition(|(of, _)| *of == generation);
        state.unsent = current;
        state.in_vain += old.len() as u64;
        state.send();
    }

    /// The connection is lost.
    pub(super) fn lost(&self) {
        let mut state = lock(&self.0);
        state.conn = None;
        state.number += 1;
    }

    /// The number of the connection.
    pub(super) fn number(&self) -> u64 {
        lock(&self.0).number
    }

    /// Notes a mark for a message that came over a connection. Acknowledgements count whichever it was.
    pub(super) fn mark(&self, mark: Mark, generation: u64, number: u64) {
        let mut state = lock(&self.0);
        if mark.kind != MarkKind::Ack && state.number != number {
            return;
        }
        // At once, since nobody knows when the worker is called again. What finds no room leaves together.
        state.unsent.push_back((generation, mark));
        state.send();
    }

    /// Sends what was noted.
    pub(super) fn send(&self) {
        lock(&self.0).send();
    }

    /// What so many marks of this connection say is in the journal, but of those that were refused.
    pub(super) fn confirmed(&self, count: u64, refused: u64) {
        let mut state = lock(&self.0);
        let new = count.saturating_sub(state.confirmed).min(state.sent.len() as u64);
        state.confirmed = count;
        state.in_vain += refused.saturating_sub(state.refused).min(new);
        state.refused = refused;
        state.sent.drain(..usize::try_from(new).unwrap_or(0));
    }

    /// The acknowledgements that count for nothing, since this was asked last.
    pub(super) fn take_in_vain(&self) -> u64 {
        std::mem::take(&mut lock(&self.0).in_vain)
    }

    /// Whether everything is confirmed.
    pub(super) fn is_settled(&self) -> bool {
        let state = lock(&self.0);
        state.unsent.is_empty() && state.sent.is_empty()
    }
}

impl State {
    fn send(&mut self) {
        let Some(conn) = self.conn.clone() else { return };
        while let Some((generation, _)) = self.unsent.front().copied() {
            let same = self.unsent.iter().take(MAX_MARKS).take_while(|(of, _)| *of == generation);
            let marks: Vec<Mark> = same.map(|(_, mark)| *mark).collect();
            let count = marks.len();
            // What finds no room now leaves later.
            if conn.send_control(&GroupMessage::Marks { generation, marks }.encode()).is_err() {
                return;
            }
            self.sent.extend(self.unsent.drain(..count));
        }
    }
}

/// A time in milliseconds, as the protocol has it.
pub(super) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
