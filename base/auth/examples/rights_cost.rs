//! The cost of rights: `cargo run --release -p access --example rights_cost`.
//!
//! Ten thousand users and a thousand rules. A SUBSCRIBE costs a look at the rights of its topic, a login makes the user's grants.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use access::{AccessRule, Grants, Identity, Rights};
use topics::TopicName;

const USERS: usize = 10_000;
const RULES: usize = 1_000;

/// Rules for a user each, for roles, and for everybody, with names, wildcards, `%u` and denials.
fn rules() -> Result<Vec<AccessRule>, Box<dyn std::error::Error>> {
    let rule = |n: usize| -> Result<AccessRule, Box<dyn std::error::Error>> {
        let mut rule = AccessRule::for_user(&format!("user{n}"));
        match n % 4 {
            0 => rule.users = vec!["*".into()],
            1 => (rule.users, rule.roles) = (Vec::new(), vec![format!("role{}", n % 20)]),
            _ => {}
        }
        rule.subscribe = vec![
            format!("site{}/+/temp", n % 50).parse()?,
            format!("site{}/room{n}/#", n % 50).parse()?,
            format!("home/%u/{n}/#").parse()?,
        ];
        rule.publish = vec![format!("home/%u/{n}").parse()?];
        rule.deny_subscribe = vec![format!("site{}/room{n}/secret/#", n % 50).parse()?];
        Ok(rule)
    };
    (0..RULES).map(rule).collect()
}

fn identity(n: usize) -> Identity {
    let mut identity = Identity::anonymous();
    identity.user = format!("user{n}");
    identity.roles = vec![format!("role{}", n % 20), format!("role{}", n % 7)];
    identity
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let rights = Arc::new(Rights::new(rules()?)?);
    println!("{RULES} rules are prepared in {:?}", begin.elapsed());
    let begin = Instant::now();
    let grants: Vec<Grants> = (0..USERS).map(|n| rights.of(&identity(n))).collect();
    println!("a login: {:?}", begin.elapsed() / USERS as u32);
    for shape in
        ["site3/room503/temp", "site3/room503/secret/x", "home/user503/503/door", "a/b/c/d/e/f/g/h", "x"]
    {
        let topic: TopicName = shape.parse()?;
        let begin = Instant::now();
        let allowed = grants.iter().filter(|grants| !black_box(grants.policies(&topic)).is_empty()).count();
        println!(
            "a SUBSCRIBE to {shape}: {:?}, allowed for {allowed} of {USERS} users",
            begin.elapsed() / USERS as u32
        );
    }
    Ok(())
}
