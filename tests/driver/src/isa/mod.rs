//! AMD machine code as C, for a machine without such a GPU.
//!
//! Instructions that differ in numbers only (registers, constants) share a function. The table says
//! which function an address has, and which numbers go with it.
//!
//! ```text
//!  code object ─ llvm-objdump -d ─▶ disassembly ─ translate ─▶ prelude.c
//!                                                     ▲        F(i_0) { S[N[0]] = …; NEXT(4); }
//!                                    instructions.txt ┘        functions[] = { i_0, … }
//!                                                              1C18 ▶ i_0 [4], 1C1C ▶ i_0 [5], …
//! ```
//!
//! A function does in all active lanes what the instruction does. Then it moves the program counter
//! on. What it cannot translate is listed, and has no address in the table. A function for each
//! distinct instruction would be as fast, but clang would need ten times as long.
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA.

mod memory;
mod operand;
mod table;
mod vector;

use std::collections::HashMap;

use self::operand::{Assembly, Result};
use crate::races::Access;
use crate::target::Target;

const PRELUDE: &str = include_str!("prelude.c");

/// A code object as C.
pub struct Translated {
    /// The C. Its array `functions` has a function for all instructions of a kind.
    pub source: String,
    /// The instructions and their addresses. An error is why one is not translated.
    pub table: Vec<(u64, Result<Instruction>)>,
}

/// An instruction of a code object.
#[derive(Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its place in `functions`, and what that function is given.
    pub function: usize,
    pub numbers: Vec<i64>,
    /// Whether it waits for the other waves of the work-group.
    pub is_barrier: bool,
    /// What it does with memory that work-items share.
    pub access: Option<Access>,
}

/// Translates the disassembly (what llvm-objdump -d printed) of a code object for `target`.
pub fn translate(target: Target, disassembly: &str) -> Translated {
    let (mut functions, mut places) = (Vec::new(), HashMap::new());
    let mut instruction = |text, size| {
        let (function, numbers) = function(target, text, size)?;
        let function = *places.entry(function).or_insert_with_key(|function| {
            functions.push(format!("F(i_{}) {function}\n", functions.len()));
            functions.len() - 1
        });
        Ok(Instruction {
            function,
            numbers,
            is_barrier: text.split_whitespace().next() == Some("s_barrier"),
            access: Access::of(text),
        })
    };
    let lines = disassembly.lines().filter_map(parse);
    let table = lines.map(|(address, size, text)| (address, instruction(text, size)));
    let table = table.collect();
    Translated {
        source: file(&functions),
        table,
    }
}

/// Returns address, size in bytes and text of a line of the disassembly, if it is an instruction.
fn parse(line: &str) -> Option<(u64, usize, &str)> {
    let (text, place) = line.split_once("// ")?;
    let (address, words) = place.split_once(": ")?;
    let is_word = |word: &&str| word.len() == 8 && u32::from_str_radix(word, 16).is_ok();
    let words = words.split_whitespace().take_while(is_word).count();
    let is_instruction = text.starts_with(char::is_whitespace) && words > 0;
    let address = u64::from_str_radix(address, 16).ok()?;
    // A branch may name its target, which is in the machine code as well.
    let text = text.split_once('<').map_or(text, |(text, _)| text).trim();
    is_instruction.then_some((address, 4 * words, text))
}

/// Returns the body of a function for an instruction, and the numbers that it is given.
fn function(target: Target, text: &str, size: usize) -> Result<(String, Vec<i64>)> {
    let marked = body(&Assembly::parse(target, text))?;
    let marked = marked.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut body, mut numbers) = (String::new(), Vec::new());
    for (place, part) in marked.split('#').enumerate() {
        if place % 2 == 0 {
            body += part;
        } else {
            body += &format!("N[{}]", numbers.len());
            numbers.push(part.parse().map_err(|_| format!("number {part}"))?);
        }
    }
    Ok((format!("{{ {body} NEXT({size}); }}"), numbers))
}

fn file(functions: &[String]) -> String {
    let names: Vec<_> = (0..functions.len()).map(|n| format!("i_{n}")).collect();
    let (functions, names) = (functions.concat(), names.join(", "));
    format!("{PRELUDE}\n{functions}void *const functions[] = {{ {names} }};\n")
}

/// Returns the C of an instruction, without the step to the next.
fn body(assembly: &Assembly) -> Result {
    let name = assembly.name;
    let ends = ["_e32", "_e64", "_sdwa"];
    let base = ends.iter().find_map(|end| name.strip_suffix(end));
    let base = base.unwrap_or(name);
    let nothing = table::find("nothing", base, assembly, &[]);
    nothing.or_else(|_| match base.split_once('_') {
        Some(("v", operation)) => vector::body(assembly, operation),
        Some(("s", operation)) => table::find("scalar", operation, assembly, &[]),
        Some(("ds", operation)) => memory::local(assembly, operation),
        Some(("global", operation)) => memory::global(assembly, operation),
        Some(("buffer", operation)) => memory::buffer(assembly, operation),
        Some(("scratch", operation)) => memory::scratch(assembly, operation),
        _ => assembly.unknown(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_become_c() {
        let cases = [
            (
                "s_mov_b32 s4, -1.0",
                "S[N[0]] = (u32)((u32)N[1]);",
                &[4, 0xbf80_0000][..],
            ),
            (
                "s_cbranch_vccz 65530",
                "if (!VCC) NEXT((i64)(i16)N[0] * 4);",
                &[65530],
            ),
            (
                "v_mul_f32_sdwa v1, v2, s3 dst_sel:DWORD src0_sel:WORD_1 src1_sel:DWORD",
                "const u64 E = EXEC; LANES { const u32 a = (V32(N[0]) >> 16 & 0xffff); \
                 const u32 b = (S[N[1]] >> 0 & 0xffffffff); u32 *const y = &V32(N[2]); \
                 const u32 d = *y; *y = ((u32)(asu(asf(a) * asf(b))) & 0xffffffff) << 0; }",
                &[2, 3, 1],
            ),
            (
                "global_store_dwordx2 v0, v[2:3], s[4:5] offset:-8 glc",
                "const u64 E = EXEC; const u32 n = 8; \
                 LANES store(at(S64(N[0]) + V32(N[1]) + N[2], n, l), &V32(N[3]), n);",
                &[4, 0, -8, 2],
            ),
        ];
        for (text, body, numbers) in cases {
            let expected = (format!("{{ {body} NEXT(8); }}"), numbers.to_vec());
            assert_eq!(function(Target::Gfx90a, text, 8), Ok(expected));
        }
    }

    #[test]
    fn alike_instructions_share_a_function() {
        let translated = translate(
            Target::Gfx1100,
            "0000000000001c00 <enter>:\n\
             \ts_barrier                  // 000000001C00: BFBD0000\n\
             \tv_frobnicate v1            // 000000001C04: 7E020302 00000001\n\
             \ts_branch 65534             // 000000001C0C: BFA0FFFE <enter>\n\
             \ts_barrier                  // 000000001C10: BFBD0000\n\
             \ts_branch 3                 // 000000001C14: BFA00003\n",
        );
        let known = |function, numbers: &[i64]| {
            Ok(Instruction {
                function,
                numbers: numbers.to_vec(),
                is_barrier: function == 0,
                access: None,
            })
        };
        let table = [
            (0x1c00, known(0, &[])),
            (0x1c04, Err("no translation of v_frobnicate".to_owned())),
            (0x1c0c, known(1, &[65534])),
            (0x1c10, known(0, &[])),
            (0x1c14, known(1, &[3])),
        ];
        assert_eq!(translated.table, table);
        let functions = "void *const functions[] = { i_0, i_1 };\n";
        assert!(translated.source.ends_with(functions));
    }
}
