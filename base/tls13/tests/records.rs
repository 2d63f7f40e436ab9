//! Connections of TLS 1.3 and 1.2 with a client of rustls, through a listener's handshake and records.
#![cfg(feature = "tls12")]

use std::io::{Read, Write};
use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tls13::{Handshake, Out, Records};

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
    (Arc::new(server), Arc::new(client.with_no_client_auth()))
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
        pair.client.writer().write_all(b"data").unwrap();
        pair.send();
        *pair.incoming.last_mut().unwrap() ^= 1;
        let mut out = Out::take();
        pair.records.open(&mut pair.incoming, &mut out).unwrap_err();
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
