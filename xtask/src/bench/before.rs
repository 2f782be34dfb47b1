//! `--before REV`: the benchmarks of an earlier commit, built in a git worktree of their own below `target/before`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{self, Failure, command, root};

/// Teaches the benchmarks of commits from before `--before` to take turns.
const TURNS: &str = "xtask/src/bench/turns.patch";

/// An earlier commit, checked out.
#[derive(Debug)]
pub(super) struct Before {
    commit: String,
    tree: PathBuf,
}

impl Before {
    /// Checks a revision of a repository out, unless that has been done before.
    pub(super) fn new(repository: &Path, rev: &str) -> Result<Self, Failure> {
        let commit = answer(repository, &["rev-parse", "--verify", "--quiet", &format!("{rev}^{{commit}}")])
            .ok_or_else(|| Failure::Misuse(format!("there is no git revision {rev:?}")))?;
        let tree = repository.join("target/before").join(&commit[..12]);
        // Without its own .git file, git would answer for the repository around it.
        let is_there = tree.join(".git").is_file()
            && answer(&tree, &["rev-parse", "HEAD"]).as_deref() == Some(commit.as_str());
        if !is_there {
            let failed = |error| Failure::Step(format!("cannot remove {}: {error}", tree.display()));
            if tree.exists() {
                fs::remove_dir_all(&tree).map_err(failed)?;
            }
            // The force is for a worktree that git knows but whose directory has been removed.
            let mut add = git(repository, &["worktree", "add", "--quiet", "--force", "--detach"]);
            run::run(add.arg(&tree).arg(&commit))?;
        }
        Ok(Self { commit, tree })
    }

    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// Builds one of its benches. Returns the program.
    pub(super) fn build(&self, name: &str) -> Result<PathBuf, Failure> {
        let (Self { commit, tree }, source) = (self, format!("{}/{name}.rs", super::BINS));
        if !tree.join(&source).is_file() {
            return Err(Failure::Step(format!("{commit} has no bench {name:?}: there is no {source}")));
        }
        self.teach_turns()?;
        // The directory that today's benches are built in too, where most of the crates they need are built already.
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("benches/target"), PathBuf::from);
        let mut build = command("cargo build --release --manifest-path benches/Cargo.toml --bin");
        run::run(build.arg(name).arg("--target-dir").arg(&target).current_dir(tree))?;
        // Out of the way of today's bench, which has the same name.
        let program = tree.join("target").join(name);
        let copied = fs::create_dir_all(tree.join("target"))
            .and_then(|()| fs::copy(target.join("release").join(name), &program));
        copied.map_err(|error| Failure::Step(format!("cannot write {}: {error}", program.display())))?;
        Ok(program)
    }

    fn teach_turns(&self) -> Result<(), Failure> {
        if self.tree.join("benches/src/turns.rs").exists() {
            return Ok(());
        }
        run::run(git(&self.tree, &["apply"]).arg(root().join(TURNS))).map_err(|_| {
            let commit = &self.commit;
            Failure::Step(format!(
                "the benches of {commit} are too old to be compared with: {TURNS} does not apply"
            ))
        })
    }
}

fn git(directory: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(directory).args(args);
    git
}

/// What git prints; `None` if it fails.
fn answer(directory: &Path, args: &[&str]) -> Option<String> {
    let output = git(directory, args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit, removed when it is dropped.
    struct Repository(PathBuf);

    impl Repository {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            let repository = Self(path);
            repository.git(&["init", "--quiet"]);
            fs::write(repository.0.join("file"), "first").unwrap();
            repository.git(&["add", "file"]);
            let author = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"];
            repository.git(&[&author[..], &["commit", "--quiet", "--message", "first"]].concat());
            repository
        }

        fn git(&self, args: &[&str]) {
            assert!(git(&self.0, args).status().unwrap().success(), "git {args:?}");
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn message(failure: Failure) -> String {
        let (Failure::Step(message) | Failure::Misuse(message)) = failure;
        message
    }

    #[test]
    fn a_revision_that_does_not_exist_is_named() {
        let repository = Repository::new("unknown-revision");
        for rev in ["no-such-branch", "0000000"] {
            let failure = Before::new(&repository.0, rev).unwrap_err();
            assert!(matches!(failure, Failure::Misuse(_)));
            assert_eq!(message(failure), format!("there is no git revision {rev:?}"));
        }
        assert!(!repository.0.join("target").exists());
    }

    #[test]
    fn a_revision_is_checked_out_once() {
        let repository = Repository::new("worktree");
        fs::write(repository.0.join("file"), "changed").unwrap();
        let before = Before::new(&repository.0, "HEAD").unwrap();
        assert_eq!(fs::read_to_string(before.tree.join("file")).unwrap(), "first");
        assert_eq!(fs::read_to_string(repository.0.join("file")).unwrap(), "changed");

        fs::write(before.tree.join("built"), "").unwrap();
        let again = Before::new(&repository.0, before.commit()).unwrap();
        assert!(again.tree.join("built").exists());
    }

    #[test]
    fn a_worktree_that_was_removed_or_pruned_is_made_again() {
        let repository = Repository::new("removed");
        let before = Before::new(&repository.0, "HEAD").unwrap();
        fs::remove_dir_all(repository.0.join("target")).unwrap();
        assert!(Before::new(&repository.0, "HEAD").unwrap().tree.join("file").exists());

        let moved = repository.0.join("moved");
        fs::rename(&before.tree, &moved).unwrap();
        repository.git(&["worktree", "prune"]);
        fs::rename(&moved, &before.tree).unwrap();
        fs::remove_file(before.tree.join("file")).unwrap();
        assert!(Before::new(&repository.0, "HEAD").unwrap().tree.join("file").exists());
    }

    #[test]
    fn a_bench_that_the_revision_does_not_have_is_named() {
        let repository = Repository::new("no-bench");
        let before = Before::new(&repository.0, "HEAD").unwrap();
        let expected =
            format!("{} has no bench \"direct\": there is no benches/src/bin/direct.rs", before.commit());
        assert_eq!(message(before.build("direct").unwrap_err()), expected);
    }

    #[test]
    fn the_patch_speaks_the_protocol_of_today() {
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        let (patch, today) = (read(TURNS), read("benches/src/turns.rs"));
        let constants: Vec<&str> = today.lines().filter(|line| line.contains("const ")).collect();
        assert_eq!(constants.len(), 3);
        for line in constants {
            assert!(patch.contains(&format!("\n+{line}\n")), "{TURNS} lacks {line}");
        }
    }
}
