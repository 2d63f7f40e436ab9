//! Which file of a crate imports from which, as a graph.
//!
//! ```text
//!   src/rout.rs ── use crate::buffer::Buffer; ──▶ src/buffer.rs      an arrow: "needs"
//!   src/lib.rs     mod rout; pub use rout::ROut;                     none: declaring and re-exporting needs nothing
//!   src/a.rs    ── use crate::ROut; ──▶ src/rout.rs                  to the file that defines, past re-exports
//! ```
//!
//! Counted are private `use` declarations and paths in code, also in the arguments and bodies of macros: not what is
//! compiled for tests only, not comments, literals and attributes. A `use` of a module counts by the paths that go
//! through it. Methods that are called need no import, and are no arrows: how many methods a type has, and in how many
//! files, is counted beside the graph.

mod modules;
mod paths;
mod resolve;
mod types;
mod workspace;

use std::collections::BTreeMap;

use serde::Serialize;

use modules::{Id, Modules, Reach};
use resolve::{Resolver, Target};
pub use types::Type;
pub use workspace::packages;

/// A package of the workspace with its sources.
#[derive(Debug, Clone)]
pub struct Package {
    /// What Cargo calls it.
    pub name: String,
    /// Its folder, relative to the root of the repository.
    pub folder: String,
    /// The text of each file of `src/`, by its path from the package's folder.
    pub sources: BTreeMap<String, String>,
}

/// One file needs another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Arrow {
    /// The file that imports.
    pub from: String,
    /// The file that defines what is imported.
    pub to: String,
    /// The first line of `from` that says so.
    pub line: usize,
    /// The path in that line.
    pub import: String,
}

/// The files of a package, what they need of each other, and how large it all is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// What Cargo calls the package.
    pub name: String,
    /// Its folder, relative to the root of the repository.
    pub folder: String,
    /// Lines of each file, without those that are compiled for tests only.
    pub files: BTreeMap<String, usize>,
    /// Lines of all files in `src/`.
    pub lines: usize,
    /// One for each pair of files, sorted.
    pub arrows: Vec<Arrow>,
    /// Every type, those with the most methods first.
    pub types: Vec<Type>,
    /// The names that the library shows at its root.
    pub exported: Vec<String>,
}

/// Reads the sources of a package.
///
/// # Errors
/// A file that cannot be parsed, with its line.
pub fn graph(package: &Package) -> Result<Graph, String> {
    let modules = Modules::parse(&package.sources).map_err(|error| format!("{}/{error}", package.folder))?;
    let resolver = Resolver { modules: &modules, library: package.name.replace('-', "_") };
    let lines = |file: &str| package.sources[file].lines().count();
    let mut arrows = BTreeMap::new();
    for id in 0..modules.all.len() {
        add_arrows(&resolver, id, &mut arrows);
    }
    Ok(Graph {
        name: package.name.clone(),
        folder: package.folder.clone(),
        files: modules.all.iter().map(|module| (module.file.clone(), lines(&module.file))).collect(),
        lines: package.sources.keys().map(|file| lines(file)).sum(),
        arrows: arrows.into_values().collect(),
        types: types::all(&resolver),
        exported: types::exported(&resolver),
    })
}

/// Adds what a module needs of other files, the first line for each.
fn add_arrows(resolver: &Resolver<'_>, id: Id, arrows: &mut BTreeMap<(String, String), Arrow>) {
    let module = &resolver.modules.all[id];
    let mut add = |to: &str, line: usize, path: &[String]| {
        if to != module.file {
            let arrow = Arrow { from: module.file.clone(), to: to.into(), line, import: path.join("::") };
            let first = arrows.entry((arrow.from.clone(), arrow.to.clone())).or_insert_with(|| arrow.clone());
            if line < first.line {
                *first = arrow;
            }
        }
    };
    for import in
        module.uses.iter().filter(|found| found.visibility == Reach::Private && found.name.is_some())
    {
        if let Some(Target::Item(to, _)) = resolver.resolve(id, &import.path) {
            add(&resolver.modules.all[to].file, import.line, &import.path);
        }
    }
    for found in module.items.iter().flat_map(paths::of) {
        match resolver.resolve(id, &found.path) {
            Some(Target::Item(to, _)) => add(&resolver.modules.all[to].file, found.line, &found.path),
            None if found.is_macro && found.path.len() == 1 => {
                if let Some(file) = resolver.modules.macros.get(&found.path[0]) {
                    add(file, found.line, &found.path);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
