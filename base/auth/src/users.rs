//! The users of a broker and their tokens, as a file lists them.
//!
//! ```toml
//! [[user]]
//! name = "alice"
//! password = "$argon2id$v=19$m=19456,t=2,p=1$…$…"
//! roles = ["sensors"]
//! certificates = ["CN=alice", "DNS=alice.example.com"]
//! unix = [1000]
//!
//! [[token]]
//! name = "greenhouse-7"
//! user = "alice"
//! sha256 = "ba7816bf…"
//! created = "2026-11-26T09:00:00Z"
//! expires = "2026-12-26T09:00:00Z"
//! ```
//!
//! All limits are checked when the file is read, so the tables in memory are small.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use toml::Spanned;

use crate::certificate::CertificateName;
use crate::names::check_name;
use crate::password::PasswordHash;
use crate::token::TokenHash;

/// The largest file of users in bytes: room for about 50,000 users with passwords.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// The most users.
pub const MAX_USERS: usize = 100_000;

/// The most tokens.
pub const MAX_TOKENS: usize = 100_000;

/// The most roles, certificates and Unix users of a user.
const MAX_OF_USER: usize = 32;

/// A user of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The name.
    pub name: String,
    /// The hash of the password. A user without one logs in by other ways only.
    pub password: Option<PasswordHash>,
    /// The roles; rules may name them.
    pub roles: Vec<String>,
    /// The names in certificates by which this user is known.
    pub certificates: Vec<CertificateName>,
    /// The Unix users that are this user.
    pub unix: Vec<u32>,
}

/// A token of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Token {
    /// The name, by which the token is listed and revoked.
    pub name: String,
    /// The name of its user.
    pub user: String,
    /// The hash.
    pub hash: TokenHash,
    /// When it was made. `None`: the file has no such time.
    pub created: Option<SystemTime>,
    /// When it expires. `None`: never.
    pub expires: Option<SystemTime>,
}

/// A file of users cannot be used. Its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct UsersError {
    /// The line, from 1.
    pub line: usize,
    /// The problem, and what to do.
    pub message: String,
}

/// The users and tokens of a file.
#[derive(Debug, Clone, Default)]
pub struct Users {
    users: HashMap<String, Arc<User>>,
    tokens: HashMap<TokenHash, Arc<Token>>,
    by_certificate: HashMap<CertificateName, Arc<User>>,
    by_uid: HashMap<u32, Arc<User>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    user: Vec<Spanned<UserEntry>>,
    #[serde(default)]
    token: Vec<Spanned<TokenEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    name: Spanned<String>,
    password: Option<Spanned<String>>,
    #[serde(default)]
    roles: Vec<Spanned<String>>,
    #[serde(default)]
    certificates: Vec<Spanned<String>>,
    #[serde(default)]
    unix: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: Spanned<String>,
    user: Spanned<String>,
    sha256: Spanned<String>,
    created: Option<Spanned<String>>,
    expires: Option<Spanned<String>>,
}

impl Users {
    /// Reads the text of a file. Unknown names are refused.
    ///
    /// ```
    /// let users = access::Users::parse("[[user]]\nname = 'alice'\nroles = ['sensors']\n")?;
    /// assert_eq!(users.get("alice").unwrap().roles, ["sensors"]);
    /// # Ok::<(), access::UsersError>(())
    /// ```
    ///
    /// # Errors
    /// The first problem, with its line.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let at = |offset: usize, message: String| UsersError { line: line(text, offset), message };
        let file: File = toml::from_str(text)
            .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        let (user_count, token_count) = (file.user.len(), file.token.len());
        if user_count > MAX_USERS || token_count > MAX_TOKENS {
            let message = format!(
                "{user_count} users and {token_count} tokens; the limits are {MAX_USERS} and {MAX_TOKENS}"
            );
            return Err(at(0, message));
        }
        let mut users = Self::default();
        for entry in file.user {
            let offset = entry.span().start;
            let user = user(entry.into_inner()).map_err(|(inner, message)| at(inner, message))?;
            users.add_user(user).map_err(|message| at(offset, message))?;
        }
        for entry in file.token {
            let offset = entry.span().start;
            let token = token(entry.into_inner()).map_err(|(inner, message)| at(inner, message))?;
            users.add_token(token).map_err(|message| at(offset, message))?;
        }
        users.check_token_names().map_err(|message| at(0, message))?;
        Ok(users)
    }

    /// Users of a configuration, with passwords alone. A name may be any text, since no rule of access names these users.
    pub fn with_passwords(passwords: impl IntoIterator<Item = (String, PasswordHash)>) -> Self {
        let mut users = Self::default();
        for (name, password) in passwords {
            let user = User {
                name: name.clone(),
                password: Some(password),
                roles: Vec::new(),
                certificates: Vec::new(),
                unix: Vec::new(),
            };
            users.users.insert(name, Arc::new(user));
        }
        users
    }

    fn add_user(&mut self, user: User) -> Result<(), String> {
        let user = Arc::new(user);
        if self.users.contains_key(&user.name) {
            return Err(format!("the user {:?} is there twice; remove one of the entries", user.name));
        }
        let twice = |what: String, other: &User| {
            Err(format!("{what} belongs to {:?} and {:?}; a login must have one user", other.name, user.name))
        };
        for name in &user.certificates {
            if let Some(other) = self.by_certificate.insert(name.clone(), user.clone()) {
                return twice(format!("the certificate {name}"), &other);
            }
        }
        for uid in &user.unix {
            if let Some(other) = self.by_uid.insert(*uid, user.clone()) {
                return twice(format!("the Unix user {uid}"), &other);
            }
        }
        self.users.insert(user.name.clone(), user);
        Ok(())
    }

    fn add_token(&mut self, token: Token) -> Result<(), String> {
        if !self.users.contains_key(&token.user) {
            let Token { name, user, .. } = token;
            return Err(format!("the token {name:?} is of the user {user:?}, who does not exist"));
        }
        match self.tokens.insert(token.hash, Arc::new(token)) {
            Some(other) => {
                Err(format!("the token {:?} is there twice; remove one of the entries", other.name))
            }
            None => Ok(()),
        }
    }

    fn check_token_names(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        match self.tokens.values().find(|token| !names.insert(token.name.as_str())) {
            Some(token) => Err(format!("two tokens have the name {:?}; rename one of them", token.name)),
            None => Ok(()),
        }
    }

    /// A user by name.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// The number of users.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is no user. Then nobody can log in.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The users in no order.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.values().map(AsRef::as_ref)
    }

    /// A token by its hash. The token may have expired.
    pub fn token(&self, hash: &TokenHash) -> Option<&Token> {
        self.tokens.get(hash).map(AsRef::as_ref)
    }

    /// The tokens by name.
    pub fn tokens(&self) -> Vec<&Token> {
        let mut tokens: Vec<&Token> = self.tokens.values().map(AsRef::as_ref).collect();
        tokens.sort_by(|one, other| one.name.cmp(&other.name));
        tokens
    }

    /// The user of a certificate with these names. `None`: no user, or more than one user, has one of them.
    pub fn of_certificate(&self, names: &[CertificateName]) -> Option<(&Arc<User>, CertificateName)> {
        let mut found = names.iter().filter_map(|name| Some((self.by_certificate.get(name)?, name.clone())));
        let first = found.next()?;
        found.all(|(user, _)| user.name == first.0.name).then_some(first)
    }

    /// The user of a Unix user's number.
    pub fn of_uid(&self, uid: u32) -> Option<&Arc<User>> {
        self.by_uid.get(&uid)
    }

    /// The hash that is the most expensive to check.
    pub(crate) fn dearest_password(&self) -> Option<&PasswordHash> {
        self.users.values().filter_map(|user| user.password.as_ref()).max_by_key(|hash| hash.cost())
    }
}

type At<T> = Result<T, (usize, String)>;

/// Converts a text, and names the place and the field if it is wrong.
fn read<T, E: ToString>(
    field: &str,
    text: &Spanned<String>,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> At<T> {
    read(text.get_ref()).map_err(|error| (text.span().start, format!("{field}: {}", error.to_string())))
}

fn user(entry: UserEntry) -> At<User> {
    let UserEntry { name, password, roles, certificates, unix } = entry;
    read("name", &name, check_name)?;
    let counts = [("roles", roles.len()), ("certificates", certificates.len()), ("unix", unix.len())];
    if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > MAX_OF_USER) {
        return Err((name.span().start, format!("{what}: {count} of them; the limit is {MAX_OF_USER}")));
    }
    roles.iter().try_for_each(|role| read("roles", role, check_name))?;
    let certificate = |text: &Spanned<String>| read("certificates", text, str::parse::<CertificateName>);
    Ok(User {
        password: password.map(|text| read("password", &text, str::parse)).transpose()?,
        certificates: certificates.iter().map(certificate).collect::<At<_>>()?,
        name: name.into_inner(),
        roles: roles.into_iter().map(Spanned::into_inner).collect(),
        unix,
    })
}

fn token(entry: TokenEntry) -> At<Token> {
    let TokenEntry { name, user, sha256, created, expires } = entry;
    read("name", &name, check_name)?;
    let time = |field: &str, text: Option<Spanned<String>>| {
        text.map(|text| {
            read(field, &text, |text| {
                humantime::parse_rfc3339(text)
                    .map_err(|_| format!("{text:?} is no time as 2026-12-31T23:59:59Z"))
            })
        })
        .transpose()
    };
    Ok(Token {
        hash: read("sha256", &sha256, str::parse)?,
        created: time("created", created)?,
        expires: time("expires", expires)?,
        name: name.into_inner(),
        user: user.into_inner(),
    })
}

fn line(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$argon2id$v=19$m=8192,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA";
    const SHA: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn everything_of_a_file_is_read() {
        let text = format!(
            "# a comment\n[[user]]\nname = 'a'\npassword = '{HASH}'\nroles = ['r', 's']\ncertificates = ['CN=a b', \
             'DNS=a.example']\nunix = [0, 1000]\n[[user]]\nname = 'b'\n[[token]]\nname = 't'\nuser = 'b'\nsha256 = \
             '{SHA}'\nexpires = '2030-01-01T00:00:00Z'\n"
        );
        let users = Users::parse(&text).unwrap();
        let a = users.get("a").unwrap();
        assert_eq!(a.roles, ["r", "s"]);
        assert_eq!(a.password.as_ref().unwrap().to_string(), HASH);
        assert_eq!(users.of_uid(1000).unwrap().name, "a");
        assert!(users.of_uid(1).is_none());
        let names = |text: &[&str]| text.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(users.of_certificate(&names(&["CN=x", "CN=a b"])).unwrap().0.name, "a");
        assert!(users.of_certificate(&names(&["CN=x", "DNS=CN=a b"])).is_none());
        let token = users.token(&SHA.parse().unwrap()).unwrap();
        assert_eq!((token.user.as_str(), token.created), ("b", None));
        assert!(token.expires.unwrap() > SystemTime::UNIX_EPOCH);
        assert_eq!((users.len(), users.tokens().len()), (2, 1));
    }

    #[test]
    fn errors_have_the_line_and_what_to_do() {
        let error = |text: &str| Users::parse(text).unwrap_err().to_string();
        assert!(
            error("[[user]]\nname = 'a'\npasword = 'x'\n").starts_with("line 3: unknown field `pasword`")
        );
        assert!(error("[[user]]\n\nname = 'a/b'\n").starts_with("line 3: name: \"a/b\" cannot be a name"));
        assert!(
            error("[[user]]\nname = 'a'\npassword = 'secret'\n")
                .contains("line 3: password: it is not written")
        );
        let twice = error("[[user]]\nname = 'a'\n[[user]]\nname = 'a'\n");
        assert!(twice.contains("the user \"a\" is there twice"), "{twice}");
        let shared = error("[[user]]\nname = 'a'\nunix = [1]\n[[user]]\nname = 'b'\nunix = [1]\n");
        assert!(shared.contains("the Unix user 1 belongs to \"a\" and \"b\""), "{shared}");
        let lost = error(&format!("[[token]]\nname = 't'\nuser = 'x'\nsha256 = '{SHA}'\n"));
        assert!(lost.contains("is of the user \"x\", who does not exist"), "{lost}");
        let time = format!(
            "[[user]]\nname='x'\n[[token]]\nname = 't'\nuser = 'x'\nsha256 = '{SHA}'\nexpires = 'soon'\n"
        );
        assert!(error(&time).starts_with("line 7: expires: \"soon\" is no time"), "{}", error(&time));
        assert!(error("users = 3\n").starts_with("line 1: unknown field `users`"));
        assert!(error("[[user]]\nname = 'a'\nunix = [-1]\n").starts_with("line 3: "));
        let certificate = error("[[user]]\nname = 'a'\ncertificates = ['alice']\n");
        assert!(certificate.contains("line 3: certificates: "), "{certificate}");
    }

    #[test]
    fn a_certificate_of_two_users_is_of_nobody() {
        let text =
            "[[user]]\nname = 'a'\ncertificates = ['CN=x']\n[[user]]\nname = 'b'\ncertificates = ['DNS=y']\n";
        let users = Users::parse(text).unwrap();
        let both: Vec<CertificateName> = vec!["CN=x".parse().unwrap(), "DNS=y".parse().unwrap()];
        assert!(users.of_certificate(&both).is_none());
        assert!(users.of_certificate(&both[..1]).is_some());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "([a-z='\\[\\]\n\" .0-9#]|\\[\\[user\\]\\]\n|name = 'a'\n){0,40}") {
            let _ = Users::parse(&text);
        }
    }
}
