//! Code objects: the ELF files that AMD's compilers make of a program.
//!
//! ```text
//!   file ─ llvm-readelf ─┬─ LOAD 0x…  ──────▶ memory, each segment at its address from the start
//!                        ├─ … NAME.kd ──────▶ kernel descriptors there: local memory, entry, …
//!                        └─ .name: NAME … ──▶ metadata of each kernel: arguments, sizes, spills
//! ```
//!
//! Source: LLVM's "User Guide for AMDGPU Backend", its sections on code objects and kernel
//! descriptors. LLVM's tool reads ELF and the metadata, which are MessagePack, and prints them. To
//! read them ourselves took three times the code. The code does not depend on its place, so
//! relocations are an error and are not applied.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::tools::printed;

/// The most bytes of a code object in memory.
const BYTES_MAX: usize = 1 << 28;

/// A loaded code object.
pub struct CodeObject {
    pub(crate) memory: Vec<u8>,
    kernels: Vec<Kernel>,
}

/// A kernel, by its metadata and its descriptor.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Bytes of all arguments, with the hidden ones.
    pub kernarg_bytes: u32,
    /// Bytes of local memory, a work-group, and of private memory, a work-item.
    pub local_bytes: u32,
    pub private_bytes: u32,
    /// The most work-items of a work-group.
    pub local_max: u32,
    pub vgprs: u32,
    pub sgprs: u32,
    pub agprs: u32,
    pub vgpr_spills: u32,
    pub sgpr_spills: u32,
    /// Where the descriptor and the first instruction are, from the start of the code.
    pub(crate) descriptor: u64,
    pub(crate) entry: u64,
    /// What the descriptor says: COMPUTE_PGM_RSRC2, and properties with the preloaded arguments.
    pub(crate) resources: u32,
    pub(crate) properties: u32,
}

/// A parameter. Its kind is `by_value`, `global_buffer`, `hidden_block_count_x`, and so on.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub offset: u32,
    pub size: u32,
    pub kind: String,
}

impl CodeObject {
    /// Loads the code object that a file is. What the tool says of it is kept beside it.
    ///
    /// # Errors
    /// If it is none, is broken, or has relocations; or if LLVM's tool is missing.
    pub fn load(file: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut readelf = Command::new("llvm-readelf-19");
        readelf
            .args(["-l", "-r", "--dyn-syms", "--notes"])
            .arg(file);
        let kept = file.with_added_extension("readelf");
        Self::of(&bytes, &printed(kept, &mut readelf)?)
    }

    /// Returns the code object of these bytes, of which the tool said `listing`.
    fn of(bytes: &[u8], listing: &str) -> Result<Self, String> {
        if !listing.contains("amdhsa.kernels:") {
            return Err("not a code object of an AMD GPU".to_owned());
        }
        if listing.contains("Relocation section") {
            return Err("a code object with relocations".to_owned());
        }
        let memory = read_segments(bytes, listing)?;
        let descriptors = read_descriptors(listing);
        let kernels = read_metadata(listing).into_iter();
        let kernels = kernels.map(|fields| Kernel::read(&fields, &descriptors, &memory));
        let kernels = kernels.collect::<Result<_, _>>()?;
        Ok(Self { memory, kernels })
    }

    /// Returns its kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }
}

impl Kernel {
    /// Reads a kernel: its own metadata, and those of its arguments behind it.
    fn read(
        metadata: &[Metadata],
        places: &HashMap<&str, u64>,
        memory: &[u8],
    ) -> Result<Self, String> {
        let (own, arguments) = metadata.split_first().ok_or("no metadata")?;
        let name = own.text(".name")?;
        let at = *places.get(name).ok_or("a kernel without a descriptor")?;
        let word = |offset: u64| {
            let bytes = memory.get(at.saturating_add(offset) as usize..);
            let bytes = bytes.and_then(<[u8]>::first_chunk);
            let bytes = bytes.ok_or_else(|| format!("no descriptor at {at:#x}"))?;
            Ok::<_, String>(u32::from_le_bytes(*bytes))
        };
        let from_descriptor = u64::from(word(16)?) | u64::from(word(20)?) << 32;
        let kernel = Self {
            name: name.to_owned(),
            parameters: arguments
                .iter()
                .map(Parameter::read)
                .collect::<Result<_, _>>()?,
            kernarg_bytes: word(8)?.max(own.number(".kernarg_segment_size")?),
            local_bytes: word(0)?,
            private_bytes: word(4)?,
            local_max: own.number(".max_flat_workgroup_size")?,
            vgprs: own.number(".vgpr_count")?,
            sgprs: own.number(".sgpr_count")?,
            agprs: own.number(".agpr_count").unwrap_or(0),
            vgpr_spills: own.number(".vgpr_spill_count")?,
            sgpr_spills: own.number(".sgpr_spill_count")?,
            descriptor: at,
            entry: at.wrapping_add(from_descriptor),
            resources: word(52)?,
            properties: word(56)?,
        };
        let end = |one: &Parameter| u64::from(one.offset) + u64::from(one.size);
        let end = kernel.parameters.iter().map(end).max();
        if end > Some(kernel.kernarg_bytes.into()) {
            return Err(format!("{name} has an argument out of bounds"));
        }
        Ok(kernel)
    }
}

impl Parameter {
    fn read(metadata: &Metadata) -> Result<Self, String> {
        Ok(Self {
            offset: metadata.number(".offset")?,
            size: metadata.number(".size")?,
            kind: metadata.text(".value_kind")?.to_owned(),
        })
    }
}

/// Returns the segments as they are in memory.
fn read_segments(bytes: &[u8], listing: &str) -> Result<Vec<u8>, String> {
    let mut memory = Vec::new();
    for line in listing.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("LOAD") {
            continue;
        }
        let mut number = || {
            let digits = words.next()?.strip_prefix("0x")?;
            usize::from_str_radix(digits, 16).ok()
        };
        let numbers = [(); 5].map(|()| number().unwrap_or(usize::MAX));
        let [offset, start, _, in_file, size] = numbers;
        let content = bytes.get(offset..).and_then(|rest| rest.get(..in_file));
        let content = content.ok_or("a segment out of the file")?;
        let end = start.checked_add(size.max(in_file));
        let end = end.filter(|end| *end <= BYTES_MAX);
        let end = end.ok_or("a code object that is too large")?;
        memory.resize(end.max(memory.len()), 0);
        memory[start..][..in_file].copy_from_slice(content);
    }
    Ok(memory)
}

/// Returns where each kernel's descriptor is.
fn read_descriptors(listing: &str) -> HashMap<&str, u64> {
    let lines = listing
        .lines()
        .map(|line| line.split_whitespace().collect());
    let symbols = lines.filter_map(|words: Vec<_>| match words[..] {
        [_, place, _, "OBJECT", .., name] => {
            let place = u64::from_str_radix(place, 16).ok()?;
            Some((name.strip_suffix(".kd")?, place))
        }
        _ => None,
    });
    symbols.collect()
}

/// Keys and values of a kernel or of an argument.
#[derive(Default)]
struct Metadata<'a>(HashMap<&'a str, &'a str>);

impl Metadata<'_> {
    fn text(&self, key: &str) -> Result<&str, String> {
        let text = self.0.get(key).copied();
        text.ok_or_else(|| format!("metadata without {key}"))
    }

    fn number(&self, key: &str) -> Result<u32, String> {
        let text = self.text(key)?;
        text.parse().map_err(|_| format!("{key} is {text}"))
    }
}

/// Returns the metadata of each kernel, and those of its arguments behind it.
///
/// ```text
///   - .args:                        a kernel: its keys are 4 letters from the left
///       - .offset:         0        an argument: 8 letters from the left
///         .size:           8
///     .name:           lookup
/// ```
fn read_metadata(listing: &str) -> Vec<Vec<Metadata<'_>>> {
    let mut kernels: Vec<Vec<Metadata>> = Vec::new();
    for line in listing.lines() {
        let pair = line.trim_start_matches([' ', '-']);
        let (indent, _) = line.split_at(line.len() - pair.len());
        let Some((key, value)) = pair.split_once(':').filter(|_| pair.starts_with('.')) else {
            continue;
        };
        match (indent, kernels.last_mut()) {
            ("  - ", _) => kernels.push(vec![Metadata::default()]),
            ("      - ", Some(kernel)) => kernel.push(Metadata::default()),
            _ => (),
        }
        let kernel = kernels.last_mut();
        let of = match indent.len() {
            4 => kernel.and_then(|kernel| kernel.first_mut()),
            _ => kernel.and_then(|kernel| kernel.last_mut()),
        };
        if let Some(Metadata(pairs)) = of {
            pairs.insert(key, value.trim());
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "
  LOAD           0x000008 0x0000000000000010 0x0000000000000010 0x000040 0x000050 R   0x1000
There are no relocations in this file.
     1: 0000000000000010    64 OBJECT  GLOBAL PROTECTED     6 lookup.kd
     2: 0000000000000058    64 FUNC    GLOBAL PROTECTED     7 lookup
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
    .kernarg_segment_size: 12
    .language_version:
      - 1
      - 2
    .max_flat_workgroup_size: 256
    .name:           lookup
    .sgpr_count:     11
    .sgpr_spill_count: 0
    .vgpr_count:     4
    .vgpr_spill_count: 0
amdhsa.target:   amdgcn-amd-amdhsa--gfx90a
";

    #[test]
    fn a_kernel_is_read() {
        let mut bytes = [0; 0x48];
        // The descriptor: local bytes, and the first instruction 72 bytes further on.
        (bytes[8], bytes[8 + 16]) = (96, 72);
        let object = CodeObject::of(&bytes, LISTING).unwrap();
        assert_eq!((object.memory.len(), object.memory[16]), (0x60, 96));
        let [kernel] = object.kernels() else {
            panic!("one kernel")
        };
        assert_eq!((&*kernel.name, kernel.vgprs), ("lookup", 4));
        assert_eq!((kernel.local_bytes, kernel.entry), (96, 0x58));
        let parameters = kernel.parameters.iter();
        let parameters: Vec<_> = parameters
            .map(|one| (one.offset, one.size, &*one.kind))
            .collect();
        assert_eq!(parameters, [(0, 8, "global_buffer"), (8, 4, "by_value")]);
    }

    #[test]
    fn what_is_broken_is_an_error() {
        let error = |listing: &str| CodeObject::of(&[0; 0x48], listing).err().unwrap();
        let with = |from, to| error(&LISTING.replace(from, to));
        assert!(error("").contains("not a code object"));
        assert!(with("no relocations", "Relocation section").contains("with relocations"));
        assert!(with("0x000040", "0x000041").contains("out of the file"));
        assert!(with("0x000050", "0x0000000100000000").contains("too large"));
        assert!(with("0000000000000010    64", "0000000000000050    64").contains("no descriptor"));
        assert!(with("lookup.kd", "lookup").contains("without a descriptor"));
        assert!(with("_size: 12", "_size: 11").contains("out of bounds"));
        assert!(with(".vgpr_count", ".vgprs").contains("without .vgpr_count"));
    }
}
