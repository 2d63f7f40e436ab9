//! `rbmq acl`: what the rules of access give, and which rule decides.

use std::path::Path;
use std::sync::Arc;

use access::{Decision, Identity, Operation, Reason, Rights};
use commands::Failure;
use rbmq::TopicName;
use rbmq_broker::BrokerConfig;

use super::source::ConfigFile;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq acl check anna publish home/anna/door --config /etc/rbmq/rbmq.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say whether a user may do something, and which rule decides
    #[command(after_help = "Examples:
  rbmq acl check anna publish home/anna/door --config /etc/rbmq/rbmq.toml
  rbmq acl check anna subscribe home/bert/door --role family --config /etc/rbmq/rbmq.toml

Exit status: 0 if the user may, 1 if not.")]
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The name of the user
    user: String,
    /// What the user wants to do
    #[arg(value_enum)]
    operation: Wanted,
    /// The name of the topic
    topic: TopicName,
    /// A role of the user, besides those in the file of users; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    #[command(flatten)]
    file: ConfigFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wanted {
    /// To create a topic and write it
    Publish,
    /// To read a topic, by its name or by a pattern that matches it
    Subscribe,
}

impl From<Wanted> for Operation {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Publish => Self::Publish,
            Wanted::Subscribe => Self::Subscribe,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Check(check) = &args.command;
    let config = BrokerConfig::load(check.file.config.as_deref()).map_err(Failure::failed)?;
    let Some(rights) = config.rights().map_err(Failure::failed)? else {
        return commands::print(
            "yes: there are neither rules of access ([[access.rules]]) nor users, and every client may do everything\n",
        );
    };
    let roles = roles(check, &config)?;
    let (allowed, text) = explain(&rights, (check, roles), &config);
    if allowed {
        commands::print(format!("yes: {text}\n"))
    } else {
        Err(Failure::Failed(format!("no: {text}")))
    }
}

/// The roles of the user in the file of users, and those of the arguments.
fn roles(check: &Check, config: &BrokerConfig) -> Result<Vec<String>, Failure> {
    let mut roles = check.roles.clone();
    if config.users.file.is_empty() {
        return Ok(roles);
    }
    let users = access::read_users(Path::new(&config.users.file)).map_err(Failure::failed)?;
    match users.get(&check.user) {
        Some(user) => roles.extend(user.roles.iter().cloned()),
        None => tracing::warn!("there is no user '{}' in {}", check.user, config.users.file),
    }
    Ok(roles)
}

fn explain(
    rights: &Arc<Rights>,
    (check, roles): (&Check, Vec<String>),
    config: &BrokerConfig,
) -> (bool, String) {
    let Check { user, operation, topic, .. } = check;
    let operation = Operation::from(*operation);
    let mut identity = Identity::anonymous();
    identity.user.clone_from(user);
    identity.roles = roles;
    let Decision { allowed, reason, policies, .. } = rights.explain(&identity, operation, topic);
    let may = if allowed { "may" } else { "may not" };
    let what = format!("user '{user}' {may} {operation} topic '{topic}'");
    let rule_of = |rule: usize| format!("rule {} ({})", rule + 1, config.origin_of_access_rule(rule));
    let why = match reason {
        Reason::Given { rule, pattern } => {
            let policies: Vec<&str> = policies.iter().map(|policy| policy.as_str()).collect();
            let with =
                if policies.is_empty() { String::new() } else { format!(", with {}", policies.join(", ")) };
            format!("{} gives it: {operation} = \"{pattern}\"{with}", rule_of(rule))
        }
        Reason::Denied { rule, pattern } => {
            format!("{} denies it: deny_{operation} = \"{pattern}\"", rule_of(rule))
        }
        Reason::NoRule { rules_of_user: 0 } => {
            "no rule is for this user; add one with [[access.rules]], or name its roles with --role".into()
        }
        Reason::NoRule { rules_of_user: 1 } => "no pattern of the only rule for this user matches".into(),
        Reason::NoRule { rules_of_user } => {
            format!("no pattern of the {rules_of_user} rules for this user matches")
        }
        _ => String::new(),
    };
    (allowed, format!("{what}\n  {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operation: Wanted, topic: &str) -> Check {
        let file = ConfigFile { config: None };
        Check { user: "anna".into(), operation, topic: topic.parse().unwrap(), roles: Vec::new(), file }
    }

    #[test]
    fn the_deciding_rule_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        let rules = "[[access.rules]]\nroles = ['family']\nsubscribe = ['home/#']\npolicies = ['drop']\n\n\
                     [[access.rules]]\nusers = ['anna']\npublish = ['home/%u/#']\ndeny_subscribe = ['home/safe']\n";
        std::fs::write(&path, rules).unwrap();
        let config = BrokerConfig::load(Some(&path)).unwrap();
        let rights = config.rights().unwrap().unwrap();
        let of =
            |operation, topic| explain(&rights, (&check(operation, topic), vec!["family".into()]), &config);
        let (yes, text) = of(Wanted::Publish, "home/anna/door");
        assert!(
            yes && text.contains("rule 2 (") && text.ends_with("line 7) gives it: publish = \"home/%u/#\""),
            "{text}"
        );
        let (yes, text) = of(Wanted::Subscribe, "home/bert/door");
        assert!(yes && text.ends_with("line 2) gives it: subscribe = \"home/#\", with drop"), "{text}");
        let (yes, text) = of(Wanted::Subscribe, "home/safe");
        assert!(!yes && text.ends_with("denies it: deny_subscribe = \"home/safe\""), "{text}");
        let (yes, text) = of(Wanted::Publish, "x");
        assert!(!yes && text.contains("user 'anna' may not publish topic 'x'"), "{text}");
        assert!(text.ends_with("no pattern of the 2 rules for this user matches"), "{text}");
    }
}
