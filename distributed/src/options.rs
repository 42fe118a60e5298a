//! The options of one task: a worker's own, and those that its query brings.
//!
//! ```text
//!  header  x-datafusion-distributed-config-horton.horton.enabled: never
//!          └───────── theirs ────────────┘ prefix └─ our entry ─┘
//!
//!  option   query differs from the default?  yes ─▶ the query's
//!                                            no  ─▶ the worker's flag, or the default
//!  device, device_memory_limit: has the worker a flag?  yes ─▶ the worker's
//! ```
//!
//! Coordinators send every option, also those that nobody set. So a value that is the default says
//! nothing, and the worker's flag stays. A query cannot set such a flag back. Devices and
//! their memory belong to a machine, so a worker's own flags for them win.
//!
//! Headers are read here. `with_distributed_option_extension_from_headers` looks for `enabled`
//! among our entries, which are called `horton.enabled`, and drops them all without a word.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use datafusion::error::{DataFusionError, Result};
use horton_join::config::HortonConfig;
use http::{HeaderMap, HeaderValue};

/// The text before an option of this crate in the name of a header.
const HEADER: &str = "x-datafusion-distributed-config-horton.";

/// Returns the options of a task on a worker whose own are `own`.
///
/// # Errors
/// If an option that arrives has no valid value.
pub fn for_task(own: &HortonConfig, headers: &HeaderMap) -> Result<HortonConfig> {
    let defaults = HortonConfig::default().to_pairs();
    let mut options = own.clone();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(HEADER) else {
            continue;
        };
        let key = key.strip_prefix("horton.").unwrap_or(key);
        let Some((_, default)) = defaults.iter().find(|(known, _)| known == key) else {
            warn_once(key);
            continue;
        };
        let value = text(key, value)?;
        let is_own = match key {
            "device" => own.device != HortonConfig::AUTO,
            "device_memory_limit" => own.device_memory_limit != 0,
            _ => false,
        };
        if value != default && !is_own {
            options
                .set_option(key, value)
                .map_err(|error| DataFusionError::Configuration(error.to_string()))?;
        }
    }
    Ok(options)
}

fn text<'a>(key: &str, value: &'a HeaderValue) -> Result<&'a str> {
    value.to_str().map_err(|_| {
        DataFusionError::Configuration(format!(
            "horton.{key} arrived with characters that are not ASCII: name the device by \
             PLATFORM:INDEX, or by a part of its name that is ASCII"
        ))
    })
}

/// Says once that this worker does not know an option. Coordinators of a later version send those
/// that nobody set, too, so an error would end all of their queries.
fn warn_once(key: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(key.to_owned()) {
        log::warn!("this worker has no option horton.{key}, which its coordinator sent");
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use horton_join::config::Enabled;

    use super::*;

    /// Headers as a coordinator sends them: all options, `set` among them.
    fn headers(set: &[(&str, &str)]) -> HeaderMap {
        let mut sent = HortonConfig::default();
        sent.set_pairs(set.iter().copied()).unwrap();
        let mut headers = HeaderMap::new();
        for (key, value) in sent.to_pairs() {
            let name = format!("{HEADER}horton.{key}");
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn own(set: &[(&str, &str)]) -> HortonConfig {
        let mut own = HortonConfig::default();
        own.set_pairs(set.iter().copied()).unwrap();
        own
    }

    #[test]
    fn a_query_does_not_change_what_belongs_to_the_machine() {
        let flags = own(&[("device", "0:0"), ("device_memory_limit", "100")]);
        let sent = headers(&[("device", "0:1"), ("device_memory_limit", "200")]);
        assert_eq!(for_task(&flags, &sent).unwrap(), flags);
        let set = for_task(&HortonConfig::default(), &sent).unwrap();
        assert_eq!((set.device.as_str(), set.device_memory_limit), ("0:1", 200));
    }

    #[test]
    fn what_a_query_sets_wins() {
        let flags = own(&[("enabled", "always"), ("chunk_rows", "100")]);
        let sent = headers(&[("enabled", "never"), ("min_build_rows", "7")]);
        let options = for_task(&flags, &sent).unwrap();
        assert_eq!(options.enabled, Enabled::Never);
        assert_eq!(options.min_build_rows, 7);
        assert_eq!(options.chunk_rows, 100);
    }

    #[test]
    fn what_nobody_set_leaves_the_flags() {
        let flags = own(&[("enabled", "never"), ("spill", "false")]);
        assert_eq!(for_task(&flags, &headers(&[])).unwrap(), flags);
        assert_eq!(for_task(&flags, &HeaderMap::new()).unwrap(), flags);
    }

    #[test]
    fn a_worker_knows_its_own_devices() {
        let sent = headers(&[("device", "theirs")]);
        let named = for_task(&own(&[("device", "mine")]), &sent).unwrap();
        assert_eq!(named.device, "mine");
        assert_eq!(for_task(&own(&[]), &sent).unwrap().device, "theirs");
    }

    #[test]
    fn other_headers_are_not_ours() {
        let mut sent = headers(&[]);
        sent.insert(
            "x-datafusion-distributed-config-hortonless.a",
            "b".parse().unwrap(),
        );
        sent.insert("authorization", "horton.enabled".parse().unwrap());
        assert_eq!(for_task(&own(&[]), &sent).unwrap(), own(&[]));
    }

    #[test]
    fn unknown_options_are_left_out_and_bad_values_are_errors() {
        let name = |key: &str| {
            format!("{HEADER}horton.{key}")
                .parse::<HeaderName>()
                .unwrap()
        };
        let mut sent = headers(&[]);
        sent.insert(name("newer"), "1".parse().unwrap());
        assert_eq!(for_task(&own(&[]), &sent).unwrap(), own(&[]));

        sent.insert(name("enabled"), "maybe".parse().unwrap());
        let error = for_task(&own(&[]), &sent).unwrap_err().to_string();
        assert!(error.contains("horton.enabled"), "{error}");

        let mut sent = headers(&[]);
        sent.insert(
            name("device"),
            HeaderValue::from_bytes("™".as_bytes()).unwrap(),
        );
        let error = for_task(&own(&[]), &sent).unwrap_err().to_string();
        assert!(error.contains("PLATFORM:INDEX"), "{error}");
    }
}
