//! The files and the credentials that decide which user a client is, and the rules about its rights.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{
    AccessOptions, AccessRule, Authenticator, CertificateName, Identity, JwtOptions, Login, Method, Pattern,
    Peer, Policies, Policy, Refused, Rights, Source, Step, TOKEN_PREFIX, Users, check_name,
};
use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use rbmq_wire::{Credentials, Secret, TopicFilter, TopicName};
use serde_json::{Map, Value};

/// An accepted file of users has valid names, one user for each way to log in, and tokens of its users. A refused one is refused
/// with one of its lines.
pub fn access_users(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let users = match Users::parse(text) {
        Ok(users) => users,
        Err(error) => {
            assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{error}");
            return;
        }
    };
    for user in users.iter() {
        assert!(check_name(&user.name).is_ok() && user.roles.iter().all(|role| check_name(role).is_ok()));
        assert_eq!(users.get(&user.name).map(|found| &**found), Some(user));
        for name in &user.certificates {
            assert_eq!(name.to_string().parse().as_ref(), Ok(name));
            let (found, by) = users.of_certificate(std::slice::from_ref(name)).expect("its certificate");
            assert_eq!((&**found, &by), (user, name));
        }
        assert!(user.unix.iter().all(|uid| users.of_uid(*uid).is_some_and(|found| **found == *user)));
        if let Some(hash) = &user.password {
            assert_eq!(hash.to_string().parse().as_ref(), Ok(hash));
        }
    }
    let tokens = users.tokens();
    assert!(tokens.windows(2).all(|two| two[0].name < two[1].name), "one token of each name");
    for token in tokens {
        assert!(users.get(&token.user).is_some());
        assert_eq!(users.token(&token.hash), Some(token));
        assert_eq!(token.hash.to_string().parse(), Ok(token.hash));
    }
}

/// The names of a certificate are written so that they are read as the same names.
pub fn access_certificate(data: &[u8]) {
    for name in CertificateName::of_der(data) {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    if let Ok(name) = String::from_utf8_lossy(data).parse::<CertificateName>() {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
}

/// Rules decide as they are documented, one by one. The first line names a user and the second a topic. Each further line has a
/// letter and a text: `u` begins a rule for a user, `r` adds a role, `p` and `s` patterns to publish and to subscribe, `P` and `S`
/// denied ones, `d` leaves the policy `drop` alone.
pub fn access_rights(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let (Some(user), Some(topic)) = (lines.next(), lines.next()) else { return };
    let (Ok(()), Ok(topic)) = (check_name(user), topic.parse::<TopicName>()) else { return };
    let mut rules = Vec::new();
    for line in lines {
        add_line(&mut rules, line);
    }
    let Ok(rights) = Rights::new(rules.clone()).map(Arc::new) else { return };
    let who = Identity { user: user.to_owned(), roles: vec!["r".to_owned()], method: Method::Token };
    let mine: Vec<&AccessRule> = rules.iter().filter(|rule| is_for(rule, &who)).collect();
    let any = |of: fn(&AccessRule) -> &[Pattern]| mine.iter().any(|rule| matches(of(rule), user, &topic));
    let grants = rights.of(&who);
    assert_eq!(grants.may_publish(&topic), any(|rule| &rule.publish) && !any(|rule| &rule.deny_publish));
    let gives = mine.iter().filter(|rule| matches(&rule.subscribe, user, &topic));
    let policies: Policies = match any(|rule| &rule.deny_subscribe) {
        true => [].into_iter().collect(),
        false => gives.flat_map(|rule| rule.policies.clone()).collect(),
    };
    assert_eq!(grants.policies(&topic), policies);
    assert_eq!(grants.may_subscribe(&topic), !policies.is_empty());
}

fn add_line(rules: &mut Vec<AccessRule>, line: &str) {
    let Some(kind) = line.chars().next() else { return };
    let rest = &line[kind.len_utf8()..];
    if kind == 'u' {
        return rules.push(AccessRule::for_user(rest));
    }
    let Some(rule) = rules.last_mut() else { return };
    let patterns = match kind {
        'p' => &mut rule.publish,
        's' => &mut rule.subscribe,
        'P' => &mut rule.deny_publish,
        'S' => &mut rule.deny_subscribe,
        'r' => return rule.roles.push(rest.to_owned()),
        'd' => return rule.policies = vec![Policy::Drop],
        _ => return,
    };
    patterns.extend(rest.parse::<Pattern>());
}

fn is_for(rule: &AccessRule, who: &Identity) -> bool {
    let is_named = rule.users.iter().any(|user| user == "*" || *user == who.user);
    is_named || rule.roles.iter().any(|role| who.roles.contains(role))
}

fn matches(patterns: &[Pattern], user: &str, topic: &TopicName) -> bool {
    patterns.iter().any(|pattern| {
        let levels = pattern.as_str().split('/').map(|level| if level == "%u" { user } else { level });
        let filter = levels.collect::<Vec<_>>().join("/").parse::<TopicFilter>();
        filter.is_ok_and(|filter| filter.matches(topic))
    })
}

const JWT_KEY: &[u8] = b"a secret that the issuer and the broker have";
const ISSUER: &str = "https://id.example.com";
const AUDIENCE: &str = "rbmq";

/// A broker that trusts an issuer.
fn issuer_is_trusted() -> &'static Authenticator {
    static AUTHENTICATOR: OnceLock<Authenticator> = OnceLock::new();
    AUTHENTICATOR.get_or_init(|| {
        let key = std::env::temp_dir().join(format!("fuzz-jwt-{}", std::process::id()));
        let file = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&key);
        file.and_then(|mut file| file.write_all(JWT_KEY)).expect("a file for the key");
        let [issuer, audience, roles] = [ISSUER, AUDIENCE, "roles"].map(str::to_owned);
        let jwt = Some(JwtOptions { key: key.clone(), issuer, audience, roles });
        let opened = Authenticator::open(&AccessOptions { users: None, jwt, password_cache: Duration::ZERO });
        std::fs::remove_file(&key).expect("the file of the key");
        opened.expect("the key is valid")
    })
}

fn log_in(token: &str) -> Result<Login, Refused> {
    let peer = Peer { source: Source::of("192.0.2.1:1"), certificate: None, uid: None };
    let credentials = Credentials::Token(Secret::from(token.to_owned()));
    match issuer_is_trusted().begin(credentials, &peer) {
        Step::Done(login) => login,
        Step::Check(check) => check.run(),
    }
}

/// A token's header and claims, and the issuer's signature of them.
fn sign(header: &str, claims: &str) -> (String, Vec<u8>) {
    let signed = [header, claims].map(|part| BASE64URL_NOPAD.encode(part.as_bytes())).join(".");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, JWT_KEY), signed.as_bytes());
    (signed, signature.as_ref().to_vec())
}

/// Nothing without the issuer's signature is a login. With it, the header in the first line and the claims in the others are one
/// only if they name the algorithm, the issuer, the audience and a user. An input with one line is a whole token.
pub fn access_jwt(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((header, claims)) = text.split_once('\n') else {
        assert!(log_in(text).is_err(), "nobody has signed it");
        return;
    };
    let (signed, mut signature) = sign(header, claims);
    let token = |signature: &[u8]| format!("{signed}.{}", BASE64URL_NOPAD.encode(signature));
    if let Ok(login) = log_in(&token(&signature)) {
        assert!(!signed.starts_with(TOKEN_PREFIX));
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).expect("an object");
        let (header, claims) = (object(header), object(claims));
        assert!(header["alg"] == "HS256" && header.get("crit").is_none_or(Value::is_null));
        let aud = &claims["aud"];
        let is_for_us =
            aud == AUDIENCE || aud.as_array().is_some_and(|all| all.iter().any(|one| one == AUDIENCE));
        assert!(claims["iss"] == ISSUER && is_for_us && claims["exp"].is_number());
        let Identity { user, roles, method } = &*login.identity;
        assert!(claims["sub"] == **user && check_name(user).is_ok() && *method == Method::Jwt);
        assert!(roles.iter().all(|role| check_name(role).is_ok()) && login.expires.is_some());
    }
    let at = data.len() % signature.len();
    signature[at] ^= 1;
    assert!(log_in(&token(&signature)).is_err(), "another signature");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_token_is_a_login() {
        let (header, claims) =
            include_str!("../../corpus/access_jwt/valid").split_once('\n').expect("two lines");
        let (signed, signature) = sign(header, claims);
        let login = log_in(&format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)));
        assert_eq!(login.expect("it is valid").identity.user, "alice");
    }
}
