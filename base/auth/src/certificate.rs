//! The names in a client's certificate.
//!
//! The TLS connection has checked the signature, the time and the issuer. Here the names are read: the common name of the
//! subject, and the subject alternative names.

use std::fmt;
use std::str::FromStr;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The most names that are read from a certificate.
const MAX_NAMES: usize = 64;

/// The longest name in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The kind of a name in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    CommonName,
    Dns,
    Uri,
    Email,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::CommonName, "CN="), (Kind::Dns, "DNS="), (Kind::Uri, "URI="), (Kind::Email, "EMAIL=")];

/// A name in a certificate, written as `CN=alice`, `DNS=alice.example.com`, `URI=spiffe://example.com/alice` or
/// `EMAIL=alice@example.com`. Names are compared byte by byte, host names without regard to case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CertificateName {
    kind: Kind,
    name: String,
}

impl CertificateName {
    fn new(kind: Kind, name: &str) -> Option<Self> {
        let is_plain = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control);
        let name = if kind == Kind::Dns { name.to_ascii_lowercase() } else { name.to_owned() };
        is_plain.then_some(Self { kind, name })
    }

    /// The names in a certificate in DER. Bytes that are no certificate have none.
    pub fn of_der(der: &[u8]) -> Vec<Self> {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
        let common = certificate.subject().iter_common_name();
        let common = common.filter_map(|name| Self::new(Kind::CommonName, name.as_str().ok()?));
        let alternative = certificate.subject_alternative_name().ok().flatten();
        let alternative = alternative.iter().flat_map(|names| &names.value.general_names);
        let alternative = alternative.filter_map(|name| match name {
            GeneralName::DNSName(name) => Self::new(Kind::Dns, name),
            GeneralName::URI(name) => Self::new(Kind::Uri, name),
            GeneralName::RFC822Name(name) => Self::new(Kind::Email, name),
            _ => None,
        });
        common.chain(alternative).take(MAX_NAMES).collect()
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, prefix) = KINDS.iter().find(|(kind, _)| *kind == self.kind).expect("every kind is listed");
        write!(f, "{prefix}{}", self.name)
    }
}

/// A text is no name in a certificate. Its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not written CN=…, DNS=…, URI=… or EMAIL=…, with 1 to 256 bytes")]
pub struct CertificateNameError(String);

impl FromStr for CertificateName {
    type Err = CertificateNameError;

    fn from_str(text: &str) -> Result<Self, CertificateNameError> {
        let named = KINDS.iter().find_map(|(kind, prefix)| Some((*kind, text.strip_prefix(prefix)?)));
        let name = named.and_then(|(kind, name)| Self::new(kind, name));
        name.ok_or_else(|| CertificateNameError(text.chars().take(MAX_NAME_BYTES).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(common: &str, alternative: Vec<rcgen::SanType>) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, common);
        params.subject_alt_names = alternative;
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn names(der: &[u8]) -> Vec<String> {
        CertificateName::of_der(der).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn subject_and_alternative_names_are_read() {
        let alternative = vec![
            rcgen::SanType::DnsName("Alice.Example.com".try_into().unwrap()),
            rcgen::SanType::URI("spiffe://example.com/alice".try_into().unwrap()),
            rcgen::SanType::Rfc822Name("alice@example.com".try_into().unwrap()),
            rcgen::SanType::IpAddress([127, 0, 0, 1].into()),
        ];
        let der = certificate("alice", alternative);
        let expected = [
            "CN=alice",
            "DNS=alice.example.com",
            "URI=spiffe://example.com/alice",
            "EMAIL=alice@example.com",
        ];
        assert_eq!(names(&der), expected);
        for name in expected {
            assert_eq!(name.parse::<CertificateName>().unwrap().to_string(), name);
        }
        for cut in 0..der.len() {
            assert!(CertificateName::of_der(&der[..cut]).is_empty());
        }
    }

    #[test]
    fn a_common_name_that_looks_like_a_host_is_none() {
        assert_eq!(names(&certificate("DNS=alice.example.com", Vec::new())), ["CN=DNS=alice.example.com"]);
        assert!(names(&certificate("a\nb", Vec::new())).is_empty());
        for wrong in ["alice", "CN=", "cn=alice", "CN=a\nb", "O=alice"] {
            assert!(wrong.parse::<CertificateName>().is_err(), "{wrong}");
        }
    }
}
