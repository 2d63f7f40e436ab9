//! Authentication: which user a client is.
//!
//! ```text
//!   credentials, peer ──▶ begin ──▶ Step::Done     at once: token, certificate, Unix user, a proof, nothing
//!                              └──▶ Step::Check ──▶ run: milliseconds and megabytes; on a thread of its own
//! ```
//!
//! Only the presented credentials decide: a client with a wrong password is refused even if its certificate is valid.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use locks::{Mutex, MutexGuard};
use peers::{Credentials, Secret};

use crate::attempts::{AttemptRule, Attempts, Source};
use crate::certificate::CertificateName;
use crate::file::{UsersFileError, read_users};
use crate::identity::{Identity, Method};
use crate::jwt::{Claims, Jwt, JwtKeyError, JwtOptions};
use crate::login::{Basis, CutOff, Login, Refused};
use crate::password::PasswordHash;
use crate::proofs::{ProofKey, Proofs};
use crate::token::{NoRandomNumbers, TOKEN_PREFIX, TokenHash};
use crate::users::{User, Users};

/// The sources of users, and how logins are checked.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// The file of users. `None`: there are no users, and every client is anonymous.
    pub users: Option<PathBuf>,
    /// The issuer whose tokens (JWT) are accepted. With an issuer, clients have to log in even if there is no file.
    pub jwt: Option<JwtOptions>,
    /// The time after a successful check for which a password is not checked again. Zero: it is checked every time.
    pub password_cache: Duration,
}

/// The properties of a client besides its credentials.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Where the client comes from.
    pub source: Source,
    /// Its certificate in DER, which the TLS connection has checked.
    pub certificate: Option<Arc<[u8]>>,
    /// The number of its Unix user, from the system.
    pub uid: Option<u32>,
}

/// The users of a broker, with its memory of failed and successful logins. A clone is another handle of the same state.
#[derive(Clone)]
pub struct Authenticator {
    users: Option<Arc<Users>>,
    jwt: Option<Arc<Jwt>>,
    /// The hash of a password that nobody has. Its check costs as much as the most expensive one of the file, so that the time of a check
    /// does not reveal whether a user exists.
    decoy: PasswordHash,
    memory: Arc<Memory>,
}

/// The parts that stay when users are read again.
struct Memory {
    key: ProofKey,
    state: Mutex<State>,
}

struct State {
    attempts: Attempts,
    proofs: Proofs,
}

/// The first step of a login.
pub enum Step {
    /// The login is decided.
    Done(Result<Login, Refused>),
    /// A password or a signature has to be checked. [`Check::run`] takes time and memory.
    Check(Check),
}

/// The check of a password, or of the token of an issuer.
pub struct Check {
    authenticator: Authenticator,
    work: Work,
    source: Source,
}

enum Work {
    /// `counted`: the attempt counts as failed already.
    Password {
        user: String,
        password: Secret,
        counted: bool,
    },
    Jwt(Secret),
}

/// The users cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file of users.
    #[error(transparent)]
    Users(#[from] UsersFileError),
    /// The key of an issuer.
    #[error(transparent)]
    Jwt(#[from] JwtKeyError),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] NoRandomNumbers),
}

impl Memory {
    fn new(rule: AttemptRule, password_cache: Duration) -> Result<Arc<Self>, NoRandomNumbers> {
        let state = State { attempts: Attempts::new(rule), proofs: Proofs::new(password_cache) };
        Ok(Arc::new(Self { key: ProofKey::new()?, state: Mutex::new(state) }))
    }
}

impl Authenticator {
    /// Reads the users.
    ///
    /// # Errors
    /// The file cannot be read, may be read by everybody, or has an error.
    pub fn open(options: &AccessOptions) -> Result<Self, AccessError> {
        let memory = Memory::new(AttemptRule::default(), options.password_cache)?;
        Self { users: None, jwt: None, decoy: PasswordHash::default_decoy(), memory }.reopen(options)
    }

    /// An authenticator of users that do not come from a file. `password_cache` as in [`AccessOptions`].
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn of(users: Users, rule: AttemptRule, password_cache: Duration) -> Result<Self, NoRandomNumbers> {
        let memory = Memory::new(rule, password_cache)?;
        Ok(Self { decoy: decoy(Some(&users)), users: Some(Arc::new(users)), jwt: None, memory })
    }

    /// Reads the users again, and keeps what is remembered of logins. After an error the old users stay in force.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reopen(&self, options: &AccessOptions) -> Result<Self, AccessError> {
        let users = options.users.as_deref().map(read_users).transpose()?;
        let jwt = options.jwt.as_ref().map(Jwt::open).transpose()?.map(Arc::new);
        let users = users.or_else(|| jwt.is_some().then(Users::default)).map(Arc::new);
        self.state().proofs.set_lifetime(options.password_cache);
        Ok(Self { decoy: decoy(users.as_deref()), users, jwt, memory: self.memory.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.memory.state.lock()
    }

    /// Whether clients have to log in.
    pub fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// The users; none if every client is anonymous.
    pub fn users(&self) -> Option<&Users> {
        self.users.as_deref()
    }

    /// A user by its name alone, with its present roles, for what was asked for in an earlier login. A name that is not in the list may be of a token of another
    /// issuer, if those are let in, and has no roles. None: there is no such user, or not any more.
    pub fn identity_of(&self, user: &str) -> Option<Identity> {
        let Some(users) = &self.users else { return Some(Identity::anonymous()) };
        match users.get(user) {
            Some(known) => {
                let (user, roles) = (known.name.clone(), known.roles.clone());
                Some(Identity { user, roles, method: Method::Password })
            }
            None => {
                let is_foreign = self.jwt.is_some() && !user.is_empty();
                is_foreign.then(|| Identity { user: user.to_owned(), roles: Vec::new(), method: Method::Jwt })
            }
        }
    }

    /// The login with a password that was right a short time ago. Costs nothing, and is no attempt.
    pub fn remembered(&self, credentials: &Credentials) -> Option<Login> {
        let Credentials::Password { user, password } = credentials else { return None };
        let known = self.users.as_ref()?.get(user)?;
        let hash = known.password.as_ref()?;
        let proof = self.memory.key.proof(&[user, password.expose(), &hash.to_string()]);
        self.state().proofs.contains(proof, Instant::now()).then(|| by_password(known, hash))
    }

    /// How long a source still has to wait after failed logins; none if it need not.
    pub fn delay(&self, source: Source) -> Option<Duration> {
        self.state().attempts.delay(source, Instant::now())
    }

    /// Counts a failed attempt that was made elsewhere, of the user who was named.
    pub fn failed(&self, source: Source, user: Option<&str>) {
        self.state().attempts.failed(source, user, Instant::now());
    }

    /// Begins a login. Returns at once.
    pub fn begin(&self, credentials: Credentials, peer: &Peer) -> Step {
        let Some(users) = &self.users else { return Step::Done(Ok(Login::anonymous())) };
        if let Some(login) = self.remembered(&credentials) {
            return Step::Done(Ok(login));
        }
        let (now, time) = (Instant::now(), SystemTime::now());
        let (user, password) = match credentials {
            Credentials::Password { user, password } => (user, password),
            Credentials::Token(token) if self.jwt.is_some() && !token.expose().starts_with(TOKEN_PREFIX) => {
                return Step::Check(self.check(Work::Jwt(token), peer));
            }
            Credentials::Token(token) => return self.done(of_token(users, &token, time), peer, now),
            _ => return self.done(of_connection(users, peer), peer, now),
        };
        let mut state = self.state();
        if let Some(wait) = state.attempts.delay(peer.source, now) {
            return Step::Done(Err(Refused::TooManyAttempts { wait }));
        }
        // The attempt of a source that has guessed before counts as failed until its password proves right, so that the source has one
        // attempt at a time. Other sources may begin many logins at once.
        let counted = state.attempts.is_suspect(peer.source);
        if counted {
            state.attempts.failed(peer.source, Some(&user), now);
        }
        drop(state);
        Step::Check(self.check(Work::Password { user, password, counted }, peer))
    }

    /// The login of a connection without credentials: by its certificate, or else by its Unix user. A refusal is not counted as a failed
    /// attempt, since neither can be guessed.
    ///
    /// # Errors
    /// [`Refused`], for the log.
    pub fn of_connection(&self, peer: &Peer) -> Result<Login, Refused> {
        self.users.as_ref().map_or_else(|| Ok(Login::anonymous()), |users| of_connection(users, peer))
    }

    fn check(&self, work: Work, peer: &Peer) -> Check {
        Check { authenticator: self.clone(), work, source: peer.source }
    }

    /// Ends a login that needs no check. A client without credentials has guessed nothing, so its refusal is not counted as a failure.
    fn done(&self, login: Result<Login, Refused>, peer: &Peer, now: Instant) -> Step {
        if login.as_ref().is_err_and(|refused| *refused != Refused::NoCredentials) {
            self.state().attempts.failed(peer.source, None, now);
        }
        Step::Done(login)
    }

    /// Checks a login again, because the users were read again or its time has come. Returns it with the present roles.
    ///
    /// # Errors
    /// The login has ended: cut the client off.
    pub fn look_again(&self, login: &Login, now: SystemTime) -> Result<Login, CutOff> {
        if login.expires.is_some_and(|end| end <= now) {
            return Err(CutOff::Expired);
        }
        let Some(users) = &self.users else { return Ok(login.clone()) };
        let name = &login.identity.user;
        let known = || users.get(name).ok_or(CutOff::Removed);
        match &login.basis {
            Basis::Open => Err(CutOff::NowAuthenticated),
            Basis::Password(before) => {
                let known = known()?;
                let hash = known.password.as_ref().filter(|hash| hash.to_string() == *before);
                hash.map(|hash| by_password(known, hash)).ok_or(CutOff::PasswordChanged)
            }
            Basis::Token(hash) => {
                let known = known()?;
                let token = users.token(hash).filter(|token| token.user == *name).ok_or(CutOff::Revoked)?;
                if token.expires.is_some_and(|end| end <= now) {
                    return Err(CutOff::Expired);
                }
                Ok(login_of(known, Method::Token, Basis::Token(*hash), token.expires))
            }
            Basis::Jwt(trust) => match &self.jwt {
                Some(jwt) if jwt.fingerprint() == *trust => Ok(login.clone()),
                _ => Err(CutOff::IssuerRemoved),
            },
            Basis::Certificate(names) => match users.of_certificate(names) {
                Some((user, _)) if user.name == *name => {
                    Ok(login_of(user, Method::Certificate, login.basis.clone(), None))
                }
                _ => Err(CutOff::Unmapped),
            },
            Basis::Unix(uid) => match users.of_uid(*uid) {
                Some(user) if user.name == *name => {
                    Ok(login_of(user, Method::Unix, login.basis.clone(), None))
                }
                _ => Err(CutOff::Unmapped),
            },
        }
    }
}

impl Check {
    /// Checks the password or the signature. The check of a password takes the same time and memory whether the user exists or not. Call
    /// this on a thread that may wait.
    ///
    /// # Errors
    /// [`Refused`], for the log.
    pub fn run(self) -> Result<Login, Refused> {
        let Self { authenticator, work, source } = self;
        match work {
            Work::Password { user, password, counted } => {
                authenticator.check_password(user, &password, source, counted)
            }
            Work::Jwt(token) => authenticator.check_jwt(&token, source),
        }
    }
}

impl Authenticator {
    fn check_jwt(&self, token: &Secret, source: Source) -> Result<Login, Refused> {
        let jwt = self.jwt.as_ref().ok_or(Refused::UnknownToken)?;
        match jwt.check(token, SystemTime::now()) {
            Ok(Claims { user, roles, expires }) => {
                let identity = Arc::new(Identity { user, roles, method: Method::Jwt });
                Ok(Login { identity, expires: Some(expires), basis: Basis::Jwt(jwt.fingerprint()) })
            }
            Err(why) => {
                self.state().attempts.failed(source, None, Instant::now());
                Err(Refused::Jwt { why })
            }
        }
    }

    /// `counted`: the attempt counts as failed already.
    fn check_password(
        &self,
        user: String,
        password: &Secret,
        source: Source,
        counted: bool,
    ) -> Result<Login, Refused> {
        let users = self.users.as_deref();
        let known = users.and_then(|users| users.get(&user));
        let hash = known.and_then(|known| known.password.as_ref());
        let is_right = hash.unwrap_or(&self.decoy).verify(password);
        let (Some(known), Some(hash), true) = (known, hash, is_right) else {
            if !counted {
                self.state().attempts.failed(source, Some(&user), Instant::now());
            }
            return Err(match known {
                Some(_) => Refused::WrongPassword { user },
                None => Refused::UnknownUser { user },
            });
        };
        let proof = self.memory.key.proof(&[&user, password.expose(), &hash.to_string()]);
        let mut state = self.state();
        state.attempts.succeeded(source, &user, counted);
        state.proofs.insert(proof, Instant::now());
        Ok(by_password(known, hash))
    }
}

/// A password that nobody has, as dear as the dearest of these users.
fn decoy(users: Option<&Users>) -> PasswordHash {
    let dearest = users.and_then(Users::dearest_password);
    dearest.map_or_else(PasswordHash::default_decoy, PasswordHash::decoy)
}

fn login_of(user: &User, method: Method, basis: Basis, expires: Option<SystemTime>) -> Login {
    let identity = Identity { user: user.name.clone(), roles: user.roles.clone(), method };
    Login { identity: Arc::new(identity), expires, basis }
}

fn by_password(user: &User, hash: &PasswordHash) -> Login {
    login_of(user, Method::Password, Basis::Password(hash.to_string()), None)
}

fn of_token(users: &Users, token: &Secret, now: SystemTime) -> Result<Login, Refused> {
    if !token.expose().starts_with(TOKEN_PREFIX) {
        return Err(Refused::UnknownToken);
    }
    let hash = TokenHash::of(token);
    let token = users.token(&hash).ok_or(Refused::UnknownToken)?;
    if token.expires.is_some_and(|end| end <= now) {
        return Err(Refused::ExpiredToken { name: token.name.clone(), user: token.user.clone() });
    }
    let user = users.get(&token.user).ok_or(Refused::UnknownToken)?;
    Ok(login_of(user, Method::Token, Basis::Token(hash), token.expires))
}

/// The user of a connection without credentials: by its certificate, or else by its Unix user.
fn of_connection(users: &Users, peer: &Peer) -> Result<Login, Refused> {
    if let Some(der) = &peer.certificate {
        let names = CertificateName::of_der(der);
        let Some((user, _)) = users.of_certificate(&names) else {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            return Err(Refused::UnknownCertificate { names: names.join(", ") });
        };
        return Ok(login_of(user, Method::Certificate, Basis::Certificate(names), None));
    }
    let Some(uid) = peer.uid else { return Err(Refused::NoCredentials) };
    match users.of_uid(uid) {
        Some(user) => Ok(login_of(user, Method::Unix, Basis::Unix(uid), None)),
        None => Err(Refused::UnknownUnixUser { uid }),
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users = self.users.as_ref().map(|users| users.len());
        f.debug_struct("Authenticator").field("users", &users).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The hash of "pass", cheap to check.
    fn cheap() -> String {
        let params = argon2::Params::new(8192, 1, 1, Some(32)).unwrap();
        let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let mut hash = [0; 32];
        argon2.hash_password_into(b"pass", b"somesalt12345678", &mut hash).unwrap();
        let encode = |bytes: &[u8]| data_encoding::BASE64_NOPAD.encode(bytes);
        format!("$argon2id$v=19$m=8192,t=1,p=1${}${}", encode(b"somesalt12345678"), encode(&hash))
    }

    struct Fixture {
        dir: tempfile::TempDir,
        options: AccessOptions,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let users = Some(dir.path().join("users.toml"));
            let options = AccessOptions { users, jwt: None, password_cache: Duration::from_secs(60) };
            let fixture = Self { dir, options };
            fixture.write(&format!("[[user]]\nname = 'alice'\npassword = '{}'\nunix = [7]\n", cheap()));
            fixture
        }

        fn write(&self, text: &str) {
            let path = self.dir.path().join("users.toml");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn open(&self) -> Authenticator {
            Authenticator::open(&self.options).unwrap()
        }
    }

    fn peer(n: u32) -> Peer {
        Peer { source: Source::Unix(n), certificate: None, uid: None }
    }

    fn password(user: &str, password: &str) -> Credentials {
        Credentials::password(user, Secret::from(password.to_owned())).unwrap()
    }

    fn finish(step: Step) -> Result<Login, Refused> {
        match step {
            Step::Done(login) => login,
            Step::Check(check) => check.run(),
        }
    }

    #[test]
    fn a_password_is_checked_once_in_a_while() {
        let (fixture, right) = (Fixture::new(), || password("alice", "pass"));
        let authenticator = fixture.open();
        assert_eq!(finish(authenticator.begin(right(), &peer(1))).unwrap().identity.user, "alice");
        assert!(matches!(authenticator.begin(right(), &peer(2)), Step::Done(Ok(_))));
        assert!(matches!(authenticator.begin(password("alice", "Pass"), &peer(2)), Step::Check(_)));
        // With another hash the proof is of no use, and without a cache there is none.
        fixture.write("[[user]]\nname = 'alice'\n");
        let changed = authenticator.reopen(&fixture.options).unwrap();
        assert!(matches!(changed.begin(right(), &peer(2)), Step::Check(_)));
        let never = AccessOptions { password_cache: Duration::ZERO, ..fixture.options.clone() };
        fixture.write(&format!("[[user]]\nname = 'alice'\npassword = '{}'\n", cheap()));
        let without = authenticator.reopen(&never).unwrap();
        assert!(matches!(without.begin(right(), &peer(2)), Step::Check(_)));
    }

    #[test]
    fn many_may_begin_at_once_and_who_guesses_waits() {
        let authenticator = Fixture::new().open();
        let steps: Vec<Step> =
            (0..50).map(|_| authenticator.begin(password("alice", "pass"), &peer(1))).collect();
        assert!(steps.into_iter().all(|step| finish(step).is_ok()));
        for _ in 0..4 {
            let refused = finish(authenticator.begin(password("alice", "guess"), &peer(2)));
            assert!(matches!(refused, Err(Refused::WrongPassword { .. })));
        }
        let waits = finish(authenticator.begin(password("eve", "guess"), &peer(2))).unwrap_err();
        assert!(matches!(waits, Refused::TooManyAttempts { .. }), "{waits}");
        let unknown = finish(authenticator.begin(password("eve", "guess"), &peer(3))).unwrap_err();
        assert_eq!(unknown, Refused::UnknownUser { user: "eve".into() });
        assert_eq!(unknown.for_client(), Refused::NoCredentials.for_client());
    }

    /// Without the memory of right passwords every login of the guesser is checked.
    #[test]
    fn the_own_password_of_a_guesser_does_not_end_the_delay() {
        let fixture = Fixture::new();
        let user = |name: &str| format!("[[user]]\nname = '{name}'\npassword = '{}'\n", cheap());
        fixture.write(&(user("alice") + &user("bob")));
        let options = AccessOptions { password_cache: Duration::ZERO, ..fixture.options.clone() };
        let authenticator = Authenticator::open(&options).unwrap();
        let guess = || finish(authenticator.begin(password("alice", "guess"), &peer(1)));
        for _ in 0..3 {
            assert!(matches!(guess(), Err(Refused::WrongPassword { .. })));
        }
        assert!(finish(authenticator.begin(password("bob", "pass"), &peer(1))).is_ok());
        assert!(matches!(guess(), Err(Refused::WrongPassword { .. })));
        assert!(matches!(guess(), Err(Refused::TooManyAttempts { .. })));
    }

    #[test]
    fn what_is_presented_decides_alone() {
        let authenticator = Fixture::new().open();
        let local = Peer { uid: Some(7), ..peer(1) };
        let login = finish(authenticator.begin(Credentials::None, &local)).unwrap();
        assert_eq!((&*login.identity.user, login.identity.method), ("alice", Method::Unix));
        assert!(finish(authenticator.begin(password("alice", "guess"), &local)).is_err());
        let other = Peer { uid: Some(8), ..peer(1) };
        let refused = finish(authenticator.begin(Credentials::None, &other)).unwrap_err();
        assert_eq!(refused, Refused::UnknownUnixUser { uid: 8 });
        let nonsense = Peer { certificate: Some(Arc::from(&b"no certificate"[..])), ..local };
        assert!(finish(authenticator.begin(Credentials::None, &nonsense)).is_err());
    }

    #[test]
    fn a_login_ends_with_what_it_is_based_on() {
        let fixture = Fixture::new();
        let before = fixture.open();
        let now = SystemTime::now();
        let login = finish(before.begin(password("alice", "pass"), &peer(1))).unwrap();
        let local = finish(before.begin(Credentials::None, &Peer { uid: Some(7), ..peer(1) })).unwrap();
        let anonymous = Login::anonymous();
        fixture.write(&format!(
            "[[user]]\nname = 'alice'\npassword = '{}'\nroles = ['r']\nunix = [7]\n",
            cheap()
        ));
        let after = before.reopen(&fixture.options).unwrap();
        assert_eq!(after.look_again(&login, now).unwrap().identity.roles, ["r"]);
        assert_eq!(after.look_again(&local, now).unwrap().identity.roles, ["r"]);
        assert_eq!(after.look_again(&anonymous, now).unwrap_err(), CutOff::NowAuthenticated);
        fixture.write("[[user]]\nname = 'alice'\n[[user]]\nname = 'bob'\nunix = [7]\n");
        let after = before.reopen(&fixture.options).unwrap();
        assert_eq!(after.look_again(&login, now).unwrap_err(), CutOff::PasswordChanged);
        assert_eq!(after.look_again(&local, now).unwrap_err(), CutOff::Unmapped);
        fixture.write("");
        let after = before.reopen(&fixture.options).unwrap();
        assert_eq!(after.look_again(&login, now).unwrap_err(), CutOff::Removed);
        let open = before.reopen(&AccessOptions::default()).unwrap();
        assert!(open.look_again(&login, now).is_ok() && open.look_again(&anonymous, now).is_ok());
    }
}
