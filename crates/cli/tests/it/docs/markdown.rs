//! Reads a page: its code blocks, headings and links.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page of the documentation.
#[derive(Debug)]
pub(crate) struct Page {
    /// The path in the repository.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) blocks: Vec<Block>,
    /// The plain text of each heading.
    pub(crate) headings: Vec<String>,
    pub(crate) links: Vec<Link>,
    /// The names that HTML gives to places: `<a id="…">`.
    pub(crate) names: Vec<String>,
}

/// A code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The line of its fence, counted from 1.
    pub(crate) line: usize,
    /// What follows the fence; `None` for an indented block.
    pub(crate) info: Option<String>,
    pub(crate) text: String,
}

/// A link, or the source of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

impl Page {
    /// Reads a page of the repository.
    pub(crate) fn read(path: &str) -> Self {
        Self::parse(path, super::read(path))
    }

    pub(crate) fn parse(path: &str, text: String) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            blocks: Vec::new(),
            headings: Vec::new(),
            links: Vec::new(),
            names: Vec::new(),
            text: String::new(),
        };
        let mut open = Open::Nothing;
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            page.add(&text, &mut open, event, &range);
        }
        Self { text, ..page }
    }

    fn add(&mut self, source: &str, open: &mut Open, event: Event<'_>, range: &Range<usize>) {
        let line = source[..range.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => Some(info.trim().to_owned()),
                    CodeBlockKind::Indented => None,
                };
                self.blocks.push(Block { line, info, text: String::new() });
                *open = Open::Block;
            }
            Event::Start(Tag::Heading { .. }) => {
                self.headings.push(String::new());
                *open = Open::Heading;
            }
            Event::End(TagEnd::CodeBlock | TagEnd::Heading(_)) => *open = Open::Nothing,
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.links.push(Link { line, target: dest_url.into_string() });
            }
            Event::Text(text) | Event::Code(text) => match open {
                Open::Block => self.blocks.last_mut().expect("an open block").text.push_str(&text),
                Open::Heading => self.headings.last_mut().expect("an open heading").push_str(&text),
                Open::Nothing => {}
            },
            Event::Html(html) | Event::InlineHtml(html) => self.names.extend(names(&html)),
            _ => {}
        }
    }
}

/// What text belongs to.
enum Open {
    Nothing,
    Block,
    Heading,
}

/// The values of `id` and `name` attributes.
fn names(html: &str) -> Vec<String> {
    let values = [" id=\"", " name=\""].into_iter().flat_map(|attribute| html.split(attribute).skip(1));
    values.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page::parse("page.md", text.to_owned())
    }

    #[test]
    fn blocks_have_their_line_info_and_text() {
        let page = page(
            "# Title\n\n```toml limits.toml\na = 1\n\nb = 2\n```\n\n- in a list:\n\n  ```console\n  $ ls\n  ```\n",
        );
        let info = |info: &str| Some(info.to_owned());
        let toml = Block { line: 3, info: info("toml limits.toml"), text: "a = 1\n\nb = 2\n".to_owned() };
        let console = Block { line: 11, info: info("console"), text: "$ ls\n".to_owned() };
        assert_eq!(page.blocks, [toml, console]);
    }

    #[test]
    fn an_indented_block_has_no_info() {
        assert_eq!(page("Text:\n\n    code\n").blocks[0].info, None);
    }

    #[test]
    fn headings_are_plain_text() {
        assert_eq!(page("## The `key` of a [limit](x.md)\n").headings, ["The key of a limit"]);
    }

    #[test]
    fn links_images_and_references_are_found() {
        let page = page("[a](b.md#c)\n![i](d.svg)\n[e]\n\n[e]: f.md\n\n```text\n[no](no.md)\n```\n");
        let targets: Vec<(usize, &str)> =
            page.links.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(targets, [(1, "b.md#c"), (2, "d.svg"), (3, "f.md")]);
    }

    #[test]
    fn names_in_html_are_found() {
        assert_eq!(page("<a id=\"x\"></a> text <a name=\"y\"></a>\n").names, ["x", "y"]);
    }
}
