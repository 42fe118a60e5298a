//! The table of instructions, and its templates of C.
//!
//! Most instructions differ from the next one by an operator only. `instructions.txt` has them, in
//! sections with templates, and explains the codes of the templates.
//!
//! ```text
//!  [scalar ~_b*] const u$n a = $r1, b = $r2, v = @1; $w0(v) SCC = v != 0;
//!  or       a | b
//!  └ of 32 or 64 bits, $n     s_or_b64 s[0:1], s[2:3], vcc
//!                              ▼
//!           const u64 a = S64(#2#), b = S64(#106#), v = a | b; SET64(#0#, v); SCC = v != 0;
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapter "Instructions".

use std::collections::HashMap;
use std::sync::LazyLock;

use super::operand::{Assembly, Result, number};
use super::vector::{half_of_pair, set, set_lower_half, sources};

/// By section and operation.
static TABLE: LazyLock<HashMap<(&str, String), Entry>> =
    LazyLock::new(|| entries(include_str!("instructions.txt")));

/// What the table has for an operation.
struct Entry {
    template: String,
    /// The first column.
    value: &'static str,
    /// `i`, `u` or `b`, and the bits, if the name has them.
    sign: &'static str,
    bits: u32,
}

/// Returns the C of `operation` for `assembly`, by a section of that name. In the template, texts
/// are replaced by others.
pub fn find(
    section: &str,
    operation: &str,
    assembly: &Assembly,
    replaced: &[(&str, &str)],
) -> Result {
    let Some(entry) = TABLE.get(&(section, operation.to_owned())) else {
        return assembly.unknown();
    };
    let texts = replaced.iter();
    let template = texts.fold(entry.template.clone(), |template, (from, to)| {
        template.replace(from, to)
    });
    entry.filled(assembly, &template)
}

/// Returns the value that a vector instruction sets its register to.
pub fn value_of(operation: &str) -> Option<&'static str> {
    let entry = TABLE.get(&("vector", operation.to_owned()));
    entry.map(|entry| entry.value)
}

/// The head of some lines: section, what their names are a part of, template.
type Head = (&'static str, &'static str, String);

/// Reads the table.
fn entries(text: &'static str) -> HashMap<(&'static str, String), Entry> {
    let mut entries = HashMap::new();
    for block in text.split("\n\n") {
        let mut heads: Vec<Head> = Vec::new();
        for line in block.lines().filter(|line| !line.starts_with('#')) {
            match (line.strip_prefix('['), heads.last_mut()) {
                (Some(line), _) => {
                    let (head, template) = line.split_once(']').unwrap_or((line, ""));
                    let (section, pattern) = head.split_once(' ').unwrap_or((head, "~"));
                    heads.push((section, pattern, template.to_owned()));
                }
                (None, Some((_, _, template))) if line.starts_with(' ') => *template += line,
                _ => heads
                    .iter()
                    .for_each(|head| entries.extend(read(line, head))),
            }
        }
    }
    entries
}

/// Reads a line below a head: an entry for each operation that it names.
fn read(line: &'static str, head: &Head) -> Vec<((&'static str, String), Entry)> {
    let (section, pattern, template) = head;
    let columns = line.split("  ").map(str::trim);
    let mut columns = columns.filter(|text| !text.is_empty());
    let names = columns.next().unwrap_or_default();
    let [value, second] = [(); 2].map(|()| columns.next().unwrap_or_default());
    let template = template.replace("@1", value).replace("@2", second);
    let named = names.split(' ').map(|name| pattern.replace('~', name));
    let entries = named.flat_map(|pattern| meant(&pattern));
    let entries = entries.map(|(operation, sign, bits)| {
        let template = template.clone();
        let entry = Entry {
            template,
            value,
            sign,
            bits,
        };
        ((*section, operation), entry)
    });
    entries.collect()
}

/// Returns the operations that the pattern `cmp_eq_?*` or `add_u32` names, each with sign and bits.
fn meant(pattern: &str) -> Vec<(String, &'static str, u32)> {
    let Some(head) = pattern.strip_suffix('*') else {
        return vec![(pattern.to_owned(), "", 32)];
    };
    let (head, signs) = match head.strip_suffix('?') {
        Some(head) => (head, &["i", "u", "b"][..]),
        None => (head, &[""][..]),
    };
    let sized = |sign| [16, 32, 64].map(|bits| (format!("{head}{sign}{bits}"), sign, bits));
    signs.iter().copied().flat_map(sized).collect()
}

impl Entry {
    /// Returns the template with C for its codes.
    fn filled(&self, assembly: &Assembly, template: &str) -> Result {
        let (mut filled, mut rest) = (String::new(), template);
        while let Some((before, code)) = rest.split_once('$') {
            let (letter, after) = code.split_at_checked(1).unwrap_or((code, ""));
            let digit = after.chars().next().and_then(|digit| digit.to_digit(10));
            let index = digit.filter(|_| !"nio".contains(letter));
            let after = &after[usize::from(index.is_some())..];
            let (value, after) = match letter {
                "w" | "M" | "y" | "z" => argument(after),
                _ => ("", after),
            };
            let value = self.filled(assembly, value)?;
            filled += before;
            filled += &self.coded(assembly, letter, index.unwrap_or(0) as usize, &value)?;
            rest = after;
        }
        Ok(filled + rest)
    }

    /// Returns the C of a code, such as `$w0(value)`.
    fn coded(&self, assembly: &Assembly, letter: &str, index: usize, value: &str) -> Result {
        match letter {
            "n" => Ok(self.bits.to_string()),
            "i" => Ok(self.sign.to_owned()),
            "r" => assembly.read(index, self.bits),
            "s" => assembly.read(index, 32),
            "d" => assembly.read(index, 64),
            "m" => assembly.mask(index),
            "a" => sources(assembly, index, self.bits.max(32)),
            "t" => assembly.text_of(index).and_then(number),
            "v" => assembly.vector(index),
            "e" => half_of_pair(assembly, index),
            "f" => assembly.number_of(&format!("offset{index}")),
            "o" => assembly.number_of("offset"),
            "w" => assembly.write(index, value, self.bits),
            "M" => assembly.set_mask(index, value),
            "y" => set(assembly, value),
            "z" => set_lower_half(assembly, value),
            _ => Err(format!("code ${letter}")),
        }
    }
}

/// Splits `(v) rest` behind the parenthesis that closes the first.
fn argument(text: &str) -> (&str, &str) {
    let mut depth = 0;
    let is_end = |letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0
    };
    let (value, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
    (
        value.strip_prefix('(').unwrap_or(value),
        rest.strip_prefix(')').unwrap_or(rest),
    )
}
