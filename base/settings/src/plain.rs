//! Errors of the TOML parser in the words of a configuration: with the setting and its value, and without the names of Rust's types.

/// The message of an error about a text.
pub fn message(error: &toml::de::Error, text: &str) -> String {
    let wanted = match error.message().split_once(", expected ") {
        Some((wrong, wanted))
            if wrong.starts_with("invalid value: ") || wrong.starts_with("invalid type: ") =>
        {
            format!("it must be {}", plain(wanted))
        }
        _ if error.message().starts_with("it must be ") => error.message().to_owned(),
        _ => return error.message().to_owned(),
    };
    match error.span().and_then(|span| assignment(text, span.start, span.end)) {
        Some(assignment) => format!("{assignment}: {wanted}"),
        None => wanted,
    }
}

/// The expected value in plain words, from serde's text about it.
fn plain(wanted: &str) -> &str {
    match wanted {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "any valid TOML value" => "a number of at most 64 bits",
        "a sequence" => "a list",
        "a string" | "a borrowed string" | "path string" => "a text",
        "a boolean" => "true or false",
        "a map" => "a section",
        other if other.starts_with("struct ") => "a section",
        other => other,
    }
}

/// `setting = value` of the value at these offsets, if a line has both.
fn assignment(text: &str, start: usize, end: usize) -> Option<String> {
    let before = text.get(..start)?.rsplit('\n').next()?;
    let (before, between) = before.rsplit_once('=')?;
    let name = before.rsplit(['{', ',']).next()?.trim();
    let value = text.get(start..end)?.lines().next()?;
    (between.trim().is_empty() && !name.is_empty()).then(|| format!("{name} = {value}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        _port: u16,
        #[serde(default)]
        _names: Vec<String>,
        #[serde(default)]
        _entry: Vec<File>,
    }

    #[test]
    fn errors_name_the_setting_and_no_type() {
        let told = |text: &str| super::message(&toml::from_str::<File>(text).map(drop).unwrap_err(), text);
        for (text, expected) in [
            ("_port = -1", "_port = -1: it must be a whole number from 0 to 65535"),
            ("[[_entry]]\n_port = 'x'", "_port = 'x': it must be a whole number from 0 to 65535"),
            (
                "_entry = [{ _names = [], _port = 70000 }]",
                "_port = 70000: it must be a whole number from 0 to 65535",
            ),
            ("_names = 5", "_names = 5: it must be a list"),
            ("_names = ['a', 5]", "it must be a text"),
            (
                "_port = 99999999999999999999999999",
                "_port = 99999999999999999999999999: it must be a whole number from 0 to 65535",
            ),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
