//! The rules of the repository, as tests.

mod layers;
mod licences;
mod style;
