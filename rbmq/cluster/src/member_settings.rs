//! What a member is told of itself.

use std::time::Duration;

/// What happens to the groups of a member whose lease is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// They wait for it: nothing of a log is lost, and its publishers wait.
    #[default]
    Wait,
    /// Another member takes them, with a new log. What the member had, its disk keeps.
    NewLog,
    /// Another member takes them, and goes on with their logs where the archive ends.
    Archive,
}

/// What a member is.
#[derive(Debug, Clone)]
pub struct MemberSettings {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the member, which no other one has.
    pub id: String,
    /// Where clients and brokers reach it.
    pub addresses: Vec<String>,
    /// The running system that it is on, with the same text for no other one. A member that was killed and is started again there goes on at
    /// once, and elsewhere when its old lease has run out. Its last word names the machine, also after that was started anew.
    pub host: String,
    /// The version of its program.
    pub version: String,
    /// How long others take it for alive after its last renewal.
    pub ttl: Duration,
    /// What happens to the groups of a member that is gone. All members have the same rule.
    pub on_loss: OnLoss,
    /// The archive of the member, in words that members with another one do not have. With [`OnLoss::Archive`] all members have the same.
    pub archive: String,
    /// Decides how pauses differ.
    pub seed: u64,
}
