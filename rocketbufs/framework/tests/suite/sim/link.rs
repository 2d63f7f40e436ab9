//! Connections as an application keeps them: it connects, notices a lost connection, and connects again later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rocketbufs::{Conn, Context, Listener, RateLimit, RateLimits};

use super::oracle::Env;

/// The end of an edge that connects.
pub struct Dialer {
    /// The edge, named by its child.
    edge: usize,
    addr: String,
    hello: [u8; 1],
    pub conn: Option<Conn>,
    retry_at: u64,
    /// The other end is dead and does not return.
    pub hopeless: bool,
}

impl Dialer {
    pub fn new(edge: usize, addr: String) -> Self {
        Self { edge, addr, hello: [edge as u8], conn: None, retry_at: 0, hopeless: false }
    }

    /// The edge, named by its child.
    pub fn edge(&self) -> usize {
        self.edge
    }

    /// A new connection, if it is time for one.
    pub fn poll(&mut self, env: &mut Env, ctx: &Context) -> Option<Conn> {
        if let Some(conn) = &self.conn {
            let why = conn.down_reason()?;
            env.check_reason(self.edge, &why.to_string());
            self.conn = None;
            self.retry_at = env.later();
        }
        if env.closing || self.hopeless || env.now() < self.retry_at {
            return None;
        }
        Some(self.dial(env, ctx))
    }

    /// Connects now.
    pub fn dial(&mut self, env: &mut Env, ctx: &Context) -> Conn {
        env.dials += 1;
        env.event("connections begun");
        env.note("dial", [self.edge as u64, env.dials, 0, 0]);
        let conn = Conn::connect_start(ctx, &self.addr, &self.hello).expect("a hello of one byte");
        self.conn = Some(conn.clone());
        conn
    }

    /// The time of the next attempt to connect, if one is planned.
    pub fn timer(&self) -> Option<u64> {
        (self.conn.is_none() && !self.hopeless).then_some(self.retry_at)
    }
}

/// The end of edges that is connected to.
pub struct Acceptor {
    listener: Listener,
    bound: Option<Receiver<Result<String, rocketbufs::error::ListenError>>>,
    /// The connections that are up, each with its edge.
    pub conns: Vec<(Conn, usize)>,
    /// The limits of edges that have some, shared by their later connections.
    limits: BTreeMap<usize, RateLimits>,
}

impl Acceptor {
    pub fn new(ctx: &Context, addr: &str) -> Self {
        let (listener, bound) = Listener::bind_start(ctx, addr);
        Self { listener, bound: Some(bound), conns: Vec::new(), limits: BTreeMap::new() }
    }

    /// New connections, with the edge that their hello names.
    pub fn poll(&mut self, env: &mut Env) -> VecDeque<(Conn, usize)> {
        if let Some(answer) = self.bound.as_ref().and_then(|bound| bound.try_recv().ok()) {
            env.check("listening works", answer.is_ok(), || format!("{answer:?}"));
            self.bound = None;
        }
        self.conns.retain(|(conn, edge)| match conn.down_reason() {
            Some(why) => {
                env.check_reason(*edge, &why.to_string());
                false
            }
            None => true,
        });
        if env.closing && !self.limits.is_empty() {
            // No time passes any more.
            self.limits.clear();
            self.conns.iter().for_each(|(conn, _)| conn.set_rate_limits(RateLimits::new()));
        }
        let mut fresh = VecDeque::new();
        while let Some(conn) = self.listener.accept(Some(Duration::ZERO)).unwrap() {
            let edge = usize::from(conn.peer_hello()[0]);
            env.event("connections accepted");
            if let Some(rate) = env.rates[edge].filter(|_| !env.closing) {
                let limits = self.limits.entry(edge).or_insert_with(|| {
                    let limit = || RateLimit::new(rate, rate / 100);
                    RateLimits::new().received(limit()).sent(limit())
                });
                conn.set_rate_limits(limits.clone());
                env.event("connections limited");
            }
            self.conns.push((conn.clone(), edge));
            fresh.push_back((conn, edge));
        }
        fresh
    }
}
