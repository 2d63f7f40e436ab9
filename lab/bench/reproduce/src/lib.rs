//! The figures and tables of the papers and of the project's README, measured here beside the same systems.
//!
//! ```text
//!   figures.toml ── runs ──▶ the benches, as child processes ──▶ folder/NAME.json, NAME.run.json (kept: a run is resumed)
//!        └───────── figures, claims ──▶ medians, ratios with 95 % intervals ──▶ folder/index.html, README.md, SVG
//! ```
//!
//! * [`list`]: the figures, and the runs that measure them;
//! * [`run`]: a bench as a child process;
//! * [`page`]: the page, as Markdown and as HTML.

#![forbid(unsafe_code)]

pub mod list;
pub mod page;
pub mod run;
