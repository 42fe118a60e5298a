//! The imports of the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use syn::visit::{Visit, visit_item_mod, visit_path};
use syn::{ItemMod, ItemUse, UseTree};

use super::Graph;

/// Returns the imports of all modules whose files are below `root`.
pub fn graph(root: &Path) -> io::Result<Graph> {
    let mut files = BTreeMap::new();
    read(root, Vec::new(), &mut files)?;
    let names: BTreeSet<String> = files.keys().map(|module| module.join("::")).collect();
    let of_file = |(module, text): (&Vec<String>, &String)| {
        let file =
            syn::parse_file(text).map_err(|e| io::Error::other(format!("{module:?}: {e}")))?;
        let mut imports = Imports {
            module: module.clone(),
            names: &names,
            found: BTreeSet::new(),
        };
        imports.visit_file(&file);
        imports.found.remove(&module.join("::"));
        Ok((module.join("::"), imports.found))
    };
    files.iter().map(of_file).collect()
}

/// Reads the files of the folder of `module`, but its unit tests.
fn read(
    folder: &Path,
    module: Vec<String>,
    files: &mut BTreeMap<Vec<String>, String>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut inner = module.clone();
        inner.extend((!matches!(name.as_str(), "mod" | "lib")).then_some(name));
        if path.is_dir() && !path.ends_with("tests") {
            read(&path, inner, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(inner, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Notes the modules that paths lead into.
struct Imports<'a> {
    module: Vec<String>,
    names: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Imports<'_> {
    fn note(&mut self, path: &[String]) {
        let mut full = self.module.clone();
        for segment in path {
            match segment.as_str() {
                "crate" => full.clear(),
                "super" => drop(full.pop()),
                "self" => {}
                _ => full.push(segment.clone()),
            }
        }
        let is_relative = matches!(path[0].as_str(), "crate" | "super" | "self");
        let child = [self.module.as_slice(), &path[..1]].concat().join("::");
        if is_relative || self.names.contains(&child) {
            let prefixes = (1..=full.len())
                .rev()
                .map(|length| full[..length].join("::"));
            self.found.extend(
                prefixes
                    .into_iter()
                    .find(|prefix| self.names.contains(prefix)),
            );
        }
    }

    fn follow(&mut self, tree: &UseTree, before: &[String]) {
        match tree {
            UseTree::Path(path) => {
                self.follow(&path.tree, &[before, &[path.ident.to_string()]].concat());
            }
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|item| self.follow(item, before)),
            UseTree::Name(name) => self.note(&[before, &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.note(&[before, &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.follow(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let segments: Vec<String> = segments.collect();
        if segments.len() > 1 {
            self.note(&segments);
        }
        visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.ident != "tests" {
            self.module.push(item.ident.to_string());
            visit_item_mod(self, item);
            self.module.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_followed_through_braces_and_parents() {
        let names = ["a", "a::b", "a::b::c", "d", "e"].map(str::to_owned).into();
        let module = vec!["a".to_owned(), "b".to_owned()];
        let mut imports = Imports {
            module,
            names: &names,
            found: BTreeSet::new(),
        };
        let text = "use super::Thing;\nuse crate::{d::X, std::Y};\nuse c::Z;\n\
                    fn f() { crate::e::g(); }\nmod inner { use super::super::H; }";
        imports.visit_file(&syn::parse_file(text).unwrap());
        let found: Vec<&str> = imports.found.iter().map(String::as_str).collect();
        assert_eq!(found, ["a", "a::b::c", "d", "e"]);
    }
}
