//! Who may break a rule, and why: `crates/tidy/exceptions.toml`.

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// Functions that are longer than the limit.
    #[serde(default)]
    pub function: Vec<LongFunction>,
    /// Files that may hold `unsafe`.
    #[serde(default)]
    pub unsafe_code: Vec<Allowed>,
    /// Files that may name the standard library's atomics.
    #[serde(default)]
    pub std_atomics: Vec<Allowed>,
    /// Files that may order a store before a later load.
    #[serde(default)]
    pub seq_cst: Vec<Allowed>,
}

/// A function that is longer than the limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongFunction {
    /// The file, relative to the root of the repository.
    pub path: String,
    /// The function's name.
    pub name: String,
    /// Why it is one function all the same.
    pub reason: String,
}

/// A file, or a folder if the path ends with `/`, that may do what others may not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Relative to the root of the repository.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl Allowed {
    /// Whether this entry is about the file.
    pub fn covers(&self, path: &str) -> bool {
        self.path == path || (self.path.ends_with('/') && path.starts_with(&self.path))
    }
}

/// Reads the list.
///
/// # Panics
/// If it cannot be read: then nothing can be checked.
pub fn load() -> Exceptions {
    let path = crate::tree::root().join("crates/tidy/exceptions.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
