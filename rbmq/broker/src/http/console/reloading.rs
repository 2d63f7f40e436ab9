//! The difference that a reload would make. Nothing of the network reaches a reload itself: a person at the broker's machine does it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::problem::Problem;
use super::state::Console;
use crate::{BrokerConfig, Change};

impl Console {
    /// The changes that a reload would make.
    ///
    /// # Errors
    /// The program does not say how it reads its configuration, or the file does not answer.
    pub(super) async fn difference(self: &Arc<Self>) -> Result<Value, Problem> {
        let Some(read) = self.configuration.clone() else {
            return Err(Problem::missing(
                "the program that serves this console reads no configuration again",
            ));
        };
        let watch = self.engine.watch.clone();
        let take = move || {
            let (rows, problem) = match read() {
                Ok(new) => (Some(rows(&watch.config(), &new)), None),
                Err(why) => (None, Some(why)),
            };
            let [applied, needs_restart] = rows.unwrap_or_default();
            let command = format!("kill -HUP {}", std::process::id());
            Ok(
                json!({ "applied": applied, "needs_restart": needs_restart, "problem": problem, "command": command }),
            )
        };
        self.files.run(take).await
    }
}

/// The rows of both kinds of changes.
fn rows(now: &BrokerConfig, new: &BrokerConfig) -> [Vec<Value>; 2] {
    let origins: HashMap<_, _> =
        new.settings().into_iter().map(|setting| (setting.name, setting.origin.to_string())).collect();
    let reload = now.difference(new);
    [reload.applied, reload.needs_restart]
        .map(|changes| changes.iter().map(|change| row(change, &origins)).collect())
}

fn row(change: &Change, origins: &HashMap<String, String>) -> Value {
    let shown = |value: &Option<toml::Value>| value.as_ref().map(|value| masked(&value.to_string()));
    let Change { name, old, new } = change;
    json!({ "name": name, "old": shown(old), "new": shown(new), "origin": origins.get(name) })
}

/// A text in which no address has the name and the password of a user.
fn masked(text: &str) -> String {
    let mut parts = text.split("://");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['/', '"', '\'', '?', '#', ',', ' ']).unwrap_or(part.len());
        let shown = part[..end].rfind('@').map_or(part, |at| &part[at..]);
        all.push_str("://");
        if shown.len() < part.len() {
            all.push_str("***");
        }
        all.push_str(shown);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_no_passwords() {
        for (text, shown) in [
            ("", ""),
            ("\"info\"", "\"info\""),
            ("[\"http://u:p@a:1/x@y\", \"http://b\"]", "[\"http://***@a:1/x@y\", \"http://b\"]"),
            ("s3://key@secret@c", "s3://***@c"),
            ("a@b://", "a@b://"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }

    #[test]
    fn changes_are_shown_with_their_origin_and_none_is_made() {
        let (now, mut new) = (BrokerConfig::default(), BrokerConfig::default());
        assert_eq!(rows(&now, &new), [const { Vec::<Value>::new() }; 2]);
        new.broker.max_topics = 5;
        new.note_origin("broker.max_topics", rocketbufs::config::Origin::Argument);
        new.http.listen = "127.0.0.1:1".into();
        let [applied, later] = rows(&now, &new);
        let origin = rocketbufs::config::Origin::Argument.to_string();
        assert_eq!(
            applied,
            [json!({ "name": "broker.max_topics", "old": "10000", "new": "5", "origin": origin })]
        );
        assert_eq!((later.len(), &later[0]["name"]), (1, &json!("http.listen")));
        assert_eq!(now.broker.max_topics, 10_000);
    }
}
