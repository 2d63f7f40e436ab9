//! The modules of a package: the file, the names and the items of each.
//!
//! Items for tests (`#[cfg(test)]`) are left out.

use std::collections::{BTreeMap, HashMap};

use proc_macro2::TokenTree;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// The index of a module in [`Modules::all`].
pub(super) type Id = usize;

/// The modules of a package.
#[derive(Default)]
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
    /// The root modules: `lib.rs`, `main.rs`, the programs in `bin/`.
    pub(super) roots: Vec<Id>,
    /// The file of each `macro_rules!`, by name: macros have textual scope, not a path.
    pub(super) macros: HashMap<String, String>,
}

/// A module: a file, or an inline module of a file.
pub(super) struct Module {
    pub(super) file: String,
    pub(super) root: Id,
    pub(super) parent: Option<Id>,
    pub(super) children: BTreeMap<String, Child>,
    /// The names of the items, and whether each is `pub`.
    pub(super) names: BTreeMap<String, bool>,
    pub(super) uses: Vec<Use>,
    /// The items, without `use` declarations and modules.
    pub(super) items: Vec<Item>,
}

pub(super) struct Child {
    pub(super) id: Id,
    pub(super) public: bool,
}

/// A name of a `use` declaration.
pub(super) struct Use {
    /// The imported name; None for `*`.
    pub(super) name: Option<String>,
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    pub(super) visibility: Reach,
}

/// The visibility of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Private,
    Crate,
    Public,
}

impl Modules {
    /// Parses the files of a package, beginning with the roots. `sources` maps paths (`src/lib.rs`) to texts.
    ///
    /// # Errors
    /// The path and line of a file that cannot be parsed.
    pub(super) fn parse(sources: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut modules = Self::default();
        for path in sources.keys().filter(|path| is_root(path)) {
            let root = modules.all.len();
            modules.roots.push(root);
            let folder = folder_of(path);
            modules.add_file(sources, path, folder, Place { root, parent: None })?;
        }
        Ok(modules)
    }

    fn add_file(
        &mut self,
        sources: &BTreeMap<String, String>,
        path: &str,
        folder: &str,
        place: Place,
    ) -> Result<Id, String> {
        let file = syn::parse_file(&sources[path])
            .map_err(|error| format!("{path}:{}: {error}", error.span().start().line))?;
        self.add(sources, Part { file: path, folder, items: file.items }, place)
    }

    fn add(
        &mut self,
        sources: &BTreeMap<String, String>,
        part: Part<'_>,
        place: Place,
    ) -> Result<Id, String> {
        let id = self.all.len();
        self.all.push(Module {
            file: part.file.into(),
            root: place.root,
            parent: place.parent,
            children: BTreeMap::new(),
            names: BTreeMap::new(),
            uses: Vec::new(),
            items: Vec::new(),
        });
        for item in part.items {
            if is_test(attributes(&item)) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    let place = Place { root: place.root, parent: Some(id) };
                    let public = matches!(module.vis, Visibility::Public(_)) && !is_hidden(&module.attrs);
                    let name = module.ident.to_string();
                    let child = self.add_child(sources, part.file, part.folder, module, place)?;
                    if let Some(child) = child {
                        self.all[id].children.insert(name, Child { id: child, public });
                    }
                }
                Item::Use(declaration) => self.all[id].uses.extend(uses(&declaration)),
                other => self.add_item(id, other),
            }
        }
        Ok(id)
    }

    /// Adds an inline module or the file of a module. None if the file does not exist.
    fn add_child(
        &mut self,
        sources: &BTreeMap<String, String>,
        file: &str,
        folder: &str,
        module: syn::ItemMod,
        place: Place,
    ) -> Result<Option<Id>, String> {
        let inside = format!("{folder}/{}", module.ident);
        if let Some((_, items)) = module.content {
            return self.add(sources, Part { file, folder: &inside, items }, place).map(Some);
        }
        if let Some(path) = path_attribute(&module.attrs) {
            let path = format!("{}/{path}", folder_of(file));
            let known = sources.contains_key(&path);
            return if known {
                self.add_file(sources, &path, folder_of(&path), place).map(Some)
            } else {
                Ok(None)
            };
        }
        for path in [format!("{inside}.rs"), format!("{inside}/mod.rs")] {
            if sources.contains_key(&path) {
                return self.add_file(sources, &path, &inside, place).map(Some);
            }
        }
        Ok(None)
    }

    fn add_item(&mut self, id: Id, item: Item) {
        let module = &mut self.all[id];
        if let Item::Macro(rules) = &item
            && let Some(name) = &rules.ident
        {
            self.macros.insert(name.to_string(), module.file.clone());
        }
        if let Some((name, visibility)) = defined(&item) {
            let public = matches!(visibility, Visibility::Public(_)) && !is_hidden(attributes(&item));
            *module.names.entry(name.to_string()).or_default() |= public;
        }
        let mut inner = InnerUses(Vec::new());
        inner.visit_item(&item);
        module.uses.extend(inner.0);
        module.items.push(item);
    }
}

/// The position of a module in the tree.
#[derive(Clone, Copy)]
struct Place {
    root: Id,
    parent: Option<Id>,
}

/// The source of a module.
struct Part<'a> {
    file: &'a str,
    /// The folder of the files of its child modules.
    folder: &'a str,
    items: Vec<Item>,
}

/// The names of a `use` declaration. A path with a leading `::` names another crate and is left out.
fn uses(declaration: &syn::ItemUse) -> Vec<Use> {
    let visibility = match declaration.vis {
        Visibility::Inherited => Reach::Private,
        Visibility::Public(_) if !is_hidden(&declaration.attrs) => Reach::Public,
        _ => Reach::Crate,
    };
    let mut found = Vec::new();
    if declaration.leading_colon.is_none() {
        flatten(&declaration.tree, &mut Vec::new(), visibility, &mut found);
    }
    found
}

/// `use` declarations inside functions. They are treated as declarations of the module.
struct InnerUses(Vec<Use>);

impl<'ast> Visit<'ast> for InnerUses {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, declaration: &'ast syn::ItemUse) {
        self.0.extend(uses(declaration));
    }
}

fn flatten(tree: &UseTree, before: &mut Vec<String>, visibility: Reach, found: &mut Vec<Use>) {
    let mut leaf = |name: Option<String>, last: Option<&syn::Ident>, line| {
        let path = before.iter().cloned().chain(last.map(ToString::to_string)).collect();
        found.push(Use { name, path, line, visibility });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, visibility, found);
            before.pop();
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, before, visibility, found));
        }
        UseTree::Glob(glob) => leaf(None, None, glob.star_token.span.start().line),
        // `a::{self}` is `a`.
        UseTree::Name(name) if name.ident == "self" => {
            leaf(before.last().cloned(), None, name.ident.span().start().line);
        }
        UseTree::Name(name) => {
            leaf(Some(name.ident.to_string()), Some(&name.ident), name.ident.span().start().line);
        }
        UseTree::Rename(rename) => {
            let last = Some(&rename.ident).filter(|ident| *ident != "self");
            leaf(Some(rename.rename.to_string()), last, rename.ident.span().start().line);
        }
    }
}

/// Whether a file is a root module.
fn is_root(path: &str) -> bool {
    matches!(path, "src/lib.rs" | "src/main.rs")
        || path.strip_prefix("src/bin/").is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"))
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The name and visibility of an item; None for an item without a name.
pub(super) fn defined(item: &Item) -> Option<(&syn::Ident, &Visibility)> {
    match item {
        Item::Const(item) => Some((&item.ident, &item.vis)),
        Item::Enum(item) => Some((&item.ident, &item.vis)),
        Item::Fn(item) => Some((&item.sig.ident, &item.vis)),
        Item::Static(item) => Some((&item.ident, &item.vis)),
        Item::Struct(item) => Some((&item.ident, &item.vis)),
        Item::Trait(item) => Some((&item.ident, &item.vis)),
        Item::Type(item) => Some((&item.ident, &item.vis)),
        Item::Union(item) => Some((&item.ident, &item.vis)),
        _ => None,
    }
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is for tests only: `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .any(|attribute| attribute.meta.require_list().is_ok_and(|list| requires_test(list.tokens.clone())))
}

fn requires_test(condition: proc_macro2::TokenStream) -> bool {
    let mut word = String::new();
    condition.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => {
            word = ident.to_string();
            word == "test"
        }
        TokenTree::Group(group) => word == "all" && requires_test(group.stream()),
        _ => false,
    })
}

/// Whether an item is hidden from the documentation: `#[doc(hidden)]`.
pub(super) fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"))
        .any(|attribute| attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "hidden"))
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Expr::Lit(literal) = &attribute.meta.require_name_value().ok()?.value else { return None };
    let syn::Lit::Str(path) = &literal.lit else { return None };
    Some(path.value())
}
