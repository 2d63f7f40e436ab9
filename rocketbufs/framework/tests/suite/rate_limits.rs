//! Rate limits of connections, on a virtual clock: limited bytes take their time to the nanosecond, nothing is lost, and nobody
//! is disconnected for a delay of this end.

use std::time::Duration;

use rocketbufs::{
    Budget, BufferOptions, Config, Conn, Context, InEvent, Policy, RIn, ROut, RateLimit, RateLimits, Start,
    SubscribeOptions,
};
use rocketnet_sim::{SimConfig, SimNet};

use crate::driven::{Driven, MILLISECOND, SECOND};

const BID: u32 = 3;
const RATE: u64 = 100_000;
const BURST: u64 = 10_000;
const RING: u64 = 1 << 20;

/// The bytes that a subscriber has received.
fn received(input: &RIn) -> u64 {
    let mut bytes = 0;
    while let Some(event) = input.recv(Some(Duration::ZERO)).unwrap() {
        match event {
            InEvent::Data(view) => {
                bytes += view.len() as u64;
                view.consume();
            }
            InEvent::Subscribed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    bytes
}

fn write(out: &ROut, bid: u32, deliveries: u64, size: u64) {
    for _ in 0..deliveries {
        let segment = out.buffer(bid).unwrap().segment(size, Some(Duration::ZERO)).unwrap();
        out.deliver(segment, size, None).unwrap();
    }
}

fn subscribed(driven: &mut Driven, conn: &Conn, policy: Policy) -> RIn {
    let input = RIn::new(conn);
    let options = SubscribeOptions::new().size_bytes(RING).start(Start::Oldest).policy(policy);
    input.subscribe_with(BID, options).unwrap();
    driven.settle();
    input
}

/// A sender whose accepted connections have this limit on sent bytes, and a context to connect from.
fn limited_sender(driven: &mut Driven, limit: &RateLimit) -> (ROut, rocketbufs::Listener, Context) {
    let sender = driven.context("sender", 2, Config::default());
    let (out, listener) = driven.sender(&sender, "sender:1");
    let (to, limit) = (out.clone(), limit.clone());
    listener.set_conn_cb(move |conn| {
        conn.set_rate_limits(RateLimits::new().sent(limit.clone()));
        to.add_conn(&conn);
    });
    out.create_buffer_with(BID, BufferOptions::new().size_bytes(RING)).unwrap();
    (out, listener, driven.context("receiver", 1, Config::default()))
}

#[test]
fn what_is_sent_takes_its_time() {
    let mut driven = Driven::new(1);
    let limit = RateLimit::new(RATE, BURST);
    let (out, _listener, ctx) = limited_sender(&mut driven, &limit);
    let conn = driven.connect(&ctx, "sender:1");
    let input = subscribed(&mut driven, &conn, Policy::Block);
    let begin = driven.net.now();
    write(&out, BID, 100, 2_000);
    let mut got = 0;
    for _ in 0..250 {
        driven.pass(10 * MILLISECOND);
        got += received(&input);
        let passed = driven.net.now() - begin;
        assert!(got <= BURST + RATE * passed / SECOND, "{got} bytes after {passed} ns");
        // A transfer in parts is a delivery later.
        let least = (RATE * passed / SECOND).saturating_sub(2 * 2_000).min(200_000);
        assert!(got >= least, "{got} bytes after {passed} ns");
    }
    assert_eq!((got, limit.usage().bytes), (200_000, 200_000));
    assert!(limit.usage().delayed >= Duration::from_millis(1_800), "{limit:?}");
    // Without a limit the rest goes at once.
    limit.set(0, 0);
    write(&out, BID, 100, 2_000);
    driven.settle();
    assert_eq!(received(&input), 200_000);
}

/// The sizes of the transfers of data, as the network has taken them.
fn transfers(net: &SimNet) -> Vec<u64> {
    const CONTROL: &str = "0x7fffffff";
    let trace = net.trace();
    let posts = trace.lines().filter(|line| line.contains(" post ") && !line.contains(CONTROL));
    let sizes = posts.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap());
    // A transfer without bytes tells something else.
    sizes.filter(|bytes| *bytes > 0).collect()
}

/// A reservation of 1,562 bytes has one byte more than a delivery: the byte is no transfer of its own.
#[test]
fn the_rest_of_a_reservation_is_no_transfer() {
    const SIZE: u64 = 1_561;
    let config = SimConfig { trace_lines: 1 << 16, ..SimConfig::one_sided() };
    let mut driven = Driven { net: SimNet::new(8, config), cores: Vec::new(), ticks: Vec::new() };
    let limit = RateLimit::new(RATE, BURST);
    let (out, _listener, ctx) = limited_sender(&mut driven, &limit);
    out.create_buffer_with(BID + 1, BufferOptions::new().size_bytes(RING)).unwrap();
    let conn = driven.connect(&ctx, "sender:1");
    let input = subscribed(&mut driven, &conn, Policy::Block);
    input.subscribe_with(BID + 1, SubscribeOptions::new().size_bytes(RING).start(Start::Oldest)).unwrap();
    driven.settle();
    let begin = driven.net.now();
    write(&out, BID, 100, SIZE);
    write(&out, BID + 1, 100, SIZE);
    let mut got = 0;
    for _ in 0..400 {
        driven.pass(10 * MILLISECOND);
        got += received(&input);
        let passed = driven.net.now() - begin;
        assert!(got <= BURST + RATE * passed / SECOND, "{got} bytes after {passed} ns");
    }
    assert_eq!((got, limit.usage().bytes), (200 * SIZE, 200 * SIZE));
    let transfers = transfers(&driven.net);
    assert_eq!(transfers.iter().sum::<u64>(), 200 * SIZE);
    let tiny: Vec<&u64> = transfers.iter().filter(|bytes| **bytes < 256).collect();
    assert!(tiny.is_empty(), "{tiny:?} of {} transfers", transfers.len());
}

/// Data beyond the credit of a receiver with a budget must not hide the data that its credit allows.
#[test]
fn what_is_sent_for_credit_on_demand_takes_its_time() {
    let mut driven = Driven::new(7);
    let limit = RateLimit::new(RATE, BURST);
    let (out, _listener, ctx) = limited_sender(&mut driven, &limit);
    let options = BufferOptions::new().size_bytes(64 << 10).max_delivery_bytes(Some(2_000));
    out.create_buffer_with(BID + 1, options).unwrap();
    let conn = driven.connect(&ctx, "sender:1");
    let input = RIn::new(&conn);
    let options = SubscribeOptions::new().size_bytes(16 << 10).start(Start::Oldest);
    let options = options.budget(Some(Budget::new(16 << 10)));
    input.subscribe_with(BID + 1, options).unwrap();
    driven.settle();
    let (begin, mut got, mut written) = (driven.net.now(), 0, 0);
    for _ in 0..250 {
        while written < 200_000
            && let Ok(segment) = out.buffer(BID + 1).unwrap().segment(2_000, Some(Duration::ZERO))
        {
            out.deliver(segment, 2_000, None).unwrap();
            written += 2_000;
        }
        driven.pass(10 * MILLISECOND);
        got += received(&input);
        let passed = driven.net.now() - begin;
        assert!(got <= BURST + RATE * passed / SECOND, "{got} bytes after {passed} ns");
    }
    assert_eq!((got, limit.usage().bytes), (200_000, 200_000));
}

#[test]
fn connections_that_share_a_limit_get_equal_parts() {
    let mut driven = Driven::new(2);
    let limit = RateLimit::new(RATE, BURST);
    let (out, _listener, ctx) = limited_sender(&mut driven, &limit);
    let conns = [(); 4].map(|()| driven.connect(&ctx, "sender:1"));
    let inputs = conns.each_ref().map(|conn| subscribed(&mut driven, conn, Policy::Block));
    write(&out, BID, 300, 1_000);
    driven.pass(4 * SECOND);
    let got = inputs.each_ref().map(received);
    let all: u64 = got.iter().sum();
    assert!((4 * RATE - 10_000..=4 * RATE + BURST).contains(&all), "{got:?}");
    assert!(got.iter().all(|bytes| bytes.abs_diff(all / 4) < 5_000), "{got:?}");
    // A receiver that leaves takes nothing along.
    drop((conns, inputs));
}

#[test]
fn a_delay_is_not_the_receivers_fault() {
    let mut driven = Driven::new(3);
    let limit = RateLimit::new(1_000, 4_096);
    let (out, _listener, ctx) = limited_sender(&mut driven, &limit);
    let conn = driven.connect(&ctx, "sender:1");
    let input = subscribed(&mut driven, &conn, Policy::Block);
    // The writer waits for this subscription for much longer than `session.block_timeout_ms`.
    let mut written = 0;
    while let Ok(segment) = out.buffer(BID).unwrap().segment(60_000, Some(Duration::ZERO)) {
        out.deliver(segment, 60_000, None).unwrap();
        written += 60_000;
    }
    let mut got = 0;
    for _ in 0..200 {
        driven.pass(SECOND);
        got += received(&input);
    }
    assert!(conn.is_up(), "{:?}", conn.down_reason());
    assert!(written > 400_000 && got >= 180_000, "{got} of {written}");
    // Control messages pass.
    conn.send_control(b"how are you").unwrap();
    driven.settle();
    assert_eq!(conn.control_waiting(), 0);
}

/// A receiver whose accepted connections have this limit on received bytes.
struct LimitedReceiver {
    driven: Driven,
    inputs: Vec<RIn>,
    outs: Vec<ROut>,
    conns: Vec<Conn>,
}

impl LimitedReceiver {
    fn new(limit: &RateLimit, writers: u32) -> Self {
        let mut driven = Driven::new(4);
        let ctx = driven.context("receiver", 2, Config::default());
        let (listener, _bound) = rocketbufs::Listener::bind_start(&ctx, "receiver:1");
        driven.settle();
        let (mut inputs, mut outs, mut conns) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..writers {
            let writer = driven.context(&format!("writer{n}"), 1, Config::default());
            let out = ROut::new(&writer);
            out.create_buffer_with(BID, BufferOptions::new().size_bytes(RING)).unwrap();
            let conn = driven.connect(&writer, "receiver:1");
            out.add_conn(&conn);
            driven.settle();
            let accepted = listener.accept(Some(Duration::ZERO)).unwrap().unwrap();
            accepted.set_rate_limits(RateLimits::new().received(limit.clone()));
            inputs.push(subscribed(&mut driven, &accepted, Policy::Block));
            outs.push(out);
            conns.push(conn);
        }
        Self { driven, inputs, outs, conns }
    }

    /// Writes whatever there is room for, and receives.
    fn pass(&mut self, time: u64) -> Vec<u64> {
        let mut got = vec![0; self.inputs.len()];
        let end = self.driven.net.now() + time;
        while self.driven.net.now() < end {
            for out in &self.outs {
                while let Ok(segment) = out.buffer(BID).unwrap().segment(1_000, Some(Duration::ZERO)) {
                    out.deliver(segment, 1_000, None).unwrap();
                }
            }
            self.driven.pass(10 * MILLISECOND);
            for (got, input) in got.iter_mut().zip(&self.inputs) {
                *got += received(input);
            }
        }
        got
    }
}

#[test]
fn what_arrives_takes_its_time() {
    let limit = RateLimit::new(RATE, BURST);
    let mut world = LimitedReceiver::new(&limit, 1);
    let mut got = 0;
    for seconds in 1..=20 {
        got += world.pass(SECOND)[0];
        assert!(got <= 2 * BURST + seconds * RATE, "{got} bytes in {seconds} s");
        assert!(got + 2 * BURST >= seconds * RATE, "{got} bytes in {seconds} s");
    }
    // The beginning of a delivery counts too.
    let begun = limit.usage().bytes - got;
    assert!(begun <= 2 * BURST, "{begun} more bytes");
    assert!(limit.usage().delayed >= Duration::from_secs(15), "{limit:?}");
    assert!(world.conns[0].is_up());
    // Without the limit the window is open again.
    limit.set(0, 0);
    assert!(world.pass(SECOND)[0] > RING);
}

#[test]
fn writers_that_share_a_limit_get_equal_parts() {
    let limit = RateLimit::new(RATE, BURST);
    let mut world = LimitedReceiver::new(&limit, 3);
    let got = world.pass(20 * SECOND);
    let all: u64 = got.iter().sum();
    assert!(all <= 4 * BURST + 20 * RATE && all + 4 * BURST >= 20 * RATE, "{got:?}");
    assert!(got.iter().all(|bytes| bytes.abs_diff(all / 3) <= 3 * BURST), "{got:?}");
}

#[test]
fn a_new_subscription_or_connection_is_no_way_around_a_limit() {
    let limit = RateLimit::new(RATE, BURST);
    let mut driven = Driven::new(5);
    let ctx = driven.context("receiver", 1, Config::default());
    let (listener, _bound) = rocketbufs::Listener::bind_start(&ctx, "receiver:1");
    let writer = driven.context("writer", 1, Config::default());
    let out = ROut::new(&writer);
    driven.settle();
    let mut got = 0;
    let begin = driven.net.now();
    for bid in 0..40 {
        out.create_buffer_with(bid, BufferOptions::new().size_bytes(64 << 10)).unwrap();
        write(&out, bid, 5, 8_000);
        let conn = driven.connect(&writer, "receiver:1");
        out.add_conn(&conn);
        driven.settle();
        let accepted = listener.accept(Some(Duration::ZERO)).unwrap().unwrap();
        accepted.set_rate_limits(RateLimits::new().received(limit.clone()));
        let input = RIn::new(&accepted);
        input.subscribe_with(bid, SubscribeOptions::new().size_bytes(64 << 10).start(Start::Oldest)).unwrap();
        driven.pass(20 * MILLISECOND);
        got += received(&input);
        conn.close("enough");
        driven.settle();
    }
    let passed = driven.net.now() - begin;
    assert!(got <= 2 * BURST + RATE * passed / SECOND, "{got} bytes in {passed} ns");
}

#[test]
fn limits_come_and_go_while_data_flows() {
    let mut driven = Driven::new(6);
    let ctx = driven.context("receiver", 1, Config::default());
    let (listener, _bound) = rocketbufs::Listener::bind_start(&ctx, "receiver:1");
    let writer = driven.context("writer", 1, Config::default());
    let out = ROut::new(&writer);
    out.create_buffer_with(BID, BufferOptions::new().size_bytes(RING)).unwrap();
    driven.settle();
    let conn = driven.connect(&writer, "receiver:1");
    out.add_conn(&conn);
    driven.settle();
    let accepted = listener.accept(Some(Duration::ZERO)).unwrap().unwrap();
    let input = subscribed(&mut driven, &accepted, Policy::Block);
    let (mut got, mut written) = (0, 0);
    for round in 0..40_u64 {
        let limit = RateLimit::new(RATE, BURST);
        let limits = match round % 4 {
            0 => RateLimits::new(),
            1 => RateLimits::new().received(limit.clone()).sent(limit),
            2 => RateLimits::new().sent(limit),
            _ => RateLimits::new().received(limit),
        };
        accepted.set_rate_limits(limits.clone());
        conn.set_rate_limits(limits);
        for _ in 0..50 {
            if let Ok(segment) = out.buffer(BID).unwrap().segment(5_000, Some(Duration::ZERO)) {
                out.deliver(segment, 5_000, None).unwrap();
                written += 5_000;
            }
        }
        driven.pass(100 * MILLISECOND);
        got += received(&input);
    }
    accepted.set_rate_limits(RateLimits::new());
    conn.set_rate_limits(RateLimits::new());
    driven.pass(SECOND);
    got += received(&input);
    assert!(conn.is_up() && written > 0);
    assert_eq!(got, written);
}
