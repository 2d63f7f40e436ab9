//! Import cycles: files that import each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use crate::imports::{Graph, Import};

/// A strongly connected component: each file imports every other one, directly or through others of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cycle {
    /// Sorted.
    pub files: Vec<String>,
    /// Lines of all of them.
    pub lines: usize,
    /// The imports between them.
    pub imports: Vec<Import>,
}

/// The cycles of a graph, the largest first.
pub fn cycles(graph: &Graph) -> Vec<Cycle> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.files.keys().map(|file| (file.as_str(), reachable(graph, file))).collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for (file, ahead) in &reached {
        if !ahead.contains(file) || done.contains(file) {
            continue;
        }
        let files: BTreeSet<&str> =
            ahead.iter().copied().filter(|other| reached[other].contains(file)).collect();
        done.extend(&files);
        let inside =
            |import: &&Import| files.contains(import.from.as_str()) && files.contains(import.to.as_str());
        found.push(Cycle {
            lines: files.iter().map(|file| graph.files[*file]).sum(),
            imports: graph.imports.iter().filter(inside).cloned().collect(),
            files: files.into_iter().map(str::to_owned).collect(),
        });
    }
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.files.len()));
    found
}

/// The files that a file imports, directly or through others; the file itself only if it is in a cycle.
fn reachable<'a>(graph: &'a Graph, file: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(at) = waiting.pop() {
        for import in imports_of(graph, at) {
            if found.insert(import.to.as_str()) {
                waiting.push(&import.to);
            }
        }
    }
    found
}

/// The imports of a file. `Graph::imports` is sorted by file.
fn imports_of<'a>(graph: &'a Graph, file: &str) -> &'a [Import] {
    let from = graph.imports.partition_point(|import| import.from.as_str() < file);
    let to = graph.imports.partition_point(|import| import.from.as_str() <= file);
    &graph.imports[from..to]
}

/// The shortest cycle through a file, from import to import; empty if the file is in no cycle.
pub fn shortest<'a>(graph: &'a Graph, file: &str) -> Vec<&'a Import> {
    let mut by: BTreeMap<&str, &Import> = BTreeMap::new();
    let mut waiting = VecDeque::from([file]);
    while let Some(at) = waiting.pop_front() {
        for import in imports_of(graph, at) {
            if !by.contains_key(import.to.as_str()) {
                by.insert(&import.to, import);
                waiting.push_back(&import.to);
            }
        }
        if by.contains_key(file) {
            break;
        }
    }
    let mut way = Vec::new();
    let mut at = file;
    while let Some(import) = by.get(at) {
        way.insert(0, *import);
        at = &import.from;
        if at == file {
            break;
        }
    }
    way
}
