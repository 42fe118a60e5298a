//! Checks that no modules import each other in a circle, and draws them.
//!
//! ```text
//!  src/**/*.rs         ─┐
//!  tables/src/**/*.rs  ─┴ imports ─┬▶ file to file ─ circle? ─▶ exit status 1
//!                                  └▶ folder to folder, at every level ─ circle? ─▶ exit status 1
//!                                       └─▶ docs/architecture.md, between its markers
//! ```
//!
//! An import is a path that begins with `crate`, `super`, or a child of the module, in a `use` or
//! not. No table that joins do not use is imported by what they stand on.
//! Unit tests, macro arguments and the `mod` lines of a parent do not count. `cargo-modules` does
//! as much for files, but takes minutes to build and knows no folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

mod imports;

/// The modules, each with those that it imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns a circle of `graph`, if there is one.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    let mut left = graph.clone();
    loop {
        let before = left.len();
        let names: BTreeSet<String> = left.keys().cloned().collect();
        left.retain(|_, to| to.iter().any(|to| names.contains(to)));
        if left.len() == before {
            break;
        }
    }
    // Each that is left imports another one that is left: a way along them comes back.
    let mut way = vec![left.keys().next()?.clone()];
    loop {
        let next = left[way.last()?].iter().find(|to| left.contains_key(*to))?;
        if let Some(at) = way.iter().position(|seen| seen == next) {
            return Some(way.split_off(at));
        }
        way.push(next.clone());
    }
}

/// Returns the imports among the children of module `parent`, of all modules below each.
fn among(files: &Graph, parent: &str) -> Graph {
    let child = |module: &str| {
        let below = match parent {
            "" => module,
            _ => module.strip_prefix(parent)?.strip_prefix("::")?,
        };
        below.split("::").next().map(str::to_owned)
    };
    let mut graph = Graph::new();
    for (from, to) in files {
        let Some(from) = child(from).filter(|from| !from.is_empty()) else {
            continue;
        };
        let imported = graph.entry(from.clone()).or_default();
        imported.extend(to.iter().filter_map(|to| child(to)));
        imported.retain(|to| *to != from && !to.is_empty());
    }
    graph
}

/// Prints every circle. Returns whether there is one.
fn check(files: &Graph) -> bool {
    let mut parents: BTreeSet<String> = BTreeSet::from([String::new()]);
    parents.extend(
        files
            .keys()
            .filter_map(|m| Some(m.rsplit_once("::")?.0.to_owned())),
    );
    let folders = parents
        .iter()
        .map(|parent| (parent.as_str(), among(files, parent)));
    let graphs = folders.chain([("all files", files.clone())]);
    let mut found = false;
    for (what, graph) in graphs {
        if let Some(circle) = circle(&graph) {
            println!("circle in {what}: {} -> {}", circle.join(" -> "), circle[0]);
            found = true;
        }
    }
    found
}

/// The tables that joins stand on, and those for their own sake, which none of the former may
/// import.
const OF_JOINS: [&str; 3] = ["table::horton", "table::multimap", "table::primitives"];
const FOR_THEMSELVES: [&str; 1] = ["table::baselines"];

/// Prints every import of a table for its own sake by one that joins stand on. Returns whether
/// there is one.
fn check_tables(files: &Graph) -> bool {
    let is_below = |module: &str, all: &[&str]| {
        let folders = all.iter();
        folders
            .into_iter()
            .any(|folder| module == *folder || module.starts_with(&format!("{folder}::")))
    };
    let mut found = false;
    for (from, to) in files.iter().filter(|(from, _)| is_below(from, &OF_JOINS)) {
        for to in to.iter().filter(|to| is_below(to, &FOR_THEMSELVES)) {
            println!("{from} imports {to}, a table that joins do not use");
            found = true;
        }
    }
    found
}

/// Returns a drawing of `graph` without imports that a longer way implies.
fn drawing(graph: &Graph) -> String {
    let reaches = |from: &str, to: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from.to_owned()];
        while let Some(module) = next.pop() {
            if seen.insert(module.clone()) {
                next.extend(graph.get(&module).into_iter().flatten().cloned());
            }
        }
        seen.contains(to)
    };
    let mut lines = vec!["```mermaid".to_owned(), "flowchart TD".to_owned()];
    for (from, to) in graph {
        for one in to {
            if !to.iter().any(|other| other != one && reaches(other, one)) {
                lines.push(format!("    {from} --> {one}"));
            }
        }
    }
    lines.push("```".to_owned());
    lines.join("\n")
}

/// A crate whose modules are checked and drawn.
struct Package {
    /// Its name on the page.
    name: &'static str,
    /// The folder of its source.
    source: &'static str,
    /// The modules whose children are drawn, beside those of the crate itself.
    drawn: &'static [&'static str],
}

const PACKAGES: [Package; 2] = [
    Package {
        name: "horton-join",
        source: "src",
        drawn: &["join"],
    },
    Package {
        name: "horton-tables",
        source: "tables/src",
        drawn: &["table", "device"],
    },
];

/// Returns the markers between which a page has the drawing named `name`.
fn markers(name: &str) -> (String, String) {
    (
        format!("<!-- modules of {name} -->\n"),
        format!("\n<!-- end of {name} -->"),
    )
}

/// Returns `text` with the drawings of the `files` of `package` between its markers.
fn drawn(text: &str, package: &Package, files: &Graph) -> Option<String> {
    let mut text = text.to_owned();
    let of_modules = package.drawn.iter().map(|module| (*module, *module));
    for (name, parent) in [(package.name, "")].into_iter().chain(of_modules) {
        let (begin, end) = markers(name);
        let from = text.find(&begin)? + begin.len();
        let to = from + text[from..].find(&end)?;
        text.replace_range(from..to, &drawing(&among(files, parent)));
    }
    Some(text)
}

/// Checks the modules below `root` and their drawing, which `draw` writes again.
/// Returns whether all is well.
pub fn run(root: &Path, draw: bool) -> io::Result<bool> {
    let page = root.join("docs/architecture.md");
    let before = fs::read_to_string(&page)?;
    let mut after = before.clone();
    let mut is_well = true;
    for package in &PACKAGES {
        let files = imports::graph(&root.join(package.source))?;
        let Some(text) = drawn(&after, package, &files) else {
            println!("{} lacks a marker of a drawing", page.display());
            return Ok(false);
        };
        after = text;
        let has_circle = check(&files);
        is_well &= !check_tables(&files) && !has_circle;
    }
    for file in crate::tracked(root)? {
        let is_of_joins = file.starts_with("src/") && file.ends_with(".rs");
        if is_of_joins && fs::read_to_string(root.join(&file))?.contains(FOR_THEMSELVES[0]) {
            println!(
                "{file} names {}, tables that joins do not use",
                FOR_THEMSELVES[0]
            );
            is_well = false;
        }
    }
    if draw {
        fs::write(&page, &after)?;
    } else if after != before {
        println!(
            "the drawings in {} are old: make modules DRAW=1",
            page.display()
        );
        return Ok(false);
    }
    Ok(is_well)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph
                .entry((*from).into())
                .or_default()
                .insert((*to).into());
            graph.entry((*to).into()).or_default();
        }
        graph
    }

    #[test]
    fn circles_are_found_behind_what_leads_to_them() {
        assert_eq!(circle(&graph(&[("a", "b"), ("b", "c")])), None);
        let found = circle(&graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
        assert_eq!(found, Some(vec!["b".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn folders_can_have_a_circle_that_files_do_not_have() {
        let files = graph(&[("x::a", "y::a"), ("y::b", "x::b")]);
        assert_eq!(circle(&files), None);
        assert!(circle(&among(&files, "")).is_some());
    }
}
