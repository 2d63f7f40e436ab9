//! What clients and brokers say to each other, in any bytes.

mod observe;
mod wire;
