//! A minimal lexer for Rust: it finds words in code, and the begin and end of functions.
//!
//! The rules apply inside macros too, whose arguments a parser does not parse.

const LOCAL: &str = ".local_addr()";

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, without the type it belongs to.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace that hold code: blank lines and comments do not count.
    pub code_lines: usize,
}

/// The source with comments and the contents of literals replaced by spaces. Lines and offsets do not change.
pub fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skip_non_code(source, at);
        if end > at {
            blank(&mut out[at..end]);
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8(out).expect("whole characters were replaced by spaces")
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// The end of the comment or literal that begins at `at`; `at` itself if none does.
fn skip_non_code(source: &str, at: usize) -> usize {
    let bytes = source.as_bytes();
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + block_comment(rest);
    }
    match rest[0] {
        b'"' => at + quoted(rest, b'"'),
        b'\'' => at + char_literal(&source[at..]),
        b'r' if !continues_a_word(bytes, at) => at + raw_string(rest),
        _ => at,
    }
}

/// True if the `r` at `at` is part of an identifier, and so begins no raw string. `br` and `cr` are prefixes
/// too.
fn continues_a_word(bytes: &[u8], at: usize) -> bool {
    let word = |i: usize| bytes[i] == b'_' || bytes[i].is_ascii_alphanumeric();
    match at {
        0 => false,
        _ if matches!(bytes[at - 1], b'b' | b'c') => at >= 2 && word(at - 2),
        _ => word(at - 1),
    }
}

/// Length of the (nested) block comment at the start.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length of the literal at the start, which ends at an unescaped `quote`.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of the character literal at the start, 0 if the quote begins a lifetime.
fn char_literal(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => quoted(rest.as_bytes(), b'\''),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 0,
    }
}

/// Length of the raw string at the start, 0 if there is none.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let open = 2 + hashes;
    let closes = |at: usize| {
        rest[at] == b'"' && rest[at + 1..].iter().take(hashes).filter(|&&b| b == b'#').count() == hashes
    };
    (open..rest.len()).find(|&at| closes(at)).map_or(rest.len(), |at| at + 1 + hashes)
}

/// The words (identifiers, keywords) of code, each with its offset.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    code.split(move |c| !is_word(c))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr().addr() - code.as_ptr().addr(), word))
}

/// Line of an offset, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text[..offset].matches('\n').count()
}

/// Every function with a body in code that [`code_only`] returned, also inside macros and other functions.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        if word != "fn" {
            continue;
        }
        let after = code[at + 2..].trim_start();
        let name: String =
            after.chars().take_while(|&c| c == '_' || c == '#' || c.is_alphanumeric()).collect();
        if let Some(end) = body_end(code, at).filter(|_| !name.is_empty()) {
            let code_lines = code[at..end].lines().filter(|line| !line.trim().is_empty()).count();
            found.push(Function { name, line: line_of(code, at), code_lines });
        }
    }
    found
}

/// Where code that [`code_only`] returned asks for a port and lets it go: in one statement the socket is bound and only its address kept, or a
/// block ends with the address of a socket that it has bound.
pub fn ports_let_go(code: &str) -> Vec<usize> {
    let until_end = |code: &str| code.find(['{', '}', ';']).unwrap_or(code.len());
    let mut found = Vec::new();
    for (at, bind) in code.match_indices("::bind(") {
        let rest = after_arguments(&code[at + bind.len()..]);
        let (statement, after) = rest.split_at(until_end(rest));
        let before = code[..at].rsplit(['{', '}', ';']).next().unwrap_or_default();
        let name = words(before).map(|(_, word)| word).skip_while(|word| *word != "let").nth(1);
        let next = after.strip_prefix(';').unwrap_or_default().trim_start();
        let is_result = next[until_end(next)..].starts_with('}');
        let is_its_address = |name: &str| next.strip_prefix(name).is_some_and(|rest| rest.starts_with(LOCAL));
        if statement.contains(LOCAL) || (is_result && name.is_some_and(is_its_address)) {
            found.push(at);
        }
    }
    found
}

/// What follows the arguments of a call, of which the parenthesis is open.
fn after_arguments(code: &str) -> &str {
    let mut open = 1_usize;
    let closes = |c: char| {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        open == 0
    };
    code.find(closes).map_or("", |at| &code[at + 1..])
}

/// The position after the closing brace of the function whose `fn` is at `at`; None if the function has no body.
fn body_end(code: &str, at: usize) -> Option<usize> {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (i, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.saturating_sub(1),
            b';' if braces == 0 && others == 0 => return None,
            b'{' => braces += 1,
            b'}' if braces <= 1 => return (braces == 1).then_some(i + 1),
            b'}' => braces -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_nothing_moves() {
        let source =
            "a /* x /* y */ z */ b // unsafe\n\"un\\\"safe\" 'u' '\\'' br#\"un\"safe\"# 'life r#fn c";
        let code = code_only(source);
        assert_eq!(code.len(), source.len());
        assert_eq!(words(&code).map(|(_, w)| w).collect::<Vec<_>>(), ["a", "b", "b", "life", "r", "fn", "c"]);
        assert_eq!(line_of(&code, code.find("life").unwrap()), 2);
    }

    #[test]
    fn an_open_literal_or_comment_ends_with_the_file() {
        for source in ["\"abc", "/* abc", "r#\"abc\"", "'\\", "// abc", "r", "'"] {
            assert_eq!(code_only(source).len(), source.len());
        }
    }

    #[test]
    fn a_port_that_is_let_go_is_found() {
        for code in [
            "let port = TcpListener::bind(a).unwrap().local_addr().unwrap();",
            "fn port() -> u16 { UdpSocket::bind(a)?.local_addr()?.port() }",
            "let addr = { let socket = UdpSocket::bind(a).unwrap(); socket.local_addr().unwrap().port() };",
        ] {
            assert_eq!(ports_let_go(code).len(), 1, "{code}");
        }
        for code in [
            "let listener = TcpListener::bind(a).unwrap(); let addr = listener.local_addr().unwrap();",
            "let listener = Listener::bind(a).unwrap(); Conn::connect(&listener.local_addr()).unwrap(); ",
            "{ let listener = Listener::bind(a)?; Self { addr: listener.local_addr(), listener } }",
            "let again = Listener::bind(&ctx, &listener.local_addr()); assert!(again.is_err());",
        ] {
            assert_eq!(ports_let_go(code), [0; 0], "{code}");
        }
    }

    #[test]
    fn functions_are_found_with_their_code_lines() {
        let source = "trait T { fn no_body(&self, a: [u8; 4]); }\n\
                      fn one() { \"}\"; }\n\
                      type F = fn(u8) -> u8;\n\
                      impl X {\n    /// Doc {\n    fn two(\n        a: [u8; 2],\n    ) {\n\n        // why\n        if a { b }\n    }\n}\n";
        let found = functions(&code_only(source));
        let named = |name: &str, line, code_lines| Function { name: name.into(), line, code_lines };
        assert_eq!(found, [named("one", 2, 1), named("two", 6, 5)]);
    }
}
