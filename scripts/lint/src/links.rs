//! Links in Markdown to a file that is not there, or to a heading that its page does not have.
//!
//! ```text
//!  docs/a.md:  [text](../src/x.rs)          is ../src/x.rs tracked?
//!              [text](b.md#two-words)       has docs/b.md a heading whose slug is two-words?
//!              [text](#here)                has docs/a.md one?
//!              [text](https://example.com)  is not looked at
//! ```
//!
//! Slugs are those of GitHub: letters, digits, `_` and `-`, in lower case, with `-` for a space.
//! A slug that is there already is followed by `-1`, `-2` and so on.

use std::collections::{BTreeMap, BTreeSet};

/// Tracked files by their paths from the root, each with its text where it is Markdown.
pub type Files = BTreeMap<String, Option<String>>;

/// Returns the lines of `text` that no fenced block holds, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns `line` without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns the targets of the links in `line`: `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let inline = line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split_once(')')?.0;
        target.split_whitespace().next()
    });
    let definition = line.strip_prefix('[').and_then(|rest| {
        let (_, target) = rest.split_once("]: ")?;
        target.split_whitespace().next()
    });
    inline.chain(definition).map(str::to_owned).collect()
}

/// Returns the slug of a heading: that of the text of its links, without their targets.
fn slug(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or(part, |(_, behind)| behind));
    }
    let kept = text.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the slugs of the headings of `page`, and the names of its `<a id="…">`.
fn slugs(page: &str) -> BTreeSet<String> {
    let mut slugs = BTreeSet::new();
    for (_, line) in prose(page) {
        if let Some(name) = line.strip_prefix("<a id=\"") {
            slugs.extend(name.split('"').next().map(str::to_owned));
        }
        let text = line.trim_start_matches('#');
        if !line.starts_with('#') || !text.starts_with(' ') {
            continue;
        }
        let first = slug(text);
        let again = (1..).map(|number| format!("{first}-{number}"));
        let all = std::iter::once(first.clone()).chain(again);
        slugs.extend(all.into_iter().find(|slug| !slugs.contains(slug)));
    }
    slugs
}

/// Returns the path from the root that `path` leads to from the folder of `file`.
fn resolve(file: &str, path: &str) -> Option<String> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns why `target`, a link of `file`, leads nowhere, if so.
fn fault(files: &Files, file: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let page = match path {
        "" => Some(file.to_owned()),
        _ => resolve(file, path),
    };
    let page = page.unwrap_or_default();
    let Some(text) = files.get(&page) else {
        let folder = format!("{page}/");
        let is_folder = files.keys().any(|file| file.starts_with(&folder));
        return (!is_folder).then_some("no tracked file");
    };
    let has_anchor = match text {
        Some(text) => anchor.is_empty() || slugs(text).contains(anchor),
        None => true,
    };
    (!has_anchor).then_some("no such heading")
}

/// Returns the links of `file`, a page of `files`, that lead nowhere.
pub fn findings(files: &Files, file: &str) -> Vec<String> {
    let Some(Some(text)) = files.get(file) else {
        return Vec::new();
    };
    let links = prose(text).flat_map(|(line, text)| {
        let targets = targets(text).into_iter();
        targets.map(move |target| (line, target))
    });
    let found = links.filter_map(|(line, target)| {
        let fault = fault(files, file, &target)?;
        Some(format!("{file}:{line}: {fault}: {target}"))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings in docs/a.md with `text`, beside docs/b.md and src/x.rs.
    fn in_page(text: &str) -> Vec<String> {
        let page = "# Two words\n\n## `a_b`: c, d\n\n## Two words\n\n```sh\n# not one\n```\n";
        let files = Files::from([
            ("docs/a.md".to_owned(), Some(text.to_owned())),
            ("docs/b.md".to_owned(), Some(page.to_owned())),
            ("src/x.rs".to_owned(), None),
        ]);
        findings(&files, "docs/a.md")
    }

    #[test]
    fn links_that_lead_somewhere_are_not_found() {
        let links = "# Here\n[a](b.md) [b](../src/x.rs#L1) [c](../src) [d](#here \"title\")\n\
                     ![e](./b.md#two-words) [f](b.md#two-words-1) [g](b.md#a_b-c-d)\n\
                     [h](https://example.com/x.md#y) [i](mailto:a@b.c)\n[j]: b.md\n";
        assert_eq!(in_page(links), [""; 0]);
    }

    #[test]
    fn links_to_files_that_are_not_there_are_found() {
        let links = "[a](c.md)\n\n[b](../../docs/b.md) [c](x.rs)\n[d]: c.md\n";
        let expected = [
            "docs/a.md:1: no tracked file: c.md",
            "docs/a.md:3: no tracked file: ../../docs/b.md",
            "docs/a.md:3: no tracked file: x.rs",
            "docs/a.md:4: no tracked file: c.md",
        ];
        assert_eq!(in_page(links), expected);
    }

    #[test]
    fn links_to_headings_that_are_not_there_are_found() {
        let links = "[a](b.md#two) [b](b.md#not-one) [c](#here) [d](b.md#two-words-2)\n";
        assert_eq!(in_page(links).len(), 4);
    }

    #[test]
    fn code_has_no_links() {
        let text = "`[a](c.md)`\n```\n[a](c.md)\n```\n    [a](b.md)\n";
        assert_eq!(in_page(text), [""; 0]);
    }

    #[test]
    fn a_named_place_can_be_linked_to() {
        assert_eq!(
            slugs("<a id=\"one-2\"></a>"),
            BTreeSet::from(["one-2".to_owned()])
        );
    }

    #[test]
    fn the_text_of_a_link_in_a_heading_counts_and_its_target_does_not() {
        assert_eq!(slug("The [paper](https://a.b/c) & more"), "the-paper--more");
    }
}
