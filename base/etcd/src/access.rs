//! How a program reaches its etcd, as the section `[cluster]` of its configuration says.

use std::path::Path;
use std::time::Duration;

use peers::Secret;

use super::client::ClientSettings;
use super::endpoint::Endpoint;

/// The longest name of a member or of a cluster, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The largest file with a password, in bytes.
const MAX_PASSWORD_FILE: u64 = 4096;

/// Whether a text can be the name of a cluster or of a member: 1 to 128 bytes without `/`, blanks and control characters.
///
/// ```
/// # use etcd::is_name;
/// assert!(is_name("plant-1") && is_name("10.0.0.1:7411"));
/// assert!(!is_name("") && !is_name("a/b") && !is_name("a b"));
/// ```
pub fn is_name(text: &str) -> bool {
    let legal = |c: char| c != '/' && !c.is_whitespace() && !c.is_control();
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(legal)
}

/// A text that no other running system has: its boot and its name.
pub fn running_system() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    format!("{} {}", read("/proc/sys/kernel/random/boot_id"), read("/proc/sys/kernel/hostname"))
}

/// The part of the section `[cluster]` that is about etcd. An empty text stands for a value that the section does not have.
#[derive(Debug, Clone, Default)]
pub struct Access<'a> {
    /// The addresses: `cluster.etcd`.
    pub etcd: &'a [String],
    /// The user: `cluster.user`.
    pub user: &'a str,
    /// The file whose first line is the user's password: `cluster.password_file`.
    pub password_file: &'a str,
    /// The file with the authorities: `cluster.ca`.
    pub ca: &'a str,
    /// The file with the own certificate: `cluster.cert`.
    pub cert: &'a str,
    /// The file with its key: `cluster.key`.
    pub key: &'a str,
    /// How long a lease lasts: `cluster.ttl_ms`.
    pub ttl: Duration,
}

impl Access<'_> {
    /// How a client reaches etcd. `password_of` reads the password, as [`password_in`] does.
    ///
    /// # Errors
    /// An address, a certificate or a password cannot be used; the text names the setting.
    pub fn client<E: From<String>>(
        &self,
        password_of: impl FnOnce(&Path) -> Result<Secret, E>,
    ) -> Result<ClientSettings, E> {
        let endpoints = self.etcd.iter().map(|url| url.parse::<Endpoint>());
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>();
        let endpoints = endpoints.map_err(|error| format!("cluster.etcd: {error}"))?;
        if endpoints.is_empty() {
            return Err("cluster.etcd: there is no address".to_owned().into());
        }
        let is_encrypted = endpoints.iter().any(|endpoint| endpoint.encrypted);
        let tls = if is_encrypted { Some(self.tls()?) } else { None };
        let login = match self.has_login(&endpoints)? {
            true => Some((self.user.to_owned(), password_of(Path::new(self.password_file))?)),
            false => None,
        };
        // All endpoints together have the time until the next renewal of the lease.
        let part = self.ttl / 3 / endpoints.len() as u32;
        let timeout = part.clamp(Duration::from_millis(200), Duration::from_secs(2));
        Ok(ClientSettings { endpoints, tls, login, timeout })
    }

    /// Whether every etcd is on this machine.
    pub fn is_local(&self) -> bool {
        self.etcd.iter().all(|url| url.parse::<Endpoint>().is_ok_and(|at| at.is_local()))
    }

    /// Whether etcd asks for a password, which must not be read on the way.
    fn has_login(&self, endpoints: &[Endpoint]) -> Result<bool, String> {
        let is_open = |at: &&Endpoint| !(at.encrypted || at.is_local());
        match endpoints.iter().find(is_open).filter(|_| !self.user.is_empty()) {
            Some(open) => Err(format!(
                "cluster.etcd: no password is sent without encryption to another machine: use https, not {open}"
            )),
            None => Ok(!self.user.is_empty()),
        }
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Result<std::sync::Arc<super::ClientConfig>, String> {
        let file = |path: &str| (!path.is_empty()).then(|| path.into());
        let names = tls13::SettingNames {
            cert: "cluster.cert",
            key: "cluster.key",
            ca: "cluster.ca",
            ..tls13::SettingNames::TLS
        };
        let (cert, key, ca) = (file(self.cert), file(self.key), file(self.ca));
        let credentials = tls13::Credentials { cert, key, ca, names, ..tls13::Credentials::default() };
        credentials.client().map_err(|error| error.to_string())
    }

    #[cfg(not(feature = "tls"))]
    fn tls(&self) -> Result<std::sync::Arc<super::ClientConfig>, String> {
        Err("cluster.etcd: this program was built without TLS, and can use http:// alone".into())
    }
}

/// The first line of a file that only its user can read.
///
/// # Errors
/// The file cannot be read, or its first line is empty.
pub fn password_in(path: &Path) -> Result<Secret, String> {
    let wrong = |why: String| format!("cluster.password_file: {}: {why}", path.display());
    let file = private_files::GivenFile::open(path).and_then(|file| file.text(MAX_PASSWORD_FILE));
    let text = Secret::from(file.map_err(|error| wrong(error.to_string()))?);
    match text.expose().lines().next() {
        Some(line) if !line.is_empty() => Ok(Secret::from(line.to_owned())),
        _ => Err(wrong("its first line is empty".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_goes_to_no_other_machine_in_the_clear() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "secret\nmore\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let (path, ttl) = (path.display().to_string(), Duration::from_secs(10));
        let of = |etcd: &str, path: &str| {
            let etcd = [etcd.to_owned()];
            Access { etcd: &etcd, user: "live", password_file: path, ttl, ..Access::default() }
                .client(password_in)
        };
        let Err(text) = of("http://10.0.0.9", &path) else { panic!("it is sent") };
        assert!(text.contains("use https, not http://10.0.0.9:2379"), "{text}");
        let (user, password) = of("http://127.0.0.1", &path).unwrap().login.unwrap();
        assert_eq!((user.as_str(), password.expose()), ("live", "secret"));
        assert!(of("http://127.0.0.1", "/nowhere").is_err_and(|text| text.contains("/nowhere")));
        assert!(
            of("10.0.0.9", "").is_err_and(|text| text.contains("cluster.etcd: \"10.0.0.9\" is no address"))
        );
    }
}
