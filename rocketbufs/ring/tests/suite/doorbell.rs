//! Doorbells: a writer wakes sleeping readers in other processes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rocketring::{
    Doorbell, MAX_WATCHERS, MapError, PeerDoorbell, PeerMapper, Pool, PoolConfig, Ring, RingConfig,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn maps() -> PeerMapper {
    PeerMapper::new(16, 1 << 20)
}

fn ring() -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).unwrap();
    pool.shared_ring(RingConfig { capacity_bytes: 16 << 10, ..RingConfig::default() }).unwrap()
}

/// Whether `fd` is readable now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
}

fn peer_of(doorbell: &Doorbell) -> Arc<PeerDoorbell> {
    let [page, pipe] = doorbell.files().map(|file| file.try_clone_to_owned().unwrap());
    Arc::new(maps().doorbell(page, pipe).unwrap())
}

/// A writer rings once for each sleep, and not while the reader is awake.
#[test]
fn a_writer_rings_for_sleeping_readers() {
    let ring = ring();
    let mut writer = ring.writer().unwrap();
    let doorbell = Doorbell::new(false).unwrap();
    assert!(ring.watch((1, 2, 0), peer_of(&doorbell)));
    writer.append(&[b"awake"]).unwrap();
    assert!(!is_readable(doorbell.fd()));
    for _ in 0..3 {
        doorbell.set_asleep();
        assert!(!is_readable(doorbell.fd()));
        for _ in 0..3 {
            writer.append(&[b"asleep"]).unwrap();
            assert!(is_readable(doorbell.fd()));
        }
        doorbell.clear();
        doorbell.set_awake();
        assert!(!is_readable(doorbell.fd()), "the doorbell was rung once");
        writer.append(&[b"awake"]).unwrap();
        assert!(!is_readable(doorbell.fd()));
    }
    doorbell.set_asleep();
    ring.unwatch((1, 2, 0));
    writer.append(&[b"nobody"]).unwrap();
    assert!(!is_readable(doorbell.fd()));
    // A reader that registers after a delivery may have missed it, so registering rings its doorbell.
    assert!(ring.watch((1, 2, 0), peer_of(&doorbell)));
    assert!(is_readable(doorbell.fd()));
}

/// The number of a ring's watchers is limited. A watcher that registers again under its key counts once.
#[test]
fn watchers_are_counted() {
    let ring = ring();
    let doorbell = Doorbell::new(false).unwrap();
    for _ in 0..2 {
        for n in 0..MAX_WATCHERS as u32 {
            assert!(ring.watch((1, n, 0), peer_of(&doorbell)));
        }
    }
    assert!(!ring.watch((2, 0, 0), peer_of(&doorbell)));
    ring.unwatch((1, 7, 0));
    assert!(ring.watch((2, 0, 0), peer_of(&doorbell)));
}

/// A reader that closes its end of the pipe, or lets it fill, does not stop the writer.
#[test]
fn a_closed_or_full_doorbell_stops_no_writer() {
    let ring = ring();
    let mut writer = ring.writer().unwrap();
    let doorbell = Doorbell::new(false).unwrap();
    let [_, pipe] = doorbell.files();
    assert!(ring.watch((1, 2, 0), peer_of(&doorbell)));
    while rustix::io::write(pipe, &[0; 4096]).is_ok() {}
    doorbell.set_asleep();
    writer.append(&[b"full"]).unwrap();
    doorbell.set_awake();
    doorbell.set_asleep();
    drop(doorbell);
    writer.append(&[b"gone"]).unwrap();
}

/// A file without the format of a doorbell page is refused.
#[test]
fn a_file_that_is_no_doorbell_is_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let (doorbell, other) = (Doorbell::new(false).unwrap(), Doorbell::new(false).unwrap());
    let [page, pipe] = doorbell.files().map(|file| file.try_clone_to_owned().unwrap());
    let own = || (page.try_clone().unwrap(), pipe.try_clone().unwrap());
    let memory = |bytes| {
        let file = memfd_create("page", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    };
    assert!(matches!(maps().doorbell(memory(4096), own().1), Err(MapError::NotSealed)));
    assert!(matches!(maps().doorbell(own().1, own().1), Err(MapError::NotMemory)));
    assert!(matches!(maps().doorbell(own().0, own().0), Err(MapError::NotAPipe)), "the pipe is none");
    let null = std::fs::File::open("/dev/null").unwrap().into();
    assert!(matches!(maps().doorbell(own().0, null), Err(MapError::NotAPipe)));
    let ring = ring();
    let of_ring = ring.descriptor().unwrap().try_clone_to_owned().unwrap();
    assert!(matches!(maps().doorbell(of_ring, own().1), Err(MapError::Size(_))));
    maps().doorbell(own().0, other.files()[1].try_clone_to_owned().unwrap()).expect("any pipe will do");
}

/// The writer opens a pipe anew with its own rights. A reader names no pipe for which it has shown fewer: O_PATH needs none.
#[test]
fn a_reader_gives_only_pipes_that_it_may_read_and_write() {
    use rustix::fs::{Mode, OFlags, open};
    use std::os::fd::AsRawFd;
    let doorbell = Doorbell::new(false).unwrap();
    let page = || doorbell.files()[0].try_clone_to_owned().unwrap();
    let (read_end, _write_end) = rustix::pipe::pipe().unwrap();
    let name = format!("/proc/self/fd/{}", read_end.as_raw_fd());
    let opened = |flags| open(&name, flags, Mode::empty()).unwrap();
    for flags in [OFlags::PATH, OFlags::WRONLY, OFlags::RDONLY] {
        let refused = maps().doorbell(page(), opened(flags));
        assert!(matches!(refused, Err(MapError::NotAPipe)), "{flags:?}: {refused:?}");
    }
    maps().doorbell(page(), opened(OFlags::RDWR)).expect("it gives no more than it has");
}

/// A mapped doorbell counts as mapped memory of another process until it is dropped.
#[test]
fn doorbells_are_counted() {
    let (maps, doorbell) = (PeerMapper::new(2, 1 << 20), Doorbell::new(false).unwrap());
    let get = || {
        let [page, pipe] = doorbell.files().map(|file| file.try_clone_to_owned().unwrap());
        maps.doorbell(page, pipe)
    };
    let kept = [get().unwrap(), get().unwrap()];
    assert!(matches!(get(), Err(MapError::TooMany { in_use: 2, max: 2 })));
    drop(kept);
    assert_eq!(maps.in_use(), (0, 0));
    get().unwrap();
}
