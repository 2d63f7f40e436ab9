//! The place of TLS of a connection in a build without it: there is none.

use std::convert::Infallible;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::certificates::Tls;
use super::receive::{Intake, Progress, Turn};
use super::send::Outgoing;
use super::spares::Spares;
use crate::contract::Down;

/// TLS of one connection: none in this build.
pub(super) struct Secure(Infallible);

impl Secure {
    pub fn accept(tls: &Tls) -> Result<Self, String> {
        match tls.0 {}
    }

    pub fn connect(tls: &Tls, _: &str) -> Result<Self, String> {
        match tls.0 {}
    }

    pub fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub fn has_to_write(&self) -> bool {
        match self.0 {}
    }

    pub fn certificate(&self) -> Option<Arc<[u8]>> {
        match self.0 {}
    }

    pub fn shake(&mut self, _: BorrowedFd<'_>, _: &mut [u8]) -> Result<bool, String> {
        match self.0 {}
    }

    pub fn flush(&mut self, _: &mut Outgoing, _: BorrowedFd<'_>, _: &mut Spares) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn close(&mut self, _: &mut Outgoing, _: BorrowedFd<'_>) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }

    pub fn take_rest(&mut self, _: &mut Intake, _: BorrowedFd<'_>) {
        match self.0 {}
    }

    pub fn read(
        &mut self,
        _: &mut Intake,
        _: BorrowedFd<'_>,
        _: &mut [u8],
        _: &mut Turn<'_>,
    ) -> Result<Progress, Down> {
        match self.0 {}
    }
}
