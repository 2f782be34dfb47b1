//! Checks that relative links lead to files and headings that exist.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::markdown::Page;
use super::root;

/// The links of a page that lead nowhere.
pub(crate) fn problems(path: &str) -> Vec<String> {
    let page = Page::read(path);
    let relative = page.links.iter().filter(|link| !is_external(&link.target));
    let broken = relative.filter_map(|link| {
        let problem = problem(&page, &link.target)?;
        Some(format!("{path}:{}: {}: {problem}", link.line, link.target))
    });
    broken.collect()
}

fn is_external(target: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Why a link of a page leads nowhere.
fn problem(page: &Page, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    if file.is_empty() {
        return anchor.filter(|anchor| !has(page, anchor)).map(|_| no_heading(page));
    }
    let Some(path) = resolve(&page.path, file) else { return Some("leads out of the repository".to_owned()) };
    if !root().join(&path).exists() {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    if path.extension().is_none_or(|extension| extension != "md") {
        return (!anchor.starts_with('L')).then(|| "only Markdown has headings".to_owned());
    }
    let other = Page::read(path.to_str().expect("UTF-8"));
    (!has(&other, anchor)).then(|| no_heading(&other))
}

fn has(page: &Page, anchor: &str) -> bool {
    anchors(page).iter().any(|known| known == anchor)
}

fn no_heading(page: &Page) -> String {
    format!("{} has no such heading; it has: {}", page.path, anchors(page).join(", "))
}

/// The path in the repository of a link on a page.
fn resolve(page: &str, link: &str) -> Option<PathBuf> {
    let mut path = Path::new(page).parent()?.to_path_buf();
    for component in Path::new(link).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    Some(path)
}

/// The anchors of a page, by the rules of GitHub.
fn anchors(page: &Page) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut slugs: Vec<String> = Vec::new();
    for heading in &page.headings {
        let slug = slug(heading);
        let count = seen.entry(slug.clone()).or_default();
        slugs.push(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    slugs.extend(page.names.iter().cloned());
    slugs
}

/// The anchor of a heading: lower case, spaces become hyphens, punctuation goes.
fn slug(heading: &str) -> String {
    let kept =
        heading.trim().chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page::parse("docs/page.md", text.to_owned())
    }

    #[test]
    fn slugs_are_those_of_github() {
        assert_eq!(slug("Errors and status codes"), "errors-and-status-codes");
        assert_eq!(slug("What's `key_of` & why?"), "whats-key_of--why");
        assert_eq!(slug("GET /v1/limits"), "get-v1limits");
        assert_eq!(slug("Größe"), "größe");
    }

    #[test]
    fn headings_with_the_same_text_are_numbered() {
        let page = page("# A\n## B\n## B\n## B\n<a id=\"c\"></a>\n");
        assert_eq!(anchors(&page), ["a", "b", "b-1", "b-2", "c"]);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let page = page("# One two\n");
        for good in
            ["#one-two", "../README.md", "./redis.md", "../crates/cli/src/main.rs#L1", "../README.md#license"]
        {
            assert_eq!(problem(&page, good), None);
        }
        for bad in ["#one", "missing.md", "../README.md#no-such-heading", "../../outside.md", "/README.md"] {
            assert!(problem(&page, bad).is_some(), "{bad}");
        }
    }
}
