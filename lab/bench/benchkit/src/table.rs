//! The repetitions of each point, and Markdown tables with a line for each.

use std::fmt::Display;

use crate::stats::{self, Estimate};

/// The repetitions of one point: at least one.
pub struct Reps<'r, R> {
    rows: Vec<&'r R>,
    rep: fn(&R) -> u32,
}

/// The points of these rows, in the order of their first rows. `rep` is the number of a row's repetition, and `same` compares
/// everything else that makes a point.
pub fn points<'r, R>(
    rows: impl IntoIterator<Item = &'r R>,
    rep: fn(&R) -> u32,
    same: impl Fn(&R, &R) -> bool,
) -> Vec<Reps<'r, R>> {
    let mut points: Vec<Reps<'r, R>> = Vec::new();
    for row in rows {
        match points.iter_mut().find(|point| same(point.first(), row)) {
            Some(point) => point.rows.push(row),
            None => points.push(Reps { rows: vec![row], rep }),
        }
    }
    points
}

impl<'r, R> Reps<'r, R> {
    /// The first row.
    pub fn first(&self) -> &'r R {
        self.rows[0]
    }

    /// All rows.
    pub fn rows(&self) -> &[&'r R] {
        &self.rows
    }

    /// The estimate of a figure; none without figures.
    pub fn estimate<F: Into<Option<f64>>>(&self, figure: impl Fn(&R) -> F) -> Option<Estimate> {
        stats::estimate(self.rows.iter().filter_map(|row| figure(row).into()))
    }

    /// How many times the figure of another point this one's is, from repetitions that were measured in turn.
    pub fn times<F: Into<Option<f64>>>(&self, other: &Reps<'_, R>, figure: impl Fn(&R) -> F) -> Option<f64> {
        let numbered = |reps: &Reps<'_, R>| -> Vec<(u32, f64)> {
            reps.rows.iter().filter_map(|row| Some(((reps.rep)(row), figure(row).into()?))).collect()
        };
        stats::times(&numbered(self), &numbered(other)).map(|times| times.median)
    }
}

/// A figure as text; empty without one.
pub fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.digits$}"))
}

/// Each value once, in the order in which they come.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// A table under construction: what its lines are made of, and its columns so far.
pub struct Table<'t, T> {
    of: &'t [T],
    columns: Vec<Column<'t, T>>,
}

struct Column<'t, T> {
    title: String,
    mark: &'static str,
    cell: Box<dyn Fn(&T) -> String + 't>,
}

impl<'t, T> Table<'t, T> {
    /// A table with a line for each of these.
    pub fn of(of: &'t [T]) -> Self {
        Self { of, columns: Vec::new() }
    }

    fn column<D: Display>(
        mut self,
        title: impl Into<String>,
        mark: &'static str,
        cell: impl Fn(&T) -> D + 't,
    ) -> Self {
        let cell = Box::new(move |of: &T| cell(of).to_string());
        self.columns.push(Column { title: title.into(), mark, cell });
        self
    }

    /// A column of words.
    #[must_use]
    pub fn left<D: Display>(self, title: impl Into<String>, cell: impl Fn(&T) -> D + 't) -> Self {
        self.column(title, "---", cell)
    }

    /// A column of numbers.
    #[must_use]
    pub fn right<D: Display>(self, title: impl Into<String>, cell: impl Fn(&T) -> D + 't) -> Self {
        self.column(title, "---:", cell)
    }

    /// The table as Markdown.
    pub fn text(&self) -> String {
        let titles = self.columns.iter().map(|column| column.title.as_str());
        let titles: String =
            titles.map(|title| if title.is_empty() { " |".into() } else { format!(" {title} |") }).collect();
        let marks: String = self.columns.iter().map(|column| format!("{}|", column.mark)).collect();
        let line = |of: &T| -> String {
            let cells = self.columns.iter().map(|column| format!(" {} |", (column.cell)(of)));
            format!("|{}\n", cells.collect::<String>())
        };
        format!("|{titles}\n|{marks}\n{}", self.of.iter().map(line).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(&'static str, u32, f64);

    fn points_of(rows: &[Row]) -> Vec<Reps<'_, Row>> {
        points(rows, |row| row.1, |one, other| one.0 == other.0)
    }

    #[test]
    fn a_line_has_the_figures_of_its_repetitions() {
        let rows = [Row("a", 0, 2e6), Row("b", 0, 1e6), Row("a", 1, 9e6), Row("b", 1, 3e6), Row("b", 2, 2e6)];
        let points = points_of(&rows);
        let times = |point: &Reps<'_, Row>| figure(point.times(&points[1], |row| row.2), 1);
        let table = Table::of(&points)
            .left("", |point| point.first().0)
            .right("rate", |point| figure(point.estimate(|row| row.2).map(|of| of.median), 0))
            .right("times", times);
        assert_eq!(
            table.text(),
            "| | rate | times |\n|---|---:|---:|\n| a | 5500000 | 2.5 |\n| b | 2000000 | 1.0 |\n"
        );
        assert_eq!(Table::of(&points_of(&[])).right("n", |_| 1).text(), "| n |\n|---:|\n");
    }

    #[test]
    fn values_are_distinct_in_their_order() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
    }
}
