//! The query of an address: names and values, with escapes.

use std::collections::BTreeMap;

/// The most parameters of a request.
const MAX_PARAMETERS: usize = 16;

/// The parameters of a request. Its head was limited before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(BTreeMap<String, String>);

/// A parameter is wrong. The text is for the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongQuery(pub(super) String);

impl Query {
    /// Takes the parameters apart, of which only these may be there.
    ///
    /// # Errors
    /// One is unknown, there twice, or no text.
    pub(super) fn parse(query: &str, known: &[&str]) -> Result<Self, WrongQuery> {
        let mut all = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (unescape(name)?, unescape(value)?);
            if !known.contains(&&*name) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(WrongQuery(format!(
                    "there is no parameter {}; there are: {known}",
                    text::quoted(&name)
                )));
            }
            if all.insert(name.clone(), value).is_some() || all.len() > MAX_PARAMETERS {
                return Err(WrongQuery(format!("the parameter {} is there twice", text::quoted(&name))));
            }
        }
        Ok(Self(all))
    }

    /// The value of a parameter that is there and not empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A number of a parameter, at most `most`.
    ///
    /// # Errors
    /// The value is none.
    pub(super) fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, WrongQuery> {
        let Some(value) = self.text(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| *number <= most);
        number.ok_or_else(|| WrongQuery(format!("{name} must be a number from 0 to {most}")))
    }

    /// One of several words, the first of which is the default.
    ///
    /// # Errors
    /// The value is another one.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T, WrongQuery> {
        let found = match self.text(name) {
            None => words.first(),
            Some(value) => words.iter().find(|(word, _)| *word == value),
        };
        found.map(|(_, value)| *value).ok_or_else(|| {
            let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            WrongQuery(format!("{name} must be one of: {}", all.join(", ")))
        })
    }
}

fn unescape(text: &str) -> Result<String, WrongQuery> {
    let wrong = || WrongQuery("the query has an escape that is no text in UTF-8".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else { return Err(wrong()) };
                bytes.push((high * 16 + low) as u8);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_apart_and_checked() {
        let query = Query::parse("name=a%2Fb+c%C3%A4&limit=7&sort=", &["name", "limit", "sort"]).unwrap();
        assert_eq!((query.text("name"), query.text("sort")), (Some("a/b cä"), None));
        assert_eq!(query.number("limit", 50, 200), Ok(7));
        assert_eq!(query.number("offset", 3, 200), Ok(3));
        assert!(query.number("limit", 50, 6).is_err() && query.number("name", 0, 9).is_err());
        assert_eq!(query.word("sort", &[("lag", 1), ("name", 2)]), Ok(1));
        let wrong = query.word("name", &[("lag", 1), ("rate", 2)]).unwrap_err().0;
        assert_eq!(wrong, "name must be one of: lag, rate");
    }

    #[test]
    fn a_wrong_query_is_refused() {
        for wrong in ["x=1", "a=1&a=2", "a=%", "a=%f", "a=%zz", "a=%ff", "a=%c3", "%00=1"] {
            assert!(Query::parse(wrong, &["a"]).is_err(), "{wrong}");
        }
        assert_eq!(Query::parse("", &[]), Ok(Query::default()));
    }
}
