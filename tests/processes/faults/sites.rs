//! No OpenCL call without a site: the source is read, as nothing else can tell.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

/// Source files below `folder`, with their text.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.display().to_string(), text));
        }
    }
}

fn matches<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
    let pattern = Regex::new(pattern).unwrap();
    pattern
        .captures_iter(text)
        .map(|c| c.get(1).unwrap().as_str())
        .collect()
}

/// The OpenCL functions that have a site.
pub fn functions() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables/src/device/opencl.rs");
    let text = std::fs::read_to_string(file).unwrap();
    let named = matches(r#"CallSite::\w+ => "(cl\w+)""#, &text);
    named.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_opencl_call_stands_in_one_file_and_names_its_site() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables/src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let (calls, others): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|(path, _)| path.ends_with("device/opencl.rs"));
    for (path, text) in &others {
        // Types have capital letters; functions of `ocl` are what is looked for.
        let made = matches(r"\b((?:cl|ocl|core|ffi)::[a-z]\w*)\s*(?:\(|::<)", text);
        let made: Vec<_> = made
            .iter()
            .filter(|call| !call.starts_with("core::mem"))
            .collect();
        assert!(
            made.is_empty(),
            "{path} calls {made:?}: use tables/src/device/opencl.rs"
        );
    }
    let [(_, text)] = calls.as_slice() else {
        panic!("tables/src/device/opencl.rs is not there")
    };
    // `ocl` has not all functions.
    let made = matches(r"(?m)(\bcl::[a-z]\w*|^\s+cl[A-Z]\w+\()", text);
    let gates = matches(r"(?m)^[^/\n]*\bat\(\s*CallSite::(\w+)", text);
    assert!(!made.is_empty());
    assert_eq!(made.len(), gates.len(), "{made:?} behind {gates:?}");
    let named: BTreeSet<&str> = matches(r"CallSite::(\w+) => ", text).into_iter().collect();
    assert_eq!(gates.iter().copied().collect::<BTreeSet<_>>(), named);
}
