//! The content of certificates and of lists of revoked ones, for people and for checks of dates.

use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName, X509Certificate};

/// The content of a certificate, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The subject.
    pub subject: String,
    /// The number that its authority gave it.
    pub serial: Vec<u8>,
    /// The authority that signed it.
    pub issuer: String,
    /// The names and addresses that it is for.
    pub names: Vec<String>,
    /// The last second of its validity, in seconds since 1970.
    pub valid_until: i64,
    /// The first second of its validity, in seconds since 1970.
    pub valid_from: i64,
    /// The same as text.
    pub valid_until_text: String,
    /// Whether it may sign other certificates.
    pub is_authority: bool,
}

impl CertificateFacts {
    /// The facts of a certificate in DER; the error says what is wrong with it.
    ///
    /// # Errors
    /// The content is no certificate.
    pub fn of(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map_or(Vec::new(), |names| names.value.general_names.iter().map(name).collect());
        Ok(Self {
            subject: parsed.subject().to_string(),
            serial: parsed.raw_serial().to_vec(),
            issuer: parsed.issuer().to_string(),
            names,
            valid_until: parsed.validity().not_after.timestamp(),
            valid_from: parsed.validity().not_before.timestamp(),
            valid_until_text: parsed.validity().not_after.to_string(),
            is_authority: parsed.is_ca(),
        })
    }

    /// Why it is not valid at a time; none if it is.
    pub fn fault_at(&self, seconds: i64) -> Option<String> {
        if seconds > self.valid_until {
            return Some(format!("has expired ({})", self.valid_until_text));
        }
        (seconds < self.valid_from).then(|| "is not valid yet".to_owned())
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => std::net::Ipv4Addr::from(v4).to_string(),
            (_, Ok(v6)) => std::net::Ipv6Addr::from(v6).to_string(),
            _ => name.to_string(),
        },
        other => other.to_string(),
    }
}

/// The content of a list of revoked certificates, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationFacts {
    /// The authority whose certificates are revoked.
    pub issuer: String,
    /// The numbers of the revoked certificates, and since when in seconds since 1970.
    pub serials: Vec<(Vec<u8>, i64)>,
    /// The number of the list, which grows; empty if it has none.
    pub number: Vec<u8>,
    /// The second of its begin, in seconds since 1970.
    pub valid_from: i64,
    /// The last second at which it is in force, in seconds since 1970. None: it has no end, and is not accepted.
    pub valid_until: Option<i64>,
    /// The same as text.
    pub valid_until_text: String,
}

impl RevocationFacts {
    /// The facts of a list in DER; the error says what is wrong with it.
    ///
    /// # Errors
    /// The content is no list.
    pub fn of(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = CertificateRevocationList::from_der(der).map_err(|error| error.to_string())?;
        let revoked = parsed.iter_revoked_certificates();
        let serials = revoked.map(|own| (own.raw_serial().to_vec(), own.revocation_date.timestamp()));
        let until = parsed.next_update();
        Ok(Self {
            issuer: parsed.issuer().to_string(),
            serials: serials.collect(),
            number: parsed.crl_number().map_or(Vec::new(), |number| number.to_bytes_be()),
            valid_from: parsed.last_update().timestamp(),
            valid_until: until.map(|until| until.timestamp()),
            valid_until_text: until.map_or_else(|| "no date".to_owned(), |until| until.to_string()),
        })
    }

    /// Why it is not in force at a time; none if it is.
    pub fn fault_at(&self, seconds: i64) -> Option<String> {
        match self.valid_until {
            None => Some("does not say how long it is in force".to_owned()),
            Some(until) if seconds > until => Some(format!("has expired ({})", self.valid_until_text)),
            Some(_) => (seconds < self.valid_from).then(|| "is not in force yet".to_owned()),
        }
    }
}
