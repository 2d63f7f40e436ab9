//! A connection to another broker, made again whenever it is lost: what comes up is an event of the broker's thread.
//!
//! A thread of its own for each, as making a connection waits. The first attempt need not succeed: brokers of a mesh
//! start in any order.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rbmq_wire::connect::{Backoff, LONGEST_DELAY, start};
use rbmq_wire::sync::{lock, wait_while};
use rocketbufs::{Conn, Context};
use tracing::{info, warn};

use super::control::Event;
use super::inbox::Sender;

/// How long a look at a connection lasts before it is looked at again: no deadline of the design hangs on it.
const WATCH: Duration = Duration::from_secs(3600);

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
    /// Starts to connect to `addr`. Every connection that comes up is told as [`Event::UpstreamUp`] of `index`.
    pub(super) fn start(
        ctx: &Context,
        (index, addr): (usize, &str),
        hello: Vec<u8>,
        events: Sender,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (task, ctx, addr) = (shared.clone(), ctx.clone(), addr.to_owned());
        let thread = std::thread::Builder::new().name("rbmq-upstream".into());
        thread.spawn(move || task.run(&ctx, (index, &addr), &hello, &events))?;
        Ok(Self(shared))
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.stop = true;
        if let Some(conn) = &state.conn {
            conn.close("the broker is shutting down");
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn run(&self, ctx: &Context, (index, addr): (usize, &str), hello: &[u8], events: &Sender) {
        let mut backoff = Backoff::default();
        while let Some(conn) = self.dial(ctx, addr, hello, &mut backoff) {
            if conn.peer_instance() == ctx.instance() {
                conn.close("a broker does not receive from itself");
                return warn!(
                    "the broker at {addr} is this one: it does not receive from itself; remove that upstream"
                );
            }
            info!("connected to the broker at {addr}");
            let up = Instant::now();
            events.event(Event::UpstreamUp { index, conn: conn.clone() });
            let why = loop {
                if let Some(why) = conn.wait_down(WATCH) {
                    break why;
                }
            };
            if lock(&self.state).stop {
                return;
            }
            warn!("the broker at {addr} is away ({why}); trying again");
            // One that accepts and then ends the connection at once is not asked again at once.
            if up.elapsed() > LONGEST_DELAY {
                backoff = Backoff::default();
            }
            if self.pause(&mut backoff) {
                return;
            }
        }
    }

    /// Waits a little; true if it is to stop.
    fn pause(&self, backoff: &mut Backoff) -> bool {
        wait_while(&self.state, &self.changed, Some(backoff.pause()), |state| !state.stop)
    }

    /// Tries until it is connected; none when it is to stop. A failure is told once, not with every attempt.
    fn dial(&self, ctx: &Context, addr: &str, hello: &[u8], backoff: &mut Backoff) -> Option<Conn> {
        let mut told = None;
        loop {
            if lock(&self.state).stop {
                return None;
            }
            match start(ctx, addr, hello, &|_| {}) {
                Ok(conn) => {
                    let mut state = lock(&self.state);
                    state.conn = Some(conn.clone());
                    if state.stop {
                        conn.close("the broker is shutting down");
                        return None;
                    }
                    return Some(conn);
                }
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        warn!("cannot connect to the broker at {addr}: {error}; trying again");
                        told = Some(error);
                    }
                }
            }
            if self.pause(backoff) {
                return None;
            }
        }
    }
}
