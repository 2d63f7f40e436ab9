//! `rbmq gateway`: gateways in a process of their own, beside a broker that may be on another machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use commands::{Asked, Failure, Printer, Stop};
use private_files::with_patience;
use rbmq::{ConnectError, Login, TopicFilter};
use rbmq_broker::{BrokerConfig, GatewaySettings, Reception, UpstreamSettings, raise_descriptor_limit};
use rbmq_gateway::{Gateways, Link};
use rocketbufs::CloseCode;
use rocketbufs::config::Origin;
use rocketbufs::error::{ConnError, DownReason};
use serde_json::json;
use tracing::{error, info, warn};

use super::client::{TlsArgs, explain};
use super::log::{BrokerLog, LogOptions};
use super::login::LoginArgs;
use super::{prompt, reload, secrets, serve, source, supervisor};

/// The address of a broker that nothing names.
const BROKER: &str = "127.0.0.1:7411";

/// The pause before the next attempt to reach a broker that is not there when the gateways start.
const RETRY: Duration = Duration::from_secs(1);

/// How often the gateways are looked after.
const STEP: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq gateway resp mqtt --broker 10.0.0.5:7411
  rbmq gateway mqtt:0.0.0.0:1883 --broker 10.0.0.5:7411 --ca ca.pem --user edge --password-file edge.pass --users users.toml --config edge.toml
  rbmq gateway mqtt --keep-dir /var/lib/rbmq-edge          # sessions and retained messages outlive the process
  rbmq gateway --config edge.toml                          # [[gateway]], [[broker.upstream]], [users], [[access.rules]], [tls], [log]

The gateways log in at the broker as one user, which needs the right to publish and subscribe to everything that their clients use. Who \
the clients are, and what they may do, is decided here, by the users and rules of this configuration.

While the broker is away, clients stay connected, and what they publish waits. SIGINT and SIGTERM stop the gateways in order. SIGHUP reads \
users, rules and the certificates of the gateways again, and nothing of the way to the broker. --insecure also lets gateways listen on addresses that other machines can reach although TLS or users \
are missing. Streams of Redis need a gateway inside of the broker: rbmq serve --gateway resp.")]
pub(super) struct Args {
    /// What clients speak, and where: resp (Redis, 127.0.0.1:6379), mqtt (127.0.0.1:1883), or with an address as mqtt:0.0.0.0:1883 [default:
    /// gateway of the file]
    #[arg(value_name = "PROTOCOL[:ADDRESS]")]
    gateway: Vec<GatewaySettings>,
    /// Address of the broker [default: broker.upstream of the file, or 127.0.0.1:7411]
    #[arg(short, long, env = "RBMQ_BROKER", value_name = "ADDRESS")]
    broker: Option<String>,
    /// TOML file with the settings of a broker's file that are for gateways: [[gateway]], [[broker.upstream]] (one: the broker), [users],
    /// [access], [quotas], [audit], [tls], [log], and broker.keep_dir
    #[arg(short, long, env = "RBMQ_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// File of the users that may log in here, as 'rbmq passwd' writes it [default: users.file of the file, or none: everybody may do everything]
    #[arg(long, value_name = "FILE")]
    users: Option<String>,
    /// Keep sessions and retained messages of MQTT in this folder [default: broker.keep_dir of the file, or none]
    #[arg(long, value_name = "FOLDER")]
    keep_dir: Option<String>,
    /// A space that the broker has, as devices/#, so that subscriptions to its topics cost the broker nothing; may be repeated [default: the
    /// rules with space = true in broker.topics of the file; the space of all topics is found without it]
    #[arg(long, value_name = "PATTERN")]
    space: Vec<TopicFilter>,
    /// Print the addresses as JSON objects, one in a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

pub(super) fn run(args: &Args, log_options: LogOptions) -> Result<(), Failure> {
    let config = args.load()?;
    let link = args.link(&config)?;
    let log = log_options.start_broker(&config.log)?;
    if secrets::are_in(&config) {
        secrets::protect();
    }
    source::warn_of_unknown_variables();
    source::warn_of_missing_rules(&config);
    let stop = Stop::install()?.with_reload()?;
    raise_descriptor_limit();
    args.warn_of_strangers(&config);
    let mut reception = Reception::open(config).map_err(Failure::failed)?;
    if !wait_for_broker(&link, &stop)? {
        return Ok(());
    }
    let printer = Printer::start(|text| tracing::warn!("{text}"))?;
    let gateways = Gateways::start_beside(&reception, &link).map_err(Failure::failed)?;
    args.print(&link, &gateways, &printer);
    supervisor::up("");
    let ended = loop {
        match stop.wait_asked(Some(STEP)) {
            Some(Asked::End) => break false,
            Some(Asked::Reload) => args.reload(&mut reception, &gateways, &log),
            None if gateways.has_ended() => break true,
            None => {}
        }
    };
    supervisor::stopping();
    if ended {
        return Err(Failure::Failed("a gateway has ended: the log says why; start the command again".into()));
    }
    if !args.json {
        printer.print("rbmq: shutting down; the broker gets the remaining messages");
    }
    drop(gateways);
    Ok(())
}

impl Args {
    /// The configuration of the file, with the options of the command line.
    fn load(&self) -> Result<BrokerConfig, Failure> {
        let mut config = BrokerConfig::load(self.config.as_deref()).map_err(Failure::failed)?;
        if !config.http.listen.is_empty() {
            warn!("http.listen = {:?}: rbmq gateway has no HTTP endpoint", config.http.listen);
        }
        // Nobody listens for clients of a broker here.
        (config.http.listen, config.broker.listen) = (String::new(), "127.0.0.1:0".into());
        if let Some(users) = &self.users {
            config.users.file.clone_from(users);
            config.note_origin("users.file", Origin::Argument);
        }
        if let Some(keep_dir) = &self.keep_dir {
            config.broker.keep_dir.clone_from(keep_dir);
            config.note_origin("broker.keep_dir", Origin::Argument);
        }
        if !self.gateway.is_empty() {
            config.outside.gateway.clone_from(&self.gateway);
            config.note_origin("gateway", Origin::Argument);
        }
        config.access.insecure |= self.login.is_insecure();
        config.validate().map_err(Failure::failed)?;
        if config.gateways().is_empty() {
            let text = "there is no gateway: name protocols, as in 'rbmq gateway resp mqtt', or a --config with [[gateway]]";
            return Err(Failure::Usage("gateway", text.into()));
        }
        match config.exposed().first() {
            Some(exposed) => Err(Failure::failed(exposed)),
            None => Ok(config),
        }
    }

    /// The broker, and how the gateways log in there. What the command line does not say is in the file.
    fn link(&self, config: &BrokerConfig) -> Result<Link, Failure> {
        let of_file = match (&self.broker, &*config.broker.upstream) {
            (Some(_), _) | (None, []) => None,
            (None, [one]) => Some(one),
            (None, more) => {
                let count = more.len();
                return Err(Failure::Failed(format!(
                    "[[broker.upstream]]: gateways have one broker, and these are {count}"
                )));
            }
        };
        let address = self.broker.as_deref().or(of_file.map(|up| &*up.address)).unwrap_or(BROKER);
        let mut link = Link::new(address);
        link.config = config.framework.clone();
        self.tls.apply(&mut link.config).map_err(Failure::failed)?;
        if link.config.tls.key.is_some() {
            secrets::protect();
        }
        link.login = match (self.login.find()?, of_file) {
            (Some(login), _) => login,
            (None, Some(up)) => login_of(up, self.login.is_insecure())?,
            (None, None) => Login::default(),
        };
        if let Some(up) = of_file {
            link.hold = up.hold();
        }
        let of_rules = config.broker.topics.iter().filter(|rule| rule.space).map(|rule| &rule.pattern);
        link.spaces = of_rules.chain(&self.space).cloned().collect();
        Ok(link)
    }

    /// A login at the broker lets everybody in who reaches the gateways, if there are no others.
    fn warn_of_strangers(&self, config: &BrokerConfig) {
        let of_file = config.broker.upstream.iter().any(|up| up.user.is_some() || up.token_file.is_some());
        let has_login = of_file || self.login.is_given();
        if has_login && config.users.file.is_empty() && config.access.rules.is_empty() {
            warn!(
                "everybody who reaches the gateways may do what their user may do at the broker: there are neither users (users.file) nor rules \
                 (access.rules) for clients"
            );
        }
    }

    /// Says where the gateways are.
    fn print(&self, link: &Link, gateways: &Gateways, printer: &Printer) {
        if !self.json {
            printer.print(&format!("rbmq: connected to the broker at {}", link.address));
            return gateways.list().iter().for_each(|gateway| serve::print_gateway(gateway, printer));
        }
        for gateway in gateways.list() {
            let (protocol, address) = (gateway.protocol().as_str(), gateway.address().to_string());
            let line =
                json!({ "protocol": protocol, "address": address, "broker": link.address }).to_string();
            printer.print(&text::json(&line));
        }
    }

    /// Reads users, rules and certificates again. A configuration that is not valid changes nothing.
    fn reload(&self, reception: &mut Reception, gateways: &Gateways, log: &BrokerLog) {
        supervisor::reloading();
        with_patience(reload::PATIENCE, || self.take_over(reception, gateways, log));
        supervisor::up("");
    }

    fn take_over(&self, reception: &mut Reception, gateways: &Gateways, log: &BrokerLog) {
        if let Some(path) = self.config.as_deref().filter(|path: &&Path| reload::is_pipe(path)) {
            return error!("not reloaded, nothing changes: {} is a pipe", path.display());
        }
        let config = match self.load() {
            Ok(config) => config,
            Err(why) => return error!("not reloaded, nothing changes: {}", text_of(&why)),
        };
        let reload = match reception.reload(&config) {
            Ok(reload) => reload,
            Err(why) => return error!("not reloaded, nothing changes: {why}"),
        };
        log.apply(&reception.config().log);
        let applied = reload::log_changes(&reload, log);
        reload::log_gateways(reception.config(), gateways);
        source::warn_of_missing_rules(reception.config());
        let later = reload.needs_restart.len();
        info!("reloaded: {applied} changes in force, {later} need a restart; the users were read again");
    }
}

/// The text of a failure to load the configuration.
fn text_of(failure: &Failure) -> &str {
    match failure {
        Failure::Usage(_, text) | Failure::Failed(text) | Failure::Incomplete(text) => text,
        Failure::OutputClosed => "",
    }
}

/// The login that the file of a configuration names.
fn login_of(up: &UpstreamSettings, is_insecure: bool) -> Result<Login, Failure> {
    let login = Login::default().allow_plaintext(is_insecure || up.allow_plaintext);
    let of_file = |path: &str| prompt::of_file(Path::new(path));
    match (&up.user, &up.password_file, &up.token_file) {
        (None, None, None) => Ok(login),
        (Some(user), Some(file), None) => Ok(login.user(user, of_file(file)?.expose())),
        (None, None, Some(file)) => Ok(login.token(of_file(file)?.expose())),
        _ => Err(Failure::Failed(
            "[[broker.upstream]]: set user and password_file, or token_file alone".into(),
        )),
    }
}

/// Waits until the broker is there and has taken the login. False: the command is to end.
fn wait_for_broker(link: &Link, stop: &Stop) -> Result<bool, Failure> {
    let mut told = String::new();
    loop {
        let error = match link.check() {
            Ok(()) => return Ok(true),
            Err(error) if !is_away(&error) => return Err(explain(&link.address, &error)),
            Err(error) => error.to_string(),
        };
        supervisor::waiting(&format!("not ready: {error}"));
        if told != error {
            warn!("not ready: {error}; trying again");
            told = error;
        }
        if stop.wait_asked(Some(RETRY)) == Some(Asked::End) {
            return Ok(false);
        }
    }
}

/// Whether the broker may be there later: the machines of a network start in any order.
fn is_away(error: &ConnectError) -> bool {
    let ConnectError::Broker { source, .. } = error else { return false };
    match source {
        // A name may be resolved later, too.
        ConnError::TimedOut { .. }
        | ConnError::Down(DownReason::Transport(_) | DownReason::NotStarted(_)) => true,
        // It stops, or has no place at the moment.
        ConnError::Down(DownReason::Peer { code, .. }) => {
            matches!(
                code,
                CloseCode::Normal | CloseCode::ShuttingDown | CloseCode::Limit | CloseCode::Timeout
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_waited_for_unless_it_refuses() {
        let is_away = |reason| {
            let source = ConnError::Down(reason);
            super::is_away(&ConnectError::Broker { addr: "broker:7411".into(), source })
        };
        let peer = |code| is_away(DownReason::Peer { code, text: String::new() });
        assert!(is_away(DownReason::NotStarted("the name is not known yet".into())));
        for code in [CloseCode::Normal, CloseCode::ShuttingDown, CloseCode::Limit, CloseCode::Timeout] {
            assert!(peer(code), "{code:?}");
        }
        for code in [CloseCode::NotAccepted, CloseCode::Version, CloseCode::Protocol] {
            assert!(!peer(code), "{code:?}");
        }
    }
}
