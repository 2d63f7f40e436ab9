//! The configuration file of the command.

use std::path::Path;
use std::time::Duration;

use access::{check_secret, check_secret_mode};
use commands::Failure;
use etcd::{Access, ClientSettings};
use peers::check_known_names;
use rblive::Rule;
use rblive_deliver::{OtherNode, Redirect};
use rblive_ingest::IngestSettings;
use rblive_record::RecordRule;
use rocketbufs::config::read_file_with_mode;
use serde::Deserialize;
use settings::{out_of_range, section};

/// The variable with the filter of the log.
pub const LOG: &str = "RBLIVE_LOG";

/// The file with every setting at its default. The settings of the framework follow it.
const EXAMPLE: &str = include_str!("example.toml");

/// A configuration file: the node, and the sections of this command.
#[derive(Debug, Default)]
pub struct Config {
    pub node: rblive::Config,
    pub control: Control,
    pub deliver: rblive_deliver::Settings,
    pub webrtc: rblive_webrtc::Settings,
    pub ingest: IngestSettings,
    pub record: Vec<RecordRule>,
    pub cluster: Cluster,
}

section! {
    /// Several nodes that find each other in etcd. Each knows itself by `[[nodes]]`, and the others by what they say there.
    "cluster" Cluster {
        /// The name of the cluster, which is part of all of its keys in etcd. Empty: this node knows the nodes of its file alone.
        name: String = String::new();
        /// The addresses of etcd, as "http://10.0.0.1:2379" or "https://…".
        etcd: Vec<String> = Vec::new();
        /// The address, `HOST:PORT`, at which other nodes reach this one. Empty: that of `[[nodes]]`.
        advertise: Vec<String> = Vec::new();
        /// How the addresses for viewers of this node begin. Empty: `deliver.listen`.
        viewers: String = String::new();
        /// How long the others take a node for alive that says nothing.
        ttl_ms: u64 = 10_000, "ms", range [2_000 to 600_000];
        /// When viewers are sent to other nodes.
        redirect: Redirect = Redirect::Overloaded;
        /// The viewers that this node is to have. 0: as many as come.
        max_viewers: usize = 0, range [at least 0];
        /// The bits per second that this node is to send. 0: as many as viewers ask for.
        max_bits_per_second: u64 = 0, range [at least 0];
        user: String = String::new();
        password_file: String = String::new();
        ca: String = String::new();
        cert: String = String::new();
        key: String = String::new();
    }
}

impl Cluster {
    /// Whether this node is a member of a cluster.
    pub fn is_used(&self) -> bool {
        !self.name.is_empty()
    }

    /// `ttl_ms` in whole seconds, rounded up.
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_ms.div_ceil(1_000))
    }

    pub fn access(&self) -> Access<'_> {
        let Self { etcd, user, password_file, ca, cert, key, .. } = self;
        Access { etcd, user, password_file, ca, cert, key, ttl: self.ttl() }
    }

    /// How etcd is reached.
    pub fn client(&self) -> Result<ClientSettings, Failure> {
        self.access().client(etcd::password_in).map_err(Failure::Failed)
    }

    /// Refuses what does not fit together.
    pub fn check(&self) -> Result<(), String> {
        if let Some(fault) = out_of_range(self) {
            return Err(fault.to_string());
        }
        if self.is_used() && !etcd::is_name(&self.name) {
            return Err(format!(
                "cluster.name = {:?}: it must be at most 128 bytes without '/' and blanks",
                self.name
            ));
        }
        if self.is_used() && self.etcd.is_empty() {
            return Err(
                "cluster.etcd: it must be the addresses of an etcd, if cluster.name is set".to_owned()
            );
        }
        if !self.is_used() && !self.etcd.is_empty() {
            return Err("cluster.name: it must be a name, if cluster.etcd is set".to_owned());
        }
        if self.user.is_empty() != self.password_file.is_empty() {
            return Err("cluster.user: it must be set together with cluster.password_file".to_owned());
        }
        let is_address = |text: &String| {
            text.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty()
                    && !host.contains([',', '/', ' '])
                    && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if self.advertise.len() > 1 || !self.advertise.iter().all(is_address) {
            return Err(format!("cluster.advertise = {:?}: it must be one HOST:PORT", self.advertise));
        }
        if !self.viewers.is_empty() && !OtherNode::is_url(&self.viewers) {
            return Err(format!("cluster.viewers = {:?}: it must be as https://HOST:PORT", self.viewers));
        }
        Ok(())
    }
}

section! {
    /// The HTTP calls by which the node takes and gives streams.
    "control" Control {
        listen: String = "127.0.0.1:7480".to_owned();
        names: Vec<String> = Vec::new();
        proxies: Vec<String> = Vec::new();
        token: String = String::new();
        max_connections: usize = 64, range [at least 0];
    }
}

/// The sections of this command in a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sections {
    control: Control,
    deliver: rblive_deliver::Settings,
    webrtc: rblive_webrtc::Settings,
    ingest: IngestSettings,
    record: Vec<RecordRule>,
    cluster: Cluster,
}

/// The names of [`Sections`].
const SECTIONS: [&str; 6] = ["cluster", "control", "deliver", "ingest", "record", "webrtc"];

impl Config {
    /// Reads a file; without one, all settings have their defaults. A file with secrets that everybody on the machine can read is refused.
    pub fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::alone()) };
        let (text, mode) = read_file_with_mode(path).map_err(Failure::failed)?;
        let config = Self::parse(&text, Some(path))?;
        let secrets = config.secrets().join(", ");
        if !secrets.is_empty() {
            let refused = |why| Failure::Failed(format!("{} with {secrets}: {why}", path.display()));
            check_secret_mode(path, mode).map_err(refused)?;
        }
        let wrong = |why| Failure::Failed(format!("{}: {why}", path.display()));
        config.check_secrets().map_err(wrong)?;
        config.check_names().map_err(wrong)?;
        config.check_cluster().map_err(wrong)?;
        Ok(config)
    }

    /// The settings with secrets in the file itself.
    fn secrets(&self) -> Vec<&'static str> {
        let Self { control, deliver, ingest, .. } = self;
        let all = [
            ("control.token", !control.token.is_empty()),
            ("deliver.token_key", !deliver.token_key.is_empty()),
            ("ingest.keys", ingest.keys.values().any(|key| !key.is_empty())),
            ("ingest.users", !ingest.users.is_empty()),
            ("ingest.hook.secret", !ingest.hook.secret.is_empty()),
        ];
        all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
    }

    /// Refuses secrets that somebody may guess. An empty one opens nothing, or is none.
    fn check_secrets(&self) -> Result<(), String> {
        let Self { control, deliver, ingest, .. } = self;
        let keys = ingest.keys.iter().map(|(stream, key)| (format!("ingest.keys.\"{stream}\""), key));
        let others = [
            ("control.token", &control.token),
            ("deliver.token_key", &deliver.token_key),
            ("ingest.hook.secret", &ingest.hook.secret),
        ];
        for (name, secret) in others.map(|(name, secret)| (name.to_owned(), secret)).into_iter().chain(keys) {
            if !secret.is_empty() {
                check_secret(secret).map_err(|weak| format!("{name} is too weak: {weak}"))?;
            }
        }
        Ok(())
    }

    /// What can hardly be meant: patterns of streams that have the beginning of an address. A stream may have such a name all the same.
    pub fn doubts(&self) -> Vec<String> {
        let Self { node, ingest, record, .. } = self;
        let rules = node.rules.iter().map(|rule| ("rules", &rule.streams));
        let records = record.iter().map(|rule| ("record", &rule.streams));
        let passthrough = ingest.passthrough.iter().map(|pattern| ("ingest.passthrough", pattern));
        let keys = ingest.keys.keys().map(|name| ("ingest.keys", name));
        let users =
            ingest.users.values().flat_map(|user| &user.streams).map(|pattern| ("ingest.users", pattern));
        let ladders = ingest.ladders.iter().flat_map(|rule| rule.streams.iter().chain([&rule.name]));
        let ladders = ladders.map(|name| ("ingest.ladders", name));
        let all = rules.chain(records).chain(passthrough).chain(keys).chain(users).chain(ladders);
        all.filter_map(|(setting, name)| Some(format!("{setting}: {}", doubt(name)?))).collect()
    }

    /// Refuses names that no request has.
    fn check_names(&self) -> Result<(), String> {
        let names = self.control.names.iter().map(String::as_str);
        check_known_names(names).map_err(|why| format!("control.names: {why}"))
    }

    /// Refuses a cluster that cannot be, and names of nodes that no key has.
    fn check_cluster(&self) -> Result<(), String> {
        self.cluster.check()?;
        let unfit = self.node.nodes.iter().find(|node| self.cluster.is_used() && !etcd::is_name(&node.name));
        match unfit {
            Some(node) => {
                Err(format!("nodes: {:?} is no name of a node in a cluster: it has '/' or blanks", node.name))
            }
            None => Ok(()),
        }
    }

    /// One node on one machine, which takes streams from encoders of this machine and delivers them.
    fn alone() -> Self {
        let mut config = Self::default();
        let nodes = config.node.nodes.iter().map(|node| node.name.clone()).collect();
        config.node.rules = vec![Rule { streams: "*".to_owned(), nodes }];
        config.ingest.rtmp = "127.0.0.1:1935".to_owned();
        config.ingest.http = "127.0.0.1:8935".to_owned();
        config
    }

    fn parse(text: &str, path: Option<&Path>) -> Result<Self, Failure> {
        let (node, rest) = rblive::Config::from_toml_shared(text, path).map_err(Failure::failed)?;
        let refuse =
            || settings::refuse_unknown(&rest, SECTIONS.into_iter(), &settings::parse(text, path)?.1);
        refuse().map_err(Failure::failed)?;
        let sections = settings::read_parts(text, path).map_err(Failure::failed)?;
        let Sections { control, deliver, webrtc, ingest, record, cluster } = sections;
        let mut node = node;
        node.finds_nodes = cluster.is_used();
        Ok(Self { node, control, deliver, webrtc, ingest, record, cluster })
    }
}

/// What is odd in the name, or the pattern, of streams.
pub fn doubt(name: &str) -> Option<String> {
    let rest = name.strip_prefix("live/")?;
    Some(format!("'{name}' begins as an address does: the stream at /live/{rest} has the name '{rest}'"))
}

/// A configuration file with every setting at its default.
pub fn example() -> String {
    let framework = rocketbufs::config::example_toml();
    format!("{EXAMPLE}\n{framework}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_example_has_every_default() {
        let config = Config::parse(EXAMPLE, None).unwrap();
        assert_eq!(config.node, rblive::Config::default());
        assert!(config.ingest == IngestSettings::default() && config.record.is_empty());
        assert_eq!(config.control, Control::default());
        assert_eq!(config.deliver, rblive_deliver::Settings::default());
        assert_eq!(config.webrtc, rblive_webrtc::Settings::default());
        assert_eq!(config.cluster, Cluster::default());
        let misspelt = |text: &str| format!("{:?}", Config::parse(text, None).unwrap_err());
        assert!(
            misspelt("[control]\nlisen = ''")
                .contains("line 2: there is no setting 'control.lisen'; did you mean")
        );
        assert!(misspelt("[contrl]\n").contains("'contrl' (configuration, line 1); did you mean 'control'?"));
    }

    #[test]
    fn the_commented_rule_for_recording_has_every_default() {
        let lines = EXAMPLE.lines().skip_while(|line| *line != "# [[record]]");
        let text: String =
            lines.take_while(|line| line.starts_with('#')).map(|line| format!("{}\n", &line[2..])).collect();
        let config = Config::parse(&text, None).unwrap();
        let folder = config.record[0].folder.clone();
        assert_eq!(config.record, [RecordRule { folder, ..RecordRule::default() }]);
        let lines = toml::to_string(&RecordRule::default()).unwrap().lines().count();
        assert_eq!(text.matches(" = ").count(), lines, "every setting is there");
    }

    #[test]
    fn a_file_with_secrets_is_for_its_owner_and_group() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.toml");
        let load = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            Config::load(Some(&path)).map(drop).map_err(|failure| format!("{failure:?}"))
        };
        for (name, text) in [
            ("control.token", "[control]\ntoken = '0123456789abcdef'"),
            ("deliver.token_key", "[deliver]\ntoken_key = '0123456789abcdef'"),
            ("ingest.keys", "[ingest.keys]\ncamera = '0123456789abcdef'"),
            ("ingest.users", "[ingest.users]\nanna = { password = 'h' }"),
            ("ingest.hook.secret", "[ingest.hook]\nsecret = '0123456789abcdef'"),
        ] {
            let refused = load(text, 0o644).unwrap_err();
            let says = format!(
                "{path} with {name}: everybody on this machine can read it (mode 644); run: chmod 640 {path}",
                path = path.display()
            );
            assert!(refused.contains(&says), "{refused}");
            assert_eq!(load(text, 0o640), Ok(()));
        }
        assert_eq!(load(&example(), 0o644), Ok(()));
    }

    #[test]
    fn secrets_that_somebody_may_guess_are_refused() {
        let check = |text: &str| Config::parse(text, None).unwrap().check_secrets();
        for (name, text) in [
            ("control.token", "[control]\ntoken = "),
            ("deliver.token_key", "[deliver]\ntoken_key = "),
            ("ingest.keys.\"live/camera\"", "[ingest.keys]\n\"live/camera\" = "),
            ("ingest.hook.secret", "[ingest.hook]\nsecret = "),
        ] {
            let weak = check(&format!("{text}'0123456789abcde'")).unwrap_err();
            assert!(weak.starts_with(name) && weak.contains("openssl rand -hex 32"), "{weak}");
            assert!(!weak.contains("0123"), "{weak}");
            assert_eq!(check(&format!("{text}'0123456789abcdef'")), Ok(()));
            assert_eq!(check(&format!("{text}''")), Ok(()), "none");
        }
    }

    #[test]
    fn patterns_that_begin_as_addresses_are_told() {
        let doubts = |text: &str| Config::parse(text, None).unwrap().doubts();
        for (setting, text) in [
            ("rules", "[[rules]]\nstreams = 'live/*'\nnodes = ['local']"),
            ("record", "[[record]]\nstreams = 'live/*'\nfolder = '/tmp/a'"),
            ("ingest.passthrough", "[ingest]\npassthrough = ['live/*']"),
            ("ingest.keys", "[ingest.keys]\n'live/camera' = 'k'"),
            ("ingest.users", "[ingest.users]\nanna = { password = 'h', streams = ['live/*'] }"),
            ("ingest.ladders", "[[ingest.ladders]]\nname = 'a'\nstreams = ['live/b']"),
        ] {
            let all = doubts(text);
            assert!(all.len() == 1 && all[0].starts_with(&format!("{setting}: 'live/")), "{all:?}");
            assert_eq!(doubts(&text.replace("live/", "alive/")), [""; 0]);
        }
        assert_eq!(doubts(EXAMPLE), [""; 0]);
    }

    #[test]
    fn names_of_the_control_page_have_the_form_of_requests() {
        let check = |name: &str| {
            Config::parse(&format!("[control]\nnames = ['{name}']"), None).unwrap().check_names()
        };
        assert_eq!(check("control.example.org"), Ok(()));
        let wrong = check("https://control.example.org").unwrap_err();
        assert!(wrong.starts_with("control.names: 'https://control.example.org'"), "{wrong}");
    }

    #[test]
    fn a_cluster_has_a_name_and_an_etcd() {
        let check = |text: &str| {
            let config = Config::parse(&format!("[cluster]\n{text}\n"), None);
            config.map_err(|failure| format!("{failure:?}")).and_then(|config| config.check_cluster())
        };
        assert_eq!(
            check("name = 'c'\netcd = ['http://a']\nredirect = 'draining'\nadvertise = ['h:1']"),
            Ok(())
        );
        for (text, expected) in [
            ("name = 'c'", "cluster.etcd"),
            ("etcd = ['http://a']", "cluster.name"),
            ("name = 'a/b'\netcd = ['http://a']", "cluster.name = \"a/b\""),
            ("name = 'c'\netcd = ['http://a']\nuser = 'u'", "cluster.password_file"),
            ("advertise = ['a']", "one HOST:PORT"),
            ("advertise = ['a:1', 'b:1']", "one HOST:PORT"),
            ("viewers = 'edge'", "https://HOST:PORT"),
            ("ttl_ms = 100", "cluster.ttl_ms"),
            ("redirect = 'always'", "`overloaded`"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let config = Config::parse(
            "[cluster]\nname = 'c'\netcd = ['http://a']\n[[nodes]]\nname = 'a b'\nid = 1\nrole = 'both'\naddress = 'h:1'",
            None,
        );
        assert!(config.unwrap().check_cluster().unwrap_err().contains("a b"));
    }

    #[test]
    fn the_example_of_a_cluster_is_a_configuration() {
        let config = Config::parse(include_str!("../../../examples/cluster/rblive.toml"), None).unwrap();
        config.check_cluster().unwrap();
        config.node.validate().unwrap();
        assert!(config.cluster.is_used() && config.node.finds_nodes);
    }

    #[test]
    fn the_whole_example_is_a_configuration() {
        assert!(Config::parse(&example(), None).is_ok());
    }
}
