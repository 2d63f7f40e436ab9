//! The declared order of files, and what breaks it.
//!
//! A file imports from its own layer and from those below. An arrow from a lower layer to a higher one *climbs*; files
//! that need each other are a *circle*, within a layer too. The order is in [`FILE`]. What breaks it and is not mended
//! yet is listed in [`KNOWN_FILE`], which only gets shorter: [`complaints`] names what is new in the code, and what is
//! listed and gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::circles::{Circle, circles, shortest};
use crate::imports::{Arrow, Graph};

/// The declared order, relative to the root of the repository.
pub const FILE: &str = "crates/tidy/layers.toml";
/// What is known to break it, relative to the root of the repository.
pub const KNOWN_FILE: &str = "crates/tidy/layers-known.toml";
/// Where the packages lie whose order is checked: nobody builds on benches and fuzz targets.
const CHECKED: &str = "crates/";

/// What is declared, by the name of the package.
pub type Declared = BTreeMap<String, Order>;

/// What is known to break it, by the name of the package.
pub type Known = BTreeMap<String, Exceptions>;

/// The order of one package's files.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// From the ground to the top; none if only circles are looked for.
    pub layers: Vec<Layer>,
}

/// What breaks the order of one package.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// The files of each circle.
    #[serde(default)]
    pub circles: Vec<Vec<String>>,
    /// Arrows that climb: `src/a.rs -> src/b.rs`.
    #[serde(default)]
    pub climbs: Vec<String>,
}

/// Files that may import from each other and from the layers below.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// What it is called.
    pub name: String,
    /// Files, and folders with a `/` at the end, from the package's folder. The longest that fits a file counts.
    pub files: Vec<String>,
}

/// An arrow that climbs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Climb {
    /// Which.
    pub arrow: Arrow,
    /// The layer that it comes from.
    pub from_layer: String,
    /// The layer that it goes to.
    pub to_layer: String,
}

/// Reads [`FILE`] ([`Declared`]) or [`KNOWN_FILE`] ([`Known`]).
///
/// # Errors
/// It cannot be read, or says something else.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

impl Order {
    /// The layer of a file, counted from the ground.
    pub fn layer(&self, file: &str) -> Option<usize> {
        let entries = self.layers.iter().enumerate().flat_map(|(at, l)| l.files.iter().map(move |e| (e, at)));
        entries
            .filter(|(entry, _)| covers(entry, file))
            .max_by_key(|(entry, _)| entry.len())
            .map(|(_, at)| at)
    }

    /// The arrows that climb.
    pub fn climbing(&self, graph: &Graph) -> Vec<Climb> {
        let climbs = graph.arrows.iter().filter_map(|arrow| {
            let (from, to) = (self.layer(&arrow.from)?, self.layer(&arrow.to)?);
            (from < to).then(|| Climb {
                arrow: arrow.clone(),
                from_layer: self.layers[from].name.clone(),
                to_layer: self.layers[to].name.clone(),
            })
        });
        climbs.collect()
    }
}

fn covers(entry: &str, file: &str) -> bool {
    entry == file || (entry.ends_with('/') && file.starts_with(entry))
}

fn pair(arrow: &Arrow) -> String {
    format!("{} -> {}", arrow.from, arrow.to)
}

/// `crates/x/src/a.rs:3 imports crate::b::B from src/b.rs`.
fn show(folder: &str, arrow: &Arrow) -> String {
    format!("{folder}/{}:{} imports {} from {}", arrow.from, arrow.line, arrow.import, arrow.to)
}

/// Everything in which the code differs from what is declared and known, each with what to do.
pub fn complaints(graphs: &[Graph], declared: &Declared, known: &Known) -> Vec<String> {
    let mut found = Vec::new();
    for (file, names) in [(FILE, Vec::from_iter(declared.keys())), (KNOWN_FILE, Vec::from_iter(known.keys()))]
    {
        for name in names.iter().filter(|name| checked(graphs).all(|graph| graph.name != ***name)) {
            found.push(format!("{file}: [{name}] is no package in {CHECKED}: rename or remove it"));
        }
    }
    let none = Exceptions::default();
    for graph in checked(graphs) {
        let known = known.get(&graph.name).unwrap_or(&none);
        if let Some(order) = declared.get(&graph.name) {
            placed(graph, order, &mut found);
        }
        climbs(graph, &climbing(graph, declared), known, &mut found);
        known_circles(graph, known, &mut found);
    }
    found
}

fn checked(graphs: &[Graph]) -> impl Iterator<Item = &Graph> {
    graphs.iter().filter(|graph| graph.folder.starts_with(CHECKED))
}

fn climbing(graph: &Graph, declared: &Declared) -> Vec<Climb> {
    declared.get(&graph.name).map_or_else(Vec::new, |order| order.climbing(graph))
}

/// Every file has a layer, and every entry a file.
fn placed(graph: &Graph, order: &Order, found: &mut Vec<String>) {
    for file in graph.files.keys().filter(|file| order.layer(file).is_none()) {
        found.push(format!(
            "{}/{file} is in no layer: add it to one of [{}] in {FILE}",
            graph.folder, graph.name
        ));
    }
    for entry in order.layers.iter().flat_map(|layer| &layer.files) {
        if !graph.files.keys().any(|file| covers(entry, file)) {
            found.push(format!("{FILE}: [{}]: {entry} has no file: remove it", graph.name));
        }
    }
}

fn climbs(graph: &Graph, climbing: &[Climb], known: &Exceptions, found: &mut Vec<String>) {
    for Climb { arrow, from_layer, to_layer } in climbing {
        if !known.climbs.contains(&pair(arrow)) {
            found.push(format!(
                "{}: this climbs from layer {from_layer} to {to_layer}\n    move what both need into {from_layer} or \
                 below, hand it in as an argument, or put the file into the layer where it belongs in {FILE}",
                show(&graph.folder, arrow),
            ));
        }
    }
    for entry in known.climbs.iter().filter(|entry| climbing.iter().all(|c| pair(&c.arrow) != **entry)) {
        found.push(gone(graph, &format!("{entry} does not climb any more")));
    }
}

fn gone(graph: &Graph, what: &str) -> String {
    let name = &graph.name;
    format!(
        "{KNOWN_FILE}: [{name}]: {what}: remove it (scripts/import-graph --known prints the file as it is now)"
    )
}

fn known_circles(graph: &Graph, known: &Exceptions, found: &mut Vec<String>) {
    let now = circles(graph);
    for circle in &now {
        new_circle(graph, known, circle, found);
    }
    for file in known.circles.iter().flatten().filter(|file| now.iter().all(|c| !c.files.contains(file))) {
        found.push(gone(graph, &format!("{file} is in no circle any more")));
    }
}

/// A circle is known if one that is listed has all of its files. Otherwise what is new in it is told, by the shortest
/// way around.
fn new_circle(graph: &Graph, known: &Exceptions, circle: &Circle, found: &mut Vec<String>) {
    let common = |known: &&Vec<String>| known.iter().filter(|file| circle.files.contains(file)).count();
    let known = known.circles.iter().max_by_key(common).filter(|known| common(known) > 0);
    let new: Vec<&String> =
        circle.files.iter().filter(|file| known.is_none_or(|known| !known.contains(file))).collect();
    let mut told = BTreeSet::new();
    for file in new {
        let way = shortest(graph, file);
        // The same way, begun at another of its files, is no news.
        let mut files: Vec<&str> = way.iter().map(|arrow| arrow.from.as_str()).collect();
        files.sort_unstable();
        if !told.insert(files) {
            continue;
        }
        let mut text = match known {
            Some(_) => format!("{}/{file} is now in a circle that was there without it:", graph.folder),
            None => format!("{}/{file} is in an import circle:", graph.folder),
        };
        for arrow in way {
            let _ = write!(text, "\n      {}", show(&graph.folder, arrow));
        }
        text += "\n    cut it: move what both need into a file below both, or hand it in as an argument";
        found.push(text);
    }
}

/// What [`KNOWN_FILE`] says if everything that breaks the order now is known.
pub fn known(graphs: &[Graph], declared: &Declared) -> String {
    let mut text = String::from(
        "# What breaks the order of layers.toml and is not mended yet: import circles of files, and imports that climb to a\n\
         # higher layer. crates/tidy/tests/layers.rs fails when there is more, and when something listed here is gone.\n\
         # Written by `scripts/import-graph --known`.\n",
    );
    for graph in checked(graphs) {
        let (climbing, circles) = (climbing(graph, declared), circles(graph));
        if !climbing.is_empty() || !circles.is_empty() {
            let _ = writeln!(text, "\n[{}]", graph.name);
        }
        if !circles.is_empty() {
            let lists = circles.iter().map(|circle| format!("  {},\n", list(circle.files.iter(), "    ")));
            let _ = writeln!(text, "circles = [\n{}]", lists.collect::<String>());
        }
        if !climbing.is_empty() {
            let pairs: Vec<String> = climbing.iter().map(|climb| pair(&climb.arrow)).collect();
            let _ = writeln!(text, "climbs = {}", list(pairs.iter(), "  "));
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
