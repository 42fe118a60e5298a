//! Sentences in comments and in Markdown that nobody would say aloud.
//!
//! ```text
//!  What is built is small.   a clause in the place of a subject   The build side is small.
//!  There is no room yet.     no subject                           The pool has no room yet.
//!  four rows a key           a rate                               four rows per key
//! ```
//!
//! The first rule is for Markdown alone. When it came, Rust comments had 255 such sentences. Most
//! of them name a type or a variant, as "What a column holds." does. The first two rules look at
//! the beginnings of sentences, so a "there is" within one is not found. The last one wants a
//! number and a plural before the "a", as "it adds a row" is no rate. Records of measurements are
//! as they were written.

use crate::words::{Paragraph, comment, ends_sentence, marker, paragraphs};

/// Words that begin a question, or a clause that stands for a noun.
const QUESTION_WORDS: [&str; 4] = ["How", "What", "Whether", "Which"];

/// Numbers in words, from those with a plural on.
const NUMBERS: [&str; 15] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "hundred", "thousand", "million", "billion",
];

/// What rates are per.
const UNITS: [&str; 25] = [
    "SIMD",
    "bucket",
    "byte",
    "chunk",
    "core",
    "device",
    "group",
    "hit",
    "item",
    "key",
    "lane",
    "lookup",
    "minute",
    "miss",
    "partition",
    "probe",
    "process",
    "query",
    "row",
    "run",
    "second",
    "session",
    "slot",
    "stream",
    "work-item",
];

/// Characters around a word that are no part of it.
const MARKS: [char; 10] = ['*', '_', '"', '\'', '(', ')', '.', ',', ':', ';'];

/// Returns what begins the prose of `file`, if it is checked: nothing in Markdown.
fn language(file: &str) -> Option<&'static str> {
    let is_record = file.starts_with("benches/results/");
    let marker = if file.ends_with(".md") {
        Some("")
    } else {
        marker(file)
    };
    marker.filter(|_| !is_record)
}

/// Returns the rows of tables in `text`, each as a paragraph.
fn table_rows<'a>(text: &'a str, marker: &str) -> Vec<Paragraph<'a>> {
    let rows = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let row = comment(line, marker)?.trim();
        let words = row.split_whitespace().map(|word| (number, word));
        row.starts_with('|').then(|| words.collect())
    });
    rows.collect()
}

/// Returns whether a sentence of `words` begins with a clause that stands for a noun. A page's name
/// in brackets is a noun.
fn begins_with_clause(words: &[&str]) -> bool {
    let first = words.first().map(|word| word.trim_matches(MARKS));
    let is_question = words
        .last()
        .is_some_and(|word| word.trim_matches(MARKS).ends_with('?'));
    first.is_some_and(|word| QUESTION_WORDS.contains(&word)) && !is_question
}

/// Returns whether a sentence of `words` begins with "There is" or the like.
fn begins_with_there(words: &[&str]) -> bool {
    let [first, second, ..] = words else {
        return false;
    };
    first.trim_matches(MARKS) == "There" && ["is", "are", "was", "were"].contains(second)
}

/// Returns whether `word` is a number above one.
fn is_number(word: &str) -> bool {
    let word = word.trim_matches(MARKS);
    let has_digits = word.bytes().any(|byte| byte.is_ascii_digit());
    let is_decimal = word
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '.' | ','));
    NUMBERS.contains(&word) || (has_digits && is_decimal)
}

/// Returns the rates among `words` that have no "per", as `4 rows a key`.
fn rates(words: &[&str]) -> Vec<String> {
    let is_plural = |word: &str| word.ends_with('s') && word.chars().all(char::is_alphabetic);
    let is_rate = |words: &&[&str]| {
        is_number(words[0])
            && is_plural(words[1])
            && matches!(words[2], "a" | "an")
            && UNITS.contains(&words[3].trim_matches(MARKS))
    };
    let rates = words.windows(4).filter(is_rate);
    rates.map(|rate| rate.join(" ")).collect()
}

/// Returns what is wrong with a sentence of `words`; `is_page` says whether it is in Markdown.
fn faults(words: &[&str], is_page: bool) -> Vec<String> {
    let sentence = words.join(" ");
    let mut found = Vec::new();
    if is_page && begins_with_clause(words) {
        found.push(format!("begins with a clause, say a noun: {sentence}"));
    }
    if begins_with_there(words) {
        found.push(format!("begins with 'There', name the subject: {sentence}"));
    }
    let rates = rates(words).into_iter();
    found.extend(rates.map(|rate| format!("'{rate}': say per")));
    found
}

/// Returns the sentences of `text`, of file `file`, that nobody would say aloud.
pub fn findings(file: &str, text: &str) -> Vec<String> {
    let Some(marker) = language(file) else {
        return Vec::new();
    };
    let mut paragraphs = paragraphs(text, marker);
    paragraphs.extend(table_rows(text, marker));
    let mut found = Vec::new();
    for paragraph in &paragraphs {
        for sentence in paragraph.split_inclusive(|(_, word)| ends_sentence(word)) {
            let words: Vec<&str> = sentence.iter().map(|(_, word)| *word).collect();
            let items = words.iter().take_while(|word| matches!(**word, "-" | "*"));
            let faults = faults(&words[items.count()..], marker.is_empty());
            let line = sentence[0].0;
            found.extend(
                faults
                    .into_iter()
                    .map(|fault| format!("{file}:{line}: {fault}")),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_that_begin_a_sentence_are_found_in_markdown() {
        for text in [
            "What is built is small.\n",
            "It is. Which side is first depends on rows.\n",
            "- Whether it ran is a metric.\n",
            "**How often** it ran\nis a metric.\n",
            "Which side is first: the left one.\n",
        ] {
            let found = findings("docs/a.md", text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains("say a noun"), "{found:?}");
        }
    }

    #[test]
    fn questions_headings_links_and_comments_may_begin_with_a_question_word() {
        for text in [
            "What is built?\n",
            "Is it \"What is built?\"\n",
            "# What is built\n",
            "[How a join runs](how-it-works.md) shows it.\n",
            "It says what is built.\n",
            "| What is built | 3 |\n",
            "Whatever is built.\n",
            "```text\nWhat is built.\n```\n",
        ] {
            assert_eq!(findings("docs/a.md", text), [""; 0], "{text}");
        }
        assert_eq!(findings("src/a.rs", "/// What is built.\n"), [""; 0]);
    }

    #[test]
    fn sentences_that_begin_with_there_are_found_in_comments_and_markdown() {
        let found = findings("docs/a.md", "So.\n\n- There is no room.\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:3: begins with 'There'"));
        assert_eq!(
            findings("src/a.rs", "// It is full. There\n// are none.\n").len(),
            1
        );
        for text in [
            "// There, rows match.\n",
            "// So there is room.\n",
            "let x = 1;\n",
        ] {
            assert_eq!(findings("src/a.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn rates_without_per_are_found() {
        for text in [
            "It has 8 slots a bucket.\n",
            "At 3.5 ms\na query (all of them).\n",
            "| (four rows a key) | 1,000 waves a SIMD |\n",
        ] {
            let found = findings("docs/a.md", text);
            let rates = text.matches(" a ").count() + text.matches("\na ").count();
            assert_eq!(found.len(), rates, "{text}: {found:?}");
            assert!(found[0].contains("say per"), "{found:?}");
        }
        assert_eq!(findings("cl/a.cl", "// two words a key\n").len(), 1);
    }

    #[test]
    fn what_is_no_rate_is_not_found() {
        for text in [
            "It has 8 slots per bucket.\n",
            "The join adds a row.\n",
            "The two inputs of a join.\n",
            "Commit 9ab2df5 unless a row says more.\n",
            "With 8 slots, a bucket is one line.\n",
        ] {
            assert_eq!(findings("docs/a.md", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn records_and_other_files_are_as_they_are() {
        for file in ["benches/results/a.md", "benches/results/a.sh", "Cargo.toml"] {
            assert_eq!(findings(file, "# There is 8 slots a bucket.\n"), [""; 0]);
        }
    }
}
