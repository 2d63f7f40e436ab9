//! From a path as it is written to the file that defines what it names.

use super::modules::{Id, Modules};

/// Longer chains of re-exports are circles of names.
const MOST_STEPS: usize = 32;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Module(Id),
    /// Anything else of this crate: the module whose file defines it, and its name there.
    Item(Id, String),
}

/// Finds names in the modules of a crate.
pub(super) struct Resolver<'a> {
    pub(super) modules: &'a Modules,
    /// What programs of the same package call its library.
    pub(super) library: String,
}

impl Resolver<'_> {
    /// What a path names where it is written in `module`; None if that is no part of this crate. What comes behind a
    /// type (a variant, a constant, a method) belongs to the type.
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
                // A name that is nowhere is made by a macro: it is the module's.
                self.lookup(id, name, rest.is_empty(), steps)
                    .or_else(|| (!self.is_foreign(id, name)).then(|| Target::Item(id, name.clone())))?
            };
        }
        Some(at)
    }

    /// A name in a module: what is defined there, brought there by `use`, or by `use …::*`.
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

    /// Whether a module has a name from another crate.
    fn is_foreign(&self, module: Id, name: &str) -> bool {
        self.modules.all[module].uses.iter().any(|found| found.name.as_deref() == Some(name))
    }

    fn library_root(&self) -> Option<Id> {
        self.modules.roots.iter().copied().find(|root| self.modules.all[*root].file == "src/lib.rs")
    }
}
