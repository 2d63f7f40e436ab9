//! A configuration: sections whose values come from files, variables and arguments, each with its origin.

use toml::{Table, Value};

use super::error::{ConfigError, Origin, nearest};
use super::lines::{Lines, Origins, refuse_unknown};
use super::reference::Knob;
use super::section::{Changed, Section};
use super::setting::{Setting, Visitor, VisitorMut, shown};
use super::spec::{Spec, variable};

/// A configuration of sections whose values have origins.
pub trait Configuration: Clone + Default {
    /// The beginning of the names of environment variables.
    const PREFIX: &'static str;

    /// The sections, in the order of a file.
    fn sections(&self) -> Vec<&dyn Section>;
    /// Visits each setting, also those outside of all sections, in the order of a file.
    fn visit(&self, f: &mut Visitor<'_>);
    /// As [`Configuration::visit`], to change settings.
    fn visit_mut(&mut self, f: &mut VisitorMut<'_>);
    /// The origins of the values.
    fn origins(&self) -> &Origins;
    /// The origins of the values, to change them.
    fn origins_mut(&mut self) -> &mut Origins;

    /// The names of all settings.
    fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        self.visit(&mut |spec, _| names.push(spec.name));
        names
    }

    /// The environment variable that sets a setting.
    fn variable(name: &str) -> String {
        variable(Self::PREFIX, name)
    }

    /// Every setting with its description, in the order of a file.
    fn knobs(&self) -> Vec<Knob> {
        let mut knobs = Vec::new();
        self.visit(&mut |spec, setting| knobs.push(Knob::new(spec, setting, Self::PREFIX)));
        knobs
    }

    /// Takes the values of all settings out of a table.
    ///
    /// # Errors
    /// An unknown name in a section, or a value of the wrong type or out of range, with its line.
    fn take_table(&mut self, table: &mut Table, lines: &Lines) -> Result<(), ConfigError> {
        for name in self.names().into_iter().filter(|name| !name.contains('.')) {
            if let Some(value) = table.remove(name) {
                self.set_value(name, &value, lines.origin(name))?;
            }
        }
        let sections: Vec<_> = self.sections().iter().map(|section| section.name()).collect();
        for section in sections {
            match table.remove(section) {
                None => {}
                Some(Value::Table(fields)) => {
                    for (field, value) in fields {
                        let name = format!("{section}.{field}");
                        self.set_value(&name, &value, lines.origin(&name))?;
                    }
                }
                Some(other) => {
                    let message =
                        format!("'{section}' is a section and cannot be of type {}", other.type_str());
                    return Err(ConfigError::Syntax { origin: lines.origin(section), message });
                }
            }
        }
        Ok(())
    }

    /// Refuses the names of a table that [`Configuration::take_table`] has left.
    ///
    /// # Errors
    /// The first of them, with the nearest known name.
    fn refuse_rest(&self, rest: &Table, lines: &Lines) -> Result<(), ConfigError> {
        let outside = self.names().into_iter().filter(|name| !name.contains('.'));
        let known: Vec<_> = self.sections().iter().map(|section| section.name()).chain(outside).collect();
        refuse_unknown(rest, known.into_iter(), lines)
    }

    /// Applies environment variables. To detect misspelt names, an unknown variable is an error if it begins with a
    /// section's name or its spelling is close to a setting's. All other variables are ignored. An empty value unsets an
    /// optional setting.
    ///
    /// # Errors
    /// An error names the variable. The variables before it are applied.
    fn apply_variables(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        let names = self.names();
        let sections: Vec<_> =
            self.sections().iter().map(|section| format!("{}_", Self::variable(section.name()))).collect();
        for (name, text) in variables {
            let origin = Origin::Variable(name.clone());
            if let Some(setting) = names.iter().find(|setting| Self::variable(setting) == name) {
                self.set_text(setting, &text, origin)?;
                continue;
            }
            let Some(own) = name.strip_prefix(Self::PREFIX) else { continue };
            let known: Vec<String> = names.iter().map(|name| Self::variable(name)).collect();
            // The common prefix does not count in the distance between names.
            let nearest = nearest(own, known.iter().filter_map(|known| known.strip_prefix(Self::PREFIX)));
            if nearest.is_some() || sections.iter().any(|section| name.starts_with(section)) {
                let nearest = nearest.map(|own| format!("{}{own}", Self::PREFIX));
                return Err(ConfigError::Unknown { name, origin, nearest });
            }
        }
        Ok(())
    }

    /// Sets one setting from a text. Sizes and times may have a unit. An empty text unsets an optional setting.
    ///
    /// # Errors
    /// An unknown name, or a value of the wrong type or out of range; the configuration is then unchanged.
    fn set_text(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        self.change(name, origin, |spec, setting| match text.trim() {
            "" if setting.unset() => Ok(()),
            text => read(spec, setting, &spec.value_of_text(text)),
        })
    }

    /// As [`Configuration::set_text`], from a value of a file.
    ///
    /// # Errors
    /// As [`Configuration::set_text`].
    fn set_value(&mut self, name: &str, value: &Value, origin: Origin) -> Result<(), ConfigError> {
        self.change(name, origin, |spec, setting| read(spec, setting, value))
    }

    /// Changes one setting and remembers the origin of its value. A refused change is undone: `change` returns the refused
    /// value as text.
    ///
    /// # Errors
    /// As [`Configuration::set_text`].
    fn change(
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
                let nearest = nearest(name, self.names().into_iter());
                Err(ConfigError::Unknown { name: name.to_owned(), origin, nearest })
            }
            Some((spec, Ok(()), now)) => {
                self.origins_mut().remember(spec.name, origin, now);
                Ok(())
            }
            Some((spec, Err(value), _)) => {
                *self = before;
                Err(ConfigError::Value { name: spec.name, value, origin, expects: spec.expects.to_owned() })
            }
        }
    }

    /// Checks the range of every setting.
    ///
    /// # Errors
    /// The first invalid value, with its origin.
    fn check_ranges(&self) -> Result<(), ConfigError> {
        let mut wrong = Ok(());
        self.visit(&mut |spec, setting| {
            if wrong.is_ok() && !setting.fits(&spec.range) {
                let (name, expects) = (spec.name, spec.expects.to_owned());
                let origin = self.origin_of(name);
                wrong = Err(ConfigError::Value { name, value: shown(setting), origin, expects });
            }
        });
        wrong
    }

    /// The origin of a setting's value.
    fn origin_of(&self, name: &str) -> Origin {
        let (now, default) = (text_of(self, name), text_of(&Self::default(), name));
        match self.origins().of(name) {
            Some((origin, value)) if Some(value) == now.as_deref() => origin.clone(),
            _ if now == default => Origin::Default,
            _ => Origin::Program,
        }
    }

    /// The settings with other values in another configuration.
    fn changes(&self, new: &Self) -> Vec<Changed> {
        let (mut old_values, mut changes) = (Vec::new(), Vec::new());
        self.visit(&mut |_, setting| old_values.push(setting.value()));
        let mut old_values = old_values.into_iter();
        new.visit(&mut |spec, setting| {
            let (old, new) = (old_values.next().flatten(), setting.value());
            if old != new {
                changes.push(Changed { spec, old, new });
            }
        });
        changes
    }

    /// The whole configuration as TOML, without unset settings. Reading this text gives the same configuration.
    fn text(&self) -> String {
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
}

fn text_of(config: &impl Configuration, name: &str) -> Option<String> {
    let mut text = None;
    config.visit(&mut |spec, setting| {
        if spec.name == name {
            text = Some(shown(setting));
        }
    });
    text
}

/// Stores a value in a setting. Returns the value as text if its type is wrong or the value is out of range.
fn read(spec: &Spec, setting: &mut dyn Setting, value: &Value) -> Result<(), String> {
    if setting.read(value, spec) && setting.fits(&spec.range) { Ok(()) } else { Err(value.to_string()) }
}

/// The environment variables of this process that begin with the prefix of a configuration and name no setting, sorted.
/// Programs can warn about them.
pub fn unknown_variables<C: Configuration>() -> Vec<String> {
    let names = C::default().names();
    let is_setting = |name: &str| names.iter().any(|setting| C::variable(setting) == name);
    let mut unknown: Vec<String> = environment().map(|(name, _)| name).collect();
    unknown.retain(|name| name.starts_with(C::PREFIX) && !is_setting(name));
    unknown.sort_unstable();
    unknown
}

/// The process's environment, without variables that are not Unicode. No value of a setting needs them.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
}
