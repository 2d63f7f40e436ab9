//! The declared layers of each package, and the imports that violate them.
//!
//! A file may import from its own layer and from the layers below. An import from a lower layer to a higher one is an
//! *upward* import. Files that import each other are a *cycle*, also inside one layer. [`FILE`] declares the layers.
//! [`KNOWN_FILE`] lists the violations that exist today. The list can only get shorter: [`violations`] reports every
//! violation that is not listed, and every listed violation that no longer exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cycles::{Cycle, cycles, shortest};
use crate::imports::{Graph, Import};

/// The declared layers, relative to the root of the repository.
pub const FILE: &str = "lab/tidy/layers.toml";
/// The violations that exist today, relative to the root of the repository.
pub const KNOWN_FILE: &str = "lab/tidy/layers-known.toml";
/// The folder of packages that are not checked: no package depends on fuzz targets.
const FREE: &str = "lab/fuzz/";

/// The declared layers of each package, by package name.
pub type Declared = BTreeMap<String, Order>;

/// The known violations of each package, by package name.
pub type Known = BTreeMap<String, Exceptions>;

/// The layers of one package.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The lowest layer first.
    pub layers: Vec<Layer>,
}

/// The known violations of one package.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// The files of each cycle.
    #[serde(default)]
    pub cycles: Vec<Vec<String>>,
    /// Upward imports: `src/a.rs -> src/b.rs`.
    #[serde(default)]
    pub upward: Vec<String>,
}

/// A set of files that may import from each other and from the layers below.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// The name of the layer.
    pub name: String,
    /// Files, and folders (with a `/` at the end), relative to the package. The longest entry that matches a file
    /// decides its layer.
    pub files: Vec<String>,
}

/// An import from a lower layer to a higher one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upward {
    /// The import.
    pub import: Import,
    /// The layer of the importing file.
    pub from_layer: String,
    /// The layer of the imported file.
    pub to_layer: String,
}

/// Reads [`FILE`] ([`Declared`]) or [`KNOWN_FILE`] ([`Known`]).
///
/// # Errors
/// The file cannot be read or parsed.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

impl Order {
    /// The layer of a file; 0 is the lowest.
    pub fn layer(&self, file: &str) -> Option<usize> {
        let entries = self.layers.iter().enumerate().flat_map(|(at, l)| l.files.iter().map(move |e| (e, at)));
        entries
            .filter(|(entry, _)| covers(entry, file))
            .max_by_key(|(entry, _)| entry.len())
            .map(|(_, at)| at)
    }

    /// The upward imports.
    pub fn upward(&self, graph: &Graph) -> Vec<Upward> {
        let upward = graph.imports.iter().filter_map(|import| {
            let (from, to) = (self.layer(&import.from)?, self.layer(&import.to)?);
            (from < to).then(|| Upward {
                import: import.clone(),
                from_layer: self.layers[from].name.clone(),
                to_layer: self.layers[to].name.clone(),
            })
        });
        upward.collect()
    }
}

fn covers(entry: &str, file: &str) -> bool {
    entry == file || (entry.ends_with('/') && file.starts_with(entry))
}

fn pair(import: &Import) -> String {
    format!("{} -> {}", import.from, import.to)
}

/// `base/x/src/a.rs:3 imports crate::b::B from src/b.rs`.
fn show(folder: &str, import: &Import) -> String {
    format!("{folder}/{}:{} imports {} from {}", import.from, import.line, import.path, import.to)
}

/// Every difference between the imports and the declared layers with their known violations. Each text names the file,
/// the line and the remedy.
pub fn violations(graphs: &[Graph], declared: &Declared, known: &Known) -> Vec<String> {
    let mut found = Vec::new();
    for (file, names) in [(FILE, Vec::from_iter(declared.keys())), (KNOWN_FILE, Vec::from_iter(known.keys()))]
    {
        for name in names.iter().filter(|name| checked(graphs).all(|graph| graph.name != ***name)) {
            found.push(format!(
                "{file}: [{name}] names no package outside of {FREE}: rename or remove the section"
            ));
        }
    }
    let none = Exceptions::default();
    for graph in checked(graphs) {
        let known = known.get(&graph.name).unwrap_or(&none);
        if let Some(order) = declared.get(&graph.name) {
            check_files(graph, order, &mut found);
        }
        check_upward(graph, &upward(graph, declared), known, &mut found);
        check_cycles(graph, known, &mut found);
    }
    found
}

fn checked(graphs: &[Graph]) -> impl Iterator<Item = &Graph> {
    graphs.iter().filter(|graph| !graph.folder.starts_with(FREE))
}

fn upward(graph: &Graph, declared: &Declared) -> Vec<Upward> {
    declared.get(&graph.name).map_or_else(Vec::new, |order| order.upward(graph))
}

/// Every file needs a layer, and every entry needs a file.
fn check_files(graph: &Graph, order: &Order, found: &mut Vec<String>) {
    for file in graph.files.keys().filter(|file| order.layer(file).is_none()) {
        found.push(format!(
            "{}/{file} has no layer: add the file to a layer of [{}] in {FILE}",
            graph.folder, graph.name
        ));
    }
    for entry in order.layers.iter().flat_map(|layer| &layer.files) {
        if !graph.files.keys().any(|file| covers(entry, file)) {
            found.push(format!("{FILE}: [{}]: {entry} matches no file: remove the entry", graph.name));
        }
    }
}

fn check_upward(graph: &Graph, upward: &[Upward], known: &Exceptions, found: &mut Vec<String>) {
    for Upward { import, from_layer, to_layer } in upward {
        if !known.upward.contains(&pair(import)) {
            found.push(format!(
                "{}: an upward import, from layer {from_layer} to {to_layer}\n    remedy: move the shared item to layer \
                 {from_layer} or below, or pass it as an argument; if the file is in the wrong layer, change {FILE}",
                show(&graph.folder, import),
            ));
        }
    }
    for entry in known.upward.iter().filter(|entry| upward.iter().all(|c| pair(&c.import) != **entry)) {
        found.push(gone(graph, &format!("{entry} is no longer an upward import")));
    }
}

fn gone(graph: &Graph, what: &str) -> String {
    let name = &graph.name;
    format!("{KNOWN_FILE}: [{name}]: {what}: remove the entry")
}

fn check_cycles(graph: &Graph, known: &Exceptions, found: &mut Vec<String>) {
    let now = cycles(graph);
    for cycle in &now {
        check_cycle(graph, known, cycle, found);
    }
    for file in known.cycles.iter().flatten().filter(|file| now.iter().all(|c| !c.files.contains(file))) {
        found.push(gone(graph, &format!("{file} is no longer in a cycle")));
    }
}

/// A cycle is known if one listed cycle contains all of its files. Otherwise each file that is not listed is reported,
/// with the shortest cycle through it.
fn check_cycle(graph: &Graph, known: &Exceptions, cycle: &Cycle, found: &mut Vec<String>) {
    let common = |known: &&Vec<String>| known.iter().filter(|file| cycle.files.contains(file)).count();
    let known = known.cycles.iter().max_by_key(common).filter(|known| common(known) > 0);
    let new: Vec<&String> =
        cycle.files.iter().filter(|file| known.is_none_or(|known| !known.contains(file))).collect();
    let mut reported = BTreeSet::new();
    for file in new {
        let way = shortest(graph, file);
        // Another file of the same cycle has been reported already.
        let mut files: Vec<&str> = way.iter().map(|import| import.from.as_str()).collect();
        files.sort_unstable();
        if !reported.insert(files) {
            continue;
        }
        let mut text = match known {
            Some(_) => format!("{}/{file} has joined a known import cycle:", graph.folder),
            None => format!("{}/{file} is in an import cycle:", graph.folder),
        };
        for import in way {
            let _ = write!(text, "\n      {}", show(&graph.folder, import));
        }
        text += "\n    remedy: move the shared item to a file that both import, or pass it as an argument";
        found.push(text);
    }
}

/// The contents of [`KNOWN_FILE`] that list every violation of these graphs.
pub fn known_violations(graphs: &[Graph], declared: &Declared) -> String {
    let mut text = String::from(
        "# The import cycles, and the upward imports (see layers.toml), that exist today. lab/tidy/tests/suite/layers.rs fails for\n\
         # every violation that is not listed, and for every entry that is out of date.\n\
         # Written by `scripts/import-graph --known`.\n",
    );
    for graph in checked(graphs) {
        let (upward, cycles) = (upward(graph, declared), cycles(graph));
        if !upward.is_empty() || !cycles.is_empty() {
            let _ = writeln!(text, "\n[{}]", graph.name);
        }
        if !cycles.is_empty() {
            let lists = cycles.iter().map(|cycle| format!("  {},\n", list(cycle.files.iter(), "    ")));
            let _ = writeln!(text, "cycles = [\n{}]", lists.collect::<String>());
        }
        if !upward.is_empty() {
            let pairs: Vec<String> = upward.iter().map(|upward| pair(&upward.import)).collect();
            let _ = writeln!(text, "upward = {}", list(pairs.iter(), "  "));
        }
    }
    text
}

fn list<'a>(entries: impl Iterator<Item = &'a String>, indent: &str) -> String {
    let lines: String = entries.map(|entry| format!("{indent}\"{entry}\",\n")).collect();
    format!("[\n{lines}{}]", &indent[2..])
}

#[cfg(test)]
mod tests;
