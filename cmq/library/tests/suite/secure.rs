//! Queues with keys on real sockets.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::common::{Fate, Proxy, again, event};
use bytes::Bytes;
use cmq::{
    Cmq, Config, Event, HandshakeError, KeyError, PublicKey, PushError, Refusal, SecretKey, Security,
    new_raw_rq,
};
use testkit::{LONG, own_addr};

fn open(security: Option<Security>, config: Config) -> Cmq<Bytes> {
    new_raw_rq("127.0.0.1:0", config.security(security)).expect("a queue on loopback")
}

/// A receiver with a key, and a sender that knows it.
fn pair(config: &Config) -> (Cmq<Bytes>, Cmq<Bytes>, PublicKey) {
    let [one, other] = [(); 2].map(|()| SecretKey::generate().expect("random bytes"));
    let key = other.public();
    let sender = open(Some(Security::new(other).default_peer(one.public())), config.clone());
    (open(Some(Security::new(one).allow(key)), config.clone()), sender, key)
}

/// Messages of every size arrive in order, in batches and fragments, and are answered by a queue that knows no key.
#[test]
fn messages_of_every_size_arrive() {
    for config in
        [Config::default(), Config::paper(), Config::immediate(), Config::default().parity_fragments(true)]
    {
        for (segmentation, max_datagram) in [(true, None), (false, Some(1200))] {
            let config = config.clone().segmentation_offload(segmentation).max_datagram(max_datagram);
            let config = config.receive_buffer(Some(4 << 20));
            let (receiver, sender, key) = pair(&config);
            let sizes = (0..60).chain((0..40).map(|n| 900 + 30 * n)).chain([5000, 60_000, 200_000, 1 << 20]);
            let sizes: Vec<usize> = sizes.collect();
            for (number, &size) in sizes.iter().enumerate() {
                let message = vec![number as u8; size];
                sender.push_bytes((receiver.local_addr(), 3), &message).expect("room");
                let (got, from) =
                    (size > 5000 || number == 0).then(|| receiver.pop_timeout(LONG)).flatten().unzip();
                if let (Some(got), Some(from)) = (got, from) {
                    let got: Bytes = got;
                    let from: cmq::Key = from;
                    if number == 0 {
                        assert_eq!(receiver.peer_key(from.addr), Some(key));
                        receiver.push_bytes(from, b"an answer").expect("room");
                    }
                    assert!(got.iter().all(|&byte| byte == got[0]));
                }
            }
            sender.finish();
            assert_eq!(sender.pop_timeout(LONG).expect("the answer").0, b"an answer"[..]);
            event(&receiver, |event| matches!(event, Event::Closed { .. }));
            let stats = receiver.stats();
            assert_eq!((stats.counts.received, stats.malformed), (sizes.len() as u64, 0));
            let refused = [stats.security.forged, stats.security.replayed, stats.security.unknown_sessions];
            assert_eq!((stats.security.handshakes, refused), (1, [0; 3]));
        }
    }
}

/// No datagram on the network contains a message, and one that is damaged or repeated is refused and counted.
#[test]
fn the_network_sees_and_changes_nothing() {
    let (receiver, sender, _) = pair(&Config::immediate());
    let proxy = Proxy::start_blind(receiver.local_addr(), |number, bytes| {
        assert!(!bytes.windows(6).any(|part| part == b"secret"), "the message is readable");
        if number % 5 == 4 { Fate::Twice } else { Fate::Passes }
    });
    let count = 200;
    for number in 0..count {
        sender.push_bytes((proxy.addr(), 0), format!("secret {number}").as_bytes()).expect("room");
    }
    for number in 0..count {
        let (message, _) = receiver.pop_timeout(LONG).expect("every datagram passes");
        assert_eq!(message, format!("secret {number}"));
    }
    proxy.finish();
    let stats = receiver.stats();
    assert!(stats.security.replayed > 20 && stats.counts.duplicated == 0, "{stats:?}");
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut forged = vec![0; 60];
    forged[..2].copy_from_slice(&[0xC5, 0x20]);
    stranger.send_to(&forged, receiver.local_addr()).expect("loopback");
    let refused =
        event(&receiver, |event| matches!(event, Event::Refused { why: Refusal::UnknownSession, .. }));
    assert!(matches!(refused, Event::Refused { from, .. } if from == stranger.local_addr().expect("bound")));
}

/// Both ends of a pair with one key learn the reason.
#[test]
fn plain_and_encrypted_queues_refuse_each_other() {
    let (encrypted, _, _) = pair(&Config::immediate());
    let plain = open(None, Config::immediate());
    plain.push_bytes((encrypted.local_addr(), 0), b"plain").expect("room");
    event(&encrypted, |event| matches!(event, Event::Refused { why: Refusal::Plain, .. }));
    event(&plain, |event| *event == Event::EncryptionRequired { by: encrypted.local_addr() });
    let security = Security::new(SecretKey::generate().expect("random bytes"));
    let known = security.clone().peer(plain.local_addr(), security.secret.public());
    let sender = open(Some(known.handshake_timeout(Duration::from_millis(300))), Config::immediate());
    sender.push_bytes((plain.local_addr(), 0), b"sealed").expect("room");
    let failed = event(&sender, |event| matches!(event, Event::HandshakeFailed { .. }));
    let why = HandshakeError::NoAnswer;
    assert_eq!(failed, Event::HandshakeFailed { to: plain.local_addr(), messages: 1, why });
    event(&plain, |event| matches!(event, Event::Malformed { why: cmq::wire::Malformed::Encrypted, .. }));
    assert_eq!((sender.stats().send_failed, sender.stats().pending_bytes), (1, 0));
    let other = open(Some(security), Config::immediate());
    other.push_bytes((plain.local_addr(), 0), b"to nobody").expect("room");
    let failed = event(&other, |event| matches!(event, Event::HandshakeFailed { .. }));
    assert!(matches!(failed, Event::HandshakeFailed { why: HandshakeError::NoKey, .. }));
    assert_eq!(other.push_bytes((([239, 1, 1, 1], 9).into(), 0), b"to all"), Err(PushError::Multicast));
}

/// A receiver that is restarted with its key is found again.
#[test]
fn a_restarted_receiver_is_found_again() {
    let secret = SecretKey::generate().expect("random bytes");
    let sender = open(
        Some(Security::new(SecretKey::generate().expect("random bytes")).default_peer(secret.public())),
        Config::immediate(),
    );
    let at = own_addr();
    let config = Config::immediate().security(Some(Security::new(secret)));
    let open_there = || again(|| new_raw_rq(&*at, config.clone()));
    let receiver = open_there();
    let addr = receiver.local_addr();
    sender.push_bytes((addr, 0), b"one").expect("room");
    assert_eq!(receiver.pop_timeout(LONG).expect("a message").0, b"one"[..]);
    drop(receiver);
    let receiver = open_there();
    let until = Instant::now() + LONG;
    loop {
        sender.push_bytes((addr, 0), b"more").expect("room");
        if receiver.pop_timeout(Duration::from_millis(50)).is_some() {
            break;
        }
        assert!(Instant::now() < until, "the sender stays with its old session");
    }
    assert_eq!(sender.stats().security.handshakes, 2);
}

#[test]
fn keys_are_kept_in_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, public) = (folder.path().join("key"), folder.path().join("key.pub"));
    let secret = SecretKey::generate().expect("random bytes");
    secret.write_new(&path).expect("a new file");
    assert!(matches!(secret.write_new(&path), Err(KeyError::Io(_))), "no key is overwritten");
    assert_eq!(SecretKey::read(&path).expect("the key"), secret);
    std::fs::write(&public, format!("{}\n", secret.public())).expect("room");
    assert_eq!(PublicKey::read(&public).expect("the key"), secret.public());
    assert!(matches!(SecretKey::read(&public), Err(KeyError::Readable)));
    for bad in ["", "00", &"zz".repeat(32), &"0".repeat(65)] {
        assert!(matches!(bad.parse::<PublicKey>(), Err(KeyError::Format)), "{bad}");
    }
    assert!(
        !format!("{secret:?} {:?}", Security::new(secret.clone()))
            .contains(std::fs::read_to_string(&path).expect("the file").trim())
    );
}
