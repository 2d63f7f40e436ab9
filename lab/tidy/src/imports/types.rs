//! The size of types, and the public names of a library.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use syn::{ImplItem, Item, Visibility};

use super::modules::{Id, Reach, attributes, is_test};
use super::resolve::{Resolver, Target};

/// A type with its methods from all files of the package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Type {
    /// The name.
    pub name: String,
    /// The file that defines it.
    pub file: String,
    /// Inherent methods and associated functions.
    pub methods: usize,
    /// The `pub` ones of `methods`.
    pub public_methods: usize,
    /// Methods of trait implementations.
    pub trait_methods: usize,
    /// Fields of a struct or variants of an enum.
    pub fields: usize,
    /// `pub` fields of a struct or variants of an enum.
    pub public_fields: usize,
    /// The files that define inherent methods.
    pub files: BTreeSet<String>,
}

/// The types of the package, sorted by the number of methods, the largest first.
pub(super) fn all(resolver: &Resolver<'_>) -> Vec<Type> {
    let mut types: BTreeMap<(Id, String), Type> = BTreeMap::new();
    for (id, module) in resolver.modules.all.iter().enumerate() {
        for item in &module.items {
            match item {
                Item::Struct(item) => {
                    let found = types.entry((id, item.ident.to_string())).or_default();
                    found.fields = item.fields.len();
                    found.public_fields =
                        item.fields.iter().filter(|field| matches!(field.vis, Visibility::Public(_))).count();
                }
                Item::Enum(item) => {
                    let found = types.entry((id, item.ident.to_string())).or_default();
                    (found.fields, found.public_fields) = (item.variants.len(), item.variants.len());
                }
                Item::Impl(block) if !is_test(attributes(item)) => {
                    if let Some(key) = implemented(resolver, id, block) {
                        add_methods(types.entry(key).or_default(), block, &module.file);
                    }
                }
                _ => {}
            }
        }
    }
    let named = types.into_iter().map(|((id, name), found)| Type {
        name,
        file: resolver.modules.all[id].file.clone(),
        ..found
    });
    let mut types: Vec<Type> = named.collect();
    types.sort_by(|a, b| b.methods.cmp(&a.methods).then_with(|| a.name.cmp(&b.name)));
    types
}

/// The type that an `impl` block belongs to; None if the type is from another crate.
fn implemented(resolver: &Resolver<'_>, module: Id, block: &syn::ItemImpl) -> Option<(Id, String)> {
    let syn::Type::Path(path) = &*block.self_ty else { return None };
    let path: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match resolver.resolve(module, &path)? {
        Target::Item(id, name) => Some((id, name)),
        Target::Module(_) => None,
    }
}

fn add_methods(found: &mut Type, block: &syn::ItemImpl, file: &str) {
    let methods = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(method) if !is_test(&method.attrs) => Some(method),
        _ => None,
    });
    if block.trait_.is_some() {
        found.trait_methods += methods.count();
        return;
    }
    for method in methods {
        found.methods += 1;
        found.public_methods += usize::from(matches!(method.vis, Visibility::Public(_)));
        found.files.insert(file.into());
    }
}

/// The public names at the root of the library, sorted; empty if the package has no library.
pub(super) fn exported(resolver: &Resolver<'_>) -> Vec<String> {
    let modules = &resolver.modules.all;
    let root = resolver.modules.roots.iter().copied().find(|root| modules[*root].file == "src/lib.rs");
    let mut names = BTreeSet::new();
    if let Some(root) = root {
        add_exported(resolver, root, &mut BTreeSet::new(), &mut names);
    }
    names.into_iter().collect()
}

fn add_exported(resolver: &Resolver<'_>, id: Id, seen: &mut BTreeSet<Id>, names: &mut BTreeSet<String>) {
    if !seen.insert(id) {
        return;
    }
    let module = &resolver.modules.all[id];
    names.extend(module.names.iter().filter(|(_, public)| **public).map(|(name, _)| name.clone()));
    names.extend(module.children.iter().filter(|(_, child)| child.public).map(|(name, _)| name.clone()));
    for found in module.uses.iter().filter(|found| found.visibility == Reach::Public) {
        match &found.name {
            Some(name) => drop(names.insert(name.clone())),
            None => {
                if let Some(Target::Module(inner)) = resolver.resolve(id, &found.path) {
                    add_exported(resolver, inner, seen, names);
                }
            }
        }
    }
}
