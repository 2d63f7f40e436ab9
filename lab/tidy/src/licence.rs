//! SPDX licence expressions, as crates write them, checked against a list of allowed licences.

/// Whether the expression can be satisfied with allowed licences only. `/` counts as OR (an old habit of crates),
/// AND binds tighter than OR, `WITH` makes an exception part of the licence's name. An invalid expression is refused.
///
/// ```
/// let allowed = ["MIT", "Unicode-3.0"];
/// assert!(tidy::licence::allowed("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
/// assert!(!tidy::licence::allowed("GPL-3.0 AND MIT", &allowed));
/// ```
pub fn allowed(expression: &str, allowed: &[impl AsRef<str>]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let permits = |name: &str| allowed.iter().any(|a| a.as_ref() == name);
    let mut parser = Parser { tokens: &tokens, permits: &permits };
    parser.any() == Some(true) && parser.tokens.is_empty()
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    permits: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    /// Terms joined by OR.
    fn any(&mut self) -> Option<bool> {
        let mut good = self.all()?;
        while self.take("OR") {
            good |= self.all()?;
        }
        Some(good)
    }

    /// Factors joined by AND.
    fn all(&mut self) -> Option<bool> {
        let mut good = self.one()?;
        while self.take("AND") {
            good &= self.one()?;
        }
        Some(good)
    }

    /// A licence, perhaps with an exception, or an expression in parentheses.
    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let good = self.any()?;
            return self.take(")").then_some(good);
        }
        let name = self.next()?;
        if !self.take("WITH") {
            return Some((self.permits)(name));
        }
        let exception = self.next()?;
        Some((self.permits)(&format!("{name} WITH {exception}")))
    }

    fn next(&mut self) -> Option<&'a str> {
        let (&first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        (!matches!(first, "(" | ")" | "AND" | "OR" | "WITH")).then_some(first)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn choices_conjunctions_and_exceptions() {
        let list = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];
        for good in
            ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR Apache-2.0", "Apache-2.0 WITH LLVM-exception", "((MIT))"]
        {
            assert!(allowed(good, &list), "{good}");
        }
        let bad = ["GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 AND MIT OR GPL-2.0", "MIT WITH Other", "Apache"];
        for bad in bad {
            assert!(!allowed(bad, &list), "{bad}");
        }
    }

    #[test]
    fn an_unparsable_licence_is_refused() {
        for broken in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND", "MIT WITH"] {
            assert!(!allowed(broken, &["MIT"]), "{broken}");
        }
    }
}
