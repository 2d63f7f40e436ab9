//! The place of certificates in a build without TLS: there are none.

use std::convert::Infallible;

use super::security::{TlsError, TlsSettings};

/// TLS of a process. This build has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls(pub(super) Infallible);

impl Tls {
    /// Fails.
    ///
    /// # Errors
    /// [`TlsError::NotBuilt`].
    pub fn new(_: TlsSettings) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// None: it cannot be called.
    pub fn reload(&self) -> Result<(), TlsError> {
        match self.0 {}
    }

    /// The settings.
    pub fn settings(&self) -> &TlsSettings {
        match self.0 {}
    }

    pub(super) fn can_listen(&self) -> bool {
        match self.0 {}
    }
}
