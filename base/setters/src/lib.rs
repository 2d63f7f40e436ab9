//! Chainable setters for structs of options, by one macro: [`setters`].
//!
//! RocketBufs, RBMQ's client and CMQ have options that grow. Their setters differ only in the name, the argument and the
//! documentation, and these three are all that the macro is given.
#![no_std]
#![forbid(unsafe_code)]

/// Implements chainable setters. Each takes the options and returns them.
///
/// A setter consists of its documentation, its name, its argument and, after `=`, the value that is stored: the argument where
/// there is none. The field has the name of the setter. `in FIELD` names a field of the options that contains this field. A comment
/// before the name of the options documents the group of setters.
///
/// ```
/// #[derive(Default)]
/// struct Limits {
///     max_bytes: Option<u64>,
/// }
///
/// #[derive(Default)]
/// pub struct Options {
///     name: String,
///     keep: bool,
///     limits: Limits,
/// }
///
/// option_setters::setters! { Options:
///     /// The name. Default: empty.
///     name(name: &str) = name.to_owned();
///     /// Whether data is kept. Default: false.
///     keep(keep: bool);
///     /// The most bytes that are kept. Default: no limit.
///     max_bytes in limits (bytes: u64) = Some(bytes);
/// }
///
/// let options = Options::default().name("archive").keep(true).max_bytes(1 << 20);
/// assert!(options.keep && options.name == "archive" && options.limits.max_bytes == Some(1 << 20));
/// ```
///
/// The setters of public fields, which are documented themselves, consist of the names and types of the fields:
///
/// ```
/// #[derive(Default)]
/// pub struct Options {
///     /// How many attempts are made. Default: 0.
///     pub attempts: u32,
/// }
///
/// option_setters::setters! { fields of Options: attempts: u32 }
///
/// assert_eq!(Options::default().attempts(3).attempts, 3);
/// ```
#[macro_export]
macro_rules! setters {
    (fields of $options:ident: $($field:ident: $type:ty),* $(,)?) => {
        $crate::setters! { $options:
            $(
                #[doc = concat!("Sets [`", stringify!($options), "::", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                $field($field: $type);
            )*
        }
    };
    ($(#[$group:meta])* $options:ident: $($(#[$doc:meta])* $name:ident $(in $part:ident)? ($value:ident: $type:ty) $(= $stored:expr)?;)*) => {
        $(#[$group])*
        impl $options {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(mut self, $value: $type) -> Self {
                    self $(.$part)? .$name = $crate::setters!(@stored $value $(, $stored)?);
                    self
                }
            )*
        }
    };
    (@stored $value:ident) => { $value };
    (@stored $value:ident, $stored:expr) => { $stored };
}
