PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt
INSTALLED := $(VENV)/.installed
# With pip's 5, an extra index that does not resolve costs ten minutes: it is asked for each package.
export PIP_RETRIES ?= 1

.PHONY: install demo bench test torture lint clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml .ci/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip  # which knows --group only since 25.1
	$(PIP) --editable '.[judge,onnx,postgres,track]' --group dev
	touch $@

# The bundled samples, from MIDI to new music and from speech to new babble, in demo/.
demo: install
	rm -rf demo && mkdir demo
	$(BIN)/seqmodel prepare sample_data/music --out demo/music
	$(BIN)/seqmodel train demo/music --unit lstm --run demo/lstm
	$(BIN)/seqmodel eval demo/lstm
	$(BIN)/seqmodel sample demo/out.mid --run demo/lstm
	$(BIN)/seqmodel inspect demo/out.mid --plot demo/music.png --listen demo/music.wav
	$(BIN)/seqmodel prepare sample_data/speech --out demo/speech
	$(BIN)/seqmodel train demo/speech --unit gru --run demo/gru \
		--batch-size 4 --truncate 500 --epochs 24
	$(BIN)/seqmodel eval demo/gru
	$(BIN)/seqmodel sample demo/out.wav --run demo/gru --seconds 4
	$(BIN)/seqmodel inspect demo/out.wav --plot demo/speech.png
	$(BIN)/seqmodel report demo/gru --out demo/speech.html
	@echo "listen to demo/music.wav and demo/out.wav, look at demo/*.png and demo/*/learning-curve.png;"
	@echo "demo/speech.html has the babble beside the speech that it learned from"

# Benchmarks everything on this machine, in a few minutes.
bench: install
	$(BIN)/seqmodel bench

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform linux --cache-dir .mypy_cache/linux -p seqmodel.system
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest --numprocesses 2 --dist worksteal

# Repeated attempts to break it, for up to an hour; see tests/torture.
torture: install
	$(BIN)/python tests/torture

clean:
	rm -rf demo dist
