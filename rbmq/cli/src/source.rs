//! Options for a broker's configuration, shared by all commands that need it.

use std::path::PathBuf;

use rbmq::TopicFilter;
use rbmq_broker::{
    BrokerConfig, BrokerConfigError, GatewaySettings, IngestSettings, Rule, UpstreamSettings, file_parts,
};
use rocketbufs::config::{Origin, unknown_variables};
use tracing::warn;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source {
    /// Address to listen on [default: broker.listen of the file, or 127.0.0.1:7411]; one that other machines can reach needs
    /// TLS and users, or --insecure
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
    /// Serve clients of another system in their own protocol; may be repeated. PROTOCOL is resp (Redis, 127.0.0.1:6379) or mqtt
    /// (127.0.0.1:1883); an address that other machines can reach needs TLS and users, or --insecure [default: gateway of the file, or none]
    #[arg(long, value_name = "PROTOCOL[:ADDRESS]")]
    pub(super) gateway: Vec<GatewaySettings>,
    /// Keep the topics that match on disk, in this folder, so that subscribers can begin at any kept position, also after a
    /// restart of the broker. FOLDER for all topics, or FOLDER=FILTER,FILTER. Rules of the file come first [default:
    /// broker.keep_dir of the file, with its rules]
    #[arg(long, value_name = "FOLDER[=FILTERS]", value_parser = keep)]
    pub(super) keep: Option<Keep>,
    #[arg(short, long, env = "RBMQ_CONFIG", value_name = "FILE", help = config_help())]
    pub(super) config: Option<PathBuf>,
    /// File of the users that may log in, as 'rbmq passwd' writes it [default: users.file of the file, or none: everybody may
    /// do everything]
    #[arg(long, value_name = "FILE")]
    pub(super) users: Option<String>,
    /// Serve metrics and health over HTTP on this address, as 127.0.0.1:7412 [default: http.listen of the file, or none];
    /// one that other machines can reach needs a token (http.token_file), or --insecure
    #[arg(long, value_name = "ADDRESS")]
    pub(super) http: Option<String>,
    /// Listen on addresses that other machines can reach although TLS, users or the token of the HTTP endpoint are missing: in a
    /// network that you trust
    #[arg(long)]
    pub(super) insecure: bool,
}

/// The file of a broker's configuration, for commands that need nothing else of it.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigFile {
    #[arg(short, long, env = "RBMQ_CONFIG", value_name = "FILE", help = config_help())]
    pub(super) config: Option<PathBuf>,
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

/// Says that users may do nothing as long as no rule gives them something.
pub(super) fn warn_of_missing_rules(config: &BrokerConfig) {
    if config.users.is_required() && config.access.rules.is_empty() {
        warn!(
            "nobody may publish or subscribe: there are users and no rules. Give all users everything with [[access.rules]], users = \
             [\"*\"], publish = [\"#\"], subscribe = [\"#\"] in the configuration file, or less: docs/security/RIGHTS.md"
        );
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
        if let Some(users) = &self.users {
            config.users.file.clone_from(users);
            config.note_origin("users.file", Origin::Argument);
        }
        if self.insecure {
            config.access.insecure = true;
            config.note_origin("access.insecure", Origin::Argument);
        }
        if !self.upstream.is_empty() {
            config.broker.upstream.clone_from(&self.upstream);
            config.note_origin("broker.upstream", Origin::Argument);
        }
        if !self.ingest.is_empty() {
            config.broker.ingest.clone_from(&self.ingest);
            config.note_origin("broker.ingest", Origin::Argument);
        }
        if !self.gateway.is_empty() {
            config.outside.gateway.clone_from(&self.gateway);
            config.note_origin("gateway", Origin::Argument);
        }
        if let Some(Keep { folder, filters }) = &self.keep {
            config.broker.keep_dir.clone_from(folder);
            config.note_origin("broker.keep_dir", Origin::Argument);
            let mut rules: Vec<Rule> = config.broker.topics.iter().cloned().collect();
            for filter in filters {
                let mut rule = Rule::new(filter.clone());
                rule.keep = true;
                rules.push(rule);
            }
            config.broker.topics = rules.into();
        }
        config.validate()?;
        Ok(config)
    }
}

/// The topics that are kept on disk, and where.
#[derive(Debug, Clone)]
pub(super) struct Keep {
    folder: String,
    filters: Vec<TopicFilter>,
}

fn keep(text: &str) -> Result<Keep, String> {
    let (folder, filters) = text.split_once('=').unwrap_or((text, "#"));
    if folder.is_empty() {
        return Err("a folder is missing, as in ./kept".into());
    }
    Ok(Keep { folder: folder.to_owned(), filters: parse_filters(filters)? })
}

fn parse_filters(text: &str) -> Result<Vec<TopicFilter>, String> {
    text.split(',').map(|filter| filter.parse::<TopicFilter>().map_err(|error| error.to_string())).collect()
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
    upstream.topics = parse_filters(filters)?;
    Ok(upstream)
}
