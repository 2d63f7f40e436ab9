//! The connection of a client, and the thread that makes it again.
//!
//! The framework reports that a connection is down and never reconnects unasked (paper 1, section 3.7). Here it is
//! asked: the first attempt after 100 ms, then after twice as long each time, up to 5 s; each waits between half and
//! all of that, so that the clients of a broker that restarts do not come back at the same moment.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rbmq_wire::connect::{self, Backoff, start};
pub(super) use rbmq_wire::sync::{lock, wait_while};
use rocketbufs::{Config, Conn, Context, ContextError, ControlError};
use tracing::{debug, info, warn};

use super::error::ConnectError;
use crate::wire::{Control, Hello, Role};

/// A broker that takes no control message for so long is not waited for.
const STALLED: Duration = Duration::from_secs(10);

/// How often it is looked for room for one.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// How long a look at a connection lasts before it is looked at again: no deadline of the design hangs on it.
const WATCH: Duration = Duration::from_secs(3600);

/// In the reason of a connection that was closed because another one took over its place: to connect again would take
/// it back, and so on for ever.
const TAKEN_OVER: &str = "(TakenOver)";

/// A context of a client's own. Its callbacks are all the client's, and wait for nothing that a call holds: a thread that
/// waits for data, or for room, does the worker's work itself.
pub(super) fn own_context(config: Config) -> Result<Context, ContextError> {
    let ctx = Context::new(config)?;
    ctx.allow_callbacks_in_calls();
    Ok(ctx)
}

/// When a wait ends, however long it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// In `timeout` from now; never, if that is beyond what clocks know.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// How long it still is.
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }
}

/// Sends a control message, waiting while too many others wait to be sent: whoever has thousands of topics names them
/// all at once when it is connected again. Not for callbacks, as it is the worker that makes room.
///
/// # Errors
/// The broker takes none of this size, on no connection. With any other error the connection is down, or goes down
/// because of it; the next one begins again.
pub(super) fn send_patiently(conn: &Conn, message: &Control) -> Result<(), ControlError> {
    let (bytes, deadline) = (message.encode(), Deadline::after(STALLED));
    loop {
        match conn.send_control(&bytes) {
            Err(ControlError::Full { .. }) if !deadline.left().is_zero() => std::thread::sleep(ROOM_LOOK),
            Err(error @ ControlError::Full { .. }) => {
                conn.close(&format!("the broker was not told what it must know: {error}"));
                return Err(error);
            }
            told => return told,
        }
    }
}

/// A random number for a client's name.
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

/// A connection that is made again when it is lost, until this is dropped.
pub(super) struct Link {
    shared: Arc<Shared>,
}

impl Link {
    /// Connects and waits until the broker has accepted. `on_start` is called with every connection before it is up:
    /// an rOut must have it by then, as the broker's first words may ask for its buffers.
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

    /// Starts to watch the connection; `on_up` is called with every connection that replaces a lost one, `on_over`
    /// with the reason when it is not made again: another client has taken its place.
    pub(super) fn watch(
        &self,
        on_up: impl FnMut(&Conn) + Send + 'static,
        on_over: impl FnOnce(String) + Send + 'static,
    ) -> Result<(), ConnectError> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("rbmq-link".into());
        thread.spawn(move || shared.run(on_up, on_over)).map(drop).map_err(ConnectError::Thread)
    }

    /// The connection as it is now; it may be down.
    pub(super) fn conn(&self) -> Conn {
        lock(&self.shared.state).conn.clone()
    }

    /// Why there is no connection; none while there is one.
    pub(super) fn last_error(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        state.conn.down_reason().map(|why| state.last_error.clone().unwrap_or(why))
    }

    /// Ends the connection for good: what is queued leaves first. Waits at most `timeout` for that.
    pub(super) fn close(&self, timeout: Duration) {
        self.stop();
        self.conn().wait_down(Some(timeout));
    }

    fn stop(&self) {
        let mut state = lock(&self.shared.state);
        state.stop = true;
        state.conn.close("the client is done");
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self, mut on_up: impl FnMut(&Conn), on_over: impl FnOnce(String)) {
        loop {
            let conn = lock(&self.state).conn.clone();
            let Some(why) = conn.wait_down(Some(WATCH)) else { continue };
            if lock(&self.state).stop {
                return;
            }
            match self.role {
                // Nobody else tells the application of a publisher: its calls only take longer.
                Role::Publisher => warn!("the broker at {} is away ({why}); trying again", self.addr),
                Role::Subscriber | Role::Broker | Role::Observer => {
                    info!("the connection to {} is down: {why}", self.addr);
                }
            }
            lock(&self.state).last_error = Some(why.clone());
            if why.contains(TAKEN_OVER) {
                return on_over(why);
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

    /// Tries until it is connected; none when it is to stop.
    fn reconnect(&self) -> Option<Conn> {
        let mut backoff = Backoff::default();
        loop {
            if wait_while(&self.state, &self.changed, backoff.pause(), |state| !state.stop) {
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
