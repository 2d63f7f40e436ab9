//! TLS 1.3 without I/O, for connections whose bytes come out of rings.
//!
//! rustls makes the handshake and derives the keys. rustls also copies the bytes that it encrypts, so records are sealed
//! and opened here: from where the bytes are, into the buffer of a socket, and in the buffer that a socket was read into.
//!
//! ```text
//!   socket ──▶ Handshake ──▶ socket            until it is established, by rustls
//!   bytes ──▶ Session::send ──▶ Out ──▶ socket    one encryption, no copy before it
//!   socket ──▶ buffer ──▶ Session::open ──▶ bytes in the same buffer
//! ```
//!
//! Renegotiation, early data and other versions of TLS are not supported. With the feature `tls12`, [`Credentials`] make listeners whose
//! connections may be of TLS 1.2: their records belong to rustls.
#![forbid(unsafe_code)]

mod credentials;
mod facts;
mod handshake;
mod out;
mod record;
#[cfg(feature = "tls12")]
mod records;
mod reloadable;
mod session;
mod tickets;

pub use credentials::{
    ClientCertificates, Credentials, LoadError, SettingNames, Versions, load_chain, load_key, load_revoked,
};
pub use facts::{CertificateFacts, RevocationFacts};
pub use handshake::{Established, Handshake};
pub use out::{Out, PIECE};
pub use record::{Alert, Content, HEADER, Keys, MAX_PLAIN, MAX_SEALED, OVERHEAD};
#[cfg(feature = "tls12")]
pub use records::{Broken, Records};
pub use reloadable::Reloadable;
pub use session::{Failure, Secrets, Session};
