//! Damage of files: a bit that has turned, a part that is zeros, an end that is missing.

use std::path::{Path, PathBuf};

use testkit::Random;

/// The bytes that are zeros.
const ZEROS: usize = 512;
/// The most bytes that are missing at the end.
const END: u64 = 2_000;

/// All files below a folder that have something in them, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(path),
                Ok(metadata) if metadata.len() > 0 => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// Damages a file below a folder. Returns which one; none if there is none.
pub(crate) fn damage(folder: &Path, seed: u64) -> Option<PathBuf> {
    let mut random = Random::new(seed);
    let all = files(folder);
    let kind = random.pick(&["log", "log", "publishers", "+cluster", ""])?;
    let is_of = |path: &PathBuf| kind.is_empty() || path.components().any(|part| part.as_os_str() == kind);
    let some: Vec<PathBuf> = all.iter().filter(|path| is_of(path)).cloned().collect();
    let path = random.pick(&some).or_else(|| random.pick(&all))?;
    let mut bytes = std::fs::read(&path).ok()?;
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(3) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.iter_mut().skip(at).take(ZEROS).for_each(|byte| *byte = 0),
        _ => bytes.truncate(bytes.len() - random.between(1, END.min(bytes.len() as u64)) as usize),
    }
    std::fs::write(&path, bytes).ok()?;
    Some(path)
}
