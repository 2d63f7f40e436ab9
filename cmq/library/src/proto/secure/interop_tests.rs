//! The handshake and the datagrams of a session beside snow with other primitives (RustCrypto).

use snow::Builder;
use zeroize::Zeroizing;

use super::handshake::{Initiator, Responder};
use super::session::{Opened, Remote, Session};
use crate::security::{SecretKey, Security};
use crate::wire::secured::{HEADER_BYTES, Header, Kind, NOISE_HELLO_BYTES, TAG_BYTES};

const NAME: &str = "Noise_IKpsk2_25519_AESGCM_SHA256";

fn prologue(header: &[u8; HEADER_BYTES]) -> Vec<u8> {
    [&b"CMQ 2"[..], header].concat()
}

fn builder<'a>(secret: &'a SecretKey, psk: &'a [u8; 32], prologue: &'a [u8]) -> Builder<'a> {
    let builder = Builder::new(NAME.parse().expect("a name")).local_private_key(secret.as_bytes());
    let builder =
        builder.and_then(|builder| builder.psk(2, psk)).and_then(|builder| builder.prologue(prologue));
    builder.expect("good keys")
}

#[test]
fn snow_answers_our_hello() {
    let [ours, theirs] = [(); 2].map(|()| SecretKey::generate().expect("random bytes"));
    let psk = SecretKey::generate().expect("random bytes");
    let security = Security::new(ours.clone()).shared_secret(Some(psk.clone()));
    let header = Header { kind: Kind::Hello, index: 7, number: 0 }.encode();
    let (mut initiator, hello) =
        Initiator::begin(&security, &header, Zeroizing::new([3; 32]), &theirs.public()).expect("a good key");
    let prologue = prologue(&header);
    let mut other = builder(&theirs, psk.as_bytes(), &prologue).build_responder().expect("good keys");
    let mut payload = [0; NOISE_HELLO_BYTES];
    assert_eq!(other.read_message(&hello, &mut payload).expect("snow reads our hello"), 0);
    assert_eq!(other.get_remote_static(), Some(&ours.public().0[..]));
    let mut welcome = [0; 200];
    let length = other.write_message(&77_u32.to_le_bytes(), &mut welcome).expect("room");
    assert!(initiator.finish(&[1; 52]).is_none(), "a forged welcome changes nothing");
    let (index, keys) = initiator.finish(&welcome[..length]).expect("we read snow's welcome");
    let raw = other.dangerously_get_raw_split();
    assert_eq!((index, &*keys.send, &*keys.receive), (77, &raw.0, &raw.1));
}

#[test]
fn we_answer_the_hello_of_snow() {
    let [ours, theirs] = [(); 2].map(|()| SecretKey::generate().expect("random bytes"));
    let security = Security::new(ours.clone());
    let header = Header { kind: Kind::Hello, index: 7, number: 0 }.encode();
    let (prologue, zeros) = (prologue(&header), [0; 32]);
    let mut other = builder(&theirs, &zeros, &prologue)
        .remote_public_key(&ours.public().0)
        .and_then(Builder::build_initiator)
        .expect("good keys");
    let mut hello = [0; 200];
    let length = other.write_message(&[], &mut hello).expect("room");
    assert_eq!(length, NOISE_HELLO_BYTES);
    let other_header = Header { kind: Kind::Hello, index: 8, number: 0 }.encode();
    let fixed = || Zeroizing::new([3; 32]);
    assert!(Responder::read(&security, &other_header, fixed(), &hello[..length]).is_none(), "the prologue");
    let (responder, key) =
        Responder::read(&security, &header, fixed(), &hello[..length]).expect("we read it");
    assert_eq!(key, theirs.public());
    let (welcome, keys) = responder.answer(55).expect("room");
    let mut payload = [0; 52];
    let length = other.read_message(&welcome, &mut payload).expect("snow reads our welcome");
    assert_eq!(payload[..length], 55_u32.to_le_bytes());
    let raw = other.dangerously_get_raw_split();
    assert_eq!((&*keys.receive, &*keys.send), (&raw.0, &raw.1));
}

/// A session seals as AES-256-GCM of another implementation does: header, text and tag.
#[test]
fn datagrams_are_aes_gcm() {
    use super::handshake::SessionKeys;
    use super::primitives::{aead_key, nonce};
    let keys = SessionKeys { send: Zeroizing::new([1; 32]), receive: Zeroizing::new([1; 32]) };
    let key = SecretKey::from_bytes([5; 32]).public();
    let at = Remote { addr: std::net::SocketAddr::from(([127, 0, 0, 1], 1)), key };
    let mut session = Session::new(std::time::Instant::now(), at, 9, &keys, None);
    let mut datagram = vec![7; HEADER_BYTES + 30 + TAG_BYTES];
    session.seal.seal(4, &mut datagram);
    let header = Header::parse(&datagram).expect("a header");
    assert_eq!(header, Header { kind: Kind::Data, index: 9, number: 4 });
    let mut copy = datagram[HEADER_BYTES..].to_vec();
    let aad = aws_lc_rs::aead::Aad::from(header.encode());
    assert_eq!(aead_key(&[1; 32]).open_in_place(nonce(4), aad, &mut copy).expect("authentic"), [7; 30]);
    for bit in 0..datagram.len() * 8 {
        let mut damaged = datagram.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let Ok(header) = Header::parse(&damaged) else { continue };
        if header.kind == Kind::Data {
            assert_eq!(session.open(header, &mut damaged), Opened::Forged, "bit {bit}");
        }
    }
    assert_eq!(session.open(header, &mut datagram), Opened::Good(true));
    assert_eq!(datagram[HEADER_BYTES..HEADER_BYTES + 30], [7; 30]);
    assert_eq!(session.open(header, &mut datagram), Opened::Replayed);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The datagrams of a handshake and of a session in docs/cmq-vectors.json, byte for byte.
#[test]
fn vectors_are_exact() {
    use super::handshake::{mac, mac_key};
    use crate::wire::secured::{MAC_BYTES, WELCOME_BYTES};
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cmq-vectors.json");
    let text = std::fs::read_to_string(path).expect("the vectors are there");
    let vectors: serde_json::Value = serde_json::from_str(&text).expect("they are JSON");
    let vector = &vectors["secured"];
    let [initiator, responder, shared] = [1, 2, 5].map(|byte| SecretKey::from_bytes([byte; 32]));
    let at_initiator = Security::new(initiator.clone()).shared_secret(Some(shared.clone()));
    let at_responder = Security::new(responder.clone()).shared_secret(Some(shared));
    let header = Header { kind: Kind::Hello, index: 0x0102_0304, number: 0 }.encode();
    let (mut waiting, message) =
        Initiator::begin(&at_initiator, &header, Zeroizing::new([3; 32]), &responder.public())
            .expect("a key");
    let mut hello = [&header[..], &message].concat();
    hello.extend_from_slice(&mac(&mac_key(&responder.public()), &hello));
    hello.extend_from_slice(&[0; MAC_BYTES]);
    let (answering, key) =
        Responder::read(&at_responder, &header, Zeroizing::new([4; 32]), &message).expect("our hello");
    assert_eq!(key, initiator.public());
    let (message, keys) = answering.answer(0x0506_0708).expect("room");
    let mut welcome = Header { kind: Kind::Welcome, index: 0x0102_0304, number: 0 }.encode().to_vec();
    welcome.extend_from_slice(&message);
    let (index, ours) = waiting.finish(&message).expect("our welcome");
    assert_eq!((index, &ours.send, welcome.len()), (0x0506_0708, &keys.receive, WELCOME_BYTES));
    let at = Remote { addr: std::net::SocketAddr::from(([127, 0, 0, 1], 1)), key: responder.public() };
    let session = Session::new(std::time::Instant::now(), at, index, &ours, None);
    let mut data = [&[0; HEADER_BYTES][..], b"\xC5\x12 and so on", &[0; TAG_BYTES]].concat();
    session.seal.seal(7, &mut data);
    let expected = [
        ("initiator_public", hex(&initiator.public().0)),
        ("responder_public", hex(&responder.public().0)),
        ("hello", hex(&hello)),
        ("welcome", hex(&welcome)),
        ("data_7", hex(&data)),
    ];
    let other: Vec<_> = expected.iter().filter(|(name, bytes)| vector[*name] != **bytes).collect();
    assert!(other.is_empty(), "{other:#?}");
    assert_eq!(vector["plain"], serde_json::Value::from(hex(b"\xC5\x12 and so on")));
    for refused in vector["refused"].as_array().expect("a list") {
        let bytes = refused["hex"].as_str().expect("hex");
        let bytes: Vec<u8> = (0..bytes.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).expect("hex"))
            .collect();
        Header::parse(&bytes).expect_err(refused["name"].as_str().expect("a name"));
    }
}
