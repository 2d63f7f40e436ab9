//! The import graphs of a workspace as a table, as JSON, and as a drawing.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cycles::{Cycle, cycles};
use crate::imports::{Graph, Import, Type};
use crate::layers::{Declared, Order, Upward};

/// The number of types that are listed for each package.
const TYPES: usize = 5;

/// The report on one package.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Files, imports, types and exported names.
    #[serde(flatten)]
    pub graph: &'a Graph,
    /// Import cycles, the largest first.
    pub cycles: Vec<Cycle>,
    /// Upward imports; None if the package has no declared layers.
    pub upward: Option<Vec<Upward>>,
    #[serde(skip)]
    order: Option<&'a Order>,
}

/// A report for each graph.
pub fn reports<'a>(graphs: &'a [Graph], declared: &'a Declared) -> Vec<Report<'a>> {
    let report = |graph: &'a Graph| {
        let order = declared.get(&graph.name).filter(|order| !order.layers.is_empty());
        let upward = order.map(|order| order.upward(graph));
        Report { graph, cycles: cycles(graph), upward, order }
    };
    graphs.iter().map(report).collect()
}

/// All reports as JSON.
pub fn json(reports: &[Report<'_>]) -> String {
    serde_json::to_string_pretty(reports).expect("maps have strings for keys")
}

/// A line for each package.
pub fn table(reports: &[Report<'_>]) -> String {
    let heads =
        ["package", "files", "lines", "imports", "cycles", "in cycles", "upward", "exported", "largest type"];
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
    for report in reports {
        let graph = report.graph;
        let cycling: usize = report.cycles.iter().map(|cycle| cycle.files.len()).sum();
        let lines: usize = report.cycles.iter().map(|cycle| cycle.lines).sum();
        rows.push(vec![
            graph.name.clone(),
            graph.files.len().to_string(),
            graph.lines.to_string(),
            graph.imports.len().to_string(),
            report.cycles.len().to_string(),
            if cycling == 0 { "-".into() } else { format!("{cycling} files, {lines} lines") },
            report.upward.as_ref().map_or("-".into(), |upward| upward.len().to_string()),
            if graph.exported.is_empty() { "-".into() } else { graph.exported.len().to_string() },
            graph.types.first().map_or("-".into(), methods),
        ]);
    }
    aligned(&rows)
}

fn methods(found: &Type) -> String {
    format!("{}: {} methods in {} files", found.name, found.methods, found.files.len())
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// The details of one package: layers, cycles, upward imports, types and exported names.
pub fn details(report: &Report<'_>) -> String {
    let graph = report.graph;
    let mut text = format!("{} ({})\n", graph.name, graph.folder);
    if let Some(order) = report.order {
        text += &layers(graph, order);
    }
    for cycle in &report.cycles {
        let (files, lines, imports) = (cycle.files.len(), cycle.lines, cycle.imports.len());
        let _ = writeln!(text, "\ncycle of {files} files, {lines} lines, {imports} imports");
        for file in &cycle.files {
            let _ = writeln!(text, "  {file}  {} lines", graph.files[file]);
        }
    }
    if let Some(upward) = &report.upward {
        let _ = writeln!(text, "\n{} upward imports", upward.len());
        for Upward { import, from_layer, to_layer } in upward {
            let (from, to) = (format!("{}:{}", import.from, import.line), &import.to);
            let _ = writeln!(text, "  {from} -> {to}  {}  ({from_layer} -> {to_layer})", import.path);
        }
    }
    text += "\nlargest types\n";
    for found in graph.types.iter().take(TYPES) {
        let (public, traits, fields) = (found.public_methods, found.trait_methods, found.fields);
        let _ = writeln!(text, "  {}; {public} public, {traits} by traits, {fields} fields", methods(found));
    }
    if !graph.exported.is_empty() {
        let _ = writeln!(text, "\n{} exported names\n  {}", graph.exported.len(), graph.exported.join(" "));
    }
    text
}

/// The layers, the highest first, and the number of imports from each layer to each.
fn layers(graph: &Graph, order: &Order) -> String {
    let names = order.layers.iter().map(|layer| layer.name.clone());
    let mut rows =
        vec![["layer", "files", "lines"].map(str::to_owned).into_iter().chain(names.rev()).collect()];
    for (at, layer) in order.layers.iter().enumerate().rev() {
        let files = graph.files.iter().filter(|(file, _)| order.layer(file) == Some(at));
        let (count, lines) = files.fold((0, 0), |(count, lines), (_, more)| (count + 1, lines + more));
        let mut row = vec![layer.name.clone(), count.to_string(), lines.to_string()];
        for below in (0..order.layers.len()).rev() {
            let between =
                |from: &str, to: &str| order.layer(from) == Some(at) && order.layer(to) == Some(below);
            let imports = graph.imports.iter().filter(|import| between(&import.from, &import.to)).count();
            row.push(match imports {
                0 => ".".into(),
                _ if below > at => format!("{imports} upward"),
                _ => imports.to_string(),
            });
        }
        rows.push(row);
    }
    format!("imports from the layer in the row to the layer in the column\n{}", aligned(&rows))
}

/// A drawing for Graphviz: a box for each layer; upward imports are red, files in cycles are orange.
pub fn dot(reports: &[Report<'_>]) -> String {
    let mut text = String::from("digraph imports {\n  rankdir=TB; node [shape=box, fontsize=10];\n");
    for report in reports {
        let graph = report.graph;
        let _ = writeln!(text, "  subgraph \"cluster {}\" {{\n    label=\"{0}\";", graph.name);
        let layers = report.order.map_or(&[][..], |order| &order.layers);
        for (at, layer) in layers.iter().enumerate().rev() {
            let files =
                graph.files.keys().filter(|file| report.order.and_then(|o| o.layer(file)) == Some(at));
            let nodes: String = files.map(|file| format!(" \"{}\";", node(graph, file))).collect();
            let _ = writeln!(
                text,
                "    subgraph \"cluster {} {}\" {{ label=\"{1}\";{nodes} }}",
                graph.name, layer.name
            );
        }
        for file in graph.files.keys() {
            let cycling = report.cycles.iter().any(|cycle| cycle.files.contains(file));
            let color = if cycling { ", color=orange" } else { "" };
            let label = file.strip_prefix("src/").unwrap_or(file);
            let _ = writeln!(text, "    \"{}\" [label=\"{label}\"{color}];", node(graph, file));
        }
        let upward = |import: &Import| report.upward.iter().flatten().any(|upward| upward.import == *import);
        for import in &graph.imports {
            let color = if upward(import) { " [color=red]" } else { "" };
            let (from, to) = (node(graph, &import.from), node(graph, &import.to));
            let _ = writeln!(text, "    \"{from}\" -> \"{to}\"{color};");
        }
        text += "  }\n";
    }
    text + "}\n"
}

fn node(graph: &Graph, file: &str) -> String {
    format!("{}/{file}", graph.folder)
}
