PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8500
BENCHES ?= graph serve gates console triton observability load learning heads scores own
# Options for the benches, for example --quick.
BENCH_OPTIONS ?=

.PHONY: help install upgrade serve test lint dist check-dist bench loadtest soak docs examples protos manifests tools triton clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

install: $(VENV)/.installed ## build .venv with everything needed for development

PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
# research/ and benchmarks/ are not part of any distribution, so the checkout itself is on the path of .venv, before both
# packages.
CHECKOUT_PTH = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/00-checkout.pth

$(VENV)/.installed: pyproject.toml setup.py packaging/client/pyproject.toml constraints.txt ghostless/__init__.py
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --constraint constraints.txt -e packaging/client -e '.[dev]'
	@echo '$(CURDIR)' > "$(CHECKOUT_PTH)"
	@touch $@

upgrade: ## install the newest versions that pyproject.toml allows and write them to constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP_INSTALL) -e packaging/client -e '.[dev,docs]'
	@$(BIN)/python tools/constraints.py constraints.txt
	$(MAKE) --no-print-directory install

serve: install ## train a small demo model, export, verify and serve it
	$(BIN)/ghostless train --data synthetic --head cr --out runs/demo --skip-existing
	$(BIN)/ghostless export runs/demo --name demo --skip-existing
	$(BIN)/ghostless serve --port $(PORT)

# If the system programs or Triton are not available, the tests that need them are skipped with a message.
test: install ## run lint, type checks and all tests
	-@$(MAKE) --no-print-directory tools triton
	-@if command -v npm >/dev/null; then $(MAKE) --no-print-directory examples; fi
	$(MAKE) --no-print-directory lint
	$(BIN)/pytest

lint: install ## check style, types, imports between packages, private names, sizes of files and functions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/basedpyright --project pyproject.toml
	$(BIN)/python tools/house_rules.py

dist: install ## build wheels, sdists and SBOMs of ghostless and ghostless-server into dist/
	rm -rf dist build packaging/client/build
	$(BIN)/python -m build --outdir dist packaging/client
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tools/sbom.py ghostless dist/ghostless.cdx.json
	$(BIN)/python tools/sbom.py 'ghostless-server[serve,train,loadtest,otel]' dist/ghostless-server.cdx.json

check-dist: dist ## install the wheels of dist/ in new environments outside the checkout, serve and predict there
	$(BIN)/python tools/check_dist.py

bench: install tools triton ## run the measurement behind every claim
	@short=""; number=0; for name in $(BENCHES); do \
		number=$$((number + 1)); \
		echo "bench $$name, $$number of $(words $(BENCHES)), $$(date +%H:%M:%S)"; \
		$(BIN)/ghostless bench $$name $(BENCH_OPTIONS) --json bench/$$name.json || short="$$short $$name"; \
	done; \
	test -z "$$short" || { echo "benches that failed or fell short:$$short"; exit 1; }

loadtest: install ## compare VBLL and 5x ensembles under load: runs/loadtest/report/report.html
	$(BIN)/ghostless loadtest compare

soak: install ## run the long-running tests
	$(BIN)/pytest -m soak

docs: install ## build the documentation as a searchable site: build/site/index.html
	$(PIP_INSTALL) --constraint constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

examples: ## install the npm packages that examples/node and the browser tests need
	npm install --prefix examples/node --no-package-lock --no-audit --no-fund
	npm install --prefix tests/support/axe --no-package-lock --no-audit --no-fund

protos: install ## generate the API code from protos/ghostless/v1/prediction.proto
	$(BIN)/python -m grpc_tools.protoc -I protos --python_out=. --pyi_out=. --grpc_python_out=. ghostless/v1/prediction.proto

manifests: ## write deploy/kubernetes/rules.yaml from deploy/prometheus/rules
	@$(PYTHON) tools/prometheusrule

tools: ## fetch h2load, Prometheus, a browser and other programs from Debian into .tools, without root
	@tools/fetch h2load:nghttp2-client nghttp:nghttp2-client nghttpd:nghttp2-server nginx:nginx
	@tools/fetch prometheus:prometheus promtool:prometheus
	@tools/fetch chromium-headless-shell:chromium-headless-shell

triton: .triton/.installed ## install Triton and perf_analyzer into .triton, without root or Docker

.triton/.installed: tools/triton
	PYTHON=$(PYTHON) tools/triton

clean: ## remove everything that was built or trained
	rm -rf $(VENV) .tools .triton runs bench dist build examples/node/node_modules tests/support/axe/node_modules packaging/client/build .mypy_cache .pytest_cache .ruff_cache \
		.import_linter_cache .grimp_cache *.egg-info packaging/client/*.egg-info
