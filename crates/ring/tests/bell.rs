//! Bells: readers in other processes that sleep are woken by who writes.
#![cfg(not(loom))]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rocketring::{Bell, MAX_WATCHERS, MapError, Maps, PeerBell, Pool, PoolConfig, Ring, RingConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn maps() -> Maps {
    Maps::new(16, 1 << 20)
}

fn ring() -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).unwrap();
    pool.shared_ring(RingConfig { capacity_bytes: 16 << 10, ..RingConfig::default() }).unwrap()
}

/// Whether something can be read from it now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
}

fn peer_of(bell: &Bell) -> Arc<PeerBell> {
    let [page, pipe] = bell.files().map(|file| file.try_clone_to_owned().unwrap());
    Arc::new(maps().bell(page, pipe).unwrap())
}

/// A writer rings once for each sleep, and not while the reader is awake.
#[test]
fn a_writer_rings_for_those_who_sleep() {
    let ring = ring();
    let mut writer = ring.writer().unwrap();
    let bell = Bell::new(false).unwrap();
    assert!(ring.watch((1, 2, 0), peer_of(&bell)));
    writer.append(&[b"awake"]).unwrap();
    assert!(!is_readable(bell.fd()));
    for _ in 0..3 {
        bell.fall_asleep();
        assert!(!is_readable(bell.fd()));
        for _ in 0..3 {
            writer.append(&[b"asleep"]).unwrap();
            assert!(is_readable(bell.fd()));
        }
        bell.hear();
        bell.wake_up();
        assert!(!is_readable(bell.fd()), "it was rung once");
        writer.append(&[b"awake"]).unwrap();
        assert!(!is_readable(bell.fd()));
    }
    bell.fall_asleep();
    ring.unwatch((1, 2, 0));
    writer.append(&[b"nobody"]).unwrap();
    assert!(!is_readable(bell.fd()));
    // Who comes while there may be news is rung for in any case.
    assert!(ring.watch((1, 2, 0), peer_of(&bell)));
    assert!(is_readable(bell.fd()));
}

/// A ring has so many watchers; one that registers again under its key is one.
#[test]
fn watchers_are_counted() {
    let ring = ring();
    let bell = Bell::new(false).unwrap();
    for _ in 0..2 {
        for n in 0..MAX_WATCHERS as u32 {
            assert!(ring.watch((1, n, 0), peer_of(&bell)));
        }
    }
    assert!(!ring.watch((2, 0, 0), peer_of(&bell)));
    ring.unwatch((1, 7, 0));
    assert!(ring.watch((2, 0, 0), peer_of(&bell)));
}

/// A reader that closes its end, or fills the pipe, costs its writer nothing but that.
#[test]
fn a_bell_that_is_gone_or_full_stops_nobody() {
    let ring = ring();
    let mut writer = ring.writer().unwrap();
    let bell = Bell::new(false).unwrap();
    let [_, pipe] = bell.files();
    assert!(ring.watch((1, 2, 0), peer_of(&bell)));
    while rustix::io::write(pipe, &[0; 4096]).is_ok() {}
    bell.fall_asleep();
    writer.append(&[b"full"]).unwrap();
    bell.wake_up();
    bell.fall_asleep();
    drop(bell);
    writer.append(&[b"gone"]).unwrap();
}

/// What is no bell is refused.
#[test]
fn what_is_no_bell_is_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let (bell, other) = (Bell::new(false).unwrap(), Bell::new(false).unwrap());
    let [page, pipe] = bell.files().map(|file| file.try_clone_to_owned().unwrap());
    let own = || (page.try_clone().unwrap(), pipe.try_clone().unwrap());
    let memory = |bytes| {
        let file = memfd_create("page", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    };
    assert!(matches!(maps().bell(memory(4096), own().1), Err(MapError::NotSealed)));
    assert!(matches!(maps().bell(own().1, own().1), Err(MapError::NotMemory)));
    assert!(matches!(maps().bell(own().0, own().0), Err(MapError::NotMemory)), "the pipe is none");
    let null = std::fs::File::open("/dev/null").unwrap().into();
    assert!(matches!(maps().bell(own().0, null), Err(MapError::NotMemory)));
    let ring = ring();
    let of_ring = ring.descriptor().unwrap().try_clone_to_owned().unwrap();
    assert!(matches!(maps().bell(of_ring, own().1), Err(MapError::Size(_))));
    maps().bell(own().0, other.files()[1].try_clone_to_owned().unwrap()).expect("any pipe will do");
}

/// Bells count among what of other processes is mapped, as long as they are there.
#[test]
fn bells_are_counted() {
    let (maps, bell) = (Maps::new(2, 1 << 20), Bell::new(false).unwrap());
    let get = || {
        let [page, pipe] = bell.files().map(|file| file.try_clone_to_owned().unwrap());
        maps.bell(page, pipe)
    };
    let kept = [get().unwrap(), get().unwrap()];
    assert!(matches!(get(), Err(MapError::TooMany { in_use: 2, max: 2 })));
    drop(kept);
    assert_eq!(maps.in_use(), (0, 0));
    get().unwrap();
}
