//! Upstream brokers: `[[broker.upstream]]`.

use std::io::{BufRead, Read};
use std::time::Duration;

use access::check_secret_mode;
use private_files::GivenFile;
use rbmq_wire::connect::is_this_machine;
use rbmq_wire::{Credentials, Secret, Space, TopicFilter, TopicName};
use serde::{Deserialize, Serialize};
use settings::{millis, optional_bytes};

/// The largest number of upstream brokers. Each has a thread.
pub(crate) const MAX_UPSTREAMS: usize = 64;

/// More than any password or token has.
const MAX_LINE_BYTES: usize = 4096;

/// An entry of `[[broker.upstream]]`: another broker whose topics this broker receives and forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSettings {
    /// The address of the other broker.
    pub address: String,
    /// The topics that are received. Default all (`#`).
    #[serde(default = "UpstreamSettings::all_topics")]
    pub topics: Vec<TopicFilter>,
    /// Ring of each received buffer, in bytes. Default `buffers.size_bytes`, or more if the deliveries need it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub ring_bytes: Option<u64>,
    /// User to log in as at the other broker, with `password_file`. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File whose first line is the password of `user`. The file is read when the broker starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// File whose first line is a token for the other broker, instead of `user`. The file is read when the broker starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// With true, the password or token is sent also to another machine without encryption, where everybody on the way can read it.
    /// Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_plaintext: bool,
    /// Time for which the other broker keeps the positions of this broker while the connection is lost, in milliseconds.
    /// Default 10,000. Too small: data is lost in longer interruptions. Too large: its publishers wait for this time for a
    /// broker that doesn't come back.
    #[serde(default = "UpstreamSettings::default_hold_ms", deserialize_with = "millis")]
    pub hold_ms: u32,
}

/// The first line of a file with a secret.
fn first_line(path: &str) -> Result<Secret, String> {
    let failed = |error: std::io::Error| format!("{path}: {error}");
    let file = GivenFile::open(path.as_ref()).map_err(failed)?;
    check_secret_mode(path.as_ref(), file.mode()).map_err(|refused| format!("{path}: {refused}"))?;
    let mut line = String::with_capacity(MAX_LINE_BYTES);
    std::io::BufReader::new(file).take(MAX_LINE_BYTES as u64).read_line(&mut line).map_err(failed)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(Secret::from(line))
}

impl UpstreamSettings {
    /// All topics of the broker at an address.
    pub fn new(address: &str) -> Self {
        let (topics, hold_ms) = (Self::all_topics(), Self::default_hold_ms());
        let (address, ring_bytes, allow_plaintext) = (address.to_owned(), None, false);
        let (user, password_file, token_file) = (None, None, None);
        Self { address, topics, ring_bytes, user, password_file, token_file, allow_plaintext, hold_ms }
    }

    /// The credentials that the broker presents to the other broker. `encrypted`: whether every connection there is.
    ///
    /// # Errors
    /// The problem, for people.
    pub(crate) fn credentials(&self, encrypted: bool) -> Result<Credentials, String> {
        let credentials = self.read_credentials()?;
        if !(credentials.is_none() || encrypted || self.allow_plaintext || is_this_machine(&self.address)) {
            return Err(self.problem(
                "no password or token is sent without encryption to another machine; use TLS, or allow_plaintext = true",
            ));
        }
        Ok(credentials)
    }

    /// The credentials of the files, wherever they are presented.
    ///
    /// # Errors
    /// The problem, for people.
    pub fn read_credentials(&self) -> Result<Credentials, String> {
        let read = |file| first_line(file).map_err(|error| self.problem(&error));
        let credentials = match (&self.user, &self.password_file, &self.token_file) {
            (None, None, None) => return Ok(Credentials::None),
            (Some(user), Some(file), None) => Credentials::password(user, read(file)?),
            (None, None, Some(file)) => Credentials::token(read(file)?),
            _ => return Err(self.problem("set user and password_file, or token_file alone")),
        };
        credentials.map_err(|error| self.problem(&error.to_string()))
    }

    fn problem(&self, text: &str) -> String {
        format!("the upstream broker {}: {text}", self.address)
    }

    fn all_topics() -> Vec<TopicFilter> {
        vec!["#".parse().expect("a filter")]
    }

    fn default_hold_ms() -> u32 {
        10_000
    }

    /// Whether a topic is received from this broker; of a space, whether all of it is: a filter covers it, or is the name of its log.
    pub(crate) fn wants(&self, topic: &TopicName) -> bool {
        match Space::of_log(topic) {
            Some(space) => self
                .topics
                .iter()
                .any(|filter| filter.covers(space.pattern()) || filter.as_str() == topic.as_str()),
            None => self.topics.iter().any(|filter| filter.matches(topic)),
        }
    }

    /// `hold_ms` as a duration.
    pub fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_is_received_as_a_whole() {
        let wants = |filter: &str, topic: &str| {
            let mut upstream = UpstreamSettings::new("127.0.0.1:1");
            upstream.topics = vec![filter.parse().unwrap()];
            upstream.wants(&topic.parse().unwrap())
        };
        for filter in ["#", "d/#", "$space/d"] {
            assert!(wants(filter, "$space/d"), "{filter}");
        }
        for filter in ["d/x", "d/+", "$space/#", "$space/e", "$space"] {
            assert!(!wants(filter, "$space/d"), "{filter}");
        }
        assert!(wants("d/+", "d/x") && !wants("$space/d", "d/x"));
    }
}
