//! Names of clients in the log.

/// A client's name in quotes, without characters that confuse a terminal or a log.
pub(super) fn display_name(name: &str) -> String {
    if name.is_empty() { "(unnamed)".into() } else { text::quoted(name) }
}
