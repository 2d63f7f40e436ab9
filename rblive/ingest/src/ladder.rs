//! Which publishers send the renditions of one stream.

use serde::{Deserialize, Serialize};

use rblive::content::{MAX_RENDITIONS, check_name};

/// Streams that encoders publish one by one, and that are renditions of one stream for viewers: the section `[[ingest.ladders]]`.
///
/// ```
/// use rblive_ingest::LadderRule;
/// let rule = LadderRule { name: "shows/*".into(), streams: vec!["shows/*_720".into(), "shows/*_360".into()] };
/// assert!(rule.check().is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LadderRule {
    /// The name of the stream for viewers. One `*` in it stands for any text.
    pub name: String,
    /// The names under which encoders publish its renditions, the preferred one first: 1 to 64. With a `*` in `name`, each of them has one
    /// for the same text.
    pub streams: Vec<String>,
}

/// A publisher's place among the renditions of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenditionRef {
    /// The name of the stream for viewers.
    pub(crate) name: String,
    /// The id of the rendition.
    pub(crate) rendition: u16,
    /// How many renditions there are.
    pub(crate) of: usize,
}

impl LadderRule {
    /// Checks the rule.
    ///
    /// # Errors
    /// A text that names the setting.
    pub fn check(&self) -> Result<(), String> {
        let count = self.streams.len();
        if !(1..=MAX_RENDITIONS).contains(&count) {
            return Err(format!(
                "ingest.ladders '{}': there are 1 to {MAX_RENDITIONS} streams, not {count}",
                self.name
            ));
        }
        let stars = self.name.matches('*').count();
        for (index, name) in [&self.name].into_iter().chain(&self.streams).enumerate() {
            let is_known = self.streams.iter().take(index.saturating_sub(1)).any(|other| other == name);
            if !check_name(&name.replacen('*', "x", 1)) || name.matches('*').count() != stars || is_known {
                return Err(format!(
                    "ingest.ladders '{}': '{name}' must be the name of a stream, in which one * stands for the same text in all of \
                     them, or none has one, and no stream occurs twice",
                    self.name
                ));
            }
        }
        match self.streams.contains(&self.name) {
            true => {
                Err(format!("ingest.ladders '{}': a rendition has another name than its stream", self.name))
            }
            false => Ok(()),
        }
    }

    /// The place of a stream that is published as `name`.
    pub(crate) fn rendition(&self, name: &str) -> Option<RenditionRef> {
        let found = |(index, pattern): (usize, &String)| Some((index, text_of(pattern, name)?));
        let (index, text) = self.streams.iter().enumerate().find_map(found)?;
        let name = self.name.replacen('*', text, 1);
        check_name(&name).then(|| RenditionRef { name, rendition: index as u16 + 1, of: self.streams.len() })
    }

    /// Whether viewers get renditions under this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        text_of(&self.name, name).is_some()
    }
}

/// The text for which `*` stands. Empty without one.
fn text_of<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((before, after)) => {
            name.strip_prefix(before)?.strip_suffix(after).filter(|text| !text.is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, streams: &[&str]) -> LadderRule {
        LadderRule { name: name.into(), streams: streams.iter().map(|name| (*name).into()).collect() }
    }

    #[test]
    fn a_rule_finds_the_renditions_of_a_stream() {
        let any = rule("shows/*", &["in/*_hi", "in/*_lo"]);
        let place = |name: &str, rendition| Some(RenditionRef { name: name.into(), rendition, of: 2 });
        assert_eq!(any.rendition("in/a_hi"), place("shows/a", 1));
        assert_eq!(any.rendition("in/b/c_lo"), place("shows/b/c", 2));
        for other in ["in/_hi", "in/a_mid", "a_hi", "in/.._hi"] {
            assert_eq!(any.rendition(other).filter(|own| !check_name(&own.name)), None, "{other}");
        }
        assert!(any.names("shows/a") && !any.names("shows/") && !any.names("in/a"));
        assert_eq!(
            rule("a", &["a1"]).rendition("a1"),
            Some(RenditionRef { name: "a".into(), rendition: 1, of: 1 })
        );
        assert_eq!(rule("a", &["a1"]).rendition("a2"), None);
    }

    #[test]
    fn a_rule_that_means_nothing_is_refused() {
        assert_eq!(rule("a", &["a_1", "a_2"]).check(), Ok(()));
        assert_eq!(rule("*", &["*_1", "*_2"]).check(), Ok(()));
        let many: Vec<String> = (0..65).map(|number| format!("a{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (name, streams) in [
            ("a", &[] as &[&str]),
            ("a", &many),
            ("a", &["b", "b"]),
            ("a", &["a"]),
            ("a", &["*b"]),
            ("*", &["b"]),
            ("**", &["*b"]),
            ("a b", &["c"]),
        ] {
            let error = rule(name, streams).check().unwrap_err();
            assert!(error.contains(&format!("ingest.ladders '{name}'")), "{error}");
        }
    }
}
