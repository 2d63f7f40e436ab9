//! The paths in the code of an item.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::modules::{attributes, is_test};

/// A path in the source, without generic arguments.
pub(super) struct Found {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// Whether the path names a macro that is called.
    pub(super) is_macro: bool,
}

/// The paths of an item, also in the arguments and bodies of macros, without code for tests.
pub(super) fn of(item: &syn::Item) -> Vec<Found> {
    let mut paths = Paths(Vec::new());
    paths.visit_item(item);
    paths.0
}

struct Paths(Vec<Found>);

impl Paths {
    fn add(&mut self, path: &syn::Path, is_macro: bool) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let line = first.ident.span().start().line;
            let path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.0.push(Found { path, line, is_macro });
        }
    }

    /// Finds paths in the tokens of a macro, which are not parsed into expressions.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let (mut colons, mut dollar) = (0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_tokens(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push(if dollar { format!("${ident}") } else { ident.to_string() });
                    (colons, dollar) = (0, false);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add_tokens(&mut path, line);
                    (colons, dollar) =
                        (0, matches!(&other, TokenTree::Punct(punct) if punct.as_char() == '$'));
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.add_tokens(&mut path, line);
    }

    /// Adds a path from tokens. A single word in lower case is left out: it may be a field or a variable.
    fn add_tokens(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 || path.first().is_some_and(|word| word.starts_with(char::is_uppercase)) {
            self.0.push(Found { path, line, is_macro: false });
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path, false);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add(&call.path, true);
        self.scan(call.tokens.clone());
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, method: &'ast syn::ImplItemFn) {
        if !is_test(&method.attrs) {
            visit::visit_impl_item_fn(self, method);
        }
    }

    // `Modules` has the `use` declarations; attributes and visibilities are no imports.
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
