//! The look of the pages of all products, as files that a product's endpoint serves. No step builds the files,
//! and the files load nothing.
//!
//! ```
//! assert!(web::STYLE.contains("prefers-color-scheme: dark"));
//! ```
#![forbid(unsafe_code)]

/// The colours and the parts of all pages: a style sheet, which goes before the own one of a page.
pub const STYLE: &str = include_str!("../assets/theme.css");

/// The choice between light and dark colours: a script for the head of a page that has a button `#theme`.
pub const THEME: &str = include_str!("../assets/theme.js");

/// Curves over time: a module that exports `Plot` and `spark`.
pub const PLOT: &str = include_str!("../assets/plot.js");
