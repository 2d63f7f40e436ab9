//! Patterns of channels, by the rules of Redis.
//!
//! ```text
//!   h?llo     any one byte           h[ae]llo  h[a-e]llo   one of these
//!   h*llo     any bytes, also none   h[^e]llo  any other    h\*llo  the byte itself
//! ```
//!
//! A pattern is taken apart once. A match goes back to the newest `*` alone, as a longer match of an earlier one cannot help: the cost is at most the
//! length of the pattern times the length of the name, whatever the pattern is.

/// Most bytes of a pattern.
pub const MAX_PATTERN_BYTES: usize = 1024;

/// What one part of a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// This byte.
    Byte(u8),
    /// Any byte.
    Any,
    /// A byte of the set, one bit for each.
    Set(Box<[u64; 4]>),
    /// Any bytes, also none.
    Rest,
}

impl Part {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Byte(wanted) => *wanted == byte,
            Self::Any => true,
            Self::Set(set) => set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
            Self::Rest => false,
        }
    }
}

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Box<[Part]>);

impl Glob {
    /// Takes a pattern apart. Any bytes are a pattern.
    pub fn new(pattern: &[u8]) -> Self {
        let (mut parts, mut rest) = (Vec::new(), pattern);
        while let Some((&first, behind)) = rest.split_first() {
            rest = behind;
            parts.push(match first {
                b'*' if parts.last() == Some(&Part::Rest) => continue,
                b'*' => Part::Rest,
                b'?' => Part::Any,
                b'[' => {
                    let (set, behind) = set(rest);
                    rest = behind;
                    Part::Set(Box::new(set))
                }
                b'\\' if !rest.is_empty() => {
                    let (&escaped, behind) = rest.split_first().expect("the rest is not empty");
                    rest = behind;
                    Part::Byte(escaped)
                }
                byte => Part::Byte(byte),
            });
        }
        Self(parts.into())
    }

    /// The bytes of memory that it takes, about.
    pub fn memory(&self) -> usize {
        let sets = self.0.iter().filter(|part| matches!(part, Part::Set(_))).count();
        // Each set is an allocation.
        size_of_val(&*self.0) + sets * (size_of::<[u64; 4]>() + 16)
    }

    /// The bytes with which each name begins that matches.
    pub fn prefix(&self) -> Vec<u8> {
        self.0.iter().map_while(|part| if let Part::Byte(byte) = part { Some(*byte) } else { None }).collect()
    }

    /// The only name that matches, if the pattern has no wildcards.
    pub fn as_name(&self) -> Option<Vec<u8>> {
        let prefix = self.prefix();
        (prefix.len() == self.0.len()).then_some(prefix)
    }

    /// Whether a name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        let mut steps = usize::MAX;
        self.matches_within(name, &mut steps)
    }

    /// The same. What it costs is taken from `steps`, down to zero.
    pub fn matches_within(&self, name: &[u8], steps: &mut usize) -> bool {
        if name.is_empty() {
            // As in Redis, where `*` needs a byte to begin with.
            return self.0.is_empty();
        }
        let (mut part, mut at) = (0, 0);
        // Where the newest `*` is, and how far the bytes go that it takes.
        let mut newest: Option<(usize, usize)> = None;
        while at < name.len() {
            *steps = steps.saturating_sub(1);
            match self.0.get(part) {
                Some(Part::Rest) if part + 1 == self.0.len() => return true,
                Some(Part::Rest) => {
                    newest = Some((part, at));
                    part += 1;
                }
                Some(found) if found.matches(name[at]) => (part, at) = (part + 1, at + 1),
                _ => {
                    let Some((star, taken)) = &mut newest else { return false };
                    *taken += 1;
                    (part, at) = (*star + 1, *taken);
                }
            }
        }
        self.0[part..].iter().all(|part| *part == Part::Rest)
    }
}

/// The set behind a `[`, and what follows it. A set without an end goes to the end of the pattern.
fn set(mut rest: &[u8]) -> ([u64; 4], &[u8]) {
    let is_other = rest.first() == Some(&b'^');
    if is_other {
        rest = &rest[1..];
    }
    let mut set = [0; 4];
    let mut add = |byte: u8| set[usize::from(byte >> 6)] |= 1_u64 << (byte & 63);
    rest = loop {
        match rest {
            [] => break rest,
            [b'\\', escaped, behind @ ..] => {
                add(*escaped);
                rest = behind;
            }
            [b']', behind @ ..] => break behind,
            [from, b'-', to, behind @ ..] => {
                (*from.min(to)..=*from.max(to)).for_each(&mut add);
                rest = behind;
            }
            [byte, behind @ ..] => {
                add(*byte);
                rest = behind;
            }
        }
    };
    (if is_other { set.map(|word| !word) } else { set }, rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern.as_bytes()).matches(name.as_bytes())
    }

    #[test]
    fn matches_as_redis_documents() {
        for (pattern, name) in [
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*llo", "heeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hbllo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("*", "a/b"),
            ("a**", "a"),
            ("a\\*", "a*"),
            ("a\\", "a\\"),
            ("[abc", "c"),
            ("[a\\]]", "]"),
            ("[^]", "x"),
            ("[a-]", "]"),
            ("", ""),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a", "ab"),
            ("ab", "a"),
            ("*b", "abc"),
            ("[]", "a"),
            ("a\\*", "ab"),
            ("*", ""),
            ("", "a"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product_of_the_lengths() {
        let pattern = format!("{}b", "a*".repeat(2000));
        assert!(
            !matches(&pattern, &"a".repeat(255)),
            "without a bound, this ends after the last star of the sky"
        );
    }

    #[test]
    fn the_prefix_ends_at_the_first_wildcard() {
        let prefix = |pattern: &str| String::from_utf8(Glob::new(pattern.as_bytes()).prefix()).unwrap();
        assert_eq!(["a/b*c", "a\\*b?", "[a]b", "*"].map(prefix), ["a/b", "a*b", "", ""]);
        assert_eq!(Glob::new(b"a\\*").as_name(), Some(b"a*".to_vec()));
        assert_eq!(Glob::new(b"a*").as_name(), None);
    }

    /// The rules, one by one, without any thought of cost.
    fn model(pattern: &[u8], name: &[u8]) -> bool {
        let Some((&first, rest)) = pattern.split_first() else { return name.is_empty() };
        match first {
            b'*' => (0..=name.len()).any(|taken| model(rest, &name[taken..])),
            b'?' => !name.is_empty() && model(rest, &name[1..]),
            b'[' => {
                let is_other = rest.first() == Some(&b'^');
                let mut at = usize::from(is_other);
                let mut is_member = false;
                let wanted = name.first();
                while at < rest.len() && rest[at] != b']' {
                    if rest[at] == b'\\' && at + 1 < rest.len() {
                        is_member |= wanted == Some(&rest[at + 1]);
                        at += 2;
                    } else if at + 2 < rest.len() && rest[at + 1] == b'-' {
                        let (low, high) = (rest[at].min(rest[at + 2]), rest[at].max(rest[at + 2]));
                        is_member |= wanted.is_some_and(|byte| (low..=high).contains(byte));
                        at += 3;
                    } else {
                        is_member |= wanted == Some(&rest[at]);
                        at += 1;
                    }
                }
                let behind = rest.get(at + 1..).unwrap_or_default();
                wanted.is_some() && is_member != is_other && model(behind, &name[1..])
            }
            b'\\' if !rest.is_empty() => name.first() == Some(&rest[0]) && model(&rest[1..], &name[1..]),
            byte => name.first() == Some(&byte) && model(rest, &name[1..]),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]
        #[test]
        fn matches_as_the_model(pattern in r"[ab*?\[\]\\^c-]{0,10}", name in r"[abc\]\\^-]{0,8}") {
            let expected = if name.is_empty() { pattern.is_empty() } else { model(pattern.as_bytes(), name.as_bytes()) };
            prop_assert_eq!(matches(&pattern, &name), expected);
        }
    }
}
