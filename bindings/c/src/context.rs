//! Configurations and contexts.

use std::ffi::c_char;
use std::path::Path;

use rocketbufs::{Budget, Config, Context};

use crate::handles::{rb_budget, rb_config, rb_context};
use crate::raw::{self, answer, copy_out, optional_text, place, put, rb_id128, text};
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{exclusive, free_shared, insert, shared, take};

fn new_config(out: *mut *mut rb_config, config: impl FnOnce() -> Result<Config, Failure>) -> Outcome {
    place(out, "the place for the configuration")?;
    put(out, insert(config()?)?);
    Ok(())
}

/// Makes a configuration with the default settings.
///
/// `*out` is the caller's, until `rb_config_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_config_new(out: *mut *mut rb_config) -> rb_status {
    call(|| new_config(out, || Ok(Config::default())))
}

/// Loads a configuration: the TOML file `path`, if it is not NULL, overridden by the environment (`ROCKETBUFS_TCP_NODELAY`
/// and so on; docs/CONFIGURATION.md has every setting).
///
/// `*out` is the caller's, until `rb_config_free`. Any thread. Fails with `RB_ERR_CONFIG`; the text names file, line and
/// setting.
#[unsafe(no_mangle)]
pub extern "C" fn rb_config_load(path: *const c_char, out: *mut *mut rb_config) -> rb_status {
    call(|| {
        new_config(out, || {
            let path = optional_text(path, "the path")?.map(Path::new);
            Ok(Config::load(path)?)
        })
    })
}

/// Reads a configuration from a text in TOML. Settings that the text does not name keep their defaults.
///
/// `*out` is the caller's, until `rb_config_free`. Any thread. Fails with `RB_ERR_CONFIG`; the text names line and setting.
#[unsafe(no_mangle)]
pub extern "C" fn rb_config_from_toml(toml: *const c_char, out: *mut *mut rb_config) -> rb_status {
    call(|| new_config(out, || Ok(Config::from_toml(text(toml, "the configuration's text")?)?)))
}

/// Sets one setting from a text: `rb_config_set(config, "tcp.nodelay", "false")`. Sizes and times may have a unit ("64 MiB",
/// "10 s").
///
/// One thread uses a configuration at a time. Fails with `RB_ERR_CONFIG`, and the configuration is then unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn rb_config_set(
    config: *mut rb_config,
    name: *const c_char,
    value: *const c_char,
) -> rb_status {
    call(|| {
        let mut config = exclusive::<Config>(config)?;
        Ok(config.set(text(name, "the setting's name")?, text(value, "the setting's value")?)?)
    })
}

/// The whole configuration as TOML, as `snprintf` would write it: at most `capacity` bytes with the zero at the end, and
/// `*len` gets the length of the whole text.
///
/// `to` may be NULL if `capacity` is 0, and `len` may be NULL. One thread uses a configuration at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_config_to_toml(
    config: *const rb_config,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| copy_out(exclusive::<Config>(config)?.to_toml().as_bytes(), to, capacity, len))
}

/// Frees a configuration. NULL does nothing. Contexts that were made from it are not affected.
#[unsafe(no_mangle)]
pub extern "C" fn rb_config_free(config: *mut rb_config) -> rb_status {
    call(|| if config.is_null() { Ok(()) } else { take::<Config>(config).map(drop) })
}

/// Reserves memory and starts worker threads: one context for each process is enough. `config` may be NULL for the default
/// settings; it is read and not kept.
///
/// `*out` is the caller's, until `rb_context_free`. Any thread. Fails with `RB_ERR_CONFIG`, `RB_ERR_MEMORY`,
/// `RB_ERR_TRANSPORT` or `RB_ERR_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_new(config: *const rb_config, out: *mut *mut rb_context) -> rb_status {
    answer(out, "the place for the context", || {
        let config = match config.is_null() {
            true => Config::default(),
            false => exclusive::<Config>(config)?.clone(),
        };
        insert(Context::new(config)?)
    })
}

/// As `rb_config_load` and `rb_context_new`: a context from a file, if `path` is not NULL, and the environment.
///
/// `*out` is the caller's, until `rb_context_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_load(path: *const c_char, out: *mut *mut rb_context) -> rb_status {
    answer(out, "the place for the context", || {
        let path = optional_text(path, "the path")?.map(Path::new);
        insert(Context::new(Config::load(path)?)?)
    })
}

/// A copy of the configuration that the context was made with.
///
/// `*out` is the caller's, until `rb_config_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_config(context: *const rb_context, out: *mut *mut rb_config) -> rb_status {
    call(|| new_config(out, || Ok(shared::<Context>(context)?.config().clone())))
}

/// The bytes of all present rings. Their memory is backed on first use. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_memory_in_use(context: *const rb_context, bytes: *mut u64) -> rb_status {
    answer(bytes, "the place for the bytes", || Ok(shared::<Context>(context)?.memory_in_use()))
}

/// The number of mapped rings of other processes, and their bytes (transport `shm`). Either place may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_mapped(
    context: *const rb_context,
    rings: *mut usize,
    bytes: *mut u64,
) -> rb_status {
    call(|| {
        let mapped = shared::<Context>(context)?.mapped();
        put(rings, mapped.0);
        put(bytes, mapped.1);
        Ok(())
    })
}

/// The random name of this process's endpoint, which every peer learns. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_instance(context: *const rb_context, out: *mut rb_id128) -> rb_status {
    answer(out, "the place for the name", || Ok(shared::<Context>(context)?.instance().into()))
}

/// Allows callbacks on threads of the application that wait in `rb_rin_recv`, or for room in a buffer, inside that call. Such
/// a thread does a worker's work instead of waiting for it. Callbacks must then not need anything that such a thread holds,
/// such as a lock. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_allow_callbacks_in_calls(context: *const rb_context) -> rb_status {
    call(|| shared::<Context>(context).map(|context| context.allow_callbacks_in_calls()))
}

/// Says goodbye to every peer, gives queued data at most `grace` nanoseconds to leave, and stops the threads. Handles stay
/// valid; calls on them fail. Any thread. Inside a callback it does not wait for the threads, which stop when the callback has
/// returned.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_shutdown(context: *const rb_context, grace: i64) -> rb_status {
    call(|| {
        shared::<Context>(context)?.shutdown(raw::duration(grace, "the grace")?);
        Ok(())
    })
}

/// Frees a context's handle. NULL does nothing. The threads stop when the handles of everything in the context are freed too:
/// each keeps the context alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_free(context: *mut rb_context) -> rb_status {
    call(|| if context.is_null() { Ok(()) } else { free_shared::<Context>(context) })
}

/// Makes a budget of so many bytes, which the rings of many subscriptions share (`rb_subscribe_options.budget`).
///
/// `*out` is the caller's, until `rb_budget_free`; subscriptions keep the budget alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_budget_new(bytes: u64, out: *mut *mut rb_budget) -> rb_status {
    answer(out, "the place for the budget", || insert(Budget::new(bytes)))
}

/// The bytes of a budget, and how many of them rings take now. Either place may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_budget_info(budget: *const rb_budget, bytes: *mut u64, in_use: *mut u64) -> rb_status {
    call(|| {
        let budget = shared::<Budget>(budget)?;
        put(bytes, budget.bytes());
        put(in_use, budget.in_use_bytes());
        Ok(())
    })
}

/// Frees a budget's handle. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_budget_free(budget: *mut rb_budget) -> rb_status {
    call(|| if budget.is_null() { Ok(()) } else { free_shared::<Budget>(budget) })
}
