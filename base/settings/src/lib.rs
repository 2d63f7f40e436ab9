//! Settings of programs and libraries, each declared once.
//!
//! ```text
//!   section! { "cache" Cache { … } }      field, default, unit, range, cost, help, whether a reload applies it
//!        │
//!        ├──▶ the struct, its defaults, its rustdoc, its serde
//!        ├──▶ values of files, variables and arguments, each with its origin
//!        ├──▶ errors: name, value, origin, range, the nearest name
//!        └──▶ the example file and the table of the documentation
//! ```
//!
//! A library declares its sections with [`section!`]. Where a program takes values from variables and arguments too, its
//! configuration is a [`Configuration`]: a list of sections with the origins of their values. Sizes and times have one notation
//! everywhere: [`parse_bytes`], [`parse_time`].
//!
//! ```
//! settings::section! {
//!     /// The cache.
//!     "cache" Cache {
//!         /// The most bytes.
//!         #[reloadable]
//!         max_bytes: u64 = 1 << 20, "bytes", range [4096 to 1073741824];
//!         /// A file with the entries of the last run.
//!         file: Option<String> = None, "", range [a text of at most 4096 bytes];
//!     }
//! }
//!
//! let cache: Cache = toml::from_str("max_bytes = '64 MiB'")?;
//! assert_eq!(cache, Cache { max_bytes: 64 << 20, file: None });
//! let error = toml::from_str::<Cache>("max_byte = 5").unwrap_err();
//! assert!(error.message().starts_with("there is no setting 'cache.max_byte'; did you mean 'cache.max_bytes'?"));
//! # Ok::<(), toml::de::Error>(())
//! ```
#![forbid(unsafe_code)]

mod argument;
mod configuration;
mod error;
mod file;
mod lines;
mod plain;
mod quantity;
mod reference;
mod section;
mod setting;
mod size;
mod spec;
#[cfg(test)]
mod tests;
mod time;

pub use argument::{millis_argument, size_argument, time_argument};
pub use configuration::{Configuration, environment, unknown_variables};
pub use error::{ConfigError, Origin, Relation, nearest};
pub use file::{MAX_FILE_BYTES, read_file, read_file_with_mode};
pub use lines::{Lines, Origins, parse, read_parts, refuse_unknown};
pub use plain::message;
pub use quantity::{bytes, millis, optional_bytes, optional_millis};
pub use reference::{Knob, example, example_setting, table};
pub use section::{Changed, Field, OutOfRange, Section, out_of_range, read_section};
pub use setting::{Setting, Visitor, VisitorMut, shown};
pub use size::{SIZE_UNITS, parse_bytes};
pub use spec::{Range, Spec};
pub use time::{TIME_UNITS, parse_time};
