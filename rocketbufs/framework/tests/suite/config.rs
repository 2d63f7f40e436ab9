//! The configuration: accepted settings, the errors of refused ones, and the committed reference.

use std::path::{Path, PathBuf};

use rocketbufs::Config;
use rocketbufs::config::{
    ConfigError, MAX_FILE_BYTES, Origin, TransportKind, example_toml, knobs, read_file, section_help,
};

fn message(result: Result<Config, ConfigError>) -> String {
    result.expect_err("the value must be refused").to_string()
}

#[test]
fn the_defaults_are_those_that_the_documentation_names() {
    let config = Config::from_toml("").unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.transport, TransportKind::Tcp);
    assert_eq!((config.tcp.tcp_num_threads, config.tcp.tcp_thread_pinning), (1, false));
    assert_eq!((config.tcp.read_bytes, config.tcp.staging_bytes), (1 << 20, 256 << 10));
    assert_eq!((config.tcp.tx_queue_bytes, config.tcp.max_transfer_bytes), (1 << 20, 256 << 10));
    assert_eq!((config.buffers.size_bytes, config.buffers.retain_bytes), (1 << 20, None));
    assert_eq!((config.buffers.reservation_bytes, config.buffers.max_ring_bytes), (1 << 30, 16 << 30));
    assert_eq!((config.session.heartbeat_ms, config.session.block_timeout_ms), (5000, 10_000));
    assert_eq!((config.limits.max_control_bytes, config.limits.max_hold_ms), (65_536, 600_000));
    config.validate().unwrap();
}

#[test]
fn a_file_a_variable_and_an_argument_go_over_each_other_in_this_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    std::fs::write(&path, "[tcp]\nbacklog = 7\nread_bytes = 524288\ntcp_num_threads = 2\n").unwrap();
    let (mut config, rest) = Config::load_shared(&path).unwrap();
    assert!(rest.is_empty());
    let variables = [
        ("ROCKETBUFS_TCP_READ_BYTES", "1 MiB"),
        ("ROCKETBUFS_TCP_TCP_NUM_THREADS", "4"),
        ("ROCKETBUFS_TRANSPORT", "tcp"),
        ("ROCKETBUFS_LOG", "not a setting, and not looked at"),
        ("HOME", "/root"),
    ];
    config.apply_env(variables.map(|(k, v)| (k.to_owned(), v.to_owned()))).unwrap();
    config.set("tcp.tcp_num_threads", "6").unwrap();
    config.limits.max_buffers = 9;
    config.validate().unwrap();

    assert_eq!((config.tcp.backlog, config.tcp.read_bytes, config.tcp.tcp_num_threads), (7, 1 << 20, 6));
    assert_eq!(config.origin("tcp.backlog"), Origin::File { path: Some(path.clone()), line: Some(2) });
    assert_eq!(config.origin("tcp.read_bytes"), Origin::Variable("ROCKETBUFS_TCP_READ_BYTES".to_owned()));
    assert_eq!(config.origin("tcp.tcp_num_threads"), Origin::Argument);
    assert_eq!(config.origin("limits.max_buffers"), Origin::Program);
    assert_eq!(config.origin("tcp.nodelay"), Origin::Default);
    assert!(Config::load(Some(&path)).is_ok());
}

#[test]
fn every_kind_of_value_is_read_from_a_file_and_from_a_text() {
    let text = "transport = 'tcp'\n[tcp]\nnodelay = false\ncongestion_control = 'cubic'\nsend_buffer_bytes = 65536\n\
                [buffers]\nsize_bytes = '2 MiB'\nretain_bytes = 0\n";
    let config = Config::from_toml(text).unwrap();
    assert!(!config.tcp.nodelay);
    assert_eq!(config.tcp.congestion_control.as_deref(), Some("cubic"));
    assert_eq!(config.tcp.send_buffer_bytes, Some(65_536));
    assert_eq!((config.buffers.size_bytes, config.buffers.retain_bytes), (2 << 20, Some(0)));

    let mut same = Config::default();
    for (name, text) in [
        ("transport", "tcp"),
        ("tcp.nodelay", " false "),
        ("tcp.congestion_control", "cubic"),
        ("tcp.send_buffer_bytes", "65_536"),
        ("buffers.size_bytes", "2MiB"),
        ("buffers.retain_bytes", "0"),
    ] {
        same.set(name, text).unwrap();
    }
    assert_eq!(same, config);
    same.set("tcp.congestion_control", "").unwrap();
    same.set("buffers.retain_bytes", "").unwrap();
    assert_eq!((same.tcp.congestion_control, same.buffers.retain_bytes), (None, None));
}

#[test]
fn an_error_names_the_setting_its_value_its_place_and_its_range() {
    assert_eq!(
        message(Config::from_toml("\n[tcp]\nread_bytes = 17\n")),
        "tcp.read_bytes = 17 (configuration, line 3): it must be 262144 to 67108864 bytes"
    );
    assert_eq!(
        message(Config::from_toml("[session]\nheartbeat_ms = 'soon'")),
        "session.heartbeat_ms = \"soon\" (configuration, line 2): it must be 0 or 10 to 3600000 ms"
    );
    assert_eq!(
        message(Config::from_toml("transport = 'pigeon'")),
        "transport = \"pigeon\" (configuration, line 1): it must be one of: tcp, shm, auto, rdma"
    );
    assert_eq!(
        message(Config::from_toml("tcp.congestion_control = 'a b'")),
        "tcp.congestion_control = \"a b\" (configuration, line 1): \
         it must be a word of 1 to 15 letters, digits, '_' and '-'"
    );
    let mut config = Config::default();
    let error = config.set("tcp.backlog", "-1").unwrap_err().to_string();
    assert_eq!(error, "tcp.backlog = -1 (argument): it must be 1 to 65535 connections");
    let variable = ("ROCKETBUFS_TCP_NODELAY".to_owned(), "perhaps".to_owned());
    assert_eq!(
        config.apply_env([variable]).unwrap_err().to_string(),
        "tcp.nodelay = \"perhaps\" (environment variable ROCKETBUFS_TCP_NODELAY): it must be true or false"
    );
    assert_eq!(config, Config::default(), "a refused value changed the configuration");
    config.limits.max_control_bytes = 5;
    assert_eq!(
        config.validate().unwrap_err().to_string(),
        "limits.max_control_bytes = 5 (set by the program): it must be 2048 to 16777216 bytes"
    );
}

#[test]
fn an_unknown_name_is_refused_and_the_nearest_is_named() {
    let cases = [
        ("[tcp]\n\nnodely = true", "'tcp.nodely' (configuration, line 3); did you mean 'tcp.nodelay'?"),
        ("[buffer]\nsize_bytes = 1", "'buffer' (configuration, line 1); did you mean 'buffers'?"),
        ("[broker]\nname = 'a'", "'broker' (configuration, line 1)"),
    ];
    for (text, expected) in cases {
        assert_eq!(message(Config::from_toml(text)), format!("there is no setting {expected}"));
    }
    let mut config = Config::default();
    let variable = ("ROCKETBUFS_TCP_NODELAI".to_owned(), "true".to_owned());
    assert_eq!(
        config.apply_env([variable]).unwrap_err().to_string(),
        "there is no setting 'ROCKETBUFS_TCP_NODELAI' (environment variable ROCKETBUFS_TCP_NODELAI); \
         did you mean 'ROCKETBUFS_TCP_NODELAY'?"
    );
    assert!(config.set("nodelay", "true").is_err());
    let apply = |name: &str| Config::default().apply_env([(name.to_owned(), "true".to_owned())]);
    for (misspelt, meant) in [
        ("ROCKETBUFS_TPC_NODELAY", "ROCKETBUFS_TCP_NODELAY"),
        ("ROCKETBUFS_TRANSPROT", "ROCKETBUFS_TRANSPORT"),
        ("ROCKETBUFS_LIMIT_MAX_BUFFERS", "ROCKETBUFS_LIMITS_MAX_BUFFERS"),
    ] {
        let error = apply(misspelt).unwrap_err().to_string();
        assert!(error.ends_with(&format!("; did you mean '{meant}'?")), "{error}");
    }
    // Other programs use names with this prefix too, as supervisors of containers do.
    for other in ["ROCKETBUFS_FOO", "ROCKETBUFS_SERVICE_HOST", "ROCKETBUFS_PORT", "ROCKETBUFS_TEST_RDMA"] {
        assert!(apply(other).is_ok(), "{other}");
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused_with_both_places() {
    assert_eq!(
        message(Config::from_toml("[buffers]\nsize_bytes = '32 GiB'\nreservation_bytes = '64 GiB'")),
        "buffers.max_ring_bytes = 17179869184 (the default): it must be at least \
         buffers.size_bytes = 34359738368 (configuration, line 2)"
    );
    for text in ["[tcp]\nmax_transfer_bytes = '2 MiB'", "[buffers]\nretain_bytes = '900 KiB'"] {
        assert!(matches!(Config::from_toml(text), Err(ConfigError::Relation(_))), "{text}");
    }
    // A later source may mend it: only the whole is checked.
    let (mut config, _) = Config::from_toml_shared("[tcp]\nmax_transfer_bytes = '2 MiB'", None).unwrap();
    config.validate().unwrap_err();
    config.set("tcp.tx_queue_bytes", "4 MiB").unwrap();
    config.validate().unwrap();
}

#[test]
fn invalid_or_unreadable_files_are_reported_with_their_place() {
    let path = Path::new("a.toml");
    let error = Config::from_toml_shared("[tcp]\nnodelay = tru\n", Some(path)).unwrap_err();
    assert!(error.to_string().starts_with("a.toml, line 2: "), "{error}");
    let error = message(Config::from_toml("tcp = 5"));
    assert_eq!(error, "configuration, line 1: 'tcp' is a section and cannot be of type integer");
    let error = message(Config::load(Some(Path::new("/nowhere/a.toml"))));
    assert!(error.contains("/nowhere/a.toml"), "{error}");
}

#[test]
fn sections_of_others_are_handed_back_untouched() {
    let table: toml::Table =
        "x = 1\n[tcp]\nbacklog = 5\n[broker]\nname = 'b'\n[[broker.topic]]\nid = 3".parse().unwrap();
    let (config, rest) = Config::from_table(table.clone()).unwrap();
    assert_eq!(config.tcp.backlog, 5);
    let mut expected = table.clone();
    expected.remove("tcp");
    assert_eq!(rest, expected);
    // A configuration inside another structure follows the same rules.
    assert!(table.try_into::<Config>().unwrap_err().to_string().contains("no setting"));
    let own: Config = toml::from_str("[tcp]\nstaging_bytes = '64 KiB'").unwrap();
    assert_eq!(own.tcp.staging_bytes, 64 << 10);
}

#[test]
fn written_as_toml_it_reads_back_the_same() {
    let mut config = Config::default();
    assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), config);
    config.tcp.congestion_control = Some("reno".to_owned());
    config.buffers.retain_bytes = Some(4096);
    config.session.heartbeat_ms = 0;
    config.limits.max_hold_ms = u32::MAX;
    assert_eq!(Config::from_toml(&config.to_toml()).unwrap(), config);
}

#[test]
fn every_knob_is_documented_and_takes_its_default_back() {
    let mut config = Config::default();
    for knob in knobs() {
        assert!(!knob.help.is_empty() && !knob.cost.is_empty() && !knob.range.is_empty(), "{}", knob.name);
        let unset = knob.default == "(unset)";
        config.set(knob.name, if unset { "" } else { knob.default.trim_matches('"') }).unwrap();
        assert!(config.set(knob.name, "~\u{7}").is_err(), "{}", knob.name);
    }
    assert_eq!(config, Config::default());
}

/// Compares a committed file with its expected content. UPDATE=1 writes the file.
fn committed(relative: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(relative);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{relative} is out of date; UPDATE=1 cargo test writes it");
}

#[test]
fn the_example_file_is_up_to_date_and_is_the_default() {
    committed("examples/rocketbufs.toml", &example_toml());
    assert_eq!(Config::from_toml(&example_toml()).unwrap(), Config::default());
    // With every # before a value taken away it is still the default.
    let assigned =
        |line: &str| line.starts_with('#') && !line.starts_with("# ") && !line.ends_with("(unset)");
    let text: Vec<String> = example_toml()
        .lines()
        .map(|line| if assigned(line) { line[1..].to_owned() } else { line.to_owned() })
        .collect();
    assert_eq!(Config::from_toml(&text.join("\n")).unwrap(), Config::default());
}

#[test]
fn the_reference_is_up_to_date() {
    committed("docs/CONFIGURATION.md", &reference());
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the declarations in rocketbufs/framework/src/config/settings.rs. Do not edit this file: change the
     declarations and run UPDATE=1 cargo test -p rocketbufs --test suite config:: -->

A program reads a TOML file. The environment overrides the file, and the program's arguments override both:

| Where | How | Example |
|---|---|---|
| file | sections and fields; every one may be left out | `[tcp]` `nodelay = false` |
| environment | `ROCKETBUFS_<SECTION>_<FIELD>` | `ROCKETBUFS_TCP_NODELAY=false` |
| program | `Config::set(\"section.field\", \"value\")`, or the public fields | `tcp.nodelay`, `false` |

A size in bytes may have a unit. In a file the value is then a string: `size_bytes = \"64 MiB\"`. KiB, MiB, GiB, TiB and
k, M, G, T are powers of 1024; kB, MB, GB, TB are powers of 1000. A time may have a unit too: `linger_ms = \"1m30s\"`
(us, ms, s, m or min, h, d). In the environment and in arguments an empty string unsets an optional setting.

An unknown name is an error that names the nearest setting. The same applies to an environment variable that begins with
`ROCKETBUFS_` and a section's name, or whose spelling is close to a setting's. `config::unknown_variables` lists the other
variables that begin with `ROCKETBUFS_`. A value out of range is an error that names the value, its origin (file and line,
variable, argument) and the range. Other sections of the same file belong to the program that reads the file (RBMQ's
`[broker]`).

`examples/rocketbufs.toml` is a file with every setting. A program can also give the properties of one buffer or one
subscription (size, history, policy, name) when it makes the buffer or the subscription. Such a value takes precedence over
these settings.

One line chooses the transport; the program does not change:

```toml
transport = \"tcp\"
```
";

fn reference() -> String {
    format!("{INTRODUCTION}\n## All settings\n\n{}", settings::table(&knobs(), section_help))
}

#[test]
fn special_files_and_oversized_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(message(Config::load(Some(&path))).contains("a pipe that nobody writes to"));
    std::fs::remove_file(&path).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(MAX_FILE_BYTES + 1).unwrap();
    let most = format!("more than {MAX_FILE_BYTES} bytes");
    assert!(message(Config::load(Some(&path))).contains(&most));
    assert!(message(Config::load(Some(Path::new("/dev/zero")))).contains(&most));
    assert!(message(Config::load(Some(dir.path()))).contains("directory"));
    assert_eq!(read_file(Path::new("/dev/null")).unwrap(), "");
}
