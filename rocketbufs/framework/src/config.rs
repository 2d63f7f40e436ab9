//! Configuration from a file, the environment and arguments; each overrides the ones before (paper 1, section 3.6; paper 3,
//! section 2.1).
//!
//! ```text
//!   default ──▶ file (TOML) ──▶ ROCKETBUFS_TCP_NODELAY=… ──▶ Config::set("tcp.nodelay", …) ──▶ validate
//! ```
//!
//! One line chooses the transport, `transport = "tcp"`; the program does not change. Every knob is declared once, in
//! `settings`. The rustdoc, the example file, the errors and the reference (docs/CONFIGURATION.md) take documentation,
//! default, range and cost from this declaration. An error names the knob, its value, the value's origin (file and line,
//! variable, argument) and the permitted values.
//!
//! ```
//! use rocketbufs::Config;
//!
//! let mut config = Config::from_toml("[buffers]\nsize_bytes = \"64 MiB\"\n")?;
//! config.set("tcp.tcp_num_threads", "4")?;
//! assert_eq!(config.buffers.size_bytes, 64 << 20);
//!
//! let error = Config::from_toml("[tcp]\nread_bytes = 17").unwrap_err();
//! let text = "tcp.read_bytes = 17 (configuration, line 2): it must be 262144 to 67108864 bytes";
//! assert_eq!(error.to_string(), text);
//! # Ok::<(), rocketbufs::config::ConfigError>(())
//! ```

mod settings;
mod transport;

use std::path::Path;

use ::settings::{Configuration, Lines, Range, Section, Spec, Visitor, VisitorMut, parse, shown};
use serde::{Deserialize, Serialize};
use toml::Table;

pub use self::settings::{
    BufferSettings, Limits, RdmaSettings, SessionSettings, ShmSettings, TcpSettings, TlsSettings,
};
pub use ::settings::{
    ConfigError, Knob, MAX_FILE_BYTES, Origin, Origins, Relation, TIME_UNITS, nearest, parse_bytes,
    parse_time, read_file, read_file_with_mode,
};
pub use transport::TransportKind;

/// The prefix of the names of environment variables.
pub const ENV_PREFIX: &str = "ROCKETBUFS_";

/// The sections of a file, in the order in which they are written.
pub const SECTIONS: [&str; 7] = ["tcp", "tls", "shm", "rdma", "buffers", "session", "limits"];

static TRANSPORT: Spec = Spec {
    name: "transport",
    field: "transport",
    unit: "",
    range: Range::Choice(&["tcp", "shm", "auto", "rdma"]),
    expects: "one of: tcp, shm, auto, rdma",
    cost: "see the transport's own section",
    help: " The transport between processes. tcp: TCP. shm: shared memory, between processes of one machine and of one \
           user; addresses have the same form as for TCP. auto: shared memory where both ends are on one machine and may \
           map each other's memory, and TCP otherwise; a connection reports which transport it uses, and why. An end with \
           tcp and an end with shm cannot connect to each other; an end with auto connects to both. rdma: a connecting \
           end uses RDMA only; a listening end accepts peers over RDMA and, under the same address, all peers that auto \
           accepts (docs/RDMA.md).\n",
    reloadable: false,
};

/// All settings. The fields are public: a program may also assign them, and [`Config::validate`] then checks them. See
/// [the module](self) for the sources of values.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Config {
    /// The transport between processes.
    pub transport: TransportKind,
    /// The TCP transport.
    pub tcp: TcpSettings,
    /// TLS of the TCP transport.
    pub tls: TlsSettings,
    /// Shared memory.
    pub shm: ShmSettings,
    /// RDMA.
    pub rdma: RdmaSettings,
    /// Buffers and their memory.
    pub buffers: BufferSettings,
    /// Sessions.
    pub session: SessionSettings,
    /// Limits.
    pub limits: Limits,
    /// The origins of the values, for errors. Origins are not settings, and comparisons ignore them.
    #[serde(skip)]
    pub origins: Origins,
}

impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.transport == other.transport
            && self.tcp == other.tcp
            && self.tls == other.tls
            && self.shm == other.shm
            && self.rdma == other.rdma
            && self.buffers == other.buffers
            && self.session == other.session
            && self.limits == other.limits
    }
}

impl Eq for Config {}

impl<'de> Deserialize<'de> for Config {
    /// As [`Config::from_table`], but an unknown name is an error.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = |error: ConfigError| serde::de::Error::custom(error);
        let (config, rest) = Self::from_table(Table::deserialize(deserializer)?).map_err(wrong)?;
        config.refuse_rest(&rest, &Lines::default()).and_then(|()| config.validate()).map_err(wrong)?;
        Ok(config)
    }
}

impl Config {
    /// Reads a TOML text. A setting that the text does not name keeps its default.
    ///
    /// # Errors
    /// An error names the line. The text is not TOML, a name is unknown, a value has the wrong type or is out of range, or
    /// settings contradict each other.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config = Self::whole(text, None)?;
        config.validate()?;
        Ok(config)
    }

    /// Loads the configuration of a program: the file, if there is one, overridden by the process's environment.
    ///
    /// # Errors
    /// As [`Config::from_toml`], and [`ConfigError::Read`]. An error names the file and line, or the variable.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let mut config = match path {
            None => Self::default(),
            Some(path) => Self::whole(&read_file(path)?, Some(path))?,
        };
        config.apply_env(::settings::environment())?;
        config.validate()?;
        Ok(config)
    }

    /// Reads the text of a file that other parts of a program share. Returns the configuration, and the unchanged values
    /// of all other top-level names (RBMQ's `[broker]`). Only errors use `path`. [`Config::validate`] finds settings that
    /// contradict each other, after all sources are applied.
    ///
    /// # Errors
    /// As [`Config::from_toml`], except that an unknown name at the top level is no error.
    ///
    /// ```
    /// use rocketbufs::Config;
    /// let (config, rest) = Config::from_toml_shared("[tcp]\nnodelay = false\n[broker]\nname = 'a'", None)?;
    /// assert!(!config.tcp.nodelay);
    /// assert_eq!(rest["broker"]["name"].as_str(), Some("a"));
    /// # Ok::<(), rocketbufs::config::ConfigError>(())
    /// ```
    pub fn from_toml_shared(text: &str, path: Option<&Path>) -> Result<(Self, Table), ConfigError> {
        let (table, lines) = parse(text, path)?;
        Self::from_parsed(table, &lines)
    }

    /// As [`Config::from_toml_shared`] for a file.
    ///
    /// # Errors
    /// As [`Config::from_toml_shared`], and [`ConfigError::Read`].
    pub fn load_shared(path: &Path) -> Result<(Self, Table), ConfigError> {
        Self::from_toml_shared(&read_file(path)?, Some(path))
    }

    /// Takes the sections of this library out of a table. Returns the configuration and the rest of the table. Errors
    /// cannot name lines; [`Config::from_toml_shared`] names them where the text is available.
    ///
    /// # Errors
    /// As [`Config::from_toml_shared`].
    pub fn from_table(table: Table) -> Result<(Self, Table), ConfigError> {
        Self::from_parsed(table, &Lines::default())
    }

    fn whole(text: &str, path: Option<&Path>) -> Result<Self, ConfigError> {
        let (table, lines) = parse(text, path)?;
        let (config, rest) = Self::from_parsed(table, &lines)?;
        config.refuse_rest(&rest, &lines)?;
        Ok(config)
    }

    fn from_parsed(mut table: Table, lines: &Lines) -> Result<(Self, Table), ConfigError> {
        let mut config = Self::default();
        config.take_table(&mut table, lines)?;
        Ok((config, table))
    }

    /// Applies the environment: `ROCKETBUFS_TRANSPORT`, and `ROCKETBUFS_<SECTION>_<FIELD>` for each setting. To detect
    /// misspelt names, an unknown variable is an error if it begins with a section's name or its spelling is close to a
    /// setting's. All other variables are ignored ([`unknown_variables`] lists them). An empty value unsets an optional
    /// setting.
    ///
    /// # Errors
    /// An error names the variable. The variables before it are applied.
    pub fn apply_env(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        self.apply_variables(variables)
    }

    /// Sets one setting from a text, for example from a program's argument: `set("tcp.nodelay", "false")`. Sizes and
    /// times may have a unit (`64 MiB`, `10 s`). An empty text unsets an optional setting.
    ///
    /// # Errors
    /// An unknown name, or a value of the wrong type or out of range; the configuration is then unchanged.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        self.set_text(name, text, Origin::Argument)
    }

    /// Checks the range of every setting and the relations between settings. Call this after the last change; a context
    /// refuses an invalid configuration.
    ///
    /// # Errors
    /// The first invalid value, with its origin.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_ranges().and_then(|()| self.check_relations())
    }

    fn check_relations(&self) -> Result<(), ConfigError> {
        if self.transport == TransportKind::Rdma && self.tls.mode == "require" {
            return Err(ConfigError::Value {
                name: "tls.mode",
                value: shown(&self.tls.mode),
                origin: self.origin("tls.mode"),
                expects: "\"off\" where transport = \"rdma\", which is not encrypted".to_owned(),
            });
        }
        let buffers = &self.buffers;
        let size = buffers.size_bytes;
        let retain = buffers.retain_bytes.unwrap_or(0);
        let (transfer, queue) = (self.tcp.max_transfer_bytes.into(), self.tcp.tx_queue_bytes.into());
        let most = buffers.max_ring_bytes;
        let ring = "buffers.size_bytes";
        let three_quarters = "at most three quarters of";
        for (good, name, value, must_be, other, other_value) in [
            (transfer <= queue, "tcp.max_transfer_bytes", transfer, "at most", "tcp.tx_queue_bytes", queue),
            (retain <= size / 4 * 3, "buffers.retain_bytes", retain, three_quarters, ring, size),
            (size <= most, "buffers.max_ring_bytes", most, "at least", ring, size),
        ] {
            if !good {
                let (origin, other_origin) = (self.origin(name), self.origin(other));
                let wrong = Relation { name, value, origin, must_be, other, other_value, other_origin };
                return Err(ConfigError::Relation(Box::new(wrong)));
            }
        }
        Ok(())
    }

    /// The origin of a setting's value.
    ///
    /// ```
    /// use rocketbufs::{Config, config::Origin};
    /// let mut config = Config::default();
    /// config.set("tcp.nodelay", "false").unwrap();
    /// config.limits.max_buffers = 5;
    /// assert_eq!(config.origin("tcp.nodelay"), Origin::Argument);
    /// assert_eq!(config.origin("limits.max_buffers"), Origin::Program);
    /// assert_eq!(config.origin("tcp.backlog"), Origin::Default);
    /// ```
    pub fn origin(&self, name: &str) -> Origin {
        self.origin_of(name)
    }

    /// The whole configuration as TOML, without unset settings. Reading this text gives the same configuration.
    pub fn to_toml(&self) -> String {
        self.text()
    }
}

impl Configuration for Config {
    const PREFIX: &'static str = ENV_PREFIX;

    fn sections(&self) -> Vec<&dyn Section> {
        vec![&self.tcp, &self.tls, &self.shm, &self.rdma, &self.buffers, &self.session, &self.limits]
    }

    fn visit(&self, f: &mut Visitor<'_>) {
        f(&TRANSPORT, &self.transport);
        self.sections().into_iter().for_each(|section| section.visit(f));
    }

    fn visit_mut(&mut self, f: &mut VisitorMut<'_>) {
        f(&TRANSPORT, &mut self.transport);
        let Self { tcp, tls, shm, rdma, buffers, session, limits, .. } = self;
        let sections: [&mut dyn Section; 7] = [tcp, tls, shm, rdma, buffers, session, limits];
        sections.into_iter().for_each(|section| section.visit_mut(f));
    }

    fn origins(&self) -> &Origins {
        &self.origins
    }

    fn origins_mut(&mut self) -> &mut Origins {
        &mut self.origins
    }
}

/// The environment variables of this process that begin with [`ENV_PREFIX`] and name no setting, sorted. Programs can warn
/// about them.
pub fn unknown_variables() -> Vec<String> {
    ::settings::unknown_variables::<Config>()
}

/// Every knob, in the order of the file.
///
/// ```
/// let knobs = rocketbufs::config::knobs();
/// assert_eq!(knobs[0].name, "transport");
/// assert!(knobs.iter().all(|knob| !knob.help.is_empty() && !knob.cost.is_empty()));
/// let knob = knobs.iter().find(|k| k.name == "tcp.nodelay").unwrap();
/// assert_eq!(knob.variable(), "ROCKETBUFS_TCP_NODELAY");
/// ```
pub fn knobs() -> Vec<Knob> {
    Config::default().knobs()
}

/// The description of a section; `None` if the section does not exist.
pub fn section_help(section: &str) -> Option<&'static str> {
    let config = Config::default();
    let found = config.sections().into_iter().find(|own| own.name() == section);
    found.map(|section| section.about().trim())
}

/// A configuration file with every knob at its default, commented out, and its help text.
pub fn example_toml() -> String {
    let config = Config::default();
    let mut text = String::from(
        "# Every setting of RocketBufs with its default. To change a setting, remove the # before its line.\n\
         # Environment variables override the file: ROCKETBUFS_TCP_NODELAY=false sets nodelay of [tcp].\n\n",
    );
    text.push_str(&::settings::example_setting(&TRANSPORT, &config.transport));
    config.sections().into_iter().for_each(|section| text.push_str(&::settings::example(section)));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
