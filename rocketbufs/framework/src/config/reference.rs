//! The knobs as a table and as a commented file, generated from their declarations.

use super::knob::{Knob, Setting, Spec};
use super::settings::{
    BufferSettings, Limits, RdmaSettings, SessionSettings, ShmSettings, TcpSettings, TlsSettings,
};
use super::{Config, shown};

/// Every knob, in the order of the file.
///
/// ```
/// let knobs = rocketbufs::config::knobs();
/// assert_eq!(knobs[0].name, "transport");
/// assert!(knobs.iter().all(|knob| !knob.help.is_empty() && !knob.cost.is_empty()));
/// ```
pub fn knobs() -> Vec<Knob> {
    let mut knobs = Vec::new();
    Config::default().visit(&mut |spec: &'static Spec, setting: &dyn Setting| {
        knobs.push(Knob {
            name: spec.name,
            unit: spec.unit,
            default: shown(setting),
            range: spec.expects(),
            cost: spec.cost,
            help: spec.help.trim(),
        });
    });
    knobs
}

/// The description of a section; `None` if the section does not exist.
pub fn section_help(section: &str) -> Option<&'static str> {
    Some(match section {
        "tcp" => TcpSettings::ABOUT.trim(),
        "tls" => TlsSettings::ABOUT.trim(),
        "shm" => ShmSettings::ABOUT.trim(),
        "rdma" => RdmaSettings::ABOUT.trim(),
        "buffers" => BufferSettings::ABOUT.trim(),
        "session" => SessionSettings::ABOUT.trim(),
        "limits" => Limits::ABOUT.trim(),
        _ => return None,
    })
}

/// A configuration file with every knob at its default, commented out, and its help text.
pub fn example_toml() -> String {
    let mut text = String::from(
        "# Every setting of RocketBufs with its default. To change a setting, remove the # before its line.\n\
         # Environment variables override the file: ROCKETBUFS_TCP_NODELAY=false sets nodelay of [tcp].\n\n",
    );
    let mut section = "";
    for knob in knobs() {
        let (own, field) = knob.name.split_once('.').unwrap_or(("", knob.name));
        if own != section {
            section = own;
            text.push_str(&format!("# {}\n[{section}]\n\n", section_help(own).unwrap_or_default()));
        }
        for line in knob.help.lines() {
            text.push_str(&format!("# {}\n", line.trim()));
        }
        text.push_str(&format!("# Values: {}. Cost: {}.\n", knob.range, knob.cost));
        text.push_str(&format!("#{field} = {}\n\n", knob.default));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
