//! The doorbells that readers give to the writer whose memory they map.

use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::{ProgressLevel, RIn};

use crate::alone;
use crate::ends::{WAIT, connect, context, ring_of, sender, subscribe, take, write};

/// Subscribers that come and go leave nothing with the publisher that they never talked to.
#[test]
fn doorbells_of_readers_that_left_are_given_back() {
    let _alone = alone();
    let [source, broker] = [(); 2].map(|()| context(TransportKind::Shm));
    let (out, listener) = sender(&source);
    out.create_buffer(1, 1 << 16).unwrap();
    let (relay, relays) = sender(&broker);
    let upstream = RIn::new(&connect(&broker, &listener));
    relay.splice_with(&upstream, 1, 1, ring_of(1 << 16)).unwrap();
    let pipes = || {
        let of = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
        let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(of);
        files.filter(|path| path.to_string_lossy().starts_with("pipe:")).count()
    };
    let mut before = None;
    for n in 0..20 {
        let ctx = context(TransportKind::Shm);
        let input = RIn::new(&connect(&ctx, &relays));
        let at = subscribe(&input, 1, ring_of(1 << 16));
        write(&out, 1, 10, 10);
        assert_eq!(take(&input, at, at + 10), 0);
        out.buffer(1).unwrap().wait(ProgressLevel::Consumed, at + 10, Some(WAIT)).unwrap();
        input.conn().close("done");
        drop((input, ctx));
        while relay.buffer(1).unwrap().info().unwrap().subscribers > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if n == 4 {
            before = Some(pipes());
        }
    }
    assert!(pipes() <= before.unwrap() + 8, "{before:?} pipes before, {} after", pipes());
}
