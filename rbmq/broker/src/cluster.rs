//! The contract of a cluster: several brokers that share their topics, and somebody who says which of them has which.
//!
//! ```text
//!   store of the map ──▶ Cluster ◀── owner of a topic? members? ── the broker's thread
//!                           └── the map or the members have changed (`Watch::cluster_changed`) ──▶
//! ```
//!
//! A kept topic has one owner: the member at which its log is written. The other members send its publishers there, and receive its log as any
//! other. Topics that are not kept have none, and live where their publishers are. The path of messages asks nothing.

use std::time::Duration;

use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};

/// Which member has a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// This broker.
    Here {
        /// Grows with each change of the owner. The first term of a topic is 1. A broker that gets a topic with another term than it had it
        /// with knows that others may have written to it.
        term: u64,
    },
    /// Another member.
    Elsewhere {
        /// Where its clients connect, the best first. Empty: it is not known at the moment.
        addresses: Vec<String>,
    },
    /// Nobody, as far as this broker knows. Publishers wait.
    Unsettled {
        /// Why, for people.
        reason: String,
    },
}

/// The log of a topic that goes on in the archive, as the store of the map knows it: its name, and who may write which positions. No owner writes what
/// another one may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogClaim {
    /// The name of the log.
    pub epoch: Epoch,
    /// Where its last owner has begun to write.
    pub begin: Position,
    /// What its last owner may write is below. The next one begins here.
    pub limit: Position,
    /// The term of its last owner.
    pub term: u64,
    /// A random number of the owner that has begun there: no two claims for which somebody has begun have the same.
    pub mark: u64,
    /// The change of the store that this comes from. 0: the store has none yet.
    pub revision: i64,
}

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMember {
    /// Its name. The name stays when the member is started again, also at other addresses.
    pub id: String,
    /// Where brokers connect. They are tried in turn.
    pub addresses: Vec<String>,
}

/// How a cluster is, as far as this member knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The reason, for people, why something does not work. None: all is well.
    pub degraded: Option<String>,
    /// The members that live, with this one.
    pub members: usize,
    /// The groups of topics that this member has.
    pub owned_groups: usize,
    /// How often the owner of a group has changed since the start.
    pub term_changes: u64,
    /// How many calls of the store of the map have failed since the start.
    pub store_errors: u64,
    /// The time since the store heard that this member lives. None: it does not know it.
    pub lease_age: Option<Duration>,
}

impl ClusterMember {
    /// The addresses as one text.
    pub(crate) fn address(&self) -> String {
        self.addresses.join(",")
    }
}

/// Says which member has which topic: see [`Parts::cluster`](crate::Parts::cluster).
///
/// The broker's thread calls, and all publishers wait for the answer: it comes from memory, at once, and nothing is asked over a network. After
/// each change of an answer the cluster calls [`Watch::cluster_changed`](crate::Watch::cluster_changed), from any thread; then the broker asks for
/// all that it has open.
pub trait Cluster: Send + Sync {
    /// The name of this member, which no broker of another cluster has: it is that of the next process, too. None: it has no name, and the
    /// places that it had at other brokers are kept for their time.
    fn id(&self) -> Option<String> {
        None
    }

    /// Who has a kept topic; of a kept space, the name of its log is asked for. A topic that nobody has yet is `Unsettled`, and the question is
    /// the sign that it is wanted.
    fn owner(&self, topic: &TopicName) -> Owner;

    /// The log of a topic is on the disk of this broker: if nobody has the topic, it belongs here. A broker that starts says so of each kept topic,
    /// before it asks for any.
    fn has_log(&self, topic: &TopicName) {
        let _ = topic;
    }

    /// What the store of the map knows of the log of a topic. None: there is no log yet. The store is asked: the call may wait, on a thread of its own.
    ///
    /// # Errors
    /// Why the store says nothing, for people.
    fn log_claim(&self, topic: &TopicName) -> Result<Option<LogClaim>, String> {
        Err(format!("this cluster does not say which positions of '{topic}' a member may write"))
    }

    /// Has the store of the map say this of a log, if it still says what it said at `claim.revision`, and the topic is at this member in the term
    /// of the claim. False: otherwise, and nothing has changed. It may wait as [`log_claim`](Self::log_claim).
    ///
    /// # Errors
    /// As there. The store may have taken it.
    fn claim_log(&self, topic: &TopicName, claim: &LogClaim) -> Result<bool, String> {
        let _ = claim;
        Err(format!("this cluster does not say which positions of '{topic}' a member may write"))
    }

    /// The topics with a log that goes on in the archive, as far as the store of the map knows. A member opens those that it has, also if it has heard
    /// of none of them. It may wait as [`log_claim`](Self::log_claim).
    ///
    /// # Errors
    /// As there.
    fn logs(&self) -> Result<Vec<TopicName>, String> {
        Ok(Vec::new())
    }

    /// The other members, without this one. The broker keeps a connection to each, as to an upstream broker of `broker.upstream` that has the
    /// login, and everything else, of the first one there. A member whose addresses are in the configuration is not dialed twice.
    fn members(&self) -> Vec<ClusterMember>;

    /// How it is, for `/ready` and the metrics.
    fn status(&self) -> ClusterStatus {
        ClusterStatus::default()
    }
}
