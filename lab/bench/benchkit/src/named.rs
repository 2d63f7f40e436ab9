//! Names of an enumeration's values.

use clap::ValueEnum;

/// A value with a name.
pub trait Named {
    /// As on the command line and in the rows.
    fn name(&self) -> String;
}

impl<T: ValueEnum> Named for T {
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
