//! The exceptions to the rules, with their reasons: `lab/tidy/exceptions.toml`.

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// Functions that are longer than the limit.
    #[serde(default)]
    pub function: Vec<LongFunction>,
    /// Files that may contain `unsafe`.
    #[serde(default)]
    pub unsafe_code: Vec<Allowed>,
    /// Files that may use the atomics of the standard library.
    #[serde(default)]
    pub std_atomics: Vec<Allowed>,
    /// Files that may order a store before a later load.
    #[serde(default)]
    pub seq_cst: Vec<Allowed>,
    /// Files that may use the locks of the standard library.
    #[serde(default)]
    pub std_locks: Vec<Allowed>,
}

/// A function that is longer than the limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongFunction {
    /// The file, relative to the root of the repository.
    pub path: String,
    /// The function's name.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// A file, or a folder if the path ends with `/`, with an exception.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Relative to the root of the repository.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl Allowed {
    /// True if the entry covers the file.
    pub fn covers(&self, path: &str) -> bool {
        self.path == path || (self.path.ends_with('/') && path.starts_with(&self.path))
    }
}

/// Reads the list.
///
/// # Panics
/// The file cannot be read or parsed, so nothing can be checked.
pub fn load() -> Exceptions {
    let path = crate::tree::root().join("lab/tidy/exceptions.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
