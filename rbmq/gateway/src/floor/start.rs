//! Starting and stopping the thread of a gateway.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use peers::{PlaceLimits, Places};
use rbmq::{Publisher, Subscriber};
use rustix::event::epoll;
use tracing::warn;

use super::bus::Topics;
use super::connections::{ConnectionLimits, Connections, Slow, SweepLimits};
use super::hall::Hall;
use super::wake::Bell;
use super::worker::{Entrance, NewSession, Worker};
use crate::protocol::Protocol;

/// What a protocol adds to the largest message at most: names, properties, the words around them.
pub(crate) const MAX_FRAMING_BYTES: usize = 256 << 10;

/// The listener of a gateway and its limits.
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) listener: TcpListener,
    pub(crate) session: Option<NewSession>,
    pub(crate) max_connections: usize,
    pub(crate) max_message_bytes: u64,
    pub(crate) max_lag_bytes: u64,
    /// The log of frames; larger if messages of the largest size need it.
    pub(crate) frames_bytes: usize,
    pub(crate) slow: Slow,
    /// How long a client that has said nothing of use may stay.
    pub(crate) stranger_timeout: Duration,
}

/// A gateway that serves clients. Dropping it stops the gateway in order.
pub(crate) struct Running {
    address: SocketAddr,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
}

impl Options {
    fn limits(&self) -> ConnectionLimits {
        let largest =
            usize::try_from(self.max_message_bytes).unwrap_or(usize::MAX).saturating_add(MAX_FRAMING_BYTES);
        ConnectionLimits {
            frames_bytes: self.frames_bytes.max(largest.saturating_mul(4)),
            max_lag_bytes: self.max_lag_bytes,
            slow: self.slow,
        }
    }
}

/// Starts a gateway. `publisher` and `subscriber` lead to its broker. The door is made with the bell, which other threads ring when there is a
/// change.
///
/// # Errors
/// The system refuses a thread or a descriptor.
pub(crate) fn start<P: Protocol + Send + 'static, H: Hall + Send + 'static>(
    options: Options,
    protocol: P,
    door: impl FnOnce(&Bell) -> H,
    (publisher, subscriber): (Publisher, Subscriber),
) -> io::Result<Running> {
    let (address, bell) = (options.listener.local_addr()?, Bell::new()?);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let limits = options.limits();
    let max_input_bytes = limits.frames_bytes / 4;
    let entrance = Entrance {
        listener: options.listener,
        session: options.session,
        places: Places::new(PlaceLimits::new(options.max_connections, "gateway.max_connections"), |line| {
            warn!("{line}")
        }),
        sweep: SweepLimits { stranger: options.stranger_timeout, closing: Duration::from_secs(5) },
        max_input_bytes,
    };
    let topics = Topics::new(publisher, options.max_message_bytes);
    let connections = Connections::new(epoll, limits);
    let door = door(&bell);
    let worker = Worker::new(protocol, door, entrance, bell.clone(), connections, (topics, subscriber))?;
    let thread = threads::spawn(options.name, move || worker.run())?;
    Ok(Running { address, bell, thread: Some(thread) })
}

impl Running {
    /// The address in use.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.bell.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}
