//! Connections of TLS 1.3 and 1.2 with a client of rustls, through a listener's handshake and records.
#![cfg(feature = "tls12")]

use std::io::{Read, Write};
use std::sync::Arc;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use proptest::prelude::*;
use rustls::crypto::cipher::{self, Iv, make_tls12_aad};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion, RootCertStore,
    ServerConfig, SupportedProtocolVersion,
};
use tls13::{Alert, Broken, Failure, Handshake, MAX_PLAIN, MAX_SEALED, Out, Records};

fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider.clone());
    let client = client.with_protocol_versions(&[version]).unwrap().with_root_certificates(roots);
    let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let chain = vec![own.cert.der().clone()];
    let mut server = server.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
    server.enable_secret_extraction = true;
    let mut client = client.with_no_client_auth();
    client.enable_secret_extraction = true;
    (Arc::new(server), Arc::new(client))
}

/// Both ends. What the listener has read and not used is in `incoming`.
struct Pair {
    client: ClientConnection,
    records: Records,
    incoming: Vec<u8>,
}

/// A handshake whose bytes arrive in pieces of this size. The client's first data follows at once.
fn pair(version: &'static SupportedProtocolVersion, step: usize, first: &[u8]) -> Pair {
    let (server, client) = configs(version);
    let mut client = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
    let mut handshake = Handshake::accept(server).unwrap();
    let (mut has_written, mut is_made) = (false, false);
    loop {
        if !client.is_handshaking() && !std::mem::replace(&mut has_written, true) {
            client.writer().write_all(first).unwrap();
        }
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        for part in sent.chunks(step) {
            handshake.take(part);
            is_made = handshake.advance().unwrap();
        }
        let answer = handshake.waiting().to_vec();
        handshake.written(answer.len());
        let mut answer = &answer[..];
        while !answer.is_empty() {
            client.read_tls(&mut answer).unwrap();
            client.process_new_packets().unwrap();
        }
        if is_made && !client.is_handshaking() && has_written {
            let made = handshake.finish_any().unwrap();
            return Pair { client, records: made.session, incoming: made.rest };
        }
    }
}

impl Pair {
    fn send(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.incoming).unwrap();
        }
    }

    /// The listener opens what has arrived, in pieces of this size.
    fn open(&mut self, step: usize) -> Vec<u8> {
        let arrived = std::mem::take(&mut self.incoming);
        let (mut have, mut data, mut out) = (Vec::new(), Vec::new(), Out::take());
        for part in arrived.chunks(step) {
            have.extend_from_slice(part);
            let (used, count) = self.records.open(&mut have, &mut out).unwrap();
            data.extend_from_slice(&have[..count]);
            have.drain(..used);
        }
        self.incoming = have;
        assert!(out.is_empty());
        data
    }

    fn client_takes(&mut self, out: &mut Out) {
        while !out.is_empty() {
            let count = self.client.read_tls(&mut out.waiting()).unwrap();
            out.written(count);
            self.client.process_new_packets().unwrap();
        }
    }

    fn client_reads(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        // Without more there is an error, and the data is there all the same.
        _ = self.client.reader().read_to_end(&mut data);
        data
    }
}

fn both() -> impl Strategy<Value = &'static SupportedProtocolVersion> {
    prop_oneof![Just(&TLS13), Just(&TLS12)]
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]
    #[test]
    fn everything_arrives_in_both_directions_however_it_is_cut(
        version in both(),
        step in 1..9000_usize,
        first in 0..3000_usize,
        received in prop::collection::vec(0..40_000_usize, 0..4),
        sent in prop::collection::vec(prop::collection::vec(0..40_000_usize, 0..6), 0..4),
    ) {
        let mut pair = pair(version, step, &bytes(first));
        prop_assert_eq!(pair.open(step), bytes(first));
        for len in received {
            for part in bytes(len).chunks(9000) {
                pair.client.writer().write_all(part).unwrap();
                pair.send();
            }
            prop_assert_eq!(pair.open(step), bytes(len));
        }
        for pieces in sent {
            let pieces: Vec<Vec<u8>> = pieces.into_iter().map(bytes).collect();
            let all = pieces.concat();
            let (mut at, mut got) = (0, Vec::new());
            while at < all.len() {
                // The first piece again, as far as it was not taken.
                let mut out = Out::take();
                let taken = pair.records.seal(&[&all[at..]], &mut out).unwrap();
                prop_assert!(taken > 0);
                at += taken;
                while !out.is_empty() {
                    let part = out.waiting().len().min(4000);
                    let count = pair.client.read_tls(&mut &out.waiting()[..part]).unwrap();
                    out.written(count);
                    pair.client.process_new_packets().unwrap();
                    got.extend(pair.client_reads());
                }
            }
            prop_assert_eq!(got, all);
        }
    }
}

#[test]
fn small_pieces_are_one_record() {
    for version in [&TLS13, &TLS12] {
        let mut pair = pair(version, 4096, b"");
        let mut out = Out::take();
        let pieces = [&b"one "[..], b"", b"two ", b"three"];
        assert_eq!(pair.records.seal(&pieces, &mut out).unwrap(), 13);
        let length = usize::from(u16::from_be_bytes([out.waiting()[3], out.waiting()[4]]));
        assert_eq!(out.waiting().len(), 5 + length, "{version:?}");
        pair.client_takes(&mut out);
        assert_eq!(pair.client_reads(), b"one two three");
        for pieces in [&[bytes(MAX_PLAIN * 8)][..], &[bytes(9), bytes(MAX_PLAIN * 8)]] {
            assert_eq!(pair.records.seal(pieces, &mut out).unwrap(), MAX_PLAIN, "and no more than one");
            pair.client_takes(&mut out);
            assert_eq!(pair.client_reads(), pieces.concat()[..MAX_PLAIN]);
        }
    }
}

#[test]
fn each_end_is_told_of_the_other_end() {
    for version in [&TLS13, &TLS12] {
        let mut pair = pair(version, 4096, b"");
        let mut out = Out::take();
        pair.records.end(&mut out).unwrap();
        pair.client_takes(&mut out);
        assert_eq!(pair.client.reader().read(&mut [0; 9]).unwrap(), 0, "{version:?}");
        pair.client.writer().write_all(b"last").unwrap();
        pair.client.send_close_notify();
        pair.send();
        assert_eq!(pair.open(4096), b"last");
        assert!(pair.records.has_ended(), "{version:?}");
    }
}

#[test]
fn a_record_that_was_changed_is_refused_and_its_sender_told() {
    for version in [&TLS13, &TLS12] {
        let mut pair = pair(version, 4096, b"");
        pair.client.writer().write_all(b"good").unwrap();
        pair.send();
        pair.client.writer().write_all(b"data").unwrap();
        pair.send();
        *pair.incoming.last_mut().unwrap() ^= 1;
        let mut out = Out::take();
        let (used, count) = pair.records.open(&mut pair.incoming, &mut out).unwrap();
        assert_eq!(pair.incoming[..count], *b"good", "what arrived in front of it is not lost");
        assert!(pair.records.is_broken() && used < pair.incoming.len());
        pair.records.open(&mut [], &mut out).unwrap_err();
        pair.client.read_tls(&mut out.waiting()).unwrap();
        let error = pair.client.process_new_packets().unwrap_err();
        assert_eq!(
            error,
            rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac),
            "{version:?}"
        );
    }
}

#[test]
fn the_side_of_a_client_has_no_such_records() {
    let (_, client) = configs(&TLS13);
    let handshake = Handshake::connect(client, "localhost".try_into().unwrap()).unwrap();
    assert!(handshake.finish_any().is_err());
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// The keys of a client with TLS 1.2, in the hands of one that seals what it likes.
struct Keys {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl Keys {
    fn of(client: ClientConnection) -> Self {
        let (sequence, secrets) = client.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another cipher") };
        let key = UnboundKey::new(&aead::AES_256_GCM, key.as_ref()).unwrap();
        Self { key: LessSafeKey::new(key), iv, sequence }
    }

    fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let nonce = cipher::Nonce::new(&self.iv, self.sequence).0;
        let kind_of = ContentType::from(kind);
        let aad = make_tls12_aad(self.sequence, kind_of, ProtocolVersion::TLSv1_2, content.len());
        self.sequence += 1;
        let mut sealed = content.to_vec();
        let sealing = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(sealing, Aad::from(aad), &mut sealed).unwrap();
        let size = (8 + sealed.len()) as u16;
        [&[kind, 3, 3][..], &size.to_be_bytes(), &nonce[4..], &sealed].concat()
    }
}

/// A listener's records of TLS 1.2, and the keys of the client.
fn old() -> (Records, Keys) {
    let pair = pair(&TLS12, 4096, b"");
    assert!(pair.incoming.is_empty());
    (pair.records, Keys::of(pair.client))
}

fn is_refused<T>(opened: &Result<T, Broken>) -> bool {
    matches!(opened, Err(Broken::Session(Failure::Refused(Alert::UnexpectedMessage))))
}

#[test]
fn a_handshake_within_a_connection_ends_it_and_its_sender_is_told() {
    for content in [&[1][..], &[1, 0, 0, 0], &[0, 0, 0, 0], &[1, 0, 0, 9, 3, 3], &[20; 40], b""] {
        let (mut records, mut keys) = old();
        let mut out = Out::take();
        let mut bytes = keys.seal(HANDSHAKE, content);
        let opened = records.open(&mut bytes, &mut out);
        assert!(is_refused(&opened), "{content:?}: {opened:?}");
        assert_eq!(out.waiting()[..5], [ALERT, 3, 3, 0, 26], "an alert: {content:?}");
        // The listener may still say something, and nothing more is opened.
        let _ = records.seal(&[&b"data"[..]], &mut out);
        let _ = records.end(&mut out);
        assert!(records.open(&mut keys.seal(DATA, b"more"), &mut out).is_err());
    }
}

#[test]
fn a_handshake_within_a_connection_waits_for_nothing_behind_it() {
    let (mut records, mut keys) = old();
    let mut bytes = [keys.seal(HANDSHAKE, &[1]), keys.seal(DATA, b"data")].concat();
    let opened = records.open(&mut bytes, &mut Out::take());
    assert!(is_refused(&opened), "{opened:?}");
}

#[test]
fn a_record_of_the_old_version_that_cannot_be_is_refused_by_its_head() {
    for head in [[DATA, 3, 3, 255, 255], [HANDSHAKE, 3, 3, 64, 0], [20, 3, 3, 0, 1], *b"hello"] {
        let (mut records, _) = old();
        let mut out = Out::take();
        let opened = records.open(&mut head.clone(), &mut out);
        assert!(is_refused(&opened), "{head:?}: {opened:?}");
        assert_eq!(out.waiting()[..5], [ALERT, 3, 3, 0, 26], "an alert: {head:?}");
    }
}

fn record() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let content = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        8 => (Just(DATA), content()),
        2 => (prop_oneof![Just(HANDSHAKE), Just(ALERT), Just(20), any::<u8>()], content()),
        1 => (Just(ALERT), prop_oneof![Just(vec![1, 0]), Just(vec![1, 90]), Just(vec![2, 40])]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
    #[test]
    fn records_of_the_old_version_of_any_type_do_no_harm(
        sent in prop::collection::vec(record(), 1..12),
        step in 1..200_usize,
    ) {
        let (mut records, mut keys) = old();
        let (mut have, mut got, mut is_broken) = (Vec::new(), Vec::new(), false);
        let bytes: Vec<u8> = sent.iter().flat_map(|(kind, content)| keys.seal(*kind, content)).collect();
        for part in bytes.chunks(step) {
            let mut out = Out::take();
            have.extend_from_slice(part);
            if !is_broken {
                match records.open(&mut have, &mut out) {
                    Ok((used, count)) => {
                        got.extend_from_slice(&have[..count]);
                        have.drain(..used);
                        prop_assert!(records.has_ended() || records.is_broken() || have.len() < tls13::HEADER + MAX_SEALED);
                    }
                    Err(_) => is_broken = true,
                }
            }
            let _ = records.seal(&[&b"x"[..]], &mut out);
        }
        let _ = records.end(&mut Out::take());
        let data = |sent: &[(u8, Vec<u8>)]| -> Vec<u8> {
            sent.iter().filter(|(kind, _)| *kind == DATA).flat_map(|(_, content)| content.clone()).collect()
        };
        // Everything in front of the first record that is none of data, also if both arrived at once.
        let plain = sent.iter().take_while(|(kind, _)| *kind == DATA).count();
        prop_assert!(data(&sent).starts_with(&got) && got.starts_with(&data(&sent[..plain])));
        prop_assert!(plain < sent.len() || got == data(&sent));
    }
}
