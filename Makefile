PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8500
BENCHES ?= graph serve triton observability load learning heads
# For example --quick.
BENCH_OPTIONS ?=

.PHONY: help install serve test lint bench loadtest soak protos manifests tools triton clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(VENV)/.installed ## build .venv with all that development needs

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

serve: install ## train a small demo model, export, verify and serve it
	$(BIN)/ghostless train --data synthetic --head cr --out runs/demo --skip-existing
	$(BIN)/ghostless export runs/demo --name demo --skip-existing
	$(BIN)/ghostless serve --port $(PORT)

# Where the system programs or Triton can't be had, the tests that drive them skip and say so.
test: install ## lint, types and all tests
	-@$(MAKE) --no-print-directory tools triton
	$(MAKE) --no-print-directory lint
	$(BIN)/pytest

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install tools triton ## every measurement behind a claim
	@short=""; number=0; for name in $(BENCHES); do \
		number=$$((number + 1)); \
		echo "bench $$name, $$number of $(words $(BENCHES)), $$(date +%H:%M:%S)"; \
		$(BIN)/ghostless bench $$name $(BENCH_OPTIONS) --json bench/$$name.json || short="$$short $$name"; \
	done; \
	test -z "$$short" || { echo "benches that failed or fell short:$$short"; exit 1; }

loadtest: install ## VBLL against 5x ensembles under load: runs/loadtest/report/report.html
	$(BIN)/ghostless loadtest compare

soak: install ## the long-running tests
	$(BIN)/pytest -m soak

protos: install ## generate the API code from protos/ghostless/v1/prediction.proto
	$(BIN)/python -m grpc_tools.protoc -I protos --python_out=. --pyi_out=. --grpc_python_out=. ghostless/v1/prediction.proto

manifests: ## write deploy/kubernetes/rules.yaml from deploy/prometheus/rules
	@$(PYTHON) tools/prometheusrule

tools: ## fetch h2load, Prometheus, a browser and the like from Debian into .tools, without root
	@tools/fetch h2load:nghttp2-client nghttpd:nghttp2-server prometheus:prometheus promtool:prometheus
	@tools/fetch chromium-headless-shell:chromium-headless-shell

triton: .triton/.installed ## a real Triton and perf_analyzer into .triton, without root or Docker

.triton/.installed: tools/triton
	PYTHON=$(PYTHON) tools/triton

clean: ## remove what was built and trained
	rm -rf $(VENV) .tools .triton runs bench .mypy_cache .pytest_cache .ruff_cache *.egg-info
