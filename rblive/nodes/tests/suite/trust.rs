//! Nodes that prove to each other who they are, and others that cannot.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Cluster, Seen, chunk_of, send, token};
use rblive::{Config, NodeRole, RsId, RsManager, StartError, StreamEvent};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rocketbufs::config::TransportKind;
use rocketbufs::{Conn, Context};

const ROLES: [NodeRole; 2] = [NodeRole::Dissemination, NodeRole::Delivery];

/// Two nodes, each with settings of its own. Returns the sender, with a stream for the receiver.
fn pair(
    transport: TransportKind,
    sender: impl FnOnce(&mut Config),
    receiver: impl FnOnce(&mut Config),
) -> (RsManager, RsId, RsManager, Seen) {
    let cluster = Cluster::new(&ROLES, transport);
    let (mut from, mut to) = (cluster.config_of(1, &[2]), cluster.config_of(2, &[]));
    sender(&mut from);
    receiver(&mut to);
    let mut seen = None;
    let delivery = RsManager::prepared(to, |manager| seen = Some(Seen::of(manager))).unwrap();
    let ingest = RsManager::new(from).unwrap();
    let id = ingest.create_stream("camera").unwrap();
    (ingest, id, delivery, seen.unwrap())
}

fn arrives(ingest: &RsManager, id: RsId, seen: &Seen) {
    seen.event(|event| matches!(event, StreamEvent::Began { .. }));
    for number in 0..5 {
        send(ingest, id, number, 1000);
        assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(number, 1000));
    }
}

/// The nodes try for a while, and never come together.
fn stays_away(ingest: &RsManager, delivery: &RsManager) {
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        assert!(!ingest.peers().iter().any(|peer| peer.connected) && delivery.inbound().is_empty());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nodes_with_one_token_come_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = token(folder.path(), "a token");
    for transport in [TransportKind::Auto, TransportKind::Tcp] {
        let set = |config: &mut Config| config.dissemination.token_file = file.clone();
        let (ingest, id, _delivery, seen) = pair(transport, set, set);
        arrives(&ingest, id, &seen);
        ingest.remove_outbound(2, id).unwrap();
        ingest.set_outbound(2, id).unwrap();
        seen.event(|event| matches!(event, StreamEvent::Began { .. }));
    }
}

#[test]
fn nodes_with_other_tokens_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (token(folder.path(), "a token"), token(folder.path(), "another"));
    let none = PathBuf::new();
    for (from, to) in [(&one, &other), (&one, &none), (&none, &one)] {
        let (ingest, _, delivery, _seen) = pair(
            TransportKind::Auto,
            |config| config.dissemination.token_file = from.clone(),
            |config| config.dissemination.token_file = to.clone(),
        );
        stays_away(&ingest, &delivery);
    }
}

#[test]
fn who_poses_as_a_node_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = token(folder.path(), "a token");
    let set = |config: &mut Config| config.dissemination.token_file = file.clone();
    let (ingest, id, delivery, seen) = pair(TransportKind::Auto, set, set);
    arrives(&ingest, id, &seen);
    let context = Context::new(rocketbufs::Config::default()).unwrap();
    let address = delivery.address().unwrap();
    let forged = [&b"RBLV\x01\x01\x01\x00"[..], &[7; 72]].concat();
    for (hello, why) in [
        (&b"RBLV\x01\x00\x01\x00"[..], "node 1 does not"),
        (&forged, "the token of node 1 is not that of this node"),
        (b"RBLV\x01\x00\x09\x00", "node 9 is not in this node's configuration"),
        (b"RBLV", "field"),
    ] {
        let error = Conn::connect(&context, &address, hello).unwrap_err().to_string();
        assert!(error.contains(why) || why == "field", "{error}");
    }
    send(&ingest, id, 7, 1000);
    assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(7, 1000), "the node that has the stream goes on");
}

#[test]
fn a_token_that_cannot_be_used_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "short\n").unwrap();
    let start = |file: &Path| {
        let cluster = Cluster::new(&ROLES, TransportKind::Auto);
        let mut config = cluster.config_of(2, &[]);
        config.dissemination.token_file = file.to_owned();
        RsManager::new(config).unwrap_err()
    };
    for file in [&file, &folder.path().join("none")] {
        let error = start(file);
        assert!(matches!(&error, StartError::Token(why) if why.contains("token_file")), "{error}");
    }
}

/// An authority, and certificates for nodes of this machine.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), own.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// Gives a node a certificate with this common name.
    fn set(&self, config: &mut Config, name: &str) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        let at = |file: String| self.folder.path().join(file);
        let (cert, private) = (at(format!("{name}.pem")), at(format!("{name}-key.pem")));
        std::fs::write(&cert, own.pem()).unwrap();
        std::fs::write(&private, key.serialize_pem()).unwrap();
        let tls = &mut config.framework.tls;
        tls.mode = "require".into();
        tls.client_certificates = "require".into();
        tls.cert = Some(cert.display().to_string());
        tls.key = Some(private.display().to_string());
        tls.ca = Some(at("ca.pem".into()).display().to_string());
        let names = |name: &str| vec![format!("CN={name}")];
        let certificates = [("n1", names("ingest")), ("n2", names("delivery"))];
        config.dissemination.certificates = certificates.map(|(node, names)| (node.to_owned(), names)).into();
    }
}

#[test]
fn nodes_need_the_certificates_of_their_names() {
    let authority = Authority::new();
    for (from, to, is_right) in
        [("ingest", "delivery", true), ("other", "delivery", false), ("ingest", "other", false)]
    {
        let (ingest, id, delivery, seen) = pair(
            TransportKind::Tcp,
            |config| authority.set(config, from),
            |config| authority.set(config, to),
        );
        match is_right {
            true => arrives(&ingest, id, &seen),
            false => stays_away(&ingest, &delivery),
        }
    }
    // Over shared memory the kernel says who it is.
    let set = |config: &mut Config| authority.set(config, "delivery");
    let (ingest, id, _delivery, seen) = pair(TransportKind::Shm, set, set);
    arrives(&ingest, id, &seen);
}

#[test]
fn certificates_without_tls_are_refused() {
    let mut config = Cluster::new(&ROLES, TransportKind::Tcp).config_of(2, &[]);
    assert!(!config.requires_proof());
    for (node, name, why) in
        [("n1", "CN=a", "tls.mode"), ("n1", "a", "is not written CN="), ("n7", "CN=a", "n7")]
    {
        config.dissemination.certificates = [(node.to_owned(), vec![name.to_owned()])].into();
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
