//! Clients that come and go in many threads, while their broker does too. The only test of its process, since it counts the
//! threads and the descriptors of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rbmq::{Event, Notice, Publisher, Subscriber};
use rbmq_broker::{Broker, BrokerConfig};
use rocketbufs::{Config, Context};
use testkit::own_addr;

const LIMIT: Duration = Duration::from_secs(60);

fn broker_at(addr: &str) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = addr.into();
    Broker::start(config).unwrap()
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Connects and drops clients, some of which never had a broker to connect to.
fn come_and_go(addr: &str, over: &AtomicBool) {
    let context = Context::new(Config::default()).unwrap();
    while !over.load(Ordering::Relaxed) {
        let subscriber = Subscriber::builder().context(&context).connect(addr);
        let publisher = Publisher::connect(addr);
        let topic = publisher.as_ref().ok().map(|publisher| publisher.topic("t"));
        if subscriber.is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop((publisher, subscriber, topic));
    }
}

fn next_notice(subscriber: &mut Subscriber, wanted: fn(&Notice) -> bool) {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        match subscriber.next_event(Some(Duration::from_millis(100))) {
            Ok(Some(Event::Notice(notice))) if wanted(&notice) => return,
            _ => {}
        }
    }
    panic!("the subscriber has no connection");
}

#[test]
fn nothing_is_left_and_no_loss_is_missed() {
    let addr = own_addr();
    let (threads, descriptors) = (count("/proc/self/task"), count("/proc/self/fd"));
    let mut broker = Some(broker_at(&addr));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| come_and_go(&addr, &over));
        }
        let context = Context::new(Config::default()).unwrap();
        let connect = || Subscriber::builder().context(&context).connect(&addr).unwrap();
        let mut stay = [connect(), connect()];
        for _ in 0..8 {
            drop(broker.take());
            stay.iter_mut().for_each(|s| next_notice(s, |n| matches!(n, Notice::Disconnected(_))));
            broker = Some(broker_at(&addr));
            stay.iter_mut().for_each(|s| next_notice(s, |n| matches!(n, Notice::Reconnected)));
        }
        over.store(true, Ordering::Relaxed);
    });
    drop(broker);
    let start = Instant::now();
    while count("/proc/self/task") > threads || count("/proc/self/fd") > descriptors {
        let present = (count("/proc/self/task"), count("/proc/self/fd"));
        assert!(start.elapsed() < LIMIT, "{:?} were {:?}", present, (threads, descriptors));
        std::thread::sleep(Duration::from_millis(20));
    }
}
