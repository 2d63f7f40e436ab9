//! Options for a broker's configuration, shared by all commands that need it.

use std::path::PathBuf;

use rbmq::TopicFilter;
use rbmq_broker::{BrokerConfig, IngestSettings, UpstreamSettings};
use rbmq_broker::{BrokerConfigError, file_parts};
use rocketbufs::config::{Origin, unknown_variables};
use tracing::warn;

#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// Address to listen on [default: broker.listen of the file, or 127.0.0.1:7411]; there is no authentication yet, so do
    /// not listen on an untrusted network
    #[arg(short, long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// Receive topics of another broker and forward them; may be repeated. ADDRESS for all topics, or
    /// ADDRESS=FILTER,FILTER [default: broker.upstream of the file]
    #[arg(short, long, value_name = "ADDRESS[=FILTERS]", value_parser = upstream)]
    pub(super) upstream: Vec<UpstreamSettings>,
    /// Take messages that arrive over UDP at an interface (MultiMQC), as messages of a topic; may be repeated.
    /// multimqc:INTERFACE/TOPIC for the topic multimqc/TOPIC, or multimqc:INTERFACE/TOPIC=NAME [default: broker.ingest of the file]
    #[arg(long, value_name = "SOURCE[=NAME]", value_parser = ingest)]
    pub(super) ingest: Vec<IngestSettings>,
    #[arg(short, long, env = "RBMQ_CONFIG", value_name = "FILE", help = config_help())]
    pub(super) config: Option<PathBuf>,
    /// Serve metrics and health over HTTP on this address, as 127.0.0.1:7412 [default: http.listen of the file, or none];
    /// there is no authentication: every client that can connect sees the names and rates of all topics
    #[arg(long, value_name = "ADDRESS")]
    pub(super) http: Option<String>,
}

fn config_help() -> String {
    let (own, framework) = file_parts();
    format!("TOML file: {own}, and RocketBufs' {framework}")
}

/// Warns of environment variables that look like settings and are not.
pub(super) fn warn_of_unknown_variables() {
    for name in unknown_variables() {
        warn!("the environment variable {name} is not a setting and is ignored");
    }
}

impl Source {
    /// The configuration of the file, with the options of the command line.
    pub(super) fn load(&self) -> Result<BrokerConfig, BrokerConfigError> {
        let mut config = BrokerConfig::load(self.config.as_deref())?;
        if let Some(listen) = &self.listen {
            config.broker.listen.clone_from(listen);
            config.note_origin("broker.listen", Origin::Argument);
        }
        if let Some(http) = &self.http {
            config.http.listen.clone_from(http);
            config.note_origin("http.listen", Origin::Argument);
        }
        if !self.upstream.is_empty() {
            config.broker.upstream.clone_from(&self.upstream);
            config.note_origin("broker.upstream", Origin::Argument);
        }
        if !self.ingest.is_empty() {
            config.broker.ingest.clone_from(&self.ingest);
            config.note_origin("broker.ingest", Origin::Argument);
        }
        config.validate()?;
        Ok(config)
    }
}

fn ingest(text: &str) -> Result<IngestSettings, String> {
    let (source, name) = text.split_once('=').map_or((text, None), |(source, name)| (source, Some(name)));
    let mut settings = IngestSettings::new(source.parse()?);
    settings.topic = name.map(str::to_owned);
    settings.topic_name().map_err(|error| error.to_string())?;
    Ok(settings)
}

fn upstream(text: &str) -> Result<UpstreamSettings, String> {
    let (address, filters) = text.split_once('=').unwrap_or((text, "#"));
    if address.is_empty() {
        return Err("an address is missing, as in 10.0.0.5:7411".into());
    }
    let mut upstream = UpstreamSettings::new(address);
    let parse = |filter: &str| filter.parse::<TopicFilter>().map_err(|e| e.to_string());
    upstream.topics = filters.split(',').map(parse).collect::<Result<_, _>>()?;
    Ok(upstream)
}
