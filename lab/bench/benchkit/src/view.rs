//! The view of the rows of any bench, as data: which rows, along which axis, in which lines, and which of their figures.
//!
//! ```text
//!   rows (flat JSON objects) ── where ──▶ points: line, x, a figure of each repetition ──▶ table, chart, ratios
//! ```

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    output::{human, span},
    plot::Chart,
    stats::{self, Estimate},
    table::{self, Reps, Table, distinct},
};

/// The most places of the axis that a table has. The others are in the chart.
const MOST_PLACES: usize = 16;
/// The most lines of a chart with several figures.
const MOST_LINES: usize = 8;
/// The least ratio of the largest figure to the smallest one for which the axis of a chart is logarithmic.
const WIDE: f64 = 30.0;

/// The view of rows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Fields that a shown row has, each with one of these values
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Vec<Value>>,
    /// The least share of the messages that were asked for (`asked_per_s`) which each subscriber of a shown row got
    pub share: Option<f64>,
    /// The field along the axis, of numbers or words
    pub x: String,
    /// The fields whose values make a line
    pub lines: Vec<String>,
    /// The fields that are a load and no part of a system: a line under another load than ours is not compared with it
    #[serde(default)]
    pub load: Vec<String>,
    /// The fields of the figures: each is a line of its own
    pub figures: Vec<String>,
    /// The field that figures are multiplied by
    pub by: Option<String>,
    /// The field that figures are divided by
    pub per: Option<String>,
    /// The line whose figures are taken off, of the same place and repetition: what all others include
    pub less: Option<String>,
    /// The number that figures are multiplied by
    #[serde(default = "one")]
    pub scale: f64,
    /// The unit of the figures
    pub unit: String,
    /// Whether more is better, or less
    pub better: Better,
    /// The line that is compared with those of other systems: where the first word, up to a hyphen, is another
    pub ours: String,
    /// First words of our other lines
    #[serde(default)]
    pub own: Vec<String>,
}

fn one() -> f64 {
    1.0
}

/// The columns of a table with a line for each point of a bench.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// The fields that say what was measured; the first one names the system
    pub who: &'a [&'a str],
    /// The fields that say under which load
    pub load: &'a [&'a str],
    /// The fields of the figures, the rows' rate or cost first
    pub figures: &'a [&'a str],
    /// Which system is ours
    pub ours: &'a str,
}

impl Columns<'_> {
    /// A line for each point: the medians over its repetitions, the interval of the first figure, and how many times this figure ours is
    /// under the same load, from pairs that were measured in turn. Columns without a value are left out.
    ///
    /// # Errors
    /// A row is no flat object.
    pub fn table<R: Serialize>(&self, rows: &[R]) -> io::Result<String> {
        let rows = rows.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>()?;
        let keys: Vec<&str> = self.load.iter().chain(self.who).copied().collect();
        let same_of = |fields: &[&str], one: &Value, other: &Value| {
            fields.iter().all(|field| same(&one[*field], &other[*field]))
        };
        let rep = |row: &Value| row["rep"].as_u64().unwrap_or(0) as u32;
        let points = table::points(&rows, rep, |one, other| same_of(&keys, one, other));
        let is_there = |field: &&&str| rows.iter().any(|row| !row[**field].is_null());
        let mut table = Table::of(&points);
        for field in keys.iter().filter(is_there) {
            table = table
                .left(field.replace('_', " "), move |point: &Reps<'_, Value>| word(&point.first()[*field]));
        }
        for (at, field) in self.figures.iter().enumerate().filter(|(_, field)| is_there(field)) {
            table = table.right(field.replace('_', " "), move |point: &Reps<'_, Value>| {
                let estimate = point.estimate(|row| row[*field].as_f64());
                let shown = estimate.map(|of| Estimate { interval: of.interval.filter(|_| at == 0), ..of });
                shown.map_or_else(String::new, words)
            });
        }
        let ours = |point: &Reps<'_, Value>| {
            let row = point.first();
            let own = || {
                let is_ours = |of: &&Reps<'_, Value>| word(&of.first()[self.who[0]]) == self.ours;
                points.iter().filter(is_ours).filter(|of| same_of(self.load, of.first(), row))
            };
            let alike = own().find(|of| same_of(&self.who[1..], of.first(), row));
            let ours = alike.or_else(|| own().next()).filter(|of| !std::ptr::eq(of.first(), row));
            let times = |field: &&str| ours?.times(point, |row| row[*field].as_f64());
            self.figures.iter().find_map(times).map_or_else(String::new, |times| format!("{times:.2}"))
        };
        Ok(table.right(format!("{} is ×", self.ours), ours).text())
    }
}

/// Which of two figures is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Of rates
    More,
    /// Of times and costs
    Less,
}

/// The repetitions of one place of a line.
#[derive(Debug, Clone)]
pub struct Point {
    /// The values of the line's fields
    pub line: String,
    /// The fields that are a load
    pub load: String,
    /// The field of the figure
    pub figure: String,
    /// The place on the axis
    pub x: Value,
    /// Figures, each with the number of its repetition
    pub reps: Vec<(u32, f64)>,
}

impl Point {
    /// The median with its interval; none without figures.
    pub fn estimate(&self) -> Option<Estimate> {
        stats::estimate(self.reps.iter().map(|(_, figure)| *figure))
    }
}

/// How many times another line's figure ours is, at one place.
#[derive(Debug, Clone)]
pub struct Ratio {
    /// The other line
    pub line: String,
    /// The field of the figure
    pub figure: String,
    /// The place on the axis
    pub x: Value,
    /// Ours divided by the other's, from repetitions that were measured in turn
    pub times: Estimate,
}

/// The verdict of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is on our side of one.
    Ahead,
    /// The whole interval is on the other's side.
    Behind,
    /// The interval has 1 in it, or a single repetition has no interval.
    NotDecided,
}

impl View {
    /// The points of the rows that are shown: in the order of the rows, and where the axis has numbers, in theirs.
    pub fn points(&self, rows: &[Value]) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for row in rows.iter().filter(|row| self.shows(row)) {
            let (line, x, rep) =
                (words_of(&self.lines, row), &row[&self.x], row["rep"].as_u64().unwrap_or(0) as u32);
            for figure in &self.figures {
                let Some(value) = self.value(row, figure) else { continue };
                let is_same =
                    |point: &Point| point.line == line && point.figure == *figure && same(&point.x, x);
                match points.iter_mut().find(|point| is_same(point)) {
                    Some(point) => point.reps.push((rep, value)),
                    None => points.push(Point {
                        line: line.clone(),
                        load: words_of(&self.load, row),
                        figure: figure.clone(),
                        x: x.clone(),
                        reps: vec![(rep, value)],
                    }),
                }
            }
        }
        points.sort_by(|a, b| number(&a.x).total_cmp(&number(&b.x)));
        self.without_less(points)
    }

    /// The points without the line of `less`, whose figures are taken off the others', each from those of the same repetition. What has
    /// nothing to be taken off is left out.
    fn without_less(&self, points: Vec<Point>) -> Vec<Point> {
        let Some(less) = &self.less else { return points };
        let (off, mut rest): (Vec<Point>, Vec<Point>) =
            points.into_iter().partition(|point| point.line == *less);
        for point in &mut rest {
            let is_off = |of: &&Point| of.figure == point.figure && same(&of.x, &point.x);
            let off = off.iter().find(is_off).map_or(&[][..], |of| &of.reps);
            let less = |&(rep, figure): &(u32, f64)| {
                let (_, by) = off.iter().find(|(of, _)| *of == rep)?;
                Some((rep, figure - by))
            };
            point.reps = point.reps.iter().filter_map(less).collect();
        }
        rest.retain(|point| !point.reps.is_empty());
        rest
    }

    fn shows(&self, row: &Value) -> bool {
        let is_of =
            |(field, values): (&String, &Vec<Value>)| values.iter().any(|value| same(&row[field], value));
        let figure = |field: &str| row[field].as_f64().unwrap_or(0.0);
        let asked = figure("asked_per_s") * figure("subscribers");
        let is_carried = self.share.is_none_or(|share| figure("delivered_per_s") >= share * asked);
        is_carried && self.only.iter().all(is_of)
    }

    fn value(&self, row: &Value, figure: &str) -> Option<f64> {
        let value = match &row[figure] {
            Value::Array(all) => stats::median(all.iter().filter_map(Value::as_f64))?,
            one => one.as_f64()?,
        };
        let per = self.per.as_ref().map_or(Some(1.0), |per| row[per].as_f64().filter(|per| *per > 0.0))?;
        let by = self.by.as_ref().map_or(Some(1.0), |by| row[by].as_f64())?;
        Some(value * by * self.scale / per)
    }

    /// The name of a line, with its figure where there are several.
    pub fn name(&self, line: &str, figure: &str) -> String {
        if self.figures.len() == 1 {
            return line.to_owned();
        }
        format!("{line} {}", figure.replace('_', " ")).trim().to_owned()
    }

    /// The head and the lines of a table: a line for each place, a column for each line, and in it median and interval.
    pub fn table(&self, points: &[Point]) -> (Vec<String>, Vec<Vec<String>>) {
        let name_of = |point: &Point| self.name(&point.line, &point.figure);
        let names = distinct(points.iter().map(name_of));
        let places = distinct(points.iter().map(|point| word(&point.x)));
        let step = places.len().div_ceil(MOST_PLACES).max(1);
        let lines = places.iter().step_by(step).map(|place| {
            let cell = |name: &String| {
                let point = points.iter().find(|point| name_of(point) == *name && word(&point.x) == *place);
                point.and_then(Point::estimate).map_or_else(String::new, words)
            };
            [place.clone()].into_iter().chain(names.iter().map(cell)).collect()
        });
        let head = [self.x.replace('_', " ")].into_iter().chain(names.iter().cloned());
        (head.collect(), lines.collect())
    }

    /// A chart as SVG; none where the axis has words or a single place.
    pub fn chart(&self, title: &str, points: &[Point]) -> Option<String> {
        let places = distinct(points.iter().map(|point| number(&point.x)));
        if places.len() < 2 || places.iter().any(|place| !place.is_finite()) {
            return None;
        }
        let figures = || points.iter().filter_map(|point| Some(point.estimate()?.median));
        let (least, most) =
            figures().fold((f64::INFINITY, 0.0_f64), |(least, most), of| (least.min(of), most.max(of)));
        let mut chart = Chart::new(title, &self.x.replace('_', " "), &self.unit);
        if self.x.ends_with("bytes") || self.x == "size" {
            chart = chart.sizes();
        }
        let (first, last) = (places[0], places[places.len() - 1]);
        if !self.x.ends_with("bytes") && first >= 1.0 && last >= 1000.0 * first {
            chart = chart.log_x();
        }
        if least > 0.0 && most > WIDE * least {
            chart = chart.log_y();
        }
        // With many lines, the first figure alone can be read.
        let name_of = |point: &Point| self.name(&point.line, &point.figure);
        let names = distinct(points.iter().map(name_of));
        let is_drawn = |point: &&Point| names.len() <= MOST_LINES || point.figure == self.figures[0];
        let all: Vec<(String, f64, f64)> = points
            .iter()
            .filter(is_drawn)
            .flat_map(|point| {
                point.reps.iter().map(|(_, figure)| (name_of(point), number(&point.x), *figure))
            })
            .collect();
        Some(chart.points(&all, |of| of.0.clone(), |of| of.1, |of| of.2).svg())
    }

    /// Our line beside each one of another system under the same load.
    pub fn ratios(&self, points: &[Point]) -> Vec<Ratio> {
        let Some(ours) = points.iter().find(|point| point.line == self.ours) else { return Vec::new() };
        let own: Vec<&str> = self.own.iter().chain([&self.ours]).map(|line| family(line)).collect();
        let others =
            points.iter().filter(|point| !own.contains(&family(&point.line)) && point.load == ours.load);
        others.filter_map(|other| self.ratio(points, &self.ours, other)).collect()
    }

    /// A line beside a point of another one, at the same place.
    pub fn ratio(&self, points: &[Point], line: &str, other: &Point) -> Option<Ratio> {
        let is_pair =
            |point: &&Point| point.line == line && point.figure == other.figure && same(&point.x, &other.x);
        let times = stats::times(&points.iter().find(is_pair)?.reps, &other.reps)?;
        let (line, figure, x) = (other.line.clone(), other.figure.clone(), other.x.clone());
        Some(Ratio { line, figure, x, times })
    }

    /// The verdict of a ratio about our line.
    pub fn verdict(&self, ratio: &Ratio) -> Verdict {
        let Some((low, high)) = ratio.times.interval else { return Verdict::NotDecided };
        match self.better {
            Better::More if low > 1.0 => Verdict::Ahead,
            Better::More if high < 1.0 => Verdict::Behind,
            Better::Less if high < 1.0 => Verdict::Ahead,
            Better::Less if low > 1.0 => Verdict::Behind,
            _ => Verdict::NotDecided,
        }
    }
}

/// The values of these fields, with the names of those that are no words.
fn words_of(fields: &[String], row: &Value) -> String {
    let words = fields.iter().filter_map(|field| match &row[field] {
        Value::Null => None,
        Value::String(word) => Some(word.clone()),
        other => Some(format!("{field} {other}")),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The name that the variants of a system have in common: the first word, up to a hyphen.
fn family(line: &str) -> &str {
    line.split([' ', '-']).next().unwrap_or_default()
}

/// Equal values; numbers also if one has a fraction and the other none.
fn same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().is_some_and(|number| other.as_f64() == Some(number))
}

/// Words have no number, and keep their order.
fn number(x: &Value) -> f64 {
    x.as_f64().unwrap_or(f64::NAN)
}

/// A place of the axis as text.
pub fn word(x: &Value) -> String {
    match x {
        Value::String(word) => word.clone(),
        Value::Null => String::new(),
        other => other.as_f64().map_or_else(|| other.to_string(), |number| number.to_string()),
    }
}

/// A median with its interval as text.
pub fn words(Estimate { median, interval }: Estimate) -> String {
    let short = |figure: f64| if figure.abs() < 1.0 { format!("{figure:.3}") } else { human(figure) };
    match interval {
        Some(_) => format!("{} ({})", short(median), span(interval, short)),
        None => short(median),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let view = json!({
            "where": { "subscribers": [1] }, "x": "size_bytes", "lines": ["system", "api"], "figures": ["rate"],
            "unit": "messages/s", "better": "more", "ours": "rbmq",
        });
        serde_json::from_value(view).unwrap()
    }

    fn row(system: &str, size: u32, rep: u32, rate: f64) -> Value {
        json!({ "system": system, "api": null, "subscribers": 1.0, "size_bytes": size, "rep": rep, "rate": rate })
    }

    #[test]
    fn rows_become_points_a_table_and_ratios_of_pairs() {
        let mut rows = vec![row("rbmq", 64, 0, 8.0), row("redis", 64, 0, 2.0), row("rbmq", 8, 0, 1e6)];
        rows.extend([row("rbmq", 64, 1, 4.0), row("redis", 64, 1, 1.0), row("redis", 8, 0, 2e6)]);
        rows.push(json!({ "system": "nats", "subscribers": 4, "size_bytes": 8, "rate": 1.0 }));
        rows.push(json!({ "system": "rbmq-c", "subscribers": 1, "size_bytes": 8, "rate": 9.0 }));
        let points = view().points(&rows);
        let (head, lines) = view().table(&points);
        assert_eq!(head, ["size bytes", "rbmq", "redis", "rbmq-c"]);
        assert_eq!(lines[0], ["8", "1.00 M", "2.00 M", "9.00"]);
        assert!(lines[1][1].starts_with("6.00 ("), "{lines:?}");
        let ratios = view().ratios(&points);
        let found: Vec<(f64, Verdict)> =
            ratios.iter().map(|of| (of.times.median, view().verdict(of))).collect();
        assert_eq!(
            found,
            [(0.5, Verdict::NotDecided), (4.0, Verdict::Ahead)],
            "one repetition decides nothing"
        );
        assert!(view().chart("t", &points).unwrap().contains("redis"));
    }

    #[test]
    fn a_bench_has_a_line_for_each_point_with_the_ratio_of_pairs() {
        let rows = [
            row("redis", 8, 0, 4e6),
            row("rbmq", 8, 0, 6e6),
            row("redis", 8, 1, 2e6),
            row("rbmq", 8, 1, 3e6),
        ];
        let columns = Columns {
            who: &["system", "api"],
            load: &["size_bytes"],
            figures: &["none", "rate"],
            ours: "rbmq",
        };
        let text = columns.table(&rows).unwrap();
        assert_eq!(
            text,
            "| size bytes | system | rate | rbmq is × |\n|---|---|---:|---:|\n| 8 | redis | 3.00 M | 1.50 |\n| 8 | rbmq | 4.50 M |  |\n"
        );
        let columns = Columns { figures: &["rate"], ..columns };
        assert!(columns.table(&rows[2..]).unwrap().contains("| 8 | redis | 2.00 M | 1.50 |"));
        assert!(columns.table(&rows).unwrap().contains("| 8 | redis | 3.00 M (0.000..15.7 M) | 1.50 |"));
    }

    #[test]
    fn several_figures_are_lines_and_words_have_no_chart() {
        let view = View { figures: vec!["rate".into(), "p50_us".into()], x: "cut".into(), ..view() };
        let row =
            json!({ "system": "rbmq", "subscribers": 1, "cut": "broker", "rate": [3, 1, 2], "p50_us": 5 });
        let points = view.points(&[row]);
        let (head, lines) = view.table(&points);
        assert_eq!(head, ["cut", "rbmq rate", "rbmq p50 us"]);
        assert_eq!(lines, [["broker", "2.00", "5.00"]]);
        assert!(view.chart("t", &points).is_none());
    }

    #[test]
    fn what_all_include_is_taken_off_within_a_repetition() {
        let view = View { less: Some("drop".into()), ..view() };
        let mut rows = vec![
            row("rbmq", 8, 0, 9.0),
            row("drop", 8, 0, 2.0),
            row("drop", 8, 1, 4.0),
            row("rbmq", 8, 1, 3.0),
        ];
        rows.extend([row("rbmq", 8, 2, 5.0), row("rbmq", 64, 0, 5.0)]);
        let points = view.points(&rows);
        assert_eq!(points.len(), 1, "without the line, a place has no figure: {points:?}");
        assert_eq!(points[0].reps, [(0, 7.0), (1, -1.0)]);
    }

    #[test]
    fn an_interval_on_one_side_of_one_decides() {
        let of = |interval| Ratio {
            line: "redis".into(),
            figure: "rate".into(),
            x: json!(8),
            times: Estimate { median: 1.0, interval },
        };
        let less = View { better: Better::Less, ..view() };
        let verdicts = [Some((1.1, 1.2)), Some((0.8, 0.9)), Some((0.9, 1.1)), None]
            .map(|interval| (view().verdict(&of(interval)), less.verdict(&of(interval))));
        assert_eq!(
            verdicts,
            [
                (Verdict::Ahead, Verdict::Behind),
                (Verdict::Behind, Verdict::Ahead),
                (Verdict::NotDecided, Verdict::NotDecided),
                (Verdict::NotDecided, Verdict::NotDecided),
            ]
        );
    }

    #[test]
    fn ours_is_compared_under_the_same_load_and_not_with_own_variants() {
        let lines = ["system", "loss"].map(str::to_owned).to_vec();
        let view = View {
            lines,
            load: vec!["loss".into()],
            ours: "rbmq loss 0.5".into(),
            own: vec!["rust".into()],
            ..view()
        };
        let lossy = |system, loss: f64| {
            let mut row = row(system, 8, 0, 2.0);
            row["loss"] = json!(loss);
            row
        };
        let rows = [
            lossy("rbmq", 0.5),
            lossy("rbmq", 0.0),
            lossy("redis", 0.0),
            lossy("redis", 0.5),
            lossy("rust", 0.5),
        ];
        let ratios = view.ratios(&view.points(&rows));
        assert_eq!(ratios.iter().map(|ratio| ratio.line.as_str()).collect::<Vec<_>>(), ["redis loss 0.5"]);
    }

    #[test]
    fn a_load_that_was_not_carried_has_no_figures() {
        let view = View { share: Some(0.9), ..view() };
        let mut row = row("rbmq", 8, 0, 1.0);
        (row["asked_per_s"], row["delivered_per_s"]) = (json!(1000), json!(899));
        assert!(view.points(&[row.clone()]).is_empty());
        row["delivered_per_s"] = json!(900);
        assert_eq!(view.points(&[row]).len(), 1);
    }

    #[test]
    fn figures_are_divided_and_multiplied() {
        let view = View { per: Some("gbit".into()), scale: 1000.0, ..view() };
        let mut row = row("rbmq", 8, 0, 6.0);
        assert!(view.points(&[row.clone()]).is_empty(), "there is nothing to divide by");
        row["gbit"] = json!(2);
        assert_eq!(view.points(&[row.clone()])[0].reps, [(0, 3000.0)]);
        let view = View { by: Some("size_bytes".into()), ..view };
        assert_eq!(view.points(&[row])[0].reps, [(0, 24_000.0)]);
    }
}
