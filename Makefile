# Strongback: `make demo` shows it, `make test` proves it. `make help` lists the rest.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo build bench test test-all crash faults clean

help: ## this list
	@echo "make demo [ARGS=\"…\"]   build and run the demo on http://127.0.0.1:8080  (ARGS=\"--duration 30s --headless\")"
	@echo "make build             page and release binary; leaves the link target/strongback"
	@echo "make bench             the benchmarks: target/strongback bench --help"
	@echo "make test              everything: format, lints, licences, Rust, web, end to end with real clients"
	@echo "make test-all          the same, and licences by cargo-deny, which it compiles"
	@echo "make crash             the full kill -9 test, 200 rounds (make test runs 5)"
	@echo "make faults            ten minutes of the pad through faults, the books compared (make test runs 15 s)"
	@echo "make clean             remove what was built in this folder (caches stay)"
	@echo
	@echo "CARGO_TARGET_DIR is respected. What the tests build once is kept in \$${XDG_CACHE_HOME:-~/.cache}/strongback."

demo: ## build, then run the demo with $(ARGS)
	@scripts/build.sh
	@exec target/strongback demo $(ARGS)

build: ## page, release binary, target/strongback
	@scripts/build.sh

bench: ## the release binary, and the benchmarks beside it
	@scripts/build.sh bench

test: ## all tests
	@scripts/test.sh

test-all: ## all tests, and those that need another tool to be compiled
	@STRONGBACK_TEST_ALL=1 scripts/test.sh

faults: ## ten minutes of the pad through faults, the books of both sides compared
	@scripts/build.sh bench
	@exec target/strongback bench faults --duration-s 600 $(ARGS)

crash: ## the full kill -9 test
	@scripts/build.sh bench
	@exec target/strongback bench crash --rounds 200 $(ARGS)

clean: ## remove what was built in this folder
	@rm -rf target web/dist web/node_modules
