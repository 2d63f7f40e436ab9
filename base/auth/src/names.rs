//! Names of users and roles.

/// The longest name of a user or role in bytes, as in the hello of a client.
pub const MAX_NAME_BYTES: usize = peers::MAX_USER_BYTES;

/// A name of a user or role is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} cannot be a name: it must have 1 to 128 bytes, without spaces, control characters, marks that are not seen, or any of / + # % ' \" , \\"
)]
pub struct NameError {
    /// The name.
    pub name: String,
}

/// Checks the name of a user or role. A name becomes a part of topics (`%u` in a rule), so it must not have a meaning there: no
/// separator, no wildcard.
///
/// ```
/// assert!(access::check_name("alice@example.com").is_ok());
/// assert!(access::check_name("sensors/#").is_err());
/// ```
///
/// # Errors
/// [`NameError`], with the rule.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let forbidden = |c: char| c.is_whitespace() || text::is_hidden(c) || "/+#%'\",\\".contains(c);
    if (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.contains(forbidden)
        && !name.starts_with(['$', '-'])
    {
        return Ok(());
    }
    Err(NameError { name: name.chars().take(MAX_NAME_BYTES).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_meaning_in_a_topic_or_option() {
        for good in ["alice", "a", "Ünal", "alice@example.com", "auth0|12", "svc.a-b_c:1", &"n".repeat(128)]
        {
            check_name(good).unwrap();
        }
        for bad in [
            "",
            "a b",
            "a/b",
            "#",
            "a+",
            "%u",
            "a\nb",
            "$SYS",
            "-x",
            "a'b",
            "a\u{200b}\u{7}",
            "anna\u{200b}",
            "anna\u{202e}",
            "anna\u{fe0f}",
            &"n".repeat(129),
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
