//! Users, their tokens and their rights. Secrets and their hashes are not shown.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use access::{BrokerRight, Grants, Identity, Operation, Token, User};
use rbmq_wire::TopicName;
use serde_json::{Value, json};

use super::api::{List, Search, Window};
use super::problem::Problem;
use super::query::Query;
use super::state::Console;
use crate::in_force::Rules;
use crate::{Explained, explain_right, explain_topic};

/// A page of the users.
pub(super) fn users(console: &Console, query: &Query) -> Result<Value, Problem> {
    let (window, search, rules) = (Window::of(query)?, Search::of(query), console.rules());
    let Some(users) = rules.authenticator.users() else { return Ok(window.cut(&NONE, &[(); 0])) };
    let finds = |user: &&User| search.finds(&user.name) || user.roles.iter().any(|role| search.finds(role));
    let mut found: Vec<_> = users.iter().filter(finds).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let mut tokens: HashMap<&str, usize> = HashMap::new();
    users.tokens().iter().for_each(|token| *tokens.entry(&token.user).or_default() += 1);
    let row = |user: &&User| {
        let identity = identity_of(user);
        let grants = rules.rights.as_ref().map(|rights| rights.of(&identity));
        let may = |right: fn(&Grants) -> bool| grants.as_ref().is_none_or(right);
        json!({
            "name": user.name,
            "roles": user.roles,
            "has_password": user.password.is_some(),
            "certificates": user.certificates.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "unix": user.unix,
            "tokens": tokens.get(user.name.as_str()).copied().unwrap_or(0),
            "rules": grants.as_ref().map_or(0, Grants::rules),
            "may_observe": may(Grants::may_observe),
            "may_chain": may(Grants::may_chain),
            "may_administer": may(Grants::may_administer),
        })
    };
    // Only the page costs a look at the rules.
    let list = List { total: users.len(), is_cut: false };
    Ok(window.cut_with(&list, &found, row))
}

/// A page of the tokens.
pub(super) fn tokens(console: &Console, query: &Query) -> Result<Value, Problem> {
    let (window, search, rules) = (Window::of(query)?, Search::of(query), console.rules());
    let Some(users) = rules.authenticator.users() else { return Ok(window.cut(&NONE, &[(); 0])) };
    let (all, now) = (users.tokens(), SystemTime::now());
    let finds = |token: &&&Token| search.finds(&token.name) || search.finds(&token.user);
    let found: Vec<_> = all.iter().filter(finds).collect();
    let row = |token: &&&Token| {
        json!({
            "name": token.name,
            "user": token.user,
            "created_ms": token.created.map(ms),
            "expires_ms": token.expires.map(ms),
            "is_expired": token.expires.is_some_and(|end| end <= now),
        })
    };
    Ok(window.cut_with(&List { total: all.len(), is_cut: false }, &found, row))
}

/// The list of a broker without users.
const NONE: List = List { total: 0, is_cut: false };

fn ms(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn identity_of(user: &User) -> Identity {
    let (user, roles) = (user.name.clone(), user.roles.clone());
    Identity { user, roles, ..Identity::anonymous() }
}

#[derive(Clone, Copy)]
enum Wanted {
    Topic(Operation),
    Right(BrokerRight),
}

/// Whether a user may do something, and which rule decides.
pub(super) fn rights(console: &Console, query: &Query) -> Result<Value, Problem> {
    let wanted = query.word(
        "operation",
        &[
            ("publish", Wanted::Topic(Operation::Publish)),
            ("subscribe", Wanted::Topic(Operation::Subscribe)),
            ("observe", Wanted::Right(BrokerRight::Observe)),
            ("chain", Wanted::Right(BrokerRight::Chain)),
            ("administer", Wanted::Right(BrokerRight::Administer)),
        ],
    )?;
    let topic = query.text("topic").map(str::parse::<TopicName>).transpose();
    let topic = topic.map_err(|error| Problem::wrong(&format!("topic: {error}")))?;
    let user = query.text("user").unwrap_or_default();
    let rules = console.rules();
    let identity = asked_identity(&rules, user, query.text("roles").unwrap_or_default());
    let is_known = rules.authenticator.users().is_none_or(|users| users.get(user).is_some());
    let Some(rights) = &rules.rights else {
        let why = "the broker has neither users nor rules, and every client may do everything";
        return Ok(
            json!({ "allowed": true, "is_known": is_known, "what": why, "why": "", "rule": null, "roles": [] }),
        );
    };
    let origin =
        |rule: usize| rules.origins.get(rule).cloned().unwrap_or(rocketbufs::config::Origin::Default);
    let explained = match (wanted, &topic) {
        (Wanted::Right(right), _) => explain_right(rights, &identity, right, &origin),
        (Wanted::Topic(operation), Some(topic)) => {
            explain_topic(rights, &identity, operation, topic, &origin)
        }
        (Wanted::Topic(_), None) => return Err(Problem::wrong("topic: publish and subscribe need a topic")),
    };
    let Explained { allowed, what, why, rule, .. } = explained;
    let roles = identity.roles;
    Ok(
        json!({ "allowed": allowed, "is_known": is_known, "what": what, "why": why, "rule": rule, "roles": roles }),
    )
}

/// A user with its roles in the file of users, and with those of the question, which commas separate.
fn asked_identity(rules: &Rules, name: &str, more: &str) -> Identity {
    let known = rules.authenticator.users().and_then(|users| users.get(name));
    let mut identity = known.map_or_else(
        || Identity { user: name.to_owned(), ..Identity::anonymous() },
        |user| identity_of(user),
    );
    let more = more.split(',').map(str::trim).filter(|role| !role.is_empty()).map(str::to_owned);
    identity.roles.extend(more);
    identity
}
