//! Certificates of clients that are not good, at a broker that requires them.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};

use rbmq::wire::Role;
use rocketbufs::proto::Message;

use super::exchange::{Outcome, hello, said};
use super::tls::{Attack, Target, outcome_of};
use crate::common::secure::{config, connect};
use crate::common::setup::{Setup, run};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The configuration of the broker that requires certificates.
pub fn strict(setup: &Setup) -> PathBuf {
    let tls = setup.text("tls");
    run(&["keygen", "client", &tls, "revoked"], b"").expect("a certificate");
    run(&["keygen", "revoke", &tls, "revoked"], b"").expect("a list");
    let config = setup.config(&format!("client_certificates = 'require'\ncrl = '{tls}/crl.pem'\n"));
    let strict = setup.file("strict.toml");
    std::fs::rename(config, &strict).expect("a file");
    setup.config("");
    strict
}

/// Connects with the certificate of these PEM texts: the chain and its key. Harmless: the broker took it.
fn present(target: &Target, chain: &str, key: &str) -> Outcome {
    let (cert_file, key_file) = (target.setup.file("attack.pem"), target.setup.file("attack-key.pem"));
    std::fs::write(&cert_file, chain).expect("a file");
    std::fs::write(&key_file, key).expect("a file");
    let own = Some((cert_file.as_path(), key_file.as_path()));
    let client = config(&target.setup.file("tls/ca.pem"), own, &[b"rocketbufs/1"]);
    // The broker sees the certificate after this end's handshake.
    let heard = connect(client, &target.strict).and_then(|mut stream| {
        let _ =
            stream.write_all(&said(&Message::Hello(hello(Role::Subscriber)))).and_then(|()| stream.flush());
        stream.read(&mut [0])
    });
    match heard {
        Ok(0) => Outcome::Closed,
        Ok(_) => Outcome::Harmless,
        Err(error) => outcome_of(&error),
    }
}

fn params(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, "mallory");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    change(&mut params);
    params
}

/// The authority that the broker trusts.
fn authority(target: &Target) -> Issuer<'static, KeyPair> {
    let read = |name: &str| std::fs::read_to_string(target.setup.file(name)).expect("a file");
    let key = KeyPair::from_pem(&read("tls/ca-key.pem")).expect("a key");
    Issuer::from_ca_cert_pem(&read("tls/ca.pem"), key).expect("an authority")
}

/// An authority of the attacker with the name of the right one.
fn false_authority(target: &Target) -> Issuer<'static, KeyPair> {
    let pem = std::fs::read_to_string(target.setup.file("tls/ca.pem")).expect("a file");
    Issuer::from_ca_cert_pem(&pem, KeyPair::generate().expect("a key")).expect("an authority")
}

/// A certificate that the trusted authority signed, with a change.
fn signed(name: &str, outcome: Outcome, change: impl Fn(&mut CertificateParams) + 'static) -> Attack {
    Attack::new("certificates of clients", name, outcome, move |target| {
        let key = KeyPair::generate().expect("a key");
        let cert = params(&change).signed_by(&key, &authority(target)).expect("a certificate");
        present(target, &cert.pem(), &key.serialize_pem())
    })
}

/// A chain and a key that an attacker makes alone.
fn made(name: &str, outcome: Outcome, make: impl Fn(&Target, &KeyPair) -> String + 'static) -> Attack {
    Attack::new("certificates of clients", name, outcome, move |target| {
        let key = KeyPair::generate().expect("a key");
        present(target, &make(target, &key), &key.serialize_pem())
    })
}

pub fn certificates() -> Vec<Attack> {
    let (expired, unsupported) = (Outcome::Alert(45), Outcome::Alert(43));
    let mut all = vec![
        signed("nothing wrong, to compare", Outcome::Harmless, |_| {}),
        Attack::new("certificates of clients", "none", Outcome::Alert(116), |target| {
            let client = config(&target.setup.file("tls/ca.pem"), None, &[b"rocketbufs/1"]);
            match connect(client, &target.strict).and_then(|mut stream| stream.read(&mut [0])) {
                Ok(_) => Outcome::Closed,
                Err(error) => outcome_of(&error),
            }
        }),
        signed("one that has expired", expired, |params| {
            params.not_after = (SystemTime::now() - DAY / 2).into();
        }),
        signed("one that is not valid yet", expired, |params| {
            params.not_before = (SystemTime::now() + DAY / 2).into();
        }),
        Attack::new("certificates of clients", "one that was revoked", Outcome::Alert(44), |target| {
            let read = |name: &str| std::fs::read_to_string(target.setup.file(name)).expect("a file");
            present(target, &read("tls/revoked.pem"), &read("tls/revoked-key.pem"))
        }),
        signed("one for servers alone", unsupported, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }),
        signed("one with 2,000 names", Outcome::Harmless, |params| {
            let name = |n: usize| SanType::DnsName(format!("n{n}.example").try_into().expect("a name"));
            params.subject_alt_names = (0..2000).map(name).collect();
        }),
    ];
    all.extend(alone());
    all
}

/// The certificates that an attacker makes without the authority.
fn alone() -> Vec<Attack> {
    let unknown = Outcome::Alert(48);
    vec![
        made("one that signed itself", unknown, |_, key| {
            params(|_| {}).self_signed(key).expect("a certificate").pem()
        }),
        made("an authority's that signed itself", Outcome::Alert(46), |_, key| {
            let own = params(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
            own.self_signed(key).expect("a certificate").pem()
        }),
        made("one of another authority", unknown, |_, key| {
            let other = params(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
            let issuer = Issuer::new(other, KeyPair::generate().expect("a key"));
            params(|_| {}).signed_by(key, &issuer).expect("a certificate").pem()
        }),
        made("one of another authority with the right name", Outcome::Alert(51), |target, key| {
            params(|_| {}).signed_by(key, &false_authority(target)).expect("a certificate").pem()
        }),
        made("one that a client's certificate signed", Outcome::Alert(46), by_a_client),
        made("20 times the same, 16 KiB in all", Outcome::Harmless, |target, key| {
            params(|_| {}).signed_by(key, &authority(target)).expect("a certificate").pem().repeat(20)
        }),
        made("a chain of 100 KiB", Outcome::Closed, |target, key| {
            params(|_| {}).signed_by(key, &authority(target)).expect("a certificate").pem().repeat(250)
        }),
    ]
}

/// A chain over a certificate that may not sign.
fn by_a_client(target: &Target, key: &KeyPair) -> String {
    let middle_key = KeyPair::generate().expect("a key");
    let middle = params(|_| {});
    let middle_cert = middle.signed_by(&middle_key, &authority(target)).expect("a certificate").pem();
    let leaf = params(|params| params.distinguished_name.push(DnType::CommonName, "leaf"));
    let leaf = leaf.signed_by(key, &Issuer::new(middle, middle_key)).expect("a certificate").pem();
    leaf + &middle_cert
}
