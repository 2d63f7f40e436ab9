//! The memory of other processes' rings that a subscriber maps.

use rocketbufs::config::TransportKind;
use rocketbufs::{InEvent, RIn};

use crate::alone;
use crate::ends::{WAIT, connect, context, pattern, ring_of, sender, subscribe, write};

const KINDS: [TransportKind; 3] = [TransportKind::Tcp, TransportKind::Shm, TransportKind::Auto];

/// How often this process maps memory of rings to read it alone: the other end's.
fn read_only_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("rocketring") && line.contains(" r--s ")).count()
}

#[test]
fn views_show_the_writers_memory() {
    let _alone = alone();
    for kind in KINDS {
        let (ctx, other) = (context(kind), context(kind));
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16));
        write(&out, 1, 5_000, 5_000);
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        assert_eq!(view.to_vec().unwrap(), pattern(0, 5_000));
        // Only memory that no other process writes is borrowed as a plain slice.
        assert_eq!(view.as_slice().is_some(), kind == TransportKind::Tcp);
        if kind != TransportKind::Tcp {
            assert!(read_only_mappings() >= 2, "the head page and the data");
            assert_eq!(other.memory_in_use(), 0, "the subscriber has no ring of its own");
        }
    }
}
