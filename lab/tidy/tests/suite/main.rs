//! The rules of the repository, as tests.

mod layers;
mod licences;
mod pages;
mod style;

/// Fails with every finding, one in each line.
fn none(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n  {}\n", found.join("\n  "));
}
