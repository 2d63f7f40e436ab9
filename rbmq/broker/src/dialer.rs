//! Connections to upstream brokers. A lost connection is made again, and each new connection is an event for the broker's
//! thread.
//!
//! Each upstream broker has its own thread, because connecting waits. The first attempt may fail: the brokers of a mesh start in
//! any order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex};
use rbmq_wire::connect::{Backoff, start};
use rocketbufs::{Conn, Context};
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::inbox::{Event, Sender};

/// The time of one wait for the end of a connection. The thread waits again, so the value doesn't matter.
const WAIT: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct State {
    conn: Option<Conn>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Keeps one connection to another broker until it is dropped.
pub(super) struct Dialer(Arc<Shared>);

impl Dialer {
    /// Starts to connect to `addr`. Every new connection is an [`Event::UpstreamUp`] with this index.
    pub(super) fn start(
        ctx: &Context,
        index: usize,
        addr: &str,
        hello: Zeroizing<Vec<u8>>,
        events: Sender,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (task, ctx, addr) = (shared.clone(), ctx.clone(), addr.to_owned());
        threads::spawn("rbmq-upstream", move || task.run(&ctx, index, &addr, &hello, &events))?;
        Ok(Self(shared))
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.stop = true;
        if let Some(conn) = &state.conn {
            conn.close("the broker is shutting down");
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn run(&self, ctx: &Context, index: usize, addr: &str, hello: &[u8], events: &Sender) {
        let mut backoff = Backoff::default();
        while let Some(conn) = self.dial(ctx, addr, hello, &mut backoff) {
            if conn.peer_instance() == ctx.instance() {
                conn.close("a broker does not receive from itself");
                return warn!(
                    "the upstream broker at {addr} is this broker itself; remove it from the configuration"
                );
            }
            info!("connected to the broker at {addr}");
            backoff.connected(Instant::now());
            events.event(Event::UpstreamUp { index, conn: conn.clone() });
            let why = loop {
                if let Ok(Some(why)) = conn.wait_down(Some(WAIT)) {
                    break why;
                }
            };
            if self.state.lock().stop {
                return;
            }
            warn!("the connection to the broker at {addr} is lost ({why}); trying again");
            if self.pause(&mut backoff) {
                return;
            }
        }
    }

    /// Pauses before the next attempt. Returns whether the thread is to stop.
    fn pause(&self, backoff: &mut Backoff) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.stop, backoff.pause(Instant::now()));
        state.stop
    }

    /// Connects, with as many attempts as necessary. Returns none if the thread is to stop. The same failure is logged once,
    /// not with every attempt.
    fn dial(&self, ctx: &Context, addr: &str, hello: &[u8], backoff: &mut Backoff) -> Option<Conn> {
        let mut logged = None;
        loop {
            if self.state.lock().stop {
                return None;
            }
            match start(ctx, addr, hello, &|_| {}) {
                Ok(conn) => {
                    let mut state = self.state.lock();
                    state.conn = Some(conn.clone());
                    if state.stop {
                        conn.close("the broker is shutting down");
                        return None;
                    }
                    return Some(conn);
                }
                Err(error) => {
                    backoff.failed(&error);
                    let error = error.to_string();
                    if logged.as_ref() != Some(&error) {
                        warn!("cannot connect to the broker at {addr}: {error}; trying again");
                        logged = Some(error);
                    }
                }
            }
            if self.pause(backoff) {
                return None;
            }
        }
    }
}
