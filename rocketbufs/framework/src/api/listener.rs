//! Listening for connections (paper 1, Listing 3).

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::api::conn::Conn;
use crate::api::context::Context;
use crate::state::error::{ListenError, RecvError};
use crate::state::{
    Command, ConnShared, EndsWithContext, ForeignConnection, ListenerShared, is_worker, may_wait,
};

/// Takes connections on an address. The peer's hello is read before the application sees a connection. Dropping it
/// stops listening; connections that were taken go on.
///
/// ```
/// use rocketbufs::{Config, Conn, Context, Listener, RIn, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
/// let subscribers = out.clone();
/// listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
///
/// let conn = Conn::connect(&ctx, &listener.local_addr(), b"subscriber")?;
/// let subscriber = RIn::new(&conn);
/// # drop(subscriber);
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    shared: Arc<ListenerShared>,
    context: Context,
    addr: String,
}

impl Listener {
    /// Listens on an address such as `127.0.0.1:7411`; port 0 takes a free one.
    ///
    /// # Errors
    /// With the system's reason.
    pub fn bind(context: &Context, addr: &str) -> Result<Self, ListenError> {
        Self::bind_and_wait(context, addr, false)
    }

    /// As [`Listener::bind`], for processes of this machine alone, which connect over shared memory, whatever `transport` this
    /// context has. They map the rings that the context makes from now on with [`BufferOptions::mapped_locally`](crate::BufferOptions::mapped_locally),
    /// or all of them if `transport` is not `tcp`.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_locally(context: &Context, addr: &str) -> Result<Self, ListenError> {
        let listener = Self::bind_and_wait(context, addr, true)?;
        context.inner().share_rings();
        Ok(listener)
    }

    fn bind_and_wait(context: &Context, addr: &str, locally: bool) -> Result<Self, ListenError> {
        if is_worker() {
            return Err(ListenError::CalledFromWorker);
        }
        let (mut listener, reply) = Self::start(context, addr, locally);
        let shut_down = |_| ListenError::Refused {
            addr: addr.to_owned(),
            reason: "the context was shut down".to_owned(),
        };
        listener.addr = reply.recv().map_err(shut_down)??;
        Ok(listener)
    }

    /// As [`Listener::bind`], for a context that the caller drives: the answer comes when its worker has taken a turn.
    #[doc(hidden)]
    pub fn bind_start(
        context: &Context,
        addr: &str,
    ) -> (Self, std::sync::mpsc::Receiver<Result<String, ListenError>>) {
        Self::start(context, addr, false)
    }

    fn start(
        context: &Context,
        addr: &str,
        locally: bool,
    ) -> (Self, std::sync::mpsc::Receiver<Result<String, ListenError>>) {
        let id = context.inner().new_conn();
        let shared = Arc::new(ListenerShared::new(id, context.config().tcp.backlog as usize));
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        context.shared().add_dependent(Arc::downgrade(&shared) as Weak<dyn EndsWithContext>);
        let (weak, own_addr) = (Arc::downgrade(&shared), addr.to_owned());
        let command = Command::Listen { listener: weak, addr: own_addr, locally, reply };
        context.shared().workers[0].send(command);
        (Self { shared, context: context.clone(), addr: addr.to_owned() }, answer)
    }

    /// The address in use.
    pub fn local_addr(&self) -> String {
        self.addr.clone()
    }

    /// Calls `callback` for every connection, on a worker thread; for those that wait already, on this one.
    pub fn set_conn_cb(&self, mut callback: impl FnMut(Conn) + Send + 'static) {
        let context = self.context.downgrade();
        let callback = move |shared| {
            if let Some(context) = context.upgrade() {
                callback(Conn { shared, context });
            }
        };
        self.context.inner().set_callback(&self.shared.callback, Box::new(callback));
        while let Some(conn) = self.shared.waiting.recv(Some(Duration::ZERO)) {
            if let Some(shared) = self.shared.offer(conn) {
                // The callback was removed meanwhile, and the queue is full.
                self.conn(shared).reject("too many connections wait to be accepted");
            }
        }
    }

    fn conn(&self, shared: Arc<ConnShared>) -> Conn {
        Conn { shared, context: self.context.clone() }
    }

    /// Removes the callback of [`Listener::set_conn_cb`]: connections wait for [`Listener::accept`] again. The callback's
    /// state can be freed when this call has returned: no call of the callback runs then, unless this call is made inside
    /// the callback.
    pub fn unset_conn_cb(&self) {
        self.context.inner().unset_callback(&self.shared.callback);
    }

    /// Calls `callback` on a worker thread for every connection that ended before it could be offered. Such a connection
    /// sent bytes of another protocol, or no bytes, or found no place. A peer that floods the address causes as many calls.
    pub fn set_foreign_conn_cb(&self, callback: impl FnMut(&ForeignConnection) + Send + 'static) {
        self.context.inner().set_callback(&self.shared.foreign_callback, Box::new(callback));
    }

    /// Removes the callback of [`Listener::set_foreign_conn_cb`], as [`Listener::unset_conn_cb`] does.
    pub fn unset_foreign_conn_cb(&self) {
        self.context.inner().unset_callback(&self.shared.foreign_callback);
    }

    /// The synchronous way: the next connection, waiting at most `timeout` (`None`: no limit; zero: only looks); none if none
    /// came in time.
    ///
    /// # Errors
    /// From a callback, which must not wait, with a time-out other than zero. [`RecvError::ShutDown`] after the end of the context.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Conn>, RecvError> {
        may_wait(timeout)?;
        let conn = self.shared.waiting.recv(timeout).map(|shared| self.conn(shared));
        self.context.inner().or_shut_down(conn)
    }

    /// A descriptor that is readable while [`Listener::accept`] would return a connection: for the application's own event
    /// loop, which must only poll it. The descriptor lives as long as the listener.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.shared.waiting.pollable()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.context.shared().workers[0].send(Command::Unlisten { listener: self.shared.id });
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("addr", &self.addr).finish()
    }
}
