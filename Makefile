# Thin on purpose: each target calls labkit, pytest or jupyter from .venv, which the first of them sets up.
BIN := .venv/bin

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

run: .venv/.stamp ## measure this machine (about a minute), then draw every figure
	@$(BIN)/labkit run --measure

paper: .venv/.stamp ## draw the committed figures again, from the published data alone
	@$(BIN)/labkit run --data-dir data/reference --figures-dir figures/published

test: .venv/.stamp ## what CI runs: ruff, then every test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m pytest

lab: .venv/.stamp ## open the notebooks in JupyterLab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

bench: .venv/.stamp ## labkit against its peers on this machine
	$(BIN)/python -m benchmarks

.venv/.stamp: pyproject.toml
	@sh .ci/venv
	@touch $@

.PHONY: help run paper test lab bench
