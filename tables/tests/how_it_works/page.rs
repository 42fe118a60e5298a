//! The page by its parts: what tests make, and the names of all else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the sources that the page speaks of.
const SOURCES: [&str; 3] = ["src", "tables/src", "cl"];

/// Returns the path of a file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The page, read from its file.
pub struct Page {
    /// What stands between two marks, by name, without the fences of a drawing.
    made: BTreeMap<String, String>,
    /// All lines that no marks enclose.
    rest: String,
}

impl Page {
    pub fn read() -> Self {
        let text = fs::read_to_string(repository("docs/how-it-works.md")).unwrap();
        let (mut made, mut rest) = (BTreeMap::new(), String::new());
        let mut mark: Option<&str> = None;
        for line in text.lines() {
            match (line.strip_prefix("<!-- made: "), mark) {
                (Some(name), None) => {
                    let name = name.strip_suffix(" -->").unwrap();
                    let earlier = made.insert(name.to_owned(), String::new());
                    assert!(earlier.is_none(), "'{name}' is made twice");
                    mark = Some(name);
                }
                (_, Some(name)) if line == format!("<!-- end of {name} -->") => mark = None,
                (_, Some(name)) if !line.starts_with("```") => {
                    let part = made.get_mut(name).unwrap();
                    part.push_str(line);
                    part.push('\n');
                }
                (_, Some(_)) => {}
                (None, None) => {
                    rest.push_str(line);
                    rest.push('\n');
                }
            }
        }
        assert_eq!(mark, None, "this part has no end");
        Self { made, rest }
    }

    /// Returns the names of the parts that tests make, in order.
    pub fn marks(&self) -> Vec<&str> {
        self.made.keys().map(String::as_str).collect()
    }

    /// Returns the part `name`.
    pub fn made(&self, name: &str) -> &str {
        let part = self.made.get(name);
        part.unwrap_or_else(|| panic!("the page has no part '{name}'"))
    }

    /// Returns whether the prose has these words, in one line or in two.
    pub fn says(&self, words: &str) -> bool {
        self.rest.replace('\n', " ").contains(words)
    }

    /// Returns the names of code in drawings that no test makes, and in backticks.
    pub fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut fence = "";
        for line in self.rest.lines() {
            match fence {
                _ if line.starts_with("```") => fence = if fence.is_empty() { line } else { "" },
                "" => names.extend(line.split('`').skip(1).step_by(2).flat_map(names_in)),
                "```text" => names.extend(names_in(line)),
                _ => {}
            }
        }
        names
    }
}

/// Returns the words of `text` that are names of code: those in snake case or camel case.
fn names_in(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_name = |word: &&str| {
        let humps = word.bytes().skip(1).filter(u8::is_ascii_uppercase).count();
        word.trim_matches('_').contains('_')
            || (humps > 0 && word.bytes().any(|c| c.is_ascii_lowercase()))
    };
    words.filter(is_name).map(str::to_owned)
}

/// Returns the text of all sources.
pub fn source() -> String {
    let mut source = String::new();
    for folder in SOURCES {
        append(&repository(folder), &mut source);
    }
    source
}

fn append(folder: &Path, source: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            append(&path, source);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "cl") {
            source.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
