//! CMQ: a queue with a key, and datagrams of a peer that are damaged, repeated or forged on their way.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmq::proto::secure::{Output, Route, Sessions};
use cmq::wire::secured::{HEADER_BYTES, Header, Kind, TAG_BYTES};
use cmq::{SecretKey, Security};

/// The limits of the queue.
const MAX_SESSIONS: usize = 24;
const MAX_HALF_OPEN: usize = 16;
const PLAIN: &[u8] = b"a plain datagram";

/// Both ends, and what the network has seen.
struct World {
    now: Instant,
    server: Sessions,
    client: Sessions,
    to_server: Vec<Vec<u8>>,
    /// Plain datagrams that the client has sealed, and that have arrived.
    sealed: usize,
    arrived: usize,
}

fn machine(security: Security, now: Instant, mut state: u8) -> Sessions {
    let fill = move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_mul(29).wrapping_add(11);
            *byte = state;
        }
    };
    Sessions::new(security, now, Box::new(fill))
}

/// Feeds a queue with the datagrams of a peer and with others. Each step is a byte that says what happens, and its bytes. The queue
/// gives out nothing but what the peer sealed, once; its answers are not longer than the datagrams; its memory is bounded.
pub fn cmq_sealed(data: &[u8]) {
    let [one, other] = [1, 2].map(|byte| SecretKey::from_bytes([byte; 32]));
    let now = Instant::now();
    let security = |secret| Security::new(secret).rekey_after(Duration::from_secs(1));
    let server = security(one.clone()).max_sessions(MAX_SESSIONS).max_half_open(MAX_HALF_OPEN);
    let mut world = World {
        now,
        server: machine(server, now, 1),
        client: machine(security(other).default_peer(one.public()), now, 2),
        to_server: Vec::new(),
        sealed: 0,
        arrived: 0,
    };
    let (mut rest, mut steps) = (data, 0);
    while let Some((&[step, length], after)) = rest.split_first_chunk()
        && steps < 64
    {
        let (bytes, after) = after.split_at(usize::from(length).min(after.len()));
        world.step(step, bytes);
        (rest, steps) = (after, steps + 1);
        let (sessions, half_open) = (world.server.counts().sessions, world.server.half_open());
        assert!(sessions <= MAX_SESSIONS as u64 && half_open <= MAX_HALF_OPEN);
        assert!(world.arrived <= world.sealed);
    }
}

impl World {
    fn step(&mut self, step: u8, bytes: &[u8]) {
        let port = 1 + u16::from(step >> 4);
        match step & 7 {
            0 => {
                let mut datagram = vec![0xC5, 0x20];
                datagram.extend_from_slice(bytes);
                self.carry(port, datagram);
            }
            1 => self.carry(port, bytes.to_vec()),
            2 => {
                self.now += Duration::from_millis(100 * bytes.first().map_or(1, |&byte| u64::from(byte)));
                self.server.expire(self.now);
                self.client.expire(self.now);
            }
            3 => {
                let Some(mut datagram) = self.to_server.last().cloned() else { return };
                for (byte, change) in datagram.iter_mut().zip(bytes) {
                    *byte ^= change;
                }
                self.carry(port, datagram);
            }
            4 => {
                let Some(at) = bytes.first() else { return };
                let Some(datagram) = self.to_server.get(usize::from(*at)).cloned() else { return };
                self.carry(port, datagram);
            }
            _ => self.push(),
        }
        self.exchange();
    }

    /// The client seals a plain datagram.
    fn push(&mut self) {
        let server = SocketAddr::from(([127, 0, 0, 1], 99));
        if let Route::Sealed(key, number) = self.client.route(self.now, server, 1, PLAIN.len() as u64) {
            let mut datagram = vec![0; HEADER_BYTES + PLAIN.len() + TAG_BYTES];
            datagram[HEADER_BYTES..][..PLAIN.len()].copy_from_slice(PLAIN);
            key.seal(number, &mut datagram);
            self.sealed += 1;
            self.carry(1, datagram);
        }
    }

    fn carry(&mut self, port: u16, mut datagram: Vec<u8>) {
        self.to_server.push(datagram.clone());
        let length = datagram.len();
        let from = SocketAddr::from(([127, 0, 0, 1], port));
        if let Some(plain) = self.server.receive(self.now, from, &mut datagram) {
            assert_eq!(&datagram[plain], PLAIN, "only the client has the keys");
            self.arrived += 1;
        }
        for output in self.server.take_outputs() {
            let Output::Send(to, mut answer) = output else { continue };
            // The server may renew a session by itself: the client has proved its address.
            let begins = Header::parse(&answer).is_ok_and(|header| header.kind == Kind::Hello);
            assert!(begins || to == from && answer.len() <= length, "an answer is longer than the datagram");
            self.client.receive(self.now, SocketAddr::from(([127, 0, 0, 1], 99)), &mut answer);
        }
    }

    /// The client's handshake datagrams arrive.
    fn exchange(&mut self) {
        for output in self.client.take_outputs() {
            if let Output::Send(_, datagram) = output {
                self.carry(1, datagram);
            }
        }
    }
}
