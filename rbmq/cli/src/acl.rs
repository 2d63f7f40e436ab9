//! `rbmq acl`: what the rules of access give, and which rule decides.

use std::path::Path;
use std::sync::Arc;

use access::{BrokerRight, Identity, Operation, Rights};
use commands::Failure;
use rbmq::TopicName;
use rbmq_broker::{BrokerConfig, Explained, explain_right, explain_topic};

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
  rbmq acl check anna observe --config /etc/rbmq/rbmq.toml

Exit status: 0 if the user may, 1 if not.")]
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Check {
    /// The name of the user
    user: String,
    /// The operation that the user wants to do
    #[arg(value_enum)]
    operation: Wanted,
    /// The name of the topic, for publish and subscribe
    #[arg(required_if_eq_any([("operation", "publish"), ("operation", "subscribe")]))]
    topic: Option<TopicName>,
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
    /// To use rbmq top and rbmq topics
    Observe,
    /// To connect as a broker, which reads the topics that the user may subscribe to
    Chain,
    /// To see users, tokens and rights in the console, to trace clients and topics, and to reload and disconnect clients there
    Administer,
}

/// The question to the rules.
enum Question<'a> {
    Topic(Operation, &'a TopicName),
    Right(BrokerRight),
}

impl Check {
    fn question(&self) -> Result<Question<'_>, Failure> {
        let usage = |text: &str| Failure::Usage("acl", text.to_owned());
        let topic = |operation| match &self.topic {
            Some(topic) => Ok(Question::Topic(operation, topic)),
            None => Err(usage("publish and subscribe need the name of a topic")),
        };
        let right = |right| match &self.topic {
            None => Ok(Question::Right(right)),
            Some(_) => {
                Err(usage("observe, chain and administer are for the whole broker, and take no topic"))
            }
        };
        match self.operation {
            Wanted::Publish => topic(Operation::Publish),
            Wanted::Subscribe => topic(Operation::Subscribe),
            Wanted::Observe => right(BrokerRight::Observe),
            Wanted::Chain => right(BrokerRight::Chain),
            Wanted::Administer => right(BrokerRight::Administer),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Check(check) = &args.command;
    let question = check.question()?;
    let config = BrokerConfig::load(check.file.config.as_deref()).map_err(Failure::failed)?;
    let Some(rights) = config.rights().map_err(Failure::failed)? else {
        return commands::print(
            "yes: there are neither rules of access ([[access.rules]]) nor users, and every client may do everything\n",
        );
    };
    let roles = roles(check, &config)?;
    let mut identity = Identity::anonymous();
    identity.user.clone_from(&check.user);
    identity.roles = roles;
    let (allowed, text) = explain(&rights, &identity, &question, &config);
    if allowed {
        commands::print(format!("yes: {text}\n"))
    } else {
        Err(Failure::Failed(format!("no: {text}")))
    }
}

fn explain(
    rights: &Arc<Rights>,
    identity: &Identity,
    question: &Question<'_>,
    config: &BrokerConfig,
) -> (bool, String) {
    let origin = |rule| config.origin_of_access_rule(rule);
    let explained = match question {
        Question::Topic(operation, topic) => explain_topic(rights, identity, *operation, topic, &origin),
        Question::Right(right) => explain_right(rights, identity, *right, &origin),
    };
    let Explained { allowed, what, why, has_no_rule, .. } = explained;
    let hint = if has_no_rule { ", or name its roles with --role" } else { "" };
    (allowed, format!("{what}\n  {why}{hint}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operation: Wanted, topic: Option<&str>) -> Check {
        let (file, topic) = (ConfigFile { config: None }, topic.map(|topic| topic.parse().unwrap()));
        Check { user: "anna".into(), operation, topic, roles: Vec::new(), file }
    }

    #[test]
    fn topics_are_for_publish_and_subscribe_alone() {
        use Wanted::{Administer, Chain, Observe, Publish, Subscribe};
        let all = [(Publish, true), (Subscribe, true), (Observe, false), (Chain, false), (Administer, false)];
        for (operation, takes) in all {
            assert_eq!(check(operation, Some("a")).question().is_ok(), takes);
            assert_eq!(check(operation, None).question().is_ok(), !takes);
        }
    }

    #[test]
    fn a_right_is_named_with_its_rule() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        let rules = "[[access.rules]]\nusers = ['anna']\nsubscribe = ['#']\n\n\
                     [[access.rules]]\nroles = ['operator']\nobserve = true\n";
        std::fs::write(&path, rules).unwrap();
        let config = BrokerConfig::load(Some(&path)).unwrap();
        let rights = config.rights().unwrap().unwrap();
        let of = |user: &str, roles: &[&str], right| {
            let roles = roles.iter().map(|role| (*role).to_owned()).collect();
            let identity = Identity { user: user.into(), roles, ..Identity::anonymous() };
            explain(&rights, &identity, &Question::Right(right), &config)
        };
        let (yes, text) = of("anna", &["operator"], BrokerRight::Observe);
        assert!(yes && text.starts_with("user 'anna' may observe the broker\n  rule 2 ("), "{text}");
        assert!(text.ends_with("line 6) gives it: observe = true"), "{text}");
        let (yes, text) = of("anna", &["operator"], BrokerRight::Chain);
        assert!(!yes && text.ends_with("none of the 2 rules for this user has chain = true"), "{text}");
        let (yes, text) = of("anna", &[], BrokerRight::Chain);
        assert!(!yes && text.ends_with("the only rule for this user has no chain = true"), "{text}");
        let (yes, text) = of("bert", &[], BrokerRight::Observe);
        assert!(!yes && text.contains("no rule is for this user"), "{text}");
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
        let roles = vec!["family".into()];
        let identity = Identity { user: "anna".into(), roles, ..Identity::anonymous() };
        let of = |operation, topic: &str| {
            let topic = topic.parse().unwrap();
            explain(&rights, &identity, &Question::Topic(operation, &topic), &config)
        };
        let (yes, text) = of(Operation::Publish, "home/anna/door");
        assert!(
            yes && text.contains("rule 2 (") && text.ends_with("line 7) gives it: publish = \"home/%u/#\""),
            "{text}"
        );
        let (yes, text) = of(Operation::Subscribe, "home/bert/door");
        assert!(yes && text.ends_with("line 2) gives it: subscribe = \"home/#\", with drop"), "{text}");
        let (yes, text) = of(Operation::Subscribe, "home/safe");
        assert!(!yes && text.ends_with("denies it: deny_subscribe = \"home/safe\""), "{text}");
        let (yes, text) = of(Operation::Publish, "x");
        assert!(!yes && text.contains("user 'anna' may not publish topic 'x'"), "{text}");
        assert!(text.ends_with("no pattern of the 2 rules for this user matches"), "{text}");
    }
}
