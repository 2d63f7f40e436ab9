//! The errors of a broker's configuration.

use rocketbufs::config::{ConfigError, Origin};

/// Why a broker's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerConfigError {
    /// An error in RocketBufs' sections.
    #[error(transparent)]
    Framework(#[from] ConfigError),
    /// A value of the wrong type in the broker's own sections.
    #[error("{origin}: {message}")]
    Section {
        /// The file and the line.
        origin: Origin,
        /// The problem, with the name of the field.
        message: String,
    },
    /// An unknown name at the top level.
    #[error("{origin}: '{name}' is no setting; {known}")]
    Unknown {
        /// The file and the line.
        origin: Origin,
        /// The name.
        name: String,
        /// The most similar section, and all sections.
        known: String,
    },
    /// An error in a rule of topics.
    #[error("[[broker.topics]]: {message}")]
    Rule {
        /// The number of the rule, from 0.
        rule: usize,
        /// The name of the field.
        field: &'static str,
        /// The problem, with the rule's pattern.
        message: String,
    },
    /// An error in a rule of access.
    #[error("[[access.rules]]: {message}")]
    Access {
        /// The number of the rule, from 0.
        rule: usize,
        /// The name of the field.
        field: &'static str,
        /// The problem.
        message: String,
    },
    /// An error in an entry of `[[broker.ingest]]`.
    #[error("[[broker.ingest]]: {message}")]
    Ingest {
        /// The number of the entry, from 0.
        entry: usize,
        /// The name of the field.
        field: &'static str,
        /// The problem, with the entry's source.
        message: String,
    },
    /// An error in an entry of `[[gateway]]`.
    #[error("[[gateway]]: {message}")]
    Gateway {
        /// The number of the entry, from 0.
        entry: usize,
        /// The name of the field.
        field: &'static str,
        /// The problem, with the gateway's protocol.
        message: String,
    },
    /// A number out of its range.
    #[error("{name} = {value}: it must be {expects}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The range.
        expects: &'static str,
    },
    /// A text without the expected form.
    #[error("{name} = {value:?}: it must be {expects}")]
    Word {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The expected form.
        expects: &'static str,
    },
    /// An error and the origin of the value.
    #[error("{error} ({origin})")]
    Set {
        /// The error.
        error: Box<BrokerConfigError>,
        /// The origin: file and line, or argument.
        origin: Origin,
    },
}
