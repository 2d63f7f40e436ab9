//! `import-graph`: the import graph of a checkout.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidy::{imports, layers, report, tree};

/// The import graph of a checkout: import cycles, upward imports, the largest types, exported names
///
/// Without package names: a table with one line for each package. With names: the details of these packages.
#[derive(Parser)]
struct Options {
    /// Names of packages
    packages: Vec<String>,
    /// Root of the checkout [default: the checkout of this program]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Declared layers [default: lab/tidy/layers.toml of DIR, or of this program if DIR has none]
    #[arg(long, value_name = "FILE")]
    layers: Option<PathBuf>,
    /// Print JSON, with every file and import
    #[arg(long, conflicts_with_all = ["dot", "known"])]
    json: bool,
    /// Print a drawing for Graphviz: `import-graph --dot rocketbufs | dot -Tsvg > layers.svg`
    #[arg(long, conflicts_with = "known")]
    dot: bool,
    /// Print lab/tidy/layers-known.toml with the violations of now
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
        Options { known: true, .. } => layers::known_violations(&graphs, &declared),
        Options { packages, .. } if packages.is_empty() => report::table(&reports),
        _ => reports.iter().map(report::details).collect::<Vec<_>>().join("\n"),
    })
}
