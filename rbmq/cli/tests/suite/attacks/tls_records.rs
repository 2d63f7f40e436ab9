//! Records after a good handshake that no honest client sends.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rbmq::wire::Role;
use rocketbufs::proto::Message;
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{self, Iv, make_tls13_aad};
use testkit::LONG;

use super::exchange::{Outcome, hello, said};
use super::tls::{Attack, Target, record};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// The longest content of a record.
const MAX: usize = 1 << 14;

const UNEXPECTED: Outcome = Outcome::Alert(10);
const BAD_MAC: Outcome = Outcome::Alert(20);
const OVERFLOW: Outcome = Outcome::Alert(22);
const ILLEGAL: Outcome = Outcome::Alert(47);
const DECODE: Outcome = Outcome::Alert(50);

/// How an attacker leaves.
type End = fn(&mut Peer);

/// The keys of a direction, in the hands of an attacker: records with any content.
struct Keys {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl Keys {
    fn new(sequence: u64, secrets: ConnectionTrafficSecrets) -> Self {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => panic!("a cipher of TLS 1.3"),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).expect("a key of its length");
        Self { key: LessSafeKey::new(key), iv, sequence }
    }

    fn nonce(&mut self) -> Nonce {
        let nonce = cipher::Nonce::new(&self.iv, self.sequence);
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce.0)
    }

    /// A record of these bytes, the type of the content among them.
    fn seal(&mut self, inner: &[u8]) -> Vec<u8> {
        let header = make_tls13_aad(inner.len() + 16);
        let mut bytes = inner.to_vec();
        let nonce = self.nonce();
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut bytes).expect("short enough");
        [&header[..], &bytes].concat()
    }

    /// The type and the content of a record.
    fn open(&mut self, sealed: &mut [u8]) -> (u8, Vec<u8>) {
        let header = make_tls13_aad(sealed.len());
        let nonce = self.nonce();
        let inner = self.key.open_in_place(nonce, Aad::from(header), sealed).expect("a record of the broker");
        let at = inner.iter().rposition(|byte| *byte != 0).expect("a type");
        (inner[at], inner[..at].to_vec())
    }
}

/// An attacker after its handshake.
pub struct Peer {
    socket: TcpStream,
    sending: Keys,
    receiving: Keys,
}

impl Peer {
    fn new(target: &Target) -> Self {
        let stream = target.connect();
        let secrets = stream.conn.dangerous_extract_secrets().expect("allowed in the settings");
        let ((sent, tx), (received, rx)) = (secrets.tx, secrets.rx);
        let (sending, receiving) = (Keys::new(sent, tx), Keys::new(received, rx));
        stream.sock.set_read_timeout(Some(LONG)).expect("a time");
        Self { socket: stream.sock, sending, receiving }
    }

    /// Sends bytes as they are. The broker may close the connection in the middle.
    fn raw(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Sends a record with this type of content.
    fn send(&mut self, kind: u8, content: &[u8]) {
        let record = self.sending.seal(&[content, &[kind]].concat());
        self.raw(&record);
    }

    /// Introduces itself, and listens to the end: the broker is unharmed if it says anything.
    fn outcome(mut self) -> Outcome {
        self.send(DATA, &said(&Message::Hello(hello(Role::Subscriber))));
        self.end()
    }

    fn end(mut self) -> Outcome {
        while let Some((_, mut sealed)) = record(&mut self.socket) {
            match self.receiving.open(&mut sealed) {
                // close_notify is the end in order.
                (ALERT, content) if content[1] == 0 => {}
                (ALERT, content) => return Outcome::Alert(content[1]),
                (DATA, _) => return Outcome::Harmless,
                _ => {}
            }
        }
        Outcome::Closed
    }
}

fn attack(family: &'static str, name: &str, outcome: Outcome, run: impl Fn(&mut Peer) + 'static) -> Attack {
    Attack::new(family, name, outcome, move |target| {
        let mut peer = Peer::new(target);
        run(&mut peer);
        peer.outcome()
    })
}

/// Records that are empty, too long, changed, or of the wrong type.
pub fn records() -> Vec<Attack> {
    let of = |name: &str, outcome, run: fn(&mut Peer)| attack("records", name, outcome, run);
    let mut all = vec![
        of("nothing wrong, to compare", Outcome::Harmless, |_| {}),
        of("an empty record of data", Outcome::Harmless, |peer| peer.send(DATA, b"")),
        of("32 empty records of data", Outcome::Harmless, |peer| (0..32).for_each(|_| peer.send(DATA, b""))),
        of("33 empty records of data", UNEXPECTED, |peer| (0..33).for_each(|_| peer.send(DATA, b""))),
        of("100,000 empty records of data", UNEXPECTED, |peer| {
            (0..100_000).for_each(|_| peer.send(DATA, b""))
        }),
        of("a record of padding alone", UNEXPECTED, |peer| {
            let record = peer.sending.seal(&[0; 1000]);
            peer.raw(&record);
        }),
        of("33 records with a byte of padding for each of the content", UNEXPECTED, |peer| {
            for _ in 0..33 {
                let record = peer.sending.seal(&[&[DATA][..], &[0; 8000]].concat());
                peer.raw(&record);
            }
        }),
        of("a record with a content of 2^14+1 bytes", OVERFLOW, |peer| peer.send(DATA, &[0; MAX + 1])),
        of("a record of 2^14+257 bytes", OVERFLOW, |peer| {
            let record = peer.sending.seal(&[1; MAX + 257 - 16]);
            peer.raw(&record);
        }),
        of("a record of 65,535 bytes, announced", OVERFLOW, |peer| peer.raw(b"\x17\x03\x03\xff\xff")),
        of("a record of length 0", BAD_MAC, |peer| peer.raw(b"\x17\x03\x03\x00\x00")),
        of("a record that is shorter than its tag", BAD_MAC, |peer| {
            peer.raw(b"\x17\x03\x03\x00\x0fabcdefghijklmno")
        }),
        of("a record of garbage", BAD_MAC, |peer| {
            peer.raw(&[&b"\x17\x03\x03\x00\x64"[..], &[0x5a; 100]].concat())
        }),
        of("a record twice", BAD_MAC, |peer| {
            let record = peer.sending.seal(b"\x17");
            peer.raw(&record.repeat(2));
        }),
        of("two records in the wrong order", BAD_MAC, |peer| {
            let records = [peer.sending.seal(b"\x17"), peer.sending.seal(b"\x17")];
            peer.raw(&[&records[1][..], &records[0]].concat());
        }),
        of("a record with a changed bit", BAD_MAC, |peer| {
            let mut record = peer.sending.seal(b"data\x17");
            record[7] ^= 1;
            peer.raw(&record);
        }),
    ];
    all.extend(types());
    all
}

/// Records of types that do not come any more.
fn types() -> Vec<Attack> {
    let of = |name: &str, outcome, run: fn(&mut Peer)| attack("records", name, outcome, run);
    vec![
        of("plain text", UNEXPECTED, |peer| peer.raw(b"hello, is this still encrypted?")),
        of("a handshake in plain text", UNEXPECTED, |peer| peer.raw(b"\x16\x03\x03\x00\x04\x01\x00\x00\x00")),
        of("an alert in plain text", UNEXPECTED, |peer| peer.raw(b"\x15\x03\x03\x00\x02\x02\x28")),
        of("a change of ciphers in plain text", UNEXPECTED, |peer| peer.raw(b"\x14\x03\x03\x00\x01\x01")),
        of("an encrypted change of ciphers", UNEXPECTED, |peer| peer.send(20, &[1])),
        of("an encrypted heartbeat", UNEXPECTED, |peer| peer.send(24, b"\x01\xff\xff")),
        of("a content of type 255", UNEXPECTED, |peer| peer.send(255, b"x")),
    ]
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

/// Messages of the handshake after the handshake: renegotiation, tickets, changes of keys.
pub fn messages() -> Vec<Attack> {
    let kinds: [(u8, &str); 11] = [
        (0, "HelloRequest (renegotiation)"),
        (1, "ClientHello (renegotiation)"),
        (2, "ServerHello"),
        (4, "NewSessionTicket"),
        (5, "EndOfEarlyData"),
        (8, "EncryptedExtensions"),
        (11, "Certificate that nobody asked for"),
        (13, "CertificateRequest"),
        (20, "Finished again"),
        (99, "a message that does not exist"),
        (254, "message_hash"),
    ];
    let mut all: Vec<Attack> = kinds
        .iter()
        .map(|(kind, name)| {
            let bytes = message(*kind, &[0; 40]);
            attack("messages", name, UNEXPECTED, move |peer| peer.send(HANDSHAKE, &bytes))
        })
        .collect();
    let of = |name: &str, outcome, run: fn(&mut Peer)| attack("messages", name, outcome, run);
    all.extend([
        of("a change of keys that is not one", BAD_MAC, |peer| peer.send(HANDSHAKE, &message(24, &[0]))),
        of("a change of keys with the value 2", ILLEGAL, |peer| peer.send(HANDSHAKE, &message(24, &[2]))),
        of("a change of keys with the value 255", ILLEGAL, |peer| peer.send(HANDSHAKE, &message(24, &[255]))),
        of("a change of keys without a value", UNEXPECTED, |peer| peer.send(HANDSHAKE, &message(24, &[]))),
        of("two changes of keys in a record", UNEXPECTED, |peer| {
            peer.send(HANDSHAKE, &message(24, &[0]).repeat(2));
        }),
        of("data within a message", UNEXPECTED, |peer| {
            peer.send(HANDSHAKE, &[24, 0]);
            peer.send(DATA, b"x");
        }),
        of("a message of 16 MiB, announced", DECODE, |peer| peer.send(HANDSHAKE, &[24, 255, 255, 255])),
        of("a message of 128 KiB that never ends", UNEXPECTED, |peer| {
            peer.send(HANDSHAKE, &[4, 1, 255, 255]);
            (0..40).for_each(|_| peer.send(HANDSHAKE, &[0; 64]));
        }),
        of("an empty record of the handshake", UNEXPECTED, |peer| peer.send(HANDSHAKE, b"")),
    ]);
    all.extend([1, 32, 33, 10_000].map(changes));
    all
}

/// Changes of keys, one after the other, each of which asks for one of the broker.
fn changes(count: usize) -> Attack {
    let outcome = match count {
        ..=32 => Outcome::Harmless,
        33 => UNEXPECTED,
        // The broker closes while this end still writes, and does not read the alert.
        _ => Outcome::Closed,
    };
    Attack::new("messages", &format!("{count} changes of keys"), outcome, move |target| {
        let mut stream = target.connect();
        for _ in 0..count {
            // The broker may close the connection in the middle.
            if stream.conn.refresh_traffic_keys().is_err() || stream.flush().is_err() {
                break;
            }
        }
        let _ =
            stream.write_all(&said(&Message::Hello(hello(Role::Subscriber)))).and_then(|()| stream.flush());
        match std::io::Read::read(&mut stream, &mut [0]) {
            Ok(0) => Outcome::Closed,
            Ok(_) => Outcome::Harmless,
            Err(error) => super::tls::outcome_of(&error),
        }
    })
}

/// Alerts, and the ends of connections.
pub fn ends() -> Vec<Attack> {
    let of = |name: &str, outcome, run: fn(&mut Peer)| attack("ends", name, outcome, run);
    let mut all = vec![
        of("close_notify, then data", Outcome::Closed, |peer| peer.send(ALERT, &[1, 0])),
        of("close_notify, then garbage", Outcome::Closed, |peer| {
            peer.send(ALERT, &[1, 0]);
            peer.raw(&[0x5a; 1000]);
        }),
        of("a fatal alert", Outcome::Closed, |peer| peer.send(ALERT, &[2, 40])),
        of("a warning that TLS 1.3 does not have", Outcome::Closed, |peer| peer.send(ALERT, &[1, 100])),
        of("an alert that does not exist", Outcome::Closed, |peer| peer.send(ALERT, &[2, 200])),
        of("user_canceled", Outcome::Harmless, |peer| peer.send(ALERT, &[1, 90])),
        of("33 times user_canceled", UNEXPECTED, |peer| (0..33).for_each(|_| peer.send(ALERT, &[1, 90]))),
        of("an empty alert", DECODE, |peer| peer.send(ALERT, b"")),
        of("an alert of a byte", DECODE, |peer| peer.send(ALERT, &[2])),
        of("an alert of three bytes", DECODE, |peer| peer.send(ALERT, &[2, 40, 0])),
    ];
    let cut: [(&str, End); 3] = [
        ("an end without close_notify", |_| {}),
        ("an end within a record", |peer| {
            let record = peer.sending.seal(b"data\x17");
            peer.raw(&record[..record.len() - 1]);
        }),
        ("an end within the header of a record", |peer| peer.raw(b"\x17\x03")),
    ];
    all.extend(cut.map(|(name, run)| {
        Attack::new("ends", name, Outcome::Closed, move |target| {
            let mut peer = Peer::new(target);
            run(&mut peer);
            let _ = peer.socket.shutdown(Shutdown::Write);
            peer.end()
        })
    }));
    all
}
