//! Declares a section whose fields' documentation is there at run time too: the commented file that
//! `rbmq config --default` prints is made of it, so that it cannot say something else than the library's documentation.

/// Wraps a structure of documented public fields.
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
            /// Each field with what it is about.
            pub(crate) const FIELDS: &[(&str, &str)] =
                &[$((stringify!($field), concat!($($help, "\n"),+))),+];
        }
    };
}
