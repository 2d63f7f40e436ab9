//! The commands that pages show: what a reader types, taken apart as a shell does.

/// A command of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// The file and line: `docs/RBMQ.md:12`.
    pub place: String,
    /// The program and its arguments, without quotes, redirections and variables before the program.
    pub words: Vec<String>,
}

/// The commands of `program` in all pages of the repository. A program in a folder has the folder in its name (`scripts/test`).
pub fn commands_of(program: &str) -> Vec<Typed> {
    let pages = crate::tree::files().into_iter().filter(|file| file.path.ends_with(".md"));
    let found = pages.flat_map(|page| {
        commands(&page.text)
            .into_iter()
            .map(move |(line, words)| Typed { place: format!("{}:{line}", page.path), words })
    });
    found.filter(|typed| typed.words[0].rsplit("target/release/").next() == Some(program)).collect()
}

/// The commands of `program` in all pages that its parser refuses, each with the reason.
pub fn refused(program: &str, parser: &clap::Command) -> Vec<String> {
    let is_wrong = |error: &clap::Error| error.use_stderr();
    let refusal = |typed: &Typed| {
        let error = parser.clone().try_get_matches_from(&typed.words).err().filter(is_wrong)?;
        let reason = error.to_string();
        Some(format!(
            "{}: {}: {}",
            typed.place,
            typed.words.join(" "),
            reason.lines().next().unwrap_or_default()
        ))
    };
    commands_of(program).iter().filter_map(refusal).collect()
}

/// The simple commands in a page's blocks, with their lines, from 1: all lines of blocks that are marked `sh`, and in other blocks those
/// behind a prompt (`$ `). A line with `…` is shortened and left out.
pub fn commands(markdown: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut block = None;
    let mut pending: Option<(usize, String)> = None;
    for (index, line) in markdown.lines().enumerate() {
        let text = line.trim_start();
        if let Some(language) = text.strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language.to_owned()) };
            continue;
        }
        let typed = match &block {
            Some(language) if language == "sh" => text.strip_prefix("$ ").unwrap_or(text),
            Some(_) if pending.is_some() => text,
            Some(_) => match text.strip_prefix("$ ") {
                Some(typed) => typed,
                None => continue,
            },
            None => continue,
        };
        let (first, mut whole) = pending.take().unwrap_or((index + 1, String::new()));
        whole.push_str(typed);
        match whole.strip_suffix('\\') {
            Some(more) => pending = Some((first, format!("{more} "))),
            None if whole.contains('…') => {}
            None => found.extend(simple_commands(&whole).into_iter().map(|words| (first, words))),
        }
    }
    found
}

/// What stands between words of a shell's line.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// The next word is a file.
    Redirection,
    /// The command ends.
    End,
}

fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut is_file = false;
    for token in tokens(line).into_iter().chain([Token::End]) {
        match token {
            Token::Word(_) if is_file => is_file = false,
            Token::Word(word) if words.is_empty() && is_prefix(&word) => {}
            Token::Word(word) => words.push(word),
            Token::Redirection => is_file = true,
            Token::End if words.is_empty() => {}
            Token::End => all.push(std::mem::take(&mut words)),
        }
    }
    all
}

/// True for what may stand before a program: a variable, or a command that starts another.
fn is_prefix(word: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
    word == "sudo" || word == "time" || word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn tokens(line: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '#' if word.is_none() => break,
            '\'' | '"' => {
                let quoted: String = rest.by_ref().take_while(|end| *end != c).collect();
                word.get_or_insert_default().push_str(&quoted);
            }
            '\\' => word.get_or_insert_default().extend(rest.next()),
            '$' if rest.peek() == Some(&'(') => {
                let inner: String = rest.by_ref().take_while(|end| *end != ')').collect();
                word.get_or_insert_default().push_str(&inner);
            }
            ' ' | '\t' => found.extend(word.take().map(Token::Word)),
            '>' | '<' => {
                // The number of a descriptor belongs to the redirection.
                found.extend(word.take().filter(|w| w.parse::<u32>().is_err()).map(Token::Word));
                while rest.next_if(|more| matches!(more, '>' | '<' | '&' | '|')).is_some() {}
                if rest.next_if_eq(&'(').is_some() {
                    found.push(Token::End);
                } else {
                    found.push(Token::Redirection);
                }
            }
            '|' | '&' | ';' | '(' | ')' => {
                found.extend(word.take().map(Token::Word));
                found.push(Token::End);
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word.take().map(Token::Word));
    found
}

#[cfg(test)]
mod tests {
    use super::commands;

    fn words(page: &str) -> Vec<String> {
        commands(page).into_iter().map(|(line, words)| format!("{line} {}", words.join("|"))).collect()
    }

    #[test]
    fn commands_are_taken_apart_as_a_shell_does() {
        let page = "```sh\nA=1 rbmq sub 'a b' > out 2>/dev/null # why\ndate | rbmq pub news && make test &\nrbmq serve \\\n  --quiet\n```\n";
        assert_eq!(
            words(page),
            ["2 rbmq|sub|a b", "3 date", "3 rbmq|pub|news", "3 make|test", "4 rbmq|serve|--quiet"]
        );
    }

    #[test]
    fn output_and_prose_are_no_commands() {
        let page = "rbmq sub\n```text\n$ rbmq top\nrbmq: done\n$ rbmq sub …\n```\n    rbmq pub\n```toml\nrbmq = 1\n```\n";
        assert_eq!(words(page), ["3 rbmq|top"]);
    }
}
