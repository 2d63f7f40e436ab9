//! Sections: structs of settings that are declared once.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor as SerdeVisitor};
use toml::Value;

use super::error::nearest;
use super::setting::{Setting, Visitor, VisitorMut};
use super::spec::Spec;

/// A section of a configuration. [`section!`](crate::section) implements it.
pub trait Section {
    /// The name in a file; empty for the settings outside of all sections.
    fn name(&self) -> &'static str;
    /// The description.
    fn about(&self) -> &'static str;
    /// The declarations of the fields, in their order.
    fn specs(&self) -> &'static [Spec];
    /// Visits each field.
    fn visit(&self, f: &mut Visitor<'_>);
    /// As [`Section::visit`], to change fields.
    fn visit_mut(&mut self, f: &mut VisitorMut<'_>);

    /// Reads one field of a file.
    ///
    /// # Errors
    /// The value is not of the field's type.
    fn take<'de, A: MapAccess<'de>>(&mut self, spec: &'static Spec, map: &mut A) -> Result<(), A::Error>
    where
        Self: Sized;

    /// Applies the reloadable fields of `new`, and adds each field that differs to `changes`.
    fn reload(&mut self, new: &Self, changes: &mut Vec<Changed>)
    where
        Self: Sized;
}

/// A field with another value in another configuration.
#[derive(Debug)]
pub struct Changed {
    /// The field.
    pub spec: &'static Spec,
    /// The old value; none if the field was unset.
    pub old: Option<Value>,
    /// The new value; none if the field is unset.
    pub new: Option<Value>,
}

/// A field whose value is out of its range, for people: `tcp.backlog = 0: it must be 1 to 65535 connections`.
#[derive(Debug, Clone, PartialEq)]
pub struct OutOfRange {
    /// Section and field.
    pub name: &'static str,
    /// The value.
    pub value: Value,
    /// The permitted values.
    pub expects: &'static str,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: it must be {}", self.name, self.value, self.expects)
    }
}

/// Returns the first field that is out of its range.
pub fn out_of_range(section: &dyn Section) -> Option<OutOfRange> {
    let mut found = None;
    section.visit(&mut |spec, setting| {
        if found.is_none() && !setting.fits(&spec.range) {
            let value = setting.value().unwrap_or_else(|| Value::String(String::new()));
            found = Some(OutOfRange { name: spec.name, value, expects: spec.expects });
        }
    });
    found
}

/// Reads a section. A field that is not named keeps its default.
///
/// # Errors
/// An unknown name, with the nearest one, or a value of the wrong type.
pub fn read_section<'de, S: Section + Default, D: Deserializer<'de>>(deserializer: D) -> Result<S, D::Error> {
    deserializer.deserialize_map(Fields(PhantomData))
}

struct Fields<S>(PhantomData<S>);

impl<'de, S: Section + Default> SerdeVisitor<'de> for Fields<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the section [{}]", S::default().name())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<S, A::Error> {
        let mut section = S::default();
        let (name, specs) = (section.name(), section.specs());
        while let Some(spec) = map.next_key_seed(Name { section: name, specs })? {
            section.take(spec, &mut map)?;
        }
        Ok(section)
    }
}

/// Reads the name of a field.
struct Name {
    section: &'static str,
    specs: &'static [Spec],
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = &'static Spec;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl SerdeVisitor<'_> for Name {
    type Value = &'static Spec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a setting")
    }

    fn visit_str<E: Error>(self, field: &str) -> Result<Self::Value, E> {
        self.specs.iter().find(|spec| spec.field == field).ok_or_else(|| {
            let dot = if self.section.is_empty() { "" } else { "." };
            let near = nearest(field, self.specs.iter().map(|spec| spec.field));
            let hint = near.map(|near| format!("; did you mean '{}{dot}{near}'?", self.section));
            let hint = hint.unwrap_or_default();
            E::custom(format_args!("there is no setting '{}{dot}{field}'{hint}", self.section))
        })
    }
}

/// Reads the value of a field.
#[derive(Debug)]
pub struct Field<'a, T> {
    /// The declaration.
    pub spec: &'static Spec,
    /// The field.
    pub setting: &'a mut T,
}

impl<'de, T: Setting> DeserializeSeed<'de> for Field<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.setting.take(deserializer, self.spec)
    }
}

/// Declares a section: the structure with documented public fields, its defaults, its serde, and [`Section`].
///
/// After a field's default come its unit (`"bytes"` and `"ms"` also take texts as `"64 MiB"` and `"10 s"`), its range and its
/// cost; all three may be left out. `#[reloadable]` marks a field whose new value a running program applies. Ranges are
/// `[A to B]`, `[0 or A to B]`, `[at least A]`, `[0 or at least A]`, `[true or false]`, `[one of "a" | "b"]`, `[a word of at most A bytes]`,
/// `[a text of at most A bytes]` and `[any]`, which is the default: every text, or every value that serde reads. A section without a name has the settings outside of all sections.
#[macro_export]
macro_rules! section {
    ($(#[doc = $about:literal])+ $section:literal $name:ident $fields:tt) => {
        $crate::__section! { ($section ".") $(#[doc = $about])+ $name $fields }
    };
    ($(#[doc = $about:literal])+ $name:ident $fields:tt) => {
        $crate::__section! { ("" "") $(#[doc = $about])+ $name $fields }
    };
}

/// Implements [`section!`](crate::section).
// A repetition needs a variable to be repeated in the expansion: `$nothing` counts the attribute.
#[doc(hidden)]
#[macro_export]
macro_rules! __section {
    (
        ($section:literal $dot:literal)
        $(#[doc = $about:literal])+
        $name:ident {
            $(
                $(#[doc = $help:literal])*
                $(#[reloadable $($nothing:lifetime)?])?
                $field:ident: $type:ty = $default:expr
                    $(, $unit:literal)? $(, range [$($range:tt)+])? $(, cost $cost:literal)?;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Serialize)]
        pub struct $name {
            $(
                $(#[doc = $help])*
                #[doc = $crate::__declared!([$($unit)?] [$($($range)+)?] [$($cost)?] $default)]
                pub $field: $type,
            )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::read_section(deserializer)
            }
        }

        impl $name {
            const SPECS: &[$crate::Spec] = &[$($crate::Spec {
                name: concat!($section, $dot, stringify!($field)),
                field: stringify!($field),
                unit: concat!("" $(, $unit)?),
                range: $crate::__range!($($($range)+)?),
                expects: $crate::__expects!([$($unit)?] $($($range)+)?).trim_ascii_end(),
                cost: concat!("" $(, $cost)?),
                help: concat!($($help, "\n"),*),
                reloadable: $crate::__reloadable!($($($nothing)? reloadable)?),
            }),+];
        }

        impl $crate::Section for $name {
            fn name(&self) -> &'static str {
                $section
            }

            fn about(&self) -> &'static str {
                concat!($($about, "\n"),+)
            }

            fn specs(&self) -> &'static [$crate::Spec] {
                Self::SPECS
            }

            fn visit(&self, f: &mut $crate::Visitor<'_>) {
                let mut specs = Self::SPECS.iter();
                $(f(specs.next().expect("one for each field"), &self.$field);)+
            }

            fn visit_mut(&mut self, f: &mut $crate::VisitorMut<'_>) {
                let mut specs = Self::SPECS.iter();
                $(f(specs.next().expect("one for each field"), &mut self.$field);)+
            }

            fn take<'de, A: ::serde::de::MapAccess<'de>>(
                &mut self,
                spec: &'static $crate::Spec,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match spec.field {
                    $(stringify!($field) => {
                        map.next_value_seed($crate::Field { spec, setting: &mut self.$field })
                    })+
                    _ => unreachable!("a declaration of this section"),
                }
            }

            fn reload(&mut self, new: &Self, changes: &mut Vec<$crate::Changed>) {
                let mut specs = Self::SPECS.iter();
                $(
                    let spec = specs.next().expect("one for each field");
                    if self.$field != new.$field {
                        let (old, new_value) =
                            ($crate::Setting::value(&self.$field), $crate::Setting::value(&new.$field));
                        changes.push($crate::Changed { spec, old, new: new_value });
                        if spec.reloadable {
                            self.$field.clone_from(&new.$field);
                        }
                    }
                )+
            }
        }
    };
}

/// The rustdoc of a declaration that has a unit, a range and a cost.
#[doc(hidden)]
#[macro_export]
macro_rules! __declared {
    ([$unit:literal] [$($range:tt)+] [$cost:literal] $default:expr) => {
        concat!(
            "\n\nUnit: ", $unit, ". Default: `", stringify!($default),
            "`. Range: `", stringify!($($range)+), "`. Cost: ", $cost, "."
        )
    };
    ($($other:tt)*) => {
        ""
    };
}

/// Whether a declaration is reloadable.
#[doc(hidden)]
#[macro_export]
macro_rules! __reloadable {
    () => {
        false
    };
    (reloadable) => {
        true
    };
}

/// Converts the range in a declaration to a [`Range`](crate::Range).
#[doc(hidden)]
#[macro_export]
macro_rules! __range {
    ($(any)?) => {
        $crate::Range::Any
    };
    (true or false) => {
        $crate::Range::Bool
    };
    (a text of at most $max:literal bytes) => {
        $crate::Range::Text { max_bytes: $max }
    };
    (one of $($word:literal)|+) => {
        $crate::Range::Choice(&[$($word),+])
    };
    (a word of at most $max:literal bytes) => {
        $crate::Range::Word { max_bytes: $max }
    };
    (0 or $min:literal to $max:literal) => {
        $crate::Range::Int { zero: true, min: $min, max: $max }
    };
    (at least $min:literal) => {
        $crate::Range::Int { zero: false, min: $min, max: u64::MAX }
    };
    (0 or at least $min:literal) => {
        $crate::Range::Int { zero: true, min: $min, max: u64::MAX }
    };
    ($min:literal to $max:literal) => {
        $crate::Range::Int { zero: false, min: $min, max: $max }
    };
}

/// Converts the range in a declaration to a text for people.
#[doc(hidden)]
#[macro_export]
macro_rules! __expects {
    ([$($unit:literal)?] $(any)?) => {
        "a text"
    };
    ([$($unit:literal)?] true or false) => {
        "true or false"
    };
    ([$($unit:literal)?] a text of at most $max:literal bytes) => {
        concat!("a text of 1 to ", $max, " bytes, without control characters")
    };
    ([$($unit:literal)?] one of $first:literal $(| $word:literal)*) => {
        concat!("one of: ", $first $(, ", ", $word)*)
    };
    ([$($unit:literal)?] a word of at most $max:literal bytes) => {
        concat!("a word of 1 to ", $max, " letters, digits, '_' and '-'")
    };
    ([$($unit:literal)?] 0 or $min:literal to $max:literal) => {
        concat!("0 or ", $min, " to ", $max, " " $(, $unit)?)
    };
    ([$($unit:literal)?] at least $min:literal) => {
        concat!("at least ", $min, " " $(, $unit)?)
    };
    ([$($unit:literal)?] 0 or at least $min:literal) => {
        concat!("0 or at least ", $min, " " $(, $unit)?)
    };
    ([$($unit:literal)?] $min:literal to $max:literal) => {
        concat!($min, " to ", $max, " " $(, $unit)?)
    };
}
