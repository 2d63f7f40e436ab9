//! Rings that other processes map: a mapped ring shows the log, and hostile memory is refused.

use std::os::fd::{AsFd, OwnedFd};

use proptest::prelude::*;
use rocketring::{
    Hold, MARK_HEAD_BYTES, MARK_TAIL_BYTES, MapError, MarkError, PeerMapper, PeerRing, Pool, PoolConfig,
    PoolError, Ring, RingConfig, RingReceiver, Writer, verify, write_marks,
};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate,
    memfd_create,
};

use crate::common::{Log, content, starts};

const PAGE: u64 = 4096;
const CAPACITY: u64 = 16 << 10;
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

fn config(start: u64, flow_control: bool) -> RingConfig {
    RingConfig {
        capacity_bytes: CAPACITY,
        retain_bytes: Some(0),
        flow_control,
        start,
        ..RingConfig::default()
    }
}

fn shared(start: u64, flow_control: bool) -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).unwrap();
    pool.shared_ring(config(start, flow_control)).unwrap()
}

fn maps() -> PeerMapper {
    PeerMapper::new(100, 1 << 30)
}

fn offered(ring: &Ring) -> PeerRing {
    maps().map(ring.descriptor().unwrap().try_clone_to_owned().unwrap()).unwrap()
}

/// A writer's ring, and the same ring as another process maps it.
struct Pair {
    writer: Writer,
    seen: Ring,
    receiver: RingReceiver,
    /// The hold of the writer's process for the other end.
    kept: Hold,
    /// The hold of the other end itself.
    held: Hold,
    log: Log,
    told: u64,
}

impl Pair {
    fn new(start: u64) -> Pair {
        let ring = shared(start, true);
        let seen = offered(&ring).ring(config(start, true)).unwrap();
        let (kept, held) = (ring.hold(start).unwrap(), seen.hold(start).unwrap());
        let (writer, receiver) = (ring.writer().unwrap(), seen.receiver().unwrap());
        Pair { writer, receiver, kept, held, log: Log::new(start), told: start, seen }
    }

    fn write(&mut self, size: u64) {
        let bytes = content(self.log.head(), size as usize);
        if self.writer.append(&[&bytes]).is_ok() {
            self.log.bytes.extend_from_slice(&bytes);
            self.log.end();
        }
    }

    fn land(&mut self, most: u64) {
        let to = self.log.head().min(self.told + most.min(self.receiver.room()));
        self.receiver.land((to - self.told) as usize);
        self.told = to;
        if self.log.boundaries.contains(&to) {
            self.receiver.end();
        }
    }

    fn give_back(&mut self, most: u64) {
        let to = self.told.min(self.held.position() + most);
        self.log.check_range(&self.seen, self.held.position(), to);
        self.held.advance(to);
        // A grant says up to where the other end has released its bytes.
        self.kept.advance(self.seen.grant() - CAPACITY);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn another_mapping_sees_the_log(
        start in starts(),
        steps in prop::collection::vec((0..3u8, 1..6000u64), 1..120),
    ) {
        let mut pair = Pair::new(start);
        pair.seen.grant();
        for (what, size) in steps {
            match what {
                0 => pair.write(size.min(pair.writer.ring().max_delivery())),
                1 => pair.land(size),
                _ => pair.give_back(size),
            }
            let (boundary, head) = offered(pair.writer.ring()).ends();
            prop_assert_eq!((boundary, head), (pair.log.boundary(), pair.log.head()));
            prop_assert_eq!(pair.seen.head(), pair.told);
            prop_assert!(pair.writer.ring().tail() <= pair.held.position());
            pair.log.check_range(&pair.seen, pair.held.position(), pair.told);
        }
    }

    /// With any content of the head page, reading is safe, and bounded by the grant.
    #[test]
    fn a_hostile_head_page_does_no_harm(words in prop::collection::vec(any::<u64>(), 3), at in 0..CAPACITY) {
        let file = sealable(PAGE + CAPACITY);
        for (word, value) in [(0, MAGIC), (1, CAPACITY), (2, PAGE), (16, words[0]), (17, words[1]), (32, words[2])] {
            rustix::io::pwrite(&file, &value.to_ne_bytes(), word * 8).unwrap();
        }
        fcntl_add_seals(&file, SEALS).unwrap();
        let peer = maps().map(file).unwrap();
        prop_assert_eq!(peer.ends(), (words[1], words[0]));
        let seen = peer.ring(config(0, true)).unwrap();
        seen.grant();
        let mut receiver = seen.receiver().unwrap();
        prop_assert_eq!(receiver.room(), CAPACITY);
        receiver.land(CAPACITY as usize);
        let lapped = words[2].saturating_sub(CAPACITY) > at;
        prop_assert_eq!(seen.view(at, CAPACITY).to_vec().is_err(), lapped);
        prop_assert_eq!(seen.is_stable(at), !lapped);
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"RKTRING1");

fn sealable(bytes: u64) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    file
}

#[test]
fn no_other_process_can_write_shrink_or_grow_a_ring() {
    let ring = shared(0, true);
    let file = ring.descriptor().unwrap();
    assert_eq!(fcntl_get_seals(file).unwrap(), SEALS);
    assert!(ftruncate(file, PAGE).is_err() && ftruncate(file, 1 << 20).is_err());
    assert!(rustix::io::pwrite(file, b"x", 0).is_err());
    assert!(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, PAGE).is_err());
    assert!(fcntl_add_seals(file, SealFlags::WRITE).is_err());
    // The writer itself continues.
    ring.writer().unwrap().append(&[b"mine"]).unwrap();
    assert_eq!(ring.view(0, 4).to_vec().unwrap(), b"mine");
}

#[test]
fn an_unsealed_ring_is_refused() {
    let refused = |file: OwnedFd| maps().map(file).err();
    let pipe = rustix::pipe::pipe().unwrap().0;
    assert!(matches!(refused(pipe), Some(MapError::NotMemory)));
    assert!(matches!(refused(std::fs::File::open("/dev/zero").unwrap().into()), Some(MapError::NotMemory)));
    let all = [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL];
    for missing in all {
        let file = sealable(PAGE + CAPACITY);
        fcntl_add_seals(&file, SEALS - missing).unwrap();
        assert!(matches!(refused(file), Some(MapError::NotSealed)), "without {missing:?}");
    }
    for size in [0, 1, PAGE, PAGE + CAPACITY - 1, PAGE + CAPACITY + 1, PAGE + 3 * PAGE, u64::MAX >> 1] {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        if ftruncate(&file, size).is_ok() {
            fcntl_add_seals(&file, SEALS).unwrap();
            assert!(matches!(refused(file), Some(MapError::Size(told)) if told == size));
        }
    }
    for (word, value) in [(0, 7), (1, 2 * CAPACITY), (2, 0)] {
        let file = sealable(PAGE + CAPACITY);
        for (word, value) in [(0, MAGIC), (1, CAPACITY), (2, PAGE), (word, value)] {
            rustix::io::pwrite(&file, &value.to_ne_bytes(), word * 8).unwrap();
        }
        fcntl_add_seals(&file, SEALS).unwrap();
        assert!(matches!(refused(file), Some(MapError::NotARing)));
    }
}

/// One thread lands deliveries as notices announce them, another thread as it sees them in the head page. Each delivery
/// lands once, and as a whole.
#[test]
fn notified_and_polling_readers_land_the_same_log() {
    let total = 1_u64 << 20;
    let Pair { mut writer, mut receiver, kept, held, seen, .. } = Pair::new(0);
    seen.grant();
    let (tell, told) = std::sync::mpsc::sync_channel::<u64>(64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while writer.head() < total {
                let bytes = content(writer.head(), 64);
                if let Ok(end) = writer.append(&[&bytes]) {
                    // The channel is short, so some notices come late and others never.
                    let _ = tell.try_send(end);
                } else {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(move || {
            for end in told {
                // An announced delivery has landed already, or lands now because there was room for it.
                assert!(receiver.land_announced(end, true).is_ok());
            }
        });
        let mut log = Log::new(0);
        while log.head() < total {
            seen.follow();
            let boundary = seen.boundary();
            assert!(boundary.is_multiple_of(64) && boundary >= log.head());
            let bytes: Vec<u8> = (log.head()..boundary).step_by(64).flat_map(|at| content(at, 64)).collect();
            assert!(seen.view(log.head(), boundary).to_vec().unwrap() == bytes);
            log.bytes.extend_from_slice(&bytes);
            held.advance(boundary);
            kept.advance(seen.grant() - CAPACITY);
        }
        assert!(!seen.has_new_data() && !seen.follow() && seen.head() == total);
    });
}

/// Bytes beyond the grant do not land, neither announced nor seen.
#[test]
fn no_writer_lands_more_than_was_granted() {
    let ring = shared(0, true);
    let seen = offered(&ring).ring(config(0, true)).unwrap();
    let (held, mut receiver) = (seen.hold(0).unwrap(), seen.receiver().unwrap());
    seen.grant();
    let mut writer = ring.writer().unwrap();
    // A writer that ignores the grant: no hold stops it.
    for _ in 0..CAPACITY / 1024 + 1 {
        writer.append(&[&[1; 1024]]).unwrap();
    }
    assert!(!seen.has_new_data() && !seen.follow());
    assert_eq!(receiver.land_announced(CAPACITY + 1024, true), Err(1024));
    assert_eq!(seen.head(), 0);
    assert_eq!(receiver.land_announced(1024, true), Ok(()));
    held.advance(1024);
    seen.grant();
    assert!(seen.follow() && seen.boundary() == CAPACITY + 1024);
    // A late notice changes nothing.
    assert_eq!(receiver.land_announced(2048, true), Ok(()));
    assert_eq!((seen.head(), seen.boundary()), (CAPACITY + 1024, CAPACITY + 1024));
}

/// Without flow control nothing holds the writer, and a reader that is too slow gets an error.
#[test]
fn a_lapped_reader_gets_an_error() {
    let ring = shared(0, false);
    let mut writer = ring.writer().unwrap();
    let seen = offered(&ring).ring(config(0, false)).unwrap();
    let mut receiver = seen.receiver().unwrap();
    writer.append(&[&[1; 1000]]).unwrap();
    receiver.land(1000);
    receiver.end();
    assert_eq!(seen.view(0, 1000).to_vec().unwrap(), [1; 1000]);
    while ring.horizon() <= CAPACITY {
        writer.append(&[&[2; 1000]]).unwrap();
    }
    // No notice told the reader of the newer bytes. The head page has their position.
    let lapped = seen.view(0, 1000).to_vec().unwrap_err();
    assert_eq!(lapped.by, ring.horizon() - CAPACITY);
    assert!(!seen.is_stable(0));
    receiver.land((ring.head() - 1000) as usize);
    assert_eq!(seen.head(), ring.head());
    assert!(seen.tail() >= ring.head().saturating_sub(CAPACITY));
}

/// Held bytes before a hole stay readable, however long the hole is.
#[test]
fn held_memory_is_whole_behind_a_hole() {
    let ring = shared(0, true);
    let (kept, mut origin) = (ring.hold(0).unwrap(), ring.receiver().unwrap());
    let seen = offered(&ring).ring(config(0, true)).unwrap();
    seen.grant();
    let mut receiver = seen.receiver().unwrap();
    origin.copy_in(&[1; 1000]);
    origin.end();
    receiver.land(1000);
    receiver.end();
    let hole = 2 * CAPACITY;
    origin.skip(hole);
    for _ in 0..2 {
        assert_eq!(seen.view(0, 1000).to_vec(), Ok(vec![1; 1000]));
        // A grant changes nothing while the bytes are held.
        assert_eq!(ring.grant(), hole);
    }
    kept.advance(hole);
    assert_eq!(ring.grant(), hole + CAPACITY);
    assert!(seen.view(0, 1000).to_vec().is_err());
}

#[test]
fn only_its_writer_writes_it() {
    let ring = shared(0, true);
    let seen = offered(&ring).ring(config(0, true)).unwrap();
    assert!(seen.is_peer_written() && !ring.is_peer_written());
    assert!(seen.writer().is_none());
    let mut receiver = seen.receiver().unwrap();
    assert_eq!(receiver.copy_in(b"not here"), 0);
    assert_eq!(receiver.spare(100).1, 0);
    let trimmed = receiver.trim(0);
    assert_eq!((trimmed.given_back, trimmed.left), (0, CAPACITY));
    // A mapped ring can be offered to a third process, and is recognised as the same ring.
    let again = maps().map(seen.descriptor().unwrap().try_clone_to_owned().unwrap()).unwrap();
    assert!(again.is(&ring) && again.is(&seen) && !again.is(&shared(0, true)));
    assert!(rustix::io::pwrite(seen.descriptor().unwrap().as_fd(), b"x", 0).is_err());
}

#[test]
fn limits_count_mapped_and_released_rings() {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 2 * CAPACITY }).unwrap();
    let rings: Vec<_> = (0..2).map(|_| pool.shared_ring(config(0, true)).unwrap()).collect();
    assert!(matches!(pool.shared_ring(config(0, true)), Err(PoolError::Limit { .. })));
    assert_eq!(pool.in_use_bytes(), 2 * CAPACITY);
    let fd = |ring: &Ring| ring.descriptor().unwrap().try_clone_to_owned().unwrap();

    let few = PeerMapper::new(1, 1 << 30);
    let first = few.map(fd(&rings[0])).unwrap();
    assert!(matches!(few.map(fd(&rings[1])), Err(MapError::TooMany { in_use: 1, max: 1 })));
    let seen = first.ring(config(0, true)).unwrap();
    assert_eq!(few.in_use(), (1, CAPACITY));
    drop(seen);
    assert_eq!(few.in_use(), (0, 0));

    let small = PeerMapper::new(9, CAPACITY + 1);
    let _first = small.map(fd(&rings[0])).unwrap();
    let refused = small.map(fd(&rings[1])).unwrap_err();
    assert!(matches!(refused, MapError::TooLarge { asked: CAPACITY, in_use: CAPACITY, .. }), "{refused}");

    // The memory stays until the last mapping is dropped.
    let seen = few.map(fd(&rings[0])).unwrap().ring(config(0, true)).unwrap();
    rings[0].writer().unwrap().append(&[b"last words"]).unwrap();
    drop(rings);
    assert_eq!(pool.in_use_bytes(), 0);
    assert_eq!(offered(&seen).ends(), (10, 10));
    seen.grant();
    seen.receiver().unwrap().land(10);
    assert_eq!(seen.view(0, 10).to_vec().unwrap(), b"last words");
}

/// A dead writer may have delivered more than its last notice says: those deliveries land. Bytes that it wrote and did not
/// deliver do not land.
#[test]
fn deliveries_of_a_dead_writer_are_there() {
    let ring = shared(0, true);
    let mut writer = ring.writer().unwrap();
    let seen = offered(&ring).ring(config(0, true)).unwrap();
    seen.grant();
    let mut receiver = seen.receiver().unwrap();
    assert!(!receiver.land_remaining(), "nothing was written");
    writer.append(&[b"told"]).unwrap();
    receiver.land(4);
    receiver.end();
    writer.append(&[b"not told"]).unwrap();
    let mut claim = writer.claim(100).unwrap();
    claim.bytes().fill(1);
    assert!(receiver.land_remaining());
    assert_eq!((seen.head(), seen.boundary()), (12, 12));
    assert_eq!(seen.view(4, 12).to_vec().unwrap(), b"not told");
    assert!(!receiver.land_remaining());

    // Nothing lands beyond the grant or behind a hole.
    let ring = shared(0, true);
    let (mut origin, seen) = (ring.receiver().unwrap(), offered(&ring).ring(config(0, true)).unwrap());
    seen.grant();
    let mut receiver = seen.receiver().unwrap();
    origin.copy_in(b"before");
    origin.end();
    origin.skip(1000);
    origin.copy_in(b"behind");
    origin.end();
    assert!(!receiver.land_remaining(), "the positions behind the hole are not known here");
    receiver.land(6);
    receiver.skip(1000);
    assert!(receiver.land_remaining());
    assert_eq!((seen.boundary(), seen.view(1000, 1006).to_vec().unwrap()), (1006, b"behind".to_vec()));
}

/// A follower does not know the ends of deliveries inside a step. A relay of the ring therefore takes no step that is longer
/// than the largest delivery. After the writer is gone, no notice announces ends any more.
#[test]
fn a_relay_of_a_ring_follows_in_small_steps() {
    let ring = shared(0, true);
    let mut writer = ring.writer().unwrap();
    let seen = offered(&ring).ring(config(0, true)).unwrap();
    seen.grant();
    seen.set_relayed();
    let mut receiver = seen.receiver().unwrap();
    let most = seen.max_delivery();
    let step = vec![1; most as usize];
    writer.append(&[&step]).unwrap();
    assert!(receiver.has_new_data() && receiver.follow());
    assert_eq!(seen.boundary(), most);
    writer.append(&[&step]).unwrap();
    writer.append(&[b"one more"]).unwrap();
    assert!(most + 8 <= receiver.room(), "there is room for it");
    assert!(!receiver.has_new_data() && !receiver.follow());
    assert_eq!((seen.head(), seen.boundary()), (most, most));
    assert!(receiver.land_remaining());
    assert_eq!((seen.head(), seen.boundary()), (2 * most + 8, 2 * most + 8));
}

/// A delivery with marks at position 0, whose checksum is that of other bytes.
fn with_a_wrong_checksum() -> Vec<u8> {
    let mut bytes = content(1, MARK_HEAD_BYTES + 1000 + MARK_TAIL_BYTES);
    write_marks(&mut bytes, 0);
    bytes[MARK_HEAD_BYTES + 500] ^= 1;
    bytes
}

#[test]
fn the_checksum_of_bytes_that_were_moved_is_compared() {
    let (bytes, end) = (with_a_wrong_checksum(), 1032);
    let ring = shared(0, false);
    let seen = offered(&ring).ring(config(0, false)).unwrap();
    let mut from_network = ring.receiver().unwrap();
    assert_eq!(from_network.copy_in(&bytes), bytes.len());
    from_network.end();
    seen.receiver().unwrap().land_announced(end, true).unwrap();
    for ring in [&ring, &seen] {
        assert_eq!(verify(&ring.view(0, end)), Err(MarkError::Checksum { at: 0 }));
    }
}

#[test]
fn bytes_that_lie_where_their_writer_made_them_are_not_read() {
    let (mut bytes, end) = (with_a_wrong_checksum(), 1032);
    let map = |bytes: &[u8]| {
        let ring = shared(0, false);
        let mut writer = ring.writer().unwrap();
        let seen = offered(&ring).ring(config(0, false)).unwrap();
        writer.append(&[bytes]).unwrap();
        seen.receiver().unwrap().land_announced(end, true).unwrap();
        (writer, seen)
    };
    let (mut writer, seen) = map(&bytes);
    assert_eq!(verify(&seen.view(0, end)).map(|payload| payload.len), Ok(1000));
    // A reader that was overtaken learns it all the same.
    while writer.ring().head() < CAPACITY {
        writer.append(&[&content(2, 1000)]).unwrap();
    }
    assert!(matches!(verify(&seen.view(0, end)), Err(MarkError::Lapped(_))));
    // Other marks are those of another delivery.
    for at in [0, bytes.len() - MARK_TAIL_BYTES] {
        bytes[at] ^= 1;
        assert_eq!(verify(&map(&bytes).1.view(0, end)), Err(MarkError::Torn { at: 0 }));
        bytes[at] ^= 1;
    }
}
