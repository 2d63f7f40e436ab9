//! `reproduce`: measures the papers' figures, and writes one page. `scripts/reproduce` builds the benches and installs what they
//! are measured beside.

#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use benchkit::table::distinct;
use clap::{CommandFactory, Parser};
use commands::{Failure, Stop};
use reproduce::{
    list::{Figure, List, Run},
    page,
    run::{self, Place},
};

/// Measure the figures of the papers beside other systems, and write one page
#[derive(Debug, Parser)]
#[command(name = "reproduce", version, max_term_width = 100)]
#[command(after_help = "Examples:
  reproduce --show
  reproduce --figures 'paper1 fig5'
  reproduce --page

A run whose rows are there is not repeated, also with another commit, unless its figures are named. Remove the folder to
begin anew.")]
struct Args {
    /// Figures whose names begin so, separated by commas, measured again [default: all, and only what is missing]
    #[arg(long, default_value = "", hide_default_value = true)]
    figures: String,
    /// The folder of rows and page
    #[arg(long, default_value = "target/reproduce")]
    folder: PathBuf,
    /// The folder of built programs
    #[arg(long, default_value = "target")]
    target: PathBuf,
    /// A short form, whose figures show only that everything runs, in a folder `quick` of its own
    #[arg(long)]
    quick: bool,
    /// Measure nothing, and write the page of what is there
    #[arg(long)]
    page: bool,
    /// A file that gets the tables of figures between its marks `<!-- NAME:begin -->` and `<!-- NAME:end -->`
    #[arg(long, value_name = "FILE")]
    readme: Vec<PathBuf>,
    /// Print the figures, with their runs and times
    #[arg(long)]
    show: bool,
    /// Print what the figures need: lines `build WORDS` (of cargo build) and `peers WORD` (of scripts/bench-peers)
    #[arg(long)]
    needs: bool,
}

fn main() -> ExitCode {
    commands::status(Args::command, run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Failure> {
    let list = List::own();
    let figures = list.chosen(&args.figures).map_err(Failure::Failed)?;
    let runs = list.runs(&figures);
    if args.show {
        return commands::print(figures.iter().map(|figure| show(figure)).collect::<String>());
    }
    if args.needs {
        return commands::print(needs(&list, &runs));
    }
    let commit = run::commit(&std::env::current_dir()?);
    let place = Place::new(&args.folder, &args.target, commit, args.quick.then(|| list.quick.clone()));
    let failed = if args.page { Vec::new() } else { measure(args, &place, &runs)? };
    let page = page::write(&place, &list)?;
    for file in &args.readme {
        std::fs::write(file, page::between_marks(&place, &list, &std::fs::read_to_string(file)?))?;
    }
    commands::print(format!("{}\n", page.display()))?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Incomplete(format!("not measured whole: {}", failed.join(", ")))),
    }
}

/// Measures what is missing, or what was named. The names of the runs that failed.
fn measure(args: &Args, place: &Place, runs: &[&Run]) -> Result<Vec<String>, Failure> {
    let stop = Stop::install()?;
    let is_due = |run: &&&Run| !args.figures.trim().is_empty() || !place.has(run);
    let (due, kept): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(is_due);
    let stale = kept.iter().filter(|run| place.is_stale(run)).map(|run| run.name.as_str());
    let stale = stale.collect::<Vec<_>>().join(", ");
    if !stale.is_empty() {
        eprintln!("kept, and of another commit or machine (name the figures to measure them again): {stale}");
    }
    let mut failed = Vec::new();
    for (at, run) in due.iter().enumerate() {
        let left: f64 = due[at..].iter().map(|run| seconds(place, run)).sum();
        eprintln!("[{}/{}, about {:.0} min left] {}", at + 1, due.len(), (left / 60.0).ceil(), run.name);
        let Some(kept) = place.measure(run, &stop)? else {
            eprintln!("stopped; the rows of {at} runs are kept");
            failed.extend(due[at..].iter().map(|run| run.name.clone()));
            break;
        };
        if let Some(why) = kept.failed {
            eprintln!("FAILED: {}: {why}", run.name);
            failed.push(run.name.clone());
        }
    }
    Ok(failed)
}

/// How long a run takes: as it did last time, or as the list says.
fn seconds(place: &Place, run: &Run) -> f64 {
    place.kept(&run.name).map_or(run.minutes * 60.0, |kept| kept.seconds)
}

fn show(figure: &Figure) -> String {
    let how = if figure.runs.is_empty() { "not measured".to_owned() } else { figure.runs.join(", ") };
    format!("{:<22} {} [{how}]\n", figure.name, figure.title)
}

fn needs(list: &List, runs: &[&Run]) -> String {
    let programs = distinct(runs.iter().map(|run| &run.program));
    let builds = list.program.iter().filter(|program| programs.contains(&&program.name));
    let builds = builds.map(|program| format!("build {}\n", program.build.join(" ")));
    let peers =
        distinct(runs.iter().flat_map(|run| &run.peers)).into_iter().map(|peer| format!("peers {peer}\n"));
    let minutes: f64 = runs.iter().map(|run| run.minutes).sum();
    builds.chain(peers).chain([format!("minutes {minutes:.0}\n")]).collect()
}
