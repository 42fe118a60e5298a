//! Vector instructions as C: they are done in each active lane.
//!
//! EXEC says which lanes are active. Comparisons and carries have a bit for each lane as well.
//!
//! ```text
//!  v_cmp_lt_u32 vcc, v0, v1      EXEC  1 1 0 1 …   r = 0, then bit l of r for each active lane l
//!                                r     0 1 0 1 … ▶ VCC
//!  v_dual_mov v0, v1 :: v_dual_mov v1, v0          reads of both halves, then their writes
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapter "Vector ALU Operations"; for
//! parts of registers "SDWA", for two instructions in one "Dual Issue VALU".

use super::operand::{Assembly, Result};
use super::table::{find, value_of};

/// Returns the C of `operation`, the name without `v_` and without its encoding.
pub fn body(assembly: &Assembly, operation: &str) -> Result {
    if operation.starts_with("dual_") {
        return dual(assembly);
    }
    // CDNA's sets a mask as well.
    let is_unknown = operation.starts_with("cmpx_") && !assembly.target.is_rdna();
    if is_unknown {
        return assembly.unknown();
    }
    find("vector", operation, assembly, &[])
}

/// Returns the declarations of a, b and c, the sources from operand `first` on, of which sub-dword
/// addressing takes parts.
pub fn sources(assembly: &Assembly, first: usize, bits: u32) -> Result {
    let mut declarations = String::new();
    for (name, index) in ('a'..='c').zip(first..assembly.operands.len()) {
        let mut value = assembly.read(index, bits)?;
        let part_of = assembly.modifier(&format!("src{}_sel", index - first));
        if let Some(name) = part_of {
            let (shift, mask) = part(name)?;
            value = format!("({value} >> {shift} & {mask:#x})");
        }
        declarations += &format!("const u{bits} {name} = {value}; ");
    }
    Ok(declarations)
}

/// Returns the shift and the mask of a part of a register.
fn part(name: &str) -> Result<(u32, u32)> {
    match name {
        "DWORD" => Ok((0, u32::MAX)),
        "WORD_0" => Ok((0, 0xffff)),
        "WORD_1" => Ok((16, 0xffff)),
        "BYTE_0" => Ok((0, 0xff)),
        "BYTE_1" => Ok((8, 0xff)),
        "BYTE_2" => Ok((16, 0xff)),
        "BYTE_3" => Ok((24, 0xff)),
        _ => Err(format!("part {name}")),
    }
}

/// Returns the statements that set the destination, or the part of it that is to be set: what is
/// beside that becomes 0.
pub fn set(assembly: &Assembly, value: &str) -> Result {
    let unused = assembly.modifier("dst_unused").unwrap_or("UNUSED_PAD");
    if unused != "UNUSED_PAD" {
        return Err(format!("dst_unused:{unused}"));
    }
    let (shift, mask) = part(assembly.modifier("dst_sel").unwrap_or("DWORD"))?;
    Ok(format!(
        "u32 *const y = &V32({}); const u32 d = *y; *y = ((u32)({value}) & {mask:#x}) << {shift};",
        assembly.vector(0)?
    ))
}

/// Returns the statements that set the lower half of the destination. CDNA sets the upper half to
/// 0, RDNA leaves it.
pub fn set_lower_half(assembly: &Assembly, value: &str) -> Result {
    match (assembly.modifier("op_sel"), assembly.target.is_rdna()) {
        (Some(_), _) => assembly.unknown(),
        (None, true) => set(assembly, &format!("((d & 0xffff0000u) | {value})")),
        (None, false) => set(assembly, value),
    }
}

/// Returns the shift of the half of a pair that `v_pk_mov_b32` takes from a source.
pub fn half_of_pair(assembly: &Assembly, source: usize) -> Result {
    let halves = assembly.modifier("op_sel").unwrap_or("[0,0]");
    match halves.trim_matches(['[', ']']).split(',').nth(source) {
        Some("0") => Ok("0".to_owned()),
        Some("1") => Ok("32".to_owned()),
        _ => Err(format!("op_sel:{halves}")),
    }
}

/// Two instructions in one. Both read before either writes.
fn dual(assembly: &Assembly) -> Result {
    let (mut reads, mut writes) = (String::new(), String::new());
    for (number, text) in assembly.text.split("::").enumerate() {
        let half = Assembly::parse(assembly.target, text);
        let operation = half.name.strip_prefix("v_dual_").unwrap_or(half.name);
        let Some(value) = value_of(operation) else {
            return half.unknown();
        };
        let (register, sources) = (half.vector(0)?, sources(&half, 1, 32)?);
        reads += &format!("u32 *const y{number} = &V32({register}); ");
        reads +=
            &format!("const u32 r{number} = ({{ const u32 d = *y{number}; {sources}{value}; }}); ");
        writes += &format!("*y{number} = r{number}; ");
    }
    let mask = "const u64 E = EXEC, m = VCC;";
    Ok(format!("{mask} LANES {{ {reads}{writes}}}"))
}
