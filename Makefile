PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: install demo bench test lint clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml .ci/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint .ci/constraints.txt --editable '.[dev]'
	touch $@

# The bundled sample, from MIDI to new music, in demo/.
demo: install
	rm -rf demo && mkdir demo
	$(BIN)/seqmodel prepare sample_data/music --out demo/sample
	$(BIN)/seqmodel train demo/sample --unit lstm --run demo/lstm
	$(BIN)/seqmodel eval demo/lstm
	$(BIN)/seqmodel sample demo/out.mid --run demo/lstm
	$(BIN)/seqmodel inspect demo/out.mid --plot demo/out.png
	@echo "listen to demo/out.mid, look at demo/out.png and demo/lstm/learning-curve.png"

# The speed of everything on this machine, in some minutes.
bench: install
	$(BIN)/seqmodel bench

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest --numprocesses 2

clean:
	rm -rf demo dist
