//! Reloads of the configuration: the difference that one would make, and one that an administrator asks for.
//!
//! ```text
//!   GET  /reload ─▶ the program reads its file ─▶ the difference to the settings in force, and its mark
//!   POST /reload ─▶ the program's thread reads its file ─▶ the same mark? ─▶ a line of the audit log ─▶ the settings are in force
//! ```
//!
//! So a reload makes the difference that somebody has seen, or none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{AuditEvent, Identity};
use hyper::StatusCode;
use locks::Mutex;
use serde_json::{Value as Json, json};
use toml::Value as Toml;

use super::messages::client_key;
use super::principal::Principal;
use super::problem::Problem;
use super::program::{ReloadCheck, Reloading};
use super::query::Query;
use super::state::{Asked, Console};
use crate::{BrokerConfig, Change, Reload};

/// The most characters of a value that are shown.
const MAX_SHOWN: usize = 4_000;

impl Console {
    /// The difference that a reload would make.
    ///
    /// # Errors
    /// The program does not read its configuration again, its files do not answer, or the client asks too often.
    pub(super) async fn difference(
        self: &Arc<Self>,
        principal: &Principal,
        asked: &Asked<'_>,
    ) -> Result<Json, Problem> {
        let (program, console) = (self.reloads.program()?, self.clone());
        self.pace.allow(&client_key(&principal.identity(), asked), Instant::now())?;
        let take = move || Ok(console.look(&*program));
        self.reloads.lane.run(take).await
    }

    fn look(&self, program: &dyn Reloading) -> Json {
        match program.read() {
            Ok(new) => self.compared(&new),
            Err(why) => {
                json!({ "applied": [], "needs_restart": [], "problem": masked_text(&why), "mark": null, "notes": [] })
            }
        }
    }

    /// The difference between the settings in force and others.
    fn compared(&self, new: &BrokerConfig) -> Json {
        let reload = self.engine.watch.config().difference(new);
        let [applied, needs_restart] = rows(&reload, new);
        let mark = self.reloads.mark(&reload);
        json!({ "applied": applied, "needs_restart": needs_restart, "problem": null, "mark": mark, "notes": [] })
    }

    /// Reloads the configuration, if its difference is the one that was seen.
    ///
    /// # Errors
    /// Nothing has changed: the file is another one or wrong, the log has no room for the line, or the program does not do it in time.
    pub(super) async fn reload(
        self: &Arc<Self>,
        principal: &Principal,
        query: &Query,
        asked: &Asked<'_>,
    ) -> Result<Json, Problem> {
        let program = self.reloads.program()?;
        let wanted = query.text("mark").map(str::to_owned);
        let wanted = wanted.ok_or_else(|| Problem::wrong("mark: that of GET /api/v1/reload is missing"))?;
        let identity = principal.identity();
        self.change_pace.allow(&client_key(&identity, asked), Instant::now())?;
        let (console, address) = (self.clone(), asked.addr.to_string());
        let (of_failure, who) = (self.clone(), (identity.clone(), address.clone()));
        let decided = Arc::new(Mutex::new(None));
        let decision = decided.clone();
        let check: ReloadCheck = Box::new(move |new| {
            let made = console.decide(new, &wanted, &identity, &address);
            let why = made.as_ref().map_or_else(|problem| Err(problem.why.clone()), |_| Ok(()));
            *decision.lock() = Some(made);
            why
        });
        let make = move || {
            let reloaded = program.reload(check);
            match (reloaded, decided.lock().take()) {
                (Ok(notes), Some(Ok(mut shown))) => {
                    shown["notes"] = json!(notes.iter().map(|note| masked_text(note)).collect::<Vec<_>>());
                    shown["mark"] = Json::Null;
                    Ok(shown)
                }
                (_, Some(Err(problem))) => Err(problem),
                (Err(why), Some(Ok(_))) => {
                    let why = masked_text(&why);
                    // The line before is there: without this one somebody believes that it was reloaded.
                    let _ = of_failure.recorded(&who.0, &who.1, Some(&why));
                    Err(Problem::new(StatusCode::CONFLICT, &why))
                }
                (Err(why), None) => Err(Problem::new(StatusCode::CONFLICT, &masked_text(&why))),
                (Ok(_), None) => Err(Problem::unavailable("nothing was checked", Duration::from_secs(1))),
            }
        };
        self.reloads.lane.run(make).await
    }

    /// The difference, if it is the one that was seen, and has its line in the audit log.
    fn decide(
        &self,
        new: &BrokerConfig,
        wanted: &str,
        identity: &Identity,
        address: &str,
    ) -> Result<Json, Problem> {
        let shown = self.compared(new);
        if shown["mark"] != wanted {
            let why = "the configuration is another one than the one that was shown: compare again";
            return Err(Problem::new(StatusCode::CONFLICT, why));
        }
        match self.recorded(identity, address, None) {
            true => Ok(shown),
            false => {
                let why = "the audit log has no room for a line, so nothing was reloaded";
                Err(Problem::unavailable(why, Duration::from_secs(1)))
            }
        }
    }

    /// Writes the line of a reload, or of its failure.
    fn recorded(&self, identity: &Identity, address: &str, reason: Option<&str>) -> bool {
        self.desk().audit.try_record(&AuditEvent {
            user: Some(&identity.user),
            address: Some(address),
            role: Some("console"),
            operation: Some("reload"),
            reason,
            ..AuditEvent::new("console")
        })
    }
}

/// The rows of both kinds of changes.
fn rows(reload: &Reload, new: &BrokerConfig) -> [Vec<Json>; 2] {
    let origins: HashMap<_, _> =
        new.settings().into_iter().map(|setting| (setting.name, setting.origin.to_string())).collect();
    [&reload.applied, &reload.needs_restart]
        .map(|changes| changes.iter().map(|change| row(change, &origins)).collect())
}

/// A change. Of lists the entries that differ are shown, and `same` counts those at both ends that do not.
fn row(Change { name, old, new }: &Change, origins: &HashMap<String, String>) -> Json {
    let (mut old, mut new, mut same) = (old.clone(), new.clone(), 0);
    if let (Some(Toml::Array(old)), Some(Toml::Array(new))) = (&mut old, &mut new) {
        let ends = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let (of_old, of_new) = (old.len() - ends, new.len() - ends);
        old.truncate(of_old);
        new.truncate(of_new);
        let begins = old.iter().zip(&*new).take_while(|(old, new)| old == new).count();
        old.drain(..begins);
        new.drain(..begins);
        same = begins + ends;
    }
    let shown = |value: Option<Toml>| value.map(|value| shortened(masked(&value)));
    json!({ "name": name, "old": shown(old), "new": shown(new), "same": same, "origin": origins.get(name) })
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A value in which no address has the name and the password of a user.
pub(super) fn masked(value: &Toml) -> String {
    fn hidden(value: &Toml) -> Toml {
        match value {
            Toml::String(text) => Toml::String(without_user(text)),
            Toml::Array(all) => Toml::Array(all.iter().map(hidden).collect()),
            Toml::Table(all) => {
                Toml::Table(all.iter().map(|(name, of)| (name.clone(), hidden(of))).collect())
            }
            other => other.clone(),
        }
    }
    hidden(value).to_string()
}

/// An address without its user: nobody knows which characters the password has, so the last @ ends it.
fn without_user(text: &str) -> String {
    let Some(at) = text.rfind('@').filter(|at| text[..*at].contains(':')) else { return text.to_owned() };
    let is_scheme = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c));
    let scheme = text[..at].find("://").filter(|end| is_scheme(&text[..*end]));
    format!("{}***{}", &text[..scheme.map_or(0, |end| end + 3)], &text[at..])
}

/// A sentence that may cite addresses, without their users. Of each line all is hidden from the first address or quote to the last @.
fn masked_text(text: &str) -> String {
    let masked_line = |line: &str| {
        let mut before = 0;
        let begins = line.split_inclusive(char::is_whitespace).find_map(|word| {
            before += word.len();
            let own = word.trim_start_matches(|c: char| !c.is_alphanumeric());
            own.trim_end().trim_end_matches(':').contains(':').then_some(before - own.len())
        });
        let quote = line.find(['"', '\'', '`']).map(|quote| quote + 1);
        let (told, rest) = line.split_at(begins.into_iter().chain(quote).min().unwrap_or(0));
        format!("{told}{}", without_user(rest))
    };
    text.split_inclusive('\n').map(masked_line).collect()
}

#[cfg(test)]
mod tests {
    use rocketbufs::config::Origin;

    use super::*;

    #[test]
    fn addresses_have_no_passwords() {
        for (text, shown) in [
            ("", ""),
            ("info", "info"),
            ("anna@example.com", "anna@example.com"),
            ("http://h:1/x", "http://h:1/x"),
            ("http://u:p@a:1", "http://***@a:1"),
            ("s3://key@secret@c", "s3://***@c"),
            ("a@b://", "a@b://"),
        ] {
            let value = |text: &str| Toml::String(text.to_owned());
            assert_eq!(masked(&value(text)), value(shown).to_string());
        }
        for secret in ["a/b", "a?b", "a#b", "a,b", "a\"b", "a'b", "a b", "a\\b", "a@b", "a://b"] {
            for scheme in ["http://", ""] {
                let address = format!("{scheme}user:{secret}@host:1");
                let list = Toml::Array(vec![Toml::String(address.clone()), Toml::String("http://b".into())]);
                assert_eq!(masked(&list), format!("[\"{scheme}***@host:1\", \"http://b\"]"));
                let error = format!("rbmq.toml, line 7: wrong\n7 | endpoint = {list}\nit is {address}!");
                let shown = masked_text(&error);
                assert!(shown.starts_with("rbmq.toml, line 7: wrong\n7 | endpoint = ["), "{shown}");
                assert!(shown.ends_with(&format!("it is {scheme}***@host:1!")), "{shown}");
                assert_eq!(shown.matches("***@host:1").count(), 2, "{shown}");
            }
        }
    }

    #[test]
    fn changes_are_shown_with_their_origin() {
        let (now, mut new) = (BrokerConfig::default(), BrokerConfig::default());
        assert_eq!(rows(&now.difference(&new), &new), [const { Vec::<Json>::new() }; 2]);
        new.broker.max_topics = 5;
        new.note_origin("broker.max_topics", Origin::Argument);
        new.http.listen = "127.0.0.1:1".into();
        let [applied, later] = rows(&now.difference(&new), &new);
        let origin = Origin::Argument.to_string();
        assert_eq!(
            applied,
            [json!({ "name": "broker.max_topics", "old": "10000", "new": "5", "same": 0, "origin": origin })]
        );
        assert_eq!((later.len(), &later[0]["name"]), (1, &json!("http.listen")));
    }

    #[test]
    fn lists_show_what_differs_and_long_values_their_beginning() {
        let list = |of: &[i64]| Some(Toml::Array(of.iter().copied().map(Toml::Integer).collect()));
        let of = |old: &[i64], new: &[i64]| {
            let change = Change { name: "a".into(), old: list(old), new: list(new) };
            let row = row(&change, &HashMap::new());
            (row["old"].clone(), row["new"].clone(), row["same"].clone())
        };
        let wanted = |old: &str, new: &str, same: u64| (json!(old), json!(new), json!(same));
        assert_eq!(of(&[1, 2, 3], &[1, 4, 3]), wanted("[2]", "[4]", 2));
        assert_eq!(of(&[1, 1], &[1, 1, 1]), wanted("[]", "[1]", 2));
        assert_eq!(of(&[], &[1]), wanted("[]", "[1]", 0));
        let long = Change { name: "a".into(), old: None, new: Some(Toml::String("ä".repeat(9_000))) };
        let row = row(&long, &HashMap::new());
        assert_eq!(row["new"].as_str().unwrap().chars().count(), MAX_SHOWN + 1);
        assert_eq!(row["old"], Json::Null);
    }
}
