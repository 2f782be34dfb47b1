//! Where a change can make another file of a path.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The file at a path, and every link on the way to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Spots(BTreeSet<PathBuf>);

/// As many as Linux follows.
const MOST_LINKS: usize = 40;

impl Spots {
    pub(super) fn on_all_ways_to(paths: &[PathBuf]) -> Self {
        Self(paths.iter().flat_map(|path| Self::on_the_way_to(path).0).collect())
    }

    fn on_the_way_to(path: &Path) -> Self {
        let mut spots = BTreeSet::new();
        let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        for _ in 0..MOST_LINKS {
            let Some((link, beyond)) = first_link(&path) else { break };
            spots.insert(link);
            path = beyond;
        }
        spots.insert(path);
        Self(spots)
    }

    /// The folders to watch: of each spot the one that holds it, or what there is of the way to it; and itself, if it is a
    /// folder.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        let holding =
            |spot: &PathBuf| spot.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_owned);
        let is_folder = |spot: &&PathBuf| spot.is_dir() && !spot.is_symlink();
        let all = self.0.iter();
        all.clone().filter_map(holding).chain(all.filter(is_folder).cloned()).collect()
    }

    /// Whether something that happened there can matter: at a spot, at a folder on the way to it, or in it, if it is one.
    pub(super) fn concern(&self, path: &Path) -> bool {
        self.0.iter().any(|spot| spot.starts_with(path) || path.starts_with(spot))
    }
}

/// The first link on a path, and where the path leads beyond it.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut prefixes: Vec<&Path> = path.ancestors().collect();
    prefixes.reverse();
    prefixes.into_iter().find_map(|link| {
        let target = link.parent()?.join(link.read_link().ok()?);
        let rest = path.strip_prefix(link).ok()?;
        // To join nothing would add a slash, and a file with a slash is not there.
        let beyond = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
        Some((link.to_owned(), beyond))
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn set<const N: usize>(root: &Path, names: [&str; N]) -> BTreeSet<PathBuf> {
        names.map(|name| if name.is_empty() { root.to_owned() } else { root.join(name) }).into()
    }

    /// A folder without a link on the way to it.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        (folder, path)
    }

    #[test]
    fn a_plain_file_is_watched_in_its_folder() {
        let (_keep, root) = folder();
        fs::write(root.join("a.toml"), "").unwrap();
        let spots = Spots::on_the_way_to(&root.join("a.toml"));
        assert_eq!(spots.0, set(&root, ["a.toml"]));
        assert_eq!(spots.folders(), set(&root, [""]));
        assert!(spots.concern(&root.join("a.toml")) && spots.concern(&root));
        assert!(!spots.concern(&root.join("b.toml")));
    }

    #[test]
    fn a_config_map_is_watched_at_both_of_its_links() {
        let (_keep, root) = folder();
        fs::create_dir(root.join("..v1")).unwrap();
        fs::write(root.join("..v1/a.toml"), "").unwrap();
        symlink("..v1", root.join("..data")).unwrap();
        symlink("..data/a.toml", root.join("a.toml")).unwrap();
        let spots = Spots::on_the_way_to(&root.join("a.toml"));
        assert_eq!(spots.0, set(&root, ["a.toml", "..data", "..v1/a.toml"]));
        assert_eq!(spots.folders(), set(&root, ["", "..v1"]));
    }

    #[test]
    fn a_folder_is_watched_itself_and_where_it_stands() {
        let (_keep, root) = folder();
        fs::create_dir(root.join("policies")).unwrap();
        symlink("policies", root.join("current")).unwrap();
        let spots = Spots::on_the_way_to(&root.join("current"));
        assert_eq!(spots.0, set(&root, ["current", "policies"]));
        assert_eq!(spots.folders(), set(&root, ["", "policies"]));
        assert!(spots.concern(&root.join("policies/a.yaml")));
    }

    #[test]
    fn what_is_not_there_is_awaited_as_near_as_possible() {
        let (_keep, root) = folder();
        let spots = Spots::on_the_way_to(&root.join("not/yet/a.toml"));
        assert_eq!(spots.folders(), set(&root, [""]));
        assert!(spots.concern(&root.join("not")));
    }

    #[test]
    fn links_in_a_circle_end() {
        let (_keep, root) = folder();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        let spots = Spots::on_the_way_to(&root.join("a"));
        assert_eq!(spots.0, set(&root, ["a", "b"]));
        assert_eq!(spots.folders(), set(&root, [""]));
    }
}
