//! Chromium for tests of the products' pages: what a person does there, whether everybody can use a page, and pictures of it.
//!
//! Without Chromium and its driver, or without axe-core, tests say past the harness what they skip.
#![forbid(unsafe_code)]

mod accessible;
mod driver;
mod picture;

pub use accessible::{check, fits};
pub use driver::{Browser, WAIT};
pub use picture::keep;
