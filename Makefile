# Every target sets up its own environment in .venv; nothing else is needed than Python 3.11+ and the package registries.
# The system's own where it will do: built with profiles, it is half as quick again as most that are built by hand.
PYTHON ?= $(or $(shell for one in /usr/bin/python3 python3; do \
    $$one -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$one && break; \
    done),python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
# What `make run` needs, and with the tools of developers.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready

# How many processes run the tests beside one another: half of their time they wait.
JOBS := 4

.PHONY: run demo-metrics demo-vm check test rewritten nightly bench simtest explore oracle clean tools bundle image images release man docs

run: $(RUNS)  ## a simulated node, live, with a web page (Ctrl-C ends)
	$(BIN)/nodeward sim --page $(ARGS)

demo-metrics: $(RUNS)  ## a simulated node and a Prometheus that reads it, with its numbers (Ctrl-C ends)
	$(BIN)/python scripts/demo-metrics $(ARGS)

demo-vm: $(READY)  ## a node in a virtual machine with a shell; follow docs/demo-vm.md (exit, or Ctrl-A X, ends)
	$(BIN)/python -m tests.vm.demo $(ARGS)

$(RUNS): constraints/run.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nodeward needs Python 3.11 or newer; give make PYTHON=python3.11")'
	@echo "installing into $(VENV): half a minute, once"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r constraints/run.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	touch $@

$(READY): constraints/dev.txt $(RUNS)
	@echo "installing the tools of developers into $(VENV): about a minute, once"
	$(INSTALL) --require-hashes -r constraints/dev.txt
	touch $@

check: $(READY)  ## layers, types, style: seconds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo || $(BIN)/lint-imports

test: $(READY)  ## every capability on what is installed here; what that leaves out, and what brings it, is said at the end
	$(BIN)/python -m compileall -q src tests
	$(MAKE) --no-print-directory -j 2 check rewritten
	$(BIN)/pytest -q -n $(JOBS) --max-worker-restart 0 -m "not nightly" $(ARGS)

rewritten: $(READY)
	@# pytest compiles each assertion anew; done once here, no process of a run has to
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --collect-only > /dev/null || true

nightly: $(READY)  ## PART=name: what takes long, or is an old or rare neighbour; without PART it lists the parts
	$(BIN)/python -m tests.nightly $(PART)

simtest: $(READY)  ## SEEDS=N seeded histories of the daemon on a simulated node; SEED=n tells one
	$(BIN)/python -m tests.unit.simulated --seeds $(or $(SEEDS),200) $(if $(SEED),--seed $(SEED))

explore: $(READY)  ## KEYS=4 MOVES=3: every history of keys on nodes with up to so many keys, about 80 s
	$(BIN)/python -m tests.unit.features.keys.together $(or $(KEYS),4) $(or $(MOVES),3)

oracle: $(READY)  ## HISTORIES=100000 of pods, told to our static CPU policy and to kubelet's code: what differs
	$(BIN)/python -m tests.contract.cpus.kubelet_histories $(or $(HISTORIES),10000)

bench: $(READY)  ## ratios, measured in one run
	$(BIN)/python -m bench

bundle: $(READY)  ## one folder in dist with the programs, for hosts without Python; about 20 s
	$(BIN)/python scripts/build-bundle

image images: $(READY)  ## the container image as an OCI archive in dist, with its SBOM; no docker, no registry
	$(BIN)/python -W ignore scripts/build-image

man: $(READY)  ## a manual page of every command in dist/man
	$(BIN)/python scripts/build-man

release: $(READY)  ## wheel, chart, image, bundle and checksums in dist/release; MINISIGN_KEY=FILE signs them
	$(BIN)/python scripts/build-release $(if $(MINISIGN_KEY),--key $(MINISIGN_KEY))

docs: $(READY)  ## the documents as a site, in dist/site; a link that leads nowhere is an error
	$(BIN)/mkdocs build

tools:  ## what the contract, real and VM tiers need (Debian packages, Go builds, a kernel); ARGS=--nightly for the rest
	bash scripts/install-tools $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
