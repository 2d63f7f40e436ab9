//! The rows of the measurements.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub part: String,
    pub system: String,
    pub rep: u32,
    pub incoming_mbit: f64,
    pub nodes: u32,
    pub viewers: u64,
    /// Media to viewers, or from producers.
    pub mbit_per_s: f64,
    /// Processor seconds of the measured program per second.
    pub cores: f64,
    pub cores_by_program: Vec<(String, f64)>,
    pub errors: u64,
    pub first_error: Option<String>,
    pub generator_cores: f64,
    pub share: Option<f64>,
    pub times_us: Vec<u64>,
    /// Memory of the measured program, and that of the buffers that are configured.
    #[serde(default)]
    pub memory_mib: f64,
    #[serde(default)]
    pub buffers_mib: f64,
    pub kernel: String,
}

impl Row {
    /// A row without figures.
    pub fn new(part: &str, system: &str, rep: u32) -> Self {
        Self {
            part: part.into(),
            system: system.into(),
            rep,
            incoming_mbit: 0.0,
            nodes: 1,
            viewers: 0,
            mbit_per_s: 0.0,
            cores: 0.0,
            cores_by_program: Vec::new(),
            errors: 0,
            first_error: None,
            generator_cores: 0.0,
            share: None,
            times_us: Vec::new(),
            memory_mib: 0.0,
            buffers_mib: 0.0,
            kernel: benchkit::sys::kernel(),
        }
    }

    /// Fills in what viewers say.
    pub fn heard(&mut self, said: &Value) {
        let number = |name: &str| said[name].as_f64().unwrap_or(0.0);
        self.viewers = said["viewers"].as_u64().unwrap_or(0);
        self.mbit_per_s = number("mbit_per_s");
        self.errors = said["errors"].as_u64().unwrap_or(0);
        self.first_error = said["first_error"]["message"].as_str().map(str::to_owned);
        self.generator_cores = number("cpu_s_per_gbit") * self.mbit_per_s / 1000.0;
    }
}
