//! Certificates for tests of TLS, in a folder that is removed with them.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rocketnet::tcp::{Tls, TlsSettings};

/// An authority and the files of certificates that it signed.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one. Its own certificate is in [`Authority::ca`].
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.path().join("ca.pem"), cert.pem()).expect("a file");
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// The file of this name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file of the authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Signs a certificate for this name, changed as the caller wishes. The files are `NAME.pem` and `NAME-key.pem`.
    pub fn sign(&self, file: &str, name: &str, change: impl FnOnce(&mut CertificateParams)) -> TlsSettings {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let (cert_file, key_file) =
            (self.file(&format!("{file}.pem")), self.file(&format!("{file}-key.pem")));
        std::fs::write(&cert_file, cert.pem()).expect("a file");
        std::fs::write(&key_file, key.serialize_pem()).expect("a file");
        TlsSettings {
            cert: Some(cert_file),
            key: Some(key_file),
            ca: Some(self.ca()),
            ..TlsSettings::default()
        }
    }

    /// Writes the list of the certificates with these numbers, in force until a year, and returns its file.
    #[allow(dead_code, reason = "one of the tests uses it")]
    pub fn revoke(&self, numbers: &[u64], until_year: i32) -> PathBuf {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(until_year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list");
        let file = self.file("crl.pem");
        std::fs::write(&file, list.pem().expect("PEM")).expect("a file");
        file
    }

    /// A server's settings, for 127.0.0.1.
    pub fn server(&self) -> TlsSettings {
        self.sign("server", "127.0.0.1", |_| {})
    }

    /// The settings of a client without a certificate.
    #[allow(dead_code, reason = "one of the tests uses it")]
    pub fn client(&self) -> TlsSettings {
        TlsSettings { ca: Some(self.ca()), ..TlsSettings::default() }
    }
}

/// A day of the past.
#[allow(dead_code, reason = "one of the tests uses it")]
pub fn past(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
}

/// TLS with these settings.
pub fn tls(settings: TlsSettings) -> Tls {
    Tls::new(settings).expect("good files")
}
