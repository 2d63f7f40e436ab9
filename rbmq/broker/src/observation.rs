//! The right to observe the broker over HTTP, shown by a certificate.
//!
//! ```text
//!   a request ──▶ certificate ──▶ user (users.file) ──▶ a rule with observe (access.rules) ──▶ its page, or a refusal
//! ```
//!
//! Users, certificates and rules are those of the broker's own connections. Each request is decided anew, so a reload holds for the
//! next one.

use std::net::SocketAddr;
use std::sync::Arc;

use access::{Audit, AuditEvent, Peer, Source};

use super::admission::not_allowed_at_all;
use super::in_force::{InForce, Rules};

/// The right to observe, for the HTTP endpoint.
#[derive(Clone)]
pub(super) struct Observation {
    in_force: InForce,
    audit: Audit,
}

/// A refusal: its reason for the client, and for the log.
pub(super) struct Denied {
    pub(super) for_client: String,
    pub(super) for_log: String,
}

impl Observation {
    pub(super) fn new(in_force: InForce, audit: Audit) -> Self {
        Self { in_force, audit }
    }

    /// Whether a client may observe the broker, by a certificate that its connection has checked. Without users and rules
    /// everybody may.
    pub(super) fn check(&self, addr: SocketAddr, certificate: Option<Arc<[u8]>>) -> Result<(), Denied> {
        let Rules { authenticator, rights, .. } = self.in_force.rules();
        let addr = addr.to_string();
        let peer = Peer { source: Source::of(&addr), certificate, uid: None };
        let (user, denied) = match authenticator.of_connection(&peer) {
            Err(why) => {
                let for_client = match peer.certificate {
                    Some(_) => "the certificate is of no user of the broker (users.file)",
                    None => "this page asks for the certificate of a user who may observe the broker",
                };
                (None, Denied { for_client: for_client.into(), for_log: why.to_string() })
            }
            Ok(login) => {
                let identity = login.identity;
                if rights.is_none_or(|rights| rights.of(&identity).may_observe()) {
                    return Ok(());
                }
                let why = not_allowed_at_all(&identity, "observe the broker", "observe");
                (Some(identity), Denied { for_client: why.clone(), for_log: why })
            }
        };
        self.audit.record(&AuditEvent {
            user: user.as_ref().map(|identity| identity.user.as_str()),
            address: Some(&addr),
            operation: Some("observe over HTTP"),
            reason: Some(&denied.for_log),
            ..AuditEvent::new("refused")
        });
        Err(denied)
    }
}
