//! `rbmq gateway`: gateways in a process of their own, beside a broker that may be on another machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::{Asked, Failure, Printer, Stop};
use locks::Mutex;
use private_files::with_patience;
use rbmq::{Login, TopicFilter};
use rbmq_broker::{BrokerConfig, GatewaySettings, Reception, UpstreamSettings, raise_descriptor_limit};
use rbmq_gateway::{GatewayError, Gateways, Link};
use rocketbufs::config::Origin;
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

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq gateway resp mqtt --broker 10.0.0.5:7411
  rbmq gateway mqtt:0.0.0.0:1883 --broker 10.0.0.5:7411 --ca ca.pem --user edge --password-file edge.pass --users users.toml --config edge.toml
  rbmq gateway mqtt --keep-dir /var/lib/rbmq-edge          # sessions and retained messages outlive the process
  rbmq gateway --config edge.toml                          # [[gateway]], [[broker.upstream]], [users], [[access.rules]], [tls], [log]

The gateways log in at the broker as one user, which needs the right to publish and subscribe to everything that their clients use. Who \
the clients are, and what they may do, is decided here, by the users and rules of this configuration.

While the broker is away, clients stay connected, and what they publish waits. SIGINT and SIGTERM stop the gateways in order. SIGHUP reads \
users, rules, certificates, and the files of the login at the broker again, for its next connection. --insecure also lets gateways listen on addresses that other machines can reach although TLS or users \
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
    let login = Arc::new(Mutex::new(args.find_login(&config)?));
    let link = args.link(&config, &login)?;
    let log = log_options.start_broker(&config.log)?;
    if secrets::are_in(&config) {
        secrets::protect();
    }
    source::warn_of_unknown_variables();
    source::warn_of_missing_rules(&config);
    let stop = Stop::install()?.with_reload()?;
    raise_descriptor_limit();
    args.warn_of_strangers(&config);
    let reception = Reception::open(config).map_err(Failure::failed)?;
    let printer = Printer::start(|text| tracing::warn!("{text}"))?;
    let Some(mut started) = start(reception, login, &link, &stop)? else {
        return Ok(());
    };
    let has_ended = args.attend(&mut started, &stop, &log, |gateways| args.print(&link, gateways, &printer));
    supervisor::stopping();
    if has_ended {
        return Err(Failure::Failed("a gateway has ended: the log says why; start the command again".into()));
    }
    if !args.json {
        printer.print("rbmq: shutting down; the broker gets the remaining messages");
    }
    drop(started);
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
    fn link(&self, config: &BrokerConfig, login: &SharedLogin) -> Result<Link, Failure> {
        let of_file = self.broker_of(config)?;
        let address = self.broker.as_deref().or(of_file.map(|up| &*up.address)).unwrap_or(BROKER);
        let mut link = Link::new(address);
        link.config = config.framework.clone();
        self.tls.apply(&mut link.config).map_err(Failure::failed)?;
        if link.config.tls.key.is_some() {
            secrets::protect();
        }
        let login = Arc::clone(login);
        link.login = Login::anew(move || login.lock().clone());
        if let Some(up) = of_file {
            link.hold = up.hold();
        }
        let of_rules = config.broker.topics.iter().filter(|rule| rule.space).map(|rule| &rule.pattern);
        link.spaces = of_rules.chain(&self.space).cloned().collect();
        Ok(link)
    }

    /// The broker of the file, if it is that.
    fn broker_of<'a>(&self, config: &'a BrokerConfig) -> Result<Option<&'a UpstreamSettings>, Failure> {
        match (&self.broker, &*config.broker.upstream) {
            (Some(_), _) | (None, []) => Ok(None),
            (None, [one]) => Ok(Some(one)),
            (None, more) => {
                let count = more.len();
                Err(Failure::Failed(format!(
                    "[[broker.upstream]]: gateways have one broker, and these are {count}"
                )))
            }
        }
    }

    /// How the gateways log in at the broker.
    fn find_login(&self, config: &BrokerConfig) -> Result<Login, Failure> {
        match (self.login.find()?, self.broker_of(config)?) {
            (Some(login), _) => Ok(login),
            (None, Some(up)) => login_of(up, self.login.is_insecure()),
            (None, None) => Ok(Login::default()),
        }
    }

    /// Reads the login at the broker again, if that is still the broker of the link: a secret is for one alone.
    fn reload_login(&self, config: &BrokerConfig, login: &SharedLogin, link: &Link) {
        if self.login.is_given() && !self.login.is_of_file() {
            // A variable, a terminal or the standard input is not read twice.
            return;
        }
        let is_same = |new: Link| {
            new.address == link.address && new.config.tls.server_name == link.config.tls.server_name
        };
        let found = self.link(config, login).map(is_same).and_then(|is_same| match is_same {
            true => self.find_login(config),
            false => Err(Failure::Failed("another broker needs a restart".into())),
        });
        match found {
            Ok(new) => *login.lock() = new,
            Err(why) => {
                error!("the login at the broker is not reloaded, the old one stays: {}", text_of(&why))
            }
        }
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

    /// Looks after the gateways until the command is to end, or, true, one of them has ended.
    fn attend(
        &self,
        started: &mut Started,
        stop: &Stop,
        log: &BrokerLog,
        on_ready: impl FnOnce(&Gateways),
    ) -> bool {
        let Started { reception, login, link, gateways, reload } = started;
        let (began, mut on_ready) = (Instant::now(), Some(on_ready));
        loop {
            if gateways.are_serving()
                && let Some(on_ready) = on_ready.take()
            {
                on_ready(gateways);
                supervisor::up("");
            }
            if on_ready.is_some() {
                supervisor::waiting("not ready: the broker has yet to take the subscriptions of sessions");
            } else if std::mem::take(reload) {
                self.reload(reception, login, link, gateways, log);
            }
            let asked = match on_ready {
                Some(_) => serve::wait_for_start(began, stop),
                None => stop.wait_asked(Some(serve::STEP)),
            };
            match asked {
                Some(Asked::End) => return false,
                Some(Asked::Reload) => *reload = true,
                None if gateways.has_ended() => return true,
                None => {}
            }
        }
    }

    /// Reads users, rules, certificates and the login at the broker again. A configuration that is not valid changes nothing.
    fn reload(
        &self,
        reception: &mut Reception,
        login: &SharedLogin,
        link: &Link,
        gateways: &Gateways,
        log: &BrokerLog,
    ) {
        supervisor::reloading();
        with_patience(reload::PATIENCE, || self.take_over(reception, login, link, gateways, log));
        supervisor::up("");
    }

    fn take_over(
        &self,
        reception: &mut Reception,
        login: &SharedLogin,
        link: &Link,
        gateways: &Gateways,
        log: &BrokerLog,
    ) {
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
        self.reload_login(&config, login, link);
        log.apply(&reception.config().log);
        // The log has them.
        let mut notes = Vec::new();
        let applied = reload::log_changes(&reload, log, &mut notes);
        reload::log_gateways(reception.config(), gateways, &mut notes);
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

/// The login at the broker, for each connection.
type SharedLogin = Arc<Mutex<Login>>;

/// Gateways that have started, and what was lent to them.
struct Started {
    reception: Reception,
    login: SharedLogin,
    link: Link,
    gateways: Gateways,
    /// The command was asked to reload meanwhile.
    reload: bool,
}

/// Starts the gateways when their broker is there, on a thread, as signals are heard meanwhile. None: the command is to end.
fn start(
    reception: Reception,
    login: SharedLogin,
    link: &Link,
    stop: &Stop,
) -> Result<Option<Started>, Failure> {
    let link = link.clone();
    let starting = threads::spawn("rbmq-start", move || {
        let gateways = wait_for_broker(&reception, &link)?;
        Ok((reception, link, gateways))
    })?;
    let (began, mut reload) = (Instant::now(), false);
    while !starting.is_finished() {
        match serve::wait_for_start(began, stop) {
            // Nobody is served yet.
            Some(Asked::End) => return Ok(None),
            asked => reload |= asked.is_some(),
        }
    }
    let started = starting.join().map_err(|_| Failure::Failed("the gateways do not start".into()))?;
    started.map(|(reception, link, gateways)| Some(Started { reception, login, link, gateways, reload }))
}

/// Waits until the broker is there and has taken the login, and what the gateways subscribe to.
fn wait_for_broker(reception: &Reception, link: &Link) -> Result<Gateways, Failure> {
    let mut told = String::new();
    loop {
        let checked = link.check().map_err(GatewayError::from);
        let error = match checked.and_then(|()| Gateways::start_beside(reception, link)) {
            Ok(gateways) => return Ok(gateways),
            Err(error) if error.is_away() => error.to_string(),
            Err(GatewayError::Connect(error)) => return Err(explain(&link.address, &error)),
            Err(error) => return Err(Failure::failed(error)),
        };
        supervisor::waiting(&format!("not ready: {error}"));
        if told != error {
            warn!("not ready: {error}; trying again");
            told = error;
        }
        std::thread::sleep(RETRY);
    }
}
