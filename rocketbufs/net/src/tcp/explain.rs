//! The meaning of a failed handshake, and the remedy.

use rustls::{AlertDescription, CertRevocationListError, CertificateError, Error, InvalidMessage};

/// Names the fault of a handshake. `server`: this end is the server.
pub(super) fn handshake(error: &Error, server: bool) -> String {
    match error {
        Error::AlertReceived(alert) => alert_received(u8::from(*alert)),
        Error::InvalidCertificate(why) => format!("{}{}", certificate(why), remedy(why, server)),
        Error::InvalidCertRevocationList(CertRevocationListError::BadSignature) => format!(
            "{error}: a list in tls.crl names the authority of the peer's certificate and is not signed by it, but by another \
             one of the same name. Put the list of this authority there (rbmq keygen revoke) and reload"
        ),
        Error::NoCertificatesPresented => "the client presented no certificate, and tls.client_certificates = \"require\" here: \
             set tls.cert and tls.key there (rbmq keygen client)"
            .into(),
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion)
            if server =>
        {
            "the client does not speak TLS, which this listener requires: set tls.mode = \"require\" there (rbmq: --tls)".into()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "the peer does not speak TLS: set tls.mode = \"require\" there, or \"off\" here".into()
        }
        Error::NoApplicationProtocol => WRONG_PROTOCOL.into(),
        Error::PeerIncompatible(why) => format!("the peer has no TLS 1.3 that fits ({why:?})"),
        error => error.to_string(),
    }
}

/// The peer speaks TLS for something else.
pub(super) const WRONG_PROTOCOL: &str = "the peer speaks TLS, but not this protocol (its ALPN has no rocketbufs/1): is it another server or client?";

/// The meaning of an alert of the peer: the other end knows why.
pub(super) fn alert_received(alert: u8) -> String {
    let what = match AlertDescription::from(alert) {
        AlertDescription::ProtocolVersion => {
            "it has no TLS 1.3. A listener without TLS answers this too: set tls.mode = \"require\" and tls.cert there, or \
             tls.mode = \"off\" here"
        }
        AlertDescription::CertificateRequired => {
            "it requires a certificate of this end: set tls.cert and tls.key (rbmq keygen client; rbmq: --cert, --key)"
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it does not trust the authority of this end's certificate: tls.ca there must name the authority that signed tls.cert"
        }
        AlertDescription::CertificateExpired => {
            "this end's certificate has expired: replace tls.cert and reload"
        }
        AlertDescription::CertificateRevoked => {
            "this end's certificate was revoked: its authority has to sign another one"
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "it refuses this end's certificate: its names, dates or uses do not fit (rbmq check tls)"
        }
        AlertDescription::NoApplicationProtocol => return WRONG_PROTOCOL.into(),
        AlertDescription::HandshakeFailure => "it found no common way to encrypt",
        other => return format!("the peer ended the TLS connection with the alert {other:?}"),
    };
    format!("the peer refused: {what}")
}

fn certificate(why: &CertificateError) -> String {
    format!("the peer's certificate is not accepted: {why}")
}

fn remedy(why: &CertificateError, server: bool) -> &'static str {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature if server => {
            ". Set tls.ca here to the authority that signed it, or give the client a certificate of this authority"
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ". Set tls.ca (rbmq: --ca) to the certificate of the authority that signed it"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ". Replace it there and reload, or set this machine's clock"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ". Connect to a name that it is for, or name one in tls.server_name (rbmq: --server-name)"
        }
        CertificateError::Revoked => ". A list in tls.crl names it: its holder needs another one",
        CertificateError::UnknownRevocationStatus => {
            ". tls.crl has no list of its authority: add one (rbmq keygen revoke), or remove tls.crl"
        }
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            ". The list in tls.crl is not in force any more: make it anew (rbmq keygen revoke) and reload"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            ". It is made for another use: rbmq keygen makes those of servers and of clients"
        }
        _ => "",
    }
}
