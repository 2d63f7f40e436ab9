//! Functions with tuple parameters: values that belong together, but have no name.

use syn::visit::{self, Visit};
use syn::{FnArg, ImplItemFn, ItemFn, ItemImpl, Pat, Signature, TraitItemFn, Type};

/// The functions of a source file that take a tuple, with the line of each, from 1. A method of a trait that is implemented takes
/// what the trait says, and is left out.
///
/// # Errors
/// The text is no Rust.
pub fn with_tuple_parameters(source: &str) -> Result<Vec<(usize, String)>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    found: Vec<(usize, String)>,
}

impl Finder {
    fn look(&mut self, signature: &Signature) {
        let is_tuple = |argument: &FnArg| match argument {
            FnArg::Typed(typed) => matches!(&*typed.pat, Pat::Tuple(_)) || holds_a_tuple(&typed.ty),
            FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(is_tuple) {
            self.found.push((signature.fn_token.span.start().line, signature.ident.to_string()));
        }
    }
}

/// True for a tuple of two or more, and a reference to one.
fn holds_a_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => holds_a_tuple(&reference.elem),
        Type::Paren(inner) => holds_a_tuple(&inner.elem),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.look(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.look(&function.sig);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if block.trait_.is_none() {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.look(&function.sig);
        visit::visit_impl_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::with_tuple_parameters;

    #[test]
    fn tuples_are_found_where_a_name_could_be() {
        let source = "fn a(x: u8) {}\nfn b((x, y): (u8, u8)) {}\nstruct S;\nimpl S {\n    fn c(&self, pair: &(u8, u8)) {}\n}\n\
            impl From<(u8, u8)> for S {\n    fn from((a, b): (u8, u8)) -> S { S }\n}\ntrait T { fn d(pair: (u8, u8)); }\n\
            fn e(f: impl Fn((u8, u8)), none: ()) {}\n";
        let found = with_tuple_parameters(source).expect("it is Rust");
        assert_eq!(found, [(2, "b".to_owned()), (5, "c".to_owned()), (10, "d".to_owned())]);
    }
}
