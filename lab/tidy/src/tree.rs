//! The files of the repository on disk, without build outputs.

use std::path::{Path, PathBuf};

/// Names of build outputs, downloads, and the files of git (in a work tree `.git` is a file).
const NOT_OURS: [&str; 4] = ["target", ".git", "artifacts", "out"];

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct File {
    /// Relative to the root of the repository, with `/`.
    pub path: String,
    /// The contents.
    pub text: String,
}

impl File {
    /// True for a Rust source file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True for a script: a file in `scripts/`, or with an interpreter in its first line.
    pub fn is_script(&self) -> bool {
        self.path.starts_with("scripts/") || self.text.starts_with("#!")
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("lab/tidy is two folders deep").into()
}

/// Every text file, sorted by path. Binary files (not UTF-8) are left out.
pub fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if NOT_OURS.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                found.push(File { path: relative(&root, &path), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn relative(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).expect("found under the root");
    inside.to_string_lossy().into_owned()
}
