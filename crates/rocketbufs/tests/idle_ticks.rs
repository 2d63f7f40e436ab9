//! A subscription without news is not looked at: time passes in steps of a heartbeat's part, whoever subscribes.

use std::time::Duration;

use rocketbufs::core::Core;
use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut};
use rocketnet::sim::{SimConfig, SimNet, SimTransport};

const SECOND: u64 = 1_000_000_000;

/// Two contexts on one simulated network, driven by the test.
struct Pair {
    net: SimNet,
    cores: [Core<SimTransport>; 2],
    ticks: [u32; 2],
}

impl Pair {
    fn settle(&mut self) {
        loop {
            let now = self.net.now();
            let busy = self.cores.iter_mut().fold(false, |busy, core| core.turn(now) | busy);
            if !busy && !self.net.step() {
                return;
            }
        }
    }

    /// Lets this much time pass, and counts how often each has something to do only because of it.
    fn pass(&mut self, time: u64) {
        let end = self.net.now() + time;
        loop {
            self.settle();
            let next = self.cores.each_ref().map(Core::next_tick);
            let at = next[0].min(next[1]);
            if at > end {
                return;
            }
            self.net.advance_to(at.max(self.net.now()));
            for (ticks, next) in self.ticks.iter_mut().zip(next) {
                *ticks += u32::from(next <= at);
            }
        }
    }
}

fn context(net: &SimNet, name: &str) -> (Context, Core<SimTransport>) {
    let mut next = 0;
    let entropy = Box::new(move || {
        next += 1;
        next
    });
    Context::manual(Config::default(), entropy, |_| net.host(name)).unwrap()
}

#[test]
fn a_subscription_without_news_costs_no_looks() {
    let net = SimNet::new(1, SimConfig::default());
    let ((out_ctx, out_core), (in_ctx, in_core)) = (context(&net, "out"), context(&net, "in"));
    let mut pair = Pair { net, cores: [out_core, in_core], ticks: [0; 2] };
    let out = ROut::new(&out_ctx);
    out.create_buffer(7, 1 << 16).unwrap();
    let (listener, _bound) = Listener::bind_start(&out_ctx, "out:1");
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    pair.settle();
    let input = RIn::new(&Conn::connect_start(&in_ctx, "out:1", b"").unwrap());
    input.subscribe(7, 1 << 16).unwrap();
    pair.settle();
    let mut writer = out.buffer(7).unwrap().writer().unwrap();
    writer.append(&[b"the last for a long time"]).unwrap();
    pair.settle();
    let now = Some(Duration::ZERO);
    assert!(matches!(input.recv(now).unwrap(), Some(InEvent::Subscribed { .. })));
    assert!(matches!(input.recv(now).unwrap(), Some(InEvent::Data(_))));
    pair.pass(SECOND);
    pair.ticks = [0; 2];
    pair.pass(60 * SECOND);
    // Signs of life go out every five seconds; looks at connections a few times in that.
    assert!(pair.ticks.iter().all(|ticks| *ticks <= 75), "{:?} looks in a minute", pair.ticks);
}
