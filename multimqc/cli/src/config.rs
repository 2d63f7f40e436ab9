//! The configuration file of `multimqc serve`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use commands::{Failure, print_error};
use multimqc::functions::{DropRange, ExtractField, InputFunction, NumberType, OutputFunction};
use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{
    Functions, Level, LevelKind, OVERLAP_BYTES, ServerConfig, ServiceConfig, Sizing, Stack, TopicConfig,
    TopicId, TransferConfig, wire,
};
use multimqc_kernel::{Kernel, KernelLevel, Mode, Ports};
use serde::Deserialize;
use settings::{bytes, millis, read_file, read_parts, section};

use super::kafka::Kafka;

/// The file with every setting at its default.
pub const EXAMPLE: &str = include_str!("example.toml");

/// The contents of a configuration file. All settings have defaults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub levels: Vec<String>,
    pub address: IpAddr,
    pub header_port: u16,
    pub control: Option<PathBuf>,
    #[serde(deserialize_with = "bytes")]
    pub receive_buffer_bytes: usize,
    pub trusted: bool,
    #[serde(deserialize_with = "bytes")]
    pub max_reply_bytes: usize,
    pub max_senders: usize,
    pub accept_batches: bool,
    #[serde(deserialize_with = "bytes")]
    pub batch_bytes: usize,
    #[serde(deserialize_with = "millis")]
    pub max_age_ms: u64,
    #[serde(deserialize_with = "bytes")]
    pub expected_bytes_per_second: u64,
    #[serde(deserialize_with = "millis")]
    pub expected_latency_ms: u64,
    pub kernel: InKernel,
    pub user: User,
    pub disk: Disk,
    pub kafka: Kafka,
    pub topics: Vec<Topic>,
}

section! {
    /// The level in the kernel.
    "kernel" InKernel {
        interface: String = String::new();
        mode: String = "auto".into();
        ring_bytes: u64 = multimqc_kernel::Config::default().ring_bytes, "bytes", range [at least 0];
        keep: Option<PathBuf> = None;
        required: bool = true, range [true or false];
    }
}

section! {
    /// The level in memory.
    "user" User {
        capacity_bytes: u64 = UserConfig::default().capacity_bytes, "bytes", range [at least 0];
    }
}

section! {
    /// The level on disk.
    "disk" Disk {
        directory: Option<PathBuf> = None;
        segment_bytes: u64 = DiskConfig::new("").segment_bytes, "bytes", range [at least 0];
        max_bytes: u64 = DiskConfig::new("").max_bytes.unwrap_or(0), "bytes", range [at least 0];
        max_age_s: u64 = 0, "s", range [at least 0];
        sync_interval_ms: u64 = DiskConfig::new("").sync_interval.as_millis() as u64, "ms", range [at least 0];
        restart_gap_bytes: u64 = DiskConfig::new("").restart_gap_bytes, "bytes", range [at least 0];
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    pub id: u16,
    #[serde(default)]
    pub push_port: Option<u16>,
    #[serde(default)]
    pub pull_port: Option<u16>,
    #[serde(default)]
    pub input: Option<Function>,
    #[serde(default)]
    pub output: Option<Function>,
}

/// A function that comes with the library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Function {
    DropRange {
        at: usize,
        #[serde(rename = "type")]
        number: String,
        from: f64,
        to: f64,
        #[serde(default)]
        record_bytes: usize,
    },
    ExtractField {
        at: usize,
        bytes: usize,
        #[serde(default)]
        record_bytes: usize,
    },
}

impl Default for Config {
    fn default() -> Self {
        let (server, service) = (ServerConfig::default(), ServiceConfig::default());
        let topic = Topic {
            id: 0,
            push_port: Some(wire::PUSH_PORT),
            pull_port: Some(wire::PULL_PORT),
            input: None,
            output: None,
        };
        Config {
            levels: vec!["user".into(), "disk".into()],
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            header_port: wire::HEADER_PORT,
            control: None,
            receive_buffer_bytes: server.receive_buffer_bytes,
            trusted: service.trusted,
            max_reply_bytes: service.max_reply_bytes,
            max_senders: service.max_senders,
            accept_batches: service.accept_batches,
            batch_bytes: server.transfer.batch_bytes,
            max_age_ms: server.transfer.max_age.as_millis() as u64,
            expected_bytes_per_second: 100_000_000,
            expected_latency_ms: 100,
            kernel: InKernel::default(),
            user: User::default(),
            disk: Disk::default(),
            kafka: Kafka::default(),
            topics: vec![topic],
        }
    }
}

impl Config {
    /// The configuration of a file, or the defaults.
    pub fn load(path: Option<&Path>) -> Result<Config, Failure> {
        let Some(path) = path else { return Ok(Config::default()) };
        let text = read_file(path).map_err(Failure::failed)?;
        read_parts(&text, Some(path)).map_err(Failure::failed)
    }

    /// Whether a level is among those that are wanted.
    pub fn has(&self, level: LevelKind) -> bool {
        self.levels.iter().any(|name| name == level.name())
    }

    /// The folder of the disk level.
    fn directory(&self) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.disk.directory {
            return Ok(directory.clone());
        }
        let base = std::env::var_os("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
        let none = || Failure::Failed("no folder for the disk level; use --directory".into());
        Ok(base.ok_or_else(none)?.join("multimqc"))
    }

    /// The stack, and its level in the kernel.
    pub fn stack(&self) -> Result<(Stack, Option<Arc<KernelLevel>>), Failure> {
        let mut levels: Vec<Arc<dyn Level>> = Vec::new();
        let mut kernel = None;
        for name in &self.levels {
            match LevelKind::from_name(name) {
                Some(LevelKind::Kernel) => {
                    kernel = self.kernel_level()?;
                    levels.extend(kernel.clone().map(|level| level as Arc<dyn Level>));
                }
                Some(LevelKind::User) => levels.push(self.user_level()?),
                Some(LevelKind::Disk) => levels.push(self.disk_level()?),
                Some(LevelKind::Kafka) => {
                    levels.push(self.kafka.level(self.topics.len())?);
                }
                _ => {
                    let message =
                        format!("level {name:?}: there are kernel, user and disk, and kafka behind them");
                    return Err(Failure::Failed(message));
                }
            }
        }
        Ok((Stack::new(levels).map_err(Failure::failed)?, kernel))
    }

    /// The level in the kernel, attached. `None`: the process lacks the rights, and the level is not required.
    fn kernel_level(&self) -> Result<Option<Arc<KernelLevel>>, Failure> {
        let InKernel { interface, keep, .. } = &self.kernel;
        let ports: Vec<_> =
            self.topics.iter().map(|topic| self.kernel_ports(topic)).collect::<Result<_, _>>()?;
        let fail = |why: &dyn std::fmt::Display| Failure::Failed(format!("level kernel: {why}"));
        if interface.is_empty() {
            return Err(fail(&"it needs the name of an interface: --interface"));
        }
        if self.address.is_loopback() && interface != "lo" {
            return Err(fail(&format!("{} is not reached through {interface}: use --address", self.address)));
        }
        let topics = self.topics.len();
        if topics > multimqc_kernel::MAX_TOPICS as usize {
            return Err(fail(&format!("{topics} topics: it takes at most {}", multimqc_kernel::MAX_TOPICS)));
        }
        let address = match self.address {
            IpAddr::V4(address) => Some(address).filter(|address| !address.is_unspecified()),
            IpAddr::V6(_) => return Err(fail(&"it takes IPv4 only: use another --address")),
        };
        let config = multimqc_kernel::Config::default()
            .ring_bytes(self.kernel.ring_bytes)
            .max_topics(topics as u32)
            .batch_bytes(self.batch_bytes as u64)
            .max_reply_bytes(self.max_reply_bytes.min(wire::MTU_PAYLOAD_BYTES) as u32)
            .address(address)
            .trusted(address.filter(|_| self.trusted).map(|address| (address, 0)))
            .mode(mode(&self.kernel.mode)?)
            .keep(keep.clone())
            .bytes_per_second(if self.levels.len() > 1 { self.expected_bytes_per_second } else { 0 })
            .next_level_latency(Duration::from_millis(self.expected_latency_ms));
        let attached = Kernel::new(config).and_then(|kernel| kernel.attach(interface).map(|()| kernel));
        match attached {
            Ok(kernel) => {
                print_error(
                    "multimqc",
                    format_args!("level kernel on {interface}: {}", kernel.modes().join(", ")),
                );
                Ok(Some(Arc::new(KernelLevel::new(kernel, ports))))
            }
            Err(error) if error.is_missing_right() && !self.kernel.required => {
                print_error("multimqc", format_args!("without the level kernel: {error}"));
                Ok(None)
            }
            Err(error) if error.is_missing_right() => {
                Err(fail(&format!("{error}; run as root, or leave it out: --levels user,disk")))
            }
            Err(error) => Err(fail(&error)),
        }
    }

    /// The ports of a topic in the kernel, which are those of the sockets: the sockets get the packets that the kernel passes up.
    fn kernel_ports(&self, topic: &Topic) -> Result<(TopicId, Ports), Failure> {
        let (push, pull, header) = (topic.push_port, topic.pull_port, self.header_port);
        if header == 0 || push == Some(0) || pull == Some(0) {
            return Err(Failure::Failed("level kernel: it needs the numbers of all ports, not 0".into()));
        }
        Ok((TopicId(topic.id), Ports { push: push.unwrap_or(0), pull: pull.unwrap_or(0), header }))
    }

    fn user_level(&self) -> Result<Arc<dyn Level>, Failure> {
        let config = UserConfig {
            capacity_bytes: self.user.capacity_bytes,
            max_topics: self.topics.len(),
            batch_bytes: self.batch_bytes as u64,
        };
        let level = UserLevel::new(config).map_err(Failure::failed)?;
        let is_last = !self.has(LevelKind::Disk) && !self.has(LevelKind::Kafka);
        let sizing = Sizing {
            capacity_bytes: level.capacity_bytes().unwrap_or(u64::MAX),
            batch_bytes: self.batch_bytes as u64,
            overlap_bytes: OVERLAP_BYTES,
            bytes_per_second: if is_last { 0 } else { self.expected_bytes_per_second },
        };
        let latency = Duration::from_millis(self.expected_latency_ms);
        sizing.check(latency).map_err(|error| Failure::Failed(format!("level user: {error}")))?;
        Ok(Arc::new(level))
    }

    fn disk_level(&self) -> Result<Arc<dyn Level>, Failure> {
        let directory = self.directory()?;
        let limit = |value: u64| Some(value).filter(|value| *value > 0);
        let config = DiskConfig {
            segment_bytes: self.disk.segment_bytes,
            max_bytes: limit(self.disk.max_bytes),
            max_age: limit(self.disk.max_age_s).map(Duration::from_secs),
            sync_interval: Duration::from_millis(self.disk.sync_interval_ms.max(1)),
            max_topics: self.topics.len(),
            restart_gap_bytes: self.disk.restart_gap_bytes,
            ..DiskConfig::new(&directory)
        };
        let level = DiskLevel::new(config);
        Ok(Arc::new(level.map_err(|error| Failure::Failed(format!("{}: {error}", directory.display())))?))
    }

    /// The settings of the server.
    pub fn server(&self) -> ServerConfig {
        let topic = |topic: &Topic| TopicConfig {
            id: TopicId(topic.id),
            push_port: topic.push_port,
            pull_port: topic.pull_port,
        };
        ServerConfig {
            address: self.address,
            interface: None,
            header_port: Some(self.header_port),
            topics: self.topics.iter().map(topic).collect(),
            receive_buffer_bytes: self.receive_buffer_bytes,
            service: ServiceConfig {
                trusted: self.trusted,
                max_reply_bytes: self.max_reply_bytes,
                max_senders: self.max_senders,
                accept_batches: self.accept_batches,
            },
            transfer: TransferConfig {
                batch_bytes: self.batch_bytes,
                max_age: Duration::from_millis(self.max_age_ms),
            },
        }
    }

    /// The functions of the topics.
    pub fn functions(&self) -> Result<Vec<(TopicId, Functions)>, Failure> {
        let with = self.topics.iter().filter(|topic| topic.input.is_some() || topic.output.is_some());
        with.map(|topic| {
            let input = topic.input.as_ref().map(|function| function.input()).transpose()?;
            let output = topic.output.as_ref().map(|function| function.output()).transpose()?;
            Ok((TopicId(topic.id), Functions { input, output }))
        })
        .collect()
    }

    /// The path of the control socket, for `multimqc stat`.
    pub fn control(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(default_control)
    }
}

/// The default of the control socket: in the user's runtime folder, or in the folder for temporary files.
pub fn default_control() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("multimqc.sock"),
        None => std::env::temp_dir().join(format!("multimqc-{}.sock", rustix::process::getuid().as_raw())),
    }
}

/// The place of the programs with this name.
fn mode(name: &str) -> Result<Mode, Failure> {
    Ok(match name {
        "auto" => Mode::Auto,
        "xdp-native" => Mode::XdpNative,
        "xdp-generic" => Mode::XdpGeneric,
        "tcx" => Mode::Tcx,
        "netfilter" => Mode::Netfilter,
        _ => {
            let all = "use auto, xdp-native, xdp-generic, tcx or netfilter";
            return Err(Failure::Failed(format!("mode {name:?}: {all}")));
        }
    })
}

impl Function {
    fn drop_range(&self) -> Result<Option<DropRange>, Failure> {
        let Function::DropRange { at, number, from, to, record_bytes } = self else { return Ok(None) };
        let none = || Failure::Failed(format!("type {number:?}: use u8, u16, u32, i32, i64, f32 or f64"));
        let number = NumberType::from_name(number).ok_or_else(none)?;
        Ok(Some(DropRange { at: *at, number, range: *from..=*to, record_bytes: *record_bytes }))
    }

    fn extract_field(&self) -> Option<ExtractField> {
        match self {
            Function::ExtractField { at, bytes, record_bytes } => {
                Some(ExtractField { at: *at, bytes: *bytes, record_bytes: *record_bytes })
            }
            Function::DropRange { .. } => None,
        }
    }

    fn input(&self) -> Result<Box<dyn InputFunction>, Failure> {
        if let Some(function) = self.drop_range()? {
            return Ok(Box::new(function));
        }
        Ok(Box::new(self.extract_field().expect("there are two functions")))
    }

    fn output(&self) -> Result<Box<dyn OutputFunction>, Failure> {
        let record = match self {
            Function::DropRange { record_bytes, .. } | Function::ExtractField { record_bytes, .. } => {
                *record_bytes
            }
        };
        if record == 0 {
            let message = "an output function needs record_bytes: the log does not keep where a message ends";
            return Err(Failure::Failed(message.into()));
        }
        if let Some(function) = self.drop_range()? {
            return Ok(Box::new(function));
        }
        Ok(Box::new(self.extract_field().expect("there are two functions")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example is the defaults, commented out: with and without comments it is the same configuration.
    #[test]
    fn the_example_has_the_defaults() {
        let settings: String =
            EXAMPLE.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n").collect();
        let all: Config = toml::from_str(&settings).expect("the example is TOML");
        let mut default = Config::default();
        default.control.clone_from(&all.control);
        default.disk.directory.clone_from(&all.disk.directory);
        default.kernel.keep.clone_from(&all.kernel.keep);
        assert_eq!(format!("{all:?}"), format!("{default:?}"));
        assert!(toml::from_str::<Config>(EXAMPLE).is_ok());
    }

    #[test]
    fn functions_are_checked() {
        let parse = |text: &str| toml::from_str::<Config>(text).expect("TOML").functions();
        let good = "[[topics]]\nid = 1\ninput = { drop_range = { at = 0, type = \"f32\", from = -1, to = 1 } }\n\
                    output = { extract_field = { at = 4, bytes = 4, record_bytes = 8 } }";
        assert_eq!(parse(good).expect("both are good").len(), 1);
        let wrong =
            "[[topics]]\nid = 1\ninput = { drop_range = { at = 0, type = \"f16\", from = -1, to = 1 } }";
        assert!(matches!(parse(wrong), Err(Failure::Failed(text)) if text.contains("f16")));
        let wrong = "[[topics]]\nid = 1\noutput = { extract_field = { at = 0, bytes = 4 } }";
        assert!(matches!(parse(wrong), Err(Failure::Failed(text)) if text.contains("record_bytes")));
    }
}
