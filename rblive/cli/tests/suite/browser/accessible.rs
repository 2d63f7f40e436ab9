//! The checks of a page's fitness for everybody that a program can do, by axe-core.

use std::io::Write;

use serde_json::Value;

use super::driver::Browser;

/// Checks the page as it is. The variable AXE names the file `axe.min.js`.
pub fn check(browser: &Browser, what: &str) {
    let Some(script) = std::env::var_os("AXE").and_then(|path| std::fs::read_to_string(path).ok()) else {
        writeln!(std::io::stderr(), "SKIPPED: accessibility (the variable AXE names no axe.min.js)")
            .expect("standard error");
        return;
    };
    browser.run(&format!("if (!window.axe) {{ {script} }}"));
    let result = browser.finish("axe.run(document, { resultTypes: ['violations'] })");
    let violations = result["violations"].as_array().unwrap_or_else(|| panic!("{what}: {result}"));
    let told = |one: &Value| {
        let nodes = one["nodes"].as_array().unwrap();
        let at: Vec<_> =
            nodes.iter().map(|node| format!("{} {}", node["target"], node["failureSummary"])).collect();
        format!("{}: {}\n  {}", one["id"], one["help"], at.join("\n  "))
    };
    let all: Vec<_> = violations.iter().map(told).collect();
    assert!(all.is_empty(), "{what}:\n{}", all.join("\n"));
}

/// Nothing is wider than the page.
pub fn fits(browser: &Browser, what: &str) {
    let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{what} is wider than the page: {widths}");
}
