//! Name resolution: from a path in the source to the module that defines the item.

use super::modules::{Id, Modules};

/// The longest chain of re-exports that is followed. The limit ends chains that never reach a definition.
const MOST_STEPS: usize = 32;

/// The result of resolving a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Module(Id),
    /// Any other item of this package: the module that defines the item, and the name.
    Item(Id, String),
}

/// Resolves names in the modules of a package.
pub(super) struct Resolver<'a> {
    pub(super) modules: &'a Modules,
    /// The crate name of the library, for programs of the same package.
    pub(super) library: String,
}

impl Resolver<'_> {
    /// Resolves a path in `module`; None if the item belongs to another crate. A variant, constant or method
    /// resolves to its type.
    pub(super) fn resolve(&self, module: Id, path: &[String]) -> Option<Target> {
        self.step(module, path, MOST_STEPS)
    }

    fn step(&self, module: Id, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" | "$crate" => Target::Module(self.modules.all[module].root),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules.all[module].parent?),
            name => match self.lookup(module, name, rest.is_empty(), steps) {
                Some(target) => target,
                None if name == self.library => Target::Module(self.library_root()?),
                None => return None,
            },
        };
        while let Target::Module(id) = at
            && let Some((name, behind)) = rest.split_first()
        {
            rest = behind;
            at = if name == "super" {
                Target::Module(self.modules.all[id].parent?)
            } else {
                // A name without a definition comes from a macro in that module.
                self.lookup(id, name, rest.is_empty(), steps)
                    .or_else(|| (!self.is_foreign(id, name)).then(|| Target::Item(id, name.clone())))?
            };
        }
        Some(at)
    }

    /// Looks a name up in a module: items, then child modules, `use` declarations and `use …::*`.
    fn lookup(&self, module: Id, name: &str, last: bool, steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let here = &self.modules.all[module];
        let child = here.children.get(name).map(|child| Target::Module(child.id));
        if here.names.contains_key(name) && (last || child.is_none()) {
            return Some(Target::Item(module, name.into()));
        }
        if child.is_some() {
            return child;
        }
        if let Some(found) = here.uses.iter().find(|found| found.name.as_deref() == Some(name)) {
            return self.step(module, &found.path, steps);
        }
        here.uses.iter().filter(|found| found.name.is_none()).find_map(|glob| {
            match self.step(module, &glob.path, steps)? {
                Target::Module(id) if id != module => self.lookup(id, name, last, steps),
                _ => None,
            }
        })
    }

    /// Whether a module imports a name from another crate.
    fn is_foreign(&self, module: Id, name: &str) -> bool {
        self.modules.all[module].uses.iter().any(|found| found.name.as_deref() == Some(name))
    }

    fn library_root(&self) -> Option<Id> {
        self.modules.roots.iter().copied().find(|root| self.modules.all[*root].file == "src/lib.rs")
    }
}
