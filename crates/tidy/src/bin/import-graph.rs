//! `import-graph`: which file imports from which, and where that breaks the declared order.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidy::{imports, layers, report, tree};

/// The import graph of a checkout: circles, arrows that climb, the largest types, exported names.
///
/// Without names there is a line for each package, with names everything about those.
#[derive(Parser)]
struct Options {
    /// Packages to look at, by the names that Cargo has for them
    packages: Vec<String>,
    /// Root of the checkout [default: the one that this program was built in]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Declared order of layers [default: crates/tidy/layers.toml of the root, or of where this program was built]
    #[arg(long, value_name = "FILE")]
    layers: Option<PathBuf>,
    /// Everything as JSON
    #[arg(long, conflicts_with_all = ["dot", "known"])]
    json: bool,
    /// A drawing: `… --dot rocketbufs | dot -Tsvg > layers.svg`
    #[arg(long, conflicts_with = "known")]
    dot: bool,
    /// What crates/tidy/layers-known.toml says if everything that breaks the order now is known
    #[arg(long)]
    known: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("import-graph: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, String> {
    let root = options.root.clone().unwrap_or_else(tree::root);
    let of_root = Some(root.join(layers::FILE)).filter(|path| path.exists());
    let path = options.layers.clone().or(of_root).unwrap_or_else(|| tree::root().join(layers::FILE));
    let declared: layers::Declared = layers::load(&path)?;
    let packages = imports::packages(&root)?;
    if let Some(name) = options.packages.iter().find(|name| packages.iter().all(|p| p.name != **name)) {
        let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        return Err(format!("there is no package {name}; there are {}", names.join(", ")));
    }
    let wanted = |name: &String| options.packages.is_empty() || options.packages.contains(name);
    let packages = packages.iter().filter(|package| wanted(&package.name));
    let graphs = packages.map(imports::graph).collect::<Result<Vec<_>, _>>()?;
    let reports = report::reports(&graphs, &declared);
    Ok(match options {
        Options { json: true, .. } => report::json(&reports) + "\n",
        Options { dot: true, .. } => report::dot(&reports),
        Options { known: true, .. } => layers::known(&graphs, &declared),
        Options { packages, .. } if packages.is_empty() => report::table(&reports),
        _ => reports.iter().map(report::details).collect::<Vec<_>>().join("\n"),
    })
}
