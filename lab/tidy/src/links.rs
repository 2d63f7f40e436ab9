//! Links of Markdown files that point into the repository.

/// The targets of `[text](target)` that are paths: no URL, no bare `#anchor`; anchors are cut off. Code is no link:
/// fenced blocks, indented blocks and text between backticks are left out.
///
/// ```
/// let text = "see [a](docs/A.md#part), [b](https://b.example) and `[c](d)`";
/// assert_eq!(tidy::links::paths(text), ["docs/A.md"]);
/// ```
pub fn paths(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            paths_of_line(line, &mut found);
        }
    }
    found
}

fn paths_of_line(line: &str, found: &mut Vec<String>) {
    // Every second part is between backticks.
    for prose in line.split('`').step_by(2) {
        for piece in prose.split("](").skip(1) {
            let target = piece.split([')', ' ']).next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(path.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn only_paths_outside_code_are_links() {
        let text =
            "[a](A.md) [b](#b) [c](mailto:c@d)\n```\n[e](E)\n```\n    [f](F)\n![g](g/h.png \"title\")\n";
        assert_eq!(paths(text), ["A.md", "g/h.png"]);
    }
}
