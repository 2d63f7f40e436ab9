//! Queries of URLs.

/// The value of a name in `a=1&b=2`, as it is written.
pub(crate) fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}
