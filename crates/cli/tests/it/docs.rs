//! Runs the documentation: every page is a session in an empty directory, from top to bottom.
//!
//! The info string of a code block says what happens to it:
//! - `toml limits.toml`: written to that file. A later block with the same name replaces it, and a running server loads it again.
//! - `toml policy`: checked as a policy of its own.
//! - `console`: commands after `$ `, which `bash` runs, and their exact output. A line `…` stands for any number of lines, and `…` in a line for
//!   any text. A line that begins with `# ` is a comment. `tollgate serve`, `redis-server`, `envoy` and commands that end with `&` run in the
//!   background until `^C`, or until the page ends; the lines after them are the first that they print.
//! - `sh`: commands without output, which must succeed. `sh no_run`, and `no_run` after any other language: only shown, as is `text`.
//! - `rust`: a doc test; `crates/tower/src/lib.rs` includes the page.
//!
//! Pages name the default ports: 8080 to 8099, 6380 to 6390 and 6070 for servers of ours, 6379 for Redis, 10000 for Envoy, 9000 to 9009 for other services.
//! The session has free ports in their place, so that pages run at the same time.
//!
//! `TOLLGATE_BLESS=1 cargo nextest run -p tollgate-cli --all-features -E 'test(/^docs::/)'` writes the actual output into the pages, except where a `…`
//! already matches it.

mod block;
mod console;
mod links;
mod markdown;
mod output;
mod ports;
mod session;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use self::block::Kind;
use self::markdown::Page;

/// Declares a test for each page, and the list of them.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// The pages that are run.
        const PAGES: &[&str] = &[$($path),*];

        $(#[test]
        fn $name() {
            session::run($path);
        })*
    };
}

pages! {
    readme: "README.md",
    from_envoyproxy_ratelimit: "docs/from-envoyproxy-ratelimit.md",
    from_limitador: "docs/from-limitador.md",
    from_redis_cell: "docs/from-redis-cell.md",
    from_throttlecrab: "docs/from-throttlecrab.md",
    http_api: "docs/http-api.md",
    leases: "docs/leases.md",
    operate: "docs/operate.md",
    policy: "docs/policy.md",
    recipes: "docs/recipes.md",
    redis: "docs/redis.md",
    redis_protocol: "docs/redis-protocol.md",
}

/// The file that runs the Rust blocks of pages, as doc tests.
const DOC_TESTS: &str = "crates/tower/src/lib.rs";

#[test]
fn every_page_with_runnable_blocks_is_run() {
    let doc_tests = read(DOC_TESTS);
    let mut problems = Vec::new();
    for path in &all_pages() {
        let page = Page::read(path);
        let kinds: Vec<_> = page.blocks.iter().map(|block| Kind::of(block.info.as_deref())).collect();
        if kinds.iter().flatten().any(Kind::is_run) && !PAGES.contains(&path.as_str()) {
            problems.push(format!("{path} is not in the list of pages in crates/cli/tests/it/docs.rs"));
        }
        if kinds.contains(&Ok(Kind::Rust)) && !doc_tests.contains(&format!("../../../{path}")) {
            problems.push(format!("{path} has Rust blocks, and no doc test in {DOC_TESTS}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let problems: Vec<String> = all_pages().iter().flat_map(|path| links::problems(path)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The pages of the repository's root and of `docs/`.
fn all_pages() -> Vec<String> {
    let mut paths: Vec<String> = ["", "docs/"].into_iter().flat_map(pages_in).collect();
    paths.sort_unstable();
    paths
}

fn pages_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of pages");
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().expect("UTF-8"));
    names
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"))
        .map(|name| format!("{folder}{name}"))
        .collect()
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
