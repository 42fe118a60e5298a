//! The physical device behind what a driver offers.
//!
//! ```text
//!  cl_khr_pci_bus_info │ AMD's topology │ NVIDIA's bus and slot ─▶ place on the PCI bus ─┐
//!  cl_khr_device_uuid ──────────────────────────────────────────▶ UUID ──────────────────┴▶ same?
//! ```
//!
//! Two platforms may offer one GPU, such as those of AMD and of Mesa. Their names for it differ:
//! AMD's names the chip, `gfx1100`. If both counted, joins that share devices would share one with
//! itself. The place on the bus is the same whoever says it, so it counts before the UUID. For that
//! a driver may have a rule of its own.

/// The facts that tell devices apart. A driver may lack some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pci: Option<PciPlace>,
    uuid: Option<[u8; 16]>,
}

/// A place on the PCI bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PciPlace {
    /// `None` if the driver does not say.
    domain: Option<u32>,
    bus: u32,
    device: u32,
    function: u32,
}

// The requests, which have no names in `ocl`.
const PCI_BUS_INFO_KHR: u32 = 0x410f;
const UUID_KHR: u32 = 0x106a;
const TOPOLOGY_AMD: u32 = 0x4037;
const PCI_BUS_ID_NV: u32 = 0x4008;
const PCI_SLOT_ID_NV: u32 = 0x4009;
const PCI_DOMAIN_ID_NV: u32 = 0x400a;

impl Identity {
    /// Returns that of a device with what `has` says of its extensions. `ask` returns its answer to
    /// a request, or nothing.
    pub(super) fn new(has: impl Fn(&str) -> bool, ask: impl Fn(u32) -> Vec<u8>) -> Self {
        let of_khronos = || pci_of_khronos(&ask(PCI_BUS_INFO_KHR));
        let of_amd = || pci_of_amd(&ask(TOPOLOGY_AMD));
        let of_nvidia = || pci_of_nvidia(&ask);
        let pci = [
            has("cl_khr_pci_bus_info").then(of_khronos),
            has("cl_amd_device_attribute_query").then(of_amd),
            has("cl_nv_device_attribute_query").then(of_nvidia),
        ];
        let uuid = has("cl_khr_device_uuid").then(|| ask(UUID_KHR).try_into().ok());
        Self {
            pci: pci.into_iter().flatten().flatten().next(),
            uuid: uuid.flatten().filter(|uuid| *uuid != [0; 16]),
        }
    }

    /// Returns whether both are of one device, as far as the drivers say enough to tell.
    pub(super) fn is_same(&self, other: &Self) -> Option<bool> {
        match (self.pci, other.pci, self.uuid, other.uuid) {
            (Some(own), Some(other), ..) => Some(own.is_same(&other)),
            (.., Some(own), Some(other)) => Some(own == other),
            _ => None,
        }
    }
}

impl PciPlace {
    fn is_same(&self, other: &Self) -> bool {
        let domains = self.domain.zip(other.domain);
        let place = |of: &Self| (of.bus, of.device, of.function);
        domains.is_none_or(|(own, other)| own == other) && place(self) == place(other)
    }
}

fn pci_of_khronos(answer: &[u8]) -> Option<PciPlace> {
    let [domain, bus, device, function] = [0, 4, 8, 12].map(|at| word(answer, at));
    Some(PciPlace {
        domain: Some(domain?),
        bus: bus?,
        device: device?,
        function: function?,
    })
}

/// AMD's answer has a type, of which 1 is PCI Express, and the place in its last three bytes.
fn pci_of_amd(answer: &[u8]) -> Option<PciPlace> {
    const PCI_EXPRESS: u32 = 1;
    let [bus, device, function]: [u8; 3] = answer.get(21..24)?.try_into().ok()?;
    (word(answer, 0) == Some(PCI_EXPRESS)).then(|| PciPlace {
        domain: None,
        bus: bus.into(),
        device: device.into(),
        function: function.into(),
    })
}

/// NVIDIA's slot has the device above the three bits of the function.
fn pci_of_nvidia(ask: impl Fn(u32) -> Vec<u8>) -> Option<PciPlace> {
    let slot = word(&ask(PCI_SLOT_ID_NV), 0)?;
    Some(PciPlace {
        domain: word(&ask(PCI_DOMAIN_ID_NV), 0),
        bus: word(&ask(PCI_BUS_ID_NV), 0)?,
        device: slot >> 3,
        function: slot & 7,
    })
}

fn word(answer: &[u8], at: usize) -> Option<u32> {
    let bytes = answer.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity of a device with one extension and these answers.
    fn identity(extension: &str, answers: &[(u32, Vec<u8>)]) -> Identity {
        let answer = |request| {
            let found = answers.iter().find(|(asked, _)| *asked == request);
            found.map(|(_, answer)| answer.clone()).unwrap_or_default()
        };
        Identity::new(|asked| asked == extension, answer)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn khronos(place: [u32; 4]) -> Identity {
        identity("cl_khr_pci_bus_info", &[(PCI_BUS_INFO_KHR, words(&place))])
    }

    fn amd(kind: u32, place: [u8; 3]) -> Identity {
        let answer = [words(&[kind]), vec![9; 17], place.to_vec()].concat();
        identity("cl_amd_device_attribute_query", &[(TOPOLOGY_AMD, answer)])
    }

    #[test]
    fn one_gpu_of_two_drivers_has_one_place() {
        let mesa = khronos([0, 3, 0, 0]);
        assert_eq!(mesa.is_same(&amd(1, [3, 0, 0])), Some(true));
        assert_eq!(mesa.is_same(&amd(1, [4, 0, 0])), Some(false));
        assert_eq!(mesa.is_same(&khronos([1, 3, 0, 0])), Some(false));
        let nvidia = [
            (PCI_BUS_ID_NV, words(&[0x41])),
            (PCI_SLOT_ID_NV, words(&[2 << 3 | 1])),
            (PCI_DOMAIN_ID_NV, words(&[5])),
        ];
        let nvidia = identity("cl_nv_device_attribute_query", &nvidia);
        assert_eq!(nvidia.is_same(&khronos([5, 0x41, 2, 1])), Some(true));
    }

    #[test]
    fn without_a_place_the_uuid_decides() {
        let uuid = |byte| identity("cl_khr_device_uuid", &[(UUID_KHR, vec![byte; 16])]);
        assert_eq!(uuid(7).is_same(&uuid(7)), Some(true));
        assert_eq!(uuid(7).is_same(&uuid(8)), Some(false));
        assert_eq!(uuid(7).is_same(&khronos([0, 3, 0, 0])), None);
        assert_eq!(uuid(0).is_same(&uuid(0)), None, "a driver that has none");
    }

    #[test]
    fn what_is_not_known_is_not_the_same() {
        let nothing = Identity::default();
        assert_eq!(nothing.is_same(&nothing), None);
        assert_eq!(amd(2, [3, 0, 0]), nothing, "not on such a bus");
        let short = identity("cl_khr_pci_bus_info", &[(PCI_BUS_INFO_KHR, words(&[1]))]);
        assert_eq!(short, nothing);
        assert_eq!(identity("another", &[(UUID_KHR, vec![1; 16])]), nothing);
    }
}
