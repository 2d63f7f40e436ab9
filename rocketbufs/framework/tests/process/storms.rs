//! The descriptors that storms of connections use.

use std::time::Duration;

use rocketbufs::proto::Message;

use crate::alone;
use crate::raw::{Raw, frame, hello};
use crate::victim::Victim;

#[test]
fn storms_of_connections_leave_nothing() {
    let _alone = alone();
    let victim = Victim::new(|config| {
        config.limits.max_connections = 300;
        config.tcp.tcp_num_threads = 2;
    });
    let addr = victim.addr();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for round in 0..20 {
        let mut storm: Vec<Raw> = (0..100).map(|_| Raw::silent(&addr)).collect();
        for (i, raw) in storm.iter_mut().enumerate() {
            match i % 4 {
                0 => raw.send(b"GET"),
                1 => raw.say(&Message::Hello(hello())),
                2 => raw.send(&[frame(&Message::Hello(hello())), vec![1, 2, 3]].concat()),
                _ => {}
            }
        }
        if round % 5 == 0 {
            victim.goes_on();
        }
    }
    victim.goes_on();
    let gone = (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        descriptors() <= before + 2
    });
    assert!(gone, "{} descriptors, {before} before", descriptors());
}
