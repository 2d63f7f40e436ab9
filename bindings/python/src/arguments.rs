//! Arguments of Python calls: the names of choices, and keywords that are the names of fields.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The choice of a name; `what` says in the error what the name is not.
///
/// # Errors
/// None of the choices has the name.
pub fn choice<T, const N: usize>(what: &str, name: &str, choices: [(&str, T); N]) -> PyResult<T> {
    let names = choices.each_ref().map(|(known, _)| format!("'{known}'"));
    let chosen = choices.into_iter().find(|(known, _)| *known == name);
    chosen.map(|(_, choice)| choice).ok_or_else(|| {
        let (last, others) =
            names.split_last().map_or(("", &names[..]), |(last, others)| (last.as_str(), others));
        PyValueError::new_err(format!("'{name}' is no {what}; it is {} or {last}", others.join(", ")))
    })
}

/// Sets the field with the name of a keyword: of a type that Python values convert to, a time in seconds, or what an expression makes of
/// the value. Ends the function with an error: `$wrong` and the name, if there is no such field.
macro_rules! keywords {
    ($made:ident, $name:ident, $value:ident, $wrong:literal;
        $($field:ident),*; seconds: $($time:ident),* $(; $($other:ident = $converted:expr),* $(,)?)?) => {
        match $name {
            $(stringify!($field) => $made.$field = $value.extract()?,)*
            $(stringify!($time) => $made.$time = $crate::times::seconds($name, $value)?,)*
            $($(stringify!($other) => $made.$other = $converted,)*)?
            other => {
                return Err(pyo3::exceptions::PyTypeError::new_err(format!("{} '{other}'", $wrong)));
            }
        }
    };
}
pub(crate) use keywords;

/// Calls the setters with the names of the arguments that were given: `given!(builder; ring_bytes, batch_bytes)`.
macro_rules! given {
    ($made:ident; $($option:ident),*) => {
        $(if let Some(value) = $option {
            $made = $made.$option(value);
        })*
    };
}
pub(crate) use given;
