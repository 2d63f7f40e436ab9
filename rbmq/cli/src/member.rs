//! A broker as a member of a cluster: what the section `[cluster]` says, and etcd behind the broker's questions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use commands::Failure;
use locks::Mutex;
use rbmq::TopicName;
use rbmq_broker::{
    Broker, BrokerConfig, Cluster, ClusterMember, ClusterSettings, ClusterStatus, LogClaim, Owner,
};
use rbmq_cluster::etcd::{Access, ClientSettings, Endpoint, running_system};
use rbmq_cluster::{Hooks, MemberSettings, Membership, OnLoss, Status};
use rocketbufs::Epoch;
use tracing::info;

use super::prompt;

/// The file beside the logs with what the member knows of the map. No topic has a folder of this name.
const MAP_FILE: &str = "+cluster";

/// How long the broker's thread may take to say that it lives.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long the broker serves on while etcd is told that it ends.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// A broker as a member of a cluster.
pub(super) struct Member {
    id: String,
    membership: Membership,
    /// Until it is started.
    client: Mutex<Option<ClientSettings>>,
    /// How long the disk may be busy with one write or sync.
    patience: Duration,
    gives_what_is_archived: bool,
}

/// How a call of etcd reaches it.
///
/// # Errors
/// An address, a certificate or a password cannot be used.
pub(super) fn client(cluster: &ClusterSettings) -> Result<ClientSettings, Failure> {
    access(cluster).client(|path| prompt::of_file(path).map_err(Refused)).map_err(|Refused(failure)| failure)
}

fn access(cluster: &ClusterSettings) -> Access<'_> {
    let ClusterSettings { etcd, user, password_file, ca, cert, key, .. } = cluster;
    Access { etcd, user, password_file, ca, cert, key, ttl: cluster.ttl() }
}

/// Why etcd cannot be reached.
struct Refused(Failure);

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self(Failure::Failed(text))
    }
}

/// The addresses that others reach a broker at.
fn advertised(config: &BrokerConfig) -> Result<Vec<String>, Failure> {
    let (cluster, listen) = (&config.cluster, &config.broker.listen);
    let addresses =
        if cluster.advertise.is_empty() { vec![listen.clone()] } else { cluster.advertise.clone() };
    let is_open = |text: &String| {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        matches!(host, "" | "0.0.0.0" | "[::]") || port == "0"
    };
    if let Some(open) = addresses.iter().find(|text| is_open(text)) {
        let message = format!(
            "nobody reaches this broker at {open}: set cluster.advertise to the addresses that others can reach"
        );
        return Err(Failure::Failed(message));
    }
    let is_local = |url: String| url.parse::<Endpoint>().is_ok_and(|at| at.is_local());
    let is_near = addresses.iter().all(|address| is_local(format!("http://{address}")));
    if is_near && !access(cluster).is_local() {
        let message = format!(
            "etcd is on another machine, and no other machine reaches this broker at {}: set cluster.advertise",
            addresses.join(", ")
        );
        return Err(Failure::Failed(message));
    }
    Ok(addresses)
}

/// The archive in which the logs of a cluster go on, in words that no other archive has; empty where they do not.
fn archive(config: &BrokerConfig) -> String {
    let (s3, on_loss) = (&config.s3, config.cluster.on_loss);
    let endpoint = if s3.endpoint.is_empty() { &s3.region } else { &s3.endpoint };
    let is_used = on_loss == rbmq_broker::OnLoss::Archive;
    if is_used { format!("{}/{} at {endpoint}", s3.bucket, s3.prefix) } else { String::new() }
}

impl Member {
    /// The member that a configuration describes. None: the broker is alone.
    ///
    /// # Errors
    /// The section cannot be used.
    pub(super) fn of(config: &BrokerConfig) -> Result<Option<Arc<Self>>, Failure> {
        let cluster = &config.cluster;
        if !cluster.is_used() {
            return Ok(None);
        }
        let on_loss = match cluster.on_loss {
            rbmq_broker::OnLoss::NewLog => OnLoss::NewLog,
            rbmq_broker::OnLoss::Archive => OnLoss::Archive,
            _ => OnLoss::Wait,
        };
        let client = client(cluster)?;
        let addresses = advertised(config)?;
        let id = if cluster.id.is_empty() { addresses[0].clone() } else { cluster.id.clone() };
        let seed = std::process::id().into();
        let settings = MemberSettings {
            cluster: cluster.name.clone(),
            id,
            addresses,
            host: running_system(),
            version: env!("CARGO_PKG_VERSION").into(),
            ttl: cluster.ttl(),
            on_loss,
            archive: archive(config),
            seed,
        };
        info!("member {:?} of the cluster {:?}", settings.id, settings.cluster);
        let id = format!("{}/{}", settings.cluster, settings.id);
        let (client, patience) = (Mutex::new(Some(client)), cluster.ttl() / 2);
        let membership = Membership::new(settings, cluster.group_levels).map_err(Failure::failed)?;
        if !config.broker.keep_dir.is_empty() {
            membership.remember_in(&Path::new(&config.broker.keep_dir).join(MAP_FILE));
        }
        let gives_what_is_archived = on_loss == OnLoss::Archive;
        Ok(Some(Arc::new(Self { id, membership, client, patience, gives_what_is_archived })))
    }

    /// The broker runs: it becomes a member.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(&self, broker: &Broker) -> Result<(), Failure> {
        let Some(client) = self.client.lock().take() else { return Ok(()) };
        let (watch, changes, patience) = (broker.watch(), broker.watch(), self.patience);
        let health = move || {
            if !watch.is_alive(ANSWER_WITHIN) {
                return Err("the broker's thread does not answer".to_owned());
            }
            match watch.disk_busy_for() {
                busy if busy > patience => Err(format!("the disk has stood still for {} s", busy.as_secs())),
                _ => Ok(()),
            }
        };
        let changed = move || changes.cluster_changed();
        let topics = broker.watch();
        let open = move || topics.archived_topics().iter().map(|topic| topic.as_str().to_owned()).collect();
        let hooks = Hooks { health: Box::new(health), open: Box::new(open), changed: Box::new(changed) };
        self.membership.start(client, hooks).map_err(Failure::failed)
    }

    /// Whether other members go on where the archive ends: it has to have all before they do.
    pub(super) fn gives_what_is_archived(&self) -> bool {
        self.gives_what_is_archived
    }

    /// The broker is about to end, and others learn of it: publishers wait there and not here, or are taken there.
    pub(super) fn leave(&self) {
        self.membership.leave(LEAVE_WITHIN);
    }

    /// The broker has ended.
    pub(super) fn stop(&self) {
        self.membership.stop();
    }
}

impl Cluster for Member {
    fn id(&self) -> Option<String> {
        Some(self.id.clone())
    }

    fn owner(&self, topic: &TopicName) -> Owner {
        match self.membership.owner(topic.as_str()) {
            rbmq_cluster::Owner::Here { term } => Owner::Here { term },
            rbmq_cluster::Owner::Elsewhere { addresses } => Owner::Elsewhere { addresses },
            rbmq_cluster::Owner::Unsettled { reason } => Owner::Unsettled { reason },
        }
    }

    fn has_log(&self, topic: &TopicName) {
        self.membership.has_log(topic.as_str());
    }

    fn logs(&self) -> Result<Vec<TopicName>, String> {
        // A key that names no topic is nobody's.
        Ok(self.membership.logs()?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    fn log_claim(&self, topic: &TopicName) -> Result<Option<LogClaim>, String> {
        let claim = self.membership.log_claim(topic.as_str())?;
        Ok(claim.map(|rbmq_cluster::LogClaim { log, begin, limit, term, mark, revision }| LogClaim {
            epoch: Epoch(log),
            begin,
            limit,
            term,
            mark,
            revision,
        }))
    }

    fn claim_log(&self, topic: &TopicName, claim: &LogClaim) -> Result<bool, String> {
        let LogClaim { epoch, begin, limit, term, mark, revision } = *claim;
        let claim = rbmq_cluster::LogClaim { log: epoch.0, begin, limit, term, mark, revision };
        self.membership.claim_log(topic.as_str(), &claim)
    }

    fn members(&self) -> Vec<ClusterMember> {
        let others = self.membership.others().into_iter();
        others.map(|(id, addresses)| ClusterMember { id, addresses }).collect()
    }

    fn status(&self) -> ClusterStatus {
        let Status { degraded, members, owned_groups, term_changes, etcd_errors, lease_age } =
            self.membership.status();
        let mut status = ClusterStatus::default();
        (status.degraded, status.lease_age) = (degraded, lease_age);
        (status.members, status.owned_groups) = (members, owned_groups);
        (status.term_changes, status.store_errors) = (term_changes, etcd_errors);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, etcd: &str, advertise: &[&str]) -> BrokerConfig {
        let mut config = BrokerConfig::default();
        config.broker.listen = listen.into();
        config.cluster.name = "c".into();
        config.cluster.etcd = vec![etcd.into()];
        config.cluster.advertise = advertise.iter().map(|&address| address.into()).collect();
        config
    }

    #[test]
    fn others_must_be_able_to_reach_a_member() {
        let near = "http://127.0.0.1:2379";
        let of = |listen, etcd, advertise: &[&str]| match Member::of(&config(listen, etcd, advertise)) {
            Ok(_) => String::new(),
            Err(Failure::Failed(text)) => text,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(of("127.0.0.1:7411", near, &[]), "");
        assert_eq!(of("0.0.0.0:7411", "http://10.0.0.9", &["10.0.0.1:7411"]), "");
        for (listen, etcd, advertise, expected) in [
            ("0.0.0.0:7411", near, &[][..], "at 0.0.0.0:7411: set cluster.advertise"),
            ("[::]:7411", near, &[], "set cluster.advertise"),
            ("127.0.0.1:0", near, &[], "set cluster.advertise"),
            ("127.0.0.1:7411", "http://10.0.0.9", &[], "etcd is on another machine"),
            (
                "10.0.0.1:7411",
                "10.0.0.9:2379",
                &[],
                "cluster.etcd: \"10.0.0.9:2379\" is no address of an etcd",
            ),
        ] {
            let text = of(listen, etcd, advertise);
            assert!(text.contains(expected), "{listen} {etcd}: {text}");
        }
    }

    #[test]
    fn a_password_goes_to_no_other_machine_in_the_clear() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "secret\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let mut config = config("10.0.0.1:7411", "http://10.0.0.9", &[]);
        config.cluster.user = "rbmq".into();
        config.cluster.password_file = path.display().to_string();
        let Err(Failure::Failed(text)) = client(&config.cluster) else { panic!("it is sent") };
        assert!(text.contains("use https, not http://10.0.0.9:2379"), "{text}");
        config.cluster.etcd = vec!["http://127.0.0.1".into()];
        let (user, password) = client(&config.cluster).unwrap().login.unwrap();
        assert_eq!((user.as_str(), password.expose()), ("rbmq", "secret"));
    }
}
