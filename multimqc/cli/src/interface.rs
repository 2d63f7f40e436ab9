//! The interface of the level in the kernel, which may disappear and return while the server runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::print_error;
use multimqc_kernel::{KernelError, KernelLevel};
use serde_json::{Value, json};

/// The time between two checks of the interface.
const INTERVAL: Duration = Duration::from_millis(500);

/// The interface.
pub struct Interface {
    level: Arc<KernelLevel>,
    name: String,
    checked: Instant,
    attached: bool,
    /// Times that the interface was attached again.
    returns: u64,
    /// The reason why the level cannot be attached.
    error: Option<String>,
}

impl Interface {
    /// The interface to which the level is attached.
    pub fn new(level: Arc<KernelLevel>, name: &str) -> Interface {
        let (name, checked) = (name.to_owned(), Instant::now());
        Interface { level, name, checked, attached: true, returns: 0, error: None }
    }

    /// The time of the next check.
    pub fn due(&self) -> Instant {
        self.checked + INTERVAL
    }

    /// Checks the interface if it is time, and attaches the level to an interface that has returned.
    pub fn check(&mut self) {
        if Instant::now() < self.due() {
            return;
        }
        self.checked = Instant::now();
        let kernel = self.level.kernel();
        if kernel.is_attached() {
            return;
        }
        if std::mem::take(&mut self.attached) {
            print_error(
                "multimqc",
                format_args!(
                    "interface {} is gone; the server goes on without it and waits for it",
                    self.name
                ),
            );
        }
        let error = match kernel.attach(&self.name) {
            Ok(()) => {
                print_error(
                    "multimqc",
                    format_args!("interface {} is back: {}", self.name, kernel.modes().join(", ")),
                );
                (self.attached, self.returns) = (true, self.returns + 1);
                None
            }
            Err(KernelError::Interface { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error.as_ref().filter(|error| self.error.as_ref() != Some(error)) {
            print_error("multimqc", format_args!("level kernel: {error}; trying again"));
        }
        self.error = error;
    }

    /// The interface's part of the output of `multimqc stat`.
    pub fn report(&self) -> Value {
        json!({
            "interface": self.name,
            "attached": self.attached,
            "modes": self.level.kernel().modes(),
            "returns": self.returns,
            "error": self.error,
        })
    }
}
