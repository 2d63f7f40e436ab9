//! Sections whose documentation is available at run time. `rbmq config --default` prints this documentation, so that the printed
//! file and the documentation of the library agree.

/// Declares a structure of documented public fields, with their names and documentation as constants.
macro_rules! described {
    (
        $(#[doc = $about:literal])+
        #[derive($($derive:ident),+)]
        #[serde($($container:tt)*)]
        pub struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $(#[serde($($serde:tt)*)])*
                pub $field:ident: $type:ty,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive($($derive),+)]
        #[serde($($container)*)]
        pub struct $name {
            $(
                $(#[doc = $help])+
                $(#[serde($($serde)*)])*
                pub $field: $type,
            )+
        }

        impl $name {
            pub(crate) const ABOUT: &str = concat!($($about, "\n"),+);
            /// The name and documentation of each field.
            pub(crate) const FIELDS: &[(&str, &str)] =
                &[$((stringify!($field), concat!($($help, "\n"),+))),+];
        }
    };
}
