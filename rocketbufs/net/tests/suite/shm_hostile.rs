//! Hostile peers of shared memory: any message ends the peer's own connection or is reported, and no resource of the peer
//! remains.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet::wire::{
    Header, LOCAL_DOORBELL, LOCAL_DOORBELL_PAGE, LOCAL_OFFER, LOCAL_RANGE, LOCAL_WATCH, local_message,
};
use rocketnet::{ConnId, Down, Event, Transport};
use rocketring::{MapError, PeerMapper, Pool, PoolConfig, Ring, RingConfig, Waker};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::wait::wait;

const CAPACITY: u64 = 64 << 10;

/// A listening transport, and a peer that sends any bytes.
struct Scene {
    link: Tcp,
    maps: PeerMapper,
    conn: ConnId,
    peer: UnixStream,
}

impl Scene {
    fn new() -> Self {
        let maps = PeerMapper::new(2, 1 << 20);
        let config = TcpConfig { carry: Carry::Shm, ..TcpConfig::default() };
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let mut link = Tcp::with_maps(config, waker, maps.clone()).expect("a transport");
        let addr = link.listen("127.0.0.1:0").expect("a free name");
        let name = SocketAddr::from_abstract_name(format!("rocketbufs/{addr}")).expect("a short name");
        let peer = UnixStream::connect_addr(&name).expect("a process listens");
        let accepted = wait(&mut link, |event| match event {
            Event::Incoming(accepted) => Some(accepted),
            _ => None,
        });
        let conn = link.adopt(accepted).expect("place for one");
        assert_eq!(link.carrier(conn).name, "shm");
        Self { link, maps, conn, peer }
    }

    fn say(&mut self, kind: u32, wire: u32, size: u32) {
        let range = Header { wire, more: false, size };
        self.peer.write_all(&local_message(kind, range)).expect("the victim reads");
    }

    fn offer(&self, wire: u32, files: &[BorrowedFd<'_>]) {
        self.send_files(&local_message(LOCAL_OFFER, Header { wire, more: false, size: 0 }), files);
    }

    fn send_files(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(files)));
        let sent = rustix::net::sendmsg(&self.peer, &[IoSlice::new(bytes)], &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(bytes.len()));
    }

    fn offered(&mut self) -> Result<Box<rocketring::PeerRing>, MapError> {
        wait(&mut self.link, |event| match event {
            Event::Offered(_, _, offered) => Some(offered.ring),
            Event::Down(_, why) => panic!("{why}"),
            _ => None,
        })
    }

    fn down(&mut self) -> Down {
        wait(&mut self.link, |event| if let Event::Down(_, why) = event { Some(why) } else { None })
    }

    /// Offers a ring and binds the received one.
    fn bind(&mut self, wire: u32) -> Ring {
        let source = shared();
        self.offer(wire, &[source.descriptor().expect("a shared ring")]);
        let seen = self.offered().expect("an honest ring").ring(config()).expect("a ring");
        seen.grant();
        self.link.bind(self.conn, wire, seen.receiver().expect("the first"));
        seen
    }
}

fn config() -> RingConfig {
    RingConfig { capacity_bytes: CAPACITY, retain_bytes: Some(0), ..RingConfig::default() }
}

fn pool() -> Pool {
    Pool::new(PoolConfig::default()).expect("a pool")
}

fn shared() -> Ring {
    pool().shared_ring(config()).expect("a ring")
}

#[test]
fn a_range_beyond_the_grant_ends_the_connection() {
    let mut scene = Scene::new();
    let seen = scene.bind(7);
    scene.say(LOCAL_RANGE, 7, 1000);
    wait(&mut scene.link, |event| matches!(event, Event::Arrived(_, 7)).then_some(()));
    assert_eq!((seen.head(), seen.boundary()), (1000, 1000));
    scene.say(LOCAL_RANGE, 7, CAPACITY as u32 + 1000);
    assert_eq!(scene.down(), Down::Overrun { wire: 7, at: 1000, size: CAPACITY, over: 1000 });
    assert_eq!(seen.head(), 1000);
}

#[test]
fn a_range_of_a_ring_that_was_not_offered_ends_the_connection() {
    let mut scene = Scene::new();
    scene.say(LOCAL_RANGE, 3, 10);
    assert_eq!(scene.down(), Down::UnknownWire(3));
    // Nor does a private ring become the peer's by being named.
    let mut scene = Scene::new();
    let own = pool().ring(config()).expect("a ring");
    scene.link.bind(scene.conn, 3, own.receiver().expect("the first"));
    scene.say(LOCAL_RANGE, 3, 10);
    assert!(matches!(scene.down(), Down::Broken(_)));
    assert_eq!(own.head(), 0);
}

#[test]
fn bytes_for_a_mapped_ring_end_the_connection() {
    let mut scene = Scene::new();
    let seen = scene.bind(5);
    let header = Header { wire: 5, more: false, size: 4 };
    scene.peer.write_all(&[&header.encode()[..], b"four"].concat()).expect("the victim reads");
    assert!(matches!(scene.down(), Down::Overrun { wire: 5, .. }));
    assert_eq!(seen.head(), 0);
}

#[test]
fn an_unknown_kind_of_message_ends_the_connection() {
    let mut scene = Scene::new();
    scene.say(99, 1, 1);
    assert!(matches!(scene.down(), Down::Broken(why) if why.contains("0x63")));
}

#[test]
fn an_offer_without_a_descriptor_ends_the_connection() {
    let mut scene = Scene::new();
    scene.offer(1, &[]);
    assert!(matches!(scene.down(), Down::Descriptors(_)));
}

#[test]
fn unannounced_descriptors_end_the_connection() {
    let file = std::fs::File::open("/dev/null").expect("the file exists");
    let mut scene = Scene::new();
    scene.offer(1, &[file.as_fd(); 8]);
    assert!(matches!(scene.down(), Down::Descriptors(_)));

    let mut scene = Scene::new();
    for _ in 0..3 {
        scene.offer(1, &[file.as_fd(); 4]);
    }
    assert!(matches!(scene.down(), Down::Descriptors(_)));
}

#[test]
fn a_file_that_is_no_ring_is_reported_and_closed() {
    let mut scene = Scene::new();
    let file: OwnedFd = std::fs::File::open("/dev/zero").expect("the file exists").into();
    scene.offer(1, &[file.as_fd()]);
    assert!(matches!(scene.offered(), Err(MapError::NotMemory)));
    // The connection is not to blame for the subscription.
    drop(scene.bind(2));
    assert_eq!(scene.maps.in_use(), (1, CAPACITY), "its receiver is still bound");
    scene.link.unbind(scene.conn, 2);
    assert_eq!(scene.maps.in_use(), (0, 0));
}

#[test]
fn offers_are_limited_and_count_nothing_once_they_are_dropped() {
    let mut scene = Scene::new();
    let _kept = [scene.bind(1), scene.bind(2)];
    let third = shared();
    scene.offer(3, &[third.descriptor().expect("a shared ring")]);
    assert!(matches!(scene.offered(), Err(MapError::TooMany { in_use: 2, max: 2 })));

    let mut scene = Scene::new();
    for wire in 0..100 {
        scene.offer(wire, &[third.descriptor().expect("a shared ring")]);
        drop(scene.offered().expect("nothing is in use"));
    }
    assert_eq!(scene.maps.in_use(), (0, 0));
}

/// Deliveries that a peer did not announce land before `Down` is reported, also if the connection ends inside a message. Bytes
/// that the peer did not deliver do not land.
#[test]
fn deliveries_of_a_peer_land_after_the_peer_is_gone() {
    for said in [0, 11] {
        let mut scene = Scene::new();
        let source = shared();
        let mut writer = source.writer().expect("the first");
        scene.offer(7, &[source.descriptor().expect("a shared ring")]);
        let seen = scene.offered().expect("an honest ring").ring(config()).expect("a ring");
        seen.grant();
        scene.link.bind(scene.conn, 7, seen.receiver().expect("the first"));
        writer.append(&[b"announced"]).expect("there is room");
        scene.say(LOCAL_RANGE, 7, 9);
        writer.append(&[b" and not"]).expect("there is room");
        let _open = writer.claim(10).expect("there is room");
        let bytes = local_message(LOCAL_RANGE, Header { wire: 7, more: false, size: 13 });
        scene.peer.write_all(&bytes[..said]).expect("the victim reads");
        scene.peer.shutdown(std::net::Shutdown::Both).expect("the connection is open");
        let mut events = Vec::new();
        for _ in 0..60_000 {
            scene.link.poll(Some(Duration::from_millis(1)), &mut events);
            if matches!(events.last(), Some(Event::Down(..))) {
                break;
            }
        }
        assert!(matches!(events[..], [.., Event::Arrived(_, 7), Event::Down(..)]), "{events:?}");
        assert_eq!((seen.boundary(), seen.head()), (17, 17));
        assert_eq!(seen.view(0, 17).to_vec(), Ok(b"announced and not".to_vec()));
    }
}

#[test]
fn a_peer_that_dies_inside_a_message_is_reported() {
    let mut scene = Scene::new();
    let bytes = local_message(LOCAL_OFFER, Header { wire: 1, more: false, size: 0 });
    scene.peer.write_all(&bytes[..11]).expect("the victim reads");
    scene.peer.shutdown(std::net::Shutdown::Both).expect("the connection is open");
    assert!(matches!(scene.down(), Down::Broken(_)));
}

#[test]
fn both_carry_one_address_and_say_why() {
    let auto = TcpConfig { carry: Carry::Auto, ..TcpConfig::default() };
    let tcp = |config: &TcpConfig| {
        Tcp::new(config.clone(), Arc::new(Waker::new().expect("an eventfd"))).expect("a transport")
    };
    let (mut server, mut client, mut plain) = (tcp(&auto), tcp(&auto), tcp(&TcpConfig::default()));
    let up = |event| if let Event::Connected(conn) = event { Some(conn) } else { None };
    let addr = server.listen("127.0.0.1:0").expect("a free port");
    for (link, name) in [(&mut client, "shm"), (&mut plain, "tcp")] {
        let conn = link.connect(&addr).expect("an address");
        assert_eq!(wait(link, up), conn);
        let carrier = link.carrier(conn);
        assert_eq!(carrier.name, name, "{}", carrier.why);
        let accepted = wait(&mut server, |event| match event {
            Event::Incoming(accepted) => Some(accepted),
            _ => None,
        });
        assert_eq!(accepted.local, addr);
        let conn = server.adopt(accepted).expect("place");
        assert_eq!(server.carrier(conn).name, name);
    }
    // No process listens for shared memory: the carrier is TCP, with the reason.
    let addr = plain.listen("127.0.0.1:0").expect("a free port");
    let conn = client.connect(&addr).expect("an address");
    wait(&mut client, up);
    let carrier = client.carrier(conn);
    assert_eq!(carrier.name, "tcp");
    assert!(carrier.why.contains("shared memory"), "{}", carrier.why);
}

/// Files that are no doorbells are ignored, and the connection continues. A doorbell number beyond the limit ends the
/// connection.
#[test]
fn files_that_are_no_doorbells_are_ignored() {
    let mut scene = Scene::new();
    let seen = scene.bind(7);
    let doorbell = rocketring::Doorbell::new(false).expect("a doorbell");
    let [page, pipe] = doorbell.files();
    let about = |number| Header { wire: 0, more: false, size: number };
    for (page, pipe) in [(page, page), (pipe, pipe), (pipe, page)] {
        scene.send_files(&local_message(LOCAL_DOORBELL_PAGE, about(0)), &[page]);
        scene.send_files(&local_message(LOCAL_DOORBELL, about(0)), &[pipe]);
        scene.say(LOCAL_WATCH, 7, 0);
    }
    // A number without a doorbell.
    scene.say(LOCAL_WATCH, 7, 9);
    scene.say(LOCAL_RANGE, 7, 10);
    wait(&mut scene.link, |event| {
        assert!(!matches!(event, Event::Watched(..)), "{event:?}");
        matches!(event, Event::Arrived(_, 7)).then_some(())
    });
    assert_eq!(seen.head(), 10);
    scene.send_files(&local_message(LOCAL_DOORBELL_PAGE, about(1)), &[page]);
    scene.send_files(&local_message(LOCAL_DOORBELL, about(1)), &[pipe]);
    scene.say(LOCAL_WATCH, 7, 1);
    wait(&mut scene.link, |event| matches!(event, Event::Watched(_, 7, 1, Some(_))).then_some(()));
    scene.send_files(&local_message(LOCAL_DOORBELL_PAGE, about(u32::MAX)), &[page]);
    scene.send_files(&local_message(LOCAL_DOORBELL, about(u32::MAX)), &[pipe]);
    assert!(matches!(scene.down(), Down::Broken(_)));
}

#[test]
fn a_doorbell_without_its_descriptor_ends_the_connection() {
    for kind in [LOCAL_DOORBELL_PAGE, LOCAL_DOORBELL] {
        let mut scene = Scene::new();
        scene.say(kind, 0, 0);
        assert!(matches!(scene.down(), Down::Descriptors(_)));
    }
}

/// Messages about readers that leave are queued up to a limit. Beyond it the connection ends, as the peer reads nothing.
#[test]
fn a_peer_that_reads_no_messages_is_given_up() {
    let mut scene = Scene::new();
    for number in 0..1 << 20 {
        scene.link.drop_watcher(scene.conn, 7, number);
    }
    let why = scene.down();
    assert!(matches!(&why, Down::Local(why) if why.contains("reads no")), "{why}");
}

/// A full queue refuses further readers until the peer reads again.
#[test]
fn a_queue_that_is_full_takes_no_more_readers() {
    let mut scene = Scene::new();
    let doorbell = rocketring::Doorbell::new(false).expect("a doorbell");
    let [page, pipe] = doorbell.files().map(|file| file.try_clone_to_owned().expect("a descriptor"));
    let doorbell = Arc::new(scene.maps.doorbell(page, pipe).expect("a doorbell"));
    let Scene { link, conn, peer, .. } = &mut scene;
    let refused = (0..1 << 20).any(|_| link.pass_watcher(*conn, 7, &doorbell).is_none());
    assert!(refused, "{} readers wait in a queue", 1 << 20);
    let mut bytes = vec![0; 1 << 20];
    while link.pass_watcher(*conn, 7, &doorbell).is_none() {
        let n = peer.read(&mut bytes).expect("there is more");
        assert!(n > 0, "the connection stays");
        link.poll(Some(Duration::ZERO), &mut Vec::new());
    }
}
