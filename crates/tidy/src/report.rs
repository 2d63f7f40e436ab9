//! The import graphs of a workspace as a table, as JSON, and as a drawing.

use std::fmt::Write as _;

use serde::Serialize;

use crate::circles::{Circle, circles};
use crate::imports::{Arrow, Graph, Type};
use crate::layers::{Climb, Declared, Order};

/// How many types are told of each package.
const TYPES: usize = 5;

/// What is told of one package.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Its files, arrows, types and exported names.
    #[serde(flatten)]
    pub graph: &'a Graph,
    /// Circles, the largest first.
    pub circles: Vec<Circle>,
    /// Arrows that climb; None if no order is declared.
    pub climbing: Option<Vec<Climb>>,
    #[serde(skip)]
    order: Option<&'a Order>,
}

/// One report for each graph.
pub fn reports<'a>(graphs: &'a [Graph], declared: &'a Declared) -> Vec<Report<'a>> {
    let report = |graph: &'a Graph| {
        let order = declared.get(&graph.name).filter(|order| !order.layers.is_empty());
        let climbing = order.map(|order| order.climbing(graph));
        Report { graph, circles: circles(graph), climbing, order }
    };
    graphs.iter().map(report).collect()
}

/// Everything, for programs.
pub fn json(reports: &[Report<'_>]) -> String {
    serde_json::to_string_pretty(reports).expect("maps have strings for keys")
}

/// A line for each package.
pub fn table(reports: &[Report<'_>]) -> String {
    let heads = [
        "package",
        "files",
        "lines",
        "arrows",
        "circles",
        "in circles",
        "climbing",
        "exported",
        "largest type",
    ];
    let mut rows: Vec<Vec<String>> = vec![heads.map(str::to_owned).to_vec()];
    for report in reports {
        let graph = report.graph;
        let circling: usize = report.circles.iter().map(|circle| circle.files.len()).sum();
        let lines: usize = report.circles.iter().map(|circle| circle.lines).sum();
        rows.push(vec![
            graph.name.clone(),
            graph.files.len().to_string(),
            graph.lines.to_string(),
            graph.arrows.len().to_string(),
            report.circles.len().to_string(),
            if circling == 0 { "-".into() } else { format!("{circling} files, {lines} lines") },
            report.climbing.as_ref().map_or("-".into(), |climbing| climbing.len().to_string()),
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

/// Everything about one package, for people: its layers, circles, climbing arrows, types and exported names.
pub fn details(report: &Report<'_>) -> String {
    let graph = report.graph;
    let mut text = format!("{} ({})\n", graph.name, graph.folder);
    if let Some(order) = report.order {
        text += &layers(graph, order);
    }
    for circle in &report.circles {
        let (files, lines, arrows) = (circle.files.len(), circle.lines, circle.arrows.len());
        let _ = writeln!(text, "\ncircle of {files} files, {lines} lines, {arrows} arrows");
        for file in &circle.files {
            let _ = writeln!(text, "  {file}  {} lines", graph.files[file]);
        }
    }
    if let Some(climbing) = &report.climbing {
        let _ = writeln!(text, "\n{} arrows climb", climbing.len());
        for Climb { arrow, from_layer, to_layer } in climbing {
            let (from, to) = (format!("{}:{}", arrow.from, arrow.line), &arrow.to);
            let _ = writeln!(text, "  {from} -> {to}  {}  ({from_layer} -> {to_layer})", arrow.import);
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

/// The layers, the top first, each with what its files import from which.
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
            let arrows = graph.arrows.iter().filter(|arrow| between(&arrow.from, &arrow.to)).count();
            row.push(match arrows {
                0 => ".".into(),
                _ if below > at => format!("{arrows} climb"),
                _ => arrows.to_string(),
            });
        }
        rows.push(row);
    }
    format!("arrows from the layer of a row to the layer of a column\n{}", aligned(&rows))
}

/// A drawing for Graphviz: a box of files for each layer, the top first; red what climbs, orange what is in a circle.
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
            let circling = report.circles.iter().any(|circle| circle.files.contains(file));
            let color = if circling { ", color=orange" } else { "" };
            let label = file.strip_prefix("src/").unwrap_or(file);
            let _ = writeln!(text, "    \"{}\" [label=\"{label}\"{color}];", node(graph, file));
        }
        let climbing = |arrow: &Arrow| report.climbing.iter().flatten().any(|climb| climb.arrow == *arrow);
        for arrow in &graph.arrows {
            let color = if climbing(arrow) { " [color=red]" } else { "" };
            let (from, to) = (node(graph, &arrow.from), node(graph, &arrow.to));
            let _ = writeln!(text, "    \"{from}\" -> \"{to}\"{color};");
        }
        text += "  }\n";
    }
    text + "}\n"
}

fn node(graph: &Graph, file: &str) -> String {
    format!("{}/{file}", graph.folder)
}
