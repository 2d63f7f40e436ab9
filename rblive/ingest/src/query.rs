//! Queries of URLs.

use percent_encoding::percent_decode_str;

/// The value of a name in `a=1&b=2`, with `%20` for a space. A `+` is itself: encoders write keys as they are, and base64 has it.
pub(crate) fn value(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(found, _)| *found == name)?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn a_value_is_decoded_as_in_other_addresses() {
        let query = "user=anna&key=a%20secret&other=50%&raw=a secret+b%2b%C3%BC&key=no";
        let values = ["user", "key", "other", "raw", "none"].map(|name| value(query, name));
        let expected = ["anna", "a secret", "50%", "a secret+b+ü"].map(|text| Some(text.to_owned()));
        assert_eq!(values[..4], expected);
        assert_eq!(values[4], None);
        assert_eq!(
            value("key=%ff", "key").as_deref(),
            Some("\u{FFFD}"),
            "this is no UTF-8, and no key either"
        );
    }
}
