//! The connection of a client, and the thread that reconnects.
//!
//! The framework reports a lost connection and never reconnects unasked (paper 1, section 3.7). The client reconnects: the
//! first attempt follows after 100 ms, the pause doubles with each attempt up to 5 s, and a random part of up to half of the
//! pause is left out, so that the clients of a restarted broker do not all return at the same moment.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rbmq_wire::connect::{self, Backoff, start};
pub(super) use rbmq_wire::sync::{lock, wait_while};
use rocketbufs::error::{ContextError, ControlError};
use rocketbufs::{Config, Conn, Context};
use tracing::{debug, info, warn};

use super::deadline::Deadline;
use super::error::ConnectError;
use crate::wire::{Control, Hello, Role};

/// The connection is closed if the broker takes no control message for this long.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two attempts to queue a control message.
const CONTROL_RETRY: Duration = Duration::from_millis(1);

/// A context for one client. All of its callbacks are the client's, and no callback waits for a lock that a call holds.
/// Therefore a thread that waits for data or for room may run the worker itself.
pub(super) fn own_context(config: Config) -> Result<Context, ContextError> {
    let ctx = Context::new(config)?;
    ctx.allow_callbacks_in_calls();
    Ok(ctx)
}

/// Sends a control message. Waits while the queue of control messages is full: a client with thousands of topics names all
/// of them after a reconnect. Must not be called from a callback, since the worker makes the room.
///
/// # Errors
/// [`ControlError::TooLarge`]: no connection takes a message of this size. After any other error the connection is down or
/// closing, and the next connection sends everything again.
pub(super) fn send_patiently(conn: &Conn, message: &Control) -> Result<(), ControlError> {
    let (bytes, deadline) = (message.encode(), Deadline::after(Some(CONTROL_TIMEOUT)));
    loop {
        match conn.send_control(&bytes) {
            Err(ControlError::Full { .. }) if !deadline.has_passed() => std::thread::sleep(CONTROL_RETRY),
            Err(error @ ControlError::Full { .. }) => {
                conn.close(&format!("a control message could not be sent: {error}"));
                return Err(error);
            }
            sent => return sent,
        }
    }
}

/// A random number that identifies a client.
pub(crate) fn random() -> Result<u128, ConnectError> {
    connect::random().map_err(|e| ConnectError::Random(e.to_string()))
}

struct State {
    conn: Conn,
    stop: bool,
    last_error: Option<String>,
}

struct Shared {
    ctx: Context,
    addr: String,
    role: Role,
    hello: Vec<u8>,
    on_start: Box<dyn Fn(&Conn) + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A connection that is replaced when it is lost, until this handle is dropped.
pub(super) struct Connection {
    shared: Arc<Shared>,
}

impl Connection {
    /// Connects and waits until the broker has accepted. `on_start` runs with every connection before it is up. An rOut must
    /// have the connection by then, since the first messages of the broker may ask for its buffers.
    pub(super) fn connect(
        ctx: &Context,
        addr: &str,
        (role, name): (Role, &str),
        on_start: impl Fn(&Conn) + Send + Sync + 'static,
    ) -> Result<Self, ConnectError> {
        let hello = Hello { role, client: random()?, name: name.to_owned() }.encode();
        let refused = |source| ConnectError::Broker { addr: addr.to_owned(), source };
        let conn = start(ctx, addr, &hello, &on_start).map_err(refused)?;
        let state = Mutex::new(State { conn, stop: false, last_error: None });
        let (ctx, addr, changed) = (ctx.clone(), addr.to_owned(), Condvar::new());
        let shared = Shared { ctx, addr, role, hello, on_start: Box::new(on_start), state, changed };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Starts the thread that reconnects. `on_down` runs with the reason of every loss, `on_up` with every connection that
    /// replaces a lost one. `on_taken_over` runs with the reason when another client took over the place, and no further
    /// connection follows.
    pub(super) fn watch(
        &self,
        on_down: impl FnMut(&str) + Send + 'static,
        on_up: impl FnMut(&Conn) + Send + 'static,
        on_taken_over: impl FnOnce(String) + Send + 'static,
    ) -> Result<(), ConnectError> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("rbmq-reconnect".into());
        thread
            .spawn(move || shared.run(on_down, on_up, on_taken_over))
            .map(drop)
            .map_err(ConnectError::Thread)
    }

    /// The current connection, which may be down.
    pub(super) fn conn(&self) -> Conn {
        lock(&self.shared.state).conn.clone()
    }

    /// Why there is no connection; none while the connection is up.
    pub(super) fn last_error(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        state.conn.down_reason().map(|why| state.last_error.clone().unwrap_or_else(|| why.to_string()))
    }

    /// Closes the connection for good. Queued data leaves first; waits at most `timeout` for that (none: no limit).
    pub(super) fn close(&self, timeout: Option<Duration>) {
        self.stop();
        // In a callback, which must not wait, the data leaves later.
        let _ = self.conn().wait_down(timeout);
    }

    fn stop(&self) {
        let mut state = lock(&self.shared.state);
        state.stop = true;
        state.conn.close("the client is done");
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(
        &self,
        mut on_down: impl FnMut(&str),
        mut on_up: impl FnMut(&Conn),
        on_taken_over: impl FnOnce(String),
    ) {
        loop {
            let conn = lock(&self.state).conn.clone();
            let Ok(Some(why)) = conn.wait_down(None) else { return };
            if lock(&self.state).stop {
                return;
            }
            match self.role {
                // A publisher that takes no events would not notice: its calls only take longer.
                Role::Publisher => {
                    warn!("the connection to the broker at {} is down ({why}); trying again", self.addr);
                }
                Role::Subscriber | Role::Broker | Role::Observer => {
                    info!("the connection to {} is down: {why}", self.addr);
                }
            }
            lock(&self.state).last_error = Some(why.to_string());
            on_down(&why.to_string());
            // A reconnect would take the place back, and the two clients would replace each other for ever.
            if why.is_taken_over() {
                return on_taken_over(why.to_string());
            }
            match self.reconnect() {
                Some(conn) => {
                    info!("connected to {} again", self.addr);
                    on_up(&conn);
                }
                None => return,
            }
        }
    }

    /// Tries until a connection is up; none if the client is closed meanwhile.
    fn reconnect(&self) -> Option<Conn> {
        let mut backoff = Backoff::default();
        loop {
            if wait_while(&self.state, &self.changed, Some(backoff.pause()), |state| !state.stop) {
                return None;
            }
            match start(&self.ctx, &self.addr, &self.hello, &self.on_start) {
                Ok(conn) => {
                    let mut state = lock(&self.state);
                    state.conn = conn.clone();
                    state.last_error = None;
                    if state.stop {
                        conn.close("the client is done");
                        return None;
                    }
                    return Some(conn);
                }
                Err(error) => {
                    debug!("cannot connect to {}: {error}", self.addr);
                    lock(&self.state).last_error = Some(error.to_string());
                }
            }
        }
    }
}
