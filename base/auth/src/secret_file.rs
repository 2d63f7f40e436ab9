//! The mode of a file with secrets.

use std::path::{Path, PathBuf};

/// The rights of everybody on the machine.
const OTHERS: u32 = 0o007;

/// Everybody on the machine can read a file with secrets. Its owner is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("everybody on this machine can read it (mode {mode:03o}); run: chmod 640 {}", path.display())]
pub struct ReadableByAll {
    path: PathBuf,
    mode: u32,
}

/// Refuses a file with secrets that others than its owner and its group have a right to. `mode` is that of the opened file, so that it
/// is of what was read.
///
/// ```
/// let refused = access::check_secret_mode("/etc/rbmq/token".as_ref(), 0o100_644).unwrap_err();
/// assert!(refused.to_string().contains("run: chmod 640 /etc/rbmq/token"));
/// ```
///
/// # Errors
/// [`ReadableByAll`], with the command that helps.
pub fn check_secret_mode(path: &Path, mode: u32) -> Result<(), ReadableByAll> {
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(ReadableByAll { path: path.to_owned(), mode: mode & 0o777 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_owner_and_group_may_have_rights() {
        for mode in [0o100_600, 0o640, 0o660, 0o400] {
            assert_eq!(check_secret_mode("f".as_ref(), mode), Ok(()), "{mode:o}");
        }
        for mode in [0o644, 0o604, 0o602, 0o641] {
            let refused = check_secret_mode("f".as_ref(), 0o100_000 | mode).unwrap_err().to_string();
            assert!(refused.contains(&format!("(mode {mode:o})")), "{refused}");
        }
    }
}
