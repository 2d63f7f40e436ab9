//! The checks of a page's fitness for everybody that a program can do, by axe-core.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use testkit::{has, skip};

use super::driver::Browser;

/// The version that npm fetches.
const AXE: &str = "axe-core@4.14.1";

/// Checks the page as it is, in the system's colours. `what` names it in the failure. axe-core is the file that the variable AXE names
/// (`axe.min.js`), or, without the variable, a package that npm fetches. The policy of the page does not hold back scripts of the driver.
///
/// # Panics
/// The page breaks a rule. The text has the rules, the elements and their remedies.
pub fn check(browser: &Browser, what: &str) {
    let Some(script) = axe() else { return };
    if browser.run("return !window.axe") == true {
        browser.run(script);
    }
    let result = browser.finish("axe.run(document, { resultTypes: ['violations'] })");
    let violations = result["violations"].as_array().unwrap_or_else(|| panic!("{what}: {result}"));
    let told = |one: &Value| {
        let nodes = one["nodes"].as_array().into_iter().flatten();
        let at: Vec<_> = nodes.map(|node| format!("{} {}", node["target"], node["failureSummary"])).collect();
        format!("{}: {}\n  {}", one["id"], one["help"], at.join("\n  "))
    };
    let all: Vec<_> = violations.iter().map(told).collect();
    assert!(all.is_empty(), "{what}:\n{}", all.join("\n"));
}

/// No element is wider than the page.
///
/// # Panics
/// An element is wider. The text has the widths in pixels.
pub fn fits(browser: &Browser, what: &str) {
    let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{what} is wider than the page: {widths}");
}

/// The script of axe-core, which a test program reads once. None: skipped.
fn axe() -> Option<&'static str> {
    static SCRIPT: OnceLock<Option<String>> = OnceLock::new();
    let script = || match std::env::var_os("AXE").filter(|path| !path.is_empty()) {
        Some(path) => Some(std::fs::read_to_string(&path).expect("the file of the variable AXE")),
        None => from_npm(),
    };
    SCRIPT.get_or_init(script).as_deref()
}

fn from_npm() -> Option<String> {
    if !has("npm", "whether everybody can use the pages") {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let fetch = ["pack", "--silent", "--fetch-retries=1", "--fetch-timeout=60000", AXE];
    let is_there = runs(folder.path(), "npm", &fetch) && {
        let packed = std::fs::read_dir(folder.path()).expect("the folder").next();
        let packed = packed.expect("what npm fetched").expect("its name").file_name();
        let packed = packed.to_str().expect("a name of letters");
        runs(folder.path(), "tar", &["-xzf", packed, "package/axe.min.js"])
    };
    if !is_there {
        skip(&format!(
            "whether everybody can use the pages (npm cannot fetch {AXE}; AXE=FILE names axe.min.js)"
        ));
        return None;
    }
    Some(std::fs::read_to_string(folder.path().join("package/axe.min.js")).expect("the script"))
}

/// Whether a program does what it should.
fn runs(folder: &Path, program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
