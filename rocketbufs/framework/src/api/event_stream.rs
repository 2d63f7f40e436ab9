//! Events for tasks of tokio, on the descriptors that [`RIn::pollable`] and its siblings give. No thread waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use futures_core::Stream;

use crate::api::conn::Conn;
use crate::api::context::Context;
use crate::api::listener::Listener;
use crate::api::rin::RIn;
use crate::api::rout::ROut;
use crate::ground::readiness::Readiness;
use crate::state::error::{ConnError, RecvError};
use crate::state::events::{ConnEvent, OutEvent};
use crate::state::in_event::InEvent;

/// A source of events with a descriptor: [`RIn`], [`ROut`], [`Conn`] and [`Listener`].
pub trait EventSource: sealed::Sealed {
    /// The events of the source.
    type Event;

    /// The next event, if there is one. Never waits.
    ///
    /// # Errors
    /// As the source's receiving call.
    fn try_event(&self) -> Result<Option<Self::Event>, RecvError>;

    /// The descriptor that is readable while there is an event.
    ///
    /// # Errors
    /// The process has no descriptor left.
    fn descriptor(&self) -> io::Result<BorrowedFd<'_>>;
}

mod sealed {
    pub trait Sealed {}
}

/// Implements [`EventSource`] with the receiving call of a type, which takes a time-out.
macro_rules! event_source {
    ($source:ty, $event:ty, $receive:ident) => {
        impl sealed::Sealed for $source {}

        impl EventSource for $source {
            type Event = $event;

            fn try_event(&self) -> Result<Option<Self::Event>, RecvError> {
                self.$receive(Some(Duration::ZERO))
            }

            fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
                self.pollable()
            }
        }
    };
}

event_source!(RIn, InEvent, recv);
event_source!(ROut, OutEvent, recv_event);
event_source!(Conn, ConnEvent, recv_event);
event_source!(Listener, Conn, accept);

/// The events of an [`RIn`], [`ROut`], [`Conn`] or [`Listener`] as a stream, for tasks of tokio. A task that waits costs no
/// thread. The stream ends when the runtime shuts down.
///
/// [`EventStream::recv`] and the stream's `next` are cancel-safe: an event leaves its queue only when it is returned.
/// The same restrictions hold as for the receiving calls: events that a callback takes do not come to the stream.
///
/// ```
/// use rocketbufs::{Config, Conn, Context, EventStream, InEvent, Listener, RIn, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// let mut writer = out.create_buffer(7, 1 << 20)?.writer()?;
/// let mut conns = EventStream::new(Listener::bind(&ctx, "127.0.0.1:0")?)?;
/// let addr = conns.get_ref().local_addr();
/// tokio::spawn(async move {
///     while let Ok(Some(conn)) = conns.recv().await {
///         out.add_conn(&conn);
///     }
/// });
///
/// let input = RIn::new(&Conn::connect_async(&ctx, &addr, b"").await?);
/// input.subscribe(7, 1 << 20)?;
/// let mut events = EventStream::new(input)?;
/// assert!(matches!(events.recv().await?, Some(InEvent::Subscribed { bid: 7, .. })));
/// writer.append_async(&[b"hello"]).await?;
/// let Some(InEvent::Data(view)) = events.recv().await? else { panic!("not data") };
/// assert_eq!(view.to_vec()?, b"hello");
/// # Ok(())
/// # })
/// # }
/// ```
pub struct EventStream<S> {
    source: S,
    readiness: Readiness,
}

impl<S: EventSource> EventStream<S> {
    /// A stream of the source's events, for the present runtime of tokio, whose I/O driver must be enabled.
    ///
    /// # Errors
    /// The process has no descriptor left, or the caller is not in a runtime of tokio.
    pub fn new(source: S) -> io::Result<Self> {
        let readiness = Readiness::new(source.descriptor()?)?;
        Ok(Self { source, readiness })
    }

    /// The next event. Waits until there is one; none when the runtime shuts down.
    ///
    /// # Errors
    /// As the source's receiving call.
    pub async fn recv(&mut self) -> Result<Option<S::Event>, RecvError> {
        std::future::poll_fn(|task| self.poll_event(task)).await.transpose()
    }

    /// The source.
    pub fn get_ref(&self) -> &S {
        &self.source
    }

    /// The source, without the stream. Events that were not taken stay in its queue.
    pub fn into_inner(self) -> S {
        self.source
    }

    fn poll_event(&mut self, task: &mut task::Context<'_>) -> Poll<Option<Result<S::Event, RecvError>>> {
        self.readiness.poll_for(task, || self.source.try_event().transpose())
    }
}

impl<S: EventSource + Unpin> Stream for EventStream<S> {
    type Item = Result<S::Event, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(task)
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for EventStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Conn {
    /// As [`Conn::connect`], for a task of tokio. Dropping the future closes the connection.
    ///
    /// # Errors
    /// As [`Conn::connect`], and [`ConnError::Descriptor`].
    pub async fn connect_async(context: &Context, addr: &str, hello: &[u8]) -> Result<Self, ConnError> {
        let mut opening = Opening { conn: Self::connect_start(context, addr, hello)?, is_up: false };
        let readiness = opening.conn.pollable().and_then(Readiness::new);
        let readiness = readiness.map_err(|error| ConnError::Descriptor(error.to_string()))?;
        let waited_ms = u64::from(context.config().session.connect_timeout_ms);
        // The event stays in the connection's queue, for the application.
        let _ = tokio::time::timeout(Duration::from_millis(waited_ms), readiness.readable()).await;
        match (opening.conn.is_up(), opening.conn.down_reason()) {
            (_, Some(why)) => Err(ConnError::Down(why)),
            (false, None) => Err(ConnError::TimedOut { addr: addr.to_owned(), waited_ms }),
            (true, None) => {
                opening.is_up = true;
                Ok(opening.conn.clone())
            }
        }
    }
}

/// A connection that is closed unless it gets up.
struct Opening {
    conn: Conn,
    is_up: bool,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.is_up {
            self.conn.close("gave up connecting");
        }
    }
}
