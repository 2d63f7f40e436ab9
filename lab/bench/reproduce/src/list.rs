//! The list of figures, and of the runs that measure them: `figures.toml`, the one place for both.

use std::collections::BTreeMap;

use benchkit::view::View;
use serde::Deserialize;

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The benches
    pub program: Vec<Program>,
    /// What is measured
    pub run: Vec<Run>,
    /// The view of its rows
    pub figure: Vec<Figure>,
    /// Options of all benches and their values in a short form, which shows only that everything runs
    pub quick: Quick,
}

/// Options and their values in a short form.
pub type Quick = BTreeMap<String, String>;

/// A bench.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The name of the program
    pub name: String,
    /// Words of `cargo build` that build it and what it starts
    pub build: Vec<String>,
}

/// A call of a bench, whose rows are kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The name of its files
    pub name: String,
    /// The bench, or another program on the path
    pub program: String,
    /// Arguments. One that begins with a hyphen is an option, up to the first space, and its value. `{rows}` is the file for the rows,
    /// and `{target}` the folder of the built programs
    pub args: Vec<String>,
    /// Values of its short form, where they differ from those of all benches
    #[serde(default)]
    pub quick: Quick,
    /// Environment variables
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Words of `scripts/bench-peers`: the systems beside
    #[serde(default)]
    pub peers: Vec<String>,
    /// How long it takes, about
    pub minutes: f64,
}

/// A figure or a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The paper and the figure's number there
    pub name: String,
    /// What it shows
    pub title: String,
    /// What the paper says with it, in one sentence
    pub claim: String,
    /// The names of its runs; none if it is not measured here
    #[serde(default)]
    pub runs: Vec<String>,
    /// What differs from the paper's setting, or why it is not measured
    pub differs: String,
    /// The view of the rows
    pub view: Option<View>,
    /// The numbers that the paper gives
    #[serde(default, rename = "number")]
    pub numbers: Vec<Number>,
}

/// A number of the paper, and which one of ours stands beside it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// What it says
    pub says: String,
    /// The paper's number; none if its text has none
    pub paper: Option<f64>,
    /// The line whose figure it is; none if no line here can be compared
    pub of: Option<String>,
    /// The line that this is divided by; none: the figure itself
    pub over: Option<String>,
    /// The field of the figure, where there are several
    pub figure: Option<String>,
    /// The place on the axis; none: all
    pub at: Option<f64>,
    /// Which of several places
    #[serde(default)]
    pub take: Take,
}

/// Which of the figures of several places.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Take {
    /// The largest: "up to"
    #[default]
    Most,
    /// The smallest
    Least,
}

impl List {
    /// The list of this project.
    ///
    /// # Panics
    /// The list does not have its form, which the tests would show.
    pub fn own() -> List {
        toml::from_str(include_str!("../figures.toml")).expect("the list has its form")
    }

    /// The figures with names that begin with one of these, separated by commas; all without names.
    ///
    /// # Errors
    /// The name that no figure has.
    pub fn chosen(&self, names: &str) -> Result<Vec<&Figure>, String> {
        let names: Vec<String> = names
            .split(',')
            .map(|name| name.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|name| !name.is_empty())
            .collect();
        let is_of = |figure: &Figure, name: &String| figure.name.starts_with(name.as_str());
        if let Some(name) = names.iter().find(|name| !self.figure.iter().any(|figure| is_of(figure, name))) {
            let all: Vec<&str> = self.figure.iter().map(|figure| figure.name.as_str()).collect();
            return Err(format!("there is no figure {name:?}; there are: {}", all.join(", ")));
        }
        let chosen = |figure: &&Figure| names.is_empty() || names.iter().any(|name| is_of(figure, name));
        Ok(self.figure.iter().filter(chosen).collect())
    }

    /// The runs of these figures, each once, in the order of the list.
    pub fn runs(&self, figures: &[&Figure]) -> Vec<&Run> {
        let is_wanted = |run: &&Run| figures.iter().any(|figure| figure.runs.contains(&run.name));
        self.run.iter().filter(is_wanted).collect()
    }

    /// The words of all calls of a program, as the program gets them.
    pub fn calls(&self, program: &str) -> Vec<Vec<String>> {
        let own = self.run.iter().filter(|run| run.program == program);
        own.flat_map(|run| [run.words(None), run.words(Some(&self.quick))]).collect()
    }
}

impl Run {
    /// The arguments as words; in the short form, with its values.
    pub fn words(&self, quick: Option<&Quick>) -> Vec<String> {
        let words = self.args.iter().flat_map(|arg| match arg.split_once(' ') {
            Some((option, value)) if option.starts_with('-') => {
                let short = quick.and_then(|quick| self.quick.get(option).or_else(|| quick.get(option)));
                vec![option.to_owned(), short.map_or(value, String::as_str).to_owned()]
            }
            _ => vec![arg.clone()],
        });
        words.collect()
    }
}
