//! The section `[cluster]`: several brokers that share kept topics.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use settings::{by_serde, section};

use super::super::rules::{ArchiveKind, Rules};
use super::error::BrokerConfigError;

/// What happens to the kept topics of a broker that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnLoss {
    /// They wait for it.
    #[default]
    Wait,
    /// Another broker takes them, with new logs.
    NewLog,
    /// Another broker takes them, and goes on with their logs where the archive ends.
    Archive,
}

by_serde!(OnLoss);

section! {
    /// The `[cluster]` section: this broker is one of several, its members, that share the kept topics. etcd says which of them has which topic.
    /// All members have the same `name`, `group_levels` and `on_loss`.
    "cluster" ClusterSettings {
        /// The name of the cluster, which is part of all of its keys in etcd. Default "": this broker is alone.
        name: String = String::new();
        /// The addresses of etcd, as "http://10.0.0.1:2379" or "https://…". They are members of one etcd; the next one is asked when one does not
        /// answer.
        etcd: Vec<String> = Vec::new();
        /// The name of this broker in the cluster. It stays with the data: a broker that has another one is another broker. Default "": the
        /// first address of `advertise`.
        id: String = String::new();
        /// The addresses, `HOST:PORT`, at which clients and the other brokers reach this one. Default []: `broker.listen`, if that is not
        /// every address of the machine.
        advertise: Vec<String> = Vec::new();
        /// How long the others take a broker for alive that says nothing, in milliseconds; whole seconds, rounded up. Default 10,000, 2,000 to
        /// 600,000. Too small: a pause of the network looks like the death of a broker. Too large: that death is seen late.
        ttl_ms: u64 = 10_000, "ms", range [2_000 to 600_000];
        /// How many levels of a topic's name make its group. The topics of a group have one owner. Default 1, 1 to 16. Too large: each topic is a
        /// key in etcd. A kept space is a group of its own.
        group_levels: usize = 1, range [1 to 16];
        /// What happens to the topics of a broker that is gone: "wait", they wait for it, and nothing is lost; or "new-log", another broker goes on
        /// with a new log, and what the old one has is read again when somebody moves the group back; or "archive", another broker goes on with the
        /// same log where its archive in an object store ends, and what is not there is told as lost. Default "wait".
        on_loss: OnLoss = OnLoss::Wait;
        /// The user at etcd. Default "": etcd asks for none.
        user: String = String::new();
        /// File whose first line is the password of `user`, which is sent to another machine by https alone.
        password_file: String = String::new();
        /// File with the certificates of the authorities that sign etcd's certificates, in PEM. Default "": those of the system.
        ca: String = String::new();
        /// File with the certificate of this broker for etcd in PEM. Default "": none.
        cert: String = String::new();
        /// File with the key of `cert` in PEM.
        key: String = String::new();
    }
}

impl ClusterSettings {
    /// Whether this broker is a member of a cluster.
    pub fn is_used(&self) -> bool {
        !self.name.is_empty()
    }

    /// `ttl_ms` as a duration.
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_ms.div_ceil(1_000))
    }

    /// Checks that the logs of a cluster can go on in the archive, if they are to.
    pub(super) fn validate_archive(&self, rules: &Rules) -> Result<(), BrokerConfigError> {
        if self.on_loss != OnLoss::Archive {
            return Ok(());
        }
        for (rule, of) in rules.iter().enumerate().filter(|(_, of)| of.keep) {
            let (field, message) = if of.space {
                (
                    "space",
                    "with cluster.on_loss = \"archive\" no space is kept: its log cannot go on in an archive yet",
                )
            } else if of.archive() != Some(ArchiveKind::S3) {
                (
                    "keep",
                    "with cluster.on_loss = \"archive\" what is kept has archive = \"s3\": no broker can go on in another archive",
                )
            } else {
                continue;
            };
            return Err(BrokerConfigError::Rule { rule, field, message: message.to_owned() });
        }
        Ok(())
    }

    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        let word = |name, value: &str, expects| {
            Err(BrokerConfigError::Word { name, value: value.to_owned(), expects })
        };
        let legal = |c: char| c != '/' && !c.is_whitespace() && !c.is_control();
        for (name, value) in [("cluster.name", &self.name), ("cluster.id", &self.id)] {
            if value.len() > 128 || !value.chars().all(legal) {
                return word(name, value, "at most 128 bytes without '/' and blanks");
            }
        }
        if self.is_used() && self.etcd.is_empty() {
            return word("cluster.etcd", "", "the addresses of an etcd, if cluster.name is set");
        }
        if !self.is_used() && !self.etcd.is_empty() {
            return word("cluster.name", "", "a name, if cluster.etcd is set");
        }
        if self.user.is_empty() != self.password_file.is_empty() {
            return word("cluster.user", &self.user, "set together with cluster.password_file");
        }
        let is_address = |text: &&String| !text.contains([',', '/']) && super::is_address(text);
        match self.advertise.iter().find(|text| !is_address(text)) {
            Some(wrong) => word("cluster.advertise", wrong, "HOST:PORT"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BrokerConfig;
    use super::*;

    fn load(text: &str) -> Result<BrokerConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        std::fs::write(&path, text).unwrap();
        BrokerConfig::load(Some(&path)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_has_a_name_and_an_etcd() {
        let config =
            load("[cluster]\nname = 'c'\netcd = ['http://a']\nttl_ms = '2.5s'\non_loss = 'new-log'\n");
        let ClusterSettings { on_loss, .. } = config.unwrap().cluster;
        assert_eq!(on_loss, OnLoss::NewLog);
        assert!(!BrokerConfig::default().cluster.is_used());
        for (text, expected) in [
            ("name = 'c'", "cluster.etcd"),
            ("etcd = ['http://a']", "cluster.name"),
            ("name = 'a/b'\netcd = ['http://a']", "cluster.name = \"a/b\""),
            ("id = 'a b'", "cluster.id"),
            ("name = 'c'\netcd = ['http://a']\nuser = 'u'", "cluster.password_file"),
            (
                "name = 'c'\netcd = ['http://a']\nadvertise = ['a']",
                "cluster.advertise = \"a\": it must be HOST:PORT",
            ),
            ("ttl_ms = 100", "cluster.ttl_ms = 100"),
            ("on_loss = 'elsewhere'", "line 2"),
        ] {
            let error = load(&format!("[cluster]\n{text}\n")).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let shared = "[cluster]\nname = 'c'\netcd = ['http://a']\non_loss = 'archive'\n[s3]\nbucket = 'b'\n[broker]\nkeep_dir = '/x'\n\
                      [[broker.topics]]\npattern = 'k/#'\nkeep = true\n";
        assert_eq!(load(&format!("{shared}archive = 's3'\n")).unwrap().cluster.on_loss, OnLoss::Archive);
        for (rule, expected) in
            [("", "what is kept has archive = \"s3\""), ("archive = 's3'\nspace = true", "no space is kept")]
        {
            let error = load(&format!("{shared}{rule}\n")).unwrap_err();
            assert!(error.contains(expected), "{rule}: {error}");
        }
        let rounded = ClusterSettings { ttl_ms: 2_001, ..ClusterSettings::default() };
        assert_eq!(rounded.ttl(), Duration::from_secs(3));
    }
}
