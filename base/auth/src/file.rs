//! The file of users: the permission to read it, and its changes by commands.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use locks::FileLock;
use private_files::GivenFile;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};
use zeroize::Zeroizing;

use crate::names::{NameError, check_name};
use crate::password::PasswordHash;
use crate::token::TokenHash;
use crate::users::{MAX_FILE_BYTES, Users, UsersError};

/// The first lines of a new file.
const HEAD: &str = "\
# The users of an RBMQ broker and their tokens. Commands: rbmq passwd, rbmq token; then SIGHUP to the broker.
# The file must not be readable by everybody.

";

/// The largest key of an issuer in bytes.
const MAX_KEY_BYTES: u64 = 16 << 10;

/// Others can read the file, or the group can write it.
const OTHERS_READ: u32 = 0o027;

/// Others or the group can write the file.
const OTHERS_WRITE: u32 = 0o022;

/// The mode of a new file.
const MODE: u32 = 0o600;

/// A file of users cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersFileError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Too many may read or write the file. Its owner is at fault.
    #[error("{} {problem}; {advice}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The rights of each user.
        problem: String,
        /// The command that helps.
        advice: String,
    },
    /// The text has an error. Its author is at fault.
    #[error("{}, {error}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The line and the problem.
        error: UsersError,
    },
    /// A command wants to change what is not there, or to add what is there already.
    #[error("{}: {problem}", path.display())]
    Change {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Reads a file of users. The file must be small enough, and nobody but its owner and its group may read it.
///
/// # Errors
/// [`UsersFileError`], with the file and what to do.
pub fn read_users(path: &Path) -> Result<Users, UsersFileError> {
    let text = read_text(path)?;
    Users::parse(&text).map_err(|error| UsersFileError::Text { path: path.to_owned(), error })
}

/// Reads the key of an issuer. A secret must be as secret as a file of users.
pub(crate) fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, UsersFileError> {
    let io = |source| UsersFileError::Io { path: path.to_owned(), source };
    let file = GivenFile::open(path).map_err(io)?;
    let metadata = file.metadata().clone();
    let bytes = Zeroizing::new(file.bytes(MAX_KEY_BYTES).map_err(io)?);
    let is_public = bytes.starts_with(b"-----BEGIN PUBLIC KEY-----");
    check_mode(path, &metadata, if is_public { OTHERS_WRITE } else { OTHERS_READ })?;
    Ok(bytes)
}

/// Adds advice to the system's reason why a file of users cannot be opened.
fn with_advice(error: io::Error, path: &Path) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            format!("make it with its first user: rbmq passwd --users {} NAME", path.display())
        }
        io::ErrorKind::PermissionDenied => {
            let we = rustix::process::geteuid().as_raw();
            format!("the Unix user {we} must own it, or be in its group, with mode 640")
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

fn read_text(path: &Path) -> Result<String, UsersFileError> {
    let io = |source| UsersFileError::Io { path: path.to_owned(), source };
    let file = GivenFile::open(path).map_err(|error| io(with_advice(error, path)))?;
    check_mode(path, file.metadata(), OTHERS_READ)?;
    file.text(MAX_FILE_BYTES).map_err(io)
}

/// Refuses a file whose mode has a forbidden right, or whose owner is another user.
fn check_mode(path: &Path, metadata: &Metadata, forbidden: u32) -> Result<(), UsersFileError> {
    let open = |problem: String, advice: String| {
        Err(UsersFileError::Open { path: path.to_owned(), problem, advice })
    };
    if !metadata.is_file() {
        return open("is no file".into(), "name a file".into());
    }
    let (mode, owner, we) = (metadata.mode() & 0o777, metadata.uid(), rustix::process::geteuid().as_raw());
    if mode & forbidden != 0 {
        let problem = format!("has the mode {mode:03o}: others can read or change it");
        return open(problem, format!("run: chmod 600 {}", path.display()));
    }
    if owner != 0 && owner != we {
        let problem = format!("belongs to the Unix user {owner}, who could add users");
        return open(problem, format!("run: chown {we} {}", path.display()));
    }
    Ok(())
}

/// A file of users that a command changes. Comments and order stay. No other command changes it meanwhile.
///
/// ```
/// use access::{PasswordHash, UsersFile};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("users.toml");
/// let mut file = UsersFile::edit(&path)?;
/// file.set_password("alice", &PasswordHash::of(&"hunter2".to_owned().into())?)?;
/// file.save()?;
/// assert!(access::read_users(&path)?.get("alice").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UsersFile {
    path: PathBuf,
    document: DocumentMut,
    /// The metadata of the file before the change. `None`: the file is new.
    before: Option<Metadata>,
    /// The folder, locked.
    lock: FileLock,
}

impl UsersFile {
    /// Opens a file for a change, or begins a new one. Waits for other commands that change a file of the same folder.
    ///
    /// # Errors
    /// As [`read_users`], but a file that does not exist is no error.
    pub fn edit(path: &Path) -> Result<Self, UsersFileError> {
        let io = |source| UsersFileError::Io { path: path.to_owned(), source };
        // A link would be replaced by a file.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let lock = File::open(folder).map_err(io)?;
        let lock = FileLock::exclusive(lock).map_err(io)?;
        let before = std::fs::metadata(&path);
        let (text, before) = match before {
            Ok(metadata) => (read_text(&path)?, Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), None),
            Err(error) => return Err(io(error)),
        };
        let text_error = |error| UsersFileError::Text { path: path.clone(), error };
        Users::parse(&text).map_err(text_error)?;
        let document = text
            .parse::<DocumentMut>()
            .map_err(|error| text_error(UsersError { line: 1, message: error.message().to_owned() }))?;
        Ok(Self { path, document, before, lock })
    }

    /// Whether the file did not exist before.
    pub fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// Gives a user a password, and adds the user if there is none of the name. Returns whether the user is new.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn set_password(&mut self, user: &str, hash: &PasswordHash) -> Result<bool, UsersFileError> {
        check_name(user)?;
        let users = list(&mut self.document, "user");
        let at = position(users, "name", user);
        let table = match at.and_then(|at| users.get_mut(at)) {
            Some(table) => table,
            None => {
                let mut table = Table::new();
                table["name"] = value(user);
                users.push(table);
                let last = users.len() - 1;
                users.get_mut(last).expect("it was added")
            }
        };
        table["password"] = value(hash.to_string());
        Ok(at.is_none())
    }

    /// Removes a user and its tokens. Returns the number of tokens.
    ///
    /// # Errors
    /// The user does not exist.
    pub fn delete_user(&mut self, user: &str) -> Result<usize, UsersFileError> {
        let users = list(&mut self.document, "user");
        let Some(at) = position(users, "name", user) else {
            return Err(self.change(format!("there is no user {user:?}")));
        };
        users.remove(at);
        let (tokens, mut removed) = (list(&mut self.document, "token"), 0);
        while let Some(at) = position(tokens, "user", user) {
            tokens.remove(at);
            removed += 1;
        }
        Ok(removed)
    }

    /// Adds a token of a user.
    ///
    /// # Errors
    /// A name is not valid, there is no such user, or there is a token of the name.
    pub fn add_token(
        &mut self,
        name: &str,
        user: &str,
        hash: &TokenHash,
        created: SystemTime,
        expires: Option<SystemTime>,
    ) -> Result<(), UsersFileError> {
        check_name(name)?;
        if position(list(&mut self.document, "user"), "name", user).is_none() {
            let advice = format!(
                "add it with a password: rbmq passwd {user}, or without one: [[user]] with name = \"{user}\" in the file"
            );
            return Err(self.change(format!("there is no user {user:?}; {advice}")));
        }
        let tokens = list(&mut self.document, "token");
        if position(tokens, "name", name).is_some() {
            return Err(self.change(format!("there is a token {name:?} already; choose another name")));
        }
        let time = |time: SystemTime| value(humantime::format_rfc3339_seconds(time).to_string());
        let mut table = Table::new();
        table["name"] = value(name);
        table["user"] = value(user);
        table["sha256"] = value(hash.to_string());
        table["created"] = time(created);
        if let Some(expires) = expires {
            table["expires"] = time(expires);
        }
        tokens.push(table);
        Ok(())
    }

    /// Removes a token by its name.
    ///
    /// # Errors
    /// The token does not exist.
    pub fn revoke_token(&mut self, name: &str) -> Result<(), UsersFileError> {
        let tokens = list(&mut self.document, "token");
        match position(tokens, "name", name) {
            Some(at) => {
                tokens.remove(at);
                Ok(())
            }
            None => Err(self.change(format!("there is no token {name:?}; see: rbmq token list"))),
        }
    }

    fn change(&self, problem: String) -> UsersFileError {
        UsersFileError::Change { path: self.path.clone(), problem }
    }

    /// Writes the file: another one next to it, which then takes its place. A reader sees the old file or the new one. Owner and
    /// mode stay; a new file can be read by its owner only.
    ///
    /// # Errors
    /// The system refuses, or the result would have an error. The old file stays.
    pub fn save(self) -> Result<(), UsersFileError> {
        let head = if self.is_new() { HEAD } else { "" };
        let text = format!("{head}{}", self.document);
        Users::parse(&text).map_err(|error| UsersFileError::Text { path: self.path.clone(), error })?;
        self.write(&text).map_err(|source| UsersFileError::Io { path: self.path.clone(), source })
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = self.path.with_file_name(name);
        // The file is left from a command that was killed. The folder is locked, so no command writes it now.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
        if let Some(before) = &self.before {
            let us = file.metadata()?;
            if (us.uid(), us.gid()) != (before.uid(), before.gid()) {
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
            file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        self.lock.file().sync_all()
    }
}

/// The tables of a name, empty at first.
fn list<'a>(document: &'a mut DocumentMut, name: &str) -> &'a mut ArrayOfTables {
    let item = document.entry(name).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    if item.as_array_of_tables().is_none() {
        // `user = []`, or tables in one line: the file was parsed, so nothing else is possible.
        let tables = std::mem::take(item).into_array_of_tables().unwrap_or_default();
        *item = Item::ArrayOfTables(tables);
    }
    item.as_array_of_tables_mut().expect("it was made one")
}

fn position(tables: &ArrayOfTables, field: &str, wanted: &str) -> Option<usize> {
    tables.iter().position(|table| table.get(field).and_then(Item::as_str) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash() -> PasswordHash {
        "$argon2id$v=19$m=8192,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA".parse().unwrap()
    }

    fn sha(digit: &str) -> TokenHash {
        digit.repeat(64).parse().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn commands_change_a_file_and_keep_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        let mut file = UsersFile::edit(&path).unwrap();
        assert!(file.is_new() && file.set_password("alice", &hash()).unwrap());
        file.save().unwrap();
        assert_eq!(mode(&path), 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# The users of an RBMQ broker"), "{text}");
        std::fs::write(&path, format!("{text}roles = ['r'] # mine\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();

        let mut file = UsersFile::edit(&path).unwrap();
        assert!(!file.set_password("alice", &hash()).unwrap());
        assert!(file.set_password("bob", &hash()).unwrap());
        let epoch = SystemTime::UNIX_EPOCH;
        file.add_token("one", "bob", &sha("a"), epoch, Some(epoch)).unwrap();
        file.add_token("two", "bob", &sha("b"), epoch, None).unwrap();
        assert!(file.add_token("two", "bob", &sha("c"), epoch, Some(epoch)).is_err());
        assert!(file.add_token("three", "eve", &sha("c"), epoch, Some(epoch)).is_err());
        assert!(file.set_password("a/b", &hash()).is_err());
        file.save().unwrap();
        assert_eq!(mode(&path), 0o640);
        assert!(std::fs::read_to_string(&path).unwrap().contains("roles = ['r'] # mine"));
        let users = read_users(&path).unwrap();
        assert_eq!(users.get("alice").unwrap().roles, ["r"]);
        assert_eq!(users.tokens().iter().map(|token| &*token.name).collect::<Vec<_>>(), ["one", "two"]);

        let mut file = UsersFile::edit(&path).unwrap();
        file.revoke_token("one").unwrap();
        assert!(file.revoke_token("one").unwrap_err().to_string().contains("there is no token \"one\""));
        assert_eq!(file.delete_user("bob").unwrap(), 1);
        assert!(file.delete_user("bob").is_err());
        file.save().unwrap();
        let users = read_users(&path).unwrap();
        assert_eq!((users.len(), users.tokens().len()), (1, 0));
    }

    #[test]
    fn a_file_of_tables_in_one_line_is_changed_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        std::fs::write(&path, "user = [{ name = 'a' }]\ntoken = []\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut file = UsersFile::edit(&path).unwrap();
        assert!(file.set_password("b", &hash()).unwrap());
        file.save().unwrap();
        assert_eq!(read_users(&path).unwrap().len(), 2);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        std::fs::write(&path, "[[user]]\nname = 'a'\n").unwrap();
        for bad in [0o644, 0o604, 0o660, 0o602, 0o777] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bad)).unwrap();
            let error = read_users(&path).unwrap_err().to_string();
            assert!(
                error.contains(&format!("has the mode {bad:03o}")) && error.contains("chmod 600"),
                "{error}"
            );
        }
        for good in [0o600, 0o640, 0o400] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(good)).unwrap();
            assert_eq!(read_users(&path).unwrap().len(), 1);
        }
        assert!(read_users(dir.path()).unwrap_err().to_string().contains("is no file"));
        let missing = read_users(&dir.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("make it with its first user: rbmq passwd --users "), "{missing}");
    }

    #[test]
    fn a_damaged_file_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        std::fs::write(&path, "[[user]]\nnam = 'a'\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = UsersFile::edit(&path).err().unwrap().to_string();
        assert!(error.contains("users.toml, line 2: unknown field"), "{error}");
    }

    #[test]
    fn commands_at_the_same_time_lose_no_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let mut file = UsersFile::edit(path).unwrap();
                    file.set_password(&format!("u{n}"), &hash()).unwrap();
                    file.save().unwrap();
                });
            }
        });
        assert_eq!(read_users(&path).unwrap().len(), 8);
    }
}
