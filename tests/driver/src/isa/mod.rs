//! AMD machine code as C, for a machine without such a GPU.
//!
//! Each distinct instruction of a code object becomes a function. The table says which function an
//! address has.
//!
//! ```text
//!  code object ─ llvm-objdump -d ─▶ disassembly ─ translate ─▶ prelude.c
//!                                                     ▲        F(i_0) { S[4] = …; NEXT(4); }
//!                                    instructions.txt ┘        functions[] = { i_0, … }
//!                                                              and 1C18 ▶ i_0, 1C1C ▶ i_1, …
//! ```
//!
//! A function does in all active lanes what the instruction does. Then it moves the program counter
//! on. What it cannot translate is listed, and has no address in the table.
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA.

mod access;
mod memory;
mod operand;
mod table;
mod vector;

use std::collections::HashMap;

pub use self::access::{Access, Kind};
use self::operand::{Assembly, Result, Unknown};
use crate::target::Target;

const PRELUDE: &str = include_str!("prelude.c");

/// A code object as C.
pub struct Translated {
    /// The C. Its array `functions` has a function for each distinct instruction.
    pub source: String,
    /// The instructions, by rising address.
    pub table: Vec<Instruction>,
    /// Instructions that cannot be translated, each with the reason.
    pub unknown: Vec<String>,
}

/// An instruction of a code object.
pub struct Instruction {
    pub address: u64,
    /// Its place in `functions`.
    pub function: usize,
    /// Whether it waits for the other waves of the work-group.
    pub is_barrier: bool,
    /// What it does with memory that work-items share.
    pub access: Option<Access>,
}

/// Translates the disassembly (what llvm-objdump -d printed) of a code object for `target`.
pub fn translate(target: Target, disassembly: &str) -> Translated {
    let (mut functions, mut table, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let mut numbers = HashMap::new();
    for (address, size, text) in disassembly.lines().filter_map(parse) {
        let known = numbers.entry((text, size)).or_insert_with(|| {
            let function = function(target, text, size, functions.len());
            match function {
                Ok(function) => functions.push(function),
                Err(Unknown(reason)) => {
                    unknown.push(format!("{text}: {reason}"));
                    return None;
                }
            }
            Some(functions.len() - 1)
        });
        table.extend(known.map(|function| Instruction {
            address,
            function,
            is_barrier: text.split_whitespace().next() == Some("s_barrier"),
            access: Access::of(text),
        }));
    }
    Translated {
        source: file(&functions),
        table,
        unknown,
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

fn function(target: Target, text: &str, size: usize, number: usize) -> Result {
    let body = body(&Assembly::parse(target, text))?;
    let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(format!(
        "/* {text} */ F(i_{number}) {{ {body} NEXT({size}); }}\n"
    ))
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
    if name.contains("dpp") {
        return assembly.unknown();
    }
    if table::columns("nothing", base).is_some() {
        return Ok(String::new());
    }
    match base.split_once('_') {
        Some(("v", operation)) => vector::body(assembly, operation),
        Some(("s", operation)) => table::find("scalar", operation, assembly),
        Some(("ds", operation)) => memory::local(assembly, operation),
        Some(("global" | "flat", operation)) => memory::global(assembly, operation),
        Some(("buffer", operation)) => memory::buffer(assembly, operation),
        Some(("scratch", operation)) => memory::scratch(assembly, operation),
        _ => assembly.unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_become_c() {
        let cases = [
            ("s_mov_b32 s4, -1.0", "S[4] = (u32)((u32)0xbf800000u);"),
            (
                "s_cbranch_vccz 65530",
                "if (!VCC) NEXT((i64)(i16)65530 * 4);",
            ),
            (
                "v_mul_f32_sdwa v1, -v2, s3 dst_sel:DWORD src0_sel:WORD_1 src1_sel:DWORD",
                "const u64 E = EXEC; LANES { const u32 a = ((V32(2) ^ 0x80000000u) >> 16); \
                 const u32 b = S[3]; const u32 d = V32(1); (void)d; \
                 V32(1) = asu(asf(a) * asf(b)); }",
            ),
            (
                "global_store_dwordx2 v0, v[2:3], s[4:5] offset:-8 glc",
                "const u64 E = EXEC; LANES { u8 *p_ = at((S64(4) + V32(0) + (i64)-8), 8, l); \
                 const u32 r_[2] = { V32(2), V32(3) }; memcpy(p_, r_, 8); }",
            ),
        ];
        for (text, body) in cases {
            let expected = format!("/* {text} */ F(i_7) {{ {body} NEXT(8); }}\n");
            assert_eq!(function(Target::Gfx90a, text, 8, 7), Ok(expected));
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
             \ts_barrier                  // 000000001C10: BFBD0000\n",
        );
        let table = translated.table.iter();
        let table: Vec<_> = table
            .map(|i| (i.address, i.function, i.is_barrier))
            .collect();
        assert_eq!(
            table,
            [(0x1c00, 0, true), (0x1c0c, 1, false), (0x1c10, 0, true)]
        );
        assert_eq!(
            translated.unknown,
            ["v_frobnicate v1: no translation of v_frobnicate"]
        );
        let functions = "void *const functions[] = { i_0, i_1 };\n";
        assert!(translated.source.ends_with(functions));
    }
}
