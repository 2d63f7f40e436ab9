//! Contexts without threads on one simulated network: the test drives every worker, on a virtual clock.

use rocketbufs::worker::Reactor;
use rocketbufs::{Config, Conn, Context, Listener, RIn, ROut};
use rocketnet::ConnId;
use rocketnet_sim::{SimConfig, SimNet, SimTransport};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// A network, and the workers of all contexts on it.
pub struct Driven {
    pub net: SimNet,
    pub cores: Vec<Reactor<SimTransport>>,
    /// How often each worker had something to do only because time passed.
    pub ticks: Vec<u32>,
}

impl Driven {
    pub fn new(seed: u64) -> Self {
        Self { net: SimNet::new(seed, SimConfig::default()), cores: Vec::new(), ticks: Vec::new() }
    }

    /// A context with so many workers.
    pub fn context(&mut self, name: &str, workers: usize, config: Config) -> Context {
        let mut next = u128::from(name.len() as u64) << 64;
        let entropy = Box::new(move || {
            next += 1;
            next
        });
        let (context, cores) = Context::manual(config, workers, entropy, |_| self.net.host(name)).unwrap();
        self.ticks.resize(self.cores.len() + cores.len(), 0);
        self.cores.extend(cores);
        context
    }

    /// An rOut to which every connection to `addr` is added.
    pub fn sender(&mut self, context: &Context, addr: &str) -> (ROut, Listener) {
        let out = ROut::new(context);
        let (listener, _bound) = Listener::bind_start(context, addr);
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        self.settle();
        (out, listener)
    }

    /// An rIn that is connected to `addr`.
    pub fn receiver(&mut self, context: &Context, addr: &str) -> RIn {
        RIn::new(&self.connect(context, addr))
    }

    pub fn connect(&mut self, context: &Context, addr: &str) -> Conn {
        Conn::connect_start(context, addr, b"").unwrap()
    }

    /// Breaks the network's n-th connection, counted from 1.
    pub fn cut(&mut self, n: u64) {
        self.net.cut(ConnId(2 * n));
        self.settle();
    }

    /// Everything happens that does not wait for a timer of a worker.
    pub fn settle(&mut self) {
        loop {
            let now = self.net.now();
            let busy = self.cores.iter_mut().fold(false, |busy, core| core.turn(now) | busy);
            if !busy && !self.net.step() {
                return;
            }
        }
    }

    /// Lets this much time pass.
    pub fn pass(&mut self, time: u64) {
        let end = self.net.now() + time;
        loop {
            self.settle();
            let next: Vec<_> = self.cores.iter().map(Reactor::next_tick).collect();
            let at = next.iter().copied().min().unwrap_or(u64::MAX);
            if at > end {
                self.net.advance_to(end.max(self.net.now()));
                return;
            }
            self.net.advance_to(at.max(self.net.now()));
            for (ticks, next) in self.ticks.iter_mut().zip(next) {
                *ticks += u32::from(next <= at);
            }
        }
    }
}
