# Everything starts here; what each target does is in scripts/. `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help setup build deb run test bench bench-cmq fuzz deny coverage doc clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install what a build needs (only what is missing) and fetch the crates
	@scripts/setup

build: setup ## build the rbmq command, optimised
	cargo build --release --locked -p rbmq-cli

deb: setup ## the Debian package, with unit, manual pages and completions
	@scripts/deb

run: ## a broker fed with this machine's real files, checked by checksums, until Ctrl-C (DEMO_SECONDS=5: by itself)
	@scripts/demo

test: ## every suite, as in continuous integration
	@scripts/test

bench: setup ## measure beside other systems and their libraries, half an hour, into bench/results (BENCH=full: hours)
	@scripts/bench

bench-cmq: setup ## measure CMQ beside UDP, ZeroMQ, nng, NATS, QUIC and MessagePack-RPC, as root (BENCH=full: hours)
	@scripts/bench-cmq

fuzz: setup ## fuzz with libFuzzer (FUZZ_HOURS=1 for each target, FUZZ_TARGET=name for one)
	@scripts/fuzz

deny: setup ## licences, bans, sources and advisories with cargo-deny
	@scripts/deny

coverage: setup ## line coverage of the tests with cargo-llvm-cov
	@scripts/coverage

doc: setup ## the documentation of every crate
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

clean: ## remove everything that was built
	cargo clean
	rm -rf fuzz/target fuzz/artifacts
