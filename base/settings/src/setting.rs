//! The values of settings: how each type is read, shown and compared with its range.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Value;

use super::spec::{Range, Spec};

/// A function that looks at each setting.
pub type Visitor<'a> = dyn FnMut(&'static Spec, &dyn Setting) + 'a;

/// A function that may change each setting.
pub type VisitorMut<'a> = dyn FnMut(&'static Spec, &mut dyn Setting) + 'a;

/// The common interface of the types of settings.
pub trait Setting {
    /// Takes the value over if it is of this type. Returns false otherwise. [`Setting::fits`] checks the range.
    fn read(&mut self, value: &Value, spec: &Spec) -> bool;

    /// As [`Setting::read`], from a file that is being parsed.
    ///
    /// # Errors
    /// The value is not of this type. The error names the setting and its range, or what is wrong inside of the value.
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D, spec: &Spec) -> Result<(), D::Error>
    where
        Self: Sized,
    {
        let value = Value::deserialize(deserializer)?;
        self.read(&value, spec).then_some(()).ok_or_else(|| D::Error::custom(spec.refusal(&value)))
    }

    /// Back to the default of an optional field; false if the field is not optional.
    fn unset(&mut self) -> bool {
        false
    }

    /// The value for a file; none if it is left out.
    fn value(&self) -> Option<Value>;

    /// Whether the value is in the range.
    fn fits(&self, range: &Range) -> bool;
}

/// A value as it stands in a file, or `(unset)`.
pub fn shown(setting: &dyn Setting) -> String {
    setting.value().map_or_else(|| "(unset)".to_owned(), |value| value.to_string())
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(&mut self, value: &Value, spec: &Spec) -> bool {
                let number = match value {
                    Value::Integer(number) => <$type>::try_from(*number).ok(),
                    Value::String(text) => spec.number(text).and_then(|n| <$type>::try_from(n).ok()),
                    _ => None,
                };
                number.map(|number| *self = number).is_some()
            }

            /// A number that TOML cannot represent becomes a text.
            fn value(&self) -> Option<Value> {
                Some(i64::try_from(*self).map_or_else(|_| Value::String(self.to_string()), Value::Integer))
            }

            fn fits(&self, range: &Range) -> bool {
                let &Range::Int { zero, min, max } = range else { return false };
                let number = *self as u64;
                (zero && number == 0) || (min..=max).contains(&number)
            }
        }
    )*};
}

number!(u16, u32, u64, usize, i32);

impl Setting for bool {
    fn read(&mut self, value: &Value, _: &Spec) -> bool {
        value.as_bool().map(|v| *self = v).is_some()
    }

    fn value(&self) -> Option<Value> {
        Some(Value::Boolean(*self))
    }

    fn fits(&self, range: &Range) -> bool {
        matches!(range, Range::Bool)
    }
}

impl Setting for String {
    fn read(&mut self, value: &Value, _: &Spec) -> bool {
        value.as_str().map(|v| v.clone_into(self)).is_some()
    }

    fn value(&self) -> Option<Value> {
        Some(Value::String(self.clone()))
    }

    fn fits(&self, range: &Range) -> bool {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        match range {
            Range::Word { max_bytes } => (1..=*max_bytes).contains(&self.len()) && self.bytes().all(word),
            Range::Text { max_bytes } => {
                (1..=*max_bytes).contains(&self.len()) && !self.contains(char::is_control)
            }
            Range::Choice(words) => words.contains(&self.as_str()),
            Range::Any => true,
            Range::Int { .. } | Range::Bool => false,
        }
    }
}

impl<T: Setting + Default> Setting for Option<T> {
    fn read(&mut self, value: &Value, spec: &Spec) -> bool {
        let mut inner = T::default();
        let good = inner.read(value, spec);
        if good {
            *self = Some(inner);
        }
        good
    }

    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D, spec: &Spec) -> Result<(), D::Error> {
        self.insert(T::default()).take(deserializer, spec)
    }

    fn unset(&mut self) -> bool {
        *self = None;
        true
    }

    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(Setting::value)
    }

    fn fits(&self, range: &Range) -> bool {
        self.as_ref().is_none_or(|inner| inner.fits(range))
    }
}

/// Implements [`Setting`] for types that serde reads and writes: lists, tables, words of an enum. Their range is [`Range::Any`];
/// serde's error says what is wrong inside.
#[macro_export]
macro_rules! by_serde {
    ($({$($generics:tt)*} $type:ty),+ $(,)?) => {$(
        impl<$($generics)*> $crate::Setting for $type {
            fn read(&mut self, value: &::toml::Value, _: &$crate::Spec) -> bool {
                <Self as ::serde::Deserialize>::deserialize(value.clone()).map(|v| *self = v).is_ok()
            }

            fn take<'de, D: ::serde::Deserializer<'de>>(
                &mut self,
                deserializer: D,
                _: &$crate::Spec,
            ) -> Result<(), D::Error> {
                *self = <Self as ::serde::Deserialize>::deserialize(deserializer)?;
                Ok(())
            }

            fn value(&self) -> Option<::toml::Value> {
                ::toml::Value::try_from(self).ok()
            }

            fn fits(&self, range: &$crate::Range) -> bool {
                matches!(range, $crate::Range::Any)
            }
        }
    )+};
    ($($type:ty),+ $(,)?) => { $crate::by_serde!($({} $type),+); };
}

by_serde!(PathBuf, IpAddr);
by_serde!(
    {T: Serialize + DeserializeOwned} Vec<T>,
    {T: Serialize + DeserializeOwned} BTreeMap<String, T>,
);
