//! The connection of a client, and its replacement after a loss.
//!
//! The framework reports a lost connection and never reconnects unasked (paper 1, section 3.7). The client reconnects, with the pauses of
//! [`rbmq_wire::connect`].

use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rbmq_wire::connect::{self, Backoff, is_encrypted, start};
pub(super) use rbmq_wire::sync::{lock, wait_while};
use rocketbufs::error::{ContextError, ControlError};
use rocketbufs::{Config, Conn, Context, DownReason, EndsWithContext};
use tracing::{debug, info, warn};

use crate::ground::deadline::Deadline;
use crate::ground::error::{ConnectError, Over};
use crate::ground::login::Login;
use crate::ground::watch;
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

/// Makes a connection.
fn say_hello(
    ctx: &Context,
    addr: &str,
    hello: &Hello,
    login: &Login,
    on_start: &dyn Fn(&Conn),
) -> Result<Conn, ConnectError> {
    let hello = login.hello(hello, addr, is_encrypted(ctx))?;
    let refused = |source| ConnectError::Broker { addr: addr.to_owned(), source };
    start(ctx, addr, &hello, on_start).map_err(refused)
}

/// The hello of a client, with a random number that identifies it.
pub(crate) fn hello(role: Role, name: &str) -> Result<Hello, ConnectError> {
    let client = connect::random().map_err(|e| ConnectError::Random(e.to_string()))?;
    Ok(Hello { role, client, name: name.to_owned() })
}

struct State {
    conn: Conn,
    /// No further connection follows.
    over: Option<Over>,
    last_error: Option<String>,
    backoff: Backoff,
}

struct Shared {
    ctx: Context,
    addr: String,
    hello: Hello,
    /// A reconnect presents it again, or what has taken its place.
    login: Login,
    on_start: Box<dyn Fn(&Conn) + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
    on_shutdown: OnceLock<Box<dyn Fn() + Send + Sync>>,
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
        hello: Hello,
        login: &Login,
        on_start: impl Fn(&Conn) + Send + Sync + 'static,
    ) -> Result<Self, ConnectError> {
        let conn = say_hello(ctx, addr, &hello, login, &on_start)?;
        let mut backoff = Backoff::default();
        backoff.connected(Instant::now());
        let shared = Arc::new(Shared {
            ctx: ctx.clone(),
            addr: addr.to_owned(),
            hello,
            login: login.clone(),
            on_start: Box::new(on_start),
            state: Mutex::new(State { conn, over: None, last_error: None, backoff }),
            changed: Condvar::new(),
            on_shutdown: OnceLock::new(),
        });
        ctx.add_dependent(Arc::downgrade(&shared) as Weak<dyn EndsWithContext>);
        Ok(Self { shared })
    }

    /// Replaces lost connections from now on. `on_down` runs with the reason of every loss, `on_up` with every connection that
    /// replaces a lost one. `on_taken_over` runs with the reason when another client took over the place, and no further
    /// connection follows. `on_shutdown` runs when the context is shut down.
    pub(super) fn watch(
        &self,
        on_down: impl FnMut(&str) + Send + 'static,
        on_up: impl FnMut(&Conn) + Send + 'static,
        on_taken_over: impl FnOnce(String) + Send + 'static,
        on_shutdown: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), ConnectError> {
        let on_shutdown = self.shared.on_shutdown.get_or_init(|| Box::new(on_shutdown));
        if self.over() == Some(Over::ShutDown) {
            on_shutdown();
        }
        let (on_down, on_up) = (Box::new(on_down), Box::new(on_up));
        let reconnector = Reconnector {
            shared: self.shared.clone(),
            on_down,
            on_up,
            on_taken_over: Box::new(on_taken_over),
        };
        watch::add(&self.conn(), reconnector).map_err(ConnectError::Thread)
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

    /// Why no further connection follows.
    pub(super) fn over(&self) -> Option<Over> {
        lock(&self.shared.state).over
    }

    /// No further connection follows. The first reason stays.
    pub(super) fn set_over(&self, over: Over) {
        self.shared.set_over(over);
    }

    /// Closes the connection for good. Queued data leaves first; waits at most `timeout` for that (none: no limit).
    pub(super) fn close(&self, timeout: Option<Duration>) {
        self.stop();
        // In a callback, which must not wait, the data leaves later.
        let _ = self.conn().wait_down(timeout);
    }

    fn stop(&self) {
        self.shared.set_over(Over::Closed);
        self.conn().close("the client is done");
    }
}

impl EndsWithContext for Shared {
    fn on_shutdown(&self) {
        self.set_over(Over::ShutDown);
        if let Some(on_shutdown) = self.on_shutdown.get() {
            on_shutdown();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes a new connection after a loss.
struct Reconnector {
    shared: Arc<Shared>,
    on_down: Box<dyn FnMut(&str) + Send>,
    on_up: Box<dyn FnMut(&Conn) + Send>,
    on_taken_over: Box<dyn FnOnce(String) + Send>,
}

impl watch::OnDown for Reconnector {
    /// Replaces the connection, on a thread that lives until there is one.
    fn on_down(mut self, why: DownReason) {
        let shared = self.shared.clone();
        if lock(&shared.state).over.is_some() {
            return;
        }
        match shared.hello.role {
            // A publisher that takes no events would not notice: its calls only take longer.
            Role::Publisher => {
                warn!("the connection to the broker at {} is down ({why}); trying again", shared.addr);
            }
            Role::Subscriber | Role::Broker | Role::Observer => {
                info!("the connection to {} is down: {why}", shared.addr);
            }
        }
        lock(&shared.state).last_error = Some(why.to_string());
        let spawned = threads::spawn("rbmq-reconnect", move || {
            (self.on_down)(&why.to_string());
            // A reconnect would take the place back, and the two clients would replace each other for ever.
            if why.is_taken_over() && self.shared.hello.role != Role::Publisher {
                (self.on_taken_over)(why.to_string());
            } else {
                self.reconnect();
            }
        });
        if let Err(error) = spawned {
            lock(&shared.state).last_error = Some(format!("no thread to reconnect with: {error}"));
            warn!("the connection to {} is not replaced: the system refuses a thread: {error}", shared.addr);
        }
    }
}

impl Reconnector {
    fn reconnect(mut self) {
        let Some(conn) = self.shared.reconnect() else { return };
        let shared = self.shared.clone();
        info!("connected to {} again", shared.addr);
        (self.on_up)(&conn);
        if let Err(error) = watch::add(&conn, self) {
            lock(&shared.state).last_error = Some(format!("the connection cannot be watched: {error}"));
            warn!("the next loss of the connection to {} is not noticed: {error}", shared.addr);
        }
    }
}

impl Shared {
    fn set_over(&self, over: Over) {
        lock(&self.state).over.get_or_insert(over);
        self.changed.notify_all();
    }

    /// Tries until a connection is up. None if the client is closed in between.
    fn reconnect(&self) -> Option<Conn> {
        loop {
            let pause = lock(&self.state).backoff.pause(Instant::now());
            if wait_while(&self.state, &self.changed, Some(pause), |state| state.over.is_none()) {
                return None;
            }
            match say_hello(&self.ctx, &self.addr, &self.hello, &self.login, &self.on_start) {
                Ok(conn) => {
                    let mut state = lock(&self.state);
                    state.conn = conn.clone();
                    state.last_error = None;
                    state.backoff.connected(Instant::now());
                    if state.over.is_some() {
                        conn.close("the client is done");
                        return None;
                    }
                    return Some(conn);
                }
                Err(error) => {
                    debug!("cannot connect to {}: {error}", self.addr);
                    let mut state = lock(&self.state);
                    state.last_error = Some(error.to_string());
                    if let ConnectError::Broker { source, .. } = error {
                        state.backoff.failed(&source);
                    }
                }
            }
        }
    }
}

/// Runs a blocking call on a thread of the runtime's pool.
#[cfg(feature = "tokio")]
pub(super) async fn on_pool<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ConnectError> {
    let runtime = tokio::runtime::Handle::try_current();
    let runtime = runtime.map_err(|error| ConnectError::Thread(std::io::Error::other(error)))?;
    runtime.spawn_blocking(work).await.map_err(|error| ConnectError::Thread(std::io::Error::other(error)))
}
