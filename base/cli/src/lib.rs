//! The parts that the command-line programs of this repository have in common: signals, inputs and outputs that can be asked to end,
//! failures and exit statuses, manual pages, completion scripts and the terminal.
//!
//! A program parses its arguments with `clap`, runs a subcommand that returns a [`Failure`] if it does not succeed, and leaves
//! the message and the exit status to [`status`]:
//!
//! ```no_run
//! use clap::{CommandFactory, Parser};
//! use commands::{Failure, Shell, Stop, print};
//!
//! #[derive(Parser)]
//! #[command(name = "clock")]
//! enum Cli {
//!     /// Wait for a signal
//!     Wait,
//!     /// Print a completion script for a shell
//!     Completions { shell: Shell },
//!     /// Write the manual pages
//!     Man(commands::man::Args),
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let result = match commands::parse() {
//!         Cli::Wait => wait(),
//!         Cli::Completions { shell } => commands::print_completions(shell, Cli::command()),
//!         Cli::Man(args) => commands::man::run(&args, Cli::command(), &commands::man::Sections::default()),
//!     };
//!     commands::status(Cli::command, result)
//! }
//!
//! fn wait() -> Result<(), Failure> {
//!     let stop = Stop::install()?;
//!     stop.wait(None);
//!     print("done\n")
//! }
//! ```
#![deny(unsafe_code)]

pub mod clock;
#[allow(unsafe_code)]
mod closed;
pub mod descriptors;
mod failure;
pub mod input;
pub mod lines;
#[cfg(feature = "log")]
pub mod log;
pub mod man;
pub mod messages;
mod output;
mod printer;
pub mod secrets;
mod status;
mod stdout;
mod stop;
pub mod table;
pub mod terminal;

pub use clap_complete::Shell;
pub use failure::Failure;
pub use messages::print_error;
pub use output::{Texts, print, print_completions};
pub use printer::Printer;
pub use status::{parse, status};
pub use stdout::Stdout;
pub use stop::{Asked, IMPATIENT, Stop, Waker};
