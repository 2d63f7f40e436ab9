//! Subscriptions that share a budget: unreleased bytes stay within the budget, however much is pending and however slowly
//! the application reads. Every subscription gets a turn, and nothing is lost.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rocketbufs::error::{BufferError, RefusedError};
use rocketbufs::{
    Budget, BufferOptions, Config, Conn, Context, InEvent, InView, Listener, RIn, ROut, SubscribeOptions,
};

use crate::ends::{WAIT, until};

const KIB: u64 = 1 << 10;

struct Ends {
    out: ROut,
    input: RIn,
    budget: Budget,
    /// The context of the subscriber alone, so that its memory can be measured.
    ctx: Context,
    listener: Listener,
}

fn config(idle_trim_ms: u32) -> Config {
    let mut config = Config::default();
    config.buffers.idle_trim_ms = idle_trim_ms;
    // However busy the machine is.
    config.session.heartbeat_ms = 0;
    config
}

/// A publisher of so many buffers with these options, and a subscriber of all of them with one budget.
fn ends(buffers: u32, options: &BufferOptions, budget: u64, trim_ms: u32) -> Ends {
    let ctx = Context::new(config(0)).unwrap();
    let out = ROut::new(&ctx);
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    let ctx = Context::new(config(trim_ms)).unwrap();
    let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"").unwrap());
    let budget = Budget::new(budget);
    for bid in 0..buffers {
        out.create_buffer_with(bid, options.clone()).unwrap();
        let with = SubscribeOptions::new()
            .size_bytes(out.buffer(bid).unwrap().info().unwrap().capacity_bytes)
            .budget(Some(budget.clone()));
        input.subscribe_with(bid, with).unwrap();
    }
    for _ in 0..buffers {
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    }
    Ends { out, input, budget, ctx, listener }
}

fn options(size_bytes: u64, max_delivery: u64) -> BufferOptions {
    BufferOptions::new().size_bytes(size_bytes).max_delivery_bytes(Some(max_delivery))
}

fn write(out: &ROut, bid: u32, size: u64) {
    let mut segment = out.buffer(bid).unwrap().segment(size, Some(WAIT)).unwrap();
    let at = segment.position();
    for (byte, at) in segment.bytes_mut().iter_mut().zip(at..) {
        *byte = (at % 251) as u8;
    }
    out.deliver(segment, size, None).unwrap();
}

/// Receives at least `least` bytes, and then more until no data comes for a while.
fn take_all(input: &RIn, least: u64) -> (Vec<InView>, u64) {
    let (mut views, mut held) = (Vec::new(), 0);
    loop {
        let wait = if held < least { WAIT } else { Duration::from_millis(100) };
        match input.recv(Some(wait)).unwrap() {
            Some(InEvent::Data(view)) => {
                held += view.len() as u64;
                views.push(view);
            }
            None if held >= least => return (views, held),
            other => panic!("{other:?} after {held} bytes that are held"),
        }
    }
}

fn give_back(got: &mut HashMap<u32, u64>, view: InView) {
    let at = got.entry(view.bid()).or_insert(view.position());
    assert_eq!(*at, view.position(), "buffer {}: nothing is missing or twice", view.bid());
    assert!(
        view.as_slice().unwrap().iter().zip(view.position()..).all(|(byte, at)| *byte == (at % 251) as u8)
    );
    *at = view.end();
    view.consume();
}

/// The system counts the backed bytes of all contexts of a process together. This test checks the bytes of one context.
#[test]
fn an_application_that_stalls_on_all_buffers_stays_within_its_budget() {
    const BUFFERS: u32 = 300;
    const EACH: u64 = 48 * KIB;
    let ends = ends(BUFFERS, &options(64 * KIB, 8 * KIB), 512 * KIB, 0);
    assert_eq!(ends.ctx.memory_in_use(), 0, "a buffer without data has no ring");
    for _ in 0..3 {
        // Without a budget that is 300 rings of 64 KiB, most of them full.
        for bid in 0..BUFFERS {
            for _ in 0..EACH / 3 / (4 * KIB) {
                write(&ends.out, bid, 4 * KIB);
            }
        }
        assert!(ends.ctx.memory_in_use() <= 512 * KIB);
    }
    until("the budget is used up", || ends.budget.waiting() > 0);
    let mut got = HashMap::new();
    // Without giving anything back that much of the budget is of use.
    let mut least = 128 * KIB;
    let total = u64::from(BUFFERS) * EACH;
    while got.values().sum::<u64>() < total {
        // The application releases nothing while it takes all data.
        let (views, held) = take_all(&ends.input, std::mem::replace(&mut least, 1));
        assert!(held <= 512 * KIB, "{held} bytes are not released");
        assert!(ends.ctx.memory_in_use() <= 512 * KIB && ends.budget.in_use_bytes() <= 512 * KIB);
        for view in views {
            give_back(&mut got, view);
        }
    }
    assert_eq!(got.len(), BUFFERS as usize);
    assert_eq!(ends.budget.waiting(), 0);
}

#[test]
fn the_least_budget_moves_the_largest_deliveries_of_all() {
    const BUFFERS: u32 = 7;
    let ends = ends(BUFFERS, &options(256 * KIB, 60 * KIB), 128 * KIB, 0);
    let out = ends.out.clone();
    let writer = std::thread::spawn(move || {
        for size in [60 * KIB, 1, 59 * KIB, 60 * KIB, 100, 60 * KIB] {
            (0..BUFFERS).for_each(|bid| write(&out, bid, size));
        }
    });
    let mut got = HashMap::new();
    let total = u64::from(BUFFERS) * (239 * KIB + 101);
    while got.values().sum::<u64>() < total {
        match ends.input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => give_back(&mut got, view),
            other => panic!("{other:?} after {got:?}"),
        }
    }
    writer.join().unwrap();
    assert!(got.values().all(|end| *end == 239 * KIB + 101));
}

#[test]
fn one_stream_does_not_keep_the_others_waiting() {
    let ends = ends(40, &options(64 * KIB, 16 * KIB), 128 * KIB, 0);
    let (out, stop) = (ends.out.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stopped = stop.clone();
    let streams: Vec<_> = (0..4)
        .map(|bid| {
            let (out, stopped) = (out.clone(), stopped.clone());
            std::thread::spawn(move || {
                while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    if let Ok(segment) =
                        out.buffer(bid).unwrap().segment(8 * KIB, Some(Duration::from_millis(50)))
                    {
                        out.deliver(segment, 8 * KIB, None).unwrap();
                    }
                }
            })
        })
        .collect();
    for bid in 4..40 {
        write(&ends.out, bid, 5000);
    }
    let mut heard = std::collections::HashSet::new();
    let deadline = Instant::now() + WAIT;
    while heard.len() < 40 {
        assert!(Instant::now() < deadline, "heard of {heard:?} only");
        if let Some(InEvent::Data(view)) = ends.input.recv(Some(WAIT)).unwrap() {
            heard.insert(view.bid());
            view.consume();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for stream in streams {
        stream.join().unwrap();
    }
}

#[test]
fn rings_go_when_nothing_comes_and_come_again() {
    let ends = ends(20, &options(64 * KIB, 8 * KIB), 8 << 20, 20);
    let mut got = HashMap::new();
    for round in 1..=3 {
        for bid in 0..20 {
            write(&ends.out, bid, 1000);
        }
        while got.values().sum::<u64>() < round * 20_000 {
            match ends.input.recv(Some(WAIT)).unwrap() {
                Some(InEvent::Data(view)) => give_back(&mut got, view),
                other => panic!("{other:?}"),
            }
        }
        // Unused grants are withdrawn.
        until("rings at rest go", || ends.ctx.memory_in_use() == 0 && ends.budget.in_use_bytes() == 0);
    }
}

#[test]
fn remaining_data_comes_when_a_view_is_dropped() {
    // The budget is enough for one ring, and a view holds it.
    let ends = ends(2, &options(64 * KIB, 32 * KIB), 64 * KIB, 0);
    write(&ends.out, 0, 30_000);
    let Some(InEvent::Data(view)) = ends.input.recv(Some(WAIT)).unwrap() else { panic!("data") };
    write(&ends.out, 1, 30_000);
    until("the other one waits or has come", || {
        ends.budget.waiting() > 0 || ends.budget.in_use_bytes() == 64 * KIB
    });
    view.consume();
    let Some(InEvent::Data(view)) = ends.input.recv(Some(WAIT)).unwrap() else { panic!("data") };
    assert_eq!((view.bid(), view.len()), (1, 30_000));
    // Unsubscribing releases bytes that a view still holds, once the view is dropped.
    ends.input.unsubscribe(1);
    drop(view);
    write(&ends.out, 0, 30_000);
    let Some(InEvent::Data(view)) = ends.input.recv(Some(WAIT)).unwrap() else { panic!("data") };
    assert_eq!(view.bid(), 0);
}

/// Bytes of a subscription without a connection return to the budget when they are released.
#[test]
fn data_of_a_lost_connection_returns_to_the_budget_when_read() {
    // The budget has room for two deliveries.
    let ends = ends(1, &options(64 * KIB, 32 * KIB), 64 * KIB, 0);
    let mut inputs = vec![ends.input.clone()];
    for _ in 0..2 {
        let input = RIn::new(&Conn::connect(&ends.ctx, &ends.listener.local_addr(), b"").unwrap());
        let budget = Some(ends.budget.clone());
        let with = SubscribeOptions::new().size_bytes(64 * KIB).budget(budget);
        input.subscribe_with(0, with).unwrap();
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        inputs.push(input);
    }
    write(&ends.out, 0, 30_000);
    until("two have it and one waits", || ends.budget.waiting() == 1);
    let mut have = Vec::new();
    while have.len() < 2 {
        inputs.retain(|input| match input.recv(Some(Duration::from_millis(1))).unwrap() {
            Some(InEvent::Data(view)) => {
                have.push((input.clone(), view));
                false
            }
            Some(other) => panic!("{other:?}"),
            None => true,
        });
    }
    let (away, view) = have.swap_remove(0);
    away.conn().close("lost");
    assert!(matches!(away.recv(Some(WAIT)).unwrap(), Some(InEvent::ConnDown { .. })));
    assert_eq!(ends.budget.waiting(), 1);
    view.consume();
    let received = inputs[0].recv(Some(WAIT)).unwrap();
    assert!(matches!(received, Some(InEvent::Data(view)) if view.len() == 30_000));
}

#[test]
fn impossible_budgets_are_refused_with_the_arithmetic() {
    let ctx = Context::new(config(0)).unwrap();
    let out = ROut::new(&ctx);
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    out.create_buffer_with(1, options(1 << 20, 100_000)).unwrap();
    let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"").unwrap());
    let budget = Some(Budget::new(200_000));
    let with = SubscribeOptions::new().size_bytes(1 << 20).budget(budget);
    input.subscribe_with(1, with).unwrap();
    assert!(matches!(out.splice(&input, 1), Err(BufferError::Budgeted(1))));
    let Some(InEvent::Refused { error, .. }) = input.recv(Some(WAIT)).unwrap() else { panic!("refused") };
    assert_eq!(error, RefusedError::Budget { budget: 200_000, max_delivery: 100_000, least: 1 << 18 });
    assert!(error.to_string().contains("262144"), "{error}");
}
