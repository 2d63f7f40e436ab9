//! The receiving side of the TCP transport, fed by a hostile peer over a real socket.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rocketnet::contract::AcceptedHandle;
use rocketnet::tcp::{Tcp, TcpConfig};
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header};
use rocketnet::{Accepted, ConnId, Event, Transport};
use rocketring::{Pool, PoolConfig, Ring, RingConfig, Waker};

/// Ids that the peer may use. Any other id ends the connection.
const WIRES: [u32; 2] = [1, 2];
/// Much larger than any input, so that only a range that claims to be large can overrun it.
const RING_BYTES: u64 = 1 << 20;
/// A limit for the loopback.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes that arrived, or that should have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    controls: Vec<Vec<u8>>,
    /// For each of [`WIRES`].
    bytes: [Vec<u8>; 2],
}

struct Receiver {
    transport: Tcp,
    listener: TcpListener,
    pool: Pool,
}

thread_local! {
    static RECEIVER: std::cell::RefCell<Receiver> = std::cell::RefCell::new(new_receiver());
}

fn new_receiver() -> Receiver {
    let waker = Arc::new(Waker::new().expect("an eventfd"));
    let transport = Tcp::new(TcpConfig::default(), waker).expect("an epoll set");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback");
    let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
    Receiver { transport, listener, pool }
}

/// The connection ends regularly for any input, and the received data is that of a plain parse of the bytes.
/// The first byte sets the size of the pieces that the input is cut into.
pub fn tcp_receive(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    RECEIVER.with_borrow_mut(|receiver| {
        let max_control = receiver.transport.config().max_control_bytes;
        let got = receive(receiver, stream, usize::from(cut) * 64 + 1);
        let (wanted, odd) = read_plainly(stream, max_control);
        if odd {
            // The connection must end here. Earlier data may have arrived, and no other.
            assert!(wanted.controls.starts_with(&got.controls), "other control messages than were sent");
            let within = |i: usize| wanted.bytes[i].starts_with(&got.bytes[i]);
            assert!(within(0) && within(1), "other bytes than were sent");
        } else {
            assert_eq!(got, wanted);
        }
    });
}

/// Parses the bytes one header after the other. True if the connection must end within them.
fn read_plainly(mut stream: &[u8], max_control: usize) -> (Received, bool) {
    let mut wanted = Received::default();
    while let Some((header, rest)) = stream.split_first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(*header);
        let size = header.size as usize;
        let (body, after) = rest.split_at(size.min(rest.len()));
        if header.wire == CONTROL_WIRE && size <= max_control {
            if body.len() == size {
                wanted.controls.push(body.to_vec());
            }
        } else if let Some(index) = WIRES.iter().position(|&wire| wire == header.wire) {
            wanted.bytes[index].extend_from_slice(body);
            if size as u64 > RING_BYTES / 4 {
                return (wanted, true);
            }
        } else {
            return (wanted, true);
        }
        stream = after;
    }
    (wanted, false)
}

fn receive(receiver: &mut Receiver, stream: &[u8], piece: usize) -> Received {
    let mut peer =
        TcpStream::connect(receiver.listener.local_addr().expect("the listener is bound")).expect("loopback");
    let (socket, from) = receiver.listener.accept().expect("the peer that just connected");
    socket.set_nonblocking(true).expect("any socket can be");
    let local = receiver.listener.local_addr().expect("the listener is bound").to_string();
    let accepted = Accepted { local, peer: from.to_string(), handle: AcceptedHandle::Tcp(socket) };
    let conn = receiver.transport.adopt(accepted).expect("there is room for one");
    let rings: Vec<Ring> = WIRES.iter().map(|&wire| bind(receiver, conn, wire)).collect();

    let mut got = Received::default();
    let mut down = false;
    for part in stream.chunks(piece) {
        // A connection that has ended refuses the rest.
        if peer.write_all(part).is_err() || down {
            break;
        }
        down |= poll(&mut receiver.transport, &mut got, Duration::ZERO);
    }
    drop(peer);
    while !down {
        down = poll(&mut receiver.transport, &mut got, PATIENCE);
    }
    receiver.transport.forget(conn);
    for (ring, bytes) in rings.iter().zip(&mut got.bytes) {
        *bytes = ring.view(ring.start(), ring.head()).to_vec().expect("nothing overwrites it");
    }
    got
}

fn bind(receiver: &mut Receiver, conn: ConnId, wire: u32) -> Ring {
    let config = RingConfig { capacity_bytes: RING_BYTES, ..RingConfig::default() };
    let ring = receiver.pool.ring(config).expect("memory for a ring");
    receiver.transport.bind(conn, wire, ring.receiver().expect("the first receiver"));
    ring
}

/// True if the connection went down.
fn poll(transport: &mut Tcp, got: &mut Received, timeout: Duration) -> bool {
    let mut events = Vec::new();
    transport.poll(Some(timeout), &mut events);
    assert!(!events.is_empty() || timeout.is_zero(), "the peer closed and the connection did not end");
    let mut down = false;
    for event in events {
        match event {
            Event::Control(_, message) => got.controls.push(message),
            Event::Down(..) => down = true,
            _ => {}
        }
    }
    down
}
