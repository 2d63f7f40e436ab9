//! The access key. It is never printed.

use std::path::{Path, PathBuf};

use access::check_secret_mode;
use private_files::GivenFile;
use zeroize::Zeroizing;

use super::error::S3Error;

/// The largest file. Tokens of sessions have some hundred bytes, and may have more.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// An access key.
pub(crate) struct Keys {
    /// The public name of the key.
    pub(crate) id: String,
    pub(crate) secret: Zeroizing<String>,
    /// The token of a key that is valid for some hours.
    pub(crate) token: Option<Zeroizing<String>>,
}

/// Where the key is.
pub(crate) enum KeySource {
    File(PathBuf),
    Variables,
}

impl KeySource {
    /// The source that the settings name.
    pub(crate) fn new(file: &str) -> Self {
        if file.is_empty() { Self::Variables } else { Self::File(file.into()) }
    }

    /// Reads the key.
    ///
    /// # Errors
    /// There is none, or others can read it.
    pub(crate) fn read(&self) -> Result<Keys, S3Error> {
        match self {
            Self::File(path) => of_file(path),
            Self::Variables => of_variables(|name| std::env::var(name).ok()),
        }
    }
}

fn of_file(path: &Path) -> Result<Keys, S3Error> {
    let failed = |source| S3Error::File { path: path.to_owned(), source };
    let file = GivenFile::open(path).map_err(failed)?;
    check_secret_mode(path, file.mode())?;
    let text = Zeroizing::new(file.text(MAX_FILE_BYTES).map_err(failed)?);
    let mut lines = text.lines().map(str::trim);
    let mut next = || lines.next().unwrap_or_default();
    checked(next(), next(), next()).ok_or_else(|| S3Error::Keys(path.display().to_string()))
}

fn of_variables(get: impl Fn(&str) -> Option<String>) -> Result<Keys, S3Error> {
    let get = |name| Zeroizing::new(get(name).unwrap_or_default());
    let (id, secret) = (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"));
    if id.is_empty() && secret.is_empty() {
        return Err(S3Error::NoKeys);
    }
    checked(&id, &secret, &get("AWS_SESSION_TOKEN")).ok_or_else(|| S3Error::Keys("the environment".into()))
}

fn checked(id: &str, secret: &str, token: &str) -> Option<Keys> {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if id.is_empty() || secret.is_empty() || ![id, secret, token].into_iter().all(is_word) {
        return None;
    }
    let secret = Zeroizing::new(secret.to_owned());
    Some(Keys {
        id: id.to_owned(),
        secret,
        token: (!token.is_empty()).then(|| Zeroizing::new(token.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_come_from_a_file_or_from_variables() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            KeySource::new(path.to_str().unwrap()).read().map_err(|error| error.to_string())
        };
        let keys = read("AKID\r\nsecret/+=\n\n", 0o600).unwrap();
        assert_eq!((&*keys.id, &**keys.secret, keys.token.is_none()), ("AKID", "secret/+=", true));
        assert_eq!(&**read("a\nb\nc", 0o640).unwrap().token.unwrap(), "c");
        for (text, mode, reason) in [
            ("AKID\n", 0o600, "has no access key"),
            ("a b\nc", 0o600, "has no access key"),
            ("a\nsecret", 0o644, "644"),
        ] {
            let Err(error) = read(text, mode) else { panic!("{text}") };
            assert!(error.contains(reason) && !error.contains("secret\n"), "{error}");
        }
        let named = |name: &str| (name != "AWS_SESSION_TOKEN").then(|| name.to_lowercase());
        assert_eq!(of_variables(named).unwrap().id, "aws_access_key_id");
        assert!(matches!(of_variables(|_| None), Err(S3Error::NoKeys)));
        assert!(matches!(of_variables(|_| Some("a b".into())), Err(S3Error::Keys(_))));
    }
}
