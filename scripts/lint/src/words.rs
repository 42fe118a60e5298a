//! Comments that are hard to read: long sentences, and lines of more than 100 columns. In comments
//! and names: words that this project no longer uses.
//!
//! ```text
//!  // A tag is a part      ┐            ┌ A tag is a part of a hash. ─ 7 words
//!  // of a hash. It picks  ├ paragraph ─┤
//!  // an entry.            ┘            └ It picks an entry. ─ 4 words
//!  //                       ends it, as the first line of an item, a table, a drawing do
//! ```
//!
//! A sentence ends at a full stop, a question mark, an exclamation mark, a colon or a semicolon.
//! Fenced blocks, headings, tables and drawings have no sentences. A drawing is indented, and in no
//! item. A line may be longer where it cannot be wrapped: one word, as a link is, or a row of a
//! table.

const MOST_WORDS: usize = 25;
const MOST_COLUMNS: usize = 100;

/// Words that went, and those that databases use for the same thing. Neither comments nor code have
/// the former.
const WENT: [(&str, &str); 31] = [
    ("Board", "FilterAccumulator"),
    ("Granted", "ReservedPool"),
    ("HandedExec", "OneShotExec"),
    ("InKeySet", "InFilterExpr"),
    ("Joiner", "JoinPreparation"),
    ("KeySet", "MembershipFilter"),
    ("OpenSides", "ReplaceSwappableJoins"),
    ("Resting", "Paused"),
    ("Settle", "RemoveUnusedFilterNodes"),
    ("TakeFilters", "InsertFilterNodes"),
    ("Telling", "FilterPublisher"),
    ("Weigher", "BatchBytes"),
    ("WrapJoins", "ReplaceJoins"),
    ("dear", "expensive"),
    ("foretells", "predicts"),
    ("go_on_without", "fail_over"),
    ("in_buckets", "has_spill_partitions"),
    ("make_do", "retry_smaller"),
    ("off_the_runtime", "map_blocking"),
    ("owes", "emits unmatched"),
    ("scatter_all", "partition_all"),
    ("seldom", "rarely"),
    ("set_aside", "spill"),
    ("share_among", "elements_per_item_of"),
    ("sideways", "dynamic filter"),
    ("stead", "place, or instead"),
    ("surrogate", "normalized key"),
    ("surrogates", "normalized keys"),
    ("turn_rows", "sample_rows"),
    ("twin", "counterpart, or sentinel item"),
    ("wrap_joins", "replace_joins"),
];

/// Words that went from names, whole or in part. Comments may have them: there they are English.
const WENT_FROM_NAMES: [(&str, &str); 12] = [
    ("declined", "host_reason"),
    ("owe", "unmatched"),
    ("owed", "build_output"),
    ("owing", "unmatched"),
    ("scattered", "partitioned"),
    ("scattering", "partition"),
    ("sparing", "yielding"),
    ("spread", "partitioning"),
    ("tell", "publish, or report"),
    ("telling", "publisher"),
    ("told", "published, or reported"),
    ("weigh", "count"),
];

/// Returns what begins a comment in the language of `file`, if its comments are checked.
pub fn marker(file: &str) -> Option<&'static str> {
    match file.rsplit_once('.')?.1 {
        "rs" | "cl" => Some("//"),
        "py" | "sh" => Some("#"),
        _ => None,
    }
}

/// Returns whether the comments of `file` are checked.
pub fn is_checked(file: &str) -> bool {
    marker(file).is_some()
}

/// Returns the text of a line that is a comment, without its marker and the space behind it. Where
/// nothing marks a comment, all lines are text.
pub fn comment<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    if marker.is_empty() {
        return Some(line);
    }
    let rest = line.trim_start().strip_prefix(marker)?;
    let rest = match marker {
        "//" => rest.strip_prefix(['/', '!']).unwrap_or(rest),
        _ if rest.starts_with('!') => return None,
        _ => rest,
    };
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// Returns whether `text` begins an item of a list.
fn begins_item(text: &str) -> bool {
    let (first, _) = text.split_once(' ').unwrap_or((text, ""));
    let number = first.strip_suffix('.').unwrap_or_default();
    matches!(first, "-" | "*")
        || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A paragraph of a comment: its words, each with the number of its line.
pub type Paragraph<'a> = Vec<(usize, &'a str)>;

/// Returns the paragraphs of all comments of `text`.
pub fn paragraphs<'a>(text: &'a str, marker: &str) -> Vec<Paragraph<'a>> {
    let mut paragraphs = vec![Paragraph::new()];
    let mut is_code = false;
    let mut in_item = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(text) = comment(line, marker) else {
            is_code = false;
            paragraphs.push(Paragraph::new());
            continue;
        };
        let trimmed = text.trim();
        let is_fence = trimmed.starts_with("```");
        in_item = begins_item(trimmed) || (in_item && !trimmed.is_empty());
        let is_heading = text.trim_start_matches('#').starts_with(' ') && text.starts_with('#');
        let has_words = !(is_code || is_fence || is_heading || trimmed.starts_with('|'))
            && (in_item || !text.starts_with("  "));
        is_code ^= is_fence;
        if !has_words || trimmed.is_empty() || begins_item(trimmed) {
            paragraphs.push(Paragraph::new());
        }
        if has_words && let Some(paragraph) = paragraphs.last_mut() {
            paragraph.extend(trimmed.split_whitespace().map(|word| (number, word)));
        }
    }
    paragraphs
}

/// Returns whether a sentence ends with `word`.
pub fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches(['"', '\'', ')', '*', '_']);
    word.ends_with(['.', '?', '!', ':', ';'])
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the words of `line` that went, each with the one to use.
fn words_that_went(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    WENT.into_iter()
        .filter(move |(word, _)| line.split(|c| !is_in_word(c)).any(|found| found == *word))
}

/// Returns the words of which `name` is made: of `OwedRows`, `owed_rows` and `OWED_ROWS` the same.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let words = name.split('_').flat_map(|word| {
        let is_hump = |(at, c): (usize, char)| {
            let before = word[..at].chars().next_back();
            (c.is_uppercase() && before.is_some_and(char::is_lowercase)).then_some(at)
        };
        let starts: Vec<usize> = word.char_indices().filter_map(is_hump).collect();
        let ends = starts.clone().into_iter().chain([word.len()]);
        let starts = std::iter::once(0).chain(starts);
        starts.zip(ends).map(|(start, end)| &word[start..end])
    });
    words.map(str::to_lowercase)
}

/// Returns the names of `code` with a word that went from names, each with the one to use.
fn names_that_went(code: &str) -> impl Iterator<Item = (&str, &'static str)> {
    let names = code.split(|c| !is_in_word(c));
    names.filter_map(|name| {
        let went = |part: String| WENT_FROM_NAMES.into_iter().find(|(word, _)| *word == part);
        let (_, new) = parts(name).find_map(went)?;
        Some((name, new))
    })
}

/// Where a line of code ends, and the next one begins.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Code,
    /// A text in quotes.
    Text,
    /// A text that ends with a quote and so many `#`.
    RawText(usize),
}

/// Returns `line` without its texts and comments, and where it ends. `//` begins a comment.
fn code_of(line: &str, mut inside: Inside) -> (String, Inside) {
    let (mut code, mut rest) = (String::new(), line);
    while let Some(c) = rest.chars().next() {
        match inside {
            Inside::Text => {
                let escaped = rest.strip_prefix('\\');
                let skipped = escaped.and_then(|rest| rest.chars().next());
                if c == '"' {
                    inside = Inside::Code;
                }
                rest = &rest[c.len_utf8() + skipped.map_or(0, char::len_utf8)..];
            }
            Inside::RawText(marks) => {
                let end = format!("\"{}", "#".repeat(marks));
                match rest.strip_prefix(end.as_str()) {
                    Some(behind) => (inside, rest) = (Inside::Code, behind),
                    None => rest = &rest[c.len_utf8()..],
                }
            }
            Inside::Code if rest.starts_with("//") => break,
            // The character of a quote is no text.
            Inside::Code if rest.starts_with("'\"'") => rest = &rest[3..],
            Inside::Code if c == '"' => (inside, rest) = (Inside::Text, &rest[1..]),
            Inside::Code => {
                let raw = rest
                    .strip_prefix('r')
                    .filter(|_| !code.ends_with(is_in_word));
                let begun = raw.and_then(|raw| {
                    let text = raw.trim_start_matches('#');
                    Some((raw.len() - text.len(), text.strip_prefix('"')?))
                });
                match begun {
                    Some((marks, text)) => (inside, rest) = (Inside::RawText(marks), text),
                    None => {
                        code.push(c);
                        rest = &rest[c.len_utf8()..];
                    }
                }
            }
        }
    }
    (code, inside)
}

/// Returns each line of `text` without its texts and comments.
fn lines_of_code(text: &str) -> impl Iterator<Item = String> {
    text.lines().scan(Inside::Code, |inside, line| {
        let (code, end) = code_of(line, *inside);
        *inside = end;
        Some(code)
    })
}

/// Returns whether `file` may use words that went: this list, and what was written before.
fn is_history(file: &str) -> bool {
    file.ends_with("lint/src/words.rs") || file.starts_with("benches/results/")
}

/// Returns the long sentences, the long lines and the words that went of `text`, of file `file`.
pub fn findings(file: &str, text: &str) -> Vec<String> {
    let Some(marker) = marker(file) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for paragraph in paragraphs(text, marker) {
        for sentence in paragraph.split_inclusive(|(_, word)| ends_sentence(word)) {
            if sentence.len() > MOST_WORDS {
                let words: Vec<&str> = sentence.iter().map(|(_, word)| *word).collect();
                let (line, count) = (sentence[0].0, words.len());
                found.push(format!("{file}:{line}: {count} words: {}", words.join(" ")));
            }
        }
    }
    for (number, line) in (1..).zip(text.lines()).filter(|_| !is_history(file)) {
        let went = words_that_went(line);
        found.extend(went.map(|(old, new)| format!("{file}:{number}: '{old}' went: say {new}")));
    }
    // Names in Python and of shell variables are few.
    let has_names = marker == "//" && !is_history(file);
    for (number, code) in (1..).zip(lines_of_code(text)).filter(|_| has_names) {
        let went = names_that_went(&code);
        found.extend(went.map(|(old, new)| format!("{file}:{number}: '{old}': name it {new}")));
    }
    let behind_code = format!(" {marker} ");
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        let can_wrap = match comment(line, marker) {
            Some(text) => !text.starts_with('|') && text.trim().contains(' '),
            None => line.contains(&behind_code),
        };
        if columns > MOST_COLUMNS && can_wrap {
            found.push(format!(
                "{file}:{number}: {columns} columns: {}",
                line.trim()
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["w"; count].join(" ")
    }

    #[test]
    fn a_sentence_over_several_lines_is_found_where_it_begins() {
        let text = format!("// Short.\n// {}\n// {}. End.\n", words(13), words(13));
        let found = findings("a.rs", &text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: 26 words: w "), "{found:?}");
    }

    #[test]
    fn a_sentence_of_25_words_is_short_enough() {
        let text = format!(
            "/// {}.\n/// {};\n/// {}\n",
            words(25),
            words(25),
            words(25)
        );
        assert_eq!(findings("a.rs", &text), [""; 0]);
    }

    #[test]
    fn words_that_went_are_found_in_code_and_comments() {
        let text = "// A surrogate.\nlet surrogates_of = Board::new();\n";
        let found = findings("src/a.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("say normalized key"), "{found:?}");
        assert!(found[1].contains("say FilterAccumulator"), "{found:?}");
        assert_eq!(findings("benches/results/a.sh", "# surrogate"), [""; 0]);
    }

    #[test]
    fn parts_of_names_that_went_are_found_in_code_alone() {
        for code in [
            "let owed_rows = 1;",
            "fn a_row_is_owed() {}",
            "struct RowsOwed;",
            "const OWED: usize = 1;",
            "let quote = '\"'; owed(quote);",
            "let raw = r#\"a \" b\"#; owed(raw);",
            "let text = \"a \\\" b\"; owed(text);",
        ] {
            let found = findings("src/a.rs", code);
            assert_eq!(found.len(), 1, "{code}: {found:?}");
            assert!(found[0].contains("name it build_output"), "{found:?}");
        }
        for text in [
            "// Rows that are owed.",
            "let rows = 1; // owed",
            "let text = \"rows owed\";",
            "let text = \"rows \\\n    owed\";",
            "let text = r#\"\"rows\" owed\"#;",
            "let allowed = bowed;",
        ] {
            assert_eq!(findings("src/a.rs", text), [""; 0], "{text}");
        }
        assert_eq!(findings("benches/results/a.rs", "let owed = 1;"), [""; 0]);
    }

    #[test]
    fn both_lists_are_in_order() {
        let words = WENT.iter().map(|(word, _)| word);
        assert!(words.is_sorted_by(|a, b| a < b));
        let names = WENT_FROM_NAMES.iter().map(|(word, _)| word);
        assert!(names.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_language_has_its_marker() {
        let text = format!("# {}\n", words(26));
        assert_eq!(findings("a.py", &text).len(), 1);
        assert_eq!(findings("a.sh", &text).len(), 1);
        assert_eq!(findings("a.cl", &text), [""; 0]);
        assert_eq!(findings("a.txt", &text), [""; 0]);
        assert_eq!(findings("a.cl", &text.replace('#', "//")).len(), 1);
        assert_eq!(findings("a.rs", &text.replace('#', "//!")).len(), 1);
    }

    #[test]
    fn blank_lines_items_and_code_end_a_sentence() {
        let (half, line) = (words(13), words(15));
        for between in [
            "//",
            "// # Heading",
            "// - item",
            "// 2. item",
            "let x = 1;",
        ] {
            let text = format!("// {half}\n{between}\n// {half}\n");
            assert_eq!(findings("a.rs", &text), [""; 0], "{between}");
        }
        for drawing in [
            "```text\n// {}\n// {}\n// ```",
            "//   {}\n//   {}",
            "// |{}\n// |{}",
        ] {
            let text = drawing
                .replace("{}", &line)
                .replace("```text", "// ```text");
            assert_eq!(findings("a.rs", &text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_long_sentence_in_an_item_and_behind_a_drawing_is_found() {
        let text = format!("// - {}\n//   {}\n", words(13), words(13));
        assert_eq!(findings("a.rs", &text).len(), 1);
        let text = format!("// ```text\n// a\n// ```\n// {}\n", words(26));
        assert_eq!(findings("a.rs", &text).len(), 1);
    }

    #[test]
    fn long_lines_are_found_in_comments_and_behind_code() {
        let fits = format!("// a {}", "b".repeat(95));
        assert_eq!(findings("a.rs", &fits), [""; 0]);
        let found = findings("a.rs", &format!("\n{fits}b"));
        assert!(
            found[0].starts_with("a.rs:2: 101 columns: // a b"),
            "{found:?}"
        );
        let behind = format!("let x = \"{}\"; // why", "a".repeat(90));
        assert_eq!(findings("a.rs", &behind).len(), 1);
        let drawing = format!("// ```text\n// {}\n// ```", "─ ".repeat(60));
        assert_eq!(findings("a.rs", &drawing).len(), 1);
    }

    #[test]
    fn lines_that_cannot_be_wrapped_may_be_long() {
        let link = format!("// https://example.com/{}", "a".repeat(100));
        assert_eq!(findings("a.rs", &link), [""; 0]);
        assert_eq!(
            findings("a.rs", &format!("// | {} |", "a ".repeat(60))),
            [""; 0]
        );
    }
}
