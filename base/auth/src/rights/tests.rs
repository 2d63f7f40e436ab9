use proptest::prelude::*;
use topics::TopicFilter;

use super::rule::USER;
use super::*;
use crate::Method;

/// The rules as they are documented, evaluated one by one.
struct Model<'r>(&'r [AccessRule]);

impl Model<'_> {
    fn of<'m>(&'m self, who: &'m Identity) -> impl Iterator<Item = &'m AccessRule> {
        self.0.iter().filter(|rule| {
            rule.users.iter().any(|user| user == "*" || *user == who.user)
                || rule.roles.iter().any(|role| who.roles.contains(role))
        })
    }

    fn matches(patterns: &[Pattern], who: &Identity, topic: &TopicName) -> bool {
        patterns.iter().any(|pattern| {
            let levels = pattern.as_str().split('/');
            if levels.clone().any(|level| level == USER) && !is_level(&who.user) {
                return false;
            }
            let text = levels.map(|level| if level == USER { &who.user } else { level });
            text.collect::<Vec<_>>().join("/").parse::<TopicFilter>().unwrap().matches(topic)
        })
    }

    fn may_publish(&self, who: &Identity, topic: &TopicName) -> bool {
        self.of(who).any(|rule| Self::matches(&rule.publish, who, topic))
            && !self.of(who).any(|rule| Self::matches(&rule.deny_publish, who, topic))
    }

    fn policies(&self, who: &Identity, topic: &TopicName) -> Policies {
        if self.of(who).any(|rule| Self::matches(&rule.deny_subscribe, who, topic)) {
            return [].into_iter().collect();
        }
        let gives = self.of(who).filter(|rule| Self::matches(&rule.subscribe, who, topic));
        gives.flat_map(|rule| rule.policies.clone()).collect()
    }
}

fn pattern() -> impl Strategy<Value = Pattern> {
    proptest::collection::vec(r"a|ab|\$|\$a|!||%|\+|%u|%u|#", 1..4)
        .prop_filter_map("no pattern", |levels| levels.join("/").parse().ok())
}

fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
    proptest::collection::vec(pattern(), 0..3)
}

fn rule() -> impl Strategy<Value = AccessRule> {
    let users = proptest::collection::vec(r"a|ab|\$a|\*", 0..3);
    let roles = proptest::collection::vec("r|s", 0..2);
    let policies =
        proptest::sample::subsequence(vec![Policy::Block, Policy::Drop, Policy::Disconnect], 1..=3);
    let denied = (patterns(), patterns(), 0..4).prop_map(|(publish, subscribe, often)| match often {
        0 => (publish, subscribe),
        _ => (Vec::new(), Vec::new()),
    });
    (users, roles, patterns(), patterns(), denied, policies, any::<(bool, bool, bool)>()).prop_map(
        |(users, roles, publish, subscribe, (deny_publish, deny_subscribe), policies, rights)| {
            let (observe, chain, administer) = rights;
            let users = if users.is_empty() && roles.is_empty() { vec!["a".into()] } else { users };
            AccessRule {
                users,
                roles,
                publish,
                subscribe,
                deny_publish,
                deny_subscribe,
                policies,
                observe,
                chain,
                administer,
            }
        },
    )
}

fn identity() -> impl Strategy<Value = Identity> {
    (r"a|ab|\$a|\+|#|a/ab||%u|!", proptest::sample::subsequence(vec!["r".to_owned(), "s".to_owned()], 0..=2))
        .prop_map(|(user, roles)| Identity { user, roles, method: Method::Password })
}

fn topic() -> impl Strategy<Value = TopicName> {
    proptest::collection::vec(r"a|ab|\$|\$a|!|%|%u|", 1..4)
        .prop_filter_map("no name", |levels| levels.join("/").parse().ok())
}

proptest! {
    #[test]
    fn decides_as_the_model(
        rules in proptest::collection::vec(rule(), 0..8),
        asking in proptest::collection::vec((identity(), topic()), 1..20),
    ) {
        let rights = Arc::new(Rights::new(rules.clone()).unwrap());
        let model = Model(&rules);
        for (who, topic) in &asking {
            let grants = rights.of(who);
            let (publish, policies) = (model.may_publish(who, topic), model.policies(who, topic));
            prop_assert_eq!(grants.may_publish(topic), publish, "publish {} by {:?}", topic, who);
            prop_assert_eq!(grants.policies(topic), policies, "subscribe {} by {:?}", topic, who);
            prop_assert_eq!(grants.may_subscribe(topic), !policies.is_empty());
            prop_assert_eq!(grants.may_subscribe_to_some(&topic.into()), !policies.is_empty());
            for wider in [TopicFilter::all(), format!("{topic}/#").parse().unwrap()] {
                prop_assert!(!wider.matches(topic) || policies.is_empty() || grants.may_subscribe_to_some(&wider));
            }
            prop_assert_eq!(grants.may_observe(), model.of(who).any(|rule| rule.observe));
            prop_assert_eq!(grants.may_chain(), model.of(who).any(|rule| rule.chain));
            prop_assert_eq!(grants.may_administer(), model.of(who).any(|rule| rule.administer));
            prop_assert_eq!(grants.rules(), model.of(who).count());
            for (operation, allowed) in [(Operation::Publish, publish), (Operation::Subscribe, !policies.is_empty())] {
                let decision = rights.explain(who, operation, topic);
                prop_assert_eq!(decision.allowed, allowed);
                let (rule, pattern) = match decision.reason {
                    Reason::Given { rule, pattern } | Reason::Denied { rule, pattern } => (rule, pattern),
                    Reason::NoRule { .. } => continue,
                };
                prop_assert!(model.of(who).any(|mine| *mine == rules[rule]), "rule {} is for the user", rule);
                prop_assert!(Model::matches(&[pattern.parse().unwrap()], who, topic));
            }
        }
    }
}

proptest! {
    /// A user who may do something with all topics of a filter may do it with each of them.
    #[test]
    fn rights_for_all_topics_of_a_filter_are_rights_for_each(
        rules in proptest::collection::vec(rule(), 0..6),
        who in identity(),
        space in r"(a|ab|%|a/a)/#|#",
        topic in topic(),
    ) {
        let grants = Arc::new(Rights::new(rules).unwrap()).of(&who);
        let space: TopicFilter = space.parse().unwrap();
        prop_assume!(space.matches(&topic));
        prop_assert!(!grants.may_publish_all(&space) || grants.may_publish(&topic));
        let all = grants.policies_for_all(&space);
        prop_assert_eq!(grants.policies(&topic).with(all), grants.policies(&topic));
    }
}

#[test]
fn one_pattern_must_have_all_topics_and_no_denial_any() {
    let rights = rules(
        "[[rules]]\nusers = ['anna']\npublish = ['home/%u/#']\nsubscribe = ['#']\npolicies = ['drop']\n\
         [[rules]]\nusers = ['bert']\npublish = ['d', 'd/+', 'd/+/#']\nsubscribe = ['d/#']\n\
         [[rules]]\nusers = ['eve']\npublish = ['#']\nsubscribe = ['#']\ndeny_publish = ['+/x']\ndeny_subscribe = ['e/%u']\n",
    );
    let rights = Arc::new(rights.unwrap());
    let may = |name: &str, space: &str| {
        let grants = rights.of(&user(name));
        let space = space.parse().unwrap();
        (grants.may_publish_all(&space), grants.policies_for_all(&space).iter().collect::<Vec<_>>())
    };
    let all = vec![Policy::Block, Policy::Drop, Policy::Disconnect];
    assert_eq!(may("anna", "home/anna/#"), (true, vec![Policy::Drop]));
    assert_eq!(may("anna", "home/#"), (false, vec![Policy::Drop]));
    // Several patterns together have all of it, and none of them alone has.
    assert_eq!(may("bert", "d/#"), (false, all.clone()));
    assert_eq!(may("bert", "#"), (false, vec![]));
    assert_eq!(may("eve", "d/#"), (false, all.clone()));
    assert_eq!(may("eve", "d/y/#"), (true, all));
    assert_eq!(may("eve", "e/#"), (false, vec![]));
}

fn rules(text: &str) -> Result<Rights, String> {
    #[derive(serde::Deserialize)]
    struct Section {
        rules: Vec<AccessRule>,
    }
    let rules = toml::from_str::<Section>(text).map_err(|error| error.message().to_owned())?.rules;
    Rights::new(rules).map_err(|error| format!("{}: {error}", error.field))
}

fn user(name: &str) -> Identity {
    Identity { user: name.into(), ..Identity::anonymous() }
}

#[test]
fn a_denial_wins_and_is_named() {
    let rights = rules(
        "[[rules]]\nusers = ['*']\nsubscribe = ['#']\npolicies = ['drop']\n\
         [[rules]]\nusers = ['eve']\ndeny_subscribe = ['x', 'secret/#']\n\
         [[rules]]\nusers = ['anna']\nsubscribe = ['secret/%u']\n",
    );
    let rights = Arc::new(rights.unwrap());
    let topic: TopicName = "secret/anna".parse().unwrap();
    let of = |name: &str| rights.explain(&user(name), Operation::Subscribe, &topic);
    assert_eq!(of("eve").reason, Reason::Denied { rule: 1, pattern: "secret/#".into() });
    assert_eq!(of("bert").policies, [Policy::Drop]);
    assert_eq!(of("anna").policies, [Policy::Block, Policy::Drop, Policy::Disconnect]);
    assert_eq!(of("anna").reason, Reason::Given { rule: 0, pattern: "#".into() });
    let publish = rights.explain(&user("anna"), Operation::Publish, &topic);
    assert_eq!((publish.allowed, publish.reason), (false, Reason::NoRule { rules_of_user: 2 }));
}

#[test]
fn a_filter_without_a_topic_that_may_be_read_is_refused() {
    let rights = rules(
        "[[rules]]\nusers = ['anna']\nsubscribe = ['a/#', 'home/%u/+']\ndeny_subscribe = ['a/secret/#', 'a/+/key']\n",
    );
    let rights = Arc::new(rights.unwrap());
    let may = |user_name: &str, filter: &str| {
        rights.of(&user(user_name)).may_subscribe_to_some(&filter.parse().unwrap())
    };
    for filter in ["#", "a/#", "a/+", "+/other/#", "home/#", "home/+/door", "+/anna/x", "a/x/key/y"] {
        assert!(may("anna", filter), "{filter}");
        assert!(!may("bert", filter), "{filter}");
    }
    for filter in [
        "b/#",
        "a/secret/+",
        "+/secret/#",
        "a/secret",
        "a/x/key",
        "a/+/key",
        "home/bert/#",
        "home/anna",
        "$SYS/#",
    ] {
        assert!(!may("anna", filter), "{filter}");
    }
}

#[test]
fn no_name_of_a_user_widens_a_pattern() {
    let rights = Arc::new(rules("[[rules]]\nusers = ['*']\npublish = ['home/%u/#', '%u']\n").unwrap());
    for name in ["+", "#", "", "anna/x", "home/+", "%u"] {
        let grants = rights.of(&user(name));
        for topic in ["home/anna/door", "home/anna/x", "anna", "home"] {
            assert!(!grants.may_publish(&topic.parse().unwrap()), "{name} {topic}");
        }
    }
    assert!(rights.of(&user("anna")).may_publish(&"home/anna".parse().unwrap()));
    // A topic that is called like the placeholder belongs to the user of this name alone.
    assert!(!rights.of(&user("anna")).may_publish(&"home/%u/x".parse().unwrap()));
}

#[test]
fn invalid_rules_are_refused_with_a_reason() {
    for (rule, says) in [
        ("publish = ['#']", "users: the rule is for nobody: add users"),
        ("users = ['']", "users: a name is empty"),
        ("roles = ['']", "roles: a name is empty"),
        ("user = ['a']", "unknown field `user`"),
        ("users = ['a']\npublish = ['cam-%u/#']", "'%u' (the user's name) must be a whole level"),
        ("users = ['a']\npublish = ['a#']", "'#' must be a whole level"),
        ("users = ['a']\nsubscribe = ['a']\npolicies = []", "policies: policies is empty"),
        ("users = ['a']\npolicies = ['overwrite']", "overwrite is not available"),
        ("users = ['a']\npolicies = ['blok']", "unknown variant `blok`"),
    ] {
        let error = rules(&format!("[[rules]]\n{rule}\n")).unwrap_err();
        assert!(error.contains(says), "{rule}: {error}");
    }
    let one = AccessRule::for_user("a");
    assert_eq!(Rights::new(vec![one.clone(); MAX_RULES + 1]).unwrap_err().rule, MAX_RULES);
    let names = AccessRule { users: vec!["a".into(); MAX_NAMES + 1], ..one.clone() };
    assert!(Rights::new(vec![names]).unwrap_err().to_string().contains("use roles"));
    let patterns = AccessRule { publish: vec!["a".parse().unwrap(); MAX_PATTERNS + 1], ..one };
    assert_eq!(Rights::new(vec![patterns]).unwrap_err().field, "publish");
}

#[test]
fn rules_survive_serialization() {
    let rule: AccessRule =
        toml::from_str("users = ['a']\nsubscribe = ['x/%u']\npolicies = ['drop']\nobserve = true\n").unwrap();
    let again: AccessRule = toml::from_str(&toml::to_string(&rule).unwrap()).unwrap();
    assert_eq!(again, rule);
}
