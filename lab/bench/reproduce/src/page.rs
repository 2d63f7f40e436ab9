//! The page: for each figure the paper's claim and numbers, ours and the others', where we are behind, and how it was measured.

use std::{
    fs, io,
    time::{Duration, UNIX_EPOCH},
};

use benchkit::{
    stats::Estimate,
    table::distinct,
    view::{Point, Ratio, Verdict, View, word, words},
};
use serde_json::Value;

use crate::{
    list::{Figure, List, Number, Take},
    run::{Kept, Place},
};

/// More than a run has repetitions.
const REPS: u64 = 10_000;
/// The most places at which a line names where we are behind.
const MOST_BEHIND: usize = 8;

/// A part of the page.
#[derive(Debug)]
enum Part {
    Title(usize, String),
    Text(String),
    Code(String),
    Table(Vec<String>, Vec<Vec<String>>),
    /// The name of the file, and the SVG
    Picture(String, String),
}

/// Writes the page for these figures: index.html, README.md and the plots. The path of the page is returned.
///
/// # Errors
/// A file cannot be written.
pub fn write(place: &Place, list: &List) -> io::Result<std::path::PathBuf> {
    let mut parts = vec![
        Part::Title(1, "The papers' figures, measured here".into()),
        Part::Text(
            "Figures are medians of repetitions. Brackets are 95 % intervals: with six repetitions or more of the median, with two to \
             five of the mean (Student's t); a single repetition has none. Systems are measured in turn within each repetition, and a \
             ratio is that of such pairs. Ahead and behind are said where the whole interval of the ratio is on one side of 1; each \
             interval errs once in twenty times. Each figure says what differs from the paper's setting: \
             the order of systems can be compared, and most absolute numbers cannot."
                .into(),
        ),
    ];
    let sources = sources(place, list.run.iter().map(|run| &run.name));
    if sources.len() > 1 {
        parts.push(Part::Text(format!(
            "Rows are of several commits or machines, and each run names its own: {}.",
            sources.join("; ")
        )));
    }
    parts.push(overview(place, list));
    for figure in &list.figure {
        of_figure(&mut parts, place, figure);
    }
    fs::create_dir_all(&place.folder)?;
    for part in &parts {
        if let Part::Picture(name, svg) = part {
            fs::write(place.folder.join(name), svg)?;
        }
    }
    fs::write(place.folder.join("README.md"), parts.iter().map(markdown).collect::<Vec<_>>().join("\n"))?;
    let page = place.folder.join("index.html");
    let body: String = parts.iter().map(html).collect();
    fs::write(&page, format!("{HEAD}{body}</body></html>\n"))?;
    Ok(page)
}

/// The machines and commits of these runs' rows, each once.
fn sources<'r>(place: &Place, runs: impl IntoIterator<Item = &'r String>) -> Vec<String> {
    distinct(runs.into_iter().filter_map(|run| place.kept(run)).map(|kept| kept.source()))
}

/// Puts the tables of the measured figures between their marks in a text: `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
pub fn between_marks(place: &Place, list: &List, text: &str) -> String {
    let mut text = text.to_owned();
    for figure in &list.figure {
        let [begin, end] = ["begin", "end"].map(|at| format!("<!-- {}:{at} -->", figure.name));
        let Some((view, points)) = measured(place, figure) else { continue };
        let Some((before, (_, after))) =
            text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)))
        else {
            continue;
        };
        let (head, lines) = view.table(&points);
        let sources = sources(place, &figure.runs).join("; ");
        let machine = if sources.is_empty() { sources } else { format!("\n{}; on {sources}\n", view.unit) };
        text = format!("{before}{begin}\n{}{machine}{end}{after}", markdown(&Part::Table(head, lines)));
    }
    text
}

/// A line for each figure.
fn overview(place: &Place, list: &List) -> Part {
    let line = |figure: &Figure| {
        let state = match measured(place, figure) {
            _ if figure.view.is_none() => format!("not measured: {}", figure.differs),
            Some((view, points)) => {
                let ratios = view.ratios(&points);
                let of = |verdict: Verdict| {
                    let those = ratios.iter().filter(|ratio| view.verdict(ratio) == verdict);
                    distinct(those.map(|ratio| ratio.line.as_str())).join(", ")
                };
                let told = [(of(Verdict::Behind), "behind"), (of(Verdict::NotDecided), "not decided beside")];
                let told = told.iter().filter(|(lines, _)| !lines.is_empty());
                told.fold("measured".to_owned(), |text, (lines, what)| {
                    format!("{text}; somewhere {what} {lines}")
                })
            }
            None => "no rows yet".into(),
        };
        vec![figure.name.clone(), figure.title.clone(), state]
    };
    Part::Table(
        ["figure", "shows", "here"].map(str::to_owned).to_vec(),
        list.figure.iter().map(line).collect(),
    )
}

/// The rows of all runs of a figure. Repetitions of different runs were not measured in turn, and have different numbers.
fn rows(place: &Place, figure: &Figure) -> Vec<Value> {
    let of_run = |(at, run): (usize, &String)| {
        let mut rows = place.rows(run);
        for row in &mut rows {
            row["rep"] = Value::from(row["rep"].as_u64().unwrap_or(0) + at as u64 * REPS);
        }
        rows
    };
    figure.runs.iter().enumerate().flat_map(of_run).collect()
}

fn measured<'f>(place: &Place, figure: &'f Figure) -> Option<(&'f View, Vec<Point>)> {
    let view = figure.view.as_ref()?;
    let points = view.points(&rows(place, figure));
    (!points.is_empty()).then_some((view, points))
}

fn of_figure(parts: &mut Vec<Part>, place: &Place, figure: &Figure) {
    parts.push(Part::Title(2, format!("{}: {}", figure.name, figure.title)));
    parts.push(Part::Text(format!("Claim: {}", figure.claim)));
    let all = measured(place, figure);
    if !figure.numbers.is_empty() {
        let points = all.as_ref();
        let line = |number: &Number| {
            let here = points.and_then(|(view, points)| here(view, points, number));
            let paper = number.paper.map_or_else(String::new, |paper| paper.to_string());
            vec![number.says.clone(), paper, here.unwrap_or_default()]
        };
        let head = ["number", "paper", "here"].map(str::to_owned).to_vec();
        parts.push(Part::Table(head, figure.numbers.iter().map(line).collect()));
    }
    if let Some((view, points)) = &all {
        let (head, lines) = view.table(points);
        let better = if view.better == benchkit::view::Better::More { "more" } else { "less" };
        parts.push(Part::Text(format!("{}; {better} is better:", view.unit)));
        parts.push(Part::Table(head, lines));
        if let Some(svg) = view.chart(&figure.title, points) {
            parts.push(Part::Picture(format!("{}.svg", figure.name.replace(' ', "-")), svg));
        }
        parts.push(Part::Text(beside(view, points)));
    } else if figure.view.is_some() {
        parts.push(Part::Text("Nothing was measured.".into()));
    }
    parts.push(Part::Text(format!("Differs: {}", figure.differs)));
    for run in &figure.runs {
        if let Some(kept) = place.kept(run) {
            parts.push(Part::Code(how(&kept, &place.rows(run))));
        }
    }
}

/// The machine, the versions and the command of a run.
fn how(kept: &Kept, rows: &[Value]) -> String {
    let version = |row: &Value| {
        let system = row.get("library").or_else(|| row.get("system"))?.as_str()?;
        let version =
            ["library_version", "system_version", "version"].into_iter().find_map(|of| row[of].as_str())?;
        Some(format!("{system} {version}"))
    };
    let versions = distinct(rows.iter().filter_map(version)).join(", ");
    let short = kept.is_short.then_some("a short form, whose figures are void");
    let notes: String =
        short.into_iter().chain(kept.failed.as_deref()).map(|note| format!("\n{note}")).collect();
    let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(kept.at));
    format!(
        "{}\n{at}, {}; {:.0} s{}{versions}{notes}",
        kept.command,
        kept.source(),
        kept.seconds,
        if versions.is_empty() { "" } else { "; " },
    )
}

/// Our line beside the others: the least and the most ratio to each, and where we are behind, ahead, or neither is decided.
fn beside(view: &View, points: &[Point]) -> String {
    let ratios = view.ratios(points);
    if ratios.is_empty() {
        return "No other system has rows at the same places.".into();
    }
    let others = distinct(ratios.iter().map(|ratio| (&ratio.line, &ratio.figure)));
    let lines = others.into_iter().map(|(line, figure)| {
        let own: Vec<&Ratio> =
            ratios.iter().filter(|ratio| ratio.line == *line && ratio.figure == *figure).collect();
        let all = own.iter().map(|ratio| ratio.times.median);
        let (least, most) =
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), of| (least.min(of), most.max(of)));
        format!("{}: {least:.2} to {most:.2}, {}", view.name(line, figure), verdicts(view, &own))
    });
    format!("{} divided by each other system's line. {}.", view.ours, lines.collect::<Vec<_>>().join(". "))
}

/// At which of these places we are behind, and at how many ahead or not decided.
fn verdicts(view: &View, ratios: &[&Ratio]) -> String {
    let of = |verdict: Verdict| ratios.iter().filter(move |ratio| view.verdict(ratio) == verdict);
    let behind: Vec<String> =
        of(Verdict::Behind).map(|ratio| format!("{} ({})", word(&ratio.x), words(ratio.times))).collect();
    let more = behind.len().saturating_sub(MOST_BEHIND);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let at = (!behind.is_empty())
        .then(|| format!("behind at {}{more}", behind[..behind.len().min(MOST_BEHIND)].join(", ")));
    let counted = [(Verdict::Ahead, "ahead"), (Verdict::NotDecided, "not decided")].map(|(verdict, word)| {
        let places = of(verdict).count();
        (places > 0).then(|| format!("{word} at {places} of {} places", ratios.len()))
    });
    at.into_iter().chain(counted.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

/// Our number beside the paper's, and its place.
fn here(view: &View, points: &[Point], number: &Number) -> Option<String> {
    let figure = number.figure.as_ref().unwrap_or(&view.figures[0]);
    let is_place =
        |point: &&Point| point.figure == *figure && number.at.is_none_or(|at| point.x.as_f64() == Some(at));
    let of = number.of.as_ref()?;
    let found: Vec<(Estimate, &Value)> = match &number.over {
        None => {
            let own = points.iter().filter(is_place).filter(|point| point.line == *of);
            own.filter_map(|point| Some((point.estimate()?, &point.x))).collect()
        }
        Some(over) => {
            let others = points.iter().filter(is_place).filter(|point| point.line == *over);
            others.filter_map(|point| Some((view.ratio(points, of, point)?.times, &point.x))).collect()
        }
    };
    let order = |(a, _): &&(Estimate, &Value), (b, _): &&(Estimate, &Value)| a.median.total_cmp(&b.median);
    let (estimate, x) = match number.take {
        Take::Most => found.iter().max_by(order),
        Take::Least => found.iter().min_by(order),
    }?;
    Some(format!("{} at {}", words(*estimate), word(x)))
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Figures</title><style>\
body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;display:block;overflow-x:auto}\
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}pre{background:#f4f4f4;padding:.6em;overflow-x:auto;font-size:12px}\
svg{max-width:100%;height:auto}</style></head><body>\n";

fn markdown(part: &Part) -> String {
    match part {
        Part::Title(depth, text) => format!("{} {text}\n", "#".repeat(*depth)),
        Part::Text(text) => format!("{text}\n"),
        Part::Code(text) => text.lines().map(|line| format!("    {line}\n")).collect(),
        Part::Picture(name, _) => format!("![{name}]({name})\n"),
        Part::Table(head, lines) => {
            let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
            let marks = vec!["---".to_owned(); head.len()];
            [head, &marks].into_iter().chain(lines).map(|cells| line(cells)).collect()
        }
    }
}

fn html(part: &Part) -> String {
    match part {
        Part::Title(depth, text) => format!("<h{depth}>{}</h{depth}>\n", escape(text)),
        Part::Text(text) => format!("<p>{}</p>\n", escape(text)),
        Part::Code(text) => format!("<pre>{}</pre>\n", escape(text)),
        Part::Picture(_, svg) => format!("<figure>{svg}</figure>\n"),
        Part::Table(head, lines) => {
            let line = |of: &str, cells: &[String]| {
                let cells: String =
                    cells.iter().map(|cell| format!("<{of}>{}</{of}>", escape(cell))).collect();
                format!("<tr>{cells}</tr>\n")
            };
            let lines: String = lines.iter().map(|cells| line("td", cells)).collect();
            format!("<table>{}{lines}</table>\n", line("th", head))
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
