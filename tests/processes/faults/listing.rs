//! Faults while the devices are listed: then a join stays on the host, or on another device.

use horton_join::device::{list, pick};
use horton_test_support::internals::faults::{self, Fault};

use super::watch::one_at_a_time;

#[test]
fn listing_devices_survives_any_fault() {
    let _guard = one_at_a_time();
    faults::begin(None);
    let devices = list().unwrap();
    let uses = faults::end().uses;
    assert!(!devices.is_empty());
    assert!(uses.len() >= 4, "{uses:?}");
    for (site, uses) in &uses {
        for nth in 1..=*uses {
            for lasts in [false, true] {
                faults::begin(Some(Fault {
                    site: site.clone(),
                    nth,
                    status: "CL_OUT_OF_HOST_MEMORY",
                    lasts,
                }));
                // A device that does not say all about itself may lack what kernels need.
                let picked = pick("auto");
                let failed = faults::end().failed;
                assert!(failed > 0, "{site} {nth}");
                if let Err(error) = picked {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert_eq!(list().unwrap().len(), devices.len());
}
