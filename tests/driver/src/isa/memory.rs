//! Local, global and private memory as C, for all lanes at once.
//!
//! What is moved is the same for all; each kind of memory says where a lane's bytes are. CDNA reads
//! and writes local memory, RDNA loads and stores.
//!
//! ```text
//!  ds_read_b64           v[0:1], v2 offset:8       8 bytes of local memory at V32(2) + 8
//!  global_load_dword     v0, v[2:3], off offset:8  4 bytes at V64(2) + 8
//!  global_load_dword     v0, v2, s[4:5] offset:8   4 bytes at S64(4) + V32(2) + 8
//!  scratch_load_dword    v0, v2, off               4 bytes of the lane's own at V32(2)
//! ```
//!
//! Source: AMD Instinct MI200 and MI300 ISA, and RDNA3 ISA, chapters "Data Share Operations",
//! "Vector Memory Operations" and "Flat Memory Instructions".

use super::operand::{Assembly, Result};
use super::table::find;

/// Returns the C of `operation`, the name without `ds_`.
pub fn local(assembly: &Assembly, operation: &str) -> Result {
    let operation = operation.replacen("read", "load", 1);
    let operation = operation.replacen("write", "store", 1);
    let operation = operation.replace("_2addr", "2");
    let operation = operation.replace("2st64", "2_stride64");
    let (direction, what) = operation.split_once('_').unwrap_or_default();
    let pointer = |operand| {
        let (base, offset) = (assembly.read(operand, 32)?, assembly.number_of("offset")?);
        Ok(format!("lds(L, {base} + {offset}, n, l)"))
    };
    match direction {
        "load" | "store" => moved(assembly, &operation, pointer),
        "load2" | "store2" => find(direction, what, assembly, &[]),
        "bpermute" => find("local", &operation, assembly, &[]),
        _ => match operation.split_once("_rtn") {
            Some((kind, bits)) => updated(assembly, &format!("{kind}{bits}"), true, pointer),
            None => updated(assembly, &operation, false, pointer),
        },
    }
}

/// Returns the C of `operation`, the name without `global_`.
pub fn global(assembly: &Assembly, operation: &str) -> Result {
    // With the base, the last operand, an atomic has four if it returns what was there.
    let count = assembly.operands.len();
    let last = count.saturating_sub(1);
    let pointer = |operand| {
        let base = match assembly.text_of(last)? {
            "off" => assembly.read(operand, 64)?,
            _ => assembly.read(last, 64)? + " + " + &assembly.read(operand, 32)?,
        };
        let offset = assembly.number_of("offset")?;
        Ok(format!("at({base} + {offset}, n, l)"))
    };
    let Some(kind) = operation.strip_prefix("atomic_") else {
        return moved(assembly, operation, pointer);
    };
    let kind = match kind.strip_suffix("_x2") {
        Some(kind) => format!("{kind}_b64"),
        None if kind.ends_with("32") || kind.ends_with("64") => kind.to_owned(),
        None => format!("{kind}_b32"),
    };
    updated(assembly, &kind, count == 4, pointer)
}

/// Returns the C of `operation`, the name without `scratch_`: private memory.
pub fn scratch(assembly: &Assembly, operation: &str) -> Result {
    moved(assembly, operation, |operand| {
        let (register, base) = (term(assembly, operand)?, term(assembly, 2)?);
        let offset = assembly.number_of("offset")?;
        Ok(private(&format!("{offset}{register}{base}")))
    })
}

/// Returns the C of `operation`, the name without `buffer_`: private memory on gfx90a, where the
/// stack pointer counts the bytes of all lanes.
pub fn buffer(assembly: &Assembly, operation: &str) -> Result {
    if assembly.text_of(2)? != "s[0:3]" {
        return assembly.unknown();
    }
    let (stack, register) = (assembly.read(3, 32)?, term(assembly, 1)?);
    let offset = assembly.number_of("offset")?;
    let pointer = private(&format!("{stack} / W + {offset}{register}"));
    let (direction, what) = operation.split_once('_').unwrap_or_default();
    find(direction, what, assembly, &[("@p", &pointer), ("@d", "0")])
}

/// Returns the pointer to a lane's own bytes at an address.
fn private(address: &str) -> String {
    format!("priv(X, S[259], l, (u32)({address}), n)")
}

/// Returns what an operand adds to a private address.
fn term(assembly: &Assembly, operand: usize) -> Result {
    match assembly.text_of(operand)? {
        "off" => Ok(String::new()),
        _ => Ok(format!(" + {}", assembly.read(operand, 32)?)),
    }
}

/// Returns the C of a load or a store. `pointer` makes C of the operand with the address.
fn moved(assembly: &Assembly, operation: &str, pointer: impl Fn(usize) -> Result) -> Result {
    let (direction, what) = operation.split_once('_').unwrap_or_default();
    let (data, address) = match direction {
        "load" => ("0", 1),
        _ => ("1", 0),
    };
    let replaced = [("@p", &*pointer(address)?), ("@d", data)];
    find(direction, what, assembly, &replaced)
}

/// Returns the C of an atomic instruction, whose value is in the operand behind the address.
fn updated(
    assembly: &Assembly,
    operation: &str,
    returns: bool,
    pointer: impl Fn(usize) -> Result,
) -> Result {
    let (address, returned) = match returns {
        true => (1, "load(&V32($v0), &o, n);"),
        false => (0, ""),
    };
    let (pointer, value) = (pointer(address)?, format!("$v{}", address + 1));
    let replaced = [("@p", &*pointer), ("@v", &value), ("@r", returned)];
    find("atomic", operation, assembly, &replaced)
}
