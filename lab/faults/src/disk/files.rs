//! The files of a disk in memory, as programs see them and as they would be after the power was cut.
//!
//! ```text
//!   programs ──▶ now ── fsync ──▶ kept
//!                 │                 ▲
//!                 └── pending ──────┘ a part of it, by chance, when the power is cut
//! ```
//!
//! No more than POSIX promises: `fsync` of a file keeps its bytes, and `fsync` of a folder keeps the names in it. Of the other names the first
//! changes are kept, and of the other bytes any.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fuser::Errno;
use testkit::Random;

/// The number of a file or folder. None is used twice.
pub(super) type Number = u64;
/// That of the first folder.
pub(super) const ROOT: Number = 1;
/// The bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// A file or folder.
#[derive(Debug)]
pub(super) struct Node {
    /// The permissions.
    pub(super) mode: u16,
    /// When it was changed last.
    pub(super) changed: SystemTime,
    what: What,
}

#[derive(Debug)]
enum What {
    File(File),
    Folder(Folder),
}

#[derive(Debug, Default)]
struct File {
    now: Vec<u8>,
    kept: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug, Default)]
struct Folder {
    now: BTreeMap<OsString, Number>,
    kept: BTreeMap<OsString, Number>,
}

/// A change of a file.
#[derive(Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Length(usize),
}

/// A change of a name; none: the name is gone.
#[derive(Debug)]
struct Name {
    folder: Number,
    name: OsString,
    number: Option<Number>,
}

/// A name in a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The folder.
    pub(super) folder: Number,
    /// The name.
    pub(super) name: &'a OsStr,
}

/// All files of a disk.
#[derive(Debug)]
pub(super) struct Files {
    nodes: BTreeMap<Number, Node>,
    next: Number,
    /// Changes of names that are not kept yet. Those of one element happen together.
    pending: Vec<Vec<Name>>,
    room: usize,
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes: new } => {
                if bytes.len() < at + new.len() {
                    bytes.resize(at + new.len(), 0);
                }
                bytes[*at..at + new.len()].copy_from_slice(new);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }

    /// The first sectors of a write.
    fn torn(&self, random: &mut Random) -> Self {
        match self {
            Self::Write { at, bytes } => {
                let sectors = random.below((bytes.len() / SECTOR) as u64 + 1) as usize;
                Self::Write { at: *at, bytes: bytes[..sectors * SECTOR].to_vec() }
            }
            Self::Length(length) => Self::Length(*length),
        }
    }
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        let Self { kept, pending, .. } = self;
        pending.drain(..).for_each(|change| change.apply(kept));
    }

    /// Nothing, the first ones or any of the pending changes are kept, and one of them may be torn.
    fn cut(&mut self, random: &mut Random) {
        let (how, first) = (random.below(3), random.below(self.pending.len() as u64 + 1) as usize);
        for (n, change) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            let is_kept = match how {
                0 => false,
                1 => n < first,
                _ => random.percent(50),
            };
            match is_kept {
                true if random.percent(10) => change.torn(random).apply(&mut self.kept),
                true => change.apply(&mut self.kept),
                false => {}
            }
        }
        self.now.clone_from(&self.kept);
    }
}

impl Node {
    fn new(what: What, mode: u32) -> Self {
        Self { mode: (mode & 0o7777) as u16, changed: SystemTime::now(), what }
    }

    /// Whether it is a folder.
    pub(super) fn is_folder(&self) -> bool {
        matches!(self.what, What::Folder(_))
    }

    /// The bytes of a file; none in a folder.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.what {
            What::File(file) => &file.now,
            What::Folder(_) => &[],
        }
    }

    fn file(&mut self) -> Result<&mut File, Errno> {
        self.changed = SystemTime::now();
        match &mut self.what {
            What::File(file) => Ok(file),
            What::Folder(_) => Err(Errno::EISDIR),
        }
    }

    fn folder(&mut self) -> Result<&mut Folder, Errno> {
        match &mut self.what {
            What::Folder(folder) => Ok(folder),
            What::File(_) => Err(Errno::ENOTDIR),
        }
    }
}

impl Files {
    /// A disk with nothing and room for so many bytes.
    pub(super) fn new(room: usize) -> Self {
        let root = Node::new(What::Folder(Folder::default()), 0o755);
        Self { nodes: [(ROOT, root)].into(), next: ROOT + 1, pending: Vec::new(), room }
    }

    /// A file or folder.
    pub(super) fn node(&self, number: Number) -> Result<&Node, Errno> {
        self.nodes.get(&number).ok_or(Errno::ENOENT)
    }

    /// Changes its permissions.
    pub(super) fn set_mode(&mut self, number: Number, mode: u32) -> Result<(), Errno> {
        self.node_mut(number)?.mode = (mode & 0o7777) as u16;
        Ok(())
    }

    fn node_mut(&mut self, number: Number) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::ENOENT)
    }

    /// The number of a name.
    pub(super) fn find(&self, folder: Number, name: &OsStr) -> Result<Number, Errno> {
        self.names(folder)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// The names in a folder.
    pub(super) fn names(&self, folder: Number) -> Result<&BTreeMap<OsString, Number>, Errno> {
        match &self.node(folder)?.what {
            What::Folder(folder) => Ok(&folder.now),
            What::File(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Makes a file or folder.
    pub(super) fn make(
        &mut self,
        folder: Number,
        name: &OsStr,
        mode: u32,
        is_folder: bool,
    ) -> Result<Number, Errno> {
        if self.find(folder, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let what = if is_folder { What::Folder(Folder::default()) } else { What::File(File::default()) };
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, Node::new(what, mode));
        self.name(vec![Name { folder, name: name.into(), number: Some(number) }])?;
        Ok(number)
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, folder: Number, name: &OsStr) -> Result<(), Errno> {
        let number = self.find(folder, name)?;
        if self.names(number).is_ok_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.name(vec![Name { folder, name: name.into(), number: None }])
    }

    /// Gives a name to what has another one.
    pub(super) fn rename(&mut self, from: Place<'_>, to: Place<'_>) -> Result<(), Errno> {
        let number = self.find(from.folder, from.name)?;
        let old = Name { folder: from.folder, name: from.name.into(), number: None };
        self.name(vec![old, Name { folder: to.folder, name: to.name.into(), number: Some(number) }])
    }

    fn name(&mut self, names: Vec<Name>) -> Result<(), Errno> {
        for Name { folder, name, number } in &names {
            let now = &mut self.node_mut(*folder)?.folder()?.now;
            match number {
                Some(number) => now.insert(name.clone(), *number),
                None => now.remove(name),
            };
        }
        self.pending.push(names);
        Ok(())
    }

    /// The bytes that all files with a name have.
    pub(super) fn used(&self) -> usize {
        let folders = self.nodes.values().filter_map(|node| match &node.what {
            What::Folder(folder) => Some(&folder.now),
            What::File(_) => None,
        });
        folders.flat_map(BTreeMap::values).filter_map(|n| Some(self.nodes.get(n)?.bytes().len())).sum()
    }

    /// The room of the disk.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Writes to a file.
    pub(super) fn write(&mut self, number: Number, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        let more = (at + bytes.len()).saturating_sub(self.node(number)?.bytes().len());
        if self.used() + more > self.room {
            return Err(Errno::ENOSPC);
        }
        self.node_mut(number)?.file()?.change(Change::Write { at, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Cuts a file, or adds zeros.
    pub(super) fn set_length(&mut self, number: Number, length: usize) -> Result<(), Errno> {
        if self.used() + length.saturating_sub(self.node(number)?.bytes().len()) > self.room {
            return Err(Errno::ENOSPC);
        }
        self.node_mut(number)?.file()?.change(Change::Length(length));
        Ok(())
    }

    /// Keeps the bytes of a file, or the names in a folder.
    pub(super) fn sync(&mut self, number: Number) -> Result<(), Errno> {
        match &mut self.node_mut(number)?.what {
            What::File(file) => file.sync(),
            What::Folder(_) => {
                let is_of = |names: &mut Vec<Name>| names.iter().any(|name| name.folder == number);
                let names = self.pending.extract_if(.., is_of).flatten().collect();
                self.keep(names);
            }
        }
        Ok(())
    }

    fn keep(&mut self, names: Vec<Name>) {
        for Name { folder, name, number } in names {
            let Some(What::Folder(folder)) = self.nodes.get_mut(&folder).map(|node| &mut node.what) else {
                continue;
            };
            match number {
                Some(number) => folder.kept.insert(name, number),
                None => folder.kept.remove(&name),
            };
        }
    }

    /// The power is cut: what was not kept is there in part, by chance.
    pub(super) fn cut(&mut self, random: &mut Random) {
        let count = random.below(self.pending.len() as u64 + 1) as usize;
        let names = self.pending.drain(..).take(count).flatten().collect();
        self.keep(names);
        for node in self.nodes.values_mut() {
            match &mut node.what {
                What::File(file) => file.cut(random),
                What::Folder(folder) => folder.now.clone_from(&folder.kept),
            }
        }
        let (mut named, mut folders) = (BTreeSet::from([ROOT]), vec![ROOT]);
        while let Some(folder) = folders.pop() {
            let names = self.names(folder).map(|names| names.values().copied().collect::<Vec<_>>());
            for number in names.unwrap_or_default() {
                named.insert(number);
                folders.push(number);
            }
        }
        self.nodes.retain(|number, _| named.contains(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn what_was_synced_stays_and_the_rest_is_there_in_part() {
        let (mut were_lost, mut were_kept) = (0, 0);
        for seed in 0..100 {
            let mut files = Files::new(1 << 20);
            let folder = files.make(ROOT, name("folder"), 0o700, true).unwrap();
            let file = files.make(folder, name("file"), 0o600, false).unwrap();
            files.write(file, 0, b"kept").unwrap();
            for one in [file, folder, ROOT] {
                files.sync(one).unwrap();
            }
            files.write(file, 4, b" or not").unwrap();
            let [from, to] = ["file", "other"].map(|text| Place { folder, name: name(text) });
            files.rename(from, to).unwrap();
            assert_eq!(files.node(file).unwrap().bytes(), b"kept or not");
            files.cut(&mut Random::new(seed));
            let names: Vec<&OsString> = files.names(folder).unwrap().keys().collect();
            let is_renamed = names == ["other"];
            assert!(is_renamed || names == ["file"], "{names:?}");
            let bytes = files.node(file).unwrap().bytes();
            assert!([&b"kept"[..], b"kept or not"].contains(&bytes), "{bytes:?}");
            were_lost += u32::from(bytes.len() == 4);
            were_kept += u32::from(is_renamed);
        }
        assert!((20..80).contains(&were_lost) && (20..80).contains(&were_kept), "{were_lost} {were_kept}");
    }

    #[test]
    fn a_folder_whose_name_was_not_synced_may_be_gone_with_its_files() {
        let is_gone = |seed| {
            let mut files = Files::new(100);
            let file = files.make(ROOT, name("file"), 0o600, false).unwrap();
            files.write(file, 90, b"0123456789").unwrap();
            assert_eq!(files.write(file, 100, b"x"), Err(Errno::ENOSPC));
            files.sync(file).unwrap();
            files.cut(&mut Random::new(seed));
            let is_gone = files.find(ROOT, name("file")).is_err();
            assert_eq!(files.used(), if is_gone { 0 } else { 100 });
            is_gone
        };
        assert!((0..20).any(is_gone) && !(0..20).all(is_gone));
    }
}
