//! The import graph of a package: which file imports from which.
//!
//! ```text
//!   src/rout.rs ── use crate::buffer::Buffer; ──▶ src/buffer.rs      an import
//!   src/lib.rs     mod rout; pub use rout::ROut;                     no import: a declaration and a re-export
//!   src/a.rs    ── use crate::ROut; ──▶ src/rout.rs                  leads to the file with the definition
//! ```
//!
//! The sources of imports are private `use` declarations and paths in code, also in the arguments and bodies of macros.
//! Code for tests (`#[cfg(test)]`), comments, literals and attributes are ignored. A `use` of a module is no import by
//! itself; the paths through the module are. A method call names no path and is therefore no import; [`Type`] has the
//! number of methods and the files that define them.

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
    /// The name of the package.
    pub name: String,
    /// Its folder, relative to the root of the repository.
    pub folder: String,
    /// The text of each file of `src/`, by its path from the package's folder.
    pub sources: BTreeMap<String, String>,
}

/// An import of one file from another of the same package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Import {
    /// The importing file.
    pub from: String,
    /// The file that defines the imported item.
    pub to: String,
    /// The first line of `from` with such a path.
    pub line: usize,
    /// The path in that line.
    pub path: String,
}

/// The files of a package with their imports and sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// The name of the package.
    pub name: String,
    /// Its folder, relative to the root of the repository.
    pub folder: String,
    /// The number of lines of each file. Files for tests only are left out.
    pub files: BTreeMap<String, usize>,
    /// The number of lines in `src/`, with tests.
    pub lines: usize,
    /// An import for each pair of files, sorted.
    pub imports: Vec<Import>,
    /// The types, sorted by the number of methods, the largest first.
    pub types: Vec<Type>,
    /// The public names at the root of the library.
    pub exported: Vec<String>,
}

/// Builds the import graph of a package.
///
/// # Errors
/// The path and line of a file that cannot be parsed.
pub fn graph(package: &Package) -> Result<Graph, String> {
    let modules = Modules::parse(&package.sources).map_err(|error| format!("{}/{error}", package.folder))?;
    let resolver = Resolver { modules: &modules, library: package.name.replace('-', "_") };
    let lines = |file: &str| package.sources[file].lines().count();
    let mut imports = BTreeMap::new();
    for id in 0..modules.all.len() {
        add_imports(&resolver, id, &mut imports);
    }
    Ok(Graph {
        name: package.name.clone(),
        folder: package.folder.clone(),
        files: modules.all.iter().map(|module| (module.file.clone(), lines(&module.file))).collect(),
        lines: package.sources.keys().map(|file| lines(file)).sum(),
        imports: imports.into_values().collect(),
        types: types::all(&resolver),
        exported: types::exported(&resolver),
    })
}

/// Adds the imports of a module, with the first line for each imported file.
fn add_imports(resolver: &Resolver<'_>, id: Id, imports: &mut BTreeMap<(String, String), Import>) {
    let module = &resolver.modules.all[id];
    let mut add = |to: &str, line: usize, path: &[String]| {
        if to != module.file {
            let import = Import { from: module.file.clone(), to: to.into(), line, path: path.join("::") };
            let first =
                imports.entry((import.from.clone(), import.to.clone())).or_insert_with(|| import.clone());
            if line < first.line {
                *first = import;
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
