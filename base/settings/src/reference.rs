//! Example files and tables of documentation, generated from the declarations.

use super::section::Section;
use super::setting::{Setting, shown};
use super::spec::{Spec, variable};

/// A setting's description.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Knob {
    /// Section and field: `tcp.nodelay`.
    pub name: &'static str,
    /// The unit of the number; empty for a knob that is no number.
    pub unit: &'static str,
    /// The default, as it would stand in a file; `(unset)` where the default is to leave it out.
    pub default: String,
    /// The values it takes.
    pub range: String,
    /// The knob's cost, in memory and processor time.
    pub cost: &'static str,
    /// The knob's effect, and what goes wrong at either end of its range.
    pub help: &'static str,
    prefix: &'static str,
}

impl Knob {
    /// The description of a setting of a default configuration.
    pub(crate) fn new(spec: &'static Spec, setting: &dyn Setting, prefix: &'static str) -> Self {
        Self {
            name: spec.name,
            unit: spec.unit,
            default: shown(setting),
            range: spec.expects.to_owned(),
            cost: spec.cost,
            help: spec.help.trim(),
            prefix,
        }
    }

    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        variable(self.prefix, self.name)
    }
}

/// A part of a configuration file with a section's settings at their defaults, commented out, and their descriptions.
pub fn example(section: &dyn Section) -> String {
    let mut text = format!("{}[{}]\n\n", comment(section.about()), section.name());
    section.visit(&mut |spec, setting| text.push_str(&example_setting(spec, setting)));
    text
}

/// A setting for [`example`].
pub fn example_setting(spec: &Spec, setting: &dyn Setting) -> String {
    let range = match spec.cost {
        "" => String::new(),
        cost => format!("# Values: {}. Cost: {cost}.\n", spec.expects),
    };
    format!("{}{range}#{} = {}\n\n", comment(spec.help), spec.field, shown(setting))
}

fn comment(help: &str) -> String {
    help.trim().lines().map(|line| format!("# {}\n", line.trim())).collect()
}

/// The settings as a table of Markdown, and each with its description. `about` gives the description of a section.
pub fn table<'a>(knobs: &[Knob], about: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut text = String::from("| Setting | Default | Values |\n|---|---|---|\n");
    for knob in knobs {
        text.push_str(&format!("| `{}` | `{}` | {} |\n", knob.name, knob.default, knob.range));
    }
    let mut section = "";
    for knob in knobs {
        let own = knob.name.split_once('.').map_or("", |(section, _)| section);
        if own != section {
            section = own;
            text.push_str(&format!("\n## [{own}]\n\n{}\n", about(own).unwrap_or_default()));
        }
        let help: Vec<&str> = knob.help.lines().map(str::trim).collect();
        text.push_str(&format!("\n### `{}`\n\n{}\n\n", knob.name, help.join("\n")));
        text.push_str(&format!(
            "- default: `{}`\n- values: {}\n- cost: {}\n- variable: `{}`\n",
            knob.default,
            knob.range,
            knob.cost,
            knob.variable()
        ));
    }
    text
}
