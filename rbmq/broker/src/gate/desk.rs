//! What decides about the clients of gateways.

use access::Audit;

use crate::admission::Admission;
use crate::in_force::InForce;
use crate::inbox::Sender;

/// What decides about the clients of gateways. Clones share it.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) in_force: InForce,
    pub(crate) admission: Admission,
    pub(crate) audit: Audit,
    pub(crate) events: Sender,
}
