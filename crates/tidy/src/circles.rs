//! Files that need each other: import circles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use crate::imports::{Arrow, Graph};

/// Files of which each needs every other, by however many steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Circle {
    /// Sorted.
    pub files: Vec<String>,
    /// Lines of all of them.
    pub lines: usize,
    /// The arrows between them.
    pub arrows: Vec<Arrow>,
}

/// The strongly connected components of two files and more, the largest first.
pub fn circles(graph: &Graph) -> Vec<Circle> {
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
            |arrow: &&Arrow| files.contains(arrow.from.as_str()) && files.contains(arrow.to.as_str());
        found.push(Circle {
            lines: files.iter().map(|file| graph.files[*file]).sum(),
            arrows: graph.arrows.iter().filter(inside).cloned().collect(),
            files: files.into_iter().map(str::to_owned).collect(),
        });
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.files.len()));
    found
}

/// What a file needs, directly or not; itself only if it is in a circle.
fn reachable<'a>(graph: &'a Graph, file: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(at) = waiting.pop() {
        for arrow in leaving(graph, at) {
            if found.insert(arrow.to.as_str()) {
                waiting.push(&arrow.to);
            }
        }
    }
    found
}

/// The arrows that leave a file. They are sorted by it.
fn leaving<'a>(graph: &'a Graph, file: &str) -> &'a [Arrow] {
    let from = graph.arrows.partition_point(|arrow| arrow.from.as_str() < file);
    let to = graph.arrows.partition_point(|arrow| arrow.from.as_str() <= file);
    &graph.arrows[from..to]
}

/// The shortest way from a file back to it; empty if there is none.
pub fn shortest<'a>(graph: &'a Graph, file: &str) -> Vec<&'a Arrow> {
    let mut by: BTreeMap<&str, &Arrow> = BTreeMap::new();
    let mut waiting = VecDeque::from([file]);
    while let Some(at) = waiting.pop_front() {
        for arrow in leaving(graph, at) {
            if !by.contains_key(arrow.to.as_str()) {
                by.insert(&arrow.to, arrow);
                waiting.push_back(&arrow.to);
            }
        }
        if by.contains_key(file) {
            break;
        }
    }
    let mut way = Vec::new();
    let mut at = file;
    while let Some(arrow) = by.get(at) {
        way.insert(0, *arrow);
        at = &arrow.from;
        if at == file {
            break;
        }
    }
    way
}
