//! A bounded walk over the files below a folder.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::folders::SearchFolder;

/// Most entries visited below one folder.
const MOST_ENTRIES: usize = 20_000;

/// Iterator over the regular files below a folder, sorted by name. Follows links, enters no folder twice, and skips hidden
/// folders and the `blobs` of Hugging Face's cache, which its `snapshots` link to under readable names.
pub(super) struct Walk {
    /// Entries to visit, the next one last, with the remaining search depth below each.
    waiting: Vec<(PathBuf, usize)>,
    entered: HashSet<PathBuf>,
    left: usize,
    unfinished: bool,
}

impl Walk {
    pub(super) fn new(start: &SearchFolder) -> Self {
        let mut walk = Walk {
            waiting: Vec::new(),
            entered: HashSet::new(),
            left: MOST_ENTRIES,
            unfinished: false,
        };
        walk.enter(&start.folder, start.depth);
        walk
    }

    /// Whether the limit was reached before all entries were visited.
    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Adds the entries of a folder, to be visited next. An unreadable folder counts as empty.
    fn enter(&mut self, folder: &Path, depth: usize) {
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        if !self.entered.insert(real) {
            return;
        }
        let is_cache = folder.join("snapshots").is_dir();
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<_> =
            entries.take(self.left + 1).map(|entry| entry.file_name()).collect();
        if names.len() > self.left {
            self.unfinished = true;
            names.truncate(self.left);
        }
        self.left -= names.len();
        names.retain(|name| !(is_cache && name == "blobs"));
        names.sort();
        // Shows "model.pt" instead of "./model.pt".
        let folder = if folder == Path::new(".") { Path::new("") } else { folder };
        self.waiting.extend(names.iter().rev().map(|name| (folder.join(name), depth)));
    }
}

impl Iterator for Walk {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        loop {
            let (path, depth) = self.waiting.pop()?;
            let Ok(found) = fs::metadata(&path) else { continue };
            let hidden =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if found.is_file() {
                return Some(path);
            }
            if found.is_dir() && depth > 0 && !hidden {
                self.enter(&path, depth - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_bounded_and_visits_each_folder_once() {
        let root = std::env::temp_dir().join(format!("cutout-walk-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join("cache/snapshots")).unwrap();
        fs::create_dir_all(root.join("cache/blobs")).unwrap();
        let files =
            ["a/b/c/deep", "a/b/file", "z", ".git/no", "cache/blobs/no", "cache/snapshots/yes"];
        for file in files {
            fs::write(root.join(file), "x").unwrap();
        }
        #[cfg(unix)]
        for (link, target) in
            [("a/loop", "..".into()), ("a/again", root.join("a/b")), ("gone", "?".into())]
        {
            std::os::unix::fs::symlink::<PathBuf, _>(target, root.join(link)).unwrap();
        }
        let walk = |depth| {
            let walk = Walk::new(&SearchFolder { folder: root.clone(), depth });
            let short = |path: PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
            walk.map(short).collect::<Vec<String>>()
        };
        assert_eq!(walk(0), ["z"]);
        #[cfg(unix)]
        assert_eq!(walk(9), ["a/again/c/deep", "a/again/file", "cache/snapshots/yes", "z"]);
        let mut bounded = Walk::new(&SearchFolder { folder: root.join("a"), depth: 0 });
        assert!(!bounded.is_unfinished());
        bounded.left = 1;
        bounded.enter(&root, 0);
        assert!(bounded.is_unfinished());
        fs::remove_dir_all(&root).unwrap();
    }
}
