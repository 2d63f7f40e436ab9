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

mod error;
mod file;
mod knob;
mod origins;
mod reference;
mod settings;
mod time;
mod transport;

use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use error::{ConfigError, Origin, Relation, nearest};
pub use file::{MAX_FILE_BYTES, read_file, read_file_with_mode};
pub use knob::{ENV_PREFIX, Knob, parse_bytes};
use knob::{Range, Setting, Spec};
use origins::{Lines, Origins};
pub use reference::{example_toml, knobs, section_help};
pub use settings::{
    BufferSettings, Limits, RdmaSettings, SessionSettings, ShmSettings, TcpSettings, TlsSettings,
};
pub use time::{TIME_UNITS, parse_time};
pub use transport::TransportKind;

/// The sections of a file, in the order in which they are written.
pub const SECTIONS: [&str; 7] = ["tcp", "tls", "shm", "rdma", "buffers", "session", "limits"];

static TRANSPORT: Spec = Spec {
    name: "transport",
    unit: "",
    range: Range::Choice(&["tcp", "shm", "auto", "rdma"]),
    cost: "see the transport's own section",
    help: " The transport between processes. tcp: TCP. shm: shared memory, between processes of one machine and of one \
           user; addresses have the same form as for TCP. auto: shared memory where both ends are on one machine and may \
           map each other's memory, and TCP otherwise; a connection reports which transport it uses, and why. An end with \
           tcp and an end with shm cannot connect to each other; an end with auto connects to both. rdma: a connecting \
           end uses RDMA only; a listening end accepts peers over RDMA and, under the same address, all peers that auto \
           accepts (docs/RDMA.md).\n",
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
        let (config, rest) =
            Self::from_table(Table::deserialize(deserializer)?).map_err(serde::de::Error::custom)?;
        let lines = Lines::default();
        refuse_rest(&rest, &lines).map_err(serde::de::Error::custom)?;
        config.validate().map_err(serde::de::Error::custom)?;
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
        config.apply_env(environment())?;
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
        let (table, lines) = origins::parse(text, path)?;
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
        let (table, lines) = origins::parse(text, path)?;
        let (config, rest) = Self::from_parsed(table, &lines)?;
        refuse_rest(&rest, &lines)?;
        Ok(config)
    }

    fn from_parsed(mut table: Table, lines: &Lines) -> Result<(Self, Table), ConfigError> {
        let mut config = Self::default();
        if let Some(value) = table.remove(TRANSPORT.name) {
            config.assign(TRANSPORT.name, &value, lines.origin(TRANSPORT.name))?;
        }
        for section in SECTIONS {
            match table.remove(section) {
                None => {}
                Some(Value::Table(fields)) => {
                    for (field, value) in fields {
                        let name = format!("{section}.{field}");
                        config.assign(&name, &value, lines.origin(&name))?;
                    }
                }
                Some(other) => {
                    let message =
                        format!("'{section}' is a section and cannot be of type {}", other.type_str());
                    return Err(ConfigError::Syntax { origin: lines.origin(section), message });
                }
            }
        }
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
        let names = self.names();
        for (variable, text) in variables {
            let origin = Origin::Variable(variable.clone());
            if let Some(name) = names.iter().find(|name| knob::variable(name) == variable) {
                self.assign_text(name, &text, origin)?;
                continue;
            }
            let Some(own) = variable.strip_prefix(ENV_PREFIX) else { continue };
            let begins = |section: &str| variable.starts_with(&format!("{}_", knob::variable(section)));
            let known: Vec<String> = names.iter().map(|n| knob::variable(n)).collect();
            // The common prefix does not count in the distance between names.
            let nearest =
                error::nearest(own, known.iter().filter_map(|known| known.strip_prefix(ENV_PREFIX)));
            if nearest.is_some() || SECTIONS.into_iter().any(begins) {
                let nearest = nearest.map(|own| format!("{ENV_PREFIX}{own}"));
                return Err(ConfigError::Unknown { name: variable, origin, nearest });
            }
        }
        Ok(())
    }

    /// Sets one setting from a text, for example from a program's argument: `set("tcp.nodelay", "false")`. Sizes and
    /// times may have a unit (`64 MiB`, `10 s`). An empty text unsets an optional setting.
    ///
    /// # Errors
    /// An unknown name, or a value of the wrong type or out of range; the configuration is then unchanged.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        self.assign_text(name, text, Origin::Argument)
    }

    fn assign_text(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        self.with_setting(name, origin, |spec, setting| match text.trim() {
            "" if setting.unset() => Ok(()),
            text => read_setting(spec, setting, &knob::value_of_text(text, spec)),
        })
    }

    fn assign(&mut self, name: &str, value: &Value, origin: Origin) -> Result<(), ConfigError> {
        self.with_setting(name, origin, |spec, setting| read_setting(spec, setting, value))
    }

    /// Changes one setting and remembers the origin of its value. A refused change is undone: `change` returns the refused
    /// value as text.
    fn with_setting(
        &mut self,
        name: &str,
        origin: Origin,
        change: impl FnOnce(&'static Spec, &mut dyn Setting) -> Result<(), String>,
    ) -> Result<(), ConfigError> {
        let before = self.clone();
        let (mut change, mut outcome) = (Some(change), None);
        self.visit_mut(&mut |spec, setting| {
            if spec.name == name
                && let Some(change) = change.take()
            {
                outcome = Some((spec, change(spec, setting), shown(setting)));
            }
        });
        match outcome {
            None => {
                let nearest = error::nearest(name, self.names().into_iter());
                Err(ConfigError::Unknown { name: name.to_owned(), origin, nearest })
            }
            Some((spec, Ok(()), now)) => {
                self.origins.remember(spec.name, origin, now);
                Ok(())
            }
            Some((spec, Err(value), _)) => {
                *self = before;
                Err(ConfigError::Value { name: spec.name, value, origin, expects: spec.expects() })
            }
        }
    }

    /// Checks the range of every setting and the relations between settings. Call this after the last change; a context
    /// refuses an invalid configuration.
    ///
    /// # Errors
    /// The first invalid value, with its origin.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut wrong = None;
        self.visit(&mut |spec, setting| {
            if wrong.is_none() && !setting.fits(&spec.range) {
                let (name, value) = (spec.name, shown(setting));
                let origin = self.origin(name);
                wrong = Some(ConfigError::Value { name, value, origin, expects: spec.expects() });
            }
        });
        wrong.map_or_else(|| self.check_relations(), Err)
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
        let (now, default) = (self.text_of(name), Self::default().text_of(name));
        match self.origins.of(name) {
            Some((origin, value)) if Some(value) == now.as_deref() => origin.clone(),
            _ if now == default => Origin::Default,
            _ => Origin::Program,
        }
    }

    /// The whole configuration as TOML, without unset settings. Reading this text gives the same configuration.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        self.visit(&mut |spec, setting| {
            let Some(value) = setting.value() else { return };
            let (own, field) = spec.name.split_once('.').unwrap_or(("", spec.name));
            if own != section {
                section = own;
                text.push_str(&format!("\n[{section}]\n"));
            }
            text.push_str(&format!("{field} = {value}\n"));
        });
        text
    }

    fn text_of(&self, name: &str) -> Option<String> {
        let mut text = None;
        self.visit(&mut |spec, setting| {
            if spec.name == name {
                text = Some(shown(setting));
            }
        });
        text
    }

    fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        self.visit(&mut |spec, _| names.push(spec.name));
        names
    }

    fn visit(&self, f: &mut dyn FnMut(&'static Spec, &dyn Setting)) {
        f(&TRANSPORT, &self.transport);
        self.tcp.visit(f);
        self.tls.visit(f);
        self.shm.visit(f);
        self.rdma.visit(f);
        self.buffers.visit(f);
        self.session.visit(f);
        self.limits.visit(f);
    }

    fn visit_mut(&mut self, f: &mut dyn FnMut(&'static Spec, &mut dyn Setting)) {
        f(&TRANSPORT, &mut self.transport);
        self.tcp.visit_mut(f);
        self.tls.visit_mut(f);
        self.shm.visit_mut(f);
        self.rdma.visit_mut(f);
        self.buffers.visit_mut(f);
        self.session.visit_mut(f);
        self.limits.visit_mut(f);
    }
}

/// Stores a value in a setting. Returns the value as text if its type is wrong or the value is out of range.
fn read_setting(spec: &Spec, setting: &mut dyn Setting, value: &Value) -> Result<(), String> {
    if setting.read(value, spec) && setting.fits(&spec.range) { Ok(()) } else { Err(value.to_string()) }
}

fn shown(setting: &dyn Setting) -> String {
    setting.value().map_or_else(|| "(unset)".to_owned(), |value| value.to_string())
}

fn refuse_rest(rest: &Table, lines: &Lines) -> Result<(), ConfigError> {
    let Some(name) = rest.keys().next() else { return Ok(()) };
    let known = SECTIONS.into_iter().chain([TRANSPORT.name]);
    let nearest = error::nearest(name, known);
    Err(ConfigError::Unknown { name: name.clone(), origin: lines.origin(name), nearest })
}

/// The environment variables of this process that begin with [`ENV_PREFIX`] and name no setting, sorted. Programs can warn
/// about them.
pub fn unknown_variables() -> Vec<String> {
    let names = Config::default().names();
    let is_setting = |variable: &str| names.iter().any(|name| knob::variable(name) == variable);
    let mut unknown: Vec<String> = environment().map(|(name, _)| name).collect();
    unknown.retain(|name| name.starts_with(ENV_PREFIX) && !is_setting(name));
    unknown.sort_unstable();
    unknown
}

/// The process's environment, without variables that are not Unicode. No value of a setting needs them.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
}
