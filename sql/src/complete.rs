//! What the Tab key offers at the prompt.
//!
//! ```text
//!  SELECT na│          words of SQL, functions, tables, columns
//!  SET horton.│        options
//!  FROM 'data/tr│      files
//!  \pse│               commands
//! ```
//!
//! Everything else is `datafusion-cli`'s: highlighting, hints, and whether a statement is complete.

use std::borrow::Cow;
use std::collections::BTreeSet;

use datafusion::config::Dialect;
use datafusion::prelude::SessionContext;
use datafusion_cli::helper::CliHelper;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};

/// Words of DataFusion's statements.
const WORDS: &str = "ALL ALTER ANALYZE AND ANTI AS ASC BETWEEN BIGINT BOOLEAN BY CASE CAST COLUMNS \
    COPY CREATE CROSS CURRENT DATE DELETE DESC DESCRIBE DISTINCT DOUBLE DROP ELSE END EXCEPT \
    EXECUTE EXISTS EXPLAIN EXTERNAL EXTRACT FALSE FILTER FIRST FLOAT FOLLOWING FROM FULL FUNCTIONS \
    GROUP HAVING ILIKE IN INNER INSERT INT INTERSECT INTERVAL INTO IS JOIN LAST LATERAL LEFT LIKE \
    LIMIT LOCATION NATURAL NOT NULL NULLS OFFSET ON OPTIONS OR ORDER OUTER OVER PARTITION \
    PARTITIONED PRECEDING PREPARE QUALIFY RANGE RECURSIVE REPLACE RESET RIGHT ROLLUP ROWS SCHEMA \
    SELECT SEMI SET SHOW SMALLINT STORED TABLE TABLES THEN TIMESTAMP TRUE UNBOUNDED UNION UPDATE \
    USING VALUES VARCHAR VERBOSE VIEW WHEN WHERE WINDOW WITH";

/// Commands of the prompt.
const COMMANDS: [&str; 7] = ["\\?", "\\d", "\\h", "\\i", "\\pset", "\\q", "\\quiet"];

/// The prompt's helper.
pub struct Assistant {
    inner: CliHelper,
    files: FilenameCompleter,
    names: BTreeSet<String>,
}

impl Assistant {
    /// Returns the helper, which knows no names yet.
    pub fn new(dialect: &Dialect, color: bool) -> Self {
        Self {
            inner: CliHelper::new(dialect, color),
            files: FilenameCompleter::new(),
            names: BTreeSet::new(),
        }
    }

    /// Learns the names that `context` has now.
    pub async fn learn(&mut self, context: &SessionContext) {
        let state = context.state();
        self.inner
            .set_dialect(&state.config_options().sql_parser.dialect);
        let mut names = BTreeSet::new();
        names.extend(state.scalar_functions().keys().cloned());
        names.extend(state.aggregate_functions().keys().cloned());
        names.extend(state.window_functions().keys().cloned());
        let options = state.config_options().entries().into_iter();
        names.extend(options.map(|option| option.key));
        let catalogs = state.catalog_list();
        for catalog in catalogs.catalog_names() {
            let Some(catalog) = catalogs.catalog(&catalog) else {
                continue;
            };
            for schema in catalog.schema_names() {
                let Some(provider) = catalog.schema(&schema) else {
                    continue;
                };
                for table in provider.table_names() {
                    if let Ok(Some(found)) = provider.table(&table).await {
                        let columns = found.schema();
                        names.extend(columns.fields().iter().map(|field| field.name().clone()));
                    }
                    names.insert(table);
                }
            }
        }
        self.names = names;
    }

    /// Forgets that the hint was shown.
    pub fn reset_hint(&self) {
        self.inner.reset_hint();
    }
}

/// Returns what completes `word`, in the order of the alphabet. Words of SQL are as `word` is.
fn complete(word: &str, names: &BTreeSet<String>) -> Vec<Pair> {
    let begins = |name: &str| {
        let start = name.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let is_lower = word.chars().any(char::is_lowercase);
    let words = WORDS.split_whitespace().filter(|name| begins(name));
    let words = words.map(|name| {
        if is_lower {
            name.to_lowercase()
        } else {
            name.to_owned()
        }
    });
    let names = names.iter().filter(|name| begins(name)).cloned();
    let found: BTreeSet<String> = words.chain(names).collect();
    found.into_iter().map(pair).collect()
}

fn pair(text: String) -> Pair {
    Pair {
        display: text.clone(),
        replacement: text,
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        context: &Context<'_>,
    ) -> Result<(usize, Vec<Pair>)> {
        let before = &line[..pos];
        if before.matches('\'').count() % 2 == 1 {
            return self.files.complete(line, pos, context);
        }
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '\\';
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_of_word(*c))
            .last()
            .map_or(pos, |(at, _)| at);
        let word = &before[start..];
        if word.starts_with('\\') && start == 0 {
            let commands = COMMANDS.iter().filter(|command| command.starts_with(word));
            let commands = commands.map(|command| pair((*command).to_owned()));
            return Ok((start, commands.collect()));
        }
        if word.is_empty() {
            return Ok((pos, Vec::new()));
        }
        let found = complete(word, &self.names);
        // After the table's name and a point: a column.
        if let (true, Some((table, column))) = (found.is_empty(), word.rsplit_once('.')) {
            let start = start + table.len() + 1;
            return Ok((start, complete(column, &self.names)));
        }
        Ok((start, found))
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, pos: usize) -> Cow<'l, str> {
        self.inner.highlight(line, pos)
    }

    fn highlight_char(&self, line: &str, pos: usize, kind: CmdKind) -> bool {
        self.inner.highlight_char(line, pos, kind)
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        self.inner.highlight_hint(hint)
    }
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, pos: usize, context: &Context<'_>) -> Option<String> {
        self.inner.hint(line, pos, context)
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        self.inner.validate(context)
    }
}

impl Helper for Assistant {}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(word: &str) -> Vec<String> {
        let names = ["city", "City_id", "horton.enabled", "count"];
        let names = names.map(str::to_owned).into();
        let found = complete(word, &names);
        found.into_iter().map(|pair| pair.replacement).collect()
    }

    #[test]
    fn words_are_as_they_were_begun_and_names_as_they_are() {
        assert_eq!(found("SEL"), ["SELECT"]);
        assert_eq!(found("sel"), ["select"]);
        assert_eq!(found("ci"), ["City_id", "city"]);
        assert_eq!(found("horton.e"), ["horton.enabled"]);
        assert_eq!(found("é"), [""; 0]);
    }
}
